//! Spans for profilers: those of `tracing` (feature `tracing`), and NVTX ranges if Nsight listens. NVTX's two functions
//! are looked up in NVIDIA's library, because NVIDIA's crate needs libclang to build.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::OnceLock;

/// File names of NVTX's library, of CUDA 13 and of earlier versions.
const NVTX_NAMES: [&str; 2] = ["libnvtx3interop.so.1", "libnvToolsExt.so.1"];
/// Variable with the path of the listening profiler. NVTX does nothing unless it is set; Nsight sets it for programs
/// that it starts.
const NVTX_LISTENER: &str = "NVTX_INJECTION64_PATH";

macro_rules! activities {
    ($($(#[$doc:meta])* $activity:ident = $name:literal,)*) => {
        /// The work of a thread during a span.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Activity {
            $($(#[$doc])* $activity,)*
        }

        impl Activity {
            fn name(self) -> &'static CStr {
                match self {
                    $(Self::$activity => const { c_name(concat!($name, "\0")) },)*
                }
            }

            #[cfg(feature = "tracing")]
            fn span(self, batch: Option<u64>, sample: Option<u64>) -> tracing::Span {
                match self {
                    $(Self::$activity => tracing::trace_span!(target: "warpfeed", $name, batch, sample),)*
                }
            }
        }
    };
}

const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("names are written down with their zero"),
    }
}

activities! {
    /// The work on a sample, named by its batch and its index. The activities below, down to `Lower`, are inside it.
    Sample = "sample",
    Read = "read",
    /// Decoding by this thread, or handing the image to a decoder of the device.
    Decode = "decode",
    /// Running operations on the CPU.
    Augment = "augment",
    /// Writing the descriptors of the device's kernels for a sample.
    Lower = "lower",
    /// The end of a batch, named by its number. `Settle`, `Upload` and `Launch` are inside it.
    Batch = "batch",
    /// Decoding the images that were left for the whole batch.
    Settle = "settle",
    /// Queueing the copy to the device.
    Upload = "upload",
    /// Queueing the kernels.
    Launch = "launch",
    /// The consumer's wait for a batch, named by its number.
    HandOver = "hand_over",
}

/// A span. It ends when it is dropped, on the thread that began it.
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
    /// The library that the range was begun with.
    nvtx: Option<&'static Nvtx>,
    /// A range belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Span {
    /// A span inside a sample's or a batch's span.
    pub(crate) fn enter(activity: Activity) -> Self {
        Self::begin(activity, None, None)
    }

    /// A span of batch number `batch`, counted from the start of the epoch.
    pub(crate) fn of_batch(activity: Activity, batch: u64) -> Self {
        Self::begin(activity, Some(batch), None)
    }

    /// The span of the sample with this index, and of its batch.
    pub(crate) fn of_sample(batch: u64, sample: u64) -> Self {
        Self::begin(Activity::Sample, Some(batch), Some(sample))
    }

    fn begin(activity: Activity, batch: Option<u64>, sample: Option<u64>) -> Self {
        let nvtx = nvtx();
        if let Some(nvtx) = nvtx {
            nvtx.push(activity, batch, sample);
        }
        Self {
            #[cfg(feature = "tracing")]
            _entered: activity.span(batch, sample).entered(),
            nvtx,
            _thread: PhantomData,
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(nvtx) = self.nvtx {
            // SAFETY: the function belongs to NVTX's library, which stays loaded.
            unsafe { (nvtx.pop)() };
        }
    }
}

/// NVTX's library, if it is installed and a profiler listens.
struct Nvtx {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    _library: Library,
}

fn nvtx() -> Option<&'static Nvtx> {
    static NVTX: OnceLock<Option<Nvtx>> = OnceLock::new();
    NVTX.get_or_init(|| {
        std::env::var_os(NVTX_LISTENER).filter(|path| !path.is_empty())?;
        let named = std::env::var_os("WARPFEED_NVTX").map(PathBuf::from);
        let paths = named.into_iter().chain(NVTX_NAMES.map(PathBuf::from));
        paths.into_iter().find_map(Nvtx::load)
    })
    .as_ref()
}

impl Nvtx {
    fn load(path: PathBuf) -> Option<Self> {
        // SAFETY: the initializers of NVIDIA's library have no preconditions, and neither have those of a library that
        // the user names.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: NVTX declares the functions with these types.
        let (push, pop) = unsafe { (*library.get(b"nvtxRangePushA\0").ok()?, *library.get(b"nvtxRangePop\0").ok()?) };
        Some(Self { push, pop, _library: library })
    }

    /// Begins a range on the calling thread.
    fn push(&self, activity: Activity, batch: Option<u64>, sample: Option<u64>) {
        let name = activity.name();
        let text = name.to_string_lossy();
        let numbered = match (batch, sample) {
            (Some(batch), Some(sample)) => CString::new(format!("{text} {sample} of batch {batch}")).ok(),
            (Some(batch), None) => CString::new(format!("{text} {batch}")).ok(),
            (None, _) => None,
        };
        // SAFETY: a string that ends in zero, which NVTX copies.
        unsafe { (self.push)(numbered.as_deref().unwrap_or(name).as_ptr()) };
    }
}
