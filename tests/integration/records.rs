//! Shards of records: whole, damaged, and lying.

use crate::common::{self, Random, data_set};
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::ops::Resize;
use warpfeed::{
    Error, OnError, Pipeline, Result,
    image::Size,
    source::{
        IdxFile, ListFile, OpenOptions, RecordFormat, RecordOptions, RecordShards, RecordStream, Source, Stream as _,
        StreamOptions, StreamStart, open,
    },
};

const MAGIC: u32 = 0xced7_230a;

/// A tar header and its content, filled up to whole blocks.
pub fn member(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[156] = kind;
    block[257..263].copy_from_slice(b"ustar\0");
    seal(&mut block);
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Puts in a header's checksum.
fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block[..512].iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive: Vec<u8> = members.iter().flat_map(|(name, content)| member(name, b'0', content)).collect();
    archive.extend([0; 1024]);
    archive
}

/// A record of MXNet, cut where the magic number stands in it.
pub fn recordio(labels: &[f32], image: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    let flag = if labels.len() == 1 { 0 } else { labels.len() as u32 };
    data.extend(flag.to_le_bytes());
    data.extend(if flag == 0 { labels[0] } else { 0.0 }.to_le_bytes());
    data.extend([0; 16]);
    if flag > 0 {
        labels.iter().for_each(|label| data.extend(label.to_le_bytes()));
    }
    data.extend(image);
    let cuts: Vec<usize> =
        (0..data.len() / 4).map(|i| 4 * i).filter(|&at| data[at..at + 4] == MAGIC.to_le_bytes()).collect();
    let mut record = Vec::new();
    let mut start = 0;
    for i in 0..=cuts.len() {
        let end = cuts.get(i).copied().unwrap_or(data.len());
        let place: u32 = match (cuts.len(), i) {
            (0, _) => 0,
            (_, 0) => 1,
            (count, i) if i == count => 3,
            _ => 2,
        };
        record.extend(MAGIC.to_le_bytes());
        record.extend((place << 29 | (end - start) as u32).to_le_bytes());
        record.extend(&data[start..end]);
        record.resize(record.len().next_multiple_of(4), 0);
        start = end + 4;
    }
    record
}

/// CRC-32C bit by bit, masked as TensorFlow does.
fn masked_crc(data: &[u8]) -> u32 {
    let crc = !data.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn tfrecord(data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u64).to_le_bytes();
    [&len[..], &masked_crc(&len).to_le_bytes(), data, &masked_crc(data).to_le_bytes()].concat()
}

pub fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of a protobuf message that holds bytes.
pub fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(content.len() as u64), content].concat()
}

pub fn feature(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat())
}

pub fn bytes_feature(name: &str, content: &[u8]) -> Vec<u8> {
    feature(name, 1, &field(1, content))
}

pub fn int_feature(name: &str, number: u64) -> Vec<u8> {
    feature(name, 3, &field(1, &varint(number)))
}

pub fn example(features: &[Vec<u8>]) -> Vec<u8> {
    tfrecord(&field(1, &features.concat()))
}

