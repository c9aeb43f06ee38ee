"""Bjontegaard rate difference of each lambda against none, from results.csv: cubic Hermite through (PSNR, log rate), as Markdown.

Run as `python bd_rate.py` in this folder; needs numpy and scipy.
"""
import csv
from collections import defaultdict

import numpy as np
from scipy.interpolate import PchipInterpolator


def curve(points):
    """The Pareto front of (bpp, dB), rising in both."""
    front = []
    for bpp, db in sorted(points):
        if not front or db > front[-1][1]:
            front.append((bpp, db))
    return np.array(front)


def bd_rate(base, other):
    """Mean difference of rate in percent over the PSNRs that both curves cover, and those PSNRs."""
    low, high = max(base[0, 1], other[0, 1]), min(base[-1, 1], other[-1, 1])
    area = [PchipInterpolator(c[:, 1], np.log(c[:, 0])).integrate(low, high) for c in (base, other)]
    return 100 * np.expm1((area[1] - area[0]) / (high - low)), low, high


with open("results.csv", newline="") as table:
    rows = list(csv.DictReader(table))
points = defaultdict(lambda: defaultdict(list))
for row in rows:
    points[row["images"]][float(row["rd-lambda"])].append((float(row["bpp_file"]), float(row["psnr_q_db"])))
print("| images | lambda | points | PSNR compared, dB | rate against lambda 0 |\n|---|---|--:|---|--:|")
for images, by in points.items():
    base = curve(by[0.0])
    for weight in sorted(by)[1:]:
        front = curve(by[weight])
        change, low, high = bd_rate(base, front)
        print(f"| {images.replace('+', ' + ')} | {weight:g} | {len(front)} | {low:.2f} to {high:.2f} | {change:+.1f} % |")
