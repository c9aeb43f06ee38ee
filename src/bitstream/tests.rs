//! Whole files: what goes in comes out, sizes are as promised, and no bytes do harm.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use super::container::repair;
use super::context::{Grid, latent_costs, latents, selector_costs, selectors};
use super::range_coder::Tally;
use super::*;
use crate::config::{Config, FilterPair, MAX_TEXELS};
use crate::model::quant::stored;
use crate::model::role::Role;
use crate::model::structure::{Coding, Filter, Parameters, Structure, TextureInfo};

const CODINGS: [Coding; 2] = [Coding::Fixed, Coding::Range];

/// Settings of very different layouts.
fn layouts() -> Vec<(Config, (usize, usize))> {
    let base = || Config { mlp: vec![3], ..Config::default() };
    let selectors = |qat: Vec<u32>| Config { qat, ..base() };
    let split = |a, b| Some(FilterPair([a, b]));
    let (near, linear) = (Filter::Nearest, Filter::Bilinear);
    vec![
        (Config { latent: Some(vec![3, 2, 2]), ..base() }, (5, 4)),
        (Config { latent: Some(vec![1, 1, 1]), qbits: 1, ..base() }, (1, 1)),
        (Config { latent: Some(vec![7, 5, 1]), qbits: 16, clamp: true, ..base() }, (9, 8)),
        (Config { latent: Some(vec![4, 3, 3]), latent2: Some(vec![2, 2, 2]), qbits: 6, ..base() }, (11, 6)),
        (Config { latent: Some(vec![4, 4, 9]), filter: split(near, linear), deblock: true, ..base() }, (8, 8)),
        (selectors(vec![2]), (13, 9)),
        (selectors(vec![3, 1]), (8, 4)),
        (Config { latent2: Some(vec![0, 0, 2]), qbits: 5, ..selectors(vec![8, 5, 1, 2]) }, (6, 7)),
        (Config { filter: split(near, linear), latent2: Some(vec![3, 2, 3]), ..selectors(vec![2]) }, (9, 6)),
        (Config { block: 5, latent2: Some(vec![0, 0, 1]), ..selectors(vec![1; 10]) }, (7, 11)),
        (Config { latent: Some(vec![4, 2, 1]), filter: split(near, near), ..selectors(vec![4]) }, (8, 8)),
        (Config { latent: Some(vec![3, 3, 2]), lat_bits: vec![5], mlp_bits: 8, ..base() }, (7, 6)),
    ]
}

fn structure(config: &Config, (width, height): (usize, usize)) -> Structure {
    let texture =
        |name: &str, channels, depth, role| TextureInfo { name: name.into(), channels, depth, role, sources: vec![] };
    let textures = vec![texture("a", 3, 8, Some(Role::NormalDx)), texture("höhe", 1, 16, None)];
    config.resolve(width, height, textures).unwrap()
}

/// Smooth values with some noise.
fn parameters(structure: &Structure) -> Parameters {
    let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761) >> 20) as f32 / 2048.0 - 1.0;
    let level = |l: &crate::model::structure::Level| {
        (0..l.values()).map(|i| (i as f32 * 0.05).sin() + 0.2 * noise(i)).collect()
    };
    let weights = crate::model::decode::Geometry::new(structure.clone()).unwrap().network.parameters();
    let decoder = (0..weights).map(|i| noise(i + 77) * 0.4).collect();
    Parameters { levels: structure.levels.iter().map(level).collect(), decoder }
}

fn records() -> Vec<Record> {
    let one = |(config, size): &(Config, (usize, usize))| {
        let structure = structure(config, *size);
        let parameters = parameters(&structure);
        CODINGS.map(|coding| Record::new(&structure, &parameters, coding))
    };
    layouts().iter().flat_map(one).collect()
}

#[test]
fn every_layout_comes_back_from_both_codings() {
    for record in records() {
        let bytes = record.encode().unwrap();
        let read = Record::decode(&bytes, MAX_TEXELS).unwrap();
        assert!(read == record, "{:?}", record.structure);
        assert_eq!(read.encode().unwrap(), bytes);
        // What the trainer measures is what a reader gets.
        let (as_stored, rates) = stored(&record.structure, &parameters(&record.structure));
        assert!(read.parameters() == as_stored && read.rates() == rates);
        let cost = read.cost(bytes.len()).unwrap();
        let sum = cost.header + cost.weights + cost.levels.iter().flatten().sum::<f64>();
        assert!((sum - 8.0 * bytes.len() as f64).abs() < 1e-6 && cost.header > 0.0, "{cost:?}");
    }
}

