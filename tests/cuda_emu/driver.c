// driver.c - libcuda.so.1 for tests/test_cudnn.cu: a CUDA driver without a GPU, that takes what cuDNN makes
// for one. tests/cuda.sh adds its other functions: they fail.
enum { OK = 0, NO_DEVICE = 100 };
static char code[64];

int cuDriverGetVersion(int *version) { return *version = 13000, OK; }
int cuGetErrorString(int error, const char **text) { return (void)error, *text = "there is no GPU", OK; }
int cuLibraryLoadData(void **library, const void *image) { return *library = code, image ? OK : NO_DEVICE; }
int cuLibraryUnload(void *library) { return (void)library, OK; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    return (void)library, *kernel = code, name ? OK : NO_DEVICE;
}
