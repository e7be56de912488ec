#include "check.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "faults.h"
#include "grid.h"
#include "report.h"

namespace alpha_emulator {
namespace {

// Time advances with each barrier: accesses of one interval by two threads of a block are unordered, but for
// __syncwarp among lanes of a warp. Blocks of a grid are unordered among each other, but see check_fence.
typedef uint32_t Interval;
Interval interval = 1, grid_began, block_began;
// Blocks that began before this are ordered before the one that runs.
Interval ordered_before;
bool fence_seen;

// The latest write and the latest reads of a word of four bytes.
struct Cell {
    Interval wrote, read;
    uint16_t writer, reader;
    uint16_t writer_epoch, reader_epoch;
    uint8_t write_bytes, read_bytes;  // one bit per byte
    bool atomic_write, several_readers;
    const void *write_at, *read_at;
};

Cell* reserve_cells(size_t words) {
    void* p = mmap(nullptr, words * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("[test driver] expected addresses for the checks' records");
        abort();
    }
    return (Cell*)p;
}

// Of device memory; of the kernel file's static and of dynamic shared memory.
Cell* global_cells;
std::vector<Cell> static_cells, dynamic_cells;

// How many bytes of each eight may be touched, of all device addresses; allocations begin at multiples of eight.
unsigned char* valid_bytes;

unsigned char* valid_of(Address address) {
    if (!valid_bytes) {
        size_t size = (arena_end() - arena_begin()) / 8;
        valid_bytes = (unsigned char*)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (valid_bytes == MAP_FAILED) {
            perror("[test driver] expected addresses for the checks' records");
            abort();
        }
    }
    return valid_bytes + (address - arena_begin()) / 8;
}

bool may_touch(Address begin, unsigned bytes) {
    for (Address at = begin / 8 * 8; at < begin + bytes; at += 8) {
        Address end = std::min(at + 8, begin + bytes);
        if (end - at > *valid_of(at)) return false;
    }
    return true;
}

struct Hit {
    Cell* cells;  // of the address's word
    bool shared;
};

Cell* cell_in(std::vector<Cell>& cells, Address begin, Address end, Address address) {
    size_t words = (end - begin + 7) / 4;
    if (cells.size() < words) cells.resize(words);
    return &cells[(address - begin) / 4];
}

// The records of an address; nothing for a thread's own memory; a failure for what no kernel may touch.
bool locate(Address address, unsigned bytes, Access kind, const void* at, Hit* hit) {
    const Kernel& kernel = running_kernel();
    if (address >= arena_begin() && address < arena_end()) {
        if (!may_touch(address, bytes) && !(kind == Access::read && readable_slack(address, bytes)))
            fail_kernel_at(format("%s of %u bytes out of bounds, at %s", kind == Access::read ? "a read" : "a write", bytes,
                                  describe(address).c_str()), at);
        if (!global_cells) global_cells = reserve_cells((arena_end() - arena_begin()) / 4);
        *hit = {global_cells + (address - arena_begin()) / 4, false};
        return true;
    }
    Address begin = Address(kernel.shared_begin) / 4 * 4, end = Address(kernel.shared_end);
    if (address >= begin && address < end) {
        *hit = {cell_in(static_cells, begin, end, address), true};
        return true;
    }
    begin = dynamic_shared_begin(), end = dynamic_shared_end();
    if (address >= begin - 64 && address < end + 4096) {
        if (address < begin || address + bytes > end)
            fail_kernel_at(format("an access of %u bytes at byte %ld of the %lu bytes of dynamic shared memory", bytes,
                                  long(address - begin), end - begin), at);
        *hit = {cell_in(dynamic_cells, begin, end, address), true};
        return true;
    }
    if (address < 4096) fail_kernel_at("an access through a null pointer", at);
    return false;  // the stack, constants; what is not mapped faults
}

bool unordered(const Hit& hit, Interval then, unsigned thread, unsigned epoch, const Running& me) {
    if (then == interval)
        return thread != me.thread && (thread / 32 != me.thread / 32 || uint16_t(epoch) == uint16_t(me.warp_epoch));
    // An earlier block of the same grid; shared memory is each block's own.
    return !hit.shared && then >= grid_began && then < block_began && then >= ordered_before;
}

[[noreturn]] void fail_race(const char* now, const char* then, const Hit& hit, Interval when, unsigned thread, const void* other,
                            const void* at) {
    std::string line = source_line(other);
    std::string who = when == interval ? format("thread %u of the block", thread) : "another block";
    fail_kernel_at(format("a race on %s memory: this %s and the %s by %s%s%s have no barrier between them",
                          hit.shared ? "shared" : "global", now, then, who.c_str(), line.empty() ? "" : " at ", line.c_str()), at);
}

void touch(const Hit& hit, Cell& cell, uint8_t bytes, Access kind, const void* at) {
    Running me = running_thread();
    bool atomic = kind == Access::atomic;
    if (cell.wrote && (cell.write_bytes & bytes) && !(atomic && cell.atomic_write) &&
        unordered(hit, cell.wrote, cell.writer, cell.writer_epoch, me))
        fail_race(kind == Access::read ? "read" : "write", "write", hit, cell.wrote, cell.writer, cell.write_at, at);
    if (kind == Access::read) {
        bool again = cell.read == interval && cell.reader != me.thread;
        // Several readers are remembered as such; the one kept is of another warp than the next writer where it can be.
        cell.several_readers = cell.read == interval && (cell.several_readers || (again && cell.reader / 32 != me.thread / 32));
        cell.read_bytes = cell.read == interval ? cell.read_bytes | bytes : bytes;
        cell.read = interval;
        cell.reader = uint16_t(me.thread);
        cell.reader_epoch = uint16_t(me.warp_epoch);
        cell.read_at = at;
        return;
    }
    if (cell.read && (cell.read_bytes & bytes)) {
        bool race = unordered(hit, cell.read, cell.reader, cell.reader_epoch, me) || (cell.read == interval && cell.several_readers);
        if (race) fail_race("write", "read", hit, cell.read, cell.reader, cell.read_at, at);
    }
    bool same = cell.wrote == interval && cell.writer == me.thread && cell.atomic_write == atomic;
    cell.write_bytes = same ? cell.write_bytes | bytes : bytes;
    cell.wrote = interval;
    cell.writer = uint16_t(me.thread);
    cell.writer_epoch = uint16_t(me.warp_epoch);
    cell.atomic_write = atomic;
    cell.write_at = at;
}

void access(Address address, unsigned bytes, Access kind, const void* at) {
    if (!kernel_running() || in_stack(address)) return;
    Hit hit;
    if (!locate(address, bytes, kind, at, &hit)) return;
    // Another block's atomics, after a fence of its, pass on what it wrote: the "last block done" of split reductions.
    if (kind == Access::atomic && !hit.shared && fence_seen) ordered_before = block_began;
    Cell* cell = hit.cells;
    for (Address word = address / 4 * 4; word < address + bytes; word += 4, ++cell) {
        unsigned first = unsigned(std::max(word, address) - word), last = unsigned(std::min(word + 4, address + bytes) - word);
        touch(hit, *cell, uint8_t((1u << last) - (1u << first)), kind, at);
    }
}

}  // namespace

void check_allocated(Address begin, size_t bytes) {
    unsigned char* valid = valid_of(begin);
    memset(valid, 8, bytes / 8);
    if (bytes % 8) valid[bytes / 8] = (unsigned char)(bytes % 8);
}

void check_freed(Address begin, size_t bytes) { memset(valid_of(begin), 0, (bytes + 7) / 8); }

void check_grid_begins() {
    grid_began = ++interval;
    ordered_before = 0;
    fence_seen = false;
}

void check_block_begins() {
    block_began = ++interval;
    ordered_before = 0;
}

void check_interval_begins() { ++interval; }

void check_fence() { fence_seen = true; }

}  // namespace alpha_emulator

