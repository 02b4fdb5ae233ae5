// test_cudnn.cu - lets the real cuDNN plan par_cuda.cuh's attention for GPUs that are not there: it chooses
// engines and compiles their kernels for a described device. Built by tests/cuda.sh, with a driver that takes
// compiled code and runs none (cuda_emu/driver.c). Arguments: for these alone, of 80, 90 and 100; or none:
// where there is no driver, to open a GPU is an error.
#define PAR_IMPLEMENTATION
#include "par.h"
#include "par_zero.h"
#include "par_tp.h"
#include "par_cuda.cuh"
#include <stdio.h>

// The same keys and types as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION gives on such a device.
static const char device[] =
    "{\"deviceName\":\"described\",\"deviceVer\":%d,\"cudaDeviceId\":0,\"driverVer\":13000,"
    "\"multiProcessorCount\":%d,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"warpSize\":32,"
    "\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"maxCtasPerSM\":32,\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":"
    "1024,"
    "\"l2CacheSize\":41943040,\"totalGlobalMem\":80000000000,\"smClockRateKHz\":1700000,\"memClockRateKHz\":"
    "2600000,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1}";

static int without_gpu(void) {
    par_cuda *cuda = NULL;
    par_cuda_desc desc = {};
    return par_cuda_open(&desc, &cuda) == PAR_OK || cuda != NULL;
}
int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "none")) return without_gpu();
    static const struct {
        int version, processors, shared;
    } devices[] = {{800, 108, 166912}, {900, 132, 232448}, {1000, 148, 232448}};
    static const par__dnn_shape shapes[] = {
        // the first two, which are like the others, with SOAK=1
        {4, 12, 12, 1024, 64, 0}, {4, 12, 12, 1024, 64, 1}, {1, 32, 8, 2048, 128, 0},
        {1, 32, 8, 2048, 128, 1}, {3, 4, 4, 33, 24, 0},     {3, 4, 4, 33, 24, 1}, // sizes that divide nothing
    };
    int bad = 0, planned = 0;
    printf("cuDNN %zu\n", cudnnGetVersion());
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        int wanted = argc < 2;
        for (int k = 1; k < argc; k++) wanted |= atoi(argv[k]) == devices[i].version / 10;
        if (!wanted) continue;
        for (size_t j = getenv("SOAK") ? 0 : 2; j < sizeof shapes / sizeof *shapes; j++) {
            char text[1500], why[400] = "";
            const par__dnn_shape *s = &shapes[j];
            par__dnn_plan p;
            memset(&p, 0, sizeof p);
            p.shape = *s;
            snprintf(text, sizeof text, device, devices[i].version, devices[i].processors, devices[i].shared);
            const cudnnBackendDescriptor_t described = par__dnn_new(&p, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
            par__dnn_set(&p, described, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                         strlen(text), text);
            par__dnn_finalize(&p, described);
            par__dnn_build(&p, NULL, described, (size_t)4 << 30);
            if (!p.plan) cudnnGetLastErrorString(why, sizeof why);
            // ds in bf16, rows and columns up to whole tiles of 128, dk and dv of each head, and a little
            const size_t up = (s->sequence + 127) / 128 * 128, tokens = s->batch * s->heads * s->sequence;
            const size_t limit =
                s->backward ? 2 * s->batch * s->heads * up * up + 4 * tokens * s->dim + 65536 : 65536;
            const int ok =
                p.plan && p.workspace_bytes <= limit && p.descriptor_count <= PAR__DNN_MAX_DESCRIPTORS;
            printf(
                "sm_%d, batch %zu, heads %zu/%zu, sequence %zu, dim %zu, %s: %s, workspace %zu bytes%s%s\n",
                devices[i].version / 10, s->batch, s->heads, s->kv_heads, s->sequence, s->dim,
                s->backward ? "backward" : "forward", ok ? "a plan" : "NO PLAN", p.workspace_bytes,
                *why ? ": " : "", why);
            bad += !ok;
            par__dnn_destroy(&p, 0);
            planned++;
        }
    }
    return bad || !planned;
}
