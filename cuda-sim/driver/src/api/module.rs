//! Modules and functions. Names are resolved among the registered kernels, or among those of the image (`crate::ptx`).

use super::device::{
    MAX_THREADS_PER_BLOCK, MULTIPROCESSORS, SHARED_BYTES_PER_BLOCK, SHARED_BYTES_PER_BLOCK_OPTIN,
    SHARED_BYTES_PER_MULTIPROCESSOR, THREADS_PER_MULTIPROCESSOR,
};
use crate::call::{Out, Session};
use crate::config::DRIVER_VERSION;
use crate::error::{Code, Result};
use crate::kernels;
use crate::ptx;
use crate::state::Function;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

/// First bytes of images: one that stands for the registered kernels (cuda-sim/kernels.image), a fat binary, the
/// wrapper in which nvcc embeds one, and a cubin or other ELF file.
const KINDS: [&[u8]; 4] = [b"cuda-sim kernels\n", &[0x50, 0xed, 0x55, 0xba], &[0xb1, 0x43, 0x62, 0x46], b"\x7fELF"];

/// Code of an image.
struct Piece {
    is_ptx: bool,
    /// As 90 for 9.0.
    architecture: u32,
    /// The version of PTX, as 90 for 9.0, where the text can be read.
    version: Option<u32>,
}

/// The version of PTX that a driver knows: 9.0 came with CUDA 13.0, 8.0 with 12.0, 7.0 with 11.0, and a minor one with
/// each minor version but 12.6.
fn ptx_of(driver: c_int) -> u32 {
    let (major, minor) = (driver as u32 / 1000, driver as u32 % 1000 / 10);
    10 * major.saturating_sub(4) + minor - u32::from(major == 12 && minor >= 6)
}

/// The pieces of a fat binary, or that of a text.
fn codes(image: &[u8]) -> Option<Vec<Piece>> {
    let number = |at: usize, bytes: usize| {
        let bytes = image.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) as usize)
    };
    if number(0, 4)? != FAT_BINARY as usize {
        let text = String::from_utf8_lossy(image);
        let word = |name: &str| text.split_once(name)?.1.split_whitespace().next().map(str::to_owned);
        let version = word(".version ").and_then(|version| version.replace('.', "").parse().ok());
        let digits = |target: String| target.chars().filter(char::is_ascii_digit).collect::<String>();
        let architecture = word(".target ").and_then(|target| digits(target).parse().ok())?;
        return Some(vec![Piece { is_ptx: true, architecture, version }]);
    }
    let (mut at, mut codes) = (number(6, 2)?, Vec::new());
    while at < image.len() {
        let (kind, header, architecture) = (number(at, 2)?, number(at + 4, 4)?, number(at + 28, 4)? as u32);
        codes.push(Piece { is_ptx: kind == 1, architecture, version: None });
        at = at.checked_add(header.max(1))?.checked_add(number(at + 8, 8)?)?;
    }
    Some(codes)
}

/// First words of the same images.
const FAT_BINARY: u32 = 0xba55_ed50;
const WRAPPER: u32 = 0x4662_43b1;
const ELF: u32 = 0x464c_457f;
const SIMULATED: u32 = u32::from_le_bytes(*b"cuda");

/// Whether drivers load images of this kind: one of `KINDS`, or PTX, a text that gives its version before anything but
/// comments.
fn known_kind(image: *const c_void) -> bool {
    // SAFETY: by the API's contract the image is readable up to its end, and nothing here reads beyond it. Texts end in
    // 0, where reading stops. Of other images, no more is read than is equal to the start of a longer kind.
    let byte = |i: usize| unsafe { image.cast::<u8>().add(i).read() };
    if KINDS.iter().any(|kind| (0..kind.len()).all(|i| byte(i) == kind[i])) {
        return true;
    }
    let starts = |i: usize, with: &[u8]| (0..with.len()).all(|j| byte(i + j) == with[j]);
    let mut i = 0;
    loop {
        if starts(i, b".version") {
            return true;
        } else if starts(i, b"//") {
            while !matches!(byte(i), b'\n' | 0) {
                i += 1;
            }
        } else if !byte(i).is_ascii_whitespace() {
            return false;
        } else {
            i += 1;
        }
    }
}

/// The oldest cards and drivers that the registered kernels stand for: those that warpfeed's own are compiled for.
const SIMULATED_FROM: (u32, c_int) = (75, 12_000);

