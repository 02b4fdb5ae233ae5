# What only the tests need: the Makefile's last part.

ifdef CHECK_BUILDS # make check lists what its compilers take
SHELL = tests/recipe.sh
.SHELLFLAGS = $@ -c
endif

.PHONY: check check-all soak gpu-check

check:
	@bash tests/check.sh check

check-all:
	@bash tests/check.sh check release

soak: build/test_par build/test_zero build/test_pipe build/test_tp
	@bash tests/soak.sh

all: build/test_par build/test_zero build/test_pipe build/test_tp build/test_golden build/test_errors build/test_tcp build/test_meet
cuda: build/test_cuda build/test_cuda_canonical

gpu-check:
	@bash tests/gpu_check.sh

build/libgpu_profile.so: tests/gpu_profile.cpp | build # of gpu-check; needs CUPTI
	$(CXX) -std=c++17 -O2 -fPIC -shared $< $(shell bash tests/cuda_find.sh cupti) -o $@

TEST_DEPS = tests/test.h tests/kit.c tests/kit.h par.h par_math.h

build/test_cuda build/test_cuda_canonical: build/kit.o build/layers.o # tests what is private to par_cuda.cuh
build/test_cuda build/test_cuda_canonical: CUDA_LINKED = -Xcompiler -O1 $(ALL_ARE_LINKED) # its host code runs briefly
build/test_cuda_canonical: CUDA_FLAGS += -fmad=false -DPAR_CUDA_CANONICAL # kernels with the CPU's bits: docs/bits.md
build/test_cuda build/test_cuda_canonical: tests/test_cuda.cu $(TEST_DEPS) $(wildcard tests/cuda_*.h) examples/gpt/model.h $(CUDA_DEPS)
	$(CUDA_BUILD)

build/roofline: tests/roofline.c build/par.o build/files.o build/tp.o build/zero.o build/pipe.o par_plan.h build/cc.flags
	$(CC) -std=gnu11 $(CFLAGS) $(WARN) -I. $(filter-out -DPAR_PLAN%,$(ALL_ARE_LINKED)) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/test_plan: tests/test_plan.c build/par.o build/files.o build/tp.o build/zero.o build/pipe.o par_plan.h build/cc.flags # tests what is private
	$(CC) -std=gnu11 $(CFLAGS) $(WARN) -I. $(filter-out -DPAR_PLAN%,$(ALL_ARE_LINKED)) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/test_par: build/test_par.o
	$(CC) $^ -o $@ $(LIBS)

build/victim build/scale: build/%: tests/%.c build/par.o build/cc.flags
	$(CC) -std=gnu11 -O1 -Wall -Wextra -I. $(PAR_IS_LINKED) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/elastic: tests/elastic.c par.h build/cc.flags # a copy of par.h of its own, with points
	$(CC) -std=gnu11 -O1 -Wall -Wextra -I. $< -o $@ $(LIBS)

build/stranger: tests/stranger.c build/cc.flags
	$(CC) -std=gnu11 -O1 $(WARN) $< -o $@

build/test_meet build/test_tcp: TEST_CFLAGS = -O0 $(DEBUG) # run briefly
build/test_par.o build/test_zero.o build/test_pipe.o build/test_tp.o: TEST_CFLAGS = $(OG) $(DEBUG) # compile long, run nearly as fast

# Test programs of layers link par.h's implementation with what tests need of its insides, tests/kit.c. It compiles
# long, and is in test_par's object: that without its main and its list of tests.
WITHOUT_TESTS = objcopy -w --localize-symbol=main --localize-symbol='*tests' --localize-symbol='*test_count'
build/kit.o: build/test_par.o
	$(WITHOUT_TESTS) $< $@
build/kit_asan.o build/kit_mpich.o build/kit_openmpi.o: build/kit_%.o: build/test_par_%.o
	$(WITHOUT_TESTS) $< $@

build/test_golden: tests/test_golden.c $(TEST_DEPS) build/kit.o build/layers.o $(GPT_DEPS) build/cc.flags
	$(CC) -std=gnu11 $(TEST_CFLAGS) -Wall -Wextra -Wno-unused-function -I. -Itests -Iexamples/gpt $(ALL_ARE_LINKED) \
	    $< $(filter %.o,$^) -o $@ $(LIBS)

