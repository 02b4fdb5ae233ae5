# Real launchers, for tests/slurm.sh and tests/tcp.sh: torchrun, and a Slurm whose nodes are all this machine,
# for whoever starts it alone (no root needed). What hinders is in $why.
slurm_daemons=""
slurm_daemon() { # name, command ...
    local name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 7>&- &
    slurm_daemons="$slurm_daemons $!"
}
slurm_idle() { # nodes: so many wait for jobs, or a daemon has ended
    local pid
    for pid in $slurm_daemons; do kill -0 $pid || return 0; done
    sleep 0.2
    [ "$(sinfo -h -N -t idle | wc -l)" = "$1" ]
}
slurm_start() { # nodes beside the first ...
    local me host node
    why="apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    have slurmctld && have slurmd && have munged && have srun || return 1
    me=$(id -un) host=$(hostname -s) why="its daemons do not start here"
    chmod 755 "$work" &&
        mkdir -p "$work/state" &&
        head -c 1024 /dev/urandom >"$work/munge.key" &&
        chmod 600 "$work/munge.key" || return 1
    export SLURM_CONF=$work/slurm.conf
    cat >"$SLURM_CONF" <<END
ClusterName=par
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
$(
        for node in $host "$@"; do
            echo "NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$(port) CPUs=8 State=UNKNOWN"
        done
    )
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
END
    slurm_daemon munged munged -F --force --socket="$work/munge.socket" --key-file="$work/munge.key" \
        --pid-file="$work/munged.pid" \
        --seed-file="$work/munge.seed" --log-file="$work/munge.log"
    until [ -S "$work/munge.socket" ]; do kill -0 $! && sleep 0.02 || return 1; done
    slurm_daemon slurmctld slurmctld -D -c
    for node in $host "$@"; do
        mkdir -p "$work/spool/$node" && slurm_daemon "slurmd.$node" slurmd -D -N "$node"
    done
    await slurm_idle $(($# + 1)) && [ "$(sinfo -h -N -t idle | wc -l)" = $(($# + 1)) ]
} 2>/dev/null
slurm_stop() { # and what is left of its jobs
    local try
    for try in $(seq 20); do
        [ "$slurm_daemons" ] && [ "$(squeue -h)" ] || break
        scancel -s KILL -u "$(id -un)"
        sleep 0.1
    done
    [ -z "$slurm_daemons" ] || kill -KILL $slurm_daemons # in order they would take ten seconds
    slurm_daemons=""
} 2>/dev/null
find_torchrun() { # into the array torchrun
    why="pip install torch, or TORCHRUN=its path"
    if [ "${TORCHRUN-}" ] || have torchrun; then
        torchrun=("${TORCHRUN:-torchrun}")
    else
        torchrun=(python3 -m torch.distributed.run) &&
            python3 -c 'import importlib.util as u; exit(not u.find_spec("torch"))' 2>/dev/null
    fi
}
