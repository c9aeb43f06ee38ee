// What Gauss-Newton steps sum over texels: bumps of sampled latents summed over elements, bumps of pre-activations and the
// products of their columns, and errors of trials. Twins: src/estimate/gauss_newton.
#include "compat.cuh"
#include "minibatch.cuh"

/// Adds each texel's error to that of its element; element_x[px] and element_y[py] say which.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_element_errors(const Scene scene, const float* packed, const u32* element_x, const u32* element_y, u32 columns,
                  u64* errors) {
    extern __shared__ __align__(16) unsigned char smem[];
    const float* w = stage(packed, reinterpret_cast<float*>(smem));
    const i64 texels = (i64)scene.width * scene.height;
    const i64 texel = (i64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (texel >= texels) {
        return;
    }
    const int px = (int)(texel % scene.width), py = (int)(texel / scene.width);
    float x[1][shape::INPUTS], out[1][shape::OUTPUTS];
    read_inputs(scene, px, py, x[0]);
    forward<1>(scene, w, x, out);
    const i64 loss = texel_loss(scene.loss_weights, out[0], scene.target + texel, texels);
    atomicAdd(errors + (u64)element_y[py] * columns + element_x[px], (u64)loss);
}
NTC_KERNEL(gn_element_errors)

/// Index of (i, j <= i) in a lower triangle stored row by row.
__host__ __device__ constexpr int triangle_at(int i, int j) {
    return i * (i + 1) / 2 + j;
}

/// Sums S^T S and S^T r of the texels of image column px in the rows of an element, times the tap weights of the row:
/// columns[row of elements][px][(y monomial, pair of channels), then (y corner, channel)]. blockIdx.y is the row of elements
/// from `first` on; rows[row][2] are its image rows. FROM is the level's first input.
template <int LEVEL, int C, int FROM>
__device__ __forceinline__ void columns_of(const Scene& scene, const float* w, const float* roots, float h,
                                           const u32* rows, u32 first, float* columns) {
    constexpr int PART = triangle_at(C, 0);
    const int px = (int)(blockIdx.x * NTC_THREADS + threadIdx.x);
    if (px >= scene.width) {
        return;
    }
    const Level& level = scene.level[LEVEL];
    const int near = level.nearest ? 1 : 3, corners = level.nearest ? 1 : 2;
    float matrix[3][PART], right[2][C];
    for (int k = 0; k < 3; ++k) {
        for (int e = 0; e < PART; ++e) {
            matrix[k][e] = 0.0f;
        }
    }
    for (int k = 0; k < 2; ++k) {
        for (int c = 0; c < C; ++c) {
            right[k][c] = 0.0f;
        }
    }
    const u32 row = first + blockIdx.y;
    const i64 texels = (i64)scene.width * scene.height;
    for (int py = (int)rows[2 * row]; py < (int)rows[2 * row + 1]; ++py) {
        NTC_RELOAD();
        float x[1][shape::INPUTS], base[1][shape::FIRST], a[1][shape::FIRST], out[1][shape::OUTPUTS];
        read_inputs(scene, px, py, x[0]);
        dense<0, 1>(w, x, base);
        for (int u = 0; u < shape::FIRST; ++u) {
            a[0][u] = base[0][u];
        }
        activate(scene, a);
        forward_from<0, 1>(scene, w, a, out);
        float residual[shape::OUTPUTS], s[C][shape::OUTPUTS];
        for (int o = 0; o < shape::OUTPUTS; ++o) {
            residual[o] = (out[0][o] - scene.target[o * texels + (i64)py * scene.width + px]) * roots[o];
        }
        for (int c = 0; c < C; ++c) {
            NTC_RELOAD();
            float both[2][shape::FIRST], moved[2][shape::OUTPUTS];
            for (int u = 0; u < shape::FIRST; ++u) {
                const float delta = w[u * shape::stride(0) + FROM + c] * h;
                both[0][u] = base[0][u] + delta;
                both[1][u] = base[0][u] - delta;
            }
            activate(scene, both);
            forward_from<0, 2>(scene, w, both, moved);
            for (int o = 0; o < shape::OUTPUTS; ++o) {
                s[c][o] = (moved[0][o] - moved[1][o]) * (roots[o] / (2.0f * h));
            }
        }
        const float fy = level.fy[py], gy = 1.0f - fy;
        const float two[3] = {level.nearest ? 1.0f : gy * gy, gy * fy, fy * fy};
        const float one[2] = {level.nearest ? 1.0f : gy, fy};
        for (int i = 0; i < C; ++i) {
            for (int j = 0; j <= i; ++j) {
                float product = 0.0f;
                for (int o = 0; o < shape::OUTPUTS; ++o) {
                    product = fmaf(s[i][o], s[j][o], product);
                }
                for (int k = 0; k < near; ++k) {
                    matrix[k][triangle_at(i, j)] = fmaf(product, two[k], matrix[k][triangle_at(i, j)]);
                }
            }
            float product = 0.0f;
            for (int o = 0; o < shape::OUTPUTS; ++o) {
                product = fmaf(s[i][o], residual[o], product);
            }
            for (int k = 0; k < corners; ++k) {
                right[k][i] = fmaf(product, one[k], right[k][i]);
            }
        }
    }
    float* into = columns + ((i64)blockIdx.y * scene.width + px) * (near * PART + corners * C);
    for (int k = 0; k < near; ++k) {
        for (int e = 0; e < PART; ++e) {
            into[k * PART + e] = matrix[k][e];
        }
    }
    for (int k = 0; k < corners; ++k) {
        for (int c = 0; c < C; ++c) {
            into[near * PART + k * C + c] = right[k][c];
        }
    }
}

/// The sums of level `which` over columns of texels.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_columns(const Scene scene, const float* packed, const float* roots, float h, int which, const u32* rows, u32 first,
           float* columns) {
    extern __shared__ __align__(16) unsigned char smem[];
    const float* w = stage(packed, reinterpret_cast<float*>(smem));
    if (which == 0) {
        columns_of<0, shape::CHANNELS0, shape::POSITION + shape::CHANNELS1>(scene, w, roots, h, rows, first, columns);
    } else {
        if constexpr (shape::CHANNELS1 > 0) {
            columns_of<1, shape::CHANNELS1, shape::POSITION>(scene, w, roots, h, rows, first, columns);
        }
    }
}
NTC_KERNEL(gn_columns)

