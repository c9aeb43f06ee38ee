//! The checkpoint: the whole state of a run, exact to the bit.

use super::tensors::{Bytes, Tensor, Tensors, checksum, write};
use crate::backend::{Dampings, DecoderReport, State};
use crate::error::{Error, Result};
use crate::estimate::adam::Adam;
use crate::model::structure::{Parameters, Structure};
use crate::noise::mersenne::Mersenne;
use crate::train::{DecoderBy, PHASES, PhaseTime, Progress};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the layout.
const FORMAT: u32 = 1;
/// Words of a Mersenne twister's state, the position included.
const MERSENNE_WORDS: usize = 625;

/// Where a run stands.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Hash of the settings that it belongs to.
    pub config_hash: String,
    /// Iterations, times and the last reports.
    pub progress: Progress,
    /// Seconds on the wall and on all CPUs, of all sittings.
    pub spent: (f64, f64),
    /// Values and optimiser states.
    pub state: State,
}

/// The JSON beside the tensors. Floats that must come back exactly are held as the bits of an f64.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    format: u32,
    config_hash: String,
    /// CRC-32 of all tensors' bytes.
    crc32: u32,
    iteration: usize,
    elapsed_s: f64,
    wall_s: f64,
    cpu_s: f64,
    /// Iterations and seconds of each phase.
    phases: [(usize, f64); PHASES.len()],
    /// Loss, statistic, and what it was made by.
    decoder: Option<(u64, u64, DecoderBy)>,
    selectors_changed: Option<usize>,
    /// Best PSNR so far, and prints since.
    #[serde(default)]
    best: Option<(u64, usize)>,
    /// Gauss-Newton's damping of the decoder.
    #[serde(default)]
    decoder_damping: Option<u64>,
    /// Powers of beta 1 and beta 2: decoder, latents.
    powers: [(u64, u64); 2],
}

impl Checkpoint {
    /// Writes it to `path`; an earlier one stays until the new one is complete.
    pub fn save(&self, path: &Path, structure: &Structure) -> Result<()> {
        let tensors = self.tensors(structure);
        let Progress { iteration, elapsed_s, phases, decoder, selectors_changed, best, .. } = self.progress;
        let powers = |adam: &Adam| (adam.power1.to_bits(), adam.power2.to_bits());
        let about = About {
            format: FORMAT,
            config_hash: self.config_hash.clone(),
            crc32: checksum(tensors.iter().map(Tensor::bytes)),
            iteration,
            elapsed_s,
            wall_s: self.spent.0,
            cpu_s: self.spent.1,
            phases: phases.map(|phase| (phase.iterations, phase.seconds)),
            decoder: decoder.map(|(report, by)| (report.loss.to_bits(), report.statistic.to_bits(), by)),
            selectors_changed,
            best: best.map(|(psnr, since)| (psnr.to_bits(), since)),
            decoder_damping: self.state.dampings.decoder.map(f64::to_bits),
            powers: [powers(&self.state.adam_decoder), powers(&self.state.adam_latents)],
        };
        write(path, &about, &tensors)
    }

    fn tensors(&self, structure: &Structure) -> Vec<Tensor> {
        let State { parameters, adam_decoder, adam_latents, mersenne, dampings } = &self.state;
        let flat = |name: &str, values: &[f32]| Tensor::f32(name, &[values.len()], values);
        let mut tensors = vec![];
        for (k, (level, values)) in structure.levels.iter().zip(&parameters.levels).enumerate() {
            tensors.push(Tensor::f32(format!("level{k}"), &[level.height, level.width, level.channels], values));
        }
        tensors.push(flat("decoder", &parameters.decoder));
        tensors.push(flat("adam_decoder.m", &adam_decoder.m));
        tensors.push(flat("adam_decoder.v", &adam_decoder.v));
        tensors.push(flat("adam_latents.m", &adam_latents.m));
        tensors.push(flat("adam_latents.v", &adam_latents.v));
        for (k, values) in dampings.levels.iter().enumerate().filter(|(_, values)| !values.is_empty()) {
            tensors.push(flat(&format!("damping{k}"), values));
        }
        tensors.extend(mersenne.as_ref().map(|words| Tensor::u32("mersenne", words)));
        tensors
    }

