"""The Bjontegaard differences of the test in src/sweep/curves.rs by SciPy. Usage: check_bd.py (needs numpy and scipy)."""
import numpy as np
from scipy.interpolate import PchipInterpolator

A = [(0.5, 27.1), (1.1, 30.4), (2.3, 33.0), (4.2, 36.9), (6.0, 37.2)]
B = [(0.7, 27.9), (1.3, 31.9), (2.0, 32.4), (5.1, 38.8)]


def mean_difference(a, b):
    low, high = max(a[0][0], b[0][0]), min(a[-1][0], b[-1][0])
    area = [PchipInterpolator(*np.transpose(c)).integrate(low, high) for c in (a, b)]
    return (area[1] - area[0]) / (high - low), (high - low) / (a[-1][0] - a[0][0])


rate, rate_overlap = mean_difference([(q, np.log(r)) for r, q in A], [(q, np.log(r)) for r, q in B])
psnr, psnr_overlap = mean_difference([(np.log(r), q) for r, q in A], [(np.log(r), q) for r, q in B])
print([100 * (np.exp(rate) - 1), rate_overlap, psnr, psnr_overlap])
