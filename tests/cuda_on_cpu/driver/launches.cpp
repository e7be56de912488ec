// cuLaunchKernel: limits, parameters, then the grid.
#include <cstring>
#include <mutex>
#include <string>

#include "api.h"
#include "grid.h"
#include "memory.h"
#include "modules.h"
#include "streams.h"

using namespace alpha_emulator;

namespace {

std::mutex one_grid_at_a_time;

std::string describe_launch(const Kernel& kernel, const Extent& grid, const Extent& block, unsigned shared) {
    return format("kernel %s, grid (%u,%u,%u), block (%u,%u,%u), %u bytes of dynamic shared memory", kernel.name, grid.x, grid.y,
                  grid.z, block.x, block.y, block.z, shared);
}

// What a device refuses to launch.
CUresult check_launch(const Function& function, const Extent& grid, const Extent& block, unsigned shared) {
    const Kernel& kernel = *function.kernel;
    auto refuse = [&](const char* why) {
        return fail(CUDA_ERROR_INVALID_VALUE, describe_launch(kernel, grid, block, shared) + ": " + why);
    };
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z) return refuse("an extent of 0");
    if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return refuse("too large a grid");
    if (block.x > 1024 || block.y > 1024 || block.z > 64) return refuse("too large a block");
    if (size_t(block.x) * block.y * block.z > kernel.max_threads) return refuse("more threads than 1024 or __launch_bounds__");
    if (shared > function.dynamic_shared_limit) return refuse("more dynamic shared memory than the kernel was set to");
    size_t fixed = size_t(kernel.shared_end - kernel.shared_begin);
    if (shared + fixed > max_shared_optin()) return refuse("more static and dynamic shared memory than a block may have");
    return CUDA_SUCCESS;
}

// The packed buffer of `extra`; its size must be what the kernel's parameters take.
CUresult take_parameters(const Kernel& kernel, void** parameters, void** extra, std::string* out) {
    if (parameters) return fail(CUDA_ERROR_NOT_SUPPORTED, "the test driver takes parameters as one packed buffer (extra)");
    const void* buffer = nullptr;
    size_t size = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(size_t*)extra[1];
    }
    if (size != kernel.parameter_bytes && size != kernel.padded_parameter_bytes)
        return fail(CUDA_ERROR_INVALID_VALUE, format("kernel %s: its parameters take %u bytes, the launch gives %zu", kernel.name,
                                                     kernel.parameter_bytes, size));
    out->assign((const char*)buffer, size);
    return CUDA_SUCCESS;
}

// Nothing may have been written behind the memory that the parameters lead to.
bool memory_intact(const std::string& parameters, std::string* reason) {
    for (size_t at = 0; at + 8 <= parameters.size(); at += 8) {
        Address value;
        memcpy(&value, parameters.data() + at, 8);
        if (value >= arena_begin() && value < arena_end() && !intact(value, reason)) return false;
    }
    return true;
}

CUresult run(const Function& function, const std::string& parameters, Extent grid, Extent block, unsigned shared) {
    std::lock_guard<std::mutex> hold(one_grid_at_a_time);
    std::string reason;
    if (!run_grid(*function.kernel, parameters.data(), grid, block, shared, &reason))
        return fail(CUDA_ERROR_LAUNCH_FAILED, reason);
    if (!memory_intact(parameters, &reason))
        return fail(CUDA_ERROR_LAUNCH_FAILED, describe_launch(*function.kernel, grid, block, shared) + ": " + reason);
    return CUDA_SUCCESS;
}

}  // namespace

API cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   CUstream stream, void** parameters, void** extra) {
    NEED_CONTEXT();
    ++counters.launches;
    const auto& function = *(Function*)handle;
    Extent grid = {gx, gy, gz}, block = {bx, by, bz};
    if (CUresult error = check_launch(function, grid, block, shared)) return error;
    std::string packed;
    if (CUresult error = take_parameters(*function.kernel, parameters, extra, &packed)) return error;
    return submit(stream, "cuLaunchKernel", [&function, packed, grid, block, shared] { return run(function, packed, grid, block, shared); });
}
