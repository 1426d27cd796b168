//! The fuzz targets: functions that process untrusted bytes and must not panic.

mod annotations;
mod device;
mod foreign;
mod views;
mod written;
mod zarr;

pub use annotations::{coco, voc, yaml, yolo};
pub use device::device;
pub use foreign::{good_log, good_manifest, log, manifest};
pub use views::views;
pub use written::{contract, metadata, targets, transforms};
pub use zarr::zarr;

use std::cell::{OnceCell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::ops::CenterCrop;
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    ApplyOptions, EpochState, Error, OnError, Pipeline, Result, apply,
    fields::BoxFormat,
    image::{Decoder, Image, JpegOptions, Rect, Size, encode_jpeg, probe},
    ops::Op,
    source::{
        EncodedImages, IdxFile, ListFile, ParquetFiles, ReadRequest, RecordFormat, RecordOptions, RecordShards,
        RecordStream, Sample, Source, Stream as _, StreamOptions, StreamStart,
    },
};
use warpfeed_image::decode::DecodeOptions;
use warpfeed_image::decode::oddities::{Choices, decode_in_all_ways, no_device, odd};
use warpfeed_image::planes::Planes;

/// A function that processes the bytes.
pub type Target = fn(&[u8]);

/// All targets by name. If a target has a folder in `corpus/`, it has the same name.
pub const TARGETS: [(&str, Target); 26] = [
    ("image", image),
    ("planes", planes),
    ("oddities", oddities),
    ("device", device),
    ("baseline", baseline),
    ("tar", tar),
    ("recordio", recordio),
    ("tfrecord", tfrecord),
    ("idx", idx),
    ("parquet", parquet),
    ("zarr", zarr),
    ("stream", stream),
    ("index", index),
    ("list", list),
    ("json", json),
    ("targets", targets),
    ("metadata", metadata),
    ("transforms", transforms),
    ("views", views),
    ("coco", coco),
    ("voc", voc),
    ("yolo", yolo),
    ("yaml", yaml),
    ("contract", contract),
    ("log", log),
    ("manifest", manifest),
];

/// Largest image that is decoded. A larger one would take time and reach no other code.
const MAX_AREA_PX: u64 = 1 << 16;

