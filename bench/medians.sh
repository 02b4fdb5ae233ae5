# How many times as fast as MPI: medians of the rows in bench/results/*.jsonl, or of the files named, as a
# table. A machine's figure is the median over its sizes and calls; the last rows are medians over machines.
#
#     bash bench/medians.sh [FILE ...]
#
# Two ranks on one node, warm caches. "All" are the collectives that every machine has, without messages.
set -eu
export LC_ALL=C CDPATH=
field=$(cat "$(dirname "$0")/field.awk")
[ $# -gt 0 ] || {
    cd "$(dirname "$0")/.."
    set -- bench/results/*.jsonl
}
exec awk "$field"'
function add(key, value) { values[key, ++count[key]] = value }
function median(key,    n, i, k, x, sorted) {
    n = count[key]
    if (!n) return "" # none measured
    for (i = 1; i <= n; i++) {
        x = values[key, i]
        for (k = i; k > 1 && sorted[k - 1] > x; k--) sorted[k] = sorted[k - 1]
        sorted[k] = x
    }
    return (sorted[int((n + 1) / 2)] + sorted[int(n / 2) + 1]) / 2
}
function row(machine, date, mpi, memory,    i, m) {
    printf "| %s | %s | %s | %s |", machine, date, mpi, memory == "symmetric" ? "par_alloc" : "ordinary"
    for (i = 1; i <= groups; i++) {
        m = median(machine SUBSEP mpi SUBSEP memory SUBSEP group[i])
        printf m == "" ? " |" : " %.2f |", m
        if (date != "" && m != "") add("median of " machines SUBSEP mpi SUBSEP memory SUBSEP group[i], m)
    }
    print ""
}
BEGIN {
    groups = split("all_reduce small,all_reduce large,all_reduce,all small,all large,all", group, ",")
    kinds = split("private symmetric", kind, " ")
    collective = "^(all_reduce|reduce_scatter|all_gather|broadcast|reduce|gather|scatter|all_to_all|barrier)$"
}
/"machine":/ { machine = field("machine"); date[machine] = field("date"); machine_of[++machines] = machine }
/"vs":/ && /"ranks":2,"nodes":1,/ && /"caches":"warm"/ && field("op") ~ collective {
    mpi = field("vs")
    if (!(mpi in known)) { known[mpi] = 1; mpi_of[++mpis] = mpi }
    size = field("bytes") + 0 <= 4096 ? " small" : " large"
    key = machine SUBSEP mpi SUBSEP field("memory") SUBSEP
    for (i = field("op") == "all_reduce"; i >= 0; i--) {
        add(key (i ? "all_reduce" : "all") size, field("ratio") + 0)
        add(key (i ? "all_reduce" : "all"), field("ratio") + 0)
    }
}
END {
    printf "| machine | date | MPI | memory | all_reduce, up to 4 KiB | above | both "
    print "| all collectives, up to 4 KiB | above | both |\n|---|---|---|---|--:|--:|--:|--:|--:|--:|"
    for (m = 1; m <= machines; m++)
        for (p = 1; p <= mpis; p++)
            for (k = 1; k <= kinds; k++) row(machine_of[m], date[machine_of[m]], mpi_of[p], kind[k])
    for (p = 1; p <= mpis; p++)
        for (k = 1; k <= kinds; k++) row("median of " machines, "", mpi_of[p], kind[k])
}' "$@"
