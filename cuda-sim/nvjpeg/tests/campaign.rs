//! Random programs in one process with pipelines: a trainer with its own streams, captures, threads and contexts, and a
//! library that resets the device. `CUDA_SIM_CAMPAIGN`: their number, or FIRST..END.

#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "common has more")]

mod common;
#[path = "../../tests/support/sim.rs"]
mod sim;

use common::{painted, start};
use cudarc::driver::{result, sys};
use dlpark::versioned::Dlpack;
use libloading::os::unix::Library;
use sim::{Sim, open};
use std::ops::Range;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::OnceLock;
use warpfeed::ops::CenterCrop;
use warpfeed::{
    Batch, DType, Device, EntryPoints, Epoch, JpegDecoder, Layout, Pipeline,
    image::{JpegOptions, Size, encode_jpeg},
    ops::random_horizontal_flip,
    source::EncodedImages,
};

const PROGRAMS: u64 = 300;
const STEPS: u64 = 40;
const EPOCHS: u64 = 3;
const IMAGES: u32 = 9;

/// Actions that programs may take.
#[derive(Clone, Copy)]
struct May {
    /// Drop batches while a stream captures that has used them.
    drop_in_captures: bool,
    /// Reset the device while batches and pipelines are held.
    hold_over_resets: bool,
}

/// Numbers drawn from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some things, taken out.
    fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(self.below(from.len())))
    }
}

fn source() -> EncodedImages {
    let jpeg = |i| encode_jpeg(&painted(Size::new(24 + i % 5, 20 + i % 3), i), &JpegOptions::default()).unwrap();
    EncodedImages::new((0..IMAGES).map(|i| (jpeg(i), i)))
}

fn pipeline(source: &EncodedImages, device: Device, threads: usize, draw: &mut Draw) -> Pipeline {
    // The kernels that decode take most of the time.
    let paths = [JpegDecoder::Auto, JpegDecoder::Device, JpegDecoder::Hybrid, JpegDecoder::Cpu];
    let builder = Pipeline::builder(source.clone()).seed(3).batch_size(2).transform(CenterCrop::new(12));
    let builder = builder.transform(random_horizontal_flip(0.5)).output(DType::U8, Layout::Nhwc);
    let builder =
        builder.entry_points(EntryPoints::none()).jpeg_decoder(paths[draw.below(8).min(3)]).pinned(draw.chance(70));
    let builder = builder.device_memory(1 << 20).prefetch(1 + draw.below(2));
    builder.threads(threads).device(device).build().unwrap()
}

/// The CPU's bytes: of each epoch, those of each batch.
type Wanted = Vec<Vec<Vec<u8>>>;

fn wanted(source: &EncodedImages) -> Wanted {
    let cpu = pipeline(source, Device::Cpu, 0, &mut Draw(0));
    let bytes = |batch: warpfeed::Result<Batch>| batch.unwrap().images().as_bytes().unwrap().to_vec();
    (0..EPOCHS).map(|epoch| cpu.epoch(epoch).map(bytes).collect()).collect()
}

/// The driver's functions that cudarc has under names of other versions.
struct Driver {
    create: extern "C" fn(*mut usize, u32, i32) -> u32,
    destroy: extern "C" fn(usize) -> u32,
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<(Driver, Library)> = OnceLock::new();
    let (driver, _) = DRIVER.get_or_init(|| {
        let library = open("libcuda_sim_driver.so");
        // SAFETY: the functions have these types, and the library stays loaded.
        let driver = unsafe {
            Driver {
                create: *library.get(b"cuCtxCreate_v2").unwrap(),
                destroy: *library.get(b"cuCtxDestroy_v2").unwrap(),
            }
        };
        (driver, library)
    });
    driver
}

fn current() -> usize {
    let mut current = null_mut();
    // SAFETY: written before the call returns.
    unsafe { sys::cuCtxGetCurrent(&raw mut current) }.result().unwrap();
    current.addr()
}

/// The handle of a stream or context.
fn raw<T>(handle: usize) -> *mut T {
    without_provenance_mut(handle)
}

