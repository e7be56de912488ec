#include "report.h"

#include <cstdarg>
#include <cstring>
#include <map>
#include <mutex>

namespace alpha_emulator {

Counters counters;

namespace {
// The last failure of the process and, by code, of each thread.
std::mutex lock;
std::string last;
thread_local std::map<int, std::string> reasons;
}  // namespace

std::string format(const char* pattern, ...) {
    va_list arguments, again;
    va_start(arguments, pattern);
    va_copy(again, arguments);
    std::string text(size_t(vsnprintf(nullptr, 0, pattern, arguments)), '\0');
    vsnprintf(text.data(), text.size() + 1, pattern, again);
    va_end(again);
    va_end(arguments);
    return text;
}

CUresult fail(CUresult code, const std::string& reason) {
    std::lock_guard<std::mutex> hold(lock);
    last = reason;
    reasons[code] = reason;
    return code;
}

const std::string& reason_of(CUresult code) { return reasons[code]; }

}  // namespace alpha_emulator

using namespace alpha_emulator;

extern "C" {

// The reason of the process's last failed call; valid until the next one.
__attribute__((visibility("default"))) const char* alpha_test_last_error() {
    static std::string copy;
    std::lock_guard<std::mutex> hold(lock);
    copy = last;
    return copy.c_str();
}

// A count since the start: "allocations", "frees", "launches", "graph_launches", "synchronisations", "copies"; -1 for another name.
__attribute__((visibility("default"))) long long alpha_test_counter(const char* name) {
    const struct {
        const char* name;
        const std::atomic<unsigned long long>& value;
    } all[] = {{"allocations", counters.allocations}, {"frees", counters.frees},
               {"launches", counters.launches},       {"graph_launches", counters.graph_launches},
               {"copies", counters.copies},           {"synchronisations", counters.synchronisations}};
    for (const auto& counter : all)
        if (!strcmp(counter.name, name)) return (long long)counter.value.load();
    return -1;
}

__attribute__((visibility("default"))) CUresult cuGetErrorName(CUresult code, const char** text);

__attribute__((visibility("default"))) CUresult cuGetErrorString(CUresult code, const char** text) {
    static const std::map<int, const char*> texts = {
        {CUDA_SUCCESS, "no error"},
        {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
        {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
        {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
        {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
        {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
        {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
        {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
        {CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"},
        {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
        {CUDA_ERROR_NOT_READY, "device not ready"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
        {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
        {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
        {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
        {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
        {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"},
    };
    static thread_local std::string full;
    auto found = texts.find(code);
    full = found == texts.end() ? format("error %d", int(code)) : found->second;
    if (code != CUDA_SUCCESS && !reason_of(code).empty()) full += ": " + reason_of(code);
    *text = full.c_str();
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char** text) {
    static thread_local std::string name;
    name = format("CUDA_ERROR_%d", int(code));
    *text = code == CUDA_SUCCESS ? "CUDA_SUCCESS" : name.c_str();
    return CUDA_SUCCESS;
}

}
