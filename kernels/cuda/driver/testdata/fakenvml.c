// A libnvidia-ml with two cards, the first ones of fakecuda.c. The second has neither a power meter nor clocks.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned gpu, memory; } rates;

#define UNSUPPORTED 3
#define NOT_FOUND 6

int nvmlInit_v2(void) { return 0; }
const char *nvmlErrorString(int r) { return r == NOT_FOUND ? "Not Found" : "Not Supported"; }
int nvmlSystemGetDriverVersion(char *s, unsigned room) { snprintf(s, room, "550.54.14"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, uintptr_t *d) { *d = 0xabc0000000000000 + i; return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, uintptr_t *d)
{
    unsigned n;
    if (sscanf(id, "0000:%x:00.0", &n) != 1 || n < 100 || n > 101) return NOT_FOUND;
    *d = 0xabc0000000000000 + n - 100;
    return 0;
}
int nvmlDeviceGetName(uintptr_t d, char *s, unsigned room) { snprintf(s, room, "Fake %u", (unsigned)d); return 0; }
int nvmlDeviceGetMemoryInfo(uintptr_t d, memory *m) { *m = (memory){24ull << 30, 18ull << 30, 6ull << 30}; return 0; }
int nvmlDeviceGetUtilizationRates(uintptr_t d, rates *r) { *r = (rates){75, 40}; return 0; }
int nvmlDeviceGetPowerUsage(uintptr_t d, unsigned *mw) { *mw = 320500; return d & 1 ? UNSUPPORTED : 0; }
int nvmlDeviceGetEnforcedPowerLimit(uintptr_t d, unsigned *mw) { *mw = 350000; return d & 1 ? UNSUPPORTED : 0; }
int nvmlDeviceGetClockInfo(uintptr_t d, int type, unsigned *mhz) { *mhz = type == 1 ? 1695 : 9751; return d & 1 ? UNSUPPORTED : 0; }
int nvmlDeviceGetMaxClockInfo(uintptr_t d, int type, unsigned *mhz) { *mhz = type == 1 ? 2100 : 9751; return d & 1 ? UNSUPPORTED : 0; }
#ifndef OLD
int nvmlDeviceGetTemperature(uintptr_t d, int sensor, unsigned *c) { *c = 61; return 0; }
#endif
