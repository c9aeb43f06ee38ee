//! Loss weights with which every map reaches its quality target: whole fits, each with weights from how far the last one
//! was off.

use super::say;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::{read_up_to, write_atomic};
use crate::model::structure::Structure;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Fits with different weights at most.
const FITS: usize = 6;
/// Least and most that a fit changes a weight by.
const CHANGE: (f64, f64) = (1.0 / 16.0, 16.0);
/// Least dB of PSNR that a dB of weight is taken to give.
const LEAST_SLOPE: f64 = 0.125;
/// Largest quality.json that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// One fit of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fit {
    /// Loss weight of each map.
    weights: Vec<f32>,
    /// PSNR in dB of each map as decoded; null without error.
    psnr_q_db: Vec<Option<f64>>,
}

/// quality.json: what a stopped search goes on from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    fits: Vec<Fit>,
    /// No further fit follows.
    done: bool,
}

/// A search for loss weights.
#[derive(Clone, Debug)]
pub struct Search {
    /// Names of the maps.
    names: Vec<String>,
    /// Target of each map in dB.
    goals: Vec<Option<f64>>,
    record: Record,
}

impl Search {
    /// The search that `config` asks for; `None` without quality targets.
    ///
    /// # Errors
    /// A target for a map that there is none of.
    pub fn new(config: &Config, structure: &Structure) -> Result<Option<Self>> {
        if config.quality.is_empty() {
            return Ok(None);
        }
        let place = |k: usize| structure.textures[k].role.map(|role| role.place());
        let maps = 0..structure.textures.len();
        if let Some(goal) = config.quality.iter().find(|g| !maps.clone().any(|k| place(k) == Some(g.role.place()))) {
            let roles: Vec<_> = structure.textures.iter().filter_map(|t| t.role).map(|role| role.name()).collect();
            let has = if roles.is_empty() { "none has a role; name them ROLE=PATH".into() } else { roles.join(", ") };
            return Err(Error::config(format!("--quality {goal}: no map is {}; of the maps: {has}", goal.role)));
        }
        let goal = |k: usize| {
            let goal = config.quality.iter().find(|goal| Some(goal.role.place()) == place(k));
            goal.map(|goal| f64::from(goal.db))
        };
        let names = structure.textures.iter().map(|t| t.role.map_or(t.name.clone(), |role| role.name().into()));
        Ok(Some(Search { names: names.collect(), goals: maps.map(goal).collect(), record: Record::default() }))
    }

    /// The search of a run that was stopped, with the fits that it had ended.
    ///
    /// # Errors
    /// As [`Search::new`]; a damaged record.
    pub fn resume(config: &Config, structure: &Structure, path: &Path) -> Result<Option<Self>> {
        let Some(search) = Self::new(config, structure)? else { return Ok(None) };
        let record = read(path)?;
        if record.fits.iter().any(|f| [f.weights.len(), f.psnr_q_db.len()] != [search.goals.len(); 2]) {
            return Err(Error::file(path, "is not of this run: it has another number of maps"));
        }
        Ok(Some(Search { record, ..search }))
    }

