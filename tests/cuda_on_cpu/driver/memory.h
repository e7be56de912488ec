// Device and pinned memory: pages of one reserved range of addresses. Fresh memory is poison (0xff: NaN), each
// allocation ends in front of pages that cannot be touched, and addresses are not used again before the range is
// through, so that a use of freed memory faults too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace alpha_emulator {

typedef uint64_t Address;

constexpr int POISON = 0xff;

enum class Kind { device, pinned, registered, global };

struct Allocation {
    Address begin;
    size_t bytes;
    Kind kind;
    int device;
};

// The whole range; [begin, end).
Address arena_begin();
Address arena_end();

// 0 where the device has too little left.
Address allocate(size_t bytes, Kind kind, int device);
// Takes memory that others own into the account: registered host memory, a module's variables.
void adopt(Address begin, size_t bytes, Kind kind);
// False if nothing of that kind begins there.
bool release(Address begin, Kind kind);

const Allocation* find(Address address);
// Whether the bytes lie in one live allocation; else `reason` says what is there.
bool contains(Address begin, size_t bytes, std::string* reason);
// What lies at an address, for messages.
std::string describe(Address address);

// Whether the bytes lie in a block of the program's memory pool or in the slack behind it that may be read.
bool readable_slack(Address begin, size_t bytes);

size_t bytes_used(int device);
// Bytes that kernels may not write to: behind each allocation and block; the reason if somebody did.
bool intact(Address address, std::string* reason);
bool all_intact(std::string* reason);

// Writes poison without the C library's memset, which sanitizers watch.
void poison(void* begin, size_t bytes, int value = POISON);

}  // namespace alpha_emulator
