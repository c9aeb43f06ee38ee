// A latent step: both signs of every pair decoded, and each texel's loss difference credited to the latent texels it reads.
// Twins: src/backend/cpu/latent.rs, src/estimate/latent_es.rs.
#include "compat.cuh"
#include "tile.cuh"

/// The levels that a pair perturbs, as bits. `noisy` are those that take noise; with `alternate` a pair takes one in turn.
__device__ __forceinline__ u32 perturbed_levels(u32 noisy, int alternate, u32 pair, u32 step) {
    if (!alternate || noisy != 3u) {
        return noisy;
    }
    return 1u << (u32)(((u64)pair + step) % 2u);
}

/// Noise of a group of pairs. Twin: src/backend/cuda/launch.rs, Noise.
struct Noise {
    const float* e[2];  // [level]: [pair][y][x][channel]
    u64 values[2];      // floats of a pair, by level
    float sigma[2];
    u32 noisy;
    u32 alternate;
    u32 first_pair;
    u32 step;
};
static_assert(sizeof(Noise) == 56, "src/backend/cuda/launch.rs has the same layout");

/// d[pair][texel] = L+ - L- in units of 2^-36; a block a tile, blockIdx.y the pair. A thread holds both signs of a texel, so
/// that a weight read serves both.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
latent_es_pairs(const Scene scene, const float* packed, const Noise noise, int tile_w, int tile_h, i64* d) {
    extern __shared__ __align__(16) unsigned char smem[];
    float* shared = reinterpret_cast<float*>(smem);
    const float* w = stage(packed, shared);
    float* outs = shared + shape::STAGE;  // [sign][output][point]
    const Tile tile = tile_of(scene, tile_w, tile_h, blockIdx.x);
    const u32 row = blockIdx.y;
    const u32 levels = perturbed_levels(noise.noisy, noise.alternate, noise.first_pair + row, noise.step);
    for (int point = threadIdx.x; point < tile.points; point += NTC_THREADS) {
        NTC_RELOAD();
        int px, py;
        if (!texel_of(scene, tile, point, px, py)) {
            continue;
        }
        float x[1][shape::INPUTS], e1[1][shape::CHANNELS1 + 1], e0[1][shape::CHANNELS0];
        read_inputs(scene, px, py, x[0]);
        if constexpr (shape::CHANNELS1 > 0) {
            if (levels & 2u) {
                sample<shape::CHANNELS1>(scene.level[1], noise.e[1] + row * noise.values[1], noise.sigma[1], px, py,
                                         e1[0]);
            }
        }
        if (levels & 1u) {
            sample<shape::CHANNELS0>(scene.level[0], noise.e[0] + row * noise.values[0], noise.sigma[0], px, py, e0[0]);
        }
        float a[2][shape::FIRST], out[2][shape::OUTPUTS];
#pragma unroll shape::UNROLL_UNITS
        for (int u = 0; u < shape::FIRST; ++u) {
            const float* weights = w + u * shape::stride(0);
            float base[1] = {w[shape::biases_at(0) + u]}, delta[1] = {0.0f};
            dot<0, shape::INPUTS>(weights, x, base);
            if constexpr (shape::CHANNELS1 > 0) {
                if (levels & 2u) {
                    dot<shape::POSITION, shape::CHANNELS1>(weights, e1, delta);
                }
            }
            if (levels & 1u) {
                dot<shape::POSITION + shape::CHANNELS1, shape::CHANNELS0>(weights, e0, delta);
            }
            a[0][u] = base[0] + delta[0];
            a[1][u] = base[0] - delta[0];
        }
        activate(scene, a);
        forward_from<0, 2>(scene, w, a, out);
#pragma unroll shape::UNROLL_UNITS
        for (int c = 0; c < shape::OUTPUTS; ++c) {
            outs[c * tile.points + point] = out[0][c];
            outs[(shape::OUTPUTS + c) * tile.points + point] = out[1][c];
        }
    }
    __syncthreads();
    const i64 texels = (i64)scene.width * scene.height;
    for (int k = threadIdx.x; k < tile.w * tile.h; k += NTC_THREADS) {
        const int px = tile.x0 + k % tile.w, py = tile.y0 + k / tile.w;
        const i64 texel = (i64)py * scene.width + px;
        i64 loss[2];
        for (int sign = 0; sign < 2; ++sign) {
            float sum = 0.0f;
            for (int c = 0; c < shape::OUTPUTS; ++c) {
                const float* points = outs + (sign * shape::OUTPUTS + c) * tile.points;
                const float error = finished(scene, tile, points, px, py) - scene.target[c * texels + texel];
                sum = fmaf(scene.loss_weights[c] * error, error, sum);
            }
            loss[sign] = (i64)round_loss(sum);
        }
        d[row * texels + texel] = loss[0] - loss[1];
    }
}
NTC_KERNEL(latent_es_pairs)

