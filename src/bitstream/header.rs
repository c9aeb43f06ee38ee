//! The section HEAD: the complete decode configuration.

use super::container::Cursor;
use super::{Result, refuse};
use crate::config::check_structure;
use crate::model::channels::Source;
use crate::model::role::Role;
use crate::model::structure::{Activation, Coding, Filter, Level, Structure, TextureInfo};

/// Its type.
pub const KIND: [u8; 4] = *b"HEAD";
/// What the textures are for; a section of its own, which readers that do not know it skip.
pub const ROLES: [u8; 4] = *b"ROLE";

/// Where the written channels come from, where not each is a decoder output of its own.
pub const CHANNELS: [u8; 4] = *b"CHAN";

/// Kinds of written channels in [`CHANNELS`] beyond the outputs 0 to 3.
const NORMAL_Z: u8 = 254;
const CONSTANT: u8 = 255;

/// How the values of a level are meant.
const FREE: u8 = 0;
const GRID: u8 = 1;
const SELECTORS: u8 = 2;

/// Decoder weights are half floats, or bytes with a scale a layer.
const WEIGHT_BITS: [u32; 2] = [16, 8];

/// Activations by their number.
const ACTIVATIONS: [Activation; 4] = [Activation::Leaky, Activation::Relu, Activation::Tanh, Activation::Sine];

/// The header of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// How the sections behind it are coded.
    pub coding: Coding,
    /// What decoding needs besides the values.
    pub structure: Structure,
    /// Smallest value and range of each channel of each free level; nothing for selectors and fixed grids.
    pub ranges: Vec<Option<Vec<(f32, f32)>>>,
}

/// Sizes as the format holds them.
fn narrow<T: TryFrom<usize>>(value: usize, what: &str) -> Result<T> {
    T::try_from(value).map_err(|_| format!("{what} {value} is beyond the format"))
}

/// The bytes of the section [`ROLES`], one a texture; nothing where no texture has a role.
pub fn write_roles(textures: &[TextureInfo]) -> Option<Vec<u8>> {
    let number = |role: Role| Role::ALL.iter().position(|(r, _)| *r == role).map_or(0, |at| at as u8 + 1);
    let bytes = textures.iter().map(|t| t.role.map_or(0, number));
    textures.iter().any(|t| t.role.is_some()).then(|| bytes.collect())
}

/// Reads the section [`ROLES`] into the textures.
pub fn read_roles(bytes: &[u8], textures: &mut [TextureInfo]) -> Result<()> {
    if bytes.len() != textures.len() || bytes.iter().all(|&byte| byte == 0) {
        return refuse(format!(
            "section ROLE has {} bytes for {} textures, or none of a role",
            bytes.len(),
            textures.len()
        ));
    }
    for (at, (&byte, texture)) in bytes.iter().zip(textures).enumerate() {
        texture.role = match byte.checked_sub(1).map(usize::from) {
            None => None,
            Some(number) => match Role::ALL.get(number) {
                Some((role, _)) => Some(*role),
                None => return refuse(format!("section ROLE, byte {at}: role {byte} is unknown")),
            },
        };
    }
    Ok(())
}

/// The bytes of the section [`CHANNELS`]; nothing where every channel is an output of its own.
pub fn write_channels(textures: &[TextureInfo]) -> Option<Vec<u8>> {
    let put = |source: Source| match source {
        Source::Output(k) => vec![k as u8], // 0 to 3
        Source::NormalZ => vec![NORMAL_Z],
        Source::Constant(level) => [&[CONSTANT][..], &(level as u16).to_le_bytes()].concat(),
    };
    let bytes = textures.iter().flat_map(TextureInfo::all_sources).flat_map(put);
    textures.iter().any(|t| !t.sources.is_empty()).then(|| bytes.collect())
}

