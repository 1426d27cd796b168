//! All that the library knows: open or not, files, buffers, and what was read.

use crate::driver::{device_range, has_context, misuse};
use crate::faults::Faults;
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers that a seed fixes.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to below 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A registered file.
pub struct Registered {
    pub fd: c_int,
    /// Device and inode, which tell whether the descriptor was closed and used again.
    pub file: (u64, u64),
}

/// Counts since the last reset.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Report {
    /// Successful calls that opened the driver.
    pub opened: u64,
    /// Reads by `cuFileRead`, and by batches.
    pub reads: u64,
    pub batch_reads: u64,
    pub batches: u64,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Reads whose offset, length or address is no multiple of 4 KiB, which real ones copy.
    pub bounced: u64,
    /// Registered files and buffers.
    pub files: u64,
    pub buffers: u64,
    /// Uses that are forbidden.
    pub misuses: u64,
    /// Calls that had a fault.
    pub faults: u64,
}

#[derive(Default)]
pub struct State {
    pub is_open: bool,
    pub files: HashMap<usize, Registered>,
    /// Lengths of buffers by their addresses.
    pub buffers: HashMap<usize, usize>,
    /// Reads under way.
    pub under_way: usize,
    pub next: usize,
    pub faults: Faults,
    pub random: Option<Random>,
    pub report: Report,
    /// Offset and length of each read.
    pub log: Vec<(u64, usize)>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// The state, for one call at a time.
pub struct Session(MutexGuard<'static, Option<State>>);

impl Session {
    pub fn open() -> Self {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.get_or_insert_with(|| {
            let text = std::env::var("CUDA_SIM_CUFILE").unwrap_or_default();
            let faults = Faults::read(&text).unwrap_or_else(|error| {
                eprintln!("cuda-sim: CUDA_SIM_CUFILE: {error}");
                std::process::exit(2);
            });
            State { faults, ..State::default() }
        });
        Self(state)
    }
}

impl std::ops::Deref for Session {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_ref().expect("it was made when the session was opened")
    }
}

impl std::ops::DerefMut for Session {
    fn deref_mut(&mut self) -> &mut State {
        self.0.as_mut().expect("it was made when the session was opened")
    }
}

impl State {
    /// The fault that a call of this kind has.
    pub fn fault(&mut self, of: &str) -> Option<String> {
        let random = self.random.get_or_insert_with(|| Random::new(1));
        let drawn = self.faults.draw(of, random).map(str::to_owned);
        self.report.faults += u64::from(drawn.is_some());
        drawn
    }

    /// The code that a call of this kind fails with.
    pub fn code(&mut self, of: &str) -> Option<c_int> {
        let random = self.random.get_or_insert_with(|| Random::new(1));
        let code = self.faults.code(of, random);
        self.report.faults += u64::from(code.is_some());
        code
    }

    pub fn random(&mut self) -> u64 {
        self.random.get_or_insert_with(|| Random::new(1)).next()
    }

    /// Reports a use that is forbidden.
    pub fn misuse(&mut self, name: &'static CStr, what: &str) {
        self.report.misuses += 1;
        misuse(name, what);
    }

    /// Whether calls may be made: the driver is open, and a context is current.
    pub fn is_ready(&mut self, name: &'static CStr) -> bool {
        let what = match (self.is_open, has_context()) {
            (false, _) => "the driver is not open",
            (_, false) => "no context is current",
            _ => return true,
        };
        self.misuse(name, what);
        false
    }

    /// The descriptor of a registered file, which must still be open.
    pub fn fd(&mut self, name: &'static CStr, handle: usize) -> Option<c_int> {
        let Some(Registered { fd, file }) = self.files.get(&handle) else {
            self.misuse(name, "the file is not registered");
            return None;
        };
        let (fd, file) = (*fd, *file);
        if identity(fd) != Some(file) {
            self.misuse(name, "the file was closed before it was deregistered");
            return None;
        }
        Some(fd)
    }

    /// Reads to device memory, at once. Returns the number of bytes, or -1.
    pub fn transfer(
        &mut self,
        name: &'static CStr,
        fd: c_int,
        (base, offset): (usize, i64),
        (file_offset, len_bytes): (i64, usize),
    ) -> isize {
        let address = base.wrapping_add_signed(offset as isize);
        if let Some((&start, &len)) =
            self.buffers.iter().find(|(start, len)| (**start..**start + **len).contains(&base))
            && address + len_bytes > start + len
        {
            self.misuse(name, "the range ends after the registered memory");
            return -1;
        }
        let Some(host) = device_range(address, len_bytes) else {
            self.misuse(name, "the range is not device memory");
            return -1;
        };
        let unaligned = [file_offset as usize, len_bytes, address].iter().any(|number| number % 4096 != 0);
        self.report.bounced += u64::from(unaligned);
        self.log.push((file_offset as u64, len_bytes));
        // SAFETY: the descriptor is open, and it is not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        // Direct I/O would ask for aligned memory of the host, which this is not.
        let mut bytes = vec![0_u8; len_bytes + 4096];
        let shift = bytes.as_ptr().align_offset(4096);
        let mut filled = 0;
        while filled < len_bytes {
            match file.read_at(&mut bytes[shift + filled..shift + len_bytes], file_offset as u64 + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(_) if filled > 0 => break,
                Err(_) => return -1,
            }
            if filled % 4096 != 0 {
                break;
            }
        }
        // SAFETY: the driver knows the range as device memory, which is mapped at this address.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(shift), host as *mut u8, filled) };
        self.report.bytes += filled as u64;
        filled as isize
    }
}

/// Device and inode of an open file.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    if fd < 0 {
        return None;
    }
    // SAFETY: if it is not open, asking fails; it is not closed here.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