/// Texels that credit a level's latent texels, as half-open ranges [first, last). Twin: src/backend/cuda/launch.rs, Support.
struct Support {
    const u32* own_x;   // [latent column][2]
    const u32* own_y;   // [latent row][2]
    const u32* ring_x;  // the same, widened by the deblocking ring; equal to own_x without deblocking
    const u32* ring_y;
    int width;          // of the level
    int height;
    int channels;
    int level;
};
static_assert(sizeof(Support) == 48, "src/backend/cuda/launch.rs has the same layout");

/// g[latent texel][channel] += credit e for the group's pairs in order, starting at 0 if `fresh`. The credit of a latent
/// texel is the sum of d over its support: own.x x ring.y and ring.x x own.y, each texel once. `lanes` threads (a power of
/// two up to NTC_THREADS) share a latent texel.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
latent_es_gather(const Support support, const Noise noise, const i64* d, u32 pairs, int width, u64 texels, int lanes,
                 int fresh, float* g) {
    extern __shared__ __align__(16) unsigned char smem[];
    i64* parts = reinterpret_cast<i64*>(smem);
    const int lane = (int)threadIdx.x % lanes, slot = (int)threadIdx.x - lane;
    const i64 cells = (i64)support.width * support.height;
    const i64 cell = ((i64)blockIdx.x * NTC_THREADS + slot) / lanes;
    const bool counts = cell < cells;
    u32 x0 = 0, x1 = 0, y0 = 0, y1 = 0, own_x0 = 0, own_x1 = 0, own_y0 = 0, own_y1 = 0;
    if (counts) {
        const i64 i = cell % support.width, j = cell / support.width;
        x0 = support.ring_x[2 * i], x1 = support.ring_x[2 * i + 1];
        y0 = support.ring_y[2 * j], y1 = support.ring_y[2 * j + 1];
        own_x0 = support.own_x[2 * i], own_x1 = support.own_x[2 * i + 1];
        own_y0 = support.own_y[2 * j], own_y1 = support.own_y[2 * j + 1];
    }
    const u32 across = x1 - x0;
    const u64 area = (u64)across * (y1 - y0);
    for (u32 row = 0; row < pairs; ++row) {
        const u32 levels = perturbed_levels(noise.noisy, noise.alternate, noise.first_pair + row, noise.step);
        if (!(levels >> support.level & 1u)) {
            continue;
        }
        i64 sum = 0;
        for (u64 k = lane; k < area; k += lanes) {
            const u32 px = x0 + (u32)(k % across), py = y0 + (u32)(k / across);
            const bool in_x = px >= own_x0 && px < own_x1, in_y = py >= own_y0 && py < own_y1;
            if (in_x || in_y) {
                sum += d[row * texels + (u64)py * width + px];
            }
        }
        parts[threadIdx.x] = sum;
        __syncthreads();
        for (int half = lanes / 2; half > 0; half /= 2) {
            if (lane < half) {
                parts[threadIdx.x] += parts[threadIdx.x + half];
            }
            __syncthreads();
        }
        const float credit = (float)parts[slot];
        if (counts) {
            const i64 at = cell * support.channels;
            const float* e = noise.e[support.level] + row * noise.values[support.level] + at;
            for (int c = lane; c < support.channels; c += lanes) {
                g[at + c] = fmaf(credit, e[c], fresh ? 0.0f : g[at + c]);
            }
        }
        fresh = 0;
        __syncthreads();
    }
    // No pair of the group perturbs this level.
    if (fresh && counts) {
        for (int c = lane; c < support.channels; c += lanes) {
            g[cell * support.channels + c] = 0.0f;
        }
    }
}
NTC_KERNEL(latent_es_gather)
