//! Two backends compared verb by verb: what `--cuda-check` prints.
//!
//! Both start every verb from the same state, so that one fault does not show in everything behind it.

mod cases;
mod watched;

pub use cases::cases;
pub use watched::Watched;

use super::{Backend, Damping, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentGn, Seen, State};
use crate::bitstream::price::prices;
use crate::error::Result;
use crate::model::decode::Geometry;
use crate::model::price::Prices;
use crate::model::quant::{MOST_JOINT_BITS, stored};
use crate::model::structure::{Parameters, Rng};
use crate::noise::Noise;
use std::fmt;

/// Units in the last place that results may differ by. Zero: the numerics promise equal bits.
pub const TOLERANCE: u64 = 0;

/// The same for a decoder step by Gauss-Newton, where sums of products of floats have no fixed order (kernels/README.md): of
/// the loss after it, and of the difference of both steps relative to a step's length. About one in a thousand.
pub const GAUSS_NEWTON_TOLERANCE: u64 = 1 << 13;

/// Parameters of a decoder whose Gauss-Newton step is compared at most: it solves a dense system of that many unknowns.
const MOST_PARAMETERS: usize = 1200;

/// What two backends are compared on.
#[derive(Clone, Debug)]
pub struct Case {
    /// For the table.
    pub name: String,
    /// The model.
    pub geometry: Geometry,
    /// One plane an output over the padded extent.
    pub target: Vec<Vec<f32>>,
    /// Relative texture weights; empty = all 1.
    pub weights: Vec<f32>,
    /// Seed of the noise.
    pub seed: u64,
    /// Where both start.
    pub state: State,
}

impl Case {
    /// The noise of both backends.
    pub fn noise(&self) -> Noise {
        Noise::new(Rng::Hash, self.seed)
    }
}

/// Makes a backend in a case's state.
pub type Make<'a> = &'a dyn Fn(&Case) -> Result<Box<dyn Backend>>;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The verb, and what it was asked.
    pub op: String,
    /// The case's name.
    pub case: String,
    /// Largest difference in units in the last place; `None` where it has no measure (lengths, integers).
    pub ulp: Option<u64>,
    /// What it may be.
    pub tolerance: u64,
    /// Whether it is within the tolerance.
    pub equal: bool,
}

impl Row {
    /// The table's head.
    pub const HEAD: &'static str = "op                      case                          ulp  tolerance  verdict";
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ulp = self.ulp.map_or("-".into(), |ulp| ulp.to_string());
        let verdict = match (self.equal, self.ulp) {
            (true, Some(0)) => "equal",
            (true, _) => "near",
            (false, _) => "DIFFERENT",
        };
        let Row { op, case, tolerance, .. } = self;
        write!(f, "{op:<22}  {case:<24}  {ulp:>9}  {tolerance:>9}  {verdict}")
    }
}

/// The largest difference found so far.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    ulp: u64,
    other: bool,
    /// [`TOLERANCE`] where nothing else is said.
    tolerance: u64,
}

/// An order of floats in which neighbours differ by 1; NaNs are told apart by their bits.
fn place(x: f32) -> i64 {
    let bits = i64::from(x.to_bits() & 0x7fff_ffff);
    if x.is_sign_negative() { -1 - bits } else { bits }
}

impl Difference {
    fn values(&mut self, a: &[f32], b: &[f32]) {
        self.other |= a.len() != b.len();
        let most = a.iter().zip(b).map(|(&a, &b)| place(a).abs_diff(place(b))).max();
        self.ulp = self.ulp.max(most.unwrap_or(0));
    }

    fn exact<T: PartialEq>(&mut self, a: T, b: T) {
        self.other |= a != b;
    }

    fn numbers(&mut self, a: &[f64], b: &[f64]) {
        self.other |= a.iter().map(|x| x.to_bits()).ne(b.iter().map(|x| x.to_bits()));
    }

