//! cuFile, NVIDIA's library for GPUDirect Storage (`libcufile.so.0`), found and loaded at run time.
//!
//! The declarations are those of cufile.h of cuFile 1.20. `cuFileDriverOpen` does not return without a CUDA driver, so
//! it is only called with a current context, and on a thread of its own. It is called once in a process and never
//! undone, because other libraries may use cuFile too.
#![allow(unsafe_code)]

use super::driver::{Context, DeviceMemory, Scoped, enter};
use crate::error::{Error, Result};
use crate::os::file::cache_folder;
use libloading::Library;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use std::{env, thread};

/// Unit of offsets, lengths and addresses that storage reads without a copy.
pub(crate) const ALIGN_BYTES: u64 = 4096;
/// The environment variable with the path of the library or of its folder.
const PATH_VARIABLE: &str = "WARPFEED_CUFILE";
/// The environment variable with the path of cuFile's log.
const LOG_VARIABLE: &str = "CUFILE_LOGFILE_PATH";
/// Names of the library for the system's loader.
const NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];
const REMEDY: &str = "install the CUDA toolkit, or run `pip install nvidia-cufile` in the active Python environment, or \
                      set WARPFEED_CUFILE to the path of libcufile.so.0";
/// Longest time that opening the driver may take.
const OPENING: Duration = Duration::from_secs(30);
/// Longest time that reads of a batch may take, and then the time that canceled ones may take to end.
const READING: Duration = Duration::from_secs(30);
const CANCELING: Duration = Duration::from_secs(5);
/// Largest number of reads that are submitted together.
const MOST_ENTRIES: usize = 128;
/// Largest number of times that an interrupted read is repeated.
const INTERRUPTIONS: u32 = 100;

const SUCCESS: c_int = 0;
const DRIVER_NOT_INITIALIZED: c_int = 5001;
const CUDA_DRIVER_ERROR: c_int = 5011;
const DRIVER_ALREADY_OPEN: c_int = 5026;
const HANDLE_TYPE_OPAQUE_FD: c_int = 1;
const BATCH_MODE: c_int = 1;
const READ: c_int = 0;
const COMPLETE: c_int = 0x10;
/// The bit of `dstatusflags` for reads from NVMe without the kernel module nvidia-fs.
const NVME_P2P: c_uint = 1 << 11;

/// Codes with their names and meanings (cufile.h).
const CODES: &[(c_int, &str, &str)] = &[
    (
        5001,
        "CU_FILE_DRIVER_NOT_INITIALIZED",
        "the kernel module nvidia-fs is not loaded, and compatibility mode is off",
    ),
    (5004, "CU_FILE_DRIVER_VERSION_MISMATCH", "the kernel module nvidia-fs has another version"),
    (5005, "CU_FILE_DRIVER_VERSION_READ_ERROR", "the version of the kernel module nvidia-fs cannot be read"),
    (5006, "CU_FILE_DRIVER_CLOSING", "cuFile is being closed"),
    (5007, "CU_FILE_PLATFORM_NOT_SUPPORTED", "this platform has no GPUDirect Storage"),
    (5008, "CU_FILE_IO_NOT_SUPPORTED", "this file system has no GPUDirect Storage"),
    (5009, "CU_FILE_DEVICE_NOT_SUPPORTED", "this GPU has no GPUDirect Storage"),
    (5010, "CU_FILE_NVFS_DRIVER_ERROR", "the kernel module nvidia-fs has failed"),
    (CUDA_DRIVER_ERROR, "CU_FILE_CUDA_DRIVER_ERROR", "a call of CUDA has failed"),
    (5012, "CU_FILE_CUDA_POINTER_INVALID", "the memory is not the device's"),
    (5016, "CU_FILE_INVALID_MAPPING_SIZE", "the memory is larger than may be pinned"),
    (5019, "CU_FILE_INVALID_FILE_OPEN_FLAG", "the file system does not open files in this way"),
    (5020, "CU_FILE_DIO_NOT_SET", "the file system has no direct I/O"),
    (5022, "CU_FILE_INVALID_VALUE", "an argument is wrong"),
    (5023, "CU_FILE_MEMORY_ALREADY_REGISTERED", "the memory is registered already"),
    (5024, "CU_FILE_MEMORY_NOT_REGISTERED", "the memory is not registered"),
    (5025, "CU_FILE_PERMISSION_DENIED", "the driver or the file may not be used"),
    (5028, "CU_FILE_HANDLE_ALREADY_REGISTERED", "the file is registered already"),
    (5030, "CU_FILE_INTERNAL_ERROR", "cuFile has failed"),
    (5034, "CU_FILE_IO_DISABLED", "cufile.json turns GPUDirect Storage off for this file"),
    (5035, "CU_FILE_BATCH_SUBMIT_FAILED", "the reads were not taken"),
    (5036, "CU_FILE_GPU_MEMORY_PINNING_FAILED", "the memory cannot be pinned"),
    (5037, "CU_FILE_BATCH_FULL", "too many reads are under way"),
    (5044, "CU_FILE_IO_ERROR", "reading has failed"),
    (5049, "CU_FILE_BATCH_NOCOMPAT_ERROR", "batches need compatibility mode on this file system"),
];

