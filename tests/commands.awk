# The commands of a page: of its code blocks and of what stands between backquotes; of a source, those of its
# first comment, of a header's manual, of a docstring. A piece of a line is a command if it begins as one; two
# spaces, or a # behind one, end it. Continued lines are one.
FNR == 1 {
    spans() # of the page before, whose last line is text
    name = FILENAME
    page = FILENAME ~ /\.md$/
    script = FILENAME ~ /\.(sh|py)$/
    manual = fence = ended = 0
    text = held = ""
}
page && /^ *```/ {
    fence = !fence
    shell = $0 ~ /^ *```(sh|bash)?$/
    spans()
    next
}
page && fence { if (shell) pieces($0); next }
page && /^    / && text == "" { pieces($0); next }
page { text = /^ *$/ ? spans() : text " " $0; next }
{ source() }
END { spans() }

function source() {
    if (ended) return
    if (FNR == 1 && /^"""/ || /^\/\*$/) manual = 1
    if (FNR > 1 && (manual && /(^\*\/|"""$)/ || !manual && !/^(\/\/|#|!)/ && !/^"""/ && !/^ *$/)) {
        ended = FILENAME !~ /\.py$/ || manual
        if (ended) return
    }
    if (/^"""/) manual = 1
    sub(/^(\/\/|#|!) /, "")
    if (/^    /) pieces($0)
}
function spans(    n, part, i) { # between backquotes, also across the ends of lines
    n = split(text, part, "`")
    for (i = 2; i < n; i += 2) command(part[i])
    return text = ""
}
function pieces(line,    n, part, i) {
    if (held != "") sub(/^ +/, " ", line)
    if (line ~ /\\$/) {
        sub(/ *\\$/, "", line)
        held = held line
        return
    }
    line = held line
    held = ""
    sub(/ +# .*/, "", line)
    n = split(line, part, /  +/)
    for (i = 1; i <= n; i++) command(part[i])
}
function command(what,    n, word, i) {
    gsub(/ +/, " ", what)
    gsub(/^ | $/, "", what)
    n = split(what, word, " ")
    for (i = 1; i < n && word[i] ~ /^[A-Z_]+=/;) i++
    if (n < 2 || what ~ /,$/) return
    if (word[i] ~ programs ||
        word[i] ~ /^(build\/|\.\/)[a-z0-9]/ || word[i] == "make" && word[i + 1] ~ targets ||
        word[i] == "bash" && word[i + 1] ~ /\.sh$/ || word[i] ~ /^python3?$/ && word[i + 1] ~ /\.py$/)
        print name "\t" what
}
BEGIN {
    programs = "^(g?cc|g\\+\\+|gfortran|mpicc|mpifort|nvcc|srun|torchrun|mpiexec(\\..*)?|sudo|export|cmake|spack|" \
        "openssl|diff|printf|clang-format|addr2line|gdb|valgrind|perf)$"
    targets = "^(-B|build/.*|[A-Z]+=.*|run|check|check-all|reference|soak|all|examples|bench|plots|cuda|gpu-check|lint|install|dist|" \
        "bindings|clean)$"
}
