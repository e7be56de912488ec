#include "grid.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check.h"
#include "faults.h"
#include "fibers.h"
#include "report.h"
#include "settings.h"

namespace alpha_emulator {
namespace {

// One cp.async under way.
struct Copy {
    char* destination;
    const char* source;
    unsigned bytes, valid, group;
    Site site;
};

struct Thread : ThreadView {
    unsigned linear, warp;
    Fiber* fiber;
    // What it waits for.
    bool at_barrier;
    unsigned mask;
    Collective operation;
    const char* name;
    void* operand;
    Site site;
    // Its asynchronous copies.
    unsigned group;
    std::vector<Copy> copies;
    unsigned warp_epoch;
};

struct Warp {
    unsigned alive, ready, waiting;  // lanes: not returned; able to run; in a collective
    unsigned first;                  // its lane 0's number in the block
};

// The block's barrier.
struct Barrier {
    unsigned arrived;
    Site site;
    Vote vote;
    unsigned votes;
    int answer;
};

Thread threads[MAX_THREADS];
Warp warps[MAX_THREADS / 32];
unsigned thread_count, warp_count, warps_ready, alive;
Extent threads_laid_out_for;
Barrier barrier;
bool copies_under_way;

// The grid.
const Kernel* kernel;
const char* parameters;
uint64_t block_count, block_number, block_stride, next_block;
bool running;
std::string failure;
void* main_stack;

// The block's dynamic shared memory ends, but for alignment, where a page begins that cannot be touched.
constexpr unsigned SHARED_ALIGNMENT = 128;
char* shared_end;
unsigned dynamic_bytes;
uint64_t random_state;

uint64_t random_bits() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

Thread* current() { return static_cast<Thread*>(alpha_emulator_thread); }

// One of the set bits, by the order that threads run in.
unsigned choose(unsigned bits) {
    switch (settings().order) {
        case Order::forward: return unsigned(__builtin_ctz(bits));
        case Order::reverse: return 31 - unsigned(__builtin_clz(bits));
        case Order::seeded: break;
    }
    unsigned turn = unsigned(random_bits() >> 32) & 31;
    unsigned turned = bits >> turn | bits << ((32 - turn) & 31);
    return (unsigned(__builtin_ctz(turned)) + turn) & 31;
}

void lay_out_threads(Extent size) {
    if (!memcmp(&size, &threads_laid_out_for, sizeof size)) return;
    threads_laid_out_for = size;
    thread_count = 0;
    for (unsigned z = 0; z < size.z; ++z)
        for (unsigned y = 0; y < size.y; ++y)
            for (unsigned x = 0; x < size.x; ++x) {
                Thread& t = threads[thread_count];
                t.index = {x, y, z};
                t.lane = thread_count % 32;
                t.linear = thread_count;
                t.warp = thread_count / 32;
                ++thread_count;
            }
    warp_count = (thread_count + 31) / 32;
}

// The following block's number in the order that blocks run in; false after the last.
bool advance_block() {
    if (next_block == block_count) return false;
    uint64_t n = next_block++;
    switch (settings().order) {
        case Order::forward: block_number = n; break;
        case Order::reverse: block_number = block_count - 1 - n; break;
        case Order::seeded: block_number = (block_number + block_stride) % block_count; break;
    }
    const Extent& grid = alpha_emulator_block.grid;
    alpha_emulator_block.index = {unsigned(block_number % grid.x), unsigned(block_number / grid.x % grid.y),
                                  unsigned(block_number / grid.x / grid.y)};
    return true;
}

void forget_copies() {
    for (unsigned i = 0; i < thread_count; ++i) {
        threads[i].copies.clear();
        threads[i].group = 0;
    }
    copies_under_way = false;
}

void begin_block() {
    poison(kernel->shared_begin, size_t(kernel->shared_end - kernel->shared_begin));
    if (dynamic_bytes) poison(alpha_emulator_block.dynamic_shared, size_t(shared_end - alpha_emulator_block.dynamic_shared));
    for (unsigned w = 0; w < warp_count; ++w) {
        unsigned lanes = thread_count - w * 32;
        unsigned all = lanes >= 32 ? ~0u : (1u << lanes) - 1;
        warps[w] = {all, all, 0, w * 32};
    }
    warps_ready = warp_count == 32 ? ~0u : (1u << warp_count) - 1;
    alive = thread_count;
    barrier = {};
    if (copies_under_way) forget_copies();
    if (kernel->checked) {
        for (unsigned i = 0; i < thread_count; ++i) threads[i].warp_epoch = 0;
        check_block_begins();
    }
}

void end_block() {
    const char* slack = alpha_emulator_block.dynamic_shared + dynamic_bytes;
    for (; dynamic_bytes && slack < shared_end; ++slack)
        if ((unsigned char)*slack != POISON)
            fail_kernel(format("a write %td bytes past the end of the %u bytes of dynamic shared memory",
                               slack - alpha_emulator_block.dynamic_shared - dynamic_bytes, dynamic_bytes), {});
}

void set_ready(Warp& warp, unsigned lanes) {
    warp.ready |= lanes;
    if (warp.ready) warps_ready |= 1u << (&warp - warps);
}

void set_waiting(Warp& warp, unsigned lane) {
    warp.ready &= ~(1u << lane);
    if (!warp.ready) warps_ready &= ~(1u << (&warp - warps));
}

std::string name_site(Site site) {
    if (!site.file) return "";
    const char* slash = strrchr(site.file, '/');
    return format("%s:%d", slash ? slash + 1 : site.file, site.line);
}

// Nobody can run: a barrier that only some threads reached, or a warp primitive that lanes of its mask never reach.
[[noreturn]] void fail_deadlock() {
    std::string cause = "threads wait for each other:";
    int told = 0;
    for (unsigned w = 0; w < warp_count; ++w)
        for (unsigned lane = 0; lane < 32; ++lane) {
            if (!(warps[w].alive >> lane & 1) || told == 4) continue;
            const Thread& t = threads[w * 32 + lane];
            const Thread* before = lane ? &t - 1 : nullptr;
            if (before && warps[w].alive >> (lane - 1) & 1 && before->site.line == t.site.line) continue;
            cause += format("%s thread %u in %s at %s", told++ ? "," : "", t.linear, t.name, name_site(t.site).c_str());
        }
    fail_kernel(cause, {});
}

// All threads that have not returned are at the barrier: they go on.
void release_barrier() {
    switch (barrier.vote) {
        case Vote::none: barrier.answer = 0; break;
        case Vote::any: barrier.answer = barrier.votes != 0; break;
        case Vote::all: barrier.answer = barrier.votes == barrier.arrived; break;
        case Vote::count: barrier.answer = int(barrier.votes); break;
    }
    barrier.arrived = barrier.votes = 0;
    for (unsigned w = 0; w < warp_count; ++w) set_ready(warps[w], warps[w].alive);
    if (kernel->checked) check_interval_begins();
}

// The thread that runs next, of the same warp if one can; null when the grid is finished.
Thread* pick(unsigned warp) {
    for (;;) {
        if (!warps[warp].ready && warps_ready) warp = choose(warps_ready);
        if (warps[warp].ready) return &threads[warps[warp].first + choose(warps[warp].ready)];
        if (alive == 0) {
            end_block();
            if (!advance_block()) return nullptr;
            begin_block();
        } else if (barrier.arrived == alive) {
            release_barrier();
        } else {
            fail_deadlock();
        }
    }
}

void fiber_main();

// The calling thread stops; whoever is next runs until this one is picked again.
void yield(Thread* me) {
    Thread* next = pick(me->warp);
    if (next == me) return;
    if (!next->fiber) next->fiber = take_fiber(fiber_main);
    alpha_emulator_thread = next;
    alpha_emulator_switch(&me->fiber->stack_pointer, next->fiber->stack_pointer);
}

// Lanes of the warp wait for all of `lanes`, which have arrived: the operation is done and they go on.
void complete_collective(Warp& warp, const Thread& last, unsigned lanes) {
    void* operands[32] = {};
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        const Thread& t = threads[warp.first + unsigned(__builtin_ctz(rest))];
        if (t.operation != last.operation || t.mask != last.mask || t.site.line != last.site.line)
            fail_kernel(format("lanes of a warp meet in different places: thread %u in %s at %s with mask %#x, thread %u in "
                               "%s at %s with mask %#x", last.linear, last.name, name_site(last.site).c_str(), last.mask,
                               t.linear, t.name, name_site(t.site).c_str(), t.mask), last.site);
        operands[t.lane] = t.operand;
    }
    last.operation(operands);
    warp.waiting &= ~lanes;
    set_ready(warp, lanes);
}

// A thread returned: a collective may have waited for it alone.
void end_thread(Thread* me) {
    Warp& warp = warps[me->warp];
    --alive;
    warp.alive &= ~(1u << me->lane);
    set_waiting(warp, me->lane);
    for (unsigned rest = warp.waiting; rest; rest &= rest - 1) {
        const Thread& t = threads[warp.first + unsigned(__builtin_ctz(rest))];
        unsigned lanes = t.mask & warp.alive;
        if ((warp.waiting >> t.lane & 1) && !(lanes & ~warp.waiting)) complete_collective(warp, t, lanes);
    }
}

// Runs threads from start to end. A thread that was never switched leaves its fiber to the next: kernels without
// barriers run on one.
void fiber_main() {
    for (;;) {
        kernel->run(parameters);
        Thread* me = current();
        Fiber* fiber = me->fiber;
        me->fiber = nullptr;
        end_thread(me);
        Thread* next = pick(me->warp);
        if (next && !next->fiber) {
            next->fiber = fiber;
            alpha_emulator_thread = next;
            continue;
        }
        give_fiber(fiber);
        alpha_emulator_thread = next;
        alpha_emulator_switch(&fiber->stack_pointer, next ? next->fiber->stack_pointer : main_stack);
    }
}

void set_dynamic_shared(unsigned bytes) {
    if (!shared_end) {
        size_t size = (MAX_SHARED + 4095) / 4096 * 4096;
        void* p = mmap(nullptr, size + 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            perror("[test driver] expected to get memory for shared memory");
            abort();
        }
        mprotect(p, 4096, PROT_NONE);
        shared_end = (char*)p + 4096 + size;
        mprotect(shared_end, 4096, PROT_NONE);
    }
    dynamic_bytes = bytes;
    alpha_emulator_block.dynamic_shared = shared_end - (bytes + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT;
}

uint64_t greatest_common_divisor(uint64_t a, uint64_t b) { return b ? greatest_common_divisor(b, a % b) : a; }

void order_blocks(Extent grid) {
    block_count = uint64_t(grid.x) * grid.y * grid.z;
    next_block = 0;
    if (settings().order != Order::seeded) return;
    random_state = settings().seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
    block_number = random_bits() % block_count;
    do block_stride = block_count == 1 ? 1 : 1 + random_bits() % (block_count - 1);
    while (greatest_common_divisor(block_stride, block_count) != 1);
}

// Back to run_grid, whatever the fibers are in the middle of.
[[noreturn]] void abandon() {
    for (unsigned i = 0; i < thread_count; ++i) threads[i].fiber = nullptr;
    forget_copies();
    void* dropped;
    alpha_emulator_thread = nullptr;
    alpha_emulator_switch(&dropped, main_stack);
    abort();
}

[[noreturn]] void fail_with(const std::string& cause, const std::string& place) {
    const Extent& b = alpha_emulator_block.index;
    std::string who = format("kernel %s, block (%u,%u,%u)", kernel->name, b.x, b.y, b.z);
    if (const Thread* t = current()) who += format(", thread (%u,%u,%u)", t->index.x, t->index.y, t->index.z);
    failure = who + (place.empty() ? "" : ", " + place) + ": " + cause;
    abandon();
}

}  // namespace

Running running_thread() {
    const Thread* t = current();
    return {t->linear, t->warp_epoch};
}
bool kernel_running() { return running; }
const Kernel& running_kernel() { return *kernel; }
bool in_stack(Address address) { return in_fiber_stack(address); }
Address dynamic_shared_begin() { return Address(alpha_emulator_block.dynamic_shared); }
Address dynamic_shared_end() { return dynamic_shared_begin() + dynamic_bytes; }

void fail_kernel(const std::string& cause, Site site) {
    const Thread* t = current();
    fail_with(cause, name_site(site.file || !t ? site : t->site));
}

void fail_kernel_at(const std::string& cause, const void* instruction) { fail_with(cause, source_line(instruction)); }

bool run_grid(const Kernel& the_kernel, const char* the_parameters, Extent grid, Extent block, unsigned dynamic_shared,
              std::string* reason) {
    kernel = &the_kernel;
    parameters = the_parameters;
    alpha_emulator_block.grid = grid;
    alpha_emulator_block.size = block;
    lay_out_threads(block);
    set_dynamic_shared(dynamic_shared);
    order_blocks(grid);
    failure.clear();
    catch_faults();
    if (kernel->checked) check_grid_begins();
    advance_block();
    begin_block();
    Thread* first = pick(choose(warps_ready));
    first->fiber = take_fiber(fiber_main);
    alpha_emulator_thread = first;
    running = true;
    alpha_emulator_switch(&main_stack, first->fiber->stack_pointer);
    running = false;
    alpha_emulator_thread = nullptr;
    if (failure.empty()) return true;
    reset_fibers(fiber_main);
    *reason = failure;
    return false;
}

}  // namespace alpha_emulator

