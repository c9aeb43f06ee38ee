//! Rate-distortion curves and Bjontegaard's differences between them (ITU-T VCEG-M33), by monotone cubic interpolation
//! (Fritsch and Butland 1984, the PCHIP of SciPy and Matlab) in place of one cubic.

/// A curve: (bits per texel, PSNR in dB), rates and qualities both rising.
pub type Curve = Vec<(f64, f64)>;

/// The points of which none is worse in rate and in quality than another, by rate.
pub fn hull(points: &[(f64, f64)]) -> Curve {
    let mut sorted: Vec<(f64, f64)> = points.iter().copied().filter(|(r, q)| *r > 0.0 && q.is_finite()).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut curve: Curve = vec![];
    for point in sorted {
        if curve.last().is_none_or(|last| point.0 > last.0 && point.1 > last.1) {
            curve.push(point);
        }
    }
    curve
}

/// Bjontegaard's differences of a curve against a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Mean difference of rate at equal quality in percent; negative = fewer bits than the baseline.
    pub rate: f64,
    /// Share of the baseline's span of quality over which `rate` was averaged.
    pub rate_overlap: f64,
    /// Mean difference of PSNR at equal rate in dB; positive = better than the baseline.
    pub psnr: f64,
    /// Share of the baseline's span of log rate over which `psnr` was averaged.
    pub psnr_overlap: f64,
}

/// The differences of `curve` against `baseline`, both as [`hull`] makes them; none where they do not overlap in rate and
/// in quality, or one has fewer than two points.
pub fn difference(baseline: &Curve, curve: &Curve) -> Option<Difference> {
    let by_rate = |c: &Curve| c.iter().map(|(r, q)| (r.ln(), *q)).collect::<Vec<_>>();
    let by_quality = |c: &Curve| c.iter().map(|(r, q)| (*q, r.ln())).collect::<Vec<_>>();
    let (rate, rate_overlap) = mean_difference(&by_quality(baseline), &by_quality(curve))?;
    let (psnr, psnr_overlap) = mean_difference(&by_rate(baseline), &by_rate(curve))?;
    Some(Difference { rate: 100.0 * (rate.exp() - 1.0), rate_overlap, psnr, psnr_overlap })
}

/// The mean of b - a over where both have values, and that stretch as a share of a's.
fn mean_difference(a: &[(f64, f64)], b: &[(f64, f64)]) -> Option<(f64, f64)> {
    if a.len() < 2 || b.len() < 2 {
        return None;
    }
    let ends = |c: &[(f64, f64)]| (c[0].0, c[c.len() - 1].0);
    let ((a0, a1), (b0, b1)) = (ends(a), ends(b));
    let (low, high) = (a0.max(b0), a1.min(b1));
    let (a, b) = (Pchip::new(a), Pchip::new(b));
    (high > low).then(|| ((b.integral(low, high) - a.integral(low, high)) / (high - low), (high - low) / (a1 - a0)))
}

/// A monotone piecewise cubic through points with rising x.
struct Pchip {
    points: Vec<(f64, f64)>,
    slopes: Vec<f64>,
}

impl Pchip {
    fn new(points: &[(f64, f64)]) -> Self {
        let n = points.len();
        let h: Vec<f64> = points.windows(2).map(|p| p[1].0 - p[0].0).collect();
        let d: Vec<f64> = points.windows(2).zip(&h).map(|(p, h)| (p[1].1 - p[0].1) / h).collect();
        let inner = |k: usize| {
            if d[k - 1] * d[k] <= 0.0 {
                return 0.0;
            }
            let (w1, w2) = (2.0 * h[k] + h[k - 1], h[k] + 2.0 * h[k - 1]);
            (w1 + w2) / (w1 / d[k - 1] + w2 / d[k])
        };
        // At an end: the parabola through three points, kept from turning or running off.
        let end = |h0: f64, h1: f64, d0: f64, d1: f64| {
            let slope = ((2.0 * h0 + h1) * d0 - h0 * d1) / (h0 + h1);
            match () {
                () if slope * d0 <= 0.0 => 0.0,
                () if d0 * d1 <= 0.0 && slope.abs() > 3.0 * d0.abs() => 3.0 * d0,
                () => slope,
            }
        };
        let slopes = match n {
            2 => vec![d[0]; 2],
            _ => {
                let first = end(h[0], h[1], d[0], d[1]);
                let last = end(h[n - 2], h[n - 3], d[n - 2], d[n - 3]);
                std::iter::once(first).chain((1..n - 1).map(inner)).chain([last]).collect()
            }
        };
        Pchip { points: points.to_vec(), slopes }
    }

