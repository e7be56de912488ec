// What a compiled kernel and the driver know of each other. A kernel file becomes a shared object that has no runtime of
// its own: it finds these names in libcuda.so.1.
#pragma once

namespace alpha_emulator {

struct Extent {
    unsigned x, y, z;
};

// One CUDA thread, as far as kernels see it; the driver's own record begins with it.
struct ThreadView {
    Extent index;
    unsigned lane;
};

// The block that runs now.
struct BlockView {
    Extent index, size, grid;
    char* dynamic_shared;
};

// A kernel as its file describes it, found under the name alpha_kernel_NAME.
struct Kernel {
    const char* name;
    void (*run)(const char* parameters);
    unsigned parameter_bytes;         // end of the last parameter
    unsigned padded_parameter_bytes;  // the same, or rounded up to 8 if the last one is a struct
    unsigned max_threads;             // of __launch_bounds__, else 1024
    char* shared_begin;               // the file's static shared memory
    char* shared_end;
    bool checked;                     // compiled with every access instrumented
};

// Where in the source something was called.
struct Site {
    const char* file;
    int line;
};

enum class Vote { none, any, all, count };
enum class Access { read, write, atomic };

// What all named lanes of a warp do together: operands[lane] is what each brought, null for lanes that take no part.
typedef void (*Collective)(void* const* operands);

}  // namespace alpha_emulator

extern "C" {
extern alpha_emulator::ThreadView* alpha_emulator_thread;
extern alpha_emulator::BlockView alpha_emulator_block;
// __syncthreads and its voting forms; the answer to the vote.
int alpha_emulator_barrier(alpha_emulator::Vote vote, int predicate, const char* file, int line);
// Meets the mask's lanes; the last to come runs the operation for all.
void alpha_emulator_collective(unsigned mask, alpha_emulator::Collective operation, void* operand, const char* name,
                               const char* file, int line);
// Memory order among a warp's lanes, after a collective.
void alpha_emulator_warp_ordered();
// __threadfence
void alpha_emulator_fence();
void alpha_emulator_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid, const char* file, int line);
void alpha_emulator_commit_copies();
void alpha_emulator_wait_copies(unsigned pending);
// Ends the kernel with an error.
[[noreturn]] void alpha_emulator_fail(const char* cause, const char* file, int line);
// An access that the compiler's instrumentation does not see; from kernels compiled for checking only.
void alpha_emulator_access(const void* address, unsigned bytes, alpha_emulator::Access kind);
}
