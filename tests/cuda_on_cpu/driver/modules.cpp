#include "modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>

#include "api.h"
#include "grid.h"
#include "report.h"
#include "settings.h"

namespace alpha_emulator {
namespace {

struct Module {
    void* handle;
    const void* base;
    std::string image;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

std::recursive_mutex lock;
std::set<Module*> modules;

// A file of its own name each time: dlopen takes files of one name for one library.
std::string write_temporary(const std::string& image) {
    char path[] = P_tmpdir "/alpha-module-XXXXXX";
    int descriptor = mkstemp(path);
    if (descriptor < 0) return "";
    bool written = write(descriptor, image.data(), image.size()) == ssize_t(image.size());
    close(descriptor);
    if (written) return path;
    unlink(path);
    return "";
}

// The driver is given no size; an ELF file tells its own.
size_t elf_size(const void* image) {
    auto* header = (const Elf64_Ehdr*)image;
    return header->e_shoff + size_t(header->e_shnum) * header->e_shentsize;
}

bool is_loaded(void* handle) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    for (const Module* module : modules)
        if (module->handle == handle) return true;
    return false;
}

// dlopen also takes files of one inode for one library. Where a file system gives a deleted file's number to the next
// file while the first is still mapped, an earlier module comes back: another file beside this one has another number.
void* open_file(const std::string& image, std::string* reason, int attempts) {
    std::string path = write_temporary(image);
    if (path.empty()) {
        *reason = "expected to write the module to " P_tmpdir;
        return nullptr;
    }
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) *reason = dlerror();
    if (handle && is_loaded(handle)) {
        dlclose(handle);
        *reason = "expected a library of its own for each module, got one that is loaded";
        handle = attempts > 1 ? open_file(image, reason, attempts - 1) : nullptr;
    }
    unlink(path.c_str());
    return handle;
}

// The names of the kernels in a module's image, for messages.
std::string kernels_of(const std::string& image) {
    static const std::string prefix = "alpha_kernel_";
    std::string names;
    for (size_t at = image.find(prefix); at != std::string::npos; at = image.find(prefix, at + 1))
        names += std::string(names.empty() ? "" : ", ") + (image.c_str() + at + prefix.size());
    return names.empty() ? "none" : names;
}

CUresult open_module(CUmodule* out, const std::string& image) {
    std::string reason;
    void* handle = open_file(image, &reason, 100);
    if (!handle) return fail(CUDA_ERROR_INVALID_IMAGE, reason);
    auto* symbol = (const int*)dlsym(handle, "alpha_emulator_architecture");
    int architecture = symbol ? *symbol : 0;
    const Settings& device = settings();
    if (architecture / 10 != device.major || architecture % 10 > device.minor) {
        dlclose(handle);
        return fail(CUDA_ERROR_NO_BINARY_FOR_GPU,
                    format("the module is for sm_%d, the device has %d.%d", architecture, device.major, device.minor));
    }
    link_map* map = nullptr;
    dlinfo(handle, RTLD_DI_LINKMAP, &map);
    auto* module = new Module{handle, (const void*)map->l_addr, image, {}};
    std::lock_guard<std::recursive_mutex> hold(lock);
    modules.insert(module);
    *out = (CUmodule)module;
    return CUDA_SUCCESS;
}

Module* module_of(CUmodule handle) {
    auto* module = (Module*)handle;
    return modules.count(module) ? module : nullptr;
}

}  // namespace

std::string module_file(const void* instruction, const void** base) {
    Dl_info info;
    if (!dladdr(instruction, &info)) return "";
    std::lock_guard<std::recursive_mutex> hold(lock);
    for (const Module* module : modules)
        if (module->base == info.dli_fbase) {
            *base = module->base;
            return write_temporary(module->image);
        }
    return "";
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

API cuModuleLoadData(CUmodule* module, const void* image) {
    NEED_CONTEXT();
    REFUSE_IN_CAPTURE("cuModuleLoadData");
    auto* header = (const Elf64_Ehdr*)image;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) || header->e_machine != EM_X86_64)
        return fail(CUDA_ERROR_INVALID_IMAGE, "expected what the test driver's nvcc makes; is ALPHA_NVCC set?");
    return open_module(module, std::string((const char*)image, elf_size(image)));
}

