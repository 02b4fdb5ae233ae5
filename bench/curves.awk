# A picture of two trainings' losses by step, as SVG, of what bench/nanogpt.py printed:
#     awk -f bench/field.awk -f bench/curves.awk bench/results/nanogpt.jsonl >nanogpt.svg
function x(step) { return 60 + step * 680 / steps }
function y(loss) { return 350 - (loss - 0.75) * 300 / 2 }
function curve(key, style) { printf "<polyline points=\"%s\" fill=\"none\" %s/>\n", points[key], style }
function entry(at_y, style, words) {
    printf "<line x1=\"500\" y1=\"%d\" x2=\"540\" y2=\"%d\" %s/>\n", at_y - 4, at_y - 4, style
    text(548, at_y, "start", words)
}
/"gpu":/ {
    steps = field("steps") + 0
    title = sprintf("GPT-2 of 10.8 M parameters, tinyshakespeare: one %s, torch %s, %s", field("gpu"),
                    field("torch"), field("date"))
}
/"side":/ {
    side = field("side")
    at = field("step") + 0
    what = field("val_loss") != "" ? "val_loss" : field("loss") != "" ? "loss" : ""
    value = field(what) + 0
    if (what && value <= 2.75) points[side, what] = points[side, what] sprintf("%.1f,%.1f ", x(at), y(value))
    if (what == "val_loss" && (!(side in least) || value < least[side])) least[side] = value
}
END {
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 410\" font-family=\"sans-serif\" font-size=\"13\">"
    print "<rect width=\"800\" height=\"410\" fill=\"white\"/>"
    text(400, 24, "middle", title, " font-size=\"15\"")
    for (loss = 1; loss <= 2.5; loss += 0.5) {
        printf "<line x1=\"60\" y1=\"%.1f\" x2=\"740\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", y(loss), y(loss)
        text(52, y(loss) + 4, "end", sprintf("%.1f", loss))
    }
    for (step = 0; step <= steps; step += 1000) text(x(step), 370, "middle", step)
    text(400, 395, "middle", "step")
    text(14, 200, "middle", "loss", " transform=\"rotate(-90 14 200)\"")
    kit = "stroke=\"#0b5fa5\" stroke-width=\"2\""
    other = "stroke=\"#d9541e\" stroke-width=\"2\" stroke-dasharray=\"6 4\""
    faint = " stroke-opacity=\"0.45\""
    curve("par" SUBSEP "loss", kit faint)
    curve("nanogpt" SUBSEP "loss", other faint)
    curve("par" SUBSEP "val_loss", kit)
    curve("nanogpt" SUBSEP "val_loss", other)
    entry(66, kit, sprintf("this kit, held out (least %.3f)", least["par"]))
    entry(86, other, sprintf("nanoGPT, held out (least %.3f)", least["nanogpt"]))
    entry(106, kit faint, "this kit, a batch of the training")
    entry(126, other faint, "nanoGPT, the same batch")
    print "</svg>"
}