/// Adds columns to their elements, times the tap weights of the column, in ascending order: sums[row][element][y monomial]
/// [x monomial][pair of channels], then [y corner][x corner][channel]. A thread a value; blockIdx.y is the row of elements.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_elements(const float* columns, const float* fx, const u32* across, u32 elements, int width, int channels, int nearest,
            float* sums) {
    const int near = nearest ? 1 : 3, corners = nearest ? 1 : 2;
    const int part = channels * (channels + 1) / 2;
    const int values = near * near * part + corners * corners * channels, stride = near * part + corners * channels;
    const u64 at = (u64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (at >= (u64)elements * values) {
        return;
    }
    const u32 element = (u32)(at / values);
    int k = (int)(at % values), of_x, from;
    const bool in_matrix = k < near * near * part;
    if (in_matrix) {
        of_x = k / part % near;
        from = k / part / near * part + k % part;
    } else {
        k -= near * near * part;
        of_x = k / channels % corners;
        from = near * part + k / channels / corners * channels + k % channels;
    }
    float sum = 0.0f;
    for (u32 px = across[2 * element]; px < across[2 * element + 1]; ++px) {
        const float f = fx[px], g = 1.0f - f;
        float weight = 1.0f;
        if (!nearest && in_matrix) {
            weight = of_x == 0 ? g * g : of_x == 1 ? g * f : f * f;
        } else if (!nearest) {
            weight = of_x == 0 ? g : f;
        }
        sum = fmaf(weight, columns[((i64)blockIdx.y * width + px) * stride + from], sum);
    }
    sums[(u64)blockIdx.y * elements * values + at] = sum;
}
NTC_KERNEL(gn_elements)

namespace rows {
// Rows of a texel, as `Layout` orders them: inputs of each layer and a 1, sensitivities [unit][output], residuals.
__host__ __device__ constexpr int inputs_at(int layer) {
    int at = 0;
    for (int k = 0; k < layer; ++k) {
        at += shape::WIDTH[k] + 1;
    }
    return at;
}
__host__ __device__ constexpr int sensitivities_at(int layer) {
    return inputs_at(shape::LAYERS) + shape::units_before(layer) * shape::OUTPUTS;
}
constexpr int RESIDUALS = sensitivities_at(shape::LAYERS);
}  // namespace rows

/// Writes the inputs of LAYER and of those behind it; gives the outputs.
template <int LAYER>
__device__ __forceinline__ void write_inputs(const Scene& scene, const float* w, const float (&x)[1][shape::WIDTH[LAYER]],
                                             float* into, i64 stride, float (&out)[1][shape::OUTPUTS]) {
    for (int k = 0; k < shape::WIDTH[LAYER]; ++k) {
        into[(rows::inputs_at(LAYER) + k) * stride] = x[0][k];
    }
    into[(rows::inputs_at(LAYER) + shape::WIDTH[LAYER]) * stride] = 1.0f;
    float y[1][shape::WIDTH[LAYER + 1]];
    dense<LAYER, 1>(w, x, y);
    if constexpr (LAYER == shape::LAYERS - 1) {
        for (int o = 0; o < shape::OUTPUTS; ++o) {
            out[0][o] = head_one(scene, y[0][o]);
        }
    } else {
        activate(scene, y);
        write_inputs<LAYER + 1>(scene, w, y, into, stride, out);
    }
}

/// Outputs at both signs where the pre-activation of `unit`, counted from LAYER's first one, moves by +-h. `x` are LAYER's
/// inputs.
template <int LAYER>
__device__ __forceinline__ void bump_unit(const Scene& scene, const float* w, const float (&x)[1][shape::WIDTH[LAYER]],
                                          int unit, float h, float (&out)[2][shape::OUTPUTS]) {
    constexpr int OUT = shape::WIDTH[LAYER + 1];
    float y[1][OUT];
    dense<LAYER, 1>(w, x, y);
    if constexpr (LAYER == shape::LAYERS - 1) {
        for (int o = 0; o < OUT; ++o) {
            out[0][o] = head_one(scene, o == unit ? y[0][o] + h : y[0][o]);
            out[1][o] = head_one(scene, o == unit ? y[0][o] - h : y[0][o]);
        }
    } else {
        if (unit >= OUT) {
            activate(scene, y);
            bump_unit<LAYER + 1>(scene, w, y, unit - OUT, h, out);
            return;
        }
        float sum = y[0][0];
        for (int u = 1; u < OUT; ++u) {
            sum = u == unit ? y[0][u] : sum;
        }
        const float was = activate_one(scene, sum);
        const float change[2] = {activate_one(scene, sum + h) - was, activate_one(scene, sum - h) - was};
        activate(scene, y);
        constexpr int NEXT = shape::WIDTH[LAYER + 2];
        float next[1][NEXT], moved[2][NEXT];
        dense<LAYER + 1, 1>(w, y, next);
        const float* column = w + shape::weights_at(LAYER + 1) + unit;
        for (int v = 0; v < NEXT; ++v) {
            const float weight = column[v * shape::stride(LAYER + 1)];
            for (int t = 0; t < 2; ++t) {
                moved[t][v] = fmaf(weight, change[t], next[0][v]);
            }
        }
        if constexpr (LAYER + 2 == shape::LAYERS) {
            for (int o = 0; o < shape::OUTPUTS; ++o) {
                for (int t = 0; t < 2; ++t) {
                    out[t][o] = head_one(scene, moved[t][o]);
                }
            }
        } else {
            activate(scene, moved);
            forward_from<LAYER + 1, 2>(scene, w, moved, out);
        }
    }
}

/// Fills into[row][texel]: blockIdx.y 0 the inputs and residuals, above it the sensitivities of unit blockIdx.y - 1 of all
/// layers.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_rows(const Scene scene, const Batch batch, const float* packed, const float* roots, float h, float* into) {
    extern __shared__ __align__(16) unsigned char smem[];
    const float* w = stage(packed, reinterpret_cast<float*>(smem));
    const u32 i = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= batch.count) {
        return;
    }
    const i64 stride = batch.stride;
    float x[1][shape::INPUTS];
    for (int k = 0; k < shape::INPUTS; ++k) {
        x[0][k] = batch.inputs[k * stride + i];
    }
    if (blockIdx.y == 0) {
        float out[1][shape::OUTPUTS];
        write_inputs<0>(scene, w, x, into + i, stride, out);
        for (int o = 0; o < shape::OUTPUTS; ++o) {
            into[(rows::RESIDUALS + o) * stride + i] = (out[0][o] - batch.target[o * stride + i]) * roots[o];
        }
        return;
    }
    const int unit = (int)blockIdx.y - 1;
    float out[2][shape::OUTPUTS];
    bump_unit<0>(scene, w, x, unit, h, out);
    for (int o = 0; o < shape::OUTPUTS; ++o) {
        const float s = (out[0][o] - out[1][o]) * (roots[o] / (2.0f * h));
        into[(rows::sensitivities_at(0) + unit * shape::OUTPUTS + o) * stride + i] = s;
    }
}
NTC_KERNEL(gn_rows)

