# Tables of contents against sections; the manual's example, compiled and run; formatting; line lengths;
# names.
. tests/lib.sh

contents() { # the names in the table of contents, in order, are those of the sections
    sed -n '/^TABLE OF CONTENTS/,/^CONFIG/s/^    >>\([a-z_]*\) .*/\1/p' "$1" >"$work/toc"
    sed -n 's/^\/\/ >>\([a-z_]*\) -*$/\1/p' "$1" >"$work/sections"
    [ -s "$work/toc" ] && diff "$work/toc" "$work/sections"
}
manual() { # under 200 lines
    lines=$(sed -n '/^\/\*$/,/^\*\/$/p' "$1" | wc -l)
    [ "$lines" -gt 20 ] && [ "$lines" -lt 200 ]
}
example() { # header, heading: the program that follows says what it prints
    sed -n "/^$2\$/,/^[A-Z]/p" "$1" | sed '1d;$d;s/^    //' >"$work/example.c"
    says
}
page_example() { # page: the same of its whole programs
    sed -n '/^```c$/,/^```$/p' "$1" |
        awk -v base="$work/page" '/^```c$/ {file = base (++n) ".c"; next} /^```$/ {next} {print > file}'
    for page in "$work"/page*.c; do
        grep -q '^int main' "$page" || continue
        cp "$page" "$work/example.c"
        says || return 1
    done
}
says() {
    ranks=$(sed -n 's/.*with PAR_RANKS=\([0-9]*\) it prints: .*/\1/p' "$work/example.c")
    said=$(sed -n 's/.*with PAR_RANKS=[0-9]* it prints: //p' "$work/example.c")
    [ -n "$said" ] &&
        link_kit -std=c11 -Wall -Wextra -Werror "$work/example.c" -o "$work/example" &&
        [ "$(PAR_RANKS=$ranks "$work/example")" = "$said" ]
}
made build/par.o build/layers.o
for h in *.h *.cuh; do
    check "$h: table of contents" contents "$h"
    check "$h: manual" manual "$h"
    case $h in par_cuda.cuh | par_mpi.h) continue ;; esac # their examples: tests/cuda.sh, tests/mpi_shim.sh
    check "$h: example" example "$h" EXAMPLE
    for more in $(sed -n 's/^EXAMPLE WITH \([a-z_]*\)\.h$/\1/p' "$h"); do
        check "$h: example with $more.h" example "$h" "EXAMPLE WITH $more.h"
    done
