# A picture of MPI's time over ours by size, as SVG, of the newest machine among files as bench/results/*.jsonl:
#     awk -f bench/field.awk -f bench/ratios.awk bench/results/*.jsonl >ratios.svg
# Two ranks on one node, warm caches; at the right the median over the collectives.

/"machine":/ { # its rows follow; those of an older machine count no more
    skip = field("date") <= date
    if (skip) next
    date = field("date")
    machine = field("machine") ", " field("cores") " cores"
    split("", ratio)
    split("", count)
    split("", mpi)
    mpis = 0
}
!skip && /"vs":/ && /"ranks":2,"nodes":1,/ && /"caches":"warm"/ && field("bytes") > 0 &&
    field("op") ~ /^(all_reduce|reduce_scatter|all_gather|broadcast|reduce|gather|scatter|all_to_all)$/ {
    vs = field("vs")
    if (!(vs in mpi)) {
        mpi[vs] = ++mpis
        name[mpis] = vs
    }
    key = mpi[vs] SUBSEP field("memory") SUBSEP field("bytes")
    size[field("bytes")] = 1
    if (field("op") == "all_reduce") ratio[1, key] = field("ratio") + 0
    sorted_add(key, field("ratio") + 0)
}
function sorted_add(key, x,    k) {
    for (k = ++count[key]; k > 1 && sorted[key, k - 1] > x; k--) sorted[key, k] = sorted[key, k - 1]
    sorted[key, k] = x
}
function line(x, y, x2, y2, more) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x, y, x2, y2, more
}
function style(p, m) { # of a curve, and of its points
    dash = m == "private" ? " stroke-dasharray=\"5 4\"" : ""
    hollow = m == "private" ? "white" : color[p]
    return "fill=\"none\" stroke=\"" color[p] "\" stroke-width=\"2\"" dash
}
function point(x, y, p) {
    printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", x, y,
        hollow, color[p]
}
function at_x(bytes) { return left + 18 + (log(bytes) - log(least)) / (log(largest) - log(least)) * (WIDE - 36) }
function at_y(r) { return TOP + HIGH - r / most * HIGH }
function people(bytes) {
    if (bytes < 1024) return bytes " B"
    return bytes < 1048576 ? bytes / 1024 " KiB" : bytes / 1048576 " MiB"
}
function panel(which, title,    y, b, p, m, key, path, n) {
    text(left + WIDE / 2, TOP - 10, "middle", title, " font-weight=\"bold\"")
    for (y = 0; y <= most; y++) {
        line(left, at_y(y), left + WIDE, at_y(y), "stroke=\"" (y == 1 ? "#555" : "#ddd") "\"")
        text(left - 6, at_y(y) + 4, "end", y)
    }
    for (b = least; b <= largest; b *= 8) text(at_x(b), TOP + HIGH + 17, "middle", people(b), " font-size=\"11\"")
    for (p = 1; p <= mpis; p++)
        for (m = 1; m <= 2; m++) {
            path = ""
            for (b = least; b <= largest; b *= 8) {
                key = p SUBSEP memory[m] SUBSEP b
                if ((which, key) in ratio)
                    path = path (path == "" ? "M" : "L") sprintf("%.1f %.1f", at_x(b), at_y(ratio[which, key]))
            }
            print "<path d=\"" path "\" " style(p, memory[m]) "/>"
            n = split(substr(path, 2), points, "L")
            for (y = 1; y <= n; y++) {
                split(points[y], xy, " ")
                point(xy[1], xy[2], p)
            }
        }
}
END {
    WIDE = 375; HIGH = 220; TOP = 80; least = 8
    split("#2166ac #d95f02 #333333", color, " ")
    split("private symmetric", memory, " ")
    for (key in count)
        ratio[2, key] = (sorted[key, int((count[key] + 1) / 2)] + sorted[key, int(count[key] / 2) + 1]) / 2
    for (key in ratio) if (ratio[key] > most) most = ratio[key]
    most = int(most) + 1
    for (b in size) if (b + 0 > largest) largest = b + 0
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"372\" viewBox=\"0 0 860 372\""
    print "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    text(12, 22, "start", "How many times as long MPI takes: time of MPI / time of par.h (above 1: par.h is faster)", \
        " font-weight=\"bold\" font-size=\"14\"")
    text(12, 42, "start", machine ", 2 ranks, f32, " date "; " name[1] (mpis > 1 ? ", " name[2] : ""))
    left = 34
    panel(1, "all_reduce")
    left = 34 + WIDE + 60
    panel(2, "median of 8 collectives")
    for (p = 1; p <= mpis; p++)
        for (m = 1; m <= 2; m++) {
            x = 30 + (2 * p + m - 3) * 200
            print "<path d=\"M" x " 348L" x + 34 " 348\" " style(p, memory[m]) "/>"
            point(x + 17, 348, p)
            text(x + 40, 352, "start", name[p] ", " (m == 1 ? "ordinary" : "par_alloc"))
        }
    print "</svg>"
}
