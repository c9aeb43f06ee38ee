//! What every backend must compute: a suite of functions that take the making of a backend, run against each CPU level.
//!
//! The judge is [`reference`], which defines the same steps again, slowly. All equalities are to the bit unless the function
//! says otherwise. A backend that this machine cannot run is a printed skip.

mod decoder_es;
mod decoder_fd;
mod evaluate;
mod host;
mod latent_es;
mod problems;
mod reference;
mod runs;
mod selector_search;
mod unbiased;

use ntc_es::backend::cpu::{Cpu, CpuOptions};
use ntc_es::backend::simd::SimdLevel;
use ntc_es::backend::{Backend, State};
use ntc_es::config::Simd;
use problems::Problem;

/// How a backend is made for a problem, in its initial state.
pub type Make<'a> = &'a dyn Fn(&Problem) -> Box<dyn Backend>;

/// A CPU backend with the given options.
pub fn cpu(problem: &Problem, options: CpuOptions) -> Box<dyn Backend> {
    let Problem { target, weights, state, .. } = problem.clone();
    let cpu = Cpu::new(options, problem.geometry(), target, &weights, problem.noise(), state);
    Box::new(cpu.unwrap_or_else(|e| panic!("{}: {e}", problem.name)))
}

/// Both slices to the bit; the message names the first difference.
#[track_caller]
pub fn assert_bits(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: lengths");
    let differs = |i: &usize| got[*i].to_bits() != want[*i].to_bits();
    let different: Vec<usize> = (0..got.len()).filter(differs).collect();
    if let Some(&i) = different.first() {
        panic!("{what}: {} of {} differ, first [{i}]: {:e} is not {:e}", different.len(), got.len(), got[i], want[i]);
    }
}

/// Two states to the bit.
#[track_caller]
pub fn assert_same_state(what: &str, got: &dyn Backend, want: &dyn Backend) {
    let (got, want) = (got.state().expect("a state"), want.state().expect("a state"));
    let State { parameters, adam_decoder, adam_latents, mersenne, dampings } = &got;
    for (level, (got, want)) in parameters.levels.iter().zip(&want.parameters.levels).enumerate() {
        assert_bits(&format!("{what}: level {level}"), got, want);
    }
    assert_bits(&format!("{what}: decoder"), &parameters.decoder, &want.parameters.decoder);
    for (group, got, want) in
        [("decoder", adam_decoder, &want.adam_decoder), ("latents", adam_latents, &want.adam_latents)]
    {
        assert_bits(&format!("{what}: {group} m"), &got.m, &want.m);
        assert_bits(&format!("{what}: {group} v"), &got.v, &want.v);
        assert_eq!((got.power1, got.power2), (want.power1, want.power2), "{what}: {group} powers of beta");
    }
    assert_eq!(mersenne, &want.mersenne, "{what}: twister");
    assert_eq!(dampings, &want.dampings, "{what}: dampings");
}

/// Statistics that a backend may sum in its own order.
#[track_caller]
pub fn assert_near(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-12 * want.abs(), "{what}: {got:e} is not {want:e}");
}

/// The whole suite for one backend: `name::file::test`.
macro_rules! suite {
    ($name:ident, $make:expr) => {
        suite! {
            $name, $make;
            evaluate {
                decodes_equal_the_reference, errors_equal_the_reference, decodes_worked_by_hand,
                a_constant_grid_decodes_to_a_constant
            }
            decoder_es { steps_equal_the_reference }
            decoder_fd { steps_equal_the_reference, the_structured_estimate_is_as_good_as_the_naive_one }
            latent_es { steps_equal_the_reference, a_level_that_no_pair_hits_keeps_still }
            selector_search {
                searches_equal_brute_force, a_joint_search_is_never_worse, a_search_never_raises_the_loss, ties_keep_the_current_value
            }
            runs {
                runs_equal_the_reference, a_state_goes_on_elsewhere, states_that_are_no_longer_finite_are_errors
            }
            unbiased { latent_estimates_are_unbiased, decoder_estimates_are_unbiased }
        }
    };
    ($name:ident, $make:expr; $($file:ident { $($test:ident),* })*) => {
        mod $name {
            /// Tests of this suite.
            #[allow(dead_code)]
            pub const TESTS: usize = [$($(stringify!($test)),*),*].len();
            $(mod $file {
                $(#[test]
                fn $test() {
                    if let Some(make) = $make {
                        crate::$file::$test(&make);
                    }
                })*
            })*
        }
    };
}