build/test_meet: tests/test_meet.c par.h build/cc.flags
	$(CC) -std=gnu11 $(TEST_CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)
build/test_tcp: tests/test_tcp.c par.h build/cc.flags
	$(CC) -std=gnu11 $(TEST_CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)

build/test_zero.o: par_zero.h
build/test_pipe.o: par_pipe.h
build/test_tp.o: par_tp.h
build/test_zero.o build/test_pipe.o build/test_tp.o: TEST_CFLAGS += $(PAR_IS_LINKED)
build/test_par.o build/test_zero.o build/test_pipe.o build/test_tp.o: build/%.o: tests/%.c $(TEST_DEPS) build/cc.flags
	$(CC) -std=c11 $(TEST_CFLAGS) -Wall -Wextra -I. -Itests -c $< -o $@

build/test_zero build/test_pipe build/test_tp: build/%: build/%.o build/kit.o
	$(CC) $^ -o $@ $(LIBS)

# Programs with the libraries for matrix products; programs.sh links the last object with false ones.
build/test_gemm_par.o: tests/test_par.c $(TEST_DEPS) build/gemm.flags build/cc.flags
	$(CC) -std=gnu11 -O0 $(DEBUG) -Wall -Wextra -I. -Itests -c $< -o $@ $$(cat build/gemm.flags)
build/kit_gemm.o: build/test_gemm_par.o
	$(WITHOUT_TESTS) $< $@
build/test_gemm_par: build/test_gemm_par.o
build/gpt_gemm: build/gpt.o build/kit_gemm.o build/layers.o
build/bench_tp_gemm: build/bench_tp.o build/kit_gemm.o build/layers.o
build/test_gemm_par build/gpt_gemm build/bench_tp_gemm:
	$(CC) $^ -o $@ $$(cat build/gemm.flags) $(LIBS)
build/test_gemm.o: tests/test_gemm.c par.h par_math.h build/cc.flags
	$(CC) -std=c11 $(OG) $(DEBUG) -Wall -Wextra -DPAR_CBLAS -I. -c $< -o $@

build/test_errors: tests/test_errors.c $(TEST_DEPS) build/kit.o build/layers.o build/cc.flags
	$(CC) -std=gnu11 $(TEST_CFLAGS) -Wall -Wextra -I. -Itests $(ALL_ARE_LINKED) $< $(filter %.o,$^) -o $@ $(LIBS) \
	    $(addprefix -Wl$(,)--wrap=,malloc calloc realloc posix_memalign free writev)

