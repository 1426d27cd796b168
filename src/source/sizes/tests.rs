use super::*;
use crate::apply::{ApplyOptions, apply};
use crate::encode::{JpegOptions, encode_jpeg, encode_png};
use crate::raster::Image;
use crate::source::{
    DecodedImages, EncodedImages, ImageFolder, ListFile, ReadRequest, RecordFormat, RecordOptions, RecordShards,
    Sample, SourceExt,
};
use crate::tensor::{DType, Layout};
use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

const SIZE: Size = Size { width: 40, height: 30 };

/// The size that decoding gives.
fn decoded(bytes: &[u8], orientation: Orientation) -> Option<Size> {
    let options = ApplyOptions::default().dtype(DType::U8).layout(Layout::Nhwc).orientation(orientation);
    let [_, height, width, _] = apply(bytes, &[], &options).ok()?.shape();
    Some(Size::new(width as u32, height as u32))
}

fn exif(orientation: u8) -> Vec<u8> {
    [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[orientation, 0, 0, 0, 0, 0, 0, 0]].concat()
}

fn jpeg(size: Size, orientation: u8) -> Vec<u8> {
    let options = JpegOptions { orientation: Some(orientation.into()), ..JpegOptions::default() };
    encode_jpeg(&Image::new(size), &options).unwrap()
}

/// A PNG with a chunk before or after the pixels.
fn png(size: Size, orientation: u8, after: bool) -> Vec<u8> {
    let mut noise = Image::new(size);
    let mut state = 1_u32;
    for y in 0..size.height {
        for value in noise.row_mut(y).as_flattened_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = (state >> 24) as u8;
        }
    }
    let (png, exif) = (encode_png(&noise).unwrap(), exif(orientation));
    let checksum = crc32(&[&b"eXIf"[..], &exif].concat());
    let chunk = [&(exif.len() as u32).to_be_bytes()[..], b"eXIf", &exif, &checksum.to_be_bytes()].concat();
    let name: &[u8] = if after { b"IEND" } else { b"IDAT" };
    let at = png.windows(4).rposition(|found| found == name).unwrap() - 4;
    [&png[..at], &chunk, &png[at..]].concat()
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 })
    })
}

