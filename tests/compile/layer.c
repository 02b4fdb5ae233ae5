/* Layers' implementations alone: that of par.h is in another file. */
#define PAR_FILES_IMPLEMENTATION
#define PAR_PIPE_IMPLEMENTATION
#define PAR_PLAN_IMPLEMENTATION
#define PAR_TP_IMPLEMENTATION
#define PAR_ZERO_IMPLEMENTATION
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
