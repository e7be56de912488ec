// Kernel files loaded into the process: shared objects that the nvcc stand-in made.
#pragma once
#include <cuda.h>

#include <string>

#include "../include/abi.h"

namespace alpha_emulator {

struct Function {
    const Kernel* kernel;
    unsigned dynamic_shared_limit = 48 << 10;
};

// The image that an instruction belongs to, written to a temporary file (the caller removes it), and where it is loaded.
std::string module_file(const void* instruction, const void** base);

}  // namespace alpha_emulator
