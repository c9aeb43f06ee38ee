// A decoder step by central differences, carrying only what one weight changes. Twin: src/estimate/decoder_fd.rs.
//
// One launch keeps every layer of the unperturbed decoder (the trace), sums together with what their roundings lost, then one launch a layer changes its weights. A thread
// holds one texel at both signs side by side, so that a weight read serves both.
#include "compat.cuh"
#include "minibatch.cuh"

namespace trace {
// Rows of a point's trace, each `stride` texels long: sums of all layers, what their roundings lost, activations of the hidden
// layers, outputs.
constexpr int SUMS = shape::HIDDEN + shape::OUTPUTS;
__host__ __device__ constexpr int sums_at(int layer) {
    return shape::units_before(layer);
}
__host__ __device__ constexpr int rests_at(int layer) {
    return SUMS + shape::units_before(layer);
}
__host__ __device__ constexpr int units_at(int layer) {
    return 2 * SUMS + shape::units_before(layer);
}
constexpr int OUTPUTS_AT = 2 * SUMS + shape::HIDDEN;
constexpr int ROWS = OUTPUTS_AT + shape::OUTPUTS;
static_assert(ROWS == NTC_TRACE_ROWS, "src/backend/cuda/launch.rs makes room for the trace");
}  // namespace trace

/// One sum of a dense layer in its fixed order, and the sum of what its roundings lost: an fma rounds s + w x to n; with
/// p = fl(w x) and its exact error fma(w, x, -p), what is lost is about (p - (n - s)) + error.
template <int LAYER>
__device__ __forceinline__ float split_sum(const float* w, int unit, const float (&x)[shape::WIDTH[LAYER]],
                                           float& rest) {
    constexpr int IN = shape::WIDTH[LAYER];
    const float* row = w + shape::weights_at(LAYER) + unit * shape::stride(LAYER);
    float sum = w[shape::biases_at(LAYER) + unit];
    rest = 0.0f;
#pragma unroll shape::UNROLL_UNITS
    for (int i = 0; i < IN; ++i) {
        const float product = row[i] * x[i];
        const float error = fmaf(row[i], x[i], -product);
        const float next = fmaf(row[i], x[i], sum);
        rest = rest + ((product - (next - sum)) + error);
        sum = next;
    }
    return sum;
}

/// Evaluates layers LAYER.. on the activations `x` below it and keeps everything in `rows`.
template <int LAYER>
__device__ __forceinline__ void record(const Scene& scene, const float* w, const float (&x)[1][shape::WIDTH[LAYER]],
                                       float* rows, i64 stride, float (&out)[1][shape::OUTPUTS]) {
    constexpr int OUT = shape::WIDTH[LAYER + 1];
    float y[1][OUT];
#pragma unroll shape::UNROLL_UNITS
    for (int u = 0; u < OUT; ++u) {
        float rest;
        y[0][u] = split_sum<LAYER>(w, u, x[0], rest);
        rows[(trace::sums_at(LAYER) + u) * stride] = y[0][u];
        rows[(trace::rests_at(LAYER) + u) * stride] = rest;
    }
    if constexpr (LAYER == shape::LAYERS - 1) {
        for (int c = 0; c < OUT; ++c) {
            out[0][c] = head_one(scene, y[0][c]);
            rows[(trace::OUTPUTS_AT + c) * stride] = out[0][c];
        }
    } else {
        activate(scene, y);
        for (int u = 0; u < OUT; ++u) {
            rows[(trace::units_at(LAYER) + u) * stride] = y[0][u];
        }
        record<LAYER + 1>(scene, w, y, rows, stride, out);
    }
}

/// traces[point][row][texel]; blockIdx.y is the point.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decoder_fd_trace(const Scene scene, const Batch batch, const float* packed, float* traces) {
    extern __shared__ __align__(16) unsigned char smem[];
    const float* w = stage(packed, reinterpret_cast<float*>(smem));
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= batch.count) {
        return;
    }
    const int point = (int)blockIdx.y;
    float x[1][shape::INPUTS], out[1][shape::OUTPUTS];
    for (int k = 0; k < shape::INPUTS; ++k) {
        x[0][k] = batch.inputs[((i64)point * shape::INPUTS + k) * batch.stride + i];
    }
    record<0>(scene, w, x, traces + (i64)point * trace::ROWS * batch.stride + i, batch.stride, out);
}
NTC_KERNEL(decoder_fd_trace)

