/* The implementation of every header, once; including one again emits nothing more. */
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
#include "par.h"
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
