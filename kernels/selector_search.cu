// Exact exhaustive search of level 0's selectors. Twin: src/estimate/selector_search.rs.
#include "compat.cuh"
#include "mlp.cuh"

/// Candidates whose errors are held at a time.
#define NTC_CANDIDATES 16

/// Selector value number `k` of 2^bits on the grid in [-1, 1]. Twin: src/model/quant.rs.
__device__ __forceinline__ float grid_value(u32 k, u32 bits) {
    return -1.0f + (float)(2 * k) / (float)((1u << bits) - 1u);
}

/// Number of the nearest grid value.
__device__ __forceinline__ u32 grid_index(float z, u32 bits) {
    const float last = (float)((1u << bits) - 1u);
    float x = (z + 1.0f) * 0.5f * last;
    x = x > 0.0f ? x : 0.0f;
    x = x < last ? x : last;
    const float whole = truncf(x);
    return (u32)(whole + (x - whole >= 0.5f ? 1.0f : 0.0f));
}

/// Candidate number `k` in the order of trial: the current value, then the others ascending.
__device__ __forceinline__ u32 candidate(u32 k, u32 now) {
    return k == 0 ? now : k <= now ? k - 1 : k;
}

/// Index of a channel in combination `combination`: `below` are the bits of the group's channels behind it.
__device__ __forceinline__ u32 digit(u32 combination, u32 below, u32 bits) {
    return combination >> below & ((1u << bits) - 1u);
}

