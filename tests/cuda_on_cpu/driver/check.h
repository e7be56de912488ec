// The checks of kernels compiled with every access instrumented (ALPHA_EMULATOR_CHECK=full): each access lies in live
// memory and is aligned, and no two threads touch the same bytes, one of them writing, without a barrier between.
#pragma once
#include "../include/abi.h"
#include "memory.h"

namespace alpha_emulator {

// Which bytes may be touched.
void check_allocated(Address begin, size_t bytes);
void check_freed(Address begin, size_t bytes);

// What is ordered: grids, blocks' starts, barriers.
void check_grid_begins();
void check_block_begins();
void check_interval_begins();
void check_fence();

}  // namespace alpha_emulator
