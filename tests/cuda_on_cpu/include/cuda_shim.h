// CUDA C++ for g++: put before a kernel file, this makes it a source whose threads the test driver runs as fibers.
#pragma once
#include "abi.h"
#include "qualifiers.h"
#include "vector_types.h"
#include "math_functions.h"
#include "intrinsics.h"
#include "warp.h"
#include "atomics.h"
#include "async.h"
#include "matrix.h"

extern "C" char __bss_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));

namespace alpha_emulator {

constexpr unsigned align_up(unsigned offset, unsigned alignment) { return (offset + alignment - 1) / alignment * alignment; }

// Where each parameter lies in the packed buffer, as PTX lays them out.
template <class... T>
struct Parameters {
    unsigned offsets[sizeof...(T) + 1] = {};
    unsigned end = 0;
    bool last_is_struct = false;
    constexpr Parameters() {
        unsigned index = 0;
        ((end = align_up(end, alignof(T)), offsets[index++] = end, end += sizeof(T), last_is_struct = __is_class(T)), ...);
    }
};

template <unsigned... I>
struct Indices {};

template <class T>
static inline T parameter(const char* buffer, unsigned offset) {
    T value;
    __builtin_memcpy(&value, buffer + offset, sizeof value);
    return value;
}

template <class F>
struct Signature;
template <class... T>
struct Signature<void (*)(T...)> {
    static constexpr Parameters<T...> parameters = {};
    template <void (*F)(T...), unsigned... I>
    static void run(const char* buffer, Indices<I...>) {
        F(parameter<T>(buffer, parameters.offsets[I])...);
    }
    template <void (*F)(T...)>
    __attribute__((no_sanitize("thread", "undefined"))) static void call(const char* buffer) {
        run<F>(buffer, Indices<__integer_pack(sizeof...(T))...>());
    }
};

#ifdef __SANITIZE_THREAD__
constexpr bool CHECKED = true;
#else
constexpr bool CHECKED = false;
#endif

template <auto F>
constexpr Kernel describe(const char* name, unsigned max_threads) {
    using S = Signature<decltype(F)>;
    constexpr unsigned end = S::parameters.end;
    constexpr unsigned padded = S::parameters.last_is_struct ? align_up(end, 8) : end;
    return {name, &S::template call<F>, end, padded, max_threads, __bss_start, _end, CHECKED};
}

}  // namespace alpha_emulator

extern "C" __attribute__((visibility("default"))) const int alpha_emulator_architecture = __CUDA_ARCH__ / 10;
