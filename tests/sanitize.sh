# ASan and UBSan on everything; TSan with ranks as threads.
. tests/lib.sh
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=halt_on_error=1
export PAR_TEST_COUNT=400
trainer() { build/gpt_asan --data build/corpus.txt --n_layer 1 --n_embd 32 --n_head 2 --batch_size 2 --block_size 16 --max_iters 3 --eval_iters 1 --sample 20 --dropout 0.1 --ranks 2 --trace "$work/t" --save "$work/ck" &&
    build/gpt_asan --load "$work/ck" --generate "static int" --sample 40 --top_k 5 --ranks 4 --tp 2 --cp 2 --sp --zero 3 --json &&
    build/gpt_asan --data build/corpus.txt --n_layer 3 --n_embd 32 --n_head 2 --batch_size 2 --block_size 16 --max_iters 3 --eval_iters 1 --sample 4 --dropout 0.1 --ranks 2 --pp 2 --schedule zb_v --recompute selective --plan; }

fuzz() { # target, seconds, directory of seeds: a short run; longer: build/fuzz_files -max_total_time=600 build/corpus
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' | clang -x c -fsanitize=fuzzer - -o "$work/probe.$1" 2>/dev/null || { echo "clang with libFuzzer"; return 77; }
    clang -std=gnu11 -g ${SOAK:+-O1} -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I. -Itests -Iexamples/gpt "tests/$1.c" -o "build/$1" -pthread -lm &&
    "build/$1" -seed=1 -max_total_time="$2" -artifact_prefix="$work/" "$3"
}
mkdir -p "$work/seeds" "$work/tables" "$work/tcp"
printf '%s' '{"a":{"dtype":"F32","shape":[2,8],"data_offsets":[0,64]}}' >"$work/seeds/1"
printf '%s' '{"__metadata__":{"format":"pt\u00e9"},"b":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}' >"$work/seeds/2"
printf '%s' '{"number":7,"step":12,"loss_scale_bits":0,"good_steps":0,"bad_steps":0,"optimizer":"adamw","note":"x","files":[{"name":"m","bytes":3,"header":"0f"}],"tensors":[{"name":"a","checksum":"00"}]' >"$work/seeds/3"
cp tests/golden/gpt2/model.safetensors "$work/seeds/4"
printf '\223NUMPY\001\000\076\000%-61s\n' "{'descr': '<u2', 'fortran_order': False, 'shape': (150,), }" >"$work/seeds/5" && head -c 300 /dev/zero >>"$work/seeds/5"
{ printf '\210\330\064\001\001\000\000\000\226\000\000\000'; head -c 1312 /dev/zero; } >"$work/seeds/6"
printf 'MMIDIDX\0\0\001\0\0\0\0\0\0\0\010\001\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\040\0\0\0\0\0\0\0\0\0\0\0' >"$work/seeds/7"
{ printf 'TNTIDX\0\0\001\0\0\0\0\0\0\0\010\0\0\0\0\0\0\0\002\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0\001\0\0\0\0\0\0\0'; head -c 16 /dev/zero; printf '\001'; head -c 15 /dev/zero; printf '\040'; head -c 7 /dev/zero; printf '\040'; head -c 7 /dev/zero; } >"$work/seeds/8"
cp tests/golden/gpt2/config.json "$work/seeds/9"
cp tests/golden/llama31/config.json "$work/seeds/10"
printf '%s' '{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}' >"$work/seeds/11"
printf '\0\0\0\0\003\0\0\0\020\0\0\0\140\0\0\0\002\0\0\0\002\0\0\0\040\0\0\0\200\0\0\0' >"$work/seeds/12" # llm.c's, behind its magic
mkdir -p "$work/settings" # the first byte: of which kind
printf '\0024' >"$work/settings/1"
printf '\0020.5e3' >"$work/settings/2"
printf '\010built-in' >"$work/settings/3"
printf '\1000\n2\n0\n1\n4\n1\n4\n1\n4\n99\n29400\nlocalhost\n29500\n%s' 'gpu[003-010,17],cpu1' >"$work/settings/4"
printf '\200all_reduce:ring,broadcast:tree' >"$work/settings/5"
printf '\200# tuned\nall_reduce 2 1 64 ring\nset cma_bytes 65536\n' >"$work/settings/6"
printf '\300a"\\\001\303\251\377\355\240\200' >"$work/settings/7"
printf '\300gpu[003-010,17]r[1-2],cpu1' >"$work/settings/8"
printf '0F0,0F1,2F0,2F1,,2B0,2B1,0B0,0B1\r\n,1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\r\n' >"$work/tables/1"
printf '0F0,0SEND_F0,0RECV_B0,0R0,0I0,0W0,0REDUCE_GRAD\n1RECV_F0,1UNSHARD,1F0,(1R0;1B0)FUSED,1SEND_B0' >"$work/tables/2"
printf '\0\0\0\1\240\206\1\6\4\1\1\240\206\1\0\0\0\0\0\6\1\3\0\0\0\240\206\1\0\1\1\240\206\1\6\4\1\1\240\206\1\0\0\0\0\0\6\21\3\0\0\0\020\230\2' >"$work/tcp/1" # a receive; RTS, DATA
printf '\0\6\0\0\1\0\1\0\1\0\6\0\0\1\0\1\0\1\0\0\1\1\0\1\0\2\1\3\4\2\0\3\3\0\2\1\7' >"$work/tcp/2" # unexpected; notices
printf '\1\1\0\1\240\206\1\6\0\2\1\0\0\3\0\7\1\0\3\0\4\2\0\3\4\2\0\7' >"$work/tcp/3" # a send; CTS
{ printf '\0\5\0\2\0\0\0\0\0\0\100\0\0\0\0\0\0'; head -c 624 /dev/zero; } >"$work/tcp/4" # a header
{ printf '\200!par.ar1\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0'; head -c 300 /dev/zero; } >"$work/tcp/5" # hello from rank 1
{ printf '\207!par.ar1\7\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\3\0\0\0\1\0\0\0'; head -c 300 /dev/zero; } >"$work/tcp/6" # and rank 0's answer, with a secret

