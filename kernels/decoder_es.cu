// A decoder step by evolution strategies. Twins: src/estimate/decoder_es.rs, src/backend/cpu/batch.rs.
#include "compat.cuh"
#include "minibatch.cuh"

/// decoders[2 pair + sign][place[i]] = w[i] +- sigma e[pair][i]; blockIdx.y is the pair.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
perturb_decoders(const float* w, const float* e, const u32* place, u32 count, float sigma, float* decoders) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const u32 pair = blockIdx.y;
    const float normal = e[(i64)pair * count + i];
    float* plus = decoders + (i64)2 * pair * shape::PACKED;
    plus[place[i]] = fmaf(sigma, normal, w[i]);
    plus[shape::PACKED + place[i]] = fmaf(-sigma, normal, w[i]);
}
NTC_KERNEL(perturb_decoders)

/// Adds every decoder's integer loss over the batch to sums[decoder]; blockIdx.y is the decoder. A thread evaluates
/// SIDE_BY_SIDE texels at once.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decoder_es_losses(const Scene scene, const Batch batch, const float* decoders, u64* sums) {
    extern __shared__ __align__(16) unsigned char smem[];
    constexpr int T = shape::SIDE_BY_SIDE;
    const u32 decoder = blockIdx.y;
    const float* w = stage(decoders + (i64)decoder * shape::PACKED, reinterpret_cast<float*>(smem));
    const int points = points_of(scene);
    i64 sum = 0;
    for (u32 base = blockIdx.x * NTC_THREADS * T; base < batch.count; base += gridDim.x * NTC_THREADS * T) {
        float out[T][shape::OUTPUTS], near[4][T][shape::OUTPUTS];
        u32 at[T];
        for (int t = 0; t < T; ++t) {
            const u32 i = base + t * NTC_THREADS + threadIdx.x;
            at[t] = i < batch.count ? i : batch.count - 1;
        }
        for (int point = points - 1; point >= 0; --point) {
            NTC_RELOAD();
            float x[T][shape::INPUTS];
#pragma unroll shape::UNROLL_UNITS
            for (int k = 0; k < shape::INPUTS; ++k) {
                const float* row = batch.inputs + ((i64)point * shape::INPUTS + k) * batch.stride;
#pragma unroll
                for (int t = 0; t < T; ++t) {
                    x[t][k] = row[at[t]];
                }
            }
            forward<T>(scene, w, x, out);
            if (point > 0) {
                for (int t = 0; t < T; ++t) {
                    for (int c = 0; c < shape::OUTPUTS; ++c) {
                        near[point - 1][t][c] = out[t][c];
                    }
                }
            }
        }
#pragma unroll
        for (int t = 0; t < T; ++t) {
            if (points > 1) {
                const float wh = batch.wh[at[t]], wv = batch.wv[at[t]];
                for (int c = 0; c < shape::OUTPUTS; ++c) {
                    out[t][c] = deblock_one(out[t][c], near[0][t][c], near[1][t][c], near[2][t][c], near[3][t][c], wh,
                                            wv);
                }
            }
            const i64 loss = texel_loss(scene.loss_weights, out[t], batch.target + at[t], batch.stride);
            if (base + t * NTC_THREADS + threadIdx.x < batch.count) {
                sum += loss;
            }
        }
    }
    add_to(sums + decoder, sum);
}
NTC_KERNEL(decoder_es_losses)

/// g = sum over pairs, in their order, of d e, continuing g unless `fresh`; d = (L+ - L-) `unit`.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decoder_es_gradient(const float* e, const u64* sums, u32 pairs, u32 count, float unit, int fresh, float* g) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    float sum = fresh ? 0.0f : g[i];
    for (u32 pair = 0; pair < pairs; ++pair) {
        const float d = (float)(i64)(sums[2 * pair] - sums[2 * pair + 1]) * unit;
        sum = fmaf(d, e[(i64)pair * count + i], sum);
    }
    g[i] = sum;
}
NTC_KERNEL(decoder_es_gradient)
