//! JPEG images, through libjpeg: the Rust side of `jpeg.c`.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use super::entry_point_store::at_points;
use super::entry_point_store::{EntryPointStore, ImageKey, StoreAnswer};
use super::entry_points::{EntryPoint, ImageEntryPoints, McuGrid};
#[cfg(target_arch = "x86_64")]
use super::lanes::{self, Lanes, LanesJob};
use super::pack_key::PackKey;
#[cfg(target_arch = "x86_64")]
use super::ycc;
use super::{Header, lossless_jpeg, packed_points, probe, restarts};
use crate::error::{Error, Result};
use crate::memory;
use crate::raster::{Image, Rect};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

/// `wf_decoder` in `jpeg.c`.
#[repr(C)]
struct LibjpegHandle {
    opaque: [u8; 0],
}

/// `wf_job` in `jpeg.c`.
#[repr(C)]
struct DecodeJob {
    bytes: *const u8,
    len_bytes: usize,
    known: PointRows,
    learned: PointRows,
    decode_row: Option<DecodeRow>,
    row_context: *mut c_void,
    convert: Option<Convert>,
    image_width: u32,
    image_height: u32,
    scale_denom: u32,
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    strict: i32,
    to_end: i32,
    learn_all: i32,
    learned_rows: u32,
    plain: i32,
    portable: i32,
    out: *mut u8,
    stride_bytes: usize,
}

/// `wf_entries` in `jpeg.c`.
#[repr(C)]
struct PointRows {
    points: *mut EntryPoint,
    rows: u32,
    step: u32,
    a_row: u32,
}

/// `wf_decode_row` in `jpeg.c`.
type DecodeRow = unsafe extern "C" fn(*mut c_void, u32, u32, u32, *const *const *mut u8) -> i32;

/// `wf_convert` in `jpeg.c`: a row's luma, blue and red chroma, its pixels of four bytes, and their number.
pub(super) type Convert = unsafe extern "C" fn(*const u8, *const u8, *const u8, *mut u8, u32);

impl DecodeJob {
    /// A job that decodes no pixel of this image.
    fn of(bytes: &[u8], header: &Header) -> Self {
        Self {
            bytes: bytes.as_ptr(),
            len_bytes: bytes.len(),
            known: PointRows::NONE,
            learned: PointRows::NONE,
            decode_row: None,
            row_context: ptr::null_mut(),
            convert: None,
            image_width: header.full_size.width,
            image_height: header.full_size.height,
            scale_denom: header.scale_denom,
            x: 0,
            y: 0,
            width: 0,
            height: 0,
            strict: 1,
            to_end: 0,
            learn_all: 0,
            learned_rows: 0,
            plain: 0,
            portable: 0,
            out: ptr::null_mut(),
            stride_bytes: 0,
        }
    }
}

impl PointRows {
    const NONE: Self = Self { points: ptr::null_mut(), rows: 0, step: 1, a_row: 0 };
}

/// Whether `jpeg.c` has its own entropy decoder, which uses and finds entry points.
const OWN_HUFFMAN: bool = cfg!(not(target_env = "msvc"));

/// Options of [`Decoder::decode_with`](super::Decoder::decode_with). The default decodes strictly and without a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct DecodeOptions<'a> {
    /// Whether damaged and truncated JPEGs are accepted: see [`Decoder::decode`](super::Decoder::decode).
    pub accept_truncated: bool,
    /// Store for entry points of JPEGs.
    pub entry_points: Option<&'a EntryPointStore>,
}

/// Knowledge about an image before it was decoded, which saved work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorKnowledge {
    /// No more than its header.
    Nothing,
    /// The places of its rows, from its own index.
    RowIndex,
    /// Its entry points: learned before, or its own.
    EntryPoints,
}

/// A decoding task.
struct DecodeTask<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    part: Rect,
    accept_truncated: bool,
    has_end: bool,
    /// Whether libjpeg's own entropy decoder is used.
    plain: bool,
}

/// Handling of entry points in one decode.
#[derive(Clone, Copy)]
enum EntryPointUse {
    Nothing,
    /// Entry points are to be learned: `all` of them, or those up to the last row of the part.
    New {
        key: ImageKey,
        grid: McuGrid,
        /// Number of MCUs from one point to the next.
        step: u32,
        all: bool,
    },
    Known(PriorKnowledge),
    /// The image's own entry points are checked.
    Packed {
        key: ImageKey,
        grid: McuGrid,
    },
}

