// Runs CUDA kernels on the CPU: read by the host's compiler before an unmodified kernels/*.cu.
//
// Each CUDA thread of a block is a fiber, and the block's fibers take turns on the launching OS thread. A barrier or a
// shuffle is a yield. Blocks run one after the other, and both blocks and threads in a shuffled order, anew behind every
// barrier: in index order a missing barrier goes unnoticed. Shared memory is filled with garbage before each block and
// fenced by canaries. Not modelled: registers, bank conflicts, memory ordering, anything that waits between blocks.
#pragma once
#define NTC_EMU 1

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utility>
#ifndef __x86_64__
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __align__(n) __attribute__((aligned(n)))

struct alignas(16) float4 {
    float x, y, z, w;
};
struct uint3 {
    unsigned x, y, z;
};

static inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static inline float __uint_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
// Blocks run in turn on one OS thread, so an ordinary update is an atomic one.
template <class T>
static inline T atomicAdd(T* at, T value) {
    T old = *at;
    *at = old + value;
    return old;
}
template <class T>
static inline T atomicOr(T* at, T value) {
    T old = *at;
    *at = old | value;
    return old;
}

namespace emu {

constexpr unsigned WARP = 32;
constexpr unsigned MOST_THREADS = 1024;
constexpr size_t STACK = 256 << 10;
constexpr size_t SHARED = 227 << 10;
constexpr size_t FENCE = 256;
constexpr unsigned char GARBAGE = 0xa5, CANARY = 0x5c;

struct Launch {
    uint3 grid, block;
    unsigned shared_bytes;
    uint64_t order;  // 0 = index order, else the seed of the shuffle
    char* message;   // what went wrong
    size_t message_size;
};

enum class State { Ready, Barrier, Shuffle, Done };

struct Fiber {
#ifdef __x86_64__
    void* stack_pointer;
#else
    ucontext_t context;
#endif
    char* stack;
    uint3 thread;
    State state;
    const char* file;  // where it waits
    int line;
    uint32_t mask;       // of the shuffle
    uint64_t slots[2];   // what it gave to the last two shuffles
    unsigned shuffles;   // how many it took part in
};

struct Block {
    Fiber fibers[MOST_THREADS];
    Fiber* current;
    unsigned count;
    uint3 index, block, grid;
    void (*call)(void**);
    void** parameters;
    const char* name;
#ifdef __x86_64__
    void* scheduler;
#else
    ucontext_t scheduler;
#endif
    uint64_t random;
};

static thread_local Block* self;

static inline uint64_t next_random(uint64_t* state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#ifdef __x86_64__
// Saves the callee's registers on the stack, the stack pointer at *from, and goes on at `to`.
extern "C" void ntc_emu_switch(void** from, void* to);
asm(R"(
    .text
    .local ntc_emu_switch
    .type ntc_emu_switch, @function
ntc_emu_switch:
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
)");
#endif

static inline void yield_to_scheduler() {
#ifdef __x86_64__
    ntc_emu_switch(&self->current->stack_pointer, self->scheduler);
#else
    swapcontext(&self->current->context, &self->scheduler);
#endif
}

static void fiber_main() {
    self->call(self->parameters);
    self->current->state = State::Done;
    yield_to_scheduler();
    abort();  // a fiber that is done is not resumed
}

static inline void start_fiber(Fiber& fiber) {
#ifdef __x86_64__
    // As ntc_emu_switch leaves a stack: six registers, then where to return to; the entry sees it as after a call.
    void** top = reinterpret_cast<void**>(fiber.stack + STACK - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int k = 0; k < 6; ++k) {
        *--top = nullptr;
    }
    fiber.stack_pointer = top;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
#endif
}

static inline void resume(Fiber& fiber) {
    self->current = &fiber;
#ifdef __x86_64__
    ntc_emu_switch(&self->scheduler, fiber.stack_pointer);
#else
    swapcontext(&self->scheduler, &fiber.context);
#endif
}

static inline void wait_at(State state, const char* file, int line) {
    Fiber* fiber = self->current;
    fiber->state = state;
    fiber->file = file;
    fiber->line = line;
    yield_to_scheduler();
}

template <class T>
static inline T shuffle_xor(const char* file, int line, uint32_t mask, T value, int lane_mask) {
    static_assert(sizeof(T) <= 8, "one slot");
    Fiber* fiber = self->current;
    const unsigned slot = fiber->shuffles++ % 2;
    fiber->mask = mask;
    memcpy(&fiber->slots[slot], &value, sizeof(T));
    wait_at(State::Shuffle, file, line);
    const unsigned me = (unsigned)(fiber - self->fibers);
    const unsigned other = me / WARP * WARP + ((me % WARP) ^ (unsigned)lane_mask) % WARP;
    T result = value;
    if (other < self->count && (mask >> (other % WARP) & 1u)) {
        memcpy(&result, &self->fibers[other].slots[slot], sizeof(T));
    }
    return result;
}

/// Releases a warp's shuffle where every lane of the mask has arrived. Returns whether it did; -1 for a fault.
static inline int release_shuffle(Fiber* warp, unsigned lanes, const Launch& launch) {
    for (unsigned lane = 0; lane < lanes; ++lane) {
        Fiber& first = warp[lane];
        if (first.state != State::Shuffle) {
            continue;
        }
        bool complete = true;
        for (unsigned k = 0; k < WARP; ++k) {
            if (!(first.mask >> k & 1u)) {
                continue;
            }
            if (k >= lanes || warp[k].state == State::Done) {
                snprintf(launch.message, launch.message_size,
                         "kernel %s: the shuffle at %s:%d waits for lane %u, which has returned or does not exist",
                         self->name, first.file, first.line, k);
                return -1;
            }
            complete = complete && warp[k].state == State::Shuffle && warp[k].line == first.line &&
                       warp[k].file == first.file && warp[k].mask == first.mask;
        }
        if (complete) {
            for (unsigned k = 0; k < lanes; ++k) {
                if (first.mask >> k & 1u) {
                    warp[k].state = State::Ready;
                }
            }
            return 1;
        }
    }
    return 0;
}

/// Releases whatever can go on once no fiber is ready. Returns false at the end or at a fault.
static inline bool release(const Launch& launch, bool* finished) {
    Fiber* fibers = self->fibers;
    bool any = false;
    for (unsigned first = 0; first < self->count; first += WARP) {
        const unsigned lanes = self->count - first < WARP ? self->count - first : WARP;
        int released = release_shuffle(fibers + first, lanes, launch);
        if (released < 0) {
            return false;
        }
        any = any || released > 0;
    }
    if (any) {
        return true;
    }
    Fiber* waiting = nullptr;
    for (unsigned k = 0; k < self->count; ++k) {
        Fiber& fiber = fibers[k];
        if (fiber.state == State::Done) {
            continue;
        }
        if (waiting == nullptr) {
            waiting = &fiber;
        }
        if (fiber.state != State::Barrier || fiber.line != waiting->line || fiber.file != waiting->file) {
            snprintf(launch.message, launch.message_size,
                     "kernel %s: threads diverge: thread %u waits at %s:%d (%s), thread %u at %s:%d (%s)", self->name,
                     (unsigned)(waiting - fibers), waiting->file, waiting->line,
                     waiting->state == State::Barrier ? "barrier" : "shuffle", k, fiber.file, fiber.line,
                     fiber.state == State::Barrier ? "barrier" : "shuffle");
            return false;
        }
    }
    if (waiting == nullptr) {
        *finished = true;
        return false;
    }
    for (unsigned k = 0; k < self->count; ++k) {
        if (fibers[k].state == State::Barrier) {
            fibers[k].state = State::Ready;
        }
    }
    return true;
}

static inline void shuffle_order(unsigned* order, unsigned count, uint64_t* random) {
    for (unsigned k = count; k > 1; --k) {
        unsigned other = (unsigned)(next_random(random) % k);
        unsigned kept = order[k - 1];
        order[k - 1] = order[other];
        order[other] = kept;
    }
}

static bool run_block(const Launch& launch, unsigned* order) {
    for (unsigned k = 0; k < self->count; ++k) {
        Fiber& fiber = self->fibers[k];
        const unsigned w = launch.block.x, h = launch.block.y;
        fiber.thread = {k % w, k / w % h, k / w / h};
        fiber.state = State::Ready;
        fiber.shuffles = 0;
        memset(fiber.stack, CANARY, 64);
        start_fiber(fiber);
    }
    bool finished = false;
    do {
        if (launch.order != 0) {
            shuffle_order(order, self->count, &self->random);
        }
        for (unsigned k = 0; k < self->count; ++k) {
            Fiber& fiber = self->fibers[order[k]];
            if (fiber.state == State::Ready) {
                resume(fiber);
            }
        }
    } while (release(launch, &finished));
    for (unsigned k = 0; k < self->count && finished; ++k) {
        for (unsigned i = 0; i < 64; ++i) {
            if ((unsigned char)self->fibers[k].stack[i] != CANARY) {
                snprintf(launch.message, launch.message_size, "kernel %s: thread %u overran its stack", self->name, k);
                return false;
            }
        }
    }
    return finished;
}

struct Kernel {
    const char* name;
    void (*call)(void**);
    unsigned count;
    unsigned sizes[32];
    Kernel* next;
};
static Kernel* kernels;

template <class... A>
struct Thunk {
    template <void (*F)(A...), size_t... I>
    static void unpack(void** p, std::index_sequence<I...>) {
        F(*reinterpret_cast<std::remove_reference_t<A>*>(p[I])...);
    }
    template <void (*F)(A...)>
    static void call(void** p) {
        unpack<F>(p, std::index_sequence_for<A...>{});
    }
};

struct Register {
    Kernel kernel;
    template <class... A>
    Register(const char* name, void (*call)(void**), void (*)(A...)) {
        kernel = {name, call, (unsigned)sizeof...(A), {(unsigned)sizeof(A)...}, kernels};
        kernels = &kernel;
    }
};
template <class... A>
Thunk<A...> thunk_of(void (*)(A...));

}  // namespace emu

extern "C" {
thread_local __attribute__((aligned(16))) unsigned char smem[emu::SHARED + emu::FENCE];
}

#define NTC_KERNEL(name) \
    static emu::Register emu_register_##name(#name, &decltype(emu::thunk_of(&name))::template call<&name>, &name);

#define threadIdx (emu::self->current->thread)
#define blockIdx (emu::self->index)
#define blockDim (emu::self->block)
#define gridDim (emu::self->grid)
#define __syncthreads() emu::wait_at(emu::State::Barrier, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, lanes) emu::shuffle_xor(__FILE__, __LINE__, mask, value, lanes)

// What the stand-in driver calls.
extern "C" const emu::Kernel* ntc_emu_find(const char* name) {
    for (emu::Kernel* kernel = emu::kernels; kernel != nullptr; kernel = kernel->next) {
        if (strcmp(kernel->name, name) == 0) {
            return kernel;
        }
    }
    return nullptr;
}

extern "C" int ntc_emu_launch(const emu::Kernel* kernel, const emu::Launch* launch, void** parameters) {
    using namespace emu;
    static thread_local Block* block = nullptr;
    if (block == nullptr) {
        block = static_cast<Block*>(calloc(1, sizeof(Block)));
    }
    self = block;
    block->count = launch->block.x * launch->block.y * launch->block.z;
    for (unsigned k = 0; k < block->count; ++k) {
        if (block->fibers[k].stack == nullptr) {
            void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (stack == MAP_FAILED) {
                snprintf(launch->message, launch->message_size, "no memory for the emulation's stacks");
                return 1;
            }
            block->fibers[k].stack = static_cast<char*>(stack);
        }
    }
    block->call = kernel->call;
    block->parameters = parameters;
    block->name = kernel->name;
    block->block = launch->block;
    block->grid = launch->grid;
    block->random = launch->order;
    const uint64_t blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z;
    unsigned order[MOST_THREADS];
    for (unsigned k = 0; k < block->count; ++k) {
        order[k] = k;
    }
    // A walk through all blocks by a step without a common divisor is a cheap shuffle of any number of them.
    uint64_t step = 1, first = 0;
    if (launch->order != 0 && blocks > 1) {
        first = next_random(&block->random) % blocks;
        do {
            step = next_random(&block->random) % blocks;
            uint64_t a = blocks, b = step;
            while (b != 0) {
                uint64_t rest = a % b;
                a = b;
                b = rest;
            }
            if (a == 1 && step != 0) {
                break;
            }
        } while (true);
    }
    for (uint64_t n = 0; n < blocks; ++n) {
        const uint64_t at = (first + n * step) % blocks;
        const uint64_t w = launch->grid.x, h = launch->grid.y;
        block->index = {(unsigned)(at % w), (unsigned)(at / w % h), (unsigned)(at / w / h)};
        memset(smem, GARBAGE, launch->shared_bytes);
        memset(smem + launch->shared_bytes, CANARY, FENCE);
        if (!run_block(*launch, order)) {
            return 1;
        }
        for (size_t k = 0; k < FENCE; ++k) {
            if (smem[launch->shared_bytes + k] != CANARY) {
                snprintf(launch->message, launch->message_size,
                         "kernel %s: wrote %zu bytes behind its %u bytes of shared memory", kernel->name, k,
                         launch->shared_bytes);
                return 1;
            }
        }
    }
    return 0;
}