using namespace alpha_emulator;

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

extern "C" {

EXPORT void alpha_emulator_access(const void* address, unsigned bytes, Access kind) {
    if (Address(address) % bytes) fail_kernel_at(format("an access of %u bytes to %p: not aligned", bytes, address), CALLER);
    access(Address(address), bytes, kind, CALLER);
}

// -- What g++ -fsanitize=thread calls before each access -------------------------------------------------------------------

#define ACCESSES(BYTES)                                                                                                     \
    EXPORT void __tsan_read##BYTES(void* a) { access(Address(a), BYTES, Access::read, CALLER); }                            \
    EXPORT void __tsan_write##BYTES(void* a) { access(Address(a), BYTES, Access::write, CALLER); }                          \
    EXPORT void __tsan_unaligned_read##BYTES(void* a) { access(Address(a), BYTES, Access::read, CALLER); }                  \
    EXPORT void __tsan_unaligned_write##BYTES(void* a) { access(Address(a), BYTES, Access::write, CALLER); }                \
    EXPORT void __tsan_volatile_read##BYTES(void* a) { access(Address(a), BYTES, Access::read, CALLER); }                   \
    EXPORT void __tsan_volatile_write##BYTES(void* a) { access(Address(a), BYTES, Access::write, CALLER); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#undef ACCESSES

EXPORT void __tsan_read_range(void* a, size_t bytes) { access(Address(a), unsigned(bytes), Access::read, CALLER); }
EXPORT void __tsan_write_range(void* a, size_t bytes) { access(Address(a), unsigned(bytes), Access::write, CALLER); }
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void*, void*) {}
EXPORT void __tsan_vptr_read(void*) {}

}
