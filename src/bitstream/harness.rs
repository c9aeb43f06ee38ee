//! What fuzz targets and the replay of their findings call: one function that takes any bytes.

use super::container::repair;
use super::{Record, container, part};
use crate::model::structure::Structure;

/// Texels of a file that the harness goes on with.
const TEXELS: usize = 1 << 12;

/// Reads any bytes as a file, first as they are, then with their checksums made right, so that what lies behind these is
/// reached. What can be read must be written and read again to the same. Returns whether it could be read after repair.
///
/// # Panics
/// Where the codec breaks its promises: that is what it is for.
pub fn probe(bytes: &[u8]) -> bool {
    let _ = Record::decode(bytes, TEXELS);
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    let Ok(record) = Record::decode(&repaired, TEXELS) else { return false };
    let written = record.encode();
    let again = written.as_ref().map(|bytes| Record::decode(bytes, TEXELS));
    assert!(matches!(again, Ok(Ok(read)) if read == record), "a file that was read does not come back");
    assert!(record.cost(bytes.len()).is_ok(), "a file that was read has no cost");
    true
}

/// Reads any bytes as a file of which all values are asked for, with its checksums made right. What can be read so is
/// what [`probe`]'s way reads.
///
/// # Panics
/// As [`probe`].
pub fn probe_part(bytes: &[u8]) {
    let mut repaired = bytes.to_vec();
    repair(&mut repaired);
    let all = |s: &Structure| Ok(s.levels.iter().map(|l| (0..l.width, 0..l.height)).collect());
    let part = part::decode(&mut std::io::Cursor::new(&repaired), TEXELS, all);
    if let Ok(record) = Record::decode(&repaired, TEXELS) {
        assert!(part.is_ok_and(|part| part == record), "a part that is the whole differs");
    }
}

/// As [`probe`], for `file` with the payload of its section number `k` replaced by `payload`.
///
/// # Panics
/// As [`probe`].
pub fn probe_section(file: &[u8], k: usize, payload: &[u8]) -> bool {
    let Ok(sections) = container::read(file) else { return false };
    let other = |(i, s): (usize, &container::Section)| (s.kind, if i == k { payload } else { s.payload }.to_vec());
    let sections: Vec<_> = sections.iter().enumerate().map(other).collect();
    container::write(&sections).is_ok_and(|bytes| probe(&bytes))
}
