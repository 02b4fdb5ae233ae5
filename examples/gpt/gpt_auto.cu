// gpt_auto.cu - gpt_auto.c for GPUs, as gpt.cu is gpt.c.
#define GPT_CUDA
#include "gpt_auto.c"