/// Makes a row's pixels of its luma alone.
unsafe extern "C" fn luma_alone(luma: *const u8, _blue: *const u8, _red: *const u8, out: *mut u8, width: u32) {
    for x in 0..width as usize {
        // SAFETY: libjpeg's rows have `width` samples, and `out` has room for as many pixels.
        unsafe {
            let value = *luma.add(x);
            out.cast::<[u8; 4]>().add(x).write_unaligned([value, value, value, 255]);
        }
    }
}

const OK: c_int = 0;
const MISSING: c_int = 2;
const HEADER: c_int = 3;
const NO_MEMORY: c_int = 4;
const UNPREPARED: c_int = 5;
const UNUSUAL: c_int = 6;

unsafe extern "C" {
    fn wf_jpeg_decoder_new() -> *mut LibjpegHandle;
    fn wf_jpeg_decoder_free(handle: *mut LibjpegHandle);
    fn wf_jpeg_decoder_message(handle: *const LibjpegHandle) -> *const c_char;
    fn wf_jpeg_decode(handle: *mut LibjpegHandle, job: *const DecodeJob) -> c_int;
    fn wf_jpeg_learned(handle: *const LibjpegHandle) -> u32;
    fn wf_jpeg_warned(handle: *const LibjpegHandle) -> c_int;
    #[cfg(test)]
    fn wf_jpeg_has_own_scans(handle: *const LibjpegHandle) -> c_int;
    fn wf_jpeg_simd() -> c_int;
}

/// Whether libjpeg was built with its assembler routines; without them it is several times slower.
#[must_use]
pub fn libjpeg_has_simd() -> bool {
    // SAFETY: it takes nothing and reads nothing.
    unsafe { wf_jpeg_simd() != 0 }
}

/// libjpeg's state. One thread uses it at a time.
pub(super) struct JpegDecoder {
    handle: NonNull<LibjpegHandle>,
    /// Entry points of the last image that had any.
    known: ImageEntryPoints,
    learned: Vec<EntryPoint>,
    /// Entry points of the last image in which lanes have found them.
    scouted: Vec<EntryPoint>,
    /// Number of rows of MCUs that lanes have come to in the last image.
    decoded_rows: u32,
    #[cfg(target_arch = "x86_64")]
    lanes: Option<Lanes>,
    /// Whether all entry points are learned, whatever is known.
    learns_all: bool,
    /// Whether libjpeg's own entropy decoder is used for all images. Ours is tested against it.
    plain: bool,
    /// Whether libjpeg's inverse DCT in C is used. Its assembler is tested against it.
    portable: bool,
    /// Whether pixels have luma in place of red, green and blue.
    pub(super) luma: bool,
}

/// Decoders that must agree.
#[cfg(any(test, feature = "testing"))]
pub(super) struct DecodeWays {
    /// Decodes one MCU after another.
    pub(super) one_by_one: JpegDecoder,
    /// Uses vectors, if the processor supports them.
    pub(super) lanes: JpegDecoder,
    /// Uses AVX2, if the processor has it.
    pub(super) narrow_lanes: JpegDecoder,
    /// Uses libjpeg's own entropy decoder.
    pub(super) libjpeg: JpegDecoder,
    /// Uses libjpeg's inverse DCT in C.
    pub(super) portable: JpegDecoder,
}

// SAFETY: the handle is a heap object without thread-local state; `&mut self` keeps its use to one thread at a time.
unsafe impl Send for JpegDecoder {}

impl Drop for JpegDecoder {
    fn drop(&mut self) {
        // SAFETY: the handle came from wf_jpeg_decoder_new and is freed once.
        unsafe { wf_jpeg_decoder_free(self.handle.as_ptr()) }
    }
}