/// The folder of this process, in memory if the system has such a file system.
fn folder() -> PathBuf {
    thread_local!(static FOLDER: OnceCell<PathBuf> = const { OnceCell::new() });
    FOLDER.with(|folder| {
        let make = || {
            let memory = Path::new("/dev/shm");
            let root = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
            let folder = root.join(format!("warpfeed-fuzz-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder for the file");
            folder
        };
        folder.get_or_init(make).clone()
    })
}

/// Writes a file and returns its path.
fn file(name: &str, data: &[u8]) -> PathBuf {
    let path = folder().join(name);
    fs::write(&path, data).expect("the file can be written");
    path
}

/// Options that keep no index: each file is scanned.
fn options() -> RecordOptions {
    RecordOptions::default().keep_index(false).boxes(Some(BoxFormat::Xywh))
}

/// Reads every sample, its targets and its fields. Failures must be the sample's fault.
fn read_all(source: &dyn Source) {
    for index in 0..source.len().min(1000) {
        if let Err(error) = source.encoded(index) {
            assert!(error.is_bad_sample(), "{error}");
        }
        source.label(index);
        source.name(index);
        for field in ["txt", "json.box", "npy", "label", "box"] {
            if let Err(error) = source.target(index, field) {
                // No sample of this source has the field.
                assert!(error.is_bad_sample() || error.is_parameter(), "{error}");
            }
        }
        for name in ["boxes", "labels", "area", "mask", "masks", "keypoints"].map(str::to_owned) {
            let mut sample = Sample::default();
            if let Err(error) = source.read(index, &ReadRequest::IMAGE.and_fields(&[name]), &mut sample) {
                assert!(error.is_bad_sample() || error.is_parameter(), "{error}");
            }
        }
    }
    source.fingerprint();
}

/// Bytes and label of each sample, or its error.
type Samples = Vec<std::result::Result<(Vec<u8>, Option<u32>), String>>;

/// The samples by random access to the shard.
fn random_access(source: &dyn Source) -> Samples {
    let read = |index| match source.encoded(index) {
        Ok(bytes) => Ok((bytes, source.label(index))),
        Err(error) => Err(error.to_string()),
    };
    (0..source.len()).map(read).collect()
}

/// The samples from reading the shard from front to back, up to the error that ends it; `None` if the stream asks for
/// the classes or the field of labels, which random access knows from other samples.
fn front_to_back(format: RecordFormat, path: PathBuf) -> Option<Samples> {
    let options = StreamOptions { records: options(), window: 1 };
    let stream = RecordStream::open(format, [path], options).expect("a shard");
    let mut samples = stream.begin(&StreamStart::whole(0)).expect("a beginning");
    let mut all = Vec::new();
    loop {
        match samples.next() {
            Ok(None) => return Some(all),
            Ok(Some(sample)) => all.push(Ok((sample.bytes, sample.label))),
            Err(error) if error.is_bad_sample() => all.push(Err(error.to_string())),
            Err(Error::Parameter { .. } | Error::Unsupported { .. }) => return None,
            Err(_) => return Some(all),
        }
    }
}

/// Opens the bytes as a shard and reads it both ways. Both must find the same samples and the same damage. Labels that
/// are names are left out, because a stream does not number them.
fn shard(format: RecordFormat, data: &[u8]) {
    let path = file("shard", data);
    let streamed = front_to_back(format, path.clone());
    if let Ok(source) = RecordShards::open(format, &[path], &options()) {
        // A record takes at least eight bytes.
        assert!(source.len() <= data.len() as u64 / 8 + 1);
        read_all(&source);
        if let Some(streamed) = streamed.filter(|all| source.classes().is_empty() && labels_agree(all)) {
            assert_eq!(streamed, random_access(&source));
        }
    }
}

/// Whether all samples have labels, or none has. Otherwise the two ways differ: a stream follows the first sample,
/// random access the majority.
fn labels_agree(samples: &Samples) -> bool {
    !samples.iter().any(|sample| sample.as_ref().is_err_and(|error| error.contains("others have")))
}

/// Probes and decodes an image, strictly and leniently, whole and in part. The part must have the whole image's pixels.
pub fn image(data: &[u8]) {
    thread_local!(static USED: RefCell<Decoder> = RefCell::new(Decoder::new().expect("there is memory")));
    let Ok(header) = probe(data) else { return };
    if header.size.area_px() > MAX_AREA_PX {
        return;
    }
    let Size { width, height } = header.size;
    let (x, y) = (data.len() as u32 % width, data.len() as u32 / 7 % height);
    let part = Rect { x, y, width: (width - x).div_ceil(2), height: (height - y).div_ceil(2) };
    let decode = |decoder: &mut Decoder, part, tolerant| -> warpfeed_image::Result<Image> {
        let mut out = Image::default();
        match decoder.decode(data, &header, part, tolerant, &mut out) {
            Ok(()) => Ok(out),
            Err(error) => {
                assert!(error.is_bad_image(), "{error}");
                Err(error)
            }
        }
    };
    for tolerant in [false, true] {
        let whole = USED.with_borrow_mut(|used| decode(used, Rect::full(header.size), tolerant));
        let cut = decode(&mut Decoder::new().expect("there is memory"), part, tolerant);
        if let (Ok(whole), Ok(cut)) = (whole, cut) {
            for row in 0..part.height {
                let from = &whole.row(y + row)[x as usize..][..part.width as usize];
                assert!(cut.row(row) == from, "the part differs from the whole, tolerant: {tolerant}, row {row}");
            }
        }
    }
}

/// Probes and decodes an image in its own element type, whole, and a part of its last channel, which must have the whole
/// image's values.
pub fn planes(data: &[u8]) {
    thread_local!(static USED: RefCell<Decoder> = RefCell::new(Decoder::new().expect("there is memory")));
    let Ok(header) = probe(data) else { return };
    let Size { width, height } = header.size;
    if header.size.area_px() > MAX_AREA_PX {
        return;
    }
    let (x, y) = (data.len() as u32 % width, data.len() as u32 / 7 % height);
    let part = Rect { x, y, width: (width - x).div_ceil(2), height: (height - y).div_ceil(2) };
    let decode = |decoder: &mut Decoder, part, bands: Option<&[u16]>| -> warpfeed_image::Result<Planes> {
        let mut out = Planes::default();
        match decoder.decode_planes(data, &header, part, bands, DecodeOptions::default(), &mut out) {
            Ok(_) => Ok(out),
            Err(error) => {
                assert!(error.is_bad_image(), "{error}");
                Err(error)
            }
        }
    };
    let last = header.kind.channels - 1;
    let whole = USED.with_borrow_mut(|used| decode(used, Rect::full(header.size), None));
    let cut = decode(&mut Decoder::new().expect("there is memory"), part, Some(&[last]));
    if let (Ok(whole), Ok(cut)) = (whole, cut) {
        let value_bytes = whole.kind().element.size_bytes();
        let plane = &whole.as_bytes()[usize::from(last) * (width * height) as usize * value_bytes..];
        for (row, cut) in cut.as_bytes().chunks_exact(part.width as usize * value_bytes).enumerate() {
            let start = ((y as usize + row) * width as usize + x as usize) * value_bytes;
            assert!(plane[start..].starts_with(cut), "the part differs from the whole, row {row}");
        }
    }
}

/// The first bytes decide which oddities are put into the JPEG that follows, and which parts are decoded: in all ways
/// of the CPU, in four epochs with memory for entry points.
pub fn oddities(data: &[u8]) {
    let Some((choices, jpeg)) = data.split_at_checked(CHOICES_BYTES) else { return };
    if probe(jpeg).is_ok_and(|header| header.size.area_px() <= MAX_AREA_PX) {
        let mut choices = Choices::new(choices);
        decode_in_all_ways(&odd(jpeg, &mut choices), &mut choices, &mut no_device);
    }
}

/// Number of bytes of [`oddities`] before the JPEG.
pub const CHOICES_BYTES: usize = 64;

/// Packs an image as baseline JPEG, as it is and shrunk, with and without restart markers, and decodes the result.
pub fn baseline(data: &[u8]) {
    if probe(data).is_ok_and(|header| header.size.area_px() > MAX_AREA_PX) {
        return;
    }
    let format = RecordFormat::TfRecord;
    for (max_side_px, restarts) in [(None, false), (None, true), (Some(9), true)] {
        let source = EncodedImages::new([(data.to_vec(), 0)]);
        let out = folder().join("packed");
        let packing = PackOptions::new(format).baseline(true).restarts(restarts).workers(1).max_side_px(max_side_px);
        if let Ok(report) = pack(&source, &out, &packing, &mut |_| {}) {
            let packed = RecordShards::open(format, &report.shards, &options()).expect("shards that were just written");
            image(&packed.encoded(0).expect("the image that was packed"));
        }
        let _ = fs::remove_dir_all(out);
    }
}

/// Reads the bytes as an archive, as they are and with a correct checksum in every block, since no fuzzer guesses
/// checksums.
pub fn tar(data: &[u8]) {
    shard(RecordFormat::WebDataset, data);
    shard(RecordFormat::WebDataset, &sealed(data));
}

fn sealed(data: &[u8]) -> Vec<u8> {
    let mut sealed = data.to_vec();
    for block in sealed.chunks_exact_mut(512).filter(|block| block.iter().any(|&byte| byte != 0)) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    sealed
}

pub fn recordio(data: &[u8]) {
    shard(RecordFormat::RecordIo, data);
}

/// Reads the bytes as a file, and as the example of one record with correct checksums, since no fuzzer guesses them.
pub fn tfrecord(data: &[u8]) {
    shard(RecordFormat::TfRecord, data);
    let masked = |data: &[u8]| crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let len = (data.len() as u64).to_le_bytes();
    let record = [&len[..], &masked(&len), data, &masked(data)].concat();
    shard(RecordFormat::TfRecord, &record);
}

fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// Reads images and labels, plain and compressed. The first byte says where the labels begin.
pub fn idx(data: &[u8]) {
    let Some((&at, data)) = data.split_first() else { return };
    let (images, labels) = data.split_at(data.len() * usize::from(at) / 256);
    for ending in ["", ".gz"] {
        let path = file(&format!("a-images-idx3-ubyte{ending}"), images);
        let labels = file(&format!("a-labels-idx1-ubyte{ending}"), labels);
        if let Ok(source) = IdxFile::open(&path) {
            read_all(&source);
        }
        for path in [path, labels] {
            fs::remove_file(path).expect("the file is ours");
        }
    }
}

/// Reads the bytes as Parquet. The format's library panics on some damage, which is caught and turned into an error.
pub fn parquet(data: &[u8]) {
    let path = [file("rows.parquet", data)];
    let lists = ["hwc", "wh"].map(|axes| ParquetFiles::open_with_axes(&path, axes, &options()));
    for source in lists.into_iter().chain([ParquetFiles::open(&path, &options())]).flatten() {
        read_all(&source);
    }
}

/// Reads shards of all formats from front to back, through a pipeline.
pub fn stream(data: &[u8]) {
    let formats = RecordFormat::ALL;
    for (format, data) in formats.iter().map(|&format| (format, data.to_vec())).chain([(formats[0], sealed(data))]) {
        let path = file("front-to-back", &data);
        let options = StreamOptions { records: options(), window: 3 };
        let Ok(stream) = RecordStream::open(format, [path], options) else { return };
        let pipeline = Pipeline::builder(stream).threads(0).max_pixels(MAX_AREA_PX).on_error(OnError::Skip);
        let pipeline =
            pipeline.shuffle(1).batch_size(4).transform(CenterCrop::new(8)).build().expect("a good pipeline");
        let batches = pipeline.epoch(0).take_while(Result::is_ok).count();
        assert!(batches <= data.len() / 8 + 1);
    }
}

/// Reads an index whose bytes were changed (place, value), with a correct checksum.
pub fn index(data: &[u8]) {
    let shard = file("indexed", include_bytes!("../corpus/tar/packed"));
    let options = RecordOptions::default();
    let open = || RecordShards::open(RecordFormat::WebDataset, std::slice::from_ref(&shard), &options);
    read_all(&open().expect("the shard is good"));
    let path = shard.with_file_name(".indexed.warpfeed-index");
    let mut index = fs::read(&path).expect("an index was kept");
    let contents_bytes = index.len() - 4;
    for change in data.chunks_exact(3) {
        index[usize::from(u16::from_le_bytes([change[0], change[1]])) % contents_bytes] = change[2];
    }
    let crc = crc32c(&index[..contents_bytes]);
    index[contents_bytes..].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, index).expect("the index is ours");
    if let Ok(source) = open() {
        read_all(&source);
    }
    fs::remove_file(path).expect("the index is ours");
}

pub fn list(data: &[u8]) {
    let path = file("list.txt", data);
    if let Ok(source) = ListFile::open(&path) {
        read_all(&source);
    }
}

/// Reads the bytes as a recipe and as an epoch's state.
pub fn json(data: &[u8]) {
    thread_local!(static JPEG: Vec<u8> = {
        let image = Image::new(Size::new(20, 15));
        encode_jpeg(&image, &JpegOptions::default()).expect("a JPEG")
    });
    if let Ok(ops) = serde_json::from_slice::<Vec<Op>>(data) {
        let options = ApplyOptions::default().max_pixels(MAX_AREA_PX);
        let _ = JPEG.with(|jpeg| apply(jpeg, &ops, &options));
    }
    if let Ok(state) = serde_json::from_slice::<EpochState>(data) {
        let source = EncodedImages::new(JPEG.with(|jpeg| [(jpeg.clone(), 0), (jpeg.clone(), 1)]));
        let pipeline =
            Pipeline::builder(source).threads(0).batch_size(1).shuffle(3).transform(CenterCrop::new(8)).build();
        if let Ok(epoch) = pipeline.expect("a good pipeline").resume(&state) {
            assert!(epoch.count() <= 2);
        }
    }
}