/// A WebP of these pixels, in the extended format, with EXIF data at its end.
fn webp(simple: &[u8], orientation: u8) -> Vec<u8> {
    let chunk =
        |name: &[u8], data: &[u8]| [name, &(data.len() as u32).to_le_bytes(), data, &[0][..data.len() & 1]].concat();
    let Size { width, height } = crate::decode::probe(simple).unwrap().size;
    let [w, h] = [width - 1, height - 1].map(u32::to_le_bytes);
    let first = chunk(b"VP8X", &[8, 0, 0, 0, w[0], w[1], w[2], h[0], h[1], h[2]]);
    // A chunk that decoders skip makes the file longer than what is read first.
    let filling = chunk(b"fill", &[0; 50_001]);
    let body = [b"WEBP", &first[..], &simple[12..], &filling, &chunk(b"EXIF", &exif(orientation))].concat();
    [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// Images of all formats, turned in all ways, with what comes before or after their headers.
fn files() -> Vec<(String, Vec<u8>)> {
    let simple = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/images");
    let mut files = Vec::new();
    for orientation in 1..=8 {
        let mut add = |name: &str, bytes| files.push((format!("{name}-{orientation}"), bytes));
        let jpeg = jpeg(SIZE, orientation);
        let profile = [&b"\xFF\xE2\xC8\x02"[..], &[7; 51_200]].concat();
        add("large.jpg", [&jpeg[..2], &profile, &profile, &jpeg[2..]].concat());
        add("plain.jpg", jpeg);
        add("before.png", png(SIZE, orientation, false));
        add("after.png", png(SIZE, orientation, true));
        // The chunk comes after the bytes that are read first.
        let large = png(Size::new(200, 150), orientation, true);
        assert!(large.len() > 50_000);
        add("large.png", large);
        for of in ["lossy.webp", "lossless.webp"] {
            add(of, webp(&fs::read(simple.join(of)).unwrap(), orientation));
        }
    }
    for name in ["progressive.jpg", "cmyk.jpg", "lossless-gray.jpg", "grey-alpha.png", "palette.png", "alpha.webp"] {
        files.push((name.to_owned(), fs::read(simple.join(name)).unwrap()));
    }
    files.push(("gray.pgm".to_owned(), [&b"P5\n# comment\n40 30\n255\n"[..], &[9; 1200]].concat()));
    files
}

fn folder(files: &[(String, Vec<u8>)]) -> (tempfile::TempDir, ImageFolder) {
    let root = tempfile::tempdir().unwrap();
    for (i, (name, bytes)) in files.iter().enumerate() {
        let ending = name.split(['.', '-']).find(|part| ["jpg", "png", "webp", "pgm"].contains(part)).unwrap();
        fs::write(root.path().join(format!("{i:05}-{name}.{ending}")), bytes).unwrap();
    }
    let source = ImageFolder::open(root.path()).unwrap();
    (root, source)
}

fn scan(source: &dyn Source) -> ImageSizes {
    ImageSizes::scan(source, Orientation::Apply, 2).unwrap()
}

#[test]
fn sizes_are_those_that_decoding_gives() {
    let files = files();
    let (_root, source) = folder(&files);
    let in_memory = EncodedImages::new(files.iter().map(|(_, bytes)| (bytes.clone(), 0)));
    assert_eq!(source.len(), files.len() as u64);
    for orientation in [Orientation::Apply, Orientation::Ignore] {
        for source in [&source as &dyn Source, &in_memory] {
            let sizes = ImageSizes::scan(source, orientation, 2).unwrap();
            assert_eq!((sizes.len(), sizes.bad(), sizes.bad_count()), (files.len() as u64, &[][..], 0));
            for ((name, bytes), size) in files.iter().zip(sizes.iter()) {
                assert!(size.is_some());
                assert_eq!(size, decoded(bytes, orientation), "{name}");
            }
        }
    }
    // Half of the turned ones lie.
    let lying = scan(&source).iter().flatten().filter(|size| *size == SIZE.transposed()).count();
    assert_eq!(lying, 4 * 4);
}

#[test]
fn truncated_files_have_the_size_of_their_header_or_are_bad() {
    let mut cut = vec![("empty.jpg".to_owned(), Vec::new()), ("text.png".to_owned(), b"no image".to_vec())];
    for (name, bytes) in files().into_iter().filter(|(name, _)| name.ends_with("-6") || name.ends_with(".pgm")) {
        for len in [2, 11, 29, 60, 300, bytes.len() / 2, bytes.len() - 20] {
            cut.push((name.clone(), bytes[..len.min(bytes.len())].to_vec()));
        }
    }
    let (_root, source) = folder(&cut);
    let sizes = scan(&source);
    let mut bad = Vec::new();
    for (i, (name, bytes)) in cut.iter().enumerate() {
        let upright = |header: crate::decode::Header| match header.orientation {
            5.. => header.size.transposed(),
            _ => header.size,
        };
        let header = crate::decode::probe(bytes).map(upright);
        assert_eq!(sizes.get(i as u64), header.as_ref().ok().copied(), "{name}, {} bytes", bytes.len());
        if let Err(error) = header {
            bad.push((i as u64, error.to_string()));
        }
    }
    assert!(bad.len() > 10 && bad.len() < cut.len());
    assert_eq!((sizes.bad(), sizes.bad_count()), (&bad[..], bad.len() as u64));
}

#[test]
fn records_subsets_and_lists_are_read_by_parts() {
    let files = files();
    let (root, in_folder) = folder(&files);
    let want: Vec<Option<Size>> = scan(&in_folder).iter().collect();
    let shards = root.path().join("shards");
    fs::create_dir(&shards).unwrap();
    let pack = |format: RecordFormat, name: &str| {
        let path = shards.join(name);
        let mut bytes = Vec::new();
        for (index, (_, image)) in files.iter().enumerate() {
            let sample = crate::source::records::NewSample {
                index: index as u64,
                label: Some(1),
                image,
                ending: "jpg",
                target: None,
                fields: &[],
            };
            format.rules().write(&sample, &mut bytes).unwrap();
        }
        if format == RecordFormat::WebDataset {
            bytes.extend([0; 1024]);
        }
        fs::write(&path, bytes).unwrap();
        RecordShards::open(format, &[path], &RecordOptions { keep_index: false, ..RecordOptions::default() }).unwrap()
    };
    for (format, name) in
        [(RecordFormat::WebDataset, "a.tar"), (RecordFormat::RecordIo, "a.rec"), (RecordFormat::TfRecord, "a.tfrecord")]
    {
        let source = pack(format, name);
        assert_eq!(scan(&source).iter().collect::<Vec<_>>(), want, "{name}");
        let subset = source.clone().subset([7, 3, 50]).unwrap();
        assert_eq!(scan(&subset).iter().collect::<Vec<_>>(), [7, 3, 50].map(|i: usize| want[i]));
        let kept = shards.join("sizes");
        let first = ImageSizes::scan_kept(&source, Orientation::Apply, 2, &kept).unwrap();
        let again = ImageSizes::scan_kept(&subset, Orientation::Apply, 2, &kept).unwrap();
        assert_eq!((first.read_count(), again.read_count()), (files.len() as u64, 0), "{name}");
        assert_eq!(again.iter().collect::<Vec<_>>(), [7, 3, 50].map(|i: usize| want[i]));
        fs::remove_file(kept).unwrap();
    }
    let list = ListFile::unlabeled((0..in_folder.len()).map(|i| in_folder.path(i)));
    assert_eq!(scan(&list).iter().collect::<Vec<_>>(), want);
}

#[test]
fn sources_that_know_the_size_are_not_read() {
    let source = DecodedImages::new((0..3).map(|label| (SIZE, vec![7; 3600], label))).unwrap();
    let sizes = scan(&source);
    assert_eq!((sizes.iter().collect::<Vec<_>>(), sizes.read_count()), (vec![Some(SIZE); 3], 0));
    let other = DecodedImages::new([(SIZE, vec![7; 3600], 0), (Size::new(1, 2), vec![7; 6], 1)]).unwrap();
    assert_eq!(scan(&other).iter().collect::<Vec<_>>(), [Some(SIZE), Some(Size::new(1, 2))]);
    let given = ImageSizes::from_sizes(vec![SIZE, Size::new(0, 7)]);
    assert_eq!((given.get(0), given.get(1), given.get(2), given.bad_count()), (Some(SIZE), None, None, 1));
}

#[test]
fn only_changed_files_are_read_again() {
    let images: Vec<_> = (1..200).map(|i| ("a.jpg".to_owned(), jpeg(Size::new(i, 5), 1))).collect();
    let (root, source) = folder(&images);
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("sizes");
    let scan = |source: &ImageFolder| {
        let kept = ImageSizes::scan_kept(source, Orientation::Apply, 2, &file).unwrap();
        assert_eq!(
            kept.iter().collect::<Vec<_>>(),
            super::ImageSizes::scan(source, Orientation::Apply, 1).unwrap().iter().collect::<Vec<_>>()
        );
        kept.read_count()
    };
    let stored = || fs::metadata(&file).unwrap().modified().unwrap();
    assert_eq!(scan(&source), 199);
    let first = stored();
    assert_eq!((scan(&source), stored()), (0, first));
    // Of the same length, and with the modification time that it had.
    let changed = source.path(3);
    let time = fs::metadata(&changed).unwrap().modified().unwrap();
    let other = jpeg(Size::new(9, 5), 1);
    let len = fs::metadata(&changed).unwrap().len() as usize;
    fs::write(&changed, [&other[..], &vec![0; len.saturating_sub(other.len())]].concat()).unwrap();
    fs::File::options().write(true).open(&changed).unwrap().set_modified(time).unwrap();
    assert_eq!(scan(&source), 1);
    assert_eq!(scan(&source), 0);
    // Another file before all others: all numbers are others.
    fs::write(root.path().join("00000-.jpg"), &other).unwrap();
    let more = ImageFolder::open(root.path()).unwrap();
    assert_eq!((scan(&more), scan(&more)), (1, 0));
    fs::write(source.path(0), b"no image").unwrap();
    assert_eq!((scan(&more), scan(&more)), (1, 1));
    assert_eq!(scan(&source), 1);
    // The other orientation has its own.
    let kept = |orientation| ImageSizes::scan_kept(&source, orientation, 1, &file).unwrap().read_count();
    assert_eq!((kept(Orientation::Ignore), kept(Orientation::Ignore), kept(Orientation::Apply)), (199, 1, 199));
}

#[test]
fn a_damaged_file_is_ignored_and_a_strange_one_is_left_alone() {
    let (_root, source) = folder(&[("a.jpg".to_owned(), jpeg(SIZE, 6)), ("b.jpg".to_owned(), jpeg(SIZE, 1))]);
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("sizes");
    let scan = || ImageSizes::scan_kept(&source, Orientation::Apply, 1, &file);
    scan().unwrap();
    let whole = fs::read(&file).unwrap();
    for i in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[i] ^= 0x10;
        for bytes in [&damaged[..], &whole[..i]] {
            fs::write(&file, bytes).unwrap();
            if bytes.starts_with(b"wfsizes") || bytes.len() < 8 && b"wfsizes".starts_with(bytes) {
                let sizes = scan().unwrap();
                assert_eq!((sizes.read_count(), sizes.get(0)), (2, Some(SIZE.transposed())), "byte {i}");
                assert_eq!(fs::read(&file).unwrap(), whole);
            } else {
                assert!(scan().unwrap_err().is_parameter(), "byte {i}");
                assert_eq!(fs::read(&file).unwrap(), bytes);
            }
        }
    }
    let missing = ImageSizes::scan_kept(&source, Orientation::Apply, 1, &keep.path().join("none/sizes"));
    assert!(missing.unwrap_err().to_string().contains("none/sizes"));
}

/// A source of a program's own, which fails at some samples.
struct Failing(fn(u64) -> Result<()>, AtomicU64);

impl Source for Failing {
    fn len(&self) -> u64 {
        5_000
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        self.1.fetch_add(1, Relaxed);
        (self.0)(index)?;
        *sample.buffer() = b"P5 3 2 255 abcdef".to_vec();
        Ok(())
    }

    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("number {index}").into()
    }
}

