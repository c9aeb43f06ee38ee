//! The CUDA backend: everything of a run resident on a device, noise made there, host round trips only for a step's report
//! and for whether the state is still finite.
//!
//! The kernels restate the definitions of `model`, `noise` and `estimate` operation by operation (kernels/README.md), so the
//! bits are those of the CPU backend. Only this folder has `unsafe` code.

mod compile;
mod gauss_newton;
mod launch;
mod layout;
mod memory;
mod minibatch;
mod probe;
mod scene;
mod stored;

pub use probe::{Device, gpu};

use super::cpu::not_finite;
use super::{
    Backend, Dampings, DecoderEs, DecoderFd, DecoderGn, DecoderReport, LatentEs, LatentGn, LatentReport, Seen, State,
};
use crate::error::{Error, Result};
use crate::estimate::adam::Adam;
use crate::estimate::{decoder_es, latent_es};
use crate::model::decode::Geometry;
use crate::model::latent::cell_of;
use crate::model::loss::{UNIT, channel_weights};
use crate::model::price::Prices;
use crate::model::structure::{Level, Parameters, TextureInfo};
use crate::noise::Noise;
use crate::noise::hash::Stream as NoiseStream;
use gauss_newton::Room;
use launch::{Launcher, ROWS};
use layout::{Draw, Scene, places};
use memory::{Buffer, Scratch};
use scene::Tables;
use stored::View;

/// How the CUDA backend runs; none of it changes a bit of the result.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// Where.
    pub device: Device,
    /// Bytes for what a step holds in between: gathered texels, traces, noise. More is fewer, larger launches.
    pub scratch: usize,
}

impl CudaOptions {
    /// `device` with half a gigabyte for steps.
    pub fn new(device: Device) -> Self {
        CudaOptions { device, scratch: 512 << 20 }
    }
}

/// A group of parameters on the device: values and Adam's moments.
struct Group {
    w: Buffer<f32>,
    m: Buffer<f32>,
    v: Buffer<f32>,
    g: Buffer<f32>,
    count: usize,
}

/// State and target on a device.
pub struct Cuda {
    options: CudaOptions,
    launcher: Launcher,
    geometry: Geometry,
    tables: Tables,
    key: [u32; 2],
    levels: Vec<Group>,
    decoder: Group,
    place: Buffer<u32>,
    packed: Buffer<f32>,
    bits: Buffer<u32>,
    texture_first: Buffer<u32>,
    texture_depth: Buffer<u32>,
    texture_shares: Buffer<f32>,
    scratch: Scratch,
    /// beta^t of both optimisers; the moments here stay empty.
    powers: [Adam; 2],
    dampings: Dampings,
    room: Room,
    view: View,
    prices: Vec<Option<Prices>>,
    /// Costs of selectors.
    costs: Option<Buffer<i32>>,
}

impl Cuda {
    /// A backend for `geometry` with `target` planes, relative texture weights (empty = all 1) and an initial state.
    ///
    /// # Errors
    /// No usable device, driver or compiler; too little memory; noise that runs on the CPU only.
    pub fn new(
        options: CudaOptions,
        geometry: Geometry,
        target: Vec<Vec<f32>>,
        texture_weights: &[f32],
        noise: Noise,
        state: State,
    ) -> Result<Self> {
        let Noise::Hash(hash) = noise else {
            return Err(Error::config(
                "--rng mt: its numbers come in one order; it runs on the CPU only, without --cuda",
            ));
        };
        let launcher = Launcher::new(options.device, &geometry)?;
        let stream = &launcher.stream.clone();
        let weights = channel_weights(&geometry.structure.textures, texture_weights);
        let tables = Tables::new(stream, &geometry, &target, &weights)?;
        drop(target);
        let group = |what, count| -> Result<Group> {
            let zeros = || Buffer::zeros(stream, what, count);
            Ok(Group { w: zeros()?, m: zeros()?, v: zeros()?, g: zeros()?, count })
        };
        let structure = &geometry.structure;
        let levels = structure.levels.iter().map(|l| group("latents", l.values())).collect::<Result<_>>()?;
        let decoder = group("the decoder", geometry.network.parameters())?;
        let place = Buffer::of(stream, "the decoder", &places(&geometry.network))?;
        let packed = Buffer::zeros(stream, "the decoder", launcher.shape.packed)?;
        let bits = Buffer::of(stream, "selector depths", &structure.levels[0].selector_bits)?;
        let mut first = vec![0];
        structure.textures.iter().for_each(|t| first.push(first[first.len() - 1] + t.outputs() as u32));
        let depth: Vec<u32> = structure.textures.iter().map(|t| t.depth).collect();
        let texture_first = Buffer::of(stream, "textures", &first)?;
        let texture_depth = Buffer::of(stream, "textures", &depth)?;
        let shares: Vec<f32> = structure.textures.iter().flat_map(TextureInfo::shares).collect();
        let texture_shares = Buffer::of(stream, "textures", &shares)?;
        let scratch = Scratch::new(stream)?;
        let room = Room::new(stream, &geometry, &weights, launcher.shape.packed)?;
        let powers = [Adam::new(0), Adam::new(0)];
        let key = hash.key;
        let mut this = Cuda {
            options,
            launcher,
            geometry,
            tables,
            key,
            levels,
            decoder,
            place,
            packed,
            bits,
            texture_first,
            texture_depth,
            texture_shares,
            scratch,
            powers,
            dampings: Dampings::default(),
            room,
            view: View::default(),
            prices: vec![],
            costs: None,
        };
        this.set_state(state)?;
        Ok(this)
    }

