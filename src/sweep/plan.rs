//! The plan of a sweep: a TOML file that names images, seeds, settings for all, axes and cases.
//!
//! ```toml
//! images = [["../../data/m1.png"], ["../../data/m1.png", "../../data/m2.png"]]   # default: the bundled material
//! seeds = [1, 2]                      # default [1]
//! [base]                              # settings of every cell, named as in config.toml
//! iters = 20
//! [axes]                              # every combination of these values
//! qat = [[1], [2]]
//! [[case]]                            # and of these sets of settings; `name` is its label
//! name = "bilinear"
//! filter = "nearest,bilinear"
//! ```

use crate::config::{Config, Image};
use crate::error::{Error, Result};
use crate::files::{folder_of, read_up_to};
use serde::Deserialize;
use std::path::Path;
use toml::{Table, Value};

/// Cells of a plan at most.
const MOST_CELLS: usize = 100_000;
/// Characters of a cell's name before its hash, at most.
const NAME: usize = 80;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default = "bundled")]
    images: Vec<Vec<String>>,
    #[serde(default = "first_seed")]
    seeds: Vec<u64>,
    #[serde(default)]
    base: Table,
    #[serde(default)]
    axes: Table,
    #[serde(default)]
    case: Vec<Table>,
}

fn bundled() -> Vec<Vec<String>> {
    vec![vec![]]
}

fn first_seed() -> Vec<u64> {
    vec![1]
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its name, unlike any other's of the plan, fit for a folder.
    pub name: String,
    /// The label of its case; empty without cases.
    pub case: String,
    /// Its settings, all valid.
    pub config: Config,
}

/// All runs of a sweep, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The runs.
    pub cells: Vec<Cell>,
}

impl Plan {
    /// Reads a plan. Image paths start from `data`, or from the plan's own folder.
    ///
    /// # Errors
    /// A file that is no plan, or a cell whose settings cannot work.
    pub fn read(path: &Path, data: Option<&Path>) -> Result<Plan> {
        let bytes = read_up_to(path, 1 << 24)?;
        let text = String::from_utf8(bytes).map_err(|_| Error::file(path, "is no UTF-8 text"))?;
        let refused = |e: toml::de::Error| {
            let line = e.span().and_then(|span| text.get(..span.start)).map_or(0, |s| s.matches('\n').count()) + 1;
            Error::file(path, format!("line {line}: {}", e.message().replace('\n', " ")))
        };
        let file: File = toml::from_str(&text).map_err(refused)?;
        Plan::of(file, path, data.unwrap_or(folder_of(path)))
    }

    fn of(file: File, path: &Path, data: &Path) -> Result<Plan> {
        let axes = axes(&file.axes, path)?;
        let cases = if file.case.is_empty() { vec![Table::new()] } else { file.case };
        let sizes =
            axes.iter().map(|(_, values)| values.len()).chain([file.images.len(), file.seeds.len(), cases.len()]);
        let count = sizes.fold(1usize, |n, size| n.saturating_mul(size));
        if count > MOST_CELLS {
            return Err(Error::file(path, format!("has {count} cells; a sweep has at most {MOST_CELLS}")));
        }
        let mut cells: Vec<Cell> = vec![];
        for images in &file.images {
            for case in &cases {
                for at in 0..axes.iter().map(|(_, values)| values.len()).product() {
                    for &seed in &file.seeds {
                        let settings = Settings { base: &file.base, axes: &axes, at, case, seed };
                        cells.push(settings.cell(images, path, data)?);
                    }
                }
            }
        }
        for (k, cell) in cells.iter().enumerate() {
            if let Some(other) = cells[..k].iter().position(|other| other.name == cell.name) {
                return Err(Error::file(
                    path,
                    format!("cells {} and {} are the same run: {}", other + 1, k + 1, cell.name),
                ));
            }
        }
        Ok(Plan { cells })
    }

    /// The cells of shard `index` (from 1) of `count`.
    pub fn shard(mut self, index: usize, count: usize) -> Plan {
        let cells = self.cells.into_iter().enumerate();
        self.cells = cells.filter(|(k, _)| k % count == index - 1).map(|(_, cell)| cell).collect();
        self
    }
}

/// Every axis with its values.
fn axes(table: &Table, path: &Path) -> Result<Vec<(String, Vec<Value>)>> {
    let axis = |(key, value): (&String, &Value)| match value {
        Value::Array(values) if !values.is_empty() => Ok((key.clone(), values.clone())),
        _ => Err(Error::file(path, format!("axes.{key}: give a list of one value or more, such as [1, 2]"))),
    };
    table.iter().map(axis).collect()
}

/// What makes one cell.
struct Settings<'a> {
    base: &'a Table,
    axes: &'a [(String, Vec<Value>)],
    /// Number of the combination, the last axis running fastest.
    at: usize,
    case: &'a Table,
    seed: u64,
}

