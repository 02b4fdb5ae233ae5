# For the awk programs here: rows of bench/results, which are JSON objects, one a line; texts of a picture.
function field(name,    value) { # its value in this row
    if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
    value = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    gsub(/"/, "", value)
    return value
}
function text(across, down, anchor, words, more) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>%s</text>\n", across, down, anchor, more, words
}
