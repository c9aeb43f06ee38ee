//! What the files of a folder are for, by their names: those of ambientCG, of Poly Haven, of glTF exports, and the bare
//! names of roles.

use crate::model::role::Role;
use std::fmt::Write;
use std::path::Path;

/// Endings of file names, words separated by `_`; what each is for, and its rank among candidates for one role, 0 first.
const ENDINGS: [(&str, Role, u8); 48] = [
    ("albedo", Role::Albedo, 0),
    ("basecolor", Role::Albedo, 0),
    ("base_color", Role::Albedo, 0),
    ("col", Role::Albedo, 0),
    ("color", Role::Albedo, 0),
    ("diff", Role::Albedo, 0),
    ("diffuse", Role::Albedo, 0),
    ("nor_gl", Role::Normal, 0),
    ("normal_gl", Role::Normal, 0),
    ("normalgl", Role::Normal, 0),
    ("normal_opengl", Role::Normal, 0),
    ("nor", Role::Normal, 1),
    ("normal", Role::Normal, 1),
    ("normals", Role::Normal, 1),
    ("nor_dx", Role::NormalDx, 2),
    ("normal_dx", Role::NormalDx, 2),
    ("normaldx", Role::NormalDx, 2),
    ("normal_directx", Role::NormalDx, 2),
    ("rough", Role::Roughness, 0),
    ("roughness", Role::Roughness, 0),
    ("metal", Role::Metalness, 0),
    ("metallic", Role::Metalness, 0),
    ("metalness", Role::Metalness, 0),
    ("ambientocclusion", Role::Ao, 0),
    ("ambient_occlusion", Role::Ao, 0),
    ("ao", Role::Ao, 0),
    ("occlusion", Role::Ao, 0),
    ("arm", Role::Orm, 0),
    ("orm", Role::Orm, 0),
    ("occlusionroughmetal", Role::Orm, 0),
    ("occlusionroughnessmetallic", Role::Orm, 0),
    ("occlusion_roughness_metallic", Role::Orm, 0),
    ("metallicroughness", Role::Orm, 1),
    ("metalrough", Role::Orm, 1),
    ("metalroughness", Role::Orm, 1),
    ("roughnessmetallic", Role::Orm, 1),
    ("disp", Role::Height, 0),
    ("displacement", Role::Height, 0),
    ("height", Role::Height, 0),
    ("bump", Role::Height, 1),
    ("alpha", Role::Opacity, 0),
    ("opacity", Role::Opacity, 0),
    ("emission", Role::Emission, 0),
    ("emissive", Role::Emission, 0),
    ("emit", Role::Emission, 0),
    ("spec", Role::Specular, 0),
    ("specular", Role::Specular, 0),
    ("specularity", Role::Specular, 0),
];

/// Extensions of files that are read.
const IMAGES: [&str; 8] = ["png", "jpg", "jpeg", "tga", "bmp", "tif", "tiff", "webp"];

/// Last words of a name that tell of a file and not of a map.
const KINDS: [&str; 10] = ["png", "jpg", "jpeg", "tga", "bmp", "tif", "tiff", "webp", "8bit", "16bit"];

/// What the files of a folder were taken for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The maps in the order of [`Role::ALL`], with their file names.
    pub maps: Vec<(Role, String)>,
    /// Other files, and why they are none.
    pub left_out: Vec<(String, String)>,
}

/// Sorts the file names of a folder.
///
/// Of several candidates for a role the one of the lowest rank is taken: OpenGL normals before DirectX ones. A packed
/// map is left out where roughness has a map of its own.
///
/// # Errors
/// Two candidates of equal rank, in words that follow the folder's name.
pub fn infer(names: &[String]) -> Result<Taken, String> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    let mut taken = Taken::default();
    let mut found: Vec<(Role, u8, &str)> = vec![];
    for name in names {
        match role_of(name) {
            Ok((role, rank)) => found.push((role, rank, name)),
            Err(why) => taken.left_out.push((name.into(), why)),
        }
    }
    for (place, _) in Role::ALL.iter().filter(|(role, _)| role.place() == *role) {
        let mut candidates: Vec<_> = found.iter().copied().filter(|(role, ..)| role.place() == *place).collect();
        candidates.sort_by_key(|(_, rank, _)| *rank); // stable: names stay in order
        if let [(_, a, first), (_, b, second), ..] = candidates[..]
            && a == b
        {
            return Err(format!("{first} and {second} may both be {place}; name the maps as {place}=PATH"));
        }
        let Some((&(role, _, chosen), others)) = candidates.split_first() else { continue };
        let separate = |map: &(Role, String)| map.0 == Role::Roughness;
        if role == Role::Orm && taken.maps.iter().any(separate) {
            taken.left_out.push((chosen.into(), "packs what other maps have".into()));
        } else {
            taken.maps.push((role, chosen.into()));
        }
        let beside = |(.., name): &(_, _, &str)| ((*name).into(), format!("{chosen} is the {place}"));
        taken.left_out.extend(others.iter().map(beside));
    }
    taken.left_out.sort();
    Ok(taken)
}

