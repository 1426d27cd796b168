//! Pipelines that read shards past the host, on the simulated device and cuFile.

#![cfg(target_os = "linux")]

#[path = "../../tests/support/sim.rs"]
mod sim;

use sim::{Sim, folder, open, through_run};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use warpfeed::{
    Device, JpegDecoder, OnError, Partition, Pipeline, PipelineBuilder, Stats,
    image::{ChromaSampling, Image, JpegOptions, Size, encode_jpeg},
    ops::{Custom, Op, Transform, maybe, random_horizontal_flip, random_resized_crop},
    source::{RecordFormat, RecordOptions, RecordShards},
};

/// Counts of the simulated cuFile, as in src/state.rs.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
struct Report {
    opened: u64,
    reads: u64,
    batch_reads: u64,
    batches: u64,
    bytes: u64,
    bounced: u64,
    files: u64,
    buffers: u64,
    misuses: u64,
    faults: u64,
}

/// The simulated cuFile.
struct CuFile {
    faults: extern "C" fn(*const c_char, u64) -> bool,
    report: extern "C" fn(*mut Report),
    log: extern "C" fn(*mut c_char, usize) -> usize,
}

impl CuFile {
    fn load() -> &'static Self {
        static LOADED: OnceLock<CuFile> = OnceLock::new();
        LOADED.get_or_init(|| {
            let library = open("libcuda_sim_cufile.so");
            // SAFETY: the symbols have the types given to them here, and the library stays loaded.
            let cufile = unsafe {
                Self {
                    faults: *library.get(b"cufile_sim_faults").unwrap(),
                    report: *library.get(b"cufile_sim_report").unwrap(),
                    log: *library.get(b"cufile_sim_log").unwrap(),
                }
            };
            std::mem::forget(library);
            cufile
        })
    }

    fn faults(&self, text: &str, seed: u64) {
        let text = CString::new(text).unwrap();
        assert!((self.faults)(text.as_ptr(), seed), "{text:?}");
    }

    fn report(&self) -> Report {
        let mut report = Report::default();
        (self.report)(&raw mut report);
        report
    }

    /// Offset and length of each read.
    fn log(&self) -> Vec<(u64, u64)> {
        let mut bytes = vec![0_u8; 1 << 20];
        (self.log)(bytes.as_mut_ptr().cast(), bytes.len());
        let text = CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap();
        let pair = |line: &str| line.split_once(' ').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())).unwrap();
        text.lines().map(pair).collect()
    }
}

