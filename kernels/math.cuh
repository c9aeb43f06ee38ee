// Twins of src/model/math.rs: the same operations in the same order, so the same bits. Every fused multiply-add is written
// out; compilers are told not to make others.
#pragma once
#include "compat.cuh"

namespace math {

#define NTC_QUIET_NAN __uint_as_float(0x7fc00000u)

constexpr float MAGIC = 12582912.0f;
constexpr float MAGIC_BIASED = 12583039.0f;
constexpr u32 SIGN = 0x80000000u;
constexpr float LOG2_E = 1.44269504088896340735992468100189214f;
constexpr float LN_2_HIGH = 0.693147180559945309417232121458176568f;
constexpr float LN_2_LOW = -1.9046542e-9f;
constexpr float PI_2_HIGH = 1.57079632679489661923132169163975144f;
constexpr float PI_2_MIDDLE = -4.371139e-8f;
constexpr float PI_2_LOW = -1.7151245e-15f;
constexpr float TWO_OVER_PI = 0.636619772367581343075535053490057448f;

__device__ __forceinline__ float nan_of(float x, float y) {
    return x <= x ? y : NTC_QUIET_NAN;
}

__device__ __forceinline__ float within(float x, float low, float high) {
    x = low < x ? x : low;
    return x < high ? x : high;
}

__device__ __forceinline__ float pow2(u32 t) {
    return __uint_as_float(t << 23);
}

/// z = n ln 2 + r: the biased sum that holds n, n, e^r - 1.
__device__ __forceinline__ void exp_parts(float z, float& t, float& n, float& q) {
    t = fmaf(z, LOG2_E, MAGIC_BIASED);
    n = t - MAGIC_BIASED;
    float r = fmaf(n, -LN_2_HIGH, z);
    r = fmaf(n, -LN_2_LOW, r);
    float sum = 0.0014035397f;
    sum = fmaf(sum, r, 0.008372293f);
    sum = fmaf(sum, r, 0.041665554f);
    sum = fmaf(sum, r, 0.16666488f);
    sum = fmaf(sum, r, 0.5f);
    q = fmaf(sum, r * r, r);
}

__device__ __forceinline__ float sigmoid(float x) {
    const float z = within(__uint_as_float(__float_as_uint(x) ^ SIGN), -87.0f, 89.0f);
    float t, n, q;
    exp_parts(z, t, n, q);
    const float y = 1.0f / fmaf(q + 1.0f, pow2(__float_as_uint(t)), 1.0f);
    return nan_of(x, y);
}

__device__ __forceinline__ float tanh(float x) {
    const float a = __uint_as_float(__float_as_uint(x) & ~SIGN);
    const float z = within(a + a, 0.0f, 20.0f);
    float t, n, q;
    exp_parts(z, t, n, q);
    const float s = pow2(__float_as_uint(t));
    const float e = fmaf(s, q, s - 1.0f);
    const float y = e / (e + 2.0f);
    return nan_of(x, __uint_as_float(__float_as_uint(y) ^ (__float_as_uint(x) & SIGN)));
}

/// ln x for positive normal finite x.
__device__ __forceinline__ float ln_normal(float x) {
    const u32 two_thirds = 0x3f2aaaabu;
    const u32 w = __float_as_uint(x) + (0x3f800000u - two_thirds);
    const float e = __uint_as_float((w >> 23) | 0x4b000000u) - 8388735.0f;
    const float f = __uint_as_float((w & 0x007fffffu) + two_thirds) - 1.0f;
    float sum = -0.12453076f;
    sum = fmaf(sum, f, 0.14074145f);
    sum = fmaf(sum, f, -0.12278035f);
    sum = fmaf(sum, f, 0.13987963f);
    sum = fmaf(sum, f, -0.16674285f);
    sum = fmaf(sum, f, 0.20011485f);
    sum = fmaf(sum, f, -0.24999921f);
    sum = fmaf(sum, f, 0.33333197f);
    sum = fmaf(sum, f, -0.5f);
    const float y = fmaf(sum, f * f, f);
    return fmaf(e, LN_2_HIGH, y);
}

/// (sin, cos) of n pi/2 + r, where the two low bits of `t` are n mod 4.
__device__ __forceinline__ void quadrant(u32 t, float r, float& sin, float& cos) {
    const float z = r * r;
    float s = -0.00019513446f;
    s = fmaf(s, z, 0.008332136f);
    s = fmaf(s, z, -0.16666654f);
    s = fmaf(s * z, r, r);
    float c = 2.4430978e-5f;
    c = fmaf(c, z, -0.0013887302f);
    c = fmaf(c, z, 0.041666646f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    const u32 n = t << 30;
    const bool odd = 1.0f < __uint_as_float(n & 0x40000000u);
    sin = __uint_as_float(__float_as_uint(odd ? c : s) ^ (n & SIGN));
    cos = __uint_as_float(__float_as_uint(odd ? s : c) ^ ((n + 0x40000000u) & SIGN));
}

__device__ __forceinline__ float sin(float x) {
    const float a = __uint_as_float(__float_as_uint(x) & ~SIGN);
    const float inside = a <= 4194304.0f ? a : 0.0f;
    const float t = fmaf(inside, TWO_OVER_PI, MAGIC);
    const float n = t - MAGIC;
    float r = fmaf(n, -PI_2_HIGH, inside);
    r = fmaf(n, -PI_2_MIDDLE, r);
    r = fmaf(n, -PI_2_LOW, r);
    float s, c;
    quadrant(__float_as_uint(t), r, s, c);
    s = __uint_as_float(__float_as_uint(s) ^ (__float_as_uint(x) & SIGN));
    return a < __uint_as_float(0x7f800000u) ? s : NTC_QUIET_NAN;
}

/// (sin, cos) of `t` full turns, t in [0, 1).
__device__ __forceinline__ void sin_cos_turns(float t, float& sin, float& cos) {
    const float quarters = t * 4.0f;
    const float n = quarters + MAGIC;
    const float rest = quarters - (n - MAGIC);
    quadrant(__float_as_uint(n), rest * PI_2_HIGH, sin, cos);
}

}  // namespace math
