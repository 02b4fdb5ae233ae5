// trainer_threads.cu - examples/gpt on emulated GPUs. With EMU_THREADS=4 its ranks are 4 threads, because the
// emulated NCCL joins threads alone; without it they are processes.
//
//     EMU_THREADS=4 EMU_DEVICES=4 build/gpt_emu --pp 2 --tp 2 ...      4 ranks, each with a GPU
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"
#include "par_cuda.cuh"

static thread_local par_comm *this_world; // of the thread's rank
static par_result open_world_or_take(const par_desc *desc, par_comm **world) {
    return this_world ? (*world = this_world, PAR_OK) : par_open(desc, world);
}
static par_result close_unless_taken(const char *site, par_comm *comm) {
    return this_world && comm == this_world ? PAR_OK : par__close_at(site, comm);
}
static int launched_or_taken(int *rank) { return this_world ? 1 : par_launched(rank); }
#define par_open      open_world_or_take
#define par_launched  launched_or_taken
#define par__close_at close_unless_taken
#define main          gpt_main
#define GPT_CUDA
#include "../examples/gpt/gpt.c"
#undef main

typedef struct arguments {
    int count;
    char **text;
} arguments;
static int gpt_rank(par_comm *world, void *user) {
    const arguments *a = (const arguments *)user;
    this_world = world;
    return gpt_main(a->count, a->text);
}
int main(int argc, char **argv) {
    arguments a = {argc, argv};
    const char *threads = getenv("EMU_THREADS");
    par_desc desc = {};
    desc.rank_count = threads ? atoi(threads) : 0;
    return threads ? par_run_threads(&desc, gpt_rank, &a) != PAR_OK : gpt_main(argc, argv);
}
