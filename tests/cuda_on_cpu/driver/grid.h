// Runs a grid of blocks: one block after another, a fiber a thread, switched at barriers and warp primitives.
#pragma once
#include <string>

#include "../include/abi.h"
#include "memory.h"

namespace alpha_emulator {

constexpr unsigned MAX_SHARED = 227 << 10;  // bytes that a block may have, as on capability 9.0
constexpr unsigned MAX_THREADS = 1024;

// The thread that runs, as the checker sees it.
struct Running {
    unsigned thread;       // within its block
    unsigned warp_epoch;   // how often its warp has been ordered by __syncwarp
};
Running running_thread();
bool kernel_running();
// Whether an address lies in the stack of a thread, and where the block's dynamic shared memory is.
bool in_stack(Address address);
Address dynamic_shared_begin();
Address dynamic_shared_end();
const Kernel& running_kernel();

// Runs all threads; false and the reason if the kernel failed.
bool run_grid(const Kernel& kernel, const char* parameters, Extent grid, Extent block, unsigned dynamic_shared, std::string* reason);

// Ends the kernel that runs with an error; from its threads only.
[[noreturn]] void fail_kernel(const std::string& cause, Site site);
// The same where the instruction is known instead of the site.
[[noreturn]] void fail_kernel_at(const std::string& cause, const void* instruction);

}  // namespace alpha_emulator
