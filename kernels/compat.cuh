// What every kernel starts with: integer names, the block size, and the marks that the emulation reads.
//
// NVRTC has no standard headers, so nothing is included. Under NTC_EMU the host's compiler has read
// host/cuda_emu.h first, which gives the CUDA names a meaning on the CPU.
#pragma once

#ifndef NTC_EMU
/// Registers a kernel with the emulation; nothing on a GPU.
#define NTC_KERNEL(name)
#endif

#ifdef NTC_EMU
#define NTC_OUTLINE
#define NTC_RELOAD()
#else
/// A function that keeps its own code: for what is rarely used and would be copied many times.
#define NTC_OUTLINE __noinline__
/// Stands at the top of loops that read weights: without it the compiler reads all of them before the loop, which takes far
/// more registers than there are.
#define NTC_RELOAD() asm volatile("" ::: "memory")
#endif

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

/// Threads of every block: a multiple of the warp.
#define NTC_THREADS 128

/// Sums `value` over the `lanes` neighbouring threads (a power of two up to 32) and gives it to all of them. Every thread
/// of the warp must take part.
__device__ __forceinline__ i64 sum_lanes(i64 value, int lanes) {
    for (int offset = 1; offset < lanes; offset *= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    }
    return value;
}

/// Adds the whole block's values to `*into`; integers, so the order does not matter. Every thread must take part.
__device__ __forceinline__ void add_to(u64* into, i64 value) {
    value = sum_lanes(value, 32);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(into, (u64)value);
    }
}
