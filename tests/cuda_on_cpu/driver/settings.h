// What the environment says, read once when the library is loaded.
#pragma once
#include <cstddef>
#include <cstdint>

namespace alpha_emulator {

enum class Order { forward, reverse, seeded };

struct Settings {
    size_t memory = size_t(8) << 30;  // ALPHA_EMULATOR_MEMORY: bytes of a device, "64M"
    Order order = Order::forward;     // ALPHA_EMULATOR_ORDER: forward, reverse, seed:N, of blocks, warps and lanes
    uint64_t seed = 0;
    int devices = 1;                  // ALPHA_EMULATOR_DEVICES
    int major = 9, minor = 0;         // ALPHA_EMULATOR_CAPABILITY: "8.0"
    int multiprocessors = 4;          // ALPHA_EMULATOR_MULTIPROCESSORS: few, so that grid-stride loops go round
    bool deferred = false;            // ALPHA_EMULATOR_STREAMS=deferred: work waits in its stream until someone waits for it
};

Settings& settings();
// Reads "forward", "reverse" or "seed:N"; false if it is none of them.
bool set_order(const char* text);

}  // namespace alpha_emulator
