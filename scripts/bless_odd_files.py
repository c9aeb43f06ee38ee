#!/usr/bin/env python3
"""Writes tests/odd_files.csv: what other programs read from the files of $NTC_TEST_DATA/odd.

    pip install pillow pypng && NTC_TEST_DATA=... scripts/bless_odd_files.py > tests/odd_files.csv

Pillow reads everything up to 8 bits a sample, pypng the 16-bit PNG files (which Pillow would
narrow) and grey ones below 8 bits with a transparent level (which Pillow gets wrong). Columns:

file      path below odd/
outcome   ok, or error: the file must be refused with one line
width, height, channels, depth   of an ok file; equal colour channels count as one, alpha stays
crc32     of the samples [texel][channel], one byte each, or two big-endian bytes at depth 16; empty for JPEG
mean      per channel, in levels: JPEG only, decoders differ in rounding
texels    JPEG only: `x y value...` at 25 places, separated by semicolons
"""

import csv
import io
import os
import sys
import zlib
from pathlib import Path

import png
from PIL import Image

REFUSED = {".dds", ".exr"}
GRID = 5


def main():
    folder = Path(os.environ["NTC_TEST_DATA"]) / "odd"
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["file", "outcome", "width", "height", "channels", "depth", "crc32", "mean", "texels"])
    for path in sorted(p for p in folder.rglob("*") if p.suffix.lower() in {".png", ".jpg", ".dds", ".exr"}):
        name = path.relative_to(folder).as_posix()
        corrupt = name.startswith("pngsuite/x")
        row = None if corrupt or path.suffix in REFUSED else describe(path)
        out.writerow([name, *(row or ["error"] + [""] * 7)])


def describe(path):
    """The row of one file behind its name; None where the reader refuses it."""
    try:
        width, height, channels, depth, samples = read_pypng(path) if needs_pypng(path) else read_pillow(path)
    except (OSError, SyntaxError):
        return None
    channels, samples = drop_equal_colours(channels, samples)
    row = ["ok", width, height, channels, depth]
    if path.suffix == ".jpg":
        return row + ["", *coarse(width, height, channels, samples)]
    data = bytes(samples) if depth == 8 else b"".join(v.to_bytes(2, "big") for v in samples)
    return row + [f"{zlib.crc32(data):08x}", "", ""]


def needs_pypng(path):
    """16-bit PNG, and grey below 8 bits with a transparent level, which Pillow compares after scaling only one of them."""
    data = path.read_bytes()
    if not data.startswith(b"\x89PNG"):
        return False
    depth, colour = data[24], data[25]
    return depth == 16 or (depth < 8 and colour == 0 and b"tRNS" in data)


def read_pypng(path):
    """Width, height, channels, depth and flat samples; depths below 8 are scaled to 8 bits.

    The sBIT chunk is left out: pypng would shift the samples by it; they count as stored.
    """
    kept = [c for c in png.Reader(bytes=path.read_bytes()).chunks() if c[0] != b"sBIT"]
    data = io.BytesIO()
    png.write_chunks(data, kept)
    width, height, rows, info = png.Reader(bytes=data.getvalue()).asDirect()
    depth = info["bitdepth"]
    samples = [v for row in rows for v in row]
    if depth < 8:
        samples, depth = [v * 255 // (2**depth - 1) for v in samples], 8
    return width, height, info["planes"], depth, samples


def read_pillow(path):
    """The same by Pillow; palettes and low depths are expanded, a transparent colour becomes alpha."""
    picture = Image.open(path)
    transparent = "transparency" in picture.info
    if picture.mode in ("P", "CMYK"):
        picture = picture.convert("RGBA" if transparent else "RGB")
    elif picture.mode in ("1", "L"):
        picture = picture.convert("LA" if transparent else "L")
    elif picture.mode == "RGB" and transparent:
        picture = picture.convert("RGBA")
    return picture.width, picture.height, len(picture.getbands()), 8, list(picture.tobytes())


def drop_equal_colours(channels, samples):
    """Grey where red, green and blue agree in every texel."""
    if channels < 3 or samples[0::channels] != samples[1::channels] or samples[1::channels] != samples[2::channels]:
        return channels, samples
    if channels == 3:
        return 1, samples[0::3]
    return 2, [v for pair in zip(samples[0::4], samples[3::4]) for v in pair]


def coarse(width, height, channels, samples):
    """Mean per channel and the texels at the crossings of an even grid."""
    texels = width * height
    mean = " ".join(f"{sum(samples[c::channels]) / texels:.3f}" for c in range(channels))
    places = [((2 * i + 1) * width // (2 * GRID), (2 * j + 1) * height // (2 * GRID))
              for j in range(GRID) for i in range(GRID)]
    rows = []
    for x, y in places:
        at = (y * width + x) * channels
        rows.append(" ".join(map(str, [x, y, *samples[at : at + channels]])))
    return mean, ";".join(rows)


if __name__ == "__main__":
    main()