/// Filters outputs of a texel's points. near[point - 1] are the neighbours' outputs.
template <int T>
__device__ __forceinline__ void filter_points(const Batch& batch, u32 i, float (&out)[T][shape::OUTPUTS],
                                              const float (&near)[4][T][shape::OUTPUTS]) {
    const float wh = batch.wh[i], wv = batch.wv[i];
    for (int t = 0; t < T; ++t) {
        for (int c = 0; c < shape::OUTPUTS; ++c) {
            out[t][c] = deblock_one(out[t][c], near[0][t][c], near[1][t][c], near[2][t][c], near[3][t][c], wh, wv);
        }
    }
}

/// Adds the unperturbed loss of the batch to *sum.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decoder_fd_loss(const Scene scene, const Batch batch, const float* traces, u64* sum) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    i64 loss = 0;
    if (i < batch.count) {
        float out[1][shape::OUTPUTS], near[4][1][shape::OUTPUTS];
        const int points = points_of(scene);
        for (int point = points - 1; point >= 0; --point) {
            const float* rows = traces + ((i64)point * trace::ROWS + trace::OUTPUTS_AT) * batch.stride + i;
            for (int c = 0; c < shape::OUTPUTS; ++c) {
                (point > 0 ? near[point - 1][0][c] : out[0][c]) = rows[(i64)c * batch.stride];
            }
        }
        if (points > 1) {
            filter_points<1>(batch, i, out, near);
        }
        loss = texel_loss(scene.loss_weights, out[0], batch.target + i, batch.stride);
    }
    add_to(sum, loss);
}
NTC_KERNEL(decoder_fd_loss)

/// Outputs of one point at both signs, where weight (LAYER, unit, input) changes by step[0] or step[1]. `x` is that input.
template <int LAYER>
__device__ __forceinline__ void bumped(const Scene& scene, const float* w, const float* rows, i64 stride, int unit,
                                       float x, const float (&step)[2], float (&out)[2][shape::OUTPUTS]) {
    const float sum = rows[(trace::sums_at(LAYER) + unit) * stride];
    const float rest = rows[(trace::rests_at(LAYER) + unit) * stride];
    if constexpr (LAYER == shape::LAYERS - 1) {
        float changed[2];
        for (int t = 0; t < 2; ++t) {
            changed[t] = head_one(scene, sum + fmaf(step[t], x, rest));
        }
#pragma unroll shape::UNROLL_UNITS
        for (int c = 0; c < shape::OUTPUTS; ++c) {
            const float kept = rows[(trace::OUTPUTS_AT + c) * stride];
            for (int t = 0; t < 2; ++t) {
                out[t][c] = c == unit ? changed[t] : kept;
            }
        }
    } else {
        constexpr int NEXT = shape::WIDTH[LAYER + 2];
        const float kept = rows[(trace::units_at(LAYER) + unit) * stride];
        float change[2];
        for (int t = 0; t < 2; ++t) {
            change[t] = activate_one(scene, sum + fmaf(step[t], x, rest)) - kept;
        }
        const float* column = w + shape::weights_at(LAYER + 1) + unit;
        float y[2][NEXT];
#pragma unroll shape::UNROLL_UNITS
        for (int u = 0; u < NEXT; ++u) {
            const float before = rows[(trace::sums_at(LAYER + 1) + u) * stride];
            const float lost = rows[(trace::rests_at(LAYER + 1) + u) * stride];
            const float weight = column[u * shape::stride(LAYER + 1)];
            for (int t = 0; t < 2; ++t) {
                y[t][u] = before + fmaf(weight, change[t], lost);
            }
        }
        if constexpr (LAYER + 2 == shape::LAYERS) {
#pragma unroll shape::UNROLL_UNITS
            for (int c = 0; c < shape::OUTPUTS; ++c) {
                for (int t = 0; t < 2; ++t) {
                    out[t][c] = head_one(scene, y[t][c]);
                }
            }
        } else {
            activate(scene, y);
            forward_from<LAYER + 1, 2>(scene, w, y, out);
        }
    }
}

