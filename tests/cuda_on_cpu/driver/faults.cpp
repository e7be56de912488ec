#include "faults.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "grid.h"
#include "modules.h"
#include "report.h"

namespace alpha_emulator {
namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t STACK = 256 << 10;

struct sigaction previous[64];
struct {
    int signal;
    bool known;  // the address of a memory fault
    const void* address;
    const void* instruction;
} fault;
char* recovery_stack;

// Runs after the handler, on a stack of its own: the thread's may have overflowed.
[[noreturn]] void recover() {
    std::string cause;
    switch (fault.signal) {
        case SIGFPE: cause = "an integer division by zero"; break;
        case SIGILL: cause = "a trap: code that cannot be reached was"; break;
        default:
            if (!fault.known)
                cause = "an access to an address that no pointer can have: poison used as a pointer?";
            else if (in_stack(Address(fault.address)))
                cause = "a stack overflow: too large local arrays or endless recursion";
            else if (size_t beyond = Address(fault.address) - dynamic_shared_end(); beyond < 8192)
                cause = format("an access %zu bytes past the end of dynamic shared memory", beyond);
            else
                cause = format("an illegal access to %p: %s", fault.address, describe(Address(fault.address)).c_str());
    }
    fail_kernel_at(cause, (const char*)fault.instruction + 1);  // as if it had been called from
}

void on_signal(int number, siginfo_t* info, void* context) {
    if (!kernel_running()) {
        // Not a kernel's: what was installed before decides.
        sigaction(number, &previous[number], nullptr);
        return;
    }
    auto& registers = ((ucontext_t*)context)->uc_mcontext.gregs;
    fault = {number, info->si_code != SI_KERNEL, info->si_addr, (const void*)registers[REG_RIP]};
    registers[REG_RSP] = greg_t(recovery_stack + STACK - 64 - 8);
    registers[REG_RIP] = greg_t(recover);
}

}  // namespace

void catch_faults() {
    static thread_local bool has_stack = false;
    if (!has_stack) {
        has_stack = true;
        stack_t stack = {};
        stack.ss_size = 64 << 10;
        stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sigaltstack(&stack, nullptr);
    }
    if (!recovery_stack)
        recovery_stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int number : SIGNALS) {
        // Others (Python's faulthandler) install theirs at any time, so it is looked up again for each grid.
        struct sigaction now;
        sigaction(number, nullptr, &now);
        if (now.sa_sigaction == on_signal) continue;
        previous[number] = now;
        struct sigaction ours = {};
        ours.sa_sigaction = on_signal;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        sigaction(number, &ours, nullptr);
    }
}

std::string source_line(const void* instruction) {
    const void* base = nullptr;
    std::string file = module_file(instruction, &base);
    if (file.empty()) return "";
    // The instruction before a return address is the one that was called from.
    std::string command = format("addr2line -i -e %s %#lx 2>/dev/null", file.c_str(), Address(instruction) - Address(base) - 1);
    std::string line;
    if (FILE* output = popen(command.c_str(), "r")) {
        char text[512];
        if (fgets(text, sizeof text, output)) line = text;
        pclose(output);
    }
    unlink(file.c_str());
    while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
    if (size_t note = line.find(" (disc"); note != std::string::npos) line.resize(note);
    if (size_t slash = line.rfind('/'); slash != std::string::npos) line.erase(0, slash + 1);
    return line.find('?') == std::string::npos ? line : "";
}

}  // namespace alpha_emulator