/// The simulation with all libraries that warpfeed looks for.
fn start() -> (Sim, &'static CuFile) {
    let sim = Sim::start();
    let variables = [
        ("WARPFEED_KERNELS", Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels.image")),
        ("CUDA_SIM_KERNELS", folder().join("libcuda_sim_kernels.so")),
        ("WARPFEED_CUFILE", folder().join("libcuda_sim_cufile.so")),
        ("WARPFEED_ENTRY_POINTS", PathBuf::from("memory")),
        ("XDG_CACHE_HOME", std::env::temp_dir().join("cuda-sim-cufile")),
    ];
    for (name, value) in variables {
        // SAFETY: the tests of a program hold `sim`, so no other thread of them reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) };
    }
    let cufile = CuFile::load();
    if std::env::var_os("CUDA_SIM_CUFILE").is_none() {
        cufile.faults("", 0);
    }
    sim.reset_with_memory(0, 512 << 20);
    (sim, cufile)
}

/// A file of an archive.
fn member(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Writes a shard of images, whose labels are their numbers.
fn write_shard(path: &Path, images: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    for (i, image) in images.iter().enumerate() {
        bytes.extend(member(&format!("{i:03}.jpg"), image));
        bytes.extend(member(&format!("{i:03}.cls"), i.to_string().as_bytes()));
    }
    bytes.extend([0; 1024]);
    fs::write(path, bytes).unwrap();
}

/// An image with much detail, so that its file is long.
fn jpeg(size: Size, i: u32) -> Vec<u8> {
    let mut image = Image::new(size);
    let mut number = 7 * u64::from(i) + 1;
    for pixel in image.pixels_mut() {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *pixel = [(number >> 33) as u8, (number >> 41) as u8, (number >> 49) as u8, 255];
    }
    let sampling = if i.is_multiple_of(2) { ChromaSampling::S420 } else { ChromaSampling::S444 };
    let options = JpegOptions { sampling, quality: 95, progressive: i % 7 == 6, ..JpegOptions::default() };
    encode_jpeg(&image, &options).unwrap()
}

fn small(i: u32) -> Vec<u8> {
    jpeg(Size::new(50 + i, 40 + i % 9), i)
}

/// A folder with shards of images.
struct Set {
    _folder: tempfile::TempDir,
    shards: Vec<PathBuf>,
}

impl Set {
    fn new(shards: u32, images: u32, image: impl Fn(u32) -> Vec<u8>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shards = (0..shards)
            .map(|shard| {
                let path = folder.path().join(format!("{shard}.tar"));
                let images: Vec<_> = (0..images).map(|i| image(shard * images + i)).collect();
                write_shard(&path, &images);
                path
            })
            .collect();
        Self { _folder: folder, shards }
    }

    fn open(&self) -> RecordShards {
        let options = RecordOptions::default().keep_index(false);
        RecordShards::open(RecordFormat::WebDataset, &self.shards, &options).unwrap()
    }

    fn builder(&self) -> PipelineBuilder {
        Pipeline::builder(self.open())
            .transform(random_resized_crop(24))
            .transform(random_horizontal_flip(0.5))
            .batch_size(7)
            .threads(2)
            .on_error(OnError::Skip)
    }
}

/// Each sample's bytes.
type Samples = BTreeMap<u64, Vec<u8>>;

fn epoch(pipeline: &Pipeline, number: u64) -> (Samples, Stats) {
    let (mut samples, mut epoch) = (Samples::new(), pipeline.epoch(number));
    for batch in epoch.by_ref() {
        let batch = batch.unwrap();
        let images = batch.images().to_host().unwrap();
        let bytes = images.as_bytes().unwrap();
        let each = bytes.len() / batch.indices().len();
        samples.extend(batch.indices().iter().copied().zip(bytes.chunks(each).map(<[u8]>::to_vec)));
    }
    (samples, epoch.stats())
}

/// Pipelines with the same settings on the CPU, and on the GPU past the host.
fn both(builder: impl Fn() -> PipelineBuilder) -> (Pipeline, Pipeline) {
    let cpu = builder().device(Device::Cpu).build().unwrap();
    let gpu = builder().device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Device).gpu_direct(true).build();
    (cpu, gpu.unwrap())
}

#[test]
fn images_read_past_the_host_equal_the_cpu() {
    let (sim, cufile) = start();
    let set = Set::new(3, 11, small);
    for seed in 0..4 {
        sim.reset_with_memory(seed, 512 << 20);
        cufile.faults("", seed);
        let cache = if seed % 2 == 0 { 0 } else { 60_000 };
        let builder = || {
            let builder = set.builder().seed(seed).prefetch(1 + seed as usize % 3).device_cache(cache);
            if seed < 3 { builder.shuffle(seed) } else { builder }
        };
        let (cpu, gpu) = both(builder);
        for number in 0..4 {
            let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "seed {seed}, epoch {number}");
            let decoded = stats.decoded;
            // Progressive images are the CPU's.
            assert_eq!(decoded.device, 29, "seed {seed}, epoch {number}: {decoded:?}");
            match number {
                0 => assert_eq!(decoded.device_direct, 0),
                _ => assert_eq!(decoded.device_direct + decoded.device_cached, 29, "{decoded:?}"),
            }
            assert_eq!(decoded.device_cached > 0, number > 0 && cache > 0, "{decoded:?}");
            assert_eq!(decoded.cpu_fallbacks.total(), decoded.cpu);
        }
        drop(gpu);
        let report = cufile.report();
        assert!(report.batch_reads > 0 && report.bytes > 0, "{report:?}");
        assert_eq!((report.files, report.buffers, report.misuses, report.bounced), (0, 0, 0, 0), "{report:?}");
        let report = sim.report();
        assert_eq!((report.alive(), report.illegal_accesses, sim.message()), (0, 0, String::new()), "seed {seed}");
    }
}