impl Settings<'_> {
    fn cell(&self, images: &[String], path: &Path, data: &Path) -> Result<Cell> {
        let mut table = self.base.clone();
        let (mut label, mut rest) = (vec![], self.at);
        for (key, values) in self.axes.iter().rev() {
            let value = values[rest % values.len()].clone();
            rest /= values.len();
            label.insert(0, format!("{key}={}", plain(&value)));
            table.insert(key.clone(), value);
        }
        let mut case = self.case.clone();
        let name = match case.remove("name") {
            None => String::new(),
            Some(Value::String(name)) if !name.is_empty() && !name.contains([',', '"', '\n']) => name,
            Some(_) => return Err(Error::file(path, "case.name: give a text without commas, quotes and line ends")),
        };
        table.extend(case);
        let seed = i64::try_from(self.seed).map_err(|_| Error::file(path, "seeds: give numbers below 2^63"))?;
        table.insert("seed".into(), Value::Integer(seed));
        for key in ["images", "out", "quiet", "threads"] {
            if table.contains_key(key) {
                return Err(Error::file(path, format!("{key}: the sweep itself chooses it")));
            }
        }
        let located = |image: &String| {
            let image = Image::of(image);
            data.join(image.path).to_str().map(|path| Value::String(image.with(path)))
        };
        let text: Option<Vec<Value>> = images.iter().map(located).collect();
        let text = text.ok_or_else(|| Error::file(path, "images: a path is no UTF-8 text"))?;
        table.insert("images".into(), Value::Array(text));
        let text = toml::to_string(&table).map_err(|e| Error::file(path, e.to_string()))?;
        let stems = together(images);
        let parts: Vec<String> = [stems, name.clone()].into_iter().chain(label).filter(|s| !s.is_empty()).collect();
        let label = format!("{}-s{}", parts.join("-"), self.seed);
        let config = Config::from_toml(&text, path)
            .map_err(|e| Error::file(path, format!("cell {label}: {}", detail(&e, path))))?;
        let slug: String = label
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "=+-.".contains(c) { c } else { '_' })
            .take(NAME)
            .collect();
        // Names of images count in whole: two folders may hold an albedo.png each.
        let hash = crc32fast::hash(format!("{}{images:?}{}", config.hash(), parts.join("-")).as_bytes());
        Ok(Cell { name: format!("{slug}-{hash:08x}"), case: name, config })
    }
}

/// The message without the path that stands before it anyway.
fn detail(error: &Error, path: &Path) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text).to_owned()
}

/// A value in a name.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("_"),
        other => other.to_string(),
    }
}

/// What images are called together: their names without folders and extensions.
pub fn together(images: &[String]) -> String {
    let stem = |image: &String| {
        Path::new(Image::of(image).path).file_stem().map_or("".into(), |s| s.to_string_lossy().into_owned())
    };
    let names: Vec<String> = images.iter().map(stem).collect();
    if names.is_empty() { "bundled".into() } else { names.join("+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        Plan::read(&path, Some(Path::new("data")))
    }

    #[test]
    fn cells_are_all_combinations_in_order() {
        let text = "images = [['a.png'], ['b.png', 'c.png']]\nseeds = [1, 5]\n[base]\niters = 3\n[axes]\nmlp = [[4], [5, 6]]\n\
                    [[case]]\nname = 'x'\n[[case]]\nname = 'y'\nclamp = true\niters = 7\n";
        let cells = plan(text).unwrap().cells;
        assert_eq!(cells.len(), 16);
        let first = &cells[0];
        assert!(first.name.starts_with("a-x-mlp=4-s1-"), "{}", first.name);
        assert_eq!((first.config.iters, first.config.mlp.clone(), first.config.seed), (3, vec![4], 1));
        assert_eq!(first.config.images, ["data/a.png"]);
        let last = &cells[15];
        assert!(last.name.starts_with("b+c-y-mlp=5_6-s5-"), "{}", last.name);
        assert_eq!((last.config.iters, last.config.clamp, last.case.as_str()), (7, true, "y"));
        // Shards are disjoint and complete.
        let shards: Vec<Cell> = (1..=3).flat_map(|i| plan(text).unwrap().shard(i, 3).cells).collect();
        assert_eq!(shards.len(), 16);
        assert!(cells.iter().all(|cell| shards.contains(cell)));
        assert_eq!(plan("seeds = [3]").unwrap().cells.len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("seeds = 1", "line 1|sequence"),
            ("axis = 1", "line 1|axis"),
            ("[base]\nitres = 1", "cell bundled-s1|itres|iters"),
            ("[base]\niters = -1", "cell bundled-s1|`-1`"),
            ("[base]\nthreads = 1", "threads|sweep itself"),
            ("[axes]\nmlp = 4", "axes.mlp|list"),
            ("[axes]\nqbits = [99]", "qbits=99|--qbits 99|16"),
            ("[[case]]\nname = 'a,b'", "case.name"),
            ("seeds = [2, 2]", "cells 1 and 2"),
            (
                "seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nimages = [[], [], [], [], [], [], [], [], [], []]\n[axes]\n\
              mlp-pairs = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nlat-pairs = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n\
              qbits = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nblock = [1, 2]",
                "200000 cells",
            ),
        ] {
            let error = plan(text).unwrap_err().to_string();
            assert!(words.split('|').all(|word| error.contains(word)), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
