// Devices and contexts.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "api.h"
#include "grid.h"
#include "settings.h"
#include "streams.h"

namespace alpha_emulator {
namespace {

struct Context {
    int device;
};

bool initialised;
std::recursive_mutex lock;
Context primary[64];
thread_local std::vector<Context*> stack;

CUresult check_device(CUdevice device) {
    if (!initialised) return fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
    if (device < 0 || device >= settings().devices)
        return fail(CUDA_ERROR_INVALID_DEVICE, format("device %d of %d", device, settings().devices));
    return CUDA_SUCCESS;
}

}  // namespace

CUresult need_context() {
    if (!initialised) return fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
    if (stack.empty() || !stack.back()) return fail(CUDA_ERROR_INVALID_CONTEXT, "this thread has no context");
    return CUDA_SUCCESS;
}

int current_device() { return stack.back()->device; }

unsigned max_shared_optin() {
    switch (settings().major * 10 + settings().minor) {
        case 75: return 64 << 10;
        case 80: case 87: return 163 << 10;
        case 86: case 89: case 120: return 99 << 10;
        default: return MAX_SHARED;
    }
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

API cuInit(unsigned) {
    // Kernel files find what they call here, however this library was loaded.
    Dl_info self;
    if (!initialised && dladdr((void*)&cuInit, &self)) dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    settings();
    initialised = true;
    return settings().devices ? CUDA_SUCCESS : fail(CUDA_ERROR_NO_DEVICE, "ALPHA_EMULATOR_DEVICES=0");
}

API cuDriverGetVersion(int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

API cuDeviceGetCount(int* count) {
    if (!initialised) return fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit was not called");
    *count = settings().devices;
    return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice* device, int ordinal) {
    if (CUresult error = check_device(ordinal)) return error;
    *device = ordinal;
    return CUDA_SUCCESS;
}

API cuDeviceGetName(char* name, int length, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    snprintf(name, size_t(length), "test driver (CPU)");
    return CUDA_SUCCESS;
}

API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    *bytes = settings().memory;
    return CUDA_SUCCESS;
}

API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    *major = settings().major, *minor = settings().minor;
    return CUDA_SUCCESS;
}

API cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    snprintf(text, size_t(length), "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

API cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
    unsigned bus = 0;
    if (sscanf(text, "%*x:%x", &bus) != 1 || int(bus) >= settings().devices) return fail(CUDA_ERROR_INVALID_DEVICE, text);
    *device = int(bus);
    return CUDA_SUCCESS;
}

API cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
    *can = 0;
    return CUDA_SUCCESS;
}

// The figures of an H100 but for those that settings give.
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    static const std::map<int, int> fixed = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, int(MAX_THREADS)},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    };
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = settings().multiprocessors; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = settings().major; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = settings().minor; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = int(max_shared_optin()); break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = int(max_shared_optin()) + 1024; break;
        default: {
            auto found = fixed.find(attribute);
            *value = found == fixed.end() ? 0 : found->second;
        }
    }
    return CUDA_SUCCESS;
}

// -- Contexts: each thread has a stack of them ---------------------------------------------------------------------------

API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams*, unsigned, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    stack.push_back(new Context{device});
    *out = (CUcontext)stack.back();
    return CUDA_SUCCESS;
}

API cuCtxCreate_v2(CUcontext* out, unsigned flags, CUdevice device) { return cuCtxCreate_v4(out, nullptr, flags, device); }

// Contexts are a few bytes and others' stacks may hold them: they stay.
API cuCtxDestroy_v2(CUcontext context) {
    if (!stack.empty() && stack.back() == (Context*)context) stack.pop_back();
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
    if (CUresult error = check_device(device)) return error;
    primary[device].device = device;
    *out = (CUcontext)&primary[device];
    return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device) { return check_device(device); }

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    *flags = 0, *active = 1;
    return check_device(device);
}

API cuCtxPushCurrent_v2(CUcontext context) {
    stack.push_back((Context*)context);
    return CUDA_SUCCESS;
}

API cuCtxPopCurrent_v2(CUcontext* out) {
    if (stack.empty()) return fail(CUDA_ERROR_INVALID_CONTEXT, "this thread has no context");
    if (out) *out = (CUcontext)stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext context) {
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back((Context*)context);
    return CUDA_SUCCESS;
}

API cuCtxGetCurrent(CUcontext* out) {
    *out = stack.empty() ? nullptr : (CUcontext)stack.back();
    return CUDA_SUCCESS;
}

API cuCtxAttach(CUcontext* out, unsigned) { return cuCtxGetCurrent(out); }

API cuCtxDetach(CUcontext context) { return cuCtxDestroy_v2(context); }

API cuCtxGetDevice(CUdevice* device) {
    NEED_CONTEXT();
    *device = current_device();
    return CUDA_SUCCESS;
}

API cuCtxGetApiVersion(CUcontext, unsigned* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

API cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
API cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
API cuProfilerStart() { return CUDA_SUCCESS; }
API cuProfilerStop() { return CUDA_SUCCESS; }