/// One pass over level 0: `lanes` threads (a power of two up to NTC_THREADS) share a cell of cell_w x cell_h texels. Channels
/// in turn, or with `joint` all at once; a combination is replaced only by one of strictly lower error, to
/// which comes, where there are costs, cost_unit times that of each value, costs[value of the level][index]. *changed counts
/// values.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
search_selectors(const Scene scene, const float* packed, float* values, const u32* bits, int cell_w, int cell_h,
                 int lanes, int joint, const int* costs, i64 cost_unit, int cost_window, u64* changed) {
    extern __shared__ __align__(16) unsigned char smem[];
    constexpr int CHANNELS = shape::CHANNELS0, BEFORE = shape::INPUTS - shape::CHANNELS0;
    float* shared = reinterpret_cast<float*>(smem);
    const float* w = stage(packed, shared);
    const int slots = NTC_THREADS / lanes;
    u64* errors = reinterpret_cast<u64*>(shared + shape::STAGE);                // [slot][combination of a part]
    float* all_chosen = reinterpret_cast<float*>(errors + slots * NTC_CANDIDATES);  // [slot][channel]
    const int slot = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    float* chosen = all_chosen + slot * CHANNELS;
    const int across = scene.level[0].width, down = scene.height / cell_h;
    const i64 cell = (i64)blockIdx.x * slots + slot;
    const bool counts = cell < (i64)across * down;
    const int left = counts ? (int)(cell % across) * cell_w : 0, top = counts ? (int)(cell / across) * cell_h : 0;
    const int size = cell_w * cell_h;
    const i64 texels = (i64)scene.width * scene.height;
    for (int c = lane; c < CHANNELS; c += lanes) {
        chosen[c] = counts ? values[cell * CHANNELS + c] : 0.0f;
    }
    u64 replaced = 0;
    const int step = joint ? CHANNELS : 1;
    for (int begin = 0; begin < CHANNELS; begin += step) {
        const int end = begin + step;
        __syncthreads();
        u32 depth = 0, now = 0;
        for (int c = begin; c < end; ++c) {
            depth += bits[c];
            now = now << bits[c] | grid_index(chosen[c], bits[c]);
        }
        const u32 count = 1u << depth;
        u32 best = now;
        u64 least = 0;
        for (u32 part = 0; part < count; part += NTC_CANDIDATES) {
            const u32 many = count - part < NTC_CANDIDATES ? count - part : NTC_CANDIDATES;
            for (int k = threadIdx.x; k < slots * NTC_CANDIDATES; k += NTC_THREADS) {
                errors[k] = 0;
            }
            __syncthreads();
            for (int first = 0; first < size; first += lanes) {
                const int k = first + lane < size ? first + lane : size - 1;
                const bool adds = counts && first + lane < size;
                const int px = left + k % cell_w, py = top + k / cell_w;
                float x[1][shape::INPUTS], prefix[shape::FIRST];
                read_inputs(scene, px, py, x[0]);
#pragma unroll shape::UNROLL_UNITS
                for (int u = 0; u < shape::FIRST; ++u) {
                    float sum[1] = {w[shape::biases_at(0) + u]};
                    const float* row = w + u * shape::stride(0);
                    if constexpr (BEFORE > 0) {
                        dot<0, BEFORE>(row, x, sum);
                    }
                    for (int j = 0; j < begin; ++j) {
                        sum[0] = fmaf(row[BEFORE + j], chosen[j], sum[0]);
                    }
                    prefix[u] = sum[0];
                }
                for (u32 n = 0; n < many; n += 2) {
                    NTC_RELOAD();
                    const u32 tried[2] = {candidate(part + n, now), candidate(part + n + 1, now)};
                    float a[2][shape::FIRST], out[2][shape::OUTPUTS];
#pragma unroll shape::UNROLL_UNITS
                    for (int u = 0; u < shape::FIRST; ++u) {
                        a[0][u] = prefix[u];
                        a[1][u] = prefix[u];
                    }
                    u32 below = depth;
                    for (int j = begin; j < CHANNELS; ++j) {
                        float selector[2] = {chosen[j], chosen[j]};
                        if (j < end) {
                            below -= bits[j];
                            selector[0] = grid_value(digit(tried[0], below, bits[j]), bits[j]);
                            selector[1] = grid_value(digit(tried[1], below, bits[j]), bits[j]);
                        }
#pragma unroll shape::UNROLL_UNITS
                        for (int u = 0; u < shape::FIRST; ++u) {
                            const float weight = w[u * shape::stride(0) + BEFORE + j];
                            a[0][u] = fmaf(weight, selector[0], a[0][u]);
                            a[1][u] = fmaf(weight, selector[1], a[1][u]);
                        }
                    }
                    activate(scene, a);
                    forward_from<0, 2>(scene, w, a, out);
#pragma unroll
                    for (int t = 0; t < 2; ++t) {
                        const float* target = scene.target + (i64)py * scene.width + px;
                        const i64 loss = texel_loss(scene.loss_weights, out[t], target, texels);
                        const int shared_by = lanes < 32 ? lanes : 32;
                        const i64 sum = sum_lanes(adds ? loss : 0, shared_by);
                        if ((int)threadIdx.x % shared_by == 0) {
                            atomicAdd(errors + slot * NTC_CANDIDATES + n + t, (u64)sum);
                        }
                    }
                }
            }
            __syncthreads();
            for (u32 n = 0; n < many; ++n) {
                const u32 index = candidate(part + n, now);
                u64 error = errors[slot * NTC_CANDIDATES + n];
                if (costs != nullptr && counts) {
                    u32 below = depth;
                    for (int c = begin; c < end; ++c) {
                        below -= bits[c];
                        const i64 at = (cell * CHANNELS + c) * cost_window + digit(index, below, bits[c]);
                        error += (u64)(costs[at] * cost_unit);
                    }
                }
                if (part + n == 0 || error < least) {
                    best = index;
                    least = error;
                }
            }
            __syncthreads();
        }
        if (counts && lane == 0) {
            u32 below = depth;
            for (int c = begin; c < end; ++c) {
                below -= bits[c];
                const float value = grid_value(digit(best, below, bits[c]), bits[c]);
                replaced += value != chosen[c];
                chosen[c] = value;
                values[cell * CHANNELS + c] = value;
            }
        }
    }
    if (replaced > 0) {
        atomicAdd(changed, replaced);
    }
}
NTC_KERNEL(search_selectors)
