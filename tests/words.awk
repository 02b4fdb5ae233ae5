# The sentences of pages (.md), of headers' manuals and comments, a paragraph a line: make run trains on them.
#
#     awk -f tests/words.awk README.md docs/*.md *.h
function flush() { # a paragraph is words if it begins and ends as a sentence does
    if (text ~ /^[A-Z]/ && text ~ /[.:]$/ && text !~ /[{}\\;=]|---|__/ && length(text) > 40) print text
    text = ""
}
FNR == 1 {
    flush()
    page = FILENAME ~ /\.md$/
    code = manual = 0
}
page && /^ *```/ { code = !code }
!page && /^\/\*/ { manual = 1 }
!page && /^\*\// { manual = 0 }
code || (page ? /^(    |[|!#<])/ : !manual && !/^ *\/\/ /) || !/[a-z]/ {
    flush()
    next
}
{
    sub(/^ *(\/\/ )?/, "")
    if (/^([-*]|[0-9]+\.) /) flush()
    sub(/^([-*]|[0-9]+\.) +/, "")
    gsub(/\]\([^)]*\)|[][*`]/, "") # marks, and where links go
    text = text (text == "" ? "" : " ") $0
}
END { flush() }