/// Checks that the device can run the image, and the driver translate it: it has machine code for the device's major
/// version, of a minor one that is not higher, or PTX for an architecture that is not higher. The target of a cubin is
/// not checked.
fn check_fits(sim: &Session, image: *const c_void) -> Result<()> {
    let (major, minor) = sim.config.capability;
    let (card, driver) = (10 * major as u32 + minor as u32, DRIVER_VERSION.load(Ordering::Relaxed));
    // SAFETY: `known_kind` has found that this is an image, which is at least this long.
    if unsafe { image.cast::<u32>().read_unaligned() } == SIMULATED {
        return match SIMULATED_FROM {
            (oldest, _) if card < oldest => Err(Code::NO_BINARY_FOR_GPU),
            (_, oldest) if driver < oldest => Err(Code::UNSUPPORTED_PTX_VERSION),
            _ => Ok(()),
        };
    }
    let Some(bytes) = bytes_of(image) else { return Ok(()) };
    let codes = codes(&bytes).ok_or(Code::INVALID_IMAGE)?;
    let is_native = |code: &Piece| !code.is_ptx && code.architecture / 10 == card / 10 && code.architecture <= card;
    if codes.iter().any(is_native) {
        return Ok(());
    }
    let texts: Vec<_> = codes.iter().filter(|code| code.is_ptx && code.architecture <= card).collect();
    match texts.iter().any(|text| text.version.is_none_or(|version| version <= ptx_of(driver))) {
        true => Ok(()),
        false if texts.is_empty() => Err(Code::NO_BINARY_FOR_GPU),
        false => Err(Code::UNSUPPORTED_PTX_VERSION),
    }
}

/// A fat binary or PTX as bytes; none for images without PTX.
fn bytes_of(image: *const c_void) -> Option<Vec<u8>> {
    let image = image.cast::<u8>();
    // SAFETY: `known_kind` has found that this is an image, which is at least this long.
    let bytes = match unsafe { image.cast::<u32>().read_unaligned() } {
        // SAFETY: its header has 16 bytes or more, with its own size and that of what follows.
        FAT_BINARY => unsafe {
            let (header, rest) = (image.add(6).cast::<u16>().read_unaligned(), image.add(8).cast::<u64>());
            usize::from(header).checked_add(usize::try_from(rest.read_unaligned()).ok()?)?
        },
        // SAFETY: the wrapper has a version, and then the address of the fat binary.
        WRAPPER => return bytes_of(unsafe { image.add(8).cast::<*const c_void>().read_unaligned() }),
        ELF | SIMULATED => return None,
        // SAFETY: texts end in 0.
        _ => unsafe { CStr::from_ptr(image.cast()) }.count_bytes(),
    };
    // SAFETY: by the API's contract the image is readable up to its end.
    Some(unsafe { std::slice::from_raw_parts(image, bytes) }.to_vec())
}

fn load(sim: &mut Session, image: *const c_void) -> Result<u64> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if !known_kind(image) {
        return Err(Code::INVALID_IMAGE);
    }
    check_fits(sim, image)?;
    if sim.draw_failure() {
        let call = sim.call;
        return Err(sim.injected(call, Code::OUT_OF_MEMORY));
    }
    let kernels = match ptx::is_on() {
        true => Some(ptx::load(&bytes_of(image).ok_or(Code::INVALID_IMAGE)?)?),
        false => {
            kernels::load_from_environment()?;
            None
        }
    };
    let handle = sim.new_handle();
    sim.modules.insert(handle, kernels);
    Ok(handle)
}

pub fn function(sim: &Session, handle: u64) -> Result<Function> {
    sim.functions.get(&handle).copied().ok_or(Code::INVALID_HANDLE)
}

const MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

/// Number of blocks on one multiprocessor, as limited by its threads and shared memory.
fn blocks_per_multiprocessor(threads: c_int, shared_bytes: usize) -> Result<c_int> {
    if threads < 1 {
        return Err(Code::INVALID_VALUE);
    }
    if threads as u32 > MAX_THREADS_PER_BLOCK || shared_bytes > SHARED_BYTES_PER_BLOCK_OPTIN as usize {
        return Ok(0);
    }
    let by_threads = THREADS_PER_MULTIPROCESSOR / (threads as u32).next_multiple_of(32);
    let by_shared = SHARED_BYTES_PER_MULTIPROCESSOR as usize / (shared_bytes + 1024);
    Ok(by_threads.min(32).min(by_shared as u32) as c_int)
}

fn potential_block(sim: &Session, handle: u64, limit: c_int) -> Result<(c_int, c_int)> {
    function(sim, handle)?;
    let block = if limit > 0 { limit.min(MAX_THREADS_PER_BLOCK as c_int) } else { MAX_THREADS_PER_BLOCK as c_int };
    Ok((MULTIPROCESSORS * blocks_per_multiprocessor(block, 0)?, block))
}

