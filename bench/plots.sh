# Draw bench/results/*.jsonl as SVG beside them (gnuplot): make plots.
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
command -v gnuplot >/dev/null || {
    echo "plots: no gnuplot (apt-get install gnuplot-nox)" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# file, op, memory, peer, columns: rows of 2 ranks on one node with warm caches, "bytes value ..."
series() {
    grep "\"op\":\"$2\"" "$1" |
        grep '"ranks":2,"nodes":1' |
        grep "\"memory\":\"$3\"" |
        grep '"caches":"warm"' |
        grep "\"vs\":\"$4" >"$work/rows" || true
    for column in bytes $5; do field $column <"$work/rows" >"$work/$column"; done
    (cd "$work" && paste -d' ' bytes $5)
}
tics= # powers of 8, from 8 B to 1 GiB
for power in 3 6 9 12 15 18 21 24 27 30; do
    set -- B KiB MiB GiB
    shift $((power / 10))
    tics="$tics${tics:+, }'$((1 << power % 10)) $1' $((1 << power))"
done
for file in bench/results/*.jsonl; do
    grep -q '"caches":"warm"' "$file" || continue
    name=${file%.jsonl}
    for op in all_reduce reduce_scatter all_gather broadcast all_to_all; do
        for memory in private symmetric; do
            for peer in MPICH Open; do
                series "$file" $op $memory $peer "time_us vs_time_us" >"$work/$memory.$peer"
            done
        done
        (cd "$work" && gnuplot) >"$name-$op.svg" <<END
set terminal svg size 560,380 noenhanced font 'sans,11' background 'white'
set title '$op, f32, 2 ranks on 2 cores'
set logscale xy
set key left top Left reverse samplen 2
set xlabel 'size'
set ylabel 'microseconds'
set xtics ($tics)
set grid lc rgb '#dddddd'
set style data linespoints
plot 'private.MPICH' using 1:3 pt 6 lc rgb '#b05050' title 'MPICH', \
     'private.Open' using 1:3 pt 4 lc rgb '#b08030' title 'Open MPI', \
     'private.MPICH' using 1:2 pt 7 lc rgb '#5070b0' title 'par.h, ordinary memory', \
     'symmetric.MPICH' using 1:2 pt 5 lc rgb '#208040' title 'par.h, par_alloc'
END
        echo "$name-$op.svg"
    done
done
