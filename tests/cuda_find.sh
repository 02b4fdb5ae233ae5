# What of CUDA is on this machine, as flags for a compiler: "headers", "nvcc", "nccl", "cublaslt", "cudnn",
# "emulation" (the headers, and what of the libraries they let the emulation define); tools ("nvdisasm",
# "compute-sanitizer"); "libraries", the directories to load them from; "driver",
# the toolkit's stand-in for libcuda.so; "archs", the architectures to compile for. Status 1, and on stderr
# what is missing, where it is not found. Looks where CUDA_HOME says, in the usual places and in the packages
# that pip installs.
dirs() {
    [ -n "$CUDA_HOME" ] && echo "$CUDA_HOME"
    ls -d "$PWD/build/nvdisasm/nvidia/cu13" 2>/dev/null # of packages.sh
    command -v nvcc >/dev/null 2>&1 && dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")"
    ls -d /usr/local/cuda /usr/local/cuda-* /opt/cuda /usr 2>/dev/null
    for p in python3 python; do
        command -v $p >/dev/null 2>&1 || continue
        $p -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null |
            while read -r site; do
                ls -d "$site"/nvidia/cu13 "$site"/nvidia/cuda_runtime "$site"/nvidia/nccl \
                    "$site"/nvidia/cuda_nvcc "$site"/nvidia/cuda_nvdisasm \
                    "$site"/nvidia/cublas "$site"/nvidia/cudnn \
                    "$site"/triton/backends/nvidia 2>/dev/null
            done
    done
}
find_dir() { # a file, below one of them
    dirs | while read -r d; do
        [ -e "$d/$1" ] && echo "$d" && break
    done
}
library() { # name: the directory and the file of it, whatever its version
    dirs | while read -r d; do
        found=$(ls "$d"/lib64/lib$1.so* "$d"/lib/lib$1.so* "$d"/lib/*/lib$1.so* 2>/dev/null | head -n 1)
        [ -n "$found" ] && echo "$found" && break
    done
}
program() { # name, what to install
    command -v "$1" 2>/dev/null && exit 0
    d=$(find_dir "bin/$1")
    [ -n "$d" ] || {
        echo "$1 is missing: install $2" >&2
        exit 1
    }
    echo "$d/bin/$1"
}
case $1 in
headers)
    d=$(find_dir include/cuda_runtime_api.h)
    [ -n "$d" ] || {
        echo "cuda_runtime_api.h is missing: install the CUDA Toolkit, or set CUDA_HOME" >&2
        exit 1
    }
    echo "-I$d/include"
    ;;
emulation)
    d=$(find_dir include/cuda_runtime_api.h)/include flags=""
    [ -e "$d/nccl.h" ] && flags=" -DEMU_NCCL -DPAR_CUDA_NCCL"
    # else plain tiles
    [ -n "$flags" ] && [ -e "$d/cublasLt.h" ] && flags="$flags -DEMU_CUBLASLT -DPAR_CUDA_CUBLASLT"
    [ -n "$flags" ] && [ -e "$d/cudnn.h" ] && flags="$flags -DEMU_CUDNN -DPAR_CUDA_CUDNN"
    echo "-I$d$flags"
    ;;
nvcc) program nvcc "the CUDA Toolkit, or set CUDA_HOME" ;;
compute-sanitizer) program compute-sanitizer "the CUDA Toolkit" ;;
libraries)
    for l in nccl cublasLt cudnn nvrtc cupti; do dirname "$(library $l)"; done | grep / | sort -u | paste -sd:
    ;;
nvdisasm) program nvdisasm "the CUDA Toolkit's, or pip's nvidia-cuda-nvdisasm (5 MB)" ;;
driver)
    l=$(
        dirs |
            while read -r d; do
                ls "$d"/lib64/stubs/libcuda.so "$d"/lib/stubs/libcuda.so \
                    "$d"/targets/*/lib/stubs/libcuda.so 2>/dev/null
            done |
            head -n 1
    )
    [ -n "$l" ] || {
        echo "stubs/libcuda.so is missing: install the CUDA Toolkit, or set CUDA_HOME" >&2
        exit 1
    }
    echo "$l"
    ;;
archs) # arguments: native, all, or architectures: those to compile for
    [ "$2" != all ] || set -- archs 80 90a 100
    if [ "${2:-native}" = native ]; then
        set -- archs $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
            grep -E '^[0-9]+\.[0-9]$' | tr -d . | sed 's/^90$/90a/' | sort -u)
        [ $# -gt 1 ] || set -- archs 90a
    fi
    shift
    echo "$*"
    ;;
nccl | cublaslt | cudnn | cupti)
    header=nccl.h name=nccl macro=PAR_CUDA_NCCL
    [ "$1" = cublaslt ] && header=cublasLt.h name=cublasLt macro=PAR_CUDA_CUBLASLT
    [ "$1" = cudnn ] && header=cudnn.h name=cudnn macro=PAR_CUDA_CUDNN
    [ "$1" = cupti ] && header=cupti.h name=cupti macro=CUPTI
    d=$(find_dir include/$header) l=$(library $name)
    [ -n "$d" ] && [ -n "$l" ] || {
        echo "$header or lib$name.so is missing: it is left out" >&2
        exit 1
    }
    if [ "$1" = cudnn ]; then
        version=$(sed -n 's/^#define CUDNN_M[AI][JN]OR *//p' "$d/include/cudnn_version.h" | paste -sd.)
        [ "$(printf '%s\n9.12\n' "$version" | sort -V | head -n 1)" = 9.12 ] || {
            echo "cuDNN $version is older than 9.12: it is left out" >&2
            exit 1
        }
    fi
    echo "-D$macro -I$d/include $l -Xlinker -rpath -Xlinker $(dirname "$l")"
    ;;
*)
    echo "usage: $0 headers|nvcc|nccl|cublaslt|cudnn|emulation|nvdisasm|compute-sanitizer|libraries|driver" \
        "|archs [native|all|ARCH ...]" >&2
    exit 2
    ;;
esac
