//! The coded file of a run, record.ntes: written from the trainer's state, read back from its bytes.
//!
//! Everything that is reported about a coded model comes from [`Coded`], which knows the bytes and nothing else.

use super::region::Region;
use crate::backend::Backend;
use crate::bitstream::{Cost, Record, container, part};
use crate::config::MAX_TEXELS;
use crate::error::{Error, Result};
use crate::eval::{self, Quality};
use crate::files::{read_up_to, write_atomic};
use crate::model::decode::Geometry;
use crate::model::quant::Rates;
use crate::model::structure::{Coding, Parameters, Structure};
use std::path::Path;
use std::time::Instant;

/// Largest coded file that is read, in bytes: more than the largest record.
const MAX_FILE: u64 = 1 << 33;

/// A coded model as its bytes say.
#[derive(Clone, Debug, PartialEq)]
pub struct Coded {
    /// What the bytes hold.
    pub record: Record,
    /// Length of the file.
    pub bytes: usize,
}

/// What a reader of a coded model finds.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its quality, rounded to the textures' depths, one entry a texture.
    pub quality: Vec<Quality>,
    /// Mean squared errors as the trainer's figures have them: summed exactly.
    pub mse: Vec<f64>,
    /// Estimated rates.
    pub rates: Rates,
    /// Length of the file in bytes.
    pub bytes: usize,
    /// Seconds on the wall that the decode took.
    pub decode_s: f64,
    /// Decoded planes of the padded extent.
    pub decoded: Vec<Vec<f32>>,
}

/// The bytes of a model's file. `path` is what messages name.
fn encode(path: &Path, structure: &Structure, parameters: &Parameters, coding: Coding) -> Result<Vec<u8>> {
    let refused = |message| Error::file(path, format!("cannot be written: {message}"));
    Record::new(structure, parameters, coding).encode().map_err(refused)
}

/// Writes the file of a model.
pub fn save(path: &Path, structure: &Structure, parameters: &Parameters, coding: Coding) -> Result<()> {
    let bytes = encode(path, structure, parameters, coding)?;
    write_atomic(path, |w| w.write_all(&bytes))
}

/// Whether the file at `path` says that it is one of ours.
pub fn is_coded(path: &Path) -> bool {
    let mut start = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == container::MAGIC
}

impl Coded {
    /// Reads a file of at most `most` texels.
    pub fn read(path: &Path, most: usize) -> Result<Self> {
        Coded::of_bytes(&read_up_to(path, MAX_FILE)?, path, most)
    }

    /// Encodes a model and reads what came out. `path` is what messages name.
    pub fn of_model(path: &Path, structure: &Structure, parameters: &Parameters, coding: Coding) -> Result<Self> {
        Coded::of_bytes(&encode(path, structure, parameters, coding)?, path, MAX_TEXELS)
    }

    /// Reads as much of a file as decoding `region` takes.
    pub fn read_region(path: &Path, most: usize, region: Region) -> Result<Record> {
        let mut file = std::fs::File::open(path).map_err(Error::io(path))?;
        let needed = |structure: &Structure| {
            region.check(structure)?;
            Ok(region.latents(&Geometry::new(structure.clone()).map_err(|e| e.to_string())?))
        };
        part::decode(&mut file, most, needed).map_err(|message| Error::file(path, message))
    }

    fn of_bytes(bytes: &[u8], path: &Path, most: usize) -> Result<Self> {
        let record = Record::decode(bytes, most).map_err(|message| Error::file(path, message))?;
        Ok(Coded { record, bytes: bytes.len() })
    }

    /// Decodes and measures against the target planes that `backend` was made with. The backend's own state is not used.
    /// `rebuilt` are the source's channels that are rebuilt from others.
    pub fn measure(
        &self,
        target: &[Vec<f32>],
        rebuilt: &[Option<Vec<f32>>],
        backend: &mut dyn Backend,
    ) -> Result<Found> {
        let parameters = self.record.parameters();
        let started = Instant::now();
        let decoded = backend.decode(Some(&parameters))?;
        let decode_s = started.elapsed().as_secs_f64();
        let quality = eval::measure(&self.record.structure, target, rebuilt, &decoded);
        let mut mse = backend.evaluate(Some(&parameters), true)?;
        // What a rebuilt channel adds is no output's.
        for ((mse, q), t) in mse.iter_mut().zip(&quality).zip(&self.record.structure.textures) {
            *mse = if t.rebuilds_normal() { q.mse } else { *mse };
        }
        Ok(Found { quality, mse, rates: self.record.rates(), bytes: self.bytes, decode_s, decoded })
    }

    /// Bits of the file per source texel position.
    pub fn bpp(&self) -> f64 {
        bpp(&self.record.structure, self.bytes)
    }

    /// Where the bits went.
    pub fn cost(&self, path: &Path) -> Result<Cost> {
        self.record.cost(self.bytes).map_err(|message| Error::file(path, message))
    }
}

/// Bits of a file of `bytes` bytes per source texel position.
pub fn bpp(structure: &Structure, bytes: usize) -> f64 {
    8.0 * bytes as f64 / (structure.source_width * structure.source_height) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::{Cpu, CpuOptions};
    use crate::backend::simd::SimdLevel;
    use crate::backend::{Backend, State};
    use crate::config::{Config, Simd};
    use crate::model::structure::{Rng, TextureInfo};
    use crate::noise::Noise;
    use crate::train::init;

    /// What is reported after writing is about the file: the trainer's state may be anything by then.
    #[test]
    fn a_corrupt_state_after_writing_changes_no_figure() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("record.ntes");
        let config = Config { qat: vec![2], mlp: vec![4], ..Config::default() };
        let texture = TextureInfo { name: "t".into(), channels: 3, depth: 8, role: None, sources: vec![] };
        let structure = config.resolve(14, 13, vec![texture]).unwrap();
        let geometry = Geometry::new(structure.clone()).unwrap();
        let wave = |k: usize| (0..16 * 16).map(|i| ((i * (k + 3)) as f32 * 0.1).sin() * 0.4 + 0.5).collect();
        let target: Vec<Vec<f32>> = (0..3).map(wave).collect();
        let mut noise = Noise::new(Rng::Hash, 1);
        let parameters = init::parameters(&structure, &geometry.network, 0.3, &mut noise);
        for coding in [Coding::Fixed, Coding::Range] {
            let options = CpuOptions::new(SimdLevel::new(Simd::Auto).unwrap(), 1);
            let state = State::new(parameters.clone());
            let mut cpu =
                Cpu::new(options, geometry.clone(), target.clone(), &[], noise.clone(), state.clone()).unwrap();
            save(&path, &structure, &parameters, coding).unwrap();
            let before = Coded::read(&path, MAX_TEXELS).unwrap().measure(&target, &[], &mut cpu).unwrap();
            let mut corrupt = state;
            corrupt.parameters.decoder.iter_mut().for_each(|w| *w = 1e3);
            corrupt.parameters.levels.iter_mut().flatten().for_each(|z| *z = -*z);
            cpu.set_state(corrupt.clone()).unwrap();
            let after = Coded::read(&path, MAX_TEXELS).unwrap().measure(&target, &[], &mut cpu).unwrap();
            assert_eq!((&before.quality, &before.mse, before.rates), (&after.quality, &after.mse, after.rates));
            assert!(before.decoded == after.decoded && before.bytes == after.bytes);
            let other = Coded::of_model(&path, &structure, &corrupt.parameters, coding).unwrap();
            assert!(other.measure(&target, &[], &mut cpu).unwrap().mse != before.mse, "the states do differ");
        }
    }
}