#[test]
fn roles_are_a_section_that_may_be_missing() {
    let mut record = records().remove(0);
    let sections = |record: &Record| {
        let bytes = record.encode().unwrap();
        let read = container::read(&bytes).unwrap();
        read.iter().map(|s| (s.kind, s.payload.to_vec())).collect::<Vec<_>>()
    };
    let with = sections(&record);
    let at = with.iter().position(|(kind, _)| *kind == header::ROLES).unwrap();
    assert_eq!(with[at].1, [3, 0]);
    let decode = |sections: &[([u8; 4], Vec<u8>)]| Record::decode(&container::write(sections).unwrap(), MAX_TEXELS);
    for (payload, words) in
        [(&[13, 0][..], "byte 0: role 13 is unknown"), (&[3], "1 bytes for 2"), (&[0, 0], "or none of a role")]
    {
        let mut changed = with.clone();
        changed[at].1 = payload.to_vec();
        let message = decode(&changed).unwrap_err();
        assert!(message.contains(words), "{message}");
    }
    let twice = [with.clone(), vec![with[at].clone()]].concat();
    assert!(decode(&twice).unwrap_err().contains("more than one section ROLE"));
    // Without roles no byte differs from a file that knows of none.
    record.structure.textures.iter_mut().for_each(|t| t.role = None);
    let mut without = with;
    without.remove(at);
    assert_eq!(sections(&record), without);
    assert_eq!(decode(&without).unwrap(), record);
}

#[test]
fn sources_of_channels_are_a_section_that_may_be_missing() {
    use crate::model::channels::Source::{Constant, NormalZ, Output};
    let config = Config { latent: Some(vec![3, 2, 2]), mlp: vec![3], ..Config::default() };
    let mut textures = structure(&config, (5, 4)).textures;
    textures[0].sources = vec![Output(0), Output(1), NormalZ];
    textures[1].sources = vec![Constant(513)];
    let structure = config.resolve(5, 4, textures).unwrap();
    assert_eq!(structure.outputs(), 2);
    for coding in CODINGS {
        let record = Record::new(&structure, &parameters(&structure), coding);
        let bytes = record.encode().unwrap();
        assert_eq!(Record::decode(&bytes, MAX_TEXELS).unwrap(), record);
        let everything = |s: &Structure| Ok(s.levels.iter().map(|l| (0..l.width, 0..l.height)).collect());
        assert_eq!(part::decode(&mut std::io::Cursor::new(&bytes), MAX_TEXELS, everything).unwrap(), record);
        let read = container::read(&bytes).unwrap();
        let sections: Vec<_> = read.iter().map(|s| (s.kind, s.payload.to_vec())).collect();
        let at = sections.iter().position(|(kind, _)| *kind == header::CHANNELS).unwrap();
        assert_eq!(sections[at].1, [0, 1, 254, 255, 1, 2]);
        for (payload, words) in [
            (&[0, 1, 2, 0][..], "says nothing"),
            (&[0, 1, 254], "end"),
            (&[0, 1, 254, 0, 0], "byte 4"),
            (&[0, 2, 1, 0], "output 2 before output 1"),
            (&[0, 254, 1, 0], "only the third"),
            (&[0, 1, 9, 0], "kind 9 is unknown"),
            (&[255, 0, 1, 255, 0, 0, 255, 0, 0, 255, 0, 0], "beyond 8 bits"),
            (&[255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0], "leaves no decoder output"),
        ] {
            let mut changed = sections.clone();
            changed[at].1 = payload.to_vec();
            let message = Record::decode(&container::write(&changed).unwrap(), MAX_TEXELS).unwrap_err();
            assert!(message.contains(words) && message.contains("section CHAN"), "{message}");
        }
        // A reader that does not know the section finds weights of another number.
        let mut without = sections;
        without.remove(at);
        assert!(Record::decode(&container::write(&without).unwrap(), MAX_TEXELS).is_err());
    }
}

