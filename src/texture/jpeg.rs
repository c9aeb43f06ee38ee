//! What a JPEG file's markers say before it is decoded: whether it is whole and how many components it has.

/// A JPEG stream as its markers describe it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Colour components of the frame: 1 grey, 3 YCbCr or RGB, 4 CMYK or YCCK; 0 where there is no frame header.
    pub components: usize,
    /// Bits per sample of the frame: 8, or 12 in rare files.
    pub precision: usize,
    /// Whether the end marker was found. Without it the decoder would fill the missing part with grey.
    pub complete: bool,
}

/// Walks the markers of a JPEG file. Reads at most every byte once and never fails: a broken file is not `complete`.
pub fn outline(bytes: &[u8]) -> Outline {
    let mut found = Outline::default();
    let mut at = 2; // behind the start marker
    while let Some(marker) = next_marker(bytes, &mut at) {
        match marker {
            0xD9 => {
                found.complete = true;
                break;
            }
            0x01 | 0xD0..=0xD8 => continue, // no length field
            _ => {}
        }
        let Some(&[high, low]) = bytes.get(at..at + 2) else { break };
        // Start of frame: length (2), precision, height (2), width (2), components. C4, C8 and CC are no frames.
        if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
            found.precision = bytes.get(at + 2).map_or(0, |&b| b.into());
            found.components = bytes.get(at + 7).map_or(0, |&b| b.into());
        }
        at += usize::from(u16::from_be_bytes([high, low]));
    }
    found
}

/// The next marker at or behind `at`, which moves behind it. Entropy-coded bytes (FF 00) and fill bytes are passed over.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    while let Some(&[first, second]) = bytes.get(*at..*at + 2) {
        if first == 0xFF && second != 0x00 && second != 0xFF {
            *at += 2;
            return Some(second);
        }
        *at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_followed_to_the_end() {
        // SOI, APP0 holding an end marker of its own, SOF2 with 4 components, SOS, data with a stuffed FF and RST0, EOI.
        let mut file = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 0xFF, 0xD9];
        file.extend([0xFF, 0xC2, 0, 9, 8, 0, 1, 0, 1, 4, 0]);
        file.extend([0xFF, 0xDA, 0, 3, 0, 1, 2, 0xFF, 0x00, 3, 0xFF, 0xD0, 4, 0xFF, 0xD9]);
        assert_eq!(outline(&file), Outline { components: 4, precision: 8, complete: true });
        for end in 0..file.len() {
            assert!(!outline(&file[..end]).complete, "cut at {end}");
        }
    }
}