impl JpegDecoder {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: it takes nothing; a null pointer means that there was no memory.
        let handle = NonNull::new(unsafe { wf_jpeg_decoder_new() });
        let handle = handle.ok_or_else(|| memory::refused::<DecodeJob>("a JPEG decoder", 1, memory::FEWER_IMAGES))?;
        Ok(Self {
            handle,
            known: ImageEntryPoints::default(),
            learned: Vec::new(),
            scouted: Vec::new(),
            decoded_rows: 0,
            #[cfg(target_arch = "x86_64")]
            lanes: Lanes::new(),
            learns_all: false,
            plain: false,
            portable: false,
            luma: false,
        })
    }

    /// Decodes `part`, which lies inside the image, into `out`. Learns the image's entry points if there is a store for
    /// them. Returns the knowledge that the store had about the image.
    pub(super) fn decode(
        &mut self,
        bytes: &[u8],
        header: &Header,
        part: Rect,
        options: DecodeOptions<'_>,
        out: &mut Image,
    ) -> Result<PriorKnowledge> {
        supported(header)?;
        if header.process == super::LOSSLESS_JPEG {
            return lossless_jpeg::decode(bytes, header, part, options.accept_truncated, out)
                .map(|()| PriorKnowledge::Nothing);
        }
        let has_end = has_end(bytes, header);
        out.reset_part(header.size, part);
        let grid = McuGrid::new(header).filter(|_| OWN_HUFFMAN && has_end && !self.plain);
        let mut task =
            DecodeTask { bytes, header, part, accept_truncated: options.accept_truncated, has_end, plain: self.plain };
        let mut found = grid.map_or(EntryPointUse::Nothing, |grid| self.find(&task, &grid, options.entry_points));
        let mut knew = match found {
            EntryPointUse::Known(knew) => knew,
            EntryPointUse::Packed { .. } => PriorKnowledge::EntryPoints,
            _ => PriorKnowledge::Nothing,
        };
        // Entry points that are not known are found before decoding, unless the decode finds them as fast.
        let mut is_scouted = grid.is_some_and(|grid| self.scout(&task, &grid, &found));
        let mut status = if is_scouted {
            self.call(&task, &EntryPointUse::Known(PriorKnowledge::Nothing), out)
        } else {
            self.call(&task, &found, out)
        };
        if is_scouted && status != OK {
            is_scouted = false;
            status = self.call(&task, &found, out);
        }
        if status == UNPREPARED {
            // The entry points belong to other data. The right ones are learned.
            let key = options.entry_points.zip(grid);
            let key = key.and_then(|(store, grid)| Some((store.key(bytes, header, &grid)?, grid)));
            found =
                key.map_or(EntryPointUse::Nothing, |(key, grid)| self.learn(key, &grid, options.entry_points, true));
            knew = PriorKnowledge::Nothing;
            status = self.call(&task, &found, out);
        }
        if status == UNUSUAL {
            if let (EntryPointUse::New { key, grid, .. }, Some(store)) = (found, options.entry_points) {
                store.put(key, header, &grid, (&[], grid.step()), true);
            }
            found = EntryPointUse::Nothing;
            knew = PriorKnowledge::Nothing;
            task.plain = true;
            status = self.call(&task, &found, out);
        }
        match status {
            OK => {
                if let (EntryPointUse::New { key, grid, step, all }, Some(store)) = (found, options.entry_points) {
                    // SAFETY: the handle is ours alone; the shim reads what the last call has left there.
                    let (learned, warned) =
                        unsafe { (wf_jpeg_learned(self.handle.as_ptr()), wf_jpeg_warned(self.handle.as_ptr())) };
                    let points = match (is_scouted, warned) {
                        (false, _) => self.learned.get(..learned as usize).unwrap_or_default(),
                        (true, 0) => &self.scouted,
                        (true, _) => &[],
                    };
                    let is_learned = all || !points.is_empty();
                    if is_learned && step < grid.step() {
                        store.put_with_starts(key, header.scan_offset_bytes, &grid, points, all);
                    } else if is_learned {
                        store.put(key, header, &grid, (points, step), all);
                    }
                }
                if let (EntryPointUse::Packed { key, grid }, Some(store)) = (found, options.entry_points) {
                    // Those up to the last decoded row have been checked.
                    let ImageEntryPoints { points, step, a_row, .. } = &self.known;
                    let checked = points.get(..=self.decoded_rows as usize * *a_row as usize).unwrap_or_default();
                    store.put(key, header, &grid, (checked, *step), self.decoded_rows == grid.rows);
                }
                return Ok(knew);
            }
            // libjpeg does not report how much memory it asked for. Coefficients take two bytes a sample.
            NO_MEMORY => {
                let coefficients = 2 * header.components as usize * header.full_size.area_px() as usize;
                return Err(memory::refused::<u8>("a JPEG decoder", coefficients, memory::FEWER_IMAGES));
            }
            _ => {}
        }
        // SAFETY: the message is a zero-terminated string inside the handle, unchanged until the next call.
        let text = unsafe { CStr::from_ptr(wf_jpeg_decoder_message(self.handle.as_ptr())) };
        let text = text.to_string_lossy();
        Err(Error::decode("JPEG", message(status, &text, bytes.len(), has_end)))
    }

    /// Looks for the image's entry points: those in the image that are under a seal, those of the store, and others in
    /// the image.
    fn find(&mut self, task: &DecodeTask<'_>, grid: &McuGrid, store: Option<&EntryPointStore>) -> EntryPointUse {
        let DecodeTask { bytes, header, .. } = *task;
        let part = header.full_part(task.part);
        if self.learns_all {
            let key = store.and_then(|store| store.key(bytes, header, grid));
            return key.map_or(EntryPointUse::Nothing, |key| self.learn(key, grid, store, true));
        }
        // If the whole image is needed and there are no lanes, entry points do not help.
        if !grid.has_rest(part) && (header.is_draft() || !self.has_lanes()) {
            return EntryPointUse::Nothing;
        }
        if store.and_then(EntryPointStore::pack_key).is_some_and(|key| packed_points::are_sealed(bytes, header, key))
            && packed_points::entries(bytes, header, grid, &mut self.known)
            && self.known.rows >= grid.rows_needed(part)
        {
            return EntryPointUse::Known(PriorKnowledge::EntryPoints);
        }
        let mut kept = store.and_then(|store| {
            let key = store.key(bytes, header, grid)?;
            Some((store, key, store.get(&key, header, grid, &mut self.known)))
        });
        // If a second part of an image is requested, more will be.
        if let Some((store, key, answer)) = &mut kept
            && answer.can_learn
            && self.known.rows > 0
            && self.known.rows != grid.rows_needed(part)
            && self.known.step == store.learned_step(grid)
        {
            answer.can_learn = false;
            let points = self.learn_rest(bytes, header, grid);
            store.put(*key, header, grid, (points, grid.step()), true);
        }
        if kept.is_some() && self.known.rows >= grid.rows_needed(part) {
            return EntryPointUse::Known(PriorKnowledge::EntryPoints);
        }
        if let Some((_, key, _)) = &kept
            && self.has_lanes()
            && !header.is_draft()
            && packed_points::entries(bytes, header, grid, &mut self.known)
            && self.pays(grid, part)
        {
            return EntryPointUse::Packed { key: *key, grid: *grid };
        }
        // An index is enough the first time, because an image may be decoded only once.
        let is_new = kept.as_ref().is_none_or(|(.., kept)| !kept.is_known);
        let can_learn = kept.as_ref().is_some_and(|(.., kept)| kept.can_learn);
        if (is_new || !can_learn) && restarts::entries(bytes, header, grid, &mut self.known) {
            if let Some((store, key, StoreAnswer { is_known: false, can_learn: true, .. })) = kept {
                store.put(key, header, grid, (&[], grid.step()), false);
            }
            return EntryPointUse::Known(PriorKnowledge::RowIndex);
        }
        let Some((_, key, StoreAnswer { can_learn: true, .. })) = kept else { return EntryPointUse::Nothing };
        self.learn(key, grid, store, !is_new)
    }

    /// Whether a part has enough stretches for lanes to check and decode them.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "only x86-64 has lanes"))]
    fn pays(&self, grid: &McuGrid, part: Rect) -> bool {
        #[cfg(target_arch = "x86_64")]
        return lanes::pays(grid, part, self.known.step);
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// Puts the image's entry points into the image: see
    /// [`Decoder::with_entry_points`](super::Decoder::with_entry_points).
    pub(super) fn with_entry_points(
        &mut self,
        bytes: &[u8],
        header: &Header,
        pack_key: Option<&PackKey>,
        out: &mut Image,
    ) -> Result<Option<Vec<u8>>> {
        if let Some(bare) = packed_points::without_points(bytes, header) {
            return self.with_entry_points(&bare, &probe(&bare)?, pack_key, out);
        }
        let all = EntryPointStore::new(u64::MAX);
        let how = DecodeOptions { accept_truncated: false, entry_points: Some(&all) };
        self.learns_all = true;
        let decoded = self.decode(bytes, header, Rect::full(header.size), how, out);
        self.learns_all = false;
        decoded?;
        let packed = || {
            let grid = McuGrid::new(header)?;
            let key = all.key(bytes, header, &grid)?;
            let mut points = ImageEntryPoints::default();
            all.get(&key, header, &grid, &mut points);
            packed_points::with_points(bytes, header, &grid, &points.points, pack_key)
        };
        Ok(packed())
    }

    /// Learns the entry points after the known ones without decoding a pixel, and returns all that are known then: none
    /// if the image's data are such that it must always be decoded from the front.
    fn learn_rest(&mut self, bytes: &[u8], header: &Header, grid: &McuGrid) -> &[EntryPoint] {
        let ImageEntryPoints { points, step, a_row, rows, .. } = &mut self.known;
        self.learned.clear();
        self.learned.extend_from_slice(points);
        self.learned.resize(grid.rows as usize * *a_row as usize + 1, EntryPoint::default());
        let learned = PointRows { points: self.learned.as_mut_ptr(), rows: grid.rows, step: *step, a_row: *a_row };
        let job = DecodeJob { learned, learned_rows: *rows, ..DecodeJob::of(bytes, header) };
        // SAFETY: the handle is ours alone (`&mut self`). `bytes` and `learned` outlive the call, and the shim reads
        // and writes both only within their lengths. It writes no pixel.
        let (status, learned) = unsafe {
            let status = wf_jpeg_decode(self.handle.as_ptr(), &raw const job);
            (status, wf_jpeg_learned(self.handle.as_ptr()) as usize)
        };
        if status == UNUSUAL {
            points.clear();
        } else if status == OK && learned == self.learned.len() {
            std::mem::swap(points, &mut self.learned);
        }
        self.known.settle();
        &self.known.points
    }

    /// Makes room for entry points to be learned.
    fn learn(&mut self, key: ImageKey, grid: &McuGrid, store: Option<&EntryPointStore>, all: bool) -> EntryPointUse {
        let step = store.map_or(grid.step(), |store| store.learned_step(grid));
        self.learned.clear();
        self.learned.resize(grid.rows as usize * grid.columns.div_ceil(step) as usize + 1, EntryPoint::default());
        EntryPointUse::New { key, grid: *grid, step, all }
    }

    /// Finds entry points that are not known with lanes, all of those that are to be learned. Returns false if they
    /// cannot be found in this way; then one MCU is decoded after another.
    #[cfg(target_arch = "x86_64")]
    fn scout(&mut self, task: &DecodeTask<'_>, grid: &McuGrid, found: &EntryPointUse) -> bool {
        let DecodeTask { bytes, header, part, .. } = *task;
        let (step, all) = match found {
            EntryPointUse::Nothing => (grid.step(), false),
            EntryPointUse::New { step, all, .. } => (*step, *all),
            EntryPointUse::Known(_) | EntryPointUse::Packed { .. } => return false,
        };
        let Some(lanes) = self.lanes.as_mut().filter(|_| !self.learns_all && !header.is_draft()) else { return false };
        let rows = if all { grid.rows } else { grid.rows_needed(part) };
        if !lanes::find(lanes, bytes, header, grid, (rows, step), &mut self.scouted) {
            return false;
        }
        self.known.reset(grid.columns, grid.step());
        if step == grid.step() {
            self.known.points.extend_from_slice(&self.scouted);
        } else {
            self.known.points.extend(at_points(&self.scouted, grid));
        }
        self.known.settle();
        true
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn scout(&mut self, _: &DecodeTask<'_>, _: &McuGrid, _: &EntryPointUse) -> bool {
        false
    }

    /// All ways of decoding. They must agree.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn ways() -> Result<DecodeWays> {
        let [mut one_by_one, mut lanes, mut libjpeg, mut portable] =
            [Self::new()?, Self::new()?, Self::new()?, Self::new()?];
        let mut narrow_lanes = Self::with_avx2()?;
        // Otherwise most images of tests would be too small.
        #[cfg(target_arch = "x86_64")]
        for lanes in [&mut lanes, &mut narrow_lanes].into_iter().filter_map(|decoder| decoder.lanes.as_mut()) {
            lanes.find_in_small_images();
        }
        one_by_one.without_lanes();
        libjpeg.plain = true;
        portable.without_lanes();
        portable.portable = true;
        Ok(DecodeWays { one_by_one, lanes, narrow_lanes, libjpeg, portable })
    }

    /// A decoder whose lanes use AVX2, if the processor has it.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn with_avx2() -> Result<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut decoder = Self::new()?;
        #[cfg(target_arch = "x86_64")]
        {
            decoder.lanes = Lanes::with_avx2();
        }
        Ok(decoder)
    }

    /// Switches off lanes, which are tested against the decoder without them.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn without_lanes(&mut self) {
        #[cfg(target_arch = "x86_64")]
        drop(self.lanes.take());
    }

    pub(super) fn has_lanes(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.lanes.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The conversion of colors for this processor; `None` for libjpeg's own.
    fn convert(&self) -> Option<Convert> {
        if self.luma {
            return Some(luma_alone);
        }
        #[cfg(target_arch = "x86_64")]
        if !self.portable {
            return ycc::convert();
        }
        None
    }

    fn call(&mut self, task: &DecodeTask<'_>, found: &EntryPointUse, out: &mut Image) -> c_int {
        let DecodeTask { bytes, header, part, accept_truncated, has_end, plain } = *task;
        let (pixels, convert) = (out.pixels_mut(), self.convert());
        debug_assert_eq!(pixels.len(), part.width as usize * part.height as usize);
        let (mut known, mut learned) = (PointRows::NONE, PointRows::NONE);
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let (mut decode_row, mut row_context) = (None::<DecodeRow>, ptr::null_mut());
        #[cfg(target_arch = "x86_64")]
        let mut rows_job = None;
        match found {
            EntryPointUse::Nothing => {}
            EntryPointUse::New { grid, step, .. } => {
                let (step, a_row) = (*step, grid.columns.div_ceil(*step));
                learned = PointRows { points: self.learned.as_mut_ptr(), rows: grid.rows, step, a_row };
            }
            EntryPointUse::Known(_) | EntryPointUse::Packed { .. } => {
                let are_trusted = matches!(found, EntryPointUse::Known(_));
                let ImageEntryPoints { points, step, a_row, rows, .. } = &self.known;
                known = PointRows { points: points.as_ptr().cast_mut(), rows: *rows, step: *step, a_row: *a_row };
                #[cfg(target_arch = "x86_64")]
                if let (Some(lanes), Some(grid)) = (&mut self.lanes, McuGrid::new(header))
                    && let Some(begun) = LanesJob::begin(lanes, bytes, header, &self.known, &grid, part, are_trusted)
                {
                    decode_row = Some(lanes::decode_row);
                    row_context = ptr::from_mut(rows_job.insert(begun)).cast();
                }
                // Only lanes check points.
                if !are_trusted && decode_row.is_none() {
                    return UNPREPARED;
                }
            }
        }
        let job = DecodeJob {
            known,
            learned,
            decode_row,
            row_context,
            convert,
            x: part.x,
            y: part.y,
            width: part.width,
            height: part.height,
            strict: i32::from(!accept_truncated),
            to_end: i32::from(!has_end && !accept_truncated),
            learn_all: i32::from(matches!(found, EntryPointUse::New { all: true, .. })),
            plain: i32::from(plain),
            portable: i32::from(self.portable),
            out: pixels.as_mut_ptr().cast(),
            stride_bytes: part.width as usize * 4,
            ..DecodeJob::of(bytes, header)
        };
        // SAFETY: the handle is ours alone (`&mut self`). All that the job points to outlives the call. The shim reads
        // no byte after `len_bytes` and no points other than those of `known`'s rows. It writes at most as many points
        // as `learned` has room for in its rows, and one more. It uses neither if its own columns differ. It writes
        // `height` rows of `4 * width` bytes, `stride_bytes` apart, for which `pixels` has room. It refuses a stream
        // whose size differs from the given one, inside which the caller checked `part`.
        let status = unsafe { wf_jpeg_decode(self.handle.as_ptr(), &raw const job) };
        #[cfg(target_arch = "x86_64")]
        if let Some(rows_job) = rows_job {
            self.decoded_rows = rows_job.decoded_rows();
        }
        status
    }
}

