//! What a map of a material is for.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a map means to whoever shades with it. A model keeps it and decoding does not need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Base colour, sRGB. All other maps but emission are linear.
    Albedo,
    /// Tangent-space normals whose green points up (OpenGL).
    Normal,
    /// The same with green pointing down (DirectX).
    NormalDx,
    /// Roughness.
    Roughness,
    /// Metalness.
    Metalness,
    /// Ambient occlusion.
    Ao,
    /// Occlusion, roughness and metalness in red, green and blue; red may be unused.
    Orm,
    /// Height or displacement.
    Height,
    /// Opacity.
    Opacity,
    /// Emitted light, sRGB.
    Emission,
    /// Specular reflectance.
    Specular,
    /// Anything else; the only role that several maps may have.
    Other,
}

impl Role {
    /// Every role with its name, in the order that the maps of a folder take. A coded file holds places in this list.
    pub const ALL: [(Role, &'static str); 12] = [
        (Role::Albedo, "albedo"),
        (Role::Normal, "normal"),
        (Role::NormalDx, "normal_dx"),
        (Role::Roughness, "roughness"),
        (Role::Metalness, "metalness"),
        (Role::Ao, "ao"),
        (Role::Orm, "orm"),
        (Role::Height, "height"),
        (Role::Opacity, "opacity"),
        (Role::Emission, "emission"),
        (Role::Specular, "specular"),
        (Role::Other, "other"),
    ];

    /// Its name, as files and flags have it.
    pub fn name(self) -> &'static str {
        Role::ALL.iter().find(|(role, _)| *role == self).map_or("other", |(_, name)| name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        Role::ALL.map(|(_, name)| name).join(", ")
    }

    /// The role of which a material has only one map: both kinds of normals are one.
    pub fn place(self) -> Role {
        if self == Role::NormalDx { Role::Normal } else { self }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Role::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(role, _)| *role).ok_or_else(|| format!("{text} is no role; roles are {}", Role::names()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_json_are_the_same() {
        for (role, name) in Role::ALL {
            assert_eq!((name.parse(), role.name()), (Ok(role), name));
            assert_eq!(serde_json::to_value(role).unwrap(), name);
        }
        assert!("rougness".parse::<Role>().unwrap_err().contains("roughness, metalness"));
    }
}