    fn scene(&self) -> Scene {
        let mut scene = self.tables.scene(&[]);
        for (level, group) in scene.level.iter_mut().zip(&self.levels) {
            level.values = group.w.address();
        }
        scene
    }

    fn draw(&self, stream: NoiseStream, step: u32) -> Draw {
        Draw { key: self.key, stream, step }
    }

    fn pack(&self) -> Result<()> {
        self.launcher.pack_decoder(&self.decoder.w, &self.place, self.decoder.count, &self.packed)
    }

    /// Adam on the decoder, and its packed copy.
    fn step_decoder(&mut self, rate: f32, scale: f32, step: u32) -> Result<()> {
        let factors = self.powers[0].advance(rate);
        self.scratch.broken.clear()?;
        let Group { w, m, v, g, count } = &self.decoder;
        self.launcher.adam_step((w, m, v), g, *count, scale, factors, &self.scratch.broken)?;
        self.pack()?;
        self.refresh()?;
        if self.scratch.broken.get(1)? != [0] {
            return Err(not_finite("decoder weights", "--mlp-lr", step));
        }
        Ok(())
    }

    /// The levels and the packed decoder of `parameters` on the device, for one decode.
    fn upload(&self, parameters: &Parameters) -> Result<(Vec<Buffer<f32>>, Buffer<f32>)> {
        let stream = &self.launcher.stream;
        let levels = parameters.levels.iter().map(|z| Buffer::of(stream, "latents", z)).collect::<Result<_>>()?;
        let decoder = Buffer::of(stream, "the decoder", &parameters.decoder)?;
        let packed = Buffer::zeros(stream, "the decoder", self.launcher.shape.packed)?;
        self.launcher.pack_decoder(&decoder, &self.place, self.decoder.count, &packed)?;
        Ok((levels, packed))
    }

    /// Calls `launch` with the scene and packed decoder of `parameters`, or of the state.
    fn with_parameters<R>(
        &self,
        parameters: Option<&Parameters>,
        launch: impl FnOnce(&Scene, &Buffer<f32>) -> Result<R>,
    ) -> Result<R> {
        match parameters {
            None => launch(&self.scene(), &self.packed),
            Some(parameters) => {
                let (levels, packed) = self.upload(parameters)?;
                launch(&self.tables.scene(&levels), &packed)
            }
        }
    }

