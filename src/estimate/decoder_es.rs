//! The decoder step by antithetic evolution strategies (SPEC section 4).

/// w + s e and w - s e for one pair's normals `e`.
#[inline(always)]
pub fn perturb(parameters: &[f32], e: &[f32], sigma: f32, plus: &mut [f32], minus: &mut [f32]) {
    for (((w, e), plus), minus) in parameters.iter().zip(e).zip(plus).zip(minus) {
        *plus = sigma.mul_add(*e, *w);
        *minus = (-sigma).mul_add(*e, *w);
    }
}

/// g = sum over pairs, in their order, of d_i e_i, times `scale` = 1 / (2 N s). `e` holds one row of normals a pair.
#[inline(always)]
pub fn gradient(e: &[f32], d: &[f32], scale: f32, g: &mut [f32]) {
    g.fill(0.0);
    for (d, e) in d.iter().zip(e.chunks_exact(g.len())) {
        for (g, e) in g.iter_mut().zip(e) {
            *g = d.mul_add(*e, *g);
        }
    }
    g.iter_mut().for_each(|g| *g *= scale);
}

/// Population standard deviation of the pairs' loss differences.
pub fn spread(d: &[f32]) -> f64 {
    let n = d.len() as f64;
    let mean = d.iter().map(|&d| f64::from(d)).sum::<f64>() / n;
    (d.iter().map(|&d| (f64::from(d) - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_gradient_by_hand() {
        let (mut plus, mut minus) = ([0.0; 2], [0.0; 2]);
        perturb(&[1.0, 2.0], &[4.0, -8.0], 0.25, &mut plus, &mut minus);
        assert_eq!((plus, minus), ([2.0, 0.0], [0.0, 4.0]));
        let mut g = [9.0; 2];
        gradient(&[1.0, 2.0, 3.0, -1.0], &[0.5, 2.0], 0.5, &mut g);
        assert_eq!(g, [0.5 * (0.5 + 6.0), 0.5 * (1.0 - 2.0)]);
        assert_eq!(spread(&[1.0, 3.0]), 1.0);
    }
}
