//! A part of the picture, and the latent texels that it is decoded from.

use crate::bitstream::part::Rect;
use crate::error::{Error, Result};
use crate::model::decode::Geometry;
use crate::model::latent::AxisTaps;
use crate::model::structure::Structure;
use std::ops::Range;
use std::str::FromStr;

/// A rectangle of texels of the source: `x,y,w,h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Texels across, 1 or more.
    pub width: usize,
    /// Texels down, 1 or more.
    pub height: usize,
}

impl FromStr for Region {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<Option<u32>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
        match numbers[..] {
            [Some(x), Some(y), Some(w), Some(h)] if w > 0 && h > 0 => {
                Ok(Region { x: x as usize, y: y as usize, width: w as usize, height: h as usize })
            }
            _ => Err(Error::config(format!("--region {text}: give x,y,w,h, whole numbers, w and h at least 1"))),
        }
    }
}

impl Region {
    /// The whole source.
    pub fn all(structure: &Structure) -> Self {
        Region { x: 0, y: 0, width: structure.source_width, height: structure.source_height }
    }

    /// Refuses a region that leaves the source.
    pub fn check(&self, structure: &Structure) -> std::result::Result<(), String> {
        let Region { x, y, width, height } = *self;
        let (across, down) = (structure.source_width, structure.source_height);
        if x + width <= across && y + height <= down {
            return Ok(());
        }
        Err(format!("has {across}x{down} texels; --region {x},{y},{width},{height} leaves them"))
    }

    /// The latent texels of each level that the region reads.
    pub fn latents(&self, geometry: &Geometry) -> Vec<Rect> {
        let Structure { width, height, .. } = geometry.structure;
        // The deblocking filter looks at the neighbours.
        let halo = usize::from(geometry.deblock.is_some());
        let grown =
            |from: usize, count: usize, extent: usize| from.saturating_sub(halo)..(from + count + halo).min(extent);
        let (xs, ys) = (grown(self.x, self.width, width), grown(self.y, self.height, height));
        geometry.taps.iter().map(|taps| (span(&taps.x, xs.clone()), span(&taps.y, ys.clone()))).collect()
    }
}

/// The latent indices that texels read along one axis.
fn span(taps: &AxisTaps, texels: Range<usize>) -> Range<usize> {
    let read = || taps.first[texels.clone()].iter().chain(&taps.second[texels.clone()]);
    let (first, last) = (read().min().copied().unwrap_or(0), read().max().copied().unwrap_or(0));
    first as usize..last as usize + 1
}