/// A stream of the trainer's.
#[derive(Clone, Copy, PartialEq)]
struct Stream {
    handle: usize,
    is_blocking: bool,
    /// The context of the trainer's own that it belongs to; `None` for the primary one.
    own: Option<usize>,
}

const LEGACY: Stream = Stream { handle: 0, is_blocking: true, own: None };

/// A capture: the stream that began it, and one that was drawn in.
struct Capture {
    first: Stream,
    second: Option<Stream>,
    event: usize,
}

enum Images {
    Batch(Box<Batch>),
    Lent(Dlpack),
}

/// A batch that the trainer holds.
struct Held {
    images: Images,
    /// Epoch and number.
    of: (u64, usize),
    users: Vec<Stream>,
    life: u32,
}

/// A copy of a batch, made on a stream that was not waited for yet.
struct Copied {
    address: u64,
    len_bytes: usize,
    of: (u64, usize),
    stream: Stream,
}

struct Feed {
    pipeline: Pipeline,
    threads: usize,
    epoch: Option<(Epoch, u64, usize)>,
    life: u32,
}

/// A program: the objects of the trainer, and those of another library.
struct Program<'a> {
    source: &'a EncodedImages,
    want: &'a Wanted,
    draw: Draw,
    may: May,
    /// The primary context, and how many resets there were before it.
    primary: usize,
    life: u32,
    feeds: Vec<Feed>,
    held: Vec<Held>,
    copies: Vec<Copied>,
    streams: Vec<Stream>,
    captures: Vec<Capture>,
    /// Contexts of the trainer's own.
    own: Vec<usize>,
    /// Memory of another library, with the byte that it holds.
    others: Vec<(u64, u8)>,
    trace: Vec<String>,
}

const OTHERS_BYTES: usize = 3_000;

