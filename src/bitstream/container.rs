//! The outer layer of a file: magic, version, sections with checksums.
//!
//! ```text
//! "NTES"  version u8  sections u8  { type [u8; 4]  length u32  payload  CRC-32 of these three }*  CRC-32 of all before
//! ```
//! Numbers are little-endian. A reader skips sections whose type it does not know.

use super::{Result, refuse};

/// First bytes of a file.
pub const MAGIC: [u8; 4] = *b"NTES";
/// Version of the format; a reader refuses others.
pub const VERSION: u8 = 1;
/// Bytes before the first section.
pub const START: usize = 6;
/// Bytes of a section beside its payload.
pub const FRAME: usize = 12;
/// Bytes behind the last section.
pub const END: usize = 4;

/// One section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// What it holds.
    pub kind: [u8; 4],
    /// Byte offset of the payload in the file.
    pub at: usize,
    /// Its content.
    pub payload: &'a [u8],
}

/// A file of `sections`.
pub fn write(sections: &[([u8; 4], Vec<u8>)]) -> Result<Vec<u8>> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    bytes.push(u8::try_from(sections.len()).map_err(|_| "too many sections".to_owned())?);
    for (kind, payload) in sections {
        let length = u32::try_from(payload.len()).map_err(|_| "a section of 4 GiB or more".to_owned())?;
        let mut crc = crc32fast::Hasher::new();
        for part in [kind.as_slice(), &length.to_le_bytes(), payload] {
            crc.update(part);
            bytes.extend_from_slice(part);
        }
        bytes.extend(crc.finalize().to_le_bytes());
    }
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    Ok(bytes)
}

/// A cursor that never reads beyond its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the first of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    /// Offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => refuse(format!("ends at byte {}, within {count} bytes from byte {}", self.bytes.len(), self.at)),
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "a length that cannot be".to_owned())
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next four bytes as a float, which is finite.
    pub fn f32(&mut self) -> Result<f32> {
        let at = self.at;
        match f32::from_bits(self.u32()?) {
            x if x.is_finite() => Ok(x),
            x => refuse(format!("byte {at}: {x} is no number")),
        }
    }

    /// Refuses bytes that are left.
    pub fn end(&self) -> Result<()> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => refuse(format!("{left} bytes too many from byte {} on", self.at)),
        }
    }
}

/// Reads what stands before the sections; their number.
pub fn read_start(cursor: &mut Cursor) -> Result<u8> {
    if cursor.array()? != MAGIC {
        return refuse("does not begin with NTES".into());
    }
    let version = cursor.u8()?;
    if version != VERSION {
        return refuse(format!("has format {version}; this program reads format {VERSION}"));
    }
    cursor.u8()
}

/// The sections of a file, in order, once magic, version, lengths and checksums are right.
pub fn read(bytes: &[u8]) -> Result<Vec<Section<'_>>> {
    let mut cursor = Cursor::new(bytes);
    let count = read_start(&mut cursor)?;
    let mut sections = vec![];
    for _ in 0..count {
        let from = cursor.at();
        let (kind, length) = (cursor.array()?, cursor.u32()?);
        let at = cursor.at();
        let payload = cursor.take(length as usize)?;
        let crc = crc32fast::hash(bytes.get(from..cursor.at()).unwrap_or(&[]));
        if cursor.u32()? != crc {
            return refuse(format!("section {} at byte {from} is damaged: its checksum does not agree", name(kind)));
        }
        sections.push(Section { kind, at, payload });
    }
    let crc = crc32fast::hash(bytes.get(..cursor.at()).unwrap_or(&[]));
    if cursor.u32()? != crc {
        return refuse("is damaged: its checksum does not agree".into());
    }
    cursor.end()?;
    Ok(sections)
}

/// The payload of the one section of type `kind`.
pub fn find<'a>(sections: &[Section<'a>], kind: [u8; 4]) -> Result<&'a [u8]> {
    let mut found = sections.iter().filter(|section| section.kind == kind);
    match (found.next(), found.next()) {
        (Some(section), None) => Ok(section.payload),
        (None, _) => refuse(format!("has no section {}", name(kind))),
        _ => refuse(format!("has more than one section {}", name(kind))),
    }
}

/// A type as it prints.
pub fn name(kind: [u8; 4]) -> String {
    kind.escape_ascii().to_string()
}

/// Makes the checksums of a file right, where its lengths lead through it. For tests of what lies behind them.
pub fn repair(bytes: &mut [u8]) {
    let mut at = START;
    let count = bytes.get(5).copied().unwrap_or(0);
    for _ in 0..count {
        let length = bytes.get(at + 4..at + 8).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let Some(end) = length.map(|length| at + 8 + length as usize) else { return };
        let Some(crc) = bytes.get(at..end).map(crc32fast::hash) else { return };
        let Some(place) = bytes.get_mut(end..end + 4) else { return };
        place.copy_from_slice(&crc.to_le_bytes());
        at = end + 4;
    }
    let Some(crc) = bytes.get(..at).map(crc32fast::hash) else { return };
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests {
    use super::*;

    fn small() -> Vec<u8> {
        write(&[(*b"ABCD", vec![1, 2, 3]), (*b"EMPT", vec![])]).unwrap()
    }

    #[test]
    fn a_file_byte_by_byte() {
        let bytes = small();
        assert_eq!(bytes[..14], *b"NTES\x01\x02ABCD\x03\0\0\0");
        assert_eq!(bytes.len(), START + 2 * FRAME + 3 + END);
        let sections = read(&bytes).unwrap();
        assert_eq!(
            sections.iter().map(|s| (s.kind, s.at, s.payload.len())).collect::<Vec<_>>(),
            [(*b"ABCD", 14, 3), (*b"EMPT", 29, 0)]
        );
        assert_eq!(find(&sections, *b"ABCD").unwrap(), [1, 2, 3]);
        assert_eq!(find(&sections, *b"NONE").unwrap_err(), "has no section NONE");
        let twice = write(&[(*b"ABCD", vec![]), (*b"ABCD", vec![])]).unwrap();
        assert!(find(&read(&twice).unwrap(), *b"ABCD").unwrap_err().contains("more than one"));
    }

    #[test]
    fn every_flip_and_every_cut_is_noticed() {
        let bytes = small();
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).is_err());
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "byte {at} bit {bit}");
            }
        }
        assert!(read(&[bytes.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn repaired_checksums_are_right() {
        let mut bytes = small();
        bytes[15] ^= 255;
        assert!(read(&bytes).is_err());
        repair(&mut bytes);
        assert_eq!(read(&bytes).unwrap()[0].payload, [1, 253, 3]);
        (0..bytes.len()).for_each(|end| repair(&mut bytes.clone()[..end]));
    }
}
