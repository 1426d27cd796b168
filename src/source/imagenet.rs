//! ImageNet's validation images of 2012, with the labels of the development kit: a file of numbers in the order of the
//! images' names, and a MATLAB file of classes.

use super::Source;
use super::compose::{Described, MapLabels, SourceExt};
use super::records::tar;
use crate::error::{Error, Result};
use crate::os::file::{read_limited, read_up_to};
use flate2::read::{GzDecoder, ZlibDecoder};
use std::path::Path;
use std::sync::Arc;

const LABELS: &str = "data/ILSVRC2012_validation_ground_truth.txt";
const CLASSES: &str = "data/meta.mat";

/// Number of classes that images belong to, numbered from 1. The classes above them in the tree have larger numbers.
const CLASS_COUNT: usize = 1_000;

/// Largest size of a file of the development kit, in bytes, packed or not.
const MAX_BYTES: u64 = 64 << 20;

/// Gives the validation `images` their labels from the development kit, a folder or a `.tar.gz` file. The labels number
/// the classes in the order of their identifiers, from 0 (`n01440764`), as in the training set.
pub(super) fn validation(images: Arc<dyn Source>, devkit: &Path) -> Result<MapLabels> {
    let [labels, classes] = read(devkit)?;
    let wrong = |message: String| Error::decode("ImageNet", format!("{}: {message}", devkit.display()));
    let mut classes = classes_of(&classes).map_err(|message| wrong(format!("{CLASSES}: {message}")))?;
    let labels = std::str::from_utf8(&labels).unwrap_or_default().split_ascii_whitespace();
    let labels = labels
        .map(|number| number.parse().ok().filter(|number| (1..=classes.len()).contains(number)))
        .collect::<Option<Vec<usize>>>()
        .ok_or_else(|| wrong(format!("{LABELS} has lines that are no numbers from 1 to {}", classes.len())))?;
    // The kit's numbers and the labels are in different orders.
    let by_number = classes.clone();
    classes.sort_unstable();
    let label = |image: Described<'_>| {
        // The first image is ILSVRC2012_val_00000001.JPEG.
        let name = image.name.rsplit('/').next().unwrap_or_default();
        let digits = name.split('.').next().and_then(|stem| stem.rsplit('_').next());
        let number = digits.and_then(|digits| digits.parse::<usize>().ok()).and_then(|number| number.checked_sub(1));
        let class = number.and_then(|number| labels.get(number)).map(|&class| &by_number[class - 1]);
        let class = class.ok_or_else(|| wrong(format!("{LABELS} has no label for {name}")))?;
        Ok(classes.binary_search(class).unwrap_or_default() as u32)
    };
    images.relabel(classes.clone(), label)
}

/// Reads the files with the labels and the classes.
fn read(devkit: &Path) -> Result<[Vec<u8>; 2]> {
    if devkit.is_dir() {
        let read = |name| read_limited(devkit.join(name), MAX_BYTES);
        return Ok([read(LABELS)?, read(CLASSES)?]);
    }
    let packed = read_limited(devkit, MAX_BYTES)?;
    let archive = read_up_to(GzDecoder::new(&packed[..]), MAX_BYTES).map_err(Error::io("unpack", devkit))?;
    let member = |name| {
        let missing = || Error::decode("ImageNet", format!("{}: there is no {name} in it", devkit.display()));
        tar::member(&archive, name).map(<[u8]>::to_vec).ok_or_else(missing)
    };
    Ok([member(LABELS)?, member(CLASSES)?])
}