/// Adds J^T r of one layer to g[input][unit]: a thread a weight, blockIdx.y the unit. Texels come in strips of 64, a strip's
/// sums in 16 parts, and strips are added in their order in f64. `inputs`, `sensitivities` and `residuals` are rows.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_right(const float* from, u32 count, u32 stride, u32 inputs, u32 width, u32 sensitivities, u32 residuals, double* g) {
    const u32 k = blockIdx.x * NTC_THREADS + threadIdx.x, unit = blockIdx.y;
    if (k >= width) {
        return;
    }
    const float* x = from + (u64)(inputs + k) * stride;
    const float* s = from + (u64)(sensitivities + unit * shape::OUTPUTS) * stride;
    const float* r = from + (u64)residuals * stride;
    double total = g[(u64)unit * width + k];
    for (u32 strip = 0; strip < count; strip += 64) {
        float parts[16];
        for (int p = 0; p < 16; ++p) {
            parts[p] = 0.0f;
        }
        for (u32 n = strip; n < strip + 64 && n < count; ++n) {
            float q = 0.0f;
            for (int o = 0; o < shape::OUTPUTS; ++o) {
                q = fmaf(s[(u64)o * stride + n], r[(u64)o * stride + n], q);
            }
            parts[n % 16] = fmaf(q, x[n], parts[n % 16]);
        }
        double sum = 0.0;
        for (int p = 0; p < 16; ++p) {
            sum += (double)parts[p];
        }
        total += sum;
    }
    g[(u64)unit * width + k] = total;
}
NTC_KERNEL(gn_right)