    /// Adds the credits of pairs `first..first + pairs` to the gradients of the levels `noisy`.
    fn latent_pairs(&mut self, step: &LatentEs, noisy: &[usize], (first, pairs): (usize, usize)) -> Result<()> {
        let structure = &self.geometry.structure;
        let draw = self.draw(NoiseStream::LatentEs, step.step);
        let mut noise = layout::Noise {
            sigma: step.sigma,
            alternate: u32::from(step.alternate),
            first_pair: first as u32,
            step: step.step,
            ..layout::Noise::default()
        };
        let mut start = 0;
        for (k, level) in structure.levels.iter().enumerate() {
            let values = level.values();
            if noisy.contains(&k) {
                noise.noisy |= 1 << k;
                noise.values[k] = values as u64;
                self.scratch.e[k].reserve(pairs * values)?;
                noise.e[k] = self.scratch.e[k].address();
                self.launcher.fill_normals(draw, &self.scratch.e[k], values, start, (first, pairs))?;
            }
            start += values;
        }
        self.scratch.d.reserve(pairs * structure.texels())?;
        let (scene, d) = (self.seen_scene(), &self.scratch.d);
        self.launcher.latent_es_pairs(&scene, self.seen_decoder().1, &noise, pairs, d)?;
        for &k in noisy {
            let support = &self.tables.supports()[k];
            self.launcher.latent_es_gather(&scene, support, &noise, (d, pairs), first == 0, &self.levels[k].g)?;
        }
        Ok(())
    }

    /// Pairs of a latent step that fit the scratch memory.
    fn latent_pairs_at_once(&self, noisy: &[usize]) -> usize {
        let structure = &self.geometry.structure;
        let values: usize = noisy.iter().map(|&k| structure.levels[k].values()).sum();
        (self.options.scratch / (structure.texels() * 8 + values * 4)).clamp(1, ROWS)
    }
}

/// i64 sums as the device keeps them.
fn signed(sums: Vec<u64>) -> Vec<i64> {
    sums.into_iter().map(|sum| sum as i64).collect()
}