/// What calls return.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    error: c_int,
    cuda: c_int,
}

/// A file that is registered.
#[repr(C)]
struct Description {
    kind: c_int,
    handle: Handle,
    operations: *const c_void,
}

#[repr(C)]
union Handle {
    fd: c_int,
    pointer: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    major: c_uint,
    minor: c_uint,
    poll_threshold: usize,
    max_direct_io: usize,
    status_flags: c_uint,
    control_flags: c_uint,
    feature_flags: c_uint,
    max_device_cache: c_uint,
    per_buffer_cache: c_uint,
    max_device_pinned: c_uint,
    max_batch_io: c_uint,
    max_batch_timeout_ms: c_uint,
    /// For fields of later versions.
    later: [u64; 16],
}

/// A read of a batch.
#[repr(C)]
struct Request {
    mode: c_int,
    base: *mut c_void,
    file_offset: i64,
    offset: i64,
    len_bytes: usize,
    file: *mut c_void,
    operation: c_int,
    cookie: *mut c_void,
}

/// The end of a read of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    cookie: *mut c_void,
    status: c_int,
    read: isize,
}

#[repr(C)]
struct TimeSpec {
    seconds: c_long,
    nanoseconds: c_long,
}

const _: () = {
    assert!(size_of::<Description>() == 24 && size_of::<Request>() == 64 && size_of::<Completion>() == 24);
    assert!(size_of::<Status>() == 8);
};

/// Declares the functions, with the names under which they are looked up.
macro_rules! functions {
    ($($field:ident: $name:literal = ($($argument:ty),*) -> $result:ty;)*) => {
        #[derive(Clone, Copy)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// The library is cuFile, and stays loaded.
            unsafe fn of(library: &Library) -> std::result::Result<Self, &'static str> {
                // SAFETY: the contract; these are the functions' types.
                unsafe {
                    Ok(Self {
                        $($field: *library.get(concat!($name, "\0").as_bytes()).map_err(|_| $name)?,)*
                    })
                }
            }
        }
    };
}

functions! {
    version: "cuFileGetVersion" = (*mut c_int) -> Status;
    open: "cuFileDriverOpen" = () -> Status;
    properties: "cuFileDriverGetProperties" = (*mut Properties) -> Status;
    register_file: "cuFileHandleRegister" = (*mut *mut c_void, *mut Description) -> Status;
    deregister_file: "cuFileHandleDeregister" = (*mut c_void) -> ();
    register_buffer: "cuFileBufRegister" = (*const c_void, usize, c_int) -> Status;
    deregister_buffer: "cuFileBufDeregister" = (*const c_void) -> Status;
    read: "cuFileRead" = (*mut c_void, *mut c_void, usize, i64, i64) -> isize;
    batch_set_up: "cuFileBatchIOSetUp" = (*mut *mut c_void, c_uint) -> Status;
    batch_submit: "cuFileBatchIOSubmit" = (*mut c_void, c_uint, *mut Request, c_uint) -> Status;
    batch_status: "cuFileBatchIOGetStatus" =
        (*mut c_void, c_uint, *mut c_uint, *mut Completion, *mut TimeSpec) -> Status;
    batch_cancel: "cuFileBatchIOCancel" = (*mut c_void) -> Status;
    batch_destroy: "cuFileBatchIODestroy" = (*mut c_void) -> ();
}

/// The loaded library, whose driver may be closed.
pub(crate) struct Loaded {
    functions: Functions,
    path: PathBuf,
}