/// Images that the CPU is left to do, because of their operations or because the device is slow.
#[test]
fn images_that_the_cpu_makes_equal_the_cpu() {
    let (sim, cufile) = start();
    let set = Set::new(2, 12, small);
    let invert = |image: &mut Image| image.pixels_mut().iter_mut().flatten().for_each(|byte| *byte = !*byte);
    let builder = || {
        let op = Transform::from(Op::from(Custom::new("invert", invert)));
        set.builder().shuffle(2).transform(maybe(0.3, [op]))
    };
    for (path, memory) in [(JpegDecoder::Auto, None), (JpegDecoder::Device, None), (JpegDecoder::Device, Some(1 << 20))]
    {
        sim.reset_with_memory(0, 512 << 20);
        let cpu = builder().device(Device::Cpu).build().unwrap();
        let gpu = builder().device(Device::Cuda(0)).jpeg_decoder(path).gpu_direct(true);
        let gpu = if let Some(bytes) = memory { gpu.device_memory(bytes) } else { gpu }.build().unwrap();
        let mut read = 0;
        for number in 0..4 {
            let ((want, host), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "{path:?}, {memory:?}, epoch {number}");
            assert_eq!(stats.read_bytes, host.read_bytes);
            read += stats.decoded.device_direct;
        }
        // With little memory it depends on the threads which images find room.
        assert!(read > 0 || memory.is_some(), "{path:?}");
    }
    assert_eq!(cufile.report().misuses, 0);
}

/// Each fault alone, and all together, at random.
#[test]
fn whatever_fails_the_host_reads_the_image() {
    let (sim, cufile) = start();
    let set = Set::new(2, 9, small);
    let cases = [
        ("handle=5008", 0),
        ("handle=5019:0.5", 1),
        ("handle=5028", 0),
        ("buffer=5036", 2),
        ("buffer=5023", 2),
        ("buffer=5024", 2),
        ("read=change:0.5,batch=failed:0.3", 1),
        ("batch=setup", 0),
        ("batch=full", 0),
        ("batch=full:0.5", 1),
        ("batch=failed:0.5", 1),
        ("batch=timeout:0.3", 1),
        ("batch=short:0.5", 1),
        ("batch=late:0.8", 2),
        ("handle=5034:0.1,buffer=5036:0.3,batch=failed:0.2,batch=late:0.3,batch=short:0.2", 1),
    ];
    for (seed, (faults, direct)) in (0..).zip(cases) {
        for cache in [0, 40_000] {
            sim.reset_with_memory(seed, 512 << 20);
            cufile.faults("", seed);
            let (cpu, gpu) = both(|| set.builder().shuffle(seed).seed(seed).device_cache(cache));
            cufile.faults(faults, seed);
            let mut read = 0;
            for number in 0..5 {
                let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
                assert!(want == got, "{faults}, epoch {number}");
                read += stats.decoded.device_direct;
                assert!(stats.decoded.cpu_fallbacks.total() <= stats.decoded.cpu);
            }
            let all = direct == 2 && cache == 0;
            assert!(if all { read == 16 * 4 } else { (read > 0) == (direct > 0) }, "{faults}, cache {cache}: {read}");
            drop(gpu);
            let report = cufile.report();
            assert!(report.faults > 0 || direct == 1, "{faults}: {report:?}");
            assert_eq!((report.files, report.buffers, report.misuses), (0, 0, 0), "{faults}: {report:?}");
            let report = sim.report();
            assert_eq!((report.alive(), report.illegal_accesses, sim.message()), (0, 0, String::new()), "{faults}");
        }
    }
}

