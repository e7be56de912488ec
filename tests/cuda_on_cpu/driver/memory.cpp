#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>

#include "check.h"
#include "report.h"

namespace alpha_emulator {
namespace {

constexpr size_t PAGE = 4096;
constexpr size_t ARENA = size_t(64) << 30;
constexpr size_t ALIGNMENT = 512;
constexpr unsigned char CANARY = 0xca;

// Bytes behind a block that may be read, as alpha.mempool promises.
constexpr size_t BLOCK_SLACK = 128;

// A part of a device allocation that the program's own memory pool handed out.
struct Block {
    size_t bytes, capacity;
};

std::recursive_mutex lock;
std::map<Address, Allocation> live;
std::map<Address, Allocation> freed;  // until their addresses are used again
std::map<Address, Block> blocks;
size_t used[64];
Address next_address;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Pages of an allocation with the untouchable one behind them.
size_t footprint(size_t bytes) { return round_up(bytes, PAGE) + PAGE; }

Address reserve() {
    void* p = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("[test driver] expected to reserve 64 GiB of addresses");
        abort();
    }
    return Address(p);
}

// The first gap of that size from `next_address` on, then from the start.
Address find_gap(size_t size) {
    for (int round = 0; round < 2; ++round) {
        Address at = round == 0 && next_address ? next_address : arena_begin() + PAGE;
        auto following = live.lower_bound(at);
        if (following != live.begin()) {
            const Allocation& before = std::prev(following)->second;
            if (before.begin >= arena_begin() && before.begin < arena_end())
                at = std::max(at, round_up(before.begin + footprint(before.bytes), PAGE));
        }
        while (at + size <= arena_end()) {
            if (following == live.end() || following->first >= arena_end() || at + size <= following->first / PAGE * PAGE) return at;
            at = following->second.begin / PAGE * PAGE + footprint(following->second.bytes + following->second.begin % PAGE);
            ++following;
        }
    }
    return 0;
}

void forget_freed(Address begin, Address end) {
    auto it = freed.lower_bound(begin);
    if (it != freed.begin() && std::prev(it)->second.begin + footprint(std::prev(it)->second.bytes) > begin) --it;
    while (it != freed.end() && it->first < end) it = freed.erase(it);
}

template <class Map>
typename Map::const_iterator at_or_before(const Map& map, Address address) {
    auto it = map.upper_bound(address);
    return it == map.begin() ? map.end() : std::prev(it);
}

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::device: return "device memory";
        case Kind::pinned: return "pinned host memory";
        case Kind::registered: return "registered host memory";
        case Kind::global: return "a module's variable";
    }
    return "";
}

// What is watched behind an allocation or block.
size_t watched(size_t slack) { return std::min(slack, PAGE); }

bool slack_intact(Address end, size_t slack, const std::function<std::string()>& what, std::string* reason) {
    static const std::string untouched(PAGE, char(CANARY));
    if (!memcmp((void*)end, untouched.data(), watched(slack))) return true;
    size_t first = 0;
    while (((unsigned char*)end)[first] == CANARY) ++first;
    *reason = format("a write %zu bytes past the end of %s", first, what().c_str());
    poison((void*)end, watched(slack), CANARY);  // reported once
    return false;
}

bool allocation_intact(const Allocation& a, std::string* reason) {
    if (a.begin < arena_begin() || a.begin >= arena_end()) return true;
    size_t slack = round_up(a.bytes, PAGE) - a.bytes;
    auto what = [&] { return format("the allocation of %zu bytes at %#lx", a.bytes, a.begin); };
    return slack_intact(a.begin + a.bytes, slack, what, reason);
}

bool block_intact(Address begin, const Block& b, std::string* reason) {
    auto what = [&] { return format("the block of %zu bytes at %#lx", b.bytes, begin); };
    return slack_intact(begin + b.bytes, b.capacity - b.bytes, what, reason);
}

}  // namespace

Address arena_begin() {
    static Address begin = reserve();
    return begin;
}
Address arena_end() { return arena_begin() + ARENA; }

void poison(void* begin, size_t bytes, int value) {
    asm volatile("rep stosb" : "+D"(begin), "+c"(bytes) : "a"(value) : "memory");
}

Address allocate(size_t bytes, Kind kind, int device) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    Address at = find_gap(footprint(bytes));
    if (!at || mprotect((void*)at, round_up(bytes, PAGE), PROT_READ | PROT_WRITE)) return 0;
    forget_freed(at, at + footprint(bytes));
    poison((void*)at, bytes);
    poison((void*)(at + bytes), round_up(bytes, PAGE) - bytes, CANARY);
    live[at] = {at, bytes, kind, device};
    if (kind == Kind::device) used[device] += round_up(bytes, ALIGNMENT);
    next_address = at + footprint(bytes);
    check_allocated(at, bytes);
    return at;
}

void adopt(Address begin, size_t bytes, Kind kind) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    live[begin] = {begin, bytes, kind, 0};
}