    fn reports(&mut self, a: DecoderReport, b: DecoderReport) {
        self.numbers(&[a.loss, a.statistic], &[b.loss, b.statistic]);
    }

    /// After a decoder step by Gauss-Newton: the damping says which trials were kept.
    fn gauss_newton(&mut self, a: DecoderReport, b: DecoderReport) {
        self.tolerance = GAUSS_NEWTON_TOLERANCE;
        self.values(&[a.loss as f32], &[b.loss as f32]);
        self.numbers(&[a.statistic], &[b.statistic]);
    }

    /// How far the points that two steps from `start` lead to lie apart, relative to the first step's length.
    fn distance(&mut self, start: &[f32], a: &[f32], b: &[f32]) {
        let length = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        let apart = length(a, b);
        if apart > 0.0 {
            let units = apart / length(a, start) / f64::from(f32::EPSILON);
            self.ulp = self.ulp.max(units.ceil() as u64);
        }
    }

    fn states(&mut self, a: &State, b: &State) {
        self.exact(&a.dampings, &b.dampings);
        for (a, b) in a.parameters.levels.iter().zip(&b.parameters.levels) {
            self.values(a, b);
        }
        self.values(&a.parameters.decoder, &b.parameters.decoder);
        for (a, b) in [(&a.adam_decoder, &b.adam_decoder), (&a.adam_latents, &b.adam_latents)] {
            self.values(&a.m, &b.m);
            self.values(&a.v, &b.v);
            self.numbers(&[a.power1, a.power2], &[b.power1, b.power2]);
        }
    }

    fn row(self, op: &str, case: &str) -> Row {
        Row {
            op: op.into(),
            case: case.into(),
            ulp: (!self.other).then_some(self.ulp),
            tolerance: self.tolerance,
            equal: !self.other && self.ulp <= self.tolerance,
        }
    }
}

/// The sizes of steps that a check asks for.
#[derive(Clone, Copy, Debug)]
pub struct Steps {
    /// Iteration, the noise's step counter.
    pub step: u32,
    /// Texels of a minibatch.
    pub batch: usize,
    /// Pairs of the decoder step.
    pub pairs: usize,
    /// Pairs of the latent step.
    pub latent_pairs: usize,
    /// Whether decoder steps over every texel are compared too.
    pub full: bool,
}

/// Compares every verb on one case; both backends are in the case's state.
///
/// # Errors
/// A backend that failed.
pub fn compare(case: &Case, steps: Steps, one: &mut dyn Backend, other: &mut dyn Backend) -> Result<Vec<Row>> {
    let mut both = Both { case, one, other, rows: vec![] };
    let (as_stored, _) = stored(&case.geometry.structure, &case.state.parameters);
    both.evaluate("evaluate", None, false)?;
    both.evaluate("evaluate rounded", None, true)?;
    both.evaluate("evaluate stored", Some(&as_stored), true)?;
    both.decode("decode", None)?;
    both.decode("decode stored", Some(&as_stored))?;
    let batches: &[(&str, Option<usize>)] = &[("batch", Some(steps.batch)), ("all texels", None)];
    for &(name, batch) in &batches[..1 + usize::from(steps.full)] {
        let (step, rate) = (steps.step, 0.005);
        let es = DecoderEs { step, pairs: steps.pairs, sigma: 0.02, rate, batch };
        both.decoder(&format!("decoder_es {name}"), |b| b.decoder_es(&es))?;
        let fd = DecoderFd { step, h: 1e-3, rate, batch };
        both.decoder(&format!("decoder_fd {name}"), |b| b.decoder_fd(&fd))?;
    }
    for alternate in [false, true] {
        let pairs = steps.latent_pairs;
        let es = LatentEs { step: steps.step, pairs, sigma: [0.05, 0.03], rate: 0.02, alternate };
        both.step(if alternate { "latent_es alternate" } else { "latent_es" }, |b| b.latent_es(&es))?;
    }
    if case.geometry.structure.levels[0].is_selector() {
        both.step("search_selectors", |b| b.search_selectors(false))?;
        if case.geometry.structure.levels[0].selector_bits.iter().sum::<u32>() <= MOST_JOINT_BITS {
            both.step("search_selectors joint", |b| b.search_selectors(true))?;
        }
        let structure = &case.geometry.structure;
        let priced = prices(structure, &both.one.state()?.parameters, 50.0);
        both.price(priced)?;
        both.step("search_selectors priced", |b| b.search_selectors(false))?;
        both.price(vec![])?;
    }
    both.step("reset_decoder_adam", |b| b.reset_decoder_adam())?;
    compare_stored(&mut both, steps)?;
    // Gauss-Newton does not see through the filter.
    if case.geometry.deblock.is_none() {
        compare_gauss_newton(&mut both, steps)?;
    }
    Ok(both.rows)
}

