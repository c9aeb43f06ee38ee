//! Which channels of a picture need a decoder output, and which are constants, copies or rebuilt.

use super::Texture;
use super::write::to_level;
use crate::model::channels::Source;
use crate::model::structure::TextureInfo;

impl Texture {
    /// Leaves only the planes that need a decoder output and notes in the info where the written channels come from.
    /// `rebuild` leaves out the third channel of a normal map. With all channels constant no plane is left.
    ///
    /// A texture that is written as its planes are stays as it is, and so does one without a constant, copied or rebuilt
    /// channel.
    pub fn reduce(&mut self, rebuild: bool) {
        let Some(channels) = self.written else { return };
        let most = (1u32 << self.info.depth) - 1;
        let constant = |plane: &[f32]| {
            let level = to_level(*plane.first()?, most);
            plane.iter().all(|x| to_level(*x, most) == level).then_some(level)
        };
        // Grey is one plane that serves every colour.
        let colours = if channels > 2 { 3 } else { 1 };
        let copied = self.planes.len() < channels;
        let plane_of = |c: usize| {
            if !copied {
                c
            } else if c < colours {
                0
            } else {
                1
            }
        };
        self.info.channels = channels;
        let rebuild = rebuild && self.info.is_normal() && !copied;
        let (mut sources, mut used) = (vec![], vec![]);
        for c in 0..channels {
            let plane = plane_of(c);
            sources.push(match constant(&self.planes[plane]) {
                Some(level) => Source::Constant(level),
                None if rebuild && c == 2 => Source::NormalZ,
                None => Source::Output(used.iter().position(|&u| u == plane).unwrap_or_else(|| {
                    used.push(plane);
                    used.len() - 1
                })),
            });
        }
        self.keep(sources);
    }

    /// As a model has the channels, for measuring it.
    ///
    /// # Errors
    /// Channels that are not what the model says of them, in words that follow the file's name.
    pub fn reduce_as(&mut self, info: &TextureInfo) -> Result<(), String> {
        let most = (1u32 << info.depth) - 1;
        let has = if info.sources.is_empty() { self.planes.len() } else { self.written.unwrap_or(0) };
        if has != info.channels {
            return Err(format!("has {has} channels; the model has {} of it", info.channels));
        }
        if info.sources.is_empty() {
            return Ok(());
        }
        self.spread(info.channels);
        let mut first: Vec<usize> = vec![];
        for (c, source) in info.all_sources().enumerate() {
            let plane = &self.planes[c];
            let fits = match source {
                Source::Constant(level) => plane.iter().all(|x| to_level(*x, most) == level),
                Source::Output(k) if k < first.len() => *plane == self.planes[first[k]],
                Source::Output(_) => {
                    first.push(c);
                    true
                }
                Source::NormalZ => true,
            };
            if !fits {
                return Err(format!("channel {c} is not the constant or the copy that the model has of it"));
            }
        }
        self.keep(info.sources.clone());
        Ok(())
    }

    /// One plane a written channel.
    fn spread(&mut self, channels: usize) {
        if self.planes.len() < channels {
            let grey = self.planes[0].clone();
            self.planes.splice(0..0, vec![grey; channels - self.planes.len()]);
        }
    }

    /// Takes `sources` as the info's and keeps the planes that they need.
    fn keep(&mut self, sources: Vec<Source>) {
        let channels = sources.len();
        if self.planes.len() == channels && (0..channels).all(|c| sources[c] == Source::Output(c)) {
            self.info.sources = vec![];
            return;
        }
        self.spread(channels);
        let mut outputs = 0;
        for (source, plane) in sources.iter().zip(std::mem::take(&mut self.planes)) {
            match *source {
                Source::Output(k) if k == outputs => {
                    outputs += 1;
                    self.planes.push(plane);
                }
                Source::NormalZ => self.rebuilt = Some(plane),
                Source::Output(_) | Source::Constant(_) => {}
            }
        }
        self.info.sources = sources;
    }

