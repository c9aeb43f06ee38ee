//! From decoder outputs to the channels of a picture: a channel is an output, a constant, or rebuilt from two others.

use super::role::Role;
use super::structure::TextureInfo;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Where a written channel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A decoder output of the texture, counted from its first; several channels may be one output.
    Output(usize),
    /// One level in every texel, an integer of the texture's depth. Costs no output and is exact.
    Constant(u32),
    /// The third channel of a normal map, from the first two.
    NormalZ,
}

/// What the third channel of a normal is, in the range of samples, and the first two as they are then written: nothing is
/// longer than 1.
pub fn rebuild_normal(x: f32, y: f32) -> [f32; 3] {
    let (nx, ny) = (2.0 * x - 1.0, 2.0 * y - 1.0);
    let square = nx * nx + ny * ny;
    if square > 1.0 {
        let length = square.sqrt();
        return [nx / length * 0.5 + 0.5, ny / length * 0.5 + 0.5, 0.5];
    }
    [x, y, (1.0 - square).sqrt() * 0.5 + 0.5]
}

impl TextureInfo {
    /// Where channel `c` comes from.
    pub fn source(&self, c: usize) -> Source {
        self.sources.get(c).copied().unwrap_or(Source::Output(c))
    }

    /// Where every written channel comes from.
    pub fn all_sources(&self) -> impl Iterator<Item = Source> + '_ {
        (0..self.channels).map(|c| self.source(c))
    }

    /// Decoder outputs of the texture.
    pub fn outputs(&self) -> usize {
        let after = |source| if let Source::Output(k) = source { k + 1 } else { 0 };
        self.all_sources().map(after).max().unwrap_or(0)
    }

    /// How many of the written channels each output is.
    pub fn copies(&self) -> Vec<usize> {
        let written = |k: usize| self.all_sources().filter(|source| *source == Source::Output(k)).count();
        (0..self.outputs()).map(written).collect()
    }

    /// The factor of each output's squared error in the texture's, which is the mean over the written channels; what a
    /// rebuilt channel adds is left out.
    pub fn shares(&self) -> Vec<f32> {
        self.copies().into_iter().map(|n| n as f32 / self.channels as f32).collect()
    }

    /// Whether the third channel is rebuilt.
    pub fn rebuilds_normal(&self) -> bool {
        self.all_sources().any(|source| source == Source::NormalZ)
    }

    /// Whether it is a map of normals with all three channels.
    pub fn is_normal(&self) -> bool {
        self.role.is_some_and(|role| role.place() == Role::Normal) && self.channels >= 3
    }

    /// The written channels of `texels` texels from `outputs`, the texture's own decoder outputs there. With the third
    /// channel of a source's normals at hand that is taken, and nothing is rebuilt.
    pub fn written<'a>(&self, outputs: &[&'a [f32]], third: Option<&'a [f32]>, texels: usize) -> Vec<Cow<'a, [f32]>> {
        let most = ((1u32 << self.depth) - 1) as f32;
        let plane = |source| match source {
            Source::Output(k) => Cow::Borrowed(outputs[k]),
            Source::Constant(level) => Cow::Owned(vec![level as f32 / most; texels]),
            Source::NormalZ => Cow::Borrowed(third.unwrap_or(&[])),
        };
        let mut planes: Vec<_> = self.all_sources().map(plane).collect();
        if self.rebuilds_normal() && third.is_none() {
            let normals: Vec<_> = planes[0].iter().zip(planes[1].iter()).map(|(x, y)| rebuild_normal(*x, *y)).collect();
            for (c, plane) in planes.iter_mut().take(3).enumerate() {
                *plane = Cow::Owned(normals.iter().map(|normal| normal[c]).collect());
            }
        }
        planes
    }

    /// Refuses sources that no picture leads to.
    ///
    /// # Errors
    /// What is wrong, in words that follow the texture's name.
    pub fn check_sources(&self) -> Result<(), String> {
        if self.sources.is_empty() {
            return Ok(());
        }
        if self.sources.len() != self.channels {
            return Err(format!("{} sources for {} channels", self.sources.len(), self.channels));
        }
        let mut next = 0;
        for (c, source) in self.sources.iter().enumerate() {
            match *source {
                Source::Output(k) if k > next => return Err(format!("channel {c} is output {k} before output {next}")),
                Source::Output(k) => next = next.max(k + 1),
                Source::Constant(level) if level >> self.depth != 0 => {
                    return Err(format!("channel {c} is {level}, beyond {} bits", self.depth));
                }
                Source::NormalZ if c != 2 => return Err(format!("channel {c} is rebuilt; only the third can be")),
                Source::Constant(_) | Source::NormalZ => {}
            }
        }
        if (0..self.channels).all(|c| self.source(c) == Source::Output(c)) {
            return Err("every channel is an output of its own; that is said by no sources".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::*;

    fn texture(sources: &[Source]) -> TextureInfo {
        let sources = sources.to_vec();
        TextureInfo { name: "t".into(), channels: sources.len(), depth: 8, role: None, sources }
    }

    #[test]
    fn outputs_and_shares() {
        let plain = TextureInfo { sources: vec![], ..texture(&[Output(0), Output(1), Output(2)]) };
        assert_eq!((plain.outputs(), plain.shares()), (3, vec![1.0 / 3.0; 3]));
        let grey = texture(&[Output(0), Output(0), Output(0), Output(1)]);
        assert_eq!((grey.outputs(), grey.shares()), (2, vec![0.75, 0.25]));
        let orm = texture(&[Constant(255), Output(0), Output(1)]);
        assert_eq!((orm.outputs(), orm.shares()), (2, vec![1.0 / 3.0; 2]));
        let flat = texture(&[Constant(51)]);
        assert_eq!((flat.outputs(), flat.written(&[], None, 2)), (0, vec![vec![0.2f32; 2].into()]));
    }

    #[test]
    fn channels_are_written_from_outputs() {
        let (a, b) = ([0.25f32, 0.5], [0.75f32, 0.5]);
        let written = |sources: &[Source]| -> Vec<Vec<f32>> {
            texture(sources).written(&[&a, &b], None, 2).into_iter().map(Cow::into_owned).collect()
        };
        assert_eq!(written(&[Output(0), Constant(51), Output(1)]), [a.to_vec(), vec![0.2, 0.2], b.to_vec()]);
        // n = (-1/2, 1/2): z = sqrt(1/2); n = (0, 0): z = 1.
        let normal = written(&[Output(0), Output(1), NormalZ]);
        assert_eq!(&normal[..2], [a, b]);
        assert!((normal[2][0] - (0.5f32.sqrt() * 0.5 + 0.5)).abs() < 1e-7 && normal[2][1] == 1.0);
    }

    #[test]
    fn normals_are_never_longer_than_one() {
        // n = (0.6, 0.8) has length 1; (1, 1) is shortened to sqrt(1/2) each.
        let [x, y, z] = rebuild_normal(1.0, 1.0);
        assert!((x - (0.5 + 0.5 * 0.5f32.sqrt())).abs() < 1e-7 && x == y && z == 0.5);
        let [x, y, z] = rebuild_normal(0.8, 0.9);
        assert!((x - 0.8).abs() < 1e-6 && (y - 0.9).abs() < 1e-6 && (z - 0.5).abs() < 1e-3);
    }

    #[test]
    fn sources_that_cannot_be_are_refused() {
        for (sources, words) in [
            (&[Output(1)][..], "output 1 before output 0"),
            (&[Constant(256)], "beyond 8 bits"),
            (&[Output(0), NormalZ, Output(1)], "only the third"),
            (&[Output(0), Output(1)], "said by no sources"),
        ] {
            assert!(texture(sources).check_sources().unwrap_err().contains(words), "{sources:?}");
        }
        assert!(texture(&[Output(0), Output(1), NormalZ, Constant(255)]).check_sources().is_ok());
        let short = TextureInfo { channels: 2, ..texture(&[Constant(1)]) };
        assert!(short.check_sources().unwrap_err().contains("1 sources for 2"));
    }
}
