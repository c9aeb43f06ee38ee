//! What a model is, and where its bits went.

use super::coded::{Coded, bpp};
use super::model_file::load_model_up_to;
use super::print;
use super::tools::run_config;
use crate::bitstream::Cost;
use crate::error::Result;
use crate::model::channels::Source;
use crate::model::quant::QuantizedLevel;
use crate::model::structure::{Level, Structure, TextureInfo};
use std::fmt::Write;
use std::path::Path;

/// Prints what the model in `path` is, as a table or as JSON.
///
/// # Errors
/// A model that cannot be read, or that has more than `most` texels.
pub fn info(path: &Path, json: bool, most: usize) -> Result<()> {
    let model = load_model_up_to(path, most)?;
    let coded = model.coded(path, run_config(path)?.coding)?;
    let cost = coded.cost(path)?;
    if json {
        return print(&format!("{:#}\n", as_json(&coded, &cost)));
    }
    print(&(table(&model.structure, &coded) + &cost_table(&coded, &cost)))
}

/// What one part of a model costs, in bits.
struct Part {
    name: String,
    raw: f64,
    entropy: f64,
    file: f64,
}

/// The parts of a coded model: every channel, the weights, the header.
fn parts(coded: &Coded, cost: &Cost) -> Vec<Part> {
    let mut parts = vec![];
    for (k, (level, bits)) in coded.record.levels.iter().zip(&cost.levels).enumerate() {
        for (c, &file) in bits.iter().enumerate() {
            let name = format!("level {k} channel {c}");
            parts.push(Part { name, raw: raw_bits(level, c), entropy: level.entropy_bits(c), file });
        }
    }
    let weights = coded.record.weight_bits();
    parts.push(Part { name: "weights".into(), raw: weights, entropy: weights, file: cost.weights });
    // The estimates count nothing but the ranges of free levels.
    let ranges: usize = coded.record.levels.iter().map(|l| l.ranges.as_ref().map_or(0, Vec::len)).sum();
    let ranges = 64.0 * ranges as f64;
    parts.push(Part { name: "header".into(), raw: ranges, entropy: ranges, file: cost.header });
    parts
}

fn raw_bits(level: &QuantizedLevel, channel: usize) -> f64 {
    f64::from(level.bits[channel]) * (level.indices.len() / level.bits.len()) as f64
}

fn as_json(coded: &Coded, cost: &Cost) -> serde_json::Value {
    let (record, rates) = (&coded.record, coded.record.rates());
    let part = |p: &Part| serde_json::json!({ "name": p.name, "raw": p.raw, "entropy": p.entropy, "file": p.file });
    serde_json::json!({
        "bpp_entropy": rates.entropy,
        "bpp_file": coded.bpp(),
        "bpp_raw": rates.raw,
        "coding": record.coding,
        "file_bytes": coded.bytes,
        "latents": record.structure.levels.iter().map(Level::values).sum::<usize>(),
        "parts_bits": parts(coded, cost).iter().map(part).collect::<Vec<_>>(),
        "structure": record.structure,
        "weights": record.decoder.len(),
    })
}

fn table(structure: &Structure, coded: &Coded) -> String {
    let Structure { width, height, source_width, source_height, .. } = *structure;
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "{name:<12} {text}"); // a String takes everything
    };
    let padding = if (width, height) == (source_width, source_height) {
        "".into()
    } else {
        format!(", padded to {width} x {height}")
    };
    line("size", format!("{source_width} x {source_height} texels{padding}"));
    for (k, t) in structure.textures.iter().enumerate() {
        line(&format!("texture {k}"), format!("{}: {} channels, {} bits{}", t.name, t.channels, t.depth, sources(t)));
    }
    for (k, level) in structure.levels.iter().enumerate() {
        let Level { width, height, channels, filter, ref selector_bits, grid_bits } = *level;
        let kind = match grid_bits {
            _ if !selector_bits.is_empty() => format!("selectors of {selector_bits:?} bits"),
            Some(bits) => format!("{bits} bits on a fixed grid"),
            None => format!("{} bits", structure.qbits),
        };
        let filter = format!("{filter:?}").to_lowercase();
        line(&format!("level {k}"), format!("{width} x {height} x {channels}, {filter}, {kind}"));
    }
    line("position", structure.position.clone());
    let layers: Vec<_> = structure.hidden.iter().map(usize::to_string).collect();
    let activation = format!("{:?}", structure.activation).to_lowercase();
    let head = if structure.clamp { "clamp" } else { "sigmoid" };
    let weights = coded.record.decoder.len();
    line("decoder", format!("hidden {}, {activation}, {head}, {weights} weights", layers.join(",")));
    if let Some(falloff) = structure.deblock {
        line("deblock", format!("falloff {falloff}"));
    }
    let (rates, file) = (coded.record.rates(), coded.bpp());
    line("rate", format!("{:.3} bpp raw, {:.3} bpp entropy, {file:.3} bpp file", rates.raw, rates.entropy));
    let coding = format!("{:?}", coded.record.coding).to_lowercase();
    line("file", format!("{} bytes, --coding {coding}", coded.bytes));
    out
}

/// Where the channels of a texture come from, if not each from an output of its own.
fn sources(texture: &TextureInfo) -> String {
    let word = |source| match source {
        Source::Output(k) => format!("output {k}"),
        Source::Constant(level) => format!("always {level}"),
        Source::NormalZ => "rebuilt".into(),
    };
    let words: Vec<_> = texture.sources.iter().copied().map(word).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// Where the bits went: bytes of each part and its share of the file.
fn cost_table(coded: &Coded, cost: &Cost) -> String {
    let parts = parts(coded, cost);
    let width = parts.iter().map(|p| p.name.len()).max().unwrap_or(0).max(12);
    let mut out =
        format!("\n{:<width$} {:>12} {:>12} {:>12} {:>9} {:>7}\n", "bytes", "raw", "entropy", "file", "bpp", "share");
    let total = 8.0 * coded.bytes as f64;
    let sum = |of: fn(&Part) -> f64| parts.iter().map(of).sum::<f64>();
    let all = Part { name: "all".into(), raw: sum(|p| p.raw), entropy: sum(|p| p.entropy), file: total };
    for Part { name, raw, entropy, file } in parts.iter().chain([&all]) {
        let bytes = [raw, entropy, file].map(|bits| format!("{:>12.1}", bits / 8.0)).join(" ");
        let rate = bpp(&coded.record.structure, coded.bytes) * file / total;
        let _ = writeln!(out, "{name:<width$} {bytes} {rate:>9.4} {:>6.1}%", 100.0 * file / total);
    }
    out
}