    /// Weights of the next fit, after one with `weights` (empty = 1 each) that reached `psnr` (dB a map); `None` when
    /// every target is met, or when no further fit is worth it and this one was the closest. Says how it stands.
    ///
    /// # Errors
    /// A record that cannot be written.
    pub fn next(&mut self, weights: &[f32], psnr: Vec<f64>, path: &Path) -> Result<Option<Vec<f32>>> {
        let weights = if weights.is_empty() { vec![1.0; psnr.len()] } else { weights.to_vec() };
        let fit = Fit { weights, psnr_q_db: psnr.into_iter().map(|db| db.is_finite().then_some(db)).collect() };
        let known = self.record.fits.iter().position(|known| known.weights == fit.weights);
        // The closest one made again ends the search; the last one is only a stopped search's that goes on.
        let again = known.is_some_and(|at| at + 1 < self.record.fits.len());
        if known.is_none() {
            self.record.fits.push(fit.clone());
        }
        let lack = self.lack(&fit);
        let best = self.record.fits.iter().min_by(|a, b| self.lack(a).total_cmp(&self.lack(b))).unwrap_or(&fit).clone();
        let before = self.record.fits.iter().rev().nth(1);
        let fresh = reweighted(&fit, before, &self.goals);
        let tried = |weights: &Vec<f32>| self.record.fits.iter().any(|fit| fit.weights == *weights);
        let next = match lack <= 0.0 || again {
            true => None,
            false if self.record.fits.len() < FITS && !tried(&fresh) => Some(fresh),
            false => Some(best.weights).filter(|weights| *weights != fit.weights),
        };
        self.record.done = next.is_none();
        let text = serde_json::to_string_pretty(&self.record).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomic(path, |w| writeln!(w, "{text}"))?;
        say(&self.line(&fit, next.as_deref(), lack));
        Ok(next)
    }

    /// By how many dB the map that is furthest from its target misses it; 0 or less = all are met.
    fn lack(&self, fit: &Fit) -> f64 {
        let lacks = self.goals.iter().zip(&fit.psnr_q_db).map(|(goal, psnr)| match (goal, psnr) {
            (Some(goal), Some(psnr)) => goal - psnr,
            _ => f64::NEG_INFINITY,
        });
        lacks.fold(f64::NEG_INFINITY, f64::max)
    }

    fn line(&self, fit: &Fit, next: Option<&[f32]>, lack: f64) -> String {
        let maps = self.names.iter().zip(&self.goals).zip(&fit.psnr_q_db).map(|((name, goal), psnr)| {
            let reached = psnr.map_or("exact".into(), |db| format!("{db:.2}"));
            goal.map_or(format!("{name} {reached}"), |goal| format!("{name} {reached} of {goal:.2}"))
        });
        let weights = |weights: &[f32]| weights.iter().map(|w| format!("{w:.4}")).collect::<Vec<_>>().join(",");
        let end = match next {
            Some(next) => format!("next with --weights {}", weights(next)),
            None if lack <= 0.0 => format!("met with --weights {}", weights(&fit.weights)),
            None => format!("short by {lack:.2} dB, the closest of {} fits: give more bits", self.record.fits.len()),
        };
        format!("quality: {} dB; {end}", maps.collect::<Vec<_>>().join(", "))
    }
}

/// Whether a run with these settings has a fit to come after the one in its folder.
///
/// # Errors
/// A damaged record.
pub fn searching(config: &Config, path: &Path) -> Result<bool> {
    Ok(!config.quality.is_empty() && !read(path)?.done)
}

fn read(path: &Path) -> Result<Record> {
    if !path.exists() {
        return Ok(Record::default());
    }
    serde_json::from_slice(&read_up_to(path, MAX_BYTES)?)
        .map_err(|e| Error::file(path, e.to_string().replace('\n', " ")))
}