fn message(status: c_int, text: &str, len_bytes: usize, has_end: bool) -> String {
    match status {
        MISSING if !has_end => {
            format!("truncated: the data end after {len_bytes} bytes, before the image is complete ({text})")
        }
        MISSING if text.is_empty() => "the data end before the image is complete".to_owned(),
        MISSING => format!("damaged: pixels are missing or wrong ({text})"),
        HEADER => "the header is incomplete, or not the one that was probed".to_owned(),
        _ => text.to_owned(),
    }
}

/// Refuses images that libjpeg as built here cannot decode, and names the remedy.
fn supported(header: &Header) -> Result<()> {
    let kind = match header.process {
        0xC0..=0xC2 if header.precision_bits == 8 => None,
        0xC3 if header.precision_bits == 8 => None,
        0xC0..=0xC3 => Some(format!("{} bits a sample", header.precision_bits)),
        0xC9..=0xCB | 0xCD..=0xCF => Some("arithmetic coding".to_owned()),
        _ => Some("hierarchical coding".to_owned()),
    };
    let kind = kind.or_else(|| {
        (!matches!(header.components, 1 | 3 | 4)).then(|| format!("{} color components", header.components))
    });
    match kind {
        Some(kind) => {
            let remedy = "convert it to a baseline or progressive JPEG of 8 bits a sample";
            Err(Error::decode("JPEG", format!("{kind} is not supported: {remedy}")))
        }
        None => Ok(()),
    }
}