using namespace alpha_emulator;

// -- What kernels call --------------------------------------------------------------------------------------------------

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT ThreadView* alpha_emulator_thread = nullptr;
EXPORT BlockView alpha_emulator_block = {};

EXPORT int alpha_emulator_barrier(Vote vote, int predicate, const char* file, int line) {
    Thread* me = current();
    me->name = "__syncthreads";
    me->site = {file, line};
    if (barrier.arrived == 0) {
        barrier.site = me->site;
        barrier.vote = vote;
    } else if (barrier.site.line != line || barrier.vote != vote || strcmp(barrier.site.file, file)) {
        fail_kernel(format("threads of a block are at different barriers: others at %s", name_site(barrier.site).c_str()), me->site);
    }
    ++barrier.arrived;
    barrier.votes += predicate != 0;
    set_waiting(warps[me->warp], me->lane);
    yield(me);
    return barrier.answer;
}

EXPORT void alpha_emulator_collective(unsigned mask, Collective operation, void* operand, const char* name, const char* file,
                                      int line) {
    Thread* me = current();
    Warp& warp = warps[me->warp];
    me->mask = mask;
    me->operation = operation;
    me->operand = operand;
    me->name = name;
    me->site = {file, line};
    if (!(mask >> me->lane & 1)) fail_kernel(format("%s with mask %#x, without the calling lane %u", name, mask, me->lane), me->site);
    warp.waiting |= 1u << me->lane;
    unsigned lanes = mask & warp.alive;
    if (!(lanes & ~warp.waiting)) {
        complete_collective(warp, *me, lanes);
        return;
    }
    set_waiting(warp, me->lane);
    yield(me);
}

