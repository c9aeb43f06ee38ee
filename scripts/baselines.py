"""Rows of other codecs for `ntc-es report`; baselines.sh installs what it needs.

    baselines.py TABLE.csv NAME=IMAGE[,IMAGE..].. --like RESULTS.csv

NAME is what the sweep's table calls these images (its column `images`). Images are cut to 512 texels a side around the centre as
`ntc-es` does it. Every map of a material is coded by itself; PSNR is that of the mean of the maps' mean squared errors, bits are
added up. A map whose three channels are equal counts as one channel: BC4 in place of BC1 and BC7.

`bpp_raw` is what the texels take in GPU memory at random access (empty for codecs that have none), `bpp_file` what a file takes: the
coder's own bytes, or the blocks behind zlib at level 9 (the KTX2 supercompression scheme 3). A codec that is not installed is named
on stderr and left out.
"""

import csv
import sys
import time
import zlib

import numpy as np
from PIL import Image

SIDE = 512


def load(path):
    image = Image.open(path)
    assert image.mode in ("L", "RGB", "RGBA", "P"), f"{path}: mode {image.mode} is not supported"
    rgb = np.asarray(image.convert("RGB"))
    y, x = ((n - min(n, SIDE)) // 2 for n in rgb.shape[:2])
    rgb = np.ascontiguousarray(rgb[y:y + SIDE, x:x + SIDE])
    assert rgb.shape[0] % 4 == 0 and rgb.shape[1] % 4 == 0, f"{path}: sides must be multiples of 4"
    grey = (rgb == rgb[..., :1]).all()
    return rgb[..., :1] if grey else rgb


def rgba(image):
    wide = np.repeat(image, 3, 2) if image.shape[2] == 1 else image
    return np.ascontiguousarray(np.dstack([wide, np.full(wide.shape[:2], 255, np.uint8)]))


def shown(pixels, image):
    """Decoded RGBA bytes in the channels of `image`."""
    height, width, channels = image.shape
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 4)[..., :channels]


# ---- block formats: (blocks, decoded)


def bc1(image):
    from quicktex import RawTexture
    from quicktex.s3tc.bc1 import BC1Decoder, BC1Encoder
    height, width, _ = image.shape
    texture = BC1Encoder(18).encode(RawTexture.frombytes(rgba(image).tobytes(), width, height))
    return texture.tobytes(), shown(BC1Decoder().decode(texture).tobytes(), image)


def bc4(image):
    from quicktex import RawTexture
    from quicktex.s3tc.bc4 import BC4Decoder, BC4Encoder
    height, width, _ = image.shape
    texture = BC4Encoder(0).encode(RawTexture.frombytes(rgba(image).tobytes(), width, height))
    return texture.tobytes(), shown(BC4Decoder(0).decode(texture).tobytes(), image)


def bc7(image):
    import etcpak
    import texture2ddecoder
    height, width, _ = image.shape
    params = etcpak.BC7CompressBlockParams()
    params.init_linear_weights()
    params.m_uber_level, params.m_max_partitions, params.m_try_least_squares = 4, 64, True
    blocks = etcpak.compress_bc7(rgba(image).tobytes(), width, height, params)
    bgra = np.frombuffer(texture2ddecoder.decode_bc7(blocks, width, height), np.uint8).reshape(height, width, 4)
    return blocks, bgra[..., 2::-1][..., :image.shape[2]]


def astc(side):
    def code(image):
        import astc_encoder as a
        height, width, _ = image.shape
        context = a.ASTCContext(a.ASTCConfig(a.ASTCProfile.LDR, side, side, 1, quality=98.0))
        swizzle = a.ASTCSwizzle.from_str("rrr1" if image.shape[2] == 1 else "rgb1")
        source = a.ASTCImage(a.ASTCType.U8, width, height, 1, rgba(image).tobytes())
        blocks = context.compress(source, swizzle)
        out = a.ASTCImage(a.ASTCType.U8, width, height, 1)
        context.decompress(blocks, out, a.ASTCSwizzle.from_str("rgba"))
        return blocks, shown(out.data, image)
    return code