api! {
    Context fn cuModuleLoadData(sim, out: Out<u64>, image: *const c_void) {
        out.set(load(sim, image)?)
    }
    Context fn cuModuleLoadDataEx(
        sim, out: Out<u64>, image: *const c_void, _count: c_uint, _options: *mut c_uint, _values: *mut *mut c_void,
    ) {
        out.set(load(sim, image)?)
    }
    Context fn cuModuleLoadFatBinary(sim, out: Out<u64>, image: *const c_void) {
        out.set(load(sim, image)?)
    }
    Context fn cuModuleLoad(sim, out: Out<u64>, path: *const c_char) {
        if path.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so by the API's contract a C string.
        let path = unsafe { CStr::from_ptr(path) };
        let mut image = std::fs::read(&*path.to_string_lossy()).map_err(|_| Code::FILE_NOT_FOUND)?;
        image.push(0);
        out.set(load(sim, image.as_ptr().cast())?)
    }
    Release fn cuModuleUnload(sim, handle: u64) {
        if sim.modules.remove(&handle).is_none() {
            return Err(Code::INVALID_HANDLE);
        }
        let functions = sim.functions.iter().filter(|(_, function)| function.module == handle);
        let gone: Vec<_> = functions.map(|(function, _)| *function).chain([handle]).collect();
        sim.functions.retain(|_, function| function.module != handle);
        gone.into_iter().for_each(|gone| sim.free_handle(gone));
        sim.wait_for_all()
    }
    Context fn cuModuleGetFunction(sim, out: Out<u64>, module: u64, name: *const c_char) {
        let kernels = sim.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so by the API's contract a C string.
        let name = unsafe { CStr::from_ptr(name) };
        let kernel = match kernels {
            Some(kernels) => name.to_str().ok().and_then(|name| kernels.get(name).copied()),
            None => kernels::find(name),
        };
        let kernel = kernel.ok_or(Code::NOT_FOUND)?;
        let handle = sim.new_handle();
        let max_dynamic_shared_bytes = SHARED_BYTES_PER_BLOCK;
        sim.functions.insert(handle, Function { module, kernel, max_dynamic_shared_bytes });
        out.set(handle)
    }
    Context fn cuModuleGetGlobal_v2(sim, _address: *mut u64, _bytes: *mut usize, module: u64, _name: *const c_char) {
        let known = sim.modules.contains_key(&module);
        Err(if known { Code::NOT_FOUND } else { Code::INVALID_HANDLE })
    }
    Context fn cuFuncGetAttribute(sim, out: Out<c_int>, attribute: c_int, handle: u64) {
        let function = function(sim, handle)?;
        let limits = kernels::limits(function.kernel);
        out.set(match attribute {
            0 => limits.map_or(MAX_THREADS_PER_BLOCK, |limits| limits.most_threads) as c_int,
            1 => limits.map_or(0, |limits| limits.shared_bytes) as c_int,
            4 => 32, // registers of a thread
            5 | 6 => 90, // versions of PTX and of the binary
            MAX_DYNAMIC_SHARED_SIZE_BYTES => function.max_dynamic_shared_bytes as c_int,
            _ => 0,
        })
    }
    Context fn cuFuncSetAttribute(sim, handle: u64, attribute: c_int, value: c_int) {
        let function = sim.functions.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        if attribute == MAX_DYNAMIC_SHARED_SIZE_BYTES {
            if !(0..=SHARED_BYTES_PER_BLOCK_OPTIN as c_int).contains(&value) {
                return Err(Code::INVALID_VALUE);
            }
            function.max_dynamic_shared_bytes = value as u32;
        }
        Ok(())
    }
    Context fn cuFuncSetCacheConfig(sim, handle: u64, _config: c_uint) {
        function(sim, handle).map(drop)
    }
    Context fn cuFuncGetModule(sim, out: Out<u64>, handle: u64) {
        out.set(function(sim, handle)?.module)
    }
    Context fn cuFuncLoad(sim, handle: u64) {
        function(sim, handle).map(drop)
    }
    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        sim, out: Out<c_int>, handle: u64, threads: c_int, shared_bytes: usize,
    ) {
        function(sim, handle)?;
        out.set(blocks_per_multiprocessor(threads, shared_bytes)?)
    }
    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        sim, out: Out<c_int>, handle: u64, threads: c_int, shared_bytes: usize, _flags: c_uint,
    ) {
        function(sim, handle)?;
        out.set(blocks_per_multiprocessor(threads, shared_bytes)?)
    }
    Context fn cuOccupancyMaxPotentialBlockSize(
        sim, min_grid: Out<c_int>, block: Out<c_int>, handle: u64, _shared_of_block: *const c_void,
        _shared_bytes: usize, limit: c_int,
    ) {
        let found = potential_block(sim, handle, limit)?;
        min_grid.set(found.0)?;
        block.set(found.1)
    }
    Context fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        sim, min_grid: Out<c_int>, block: Out<c_int>, handle: u64, _shared_of_block: *const c_void,
        _shared_bytes: usize, limit: c_int, _flags: c_uint,
    ) {
        let found = potential_block(sim, handle, limit)?;
        min_grid.set(found.0)?;
        block.set(found.1)
    }
    Context fn cuOccupancyAvailableDynamicSMemPerBlock(
        sim, out: Out<usize>, handle: u64, blocks: c_int, _threads: c_int,
    ) {
        function(sim, handle)?;
        if blocks < 1 {
            return Err(Code::INVALID_VALUE);
        }
        let share = (SHARED_BYTES_PER_MULTIPROCESSOR / blocks as u32).saturating_sub(1024);
        out.set(share.min(SHARED_BYTES_PER_BLOCK_OPTIN) as usize)
    }
}
