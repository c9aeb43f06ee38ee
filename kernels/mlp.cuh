// The decoder, specialised to its shape. Twin: src/model/mlp.rs.
//
// NTC_WIDTHS lists inputs, units of the hidden layers, outputs; NTC_POSITION, NTC_CHANNELS0 and NTC_CHANNELS1 are the inputs
// by origin. In summation order inputs are position features, level 1, level 0. Packed parameters: layer by layer, a row a
// unit, padded to whole float4, then the biases, padded likewise. A pre-activation starts at its bias and adds inputs in
// summation order, one fused multiply-add each.
#pragma once
#include "math.cuh"
#include "scene.cuh"

namespace shape {

constexpr int WIDTH[] = {NTC_WIDTHS};
constexpr int LAYERS = (int)(sizeof(WIDTH) / sizeof(WIDTH[0])) - 1;
constexpr int INPUTS = WIDTH[0];
constexpr int OUTPUTS = WIDTH[LAYERS];
/// Units of the first hidden layer.
constexpr int FIRST = WIDTH[1];
constexpr int POSITION = NTC_POSITION;
constexpr int CHANNELS0 = NTC_CHANNELS0;
constexpr int CHANNELS1 = NTC_CHANNELS1;
static_assert(POSITION + CHANNELS0 + CHANNELS1 == INPUTS, "inputs by origin");
static_assert(LAYERS >= 2, "at least one hidden layer");

__host__ __device__ constexpr int whole4(int n) {
    return (n + 3) / 4 * 4;
}
/// Distance from one unit's row to the next.
__host__ __device__ constexpr int stride(int layer) {
    return whole4(WIDTH[layer]);
}
/// First weight of a layer among the packed parameters.
__host__ __device__ constexpr int weights_at(int layer) {
    int at = 0;
    for (int k = 0; k < layer; ++k) {
        at += WIDTH[k + 1] * stride(k) + whole4(WIDTH[k + 1]);
    }
    return at;
}
/// First bias of a layer among the packed parameters.
__host__ __device__ constexpr int biases_at(int layer) {
    return weights_at(layer) + WIDTH[layer + 1] * stride(layer);
}
/// First weight of a layer in parameter order, which is not padded.
__host__ __device__ constexpr int parameters_at(int layer) {
    int at = 0;
    for (int k = 0; k < layer; ++k) {
        at += (WIDTH[k] + 1) * WIDTH[k + 1];
    }
    return at;
}
__host__ __device__ constexpr int widest() {
    int most = 0;
    for (int k = 0; k <= LAYERS; ++k) {
        most = WIDTH[k] > most ? WIDTH[k] : most;
    }
    return most;
}
/// Units of the hidden layers before `layer`.
__host__ __device__ constexpr int units_before(int layer) {
    int at = 0;
    for (int k = 0; k < layer; ++k) {
        at += WIDTH[k + 1];
    }
    return at;
}
constexpr int PACKED = weights_at(LAYERS);
constexpr int HIDDEN = units_before(LAYERS - 1);
static_assert(PACKED == NTC_PACKED, "src/backend/cuda/launch.rs packs in the same way");

/// Whether the parameters are copied to shared memory (32 KiB at most); larger decoders are read through the caches.
constexpr bool STAGED = PACKED <= 8192;
/// Floats of shared memory that staging takes.
constexpr int STAGE = STAGED ? PACKED : 0;
/// Texels that a thread evaluates side by side where it has the choice: each weight read serves all of them.
constexpr int SIDE_BY_SIDE = widest() <= 48 ? 2 : 1;
/// How far loops over inputs are unrolled: all the way where activations fit registers.
constexpr int UNROLL = widest() <= 48 ? 12 : 2;
constexpr int UNROLL_UNITS = widest() <= 48 ? 48 : 1;

}  // namespace shape

/// The packed parameters as the block reads them: a copy in `shared`, or themselves. Ends with a barrier.
__device__ __forceinline__ const float* stage(const float* packed, float* shared) {
    if constexpr (shape::STAGED) {
        for (int i = threadIdx.x; i < shape::PACKED / 4; i += NTC_THREADS) {
            reinterpret_cast<float4*>(shared)[i] = reinterpret_cast<const float4*>(packed)[i];
        }
        __syncthreads();
        return shared;
    } else {
        return packed;
    }
}

/// sum[t] += row[FIRST + i] x[t][i] for i = 0 .. COUNT in order; four weights a read.
template <int FIRST, int COUNT, int T, int N>
__device__ __forceinline__ void dot(const float* row, const float (&x)[T][N], float (&sum)[T]) {
    static_assert(COUNT <= N, "as many values as weights");
    constexpr int BEGIN = FIRST / 4, END = (FIRST + COUNT + 3) / 4;
#pragma unroll shape::UNROLL
    for (int k = BEGIN; k < END; ++k) {
        const float4 four = reinterpret_cast<const float4*>(row)[k];
        const float w[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int i = 4 * k + j - FIRST;
            if (i >= 0 && i < COUNT) {
#pragma unroll
                for (int t = 0; t < T; ++t) {
                    sum[t] = fmaf(w[j], x[t][i], sum[t]);
                }
            }
        }
    }
}

