//! With `--rng mt` and the reference's flags a run follows the C++ reference's printed PSNR (experiments/001-reference).
//!
//! The photograph is not part of the project: `NTC_TEST_DATA` names the folder that holds kodak/kodim23.png, and without
//! it the test is skipped and says so.

use clap::{Args, FromArgMatches};
use ntc_es::backend::cpu::{Cpu, CpuOptions};
use ntc_es::backend::simd::SimdLevel;
use ntc_es::backend::{Backend, State};
use ntc_es::config::{Config, Simd};
use ntc_es::error::Result;
use ntc_es::model::decode::Geometry;
use ntc_es::noise::Noise;
use ntc_es::texture::target::Target;
use ntc_es::train::{self, Progress, Report, Watch};
use std::path::PathBuf;

fn data() -> Option<PathBuf> {
    let root = std::env::var_os("NTC_TEST_DATA");
    if root.is_none() {
        println!("skipped: 1 (NTC_TEST_DATA is not set)");
    }
    root.map(PathBuf::from)
}

/// (iteration, PSNR) as the reference printed it for a configuration, and its flags.
fn reference(name: &str) -> (String, Vec<(usize, f64)>) {
    let mut reader = csv::Reader::from_path("experiments/001-reference/reference.csv").unwrap();
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.unwrap()).filter(|r| &r[0] == name).collect();
    let points = rows.iter().map(|r| (r[2].parse().unwrap(), r[4].parse().unwrap())).collect();
    (rows[0][1].to_string(), points)
}

#[derive(Default)]
struct Record(Vec<(usize, f64)>, usize);

impl Watch for Record {
    fn report(&mut self, report: &Report) -> Result<()> {
        self.0.push((report.iteration, report.psnr_db.unwrap()));
        Ok(())
    }
    fn save(&mut self, _: &Progress, _: &Report, _: &mut dyn Backend) -> Result<()> {
        Ok(())
    }
    fn stop(&self) -> bool {
        self.0.last().is_some_and(|last| last.0 >= self.1)
    }
}

/// Runs `flags` with the Mersenne twister up to iteration `until` and returns the printed PSNRs.
fn run(photograph: PathBuf, flags: &str, until: usize) -> Vec<(usize, f64)> {
    let command = Config::augment_args(clap::Command::new("test").no_binary_name(true));
    let flags = flags.split_whitespace().skip(1).chain(["--rng", "mt"]);
    let config = Config::from_arg_matches(&command.get_matches_from(flags)).unwrap();
    config.validate().unwrap();
    let mut texture = ntc_es::texture::load(&photograph, config.channels).unwrap();
    texture.centre_crop(config.crop);
    let structure = config.resolve(texture.width, texture.height, vec![texture.info.clone()]).unwrap();
    let target = Target::new(vec![texture], structure.width, structure.height).unwrap();
    let geometry = Geometry::new(structure.clone()).unwrap();
    let mut noise = Noise::new(config.rng, config.seed);
    let parameters = train::init::parameters(&structure, &geometry.network, config.lat_init, &mut noise);
    let options = CpuOptions::new(SimdLevel::new(Simd::Auto).unwrap(), 0);
    let mut cpu = Cpu::new(options, geometry, target.planes, &config.weights, noise, State::new(parameters)).unwrap();
    let mut record = Record(vec![], until);
    train::fit(&config, &structure, &mut cpu, &mut record, Progress::default()).unwrap();
    record.0
}

fn follows(name: &str, until: usize) {
    let Some(data) = data() else { return };
    let (flags, points) = reference(name);
    let ours = run(data.join("kodak/kodim23.png"), &flags, until);
    let mut compared = 0;
    for (it, psnr) in &ours {
        let Some((_, theirs)) = points.iter().find(|point| point.0 == *it) else { continue };
        let allowed = if *it <= 100 { 0.02 } else { 0.10 };
        println!("{name} {it}: {psnr:.3} dB, the reference {theirs:.2}");
        assert!((psnr - theirs).abs() <= allowed + 0.005, "{name} at {it}: {psnr:.3} dB is not {theirs:.2}");
        compared += 1;
    }
    assert!(compared > until / 10);
}

#[test]
fn configuration_a_follows_the_reference() {
    follows("a", 100);
}

#[test]
fn configuration_b_follows_the_reference() {
    follows("b", 60);
}

#[test]
fn configuration_c_follows_the_reference() {
    follows("c", 60);
}
