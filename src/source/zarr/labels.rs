//! Labels in an array of one dimension.

use super::chunks::Chunks;
use super::metadata::Metadata;
use crate::error::{Error, Result};
use crate::os::memory;
use std::path::Path;

/// Largest number of labels: 256 Mi, which take 1 GiB.
const MAX_LABELS: u64 = 1 << 28;

/// Reads the labels of so many samples.
pub(super) fn read(chunks: &Chunks, samples: u64, path: &Path) -> Result<Vec<u32>> {
    let Metadata { shape, chunk_shape, data_type, codecs, fill, .. } = &chunks.metadata;
    let wrong = |expected: &str, got: String| {
        Error::parameter("ZarrArray::with_labels", "labels", expected, format!("{got}, in {}", path.display()))
    };
    if data_type.is_float() {
        return Err(wrong("whole numbers", data_type.name().to_owned()));
    }
    if shape[..] != [samples] {
        return Err(wrong(
            &format!("an array of one dimension with a label for each of {samples} samples"),
            format!("{shape:?}"),
        ));
    }
    if samples > MAX_LABELS {
        return Err(Error::Limits {
            what: "a number of labels",
            got: samples,
            limit: MAX_LABELS,
            remedy: "split the array into several",
        });
    }
    let mut labels = Vec::new();
    memory::reserve(&mut labels, samples as usize, "labels", "allow the process more memory")?;
    let value_bytes = data_type.size_bytes();
    let mut add = |bytes: [u8; 8]| {
        let number = data_type.whole(bytes).unwrap_or(-1);
        match u32::try_from(number) {
            Ok(label) => labels.push(label),
            Err(_) => {
                let got = format!("{number} for sample {}", labels.len());
                return Err(wrong("numbers from 0 to 4294967295", got));
            }
        }
        Ok(())
    };
    let (mut number, mut rest) = (0, samples);
    while rest > 0 {
        let count = rest.min(chunk_shape[0]) as usize;
        match chunks.get(&[number])? {
            None => (0..count).try_for_each(|_| add(*fill))?,
            Some(chunk) => chunk.chunks_exact(value_bytes).take(count).try_for_each(|value| {
                let mut bytes = [0; 8];
                bytes[..value_bytes].copy_from_slice(value);
                if codecs.is_big {
                    bytes[..value_bytes].reverse();
                }
                add(bytes)
            })?,
        }
        (number, rest) = (number + 1, rest - count as u64);
    }
    Ok(labels)
}
