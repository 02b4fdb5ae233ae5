# The API reference in HTML, from the headers' manuals and comments:
#     awk -v out=build/reference -f docs/reference/make.awk par.h par_zero.h ...    (make reference)
# Each header is read twice: first for the names, then for its page. Public is what stands before "#endif // PAR_..._H"
# and does not begin with par__ or PAR__. An item is declarations below each other, with the comment above them.

BEGIN {
    TOPIC = "^[A-Z][a-z]+( [a-z]+)?[:.] "
    headers = ARGC - 1
    for (i = 1; i <= headers; i++) {
        ARGV[headers + i] = ARGV[i]
        page_of[ARGV[i]] = page_name(ARGV[i])
    }
    ARGC = 2 * headers + 1
}
FNR == 1 {
    if (files) end_page()
    first_pass = ++files <= headers
    page = page_of[FILENAME]
    file = out "/" page
    part = title = section_name = ""
    if (first_pass) {
        order[files] = FILENAME
        about[FILENAME] = substr($0, index($0, " - ") + 3)
        introduced = 0
    } else {
        head(FILENAME, about[FILENAME], toc[page])
        put("<h1>" FILENAME "</h1>\n<p class=\"lead\">" prose(about[FILENAME]) "</p>")
    }
}
first_pass && FNR > 1 && !introduced { # what a header is may take two lines
    introduced = $0 == "//"
    if (!introduced) about[FILENAME] = about[FILENAME] substr($0, 3)
}
/^#define PAR_VERSION_/ && first_pass && NF == 3 { version = version (version == "" ? "" : ".") $3 }
/^\/\*$/ && part == "" { part = "manual"; next }
/^\*\/$/ && part == "manual" { manual_heading(""); part = "api"; next }
/^#endif \/\/ PAR_[A-Z]*_?C?U?H$/ && part == "api" { flush(); part = "end" }
part == "manual" { manual($0) }
part == "api" { api($0) }
END { end_page(); front() }

# ---- HTML

