// A kernel's segmentation fault, bus error, division by zero or trap becomes the kernel's failure, not the process's end.
#pragma once
#include <string>

namespace alpha_emulator {

// Sees to it that this thread's faults are caught; called before each grid.
void catch_faults();
// "losses.cu:41" of an instruction in a loaded module, or an empty text.
std::string source_line(const void* instruction);

}  // namespace alpha_emulator