/// Reads the section [`CHANNELS`] into the textures.
pub fn read_channels(bytes: &[u8], textures: &mut [TextureInfo]) -> Result<()> {
    let mut c = Cursor::new(bytes);
    let refused = |message: String| format!("section CHAN: {message}");
    for texture in textures.iter_mut() {
        let read = |c: &mut Cursor| -> Result<Source> {
            let at = c.at();
            match c.u8()? {
                k @ 0..=3 => Ok(Source::Output(usize::from(k))),
                NORMAL_Z => Ok(Source::NormalZ),
                CONSTANT => Ok(Source::Constant(u32::from(c.u16()?))),
                kind => refuse(format!("byte {at}: channel of kind {kind} is unknown")),
            }
        };
        let sources: Vec<_> = (0..texture.channels).map(|_| read(&mut c)).collect::<Result<_>>().map_err(refused)?;
        let plain = sources.iter().enumerate().all(|(k, source)| *source == Source::Output(k));
        texture.sources = if plain { vec![] } else { sources };
        texture.check_sources().map_err(refused)?;
    }
    c.end().map_err(refused)?;
    if textures.iter().all(|t| t.sources.is_empty()) {
        return refuse(refused("says nothing".into()));
    }
    match textures.iter().any(|t| t.outputs() > 0) {
        true => Ok(()),
        false => refuse(refused("leaves no decoder output".into())),
    }
}

/// The bytes of a header.
pub fn write(header: &Header) -> Result<Vec<u8>> {
    let Structure { width, height, source_width, source_height, ref textures, ref levels, .. } = header.structure;
    let s = &header.structure;
    let mut bytes = vec![u8::from(header.coding == Coding::Range)];
    for side in [width, height, source_width, source_height] {
        bytes.extend(narrow::<u32>(side, "side")?.to_le_bytes());
    }
    bytes.push(narrow(textures.len(), "textures")?);
    for texture in textures {
        bytes.push(narrow(texture.channels, "channels")?);
        bytes.push(narrow(texture.depth as usize, "depth")?);
        put_text(&mut bytes, &texture.name)?;
    }
    bytes.push(narrow(levels.len(), "levels")?);
    for (level, ranges) in levels.iter().zip(&header.ranges) {
        put_level(&mut bytes, level, ranges.as_deref().unwrap_or(&[]))?;
    }
    put_text(&mut bytes, &s.position)?;
    bytes.push(narrow(s.hidden.len(), "hidden layers")?);
    for &units in &s.hidden {
        bytes.push(narrow(units, "units")?);
    }
    bytes.push(ACTIVATIONS.iter().position(|&a| a == s.activation).unwrap_or(0) as u8);
    bytes.extend(s.leak.to_le_bytes());
    bytes.push(u8::from(s.clamp));
    bytes.extend(s.deblock.unwrap_or(0.0).to_le_bytes());
    bytes.push(narrow(s.qbits as usize, "bits")?);
    bytes.push(narrow(s.mlp_bits as usize, "bits")?);
    Ok(bytes)
}

