//! Structures that come from a file, and that nobody should trust.

use super::validate::MAX_IMAGES;
use super::{Config, MAX_TEXELS};
use crate::files::safe_name;
use crate::model::structure::{Filter, Level, Structure};

/// Latent values of a level at most.
const MAX_VALUES: usize = 1 << 30;
/// Widest padding of a side, exclusive: the largest --block.
const MAX_PADDING: usize = 256;
/// Most texels across or down of an image.
const MAX_SIDE: usize = 32768;

/// Refuses a structure that no settings lead to. What is checked here keeps the sums below from overflowing; the
/// settings' own rules do the rest.
pub fn check_structure(structure: &Structure) -> std::result::Result<(), String> {
    let Structure { width, height, source_width, source_height, .. } = *structure;
    let side = |name: &str, padded: usize, source: usize| {
        let sane = source >= 1 && source <= padded && padded - source < MAX_PADDING && source <= MAX_SIDE;
        if sane { Ok(()) } else { Err(format!("{name} {padded} for a source of {source}")) }
    };
    side("width", width, source_width)?;
    side("height", height, source_height)?;
    if width * height > MAX_TEXELS {
        return Err(format!("{width}x{height} texels, at most {MAX_TEXELS}"));
    }
    check_textures(structure)?;
    if !(1..=2).contains(&structure.levels.len()) {
        return Err(format!("{} latent levels, 1 or 2", structure.levels.len()));
    }
    for (k, level) in structure.levels.iter().enumerate() {
        check_level(k, level)?;
    }
    match Config::default().adopt(structure, &[]) {
        Ok(_) => Ok(()),
        Err(_) => Err("no settings of ntc-es give it".into()),
    }
}

fn check_textures(structure: &Structure) -> std::result::Result<(), String> {
    let count = structure.textures.len();
    if !(1..=MAX_IMAGES).contains(&count) {
        return Err(format!("{count} textures, 1 to {MAX_IMAGES}"));
    }
    if structure.outputs() == 0 {
        return Err("no decoder output".into());
    }
    for texture in &structure.textures {
        if !(1..=4).contains(&texture.channels) || ![8, 16].contains(&texture.depth) {
            return Err(format!("a texture of {} channels with {} bits", texture.channels, texture.depth));
        }
        texture.check_sources().map_err(|message| format!("a texture whose {message}"))?;
        if texture.name != safe_name(&texture.name) {
            return Err(format!("{:?} is no name for a texture", texture.name.chars().take(80).collect::<String>()));
        }
    }
    Ok(())
}

fn check_level(k: usize, level: &Level) -> std::result::Result<(), String> {
    let Level { width, height, channels, filter, ref selector_bits, .. } = *level;
    let values = width.checked_mul(height).and_then(|n| n.checked_mul(channels)).unwrap_or(usize::MAX);
    if !(1..=MAX_VALUES).contains(&values) {
        return Err(format!("level {k} of {width}x{height}x{channels} values"));
    }
    if selector_bits.is_empty() {
        return Ok(());
    }
    let fits = selector_bits.len() == channels && selector_bits.iter().all(|bits| (1..=8).contains(bits));
    let sane = k == 0 && filter == Filter::Nearest && fits;
    if sane { Ok(()) } else { Err(format!("level {k} with selectors of {selector_bits:?} bits")) }
}
