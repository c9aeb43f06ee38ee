//! Quality figures in f64, over values in 0..1.

/// Taps of the SSIM window.
const WINDOW: usize = 11;
/// Standard deviation of the SSIM window in texels.
const SIGMA: f64 = 1.5;
/// (K1 L)^2 with K1 = 0.01 and data range L = 1.
const C1: f64 = 0.01 * 0.01;
/// (K2 L)^2 with K2 = 0.03 and data range L = 1.
const C2: f64 = 0.03 * 0.03;
/// Filtered per texel: a, b, a^2, b^2, ab.
const MOMENTS: usize = 5;

/// PSNR in dB for a mean squared error over values in 0..1; higher is better. `None` for an error of 0.
pub fn mse_to_psnr(mse: f64) -> Option<f64> {
    (mse != 0.0).then(|| 10.0 * (1.0 / mse).log10())
}

/// Mean structural similarity (Wang et al. 2004) of one channel, at most 1; higher is better.
///
/// `a` and `b` are `width * height` texels, row by row, in 0..1. The Gaussian window (11 taps, sigma 1.5) stays inside
/// the picture: the mean is over (width - 10)(height - 10) positions. `None` where a side is below 11 texels.
///
/// # Panics
/// Where a slice is not `width * height` long: a caller's mistake, not a property of any input file.
pub fn ssim(a: &[f32], b: &[f32], width: usize, height: usize) -> Option<f64> {
    assert_eq!(a.len(), width * height, "ssim: first plane against {width}x{height}");
    assert_eq!(b.len(), width * height, "ssim: second plane against {width}x{height}");
    if width < WINDOW || height < WINDOW {
        return None;
    }
    let taps = gaussian_taps();
    let columns = width - WINDOW + 1;
    // Only the last 11 filtered rows are kept: [row mod 11][column][moment].
    let mut rows = vec![vec![[0.0f64; MOMENTS]; columns]; WINDOW];
    let mut sum = 0.0;
    for y in 0..height {
        let texels = y * width..(y + 1) * width;
        filter_row(&a[texels.clone()], &b[texels], &taps, &mut rows[y % WINDOW]);
        if y + 1 < WINDOW {
            continue;
        }
        let column_sum = |x: usize| {
            let mut moments = [0.0; MOMENTS];
            for (k, tap) in taps.iter().enumerate() {
                let row = &rows[(y + 1 + k) % WINDOW][x]; // y + 1 - WINDOW + k, modulo WINDOW
                moments.iter_mut().zip(row).for_each(|(m, v)| *m += tap * v);
            }
            similarity(moments)
        };
        sum += (0..columns).map(column_sum).sum::<f64>();
    }
    Some(sum / (columns * (height - WINDOW + 1)) as f64)
}

/// The window's weights, which add up to 1.
fn gaussian_taps() -> [f64; WINDOW] {
    let mut taps = std::array::from_fn(|i| {
        let x = i as f64 - (WINDOW / 2) as f64;
        (-0.5 * x * x / (SIGMA * SIGMA)).exp()
    });
    let sum: f64 = taps.iter().sum();
    taps.iter_mut().for_each(|t| *t /= sum);
    taps
}

/// Filters one row of both pictures along x: `out[column][moment]`.
fn filter_row(a: &[f32], b: &[f32], taps: &[f64; WINDOW], out: &mut [[f64; MOMENTS]]) {
    for (x, moments) in out.iter_mut().enumerate() {
        *moments = [0.0; MOMENTS];
        for (k, tap) in taps.iter().enumerate() {
            let (p, q) = (f64::from(a[x + k]), f64::from(b[x + k]));
            let values = [p, q, p * p, q * q, p * q];
            moments.iter_mut().zip(values).for_each(|(m, v)| *m += tap * v);
        }
    }
}

/// SSIM of one window from its weighted moments.
fn similarity([a, b, aa, bb, ab]: [f64; MOMENTS]) -> f64 {
    let (var_a, var_b, cov) = (aa - a * a, bb - b * b, ab - a * b);
    let luminance = (2.0 * a * b + C1) / (a * a + b * b + C1);
    luminance * (2.0 * cov + C2) / (var_a + var_b + C2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two related pictures made of integers alone, so that any language gives the same values.
    fn pictures(width: usize, height: usize) -> (Vec<f32>, Vec<f32>) {
        let texels = || (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let a = texels().map(|(x, y)| ((x * x + 3 * x * y + 7 * y) % 256) as f32 / 255.0).collect();
        let b = texels().map(|(x, y)| {
            let level = (x * x + 3 * x * y + 7 * y) % 256;
            ((level * 3 + (x * 31 + y * 17) % 64) / 4) as f32 / 255.0
        });
        (a, b.collect())
    }

    #[test]
    fn psnr_of_round_errors() {
        assert_eq!(mse_to_psnr(0.0), None);
        assert_eq!(mse_to_psnr(1.0), Some(0.0));
        assert!((mse_to_psnr(1e-3).unwrap() - 30.0).abs() < 1e-12);
    }

    #[test]
    fn ssim_of_equal_and_of_constant_pictures() {
        let (a, _) = pictures(20, 15);
        assert!((ssim(&a, &a, 20, 15).unwrap() - 1.0).abs() < 1e-12);
        // Constant pictures: only the luminance term is left, (2ab + C1) / (a^2 + b^2 + C1).
        let flat = ssim(&[0.25; 121], &[0.75; 121], 11, 11).unwrap();
        assert!((flat - (0.375 + 1e-4) / (0.625 + 1e-4)).abs() < 1e-12);
    }

    #[test]
    fn ssim_needs_eleven_texels_a_side() {
        assert_eq!(ssim(&[0.0; 110], &[0.0; 110], 10, 11), None);
        assert_eq!(ssim(&[0.0; 110], &[0.0; 110], 11, 10), None);
        assert_eq!(ssim(&[], &[], 0, 0), None);
    }

    #[test]
    fn ssim_agrees_with_scikit_image() {
        // structural_similarity(a, b, data_range=1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False) of
        // scikit-image 0.26.0 on the f32 values of `pictures`, widened to float64.
        let expected = [(11, 11, 0.9345200272121214), (24, 19, 0.9364855560907854), (16, 40, 0.9358720109176478)];
        for (width, height, value) in expected {
            let (a, b) = pictures(width, height);
            let got = ssim(&a, &b, width, height).unwrap();
            assert!((got - value).abs() < 1e-10, "{width}x{height}: {got} against {value}");
        }
    }
}
