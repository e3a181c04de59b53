// Writes diff.expected: for every input its five words and its row of results.
#include "diff.h"
#include <cstdio>

static uint64_t state = 1;
static uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
static uint32_t word() {
    static const uint32_t special[] = {0, 1, 0x80000000, 0xffffffff, 0x7fffffff, 0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x00800000,
                                       0x007fffff, 0x80000001, 0x7f7fffff, 0x4b000001, 0x4f000000, 0xcf000000, 0x3c00, 0x7bff, 0x0400, 0x03ff, 0x8001, 0x42c80000};
    switch (next() % 5) {
    case 0: return special[next() % (sizeof special / 4)];
    case 1: return next() % 40;
    case 2: return 0x3f000000 + next() % 0x3000000; // floats near each other
    case 3: return 0x3800 + next() % 0x1000 + (next() % 2 << 15); // halves near 1
    }
    return next();
}
static uint64_t wide() {
    switch (next() % 4) {
    case 0: return word();
    case 1: return (uint64_t)word() << 32;
    case 2: return 0x3fe0000000000000 + next() % 0x60000000000000;
    }
    return next();
}
int main() {
    for (int i = 0; i < 256; i++) {
        uint64_t in[5] = {word(), word(), word(), wide(), wide()}, out[256];
        int n = compute(out, in[0], in[1], in[2], in[3], in[4]);
        fwrite(in, 8, 5, stdout);
        fwrite(out, 8, n, stdout);
    }
}