/// Steps around the state as it is stored.
fn compare_stored(both: &mut Both, steps: Steps) -> Result<()> {
    let free = |k: usize| both.case.geometry.structure.levels.get(k).is_some_and(|level| !level.is_selector());
    let seen = Seen { grid: [0, 1].map(|k| free(k).then_some(4)), decoder: Some(8) };
    both.see(seen)?;
    // Few texels: on the emulation differences of wide decoders take most of the check's time already.
    let (step, rate, batch) = (steps.step, 0.005, Some(steps.batch / 8 + 1));
    let es = DecoderEs { step, pairs: steps.pairs, sigma: 0.02, rate, batch };
    both.decoder("decoder_es stored", |b| b.decoder_es(&es))?;
    both.decoder("decoder_fd stored", |b| b.decoder_fd(&DecoderFd { step, h: 1e-3, rate, batch }))?;
    // A large rate takes latents to the ends of their range.
    let es = LatentEs { step, pairs: steps.latent_pairs, sigma: [0.05, 0.03], rate: 0.5, alternate: false };
    both.step("latent_es stored", |b| b.latent_es(&es))?;
    both.see(Seen::default())
}

fn compare_gauss_newton(both: &mut Both, steps: Steps) -> Result<()> {
    let damping = Damping { start: 1e-4, least: 1e-9, most: 1e3, fall: 0.3, rise: 4.0 };
    let case = both.case;
    for (level, shape) in case.geometry.structure.levels.iter().enumerate().filter(|(_, l)| !l.is_selector()) {
        for grid in [None, Some(5)] {
            let step = LatentGn { level, h: 0.01, damping, iterations: 5, tries: 2, grid };
            let filter = format!("{:?}", shape.filter).to_lowercase();
            let op = format!("latent_gn {filter}{}", if grid.is_some() { " grid" } else { "" });
            both.step(&op, |b| b.latent_gn(&step))?;
        }
        both.step("search_grid", |b| b.search_grid(level, 3))?;
        let priced = prices(&case.geometry.structure, &both.one.state()?.parameters, 50.0);
        both.price(priced)?;
        both.step("search_grid priced", |b| b.search_grid(level, 3))?;
        both.price(vec![])?;
    }
    let parameters = case.geometry.network.parameters();
    if parameters <= MOST_PARAMETERS {
        for bits in [None, Some(8)] {
            // More than one chunk, where `full` is asked for.
            let (batch, right) = (4 * steps.batch, 5 * steps.batch);
            let damping = Damping { start: 0.01, ..damping };
            let step = DecoderGn { step: steps.step, h: 0.01, batch, right, damping, tries: 4, bits };
            both.restart()?;
            let mut difference = Difference::default();
            difference.gauss_newton(both.one.decoder_gn(&step)?, both.other.decoder_gn(&step)?);
            // Rounding would take neighbours apart.
            if bits.is_none() {
                let [a, b] = [both.one.state()?, both.other.state()?].map(|state| state.parameters.decoder);
                difference.distance(&case.state.parameters.decoder, &a, &b);
            }
            both.push(if bits.is_some() { "decoder_gn 8 bits" } else { "decoder_gn" }, difference);
        }
    }
    Ok(())
}

