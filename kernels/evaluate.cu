// A plain decode of the image, for planes or for errors. Twin: src/backend/cpu/image.rs.
#include "compat.cuh"
#include "tile.cuh"

/// Decodes the points of a tile into outs[output][point] of shared memory. Ends with a barrier.
__device__ __forceinline__ void decode_tile(const Scene& scene, const Tile& tile, const float* w, float* outs) {
    for (int point = threadIdx.x; point < tile.points; point += NTC_THREADS) {
        NTC_RELOAD();
        int px, py;
        if (texel_of(scene, tile, point, px, py)) {
            float x[1][shape::INPUTS], out[1][shape::OUTPUTS];
            read_inputs(scene, px, py, x[0]);
            forward<1>(scene, w, x, out);
#pragma unroll shape::UNROLL_UNITS
            for (int c = 0; c < shape::OUTPUTS; ++c) {
                outs[c * tile.points + point] = out[0][c];
            }
        }
    }
    __syncthreads();
}

/// out[output][texel]: the decode, a block a tile.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
decode_planes(const Scene scene, const float* packed, int tile_w, int tile_h, float* planes) {
    extern __shared__ __align__(16) unsigned char smem[];
    float* shared = reinterpret_cast<float*>(smem);
    const float* w = stage(packed, shared);
    float* outs = shared + shape::STAGE;
    const Tile tile = tile_of(scene, tile_w, tile_h, blockIdx.x);
    decode_tile(scene, tile, w, outs);
    for (int k = threadIdx.x; k < tile.w * tile.h; k += NTC_THREADS) {
        const int px = tile.x0 + k % tile.w, py = tile.y0 + k / tile.w;
        for (int c = 0; c < shape::OUTPUTS; ++c) {
            planes[((i64)c * scene.height + py) * scene.width + px] =
                finished(scene, tile, outs + c * tile.points, px, py);
        }
    }
}
NTC_KERNEL(decode_planes)

/// An output as a file of `most` + 1 levels holds it. Twin: src/model/quant.rs, round_rows.
__device__ __forceinline__ float round_output(float x, float most) {
    x = 0.0f < x ? x : 0.0f;
    x = (x < 1.0f ? x : 1.0f) * most;
    const float whole = truncf(x);
    return (0.5f <= x - whole ? whole + 1.0f : whole) / most;
}

/// Adds each texture's squared error over the source extent, in units of 2^-36, to sums[texture]. Texture t has the outputs
/// first[t] .. first[t + 1], with the factors in shares, and depth[t] bits; `rounded` measures the decode rounded to them.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
evaluate_errors(const Scene scene, const float* packed, int tile_w, int tile_h, int textures, const u32* first,
                const u32* depth, const float* shares, int rounded, u64* sums) {
    extern __shared__ __align__(16) unsigned char smem[];
    float* shared = reinterpret_cast<float*>(smem);
    const float* w = stage(packed, shared);
    float* outs = shared + shape::STAGE;
    const Tile tile = tile_of(scene, tile_w, tile_h, blockIdx.x);
    decode_tile(scene, tile, w, outs);
    for (int t = 0; t < textures; ++t) {
        const float most = (float)((1u << depth[t]) - 1u);
        i64 sum = 0;
        for (int k = threadIdx.x; k < tile.w * tile.h; k += NTC_THREADS) {
            const int px = tile.x0 + k % tile.w, py = tile.y0 + k / tile.w;
            if (px < scene.source_width && py < scene.source_height) {
                float loss = 0.0f;
                for (u32 c = first[t]; c < first[t + 1]; ++c) {
                    float out = finished(scene, tile, outs + c * tile.points, px, py);
                    out = rounded ? round_output(out, most) : out;
                    const float d = out - scene.target[((i64)c * scene.height + py) * scene.width + px];
                    loss = fmaf(shares[c] * d, d, loss);
                }
                sum += (i64)round_loss(loss);
            }
        }
        add_to(sums + t, sum);
    }
}
NTC_KERNEL(evaluate_errors)
