// par_cuda.cuh's implementation alone, with all layers: those of par.h and of the layers are in other files.
#define PAR_CUDA_IMPLEMENTATION
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"
#include "par_cuda.cuh"
