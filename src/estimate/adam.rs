//! Adam (Kingma and Ba 2015, algorithm 1) on estimated gradients.

/// Decay of the first moment.
pub const BETA1: f32 = 0.9;
/// Decay of the second moment.
pub const BETA2: f32 = 0.999;
/// Keeps the denominator from zero.
pub const EPSILON: f32 = 1e-8;

/// Moments of one parameter group and the powers of beta that correct their bias.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// First moments, one a parameter.
    pub m: Vec<f32>,
    /// Second moments, one a parameter.
    pub v: Vec<f32>,
    /// beta1^t after t steps.
    pub power1: f64,
    /// beta2^t after t steps.
    pub power2: f64,
}

/// The factors of one step, the same for every parameter.
#[derive(Clone, Copy, Debug)]
pub struct StepFactors {
    /// Learning rate.
    pub rate: f32,
    /// 1 / (1 - beta1^t).
    pub correct1: f32,
    /// 1 / (1 - beta2^t).
    pub correct2: f32,
}

impl Adam {
    /// Zero moments for `n` parameters.
    pub fn new(n: usize) -> Self {
        Adam { m: vec![0.0; n], v: vec![0.0; n], power1: 1.0, power2: 1.0 }
    }

    /// Counts one step and returns its factors.
    pub fn advance(&mut self, rate: f32) -> StepFactors {
        self.power1 *= f64::from(BETA1);
        self.power2 *= f64::from(BETA2);
        StepFactors { rate, correct1: (1.0 / (1.0 - self.power1)) as f32, correct2: (1.0 / (1.0 - self.power2)) as f32 }
    }
}

/// One step on slices of equal length: parameters `w`, moments `m` and `v`, gradient `g`.
#[inline(always)]
pub fn update(factors: StepFactors, w: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    for (((w, m), v), g) in w.iter_mut().zip(m).zip(v).zip(g) {
        *m = BETA1.mul_add(*m, (1.0 - BETA1) * g);
        *v = BETA2.mul_add(*v, (1.0 - BETA2) * g * g);
        let denominator = (*v * factors.correct2).sqrt() + EPSILON;
        *w -= factors.rate * (*m * factors.correct1) / denominator;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_has_the_size_of_the_rate() {
        let mut adam = Adam::new(2);
        let factors = adam.advance(0.1);
        let mut w = [1.0, 1.0];
        update(factors, &mut w, &mut adam.m, &mut adam.v, &[4.0, -1e-3]);
        assert!((w[0] - 0.9).abs() < 1e-6 && (w[1] - 1.1).abs() < 1e-5, "{w:?}");
    }

    #[test]
    fn two_steps_by_hand() {
        let mut adam = Adam::new(1);
        let mut w = [0.0];
        for g in [1.0, 3.0] {
            let factors = adam.advance(0.5);
            update(factors, &mut w, &mut adam.m, &mut adam.v, &[g]);
        }
        // Step 1 moves by -0.5. Step 2: m = 0.9*0.1 + 0.1*3 = 0.39, v = 0.999*0.001 + 0.001*9 = 0.009999;
        // corrected 0.39/0.19 and 0.009999/0.001999, so -0.5 * 2.052632 / 2.236516.
        let want = -0.5 - 0.5 * (0.39 / 0.19) / (0.009_999f64 / 0.001_999).sqrt();
        assert!((f64::from(w[0]) - want).abs() < 1e-5, "{w:?} is not {want}");
    }

    #[test]
    fn it_reaches_the_minimum_of_a_quadratic() {
        let mut adam = Adam::new(1);
        let mut w = [5.0];
        for _ in 0..2000 {
            let factors = adam.advance(0.02);
            let g = [2.0 * (w[0] - 1.0)];
            update(factors, &mut w, &mut adam.m, &mut adam.v, &g);
        }
        assert!((w[0] - 1.0).abs() < 1e-3, "{w:?}");
    }
}
