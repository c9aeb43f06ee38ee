// What a decode reads besides the decoder's weights: tables made on the host (src/model/decode.rs, Geometry), latents,
// targets. Twins: src/model/decode.rs (sample, read_features, deblock_one), src/model/loss.rs.
#pragma once
#include "compat.cuh"

/// One latent level and its taps. Twin: src/backend/cuda/launch.rs, Level.
struct Level {
    const float* values;  // [y][x][channel], channel fastest
    const u32* x0;        // [px] first column read
    const u32* x1;        // [px] second column read
    const float* fx;      // [px] weight of the second column
    const u32* y0;        // the same along y
    const u32* y1;
    const float* fy;
    int width;
    int nearest;
};
static_assert(sizeof(Level) == 64, "src/backend/cuda/launch.rs has the same layout");

/// Twin: src/backend/cuda/launch.rs, Scene.
struct Scene {
    Level level[2];
    const float* feature_x;      // [row][px]: the x tables of all features, one after the other
    const float* feature_y;      // [feature][py]
    const u32* feature_first;    // [feature] first row of feature_x
    const u32* feature_rows;     // [feature] rows: the table of py is number py % rows
    const float* deblock_x;      // [px] weight of the horizontal filter; null without deblocking
    const float* deblock_y;      // [py]
    const float* target;         // [output][texel]
    const float* loss_weights;   // [output]
    int width;
    int height;
    int source_width;
    int source_height;
    int activation;  // 0 piecewise linear with slope `leak`, 1 tanh, 2 sine
    float leak;
    int clamp;
    int reserved;
};
static_assert(sizeof(Scene) == 224, "src/backend/cuda/launch.rs has the same layout");

/// Reads `C` neighbouring floats; four at once where that is aligned.
template <int C>
__device__ __forceinline__ void load_channels(const float* from, float (&to)[C]) {
    if constexpr (C % 4 == 0) {
#pragma unroll
        for (int c = 0; c < C; c += 4) {
            const float4 four = *reinterpret_cast<const float4*>(from + c);
            to[c] = four.x;
            to[c + 1] = four.y;
            to[c + 2] = four.z;
            to[c + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int c = 0; c < C; ++c) {
            to[c] = from[c];
        }
    }
}

/// The `C` channels that texel (px, py) reads from `values`, laid out as the level and multiplied by `scale` first.
template <int C>
__device__ __forceinline__ void sample(const Level& level, const float* values, float scale, int px, int py,
                                       float* out) {
    const i64 row0 = (i64)level.y0[py] * level.width;
    const u32 i0 = level.x0[px];
    float a[C];
    load_channels<C>(values + (row0 + i0) * C, a);
    if (level.nearest) {
#pragma unroll
        for (int c = 0; c < C; ++c) {
            out[c] = a[c] * scale;
        }
        return;
    }
    const i64 row1 = (i64)level.y1[py] * level.width;
    const u32 i1 = level.x1[px];
    float b[C], d[C], e[C];
    load_channels<C>(values + (row0 + i1) * C, b);
    load_channels<C>(values + (row1 + i0) * C, d);
    load_channels<C>(values + (row1 + i1) * C, e);
    const float fx = level.fx[px], fy = level.fy[py];
    const float gx = 1.0f - fx, gy = 1.0f - fy;
    const float w0 = gx * gy, w1 = fx * gy, w2 = gx * fy, w3 = fx * fy;
#pragma unroll
    for (int c = 0; c < C; ++c) {
        float sum = w0 * (a[c] * scale);
        sum = fmaf(w1, b[c] * scale, sum);
        sum = fmaf(w2, d[c] * scale, sum);
        out[c] = fmaf(w3, e[c] * scale, sum);
    }
}

/// One texel's position features.
template <int N>
__device__ __forceinline__ void read_features(const Scene& scene, int px, int py, float* out) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
        const u32 row = scene.feature_first[k] + (u32)py % scene.feature_rows[k];
        out[k] = scene.feature_x[(i64)row * scene.width + px] * scene.feature_y[(i64)k * scene.height + py];
    }
}

/// The deblocking filter's mean step: centre, neighbours along x (a, b) and y (d, e), the weights of both axes.
__device__ __forceinline__ float deblock_one(float c, float a, float b, float d, float e, float wh, float wv) {
    const float hc = fmaf(wh, ((a + c) + b) / 3.0f - c, c);
    const float vc = fmaf(wv, ((d + c) + e) / 3.0f - c, c);
    const float sum = wh + wv;
    return 0.0f < sum ? fmaf(wh, hc, wv * vc) / sum : c;
}

/// A loss in [0, 2] as an integer-valued float in units of 2^-36, halves to even; NaN becomes the largest value.
__device__ __forceinline__ float round_loss(float loss) {
    const float cap = 137438953472.0f;
    float v = loss * 68719476736.0f;
    v = v <= cap ? v : cap;
    const float whole = 8388608.0f;
    return v < whole ? (v + whole) - whole : v;
}