__device__ NTC_OUTLINE float activate_curved(int activation, float x) {
    return activation == 1 ? math::tanh(x) : math::sin(x);
}

__device__ __forceinline__ float activate_one(const Scene& scene, float x) {
    if (scene.activation == 0) {
        return x < 0.0f ? x * scene.leak : x;
    }
    return activate_curved(scene.activation, x);
}

/// The hidden activation in place; which one is decided once for all values.
template <int T, int N>
__device__ __forceinline__ void activate(const Scene& scene, float (&y)[T][N]) {
    if (scene.activation == 0) {
        const float slope = scene.leak;
#pragma unroll shape::UNROLL_UNITS
        for (int u = 0; u < N; ++u) {
#pragma unroll
            for (int t = 0; t < T; ++t) {
                y[t][u] = y[t][u] < 0.0f ? y[t][u] * slope : y[t][u];
            }
        }
    } else {
#pragma unroll shape::UNROLL_UNITS
        for (int u = 0; u < N; ++u) {
#pragma unroll
            for (int t = 0; t < T; ++t) {
                y[t][u] = activate_curved(scene.activation, y[t][u]);
            }
        }
    }
}

__device__ __forceinline__ float head_one(const Scene& scene, float s) {
    if (scene.clamp) {
        float x = s + 0.5f;
        x = x < 0.0f ? 0.0f : x;
        return 1.0f < x ? 1.0f : x;
    }
    return math::sigmoid(s);
}

/// One layer's sums: y = b + W x.
template <int LAYER, int T>
__device__ __forceinline__ void dense(const float* w, const float (&x)[T][shape::WIDTH[LAYER]],
                                      float (&y)[T][shape::WIDTH[LAYER + 1]]) {
    constexpr int IN = shape::WIDTH[LAYER], OUT = shape::WIDTH[LAYER + 1];
    constexpr int AT = shape::weights_at(LAYER), BIASES = shape::biases_at(LAYER), STRIDE = shape::stride(LAYER);
#pragma unroll shape::UNROLL_UNITS
    for (int u = 0; u < OUT; ++u) {
        const float bias = w[BIASES + u];
        float sum[T];
#pragma unroll
        for (int t = 0; t < T; ++t) {
            sum[t] = bias;
        }
        dot<0, IN>(w + AT + u * STRIDE, x, sum);
#pragma unroll
        for (int t = 0; t < T; ++t) {
            y[t][u] = sum[t];
        }
    }
}

/// Everything behind hidden layer DONE: from its activations `a` to the outputs.
template <int DONE, int T>
__device__ __forceinline__ void forward_from(const Scene& scene, const float* w,
                                             const float (&a)[T][shape::WIDTH[DONE + 1]],
                                             float (&out)[T][shape::OUTPUTS]) {
    if constexpr (DONE + 2 == shape::LAYERS) {
        dense<DONE + 1, T>(w, a, out);
#pragma unroll shape::UNROLL_UNITS
        for (int c = 0; c < shape::OUTPUTS; ++c) {
#pragma unroll
            for (int t = 0; t < T; ++t) {
                out[t][c] = head_one(scene, out[t][c]);
            }
        }
    } else {
        float b[T][shape::WIDTH[DONE + 2]];
        dense<DONE + 1, T>(w, a, b);
        activate(scene, b);
        forward_from<DONE + 1, T>(scene, w, b, out);
    }
}

/// The whole decoder on inputs in summation order.
template <int T>
__device__ __forceinline__ void forward(const Scene& scene, const float* w, const float (&x)[T][shape::INPUTS],
                                        float (&out)[T][shape::OUTPUTS]) {
    float a[T][shape::WIDTH[1]];
    dense<0, T>(w, x, a);
    activate(scene, a);
    forward_from<0, T>(scene, w, a, out);
}

/// A texel's decoder inputs in summation order.
__device__ __forceinline__ void read_inputs(const Scene& scene, int px, int py, float* x) {
    read_features<shape::POSITION>(scene, px, py, x);
    if constexpr (shape::CHANNELS1 > 0) {
        sample<shape::CHANNELS1>(scene.level[1], scene.level[1].values, 1.0f, px, py, x + shape::POSITION);
    }
    sample<shape::CHANNELS0>(scene.level[0], scene.level[0].values, 1.0f, px, py,
                             x + shape::POSITION + shape::CHANNELS1);
}

/// The integer loss of outputs against targets that lie `stride` apart.
__device__ __forceinline__ i64 texel_loss(const float* weights, const float (&out)[shape::OUTPUTS],
                                          const float* target, i64 stride) {
    float sum = 0.0f;
#pragma unroll shape::UNROLL_UNITS
    for (int c = 0; c < shape::OUTPUTS; ++c) {
        const float d = out[c] - target[c * stride];
        sum = fmaf(weights[c] * d, d, sum);
    }
    return (i64)round_loss(sum);
}
