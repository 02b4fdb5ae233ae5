/* A layer's implementation alone: that of par.h is in another file. */
#define PAR_TP_IMPLEMENTATION
#include "par_tp.h"