fn shard(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn no_index() -> RecordOptions {
    RecordOptions::default().keep_index(false)
}

/// A sample's bytes and label, or why it cannot be read.
type Read = Result<(Vec<u8>, Option<u32>), String>;

/// Each sample's bytes and label, or why it cannot be read.
fn contents(source: &dyn Source) -> Vec<Read> {
    let read = |i| match source.encoded(i) {
        Ok(bytes) => Ok((bytes, source.label(i))),
        Err(error) => {
            assert!(error.is_bad_sample(), "{error}");
            Err(error.to_string())
        }
    };
    (0..source.len()).map(read).collect()
}

fn sample(bytes: &[u8], label: u32) -> Read {
    Ok((bytes.to_vec(), Some(label)))
}

fn unlabeled(bytes: &[u8]) -> Read {
    Ok((bytes.to_vec(), None))
}

/// Opens one shard, without an index to be kept.
fn one(format: RecordFormat, path: &Path) -> Result<RecordShards> {
    RecordShards::open(format, &[path.to_owned()], &no_index())
}

#[test]
fn tar_parts_become_samples() {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("{}/one.jpg", "long/".repeat(40));
    let pax = format!("path={}/two.jpg\n", "pax/".repeat(40));
    let pax = format!("{} {pax}", pax.len() + 4);
    let archive = [
        member("pax_global_header", b'g', b"16 comment=hello\n"),
        member("a", b'5', b""),
        member("a/1.cls", b'0', b"3\n"),
        member("a/1.jpg", b'0', b"first"),
        member("a/1.txt", b'0', b"a caption"),
        member("a/2.left.jpg", b'0', b"not by this ending"),
        member("a/2.PNG", b'0', b"second"),
        member("a/2.json", b'0', br#"{"label": 4, "other": [1, {}]}"#),
        member("a/2.webp", b'0', b"a second image"),
        member("a/link.jpg", b'2', b""),
        member("././@LongLink", b'L', format!("{long}\0").as_bytes()),
        member(&long, b'0', b"third"),
        member("././@LongLink", b'L', format!("{}.cls\0", long.strip_suffix(".jpg").unwrap()).as_bytes()),
        member(&long, b'0', b"5"),
        member("x", b'x', pax.as_bytes()),
        member("cut", b'0', b"fourth"),
        member("x", b'x', pax.replace("jpg", "cls").as_bytes()),
        member("cut", b'0', b"6"),
        member("no image.cls", b'0', b"7"),
        member("no-ending", b'0', b""),
        vec![0; 1024],
    ];
    let path = shard(folder.path(), "a.tar", archive.concat());
    let source = one(RecordFormat::WebDataset, &path).unwrap();
    let want = [sample(b"first", 3), sample(b"second", 4), sample(b"third", 5), sample(b"fourth", 6)];
    assert_eq!(contents(&source)[..4], want);
    // A label without an image is not a sample, and does not vanish.
    assert!(contents(&source)[4].as_ref().unwrap_err().contains("no image has a label and no image"));
    // The second image, the link, and what has no ending.
    assert_eq!((source.len(), source.skipped_files()), (5, 3));
    assert!(source.name(1).ends_with("a.tar/a/2.PNG"), "{}", source.name(1));
    let options = no_index().image(Some("left.jpg".into())).label(Some("json.label".into()));
    let source = RecordShards::open(RecordFormat::WebDataset, &[path], &options).unwrap();
    assert_eq!(contents(&source), [sample(b"not by this ending", 4)]);
}

#[test]
fn labels_may_be_names_and_missing_ones_are_no_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let names =
        shard(folder.path(), "a.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"dog"), ("2.jpg", b"2"), ("2.cls", b"cat")]));
    let more = shard(folder.path(), "b.tar", tar(&[("3.jpg", b"3"), ("3.cls", b"ant"), ("4.jpg", b"4")]));
    let both = data_set(&folder.path().join("{a,b}.tar"));
    assert_eq!(both.classes(), ["ant", "cat", "dog"]);
    let [first, second, third, Err(fourth)] = &contents(&both)[..] else { panic!() };
    assert_eq!([first, second, third], [&sample(b"1", 2), &sample(b"2", 1), &sample(b"3", 0)]);
    assert!(fourth.contains("b.tar at byte") && fourth.contains("no label"), "{fourth}");
    let none = shard(folder.path(), "c.tar", tar(&[("1.jpg", b"1"), ("2.jpg", b"2")]));
    let none = one(RecordFormat::WebDataset, &none).unwrap();
    assert_eq!((contents(&none), none.has_labels()), (vec![unlabeled(b"1"), unlabeled(b"2")], false));
    let number = shard(folder.path(), "d.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"0")]));
    let mixed = RecordShards::open(RecordFormat::WebDataset, &[names, more, number], &RecordOptions::default());
    assert!(mixed.unwrap_err().to_string().contains(r#""ant" and "0""#));
}

#[test]
fn classes_that_are_given_number_names_in_any_order_and_in_streams() {
    let folder = tempfile::tempdir().unwrap();
    let jpeg = common::jpeg(20, 20, 1);
    let members: [(&str, &[u8]); 6] =
        [("1.jpg", &jpeg), ("1.cls", b"dog"), ("2.jpg", &jpeg), ("2.cls", b"cat"), ("3.jpg", &jpeg), ("3.cls", b"ant")];
    let path = shard(folder.path(), "a.tar", tar(&members));
    let numbers =
        shard(folder.path(), "n.tar", tar(&[("1.jpg", &jpeg), ("1.cls", b"1"), ("2.jpg", &jpeg), ("2.cls", b"2")]));
    let labels = |path: &Path, classes: &[&str], window| {
        let classes = classes.iter().map(|&class| class.to_owned()).collect();
        let records = no_index().classes(classes);
        let source = OpenOptions::default().records(records).window(window).open(path)?;
        let pipeline =
            Pipeline::builder(source).transform(Resize::new(Size::new(8, 8))).on_error(OnError::Skip).build()?;
        let mut epoch = pipeline.epoch(0);
        let mut labels = Vec::new();
        for batch in epoch.by_ref() {
            labels.extend(batch?.labels().unwrap().to_vec());
        }
        let bad: Vec<String> = epoch.bad().into_iter().map(|bad| bad.error).collect();
        Ok::<_, warpfeed::Error>((labels, bad, pipeline.classes().to_vec()))
    };
    for window in [None, Some(1)] {
        let (found, bad, classes) = labels(&path, &["dog", "cat"], window).unwrap();
        assert_eq!((found, classes), (vec![0, 1], vec!["dog".to_owned(), "cat".to_owned()]));
        assert!(bad.len() == 1 && bad[0].contains(r#"its label "ant" is not among the classes"#), "{bad:?}");
        let (found, bad, _) = labels(&numbers, &["dog", "cat"], window).unwrap();
        assert_eq!(found, [1]);
        assert!(bad.len() == 1 && bad[0].contains("label 2 has no name among the 2 classes"), "{bad:?}");
        assert!(labels(&path, &["dog", "dog"], window).unwrap_err().to_string().contains("dog twice"));
    }
    assert_eq!(labels(&path, &[], None).unwrap().0, [2, 1, 0]);
    assert!(labels(&path, &[], Some(1)).unwrap_err().to_string().contains("give the names of the classes"));
    assert!(labels(folder.path().join("a.txt").as_path(), &["a"], None).is_err());
}

#[test]
fn recordio_joins_parts_and_takes_the_first_label() {
    let folder = tempfile::tempdir().unwrap();
    let magic = MAGIC.to_le_bytes();
    let torn = [&b"1234"[..], &magic, b"5678", &magic, &magic, b"9"].concat();
    let unaligned = [&b"12"[..], &magic, b"34"].concat();
    let as_label = f32::from_le_bytes(magic);
    let records = [
        recordio(&[3.0], b"whole"),
        recordio(&[5.0, 6.0, 7.0], b"many labels"),
        recordio(&[4.0], &torn),
        recordio(&[9.0], &unaligned),
        recordio(&[1.0, as_label, 2.0], &torn),
        recordio(&[10.0, 20.0], b""),
        recordio(&[0.5], b"no class"),
    ];
    let path = shard(folder.path(), "a.rec", records.concat());
    let source = one(RecordFormat::RecordIo, &path).unwrap();
    let read = contents(&source);
    let want =
        [sample(b"whole", 3), sample(b"many labels", 5), sample(&torn, 4), sample(&unaligned, 9), sample(&torn, 1)];
    assert_eq!(read[..5], want);
    assert_eq!((source.len(), source.skipped_files()), (6, 1));
    assert!(read[5].as_ref().unwrap_err().contains("label is 0.5"), "{:?}", read[5]);
}

#[test]
fn tfrecord_finds_features_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let records = [
        example(&[bytes_feature("image/encoded", b"first"), int_feature("image/class/label", 3)]),
        example(&[
            int_feature("image/class/label", 300),
            feature("image/object/bbox", 2, &field(1, &[0; 400])),
            bytes_feature("image/encoded", &[7; 20_000]),
            bytes_feature("image/filename", b"x.jpg"),
        ]),
        // A number that is not packed, and an unknown field.
        example(&[
            feature("image/class/label", 3, &[0x08, 4]),
            bytes_feature("image/encoded", b"third"),
            vec![0x78, 1],
        ]),
        example(&[int_feature("image/class/label", 9)]),
        example(&[bytes_feature("image/encoded", b"minus"), int_feature("image/class/label", u64::MAX)]),
        example(&[bytes_feature("image", b"other names"), bytes_feature("label", b"2")]),
    ];
    let path = shard(folder.path(), "a.tfrecord", records.concat());
    let source = one(RecordFormat::TfRecord, &path).unwrap();
    let read = contents(&source);
    assert_eq!(read[..3], [sample(b"first", 3), sample(&[7; 20_000], 300), sample(b"third", 4)]);
    assert!(
        read[3].as_ref().unwrap_err().contains("a label and no image in the feature image/encoded"),
        "{:?}",
        read[3]
    );
    // -1 stands for no label.
    assert!(read[4].as_ref().unwrap_err().contains("it has no label, and others have"), "{:?}", read[4]);
    assert_eq!((source.len(), source.skipped_files()), (5, 1));
    let options = no_index().image(Some("image".into())).label(Some("label".into()));
    let source = RecordShards::open(RecordFormat::TfRecord, &[path], &options).unwrap();
    assert_eq!(contents(&source), [sample(b"other names", 2)]);
    assert_eq!(masked_crc(b"123456789"), 0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8));
}

/// Small shards of each format with the samples `count`, `label`.
fn formats(count: u8) -> [(RecordFormat, Vec<u8>); 3] {
    let image = |i: u8| vec![i; 40 + 13 * usize::from(i)];
    let cls = |i: u8| i.to_string().into_bytes();
    let mut archive: Vec<u8> = (0..count)
        .flat_map(|i| {
            let name = |ending| format!("{i:03}.{ending}");
            [member(&name("jpg"), b'0', &image(i)), member(&name("cls"), b'0', &cls(i))].concat()
        })
        .collect();
    archive.extend([0; 1024]);
    let records = (0..count).flat_map(|i| recordio(&[f32::from(i)], &image(i))).collect();
    let examples = (0..count).flat_map(|i| {
        example(&[bytes_feature("image/encoded", &image(i)), int_feature("image/class/label", i.into())])
    });
    [
        (RecordFormat::WebDataset, archive),
        (RecordFormat::RecordIo, records),
        (RecordFormat::TfRecord, examples.collect()),
    ]
}

#[test]
fn truncated_shards_keep_what_is_whole_and_say_where_they_end() {
    let folder = tempfile::tempdir().unwrap();
    for (format, whole) in formats(4) {
        let path = shard(folder.path(), "whole", &whole);
        let want = contents(&one(format, &path).unwrap());
        assert!(want.iter().all(Result::is_ok) && want.len() == 4);
        for len in (0..whole.len()).step_by(7) {
            let path = shard(folder.path(), "cut", &whole[..len]);
            let Ok(source) = one(format, &path) else { continue };
            let read = contents(&source);
            let (good, all) = (read.iter().filter(|read| read.is_ok()).count(), read.len());
            for (read, want) in read[..good].iter().zip(&want) {
                let (Ok((bytes, label)), Ok((want, of_want))) = (read, want) else { unreachable!() };
                // If the first sample's label is cut off, none has one, and the damage is told.
                let lost = good == 1 && label.is_none() && all > 1;
                assert!(bytes == want && (label == of_want || lost), "{format:?} cut to {len}: the first are whole");
            }
            for error in &read[good..] {
                let error = error.as_ref().unwrap_err();
                assert!(error.contains("cut at byte"), "{error}");
            }
            // Nothing is lost in silence.
            assert!(read.len() > good || ends_whole(format, len), "{format:?} {len}");
        }
    }
}

/// Whether `len` bytes of a shard of [`formats`] are a shard as well.
fn ends_whole(format: RecordFormat, len: usize) -> bool {
    let shards = (0..=4).flat_map(formats);
    format != RecordFormat::WebDataset && shards.into_iter().any(|(other, bytes)| other == format && bytes.len() == len)
}

/// The samples of a stream of one shard, or its error if it gives none.
fn streamed(format: RecordFormat, path: &Path) -> Result<Vec<Read>> {
    let options = StreamOptions { window: 1, records: no_index() };
    let stream = RecordStream::open(format, [path.to_owned()], options).unwrap();
    let mut samples = stream.begin(&StreamStart::whole(0)).unwrap();
    let mut all = Vec::new();
    loop {
        match samples.next() {
            Ok(Some(sample)) => all.push(Ok((sample.bytes, sample.label))),
            Ok(None) => return Ok(all),
            Err(error) if error.is_bad_sample() => all.push(Err(error.to_string())),
            Err(error) => return Err(error),
        }
    }
}

/// Checks that random access and a stream give the same samples and the same bad ones, and returns them; `None` if
/// there are none at all, which both must report.
fn read_both_ways(format: RecordFormat, path: &Path, what: &str) -> Option<Vec<Read>> {
    let stream = streamed(format, path);
    match one(format, path) {
        // Labels that damage made names: a stream refuses names, and random access a mixture.
        Ok(source) if !source.classes().is_empty() => {
            assert!(stream.is_err(), "{what}");
            None
        }
        Ok(source) => {
            let read = contents(&source);
            assert_eq!(stream.unwrap(), read, "{what}");
            Some(read)
        }
        Err(error) if error.to_string().contains("all numbers or all names") => {
            assert!(stream.is_err(), "{what}");
            None
        }
        Err(error) if error.is_bad_sample() => {
            let found = stream.unwrap();
            assert!(found.iter().all(Result::is_err), "{what}");
            assert_eq!(found[0], Err(error.to_string()), "{what}");
            Some(found)
        }
        Err(error) => {
            assert_eq!(stream.unwrap_err().to_string(), error.to_string(), "{what}");
            None
        }
    }
}

#[test]
fn damage_is_the_same_in_random_access_and_in_streams() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    for (format, whole) in formats(6) {
        for round in 0..600 {
            let mut bytes = whole.clone();
            for _ in 0..random.within(1, 3) {
                let at = random.within(0, bytes.len() as u32 - 1) as usize;
                let len = (1 << random.within(0, 12)).min(bytes.len() - at);
                match random.within(0, 4) {
                    0 => bytes[at] ^= 1 << random.within(0, 7),
                    1 => bytes[at] = random.next() as u8,
                    2 => bytes[at..at + len].fill(0),
                    3 => bytes.truncate(at.max(40)),
                    _ => drop(bytes.splice(at / 512 * 512..at / 512 * 512, vec![0; 512 * (1 + len % 100)])),
                }
            }
            let path = shard(folder.path(), "damaged", &bytes);
            read_both_ways(format, &path, &format!("{format:?}, round {round}"));
        }
    }
}

/// Members of `count` samples, and how long each pair of them is.
fn members(count: u8) -> Vec<Vec<u8>> {
    let pair = |i: u8| {
        let name = |ending| format!("{i:03}.{ending}");
        [member(&name("jpg"), b'0', &[i; 700]), member(&name("cls"), b'0', &i.to_string().into_bytes())].concat()
    };
    (0..count).map(pair).collect()
}

#[test]
fn an_archive_that_does_not_end_as_archives_do_has_one_bad_record() {
    let folder = tempfile::tempdir().unwrap();
    let pairs = members(6);
    let (two, rest, end) = (pairs[..2].concat(), pairs[2..].concat(), vec![0; 1024]);
    let at = two.len();
    let all: Vec<u8> = pairs.concat();
    let says = |bytes: &[u8], good: usize, offset: usize, says: &str| {
        let path = shard(folder.path(), "a.tar", bytes);
        let read = read_both_ways(RecordFormat::WebDataset, &path, says).unwrap();
        assert_eq!(read.iter().filter(|read| read.is_ok()).count(), good, "{says}: {read:?}");
        assert_eq!(read.len(), good + 1, "{says}");
        let error = read[good].as_ref().unwrap_err();
        assert!(error.contains(&format!("a.tar at byte {offset}: ")) && error.contains(says), "{error}");
    };
    for zeros in [1, 2, 64, 65, 300] {
        says(&[&two[..], &vec![0; 512 * zeros], &rest, &end].concat(), 2, at, "followed by more");
    }
    says(&[&two[..], &vec![0; rest.len() + 40_000]].concat(), 2, at, "bytes of zeros follow");
    says(&two, 2, at, "ends without the two blocks of zeros");
    says(&[&two[..], &[0; 512]].concat(), 2, at, "ends without the two blocks of zeros");
    says(&all[..at + 100], 2, at, "in the middle of a header");
    says(&all[..at + 600], 2, at, "followed by only");
    says(&[], 0, 0, "ends without the two blocks of zeros");
    says(&vec![0; 100_000], 0, 0, "bytes of zeros follow");
    // What writers leave: two blocks, filled up to records of 20 blocks, or of more.
    for filled in [1024, 10_240, 131_072, 1 << 20] {
        let mut bytes = [&all[..], &end].concat();
        bytes.resize(bytes.len().next_multiple_of(filled), 0);
        let path = shard(folder.path(), "a.tar", bytes);
        let read = read_both_ways(RecordFormat::WebDataset, &path, "whole").unwrap();
        assert!(read.len() == 6 && read.iter().all(Result::is_ok), "filled up to {filled}");
    }
}

#[test]
fn samples_of_one_key_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    let images: Vec<Vec<u8>> = (0..6_u8).map(|i| vec![i; 100]).collect();
    let members: Vec<(&str, &[u8])> =
        images.iter().flat_map(|image| [("same.jpg", &image[..]), ("same.cls", &b"3"[..])]).collect();
    let path = shard(folder.path(), "a.tar", tar(&members));
    let read = read_both_ways(RecordFormat::WebDataset, &path, "one key").unwrap();
    assert_eq!(read, images.iter().map(|image| sample(image, 3)).collect::<Vec<_>>());
}

#[test]
fn input_without_a_sample_is_an_error_that_says_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (format, bytes, says) in [
        (RecordFormat::WebDataset, tar(&[("notes.txt", b"none")]), "parts ending in .jpg"),
        (RecordFormat::WebDataset, vec![0; 10_240], "parts ending in .jpg"),
        (RecordFormat::RecordIo, recordio(&[1.0, 2.0], b""), "records that hold an image"),
        (RecordFormat::RecordIo, Vec::new(), "records that hold an image"),
        (RecordFormat::TfRecord, example(&[bytes_feature("picture", b"1")]), "feature image/encoded"),
        (RecordFormat::TfRecord, Vec::new(), "feature image/encoded"),
    ] {
        let path = shard(folder.path(), "empty", bytes);
        assert!(read_both_ways(format, &path, says).is_none());
        let error = one(format, &path).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
    }
}

#[test]
fn damage_that_takes_a_records_image_is_found_by_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, (format, whole)] = formats(3);
    let name = b"image/encoded";
    let at = whole.windows(name.len()).enumerate().filter(|(_, bytes)| bytes == name).nth(1).unwrap().0;
    let mut bytes = whole;
    bytes[at] ^= 1;
    let read = read_both_ways(format, &shard(folder.path(), "a.tfrecord", bytes), "damaged").unwrap();
    assert!(read.len() == 3 && read[0].is_ok() && read[2].is_ok());
    assert!(read[1].as_ref().unwrap_err().contains("checksum of the record's data is wrong"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_giant_index_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), "a.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"1")]));
    open(&path).unwrap();
    // As long as a terabyte, more than memory, and with a header that is right.
    let index = folder.path().join(".a.tar.warpfeed-index");
    fs::OpenOptions::new().write(true).open(&index).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(contents(&data_set(&path)), [sample(b"1", 1)]);
    assert!(fs::metadata(&index).unwrap().len() < 1000, "it is made anew");
}

#[test]
#[cfg(unix)]
fn pipes_where_files_should_be_are_errors_and_no_waits() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let path = folder.path().join(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let refused = |outcome: Result<Box<dyn Source>>| {
        let error = outcome.err().unwrap().to_string();
        assert!(error.contains("regular file"), "{error}");
    };
    // An index that is a pipe is left alone.
    let path = shard(folder.path(), "a.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"1")]));
    pipe(".a.tar.warpfeed-index");
    assert_eq!(contents(&data_set(&path)), [sample(b"1", 1)]);
    let records = RecordShards::open(RecordFormat::WebDataset, &[pipe("b.tar")], &no_index());
    refused(records.map(|source| Box::new(source) as Box<dyn Source>));
    refused(ListFile::open(pipe("list.tsv")).map(|source| Box::new(source) as Box<dyn Source>));
    refused(IdxFile::open(pipe("images-idx3-ubyte")).map(|source| Box::new(source) as Box<dyn Source>));
    // Images that are pipes are bad samples.
    fs::write(folder.path().join("names.tsv"), "image.jpg\t0\n").unwrap();
    pipe("image.jpg");
    let list = ListFile::open(folder.path().join("names.tsv")).unwrap();
    let error = list.encoded(0).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("image.jpg"), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn more_shards_than_may_be_open_are_read() {
    // In a process of its own, which may open 40 files.
    if std::env::var_os("WARPFEED_TEST_FEW_FILES").is_none() {
        let test =
            "ulimit -n 40 && exec \"$0\" --exact records::more_shards_than_may_be_open_are_read --test-threads 1";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", test]).arg(std::env::current_exe().unwrap()).env("WARPFEED_TEST_FEW_FILES", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shards: Vec<PathBuf> = (0..100_u8)
        .map(|i| shard(folder.path(), &format!("{i:03}.tar"), tar(&[("1.jpg", &[i; 9]), ("1.cls", b"1")])))
        .collect();
    let source = RecordShards::open(RecordFormat::WebDataset, &shards, &no_index()).unwrap();
    for _ in 0..2 {
        let want: Vec<_> = (0..100).map(|i| sample(&[i; 9], 1)).collect();
        assert_eq!(contents(&source), want);
    }
    let _others: Vec<fs::File> = (0..15).map(|_| fs::File::open(&shards[0]).unwrap()).collect();
}

#[test]
fn damaged_bytes_never_panic_or_invent_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    for (format, whole) in formats(5) {
        for round in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..random.within(1, 4) {
                let at = random.within(0, bytes.len() as u32 - 1) as usize;
                match random.within(0, 3) {
                    0 => bytes[at] ^= 1 << random.within(0, 7),
                    1 => bytes[at] = random.next() as u8,
                    2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
                    _ => drop(bytes.drain(at..(at + random.within(1, 40) as usize).min(whole.len() - 40).max(at))),
                }
            }
            let path = shard(folder.path(), "damaged", &bytes);
            let Ok(source) = one(format, &path) else { continue };
            let read = contents(&source);
            assert!(read.len() <= 8, "{format:?}, round {round}: {} samples", read.len());
            for i in 0..source.len() {
                source.name(i);
            }
        }
    }
}

#[test]
fn lies_about_lengths_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut huge = member("1.jpg", b'0', b"x");
    // Binary, and 2^62 bytes.
    huge[124..136].copy_from_slice(b"\x80\0\0\0\x40\0\0\0\0\0\0\0");
    seal(&mut huge);
    let mut name = member("././@LongLink", b'L', &[b'a'; 2000]);
    name[124..135].copy_from_slice(b"77777777777");
    seal(&mut name);
    let len = (1_u64 << 62).to_le_bytes();
    let head = [&len[..], &masked_crc(&len).to_le_bytes()].concat();
    let cases: [(RecordFormat, Vec<u8>, &str); 6] = [
        (RecordFormat::WebDataset, huge, "followed by only"),
        (RecordFormat::WebDataset, name, "followed by only"),
        (RecordFormat::WebDataset, [tar(&[]), tar(&[("1.jpg", b"1")])].concat(), "another archive"),
        (RecordFormat::RecordIo, [MAGIC.to_le_bytes(), 0x1fff_ffff_u32.to_le_bytes()].concat(), "followed by only"),
        (RecordFormat::TfRecord, [head, vec![0; 100]].concat(), "followed by only"),
        (RecordFormat::TfRecord, vec![0x1f; 100], "compressed"),
    ];
    for (format, bytes, says) in cases {
        let path = shard(folder.path(), "lie", bytes);
        let error = one(format, &path).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains("lie at byte 0"), "{error}");
    }
}

