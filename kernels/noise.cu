// Random numbers of a step, made once and read by the kernels that use them. Twin: src/noise/hash.rs.
#include "compat.cuh"
#include "noise.cuh"

/// Normals number start .. start + count of pairs first_pair + blockIdx.y, one row of `stride` floats a pair. A thread makes
/// the four numbers of one counter.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
fill_normals(float* out, u64 count, u64 start, u64 stride, u32 key0, u32 key1, u32 stream, u32 step, u32 first_pair) {
    const u64 index = start / 4 + (u64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (index * 4 >= start + count) {
        return;
    }
    u32 c[4] = {(u32)index, first_pair + blockIdx.y, step, stream};
    philox(key0, key1, c);
    float normals[4];
    box_muller(c[0], c[1], normals[0], normals[1]);
    box_muller(c[2], c[3], normals[2], normals[3]);
    float* row = out + (u64)blockIdx.y * stride;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 n = index * 4 + k;
        if (n >= start && n < start + count) {
            row[n - start] = normals[k];
        }
    }
}
NTC_KERNEL(fill_normals)

/// `count` integers in 0..bound: numbers 0 .. count of (stream, step), pair 0.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
fill_indices(u32* out, u32 count, u32 bound, u32 key0, u32 key1, u32 stream, u32 step) {
    const u32 index = blockIdx.x * NTC_THREADS + threadIdx.x;
    u32 c[4] = {index, 0, step, stream};
    philox(key0, key1, c);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const u64 n = (u64)index * 4 + k;
        if (n < count) {
            out[n] = (u32)(((u64)c[k] * bound) >> 32);
        }
    }
}
NTC_KERNEL(fill_indices)
