# ASan and UBSan on everything; TSan with ranks as threads.
. tests/lib.sh
tier=release
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1 PAR_TEST_COUNT=400

trainer() { # a training that saves, a text from what it saved, a pipeline
    small="--data build/corpus.txt --n_embd 32 --n_head 2 --batch_size 2 --block_size 16 --max_iters 3"
    small+=" --eval_iters 1 --dropout 0.1 --ranks 2"
    build/gpt_asan $small --n_layer 1 --sample 20 --trace "$work/t" --save "$work/ck" &&
        build/gpt_asan --load "$work/ck" --generate "static int" --sample 40 --top_k 5 --ranks 4 --tp 2 \
            --cp 2 --sp --zero 3 --json &&
        build/gpt_asan $small --n_layer 3 --sample 4 --pp 2 --schedule zb_v --recompute selective --plan
}

# target, seconds, directory of seeds, source, what it is linked with: a short run; longer:
# build/fuzz_files -max_total_time=600 build/corpus
fuzz() {
    local program=$shared/$4
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        clang -x c -fsanitize=fuzzer - -o "$work/probe" 2>/dev/null || {
        echo "clang with libFuzzer"
        return 77
    }
    [ -s "$3/2" ] || return 1 # the seeds are there
    exec 9>"$program.lock" && flock 9 || return 1 # who comes second takes what the first has made
    [ -e "$program" ] ||
        clang -std=gnu11 -g1 ${SOAK:+-O1} -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
            -I. -Itests -Iexamples/gpt "tests/$4.c" "${@:5}" -o "$program" -pthread -lm || return 1
    flock -u 9
    cp "$program" "build/$1" && # which ends with 77 when it finds a fault
        "build/$1" -seed=1 -max_total_time="$2" -artifact_prefix="$work/" "$3" || return 1
}
seed() { # file, parts: what printf makes of each; a number is so many zero bytes
    local file=$shared/$1 part
    mkdir -p "${file%/*}"
    for part in "${@:2}"; do
        case $part in
        *[!0-9]*) printf -- "$part" ;;
        *) head -c "$part" /dev/zero ;;
        esac
    done >"$file"
}

# files: safetensors, a manifest, tokens, a configuration, an index
seed files/1 '{"a":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]}}'
seed files/2 '{"__metadata__":{"format":"pt\\u00e9"},' \
    '"b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}'
seed files/3 '{"number":7,"step":12,"loss_scale_bits":0,"good_steps":0,"bad_steps":0,' \
    '"optimizer":"adamw","note":"x","files":[{"name":"m","bytes":3,"header":"0f"}],' \
    '"tensors":[{"name":"a","checksum":"00"}]'
cp tests/golden/gpt2/model.safetensors "$shared/files/4"
seed files/5 '\223NUMPY\001\000\076\000' "{'descr': '<u2', 'fortran_order': False, 'shape': (150,), }  \n" 300
seed files/6 '\210\330\064\001\001\000\000\000\226\000\000\000' 1312
seed files/7 'MMIDIDX\0\0\001' 7 '\010\001' 15 '\040' 11
seed files/8 'TNTIDX\0\0\001' 7 '\010' 7 '\002' 7 '\001' 7 '\001' 23 '\001' 15 '\040' 7 '\040' 7
cp tests/golden/gpt2/config.json "$shared/files/9"
cp tests/golden/llama31/config.json "$shared/files/10"
seed files/11 '{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors",' \
    '"b":"model-00002-of-00002.safetensors"}}'
# llm.c's, behind its magic
seed files/12 4 '\003' 3 '\020' 3 '\140' 3 '\002' 3 '\002' 3 '\040' 3 '\200' 3
seed files/13 '\100' 7 '{                                                           ' # a header too long
# settings; the first byte: of which kind
seed settings/1 '\0024'
seed settings/2 '\0020.5e3'
seed settings/3 '\010built-in'
seed settings/4 '\1000\n2\n0\n1\n4\n1\n4\n1\n4\n99\n29400\nlocalhost\n29500\n' 'gpu[003-010,17],cpu1'
seed settings/5 '\200all_reduce:ring,broadcast:tree'
seed settings/6 '\200# tuned\nall_reduce 2 1 64 ring\nset cma_bytes 65536 all_gather\n'
seed settings/7 '\300a"\\\001\303\251\377\355\240\200'
seed settings/8 '\300gpu[003-010,17]r[1-2],cpu1'
seed settings/9 '\300nodes-whose-name-is-much-longer-' 'than-any-host-of-the-internet-may-be-called-01'
seed tables/1 '0F0,0F1,2F0,2F1,,2B0,2B1,0B0,0B1\r\n' ',1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\r\n'
seed tables/2 '0F0,0SEND_F0,0RECV_B0,0R0,0I0,0W0,0REDUCE_GRAD\n' \
    '1RECV_F0,1UNSHARD,1F0,(1R0;1B0)FUSED,1SEND_B0'
seed tables/3 '0LONGER_THAN_THE_NAME_OF_ANY_ACTION_IS0'
# the planner: a model, a machine, choices, rows of measurements
seed plan/1 '\0{"model_type":"llama","hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4,' \
    '"num_key_value_heads":2,"intermediate_size":172,"vocab_size":256,"hidden_act":"silu","x":[1,{"y":null}]}'
seed plan/2 '\1# mine\n gpu = h100 # a row\nnodes=2\ngpus_per_node = 4\nnet_bandwidth=1e9\n'
seed plan/3 '\2tp=8, pp=4 schedule=zb_h1 offload=states overlap=tp+dp'
seed plan/4 '\3# x\nname,gpu,gpus,model,sequence,batch,tp,zero,recompute,tflops\n' \
    'A,h100,16,gpt2,1024,32,2,1,full,99\n'