bool release(Address begin, Kind kind) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto it = live.find(begin);
    if (it == live.end() || it->second.kind != kind) return false;
    const Allocation a = it->second;
    live.erase(it);
    if (kind == Kind::device || kind == Kind::pinned) {
        size_t size = round_up(a.bytes, PAGE);
        madvise((void*)begin, size, MADV_DONTNEED);
        mprotect((void*)begin, size, PROT_NONE);
        freed[begin] = a;
        check_freed(begin, a.bytes);
        blocks.erase(blocks.lower_bound(begin), blocks.lower_bound(begin + a.bytes));
    }
    if (kind == Kind::device) used[a.device] -= round_up(a.bytes, ALIGNMENT);
    return true;
}

const Allocation* find(Address address) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto it = at_or_before(live, address);
    return it != live.end() && address < it->second.begin + it->second.bytes ? &it->second : nullptr;
}

bool contains(Address begin, size_t bytes, std::string* reason) {
    if (bytes == 0) return true;
    std::lock_guard<std::recursive_mutex> hold(lock);
    const Allocation* a = find(begin);
    if (a && begin + bytes <= a->begin + a->bytes) return true;
    *reason = a ? format("%zu bytes at %#lx run %zu bytes past the end of the allocation of %zu bytes at %#lx", bytes, begin,
                         begin + bytes - a->begin - a->bytes, a->bytes, a->begin)
                : format("%zu bytes at %#lx: %s", bytes, begin, describe(begin).c_str());
    return false;
}

std::string describe(Address address) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (address < PAGE) return "a null pointer";
    if (auto it = at_or_before(blocks, address); it != blocks.end() && address < it->first + it->second.capacity)
        return format("byte %zu of the block of %zu bytes at %#lx", address - it->first, it->second.bytes, it->first);
    if (const Allocation* a = find(address))
        return format("byte %zu of the %zu bytes of %s at %#lx", address - a->begin, a->bytes, name_of(a->kind), a->begin);
    auto dead = at_or_before(freed, address);
    if (dead != freed.end() && address < dead->second.begin + dead->second.bytes)
        return format("byte %zu of freed memory, once %zu bytes at %#lx", address - dead->first, dead->second.bytes, dead->first);
    auto before = at_or_before(live, address);
    if (before != live.end() && address - before->first < before->second.bytes + (size_t(1) << 20))
        return format("%zu bytes past the end of the allocation of %zu bytes at %#lx",
                      address - before->first - before->second.bytes, before->second.bytes, before->first);
    auto after = live.upper_bound(address);
    if (after != live.end() && after->first - address < (size_t(1) << 20))
        return format("%zu bytes before the allocation of %zu bytes at %#lx", after->first - address, after->second.bytes, after->first);
    return "no device memory";
}

bool readable_slack(Address begin, size_t bytes) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto it = at_or_before(blocks, begin);
    return it != blocks.end() && begin + bytes <= it->first + std::min(it->second.capacity, it->second.bytes + BLOCK_SLACK);
}

size_t bytes_used(int device) { return used[device]; }

bool intact(Address address, std::string* reason) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    if (auto it = at_or_before(blocks, address); it != blocks.end() && !block_intact(it->first, it->second, reason)) return false;
    const Allocation* a = find(address);
    return !a || allocation_intact(*a, reason);
}

bool all_intact(std::string* reason) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    for (const auto& [begin, a] : live)
        if (!allocation_intact(a, reason)) return false;
    for (const auto& [begin, block] : blocks)
        if (!block_intact(begin, block, reason)) return false;
    return true;
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

extern "C" {

// The program's pool hands out [begin, begin + bytes) of a block of `capacity`: it becomes poison, and what lies behind
// is watched as if it were an allocation of its own. 0 if it is not device memory.
__attribute__((visibility("default"))) int alpha_test_block_taken(Address begin, size_t bytes, size_t capacity) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    std::string reason;
    if (bytes > capacity || !contains(begin, capacity, &reason)) return 0;
    blocks[begin] = {bytes, capacity};
    poison((void*)begin, bytes);
    poison((void*)(begin + bytes), watched(capacity - bytes), CANARY);
    check_freed(begin, capacity);
    check_allocated(begin, bytes);
    return 1;
}

// The block went back to the pool. 0 and alpha_test_last_error if its end was overwritten.
__attribute__((visibility("default"))) int alpha_test_block_returned(Address begin) {
    std::lock_guard<std::recursive_mutex> hold(lock);
    auto it = blocks.find(begin);
    if (it == blocks.end()) return 1;
    std::string reason;
    bool good = block_intact(begin, it->second, &reason);
    poison((void*)begin, it->second.capacity);
    check_freed(begin, it->second.capacity);
    blocks.erase(it);
    if (!good) fail(CUDA_ERROR_ILLEGAL_ADDRESS, reason);
    return good;
}

// Whether nothing was written behind any allocation or block; else 0 and alpha_test_last_error.
__attribute__((visibility("default"))) int alpha_test_memory_intact() {
    std::string reason;
    bool good = all_intact(&reason);
    if (!good) fail(CUDA_ERROR_ILLEGAL_ADDRESS, reason);
    return good;
}

}
