# Simulate collectives: what others have published about theirs, with how far off that is, as a table (the
# rows of bench/results/published_collectives.csv); or the kit's own all_reduce, for make plots.
#
#     bash bench/simulated.sh
#     bash bench/simulated.sh rows >bench/results/simulated.jsonl    # minutes
set -eu
export LC_ALL=C CDPATH= # numbers have a point; cd goes nowhere else
cd "$(dirname "$0")/.."
bench=${BENCH:-build/bench_coll}
if [ "${1-}" = rows ]; then
    for ranks in 16 64 256 1024 4096 16384 65536 131072; do
        $bench --simulate --json --ranks $ranks --node 8 -b 8 -e 64K -f 8192
        [ $ranks -gt 16384 ] || $bench --simulate --json --ranks $ranks --node 8 -b 16M -e 16M
    done
    exit
fi
echo "| what | source | published (us) | simulated (us) | off |"
echo "|---|---|--:|--:|--:|"
grep -v '^#' bench/results/published_collectives.csv |
    while IFS=';' read -r what source published base options; do
        row=$($bench --simulate --processor_us 0 --hop_us 0 -b 8 -e 8 --json $options)
        us=${row##*\"time_us\":}
        echo "$what;$source;$published;$base;${us%%,*}"
    done | awk -F ';' '{
        us = $4 + $5
        printf "| %s | %s | %.2f | %.2f | %+.1f%% |\n", $1, $2, $3, us, (us / $3 - 1) * 100
        if ($1 ~ /tree/) tree = us
        if ($1 ~ /ring/) ring = us
    } END {
        times = ring / tree
        printf "| ring over tree, 24576 GPUs | NVIDIA, 2019 | 180 times | %.0f times | %+.0f%% |\n", times,
            (times / 180 - 1) * 100
    }'