/// cuFile with its driver open, for the rest of the process.
#[derive(Clone, Copy)]
pub(crate) struct CuFile {
    functions: Functions,
    /// Largest number of reads that are submitted together.
    most_entries: usize,
    /// Whether reads can go past the host. Otherwise cuFile reads to the host's memory and copies.
    pub(crate) is_direct: bool,
}

impl Loaded {
    /// Finds and loads the library. Nothing of it runs.
    ///
    /// # Errors
    /// [`Error::Device`] with the remedy.
    pub(crate) fn find() -> Result<Self> {
        let failed = |message: String| Error::Device { call: "load cuFile".to_owned(), message };
        let mut unfit = None;
        for path in candidates() {
            // SAFETY: cuFile's initializers have no preconditions. Whoever installed the file under this name, or gave
            // its path, must see to it that it is cuFile.
            let Ok(library) = (unsafe { Library::new(&path) }) else { continue };
            // SAFETY: as above; the library is never unloaded.
            match unsafe { Functions::of(&library) } {
                Ok(functions) => {
                    std::mem::forget(library);
                    return Ok(Self { functions, path });
                }
                Err(missing) => {
                    let message = format!("{} has no function {missing}: install a later cuFile", path.display());
                    unfit = unfit.or(Some(message));
                }
            }
        }
        Err(failed(unfit.unwrap_or_else(|| format!("there is no {}: {REMEDY}", NAMES[0]))))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version. Neither a driver nor a device is needed.
    pub(crate) fn version(&self) -> Result<(i32, i32)> {
        let mut version = 0;
        // SAFETY: the number is written before the call returns.
        check("cuFileGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        Ok((version / 1000, version % 1000 / 10))
    }
}

impl CuFile {
    /// Opens the driver, once in a process. The context must work.
    ///
    /// # Errors
    /// [`Error::Device`] with the missing part and the remedy.
    pub(crate) fn open(context: &Context) -> Result<Self> {
        static OPENED: Mutex<Option<CuFile>> = Mutex::new(None);
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(*opened);
        }
        let functions = Loaded::find()?.functions;
        let (to, from) = mpsc::channel();
        let of_thread = Context::clone(context);
        let run = move || {
            let open = || {
                place_log()?;
                let _entered = enter(&of_thread)?;
                // SAFETY: a driver is there, and a context is current.
                match unsafe { (functions.open)() } {
                    Status { error: DRIVER_ALREADY_OPEN, .. } => Ok(()),
                    status @ Status { error: DRIVER_NOT_INITIALIZED, .. } => check("cuFileDriverOpen", status)
                        .map_err(|error| with_remedy(error, "load nvidia-fs, or set allow_compat_mode in cufile.json")),
                    status => check("cuFileDriverOpen", status),
                }
            };
            // The receiver is gone if opening took too long.
            let _ = to.send(open());
        };
        let began = thread::Builder::new().name("warpfeed-cufile".to_owned()).spawn(run);
        began.map_err(|source| Error::Device { call: "open cuFile".to_owned(), message: source.to_string() })?;
        from.recv_timeout(OPENING).unwrap_or_else(|_| {
            let message = format!(
                "cuFileDriverOpen did not return in {} s: look into {LOG_VARIABLE}, or leave out gpu_direct",
                OPENING.as_secs()
            );
            Err(Error::Device { call: "open cuFile".to_owned(), message })
        })?;
        // SAFETY: zeros are valid in every field.
        let mut properties: Properties = unsafe { std::mem::zeroed() };
        // SAFETY: the properties are written before the call returns; there is room for those of later versions.
        check("cuFileDriverGetProperties", unsafe { (functions.properties)(&raw mut properties) })?;
        let has_module = (properties.major, properties.minor) != (0, 0);
        let is_direct = has_module || properties.status_flags & NVME_P2P != 0;
        let most_entries = (properties.max_batch_io as usize).clamp(1, MOST_ENTRIES);
        Ok(*opened.insert(Self { functions, most_entries, is_direct }))
    }
}

/// Keeps cuFile's log out of the working folder, where it is made when the driver is opened, unless the user has named
/// it. cuFile's parameters do not change that, and another thread may be reading the environment. So the calling thread,
/// which opens the driver and then ends, gets a working folder of its own.
#[cfg(target_os = "linux")]
fn place_log() -> Result<()> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    if env::var_os(LOG_VARIABLE).is_some() {
        return Ok(());
    }
    let folder = cache_folder().filter(|folder| std::fs::create_dir_all(folder).is_ok());
    let folder = folder.unwrap_or_else(env::temp_dir);
    // SAFETY: descriptors stay shared.
    let is_apart = unsafe { unshare_unsafe(UnshareFlags::FS) }.is_ok();
    if is_apart && env::set_current_dir(&folder).is_ok() {
        return Ok(());
    }
    let message = format!("cuFile would write cufile.log into the working folder: set {LOG_VARIABLE} to another path");
    Err(Error::Device { call: "open cuFile".to_owned(), message })
}

