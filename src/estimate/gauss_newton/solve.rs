//! Small dense systems: one latent texel's own block.

/// Entries of the lower triangle of an n x n matrix.
pub fn triangle(n: usize) -> usize {
    n * (n + 1) / 2
}

/// Index of (row, column) in a lower triangle stored row by row; the two may come in either order.
#[inline(always)]
pub fn at(row: usize, column: usize) -> usize {
    let (high, low) = if row < column { (column, row) } else { (row, column) };
    high * (high + 1) / 2 + low
}

/// The Cholesky factor of a symmetric matrix given by its lower triangle, in place; false where it is not positive
/// definite (or not finite), and then `a` is spoilt.
pub fn factor(n: usize, a: &mut [f64]) -> bool {
    for j in 0..n {
        for i in j..n {
            let mut sum = a[at(i, j)];
            for k in 0..j {
                sum -= a[at(i, k)] * a[at(j, k)];
            }
            if i == j {
                if !(sum > 0.0 && sum.is_finite()) {
                    return false;
                }
                a[at(j, j)] = sum.sqrt();
            } else {
                a[at(i, j)] = sum / a[at(j, j)];
            }
        }
    }
    true
}

/// Solves L L^T x = b in place for a factor of [`factor`].
pub fn substitute(n: usize, l: &[f64], b: &mut [f64]) {
    for i in 0..n {
        for k in 0..i {
            b[i] -= l[at(i, k)] * b[k];
        }
        b[i] /= l[at(i, i)];
    }
    for i in (0..n).rev() {
        for k in i + 1..n {
            b[i] -= l[at(k, i)] * b[k];
        }
        b[i] /= l[at(i, i)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_of_three_by_hand() {
        // [[4,2,0],[2,5,1],[0,1,3]] x = [8,13,11] has x = [1,2,3].
        let mut a = [4.0, 2.0, 5.0, 0.0, 1.0, 3.0];
        assert!(factor(3, &mut a));
        let mut b = [8.0, 15.0, 11.0];
        substitute(3, &a, &mut b);
        for (x, want) in b.iter().zip([1.0, 2.0, 3.0]) {
            assert!((x - want).abs() < 1e-12, "{b:?}");
        }
        assert!(!factor(2, &mut [1.0, 2.0, 1.0]), "indefinite");
        assert!(!factor(1, &mut [f64::NAN]));
    }
}
