// The asynchronous copies of cu32/kernels/ptx.cuh. The destination is poison from the call until the wait that covers it.
#pragma once
#include "abi.h"
#include "qualifiers.h"
#include "warp.h"

static inline void keep(int&) {}

#define ALPHA_COPY(BYTES)                                                                                    \
    static inline void cp_async##BYTES(void* shared, const void* global, ALPHA_SITE) {                       \
        alpha_emulator_copy_async(shared, global, BYTES, BYTES, file, line);                                 \
    }                                                                                                        \
    static inline void cp_async##BYTES##_zfill(void* shared, const void* global, bool valid, ALPHA_SITE) {   \
        alpha_emulator_copy_async(shared, global, BYTES, valid ? BYTES : 0, file, line);                     \
    }
ALPHA_COPY(4)
ALPHA_COPY(8)
ALPHA_COPY(16)
#undef ALPHA_COPY

static inline void cp_async_commit() { alpha_emulator_commit_copies(); }
template <int Pending>
static inline void cp_async_wait() {
    static_assert(Pending >= 0, "a number of groups");
    alpha_emulator_wait_copies(Pending);
}