#[test]
fn a_wrong_checksum_costs_one_sample() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, (format, mut bytes)] = formats(3);
    let first = bytes.windows(2).position(|pair| pair == [1, 1]).unwrap();
    bytes[first] ^= 4;
    let source = one(format, &shard(folder.path(), "a.tfrecord", bytes)).unwrap();
    let read = contents(&source);
    assert!(read[0].is_ok() && read[2].is_ok());
    assert!(read[1].as_ref().unwrap_err().contains("checksum of the record's data is wrong"));
}

#[test]
fn an_index_is_kept_beside_the_shard_and_made_anew_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = shard(folder.path(), "a.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"1")]));
    let index = folder.path().join(".a.tar.warpfeed-index");
    assert_eq!(contents(&data_set(&path)), [sample(b"1", 1)]);
    let kept = fs::read(&index).unwrap();
    // An index that says otherwise is believed as long as the shard is the same, so its data are read.
    let modified = fs::metadata(&index).unwrap().modified().unwrap();
    assert_eq!(contents(&data_set(&path)), [sample(b"1", 1)]);
    assert_eq!(fs::metadata(&index).unwrap().modified().unwrap(), modified, "not written again");
    shard(folder.path(), "a.tar", tar(&[("1.jpg", b"1"), ("1.cls", b"1"), ("2.jpg", b"2"), ("2.cls", b"2")]));
    assert_eq!(contents(&data_set(&path)), [sample(b"1", 1), sample(b"2", 2)]);
    assert_ne!(fs::read(&index).unwrap(), kept);
    fs::write(&index, b"rubbish").unwrap();
    assert_eq!(data_set(&path).len(), 2);
}

