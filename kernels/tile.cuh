// Blocks that decode a rectangle of the image, with a border of one texel where deblocking needs neighbours. Twin:
// src/model/decode.rs (sweep_strip, deblock_strip).
#pragma once
#include "mlp.cuh"

/// The rectangle of a block: interior (x0, y0) .. (x0 + w, y0 + h), cut at the image, in a grid of points that is one
/// wider on each side with deblocking.
struct Tile {
    int x0, y0, w, h;
    int left, top;      // texel of point (0, 0)
    int across, points;
};

__device__ __forceinline__ Tile tile_of(const Scene& scene, int tile_w, int tile_h, u32 index) {
    const int columns = (scene.width + tile_w - 1) / tile_w;
    const int halo = scene.deblock_x != nullptr ? 1 : 0;
    Tile tile;
    tile.x0 = (int)(index % columns) * tile_w;
    tile.y0 = (int)(index / columns) * tile_h;
    tile.w = scene.width - tile.x0 < tile_w ? scene.width - tile.x0 : tile_w;
    tile.h = scene.height - tile.y0 < tile_h ? scene.height - tile.y0 : tile_h;
    tile.left = tile.x0 - halo;
    tile.top = tile.y0 - halo;
    tile.across = tile_w + 2 * halo;
    tile.points = tile.across * (tile_h + 2 * halo);
    return tile;
}

/// Texel of a point; false where it lies outside the image.
__device__ __forceinline__ bool texel_of(const Scene& scene, const Tile& tile, int point, int& px, int& py) {
    px = tile.left + point % tile.across;
    py = tile.top + point / tile.across;
    return px >= 0 && py >= 0 && px < scene.width && py < scene.height;
}

/// One output channel of texel (px, py) of the interior, filtered where deblocking is on. `out` holds the channel's points.
__device__ __forceinline__ float finished(const Scene& scene, const Tile& tile, const float* out, int px, int py) {
    const int at = (py - tile.top) * tile.across + (px - tile.left);
    const float c = out[at];
    if (scene.deblock_x == nullptr) {
        return c;
    }
    // At the image's border the texel stands for the neighbour that is missing.
    const float a = px > 0 ? out[at - 1] : c;
    const float b = px + 1 < scene.width ? out[at + 1] : c;
    const float d = py > 0 ? out[at - tile.across] : c;
    const float e = py + 1 < scene.height ? out[at + tile.across] : c;
    return deblock_one(c, a, b, d, e, scene.deblock_x[px], scene.deblock_y[py]);
}