/// Weights after `fit`; maps without a target keep theirs.
///
/// Where a shared rate is spent best, errors go as one over the weights (reverse water-filling: Cover and Thomas, Elements
/// of Information Theory, section 10.3.3): a map that is 1 dB short gets 1 dB more weight. A decoder that maps share gives less,
/// so that the gap is divided by the slope that was seen since the fit `before`, in dB of PSNR per dB of the map's share of all weight.
fn reweighted(fit: &Fit, before: Option<&Fit>, goals: &[Option<f64>]) -> Vec<f32> {
    let share = |fit: &Fit, k: usize| {
        10.0 * (f64::from(fit.weights[k]) / fit.weights.iter().map(|&w| f64::from(w)).sum::<f64>()).log10()
    };
    let slope = |k: usize| {
        let seen = before.and_then(|b| Some((fit.psnr_q_db[k]? - b.psnr_q_db[k]?) / (share(fit, k) - share(b, k))));
        seen.filter(|slope| slope.is_finite()).map_or(1.0, |slope| slope.clamp(LEAST_SLOPE, 1.0))
    };
    let of = |k: usize| {
        let w = f64::from(fit.weights[k]);
        let Some(goal) = goals[k] else { return w };
        // A map that counted for nothing had no weight to scale.
        let w = if w > 0.0 { w } else { 1.0 };
        let change = fit.psnr_q_db[k].map_or(CHANGE.0, |psnr| 10f64.powf((goal - psnr) / slope(k) / 10.0));
        w * change.clamp(CHANGE.0, CHANGE.1)
    };
    // Only ratios count: where every map has a target the first one's weight stays.
    let unit = if goals.iter().all(Option::is_some) { f64::from(fit.weights[0]).max(1e-6) / of(0) } else { 1.0 };
    (0..goals.len()).map(|k| (of(k) * unit).clamp(1e-6, 1e6) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(goals: &[Option<f64>]) -> Search {
        let names = (0..goals.len()).map(|k| format!("map{k}")).collect();
        Search { names, goals: goals.to_vec(), record: Record::default() }
    }

    fn fit(weights: &[f32], psnr: &[Option<f64>]) -> Fit {
        Fit { weights: weights.to_vec(), psnr_q_db: psnr.to_vec() }
    }

    #[test]
    fn a_map_ten_db_short_weighs_ten_times_as_much() {
        let first = fit(&[1.0, 2.0, 3.0], &[Some(30.0), Some(9.0), Some(30.0)]);
        let weights = reweighted(&first, None, &[Some(40.0), None, Some(20.0)]);
        assert!((weights[0] - 10.0).abs() < 1e-5 && weights[1] == 2.0 && (weights[2] - 0.3).abs() < 1e-6);
        // No change by more than 16, an exact map needs less, a weight of 0 starts from 1; then the first keeps its weight.
        let odd = fit(&[1.0, 1.0, 0.0], &[Some(20.0), None, Some(20.0)]);
        assert_eq!(reweighted(&odd, None, &[Some(90.0), Some(50.0), Some(20.0)]), [1.0, 1.0 / 256.0, 1.0 / 16.0]);
        // From a tenth to half of all weight, 6.99 dB, gave 3.495 dB: half a dB a dB, so 1 dB short wants 2 dB more.
        let (before, now) = (fit(&[1.0, 9.0], &[Some(30.0), None]), fit(&[9.0, 9.0], &[Some(33.494850), None]));
        let weights = reweighted(&now, Some(&before), &[Some(34.494850), None]);
        assert!((weights[0] - 9.0 * 10f32.powf(0.2)).abs() < 1e-4 && weights[1] == 9.0, "{weights:?}");
    }

    #[test]
    fn a_search_ends_when_met_and_falls_back_to_the_closest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("quality.json");
        let mut met = search(&[Some(30.0), None]);
        assert_eq!(met.next(&[], vec![30.0, 5.0], &path).unwrap(), None);
        assert!(read(&path).unwrap().done);
        // Never met: the second of six fits is the closest, and is made again at the end, counted once.
        let mut short = search(&[Some(30.0), Some(30.0)]);
        let mut weights = vec![1.0, 1.0];
        let reached = [[20.0, 31.0], [29.0, 29.5], [28.0, 29.0], [29.0, 28.0], [28.5, 29.0], [20.0, 29.0]];
        let mut tried = vec![];
        for psnr in reached {
            tried.push(weights.clone());
            weights = short.next(&weights, psnr.to_vec(), &path).unwrap().unwrap();
            assert!(!read(&path).unwrap().done);
        }
        assert_eq!(weights, tried[1]);
        assert_eq!(short.next(&weights, vec![29.0, 29.5], &path).unwrap(), None);
        let record = read(&path).unwrap();
        assert!(record.done && record.fits.len() == 6, "{record:?}");
    }
}