made build/test_zero_asan build/test_tp_asan build/test_pipe_asan build/test_par_asan build/gpt_asan build/test_golden_asan build/test_par_tsan build/bench_coll_asan build/test_data_asan build/test_tcp_asan build/corpus.txt
check "libFuzzer: safetensors, manifests, tokens, models" fuzz fuzz_files ${SOAK:+60}3 "$work/seeds"
check "libFuzzer: settings, launchers, tables of algorithms" fuzz fuzz_settings ${SOAK:+60}3 "$work/settings"
check "libFuzzer: pipeline tables" fuzz fuzz_pipe ${SOAK:+60}3 "$work/tables"
check "libFuzzer: what comes over TCP" fuzz fuzz_tcp ${SOAK:+60}3 "$work/tcp"
check "ASan, UBSan: false ranks over TCP" build/test_tcp_asan
check "ASan, UBSan: files of tokens" build/test_data_asan
check "ASan, UBSan: the trainer" trainer
check "ASan, UBSan: the benchmark" build/bench_coll_asan --op all -b 8 -e 64K -f 64 -n 3 --ranks 3
# Of each code path once what a sanitizer can see: one rank and three, each backend. SOAK=1: in every setting.
settings=("test_par --launch fork --ranks 3 --node 0" "test_par --launch fork --ranks 1" "test_par --launch threads --ranks 2 --node 0" "test_par --launch tcp --ranks 3 --node 2")
for t in zero pipe tp golden; do
    [ $t = golden ] && n=2 || n=3 # of PyTorch's models nothing runs on three
    settings+=("test_$t --launch fork --ranks $n --node 0" "test_$t --launch fork --ranks 1")
done
[ -z "${SOAK-}" ] || settings=("test_par --full" "test_par --full --launch tcp" "test_zero --full" "test_pipe --full" "test_tp --full" "test_golden --full")
for setting in "${settings[@]}"; do suite build/${setting%% *}_asan ${setting#* }; done
if [ -z "${SOAK-}" ]; then suite build/test_par_tsan --launch threads --ranks 3 --node 0; else suite build/test_par_tsan --full --launch threads; fi
for test in progress_thread grouped outstanding messages offloaded; do
    check "TSan: $test with a progress thread" env PAR_PROGRESS=1 build/test_par_tsan --launch threads --only $test
done
summary
