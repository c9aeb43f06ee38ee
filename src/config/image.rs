//! How an image is named: a path, or a path behind what the map is for.

use crate::error::{Error, Result};
use crate::model::role::Role;
use crate::model::structure::Channels;
use clap::ValueEnum;
use std::path::Path;

/// One entry of [`Config::images`](super::Config::images): `PATH`, `ROLE=PATH` or `ROLE:CHANNELS=PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What it is for, where that is said.
    pub role: Option<Role>,
    /// Which channels are kept, where that differs from `--channels`.
    pub channels: Option<Channels>,
    /// Its file.
    pub path: &'a str,
}

impl<'a> Image<'a> {
    /// Reads an entry. What stands before a `=` and is no role belongs to the path.
    pub fn of(text: &'a str) -> Self {
        Self::with_role(text).unwrap_or(Image { role: None, channels: None, path: text })
    }

    fn with_role(text: &'a str) -> Option<Self> {
        let (name, path) = text.split_once('=')?;
        let (role, channels) = match name.split_once(':') {
            Some((role, channels)) => (role, Some(Channels::from_str(channels, false).ok()?)),
            None => (name, None),
        };
        Some(Image { role: Some(role.parse().ok()?), channels, path })
    }

    /// The entry with `path` in place of its own.
    pub fn with(&self, path: &str) -> String {
        let channels = self.channels.and_then(|c| c.to_possible_value()).map(|c| format!(":{}", c.get_name()));
        match self.role {
            Some(role) => format!("{role}{}={path}", channels.unwrap_or_default()),
            None => path.to_owned(),
        }
    }

    /// Why there may be no file of that name: a misspelt role.
    pub fn misspelt(&self) -> Option<String> {
        let (name, _) = self.path.split_once('=').filter(|_| self.role.is_none())?;
        let word = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let role = name.split_once(':').map_or(name, |(role, _)| role);
        if !word(role) || Path::new(self.path).exists() {
            return None;
        }
        Some(match role.parse::<Role>() {
            Err(message) => format!("{}: there is no such file, and {message}", self.path),
            Ok(_) => format!("{}: there is no such file; channels behind a role are auto, rgb or alpha", self.path),
        })
    }
}

/// Refuses two maps of one role.
pub(super) fn check_roles(images: &[String]) -> Result<()> {
    let roles: Vec<_> = images.iter().map(|text| Image::of(text).role.map(Role::place)).collect();
    for (k, role) in roles.iter().enumerate() {
        match role {
            Some(role) if *role != Role::Other && roles[..k].contains(&Some(*role)) => {
                let message =
                    format!("{}: another map is {role} already; a material has one, or give other=", images[k]);
                return Err(Error::config(message));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_written() {
        let cases = [
            ("a.png", None, None, "a.png"),
            ("albedo=x/a=b.png", Some(Role::Albedo), None, "x/a=b.png"),
            ("normal_dx:rgb=n.png", Some(Role::NormalDx), Some(Channels::Rgb), "n.png"),
            ("opacity:alpha=o.png", Some(Role::Opacity), Some(Channels::Alpha), "o.png"),
            ("rougness=r.png", None, None, "rougness=r.png"),
            ("normal:xyz=r.png", None, None, "normal:xyz=r.png"),
            ("=r.png", None, None, "=r.png"),
        ];
        for (text, role, channels, path) in cases {
            let image = Image::of(text);
            assert_eq!(image, Image { role, channels, path }, "{text}");
            assert_eq!(image.with(path), text);
        }
        assert!(Image::of("rougness=r.png").misspelt().unwrap().contains("rougness is no role"));
        assert!(Image::of("normal:xyz=r.png").misspelt().unwrap().contains("auto, rgb or alpha"));
        assert_eq!(Image::of("a.png").misspelt().or(Image::of("x/y=r.png").misspelt()), None);
    }

    #[test]
    fn a_role_is_taken_once() {
        let check = |images: &[&str]| check_roles(&images.iter().map(|&i| i.into()).collect::<Vec<_>>());
        assert!(check(&["a.png", "a.png", "other=a", "other=b", "albedo=c"]).is_ok());
        assert!(check(&["ao=a", "ao=b"]).unwrap_err().to_string().contains("ao=b"));
        assert!(check(&["normal=a", "normal_dx=b"]).is_err());
    }
}
