"""Plots curves.csv as SVG files, PSNR against CPU-seconds. Usage: plot.py (needs matplotlib)."""
import csv
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)

HERE = pathlib.Path(__file__).parent
matplotlib.rcParams["svg.hashsalt"] = "ntc-es"


def main():
    curves = list(csv.DictReader(open(HERE / "curves.csv")))
    plots = {}
    for row in curves:
        if row["group"] == "optimisers" and row["psnr_q_db"]:
            image, case = row["case"].split("-", 1)
            plots.setdefault(image, {}).setdefault(case, []).append((float(row["cpu_s"]), float(row["psnr_q_db"])))
    for image, cases in plots.items():
        figure, axes = plt.subplots(figsize=(8, 5))
        for case, points in cases.items():
            points = [p for p in points if p[0] > 0.1]
            axes.plot(*zip(*points), label=case)
        axes.set(xscale="log", xlabel="CPU-seconds", ylabel="PSNR as stored, dB", title=f"{image}, 256 x 256 texels")
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(HERE / f"{image}.svg", metadata={"Date": None})


main()
