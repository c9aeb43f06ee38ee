"""Writes the tables in README.md between their markers from the committed CSVs."""
import csv
import pathlib

HERE = pathlib.Path(__file__).parent
SHOWN = ["decode", "decoder ES step", "latent step", "ES iteration", "decoder FD step", "FD iteration", "selector search"]
# CPU-seconds an iteration of the C++ reference with its own flags, on another machine (reference figures of experiment 001).
REFERENCE = {("6-24-24-3 64x64x4", "ES iteration"): 0.522, ("10-36-36-3 128x128x4 + 64x64x4", "FD iteration"): 8.25}


def rows(name):
    return list(csv.DictReader(open(HERE / name)))


def speed():
    lines = ["| case | level | operation | CPU ms | Mtexels/s | of peak | reference CPU ms | times fewer |",
             "|---|---|---|--:|--:|--:|--:|--:|"]
    for r in rows("results.csv"):
        if r["threads"] != "1" or r["operation"] not in SHOWN:
            continue
        theirs = REFERENCE.get((r["case"], r["operation"]))
        fraction = f"{100 * float(r['fraction_of_peak']):.1f} %" if r["fraction_of_peak"] else ""
        ratio = f"{1e3 * theirs / float(r['cpu_ms']):.1f}" if theirs else ""
        shown = f"{1e3 * theirs:.0f}" if theirs else ""
        lines.append(f"| {r['case']} | {r['simd']} | {r['operation']} | {float(r['cpu_ms']):.2f} "
                     f"| {float(r['mitems_per_s']):.1f} | {fraction} | {shown} | {ratio} |")
    peaks = {}
    for r in rows("results.csv"):
        peaks.setdefault(r["simd"], []).append(float(r["peak_gflops"]))
    lines += ["", "fma peak of one core in the same runs, GFLOP/s: " +
              "; ".join(f"{level} {min(p):.0f} to {max(p):.0f}" for level, p in peaks.items()) + "."]
    return lines


def scaling():
    lines = ["| operation | 512 | 1024 | 2048 |", "|---|--:|--:|--:|"]
    table = {}
    for r in rows("scaling.csv"):
        if r["operation"] not in ("noise", "write RGB picture"):
            table.setdefault(r["operation"], {})[int(r["size"])] = 1e6 * float(r["cpu_ms"]) / int(r["size"]) ** 2
    for operation, by_size in table.items():
        lines.append(f"| {operation} | " + " | ".join(f"{by_size[s]:.1f}" for s in (512, 1024, 2048)) + " |")
    return ["CPU nanoseconds a texel, one thread, `--qat 2 --mlp 36,36` (a decoder step does not depend on the size):", ""] + lines


def memory():
    lines = ["| size | target channels | peak RSS MB | bytes a texel and channel |", "|---|--:|--:|--:|"]
    for r in rows("memory.csv"):
        rss = int(r["peak_rss_bytes"])
        each = (rss - int(r["model_bytes"])) / int(r["texels"]) / int(r["channels"])
        lines.append(f"| {r['width']}x{r['height']} | {r['channels']} | {rss / 1e6:.0f} | {each:.1f} |")
    return lines


def main():
    readme = HERE / "README.md"
    text = readme.read_text()
    for name, make in (("speed", speed), ("scaling", scaling), ("memory", memory)):
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, _, after = rest.partition("<!-- end -->")
        text = before + f"<!-- {name} -->\n" + "\n".join(make()) + "\n<!-- end -->" + after
    readme.write_text(text)


main()
