//! `--cuda-check`: the GPU's steps, or those of its emulation, against the CPU's.

use super::inputs::Material;
use super::{Job, print, say};
use crate::backend::check::{Case, Row, Steps, cases, compare, trained};
use crate::backend::{Backend, State};
use crate::config::{Config, CudaDevice};
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::noise::Noise;
use crate::train::init;

/// Iterations that make a case's trained state.
const TRAINING: u32 = 12;

/// A CUDA backend on `device`.
///
/// # Errors
/// What is missing on this machine or in this build.
#[cfg(feature = "cuda")]
pub(super) fn cuda(
    device: CudaDevice,
    geometry: Geometry,
    target: Vec<Vec<f32>>,
    weights: &[f32],
    noise: Noise,
    state: State,
) -> Result<Box<dyn Backend>> {
    use crate::backend::cuda::{Cuda, CudaOptions, Device};
    let device = match device {
        CudaDevice::Gpu(number) => Device::Gpu(number),
        CudaDevice::Emu => Device::Emulation,
    };
    Ok(Box::new(Cuda::new(CudaOptions::new(device), geometry, target, weights, noise, state)?))
}

/// A CUDA backend in a build that has none.
#[cfg(not(feature = "cuda"))]
pub(super) fn cuda(
    _: CudaDevice,
    _: Geometry,
    _: Vec<Vec<f32>>,
    _: &[f32],
    _: Noise,
    _: State,
) -> Result<Box<dyn Backend>> {
    Err(Error::Backend("--cuda: this build has no CUDA; build with --features cuda, which is the default".into()))
}

/// The device to check, and why no GPU is checked where that is so.
fn device(config: &Config) -> Result<(CudaDevice, Option<String>)> {
    if let Some(device) = config.device() {
        return Ok((device, None));
    }
    #[cfg(feature = "cuda")]
    let missing = crate::backend::cuda::gpu().err();
    #[cfg(not(feature = "cuda"))]
    let missing = None;
    match missing {
        None => Ok((CudaDevice::Gpu(0), None)),
        Some(e) if !cfg!(feature = "emu") || std::env::var_os("NTC_REQUIRE_CUDA").is_some_and(|v| v == "1") => Err(e),
        Some(e) => Ok((CudaDevice::Emu, Some(e.to_string()))),
    }
}

/// Compares every verb over the table of cases, or with images for these settings, prints a row each, and fails where
/// they differ.
///
/// # Errors
/// A difference (exit code 3); no GPU where one is required or this build has no emulation.
pub fn check(config: &Config, given: &[String]) -> Result<()> {
    let (device, missing) = device(config)?;
    if let Some(reason) = &missing {
        say(&format!("{reason}; checking the emulation in its place"));
    }
    let (cases, steps) = if config.images.is_empty() {
        (cases()?, Steps { step: 3, batch: 300, pairs: 3, latent_pairs: 3, full: true })
    } else {
        let pairs = config.mlp_pairs.min(4);
        let latent_pairs = config.lat_pairs.min(4);
        (vec![own_case(config, given)?], Steps { step: 1, batch: config.mlp_batch, pairs, latent_pairs, full: false })
    };
    print(&format!("{}\n", Row::HEAD))?;
    let (mut compared, mut different) = (0, 0);
    for case in cases {
        let mut cpu = cpu(config, &case)?;
        let state = trained(&case, cpu.as_mut(), TRAINING)?;
        let later = Case { name: format!("{}, trained", case.name), state, ..case.clone() };
        for case in [case, later] {
            cpu.set_state(case.state.clone())?;
            let Case { geometry, target, weights, state, .. } = case.clone();
            let mut cuda = cuda(device, geometry, target, &weights, case.noise(), state)?;
            for row in compare(&case, steps, cpu.as_mut(), cuda.as_mut())? {
                compared += 1;
                different += usize::from(!row.equal);
                print(&format!("{row}\n"))?;
            }
        }
    }
    let skipped = if missing.is_some() { compared } else { 0 };
    print(&format!("{compared} compared, {different} different, {skipped} skipped on a GPU\n"))?;
    match different {
        0 => Ok(()),
        n => Err(Error::Difference(format!("--cuda-check: {n} of {compared} results differ from the CPU's"))),
    }
}

/// The case that images and settings describe.
fn own_case(config: &Config, given: &[String]) -> Result<Case> {
    let job = Job::new(config, given, Material::load(config)?, None)?;
    let Job { config, geometry, target, .. } = job;
    let mut noise = Noise::new(config.rng, config.seed);
    let parameters = init::parameters(&geometry.structure, &geometry.network, config.lat_init, &mut noise);
    Ok(Case {
        name: "these settings".into(),
        geometry,
        target: target.planes,
        weights: config.weights,
        seed: config.seed,
        state: State::new(parameters),
    })
}

fn cpu(config: &Config, case: &Case) -> Result<Box<dyn Backend>> {
    use crate::backend::cpu::{Cpu, CpuOptions};
    use crate::backend::simd::SimdLevel;
    let options = CpuOptions::new(SimdLevel::new(config.simd)?, config.threads);
    let Case { geometry, target, weights, state, .. } = case.clone();
    Ok(Box::new(Cpu::new(options, geometry, target, &weights, case.noise(), state)?))
}
