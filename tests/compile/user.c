/* Uses the headers without their implementations, which another file has. */
#include "par.h"
#include "par_pipe.h"
#include "par_plan.h"
#include "par_tp.h"
#include "par_zero.h"
#include "par.h"
#include "par_pipe.h"
#include "par_tp.h"
#include "par_zero.h"

#include <string.h>

int main(void) {
    par_comm *world;
    par_tp *tp;
    par_tp_desc desc;
    par_zero *zero;
    par_zero_desc how;
    par_pipe_desc pipe;
    par_pipe_schedule schedule;
    int one = 1;
    if (par_open(NULL, &world) != PAR_OK) return 1;
    if (par_all_reduce(&one, &one, 1, PAR_I32, PAR_SUM, world) != PAR_OK) return 1;
    if (one != par_size(world)) return 2;
    memset(&desc, 0, sizeof desc);
    desc.tp = world;
    if (par_tp_open(&desc, &tp) != PAR_OK || par_tp_element_bytes(tp) != 4) return 3;
    if (par_tp_close(tp) != PAR_OK) return 4;
    memset(&how, 0, sizeof how);
    how.comm = world, how.hyper[0].lr = 1;
    if (par_zero_open(&how, &zero) != PAR_OK || par_zero_commit(zero) != PAR_OK) return 5;
    if (par_zero_step(zero, 1, NULL) != PAR_OK || par_zero_close(zero) != PAR_OK) return 6;
    memset(&pipe, 0, sizeof pipe);
    if (par_pipe_schedule_open(&pipe, &schedule) != PAR_OK) return 7;
    par_pipe_schedule_close(&schedule);
    if (par_plan_model_name(0) == NULL || par_plan_machine_name(-1) != NULL) return 8;
    return par_close(world) != PAR_OK;
}