/// Runs of at least 1 MiB are read by themselves, in pages.
#[test]
fn long_runs_are_read_by_themselves_in_whole_pages() {
    let (_sim, cufile) = start();
    // 12 images of some 110 kB; every seventh is progressive.
    let set = Set::new(1, 12, |i| jpeg(Size::new(280, 240), i));
    let builder = || set.builder().batch_size(12);
    for faults in
        ["", "read=short:0.7", "read=eintr:0.7", "read=eio", "read=zero", "read=5011", "read=5008", "read=change"]
    {
        let (cpu, gpu) = both(builder);
        cufile.faults(faults, 12);
        for number in 0..2 {
            let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "{faults:?}, epoch {number}");
            let is_read = ["", "read=short:0.7", "read=eintr:0.7"].contains(&faults);
            let expected = if number == 1 && is_read { 11 } else { 0 };
            assert_eq!(stats.decoded.device_direct, expected, "{faults:?}: {:?}", stats.decoded);
        }
        let (report, log) = (cufile.report(), cufile.log());
        assert_eq!((report.batches, report.misuses), (0, 0), "{faults:?}: {report:?}");
        match faults {
            "" => {
                assert_eq!((report.reads, report.bounced), (1, 0), "{report:?}");
                let len_bytes = fs::metadata(&set.shards[0]).unwrap().len();
                assert!(
                    log.len() == 1 && log[0].1 >= 1 << 20 && log[0].1 <= len_bytes.next_multiple_of(4096),
                    "{log:?}"
                );
            }
            _ => {
                assert!(report.faults > 0 && log.iter().all(|(offset, _)| offset % 4096 == 0), "{faults:?}: {report:?}")
            }
        }
        // The fault has changed the file's times.
        if faults == "read=change" {
            break;
        }
    }
}

/// Images of a batch that are longer than a buffer together: it is filled again once its copies are done.
#[test]
fn a_buffer_is_not_filled_before_it_was_copied() {
    let (sim, cufile) = start();
    let set = Set::new(1, 6, |i| {
        let mut image = jpeg(Size::new(50, 40), i);
        image.resize(3 << 20, 0);
        image
    });
    for seed in 0..2 {
        sim.reset_with_memory(seed, 1 << 30);
        cufile.faults("", seed);
        let (cpu, gpu) = both(|| set.builder().batch_size(6).threads(1).prefetch(1));
        for number in 0..2 {
            let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "seed {seed}, epoch {number}");
            assert_eq!(stats.decoded.device_direct, 6 * number);
        }
        assert_eq!((cufile.report().reads, cufile.report().misuses), (2, 0));
    }
}

/// A shard that is written, or replaced, while a pipeline uses it: the host's bytes or errors, and nothing from before.
#[test]
fn a_shard_that_changes_is_the_hosts() {
    let (_sim, cufile) = start();
    let write = |path: &Path, first: u32| {
        // Filled up to one length, so that only the pixels differ between the two shards.
        let images: Vec<_> = (0..6).map(|i| jpeg(Size::new(60, 50), 2 * (first + i) % 6 + 100 * first)).collect();
        let longest = 12_000;
        let filled = images.into_iter().map(|mut image| {
            image.resize(longest, 0);
            image
        });
        write_shard(path, &filled.collect::<Vec<_>>());
    };
    for replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let shard = folder.path().join("a.tar");
        write(&shard, 0);
        let open = || {
            let options = RecordOptions::default().keep_index(false);
            RecordShards::open(RecordFormat::WebDataset, std::slice::from_ref(&shard), &options).unwrap()
        };
        let builder = || Pipeline::builder(open()).transform(random_resized_crop(24)).batch_size(3).threads(1);
        let (cpu, gpu) = both(builder);
        for number in 0..2 {
            assert!(epoch(&cpu, number).0 == epoch(&gpu, number).0);
        }
        cufile.faults("", 0);
        if replaced {
            let other = folder.path().join("b");
            write(&other, 1);
            fs::rename(&other, &shard).unwrap();
        } else {
            write(&shard, 1);
        }
        for number in 2..4 {
            let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "replaced: {replaced}, epoch {number}");
            assert_eq!(stats.decoded.device_direct, 0);
        }
        assert_eq!(cufile.report().bytes, 0);
    }
}

/// A shard that is written after the recipes of a batch were drawn: what the host reads counts.
#[test]
fn a_shard_that_changes_under_a_batch_is_the_hosts() {
    let (_sim, cufile) = start();
    let set = Set::new(1, 8, small);
    let (cpu, gpu) = both(|| set.builder().shuffle(1));
    for number in 0..3 {
        cufile.faults(if number > 0 { "batch=spoil" } else { "" }, number);
        let before = epoch(&cpu, number).0;
        let (got, stats) = epoch(&gpu, number);
        let (after, _) = epoch(&cpu, number);
        assert!(got == after, "epoch {number}");
        assert_eq!((before == after, stats.decoded.device_direct), (number != 1, 0));
    }
}

