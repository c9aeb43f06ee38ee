//! A run whose steps two backends take: what `--cuda-check-every` does.

use super::Difference;
use crate::backend::{
    Backend, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentGn, LatentReport, Seen, State,
};
use crate::error::{Error, Result};
use crate::model::price::Prices;
use crate::model::structure::Parameters;

/// A backend that another one looks over: every step of every `every`-th iteration runs on both, from the same state.
pub struct Watched {
    backend: Box<dyn Backend>,
    other: Box<dyn Backend>,
    every: u32,
    /// The iteration at work: a search does not say its own.
    step: u32,
}

impl Watched {
    /// `backend`'s results, compared with `other`'s every `every` iterations.
    pub fn new(backend: Box<dyn Backend>, other: Box<dyn Backend>, every: usize) -> Self {
        Watched { backend, other, every: every as u32, step: 0 }
    }

    fn verb<T>(
        &mut self,
        (op, step): (&str, u32),
        verb: impl Fn(&mut dyn Backend) -> Result<T>,
        compare: impl Fn(&mut Difference, &T, &T),
    ) -> Result<T> {
        self.step = step;
        if !step.is_multiple_of(self.every) {
            return verb(self.backend.as_mut());
        }
        self.other.set_state(self.backend.state()?)?;
        let (a, b) = (verb(self.backend.as_mut())?, verb(self.other.as_mut())?);
        let mut difference = Difference::default();
        compare(&mut difference, &a, &b);
        difference.states(&self.backend.state()?, &self.other.state()?);
        self.judge(difference, op)?;
        Ok(a)
    }

    fn judge(&self, difference: Difference, op: &str) -> Result<()> {
        let row = difference.row(op, &format!("iteration {}", self.step));
        if row.equal { Ok(()) } else { Err(Error::Difference(format!("--cuda-check-every: {row}"))) }
    }
}

impl Backend for Watched {
    fn name(&self) -> &'static str {
        self.backend.name()
    }
    fn device(&self) -> String {
        self.backend.device()
    }
    fn decoder_es(&mut self, step: &DecoderEs) -> Result<DecoderReport> {
        self.verb(("decoder_es", step.step), |b| b.decoder_es(step), |d, a, b| d.reports(*a, *b))
    }
    fn decoder_fd(&mut self, step: &DecoderFd) -> Result<DecoderReport> {
        self.verb(("decoder_fd", step.step), |b| b.decoder_fd(step), |d, a, b| d.reports(*a, *b))
    }
    fn reset_decoder_adam(&mut self) -> Result<()> {
        self.backend.reset_decoder_adam()
    }
    fn latent_es(&mut self, step: &LatentEs) -> Result<()> {
        self.verb(("latent_es", step.step), |b| b.latent_es(step), |_, _, _| ())
    }
    fn search_selectors(&mut self, joint: bool) -> Result<usize> {
        self.verb(("search_selectors", self.step), |b| b.search_selectors(joint), |d, a, b| d.exact(*a, *b))
    }
    fn see_as_stored(&mut self, seen: Seen) -> Result<()> {
        self.other.see_as_stored(seen)?;
        self.backend.see_as_stored(seen)
    }
    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()> {
        self.other.price(prices.clone())?;
        self.backend.price(prices)
    }
    fn decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport> {
        self.step = step.step;
        if !step.step.is_multiple_of(self.every) {
            return self.backend.decoder_gn(step);
        }
        self.other.set_state(self.backend.state()?)?;
        let (a, b) = (self.backend.decoder_gn(step)?, self.other.decoder_gn(step)?);
        let mut difference = Difference::default();
        difference.gauss_newton(a, b);
        self.judge(difference, "decoder_gn")?;
        Ok(a)
    }
    fn latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        self.verb(("latent_gn", self.step), |b| b.latent_gn(step), |d, a, b| d.exact(*a, *b))
    }
    fn search_grid(&mut self, level: usize, bits: u32) -> Result<LatentReport> {
        self.verb(("search_grid", self.step), |b| b.search_grid(level, bits), |d, a, b| d.exact(*a, *b))
    }
    fn evaluate(&mut self, parameters: Option<&Parameters>, round: bool) -> Result<Vec<f64>> {
        self.backend.evaluate(parameters, round)
    }
    fn decode(&mut self, parameters: Option<&Parameters>) -> Result<Vec<Vec<f32>>> {
        self.backend.decode(parameters)
    }
    fn state(&self) -> Result<State> {
        self.backend.state()
    }
    fn set_state(&mut self, state: State) -> Result<()> {
        self.backend.set_state(state)
    }
}