#[test]
fn a_packet_holds_block_latents_then_selectors() {
    let config = Config { qat: vec![2], latent2: Some(vec![0, 0, 2]), mlp: vec![2], ..Config::default() };
    let mut record = Record::new(&structure(&config, (8, 4)), &parameters(&structure(&config, (8, 4))), Coding::Fixed);
    record.levels[1].indices = vec![1, 2, 3, 4];
    record.levels[0].indices = (0..32).map(|i| if i % 8 < 4 { 1 } else { i / 8 % 4 }).collect();
    let bytes = record.encode().unwrap();
    let sections = container::read(&bytes).unwrap();
    let packets = container::find(&sections, fixed::PACKETS).unwrap();
    assert_eq!(packets, [1, 2, 0x55, 0x55, 0x55, 0x55, 3, 4, 0x00, 0x55, 0xaa, 0xff]);
    let layout = fixed::Layout::new(&record.structure);
    assert_eq!((layout.offset(1, 1, 0), layout.offset(0, 5, 2)), (48, 48 + 16 + 2 * (2 * 4 + 1)));
}

#[test]
fn cuts_and_flips_are_refused_and_nothing_behind_the_checksums_panics() {
    for record in records() {
        let bytes = record.encode().unwrap();
        assert!(bytes.len() < 2000);
        for end in 0..bytes.len() {
            assert!(Record::decode(&bytes[..end], MAX_TEXELS).is_err(), "cut to {end}");
        }
        for at in 0..bytes.len() {
            for mask in [0xff, 1 << (at % 8)] {
                let mut flipped = bytes.clone();
                flipped[at] ^= mask;
                assert!(Record::decode(&flipped, MAX_TEXELS).is_err(), "byte {at}");
                repair(&mut flipped);
                // What is read after all can be written again.
                if let Ok(read) = Record::decode(&flipped, 1 << 16) {
                    read.encode().unwrap();
                }
            }
        }
    }
}

#[test]
fn random_sections_with_right_checksums_do_no_harm() {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for record in records() {
        let bytes = record.encode().unwrap();
        let original: Vec<_> = container::read(&bytes).unwrap().iter().map(|s| (s.kind, s.payload.to_vec())).collect();
        for _ in 0..60 {
            let mut sections = original.clone();
            let k = next() % sections.len();
            match next() % 4 {
                0 => sections[k].1 = (0..next() % 200).map(|_| next() as u8).collect(),
                1 => drop(sections.remove(k)),
                2 => {
                    let cut = next() % (sections[k].1.len() + 1);
                    sections[k].1.truncate(cut);
                }
                _ => {
                    for _ in 0..4 {
                        let payload = &mut sections[k].1;
                        let at = next() % payload.len();
                        payload[at] = next() as u8;
                    }
                }
            }
            let _ = Record::decode(&container::write(&sections).unwrap(), 1 << 16);
        }
    }
}

#[test]
fn unknown_sections_are_skipped_and_order_does_not_matter() {
    let record = records().remove(1);
    let bytes = record.encode().unwrap();
    let mut sections: Vec<_> = container::read(&bytes).unwrap().iter().map(|s| (s.kind, s.payload.to_vec())).collect();
    sections.insert(1, (*b"NEW!", vec![1, 2, 3]));
    sections.reverse();
    let read = Record::decode(&container::write(&sections).unwrap(), MAX_TEXELS).unwrap();
    assert!(read == record);
}

#[test]
fn the_limit_on_texels_holds() {
    let record = records().remove(0);
    let bytes = record.encode().unwrap();
    assert!(Record::decode(&bytes, 20).is_ok());
    assert!(Record::decode(&bytes, 19).unwrap_err().contains("--max-pixels is 19"));
}

#[test]
fn what_is_no_number_is_not_written() {
    let mut record = records().remove(0);
    record.decoder[0] = f32::NAN;
    assert!(record.encode().is_err());
}

#[test]
fn small_weights_of_another_scale_are_refused() {
    let config = Config { latent: Some(vec![2, 2, 1]), mlp: vec![2], mlp_bits: 8, ..Config::default() };
    let structure = structure(&config, (4, 4));
    let bytes = Record::new(&structure, &parameters(&structure), Coding::Range).encode().unwrap();
    let at = container::read(&bytes).unwrap().iter().find(|s| s.kind == *b"WGT8").unwrap().at;
    assert!(bytes[at + 2..].iter().take(4).any(|&w| w != 0), "weights to speak of");
    // A sign, infinity, a weight of -128, and a scale of nothing: no writer makes them.
    let changes: [fn(&mut [u8]); 4] =
        [|b| b[1] ^= 0x80, |b| b[1] |= 0x7c, |b| b[2] = 0x80, |b| b[2..8].iter_mut().for_each(|w| *w = 0)];
    for change in changes {
        let mut bad = bytes.clone();
        change(&mut bad[at..]);
        repair(&mut bad);
        assert!(Record::decode(&bad, MAX_TEXELS).unwrap_err().contains("WGT8, byte 0"));
    }
}