function page_name(header,    name) {
    name = header
    sub(/\..*/, ".html", name)
    return name
}
function put(text) { if (!first_pass) print text > file }
function esc(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    return text
}
function trim(text) {
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    return text
}
# Text with links: a name to where it is declared, a header to its page; names of `own` get their anchors here.
function linked(text, code,    done, word, name) {
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*(\.cuh|\.h)?/)) {
        word = substr(text, RSTART, RLENGTH)
        done = done esc(substr(text, 1, RSTART - 1))
        text = substr(text, RSTART + RLENGTH)
        if (code && (word in own)) {
            done = done "<dfn id=\"" word "\">" word "</dfn>"
            delete own[word]
        } else if (word in where) {
            name = "<a href=\"" where[word] "\">" word "</a>"
            done = done (code ? name : "<code>" name "</code>")
        } else if (word in page_of) {
            done = done "<a href=\"" page_of[word] "\">" word "</a>"
        } else {
            done = done (!code && word ~ /^(par|PAR)_[A-Za-z]/ ? "<code>" word "</code>" : word)
        }
    }
    return done esc(text)
}
function prose(text,    parts, n, i, done) { # what is between backticks is code
    n = split(text, parts, /`/)
    for (i = 1; i <= n; i++)
        done = done (i % 2 || i == n ? (i % 2 ? "" : "`") linked(parts[i], 0) : "<code>" linked(parts[i], 1) "</code>")
    return done
}
function code_line(line,    at) { # its comment is set apart
    sub(/[ \t]*\\?$/, "", line)
    at = index(line, "//")
    if (!at) return linked(line, 1)
    return linked(substr(line, 1, at - 1), 1) "<i>" linked(substr(line, at), 0) "</i>"
}
function slug(text) {
    text = tolower(text)
    gsub(/[^a-z0-9]+/, "-", text)
    gsub(/^-|-$/, "", text)
    return text
}
function head(title, about, contents,    i) {
    put("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">")
    put("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" title ": par</title>")
    put("<meta name=\"description\" content=\"" esc(about) "\">\n<link rel=\"stylesheet\" href=\"style.css\">")
    put("<header><a class=\"home\" href=\"index.html\">par " version "</a>")
    put("<span class=\"search\">")
    put("<input id=\"search-box\" type=\"search\" placeholder=\"Search ( / )\" aria-label=\"Search\">")
    put("<span id=\"search-found\"></span></span>\n<nav>")
    for (i = 1; i <= headers; i++)
        put("<a" (order[i] == title ? " class=\"here\"" : "") " href=\"" page_of[order[i]] "\">" order[i] "</a>")
    put("</nav></header>\n<div class=\"page\">")
    if (contents != "") put("<details class=\"toc\"><summary>Contents</summary>\n" contents "</details>")
    put("<main>")
}
function tail() {
    put("</main></div>\n<script src=\"names.js\"></script>\n<script src=\"search.js\"></script>\n</html>")
    if (!first_pass) close(file)
}
function end_page() { if (!first_pass) tail() }
function heading(text, id) {
    put("<h2 id=\"" id "\"><a href=\"#" id "\">" esc(text) "</a></h2>")
    if (first_pass) toc[page] = toc[page] "<a class=\"section\" href=\"#" id "\">" esc(text) "</a>\n"
}
function name_of_index(name, kind, summary) { # the first declaration of a name counts
    if (!first_pass || (name in where)) return
    where[name] = page "#" name
    kind_of[name] = kind
    names[++name_count] = name
    summary_of[name] = summary
    counted[page, kind]++
}

# ---- manuals: headings at the margin; programs, lists, tables, rows "name   text", paragraphs

function manual(line) {
    if (line ~ /^[A-Z]/) manual_heading(line)
    else if (title ~ /^TABLE OF CONTENTS/) return # the page has its own
    else if (title ~ /^(USE|EXAMPLE)/) block("pre", code_line(substr(line, 5)))
    else if (line == "") manual_end()
    else manual_text(line)
}
function manual_end() { # of a block
    show_row()
    row = 0
    block("")
}
function manual_heading(line) {
    manual_end()
    title = line
    if (title == "" || title ~ /^TABLE OF CONTENTS/) return
    aside = match(title, / \(/) ? substr(title, RSTART + 2, length(title) - RSTART - 2) : ""
    sub(/ \(.*/, "", title)
    heading(tolower(title), slug(title))
    if (aside != "") put("<p class=\"where\">" prose(toupper(substr(aside, 1, 1)) substr(aside, 2)) ".</p>")
    settings = title ~ /^(CONFIG|ENVIRONMENT)/
}
function manual_text(line,    deep, text, gaps, right) {
    match(line, /[^ ]/)
    deep = RSTART - 1
    text = trim(line)
    gaps = gsub(/  +/, "&", text)
    right = deep == 4 ? right_column(line) : 0
    if (right && gaps < 2 && row_text != "" && text ~ /^[a-z]/) { # a name of two lines
        row_name = row_name " " trim(substr(line, 5, right - 5))
        row_text = row_text " " substr(line, right)
        return
    }
    show_row()
    if (deep == 4 && text ~ /^([0-9]+\.|-) /) {
        row = 0
        deep = text ~ /^-/
        sub(/^([0-9]+\.|-) */, "", text)
        block(deep ? "ul" : "ol", "<li>" prose(text))
    } else if (gaps > 1 && !settings) {
        block("pre", code_line(substr(line, 5)))
    } else if (right) {
        row = right
        row_name = trim(substr(line, 5, right - 5))
        row_text = substr(line, right)
    } else if (deep > 4 && (kind == "pre" || (kind == "p" && gaps && !row))) {
        block("pre", code_line(substr(line, 5)))
    } else if (deep > 4 && kind != "") {
        if (row && gaps) text = topic("<br>", text, index(text, "  "))
        else text = prose(text)
        block(kind, text)
    } else { # a line that could have been longer ends its paragraph; one word and a colon begin one
        if (row || (kind == "p" && last ~ /[.:)]$/ &&
            (length(last) + index(text " ", " ") < 104 || text ~ TOPIC))) manual_end()
        block("p", kind == "" && match(text, TOPIC) ? topic("", text, RLENGTH) : prose(text))
    }
    last = line
}
function topic(before, text, at) { # its first characters are bold
    return before "<b>" prose(trim(substr(text, 1, at))) "</b> " prose(trim(substr(text, at + 1)))
}
function right_column(line) { # where the text of a row "name   text" begins; 0: this is none
    if (match(substr(line, 5), /  +[^ ]/)) return RSTART + RLENGTH + 3
    return row && substr(line, row - 1, 1) == " " && substr(line, 5, row - 6) !~ / / ? row : 0
}
function show_row() { # a setting is a term with its definition; another name begins a paragraph
    if (row_text == "") return
    if (settings) {
        block("dl", "<dt>" manual_term(row_name, substr(row_text, 1, 140)) "</dt><dd>" prose(row_text))
    } else {
        block("")
        if (row_text ~ /^[A-Z]/ && row_name !~ /[.:]$/) row_name = row_name "."
        block("p", "<b>" prose(row_name) "</b> " prose(row_text))
    }
    row_text = ""
}
function manual_term(text, said,    word, n, i) { # a setting: found by the search
    n = split(text, word, /[^A-Za-z0-9_]+/)
    split("", own)
    for (i = 1; i <= n; i++) {
        if (word[i] !~ /^PAR_[A-Z]/) continue
        name_of_index(word[i], "setting", said)
        if (where[word[i]] == page "#" word[i]) own[word[i]] = 1
    }
    return linked(text, 1)
}
function block(wanted, text) { # a line of a block of this kind, which ends the block of another kind
    if (kind != wanted) {
        blank = ""
        if (kind != "") put("</" kind ">")
        if (wanted == "pre") text = "<pre>" text
        else if (wanted != "") put("<" wanted ">")
    }
    kind = wanted
    if (wanted == "") return
    if (text != "") put(blank text)
    blank = text == "" ? blank "\n" : ""
}

# ---- the API: sections, items, texts

function api(line) {
    if (skip) { # of C++
        skip += (line ~ /^#if/) - (line ~ /^#endif/)
    } else if (continued) {
        continued = line ~ /\\$/
    } else if (eaten) {
        eat(line)
    } else if (!open && line ~ /^#ifdef __cplusplus/) {
        skip = 1
    } else if (!open && line ~ /^#(if|el|en|un|in|er|pr)/) {
        condition(line)
    } else if (line ~ /^\/\/ clang-format/ || (!open && line ~ /^__attribute__/)) {
        return
    } else if (!open && line == "") {
        flush()
    } else if (!open && line ~ /^\/\/ ---- /) {
        flush()
        gsub(/^\/\/ -* | -*$/, "", line)
        section_name = line
        section_open = 0
    } else if (!open && line ~ /^\/\//) {
        if (code_count || dropped) flush()
        comment[++comment_count] = substr(line, 4)
    } else if (!open && line ~ /^PAR_[A-Z_0-9]*(\(.*|$)/) {
        eat(line)
    } else {
        statement(line)
    }
}
function eat(line,    text) { # a macro's use, without a semicolon
    text = line
    eaten += gsub(/\(/, "", text) - gsub(/\)/, "", text)
}
function condition(line) {
    if (line ~ /^#if/) conditions[++nested] = line
    else if (line ~ /^#endif/ && nested) delete conditions[nested--]
    continued = line ~ /\\$/
}
function statement(line,    text) {
    if (!open) {
        began = code_count + 1
        whole = ""
    }
    code[++code_count] = line
    text = line
    sub(/\/\/.*/, "", text)
    whole = whole " " text
    if (whole ~ /^ #define/) {
        open = line ~ /\\$/
    } else {
        depth += gsub(/[{]/, "{", text) - gsub(/}/, "}", text)
        open = depth > 0 || (text !~ /;[ \t]*$/ && !(whole ~ /^ static/ && text ~ /}[ \t]*$/))
    }
    if (!open && !declares(whole)) { # private
        code_count = began - 1
        dropped = 1
    }
}
# Do a statement's names belong into the index? They go to `declared`.
function declares(text,    name, before, all) {
    all = declared_count
    gsub(/[ \t\\]+/, " ", text)
    sub(/^ /, "", text)
    if (text ~ /^#define /) {
        name = text
        sub(/^#define /, "", name)
        sub(/[^A-Za-z0-9_].*/, "", name)
        if (name ~ /^PAR_[A-Z]/) declare(name, "macro")
        if (name ~ /^PAR_[A-Z]/) constants(text, "X\\(PAR_[A-Za-z0-9_]+")
    } else if (text ~ /^(typedef )?enum/) {
        name = text
        if (text ~ /}[ ]*par_[a-z_0-9]+;/) {
            sub(/.*}[ ]*/, "", name)
            sub(/;.*/, "", name)
            declare(name, "type")
        }
        sub(/^[^{]*/, "", text)
        gsub(/#define PAR__X\([^)]*\)/, "", text)
        constants(text, "PAR_[A-Z][A-Za-z0-9_]*[ ]*[,=}/]")
        constants(text, "PAR_[A-Z][A-Z0-9_]*_COUNT")
    } else if (text ~ /^(typedef|struct|union) /) {
        before = text
        if (text ~ /\(\*par_[a-z]/) sub(/.*\(\*/, "", before) # a function's pointer, or type below
        else if (text ~ /^(struct|union) par_/) sub(/^(struct|union) /, "", before)
        else {
            sub(/;[ ]*$/, "", before)
            if (before !~ /}/) sub(/\(.*/, "", before)
            sub(/.*[ *}]/, "", before)
        }
        sub(/[^a-z_0-9A-Z].*/, "", before)
        if (before ~ /^par_[a-z]/) declare(before, "type")
    } else if (match(text, /par_+[a-z][a-z_0-9]*[ ]*[(]/)) { # the first name before a parenthesis
        name = substr(text, RSTART, RLENGTH)
        gsub(/[ (]/, "", name)
        if (name !~ /^par__/ && substr(text, RSTART - 1, 1) ~ /[ *]/) declare(name, "function")
    } else if (match(text, /par_[a-z][a-z_0-9]*[[;]/)) {
        declare(substr(text, RSTART, RLENGTH - 1), "constant")
    }
    return declared_count > all
}
function constants(text, pattern,    name) {
    while (match(text, pattern)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/^X\(/, "", name)
        sub(/[^A-Za-z0-9_].*/, "", name)
        declare(name, "constant")
    }
}
function declare(name, kind) {
    declared[++declared_count] = name
    declared_kind[declared_count] = kind
}
function summary(    text, i) { # the first sentence of the comment
    for (i = 1; i <= comment_count && length(text) < 200; i++) text = text comment[i] " "
    if (match(text, /[.:;] /)) text = substr(text, 1, RSTART - 1)
    return trim(substr(text, 1, 140))
}
function flush(    i, id, short) {
    if (!code_count && dropped) {
        for (i = 1; i <= comment_count; i++) if (comment[i] ~ /(par|PAR)__/) comment_count = 0
    }
    if (code_count || comment_count) {
        if (!section_open && section_name != "") heading(section_name, slug(section_name))
        section_open = 1
    }
    split("", own)
    short = summary()
    for (i = 1; i <= declared_count; i++) {
        name_of_index(declared[i], declared_kind[i], short)
        if (where[declared[i]] != page "#" declared[i] || (declared[i] in anchored)) continue
        own[declared[i]] = 1
        if (!first_pass) anchored[declared[i]] = 1
    }
    if (first_pass) toc_names()
    if (code_count) {
        put("<section>")
        for (i = 1; i <= code_count; i++) {
            if (code[i] ~ /^#(define|undef) PAR__X/) continue
            if (code[i] ~ /PAR_[A-Z_0-9]+\(PAR__X\)/) {
                sub(/\(PAR__X\).*/, "", code[i])
                code[i] = code[i] " // each of its rows"
            }
            block("pre", code_line(code[i]))
        }
        block("")
        if (nested && conditions[nested] ~ /PAR_/) put("<p class=\"where\">" prose(needs(conditions[nested])) "</p>")
    }
    write_comment()
    if (code_count) put("</section>")
    code_count = comment_count = declared_count = dropped = 0
}
function needs(text) { # of a declaration within #if
    gsub(/^#if(def)? |defined|[()]|\/\/.*/, "", text)
    return "Where " trim(text) " is defined."
}
function toc_names(    i) {
    for (i = 1; i <= declared_count; i++)
        if (declared_kind[i] == "function")
            toc[page] = toc[page] "<a href=\"#" declared[i] "\">" declared[i] "</a>\n"
}
function write_comment(    i) {
    for (i = 1; i <= comment_count; i++) {
        if (comment[i] == "") block("")
        else if (comment[i] ~ /^    /) block("pre", code_line(substr(comment[i], 5)))
        else if (comment[i] ~ /^- /) block("ul", "<li>" prose(substr(comment[i], 3)))
        else if (comment[i] ~ /^ / && kind == "ul") block("ul", prose(comment[i]))
        else block("p", prose(comment[i]))
    }
    block("")
}

# ---- the front page, and the names for the search

function front(    i, name) {
    first_pass = 0
    file = out "/index.html"
    head("API reference", "API reference of par: distributed training, header by header", "")
    put("<h1>par " version ": API reference</h1>")
    put("<p class=\"lead\">Each page has a header's manual, then what it declares, in the header's order.</p>")
    put("<div class=\"cards\">")
    for (i = 1; i <= headers; i++) {
        page = page_of[order[i]]
        put("<a class=\"card\" href=\"" page "\"><b>" order[i] "</b><span>" esc(about[order[i]]) "</span><small>" \
            counted[page, "function"] + 0 " functions, " counted[page, "type"] + 0 " types</small></a>")
    }
    put("</div>\n<h2>Functions</h2>\n<div class=\"names\">")
    sort_names()
    for (i = 1; i <= name_count; i++)
        if (kind_of[names[i]] == "function") put("<a href=\"" where[names[i]] "\">" names[i] "</a>")
    put("</div>\n<h2>Types</h2>\n<div class=\"names\">")
    for (i = 1; i <= name_count; i++)
        if (kind_of[names[i]] == "type") put("<a href=\"" where[names[i]] "\">" names[i] "</a>")
    put("</div>")
    tail()
    file = out "/names.js"
    put("const names = [")
    for (i = 1; i <= name_count; i++) {
        name = names[i]
        gsub(/["\\]/, "", summary_of[name])
        put("[\"" name "\",\"" where[name] "\",\"" kind_of[name] "\",\"" summary_of[name] "\"],")
    }
    put("];")
    close(file)
}
function sort_names(    step, i, k, x) { # Shell 1959
    for (step = int(name_count / 2); step; step = int(step / 2))
        for (i = step + 1; i <= name_count; i++) {
            x = names[i]
            for (k = i; k > step && names[k - step] > x; k -= step) names[k] = names[k - step]
            names[k] = x
        }
}
