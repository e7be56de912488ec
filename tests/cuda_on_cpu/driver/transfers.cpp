// Allocation, copies and fills: every range must lie in one live allocation.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api.h"
#include "memory.h"
#include "settings.h"
#include "streams.h"

using namespace alpha_emulator;

namespace {

// An error unless the range is device memory.
CUresult check_range(const char* function, const char* what, CUdeviceptr begin, size_t bytes) {
    std::string reason;
    if (contains(begin, bytes, &reason)) return CUDA_SUCCESS;
    return fail(CUDA_ERROR_INVALID_VALUE, format("%s, %s: %s", function, what, reason.c_str()));
}

// What a device range's end may reveal after a copy onto host memory of ours.
bool pinned(const void* host) {
    const Allocation* a = find(Address(host));
    return a && a->kind != Kind::device;
}

CUresult allocate_into(Address* out, size_t bytes, Kind kind) {
    NEED_CONTEXT();
    REFUSE_IN_CAPTURE("an allocation");
    ++counters.allocations;
    if (bytes == 0) return fail(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
    int device = current_device();
    bool fits = kind != Kind::device || bytes_used(device) + bytes <= settings().memory;
    *out = fits ? allocate(bytes, kind, device) : 0;
    return *out ? CUDA_SUCCESS
                : fail(CUDA_ERROR_OUT_OF_MEMORY, format("%zu bytes wanted, %zu of %zu in use", bytes, bytes_used(device), settings().memory));
}

CUresult release_from(Address address, Kind kind) {
    if (!address) return CUDA_SUCCESS;
    ++counters.frees;
    REFUSE_IN_CAPTURE("freeing memory");
    std::string reason;
    bool good = intact(address, &reason);
    if (CUresult error = finish_all()) return error;
    if (!release(address, kind))
        return fail(CUDA_ERROR_INVALID_VALUE, format("no allocation begins at %#lx: %s", address, describe(address).c_str()));
    return good ? CUDA_SUCCESS : fail(CUDA_ERROR_ILLEGAL_ADDRESS, reason);
}

// Before a copy that the host waits for.
CUresult begin_synchronous(const char* function) {
    NEED_CONTEXT();
    REFUSE_IN_CAPTURE(function);
    ++counters.synchronisations;
    ++counters.copies;
    return finish_all();
}

CUresult upload(CUdeviceptr to, const void* from, size_t bytes) {
    if (CUresult error = check_range("cuMemcpyHtoD", "destination", to, bytes)) return error;
    memcpy((void*)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult download(void* to, CUdeviceptr from, size_t bytes) {
    if (CUresult error = check_range("cuMemcpyDtoH", "source", from, bytes)) return error;
    memcpy(to, (const void*)from, bytes);
    return CUDA_SUCCESS;
}

CUresult copy_within(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    if (CUresult error = check_range("cuMemcpyDtoD", "destination", to, bytes)) return error;
    if (CUresult error = check_range("cuMemcpyDtoD", "source", from, bytes)) return error;
    memmove((void*)to, (const void*)from, bytes);
    return CUDA_SUCCESS;
}

template <class T>
CUresult fill(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height) {
    if (!width || !height) return CUDA_SUCCESS;
    if (to % sizeof(T)) return fail(CUDA_ERROR_INVALID_VALUE, format("cuMemset at %#llx: not aligned to %zu", to, sizeof(T)));
    if (CUresult error = check_range("cuMemset", "destination", to, pitch * (height - 1) + width * sizeof(T))) return error;
    for (size_t y = 0; y < height; ++y) std::fill_n((T*)(to + y * pitch), width, value);
    return CUDA_SUCCESS;
}

// One side of a two-dimensional copy.
struct Side {
    char* first;
    size_t pitch;
};

CUresult side_of(const char* what, CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y, size_t pitch,
                 const CUDA_MEMCPY2D& copy, Side* out) {
    if (type == CU_MEMORYTYPE_ARRAY) return fail(CUDA_ERROR_NOT_SUPPORTED, "cuMemcpy2D with arrays");
    out->pitch = pitch ? pitch : copy.WidthInBytes;
    bool on_host = type == CU_MEMORYTYPE_HOST;
    out->first = (on_host ? (char*)host : (char*)device) + y * out->pitch + x;
    size_t bytes = copy.Height ? out->pitch * (copy.Height - 1) + copy.WidthInBytes : 0;
    return on_host ? CUDA_SUCCESS : check_range("cuMemcpy2D", what, CUdeviceptr(out->first), bytes);
}

CUresult copy_rectangle(const CUDA_MEMCPY2D& copy) {
    Side from, to;
    if (CUresult error = side_of("source", copy.srcMemoryType, copy.srcHost, copy.srcDevice, copy.srcXInBytes, copy.srcY,
                                 copy.srcPitch, copy, &from))
        return error;
    if (CUresult error = side_of("destination", copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstXInBytes, copy.dstY,
                                 copy.dstPitch, copy, &to))
        return error;
    for (size_t y = 0; y < copy.Height; ++y) memcpy(to.first + y * to.pitch, from.first + y * from.pitch, copy.WidthInBytes);
    return CUDA_SUCCESS;
}

}  // namespace

API cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
    Address address = 0;
    CUresult result = allocate_into(&address, bytes, Kind::device);
    *out = address;
    return result;
}

API cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) { return cuMemAlloc_v2(out, bytes); }

API cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned) {
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(out, *pitch * height);
}