    /// Makes the first channel a decoder output, constant as it is: a model has at least one.
    pub fn keep_one(&mut self) {
        let Some(Source::Constant(level)) = self.info.sources.first().copied() else { return };
        self.info.sources[0] = Source::Output(0);
        let most = (1u32 << self.info.depth) - 1;
        self.planes = vec![vec![level as f32 / most as f32; self.width * self.height]];
        if self.info.channels == 1 {
            self.info.sources = vec![]; // plain
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::role::Role;
    use Source::{Constant, NormalZ, Output};

    /// A file of `written` channels, read as these planes of levels.
    fn texture(written: usize, planes: &[&[u32]]) -> Texture {
        let plane = |levels: &&[u32]| levels.iter().map(|&v| v as f32 / 255.0).collect();
        let info = TextureInfo { name: "t".into(), channels: planes.len(), depth: 8, role: None, sources: vec![] };
        Texture {
            info,
            file_name: "t.png".into(),
            crc32: 0,
            width: planes[0].len(),
            height: 1,
            planes: planes.iter().map(plane).collect(),
            written: Some(written),
            rebuilt: None,
            notes: vec![],
        }
    }

    fn reduced(mut texture: Texture, rebuild: bool) -> (Vec<Source>, usize) {
        let before = texture.clone();
        texture.reduce(rebuild);
        assert_eq!(texture.info.outputs(), texture.planes.len());
        // The same again by what a model says; one plane a channel is read of it where that says nothing.
        let mut again = before;
        again.reduce_as(&texture.info).unwrap();
        assert_eq!(again.planes, texture.planes);
        assert_eq!(again.rebuilt, texture.rebuilt);
        (texture.info.sources, texture.planes.len())
    }

    #[test]
    fn constants_copies_and_normals() {
        let (a, b, k) = (&[1, 2][..], &[3, 5][..], &[7, 7][..]);
        assert_eq!(reduced(texture(1, &[a]), false), (vec![], 1));
        assert_eq!(reduced(texture(1, &[k]), false), (vec![Constant(7)], 0));
        assert_eq!(reduced(texture(3, &[a]), false), (vec![Output(0); 3], 1));
        assert_eq!(reduced(texture(3, &[k]), false), (vec![Constant(7); 3], 0));
        assert_eq!(reduced(texture(4, &[a, b]), false), (vec![Output(0), Output(0), Output(0), Output(1)], 2));
        assert_eq!(reduced(texture(4, &[a, k]), false), (vec![Output(0), Output(0), Output(0), Constant(7)], 1));
        assert_eq!(reduced(texture(3, &[k, a, b]), true), (vec![Constant(7), Output(0), Output(1)], 2));
        assert_eq!(reduced(texture(3, &[a, b, a]), true), (vec![], 3), "no normal");
        let normal = |planes: &[&[u32]]| {
            let mut texture = texture(planes.len(), planes);
            texture.info.role = Some(Role::NormalDx);
            texture
        };
        assert_eq!(reduced(normal(&[a, b, a]), false), (vec![], 3));
        assert_eq!(reduced(normal(&[a, b, a]), true), (vec![Output(0), Output(1), NormalZ], 2));
        assert_eq!(reduced(normal(&[a, k, b]), true), (vec![Output(0), Constant(7), NormalZ], 1));
        assert_eq!(reduced(normal(&[a, b, k]), true), (vec![Output(0), Output(1), Constant(7)], 2));
        assert_eq!(reduced(normal(&[a, b, a, k]), true).0, [Output(0), Output(1), NormalZ, Constant(7)]);
    }

    #[test]
    fn other_pictures_are_refused() {
        let (a, k) = (&[1, 2][..], &[7, 7][..]);
        let mut of = texture(3, &[a, k, a]);
        of.reduce(false);
        let refused = |mut texture: Texture| texture.reduce_as(&of.info).unwrap_err();
        assert!(refused(texture(3, &[a, a, a])).contains("channel 1 is not the constant"));
        assert!(refused(texture(1, &[a])).contains("has 1 channels; the model has 3"));
    }

    #[test]
    fn one_output_is_kept() {
        let mut flat = texture(3, &[&[7, 7]]);
        flat.reduce(false);
        flat.keep_one();
        assert_eq!(flat.info.sources, [Output(0), Constant(7), Constant(7)]);
        assert_eq!(flat.planes, [[7.0 / 255.0; 2]]);
        let mut grey = texture(1, &[&[7, 7]]);
        grey.reduce(false);
        grey.keep_one();
        assert_eq!((grey.info.sources.len(), grey.info.outputs()), (0, 1));
    }
}
