// Texels picked for a decoder step, gathered once and read by every perturbed decoder. Twin: src/estimate/minibatch.rs.
#pragma once
#include "mlp.cuh"

/// A gathered chunk. Twin: src/backend/cuda/launch.rs, Batch. Everything is planar, `stride` texels apart.
struct Batch {
    const float* inputs;  // [point][input in summation order][texel]; 5 points with deblocking: itself, left, right, up, down
    const float* target;  // [output][texel]
    const float* wh;      // [texel] deblocking weights
    const float* wv;
    u32 count;
    u32 stride;
};
static_assert(sizeof(Batch) == 40, "src/backend/cuda/launch.rs has the same layout");

/// Points that are decoded for a texel.
__device__ __forceinline__ int points_of(const Scene& scene) {
    return scene.deblock_x != nullptr ? 5 : 1;
}

/// Gathers texels `texels[i]`, or first + i where `texels` is null. blockIdx.y is the point.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gather_batch(const Scene scene, const u32* texels, u32 first, u32 count, u32 stride, float* inputs, float* target,
             float* wh, float* wv) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const u32 texel = texels != nullptr ? texels[i] : first + i;
    int px = (int)(texel % (u32)scene.width), py = (int)(texel / (u32)scene.width);
    const int point = (int)blockIdx.y;
    if (point == 0) {
        for (int c = 0; c < shape::OUTPUTS; ++c) {
            target[(i64)c * stride + i] = scene.target[(i64)c * scene.width * scene.height + texel];
        }
        if (scene.deblock_x != nullptr) {
            wh[i] = scene.deblock_x[px];
            wv[i] = scene.deblock_y[py];
        }
    }
    px = point == 1 ? (px > 0 ? px - 1 : 0) : px;
    px = point == 2 ? (px + 1 < scene.width ? px + 1 : scene.width - 1) : px;
    py = point == 3 ? (py > 0 ? py - 1 : 0) : py;
    py = point == 4 ? (py + 1 < scene.height ? py + 1 : scene.height - 1) : py;
    float x[shape::INPUTS];
    read_inputs(scene, px, py, x);
#pragma unroll shape::UNROLL_UNITS
    for (int k = 0; k < shape::INPUTS; ++k) {
        inputs[((i64)point * shape::INPUTS + k) * stride + i] = x[k];
    }
}
NTC_KERNEL(gather_batch)
