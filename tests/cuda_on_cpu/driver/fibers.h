// Stacks to run CUDA threads on, and the switch between them.
#pragma once
#include <cstddef>

#include "memory.h"

namespace alpha_emulator {

struct Fiber {
    void* stack_pointer;
    char* stack;
};

// Saves the registers that functions preserve and the stack pointer, and goes on where `to` was left.
extern "C" void alpha_emulator_switch(void** from, void* to);

// A fiber that begins in `entry`, which must not return.
Fiber* take_fiber(void (*entry)());
// For a fiber that waits inside `entry` to be taken again.
void give_fiber(Fiber* fiber);
// Begins all fibers anew: after a failure, whatever their stacks hold is dropped.
void reset_fibers(void (*entry)());
bool in_fiber_stack(Address address);

}  // namespace alpha_emulator
