//! The images of a run: reading them, and finding the same ones again for --resume.

use super::say;
use crate::config::{Config, Image, Normal, ResizeTo};
use crate::error::{Error, Result};
use crate::files::safe_name;
use crate::files::write_atomic;
use crate::model::structure::{Channels, TextureInfo};
use crate::texture::{Texture, bundled, load};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// What a record says of one image file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Base name.
    pub file: String,
    /// CRC-32 (IEEE) of the file's bytes, 8 hex digits.
    pub crc32: String,
}

/// inputs.json: which images a run began with.
///
/// config.toml has the paths as they were given, so relative ones mean nothing from another folder; `base` leads from
/// the run folder to where the run was started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// From the run folder to the working directory that relative paths are about.
    pub base: String,
    /// The images in order; the bundled ones where none was named.
    pub images: Vec<Source>,
}

/// Which channels get decoder outputs.
pub enum Reduction<'a> {
    /// Those that need one; with the third channel of normals where that is false.
    Fit {
        /// Normals' third channels are rebuilt.
        rebuild: bool,
    },
    /// Those of a model.
    As(&'a [TextureInfo]),
}

/// The textures of a run.
pub struct Material {
    /// In order, cropped.
    pub textures: Vec<Texture>,
    /// Their files.
    pub sources: Vec<Source>,
}

impl Material {
    /// Reads and crops the images that `config` names, or the bundled material, and says what a user should know.
    pub fn load(config: &Config) -> Result<Self> {
        let textures = match config.images.is_empty() {
            true => bundled()?,
            false => config.images.iter().map(|text| read(&Image::of(text), config.channels)).collect::<Result<_>>()?,
        };
        Self::prepare(textures, config.crop, config.resize_to, &reduction(config))
    }

    /// Brings textures to one size, crops them and names them safely.
    ///
    /// # Errors
    /// Maps of a material, which roles make it, of sizes that differ before the crop: it would cut them differently.
    pub fn prepare(
        mut textures: Vec<Texture>,
        crop: usize,
        resize_to: Option<ResizeTo>,
        reduction: &Reduction,
    ) -> Result<Self> {
        let mut cropped = vec![];
        match resize_to {
            Some(to) => resize(&mut textures, to)?,
            None => check_sizes(&textures)?,
        }
        for texture in &mut textures {
            texture.notes.iter().for_each(|note| say(&format!("{}: {note}", texture.file_name)));
            texture.info.name = safe_name(&texture.info.name);
            let (width, height) = (texture.width, texture.height);
            texture.centre_crop(crop);
            let (left, top) = ((width - texture.width) / 2, (height - texture.height) / 2);
            if (left, top) != (0, 0) || (width, height) != (texture.width, texture.height) {
                let offset = [("x", left), ("y", top)].into_iter().filter(|&(_, at)| at > 0);
                let offset: Vec<_> = offset.map(|(axis, at)| format!("{axis}={at}")).collect();
                let at = if offset.is_empty() { "0".into() } else { offset.join(", ") };
                let (w, h) = (texture.width, texture.height);
                cropped.push(format!("{width}x{height} cropped to {w}x{h} at {at}; --crop 0 keeps everything"));
            }
        }
        cropped.dedup();
        cropped.iter().for_each(|line| say(line));
        reduce(&mut textures, reduction)?;
        let source = |t: &Texture| Source { file: t.file_name.clone(), crc32: format!("{:08x}", t.crc32) };
        let sources = textures.iter().map(source).collect();
        Ok(Material { textures, sources })
    }
}

impl Inputs {
    /// A record without images of a run in `folder`, started here.
    pub fn here(folder: &Path) -> Result<Self> {
        let here = Path::new(".").canonicalize().map_err(Error::io("."))?;
        let there = folder.canonicalize().map_err(Error::io(folder))?;
        let base = relative(&there, &here);
        Ok(Inputs { base: base.to_string_lossy().into_owned(), images: vec![] })
    }