/// out[pair][texel]: the product of rows pairs[pair][0] and pairs[pair][1], summed over `terms` rows from each on.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_pairs(const float* from, const u32* pairs, u32 terms, u32 count, u32 stride, float* out) {
    const u32 n = blockIdx.x * NTC_THREADS + threadIdx.x;
    if (n >= count) {
        return;
    }
    const u64 pair = blockIdx.y;
    const float* a = from + (u64)pairs[2 * pair] * stride + n;
    const float* b = from + (u64)pairs[2 * pair + 1] * stride + n;
    float sum = 0.0f;
    for (u32 o = 0; o < terms; ++o) {
        sum = fmaf(a[(u64)o * stride], b[(u64)o * stride], sum);
    }
    out[pair * stride + n] = sum;
}
NTC_KERNEL(gn_pairs)

/// Width of a block's square of sums in gn_multiply.
#define NTC_SQUARE 32

/// sums[row][column] += the product of rows of `left` and of `right` over `count` texels, in f32 in ascending order, added in
/// f64. A block a square of sums; a thread eight rows of one column.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
gn_multiply(const float* left, const float* right, u32 count, u32 stride, u32 height, u32 width, double* sums) {
    extern __shared__ __align__(16) unsigned char smem[];
    constexpr u32 PITCH = NTC_SQUARE + 1, MINE = NTC_SQUARE * NTC_SQUARE / NTC_THREADS;
    float* a = reinterpret_cast<float*>(smem);
    float* b = a + NTC_SQUARE * PITCH;
    const u32 row = blockIdx.y * NTC_SQUARE, column = blockIdx.x * NTC_SQUARE;
    const u32 x = threadIdx.x % NTC_SQUARE, y = threadIdx.x / NTC_SQUARE * MINE;
    float sum[MINE];
    for (u32 k = 0; k < MINE; ++k) {
        sum[k] = 0.0f;
    }
    for (u32 first = 0; first < count; first += NTC_SQUARE) {
        for (u32 k = threadIdx.x; k < NTC_SQUARE * NTC_SQUARE; k += NTC_THREADS) {
            const u32 r = k / NTC_SQUARE, n = k % NTC_SQUARE;
            const bool counts = first + n < count;
            a[r * PITCH + n] = counts && row + r < height ? left[(u64)(row + r) * stride + first + n] : 0.0f;
            b[r * PITCH + n] = counts && column + r < width ? right[(u64)(column + r) * stride + first + n] : 0.0f;
        }
        __syncthreads();
        for (u32 n = 0; n < NTC_SQUARE; ++n) {
            const float factor = b[x * PITCH + n];
            for (u32 k = 0; k < MINE; ++k) {
                sum[k] = fmaf(a[(y + k) * PITCH + n], factor, sum[k]);
            }
        }
        __syncthreads();
    }
    for (u32 k = 0; k < MINE; ++k) {
        if (row + y + k < height && column + x < width) {
            sums[(u64)(row + y + k) * width + column + x] += (double)sum[k];
        }
    }
}
NTC_KERNEL(gn_multiply)

/// Values on the grid of `bits` bits. Twin: src/model/quant.rs, grid_index and grid_value.
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
snap_values(const float* from, u64 count, u32 bits, float* to) {
    const u64 i = (u64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i >= count) {
        return;
    }
    const float last = (float)((1u << bits) - 1u);
    float x = (from[i] + 1.0f) * 0.5f * last;
    x = x > 0.0f ? x : 0.0f;
    x = x < last ? x : last;
    const float whole = truncf(x);
    const u32 k = (u32)(whole + (x - whole >= 0.5f ? 1.0f : 0.0f));
    to[i] = -1.0f + (float)(2 * k) / last;
}
NTC_KERNEL(snap_values)

/// Values limited to [-1, 1].
extern "C" __global__ void __launch_bounds__(NTC_THREADS)
limit_values(float* values, u64 count) {
    const u64 i = (u64)blockIdx.x * NTC_THREADS + threadIdx.x;
    if (i < count) {
        const float z = values[i] < -1.0f ? -1.0f : values[i];
        values[i] = z > 1.0f ? 1.0f : z;
    }
}
NTC_KERNEL(limit_values)