/// A file that knows how much of it was read.
struct Counted<'a>(std::io::Cursor<&'a [u8]>, usize);

impl std::io::Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(into)?;
        self.1 += count;
        Ok(count)
    }
}

impl std::io::Seek for Counted<'_> {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_part_has_its_values_and_reads_little_else() {
    for (config, _) in layouts() {
        let structure = structure(&config, (160, 160));
        let record = Record::new(&structure, &parameters(&structure), Coding::Fixed);
        let bytes = record.encode().unwrap();
        let rect = |l: &crate::model::structure::Level| (l.width / 3..l.width / 3 + 1, l.height / 2..l.height / 2 + 1);
        let needed: Vec<_> = record.structure.levels.iter().map(rect).collect();
        let mut file = Counted(std::io::Cursor::new(&bytes), 0);
        let part = part::decode(&mut file, MAX_TEXELS, |_| Ok(needed.clone())).unwrap();
        for ((level, (xs, ys)), (own, all)) in
            structure.levels.iter().zip(&needed).zip(part.levels.iter().zip(&record.levels))
        {
            let at = (ys.start * level.width + xs.start) * level.channels;
            assert_eq!(own.indices[at..at + level.channels], all.indices[at..at + level.channels]);
        }
        assert!(part.decoder == record.decoder);
        let values: u64 = fixed::Layout::new(&structure).sections().iter().map(|(_, length)| length).sum();
        // Everything but the values, and the whole bytes of two latent texels at most.
        let most = bytes.len() as u64 - values + 40;
        assert!(file.1 as u64 <= most, "{} of {} bytes read, {most} expected", file.1, bytes.len());
    }
}

#[test]
fn parts_of_cut_and_flipped_files_do_no_harm() {
    for record in records().into_iter().take(8) {
        let bytes = record.encode().unwrap();
        let all = |s: &Structure| Ok(s.levels.iter().map(|l| (0..l.width, 0..l.height)).collect());
        let read = |bytes: &[u8]| part::decode(&mut std::io::Cursor::new(bytes), 1 << 16, all);
        assert!(read(&bytes).unwrap() == record);
        for at in 0..bytes.len() {
            if at + 4 < bytes.len() {
                assert!(read(&bytes[..at]).is_err(), "cut to {at} of {}", bytes.len());
            }
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            let _ = read(&flipped);
            repair(&mut flipped);
            let _ = read(&flipped);
        }
    }
}

#[test]
fn latents_costs_at_their_own_values_are_what_coding_takes() {
    let mut indices: Vec<u16> = (0..7 * 5 * 2).map(|k: u16| 20 + k * 13 % 7 + (k % 2) * 9).collect();
    let mut tally = Tally::new(2);
    let mut grid = Grid { width: 7, height: 5, bits: &[6, 6], indices: &mut indices };
    latents(&mut tally, &mut grid, 0);
    let (first, window, costs) = latent_costs(&mut grid);
    let own = |(k, &v): (usize, &u16)| costs[k * window + usize::from(v - first[k])];
    let sum: i32 = indices.iter().enumerate().map(own).sum();
    let bits = tally.bits.iter().sum::<f64>();
    assert!((f64::from(sum) / 1024.0 - bits).abs() < 0.1 && bits > 50.0, "{sum} parts, {bits} bits");
}

#[test]
fn a_selectors_cost_holds_its_neighbours() {
    // Two selectors: the first's cost is its own and that of the second, which is expected from it.
    let mut indices = [2u16, 1];
    let mut tally = Tally::new(1);
    let mut grid = Grid { width: 2, height: 1, bits: &[2], indices: &mut indices };
    selectors(&mut tally, &mut grid, None, 0);
    let (window, costs) = selector_costs(&mut grid, None);
    assert_eq!((window, costs.len(), &grid.indices[..]), (4, 8, &[2u16, 1][..]));
    assert!((f64::from(costs[2]) / 1024.0 - tally.bits[0]).abs() < 0.01);
}