# ---- files: (bytes, decoded)


def file_codec(name, encode):
    def code(image):
        import imagecodecs
        plain = image[..., 0] if image.shape[2] == 1 and name != "webp" else image
        plain = np.ascontiguousarray(np.repeat(image, 3, 2) if name == "webp" and image.shape[2] == 1 else plain)
        data = encode(imagecodecs, plain)
        decoded = getattr(imagecodecs, f"{name}_decode")(data)
        decoded = decoded[..., None] if decoded.ndim == 2 else decoded
        return data, decoded[..., :image.shape[2]]
    return code


def codecs():
    """(source, setting, function, whether it is random access)."""
    yield "bc1", "bc1-bc4", lambda image: bc4(image) if image.shape[2] == 1 else bc1(image), True
    yield "bc7", "bc7-bc4", lambda image: bc4(image) if image.shape[2] == 1 else bc7(image), True
    for side in (4, 5, 6, 8):
        yield "astc", f"astc-{side}x{side}", astc(side), True
    for level in (40, 60, 75, 85, 92, 96):
        yield "jpeg", f"jpeg-{level}", file_codec("jpeg8", lambda c, x, q=level: c.jpeg8_encode(x, level=q)), False
        yield "webp", f"webp-{level}", file_codec("webp", lambda c, x, q=level: c.webp_encode(x, level=q, lossless=False)), False
    for level in (40, 60, 75, 85, 92, 96):
        yield "avif", f"avif-{level}", file_codec("avif", lambda c, x, q=level: c.avif_encode(x, level=q, speed=4)), False
    for distance in (4.0, 2.5, 1.5, 1.0, 0.6, 0.3):
        yield "jxl", f"jxl-{distance}", file_codec(
            "jpegxl", lambda c, x, d=distance: c.jpegxl_encode(x, distance=d, lossless=False, effort=7)), False


def padded(image, side):
    """The image with sides that are multiples of `side`, edges repeated."""
    height, width, _ = image.shape
    return np.pad(image, ((0, -height % side), (0, -width % side), (0, 0)), "edge")


def rows(name, paths, header):
    images = [load(path) for path in paths]
    texels = images[0].shape[0] * images[0].shape[1]
    missing = set()
    for source, setting, code, random_access in codecs():
        if source in missing:
            continue
        started, errors, memory, file = time.process_time(), [], 0, 0
        try:
            for image in images:
                whole = padded(image, int(setting[-1])) if source == "astc" else image
                data, decoded = code(whole)
                decoded = decoded[:image.shape[0], :image.shape[1]]
                errors.append(np.mean((decoded.astype(float) - image) ** 2) / 255 ** 2)
                memory += len(data)
                file += len(zlib.compress(data, 9)) if random_access else len(data)
        except (ImportError, AttributeError) as e:
            print(f"skipped: {source}: {e}", file=sys.stderr)
            missing.add(source)
            continue
        psnr = [-10 * np.log10(e) if e else "" for e in errors]
        figures = {
            "cell": f"{name}-{setting}", "case": setting, "status": "done", "source": source, "images": name,
            "psnr_q_db": -10 * np.log10(np.mean(errors)), "psnr_q_db_textures": ";".join(map(str, psnr)),
            "bpp_raw": 8 * memory / texels if random_access else "", "bpp_file": 8 * file / texels, "file_bytes": file,
            "cpu_s": round(time.process_time() - started, 3), "height": images[0].shape[0], "width": images[0].shape[1],
        }
        print(f"{name} {setting}: {figures['psnr_q_db']:.2f} dB, {figures['bpp_raw'] or '-'} bpp in memory, "
              f"{figures['bpp_file']:.3f} bpp file", file=sys.stderr)
        yield [figures.get(column, "") for column in header]


def main():
    arguments = sys.argv[1:]
    at = arguments.index("--like")
    with open(arguments[at + 1], newline="") as like:
        header = next(csv.reader(like))
    table, *materials = arguments[:at] + arguments[at + 2:]
    with open(table, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        for material in materials:
            name, paths = material.split("=", 1)
            writer.writerows(rows(name, paths.split(","), header))


main()
