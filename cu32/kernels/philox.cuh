// Philox4x32-10, counter-based random words (Salmon et al., SC 2011), as alpha/random.py defines them.
#pragma once
#include "common.cuh"

// Where a draw begins in the sequence: the key and the first counter.
struct alignas(8) Place {
    uint64 seed, offset;
};

// The four 32-bit words of one counter, in the order of the elements that use them.
struct Words {
    uint32 x, y, z, w;
};

__device__ __forceinline__ Words philox(uint64 counter, uint64 seed) {
    Words c = {(uint32)counter, (uint32)(counter >> 32), 0, 0};
    uint32 k0 = (uint32)seed, k1 = (uint32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64 first = (uint64)c.x * 0xD2511F53u, second = (uint64)c.z * 0xCD9E8D57u;
        c = {(uint32)(second >> 32) ^ c.y ^ k0, (uint32)second, (uint32)(first >> 32) ^ c.w ^ k1, (uint32)first};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}