#[test]
fn bad_images_are_counted_and_faults_of_the_machine_end_the_scan() {
    let scan = |fail| ImageSizes::scan(&Failing(fail, AtomicU64::new(0)), Orientation::Apply, 3);
    let bad = scan(|index| if index % 3 == 1 { Err(Error::foreign_sample(format!("row {index}"))) } else { Ok(()) });
    let bad = bad.unwrap();
    assert_eq!((bad.bad_count(), bad.bad().len(), bad.get(2)), (1_667, MAX_MESSAGES, Some(Size::new(3, 2))));
    assert!(
        bad.bad()
            .iter()
            .zip(0..)
            .all(|((index, message), i)| *index == 3 * i + 1 && *message == format!("row {index}"))
    );

    let source = Failing(
        |index| if index == 70 { Err(Error::foreign("the server is gone")) } else { Ok(()) },
        AtomicU64::new(0),
    );
    let error = ImageSizes::scan(&source, Orientation::Apply, 1).unwrap_err();
    assert_eq!(error.to_string(), "sample 70 (number 70): the server is gone");
    assert_eq!(source.1.load(Relaxed), 71);
    for kind in [13, 5, 24] {
        let error = scan(match kind {
            13 => |_| Err(Error::io("read", "x")(std::io::Error::from_raw_os_error(13))),
            5 => |_| Err(Error::io("read", "x")(std::io::Error::from_raw_os_error(5))),
            _ => |_| Err(Error::io("read", "x")(std::io::Error::from_raw_os_error(24))),
        });
        assert!(matches!(error, Err(Error::Sample { .. })), "{kind}");
    }
    let panicked = scan(|index| if index == 4_000 { panic!("a defect") } else { Ok(()) }).unwrap_err();
    assert!(panicked.to_string().contains("number 4000") && panicked.to_string().contains("a defect"), "{panicked}");
    assert!(ImageSizes::scan(&EncodedImages::default(), Orientation::Apply, 0).unwrap().is_empty());
    let many = ImageSizes::scan(&EncodedImages::default(), Orientation::Apply, MAX_THREADS + 1);
    assert!(many.unwrap_err().is_parameter());
}