    /// Writes inputs.json.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|e| Error::file(path, e.to_string()))?;
        write_atomic(path, |w| writeln!(w, "{text}"))
    }

    /// Reads inputs.json.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io(path))?;
        serde_json::from_str(&text).map_err(|e| Error::file(path, e.to_string().replace('\n', " ")))
    }

    /// A path of config.toml as it is to be opened from here: relative to the working directory, or else to the one
    /// that the run in `folder` was started from.
    pub fn locate(&self, path: &Path, folder: &Path) -> PathBuf {
        let moved = folder.join(&self.base).join(path);
        if !path.exists() && moved.exists() { moved } else { path.to_owned() }
    }

    /// Reads the images again and holds them to their checksums.
    ///
    /// # Errors
    /// Images that are missing or that changed, by name.
    pub fn load_again(&self, config: &Config, folder: &Path) -> Result<Material> {
        if config.images.is_empty() {
            let material = Material::load(config)?;
            return if material.sources == self.images {
                Ok(material)
            } else {
                Err(self.changed("the bundled material"))
            };
        }
        if config.images.len() != self.images.len() {
            return Err(Error::config("inputs.json and config.toml of the run name different numbers of images"));
        }
        let (mut textures, mut trouble) = (vec![], vec![]);
        for (image, source) in config.images.iter().zip(&self.images) {
            let image = Image::of(image);
            match find(&image, &folder.join(&self.base), config, source) {
                Ok(texture) => textures.push(texture),
                Err(e) => trouble.push(e.to_string()),
            }
        }
        match trouble.is_empty() {
            true => Material::prepare(textures, config.crop, config.resize_to, &reduction(config)),
            false => Err(Error::State(trouble.join("; "))),
        }
    }

    fn changed(&self, what: &str) -> Error {
        Error::State(format!("{what} is not the one that the run began with"))
    }
}

/// Reads one image as its entry says.
pub fn read(image: &Image, channels: Channels) -> Result<Texture> {
    if let Some(message) = image.misspelt() {
        return Err(Error::config(message));
    }
    let mut texture = load(Path::new(image.path), image.channels.unwrap_or(channels))?;
    texture.info.role = image.role;
    Ok(texture)
}

/// What the settings of a fit leave out.
fn reduction(config: &Config) -> Reduction<'static> {
    Reduction::Fit { rebuild: config.normal == Normal::Xy }
}

/// Leaves out the channels that need no decoder output.
fn reduce(textures: &mut [Texture], reduction: &Reduction) -> Result<()> {
    match reduction {
        Reduction::Fit { rebuild } => textures.iter_mut().for_each(|texture| texture.reduce(*rebuild)),
        Reduction::As(infos) => {
            for (texture, info) in textures.iter_mut().zip(*infos) {
                texture.reduce_as(info).map_err(|message| Error::file(&texture.file_name, message))?;
            }
        }
    }
    if textures.iter().all(|texture| texture.planes.is_empty())
        && let Some(first) = textures.first_mut()
    {
        first.keep_one();
    }
    Ok(())
}

/// Resamples all textures to the size of one of them.
fn resize(textures: &mut [Texture], to: ResizeTo) -> Result<()> {
    let sizes = textures.iter().map(|t| (t.width, t.height));
    let texels = |&(width, height): &(usize, usize)| width * height;
    let chosen = match to {
        ResizeTo::Largest => sizes.max_by_key(texels),
        ResizeTo::Smallest => sizes.min_by_key(texels),
    };
    let Some((width, height)) = chosen else { return Ok(()) };
    textures.iter_mut().try_for_each(|texture| texture.resize(width, height))
}

fn check_sizes(textures: &[Texture]) -> Result<()> {
    let Some(first) = textures.first().filter(|_| textures.iter().any(|t| t.info.role.is_some())) else {
        return Ok(());
    };
    match textures.iter().find(|t| (t.width, t.height) != (first.width, first.height)) {
        None => Ok(()),
        Some(other) => Err(Error::config(format!(
            "{} is {}x{} texels but {} is {}x{}; give maps of one size, or --resize-to largest or smallest",
            first.file_name, first.width, first.height, other.file_name, other.width, other.height
        ))),
    }
}

/// The image at its path, or else from `base`, if it is the file `source`; else what is wrong with the first.
fn find(image: &Image, base: &Path, config: &Config, source: &Source) -> Result<Texture> {
    let mut first = None;
    for path in [PathBuf::from(image.path), base.join(image.path)] {
        let Some(text) = path.to_str() else { continue };
        match read(&Image { path: text, ..*image }, config.channels) {
            Ok(texture) if format!("{:08x}", texture.crc32) == source.crc32 => return Ok(texture),
            Ok(_) => first.get_or_insert(Error::file(path, "is not the file that the run began with")),
            Err(e) => first.get_or_insert(e),
        };
    }
    Err(first.unwrap_or_else(|| Error::State(format!("{}: no place to look for it", source.file))))
}

/// The way from folder `from` to folder `to`, both canonical.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(to.components().skip(shared)).collect();
    if way.as_os_str().is_empty() { ".".into() } else { way }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_between_folders() {
        let way = |a: &str, b: &str| relative(Path::new(a), Path::new(b)).display().to_string();
        assert_eq!(way("/w/out", "/w"), "..");
        assert_eq!(way("/w", "/w"), ".");
        assert_eq!(way("/w/a/b", "/w/c"), "../../c");
        assert_eq!(way("/w", "/w/a"), "a");
    }
}