/// Two backends at work on one case.
struct Both<'a> {
    case: &'a Case,
    one: &'a mut dyn Backend,
    other: &'a mut dyn Backend,
    rows: Vec<Row>,
}

impl Both<'_> {
    fn restart(&mut self) -> Result<()> {
        self.one.set_state(self.case.state.clone())?;
        self.other.set_state(self.case.state.clone())
    }

    fn see(&mut self, seen: Seen) -> Result<()> {
        self.one.see_as_stored(seen)?;
        self.other.see_as_stored(seen)
    }

    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()> {
        self.one.price(prices.clone())?;
        self.other.price(prices)
    }

    fn push(&mut self, op: &str, difference: Difference) {
        self.rows.push(difference.row(op, &self.case.name));
    }

    fn states(&mut self, difference: &mut Difference) -> Result<()> {
        difference.states(&self.one.state()?, &self.other.state()?);
        Ok(())
    }

    fn evaluate(&mut self, op: &str, parameters: Option<&Parameters>, round: bool) -> Result<()> {
        let mut difference = Difference::default();
        difference.numbers(&self.one.evaluate(parameters, round)?, &self.other.evaluate(parameters, round)?);
        self.push(op, difference);
        Ok(())
    }

    fn decode(&mut self, op: &str, parameters: Option<&Parameters>) -> Result<()> {
        let mut difference = Difference::default();
        for (a, b) in self.one.decode(parameters)?.iter().zip(&self.other.decode(parameters)?) {
            difference.values(a, b);
        }
        self.push(op, difference);
        Ok(())
    }

    fn decoder(&mut self, op: &str, verb: impl Fn(&mut dyn Backend) -> Result<DecoderReport>) -> Result<()> {
        self.restart()?;
        let mut difference = Difference::default();
        difference.reports(verb(self.one)?, verb(self.other)?);
        self.states(&mut difference)?;
        self.push(op, difference);
        Ok(())
    }

    fn step<T: PartialEq>(&mut self, op: &str, verb: impl Fn(&mut dyn Backend) -> Result<T>) -> Result<()> {
        self.restart()?;
        let mut difference = Difference::default();
        difference.exact(verb(self.one)?, verb(self.other)?);
        self.states(&mut difference)?;
        self.push(op, difference);
        Ok(())
    }
}

/// `iterations` of training on one backend: a state in which differences of losses nearly cancel.
///
/// # Errors
/// A backend that failed.
pub fn trained(case: &Case, backend: &mut dyn Backend, iterations: u32) -> Result<State> {
    backend.set_state(case.state.clone())?;
    for step in 1..=iterations {
        backend.decoder_es(&DecoderEs { step, pairs: 8, sigma: 0.02, rate: 0.01, batch: Some(256) })?;
        backend.latent_es(&LatentEs { step, pairs: 4, sigma: [0.05; 2], rate: 0.02, alternate: false })?;
        if case.geometry.structure.levels[0].is_selector() {
            backend.search_selectors(false)?;
        }
    }
    backend.state()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_floats_are_one_apart() {
        for (a, b, ulp) in [
            (1.0, 1.0, 0),
            (1.0, 1.0 + f32::EPSILON, 1),
            (0.0, -0.0, 1),
            (f32::MIN_POSITIVE, -f32::MIN_POSITIVE, 0x0100_0001),
        ] {
            let mut difference = Difference::default();
            difference.values(&[a], &[b]);
            assert_eq!(difference.ulp, ulp, "{a:e} {b:e}");
        }
    }

    #[test]
    fn different_lengths_and_numbers_are_differences() {
        let mut difference = Difference::default();
        difference.values(&[1.0], &[1.0, 2.0]);
        assert!(!difference.row("a", "b").equal);
        let mut difference = Difference::default();
        difference.numbers(&[1.0], &[1.0 + f64::EPSILON]);
        assert!(!difference.row("a", "b").equal);
    }
}