#[test]
fn missing_files_are_bad_images() {
    let (root, source) = folder(&[("a.jpg".to_owned(), jpeg(SIZE, 6)), ("b.jpg".to_owned(), jpeg(SIZE, 1))]);
    fs::remove_file(source.path(0)).unwrap();
    let sizes = scan(&source);
    assert_eq!((sizes.get(0), sizes.get(1), sizes.bad_count()), (None, Some(SIZE), 1));
    assert!(sizes.bad()[0].1.contains(root.path().to_str().unwrap()));
}

/// A source of a version for each sample, as shards have.
struct Versions(u64);

impl Source for Versions {
    fn len(&self) -> u64 {
        self.0
    }

    fn read<'a>(&'a self, _index: u64, _want: &ReadRequest<'_>, _sample: &mut Sample<'a>) -> Result<()> {
        unreachable!()
    }

    fn image_version(&self, index: u64) -> Option<u64> {
        Some(index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, _index: u64) -> Cow<'_, str> {
        "".into()
    }
}

/// Times that depend on the machine: `WARPFEED_PHOTOS` names a folder of JPEGs.
#[test]
#[ignore = "measures: run it alone, in release mode, with WARPFEED_PHOTOS"]
fn speed() {
    let file = tempfile::tempdir().unwrap().path().with_extension("sizes");
    let source = Versions(10_000_000);
    let versions: Vec<u64> = (0..source.0).map(|index| source.image_version(index).unwrap()).collect();
    kept::store(&file, Orientation::Apply, &versions, &vec![SIZE; versions.len()]).unwrap();
    for threads in [1, 2] {
        let start = Instant::now();
        let sizes = ImageSizes::scan_kept(&source, Orientation::Apply, threads, &file).unwrap();
        println!("{} kept sizes, {threads} threads: {:.3} s", sizes.len(), start.elapsed().as_secs_f64());
        assert_eq!(sizes.read_count(), 0);
    }
    fs::remove_file(&file).unwrap();
    let Some(photos) = std::env::var_os("WARPFEED_PHOTOS").map(PathBuf::from) else { return };
    let source = ImageFolder::below(photos).unwrap();
    for round in 0..3 {
        for kept in [false, true] {
            let start = Instant::now();
            let sizes = match kept {
                true => ImageSizes::scan_kept(&source, Orientation::Apply, 1, &file).unwrap(),
                false => ImageSizes::scan(&source, Orientation::Apply, 1).unwrap(),
            };
            let seconds = start.elapsed().as_secs_f64();
            let rate = sizes.len() as f64 / seconds;
            println!(
                "round {round}, kept {kept}: {} read, {rate:.0} files/s, {} bad",
                sizes.read_count(),
                sizes.bad_count()
            );
        }
    }
    fs::remove_file(&file).unwrap();
}