/// Images of folders are always the host's, also those that are replaced.
#[test]
fn an_image_that_is_replaced_in_a_folder_is_read_again() {
    let (_sim, cufile) = start();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();
    let path = |i: u32| folder.path().join(format!("a/{i}.jpg"));
    (0..5).for_each(|i| fs::write(path(i), small(i)).unwrap());
    let builder = || {
        let images = warpfeed::source::ImageFolder::open(folder.path()).unwrap();
        Pipeline::builder(images).transform(random_resized_crop(24)).batch_size(2).threads(1)
    };
    let (cpu, gpu) = both(builder);
    for number in 0..4 {
        assert!(epoch(&cpu, number).0 == epoch(&gpu, number).0, "epoch {number}");
        let other = folder.path().join("other");
        fs::write(&other, small(20 + number as u32)).unwrap();
        fs::rename(&other, path(number as u32)).unwrap();
    }
    assert_eq!(cufile.report().bytes, 0);
}

/// Ranks, and an epoch that goes on in its middle, in the process that knows the images and in another one.
#[test]
fn ranks_and_resumed_epochs_equal_the_cpu() {
    let (_sim, cufile) = start();
    let set = Set::new(2, 13, small);
    for rank in 0..3 {
        let partition = Partition::new(rank, 3).unwrap();
        let (cpu, gpu) = both(|| set.builder().shuffle(5).partition(partition));
        let mut direct = 0;
        for number in 0..6 {
            let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
            assert!(want == got, "rank {rank}, epoch {number}");
            direct += stats.decoded.device_direct;
        }
        assert!(direct > 0);
    }
    let (cpu, gpu) = both(|| set.builder().shuffle(5));
    epoch(&gpu, 0);
    let rest = |pipeline: &Pipeline, state: &warpfeed::EpochState| {
        let mut epoch = pipeline.resume(state).unwrap();
        let bytes = |batch: warpfeed::Batch| batch.images().to_host().unwrap().as_bytes().unwrap().to_vec();
        let batches: Vec<_> = epoch.by_ref().map(|batch| bytes(batch.unwrap())).collect();
        (batches, epoch.stats().decoded.device_direct)
    };
    let mut broken_off = gpu.epoch(1);
    broken_off.next().unwrap().unwrap();
    let state = broken_off.state();
    drop(broken_off);
    let (want, _) = rest(&cpu, &state);
    let (got, direct) = rest(&gpu, &state);
    assert!(want == got && direct > 0);
    let (_, other) = both(|| set.builder().shuffle(5));
    assert!(rest(&other, &state).0 == want);
    assert_eq!(cufile.report().misuses, 0);
}

/// Calls of CUDA that fail at random end an epoch with an error, or not at all.
#[test]
fn failing_calls_of_cuda_give_no_wrong_byte() {
    let (sim, cufile) = start();
    let set = Set::new(2, 7, small);
    let cpu = set.builder().shuffle(1).device(Device::Cpu).build().unwrap();
    let want: Vec<_> = (0..3).map(|number| epoch(&cpu, number).0).collect();
    let mut whole = 0;
    for seed in 0..30 {
        sim.reset_with_failures_and_memory(seed, 0.0005, 512 << 20);
        cufile.faults("batch=failed:0.1,batch=late:0.2", seed);
        let builder = set.builder().shuffle(1).device(Device::Cuda(0)).jpeg_decoder(JpegDecoder::Device);
        let Ok(gpu) = builder.gpu_direct(true).build() else { continue };
        for (number, want) in want.iter().enumerate() {
            for batch in gpu.epoch(number as u64) {
                let Ok(batch) = batch else { break };
                let Ok(images) = batch.images().to_host() else { break };
                let bytes = images.as_bytes().unwrap();
                let each = bytes.len() / batch.indices().len();
                for (index, got) in batch.indices().iter().zip(bytes.chunks(each)) {
                    assert!(want[index] == got, "seed {seed}, epoch {number}, sample {index}");
                    whole += 1;
                }
            }
        }
    }
    assert!(whole > 300, "{whole}");
    assert_eq!(cufile.report().misuses, 0);
}

