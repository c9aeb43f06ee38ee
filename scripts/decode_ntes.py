#!/usr/bin/env python3
"""Decodes a coded file (record.ntes) to pictures, with numpy alone: an independent reading of METHOD.md, chapter 15.

    decode_ntes.py record.ntes OUT      writes OUT/K.npy for texture K: (height, width, channels), u8 or u16
"""
import os
import struct
import sys
import zlib

import numpy as np

F = np.float32
LOGISTIC = [1, 2, 3, 6, 10, 16, 27, 45, 73, 120, 194, 310, 488, 747, 1101, 1546, 2047, 2549, 2994, 3348, 3607, 3785, 3901,
            3975, 4022, 4050, 4068, 4079, 4085, 4089, 4092, 4093, 4094]
SQUASH = [(LOGISTIC[k >> 7] * (128 - (k & 127)) + LOGISTIC[(k >> 7) + 1] * (k & 127) + 64) >> 7 for k in range(4096)]
RATE = [655360 // (10 * n + 16) for n in range(256)]


def stretch_table():
    table, p = [2047] * 4096, 0
    for x in range(-2047, 2048):
        while p <= SQUASH[x + 2048]:
            table[p], p = x, p + 1
    return table


STRETCH = stretch_table()


def clamp(x, low, high):
    return min(max(x, low), high)


def quotient(a, b):
    """a / b for b > 0, towards zero."""
    return a // b if a >= 0 else -(-a // b)


# ---- container and header


def sections(data):
    assert data[:4] == b"NTES" and data[4] == 1, "not a file of version 1"
    at, found = 6, {}
    for _ in range(data[5]):
        kind, length = data[at:at + 4], struct.unpack_from("<I", data, at + 4)[0]
        assert zlib.crc32(data[at:at + 8 + length]) == struct.unpack_from("<I", data, at + 8 + length)[0], "damaged"
        assert kind not in found, "a section twice"
        found[kind] = data[at + 8:at + 8 + length]
        at += 12 + length
    assert zlib.crc32(data[:at]) == struct.unpack_from("<I", data, at)[0] and at + 4 == len(data), "damaged"
    return found


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def read(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text(self):
        length = self.read("H")
        self.at += length
        return self.data[self.at - length:self.at].decode()


def header(data):
    c, h = Cursor(data), {}
    h["coding"] = c.read("B")
    h["width"], h["height"], h["source_width"], h["source_height"] = c.read("IIII")
    h["textures"] = [(c.read("BB"), c.text()) for _ in range(c.read("B"))]
    h["levels"] = []
    for _ in range(c.read("B")):
        level = dict(zip(("w", "h", "c", "nearest", "kind"), c.read("IIBBB")))
        if level["kind"] == 0:
            level["ranges"] = [c.read("ff") for _ in range(level["c"])]
        elif level["kind"] == 1:
            level["bits"] = [c.read("B")] * level["c"]
        else:
            assert level["kind"] == 2, "an unknown kind of level"
            level["bits"] = [c.read("B") for _ in range(level["c"])]
        h["levels"].append(level)
    h["position"] = c.text()
    h["hidden"] = [c.read("B") for _ in range(c.read("B"))]
    h["activation"], h["leak"], h["clamp"], h["deblock"], h["q"], h["weight_bits"] = c.read("BfBfBB")
    assert c.at == len(data) and h["weight_bits"] in (8, 16), "an unknown header"
    for level in h["levels"]:
        level.setdefault("bits", [h["q"]] * level["c"])
    return h


# ---- coding fixed


def bits_at(data, at, count):
    return int.from_bytes(data[at // 8:at // 8 + 3], "little") >> at % 8 & (1 << count) - 1


def texel_at(data, at, bits):
    values = []
    for b in bits:
        values.append(bits_at(data, at, b))
        at += b
    return values


def read_fixed(h, found):
    levels = h["levels"]
    size = [sum(level["bits"]) for level in levels]
    if len(levels) == 2 and all(level["nearest"] for level in levels):
        (a, b), data = levels, found.get(b"PACK")
        if a["w"] % b["w"] == 0 and a["h"] % b["h"] == 0:
            cw, ch = a["w"] // b["w"], a["h"] // b["h"]
            packet = size[1] + cw * ch * size[0]

            def first(x, y):
                return (y // ch * b["w"] + x // cw) * packet + size[1] + (y % ch * cw + x % cw) * size[0]
            zero = [[texel_at(data, first(x, y), a["bits"]) for x in range(a["w"])] for y in range(a["h"])]
            one = [[texel_at(data, (y * b["w"] + x) * packet, b["bits"]) for x in range(b["w"])] for y in range(b["h"])]
            return [np.array(zero), np.array(one)]
    return [np.array([[texel_at(found[b"GRD%d" % k], (y * l["w"] + x) * size[k], l["bits"]) for x in range(l["w"])]
                      for y in range(l["h"])]) for k, l in enumerate(levels)]


# ---- coding range


class Coder:
    def __init__(self, data):
        self.data, self.at = data, 4
        self.code, self.range = int.from_bytes(data[:4], "big"), 0xFFFFFFFF

    def decide(self, p):
        bound = (self.range >> 12) * p
        bit = int(self.code < bound)
        if bit:
            self.range = bound
        else:
            self.code, self.range = self.code - bound, self.range - bound
        while self.range < 1 << 24:
            self.range <<= 8
            self.code = self.code << 8 | self.data[self.at]
            self.at += 1
        return bit

    def even(self, count):
        value = 0
        for _ in range(count):
            value = 2 * value + self.decide(2048)
        return value

    def end(self):
        assert self.at == len(self.data), "a section of the wrong length"


class Mixture:
    """Counters and weights come to be when they are first named."""

    def __init__(self, n):
        self.n, self.counters, self.weights = n, [{} for _ in range(n)], {}

    def decide(self, coder, contexts, which):
        counters = [table.setdefault(c, [32768, 0]) for table, c in zip(self.counters, contexts)]
        weights = self.weights.setdefault(which, [78643 // self.n] * self.n + [0])
        inputs = [STRETCH[c[0] >> 4] for c in counters] + [256]
        odds = clamp(sum(w * x for w, x in zip(weights, inputs)) >> 16, -2047, 2047)
        p = clamp(SQUASH[odds + 2048], 1, 4095)
        bit = coder.decide(p)
        error = ((bit << 12) - p) * 10
        for i, x in enumerate(inputs):
            weights[i] = clamp(weights[i] + (x * error + 8192 >> 14), -1 << 22, 1 << 22)
        for c in counters:
            c[0] = clamp(c[0] + ((65535 * bit - c[0]) * RATE[c[1]] >> 16), 32, 65503)
            c[1] = min(c[1] + 1, 255)
        return bit


def read_weights(data, layers):
    coder, mixture, values = Coder(data), Mixture(2), []
    for k, (inputs, outputs) in enumerate(layers):
        for biases, count in ((0, inputs * outputs), (1, outputs)):
            most, kind = coder.even(5), 2 * min(k, 3) + biases

            def decide(node):
                return mixture.decide(coder, (node, 64 * kind + node), node)
            for _ in range(count):
                d = 0
                while d < most and decide(d):
                    d += 1
                sign = decide(32)
                t = 33 + 3 * min(d, 3)
                first = decide(t)
                second = decide(t + 1 + first)
                values.append(sign << 15 | most - d << 10 | first << 9 | second << 8 | coder.even(8))
    coder.end()
    return np.array(values, np.uint16).view(np.float16)


def read_small_weights(data, layers):
    c, values = Cursor(data), []
    for inputs, outputs in layers:
        scale = c.read("e")
        values += [scale * c.read("b") for _ in range(inputs * outputs)] + [c.read("e") for _ in range(outputs)]
    assert c.at == len(data), "weights of another number"
    return np.array(values)


def size(m):
    if m == 0:
        return 0
    o = m.bit_length() - 1
    return 1 + min(14, 2 * o + (m >> o - 1 & 1 if o else 0))


def sign(r):
    return 1 + (r > 0) - (r < 0)


def read_latents(data, level):
    w, h, channels, b = level["w"], level["h"], level["c"], level["bits"][0]
    half, last, coder = 1 << b - 1, (1 << b) - 1, Coder(data)
    v = [[[0] * channels for _ in range(w)] for _ in range(h)]
    e = [[[0] * channels for _ in range(w)] for _ in range(h)]
    models = [Mixture(3) for _ in range(min(channels, 8))]
    us = [[45000, 45000, -25000, 0, 0, 0] + [0] * 3 * min(c, 4) for c in range(channels)]

    def V(x, y, dx, dy, c):
        for X, Y in ((x + dx, y + dy), (x - 1, y), (x, y - 1)):
            if 0 <= X < w and 0 <= Y < h:
                return v[Y][X][c] - half
        return 0

    for y in range(h):
        for x in range(w):
            for c in range(channels):
                u = us[c]
                a = [V(x, y, dx, dy, c) for dx, dy in ((-1, 0), (0, -1), (-1, -1), (1, -1), (-2, 0), (0, -2))]
                a += [V(x, y, dx, dy, k) for k in range(max(0, c - 4), c) for dx, dy in ((0, 0), (-1, 0), (0, -1))]
                f = clamp(sum(i * j for i, j in zip(u, a)) >> 12, -16 * half, 16 * (half - 1))
                E = clamp((f + 8 >> 4) + half, 0, last)

                def R(dx, dy):
                    return e[y + dy][x + dx][c] if 0 <= x + dx < w and y + dy >= 0 else 0
                r1, r2 = (e[y][x][c - k] if c >= k else 0 for k in (1, 2))
                around = 2 * abs(R(-1, 0)) + 2 * abs(R(0, -1)) + abs(R(-1, -1)) + abs(R(1, -1))
                texture = abs(a[0] - a[2]) + abs(a[1] - a[2]) + abs(a[3] - a[1])
                t = (3 * size(4 * texture // 3) + sign(R(-1, 0)), 8 * (size(4 * abs(r1)) // 2) + size(4 * abs(r2)) // 2,
                     3 * size(2 * around // 3) + sign(r1))
                model = models[min(c, 7)]

                def decide(node):
                    return model.decide(coder, [64 * i + node for i in t], node)
                r = 0
                if not decide(0):
                    negative = decide(1) if 0 < E < last else E == last
                    m, o = E if negative else last - E, 0
                    while o < m.bit_length() - 1 and decide(2 + o):
                        o += 1
                    r = 1
                    for k in range(o):
                        node = (15 + 3 * o, 16 + 3 * o + (r & 1), 63)[min(k, 2)]
                        r = 2 * r + decide(node)
                    r = -r if negative else r
                value = clamp(E + r, 0, last)
                v[y][x][c], e[y][x][c] = value, value - E
                s = quotient((16 * (value - half) - f) * 2000 << 16, 16 * (64 + sum(i * i for i in a)))
                for j, i in enumerate(a):
                    u[j] = clamp(u[j] + (s * i + 32768 >> 16), -1 << 24, 1 << 24)
    coder.end()
    return np.array(v)


def read_selectors(data, level, below, one):
    w, h, bits, coder = level["w"], level["h"], level["bits"], Coder(data)
    channels = len(bits)
    v = [[[0] * channels for _ in range(w)] for _ in range(h)]
    models = [Mixture(5) for _ in range(min(channels, 8))]
    blocks = below is not None and w % below["w"] == 0 and h % below["h"] == 0
    cw, ch = (w // below["w"], h // below["h"]) if blocks else (4, 4)
    widest = [bits[c] if c < 7 else max(bits[7:]) for c in range(channels)]
    nodes = [1 << b if b <= 4 else 12 + b for b in widest]

    def part(p, c):
        return p % c if c <= 4 else 4 * (p % c) // c

    def top(value, b):
        return int(value) >> max(b - 3, 0)

    for y in range(h):
        for x in range(w):
            position = 4 * part(y, ch) + part(x, cw)
            border = (x % cw == 0) + 2 * (y % ch == 0)
            kind = 0
            if blocks:
                for value, b in list(zip(one[y // ch][x // cw], below["bits"]))[:4]:
                    kind = 8 * kind + top(value, b) % 8
            before = 0
            for c, b in enumerate(bits):
                def near(dx, dy):
                    return top(v[y + dy][x + dx][c], b) if 0 <= x + dx < w and y + dy >= 0 else 0
                l, u, ul, ur = near(-1, 0), near(0, -1), near(-1, -1), near(1, -1)
                t = (4 * (8 * ul + ur) + border, 8 * position + l, kind, 512 * l + 64 * u + 8 * ul + ur,
                     64 * l + 8 * u + before)
                value = 0
                for k in range(b):
                    node = (1 << k) + value if k < 4 else 12 + k
                    value = 2 * value + models[min(c, 7)].decide(coder, [i * nodes[c] + node for i in t],
                                                                 16 * node + position)
                v[y][x][c], before = value, top(value, b)
    coder.end()
    return np.array(v)


def read_range(h, found):
    levels, read = h["levels"], [None, None]
    for k in reversed(range(len(levels))):
        data, level = found[b"RNG%d" % k], levels[k]
        below = levels[1] if len(levels) == 2 else None
        read[k] = read_selectors(data, level, below, read[1]) if level["kind"] == 2 else read_latents(data, level)
    return read[:len(levels)]


# ---- from values to texels


def values(level, k):
    out = np.empty(k.shape, F)
    for c, b in enumerate(level["bits"]):
        last = F((1 << b) - 1)
        if level["kind"] > 0:
            out[..., c] = F(-1) + (2 * k[..., c]).astype(F) / last
        else:
            low, scale = map(F, level["ranges"][c])
            out[..., c] = low + k[..., c].astype(F) / last * scale
    return out


def taps(extent, count, nearest):
    """First and second latent index, fraction, first index before clamping; one entry a texel."""
    x = (np.arange(extent, dtype=F) + F(0.5)) / F(extent) * F(count) - F(0 if nearest else 0.5)
    i = np.floor(x).astype(int)
    return np.clip(i, 0, count - 1), np.clip(i + (0 if nearest else 1), 0, count - 1), x - np.floor(x), i


def sample(level, z, tx, ty):
    if level["nearest"]:
        return z[ty[0]][:, tx[0]]
    fx, fy = tx[2][None, :, None], ty[2][:, None, None]
    top = z[ty[0]][:, tx[0]] * (1 - fx) + z[ty[0]][:, tx[1]] * fx
    return top * (1 - fy) + (z[ty[1]][:, tx[0]] * (1 - fx) + z[ty[1]][:, tx[1]] * fx) * fy


BLOCK_DCT = "10 01 02 11 20 30 21 12 03 13 22 31 32 23 33".split()
BC7 = """CCCC 8888 EEEE ECC8 C880 FEEC FEC8 EC80 C800 FFEC FE80 E800 FFE8 FF00 FFF0 F000 F710 008E 7100 08CE 008C 7310 3100
8CCE 088C 3110 6666 366C 17E8 0FF0 718E 399C AAAA F0F0 5A5A 33CC 3C3C 55AA 9696 A55A 73CE 13C8 324C 3BDC 6996 C33C 9966 0660
0272 04E4 4E40 2720 C936 936C 39C6 639C 9336 9CC6 817E E718 CCF0 0FCC 7744 EE22""".split()


def features(h, taps_of):
    """Position features as (height, width) planes in input order."""
    W, H = h["width"], h["height"]
    u, v = ((np.arange(n, dtype=F) + F(0.5)) / F(n) for n in (W, H))
    planes = []

    def add(x, y):
        planes.append(np.outer(np.broadcast_to(y, H), np.broadcast_to(x, W)).astype(F))

    def wave(k, p):
        return np.cos(np.pi * k * p.astype(float))

    def both(x, y):
        add(x, 1), add(1, y)

    def dct(x, y, n):
        for k in range(1, n + 1):
            both(wave(k, x), wave(k, y))

    def fourier(x, y, n):
        for k in range(n):
            a, b = (2 ** k * 2 * np.pi * p.astype(float) for p in (x, y))
            add(np.sin(a), 1), add(np.cos(a), 1), add(1, np.sin(b)), add(1, np.cos(b))

    (tx, ty), fine = taps_of[0], taps_of[-1]
    cw, ch = max(W // h["levels"][0]["w"], 1), max(H // h["levels"][0]["h"], 1)
    for item in h["position"].split(","):
        name, _, n = item.partition(":")
        n = int(n or 0)
        if name == "uv":
            both(2 * u - 1, 2 * v - 1)
        elif name == "fourier":
            fourier(u, v, n)
        elif name == "dct":
            dct(u, v, n)
        elif name in ("local", "lv1local"):
            a, b = fine if name[1] == "v" else (tx, ty)
            both(2 * a[2] - 1, 2 * b[2] - 1)
        elif name == "lfourier":
            fourier(tx[2], ty[2], n)
        elif name in ("ldct", "lv1ldct"):
            a, b = fine if name[1] == "v" else (tx, ty)
            dct(a[2], b[2], n)
        elif name == "lquad":
            a, b = 2 * tx[2] - 1, 2 * ty[2] - 1
            add(a, b), add(a * a, 1), add(1, b * b)
        elif name in ("ldct2", "ldct4"):
            p = int(name[-1])
            dct((tx[3] % p + tx[2]) / F(p), (ty[3] % p + ty[2]) / F(p), n)
        elif name in ("bdct", "bdcte"):
            for ab in BLOCK_DCT[:n] if name == "bdct" else BLOCK_DCT[n - 1:n]:
                add(wave(int(ab[0]), tx[2]), wave(int(ab[1]), ty[2]))
        elif name == "onehot":
            for i in range(cw * ch):
                add(np.arange(W) % cw == i % cw, np.arange(H) % ch == i // cw)
        elif name == "bc7part":
            for bits in BC7[:n]:
                y, x = np.indices((H, W))
                planes.append(np.where(int(bits, 16) >> 4 * (y % 4) + x % 4 & 1, F(1), F(-1)))
        else:
            assert name == "none", "an unknown position feature"
    return planes


def deblock(h, texels):
    level, falloff = h["levels"][0], h["deblock"]

    def weights(extent, count):
        cell = extent // count
        p = np.arange(extent) % cell + 0.5
        near = np.maximum(np.maximum(0, 1 - p / falloff), np.maximum(0, 1 - (cell - p) / falloff))
        return np.minimum(1, 2 * near)
    wh, wv = weights(h["width"], level["w"])[None, :, None], weights(h["height"], level["h"])[:, None, None]

    def mixed(axis, weight):
        pad = [(1, 1) if a == axis else (0, 0) for a in range(3)]
        q = np.pad(texels, pad, mode="edge")
        n = texels.shape[axis]
        mean = (q.take(range(n), axis) + texels + q.take(range(2, n + 2), axis)) / 3
        return texels + weight * (mean - texels)
    total = wh + wv
    result = (wh * mixed(1, wh) + wv * mixed(0, wv)) / np.where(total > 0, total, 1)
    return np.where(total > 0, result, texels)


def written_channels(h, section):
    """For each texture what its channels are: ("output", number), ("constant", level) or ("z", None)."""
    c = Cursor(section) if section is not None else None

    def channel(number):
        kind = number if c is None else c.read("B")
        return ("z", None) if kind == 254 else ("constant", c.read("H")) if kind == 255 else ("output", kind)

    return [[channel(k) for k in range(channels)] for (channels, _), _ in h["textures"]]


def picture_of(channels, outputs, most):
    """The samples 0 to 1 of a picture: (height, width, channels)."""
    shape = outputs.shape[:2]
    source = {"output": lambda k: outputs[..., k], "constant": lambda level: np.full(shape, level / most),
              "z": lambda _: np.zeros(shape)}
    x = np.stack([source[kind](value) for kind, value in channels], axis=2)
    if ("z", None) in channels:
        n = 2 * x[..., :2] - 1
        square = (n ** 2).sum(axis=2)
        long = np.sqrt(np.maximum(square, 1))[..., None]
        x[..., :2] = np.where(long > 1, n / long * 0.5 + 0.5, x[..., :2])
        x[..., 2] = np.sqrt(np.maximum(1 - square, 0)) * 0.5 + 0.5
    return x


def decode(data):
    """The textures as (height, width, channels) arrays of u8 or u16."""
    found = sections(data)
    h = header(found[b"HEAD"])
    W, H, levels = h["width"], h["height"], h["levels"]
    taps_of = [(taps(W, l["w"], l["nearest"]), taps(H, l["h"], l["nearest"])) for l in levels]
    planes = features(h, taps_of)
    channels = written_channels(h, found.get(b"CHAN"))
    outputs = [1 + max([k for kind, k in of if kind == "output"], default=-1) for of in channels]
    sizes = [sum(l["c"] for l in levels) + len(planes)] + h["hidden"] + [sum(outputs)]
    layers = list(zip(sizes, sizes[1:]))
    indices = read_range(h, found) if h["coding"] else read_fixed(h, found)
    if h["weight_bits"] == 8:
        weights = read_small_weights(found[b"WGT8"], layers)
    else:
        weights = read_weights(found[b"WRNG"], layers) if h["coding"] else np.frombuffer(found[b"WRAW"], "<f2")
    weights = weights.astype(float)
    x = [sample(l, values(l, k).astype(float), *t) for l, k, t in zip(levels, indices, taps_of)]
    x = np.concatenate(x + [p[..., None] for p in planes], axis=2).reshape(W * H, sizes[0])
    at, hidden = 0, (lambda s: np.where(s < 0, h["leak"] * s, s), lambda s: np.maximum(s, 0), np.tanh, np.sin)
    for k, (n_in, n_out) in enumerate(layers):
        matrix = weights[at:at + n_in * n_out].reshape(n_out, n_in)
        at += n_in * n_out
        x = x @ matrix.T + weights[at:at + n_out]
        at += n_out
        if k + 1 < len(layers):
            x = hidden[h["activation"]](x)
    assert at == len(weights), "weights of another number"
    x = np.clip(x + 0.5, 0, 1) if h["clamp"] else 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    x = x.reshape(H, W, -1)
    if h["deblock"]:
        x = deblock(h, x)
    x = x[:h["source_height"], :h["source_width"]]
    pictures, at = [], 0
    for ((_, depth), _), of, count in zip(h["textures"], channels, outputs):
        most = (1 << depth) - 1
        picture = np.floor(np.clip(picture_of(of, x[..., at:at + count], most), 0, 1) * most + 0.5)
        pictures.append(picture.astype(np.uint8 if depth == 8 else np.uint16))
        at += count
    return pictures


def main():
    with open(sys.argv[1], "rb") as file:
        pictures = decode(file.read())
    os.makedirs(sys.argv[2], exist_ok=True)
    for k, picture in enumerate(pictures):
        np.save(os.path.join(sys.argv[2], f"{k}.npy"), picture)


if __name__ == "__main__":
    main()