/// The CPU backend at one level, or a printed skip.
fn at_level(simd: Simd) -> Option<impl Fn(&Problem) -> Box<dyn Backend>> {
    match SimdLevel::new(simd) {
        Ok(level) => Some(move |problem: &Problem| cpu(problem, CpuOptions::new(level, 1))),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

suite!(cpu_scalar, crate::at_level(ntc_es::config::Simd::Scalar));
suite!(cpu_avx2, crate::at_level(ntc_es::config::Simd::Avx2));
suite!(cpu_avx512, crate::at_level(ntc_es::config::Simd::Avx512));

// What the CPU alone has.
suite! {
    cpu_only, crate::at_level(ntc_es::config::Simd::Auto);
    unbiased { other_latent_estimates_are_unbiased, latent_differences_are_the_gradient }
}

/// The CUDA backend on a device; `tests/cuda.rs` runs it in other orders. Problems with the Mersenne twister, which it
/// refuses, run on the CPU.
#[cfg(feature = "cuda")]
fn on(device: ntc_es::backend::cuda::Device) -> impl Fn(&Problem) -> Box<dyn Backend> {
    use ntc_es::backend::cuda::{Cuda, CudaOptions};
    move |problem: &Problem| -> Box<dyn Backend> {
        if problem.rng == ntc_es::model::structure::Rng::Mt {
            println!("skipped: {}: the twister runs on the CPU only", problem.name);
            return cpu(problem, CpuOptions::new(SimdLevel::all()[0], 1));
        }
        let Problem { target, weights, state, .. } = problem.clone();
        let options = CudaOptions::new(device);
        let cuda = Cuda::new(options, problem.geometry(), target, &weights, problem.noise(), state);
        Box::new(cuda.unwrap_or_else(|e| panic!("{}: {e}", problem.name)))
    }
}

/// The suite of a device, without the tests of unbiasedness: they need thousands of steps, and what they test is the
/// estimate, which is the same.
macro_rules! device_suite {
    ($name:ident, $make:expr) => {
        suite! {
            $name, $make;
            evaluate {
                decodes_equal_the_reference, errors_equal_the_reference, decodes_worked_by_hand,
                a_constant_grid_decodes_to_a_constant
            }
            decoder_es { steps_equal_the_reference }
            decoder_fd { steps_equal_the_reference }
            latent_es { steps_equal_the_reference, a_level_that_no_pair_hits_keeps_still }
            selector_search { searches_equal_brute_force, a_search_never_raises_the_loss, ties_keep_the_current_value }
            runs { runs_equal_the_reference, a_state_goes_on_elsewhere, states_that_are_no_longer_finite_are_errors }
        }
    };
}

#[cfg(feature = "emu")]
device_suite!(cuda_emu, Some(crate::on(ntc_es::backend::cuda::Device::Emulation)));

/// The first GPU, or why there is none. A process has a GPU or the emulation, so builds with the emulation leave the GPU to
/// those without.
#[cfg(feature = "cuda")]
fn gpu() -> Result<ntc_es::backend::cuda::Device, String> {
    if cfg!(feature = "emu") {
        return Err("this build has the emulation; run the suite without --features emu".into());
    }
    ntc_es::backend::cuda::gpu().map(|_| ntc_es::backend::cuda::Device::Gpu(0)).map_err(|e| e.to_string())
}

#[cfg(feature = "cuda")]
device_suite!(cuda_gpu, crate::gpu().ok().map(crate::on));

/// Says how many GPU cases were skipped, past the capture of tests that pass; NTC_REQUIRE_CUDA=1 makes that a failure.
#[cfg(feature = "cuda")]
#[test]
fn gpu_cases_run_or_are_counted() {
    use std::io::Write;
    let Err(why) = gpu() else { return };
    let line = format!("skipped: {} GPU cases: {why}", cuda_gpu::TESTS);
    writeln!(std::io::stderr(), "{line}").unwrap();
    assert!(std::env::var_os("NTC_REQUIRE_CUDA").is_none_or(|v| v != "1"), "NTC_REQUIRE_CUDA=1: {line}");
}
