"""Compiles kernels/*.cu by NVRTC for the decoder shapes of the tests; see nvrtc_check.sh, which finds NVRTC."""

import ctypes
import glob
import os
import re
import sys
import time

KERNELS = os.path.join(os.path.dirname(__file__), "..", "kernels")
GENERAL = ["noise.cu", "adam.cu"]
SPECIALISED = [
    "evaluate.cu", "decoder_es.cu", "decoder_fd.cu", "latent_es.cu", "selector_search.cu", "gauss_newton.cu",
]
# Widths, position features, channels of levels 0 and 1. The first is the common shape; the others are those of
# src/backend/check/cases.rs.
SHAPES = [
    ([5, 36, 36, 3], 2, 3, 0),
    ([8, 36, 36, 3], 2, 2, 4),
    ([6, 8, 8, 3], 2, 4, 0),
    ([1, 1, 1], 0, 1, 0),
    ([6, 5, 2], 4, 2, 0),
    ([13, 6, 4, 1], 10, 3, 0),
    ([16, 12, 4], 8, 3, 5),
    ([23, 7, 7, 7, 3], 21, 2, 0),
    ([7, 8, 8, 3], 2, 4, 1),
    ([7, 9, 4], 2, 3, 2),
    ([23, 10, 3], 21, 2, 0),
    ([7, 8, 8, 3], 2, 1, 4),
    ([8, 8, 8, 6], 2, 2, 4),
    ([4, 6, 1], 2, 2, 0),
    ([1, 3, 1], 0, 1, 0),
    ([4, 6, 3], 2, 2, 0),
    ([6, 64, 128, 3], 2, 4, 0),
    ([4, 6, 5, 6, 7, 6, 5, 6, 4, 4], 2, 2, 0),
    ([7, 12, 32], 2, 5, 0),
    ([7, 8, 3], 2, 2, 3),
]
OPTIONS = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v"]


def whole4(n):
    return (n + 3) // 4 * 4


def defines(shape):
    widths, position, channels0, channels1 = shape
    assert widths[0] == position + channels0 + channels1, shape
    layers = list(zip(widths, widths[1:]))
    packed = sum(b * whole4(a) + whole4(b) for a, b in layers)
    rows = 3 * sum(widths[1:])
    return [
        "-DNTC_WIDTHS=" + ",".join(map(str, widths)),
        f"-DNTC_LAYERS={len(layers)}",
        f"-DNTC_POSITION={position}",
        f"-DNTC_CHANNELS0={channels0}",
        f"-DNTC_CHANNELS1={channels1}",
        f"-DNTC_PACKED={packed}",
        f"-DNTC_TRACE_ROWS={rows}",
    ]


def load():
    folder = os.environ["NTC_NVRTC_DIR"]
    libraries = sorted(glob.glob(os.path.join(folder, "libnvrtc*.so*")), key=lambda p: "builtins" not in p)
    libraries = [p for p in libraries if ".alt." not in p]
    if not libraries:
        sys.exit(f"{folder}: no libnvrtc")
    return [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in libraries][-1]


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def compile_file(nvrtc, name, options):
    """The log of a compilation, and whether it succeeded with a cubin that is not empty."""
    read = lambda file: open(os.path.join(KERNELS, file), encoding="utf-8").read()
    headers = sorted(file for file in os.listdir(KERNELS) if file.endswith(".cuh"))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), read(name).encode(), name.encode(), len(headers), strings(map_read(read, headers)),
        strings(headers),
    )
    code = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    size = ctypes.c_size_t()
    made = code == 0 and nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value > 0
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode(errors="replace"), made


def map_read(read, names):
    return [read(name) for name in names]


def report(log):
    """(kernel, registers, spilled bytes) of each kernel in ptxas's report."""
    kernels, name, spilled = [], None, 0
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '(\w+)'", line):
            name, spilled = match[1], 0
        elif (match := re.search(r"(\d+) bytes spill stores", line)) and name:
            spilled = max(spilled, int(match[1]))
        elif (match := re.search(r"Used (\d+) registers", line)) and name:
            kernels.append((name, int(match[1]), spilled))
            name = None
    return kernels


def main():
    nvrtc = load()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    arch = os.environ.get("NTC_NVRTC_ARCH", "sm_90")
    print(f"NVRTC {major.value}.{minor.value}, {arch}")
    print(f"{'shape':<28} {'kernel':<24} registers spilled_bytes")
    shapes = SHAPES[:1] if "--common" in sys.argv[1:] else SHAPES
    jobs = [(None, file) for file in GENERAL] + [(shape, file) for shape in shapes for file in SPECIALISED]
    failed, started = 0, time.monotonic()
    for shape, file in jobs:
        options = OPTIONS + [f"--gpu-architecture={arch}"] + (defines(shape) if shape else [])
        log, made = compile_file(nvrtc, file, options)
        label = "-".join(map(str, shape[0])) if shape else "any"
        if not made:
            failed += 1
            print(f"{label:<28} {file}: does not compile\n{log}")
            continue
        for kernel, registers, spilled in report(log):
            much = shape is SHAPES[0] and spilled > 256
            failed += much
            print(f"{label:<28} {kernel:<24} {registers:>9} {spilled:>13}{'  TOO MANY' if much else ''}")
    print(f"{len(jobs)} compilations, {failed} failed, {time.monotonic() - started:.0f} s")
    sys.exit(1 if failed else 0)


main()