/// Whether an end-of-image marker follows the start of the first scan. In whole files it is at the very end.
/// Entropy-coded data contain no such pair of bytes, because 0xFF is followed by 0 there.
#[must_use]
pub fn has_end(bytes: &[u8], header: &Header) -> bool {
    let data = bytes.get(header.scan_offset_bytes..).unwrap_or_default();
    data.windows(2).rev().any(|pair| pair == [0xFF, 0xD9])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decode::probe,
        encode::{ChromaSampling, JpegColor, JpegOptions, encode_jpeg},
        raster::Size,
    };
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use std::fs;
    use std::path::Path;

    /// Decodes with libjpeg's own routine and with the one that is compared with it.
    fn both(plain: &mut JpegDecoder, fast: &mut JpegDecoder, bytes: &[u8], tolerant: bool) -> [Option<Image>; 2] {
        let Ok(header) = probe(bytes) else { return [None, None] };
        if header.size.area_px() > 1 << 20 {
            return [None, None];
        }
        [plain, fast].map(|decoder| {
            let mut out = Image::default();
            decoder
                .decode(
                    bytes,
                    &header,
                    Rect::full(header.size),
                    DecodeOptions { accept_truncated: tolerant, ..DecodeOptions::default() },
                    &mut out,
                )
                .ok()
                .map(|_| out)
        })
    }

    /// Whether a marker is in the middle of the data. In this case libjpeg's fast path decodes zero bits, notices, and
    /// starts again from the same place. Where the second attempt writes nothing, the results of the first remain. This
    /// is the only case in which our decoder differs.
    fn has_stray_marker(data: &[u8]) -> bool {
        data.windows(2).any(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xD9))
    }

    #[test]
    fn damaged_data_decode_as_libjpeg_decodes_them() {
        let mut plain = JpegDecoder::new().unwrap();
        plain.plain = true;
        let mut fast = JpegDecoder::new().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut source = Image::new(Size::new(93, 71));
        for pixel in source.pixels_mut() {
            *pixel = rng.random();
        }
        let (mut decoded, mut refused) = (0, 0);
        for color in [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk] {
            for sampling in [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S440] {
                for restart_interval_rows in [0, 1] {
                    for quality in [10, 75, 100] {
                        let options =
                            JpegOptions { quality, sampling, restart_interval_rows, color, ..JpegOptions::default() };
                        let bytes = encode_jpeg(&source, &options).unwrap();
                        let scan = probe(&bytes).unwrap().scan_offset_bytes;
                        for round in 0..60 {
                            let mut bytes = bytes.clone();
                            // Round 0 is undamaged. Some rounds damage the tables, most damage the data.
                            for _ in 0..round.min(3) {
                                let from = if round % 10 == 9 { 2 } else { scan };
                                let at = rng.random_range(from..bytes.len());
                                bytes[at] = if rng.random_bool(0.3) { 0xFF } else { rng.random() };
                            }
                            if round % 3 == 2 {
                                bytes.truncate(rng.random_range(scan..bytes.len()));
                            }
                            let [want, got] = both(&mut plain, &mut fast, &bytes, true);
                            assert_eq!(want.is_some(), got.is_some());
                            if let (Some(want), Some(got)) = (want, got) {
                                if restart_interval_rows == 0 && has_stray_marker(&bytes[scan..]) {
                                    continue;
                                }
                                assert!(want.pixels() == got.pixels(), "{options:?}, round {round}");
                                decoded += 1;
                            }
                            // libjpeg's fast path does not warn of bad codes, so ours may refuse more images, but never
                            // fewer.
                            let [want, got] = both(&mut plain, &mut fast, &bytes, false);
                            refused += u32::from(got.is_none());
                            if let Some(got) = got {
                                assert!(want.unwrap().pixels() == got.pixels(), "{options:?}, round {round}");
                            }
                        }
                    }
                }
            }
        }
        assert!(decoded > 2000 && refused > 500, "{decoded} decoded, {refused} refused");
    }

    /// Sound data, parts and reduced sizes of them, and all kinds of damage: pixels and errors are libjpeg's.
    #[test]
    fn progressive_data_decode_as_libjpeg_decodes_them() {
        let mut plain = JpegDecoder::new().unwrap();
        plain.plain = true;
        let mut fast = JpegDecoder::new().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(12);
        let (mut own, mut sound, mut decoded, mut refused) = (0, 0, 0, 0);
        for case in 0..90 {
            let mut source = Image::new(Size::new(rng.random_range(1..150), rng.random_range(1..150)));
            let noise = [255, 40, 2][case % 3];
            for (i, pixel) in source.pixels_mut().iter_mut().enumerate() {
                *pixel = [i / 9, i / 70, i / 30, 0].map(|v| (v as u8).wrapping_add(rng.random_range(0..=noise)));
            }
            let options = JpegOptions {
                quality: [5, 60, 92, 100][case % 4],
                sampling: [ChromaSampling::S444, ChromaSampling::S420, ChromaSampling::S440][case / 2 % 3],
                progressive: true,
                restart_interval_rows: (case / 3 % 3) as u16,
                color: [JpegColor::Ycc, JpegColor::Gray, JpegColor::Cmyk][case / 5 % 3],
                ..JpegOptions::default()
            };
            let jpeg = encode_jpeg(&source, &options).unwrap();
            for round in 0..40 {
                let mut bytes = jpeg.clone();
                for _ in 0..(round - 10i32).clamp(0, 3) {
                    let at = rng.random_range(if round % 10 == 9 { 2 } else { bytes.len() / 4 }..bytes.len());
                    match round % 4 {
                        0 => drop(bytes.splice(at..at, [0xFF; 2])),
                        1 => drop(bytes.splice(at..at, [0xFF, 0xD0 + at as u8 % 10])),
                        2 => drop(bytes.drain(at..(at + 3).min(bytes.len()))),
                        _ => bytes[at] = rng.random(),
                    }
                }
                if round > 30 {
                    bytes.truncate(rng.random_range(bytes.len() / 4..bytes.len()));
                }
                let Ok(mut header) = probe(&bytes) else { continue };
                if header.size.area_px() > 1 << 20 {
                    continue;
                }
                if round % 5 == 4 {
                    let denom = [2, 4, 8][round as usize / 5 % 3];
                    header.draft(Size::new(header.size.width / denom, header.size.height / denom));
                }
                let (x, y) = (rng.random_range(0..header.size.width), rng.random_range(0..header.size.height));
                let (width, height) = (header.size.width - x, header.size.height - y);
                let part = match round % 3 {
                    0 => Rect::full(header.size),
                    _ => Rect { x, y, width: rng.random_range(1..=width), height: rng.random_range(1..=height) },
                };
                for accept_truncated in [false, true] {
                    let how = DecodeOptions { accept_truncated, ..DecodeOptions::default() };
                    let [want, got] = [&mut plain, &mut fast].map(|decoder| {
                        let mut out = Image::default();
                        let decoded = decoder.decode(&bytes, &header, part, how, &mut out);
                        decoded.map(|_| out.pixels().to_vec()).map_err(|error| error.to_string())
                    });
                    assert!(want == got, "{options:?}, round {round}, {part:?}: {:?} for {:?}", got.err(), want.err());
                    // SAFETY: the handle is alive, and only this thread uses it.
                    let is_own = unsafe { wf_jpeg_has_own_scans(fast.handle.as_ptr()) } != 0;
                    sound += u32::from(round <= 10);
                    own += u32::from(round <= 10 && is_own);
                    decoded += u32::from(got.is_ok());
                    refused += u32::from(got.is_err());
                }
            }
        }
        assert!(own == sound, "{own} of {sound} sound images by our own decoder");
        assert!(decoded > 3000 && refused > 500, "{decoded} decoded, {refused} refused");
    }

    /// All builds have the assembler's arithmetic, like Pillow: also those without assembler and those for ARM.
    #[test]
    fn absurd_coefficients_decode_alike_with_and_without_the_assembler() {
        let mut portable = JpegDecoder::new().unwrap();
        portable.portable = true;
        let mut built = JpegDecoder::new().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(16);
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/reference/images");
        let mut compared = 0;
        for name in ["absurd-baseline.jpg", "absurd-progressive.jpg", "absurd-wide.jpg", "quality-100.jpg", "ycck.jpg"]
        {
            let bytes = fs::read(folder.join(name)).unwrap();
            let scan = probe(&bytes).unwrap().scan_offset_bytes;
            for round in 0..100 {
                let mut bytes = bytes.clone();
                for _ in 0..round.min(3) {
                    let at = rng.random_range(scan..bytes.len());
                    bytes[at] = rng.random();
                }
                if let [Some(want), Some(got)] = both(&mut built, &mut portable, &bytes, true) {
                    assert!(want.pixels() == got.pixels(), "{name}, round {round}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 400, "{compared}");
    }
}