#[cfg(not(target_os = "linux"))]
fn place_log() -> Result<()> {
    Ok(())
}

/// A file that cuFile reads.
pub(crate) struct RegisteredFile {
    // Dropped before the file is closed.
    handle: Scoped<FileHandle>,
    pub(crate) file: File,
}

struct FileHandle {
    handle: *mut c_void,
    functions: Functions,
}

// SAFETY: cuFile's functions on a handle are thread-safe.
unsafe impl Send for FileHandle {}
// SAFETY: as above.
unsafe impl Sync for FileHandle {}

impl Drop for FileHandle {
    fn drop(&mut self) {
        // SAFETY: registered once; no read is under way, because reads borrow the file.
        unsafe { (self.functions.deregister_file)(self.handle) };
    }
}

/// Device memory that reads arrive in.
pub(crate) struct ReadBuffer {
    // Dropped before the memory is freed. `None` if the memory could not be registered: reads are then copied within
    // the device.
    _registration: Option<Scoped<Registration>>,
    memory: DeviceMemory,
}

struct Registration {
    address: *const c_void,
    functions: Functions,
}

// SAFETY: cuFile's functions on memory are thread-safe.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        // It fails only if the context has failed.
        // SAFETY: registered once; no read is under way, because reads borrow the buffer.
        let _ = unsafe { (self.functions.deregister_buffer)(self.address) };
    }
}

impl ReadBuffer {
    /// Address of the first byte, a multiple of [`ALIGN_BYTES`].
    pub(crate) fn address(&self) -> u64 {
        self.memory.address().next_multiple_of(ALIGN_BYTES)
    }

    /// Says that nothing uses the memory any more.
    pub(crate) fn idle(&mut self) {
        self.memory.idle();
    }
}

/// A read of a file to a buffer.
pub(crate) struct Read<'a> {
    pub(crate) file: &'a RegisteredFile,
    /// Offset in the file, and in the buffer.
    pub(crate) file_offset: u64,
    pub(crate) offset: u64,
    pub(crate) len_bytes: usize,
    /// Number of bytes that must come. The rest may be beyond the end of the file.
    pub(crate) needed_bytes: usize,
}

/// Results of reads: for each one, the reason if it has failed.
pub(crate) type Results = Vec<std::result::Result<(), String>>;

impl CuFile {
    /// Registers a file.
    ///
    /// # Errors
    /// [`Error::Device`] if this file cannot be read so.
    pub(crate) fn register_file(&self, context: &Context, file: File) -> Result<RegisteredFile> {
        let _entered = enter(context)?;
        let mut description =
            Description { kind: HANDLE_TYPE_OPAQUE_FD, handle: Handle { fd: fd(&file) }, operations: null() };
        let mut handle = null_mut();
        // SAFETY: both are valid for the length of the call; the file stays open until the handle is given back.
        let status = unsafe { (self.functions.register_file)(&raw mut handle, &raw mut description) };
        check("cuFileHandleRegister", status)?;
        let handle = Scoped::new(context, FileHandle { handle, functions: self.functions });
        Ok(RegisteredFile { handle, file })
    }

    /// Device memory for `len_bytes` bytes, for many reads.
    pub(crate) fn buffer(&self, context: &Context, len_bytes: usize) -> Result<ReadBuffer> {
        let _entered = enter(context)?;
        let memory = DeviceMemory::new(context, len_bytes + ALIGN_BYTES as usize)?;
        let address: *const c_void = without_provenance_mut::<c_void>(memory.address() as usize);
        // SAFETY: the memory is allocated until after it is deregistered.
        let status = unsafe { (self.functions.register_buffer)(address, memory.len_bytes(), 0) };
        let registration = (status.error == SUCCESS)
            .then(|| Scoped::new(context, Registration { address, functions: self.functions }));
        Ok(ReadBuffer { _registration: registration, memory })
    }

