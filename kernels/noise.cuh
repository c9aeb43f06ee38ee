// Twins of src/noise/hash.rs: Philox4x32-10 and Box-Muller normals.
#pragma once
#include "math.cuh"

/// Four uniform words for the counter (index, pair, step, stream).
__device__ __forceinline__ void philox(u32 k0, u32 k1, u32 (&c)[4]) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 a = (u64)c[0] * 0xd2511f53u;
        const u64 b = (u64)c[2] * 0xcd9e8d57u;
        c[0] = (u32)(b >> 32) ^ c[1] ^ k0;
        c[1] = (u32)b;
        c[2] = (u32)(a >> 32) ^ c[3] ^ k1;
        c[3] = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/// Two standard normals from two words.
__device__ __forceinline__ void box_muller(u32 w1, u32 w2, float& a, float& b) {
    const float step = 1.0f / 16777216.0f;
    const float k1 = (float)(int)(w1 >> 8);
    const float k2 = (float)(int)(w2 >> 8);
    const float r = sqrtf(-2.0f * math::ln_normal(fmaf(k1, step, step)));
    float sin, cos;
    math::sin_cos_turns(k2 * step, sin, cos);
    a = r * cos;
    b = r * sin;
}
