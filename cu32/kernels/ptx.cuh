// Instructions that CUDA C++ has no name for; the only file with inline PTX. The test driver on the CPU has functions of
// the same names (tests/cuda_on_cpu/include/async.h and matrix.h) that a compiler other than nvcc and NVRTC takes.
#pragma once

#ifdef __CUDACC__

// Address of shared memory as instructions take it.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Makes the compiler keep a number in a register that it would rather compute again wherever it is needed.
__device__ __forceinline__ void keep(int& number) { asm volatile("" : "+r"(number)); }

// Asynchronous copies from global to shared memory. They belong to the calling thread's next committed group and may be
// read only after cp_async_wait and, by other threads, a barrier. Both addresses are aligned to the bytes copied. Of the
// zfill forms the source is not read and zeros are written where `valid` is false; its address may then be anything aligned.

// Devices before sm_80 copy through registers, and have nothing to wait for.
#if __CUDA_ARCH__ >= 800
#define CP_ASYNC(BYTES, CACHE)                                                                                                   \
    __device__ __forceinline__ void cp_async##BYTES(void* shared, const void* global) {                                          \
        asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES ";" ::"r"(shared_address(shared)), "l"(global)       \
                     : "memory");                                                                                                \
    }                                                                                                                            \
    __device__ __forceinline__ void cp_async##BYTES##_zfill(void* shared, const void* global, bool valid) {                      \
        asm volatile("cp.async." CACHE ".shared.global [%0], [%1], " #BYTES ", %2;" ::"r"(shared_address(shared)), "l"(global),  \
                     "r"(valid ? BYTES : 0)                                                                                      \
                     : "memory");                                                                                                \
    }
#else
struct alignas(16) Bytes16 { unsigned word[4]; };
struct alignas(8) Bytes8 { unsigned word[2]; };
struct alignas(4) Bytes4 { unsigned word[1]; };
#define CP_ASYNC(BYTES, CACHE)                                                                                   \
    __device__ __forceinline__ void cp_async##BYTES##_zfill(void* shared, const void* global, bool valid) {      \
        *(Bytes##BYTES*)shared = valid ? *(const Bytes##BYTES*)global : Bytes##BYTES();                          \
    }                                                                                                            \
    __device__ __forceinline__ void cp_async##BYTES(void* shared, const void* global) {                          \
        cp_async##BYTES##_zfill(shared, global, true);                                                           \
    }
#endif
CP_ASYNC(16, "cg")  // past the first-level cache
CP_ASYNC(8, "ca")
CP_ASYNC(4, "ca")
#undef CP_ASYNC

// Closes this thread's group of copies; an empty group counts too.
__device__ __forceinline__ void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most `Pending` of this thread's youngest groups are still under way.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// The larger of x and 0; NaN stays NaN.
__device__ __forceinline__ float positive(float x) {
#if __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(x));
    return result;
#else
    return x < 0 ? 0 : x;
#endif
}

// The bits of x rounded to TF32 (10 bits of mantissa), to nearest: ties to even where the device has that as one
// instruction, from sm_90 on; ties away from zero, in two, before.
__device__ __forceinline__ unsigned to_tf32(float x) {
    unsigned bits;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
    return bits;
}

// d += a b by a whole warp: a is 16x8 row-major, b 8x8, d 16x8, in TF32 with float32 sums. With group = lane / 4 and
// member = lane % 4 one lane holds
//   a[i]: row group + 8 * (i % 2), column member + 4 * (i / 2)
//   b[i]: row member + 4 * i, column group
//   d[i]: row group + 8 * (i / 2), column 2 * member + i % 2
// (PTX ISA, "Matrix Fragments for mma.m16n8k8"). The operands are bits that to_tf32 made; lower bits are ignored.
__device__ __forceinline__ void mma_tf32_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d = a b, the same otherwise.
__device__ __forceinline__ void first_mma_tf32_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
}

// Four 8x8 matrices of 16-bit, that is 8x4 of 32-bit elements, from shared memory by a whole warp. Lane l names the 16
// bytes that are row l % 8 of matrix l / 8; it gets in r[m] the 32-bit element (lane / 4, lane % 4) of matrix m. For
// 32-bit operands that is the layout of a of mma_tf32_m16n8k8 for matrices (rows 0-7, k 0-3), (rows 8-15, k 0-3),
// (rows 0-7, k 4-7), (rows 8-15, k 4-7).
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Two such matrices; the rows are named by lanes 0 to 15, the others' addresses are ignored.
__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(shared_address(row))
                 : "memory");
}

#endif