    /// Reads to a buffer. The context is current.
    ///
    /// # Errors
    /// The reason, in words.
    ///
    /// # Safety
    /// The range lies in the buffer, and no work on the device uses it.
    pub(crate) unsafe fn read(&self, buffer: &ReadBuffer, read: &Read<'_>) -> std::result::Result<(), String> {
        let (base, mut done, mut interruptions) = (buffer.memory.address(), 0, 0);
        let shift = buffer.address() - base;
        while done < read.needed_bytes {
            // Where storage can go on: what lies between comes again.
            let from = done / ALIGN_BYTES as usize * ALIGN_BYTES as usize;
            let (len_bytes, file_offset) = (read.len_bytes - from, (read.file_offset + from as u64) as i64);
            let offset = (shift + read.offset + from as u64) as i64;
            let to = without_provenance_mut(base as usize);
            // SAFETY: the file and the buffer are registered or valid for the call; the rest is the contract.
            let got = unsafe { (self.functions.read)(read.file.handle.handle, to, len_bytes, file_offset, offset) };
            match got {
                -1 => {
                    let error = io::Error::last_os_error();
                    interruptions += 1;
                    if error.kind() != io::ErrorKind::Interrupted || interruptions > INTERRUPTIONS {
                        return Err(format!("cuFileRead: {error}"));
                    }
                }
                got if got < 0 => return Err(format!("cuFileRead: {}", described(-got as c_int))),
                got if from + got as usize <= done => return Err("cuFileRead: the file has ended".to_owned()),
                got => done = from + got as usize,
            }
        }
        Ok(())
    }

    /// Largest number of reads for [`read_together`](Self::read_together).
    pub(crate) fn most_entries(&self) -> usize {
        self.most_entries
    }