seed plan/5 '\0{"text_config":{"n_embd":64,"n_head":4,"n_layer":2,"vocab_size":9,"head_dim":null}}'
# TCP: a receive, RTS, DATA
seed tcp/1 '\0\0\0\1\240\206\1\6\4\1\1\240\206\1\0\0\0\0\0\6\1\3\0\0\0\240\206\1\0' \
    '\1\1\240\206\1\6\4\1\1\240\206\1\0\0\0\0\0\6\21\3\0\0\0\020\230\2'
# unexpected; notices
seed tcp/2 '\0\6\0\0\1\0\1\0\1\0\6\0\0\1\0\1\0\1\0\0\1\1\0\1\0\2\1\3\4\2\0\3\3\0\2\1\7'
# a send; CTS
seed tcp/3 '\1\1\0\1\240\206\1\6\0\2\1\0\0\3\0\7\1\0\3\0\4\2\0\3\4\2\0\7'
seed tcp/4 '\0\5\0\2\0\0\0\0\0\0\100\0\0\0\0\0\0' 624 # a header
# hello from rank 1; and rank 0's answer, with a secret
seed tcp/5 '\200!par.ar1\7' 7 '\1' 7 '\3' 7 300
seed tcp/6 '\207!par.ar1\7' 7 '\0\0\0\0\1\0\0\0\3\0\0\0\1' 3 300
# a receive of 10 bytes, 1000 come; one of 100000, which RTS agrees to, but DATA has 130000
seed tcp/7 '\0\0\0\1\012\0\0\6\0\0\1\350\3\350\3\0'
seed tcp/8 '\0\0\0\1\240\206\1\6\4\1\1\240\206\1' 5 '\6\4\3\1\320\373\1' 5 '\320\373\1'
# memos: a vote, two deaths, an acceptance; a good invitation
seed tcp/9 '\040\0\7\1\377\1\1' 213 '\0\1\2\0\0\0' 213 '\0\1\3\0\0\0' 213 '\0\013\1\0\1\0' 213
seed tcp/10 '\100\1\0\1\2\0\0\1\1\2\2\1'

made build/test_zero_asan build/test_tp_asan build/test_pipe_asan build/test_par_asan build/gpt_asan \
    build/test_golden_asan build/test_par_tsan build/bench_coll_asan build/test_data_asan \
    build/test_tcp_asan build/corpus.txt build/par.o
# Of each code path once what a sanitizer can see: one rank and three, each backend. SOAK=1: in every setting.
# (Of PyTorch's models nothing runs on three.)
asan() { suite "build/$1_asan" "${@:2}"; } # test program, its options
if [ -z "${SOAK-}" ]; then
    asan test_par --launch fork --ranks 3 --node 0
    asan test_par --launch fork --ranks 1
    asan test_par --launch threads --ranks 2 --node 0
    asan test_par --launch tcp --ranks 3 --node 2
    for t in "zero 3" "pipe 3" "tp 3" "golden 2"; do
        asan test_${t% *} --launch fork --ranks ${t#* } --node 0
    done
    suite build/test_par_tsan --launch threads --ranks 3 --node 0
else
    for t in par zero pipe tp golden; do asan test_$t --full; done
    asan test_par --full --launch tcp
    suite build/test_par_tsan --full --launch threads
fi
kit="-DPAR_H_IMPLEMENTED -DPAR_MATH_IMPLEMENTED build/par.o" # where par.h is not what is tested
seconds=${SOAK:+60}1
files=$kit plan=$kit                                       # and layers
[ -n "${SOAK-}" ] || {
    files+=" -DPAR_TP_IMPLEMENTED build/tp.o"
    plan+=" -DPAR_TP_IMPLEMENTED -DPAR_ZERO_IMPLEMENTED -DPAR_PIPE_IMPLEMENTED"
    plan+=" build/tp.o build/zero.o build/pipe.o"
}
check "libFuzzer: safetensors, manifests, tokens, models" \
    fuzz fuzz_files $seconds "$shared/files" fuzz_files $files
check "libFuzzer: settings, launchers, tables of algorithms" \
    fuzz fuzz_settings $seconds "$shared/settings" fuzz_par
check "libFuzzer: pipeline tables" fuzz fuzz_pipe $seconds "$shared/tables" fuzz_pipe $kit
check "libFuzzer: models, machines and choices of plans" \
    fuzz fuzz_plan $seconds "$shared/plan" fuzz_plan $plan
check "libFuzzer: what comes over TCP" fuzz fuzz_tcp $seconds "$shared/tcp" fuzz_par
check "ASan, UBSan: false ranks over TCP, no descriptors, who died first" build/test_tcp_asan
check "ASan, UBSan: files of tokens" build/test_data_asan
check "ASan, UBSan: the trainer" trainer
check "ASan, UBSan: the benchmark" build/bench_coll_asan --op all -b 8 -e 64K -f 64 -n 3 --ranks 3

everything_on() { # test: what changes how a program runs, all of it
    PAR_PROGRESS=1 PAR_LEDGER=1 PAR_TRACE=$work/trace build/test_par_tsan --launch threads --only $1 2>&1 |
        grep -v "^par:\|^  [^ ]" # the ledgers
    [ "${PIPESTATUS[0]}" = 0 ]
}
for test in progress_thread beside_thread grouped outstanding messages offloaded traced_beside \
    requests_twice requests_grouped; do
    check "TSan: $test with a progress thread, a trace and a ledger" everything_on $test
done
summary
