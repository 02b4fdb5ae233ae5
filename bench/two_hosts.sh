# Two hosts on one machine: network namespaces joined by a pair of interfaces with a limited rate, each host
# with one processor of its own. Times the kit against the MPI it is built with, and asks the ledger what went
# over the link. OVER=tcp: without MPI, over the kit's own connections.
#
#     sudo bash bench/two_hosts.sh [RANKS PER HOST [MBIT/S [OPTIONS OF bench_coll]]]
#
# Without arguments: 1 rank, 1000 Mbit/s, --op all_reduce -b 64K -e 4M -f 8. Needs root, iproute2 and, unless
# OVER=tcp, MPICH (build/bench_coll_mpi made with mpicc.mpich; or BENCH=program).
set -u
lacks() { # what to do: say it; without it there is nothing to measure
    echo "two_hosts.sh: $*" >&2
    exit 77
}
ranks=${1:-1} rate=${2:-1000}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --op all_reduce -b 64K -e 4M -f 8
over=${OVER:-mpi}
[ $over = tcp ] && program=bench_coll || program=bench_coll_mpi
bench=${BENCH:-$(dirname "$0")/../build/$program}
a=parA$$ b=parB$$ net=10.213.77
[ "$(id -u)" = 0 ] || lacks "needs root to make network namespaces"
command -v ip >/dev/null && command -v tc >/dev/null || lacks "apt-get install iproute2"
[ $over = tcp ] || command -v mpiexec.mpich >/dev/null || lacks "apt-get install mpich"
[ -x "$bench" ] || lacks "make bench first"
work=$(mktemp -d)
trap 'ip netns del $a; ip netns del $b; rm -rf "$work"' EXIT
ip netns add $a &&
    ip netns add $b &&
    ip link add link0 netns $a type veth peer name link0 netns $b ||
    lacks "cannot make network namespaces"
set_side() { # namespace, its number
    ip netns exec $1 ip addr add $net.$2/24 dev link0 &&
        ip netns exec $1 ip link set link0 up &&
        ip netns exec $1 ip link set lo up &&
        ip netns exec $1 tc qdisc add dev link0 root tbf rate ${rate}mbit burst 64kb latency 50ms
}
set_side $a 1 && set_side $b 2 || lacks "cannot set up the link"
for ns in $a $b; do
    for try in $(seq 50); do
        ip netns exec $ns ip -br addr show link0 | grep -q ' UP ' && break
        sleep 0.1
    done
done
if [ $over = tcp ]; then # as srun or torchrun would start them
    for r in $(seq 0 $((2 * ranks - 1))); do
        [ $r -lt $ranks ] && ns=$a cpu=0 || ns=$b cpu=1
        RANK=$r WORLD_SIZE=$((2 * ranks)) MASTER_ADDR=$net.1 MASTER_PORT=29400 PAR_TIMEOUT=60 timeout 300 \
            taskset -c $cpu ip netns exec $ns "$bench" "$@" >"$work/out.$r" 2>&1 &
    done
    status=0
    for job in $(jobs -rp); do wait $job || status=$?; done
    cat "$work"/out.*
    exit $status
fi
cat >"$work/launch" <<EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in $net.1) ns=$a cpu=0;; *) ns=$b cpu=1;; esac
shift
exec taskset -c \$cpu ip netns exec \$ns unshare -u sh -c "hostname \$ns; \$*"
EOF
chmod +x "$work/launch"
export UCX_TLS=tcp,self UCX_NET_DEVICES=link0 UCX_WARN_UNUSED_ENV_VARS=n PAR_LEDGER=${PAR_LEDGER:-0}
[ "$ranks" = 1 ] && export UCX_TLS=tcp,self MPIR_CVAR_NOLOCAL=1 PAR_NODE_RANKS=1
timeout 300 ip netns exec $a mpiexec.mpich -launcher ssh -launcher-exec "$work/launch" \
    -hosts $net.1:$ranks,$net.2:$ranks -n $((2 * ranks)) "$bench" --vs mpi "$@"