impl<'a> Program<'a> {
    fn new(source: &'a EncodedImages, want: &'a Wanted, seed: u64, may: May) -> Self {
        result::init().unwrap();
        let mut program = Self {
            source,
            want,
            draw: Draw(seed),
            may,
            primary: 0,
            life: 0,
            feeds: Vec::new(),
            held: Vec::new(),
            copies: Vec::new(),
            streams: Vec::new(),
            captures: Vec::new(),
            own: Vec::new(),
            others: Vec::new(),
            trace: Vec::new(),
        };
        program.begin();
        program
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    /// Retains the primary context, and makes streams.
    fn begin(&mut self) {
        let mut primary = null_mut();
        // SAFETY: written before the call returns.
        unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut primary, 0) }.result().unwrap();
        self.primary = primary.addr();
        self.streams = vec![LEGACY];
        (0..3).for_each(|_| self.make_stream(None));
    }

    /// Does something with a context current.
    fn within<T>(&self, context: Option<usize>, act: impl FnOnce() -> T) -> T {
        let mut popped = null_mut();
        // SAFETY: the context is alive, and what was pushed is popped.
        unsafe {
            sys::cuCtxPushCurrent_v2(raw(context.unwrap_or(self.primary))).result().unwrap();
            let result = act();
            sys::cuCtxPopCurrent_v2(&raw mut popped).result().unwrap();
            result
        }
    }

    fn make_stream(&mut self, own: Option<usize>) {
        let (is_blocking, mut stream) = (self.draw.chance(50), null_mut());
        // SAFETY: written before the call returns.
        let made = || unsafe { sys::cuStreamCreate(&raw mut stream, u32::from(!is_blocking)) }.result().unwrap();
        self.within(own, made);
        self.streams.push(Stream { handle: stream.addr(), is_blocking, own });
    }

    fn captures(&self, stream: Stream) -> bool {
        self.captures.iter().any(|capture| capture.first == stream || capture.second == Some(stream))
    }

    /// Whether using a stream would touch a capture: it captures, or waits for one that does.
    fn is_closed(&self, stream: Stream) -> bool {
        let of = |other: &Stream| other.is_blocking && other.own == stream.own;
        let implied = || self.captures.iter().any(|c| of(&c.first) || c.second.as_ref().is_some_and(of));
        self.captures(stream) || (stream == LEGACY && implied())
    }

    fn stream(&mut self) -> Stream {
        self.streams[self.draw.below(self.streams.len())]
    }

    /// One step. Those that are for any thread are done on another one at times.
    fn step(&mut self) {
        match self.draw.below(24) {
            0 | 1 => self.build(),
            2..=7 => self.next(),
            8..=10 => self.hand_over(),
            11 | 12 => self.drop_batch(),
            13 => self.read(),
            14 | 15 => self.check_copy(),
            16 | 17 => self.begin_capture(),
            18 => self.end_capture(),
            19 => self.change_stream(),
            20 => self.change_context(),
            21 => self.drop_feed(),
            22 => self.lend(),
            _ => self.reset(),
        }
    }

    fn build(&mut self) {
        if self.feeds.len() < 2 {
            self.note("build");
            let threads = [0, 0, 0, 1, 2][self.draw.below(5)];
            let pipeline = pipeline(self.source, Device::Cuda(0), threads, &mut self.draw);
            self.feeds.push(Feed { pipeline, threads, epoch: None, life: self.life });
        }
    }

    fn next(&mut self) {
        if self.feeds.is_empty() {
            return self.build();
        }
        let at = self.draw.below(self.feeds.len());
        let epoch = self.draw.below(EPOCHS as usize) as u64;
        let (feed, life) = (&mut self.feeds[at], self.life);
        let (batches, epoch, next) = feed.epoch.get_or_insert_with(|| (feed.pipeline.epoch(epoch), epoch, 0));
        let of = (*epoch, *next);
        *next += 1;
        let (batch, is_old) = (batches.next(), feed.life < life);
        self.trace.push(format!("next {of:?}{}", if is_old { " of before a reset" } else { "" }));
        match batch {
            // A pipeline of before a reset may not deliver any more. If it does, its batch cannot be read.
            Some(Err(_)) if is_old => self.feeds[at].epoch = None,
            Some(batch) => {
                let images = Images::Batch(Box::new(batch.unwrap()));
                self.held.push(Held { images, of, users: Vec::new(), life: self.feeds[at].life });
            }
            None => self.feeds[at].epoch = None,
        }
        if self.held.len() > 4 {
            self.drop_batch();
        }
    }

    /// Queues a copy of a batch on a stream that was made to wait for it.
    fn hand_over(&mut self) {
        let Some(mut held) = self.draw.take(&mut self.held) else { return };
        let stream = self.stream();
        if let (Images::Batch(batch), true) = (&held.images, held.life == self.life) {
            self.trace.push(format!("hand over {:?} to {:x}", held.of, stream.handle));
            let buffer = batch.images().cuda().unwrap();
            // SAFETY: a stream lives until the batches that it was given have gone.
            let given = unsafe { buffer.on_raw_stream(raw(stream.handle)) };
            let is_refused = self.is_closed(stream) || stream.own.is_some();
            match given {
                Err(error) => assert!(is_refused && error.is_parameter(), "{error}"),
                Ok(from) => {
                    assert!(!is_refused, "a stream that captures, or of another context");
                    self.copy(from, buffer.len_bytes(), held.of, stream);
                    held.users.push(stream);
                }
            }
        }
        self.held.push(held);
    }

    fn copy(&mut self, from: u64, len_bytes: usize, of: (u64, usize), stream: Stream) {
        // SAFETY: the memory is new, and as long as the batch.
        let address = self.within(None, || unsafe {
            let address = result::malloc_async(raw(stream.handle), len_bytes).unwrap();
            result::memcpy_dtod_async(address, from, len_bytes, raw(stream.handle)).unwrap();
            address
        });
        self.copies.push(Copied { address, len_bytes, of, stream });
    }

    /// Gives a batch away by DLPack.
    fn lend(&mut self) {
        let Some(held) = self.draw.take(&mut self.held) else { return };
        let stream = self.stream();
        let fits = held.life == self.life && stream.own.is_none() && !self.is_closed(stream) && stream != LEGACY;
        let Held { images: Images::Batch(batch), of, mut users, life } = held else { return self.held.push(held) };
        if !fits {
            return self.held.push(Held { images: Images::Batch(batch), of, users, life });
        }
        self.trace.push(format!("lend {of:?} to {:x}", stream.handle));
        // SAFETY: a stream lives until the batches that it was given have gone.
        let lent: Dlpack = unsafe { batch.into_images().into_dlpack_on(Some(stream.handle as isize)) }.unwrap();
        let (from, len_bytes) = {
            let view = lent.validate().unwrap();
            (view.data_ptr() as u64, view.num_bytes())
        };
        self.copy(from, len_bytes, of, stream);
        users.push(stream);
        self.held.push(Held { images: Images::Lent(lent), of, users, life });
    }

    fn drop_batch(&mut self) {
        let is_open = |held: &Held| self.may.drop_in_captures || !held.users.iter().any(|user| self.is_closed(*user));
        let open: Vec<_> = (0..self.held.len()).filter(|at| is_open(&self.held[*at])).collect();
        if open.is_empty() {
            return;
        }
        let held = self.held.swap_remove(open[self.draw.below(open.len())]);
        self.trace.push(format!("drop {:?} of life {}", held.of, held.life));
        if self.draw.chance(30) {
            std::thread::scope(|scope| scope.spawn(|| drop(held)).join().unwrap());
        }
    }

    /// Reads a batch from the host.
    fn read(&mut self) {
        let Some(held) = self.draw.take(&mut self.held) else { return };
        if let (Images::Batch(batch), true) = (&held.images, held.life == self.life) {
            self.trace.push(format!("read {:?}", held.of));
            let got = || batch.images().to_host().unwrap().as_bytes().unwrap().to_vec();
            let is_elsewhere = self.draw.chance(30);
            let got = if is_elsewhere { std::thread::scope(|s| s.spawn(got).join().unwrap()) } else { got() };
            assert!(got == self.want[held.of.0 as usize][held.of.1], "bytes of {:?}", held.of);
        }
        self.held.push(held);
    }

    /// Compares a copy with the CPU's bytes.
    fn check_copy(&mut self) {
        let Some(copied) = self.draw.take(&mut self.copies) else { return };
        if self.is_closed(copied.stream) {
            return self.copies.push(copied);
        }
        self.trace.push(format!("check the copy of {:?}", copied.of));
        let (stream, mut got) = (raw(copied.stream.handle), vec![0; copied.len_bytes]);
        // SAFETY: the copy is as long, and freed once, in the stream's order.
        self.within(None, || unsafe {
            result::memcpy_dtoh_async(&mut got, copied.address, stream).unwrap();
            result::free_async(copied.address, stream).unwrap();
            result::stream::synchronize(stream).unwrap();
        });
        assert!(got == self.want[copied.of.0 as usize][copied.of.1], "bytes of the copy of {:?}", copied.of);
    }

    fn begin_capture(&mut self) {
        let (first, second) = (self.stream(), self.stream());
        let is_free = |stream: Stream| stream != LEGACY && stream.own.is_none() && !self.captures(stream);
        if !is_free(first) || self.captures.len() == 2 {
            return;
        }
        let second =
            Some(second).filter(|second| is_free(*second) && *second != first && first.handle.is_multiple_of(32));
        let mode = [
            sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        ][self.draw.below(3)];
        self.trace.push(format!("capture on {:x} and {:x?}, {mode:?}", first.handle, second.map(|s| s.handle)));
        let mut event = null_mut();
        // SAFETY: streams and event are alive.
        self.within(None, || unsafe {
            sys::cuEventCreate(&raw mut event, 2).result().unwrap();
            sys::cuStreamBeginCapture_v2(raw(first.handle), mode).result().unwrap();
            if let Some(second) = second {
                sys::cuEventRecord(event, raw(first.handle)).result().unwrap();
                sys::cuStreamWaitEvent(raw(second.handle), event, 0).result().unwrap();
            }
        });
        self.captures.push(Capture { first, second, event: event.addr() });
    }

    fn end_capture(&mut self) {
        let Some(Capture { first, second, event }) = self.draw.take(&mut self.captures) else { return };
        self.trace.push(format!("end the capture on {:x}", first.handle));
        let mut graph = null_mut();
        // SAFETY: streams and event are alive, and the graph is written before the call returns.
        let ended = self.within(None, || unsafe {
            if let Some(second) = second {
                // If the capture is lost, the end says so.
                let _ = sys::cuEventRecord(raw(event), raw(second.handle));
                let _ = sys::cuStreamWaitEvent(raw(first.handle), raw(event), 0);
            }
            let ended = sys::cuStreamEndCapture(raw(first.handle), &raw mut graph).result();
            sys::cuEventDestroy_v2(raw(event)).result().unwrap();
            ended.and_then(|()| sys::cuGraphDestroy(graph).result())
        });
        ended.expect("the capture is whole");
    }

    /// Destroys a stream that nothing needs any more, and makes another one.
    fn change_stream(&mut self) {
        let at = self.draw.below(self.streams.len());
        let stream = self.streams[at];
        let in_use = self.captures(stream)
            || self.held.iter().any(|held| held.users.contains(&stream))
            || self.copies.iter().any(|copied| copied.stream == stream);
        if stream == LEGACY || stream.own.is_some() || in_use {
            return;
        }
        self.trace.push(format!("another stream for {:x}", stream.handle));
        self.streams.swap_remove(at);
        // SAFETY: nothing uses the stream any more.
        self.within(None, || unsafe { sys::cuStreamDestroy_v2(raw(stream.handle)) }.result().unwrap());
        self.make_stream(None);
    }

    /// Makes a context of the trainer's own, with a stream, makes one current or the primary one, or destroys one.
    fn change_context(&mut self) {
        match self.draw.below(4) {
            0 if self.own.len() < 2 => {
                let mut context = 0;
                assert_eq!((driver().create)(&raw mut context, 0, 0), 0);
                self.note(format!("own context {context:x}"));
                self.own.push(context);
                self.make_stream(Some(context));
            }
            1 => {
                let Some(context) = self.draw.take(&mut self.own) else { return };
                self.note(format!("destroy the context {context:x}"));
                self.streams.retain(|stream| stream.own != Some(context));
                if current() == context {
                    set_current(0);
                }
                assert_eq!((driver().destroy)(context), 0);
            }
            _ => {
                let all: Vec<_> = self.own.iter().copied().chain([0, self.primary]).collect();
                let context = all[self.draw.below(all.len())];
                self.note(format!("current: {context:x}"));
                set_current(context);
            }
        }
    }

    fn drop_feed(&mut self) {
        if let Some(feed) = self.draw.take(&mut self.feeds) {
            self.trace.push(format!("drop a pipeline of life {}", feed.life));
            let Feed { pipeline, epoch, .. } = feed;
            if self.draw.chance(50) {
                drop(pipeline);
                drop(epoch);
            } else if self.draw.chance(50) {
                std::thread::scope(|scope| scope.spawn(|| drop((epoch, pipeline))).join().unwrap());
            }
        }
    }

    /// Another library resets the device and goes on with memory of its own. The trainer begins anew, but still holds
    /// its objects.
    fn reset(&mut self) {
        if !self.draw.chance(30) {
            return;
        }
        if !self.may.hold_over_resets {
            while !self.captures.is_empty() {
                self.end_capture();
            }
            self.held.clear();
            self.feeds.clear();
        }
        // Whoever resets a device sees to it that no thread uses it just then: the memory that it has pinned goes too.
        self.feeds.iter_mut().filter(|feed| feed.threads > 0).for_each(|feed| feed.epoch = None);
        self.note("reset");
        self.captures.clear();
        self.copies.clear();
        self.others.clear();
        let own: Vec<_> = self.streams.iter().copied().filter(|stream| stream.own.is_some()).collect();
        let was_primary = current() == self.primary;
        // SAFETY: nothing of the context is used any more, except by held objects.
        unsafe { sys::cuDevicePrimaryCtxReset_v2(0) }.result().unwrap();
        self.life += 1;
        self.begin();
        self.streams.extend(own);
        if was_primary {
            set_current(self.primary);
        }
        for i in 0..6 {
            let value = self.draw.below(256) as u8;
            // SAFETY: the memory is new, and as long.
            let address = self.within(None, || unsafe {
                let address = result::malloc_sync(OTHERS_BYTES << i).unwrap();
                result::memset_d8_sync(address, value, OTHERS_BYTES).unwrap();
                address
            });
            self.others.push((address, value));
        }
    }

    /// Ends the program: everything goes, in some order.
    fn end(mut self, sim: &Sim) {
        while !self.captures.is_empty() {
            self.end_capture();
        }
        while !self.copies.is_empty() {
            self.check_copy();
        }
        let mut popped = null_mut();
        while !(self.held.is_empty() && self.feeds.is_empty()) {
            if self.draw.chance(50) { self.drop_batch() } else { self.drop_feed() }
        }
        for (address, value) in std::mem::take(&mut self.others) {
            let mut got = vec![0; OTHERS_BYTES];
            // SAFETY: the memory is the other library's, as long, and freed once.
            let freed = self.within(None, || unsafe {
                result::memcpy_dtoh_sync(&mut got, address).and_then(|()| result::free_sync(address))
            });
            assert!(freed.is_ok() && got.iter().all(|byte| *byte == value), "the other library's memory");
        }
        for stream in self.streams.iter().filter(|stream| stream.handle > 0 && stream.own.is_none()) {
            // SAFETY: nothing uses the stream any more.
            self.within(None, || unsafe { sys::cuStreamDestroy_v2(raw(stream.handle)) }.result().unwrap());
        }
        self.own.iter().for_each(|context| assert_eq!((driver().destroy)(*context), 0));
        while current() != 0 {
            // SAFETY: there is one to pop.
            unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) }.result().unwrap();
        }
        let report = sim.report();
        assert_eq!((report.alive() - report.lost, sim.message()), (0, String::new()), "{report:?}");
        (0..=self.life).for_each(|_| {
            // SAFETY: as often as it was retained.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(0) }.result().unwrap();
        });
    }
}