API cuMemFree_v2(CUdeviceptr address) { return release_from(address, Kind::device); }

API cuMemGetInfo_v2(size_t* available, size_t* total) {
    NEED_CONTEXT();
    *total = settings().memory;
    *available = *total - std::min(*total, bytes_used(current_device()));
    return CUDA_SUCCESS;
}

API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
    const Allocation* a = find(address);
    if (!a || a->kind != Kind::device) return fail(CUDA_ERROR_INVALID_VALUE, describe(address));
    if (attribute != CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return fail(CUDA_ERROR_NOT_SUPPORTED, "cuPointerGetAttribute of another attribute");
    *(int*)data = a->device;
    return CUDA_SUCCESS;
}

API cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
    const Allocation* a = find(address);
    if (!a) return fail(CUDA_ERROR_INVALID_VALUE, describe(address));
    if (begin) *begin = a->begin;
    if (bytes) *bytes = a->bytes;
    return CUDA_SUCCESS;
}

API cuMemHostAlloc(void** out, size_t bytes, unsigned) {
    Address address = 0;
    CUresult result = allocate_into(&address, bytes, Kind::pinned);
    *out = (void*)address;
    return result;
}

API cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
API cuMemFreeHost(void* address) { return release_from(Address(address), Kind::pinned); }

API cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* host, unsigned) {
    *out = CUdeviceptr(host);
    return pinned(host) ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_VALUE, "cuMemHostGetDevicePointer of memory that is not pinned");
}

API cuMemHostGetFlags(unsigned* flags, void*) {
    *flags = 0;
    return CUDA_SUCCESS;
}

API cuMemHostRegister_v2(void* begin, size_t bytes, unsigned) {
    NEED_CONTEXT();
    adopt(Address(begin), bytes, Kind::registered);
    return CUDA_SUCCESS;
}

API cuMemHostUnregister(void* begin) { return release_from(Address(begin), Kind::registered); }

API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
    if (CUresult error = begin_synchronous("cuMemcpyHtoD")) return error;
    return upload(to, from, bytes);
}

API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
    if (CUresult error = begin_synchronous("cuMemcpyDtoH")) return error;
    return download(to, from, bytes);
}

API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    if (CUresult error = begin_synchronous("cuMemcpyDtoD")) return error;
    return copy_within(to, from, bytes);
}

// Memory that is not pinned is staged: it is read when the call is made, and written before the call returns.
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    NEED_CONTEXT();
    ++counters.copies;
    if (CUresult error = check_range("cuMemcpyHtoD", "destination", to, bytes)) return error;
    if (pinned(from) || !runs_later(stream))
        return submit(stream, "cuMemcpyHtoDAsync", [=] { return upload(to, from, bytes); });
    std::vector<char> staged((const char*)from, (const char*)from + bytes);
    return submit(stream, "cuMemcpyHtoDAsync", [to, staged] { return upload(to, staged.data(), staged.size()); });
}

API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEED_CONTEXT();
    ++counters.copies;
    if (CUresult error = check_range("cuMemcpyDtoH", "source", from, bytes)) return error;
    CUresult result = submit(stream, "cuMemcpyDtoHAsync", [=] { return download(to, from, bytes); });
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    cuStreamIsCapturing(stream, &capture);
    if (result == CUDA_SUCCESS && !pinned(to) && capture == CU_STREAM_CAPTURE_STATUS_NONE && settings().deferred)
        return cuStreamSynchronize(stream);
    return result;
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEED_CONTEXT();
    ++counters.copies;
    return submit(stream, "cuMemcpyDtoDAsync", [=] { return copy_within(to, from, bytes); });
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
    if (CUresult error = begin_synchronous("cuMemcpy2D")) return error;
    return copy_rectangle(*copy);
}

API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return cuMemcpy2D_v2(copy); }

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
    NEED_CONTEXT();
    ++counters.copies;
    return submit(stream, "cuMemcpy2DAsync", [copy = *copy] { return copy_rectangle(copy); });
}

#define FILL(BITS, T)                                                                                                       \
    API cuMemsetD##BITS##_v2(CUdeviceptr to, T value, size_t count) {                                                       \
        if (CUresult error = begin_synchronous("cuMemset")) return error;                                                   \
        return fill<T>(to, 0, value, count, 1);                                                                             \
    }                                                                                                                       \
    API cuMemsetD##BITS##Async(CUdeviceptr to, T value, size_t count, CUstream stream) {                                    \
        NEED_CONTEXT();                                                                                                     \
        return submit(stream, "cuMemsetAsync", [=] { return fill<T>(to, 0, value, count, 1); });                            \
    }                                                                                                                       \
    API cuMemsetD2D##BITS##_v2(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height) {                        \
        if (CUresult error = begin_synchronous("cuMemset2D")) return error;                                                 \
        return fill<T>(to, pitch, value, width, height);                                                                    \
    }                                                                                                                       \
    API cuMemsetD2D##BITS##Async(CUdeviceptr to, size_t pitch, T value, size_t width, size_t height, CUstream stream) {     \
        NEED_CONTEXT();                                                                                                     \
        return submit(stream, "cuMemset2DAsync", [=] { return fill<T>(to, pitch, value, width, height); });                 \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)
#undef FILL