#[test]
fn other_decoders_are_refused() {
    let (_sim, _) = start();
    let set = Set::new(1, 2, small);
    for decoder in [JpegDecoder::Cpu, JpegDecoder::Hybrid, JpegDecoder::Hardware] {
        let error = set.builder().jpeg_decoder(decoder).gpu_direct(true).build().err().unwrap();
        assert!(error.is_parameter() && error.to_string().contains("auto or device with gpu_direct"), "{error}");
    }
}

/// Runs a test of this program in a process of its own, where cuFile is not open yet.
fn alone(test: &str, faults: &str, cufile: &Path) {
    through_run(test, &[("CUDA_SIM_CUFILE", Path::new(faults)), ("TEST_CUFILE", cufile)]);
}

fn library() -> PathBuf {
    folder().join("libcuda_sim_cufile.so")
}

/// The error of a pipeline that is to read past the host.
fn refusal() -> String {
    let (_sim, _) = start();
    // SAFETY: as in `start`.
    unsafe { std::env::set_var("WARPFEED_CUFILE", std::env::var_os("TEST_CUFILE").unwrap()) };
    let set = Set::new(1, 2, small);
    let built = set.builder().device(Device::Cuda(0)).gpu_direct(true).build();
    // Without it the same pipeline is made.
    set.builder().device(Device::Cuda(0)).build().unwrap();
    built.err().unwrap().to_string()
}

#[test]
fn a_driver_that_cannot_be_opened_is_named() {
    alone("no_driver", "open=5001", &library());
}

#[test]
#[ignore = "run by another test"]
fn no_driver() {
    let error = refusal();
    assert!(error.contains("5001") && error.contains("nvidia-fs") && error.contains("allow_compat_mode"), "{error}");
}

#[test]
fn a_library_that_is_missing_or_too_old_is_named() {
    alone("no_library", "", Path::new("/nowhere/libcufile.so.0"));
    alone("no_function", "", &folder().join("libcuda_sim_nvjpeg.so"));
}

#[test]
#[ignore = "run by another test"]
fn no_library() {
    let error = refusal();
    assert!(error.contains("there is no libcufile.so.0") && error.contains("pip install nvidia-cufile"), "{error}");
}

#[test]
#[ignore = "run by another test"]
fn no_function() {
    let error = refusal();
    assert!(error.contains("has no function cuFileGetVersion"), "{error}");
}

#[test]
fn compatibility_mode_gives_the_same_bytes_and_the_log_has_its_place() {
    alone("compatible", "module=none", &library());
}

#[test]
#[ignore = "run by another test"]
fn compatible() {
    let (_sim, _) = start();
    let (working, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::env::set_current_dir(&working).unwrap();
    // SAFETY: as in `start`.
    unsafe { std::env::set_var("XDG_CACHE_HOME", cache.path()) };
    let set = Set::new(1, 6, small);
    let (cpu, gpu) = both(|| set.builder().shuffle(1));
    for number in 0..2 {
        assert!(epoch(&cpu, number).0 == epoch(&gpu, number).0);
    }
    assert_eq!(fs::read_dir(&working).unwrap().count(), 0);
    assert!(cache.path().join("warpfeed/cufile.log").exists());
    assert_eq!(std::env::current_dir().unwrap(), working.path().canonicalize().unwrap());
}

#[test]
#[ignore = "takes 30 s"]
fn a_driver_that_does_not_answer_is_named() {
    alone("no_answer", "open=hang", &library());
}

#[test]
#[ignore = "run by another test"]
fn no_answer() {
    let error = refusal();
    assert!(error.contains("did not return in 30 s") && error.contains("gpu_direct"), "{error}");
}

/// Reads that do not end may still write to their buffer, so it is never used again.
#[test]
#[ignore = "takes 30 s"]
fn reads_that_do_not_end_are_given_up() {
    alone("no_end", "batch=lost", &library());
}

#[test]
#[ignore = "run by another test"]
fn no_end() {
    let (_sim, cufile) = start();
    let set = Set::new(1, 6, small);
    let (cpu, gpu) = both(|| set.builder());
    for number in 0..4 {
        let ((want, _), (got, stats)) = (epoch(&cpu, number), epoch(&gpu, number));
        assert!(want == got, "epoch {number}");
        assert_eq!(stats.decoded.device_direct, 0);
    }
    drop(gpu);
    assert_eq!(cufile.report().misuses, 0);
}