/// Replaces a file by one of the same length and modification time, in its place or under its name.
fn replaced(path: &Path, bytes: Vec<u8>, in_place: bool) {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), bytes.len() as u64);
    let to = if in_place { path.to_owned() } else { path.with_extension("new") };
    fs::write(&to, bytes).unwrap();
    fs::File::options().write(true).open(&to).unwrap().set_modified(before.modified().unwrap()).unwrap();
    fs::rename(&to, path).unwrap();
    assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), before.modified().unwrap());
}

#[test]
#[cfg(unix)]
fn an_index_is_not_that_of_another_shard_with_the_same_size_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let number =
        |label: f32| vec![bytes_feature("image/encoded", b"one"), int_feature("image/class/label", label as u64)];
    type Made = dyn Fn(f32) -> Vec<u8>;
    let made: [(&str, Box<Made>); 3] = [
        ("tar", Box::new(|label| tar(&[("1.jpg", b"one"), ("1.cls", label.to_string().as_bytes())]))),
        ("tfrecord", Box::new(move |label| example(&number(label)))),
        ("rec", Box::new(|label| recordio(&[label], b"one"))),
    ];
    for (name, bytes) in made {
        let path = shard(folder.path(), &format!("a.{name}"), bytes(1.0));
        for (label, in_place) in [(2, true), (3, false), (4, true)] {
            // The index is made, and made anew.
            let _ = data_set(&path);
            replaced(&path, bytes(label as f32), in_place);
            assert_eq!(contents(&data_set(&path)), [sample(b"one", label)], "{name}, in place: {in_place}");
        }
    }
}

