//! Records as the formats have them, and the names of their files.

use super::prepare::Sample;
use crate::error::{Error, Result};
use crate::source::RecordFormat;
use crate::source::records::recordio::MAGIC;
use crate::source::records::tfrecord::{IMAGE, LABEL, masked_crc};

const BLOCK_BYTES: usize = 512;

/// The name of shard `i` until all are complete.
pub(super) fn hidden_name(format: RecordFormat, name: &str, i: usize) -> String {
    match format {
        RecordFormat::WebDataset => format!("{name}-{i:06}.tar"),
        RecordFormat::RecordIo => format!("{name}-{i:06}.rec"),
        // The name has the number of shards, which only the last one tells.
        RecordFormat::TfRecord => format!(".{name}-{i:05}.tfrecord"),
    }
}

/// The name of RecordIO's index file of shard `i`.
pub(super) fn index_name(name: &str, i: usize) -> String {
    format!("{name}-{i:06}.idx")
}

/// The name of shard `i` of `count`.
pub(super) fn final_name(format: RecordFormat, name: &str, i: usize, count: usize) -> String {
    match format {
        RecordFormat::TfRecord => format!("{name}-{i:05}-of-{count:05}.tfrecord"),
        _ => hidden_name(format, name, i),
    }
}

/// Whether a file of this name is a shard of the folder `name`, whatever their number, or belongs to one.
pub(super) fn is_name(format: RecordFormat, name: &str, file: &str) -> bool {
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let behind = |file: &str, ending| file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(ending).map(is_number);
    let found = match format {
        RecordFormat::WebDataset => behind(file, ".tar"),
        RecordFormat::RecordIo => behind(file, ".rec").or_else(|| behind(file, ".idx")),
        RecordFormat::TfRecord => match file.strip_prefix('.') {
            Some(hidden) => behind(hidden, ".tfrecord"),
            None => file
                .rsplit_once("-of-")
                .and_then(|(shard, count)| Some(behind(shard, "")? && is_number(count.strip_suffix(".tfrecord")?))),
        },
    };
    found.unwrap_or(false)
}

/// What ends a shard.
pub(super) fn end_bytes(format: RecordFormat) -> &'static [u8] {
    match format {
        RecordFormat::WebDataset => &[0; 2 * BLOCK_BYTES],
        _ => &[],
    }
}

/// Appends sample `index` to `out`.
pub(super) fn append(format: RecordFormat, index: u64, sample: &Sample, out: &mut Vec<u8>) -> Result<()> {
    match format {
        RecordFormat::WebDataset => {
            member(&format!("{index:09}.{}", sample.ending), &sample.bytes, out);
            member(&format!("{index:09}.cls"), sample.label.to_string().as_bytes(), out);
        }
        RecordFormat::RecordIo => recordio(index, sample, out)?,
        RecordFormat::TfRecord => tfrecord(sample, out),
    }
    Ok(())
}

/// A member of a tar archive, ustar; without time and owner, so that equal images give equal shards.
fn member(name: &str, content: &[u8], out: &mut Vec<u8>) {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    // No encoded image has more than 256 MiB.
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(content);
    out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
}

/// A record with MXNet's image header, cut where its data have the magic number at a multiple of four bytes.
fn recordio(index: u64, sample: &Sample, out: &mut Vec<u8>) -> Result<()> {
    let label = sample.label as f32;
    if label as u64 != u64::from(sample.label) || sample.label > 1 << 24 {
        let expected = "labels up to 16777216, which RecordIO stores as f32";
        return Err(Error::parameter("pack", "source", expected, sample.label));
    }
    let mut data = Vec::with_capacity(24 + sample.bytes.len());
    data.extend(0_u32.to_le_bytes());
    data.extend(label.to_le_bytes());
    data.extend(index.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    data.extend(&sample.bytes);
    let (words, _) = data.as_chunks::<4>();
    let cuts: Vec<usize> = (0..words.len()).filter(|&i| words[i] == MAGIC).map(|i| 4 * i).collect();
    let mut start = 0;
    for i in 0..=cuts.len() {
        let end = cuts.get(i).copied().unwrap_or(data.len());
        let place: u32 = match (i == 0, i == cuts.len()) {
            (true, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (false, true) => 3,
        };
        out.extend(MAGIC);
        out.extend((place << 29 | (end - start) as u32).to_le_bytes());
        out.extend(&data[start..end]);
        out.resize(out.len().next_multiple_of(4), 0);
        start = end + MAGIC.len();
    }
    Ok(())
}

/// A record that holds a `tf.train.Example` with image and label.
fn tfrecord(sample: &Sample, out: &mut Vec<u8>) {
    let image = feature(IMAGE, 1, &field(1, &sample.bytes));
    let mut number = vec![0x08];
    varint(sample.label.into(), &mut number);
    let label = feature(LABEL, 3, &number);
    let example = field(1, &[image, label].concat());
    let len_bytes = (example.len() as u64).to_le_bytes();
    out.extend(len_bytes);
    out.extend(masked_crc(&len_bytes).to_le_bytes());
    out.extend(&example);
    out.extend(masked_crc(&example).to_le_bytes());
}

/// An entry of the map of features: its name, and its list, which is of a kind.
fn feature(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat())
}

/// A field of a message that holds bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 11);
    bytes.push(number << 3 | 2);
    varint(content.len() as u64, &mut bytes);
    bytes.extend(content);
    bytes
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_known_by_their_names() {
        for format in [RecordFormat::WebDataset, RecordFormat::RecordIo, RecordFormat::TfRecord] {
            for i in [0, 7, 1_234_567] {
                assert!(is_name(format, "train", &hidden_name(format, "train", i)));
                assert!(is_name(format, "train", &final_name(format, "train", i, 2_000_000)));
                assert!(!is_name(format, "val", &final_name(format, "train", i, 2_000_000)));
            }
            for other in ["train.tar", "train-.tar", "train-1a.tar", "train-000001.zip", "train-000001-of-x.tfrecord"] {
                assert!(!is_name(format, "train", other), "{other}");
            }
        }
        assert!(is_name(RecordFormat::RecordIo, "train", &index_name("train", 1)));
    }
}
