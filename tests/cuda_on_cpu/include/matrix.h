// The matrix instructions of cu32/kernels/ptx.cuh, computed by the last lane of the warp to arrive.
#pragma once
#include "abi.h"
#include "qualifiers.h"
#include "warp.h"

namespace alpha_emulator {

ALPHA_SHIM float tf32_value(unsigned bits) {
    bits &= ~0x1fffu;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

// Matrix instructions are undefined unless all lanes of the warp execute them.
ALPHA_SHIM void need_whole_warp(void* const* operands) {
    for (int lane = 0; lane < 32; ++lane)
        if (!operands[lane]) alpha_emulator_fail("a matrix instruction without all 32 lanes of the warp", nullptr, 0);
}

struct MmaOperand {
    float* d;
    const unsigned *a, *b;
};

// A sum as tensor cores make it: of addends that are cut off below 2^-23 of the largest, and cut off likewise. (Fasi et al.,
// "Numerical behavior of NVIDIA tensor cores", 2021.)
template <int N>
ALPHA_SHIM float cut_off_sum(const double (&addends)[N]) {
    double largest = 0, plain = 0;
    for (double one : addends) plain += one, largest = __builtin_fmax(largest, __builtin_fabs(one));
    if (!(largest > 0) || !(__builtin_fabs(plain) < 1e300) || largest > 3.4e38) return (float)plain;  // zeros, or no numbers
    const double unit = __builtin_ldexp(1.0, __builtin_ilogb(largest) - 23);
    double total = 0;
    for (double one : addends) total += __builtin_trunc(one / unit) * unit;
    if (total == 0) return 0;
    const double last = __builtin_ldexp(1.0, __builtin_ilogb(total) - 23);
    return (float)(__builtin_trunc(total / last) * last);
}

// Fragments of mma.m16n8k8.tf32, PTX ISA: with group = lane / 4 and member = lane % 4.
ALPHA_SHIM void mma_tf32(void* const* operands) {
    need_whole_warp(operands);
    float a[16][8], b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
        const MmaOperand& own = *static_cast<MmaOperand*>(operands[lane]);
        int group = lane / 4, member = lane % 4;
        for (int i = 0; i < 4; ++i) a[group + 8 * (i % 2)][member + 4 * (i / 2)] = tf32_value(own.a[i]);
        for (int i = 0; i < 2; ++i) b[member + 4 * i][group] = tf32_value(own.b[i]);
    }
    for (int lane = 0; lane < 32; ++lane) {
        float* d = static_cast<MmaOperand*>(operands[lane])->d;
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
            double addends[9] = {d[i]};
            for (int k = 0; k < 8; ++k) addends[k + 1] = (double)a[row][k] * b[k][column];
            d[i] = cut_off_sum(addends);
        }
    }
}

// operand: in, the address of a row; out, its lane's elements.
struct LoadMatrixOperand {
    const void* row;
    unsigned* elements;
};

template <int Matrices>
ALPHA_SHIM void load_matrices(void* const* operands) {
    need_whole_warp(operands);
    for (int matrix = 0; matrix < Matrices; ++matrix)
        for (int lane = 0; lane < 32; ++lane) {
            const char* row = (const char*)static_cast<LoadMatrixOperand*>(operands[matrix * 8 + lane / 4])->row;
            unsigned* elements = static_cast<LoadMatrixOperand*>(operands[lane])->elements;
            __builtin_memcpy(elements + matrix, row + 4 * (lane % 4), 4);
        }
}

template <int Matrices>
ALPHA_SHIM void load_matrix(unsigned* elements, const void* row, const char* file, int line) {
    LoadMatrixOperand operand = {row, elements};
    if (lane() < Matrices * 8) {
        if ((size_t)row % 16) alpha_emulator_fail("ldmatrix of a row that is not aligned to 16 bytes", file, line);
        ALPHA_ACCESS(row, 16, read);
    }
    alpha_emulator_collective(0xffffffffu, load_matrices<Matrices>, &operand, "ldmatrix", file, line);
}

}  // namespace alpha_emulator

ALPHA_SHIM float positive(float x) { return x > 0 || x != x ? x : 0.0f; }
ALPHA_SHIM unsigned to_tf32(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0x7fffffu ? 0x7fffffffu : bits;  // NaN is NaN, infinity itself
#if __CUDA_ARCH__ >= 900
    return (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;  // ties go to the even one
#else
    return (bits + 0x1000u) & ~0x1fffu;  // half of the last place kept: ties go away from zero
#endif
}
ALPHA_SHIM void mma_tf32_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], ALPHA_SITE) {
    alpha_emulator::MmaOperand operand = {d, a, b};
    alpha_emulator_collective(0xffffffffu, alpha_emulator::mma_tf32, &operand, "mma_tf32_m16n8k8", file, line);
}
ALPHA_SHIM void first_mma_tf32_m16n8k8(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], ALPHA_SITE) {
    for (float& one : d) one = 0;
    mma_tf32_m16n8k8(d, a, b, file, line);
}
static inline void ldmatrix_x4(unsigned (&r)[4], const void* row, ALPHA_SITE) {
    alpha_emulator::load_matrix<4>(r, row, file, line);
}
static inline void ldmatrix_x2(unsigned (&r)[2], const void* row, ALPHA_SITE) {
    alpha_emulator::load_matrix<2>(r, row, file, line);
}