EXPORT void alpha_emulator_warp_ordered() { ++current()->warp_epoch; }

EXPORT void alpha_emulator_fence() {
    if (kernel->checked) check_fence();
}

EXPORT void alpha_emulator_copy_async(void* shared, const void* global, unsigned bytes, unsigned valid, const char* file, int line) {
    Site site = {file, line};
    if (Address(shared) % bytes || Address(global) % bytes)
        fail_kernel(format("cp.async of %u bytes from %p to %p: not aligned", bytes, global, shared), site);
    Address to = Address(shared), from = Address(global);
    const Kernel& k = *kernel;
    bool in_static = to >= Address(k.shared_begin) && to + bytes <= Address(k.shared_end);
    bool in_dynamic = to >= dynamic_shared_begin() && to + bytes <= dynamic_shared_end();
    if (!in_static && !in_dynamic) fail_kernel(format("cp.async to %p, which is not in shared memory", shared), site);
    std::string reason;
    if (valid && !contains(from, valid, &reason)) fail_kernel("cp.async from " + reason, site);
    if (k.checked) {
        alpha_emulator_access(shared, bytes, Access::write);
        if (valid) alpha_emulator_access(global, valid, Access::read);
    }
    poison(shared, bytes);
    Thread* me = current();
    me->copies.push_back({(char*)shared, (const char*)global, bytes, valid, me->group, site});
    copies_under_way = true;
}

EXPORT void alpha_emulator_commit_copies() {
    ++current()->group;
    copies_under_way = true;
}

EXPORT void alpha_emulator_wait_copies(unsigned pending) {
    Thread* me = current();
    size_t done = 0;
    // Groups are numbered in the order of their copies.
    for (; done < me->copies.size() && me->copies[done].group + pending < me->group; ++done) {
        const Copy& copy = me->copies[done];
        memcpy(copy.destination, copy.source, copy.valid);
        memset(copy.destination + copy.valid, 0, copy.bytes - copy.valid);
        if (kernel->checked) alpha_emulator_access(copy.destination, copy.bytes, Access::write);
    }
    me->copies.erase(me->copies.begin(), me->copies.begin() + long(done));
}

EXPORT void alpha_emulator_fail(const char* cause, const char* file, int line) { fail_kernel(cause, {file, line}); }

// Sets the order of blocks, warps and lanes; 0 if the text is none of forward, reverse, seed:N.
EXPORT int alpha_test_order(const char* text) { return set_order(text); }

}
