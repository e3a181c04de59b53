// A libcuda that computes nothing: it writes down every call with its arguments, fills what points to results with numbers made
// of the call, and fails where it is told to. Compiled and read by the tests.
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t result;
typedef uintptr_t word;

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static char written[1 << 16];
static size_t length;
static char failing[64];
static int code;

const char *fake_log(void) { return written; }
void fake_clear(void) { length = 0; written[0] = 0; failing[0] = 0; }
void fake_fail(const char *call, int with) { strncpy(failing, call, sizeof failing - 1); code = with; }

static result note(const char *call, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pthread_mutex_lock(&one);
    if (length > sizeof written - 1024) length = 0; // nobody reads
    length += snprintf(written + length, 1024, "%s %s\n", call, line);
    result r = strcmp(call, failing) == 0 ? code : 0;
    pthread_mutex_unlock(&one);
    return r;
}
#define NOTE(...) return note(__func__, __VA_ARGS__)

result cuInit(unsigned flags) { NOTE("%u", flags); }
result cuGetErrorString(result r, const char **s)
{
    if (r == 999) return 1;
    *s = r == 700 ? "an illegal memory access was encountered" : "some error";
    return 0;
}
result cuDriverGetVersion(int *v) { *v = 12040; NOTE(""); }
result cuDeviceGetCount(int *n) { *n = 3; NOTE(""); }
result cuDeviceGet(int *d, int ordinal) { *d = 100 + ordinal; NOTE("%d", ordinal); }
result cuDeviceGetName(char *s, int room, int d) { snprintf(s, room, "Fake %d", d); NOTE("%d %d", room, d); }
result cuDeviceGetPCIBusId(char *s, int room, int d) { snprintf(s, room, "0000:%02x:00.0", d); NOTE("%d %d", room, d); }
result cuDeviceTotalMem_v2(size_t *n, int d) { *n = (size_t)24 << 30; NOTE("%d", d); }
result cuDeviceGetAttribute(int *v, int a, int d)
{
    switch (a) {
    case 75: *v = d == 102 ? 7 : 8; break; // compute capability
    case 76: *v = d == 102 ? 5 : 6; break;
    case 16: *v = 82; break; // multiprocessors
    default: *v = 1000 + a;
    }
    NOTE("%d %d", a, d);
}
result cuCtxCreate_v2(word *c, unsigned flags, int d) { *c = 0xc0de000000000001; NOTE("%u %d", flags, d); }
result cuCtxSetCurrent(word c) { NOTE("%lx", c); }
result cuCtxDestroy_v2(word c) { NOTE("%lx", c); }
result cuMemGetInfo_v2(size_t *f, size_t *t) { *f = (size_t)20 << 30; *t = (size_t)24 << 30; NOTE(""); }
result cuMemAlloc_v2(uint64_t *p, size_t n) { *p = 0x7f0000000100; NOTE("%zu", n); }
result cuMemFree_v2(uint64_t p) { NOTE("%lx", p); }
result cuMemHostAlloc(void **p, size_t n, unsigned flags) { *p = malloc(n); memset(*p, 0xee, n); NOTE("%zu %u", n, flags); }
result cuMemHostGetDevicePointer_v2(uint64_t *d, void *p, unsigned flags) { *d = (word)p + 1; NOTE("%u", flags); }
result cuMemFreeHost(void *p) { free(p); NOTE(""); }
result cuMemcpyHtoDAsync_v2(uint64_t d, const void *p, size_t n, word s) { NOTE("%lx %.*s %zu %lx", d, (int)n, (const char *)p, n, s); }
result cuMemcpyDtoHAsync_v2(void *p, uint64_t d, size_t n, word s) { memset(p, 'h', n); NOTE("%lx %zu %lx", d, n, s); }
result cuMemcpyDtoDAsync_v2(uint64_t d, uint64_t from, size_t n, word s) { NOTE("%lx %lx %zu %lx", d, from, n, s); }
result cuMemsetD8Async(uint64_t d, unsigned char v, size_t n, word s) { NOTE("%lx %u %zu %lx", d, v, n, s); }
result cuModuleLoadDataEx(word *m, const void *text, unsigned n, int *options, void **values)
{
    *m = 0xd0d0000000000002;
    for (unsigned i = 0; i < n; i++)
        if (options[i] == 5) snprintf(values[i], (size_t)values[i + 1], "line 4: %s", "nonsense");
    NOTE("%s %u %d %d %zu", (const char *)text, n, options[0], options[1], (size_t)values[1]);
}
result cuModuleUnload(word m) { NOTE("%lx", m); }
result cuModuleGetFunction(word *f, word m, const char *name) { *f = 0xf00d000000000003; NOTE("%lx %s", m, name); }
result cuFuncGetAttribute(int *v, int a, word f) { *v = 2000 + a; NOTE("%d %lx", a, f); }
result cuFuncSetAttribute(word f, int a, int v) { NOTE("%lx %d %d", f, a, v); }
result cuStreamCreate(word *s, unsigned flags) { *s = 0x5000000000000004; NOTE("%u", flags); }
result cuStreamDestroy_v2(word s) { NOTE("%lx", s); }
result cuStreamSynchronize(word s) { NOTE("%lx", s); }
result cuEventCreate(word *e, unsigned flags) { *e = 0xe000000000000005; NOTE("%u", flags); }
result cuEventDestroy_v2(word e) { NOTE("%lx", e); }
result cuEventRecord(word e, word s) { NOTE("%lx %lx", e, s); }
result cuEventSynchronize(word e) { NOTE("%lx", e); }
result cuEventElapsedTime(float *ms, word from, word to) { *ms = 1.5; NOTE("%lx %lx", from, to); }
result cuStreamWaitEvent(word s, word e, unsigned flags) { NOTE("%lx %lx %u", s, e, flags); }
result cuLaunchKernel(word f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, word s, void **params, void **extra)
{
    NOTE("%lx %u,%u,%u %u,%u,%u %u %lx %lx %x %g %d", f, gx, gy, gz, bx, by, bz, shared, s,
         *(uint64_t *)params[0], *(unsigned *)params[1], *(float *)params[2], extra == 0);
}
result cuStreamBeginCapture_v2(word s, int mode) { NOTE("%lx %d", s, mode); }
result cuStreamEndCapture(word s, word *g) { *g = 0x6000000000000006; NOTE("%lx", s); }
result cuGraphDestroy(word g) { NOTE("%lx", g); }
#ifndef OLD
result cuGraphInstantiateWithFlags(word *e, word g, unsigned long long flags) { *e = 0x7000000000000007; NOTE("%lx %llu", g, flags); }
#endif
result cuGraphLaunch(word e, word s) { NOTE("%lx %lx", e, s); }
result cuGraphExecDestroy(word e) { NOTE("%lx", e); }
