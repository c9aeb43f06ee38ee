//! Helpers for tests that drive the program: small images, runs in temporary folders, comparisons.
#![allow(dead_code)] // each test file uses some of them

use ntc_es::model::structure::Channels;
use ntc_es::texture::load;
use ntc_es::texture::write::write_png;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a finished call of the program said.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    /// Holds a failed call to one line of the right kind.
    pub fn fails(&self, code: i32, part: &str) {
        let Said { err, .. } = self;
        assert_eq!(self.code, Some(code), "{err}");
        assert!(err.contains(part), "{part:?} is not in: {err}");
        let last = err.lines().last().unwrap_or("");
        assert!(last.starts_with("ntc-es: ") && !err.contains("panicked"), "{err}");
    }

    /// Holds a call to success.
    pub fn works(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }
}

/// The program with `args`, words separated by blanks, working in `folder`.
pub fn command(folder: &Path, args: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ntc-es"));
    command.args(args.split_whitespace()).current_dir(folder).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn ntc(folder: &Path, args: &str) -> Said {
    let output = command(folder, args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Starts the program without waiting for it.
pub fn start(folder: &Path, args: &str) -> Child {
    command(folder, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Writes a smooth picture with some detail, different for each `seed`.
pub fn image(path: &Path, (width, height): (usize, usize), channels: usize, depth: u32, seed: usize) {
    let texel = |c: usize, i: usize| {
        let (x, y) = ((i % width) as f32, (i / width) as f32);
        let wave = (x * 0.37 + y * 0.23 + (c + seed) as f32).sin() * 0.35 + 0.5;
        wave + ((i * 7919 + c * 31 + seed * 17) % 13) as f32 / 100.0
    };
    let planes: Vec<Vec<f32>> = (0..channels).map(|c| (0..width * height).map(|i| texel(c, i)).collect()).collect();
    let slices: Vec<&[f32]> = planes.iter().map(Vec::as_slice).collect();
    write_png(path, width, height, depth, &slices).unwrap();
}

/// A temporary folder with `a.png`, 24x16 RGB, and `b.png`, grey.
pub fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    image(&place.path().join("a.png"), (24, 16), 3, 8, 1);
    image(&place.path().join("b.png"), (24, 16), 1, 8, 2);
    place
}

pub fn bytes(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Whether two pictures have the same size, depth and samples, however their files are compressed.
pub fn same_samples(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(|path| load(path, Channels::Alpha).unwrap_or_else(|e| panic!("{e}")));
    (a.width, a.height, a.info.depth) == (b.width, b.height, b.info.depth) && a.planes == b.planes
}

/// The file names of a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// log.csv without the columns that tell time: elapsed_s, cpu_s and iterations_per_s.
pub fn rows(run: &Path) -> Vec<String> {
    let text = fs::read_to_string(run.join("log.csv")).unwrap();
    let timeless = |line: &str| {
        let mut cells: Vec<_> = line.split(',').collect();
        cells.drain(1..3);
        cells.pop();
        cells.join(",")
    };
    text.lines().map(timeless).collect()
}

pub fn json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&bytes(path)).unwrap()
}

/// Two runs that must have come to the same.
pub fn assert_same_run(a: &Path, b: &Path) {
    assert_eq!(rows(a), rows(b));
    assert_eq!(names(a), names(b));
    for name in names(a).iter().filter(|name| name.ends_with(".png") || *name == "model.safetensors") {
        assert!(bytes(&a.join(name)) == bytes(&b.join(name)), "{name} differs");
    }
}

/// Path of `name` in a temporary folder.
pub fn at(place: &tempfile::TempDir, name: &str) -> PathBuf {
    place.path().join(name)
}
