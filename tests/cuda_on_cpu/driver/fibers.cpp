#include "fibers.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#if !defined(__x86_64__)
#error "the test driver needs alpha_emulator_switch written for this processor"
#endif

asm(R"(.text
.globl alpha_emulator_switch
.hidden alpha_emulator_switch
.type alpha_emulator_switch, @function
alpha_emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size alpha_emulator_switch, .-alpha_emulator_switch
)");

namespace alpha_emulator {
namespace {

constexpr size_t STACK = 256 << 10;
constexpr size_t MOST = 1024 + 1;

char* stacks;  // of all fibers, one behind the other
std::vector<Fiber*> all, waiting;

// A stack on which the switch finds zeros for six registers and `entry` to return to.
void begin(Fiber& fiber, void (*entry)(), size_t number) {
    // Different offsets, else the tops of all stacks compete for the same lines of the first-level cache.
    void** top = (void**)(fiber.stack + STACK - 64 - number * 320 % 8192 / 64 * 64);
    *--top = nullptr;
    *--top = (void*)entry;
    top -= 6;
    memset(top, 0, 6 * sizeof(void*));
    fiber.stack_pointer = top;
}

}  // namespace

Fiber* take_fiber(void (*entry)()) {
    if (!waiting.empty()) {
        Fiber* fiber = waiting.back();
        waiting.pop_back();
        return fiber;
    }
    if (!stacks) {
        void* p = mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            perror("[test driver] expected to reserve the threads' stacks");
            abort();
        }
        stacks = (char*)p;
    }
    auto* fiber = new Fiber{nullptr, stacks + all.size() * STACK};
    mprotect(fiber->stack, 4096, PROT_NONE);  // an overflow faults
    begin(*fiber, entry, all.size());
    all.push_back(fiber);
    return fiber;
}

void give_fiber(Fiber* fiber) { waiting.push_back(fiber); }

void reset_fibers(void (*entry)()) {
    for (size_t i = 0; i < all.size(); ++i) begin(*all[i], entry, i);
    waiting = all;
}

bool in_fiber_stack(Address address) { return stacks && address >= Address(stacks) && address < Address(stacks) + MOST * STACK; }

}  // namespace alpha_emulator