#[test]
#[cfg(unix)]
fn a_shard_that_is_replaced_while_it_is_used_gives_no_wrong_image() {
    let folder = tempfile::tempdir().unwrap();
    let one = tar(&[("1.jpg", b"one"), ("1.cls", b"1"), ("2.jpg", b"two"), ("2.cls", b"2")]);
    let other = tar(&[("1.cls", b"2"), ("1.jpg", b"two"), ("2.cls", b"1"), ("2.jpg", b"one")]);
    let path = shard(folder.path(), "a.tar", &one);
    let source = data_set(&path);
    replaced(&path, other.clone(), true);
    let error = source.encoded(0).unwrap_err().to_string();
    assert!(error.contains("a.tar") && error.contains("changed since"), "{error}");
    let source = data_set(&path);
    replaced(&path, one, false);
    let error = source.encoded(0).unwrap_err().to_string();
    assert!(error.contains("a.tar") && error.contains("replaced since"), "{error}");
}

#[test]
fn a_shard_that_shrinks_while_it_is_used_is_an_error_of_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    for (format, whole) in formats(4) {
        let path = shard(folder.path(), "shrinks", &whole);
        let source = one(format, &path).unwrap();
        assert!(source.encoded(0).is_ok());
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        let error = source.encoded(3).unwrap_err();
        assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("shrinks"), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn open_tells_shards_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        (RecordFormat::WebDataset, ["a-1.tar", "a-0.tar"]),
        (RecordFormat::RecordIo, ["a.rec", "b.REC"]),
        (RecordFormat::TfRecord, ["t-00000-of-00002", "t-00001-of-00002"]),
    ];
    for (format, names) in names {
        let set = folder.path().join(format!("{format:?}"));
        fs::create_dir(&set).unwrap();
        let bytes = formats(3).into_iter().find(|(other, _)| *other == format).unwrap().1;
        for name in names {
            shard(&set, name, &bytes);
            assert_eq!(data_set(&set.join(name)).len(), 3);
        }
        shard(&set, "a.idx", "0\t0\n");
        assert_eq!(data_set(&set).len(), 6, "a folder of shards");
        assert_eq!(open(set.join("*[012]")).is_ok(), format == RecordFormat::TfRecord);
    }
    let set = folder.path().join("TfRecord");
    fs::remove_file(set.join("t-00000-of-00002")).unwrap();
    let error = open(&set).err().unwrap();
    assert!(error.is_parameter() && error.to_string().contains("all 2 shards"), "{error}");
    let mixed = open(folder.path().join("{WebDataset/a-0.tar,RecordIo/a.rec}")).err().unwrap();
    assert!(mixed.to_string().contains("files of one format"), "{mixed}");
    let packed = shard(folder.path(), "a.tar.gz", [0x1f, 0x8b]);
    assert!(matches!(open(packed).err().unwrap(), Error::Unsupported { .. }));
}

#[test]
#[cfg(unix)]
fn links_in_circles_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("b.tar", folder.path().join("a.tar")).unwrap();
    std::os::unix::fs::symlink("a.tar", folder.path().join("b.tar")).unwrap();
    assert!(matches!(open(folder.path().join("a.tar")).err().unwrap(), Error::Io { .. }));
    assert!(open(folder.path().join("*.tar")).is_err());
}
