//! Materials as users have them: folders and manifests to the list of images that a run is about.

use super::say;
use crate::config::{Config, Goal, Image};
use crate::error::{Error, Result};
use crate::files::{folder_of, read_up_to};
use crate::model::role::Role;
use crate::model::structure::Channels;
use crate::texture::roles::infer;
use serde::Deserialize;
use std::path::Path;

/// Largest manifest that is read, in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

/// A manifest: the maps of a material in order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    textures: Vec<Map>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Map {
    /// From the manifest's folder.
    path: String,
    role: Role,
    /// `--channels` where absent.
    channels: Option<Channels>,
    /// 1 where absent.
    weight: Option<f32>,
    /// PSNR in dB that the map is to reach.
    quality: Option<f32>,
}

/// `config` with the maps of the manifest, or of the folder that it names, in place of these. Says what each file of a
/// folder was taken for.
///
/// # Errors
/// A manifest that is none, a folder without maps or with two for one role, settings that do not fit the maps.
pub fn expand(config: &Config, manifest: Option<&Path>) -> Result<Config> {
    let expanded = match manifest {
        Some(path) => of_manifest(config, path)?,
        None => Config { images: of_folder(&config.images)?, ..config.clone() },
    };
    expanded.validate()?;
    Ok(expanded)
}

/// The images themselves, or those of the one folder that is named.
///
/// # Errors
/// As [`expand`].
pub fn of_folder(images: &[String]) -> Result<Vec<String>> {
    let folder = |text: &&String| Path::new(Image::of(text).path).is_dir();
    let Some(folder) = images.iter().find(folder) else { return Ok(images.to_vec()) };
    if images.len() > 1 || Image::of(folder).role.is_some() {
        return Err(Error::config(format!("{folder}: a folder is a material of its own; name it alone")));
    }
    let path = Path::new(folder);
    let entries = std::fs::read_dir(path).and_then(|entries| {
        entries.map(|e| e.map(|e| (e.file_name(), e.path().is_dir()))).collect::<std::io::Result<Vec<_>>>()
    });
    let (mut names, mut odd) = (vec![], vec![]);
    for (name, is_folder) in entries.map_err(Error::io(path))? {
        match name.into_string() {
            Ok(name) if name.starts_with('.') => {}
            Ok(name) if is_folder => odd.push((name, "a folder".to_owned())),
            Ok(name) => names.push(name),
            Err(name) => odd.push((name.to_string_lossy().into_owned(), "a name that is no UTF-8".to_owned())),
        }
    }
    let mut taken = infer(&names).map_err(|message| Error::config(format!("{folder}: {message}")))?;
    odd.sort();
    taken.left_out.extend(odd);
    let lines = taken.lines();
    say(&format!("{folder}:{}{lines}", if lines.is_empty() { "" } else { "\n" }));
    if taken.maps.is_empty() {
        return Err(Error::config(format!("{folder}: no file in it has a map's name; name the maps as ROLE=PATH")));
    }
    let image = |(role, name): &(Role, String)| entry(*role, None, &path.join(name));
    taken.maps.iter().map(image).collect()
}

fn of_manifest(config: &Config, path: &Path) -> Result<Config> {
    let bytes = read_up_to(path, MAX_MANIFEST)?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|e| Error::file(path, e.to_string().replace('\n', " ")))?;
    if manifest.textures.is_empty() {
        return Err(Error::file(path, "names no textures; give 1 to 8"));
    }
    let folder = folder_of(path);
    // Without a folder before its name it lies here.
    let place = |map: &Map| if folder == Path::new(".") { map.path.clone().into() } else { folder.join(&map.path) };
    let images = manifest.textures.iter().map(|map| entry(map.role, map.channels, &place(map)));
    let weights = manifest.textures.iter().map(|map| map.weight.unwrap_or(1.0)).collect();
    let goals: Vec<Goal> =
        manifest.textures.iter().filter_map(|map| Some(Goal { role: map.role, db: map.quality? })).collect();
    let weighted = manifest.textures.iter().any(|map| map.weight.is_some());
    Ok(Config {
        images: images.collect::<Result<_>>()?,
        weights: if weighted { weights } else { vec![] },
        quality: if goals.is_empty() { config.quality.clone() } else { goals },
        ..config.clone()
    })
}

/// An entry of the list of images.
fn entry(role: Role, channels: Option<Channels>, path: &Path) -> Result<String> {
    let text = path.to_str().ok_or_else(|| Error::file(path, "config.toml is UTF-8; give a path that is"))?;
    Ok(Image { role: Some(role), channels, path: text }.with(text))
}