impl Backend for Cuda {
    fn name(&self) -> &'static str {
        match self.options.device {
            Device::Gpu(_) => "cuda",
            Device::Emulation => "cuda-emu",
        }
    }

    fn device(&self) -> String {
        self.launcher.device_name()
    }

    fn decoder_es(&mut self, step: &DecoderEs) -> Result<DecoderReport> {
        let parameters = self.decoder.count;
        let packed = self.launcher.shape.packed;
        let (count, list) = self.draw_texels(step.step, step.batch)?;
        let at_once = (self.options.scratch / 4 / (parameters + 2 * packed)).clamp(1, ROWS / 2);
        let mut batch = self.batch(count, 0)?;
        let scene = self.seen_scene();
        let unit = 1.0 / (UNIT * count as f64);
        let draw = self.draw(NoiseStream::DecoderEs, step.step);
        let mut sums = vec![];
        for first in (0..step.pairs).step_by(at_once) {
            let pairs = at_once.min(step.pairs - first);
            let scratch = &mut self.scratch;
            scratch.e[0].reserve(pairs * parameters)?;
            // Padding stays zero from the allocation on: the kernel writes weights only.
            scratch.decoders.reserve(2 * pairs * packed)?;
            scratch.sums.reserve(2 * pairs)?;
            scratch.sums.clear()?;
            let scratch = &self.scratch;
            self.launcher.fill_normals(draw, &scratch.e[0], parameters, 0, (first, pairs))?;
            let (w, e) = (self.seen_decoder().0, &scratch.e[0]);
            self.launcher.perturb_decoders(w, e, &self.place, (parameters, pairs), step.sigma, &scratch.decoders)?;
            for part in (0..count).step_by(batch.stride as usize) {
                // One part that holds everything is gathered for the first pairs and kept.
                if first == 0 || count > batch.stride as usize {
                    self.gather("decoder_es.cu", &scene, list, part, count, &mut batch)?;
                }
                self.launcher.decoder_es_losses(&scene, &batch, (&scratch.decoders, 2 * pairs), &scratch.sums)?;
            }
            let g = &self.decoder.g;
            self.launcher.decoder_es_gradient(e, &scratch.sums, (pairs, parameters), unit as f32, first == 0, g)?;
            sums.extend(signed(scratch.sums.get(2 * pairs)?));
        }
        let scale = (1.0 / (2.0 * step.pairs as f64 * f64::from(step.sigma))) as f32;
        self.step_decoder(step.rate, scale, step.step)?;
        let d: Vec<f32> = sums.chunks_exact(2).map(|s| (s[0] - s[1]) as f32 * unit as f32).collect();
        let mean = sums.iter().map(|&s| s as f64).sum::<f64>() * unit / sums.len() as f64;
        Ok(DecoderReport { loss: mean, statistic: decoder_es::spread(&d) })
    }

    fn decoder_fd(&mut self, step: &DecoderFd) -> Result<DecoderReport> {
        let parameters = self.decoder.count;
        let (count, list) = self.draw_texels(step.step, step.batch)?;
        let mut batch = self.batch(count, self.launcher.shape.trace_rows)?;
        let scene = self.seen_scene();
        let unit = 1.0 / (UNIT * count as f64);
        self.scratch.sums.reserve(parameters)?;
        self.scratch.sums.clear()?;
        self.scratch.count.clear()?;
        let (scratch, (w, packed)) = (&self.scratch, self.seen_decoder());
        for part in (0..count).step_by(batch.stride as usize) {
            self.gather("decoder_fd.cu", &scene, list, part, count, &mut batch)?;
            let sums = (&scratch.sums, &scratch.count);
            self.launcher.decoder_fd(&scene, &batch, packed, &scratch.traces, step.h, sums)?;
        }
        let g = &self.decoder.g;
        self.launcher.decoder_fd_gradient(w, &scratch.sums, parameters, (unit as f32, step.h), g)?;
        self.step_decoder(step.rate, 1.0, step.step)?;
        let g = self.decoder.g.get(parameters)?;
        let rms = (g.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>() / g.len() as f64).sqrt();
        let loss = signed(self.scratch.count.get(1)?)[0];
        Ok(DecoderReport { loss: loss as f64 * unit, statistic: rms })
    }

    fn reset_decoder_adam(&mut self) -> Result<()> {
        self.powers[0] = Adam::new(0);
        self.decoder.m.clear()?;
        self.decoder.v.clear()
    }

    fn latent_es(&mut self, step: &LatentEs) -> Result<()> {
        let levels = &self.geometry.structure.levels;
        let noisy: Vec<usize> = (0..levels.len()).filter(|&k| !levels[k].is_selector()).collect();
        if noisy.is_empty() {
            return Ok(());
        }
        let mut hits = [0usize; 2];
        for pair in 0..step.pairs {
            match step.alternate {
                true => hits[latent_es::alternate(&noisy, pair, step.step as usize)] += 1,
                false => noisy.iter().for_each(|&k| hits[k] += 1),
            }
        }
        let at_once = self.latent_pairs_at_once(&noisy);
        for first in (0..step.pairs).step_by(at_once) {
            self.latent_pairs(step, &noisy, (first, at_once.min(step.pairs - first)))?;
        }
        let factors = self.powers[1].advance(step.rate);
        let texels = self.geometry.structure.texels();
        self.scratch.broken.clear()?;
        for &k in &noisy {
            // A level without a hit has a gradient of zeros.
            let scale = if hits[k] > 0 { latent_es::gradient_scale(hits[k], step.sigma[k], texels) } else { 1.0 };
            let Group { w, m, v, g, count } = &self.levels[k];
            self.launcher.adam_step((w, m, v), g, *count, scale, factors, &self.scratch.broken)?;
        }
        if self.scratch.broken.get(1)? != [0] {
            return Err(not_finite("latents", "--lat-lr", step.step));
        }
        for &k in noisy.iter().filter(|&&k| self.seen_grid(k).is_some()) {
            self.launcher.limit_values(&self.levels[k].w, self.levels[k].count)?;
        }
        self.refresh()
    }

    fn search_selectors(&mut self, joint: bool) -> Result<usize> {
        let structure = &self.geometry.structure;
        let bits = (&self.bits, structure.levels[0].selector_bits.len());
        self.scratch.count.clear()?;
        let (scene, cell, changed) = (self.seen_scene(), cell_of(structure, 0), &self.scratch.count);
        self.launcher.search_selectors(
            &scene,
            self.seen_decoder().1,
            (&self.levels[0].w, changed),
            bits,
            (cell, joint),
            self.prices.first().and_then(Option::as_ref).zip(self.costs.as_ref()),
        )?;
        Ok(self.scratch.count.get(1)?[0] as usize)
    }

    fn see_as_stored(&mut self, seen: Seen) -> Result<()> {
        self.see(seen)
    }

    fn price(&mut self, prices: Vec<Option<Prices>>) -> Result<()> {
        let selectors = prices.first().and_then(Option::as_ref);
        self.costs = selectors.map(|p| Buffer::of(&self.launcher.stream, "prices", &p.costs)).transpose()?;
        self.prices = prices;
        Ok(())
    }

    fn decoder_gn(&mut self, step: &DecoderGn) -> Result<DecoderReport> {
        self.step_decoder_gn(step)
    }

    fn latent_gn(&mut self, step: &LatentGn) -> Result<LatentReport> {
        self.step_latent_gn(step)
    }

    fn search_grid(&mut self, level: usize, bits: u32) -> Result<LatentReport> {
        self.search_grid_step(level, bits)
    }

    fn evaluate(&mut self, parameters: Option<&Parameters>, round: bool) -> Result<Vec<f64>> {
        let structure = &self.geometry.structure;
        let textures = structure.textures.len();
        let sums = Buffer::<u64>::zeros(&self.launcher.stream, "sums", textures)?;
        let tables = (textures, &self.texture_first, &self.texture_depth, &self.texture_shares);
        let sums = self.with_parameters(parameters, |scene, packed| {
            self.launcher.evaluate_errors(scene, packed, tables, round, &sums)?;
            sums.get(textures)
        })?;
        let texels = (structure.source_width * structure.source_height) as f64;
        Ok(signed(sums).into_iter().map(|sum| sum as f64 / (UNIT * texels)).collect())
    }

    fn decode(&mut self, parameters: Option<&Parameters>) -> Result<Vec<Vec<f32>>> {
        let structure = &self.geometry.structure;
        let (texels, outputs) = (structure.texels(), structure.outputs());
        let planes = Buffer::zeros(&self.launcher.stream, "the decoded image", outputs * texels)?;
        let planes = self.with_parameters(parameters, |scene, packed| {
            self.launcher.decode_planes(scene, packed, &planes)?;
            planes.get(outputs * texels)
        })?;
        Ok(planes.chunks_exact(texels).map(<[f32]>::to_vec).collect())
    }

    fn state(&self) -> Result<State> {
        let moments = |powers: &Adam, groups: &[&Group]| -> Result<Adam> {
            let (mut m, mut v) = (vec![], vec![]);
            for group in groups {
                m.extend(group.m.get(group.count)?);
                v.extend(group.v.get(group.count)?);
            }
            Ok(Adam { m, v, ..powers.clone() })
        };
        let levels: Vec<&Group> = self.levels.iter().collect();
        let values = levels.iter().map(|group| group.w.get(group.count)).collect::<Result<_>>()?;
        Ok(State {
            parameters: Parameters { levels: values, decoder: self.decoder.w.get(self.decoder.count)? },
            adam_decoder: moments(&self.powers[0], &[&self.decoder])?,
            adam_latents: moments(&self.powers[1], &levels)?,
            mersenne: None,
            dampings: self.dampings.clone(),
        })
    }

    fn set_state(&mut self, state: State) -> Result<()> {
        let State { parameters, adam_decoder, adam_latents, mersenne, dampings } = state;
        if mersenne.is_some() {
            return Err(Error::State("a run with --rng mt goes on with --rng mt, on the CPU".into()));
        }
        let sizes: Vec<usize> = self.geometry.structure.levels.iter().map(Level::values).collect();
        let fits = parameters.levels.iter().map(Vec::len).eq(sizes.iter().copied())
            && [parameters.decoder.len(), adam_decoder.m.len(), adam_decoder.v.len()] == [self.decoder.count; 3]
            && [adam_latents.m.len(), adam_latents.v.len()] == [sizes.iter().sum::<usize>(); 2];
        if !fits {
            return Err(Error::State("the state does not have the model's shape".into()));
        }
        let mut start = 0;
        for (group, values) in self.levels.iter_mut().zip(&parameters.levels) {
            let range = start..start + group.count;
            start = range.end;
            group.w.set(values)?;
            group.m.set(&adam_latents.m[range.clone()])?;
            group.v.set(&adam_latents.v[range])?;
        }
        self.decoder.w.set(&parameters.decoder)?;
        self.decoder.m.set(&adam_decoder.m)?;
        self.decoder.v.set(&adam_decoder.v)?;
        self.powers = [adam_decoder, adam_latents].map(|adam| Adam { m: vec![], v: vec![], ..adam });
        self.dampings = dampings;
        self.pack()?;
        self.refresh()
    }
}
