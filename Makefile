# make          says what there is to make
# make run      train a small GPT on 2 ranks of this machine (RANKS=n, DATA=file); needs only a C compiler
# make check    test it, in five minutes on two cores; installs missing packages if it may (not with INSTALL=0); FAILED=1: what
#               failed last time first; make check-all: what a release needs, too
# make cuda     build the trainer, the example and the benchmarks for GPUs; make gpu-check tests them on a GPU

CC ?= cc
DEBUG ?= -g
CFLAGS ?= -O2 $(DEBUG)
TEST_CFLAGS ?= -O1 $(DEBUG)
WARN = -Wall -Wextra -Wconversion -Werror
FAST_LEVEL ?= -O3
FAST = $(FAST_LEVEL) -march=native -fno-math-errno -fno-trapping-math
MPICC ?= $(shell command -v mpicc.mpich || echo mpicc)
PREFIX ?= /usr/local
RANKS ?= 2
DATA ?= build/words.txt
# About a minute on two cores; the sample has the words of the pages, and some of their grammar
TRAINING = --optimizer muon --learning_rate 0.02 --batch_size 6 --max_iters 600 --temperature 0.5
ARGS ?=

LIBS = -pthread -lm
, = ,
quoted = '$(subst ','\'',$(1))'# one word of the shell's
OPTIONS = examples/options.h examples/output.h par_files.h
SIMULATOR = bench/simulate.h bench/network.h bench/patterns.h
LESSONS = $(patsubst examples/%.c,build/%,$(filter-out %_mpi_adopt.c,$(wildcard examples/[0-9]*.c)))
GPT_DEPS = par.h par_files.h par_math.h par_tp.h par_zero.h par_pipe.h par_plan.h $(wildcard examples/gpt/*.[ch]) examples/median.h $(OPTIONS)
SOURCES = $(sort $(wildcard *.h *.cuh examples/*.[ch] examples/gpt/*.[ch] bench/*.[ch] tests/*.[ch]))
CUDA_ARCHS ?= native
HAVE_MPI = $(shell command -v $(MPICC) >/dev/null 2>&1 && echo yes)

vpath %.c tests examples examples/gpt bench
vpath %.cu tests examples examples/gpt bench

.DEFAULT_GOAL = help
.PHONY: run all examples bench plots reference cuda lint install bindings dist clean help FORCE
.DELETE_ON_ERROR:

run: build/gpt $(findstring build/words.txt,$(DATA))
	build/gpt --ranks $(RANKS) --data $(call quoted,$(DATA)) --trace build/trace.json $(TRAINING) $(ARGS)

all: examples bench

examples: $(LESSONS) build/plan build/gpt build/gpt_auto $(if $(HAVE_MPI),build/04_mpi_adopt build/gpt_mpi build/gpt_auto_mpi)
	$(if $(HAVE_MPI),,@echo "no $(MPICC): examples/04_mpi_adopt.c, build/gpt_mpi and build/gpt_auto_mpi are left out")

bench: build/bench_coll build/bench_zero build/bench_pipe build/bench_tp build/bench_fault $(if $(HAVE_MPI),build/bench_coll_mpi)
	$(if $(HAVE_MPI),,@echo "no $(MPICC): build/bench_coll_mpi is left out")

plots: build/bench_pipe build/plan
	@bash bench/plots.sh

# The headers' manuals and comments as HTML.
REFERENCE = par.h par_zero.h par_pipe.h par_tp.h par_cuda.cuh par_plan.h par_mpi.h par_math.h par_files.h
reference: build/reference/index.html
build/reference/index.html: $(REFERENCE) $(wildcard docs/reference/*)
	mkdir -p build/reference
	awk -v out=build/reference -f docs/reference/make.awk $(REFERENCE)
	cp docs/reference/*.css docs/reference/*.js build/reference
	@echo 'open build/reference/index.html'

# cuda_find.sh looks for nvcc, NCCL, cuBLASLt and cuDNN, also where pip installs them, and says what is missing. CUDA_ARCHS:
# native (this machine's GPUs; without one: 90a), all, or a list. The kit is compiled once and linked to all programs; the
# example is one file, as a program that adopts the kit.
NVCC ?= $(shell bash tests/cuda_find.sh nvcc)
CUDA_LIBRARIES = $(foreach l,nccl cublaslt cudnn,$(shell bash tests/cuda_find.sh $l))
CUDA_CODE = $(foreach a,$(shell bash tests/cuda_find.sh archs $(CUDA_ARCHS)),-gencode=arch=compute_$(a),code=sm_$(a))
CUDA_FLAGS = -std=c++17 -O3 --threads 0 $(CUDA_CODE) -Werror all-warnings -I. -Itests
CUDA_BUILD = $(NVCC) $(CUDA_FLAGS) $(CUDA_LINKED) $(filter %.cu %.o,$^) -o $@ $(CUDA_LIBRARIES) -lpthread
CUDA_DEPS = par.h par_files.h par_math.h par_tp.h par_zero.h par_pipe.h par_cuda.cuh tests/cuda_find.sh build/cuda.flags
CUDA_LAYERS_ARE_LINKED = -DPAR_CUDA_IMPLEMENTED -DPAR_FILES_IMPLEMENTED -DPAR_TP_IMPLEMENTED -DPAR_ZERO_IMPLEMENTED -DPAR_PIPE_IMPLEMENTED -DPAR_PLAN_IMPLEMENTED

cuda: build/gpt_cuda build/gpt_auto_cuda build/09_cuda_adopt build/bench_cuda build/bench_coll_cuda build/bench_pipe_cuda

# What another compiler made, or other flags, is compiled again. Debug information (-g) does not count, nor what
# programs have as CFLAGS of their own, which make also gives the files that they need: so this is read here.
CC_FLAGS := $(shell command -v $(firstword $(CC))) $(wordlist 2,99,$(CC)) $(CXX) $(filter-out -g%,$(CFLAGS) $(TEST_CFLAGS))
build/cc.flags: FLAGS = $(CC_FLAGS)
build/mpi.flags: FLAGS = $(shell command -v $(firstword $(MPICC))) $(MPICC)
build/fast.flags: FLAGS = $(FAST)
build/cuda.flags: FLAGS = $(NVCC) $(CUDA_CODE)
build/cc.flags build/mpi.flags build/fast.flags build/cuda.flags: FORCE | build
	@printf '%s\n' $(call quoted,$(FLAGS)) >$@.$$$$; cmp -s $@.$$$$ $@ && rm $@.$$$$ || mv -f $@.$$$$ $@

build/cuda.o: tests/compile/cuda.cu $(CUDA_DEPS)
	$(NVCC) $(CUDA_FLAGS) -Xcompiler -Wall,-Wextra $(filter -D% -I%,$(CUDA_LIBRARIES)) $(CUDA_KEEP) -c $< -o $@

build/gpt_cuda build/gpt_auto_cuda build/bench_cuda build/bench_pipe_cuda: build/cuda.o build/par.o build/layers.o
build/gpt_cuda build/gpt_auto_cuda build/bench_cuda build/bench_pipe_cuda: CUDA_LINKED = $(CUDA_LAYERS_ARE_LINKED) $(PAR_IS_LINKED)
build/bench_coll_cuda: build/cuda.o build/layers.o # measures what is private to par.h
build/bench_coll_cuda: CUDA_LINKED = $(CUDA_LAYERS_ARE_LINKED)

build/gpt_cuda build/gpt_auto_cuda: build/%_cuda: examples/gpt/%.cu $(GPT_DEPS) $(CUDA_DEPS)
	$(CUDA_BUILD)

build/09_cuda_adopt: examples/09_cuda_adopt.cu $(CUDA_DEPS)
	$(CUDA_BUILD)

build/bench_cuda: bench/bench_cuda.cu examples/median.h $(OPTIONS) $(CUDA_DEPS)
	$(CUDA_BUILD)

build/bench_coll_cuda: bench/bench_coll.cu bench/bench_coll.c $(SIMULATOR) examples/median.h $(OPTIONS) $(CUDA_DEPS)
	$(CUDA_BUILD)

build/bench_pipe_cuda: bench/bench_pipe.cu bench/bench_pipe.c $(OPTIONS) $(CUDA_DEPS)
	$(CUDA_BUILD)

lint:
	@bash tests/lint.sh

VERSION = $(shell sed -n 's/^.define PAR_VERSION_[A-Z]* //p' par.h | paste -s -d .)

FILLED = sed $(call quoted,s|@PREFIX@|$(subst |,\|,$(subst &,\&,$(subst \,\\,$(PREFIX))))|;s|@VERSION@|$(VERSION)|)
install: build/libpar.so
	@case $(call quoted,$(PREFIX)) in /*) ;; *) echo "install: PREFIX is a path from /" >&2; exit 2 ;; esac
	install -d "$(DESTDIR)$(PREFIX)/include" "$(DESTDIR)$(PREFIX)/lib/pkgconfig" "$(DESTDIR)$(PREFIX)/lib/cmake/par" "$(DESTDIR)$(PREFIX)/share/par"
	install -m 644 *.h *.cuh bindings/par.hpp bindings/par_site.h "$(DESTDIR)$(PREFIX)/include/"
	install -m 644 bindings/par.f90 bindings/par_mpi.f90 bindings/par.py "$(DESTDIR)$(PREFIX)/share/par/"
	install -m 755 build/libpar.so "$(DESTDIR)$(PREFIX)/lib/libpar.so.$(VERSION)"
	ln -sf libpar.so.$(VERSION) "$(DESTDIR)$(PREFIX)/lib/libpar.so.$(basename $(VERSION))"
	ln -sf libpar.so.$(basename $(VERSION)) "$(DESTDIR)$(PREFIX)/lib/libpar.so"
	install -m 644 packaging/parConfig.cmake "$(DESTDIR)$(PREFIX)/lib/cmake/par/"
	$(FILLED) packaging/parConfigVersion.cmake.in > "$(DESTDIR)$(PREFIX)/lib/cmake/par/parConfigVersion.cmake"
	for name in par par-mpi par-cuda; do $(FILLED) packaging/$$name.pc.in > "$(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc" || exit; done

# The bindings' generated parts, from what par.h declares.
BINDINGS = bindings/par.f90 bindings/par.hpp bindings/par.py
bindings:
	for f in $(BINDINGS); do awk -f bindings/make.awk par.h $$f > $$f.new && cat $$f.new > $$f && rm $$f.new || exit; done

# A tarball of what is committed, as Debian names it, and each header as one file, with those that it includes.
DIST = build/dist
dist:
	rm -rf $(DIST) && mkdir -p $(DIST)
	[ ! -e .git ] || git archive --prefix=par-$(VERSION)/ HEAD | gzip -9n > $(DIST)/par_$(VERSION).orig.tar.gz
	for h in *.h *.cuh; do awk -f packaging/one_file.awk $$h > $(DIST)/$${h%%.*}-$(VERSION).$${h##*.} || exit; done

clean:
	rm -rf build

help:
	@printf '%s\n' 'Targets:' 'run      train a small GPT (RANKS=, DATA=, ARGS=)' 'check    the tests, in five minutes on two cores (INSTALL=0: installs no packages; FAILED=1: what failed last time first)' 'check-all   check, then what a release needs: other compilers, a second MPI, sanitizers, nvcc' 'soak     every test in every setting, then random ones (SOAK_SECONDS=)' \
	    'build/NAME   one program: gpt, gpt_auto, plan, bench_coll, bench_pipe, test_par ...' 'all      everything that builds here' 'examples, bench, plots, reference (HTML), lint, install (PREFIX=, DESTDIR=), clean' \
	    'build/libpar_mpi.so   to preload into MPI programs, for any MPI (MPICC=cc, mpicc ...); build/libpar_mpi_mpich.so, _openmpi.so' \
	    'bindings the Fortran, C++ and Python interfaces again, from par.h; dist: a tarball, and headers as single files' \
	    'cuda     for this machine'"'"'s GPU (CUDA_ARCHS=all, or a list; NVCC=)' 'gpu-check   every test and benchmark on this machine'"'"'s GPU'

build:
	mkdir -p build

# The libraries for matrix products that this machine has: oneDNN, a CBLAS. The program finds out which is fastest.
build/gemm.flags: FORCE | build
	@sh tests/gemm_flags.sh $(CC) >$@.$$$$; cmp -s $@.$$$$ $@ && rm $@.$$$$ || mv -f $@.$$$$ $@

WORDS = $(sort $(wildcard *.md docs/*.md *.h *.cuh))
build/words.txt: tests/words.awk $(WORDS) | build
	awk -f $< $(WORDS) > $@

build/corpus.txt: $(SOURCES) | build
	cat $(SOURCES) > $@

# For these programs par.h and par_math.h are compiled once more, with the libraries for matrix products; make check does without,
# but for programs that test them, below.
FAST_PAR ?= build/par_fast.o
FAST_KIT = $(FAST_PAR) build/layers.o build/gemm.flags
build/gpt.o build/gpt_auto.o: build/%.o: examples/gpt/%.c $(GPT_DEPS) build/cc.flags
	$(CC) -std=gnu11 $(FAST) -Wall -Wextra -I. $(ALL_ARE_LINKED) -c $< -o $@

build/gpt build/gpt_auto: build/%: build/%.o $(FAST_KIT)
	$(CC) $(filter %.o,$^) -o $@ $$(cat build/gemm.flags) $(LIBS)

build/gpt_mpi build/gpt_auto_mpi: build/%_mpi: examples/gpt/%.c $(GPT_DEPS) build/gemm.flags build/cc.flags build/mpi.flags build/fast.flags
	$(MPICC) -DPAR_MPI -std=gnu11 $(FAST) -Wall -Wextra -I. $< -o $@ $$(cat build/gemm.flags) $(LIBS)

# Each is a program in one file. Here the implementation of par.h and par_math.h is compiled once and linked to all, and
# the layers' too.
PAR_IS_LINKED = -DPAR_H_IMPLEMENTED -DPAR_MATH_IMPLEMENTED
ALL_ARE_LINKED = $(PAR_IS_LINKED) -DPAR_FILES_IMPLEMENTED -DPAR_TP_IMPLEMENTED -DPAR_ZERO_IMPLEMENTED -DPAR_PIPE_IMPLEMENTED -DPAR_PLAN_IMPLEMENTED
$(LESSONS): build/%: examples/%.c build/par.o build/layers.o build/cc.flags
	$(CC) -std=gnu11 $(CFLAGS) $(WARN) -I. $(ALL_ARE_LINKED) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/par.o: par_math.h par.h build/cc.flags
	$(CC) -std=c11 -pedantic-errors $(CFLAGS) $(WARN) -Wvla -fPIC -I. -DPAR_IMPLEMENTATION -x c -c $< -o $@

# Compiled once for the trainer, which wants its kernels to be fast, and for all others; make check makes its
# warnings errors.
LAYERS_WARN ?= -Wall -Wextra
LAYERS = build/files.o build/tp.o build/zero.o build/pipe.o build/plan.o
$(LAYERS): build/%.o: par_%.h par_files.h par_math.h par.h build/cc.flags
	$(CC) -std=gnu11 $(FAST) $(DEBUG) $(LAYERS_WARN) -fPIC -fno-semantic-interposition -I. \
	    -DPAR_$$(echo $* | tr a-z A-Z)_IMPLEMENTATION -x c -c $< -o $@
build/plan.o: par_tp.h par_zero.h par_pipe.h
$(LAYERS) build/gpt.o build/gpt_auto.o build/bench_tp.o build/bench_zero: build/fast.flags

build/layers.o: $(LAYERS)
	$(CC) -r -nostdlib $^ -o $@

# par.h as a shared library, for bindings/par.py, and for any processor, as layers are not. A new minor version may
# change its functions, a new patch does not.
build/libpar.so: build/par.o
	$(CC) -shared -Wl,-soname,libpar.so.$(basename $(VERSION)) $^ -o $@ $(LIBS)

build/par_fast.o: par_math.h par.h build/gemm.flags build/cc.flags # its kernels are compiled for each instruction set anyhow
	$(CC) -std=gnu11 $(CFLAGS) -Wall -Wextra -I. -DPAR_IMPLEMENTATION -x c -c $< -o $@ $$(cat build/gemm.flags)

build/plan: examples/plan.c build/par.o build/layers.o par_plan.h $(OPTIONS) examples/published.h examples/gpt/model.h examples/gpt/files.h build/cc.flags
	$(CC) -std=gnu11 $(CFLAGS) $(WARN) -I. $(ALL_ARE_LINKED) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/04_mpi_adopt: examples/04_mpi_adopt.c par.h build/cc.flags build/mpi.flags
	$(MPICC) -DPAR_MPI -std=gnu11 $(CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)

build/bench_coll: bench/bench_coll.c $(SIMULATOR) par.h $(OPTIONS) examples/median.h build/cc.flags
	$(CC) -std=c11 $(CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)

build/bench_coll_mpi: bench/bench_coll.c $(SIMULATOR) par.h $(OPTIONS) examples/median.h build/cc.flags build/mpi.flags
	$(MPICC) -DPAR_MPI -std=gnu11 $(CFLAGS) -Wall -Wextra -I. $< -o $@ $(LIBS)

# For LD_PRELOAD, each for one MPI: the functions of MPI that par_mpi.h replaces, and no others of the kit. That of
# MPICC is for any MPI, by its own compiler. The tests' own are compiled in a quarter of the time, and look for locks.
SHIMS = build/libpar_mpi_mpich.so build/libpar_mpi_openmpi.so
$(SHIMS) build/libpar_mpi.so: SHIM = par_mpi.h
define MAKE_SHIM
echo '{ global: MPI_*; mpi_*; ompi_*; par_mpi_*; local: *; };' >$@.map
$(1) -std=gnu11 $(CFLAGS) -fPIC -shared -Wl,--version-script=$@.map -I. -DPAR_IMPLEMENTATION \
    -include $(SHIM) -x c /dev/null -o $@ $(LIBS) -ldl
rm $@.map
endef
$(SHIMS): build/libpar_mpi_%.so: par_mpi.h par.h build/cc.flags
	$(call MAKE_SHIM,mpicc.$* $(WARN))

build/libpar_mpi.so: par_mpi.h par.h build/cc.flags build/mpi.flags
	$(call MAKE_SHIM,$(MPICC))

build/bench_pipe: bench/bench_pipe.c build/par.o build/layers.o $(OPTIONS) build/cc.flags
	$(CC) -std=gnu11 $(CFLAGS) -Wall -Wextra -I. $(ALL_ARE_LINKED) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/bench_fault: bench/bench_fault.c build/par.o build/layers.o $(OPTIONS) examples/median.h build/cc.flags
	$(CC) -std=gnu11 $(CFLAGS) $(WARN) -I. $(ALL_ARE_LINKED) $(filter %.c %.o,$^) -o $@ $(LIBS)

build/bench_zero: bench/bench_zero.c $(FAST_KIT) $(OPTIONS) examples/median.h build/cc.flags
	$(CC) -std=gnu11 $(FAST) -Wall -Wextra -I. $(ALL_ARE_LINKED) $(filter %.c %.o,$^) -o $@ $$(cat build/gemm.flags) $(LIBS)

build/bench_tp.o: bench/bench_tp.c par_tp.h par_math.h par.h examples/gpt/model.h $(OPTIONS) examples/median.h build/cc.flags
	$(CC) -std=gnu11 $(FAST) -Wall -Wextra -I. $(ALL_ARE_LINKED) -c $< -o $@
build/bench_tp: build/bench_tp.o $(FAST_KIT)
	$(CC) $(filter %.o,$^) -o $@ $$(cat build/gemm.flags) $(LIBS)

# The tests, and programs that only they run. Without them what needs none of their scripts is made.
-include tests/tests.mk
