#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace alpha_emulator {
namespace {

[[noreturn]] void reject(const char* name, const char* text, const char* expected) {
    fprintf(stderr, "[test driver] expected %s in %s, got \"%s\"\n", expected, name, text);
    _exit(2);
}

bool parse_order(const char* text, Settings& s) {
    char* end = nullptr;
    if (!strcmp(text, "forward")) {
        s.order = Order::forward;
    } else if (!strcmp(text, "reverse")) {
        s.order = Order::reverse;
    } else if (!strncmp(text, "seed:", 5) && text[5]) {
        s.order = Order::seeded;
        s.seed = strtoull(text + 5, &end, 10);
        return *end == 0;
    } else {
        return false;
    }
    return true;
}

size_t parse_bytes(const char* name, const char* text) {
    char* end = nullptr;
    double value = strtod(text, &end);
    const char* units = "KMGT";
    const char* unit = *end ? strchr(units, *end) : nullptr;
    size_t bytes = size_t(value * (unit ? double(size_t(1) << (10 * (unit - units + 1))) : 1.0));
    if (end == text || (*end && (!unit || end[1])) || bytes == 0) reject(name, text, "bytes such as 64M");
    return bytes;
}

int parse_count(const char* name, const char* text, int highest) {
    char* end = nullptr;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 0 || value > highest) reject(name, text, "a small number");
    return int(value);
}

Settings read() {
    Settings s;
    if (const char* text = getenv("ALPHA_EMULATOR_MEMORY")) s.memory = parse_bytes("ALPHA_EMULATOR_MEMORY", text);
    if (const char* text = getenv("ALPHA_EMULATOR_ORDER"))
        if (!parse_order(text, s)) reject("ALPHA_EMULATOR_ORDER", text, "forward, reverse or seed:N");
    if (const char* text = getenv("ALPHA_EMULATOR_DEVICES")) s.devices = parse_count("ALPHA_EMULATOR_DEVICES", text, 64);
    if (const char* text = getenv("ALPHA_EMULATOR_MULTIPROCESSORS"))
        s.multiprocessors = parse_count("ALPHA_EMULATOR_MULTIPROCESSORS", text, 1024);
    if (const char* text = getenv("ALPHA_EMULATOR_CAPABILITY"))
        if (sscanf(text, "%d.%d", &s.major, &s.minor) != 2) reject("ALPHA_EMULATOR_CAPABILITY", text, "a capability such as 9.0");
    if (const char* text = getenv("ALPHA_EMULATOR_STREAMS")) {
        s.deferred = !strcmp(text, "deferred");
        if (!s.deferred && strcmp(text, "immediate")) reject("ALPHA_EMULATOR_STREAMS", text, "immediate or deferred");
    }
    return s;
}

}  // namespace

Settings& settings() {
    static Settings the = read();
    return the;
}

bool set_order(const char* text) { return parse_order(text, settings()); }

}  // namespace alpha_emulator