fn put_text(bytes: &mut Vec<u8>, text: &str) -> Result<()> {
    bytes.extend(narrow::<u16>(text.len(), "text of length")?.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_level(bytes: &mut Vec<u8>, level: &Level, ranges: &[(f32, f32)]) -> Result<()> {
    bytes.extend(narrow::<u32>(level.width, "width")?.to_le_bytes());
    bytes.extend(narrow::<u32>(level.height, "height")?.to_le_bytes());
    bytes.push(narrow(level.channels, "channels")?);
    bytes.push(u8::from(level.filter == Filter::Nearest));
    if let Some(bits) = level.grid_bits {
        bytes.extend([GRID, narrow(bits as usize, "bits")?]);
        return Ok(());
    }
    bytes.push(if level.is_selector() { SELECTORS } else { FREE });
    for &bits in &level.selector_bits {
        bytes.push(narrow(bits as usize, "bits")?);
    }
    for (low, range) in ranges {
        bytes.extend(low.to_le_bytes());
        bytes.extend(range.to_le_bytes());
    }
    Ok(())
}

/// Reads and validates a header.
pub fn read(bytes: &[u8]) -> Result<Header> {
    read_fields(bytes).map_err(|message| format!("header: {message}"))
}

fn read_fields(bytes: &[u8]) -> Result<Header> {
    let mut c = Cursor::new(bytes);
    let coding = choose(&mut c, "coding", &[Coding::Fixed, Coding::Range])?;
    let [width, height, source_width, source_height] = [c.u32()?, c.u32()?, c.u32()?, c.u32()?].map(|n| n as usize);
    let textures = (0..c.u8()?).map(|_| texture(&mut c)).collect::<Result<Vec<_>>>()?;
    let read: Vec<_> = (0..c.u8()?).map(|_| level(&mut c)).collect::<Result<_>>()?;
    let (levels, ranges) = read.into_iter().unzip();
    let position = text(&mut c)?;
    let hidden = (0..c.u8()?).map(|_| c.u8().map(usize::from)).collect::<Result<_>>()?;
    let activation = choose(&mut c, "activation", &ACTIVATIONS)?;
    let leak = c.f32()?;
    let clamp = choose(&mut c, "output", &[false, true])?;
    let deblock = c.f32()?;
    let qbits = u32::from(c.u8()?);
    let (at, mlp_bits) = (c.at(), u32::from(c.u8()?));
    if !WEIGHT_BITS.contains(&mlp_bits) {
        return refuse(format!("byte {at}: weights of {mlp_bits} bits are unknown"));
    }
    c.end()?;
    let deblock = (deblock.to_bits() != 0).then_some(deblock);
    let structure = Structure {
        width,
        height,
        source_width,
        source_height,
        textures,
        levels,
        position,
        hidden,
        activation,
        leak,
        clamp,
        deblock,
        qbits,
        mlp_bits,
    };
    check_structure(&structure)?;
    Ok(Header { coding, structure, ranges })
}

/// The value that the next byte is the number of.
fn choose<T: Copy>(c: &mut Cursor, what: &str, values: &[T]) -> Result<T> {
    let at = c.at();
    let number = c.u8()?;
    values.get(usize::from(number)).copied().ok_or_else(|| format!("byte {at}: {what} {number} is unknown"))
}

fn text(c: &mut Cursor) -> Result<String> {
    let (at, length) = (c.at(), c.u16()?);
    let bytes = c.take(usize::from(length))?;
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| format!("byte {at}: text that is no UTF-8"))
}

fn texture(c: &mut Cursor) -> Result<TextureInfo> {
    let (channels, depth) = (usize::from(c.u8()?), u32::from(c.u8()?));
    Ok(TextureInfo { name: text(c)?, channels, depth, role: None, sources: vec![] })
}

/// A level and the ranges of its channels.
type LevelAndRanges = (Level, Option<Vec<(f32, f32)>>);

fn level(c: &mut Cursor) -> Result<LevelAndRanges> {
    let (width, height, channels) = (c.u32()? as usize, c.u32()? as usize, c.u8()?);
    let filter = choose(c, "filter", &[Filter::Bilinear, Filter::Nearest])?;
    let at = c.at();
    let (mut selector_bits, mut grid_bits, mut ranges) = (vec![], None, None);
    match c.u8()? {
        SELECTORS => selector_bits = (0..channels).map(|_| c.u8().map(u32::from)).collect::<Result<_>>()?,
        GRID => grid_bits = Some(u32::from(c.u8()?)),
        FREE => ranges = Some((0..channels).map(|_| range(c)).collect::<Result<_>>()?),
        kind => return refuse(format!("byte {at}: kind of level {kind} is unknown")),
    }
    Ok((Level { width, height, channels: usize::from(channels), filter, selector_bits, grid_bits }, ranges))
}

fn range(c: &mut Cursor) -> Result<(f32, f32)> {
    let at = c.at();
    match (c.f32()?, c.f32()?) {
        (low, range) if range > 0.0 && (low + range).is_finite() => Ok((low, range)),
        (low, range) => refuse(format!("byte {at}: {low} and {range} are no range")),
    }
}
