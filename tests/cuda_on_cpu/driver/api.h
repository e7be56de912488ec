// What the exported driver functions share.
#pragma once
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include "report.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult

namespace alpha_emulator {

// An error where the calling thread has no context.
CUresult need_context();
// The error, which spoils the capture, where the driver refuses a call because this thread captures a stream.
CUresult refuse_in_capture(const char* function);
// The device of the calling thread, which has a context.
int current_device();
// Most dynamic shared memory of a block, by capability.
unsigned max_shared_optin();

}  // namespace alpha_emulator

#define NEED_CONTEXT() \
    if (CUresult error = alpha_emulator::need_context()) return error
#define REFUSE_IN_CAPTURE(function) \
    if (CUresult error = alpha_emulator::refuse_in_capture(function)) return error