fn is_alive(context: usize) -> bool {
    let mut id = 0;
    // SAFETY: written before the call returns; the driver refuses a context that is gone.
    unsafe { sys::cuCtxGetId(raw(context), &raw mut id) }.result().is_ok()
}

fn set_current(context: usize) {
    // SAFETY: the context is alive, or null.
    unsafe { sys::cuCtxSetCurrent(raw(context)) }.result().unwrap();
}

fn run(programs: Range<u64>, may: May) {
    let (sim, source) = (start(), source());
    let want = wanted(&source);
    let mut failed = Vec::new();
    for seed in programs.clone() {
        while current_or_none() != 0 {
            set_current(0);
        }
        sim.reset(seed);
        let mut program = Program::new(&source, &want, seed, may);
        let trace = std::sync::Mutex::new(Vec::new());
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                let before = current();
                let steps = program.trace.len();
                program.step();
                let changes =
                    program.trace[steps..].iter().any(|step| step.contains("context") || step.contains("current"));
                let reset = program.trace[steps..].iter().any(|step| step == "reset");
                trace.lock().unwrap().clone_from(&program.trace);
                // In place of a context that was destroyed there may be none.
                let is_dead = before != 0 && !is_alive(before);
                assert!(changes || reset || is_dead || current() == before, "another context is current");
            }
            program.end(&sim);
        }));
        if ran.is_err() {
            eprintln!("program {seed}: {}\n{:#?}", sim.message(), trace.lock().unwrap());
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "{} of {} programs: {failed:?}", failed.len(), programs.count());
}

fn current_or_none() -> usize {
    let mut current = null_mut();
    // SAFETY: written before the call returns, or left.
    let asked = unsafe { sys::cuCtxGetCurrent(&raw mut current) };
    if asked == sys::CUresult::CUDA_SUCCESS { current.addr() } else { 0 }
}

fn programs() -> Range<u64> {
    let text = std::env::var("CUDA_SIM_CAMPAIGN").unwrap_or_default();
    let number = |text: &str| text.parse().expect("CUDA_SIM_CAMPAIGN is a number, or FIRST..END");
    match text.split_once("..") {
        _ if text.is_empty() => 0..PROGRAMS,
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

#[test]
fn random_programs_beside_pipelines() {
    run(programs(), May { drop_in_captures: false, hold_over_resets: false });
}

#[test]
fn random_programs_that_drop_batches_in_captures() {
    run(programs(), May { drop_in_captures: true, hold_over_resets: false });
}

#[test]
fn random_programs_that_hold_batches_over_resets() {
    run(programs(), May { drop_in_captures: false, hold_over_resets: true });
}
