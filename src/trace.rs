//! What profilers are told: spans of `tracing` (feature `tracing`), and ranges of NVTX where Nsight listens.
#![allow(unsafe_code)]

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Names that NVTX's library goes by, of CUDA 13 and before.
const NVTX_NAMES: [&str; 2] = ["libnvtx3interop.so.1", "libnvToolsExt.so.1"];
/// Where NVTX finds the profiler that listens: it does nothing unless this is set, as Nsight does for what it starts.
const NVTX_LISTENER: &str = "NVTX_INJECTION64_PATH";

macro_rules! activities {
    ($($(#[$doc:meta])* $activity:ident = $name:literal,)*) => {
        /// What a thread is at work on.
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
    /// A sample, by its batch and its index: what follows, down to `Lower`, is inside.
    Sample = "sample",
    Read = "read",
    /// By this thread, or handing it to a decoder of the device.
    Decode = "decode",
    /// On the CPU.
    Augment = "augment",
    /// Writing down what the device's kernels have to do for a sample.
    Lower = "lower",
    /// The end of a batch, by its number: `Settle`, `Upload` and `Launch` are inside.
    Batch = "batch",
    /// Decoding what was left for the whole batch.
    Settle = "settle",
    /// Queueing the copy to the device.
    Upload = "upload",
    /// Queueing the kernels.
    Launch = "launch",
    /// The consumer waiting for a batch, by its number.
    HandOver = "hand_over",
}

/// A span that ends when it is dropped, on the thread that began it.
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
    /// Whose range it is.
    nvtx: Option<&'static Nvtx>,
    /// Ranges are a thread's own.
    _thread: PhantomData<*const ()>,
}

impl Span {
    /// Inside of a sample's or a batch's.
    pub(crate) fn enter(activity: Activity) -> Self {
        Self::begin(activity, None, None)
    }

    /// Of batch number `batch` of the epoch, counted from where that began.
    pub(crate) fn of_batch(activity: Activity, batch: u64) -> Self {
        Self::begin(activity, Some(batch), None)
    }

    /// Of the sample with an index, and its batch.
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
            // SAFETY: the function is NVTX's, which the library that is kept loaded has.
            unsafe { (nvtx.pop)() };
        }
    }
}

/// NVTX's library, where it is and a profiler listens.
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
        // SAFETY: the initializers of NVIDIA's library have no conditions, nor have those of one that the user names.
        let library = unsafe { Library::new(path) }.ok()?;
        // SAFETY: NVTX declares the functions with these types.
        let (push, pop) = unsafe { (*library.get(b"nvtxRangePushA\0").ok()?, *library.get(b"nvtxRangePop\0").ok()?) };
        Some(Self { push, pop, _library: library })
    }

    /// Begins a range of the calling thread.
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
