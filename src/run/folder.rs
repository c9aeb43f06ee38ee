//! The run folder: the names of its files, the trial before a run, and what an earlier run left.

use crate::config::Image;
use crate::error::{Error, Result};
use crate::files::{base_name, folder_of, write_atomic};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The settings, complete.
pub const CONFIG: &str = "config.toml";
/// Which images the run began with, for --resume.
pub const INPUTS: &str = "inputs.json";
/// The table of the progress.
pub const LOG: &str = "log.csv";
/// The model.
pub const MODEL: &str = "model.safetensors";
/// The coded file.
pub const RECORD: &str = "record.ntes";
/// Everything that --resume needs.
pub const CHECKPOINT: &str = "checkpoint.safetensors";
/// The fits so far of a search for loss weights.
pub const QUALITY: &str = "quality.json";
/// The figures.
pub const SUMMARY: &str = "summary.json";

/// Largest trial before a run, in bytes.
const MAX_TRIAL: usize = 1 << 24;

/// A folder that a run writes to.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Creates the folder where it is missing, and writes `bytes` bytes there for a trial.
    ///
    /// # Errors
    /// A folder that cannot be written, or a full disk: before anything is computed.
    pub fn create(path: &Path, bytes: usize) -> Result<Self> {
        if path.exists() && !path.is_dir() {
            return Err(Error::file(path, "is a file; --out names a folder"));
        }
        std::fs::create_dir_all(path).map_err(Error::io(path))?;
        let trial = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(".ntc-es-").suffix(".tmp").tempfile_in(path)?;
            file.write_all(&vec![0; bytes.clamp(1, MAX_TRIAL)])?;
            file.flush()
        };
        trial().map_err(Error::io(path))?;
        Ok(Folder { path: path.to_owned() })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether it holds a run.
    pub fn holds_run(&self) -> bool {
        [CONFIG, CHECKPOINT, SUMMARY].iter().any(|name| self.file(name).exists())
    }

    /// Refuses images that the run itself would write over.
    pub fn refuse_own_images(&self, images: &[String]) -> Result<()> {
        let here = self.path.canonicalize().map_err(Error::io(&self.path))?;
        for image in images {
            let path = Path::new(Image::of(image).path);
            let inside = folder_of(path).canonicalize().is_ok_and(|folder| folder == here);
            if inside && picture_of(&base_name(path)).is_some() {
                return Err(Error::config(format!("{image}: the run would write over it; choose another --out")));
            }
        }
        Ok(())
    }

    /// Removes a file that may not be there.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.file(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path)(e)),
            _ => Ok(()),
        }
    }

    /// Removes this program's pictures but those of the iterations that `keep` wants, and what a killed run left half
    /// written. Files of other names stay.
    pub fn clear_pictures(&self, keep: impl Fn(usize) -> bool) -> Result<()> {
        for entry in std::fs::read_dir(&self.path).map_err(Error::io(&self.path))? {
            let entry = entry.map_err(Error::io(&self.path))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let goes = match picture_of(&name) {
                Some(Picture::At(iteration)) => !keep(iteration),
                Some(Picture::Once) => !keep(0),
                None => name.starts_with(".ntc-es-") && name.ends_with(".tmp"),
            };
            if goes && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Writes a small text file.
    pub fn write_text(&self, name: &str, text: &str) -> Result<()> {
        write_atomic(&self.file(name), |w| w.write_all(text.as_bytes()))
    }
}

/// Which picture a file name of ours stands for.
#[derive(Debug, PartialEq)]
enum Picture {
    /// Of an iteration.
    At(usize),
    /// Of the run as a whole.
    Once,
}

/// Reads a file name as one of the pictures of a run.
fn picture_of(name: &str) -> Option<Picture> {
    let stem = name.strip_suffix(".png")?;
    let bare = match stem.rsplit_once("_t") {
        Some((bare, k)) if k.len() == 1 && ("0".."8").contains(&k) => bare,
        _ => stem,
    };
    if ["target", "recon_q_final", "side_by_side"].contains(&bare) {
        return Some(Picture::Once);
    }
    let digits = ["recon_", "latent_", "latent2_"].iter().find_map(|kind| bare.strip_prefix(kind))?;
    let plain = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Picture::At)).flatten()
}

/// `kind.png`, or `kind_tK.png` for texture `k` of several.
pub fn picture_name(kind: &str, k: usize, textures: usize) -> String {
    if textures > 1 { format!("{kind}_t{k}.png") } else { format!("{kind}.png") }
}

/// File names for `names`, each `name.png`; names that clash get `_tK`, K being the texture's number.
pub fn distinct_names(names: &[&str]) -> Vec<String> {
    // File systems may not tell upper from lower case.
    let clashes = |list: &[String]| {
        let folded: Vec<_> = list.iter().map(|name| name.to_lowercase()).collect();
        (0..list.len()).map(|k| folded.iter().filter(|other| **other == folded[k]).count() > 1).collect::<Vec<_>>()
    };
    let plain: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let numbered = |k: usize| format!("{}_t{k}", names[k]);
    let pick = |(k, clash): (usize, bool)| if clash { numbered(k) } else { plain[k].clone() };
    let mut list: Vec<_> = clashes(&plain).into_iter().enumerate().map(pick).collect();
    if clashes(&list).contains(&true) {
        list = (0..names.len()).map(numbered).collect(); // different ends: no clash is left
    }
    list.into_iter().map(|name| name + ".png").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_ours_are_told_from_others() {
        assert_eq!(picture_of("recon_000120.png"), Some(Picture::At(120)));
        assert_eq!(picture_of("latent2_1000000_t3.png"), Some(Picture::At(1_000_000)));
        assert_eq!(picture_of("side_by_side_t7.png"), Some(Picture::Once));
        for other in ["recon_12.png", "recon_00012x.png", "target.jpg", "target_t8.png", "latent_.png", "my_target.png"]
        {
            assert_eq!(picture_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_become_distinct() {
        assert_eq!(distinct_names(&["a", "b"]), ["a.png", "b.png"]);
        assert_eq!(distinct_names(&["a", "b", "A"]), ["a_t0.png", "b.png", "A_t2.png"]);
        assert_eq!(distinct_names(&["a", "a", "a_t0"]), ["a_t0.png", "a_t1.png", "a_t0_t2.png"]);
    }

    #[test]
    fn clearing_spares_what_is_not_ours() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::create(&place.path().join("a/b"), 100).unwrap();
        for name in ["recon_000001.png", "recon_000002_t1.png", "target.png", "photo.png", ".ntc-es-x.tmp"] {
            folder.write_text(name, "x").unwrap();
        }
        folder.clear_pictures(|iteration| iteration < 2).unwrap();
        let there = |name: &str| folder.file(name).exists();
        assert!(there("recon_000001.png") && there("target.png") && there("photo.png"));
        assert!(!there("recon_000002_t1.png") && !there(".ntc-es-x.tmp"));
        assert!(folder.refuse_own_images(&[folder.file("photo.png").display().to_string()]).is_ok());
        assert!(folder.refuse_own_images(&[folder.file("target.png").display().to_string()]).is_err());
    }
}
