// What g++ -fsanitize=alignment,bounds calls where an access is misaligned or an index runs over an array's end.
#include <cstdint>

#include "grid.h"
#include "report.h"

using namespace alpha_emulator;

namespace {

// The compiler's records, as its runtime library lays them down.
struct SourceLocation {
    const char* file;
    uint32_t line, column;
};
struct TypeDescriptor {
    uint16_t kind, info;
    char name[1];
};
struct TypeMismatch {
    SourceLocation location;
    const TypeDescriptor* type;
    unsigned char log_alignment, check_kind;
};
struct OutOfBounds {
    SourceLocation location;
    const TypeDescriptor *array, *index;
};

Site site(const SourceLocation& l) { return {l.file, int(l.line)}; }

[[noreturn]] void fail_type(const TypeMismatch& data, const void* address) {
    static const char* const kinds[] = {"a load", "a store", "a reference", "a member access", "a member call", "a constructor call"};
    const char* kind = data.check_kind < 6 ? kinds[data.check_kind] : "an access";
    fail_kernel(format("%s of %s at %p: not aligned to %d bytes", kind, data.type->name, address, 1 << data.log_alignment),
                site(data.location));
}

[[noreturn]] void fail_index(const OutOfBounds& data, intptr_t index) {
    fail_kernel(format("index %ld out of bounds of %s", long(index), data.array->name), site(data.location));
}

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {
EXPORT void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, void* address) { fail_type(*data, address); }
EXPORT void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* data, void* address) { fail_type(*data, address); }
EXPORT void __ubsan_handle_out_of_bounds(OutOfBounds* data, intptr_t index) { fail_index(*data, index); }
EXPORT void __ubsan_handle_out_of_bounds_abort(OutOfBounds* data, intptr_t index) { fail_index(*data, index); }
}