// Of the options only the logs' sizes matter: they are overwritten with what was logged, which is nothing. The reason of
// a failure comes with the error's text.
API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* options, void** values) {
    for (unsigned i = 0; i < count; ++i)
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;
    return cuModuleLoadData(module, image);
}

API cuModuleLoad(CUmodule* module, const char* path) {
    NEED_CONTEXT();
    std::ifstream file(path, std::ios::binary);
    if (!file) return fail(CUDA_ERROR_FILE_NOT_FOUND, path);
    std::ostringstream image;
    image << file.rdbuf();
    return open_module(module, image.str());
}

API cuModuleUnload(CUmodule handle) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    Module* module = module_of(handle);
    if (!module) return fail(CUDA_ERROR_INVALID_HANDLE, "no loaded module");
    modules.erase(module);
    dlclose(module->handle);
    delete module;
    return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name) {
    NEED_CONTEXT();
    std::lock_guard<std::recursive_mutex> hold(lock);
    Module* module = module_of(handle);
    if (!module) return fail(CUDA_ERROR_INVALID_HANDLE, "no loaded module");
    auto& function = module->functions[name];
    if (!function) {
        // The function itself is looked up too: a kernel without extern "C" has another name on a GPU.
        auto* kernel = (const Kernel*)dlsym(module->handle, (std::string("alpha_kernel_") + name).c_str());
        if (!kernel || !dlsym(module->handle, name)) {
            module->functions.erase(name);
            return fail(CUDA_ERROR_NOT_FOUND, format("no extern \"C\" __global__ function %s in the module, whose symbols are %s",
                                                     name, kernels_of(module->image).c_str()));
        }
        function.reset(new Function{kernel});
    }
    *out = (CUfunction)function.get();
    return CUDA_SUCCESS;
}

API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle, const char* name) {
    NEED_CONTEXT();
    std::lock_guard<std::recursive_mutex> hold(lock);
    Module* module = module_of(handle);
    void* symbol = module ? dlsym(module->handle, name) : nullptr;
    if (!symbol) return fail(CUDA_ERROR_NOT_FOUND, format("no variable %s in the module", name));
    Dl_info info;
    ElfW(Sym)* entry = nullptr;
    dladdr1(symbol, &info, (void**)&entry, RTLD_DL_SYMENT);
    size_t size = entry ? entry->st_size : 0;
    adopt(Address(symbol), size, Kind::global);
    if (address) *address = CUdeviceptr(symbol);
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

// Registers are the real compiler's business; static shared memory is the whole file's.
API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
    auto* function = (Function*)handle;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = int(function->kernel->max_threads); break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = int(function->kernel->shared_end - function->kernel->shared_begin); break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = settings().major * 10 + settings().minor; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = int(function->dynamic_shared_limit); break;
        case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = -1; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
    auto* function = (Function*)handle;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value > int(max_shared_optin()))
        return fail(CUDA_ERROR_INVALID_VALUE, format("%d bytes of shared memory a block, the device has %u", value, max_shared_optin()));
    function->dynamic_shared_limit = unsigned(value);
    return CUDA_SUCCESS;
}

API cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
// Of the launches before cuLaunchKernel, which has its own shape; PyCUDA still calls it.
API cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_SUCCESS; }

// A multiprocessor's threads and shared memory; registers are not known here.
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t dynamic_shared) {
    auto* kernel = ((Function*)handle)->kernel;
    size_t shared = dynamic_shared + size_t(kernel->shared_end - kernel->shared_begin) + 1024;
    *blocks = std::min(2048 / std::max(threads, 1), int((max_shared_optin() + 1024) / shared));
    return CUDA_SUCCESS;
}
