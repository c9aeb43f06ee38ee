//! Reading a part of a file under `--coding fixed`: the header, the weights, and the bytes of the values asked for.

use super::container::{self, Cursor, FRAME, Section};
use super::header::{self, Header};
use super::record::{SMALL_WEIGHTS, WEIGHTS};
use super::{Record, Result, fixed, refuse};
use crate::model::structure::{Coding, Structure};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

/// Latent texels of a level: columns and rows.
pub type Rect = (Range<usize>, Range<usize>);

/// Type, offset of the payload and its length.
type Place = ([u8; 4], u64, usize);

/// Reads a model of which only the values in `needed`, one rectangle a level, are right; all others are those of the
/// index 0. Checksums of what is not read as a whole are not checked. A file behind the range coder is read as a whole.
///
/// # Errors
/// As [`Record::decode`]; what `needed` says; a file that cannot be read.
pub fn decode<F: Read + Seek>(
    file: &mut F,
    max_texels: usize,
    needed: impl FnOnce(&Structure) -> Result<Vec<Rect>>,
) -> Result<Record> {
    let table = table(file)?;
    let head = whole(file, place(&table, header::KIND)?)?;
    let Header { coding, structure, .. } = header::read(&head)?;
    super::record::check_texels(&structure, max_texels)?;
    if coding == Coding::Range {
        needed(&structure)?;
        let mut bytes = vec![];
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).map_err(|e| e.to_string())?;
        return Record::decode(&bytes, max_texels);
    }
    let layout = fixed::Layout::new(&structure);
    let mut spans = vec![vec![]; layout.sections().len()];
    for (level, (columns, rows)) in needed(&structure)?.into_iter().enumerate() {
        if let Some(spans) = spans.get_mut(layout.section_of(level)) {
            spans.extend(rows.map(|y| layout.bytes_of_row(level, columns.clone(), y)));
        }
    }
    let weights = if structure.mlp_bits == 8 { SMALL_WEIGHTS } else { WEIGHTS };
    let mut read = vec![(header::KIND, head), (weights, whole(file, place(&table, weights)?)?)];
    for optional in [header::ROLES, header::CHANNELS] {
        if table.iter().any(|(kind, ..)| *kind == optional) {
            read.push((optional, whole(file, place(&table, optional)?)?));
        }
    }
    for ((kind, length), spans) in layout.sections().into_iter().zip(spans) {
        let (_, at, found) = place(&table, kind)?;
        if found as u64 != length {
            let kind = container::name(kind);
            return refuse(format!("section {kind} has {found} bytes and should have {length}"));
        }
        read.push((kind, sparse(file, at, found, spans)?));
    }
    let sections: Vec<_> = read.iter().map(|(kind, payload)| Section { kind: *kind, at: 0, payload }).collect();
    Record::of_sections(&sections, max_texels)
}

/// Where the sections of a file are, by their lengths alone.
fn table<F: Read + Seek>(file: &mut F) -> Result<Vec<Place>> {
    let size = file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    let start = bytes(file, 0, container::START)?;
    let count = container::read_start(&mut Cursor::new(&start))?;
    let mut at = container::START as u64;
    let mut table = vec![];
    for _ in 0..count {
        let frame = bytes(file, at, 8)?;
        let mut cursor = Cursor::new(&frame);
        let (kind, length) = (cursor.array()?, cursor.u32()?);
        let end = at + FRAME as u64 + u64::from(length);
        if end > size {
            return refuse(format!("ends at byte {size}, within section {} at byte {at}", container::name(kind)));
        }
        table.push((kind, at + 8, length as usize));
        at = end;
    }
    Ok(table)
}

fn place(table: &[Place], kind: [u8; 4]) -> Result<Place> {
    let mut found = table.iter().filter(|(k, ..)| *k == kind);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(*place),
        (None, _) => refuse(format!("has no section {}", container::name(kind))),
        _ => refuse(format!("has more than one section {}", container::name(kind))),
    }
}

fn bytes<F: Read + Seek>(file: &mut F, at: u64, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
    read.map_err(|e| format!("byte {at}: {e}")).map(|()| bytes)
}

/// A section's payload, its checksum checked.
fn whole<F: Read + Seek>(file: &mut F, (kind, at, length): Place) -> Result<Vec<u8>> {
    let mut section = bytes(file, at - 8, length + FRAME)?;
    let crc = section.split_off(length + 8);
    if crc32fast::hash(&section).to_le_bytes().as_slice() != crc {
        return refuse(format!("section {} is damaged: its checksum does not agree", container::name(kind)));
    }
    Ok(section.split_off(8))
}

/// A section of `length` bytes from `at` on with only the bytes in `spans` read, zeros elsewhere. The zeros cost no
/// memory until someone writes to them.
fn sparse<F: Read + Seek>(file: &mut F, at: u64, length: usize, mut spans: Vec<Range<usize>>) -> Result<Vec<u8>> {
    let mut section = vec![0; length];
    spans.sort_by_key(|span| span.start);
    let mut done = 0;
    for span in spans {
        let from = span.start.max(done);
        let Some(into) = section.get_mut(from..span.end.max(from)) else {
            return refuse("asks for values beyond a section".into());
        };
        let read = file.seek(SeekFrom::Start(at + from as u64)).and_then(|_| file.read_exact(into));
        read.map_err(|e| format!("byte {}: {e}", at + from as u64))?;
        done = done.max(span.end);
    }
    Ok(section)
}
