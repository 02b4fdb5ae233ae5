# A picture of the simulated time of all_reduce by ranks, as SVG, of what bench/simulated.sh printed:
#     awk -f bench/field.awk -f bench/scale.awk bench/results/simulated.jsonl >simulated.svg
function x(ranks) { return 70 + (log(ranks) - log(16)) / (log(131072) - log(16)) * 560 }
function y(us) { return 350 - log(us) / log(10) * 300 / 8 } # from 1 us to 100 s
function line(x1, y1, x2, y2) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", x1, y1, x2, y2
}
function size(bytes) { return bytes < 1024 ? bytes " B" : bytes < 1048576 ? bytes / 1024 " KiB" : bytes / 1048576 " MiB" }
/"mode":"simulated"/ && field("time_us") != "null" {
    bytes = field("bytes") + 0
    if (!(bytes in points)) order[++curves] = bytes
    points[bytes] = points[bytes] sprintf("%.1f,%.1f ", x(field("ranks")), y(field("time_us")))
    last[bytes] = field("time_us")
    end[bytes] = field("ranks")
    network = field("network")
}
END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 410\" font-family=\"sans-serif\" font-size=\"13\">"
    print "<rect width=\"720\" height=\"410\" fill=\"white\"/>"
    text(350, 24, "middle", "all_reduce on nodes of 8 ranks, simulated: " network ", 25 GB/s", " font-size=\"15\"")
    split("1 us,10 us,100 us,1 ms,10 ms,100 ms,1 s,10 s,100 s", label, ",")
    for (i = 0; i <= 8; i++) {
        line(70, y(10 ^ i), 630, y(10 ^ i))
        text(62, y(10 ^ i) + 4, "end", label[i + 1])
    }
    for (ranks = 16; ranks <= 16384; ranks *= 4) text(x(ranks), 370, "middle", ranks)
    text(x(131072), 370, "middle", 131072)
    text(350, 395, "middle", "ranks")
    split("#0b5fa5 #d9541e #2b8a3e", color, " ")
    for (i = 1; i <= curves; i++) {
        printf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", points[order[i]], color[i]
        text(x(end[order[i]]) + 8, y(last[order[i]]) + 4, "start", size(order[i]), " fill=\"" color[i] "\"")
    }
    print "</svg>"
}