    /// The integral from `low` to `high`, both within the points.
    fn integral(&self, low: f64, high: f64) -> f64 {
        let piece = |k: usize| {
            let ((x0, y0), (x1, y1)) = (self.points[k], self.points[k + 1]);
            let h = x1 - x0;
            let (from, to) = ((low.max(x0) - x0) / h, (high.min(x1) - x0) / h);
            if to <= from {
                return 0.0;
            }
            let (m0, m1) = (h * self.slopes[k], h * self.slopes[k + 1]);
            // Coefficients of t^0 .. t^3 on the unit interval.
            let c = [y0, m0, 3.0 * (y1 - y0) - 2.0 * m0 - m1, 2.0 * (y0 - y1) + m0 + m1];
            let at = |t: f64| t * (c[0] + t * (c[1] / 2.0 + t * (c[2] / 3.0 + t * c[3] / 4.0)));
            h * (at(to) - at(from))
        };
        (0..self.points.len() - 1).map(piece).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hull_rises_in_both() {
        let points =
            [(2.0, 30.0), (1.0, 28.0), (3.0, 29.0), (2.0, 31.0), (4.0, 33.0), (0.0, 9.0), (5.0, f64::INFINITY)];
        assert_eq!(hull(&points), [(1.0, 28.0), (2.0, 31.0), (4.0, 33.0)]);
    }

    #[test]
    fn half_the_rate_everywhere_is_minus_fifty_percent() {
        let a: Curve = vec![(1.0, 30.0), (2.0, 34.0), (4.0, 37.0), (8.0, 39.0)];
        let b: Curve = a.iter().map(|(r, q)| (r / 2.0, *q)).collect();
        let d = difference(&a, &b).unwrap();
        assert!((d.rate + 50.0).abs() < 1e-9 && (d.rate_overlap - 1.0).abs() < 1e-12, "{d:?}");
        // Rates 1 to 4 of 1 to 8: two thirds of three octaves.
        assert!(d.psnr > 0.0 && (d.psnr_overlap - 2.0 / 3.0).abs() < 1e-12, "{d:?}");
        assert_eq!(difference(&a, &vec![(100.0, 50.0), (200.0, 60.0)]), None);
        assert_eq!(difference(&a, &vec![(1.0, 30.0)]), None);
    }

    /// Values of SciPy's PchipInterpolator on the same points (scripts/check_bd.py).
    #[test]
    fn differences_are_those_of_scipy() {
        let a: Curve = vec![(0.5, 27.1), (1.1, 30.4), (2.3, 33.0), (4.2, 36.9), (6.0, 37.2)];
        let b: Curve = vec![(0.7, 27.9), (1.3, 31.9), (2.0, 32.4), (5.1, 38.8)];
        let d = difference(&a, &b).unwrap();
        let wanted = BD_OF_SCIPY;
        let found = [d.rate, d.rate_overlap, d.psnr, d.psnr_overlap];
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((found - wanted).abs() < 1e-9, "{d:?} is not {wanted:?}");
        }
    }

    const BD_OF_SCIPY: [f64; 4] = [1.488496883356416, 0.920792079207921, 0.13508031983936647, 0.7991911824287004];
}