    /// Reads the checkpoint of a run with these settings and this model.
    ///
    /// # Errors
    /// A file that is broken, or that belongs to other settings.
    pub fn load(path: &Path, config_hash: &str, structure: &Structure, decoder: usize, mt: bool) -> Result<Self> {
        let bytes = Bytes::read(path)?;
        let tensors = bytes.tensors()?;
        let about: About = tensors.about()?;
        let refuse = |message: &str| Err(Error::file(path, format!("{message}; remove it to start over")));
        if about.format != FORMAT {
            return refuse(&format!("has format {}, this program reads format {FORMAT}", about.format));
        }
        if about.config_hash != config_hash {
            return refuse("belongs to other settings than config.toml");
        }
        let state = read_state(&tensors, &about, structure, decoder)?;
        let words = state.mersenne.as_deref();
        if words.is_some() != mt || words.is_some_and(|words| Mersenne::from_state(words).is_none()) {
            return refuse("holds no noise state that fits --rng");
        }
        let names: Vec<_> = names(structure).collect();
        if tensors.checksum(names.iter().map(String::as_str)) != about.crc32 {
            return refuse("is damaged: its checksum does not agree");
        }
        Ok(Checkpoint {
            config_hash: about.config_hash.clone(),
            progress: about.progress(),
            spent: (about.wall_s, about.cpu_s),
            state,
        })
    }

    /// Iterations done according to the checkpoint at `path`, without reading it any further.
    pub fn iteration(path: &Path) -> Result<usize> {
        Ok(Bytes::read(path)?.tensors()?.about::<About>()?.iteration)
    }
}

/// Names of all tensors in the order that they are written in.
fn names(structure: &Structure) -> impl Iterator<Item = String> {
    let others = [
        "decoder",
        "adam_decoder.m",
        "adam_decoder.v",
        "adam_latents.m",
        "adam_latents.v",
        "damping0",
        "damping1",
        "mersenne",
    ];
    (0..structure.levels.len()).map(|k| format!("level{k}")).chain(others.map(str::to_owned))
}

fn read_state(tensors: &Tensors, about: &About, structure: &Structure, decoder: usize) -> Result<State> {
    let mersenne = tensors.has("mersenne").then(|| tensors.u32("mersenne", MERSENNE_WORDS)).transpose()?;
    let mut dampings = Dampings { decoder: about.decoder_damping.map(f64::from_bits), levels: vec![] };
    let mut others = usize::from(mersenne.is_some());
    let mut levels = vec![];
    for (k, level) in structure.levels.iter().enumerate() {
        levels.push(tensors.f32(&format!("level{k}"), &[level.height, level.width, level.channels])?);
        let name = format!("damping{k}");
        if tensors.has(&name) {
            others += 1;
            dampings.levels.resize(k, vec![]);
            dampings.levels.push(tensors.f32(&name, &[level.texels()])?);
        }
    }
    tensors.expect_count(structure.levels.len() + 5 + others)?;
    let latents = levels.iter().map(Vec::len).sum();
    let adam = |name: &str, n: usize, powers: (u64, u64)| -> Result<Adam> {
        Ok(Adam {
            m: tensors.f32(&format!("{name}.m"), &[n])?,
            v: tensors.f32(&format!("{name}.v"), &[n])?,
            power1: f64::from_bits(powers.0),
            power2: f64::from_bits(powers.1),
        })
    };
    Ok(State {
        parameters: Parameters { levels, decoder: tensors.f32("decoder", &[decoder])? },
        adam_decoder: adam("adam_decoder", decoder, about.powers[0])?,
        adam_latents: adam("adam_latents", latents, about.powers[1])?,
        mersenne,
        dampings,
    })
}

impl About {
    fn progress(&self) -> Progress {
        let report = |(loss, statistic, by)| {
            (DecoderReport { loss: f64::from_bits(loss), statistic: f64::from_bits(statistic) }, by)
        };
        Progress {
            iteration: self.iteration,
            elapsed_s: self.elapsed_s,
            phases: self.phases.map(|(iterations, seconds)| PhaseTime { iterations, seconds }),
            decoder: self.decoder.map(report),
            selectors_changed: self.selectors_changed,
            best: self.best.map(|(psnr, since)| (f64::from_bits(psnr), since)),
            interrupted: false,
        }
    }
}
