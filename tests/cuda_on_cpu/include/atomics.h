// Atomics: threads change hands only at barriers and warp primitives, so plain reads and writes are atomic here.
#pragma once
#include "abi.h"
#include "qualifiers.h"

#define ALPHA_ATOMIC(NAME, T, UPDATE)                 \
    ALPHA_SHIM T NAME(T* address, T value) {          \
        ALPHA_ACCESS(address, sizeof(T), atomic);     \
        T old = *address;                             \
        *address = UPDATE;                            \
        return old;                                   \
    }
#define ALPHA_ATOMICS(T)                                       \
    ALPHA_ATOMIC(atomicAdd, T, old + value)                    \
    ALPHA_ATOMIC(atomicExch, T, value)                         \
    ALPHA_ATOMIC(atomicMin, T, value < old ? value : old)      \
    ALPHA_ATOMIC(atomicMax, T, old < value ? value : old)      \
    ALPHA_ATOMIC(atomicAnd, T, old & value)                    \
    ALPHA_ATOMIC(atomicOr, T, old | value)                     \
    ALPHA_ATOMIC(atomicXor, T, old ^ value)                    \
    ALPHA_SHIM T atomicCAS(T* address, T compare, T value) {   \
        ALPHA_ACCESS(address, sizeof(T), atomic);              \
        T old = *address;                                      \
        if (old == compare) *address = value;                  \
        return old;                                            \
    }
ALPHA_ATOMICS(int)
ALPHA_ATOMICS(unsigned)
ALPHA_ATOMICS(unsigned long long)
ALPHA_ATOMIC(atomicMin, long long, value < old ? value : old)
ALPHA_ATOMIC(atomicMax, long long, old < value ? value : old)
ALPHA_ATOMIC(atomicSub, int, old - value)
ALPHA_ATOMIC(atomicSub, unsigned, old - value)
ALPHA_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
ALPHA_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
ALPHA_ATOMIC(atomicAdd, float, old + value)
ALPHA_ATOMIC(atomicAdd, double, old + value)
ALPHA_ATOMIC(atomicExch, float, value)
#undef ALPHA_ATOMICS
#undef ALPHA_ATOMIC
