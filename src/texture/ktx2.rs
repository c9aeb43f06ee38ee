//! What stands before the texels in a KTX2 file of one uncompressed level (Khronos KTX 2.0, section 3).

use super::write::Picture;

/// First bytes of a file.
const IDENTIFIER: [u8; 12] = *b"\xabKTX 20\xbb\r\n\x1a\n";
/// Vulkan's numbers of the formats of 1 to 4 channels, UNORM of 8 and of 16 bits.
const FORMATS: [[u32; 4]; 2] = [[9, 16, 23, 37], [70, 77, 84, 91]];
/// Bytes of identifier, header, index and the table of one level.
const START: usize = 80 + 24;

/// The bytes before the texels of `picture`, padding to their alignment included.
pub(super) fn header(picture: &Picture) -> Vec<u8> {
    let Picture { width, height, channels, depth } = *picture;
    let sample = (depth / 8) as usize;
    let description = description(channels, depth);
    // Texels begin at a multiple of 4 and of the size of a texel.
    let texel = channels * sample;
    let align = (1..=4).map(|k| k * texel).find(|n| n.is_multiple_of(4)).unwrap_or(4);
    let at = (START + description.len()).next_multiple_of(align);
    let length = (width * height * texel) as u64;
    let mut bytes = IDENTIFIER.to_vec();
    // Format, bytes of a sample; width, height, no depth; no layers, one face, one level, no supercompression.
    let format = FORMATS[usize::from(depth == 16)][channels - 1];
    let words = [format, sample as u32, width as u32, height as u32, 0, 0, 1, 1, 0];
    // Where the description is; no keys and values.
    let index = [START as u32, description.len() as u32, 0, 0];
    bytes.extend(words.into_iter().chain(index).flat_map(u32::to_le_bytes));
    // No supercompression data; then the level: offset, length, length uncompressed.
    bytes.extend([0, 0, at as u64, length, length].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(description);
    bytes.resize(at, 0);
    bytes
}

/// The data format descriptor: one basic block with a sample a channel, linear UNORM.
fn description(channels: usize, depth: u32) -> Vec<u8> {
    let block = 24 + 16 * channels as u32;
    let bytes_of_texel = channels as u32 * depth / 8;
    // Total; vendor and type 0; version 2 and size; colour model RGBSDA, BT.709, linear, straight alpha.
    let mut words = vec![4 + block, 0, 2 | (block << 16), 0x0001_0101, 0, bytes_of_texel, 0];
    for channel in 0..channels as u32 {
        // Red, green, blue, and 15 for alpha.
        let kind = if channel == 3 { 15 } else { channel };
        words.extend([(channel * depth) | ((depth - 1) << 16) | (kind << 24), 0, 0, (1 << depth) - 1]);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