/// Adds L(w+h) - L(w-h) of every weight of unit blockIdx.y of LAYER to sums[parameter].
template <int LAYER>
__device__ __forceinline__ void fd_layer(const Scene& scene, const Batch& batch, const float* packed,
                                         const float* traces, float h, u64* sums, float* shared) {
    constexpr int IN = shape::WIDTH[LAYER], OUT = shape::WIDTH[LAYER + 1];
    u64* columns = reinterpret_cast<u64*>(shared + shape::STAGE);  // STAGE is a multiple of 4 floats
    const float* w = stage(packed, shared);
    for (int k = threadIdx.x; k <= IN; k += NTC_THREADS) {
        columns[k] = 0;
    }
    __syncthreads();
    const int unit = (int)blockIdx.y;
    const int points = points_of(scene);
    const i64 stride = batch.stride;
    for (u32 base = blockIdx.x * NTC_THREADS; base < batch.count; base += gridDim.x * NTC_THREADS) {
        const bool counts = base + threadIdx.x < batch.count;
        const u32 i = counts ? base + threadIdx.x : batch.count - 1;
        for (int column = 0; column <= IN; ++column) {
            NTC_RELOAD();
            const float weight = column < IN ? w[shape::weights_at(LAYER) + unit * shape::stride(LAYER) + column]
                                             : w[shape::biases_at(LAYER) + unit];
            // The steps as f32 realises them.
            const float step[2] = {(weight + h) - weight, (weight - h) - weight};
            float out[2][shape::OUTPUTS], near[4][2][shape::OUTPUTS];
            for (int point = points - 1; point >= 0; --point) {
                const float* rows = traces + (i64)point * trace::ROWS * stride + i;
                float x = 1.0f;
                if (column < IN) {
                    x = LAYER == 0 ? batch.inputs[((i64)point * shape::INPUTS + column) * stride + i]
                                   : rows[(trace::units_at(LAYER > 0 ? LAYER - 1 : 0) + column) * stride];
                }
                bumped<LAYER>(scene, w, rows, stride, unit, x, step, out);
                if (point > 0) {
                    for (int t = 0; t < 2; ++t) {
                        for (int c = 0; c < shape::OUTPUTS; ++c) {
                            near[point - 1][t][c] = out[t][c];
                        }
                    }
                }
            }
            if (points > 1) {
                filter_points<2>(batch, i, out, near);
            }
            const i64 d = texel_loss(scene.loss_weights, out[0], batch.target + i, stride) -
                          texel_loss(scene.loss_weights, out[1], batch.target + i, stride);
            add_to(columns + column, counts ? d : 0);
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k <= IN; k += NTC_THREADS) {
        int parameter = shape::parameters_at(LAYER) + IN * OUT + unit;  // the bias
        if (k < IN) {
            int column = k;
            if (LAYER == 0) {
                // Parameter order: level 0, level 1, position features.
                const int end = shape::POSITION + shape::CHANNELS1;
                column = k < shape::POSITION ? shape::CHANNELS0 + shape::CHANNELS1 + k
                         : k < end           ? k - shape::POSITION + shape::CHANNELS0
                                             : k - end;
            }
            parameter = shape::parameters_at(LAYER) + unit * IN + column;
        }
        atomicAdd(sums + parameter, columns[k]);
    }
}

#define NTC_FD_LAYER(LAYER)                                                                                  \
    extern "C" __global__ void __launch_bounds__(NTC_THREADS)                                                \
    decoder_fd_layer##LAYER(const Scene scene, const Batch batch, const float* packed, const float* traces, \
                            float h, u64* sums) {                                                            \
        extern __shared__ __align__(16) unsigned char smem[];                                                \
        fd_layer<LAYER>(scene, batch, packed, traces, h, sums, reinterpret_cast<float*>(smem));              \
    }                                                                                                        \
    NTC_KERNEL(decoder_fd_layer##LAYER)

NTC_FD_LAYER(0)
NTC_FD_LAYER(1)
#if NTC_LAYERS > 2
NTC_FD_LAYER(2)
#endif
#if NTC_LAYERS > 3
NTC_FD_LAYER(3)
#endif
#if NTC_LAYERS > 4
NTC_FD_LAYER(4)
#endif
#if NTC_LAYERS > 5
NTC_FD_LAYER(5)
#endif
#if NTC_LAYERS > 6
NTC_FD_LAYER(6)
#endif
#if NTC_LAYERS > 7
NTC_FD_LAYER(7)
#endif
#if NTC_LAYERS > 8
NTC_FD_LAYER(8)
#endif
static_assert(NTC_LAYERS == shape::LAYERS && NTC_LAYERS <= 9, "a kernel for every layer");

/// g[i] = sums[i] `unit` / the distance between both evaluations of weight i; 0 where they coincide.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decoder_fd_gradient(const float* w, const u64* sums, u32 count, float unit, float h, float* g) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const float plus = (w[i] + h) - w[i], minus = (w[i] - h) - w[i];
    const float distance = plus - minus;
    g[i] = distance == 0.0f ? 0.0f : (float)(i64)sums[i] * unit / distance;
}
NTC_KERNEL(decoder_fd_gradient)