done
sources=$(
    ls ./*.h ./*.cuh examples/*.[ch] examples/*.cu examples/gpt/*.[ch] examples/gpt/*.cu bench/*.[ch] \
        tests/*.[ch] tests/*.cu tests/cuda_emu/*.[ch]* tests/ptx/* tests/compile/*.c 2>/dev/null
)
pages=$(ls ./*.md docs/*.md examples/*.md bench/results/*.md tests/*.md tests/cuda_emu/*.md)
for page in $(grep -l '^int main' $pages); do check "$page: example" page_example "$page"; done
# what pages call by name is there: functions, types and fields of ours, environment variables, files; the
# first column of CHANGELOG.md's tables has the names of before
page_names() {
    sed '/^|/s/^|[^|]*|//' CHANGELOG.md >"$work/changes"
    grep -ohE '\b(par|PAR)_[A-Za-z0-9_]+' "$work/changes" $(echo "$pages" | grep -v CHANGELOG) |
        sed 's/_$//' | sort -u >"$work/named"
    cat ./*.h ./*.cuh Makefile tests/*.{mk,sh,h} examples/*.c* examples/gpt/* bench/*.[ch]* bindings/* |
        grep -ohE '\b(par|PAR)_[A-Za-z0-9_]+' |
        sort -u >"$work/known"
    while read -r name; do
        grep -q "^$name" "$work/known" || echo "$name"
    done <"$work/named" >"$work/unknown"
    grep -ohE '`[a-z]+/[a-z_0-9]+\.(c|h|cu|cuh|sh|md|txt|py)`' $pages |
        tr -d '`' |
        sort -u |
        while read -r file; do [ -e "$file" ] || echo "$file"; done >>"$work/unknown"
    ! grep . "$work/unknown"
}
page_links() { # to files here, and to headings in them
    for page in $pages; do
        grep -oE '\]\([^)]*\)' "$page" |
            sed 's/^](//;s/).*//' |
            grep -v '^https\?:' |
            while IFS='#' read -r link heading; do
                file=$page
                [ -z "$link" ] || file=$(dirname "$page")/$link
                [ -e "$file" ] && { [ -z "$heading" ] || headings "$file" | grep -qx "$heading"; } ||
                    echo "$page: $link${heading:+#$heading}"
            done
    done >"$work/missing"
    ! grep . "$work/missing"
}
headings() { # page: as links name them
    sed -n 's/^##* //p' "$1" | tr A-Z a-z | sed 's/[^a-z0-9_ -]//g;s/ /-/g'
}
glossary() { # no word that the glossary refuses, as a part of a name or of a sentence
    sed -n '/^## Refused words$/,$p' docs/glossary.md |
        awk -F ' *[|] *' 'NF == 4 && $2 !~ /^(not|-*)$/ {print $2 "\t" $3}' >"$work/glossary"
    [ "$(wc -l <"$work/glossary")" -ge 10 ] || return 1
    while IFS=$'\t' read -r words term; do
        for word in ${words//,/}; do
            grep -nE "(^|[^a-zA-Z])$word([^a-zA-Z]|$)" $sources $(ls $pages | grep -v glossary) |
                sed "s/^/the glossary says \"$term\" instead of \"$word\": /" |
                cut -c1-160
        done
    done <"$work/glossary" >"$work/refused"
    ! grep . "$work/refused"
}
check "pages: names" page_names
check "words of the glossary" glossary
check "pages: links" page_links
long_lines() { ! awk 'length > 110 {print FILENAME ":" FNR; bad = 1} END {exit !bad}' "$@"; }
check "110 columns" long_lines $sources tests/*.sh bench/*.sh
no_tabs() { ! grep -nP '\t' $sources; }
check "no tabs" no_tabs
replaced() { # a function of tests/lib.sh, in a script that has another one of this name
    for name in $(sed -n 's/^\([a-z_]*\)() .*/\1/p' tests/lib.sh); do
        grep -n "^$name() " tests/*.sh | grep -v "^tests/lib.sh:"
    done >"$work/replaced"
    ! grep . "$work/replaced"
}
check "functions of tests/lib.sh keep their names" replaced
# not in C++, or not in nvcc
forbidden() { ! grep -nE '\b(_Generic|_Atomic|restrict)\b|[{,] *\.[a-z_]+ *= ' *.h; }
check "common C and C++" forbidden
long_functions() { # above 60 lines, in these files
    awk 'FNR == 1 {from = 0}
        !from && /^[A-Za-z_].*([({,]|\{ *\/\/.*)$/ &&
            !/^(typedef|struct|enum|union|extern|namespace|PAR__SITED)/ {
            from = FNR; name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
        }
        from && /^[^ ].*;$/ {from = 0} # a declaration, or a table
        from && /^}/ {
            if (FNR - from >= 60) print FILENAME " " name " " from ": " FNR - from + 1 " lines"
            from = 0
        }' "$@" >"$work/long"
    ! grep . "$work/long"
}
check "functions of at most 60 lines" long_functions $sources
comma_chains() { # statements "a = 1, b = 2;" or "f(x), g(y);" in these files, but for macros and loops' heads
    ! awk -v value='[*]*[a-z_][A-Za-z_0-9]*(P|(->|[.])[A-Za-z_0-9]+)*' '
        BEGIN {set = value " [-+*/|&^<>]*= "; call = "([a-z_][a-z_0-9]*|PAR_FREE)P"}
        FNR == 1 {before = ";"; macro = manual = 0}
        /^[/][*]$/ {manual = 1}
        /^[*][/]$/ {manual = 0}
        manual || macro || /^ *#/ {macro = /\\$/; next}
        {
            text = $0
            gsub(/\\./, ""); gsub(/"[^"]*"/, "S"); gsub(/\047[^\047]*\047/, "S"); sub(/ *\/\/.*/, "")
            if (/^ *$/) next
            starts = before ~ /[;{}:)]$/; before = $0
            while (gsub(/\([^()]*\)|\[[^][]*\]|= \{[^{}]*\}/, "P"));
            count = split($0, part, /[{;] */)
            for (i = starts ? 1 : 2; i < count; i++) {
                sub(/^ *(} )?(else )?((if|for|while|switch) P *)*(else )?((if|for|while) P )?/, "", part[i])
                if (part[i] !~ "^(" set ".*, " set "|" call "(, " call ")+$)") continue
                print FILENAME ":" FNR ": " text
                bad = 1
            }
        }
        END {exit !bad}' "$@"
}
check "statements, not chains with commas" comma_chains *.h *.cuh examples/*.[ch]* examples/gpt/*.[ch]*
# if and else say it
chosen_targets() { ! grep -nE '(^|[ ,;(])\*\([^;]*\? *&[^;]*: *&[^;]*\) *[-+*/|&^%]?= ' $sources; }
check "no assignment through *(c ? &a : &b)" chosen_targets
# grep and ctags find "par_result par_x(" where it is defined: not behind a macro of its name
found_definitions() { ! grep -nE '^[a-z][a-z_0-9 ]*[ *]*\(par_[a-z0-9_]+\)\(' *.h *.cuh; }
check "definitions that grep finds" found_definitions
# an iovec has no const, and a transfer sends or receives: there alone, and not behind -Wcast-qual's back
const_casts() {
    ! grep -nE '\*\)\(uintptr_t\)' *.h examples/*.[ch]* examples/gpt/* bench/*.[ch]* |
        grep -vE ':    (part\.iov_base|x->memory) = '
}
check "no casts of const" const_casts
dtype_order() { # what holds for a dtype stands in its row; nobody compares the enum's order
    names=$(
        sed -n '/^#define PAR_DTYPES/,/^\/\/ clang-format on/s/^ *X(\(PAR_[A-Z0-9_]*\),.*/\1/p' par.h |
            paste -sd'|'
    )
    [ -n "$names" ] &&
        ! grep -nE "(^|[^<>-])[<>]=? *($names)\b|\b($names) *[<>]=?($|[^<>])|dtype *[<>]=? *[0-9]" $sources
}
check "no comparison of dtypes' order" dtype_order
optimizers() { # the page and the trainer's help name those that there are rows of
    sed -n '/^#define PAR_ZERO_OPTIMIZERS/,/^typedef/s/^ *X(PAR_ZERO_[A-Z]*, \([a-z]*\),.*/\1/p' par_zero.h \
        >"$work/optimizers"
    [ -s "$work/optimizers" ] &&
        sed -n 's/^- Optimizers: \([^;]*\);.*/\1/p' docs/zero.md |
        tr '[:upper:]' '[:lower:]' |
            sed 's/, */\n/g' |
            diff "$work/optimizers" - &&
        sed -n 's/.*"--optimizer".*"\([^"]*\)".*/\1/p' examples/gpt/settings.h |
        sed 's/, \| or /\n/g' |
            diff "$work/optimizers" -
}
check "docs/zero.md, gpt --help: optimizers" optimizers
# examples and benchmarks use what everybody can use; bench_coll.c's --diagnosis and --tune measure inside,
# and --simulate runs the emitters
public_names() {
    programs=$(ls examples/*.* examples/gpt/*.* bench/*.[ch]* | grep -v -e bench_coll.c -e simulate.h)
    private='(^|[^A-Za-z0-9_])(par|PAR)__[A-Za-z0-9_]+'
    ! grep -nE "$private" $programs
}
check "programs use public names alone" public_names
if have clang-format; then
    check "clang-format" clang-format --dry-run -Werror $sources
else
    skip "clang-format" "apt-get install clang-format"
fi
summary
