/* A stand-in for NVIDIA's CUDA driver library: one GPU whose memory is the host's. FAKE_CUDA says
 * what is wrong with it: "init" (cuInit fails), "memory" (it forgets a bit), "hang", or nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *wrong) {
    const char *told = getenv("FAKE_CUDA");
    return told && !strcmp(told, wrong);
}

static int is_initialised;

int cuInit(unsigned flags) {
    if (is("hang")) pause();
    is_initialised = !is("init");
    return is_initialised ? 0 : 100;
}
int cuDeviceGetCount(int *n) { *n = 1; return is_initialised ? 0 : 3; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuMemAlloc_v2(uint64_t *memory, size_t n) {
    void *made = malloc(n);
    *memory = (uint64_t)made;
    return made ? 0 : 2;
}
int cuMemsetD32_v2(uint64_t memory, unsigned word, size_t n) {
    for (size_t i = 0; i < n; i++) ((uint32_t *)memory)[i] = word;
    if (is("memory")) ((uint32_t *)memory)[n / 2] ^= 1;
    return 0;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { memcpy(to, (void *)from, n); return 0; }
int cuMemFree_v2(uint64_t memory) { free((void *)memory); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
