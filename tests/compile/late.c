/* After other headers, as in a program that exists already. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