/// Returns the identifiers of the classes in the order of their numbers, from 1: the fields `WNID` and `ILSVRC2012_ID`
/// of the structs `synsets` in a MATLAB file.
fn classes_of(file: &[u8]) -> Result<Vec<String>, String> {
    let mut content = file.get(128..).filter(|_| &file[126..128] == b"IM").ok_or("it is no MATLAB 5 file")?;
    let (mut kind, mut synsets) = element(&mut content).ok_or(TORN)?;
    let unpacked;
    if kind == COMPRESSED {
        unpacked = read_up_to(ZlibDecoder::new(synsets), MAX_BYTES)
            .map_err(|error| format!("it cannot be unpacked: {error}"))?;
        (kind, synsets) = element(&mut &unpacked[..]).ok_or(TORN)?;
    }
    let mut fields = if kind == MATRIX { structs(synsets) } else { None }.ok_or("it does not begin with structs")?;
    let mut classes = vec![String::new(); CLASS_COUNT];
    let mut last = 0;
    while !fields.values.is_empty() {
        let (mut number, mut class) = (None, None);
        for name in &fields.names {
            let (_, value) = element(&mut fields.values).ok_or(TORN)?;
            match name.as_str() {
                "ILSVRC2012_ID" => number = values(value).and_then(|values| values.first().copied()),
                "WNID" => class = values(value),
                _ => {}
            }
        }
        let (number, class) = number.zip(class).ok_or("a class has no number or no identifier")?;
        if let Some(place) = (number as usize).checked_sub(1).and_then(|at| classes.get_mut(at)) {
            *place = class.iter().filter_map(|&code| char::from_u32(code as u32)).collect();
            last = last.max(number as usize);
        }
    }
    classes.truncate(last);
    if classes.is_empty() || classes.iter().any(String::is_empty) {
        return Err(format!("the classes 1 to {last} are not all there"));
    }
    Ok(classes)
}

// MATLAB's MAT-file format, version 5, as MathWorks describes it: each element has a type, a length and data, padded to
// a multiple of 8 bytes.

const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// The class of a matrix whose elements are structs.
const STRUCTS: u8 = 2;
const TORN: &str = "it ends in the middle";

/// Removes the first element from `rest` and returns its type and its data.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (tag, behind) = rest.split_first_chunk::<4>()?;
    let tag = u32::from_le_bytes(*tag);
    let (data, behind) = if tag >> 16 != 0 {
        // A small element: the tag holds the length too, and up to 4 bytes of data follow.
        let (data, behind) = behind.split_at_checked(4)?;
        (data.get(..(tag >> 16) as usize)?, behind)
    } else {
        let (len, behind) = behind.split_first_chunk::<4>()?;
        let (data, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let fill = if tag == COMPRESSED { 0 } else { data.len().next_multiple_of(8) - data.len() };
        // The last element may lack its padding.
        (data, behind.get(fill..).unwrap_or_default())
    };
    *rest = behind;
    Some((tag & 0xffff, data))
}

/// The names of the fields of structs, and the fields' values: one matrix for each value, struct by struct.
struct Fields<'a> {
    names: Vec<String>,
    values: &'a [u8],
}

/// Returns the class of a matrix, and its content after flags, sizes and name.
fn matrix(mut content: &[u8]) -> Option<(u8, &[u8])> {
    let (_, flags) = element(&mut content)?;
    element(&mut content)?;
    element(&mut content)?;
    Some((*flags.first()?, content))
}

fn structs(content: &[u8]) -> Option<Fields<'_>> {
    let (class, mut content) = matrix(content)?;
    let (_, len) = element(&mut content)?;
    let (_, names) = element(&mut content)?;
    let len = u32::from_le_bytes(*len.first_chunk()?) as usize;
    if class != STRUCTS || len == 0 {
        return None;
    }
    let name = |name: &[u8]| String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
    let names: Vec<String> = names.chunks(len).map(name).collect();
    (!names.is_empty()).then_some(Fields { names, values: content })
}

