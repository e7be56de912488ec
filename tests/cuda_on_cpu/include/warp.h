// Barriers and warp primitives. A value asked of a lane that takes no part is poison, as on a GPU it is anything.
#pragma once
#include "abi.h"
#include "qualifiers.h"

#define ALPHA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(ALPHA_SITE) { alpha_emulator_barrier(alpha_emulator::Vote::none, 0, file, line); }
static inline int __syncthreads_or(int predicate, ALPHA_SITE) {
    return alpha_emulator_barrier(alpha_emulator::Vote::any, predicate, file, line);
}
static inline int __syncthreads_and(int predicate, ALPHA_SITE) {
    return alpha_emulator_barrier(alpha_emulator::Vote::all, predicate, file, line);
}
static inline int __syncthreads_count(int predicate, ALPHA_SITE) {
    return alpha_emulator_barrier(alpha_emulator::Vote::count, predicate, file, line);
}

static inline void __threadfence() { alpha_emulator_fence(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { alpha_emulator_fence(); }

namespace alpha_emulator {

// Each lane's part in a shuffle: what it gives, whose it wants, what it gets.
template <class T>
struct Shuffle {
    T value;
    unsigned source;
};

template <class T>
ALPHA_SHIM void shuffle_lanes(void* const* operands) {
    T values[32], results[32];
    for (int lane = 0; lane < 32; ++lane) {
        if (operands[lane])
            values[lane] = static_cast<Shuffle<T>*>(operands[lane])->value;
        else
            __builtin_memset(&values[lane], 0xff, sizeof(T));
    }
    for (int lane = 0; lane < 32; ++lane)
        if (operands[lane]) results[lane] = values[static_cast<Shuffle<T>*>(operands[lane])->source & 31];
    for (int lane = 0; lane < 32; ++lane)
        if (operands[lane]) static_cast<Shuffle<T>*>(operands[lane])->value = results[lane];
}

template <class T>
ALPHA_SHIM T shuffle(unsigned mask, T value, unsigned source, const char* name, const char* file, int line) {
    static_assert(!__is_class(T) && sizeof(T) <= 8, "shuffles move numbers");
    Shuffle<T> operand = {value, source};
    alpha_emulator_collective(mask, shuffle_lanes<T>, &operand, name, file, line);
    return operand.value;
}

static inline unsigned lane() { return alpha_emulator_thread->lane; }
// First lane of the segment of `width` lanes that this lane is in.
static inline unsigned segment(int width) { return lane() & ~(unsigned)(width - 1); }

struct Ballot {
    bool predicate;
    unsigned lanes;
};

ALPHA_SHIM void ballot_lanes(void* const* operands) {
    unsigned lanes = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (operands[lane] && static_cast<Ballot*>(operands[lane])->predicate) lanes |= 1u << lane;
    for (int lane = 0; lane < 32; ++lane)
        if (operands[lane]) static_cast<Ballot*>(operands[lane])->lanes = lanes;
}

ALPHA_SHIM unsigned ballot(unsigned mask, bool predicate, const char* name, const char* file, int line) {
    Ballot operand = {predicate, 0};
    alpha_emulator_collective(mask, ballot_lanes, &operand, name, file, line);
    return operand.lanes;
}

template <class T>
struct Match {
    T value;
    unsigned lanes;
};

template <class T>
ALPHA_SHIM void match_lanes(void* const* operands) {
    for (int lane = 0; lane < 32; ++lane) {
        if (!operands[lane]) continue;
        Match<T>& mine = *static_cast<Match<T>*>(operands[lane]);
        mine.lanes = 0;
        for (int other = 0; other < 32; ++other)
            if (operands[other] && static_cast<Match<T>*>(operands[other])->value == mine.value) mine.lanes |= 1u << other;
    }
}

// f over the values of all lanes that take part, to each of them.
template <class T, T (*F)(T, T)>
ALPHA_SHIM void reduce_lanes(void* const* operands) {
    bool any = false;
    T total = T();
    for (int lane = 0; lane < 32; ++lane) {
        if (!operands[lane]) continue;
        T value = *static_cast<T*>(operands[lane]);
        total = any ? F(total, value) : value;
        any = true;
    }
    for (int lane = 0; lane < 32; ++lane)
        if (operands[lane]) *static_cast<T*>(operands[lane]) = total;
}

template <class T> ALPHA_SHIM T add(T a, T b) { return a + b; }
template <class T> ALPHA_SHIM T smaller(T a, T b) { return b < a ? b : a; }
template <class T> ALPHA_SHIM T larger(T a, T b) { return a < b ? b : a; }
ALPHA_SHIM unsigned bits_and(unsigned a, unsigned b) { return a & b; }
ALPHA_SHIM unsigned bits_or(unsigned a, unsigned b) { return a | b; }
ALPHA_SHIM unsigned bits_xor(unsigned a, unsigned b) { return a ^ b; }

template <class T, T (*F)(T, T)>
ALPHA_SHIM T reduce(unsigned mask, T value, const char* name, const char* file, int line) {
    alpha_emulator_collective(mask, reduce_lanes<T, F>, &value, name, file, line);
    return value;
}

ALPHA_SHIM void meet(void* const*) {}

}  // namespace alpha_emulator

static inline void __syncwarp(unsigned mask = 0xffffffffu, ALPHA_SITE) {
    int operand;
    alpha_emulator_collective(mask, alpha_emulator::meet, &operand, "__syncwarp", file, line);
    alpha_emulator_warp_ordered();
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, ALPHA_SITE) {
    unsigned from = alpha_emulator::segment(width) + ((unsigned)source & (width - 1));
    return alpha_emulator::shuffle(mask, value, from, "__shfl_sync", file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, ALPHA_SITE) {
    unsigned from = alpha_emulator::lane() ^ (unsigned)bits;  // a later segment is not read, an earlier one is
    if (from >= alpha_emulator::segment(width) + width) from = alpha_emulator::lane();
    return alpha_emulator::shuffle(mask, value, from, "__shfl_xor_sync", file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, ALPHA_SITE) {
    unsigned from = alpha_emulator::lane() + delta;
    if (from >= alpha_emulator::segment(width) + width) from = alpha_emulator::lane();
    return alpha_emulator::shuffle(mask, value, from, "__shfl_down_sync", file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, ALPHA_SITE) {
    unsigned lane = alpha_emulator::lane();
    unsigned from = lane < alpha_emulator::segment(width) + delta ? lane : lane - delta;
    return alpha_emulator::shuffle(mask, value, from, "__shfl_up_sync", file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate, ALPHA_SITE) {
    return alpha_emulator::ballot(mask, predicate, "__ballot_sync", file, line);
}
static inline int __any_sync(unsigned mask, int predicate, ALPHA_SITE) {
    return alpha_emulator::ballot(mask, predicate, "__any_sync", file, line) != 0;
}
static inline int __all_sync(unsigned mask, int predicate, ALPHA_SITE) {
    return alpha_emulator::ballot(mask, !predicate, "__all_sync", file, line) == 0;
}
// The lanes that run now: those of a warp run one at a time here, so the caller alone.
static inline unsigned __activemask() { return 1u << alpha_emulator::lane(); }
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, ALPHA_SITE) {
    alpha_emulator::Match<T> operand = {value, 0};
    alpha_emulator_collective(mask, alpha_emulator::match_lanes<T>, &operand, "__match_any_sync", file, line);
    return operand.lanes;
}

#define ALPHA_REDUCE(NAME, T, F)                                                         \
    static inline T __reduce_##NAME##_sync(unsigned mask, T value, ALPHA_SITE) {         \
        return alpha_emulator::reduce<T, F>(mask, value, "__reduce_" #NAME "_sync", file, line); \
    }
ALPHA_REDUCE(add, int, alpha_emulator::add<int>)
ALPHA_REDUCE(add, unsigned, alpha_emulator::add<unsigned>)
ALPHA_REDUCE(min, int, alpha_emulator::smaller<int>)
ALPHA_REDUCE(min, unsigned, alpha_emulator::smaller<unsigned>)
ALPHA_REDUCE(max, int, alpha_emulator::larger<int>)
ALPHA_REDUCE(max, unsigned, alpha_emulator::larger<unsigned>)
ALPHA_REDUCE(and, unsigned, alpha_emulator::bits_and)
ALPHA_REDUCE(or, unsigned, alpha_emulator::bits_or)
ALPHA_REDUCE(xor, unsigned, alpha_emulator::bits_xor)
#undef ALPHA_REDUCE
