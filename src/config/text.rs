//! Settings as text: TOML, flags, and the hash of what changes a result.

use super::{Config, Image, command};
use crate::error::{Error, Result};
use clap::FromArgMatches;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that change where, how fast and how loudly a run works, but never its result.
/// A preset only chose defaults, which are written down beside it.
const RESULT_KEEPING: [&str; 10] = [
    "out",
    "threads",
    "simd",
    "cuda",
    "cuda-device",
    "cuda-check-every",
    "print-every",
    "save-every",
    "quiet",
    "preset",
];

impl Config {
    /// All settings as TOML, one key a line, in the order of `--help`. What is unset has no line.
    pub fn to_toml(&self) -> String {
        // Only a path that is not UTF-8 has no TOML form, and `validate` refuses those.
        toml::to_string(self).unwrap_or_default()
    }

    /// Settings from TOML, validated; missing keys take their defaults. `path` is what messages name.
    pub fn from_toml(text: &str, path: &Path) -> Result<Config> {
        let refused = |e: toml::de::Error| Error::file(path, describe(&e, text));
        let config: Config = toml::from_str(text).map_err(refused)?;
        // Defaults that depend on other settings: those of a command line with the same two flags.
        let written: BTreeMap<String, IgnoredAny> = toml::from_str(text).map_err(refused)?;
        let mut table = Config::with_defaults_of(&config, |key| written.contains_key(key)).table();
        table.extend(config.table().into_iter().filter(|(key, _)| written.contains_key(key)));
        // A number that JSON has no form for (NaN) is out of every range, so `validate` names it.
        let unfit = |e: serde_json::Error| config.validate().err().map_or(e.to_string(), |named| named.to_string());
        let config: Config = serde_json::from_value(table.into()).map_err(|e| Error::file(path, unfit(e)))?;
        config.validate().map_err(|e| Error::file(path, e.to_string()))?;
        Ok(config)
    }

    /// The defaults that go with the preset and the optimizer of `config`, where they are `given`.
    fn with_defaults_of(config: &Config, given: impl Fn(&str) -> bool) -> Config {
        let mut args = vec![];
        for key in ["optimizer", "preset"].into_iter().filter(|key| given(key)) {
            if let Some(value @ Value::String(_)) = config.table().get(key) {
                args.push(format!("--{key}={}", plain(value)));
            }
        }
        let matches = command().no_binary_name(true).try_get_matches_from(args);
        matches.and_then(|matches| Config::from_arg_matches(&matches)).unwrap_or_default()
    }

    /// The settings as a command line, without the program's name. Flags at their default are written too.
    pub fn to_args(&self) -> Vec<String> {
        let declared = command();
        let mut args = Vec::new();
        for (key, value) in self.table() {
            // `hidden` speaks for `mlp`, and the command line takes only one of them.
            if key == "images" || (key == "mlp" && self.hidden.is_some()) {
                continue;
            }
            let spread = declared
                .get_arguments()
                .any(|a| a.get_long() == Some(&key) && a.get_value_names().is_some_and(|n| n.len() > 1));
            match value {
                Value::Null | Value::Bool(false) => {}
                Value::Bool(true) => args.push(format!("--{key}")),
                Value::Array(items) if items.is_empty() => {}
                Value::Array(items) if spread => {
                    args.push(format!("--{key}"));
                    args.extend(items.iter().map(plain));
                }
                Value::Array(items) => {
                    let items: Vec<_> = items.iter().map(plain).collect();
                    args.push(format!("--{key}={}", items.join(",")));
                }
                other => args.push(format!("--{key}={}", plain(&other))),
            }
        }
        if !self.images.is_empty() {
            args.push("--".into());
            args.extend(self.images.iter().cloned());
        }
        args
    }

    /// 16 hex digits over the settings that change the result; paths count by their base name only.
    ///
    /// Short forms and defaults count as what they stand for, so a completed config ([`Config::complete`]) has the hash
    /// of the one that it was made from.
    pub fn hash(&self) -> String {
        let mut kept = self.explicit();
        kept.images = self.images.iter().map(|image| bare(image)).collect();
        kept.load = self.load.as_deref().map(|path| base_name(path).into());
        let mut lines: Vec<String> = Vec::new();
        for (key, value) in kept.table() {
            if !RESULT_KEEPING.contains(&key.as_str()) && !value.is_null() {
                lines.push(format!("{key} = {value}\n"));
            }
        }
        lines.sort_unstable();
        format!("{:016x}", fnv1a(lines.concat().as_bytes()))
    }

    /// Every setting as (key, text of a table's cell): lists with commas, images by their base names, empty where unset.
    pub fn cells(&self) -> Vec<(String, String)> {
        let text = |key: &str, value: Value| match value {
            Value::Null => String::new(),
            Value::Array(items) if key == "images" => {
                let names = items.iter().map(|image| bare(&plain(image)));
                names.collect::<Vec<_>>().join("+")
            }
            Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
            other => plain(&other),
        };
        self.table().into_iter().map(|(key, value)| (key.clone(), text(&key, value))).collect()
    }

    /// The settings as (key, value), unset ones as null.
    pub(super) fn table(&self) -> serde_json::Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(table)) => table,
            // Only a path that is not UTF-8 has no JSON form, and `validate` refuses those.
            _ => serde_json::Map::new(),
        }
    }
}

/// An image's entry without the folders of its path.
fn bare(image: &str) -> String {
    let image = Image::of(image);
    image.with(&base_name(Path::new(image.path)))
}

/// The name of the last folder or file of a path, or the path as it is where it ends in none.
fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A single value as a flag takes it. Floats were f32, so their shortest f32 form brings them back.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => (n.as_f64().unwrap_or(f64::NAN) as f32).to_string(),
        other => other.to_string(),
    }
}

/// FNV-1a, 64 bits: the same on every machine and in every version of this program.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// One line for a TOML error: where it is and what is wrong.
fn describe(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    let message = match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
        Some((key, _)) => format!("unknown key `{key}`{}", suggestion(key)),
        None => message,
    };
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => {
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
            format!("line {line}, column {column}: {message}")
        }
        None => message,
    }
}

/// The known key that looks most like `key`, if any does.
fn suggestion(key: &str) -> String {
    let known = Config::default().table();
    let best = known.keys().map(|k| (distance(k, key), k)).min();
    match best {
        Some((d, k)) if d <= 2 => format!("; did you mean `{k}`?"),
        _ => "; keys are the flags of --help without their dashes".into(),
    }
}

/// Edits (insert, delete, replace a character) from one word to another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
