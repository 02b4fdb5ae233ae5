# Several hosts on one machine: network namespaces on a bridge, as on a switch, each by an interface with a
# limited rate in both directions; hosts take turns on the processors. Times the kit against the MPI it is
# built with, and asks the ledger what went over the links.
#
#     sudo bash bench/two_hosts.sh [RANKS PER HOST [MBIT/S [OPTIONS OF bench_coll]]]
#
# HOSTS=n: so many (2). LINKS=line: no switch, but a link from each host to the next one, of this rate in each
# direction. OVER=tcp: without MPI, over the kit's own connections. Without arguments: 1 rank, 1000 Mbit/s,
# --op all_reduce -b 64K -e 4M -f 8. Needs root, iproute2 and, unless OVER=tcp, MPICH (build/bench_coll_mpi
# made with mpicc.mpich; or BENCH=program).
set -u
lacks() { # what to do: say it; without it there is nothing to measure
    echo "two_hosts.sh: $*" >&2
    exit 77
}
ranks=${1:-1} rate=${2:-1000}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- --op all_reduce -b 64K -e 4M -f 8
over=${OVER:-mpi} hosts=${HOSTS:-2} links=${LINKS:-switch}
[ $over = tcp ] && program=bench_coll || program=bench_coll_mpi
bench=${BENCH:-$(dirname "$0")/../build/$program}
name=par$$ net=10.213.77 all=$(seq "$hosts") # namespaces are ${name}h1, ... and ${name}s: the switch
[ "$(id -u)" = 0 ] || lacks "needs root to make network namespaces"
command -v ip >/dev/null && command -v tc >/dev/null || lacks "apt-get install iproute2"
[ $over = tcp ] || command -v mpiexec.mpich >/dev/null || lacks "apt-get install mpich"
[ -x "$bench" ] || lacks "make bench first"
work=$(mktemp -d)
trap 'for ns in s $(printf "h%s " $all); do ip netns del $name$ns; done 2>/dev/null; rm -rf "$work"' EXIT
within() { ip netns exec $name"$@"; } # namespace, command ...
slow() { # namespace, interface: up, and what it sends is limited
    within $1 ip link set $2 up &&
        within $1 tc qdisc add dev $2 root tbf rate ${rate}mbit burst 64kb latency 50ms
}
host() { # number
    ip netns add ${name}h$1 && within h$1 ip link set lo up
}
on_switch() { # host
    ip link add link0 netns ${name}h$1 type veth peer name port$1 netns ${name}s &&
        within h$1 ip addr add $net.$1/24 dev link0 &&
        within s ip link set port$1 master bridge &&
        slow h$1 link0 &&
        slow s port$1
}
to_next() { # host: a link to the next one, over which both reach those behind it
    local next=$(($1 + 1)) i
    ip link add right netns ${name}h$1 type veth peer name left netns ${name}h$next &&
        slow h$1 right &&
        slow h$next left || return
    for i in $all; do
        if [ $i -le $1 ]; then
            within h$next ip route add $net.$i via $net.$1 dev left onlink src $net.$next
        else
            within h$1 ip route add $net.$i via $net.$next dev right onlink src $net.$1
        fi || return
    done
}
line_host() { # number; it passes on what is not for itself
    host $1 && within h$1 ip addr add $net.$1/32 dev lo && within h$1 sysctl -qw net.ipv4.ip_forward=1
}
if [ $links = line ]; then
    for i in $all; do line_host $i || lacks "cannot make network namespaces"; done
    for i in $(seq $((hosts - 1))); do to_next $i || lacks "cannot set up the links"; done
else
    ip netns add ${name}s && within s ip link add bridge type bridge && within s ip link set bridge up ||
        lacks "cannot make network namespaces"
    for i in $all; do host $i && on_switch $i || lacks "cannot set up the links"; done
fi
for i in $all; do
    for try in $(seq 50); do
        within h$i ip -br link show type veth | grep -qv ' UP ' || break
        sleep 0.1
    done
done
busiest() { # what the interface that sent most of all has sent
    local i
    for i in $all; do within h$i sh -c 'cat /sys/class/net/*[0tf]/statistics/tx_bytes'; done |
        sort -n | tail -n 1 | sed 's/$/ bytes over the busiest link/' >&2
}
cpu_of() { # host
    echo $((($1 - 1) % $(nproc)))
}
if [ $over = tcp ]; then # as torchrun would start them; LOCAL_WORLD_SIZE: how many share the processors
    for r in $(seq 0 $((hosts * ranks - 1))); do
        host=$((r / ranks + 1))
        RANK=$r WORLD_SIZE=$((hosts * ranks)) LOCAL_WORLD_SIZE=$((hosts * ranks)) MASTER_ADDR=$net.1 \
            MASTER_PORT=29400 PAR_TIMEOUT=60 timeout 300 taskset -c $(cpu_of $host) \
            ip netns exec ${name}h$host "$bench" "$@" >"$work/out.$r" 2>&1 &
    done
    status=0
    for job in $(jobs -rp); do wait $job || status=$?; done
    cat "$work"/out.*
    busiest
    exit $status
fi
{
    echo '#!/bin/sh'
    echo 'while [ "${1#-}" != "$1" ]; do shift; done'
    echo 'case $1 in'
    for i in $all; do echo "$net.$i) ns=${name}h$i cpu=$(cpu_of $i);;"; done
    echo 'esac'
    echo 'shift'
    echo 'exec taskset -c $cpu ip netns exec $ns unshare -u sh -c "hostname $ns; $*"'
} >"$work/launch"
chmod +x "$work/launch"
export UCX_TLS=tcp,self UCX_WARN_UNUSED_ENV_VARS=n PAR_LEDGER=${PAR_LEDGER:-0}
[ $links = line ] || export UCX_NET_DEVICES=link0
[ "$ranks" = 1 ] && export MPIR_CVAR_NOLOCAL=1 PAR_NODE_RANKS=1
# MPICH 4.0.2 over UCX does not return from MPI_Finalize with three hosts, whatever the program. So what has
# printed rows and is silent for a minute, longer than any row takes, is ended.
list=$(for i in $all; do printf '%s' "${sep-}$net.$i:$ranks" && sep=,; done)
timeout 900 taskset -c $(cpu_of 1) ip netns exec ${name}h1 mpiexec.mpich -launcher ssh \
    -launcher-exec "$work/launch" -hosts "$list" -n $((hosts * ranks)) "$bench" --vs mpi "$@" \
    >"$work/rows" </dev/null &
job=$! size=0 silent=0 status=""
while kill -0 $job 2>/dev/null && [ $silent -lt 60 ]; do
    sleep 1
    silent=$((silent + 1))
    [ $(wc -c <"$work/rows") = $size ] || silent=0
    size=$(wc -c <"$work/rows")
done
if kill -0 $job 2>/dev/null; then
    echo "two_hosts.sh: silent for a minute, ended; the rows up to here are complete" >&2
    kill $job $(for i in $all; do ip netns pids ${name}h$i; done) 2>/dev/null
    wait $job 2>/dev/null
    grep -q '[0-9]' "$work/rows" && status=0
else
    wait $job
    status=$?
fi
cat "$work/rows"
busiest
exit ${status:-1}
