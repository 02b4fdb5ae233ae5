# For awk programs that read rows of bench/results: JSON objects, one a line.
function field(name,    text) { # its value in this row
    if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
    text = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
    gsub(/"/, "", text)
    return text
}
