// CUDA's qualifiers for a host compiler. __global__, __launch_bounds__ and __shared__ are no macros: the nvcc stand-in
// reads them in the preprocessed text.
#pragma once

#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __inline__ inline
#define __restrict__ __restrict
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __constant__ __attribute__((section("alpha_constant"), visibility("default")))
#define __grid_constant__

// Helpers of the shim itself: their own accesses are not a kernel's.
#ifdef __SANITIZE_THREAD__
#define ALPHA_SHIM static __attribute__((noinline, no_sanitize("thread", "undefined")))
#define ALPHA_ACCESS(address, bytes, kind) alpha_emulator_access(address, bytes, alpha_emulator::Access::kind)
#else
#define ALPHA_SHIM static inline
#define ALPHA_ACCESS(address, bytes, kind) ((void)0)
#endif

typedef decltype(sizeof 0) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;