    /// Reads to a buffer at the same time, at most [`most_entries`](Self::most_entries) reads. The context is current.
    ///
    /// # Errors
    /// `None` if reads did not end. The buffer is then written at any time, and must neither be used nor freed.
    ///
    /// # Safety
    /// The ranges lie in the buffer and do not overlap, and no work on the device uses them.
    pub(crate) unsafe fn read_together(&self, buffer: &ReadBuffer, reads: &[Read<'_>]) -> Option<Results> {
        let base = buffer.memory.address();
        let shift = buffer.address() - base;
        let request = |(number, read): (usize, &Read<'_>)| Request {
            mode: BATCH_MODE,
            base: without_provenance_mut(base as usize),
            file_offset: read.file_offset as i64,
            offset: (shift + read.offset) as i64,
            len_bytes: read.len_bytes,
            file: read.file.handle.handle,
            operation: READ,
            cookie: without_provenance_mut(number + 1),
        };
        let mut requests: Vec<_> = reads.iter().enumerate().map(request).collect();
        let all_failed = |reason: String| reads.iter().map(|_| Err(reason.clone())).collect::<Results>();
        let (count, mut batch) = (reads.len() as c_uint, null_mut());
        // SAFETY: the handle is written before the call returns.
        if let Err(error) = check("cuFileBatchIOSetUp", unsafe { (self.functions.batch_set_up)(&raw mut batch, count) })
        {
            return Some(all_failed(error.to_string()));
        }
        // SAFETY: the requests are valid until the batch is destroyed; the rest is the contract.
        let status = unsafe { (self.functions.batch_submit)(batch, count, requests.as_mut_ptr(), 0) };
        if let Err(error) = check("cuFileBatchIOSubmit", status) {
            // SAFETY: it was set up above, and nothing was submitted.
            unsafe { (self.functions.batch_destroy)(batch) };
            return Some(all_failed(error.to_string()));
        }
        let mut results: Vec<Option<std::result::Result<(), String>>> = reads.iter().map(|_| None).collect();
        self.wait(batch, reads, &mut results, READING);
        if results.iter().any(Option::is_none) {
            // SAFETY: the batch was submitted.
            let _ = unsafe { (self.functions.batch_cancel)(batch) };
            self.wait(batch, reads, &mut results, CANCELING);
        }
        if results.iter().any(Option::is_none) {
            // Reads are under way, so the batch and its requests stay.
            std::mem::forget(requests);
            return None;
        }
        // SAFETY: all of its reads have ended.
        unsafe { (self.functions.batch_destroy)(batch) };
        Some(results.into_iter().map(|result| result.unwrap_or(Ok(()))).collect())
    }

    /// Waits for reads of a batch, and notes the results of those that end.
    fn wait(
        &self,
        batch: *mut c_void,
        reads: &[Read<'_>],
        results: &mut [Option<std::result::Result<(), String>>],
        most: Duration,
    ) {
        let deadline = Instant::now() + most;
        let mut left = results.iter().filter(|result| result.is_none()).count();
        while left > 0 {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return;
            }
            let mut timeout =
                TimeSpec { seconds: rest.as_secs() as c_long, nanoseconds: rest.subsec_nanos() as c_long };
            let mut count = left as c_uint;
            let mut ended = vec![Completion { cookie: null_mut(), status: 0, read: 0 }; left];
            // SAFETY: there is room for as many completions as `count` says; all is valid for the length of the call.
            let status = unsafe {
                (self.functions.batch_status)(batch, 1, &raw mut count, ended.as_mut_ptr(), &raw mut timeout)
            };
            if status.error != SUCCESS {
                return;
            }
            for Completion { cookie, status, read } in ended.into_iter().take(count as usize) {
                let Some(number) = cookie.addr().checked_sub(1) else { continue };
                let (Some(wanted), Some(result)) = (reads.get(number), results.get_mut(number)) else { continue };
                // Reads that were begun or are waiting are not at their end.
                if result.is_some() || status & 3 != 0 {
                    continue;
                }
                left -= 1;
                *result = Some(match status {
                    COMPLETE if read >= 0 && read as usize >= wanted.needed_bytes => Ok(()),
                    COMPLETE if read >= 0 => Err("cuFile's batch: the file has ended".to_owned()),
                    COMPLETE => Err(format!("cuFile's batch: {}", described(-read as c_int))),
                    8 => Err("cuFile's batch: a read was canceled".to_owned()),
                    32 => Err("cuFile's batch: a read has timed out".to_owned()),
                    _ => Err("cuFile's batch: a read has failed".to_owned()),
                });
            }
        }
    }
}

#[cfg(unix)]
fn fd(file: &File) -> c_int {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

#[cfg(not(unix))]
fn fd(_file: &File) -> c_int {
    -1
}

/// A code's name, number and meaning.
fn described(code: c_int) -> String {
    match CODES.iter().find(|(known, ..)| *known == code) {
        Some((_, name, meaning)) => format!("{name} ({code}): {meaning}"),
        None => format!("code {code}"),
    }
}

fn check(call: &str, status: Status) -> Result<()> {
    if status.error == SUCCESS {
        return Ok(());
    }
    let cuda =
        if status.error == CUDA_DRIVER_ERROR { format!(" (CUDA's code {})", status.cuda) } else { String::new() };
    Err(Error::Device { call: call.to_owned(), message: format!("{}{cuda}", described(status.error)) })
}

fn with_remedy(error: Error, remedy: &str) -> Error {
    match error {
        Error::Device { call, message } => Error::Device { call, message: format!("{message}; {remedy}") },
        other => other,
    }
}

/// The files to try, in order. Bare names are for the system's loader.
fn candidates() -> Vec<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let in_folder = |folder: &Path| NAMES.map(|name| folder.join(name));
    if let Some(path) = set(PATH_VARIABLE) {
        return if path.is_dir() { in_folder(&path).to_vec() } else { vec![path] };
    }
    let mut paths: Vec<PathBuf> = NAMES.map(PathBuf::from).to_vec();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set).chain([PathBuf::from("/usr/local/cuda")]);
    toolkits.for_each(|toolkit| paths.extend(in_folder(&toolkit.join("lib64"))));
    let local = [".venv", ".cuda"].map(PathBuf::from);
    for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).chain(local) {
        paths.extend(in_folder(&environment.join("lib")));
        let wheels = environment.join("lib/python3*/site-packages/nvidia/*/lib").join(NAMES[0]);
        let found = wheels.to_str().and_then(|pattern| glob::glob(pattern).ok());
        paths.extend(found.into_iter().flatten().flatten());
    }
    paths
}