/// Role and rank of a file by its name, or why it is no map.
fn role_of(name: &str) -> Result<(Role, u8), String> {
    let extension = Path::new(name).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if !IMAGES.contains(&extension.as_str()) {
        return Err("no PNG, JPEG, TGA, BMP, TIFF or WebP file".into());
    }
    let stem = name[..name.len() - extension.len() - 1].to_ascii_lowercase();
    let mut words: Vec<&str> = stem.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    if words.iter().any(|word| ["preview", "thumb", "thumbnail"].contains(word)) {
        return Err("a preview".into());
    }
    while words.last().is_some_and(|word| KINDS.contains(word) || is_size(word)) {
        words.pop();
    }
    // The longest ending first: `nor_gl` is more than `gl`, and `base_color` than `color`.
    let tails = (1..=words.len().min(3)).rev().map(|n| words[words.len() - n..].join("_"));
    let known = |tail: String| ENDINGS.iter().find(|(ending, ..)| *ending == tail);
    let (_, role, rank) = tails.into_iter().find_map(known).ok_or("no known name of a map")?;
    Ok((*role, *rank))
}

/// `1k`, `2048`, `01`: the size of a file, or the number of one of several.
fn is_size(word: &str) -> bool {
    let digits = word.strip_suffix('k').unwrap_or(word);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

impl Taken {
    /// What each file was taken for, a line a file.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for (role, name) in &self.maps {
            let _ = writeln!(lines, "  {role:<10} {name}"); // a String takes everything
        }
        for (name, why) in &self.left_out {
            let _ = writeln!(lines, "  left out   {name}: {why}");
        }
        lines.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Role::*;

    fn infer_all(names: &[&str]) -> Result<Taken, String> {
        infer(&names.iter().map(|&name| name.into()).collect::<Vec<_>>())
    }

    /// File names as the three schemes have them.
    #[test]
    fn names_of_three_schemes() {
        let cases = [
            // ambientCG
            ("PavingStones070_1K-PNG_Color.png", Albedo),
            ("PavingStones070_1K-PNG_NormalGL.png", Normal),
            ("PavingStones070_1K-PNG_NormalDX.png", NormalDx),
            ("PavingStones070_1K-PNG_Roughness.png", Roughness),
            ("PavingStones070_1K-PNG_AmbientOcclusion.png", Ao),
            ("PavingStones070_1K-PNG_Displacement.png", Height),
            ("Metal053C_2K-JPG_Metalness.jpg", Metalness),
            ("Metal053C_2K-JPG_Color.jpg", Albedo),
            ("Chainmail004_4K-PNG_Opacity.png", Opacity),
            ("Facade005_1K-JPG_Emission.jpg", Emission),
            ("Facade005_1K_Color.jpg", Albedo),
            ("Rock058_8K-TIF_NormalGL.tif", Normal),
            ("Rock035_1K_Normal.jpg", Normal),
            // Poly Haven
            ("painted_wooden_cabinet_diff_1k.png", Albedo),
            ("painted_wooden_cabinet_nor_gl_1k.png", Normal),
            ("painted_wooden_cabinet_nor_dx_1k.png", NormalDx),
            ("painted_wooden_cabinet_rough_1k.jpg", Roughness),
            ("painted_wooden_cabinet_metal_1k.png", Metalness),
            ("painted_wooden_cabinet_arm_1k.jpg", Orm),
            ("painted_wooden_cabinet_ao_4k.png", Ao),
            ("brick_wall_001_disp_2k.png", Height),
            ("brick_wall_001_diffuse_2k.jpg", Albedo),
            ("brick_wall_001_nor_2k.jpg", Normal),
            ("rusty_metal_rough_2k.png", Roughness),
            ("rusty_metal_diff_8k.png", Albedo),
            ("aerial_rocks_02_bump_2k.jpg", Height),
            ("aerial_rocks_02_spec_2k.jpg", Specular),
            ("fern_02_alpha_1k.png", Opacity),
            ("leather_red_02_coll1_1k_col_01_1k.png", Albedo),
            ("Lantern_01_emission_1k.png", Emission),
            // glTF exports
            ("FlightHelmet_Materials_MetalPartsMat_BaseColor.png", Albedo),
            ("FlightHelmet_Materials_MetalPartsMat_Normal.png", Normal),
            ("FlightHelmet_Materials_MetalPartsMat_OcclusionRoughMetal.png", Orm),
            ("Default_albedo.jpg", Albedo),
            ("Default_AO.jpg", Ao),
            ("Default_emissive.jpg", Emission),
            ("Default_metalRoughness.jpg", Orm),
            ("Default_normal.jpg", Normal),
            ("BoomBox_occlusionRoughnessMetallic.png", Orm),
            ("BoomBox_baseColor.png", Albedo),
            ("Lantern_roughnessMetallic.png", Orm),
            ("SciFiHelmet_AmbientOcclusion.png", Ao),
            ("SciFiHelmet_MetallicRoughness.png", Orm),
            ("initialShadingGroup_metallicRoughness.jpeg", Orm),
            ("Material_0_Base_Color.tga", Albedo),
            ("Material_Normal_OpenGL.png", Normal),
            ("Material_Normal_DirectX.png", NormalDx),
            ("Material_Metallic.png", Metalness),
            ("Material_Height.webp", Height),
            ("door_Ambient_occlusion.png", Ao),
            // the roles themselves
            ("albedo.png", Albedo),
            ("ao.png", Ao),
            ("opacity.png", Opacity),
            ("normal_dx.png", NormalDx),
            ("ORM.PNG", Orm),
            ("specular.bmp", Specular),
        ];
        for (name, role) in cases {
            assert_eq!(role_of(name).map(|(role, _)| role), Ok(role), "{name}");
        }
        let roles = Role::ALL.iter().filter(|(role, _)| *role != Other);
        assert!(roles.clone().all(|(role, name)| role_of(&format!("{name}.png")).unwrap().0 == *role));
        let others = [
            ("PavingStones070_PREVIEW.jpg", "preview"),
            ("PavingStones070.png", "no known name"),
            ("Facade005_1K-JPG.jpg", "no known name"),
            ("10381718147657362067.jpg", "no known name"),
            ("Rock058_8K_NormalGL.exr", "no PNG"),
            ("PavingStones070_1K-PNG.usdc", "no PNG"),
            ("LICENSE", "no PNG"),
            ("fern_02_translucent_1k.png", "no known name"),
            ("ä.png", "no known name"),
            (".png", "no PNG"),
        ];
        for (name, why) in others {
            assert!(role_of(name).unwrap_err().contains(why), "{name}");
        }
    }

    #[test]
    fn the_better_candidate_is_taken_and_the_other_named() {
        let names = ["x_NormalDX.png", "x_NormalGL.png", "x_Color.png", "x_bump.png", "x_PREVIEW.jpg", "x.blend"];
        let taken = infer_all(&names).unwrap();
        let map = |role, name: &str| (role, name.to_owned());
        let maps = [map(Albedo, "x_Color.png"), map(Normal, "x_NormalGL.png"), map(Height, "x_bump.png")];
        assert_eq!(taken.maps, maps);
        let out: Vec<_> = taken.left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(out, ["x.blend", "x_NormalDX.png", "x_PREVIEW.jpg"]);
        assert!(taken.lines().contains("left out   x_NormalDX.png: x_NormalGL.png is the normal"), "{}", taken.lines());
        // DirectX alone is taken as what it is.
        assert_eq!(infer_all(&["x_nor_dx_1k.png"]).unwrap().maps, [map(NormalDx, "x_nor_dx_1k.png")]);
    }

    #[test]
    fn equal_candidates_are_refused() {
        let message = infer_all(&["x_Color.png", "x_Color.jpg", "x_ao.png"]).unwrap_err();
        assert!(message.contains("x_Color.jpg and x_Color.png may both be albedo"), "{message}");
        assert!(infer_all(&["a_nor_gl.png", "b_normalgl.png", "c_normal.png"]).is_err());
        // A tie below the best is none.
        assert!(infer_all(&["a_nor_gl.png", "b_nor_dx.png", "c_nor_dx.png"]).is_ok());
    }

    #[test]
    fn packed_maps_yield_to_separate_ones() {
        let taken = infer_all(&["c_arm_1k.png", "c_rough_1k.png", "c_metal_1k.png"]).unwrap();
        assert_eq!(taken.maps.iter().map(|m| m.0).collect::<Vec<_>>(), [Roughness, Metalness]);
        assert_eq!(taken.left_out, [("c_arm_1k.png".to_owned(), "packs what other maps have".to_owned())]);
        // glTF keeps occlusion apart and packs the rest.
        let taken = infer_all(&["Default_AO.jpg", "Default_metalRoughness.jpg"]).unwrap();
        assert_eq!(taken.maps.iter().map(|m| m.0).collect::<Vec<_>>(), [Ao, Orm]);
    }
}