# Programs that only the tests run: with sanitizers, with each MPI, on emulated GPUs.
TESTED = $(wildcard *.h *.cuh tests/*.h tests/kit.c tests/cuda_emu/*.[ch]* tests/ptx/ptx.h examples/*.[ch] examples/gpt/*.[ch] bench/*.[ch])
TEST_COMPILE = -std=gnu11 -g1 -Wall -Wextra -Wno-unused-function -I. -Itests -Iexamples/gpt
TEST_BUILD = $(TEST_COMPILE) $< $(filter %.o,$^) -o $@ $(LIBS)
EMULATE = $(CXX) -std=c++17 -x c++ -include tests/cuda_emu/emu.h -Wall -Wextra -Wno-unused-function -I. -Itests $$(bash tests/cuda_find.sh emulation)

# Compiles in two thirds of the time of -O1, and runs nearly as fast.
OG = -Og

# ASan sees null pointers and accesses out of bounds itself. UBSan's other checks of each access cost much: the readers of
# others' bytes have them (the fuzzers, too), and the kernels have the one of alignment, which hardware wants.
SANITIZE = -fsanitize=address,undefined -fno-sanitize=null,object-size -fno-sanitize-recover=all -DTEST_FEWER=1
ASAN = $(OG) $(SANITIZE) -fno-sanitize=alignment,pointer-overflow
build/bench_coll_asan: ASAN += -O0 # runs briefly
build/test_par_asan.o build/test_tp_asan.o: build/%_asan.o: %.c $(TESTED) build/cc.flags
	$(CC) $(ASAN) $(TEST_COMPILE) -c $< -o $@
build/test_tp_asan.o: ASAN += $(PAR_IS_LINKED)
# par_tp.h is in its test's object, too; those of the other layers are compiled in other ways.
build/layers_asan.o: tests/compile/layer.c build/test_tp_asan.o $(TESTED)
	$(CC) $(ASAN) $(TEST_COMPILE) -DPAR_TP_IMPLEMENTED -c $< -o $@.part
	$(WITHOUT_TESTS) build/test_tp_asan.o $@.tp
	$(CC) -r -nostdlib $@.part $@.tp -o $@
build/test_par_asan: build/test_par_asan.o
	$(CC) $(SANITIZE) $^ -o $@ $(LIBS)
build/test_tp_asan: build/test_tp_asan.o build/kit_asan.o
	$(CC) $(SANITIZE) $^ -o $@ $(LIBS)
build/test_zero_asan build/test_pipe_asan: build/%_asan: %.c build/kit_asan.o $(TESTED)
	$(CC) $(ASAN) $(PAR_IS_LINKED) $(TEST_BUILD)
build/gpt_asan build/test_golden_asan: build/%_asan: %.c build/kit_asan.o build/layers_asan.o $(TESTED)
	$(CC) $(ASAN) $(ALL_ARE_LINKED) $(TEST_BUILD)
build/test_data_asan: test_data.c build/kit_asan.o $(TESTED)
	$(CC) -O0 $(SANITIZE) $(PAR_IS_LINKED) $(TEST_BUILD)
build/test_tcp_asan: ASAN = -O0 $(SANITIZE)
build/%_asan: %.c $(TESTED) build/cc.flags
	$(CC) $(ASAN) $(TEST_BUILD)

build/%_tsan: %.c $(TESTED) build/cc.flags
	$(CC) $(OG) -fsanitize=thread -DTEST_FEWER=2 $(TEST_BUILD)

# par.h's implementation with each MPI; layers and programs are the same with all of them.
build/test_par_mpich.o build/test_par_openmpi.o: build/test_par_%.o: tests/test_par.c $(TEST_DEPS) build/cc.flags
	mpicc.$* -DPAR_MPI $(TEST_COMPILE) -c $< -o $@
build/test_par_mpich build/test_par_openmpi: build/test_par_%: build/test_par_%.o
	mpicc.$* $^ -o $@ $(LIBS)

KIT_MPI = 01_hello 04_mpi_adopt
$(KIT_MPI:%=build/%_mpich): build/%_mpich: %.c build/kit_mpich.o
	mpicc.mpich -DPAR_MPI $(PAR_IS_LINKED) $(TEST_BUILD)
$(KIT_MPI:%=build/%_openmpi): build/%_openmpi: %.c build/kit_openmpi.o
	mpicc.openmpi -DPAR_MPI $(PAR_IS_LINKED) $(TEST_BUILD)

build/test_zero_mpich build/test_pipe_mpich build/gpt_mpich: build/%_mpich: build/%.o build/kit_mpich.o
	mpicc.mpich $^ -o $@ $(LIBS)
build/test_zero_openmpi build/test_pipe_openmpi build/gpt_openmpi: build/%_openmpi: build/%.o build/kit_openmpi.o
	mpicc.openmpi $^ -o $@ $(LIBS)
build/gpt_mpich build/gpt_openmpi: build/layers.o
build/08_gpt_mpich: 08_gpt.c build/kit_mpich.o build/layers.o
	mpicc.mpich -DPAR_MPI $(ALL_ARE_LINKED) $(TEST_BUILD)

FORTRAN = -std=f2018 -Wall -Wextra -Werror -cpp -ffree-line-length-none -Ibindings
build/fortran_heat_mpich build/fortran_heat_openmpi: build/fortran_heat_%: build/kit_%.o bindings/par.f90 bindings/par_mpi.f90 examples/fortran_heat.f90
	mkdir -p build/fortran_$*
	mpifort.$* $(FORTRAN) -J build/fortran_$* $(filter %.f90,$^) $< -o $@ $(LIBS)

build/%_mpich: %.c $(TESTED) build/cc.flags
	mpicc.mpich -DPAR_MPI $(TEST_BUILD)

build/%_openmpi: %.c $(TESTED) build/cc.flags
	mpicc.openmpi -DPAR_MPI $(TEST_BUILD)

build/gpt_emu build/bench_cuda_emu build/bench_pipe_emu build/09_cuda_adopt_emu: build/cuda_emu.o build/par.o build/layers.o
build/gpt_emu.o build/bench_cuda_emu.o build/bench_pipe_emu.o build/09_cuda_adopt_emu.o: EMULATE += $(CUDA_LAYERS_ARE_LINKED) $(PAR_IS_LINKED)
build/bench_coll_emu: build/cuda_emu.o build/layers.o
build/bench_coll_emu.o: EMULATE += $(CUDA_LAYERS_ARE_LINKED)
build/%_emu: build/%_emu.o build/emu.o
	$(CXX) $^ -o $@ $(LIBS)

build/gpt_emu.o build/emu.o build/cuda_emu.o: EMULATE += $(OG) # the others are not optimized
build/bench_cuda_emu.o: EMULATE += -DBENCH_ROUNDS=1
build/%_emu.o: %.cu $(TESTED) build/cc.flags
	$(EMULATE) -c $< -o $@

build/gpt_emu.o: tests/trainer_threads.cu $(TESTED) build/cc.flags
	$(EMULATE) -c $< -o $@

build/cuda_emu.o: tests/compile/cuda.cu $(TESTED) build/cc.flags
	$(EMULATE) -c $< -o $@

build/emu.o: tests/cuda_emu/emu.cpp $(TESTED) build/cc.flags
	$(EMULATE) -c $< -o $@

# The kernels as nvcc writes them for sm_90a, with the tests' own; and without fused products, as canonical training has them.
PTX_BUILD = $(NVCC) -ptx -lineinfo -std=c++17 -arch=sm_90a -DTEST_PTX -I. -Itests $(filter -D% -I%,$(CUDA_LIBRARIES)) -o $@ $<
build/test_cuda.ptx: tests/test_cuda.cu $(TESTED)
	$(PTX_BUILD)
build/canonical.ptx: tests/test_cuda.cu $(TESTED)
	$(PTX_BUILD) -fmad=false -DPAR_CUDA_CANONICAL
# Runs PTX, many instructions of it. A product and a sum that are apart in the text must stay apart.
PTX_SOURCES = $(wildcard tests/ptx/*)
build/ptx.o: tests/ptx/ptx.cpp $(PTX_SOURCES)
	$(CXX) -std=c++17 -O2 -ftree-vectorize -march=native -ffp-contract=off -fno-strict-aliasing -g1 \
	    -Wall -Wextra -c $< -o $@

build/test_cuda_emu: tests/test_cuda.cu build/emu.o build/ptx.o build/kit_asan.o build/layers_asan.o $(TESTED)
	$(EMULATE) $(OG) -g1 $(SANITIZE) -fno-sanitize=pointer-overflow $(ALL_ARE_LINKED) $< \
	    -x none $(filter %.o,$^) -o $@ $(LIBS)

build/test_model: test_model.c build/par.o build/layers.o $(TESTED)
	$(CC) -O1 $(ALL_ARE_LINKED) $(TEST_BUILD)

# Compiled in a third of the time.
build/bench_coll_test: CFLAGS = $(OG) $(DEBUG) -DBENCH_TEST
build/bench_coll_test: bench/bench_coll.c $(SIMULATOR) par.h $(OPTIONS) examples/median.h build/cc.flags
	$(CC) -std=c11 $(CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)

# Compiled in a quarter of the time, and looks for locks.
TEST_SHIMS = $(SHIMS:.so=_test.so)
$(TEST_SHIMS): SHIM = tests/mpi_locks.h
$(TEST_SHIMS): CFLAGS = -O0 -g1
$(TEST_SHIMS): build/libpar_mpi_%_test.so: tests/mpi_locks.h par_mpi.h par.h build/cc.flags
	$(call MAKE_SHIM,mpicc.$* $(WARN))

build/mpi_shim_mpich build/mpi_shim_openmpi: build/mpi_shim_%: tests/mpi_shim.c build/cc.flags
	mpicc.$* -std=gnu11 $(TEST_CFLAGS) -Wall -Wextra $< -o $@ -pthread
