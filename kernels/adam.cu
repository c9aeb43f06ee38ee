// Adam on one group of parameters, and the decoder's packed copy. Twins: src/estimate/adam.rs, Network::pack.
#include "compat.cuh"

/// One step with gradient g * scale. `broken` becomes 1 where a parameter is no longer finite.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
adam_step(float* w, float* m, float* v, const float* g, u64 count, float scale, float rate, float correct1,
          float correct2, u32* broken) {
    const u64 i = (u64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const float beta1 = 0.9f;
    const float beta2 = 0.999f;
    const float gradient = g[i] * scale;
    const float m1 = fmaf(beta1, m[i], (1.0f - beta1) * gradient);
    const float v1 = fmaf(beta2, v[i], (1.0f - beta2) * gradient * gradient);
    const float denominator = sqrtf(v1 * correct2) + 1e-8f;
    const float w1 = w[i] - rate * (m1 * correct1) / denominator;
    m[i] = m1;
    v[i] = v1;
    w[i] = w1;
    if ((__float_as_uint(w1) & 0x7f800000u) == 0x7f800000u) {
        atomicOr(broken, 1u);
    }
}
NTC_KERNEL(adam_step)

/// packed[place[i]] = w[i]: rows in summation order and padded to whole float4 (mlp.cuh).
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
pack_decoder(const float* w, const u32* place, u32 count, float* packed) {
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i < count) {
        packed[place[i]] = w[i];
    }
}
NTC_KERNEL(pack_decoder)
