# Counts the ways that tests/walk.c prints, in the order in which a reader meets their functions first: functions
# entered, sections of par.h, changes from section to section. lines: addr2line -f's, two for each address;
# header: par.h; functions, changes: what the first way may have at most. More are an error.
BEGIN {
    section[n = 0] = "api"
    for (line = 1; (getline text <header) > 0; line++)
        if (text ~ /^\/\/ >>[a-z0-9_]+ -/) {
            split(text, part, / |>>/)
            start[++n] = line
            section[n] = part[3]
        }
    while ((getline name <lines) > 0 && (getline place <lines) > 0) {
        sub(/ .*/, "", place)
        names[++addresses] = name
        line = place
        sub(/.*:/, "", line)
        of[addresses] = name ~ /^par_/ ? line + 0 : 0
    }
}
function report() {
    if (!way) return
    printf "%s: %d functions of %d sections, %d changes of section\n", way, entered, sections, changed
    print substr(text_of_way, 2)
    if (++ways == 1 && (entered > functions || changed > changes || !entered)) {
        printf "more than the %d functions and %d changes that it may have, or none\n", functions, changes
        failed = 1
    }
}
/^way / {
    report()
    way = substr($0, 5)
    entered = sections = changed = 0
    text_of_way = last = ""
    split("", seen)
    split("", seen_section)
    next
}
{
    at = ++address
    if (!of[at] || names[at] in seen) next
    seen[names[at]] = 1
    entered++
    for (i = n; i > 0 && start[i] > of[at]; i--);
    if (section[i] != last) {
        if (last) changed++
        text_of_way = text_of_way "\n    " section[i] ":"
    }
    last = section[i]
    if (!(last in seen_section)) sections++
    seen_section[last] = 1
    text_of_way = text_of_way " " names[at]
}
END {
    report()
    exit failed || ways != 3
}
