// Errors with their reasons, and counts of what was asked of the driver.
#pragma once
#include <cuda.h>

#include <atomic>
#include <string>

namespace alpha_emulator {

// printf into a string.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// Remembers why a call fails, for cuGetErrorString and alpha_test_last_error; returns the code.
CUresult fail(CUresult code, const std::string& reason);
// The reason of the last failure with this code in this thread, or an empty text.
const std::string& reason_of(CUresult code);

struct Counters {
    std::atomic<unsigned long long> allocations{0}, frees{0}, launches{0}, graph_launches{0}, synchronisations{0}, copies{0};
};
extern Counters counters;

}  // namespace alpha_emulator