/// Returns the numbers or the character codes in a matrix.
fn values(content: &[u8]) -> Option<Vec<f64>> {
    let (_, mut content) = matrix(content)?;
    let (kind, data) = element(&mut content)?;
    Some(match kind {
        // Integers of one byte, and UTF-8, in which identifiers are ASCII.
        1 | 2 | 16 => data.iter().map(|&byte| byte.into()).collect(),
        3 | 4 | 17 => data.as_chunks::<2>().0.iter().map(|&bytes| u16::from_le_bytes(bytes).into()).collect(),
        5 | 6 => data.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes).into()).collect(),
        9 => data.as_chunks::<8>().0.iter().map(|&bytes| f64::from_le_bytes(bytes)).collect(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{RecordFormat, RecordOptions, RecordShards};
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    /// Classes 1 to 3 are n02119789, n01443537 and n01440764, and n00001740 has the number 1001. Written by SciPy 1.17:
    /// structs with the fields ILSVRC2012_ID (of one byte, and in doubles), WNID, words and num_children, compressed.
    const SYNSETS: &str = "\
        0f00000001010000789ce3636060c86061606003d21c40ccc40001ac503e508a81118ad981b8b832af38b5a41828cfc2c007\
        15b700624f9fe0b02067230343a3784f1786703f200107e5f94529c5705e5e696e7c7246664e4a516a1e03d80c030684fd9c\
        68f633226106b0fb18c16e04e97340d2c782451f27923e01283fcfc0d0c4c4d8d4d81c2ace07753f3e7338d0cc01f1d3f373\
        52d2328b33c8713f367bd908e8e3848a43c0077bf2fd6f646868696e614982ffd9d1cc01f1b3334b14d2f22bc88a3f98bda4\
        ea6366a030de0dcccd4c48f0372b9a39207e496a5e720699eec7662f49f1eed1ef40beff81c0d0dcc48004ffb3a19903e2a7\
        e69564965492e77f901d00494a2cc6";

    fn meta() -> Vec<u8> {
        let mut file = vec![b' '; 124];
        file.extend(b"\x00\x01IM");
        file.extend((0..SYNSETS.len()).step_by(2).map(|at| u8::from_str_radix(&SYNSETS[at..at + 2], 16).unwrap()));
        file
    }

    fn images(folder: &Path, names: &[&str]) -> Arc<dyn Source> {
        let mut archive = Vec::new();
        names.iter().for_each(|name| tar::write_member(name, &[0xff, 0xd8], &mut archive));
        let path = folder.join("ILSVRC2012_img_val.tar");
        std::fs::write(&path, [&archive, RecordFormat::WebDataset.facts().end].concat()).unwrap();
        let shards = RecordShards::open(RecordFormat::WebDataset, &[path], &RecordOptions::default()).unwrap();
        shards.into_source()
    }

    #[test]
    fn labels_are_those_of_the_sorted_classes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::fs::write(folder.path().join(LABELS), "1\n3\n2\n3\n").unwrap();
        std::fs::write(folder.path().join(CLASSES), meta()).unwrap();
        let names = ["ILSVRC2012_val_00000002.JPEG", "ILSVRC2012_val_00000001.JPEG", "val/3.jpg"];
        let source = validation(images(folder.path(), &names), folder.path()).unwrap();
        assert_eq!(source.classes(), ["n01440764", "n01443537", "n02119789"]);
        assert_eq!((0..3).filter_map(|i| source.label(i)).collect::<Vec<_>>(), [0, 2, 1]);

        // The labels are the same when the kit is read from its archive.
        let mut archive = Vec::new();
        for (name, content) in [("kit/readme.txt", &b"-"[..]), ("kit/data/meta.mat", &meta()), (LABELS, b"1 3 2 3")] {
            tar::write_member(name, content, &mut archive);
        }
        let packed = folder.path().join("ILSVRC2012_devkit_t12.tar.gz");
        let mut file = GzEncoder::new(std::fs::File::create(&packed).unwrap(), Compression::fast());
        file.write_all(&archive).unwrap();
        file.finish().unwrap();
        assert_eq!(validation(images(folder.path(), &names), &packed).unwrap().label(0), Some(0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let says = |labels: &[u8], meta: &[u8], names: &[&str]| {
            std::fs::create_dir_all(folder.path().join("data")).unwrap();
            std::fs::write(folder.path().join(LABELS), labels).unwrap();
            std::fs::write(folder.path().join(CLASSES), meta).unwrap();
            validation(images(folder.path(), names), folder.path()).unwrap_err().to_string()
        };
        assert!(says(b"1", &meta(), &["2.jpg"]).contains("no label for 2.jpg"));
        assert!(says(b"1", &meta(), &["cat.jpg"]).contains("no label for cat.jpg"));
        assert!(says(b"4", &meta(), &["1.jpg"]).contains("numbers from 1 to 3"));
        assert!(says(b"1", b"MATLAB 7.3", &["1.jpg"]).contains("meta.mat"));
        let whole = meta();
        for len in 0..whole.len() {
            assert!(says(b"1", &whole[..len], &["1.jpg"]).contains("meta.mat"), "{len} bytes");
        }
        let missing = validation(images(folder.path(), &["1.jpg"]), &folder.path().join("devkit")).unwrap_err();
        assert!(missing.to_string().contains("devkit"), "{missing}");
    }
}
