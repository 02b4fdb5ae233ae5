# The API reference (make reference): it has every public function and type; in a browser, as wide as a phone
# and as a desk, nothing is wider than the page, links lead somewhere, and the search finds.
. tests/lib.sh

made build/par.o build/layers.o build/reference/index.html
pages=$PWD/build/reference

every_page() {
    for h in ./*.h ./*.cuh; do
        [ -s "$pages/$(basename "${h%.*}").html" ] || { echo "no page of $h" && return 1; }
    done
}
named() { # kind: names of the reference
    sed -n "s/^\[\"\([^\"]*\)\",\"[^\"]*\",\"$1\".*/\1/p" "$pages/names.js" | sort -u
}
api() { sed '/^#endif \/\/ PAR_[A-Z]*_*C*U*H$/q' "$1"; } # header: what is public
functions() { # what the objects export, what the bindings have, what headers for MPI and GPUs declare
    {
        nm -g --defined-only build/par.o build/layers.o | sed -n 's/.* T \(par_[a-z].*\)/\1/p'
        awk -f bindings/make.awk par.h bindings/par.py | sed -n 's/^    "\(par_[a-z_0-9]*\)": (.*/\1/p'
        for h in par_mpi.h par_cuda.cuh; do
            api $h |
                grep -oE '^[A-Za-z_][A-Za-z_0-9 ]*[ *]+par_[a-z][a-z0-9_]+\(' |
                grep -oE 'par_[a-z0-9_]+\('
        done | tr -d '('
    } | sort -u >"$work/functions"
    [ "$(wc -l <"$work/functions")" -ge 300 ] && ! named function | comm -23 "$work/functions" - | grep .
}
types() {
    for h in ./*.h ./*.cuh; do
        api "$h" | grep -oE '^(typedef .*|} )par_[a-z0-9][a-z0-9_]*;' | grep -oE 'par_[a-z0-9][a-z0-9_]*;$'
    done | tr -d ';' | sort -u >"$work/types"
    [ "$(wc -l <"$work/types")" -ge 100 ] && ! named type | comm -23 "$work/types" - | grep .
}
anchors() { # without a browser: what links lead to is there, once
    (cd "$pages" && grep -oE ' id="[^"]*"' ./*.html | sed 's/^\.\///;s/: id="/#/;s/"$//') | sort >"$work/ids"
    ! uniq -d "$work/ids" | grep . || return 1
    (cd "$pages" && grep -ohE 'href="[^"#]+\.html#[^"]*"' ./*.html &&
        sed -n 's/^\["[^"]*","\([^"]*\)".*/href="\1"/p' names.js) |
        sed 's/href="//;s/"$//' | sort -u | comm -23 - "$work/ids" >"$work/broken"
    ! grep . "$work/broken"
}
browsed() { # one page of frames, each with a page of the reference, looks into all of them
    local browser
    browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
        echo "apt-get install chromium"
        return 77
    }
    set -- "$browser" --headless=new --no-sandbox --disable-gpu --user-data-dir="$work/profile"
    HOME=$work "$@" --dump-dom about:blank 2>/dev/null | grep -q "<html>" || {
        echo "$browser does not start here"
        return 77
    }
    (cd "$pages" && ls ./*.html) | sed 's/^\.\///' >"$work/pages"
    sed "s|PAGES|$(sed 's/.*/"&"/' "$work/pages" | paste -sd,)|;s|BASE|file://$pages/|" tests/reference.html \
        >"$work/browse.html"
    HOME=$work "$@" --allow-file-access-from-files --virtual-time-budget=60000 \
        --dump-dom "file://$work/browse.html" >"$work/dom" 2>"$work/said"
    sed -n '/<pre id="out">/,/^seen: /p' "$work/dom"
    grep -qx "seen: $((2 * $(wc -l <"$work/pages"))) frames, no faults" "$work/dom"
}
check "reference: every page" every_page
check "reference: every function" functions
check "reference: every type" types
check "reference: links" anchors
release check "reference: in a browser" browsed
summary
