//! What threads do, in spans: counted by [`ThreadTimes`], and for profilers, as spans of `tracing` (feature `tracing`)
//! and as NVTX ranges if Nsight listens. NVTX's two functions
//! are looked up in NVIDIA's library, because NVIDIA's crate needs libclang to build.
#![allow(unsafe_code)]

use libloading::Library;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::marker::PhantomData;
use std::ops::AddAssign;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// File names of NVTX's library, of CUDA 13 and of earlier versions.
const NVTX_NAMES: [&str; 2] = ["libnvtx3interop.so.1", "libnvToolsExt.so.1"];
/// Variable with the path of the listening profiler. NVTX does nothing unless it is set; Nsight sets it for programs
/// that it starts.
const NVTX_LISTENER: &str = "NVTX_INJECTION64_PATH";

macro_rules! activities {
    ($($(#[$doc:meta])* $activity:ident = $name:ident,)*) => {
        /// The work of a thread during a span.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum Activity {
            $($(#[$doc])* $activity,)*
        }

        impl Activity {
            const COUNT: usize = [$(Self::$activity),*].len();

            fn name(self) -> &'static CStr {
                match self {
                    $(Self::$activity => const { c_name(concat!(stringify!($name), "\0")) },)*
                }
            }

            #[cfg(feature = "tracing")]
            fn span(self, batch: Option<u64>, sample: Option<u64>) -> tracing::Span {
                match self {
                    $(Self::$activity => {
                        tracing::trace_span!(target: "warpfeed", stringify!($name), batch, sample)
                    })*
                }
            }
        }

        /// Time that a worker thread has spent on each activity, without the activities inside it. Times pass by the
        /// clock: they include what other threads and processes did on the same processor.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct ThreadTimes {
            $($(#[$doc])* pub $name: Duration,)*
        }

        impl From<[Duration; Activity::COUNT]> for ThreadTimes {
            fn from(times: [Duration; Activity::COUNT]) -> Self {
                Self { $($name: times[Activity::$activity as usize],)* }
            }
        }

        impl AddAssign for ThreadTimes {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl ThreadTimes {
            /// Each activity's name and its time.
            #[must_use]
            pub fn by_name(&self) -> Vec<(&'static str, Duration)> {
                vec![$((stringify!($name), self.$name)),*]
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
    Sample = sample,
    /// Reading a sample from its source.
    Read = read,
    /// Reading the image's header.
    Header = header,
    /// Drawing and planning recipes, and moving fields.
    Draw = draw,
    /// Decoding by this thread, or handing the image to a decoder of the device. The three activities below are inside
    /// it.
    Decode = decode,
    /// For the device's decoder: finding the image's scan and tables.
    Parse = parse,
    /// For the device's decoder: hashing the image, and looking up its entry points.
    Lookup = lookup,
    /// For the device's decoder: copying the image to staging memory.
    Stage = stage,
    /// Running operations on the CPU.
    Augment = augment,
    /// Writing the descriptors of the device's kernels for a sample.
    Lower = lower,
    /// The end of a batch, named by its number. `Settle`, `Upload` and `Launch` are inside it.
    Batch = batch,
    /// Decoding the images that were left for the whole batch, and waiting for those that the device refuses.
    Settle = settle,
    /// Queueing the copy to the device.
    Upload = upload,
    /// Queueing the kernels.
    Launch = launch,
    /// The consumer's wait for a batch, named by its number.
    HandOver = hand_over,
}

/// The time of the calling thread, by activity.
struct Clock {
    spent: [Cell<Duration>; Activity::COUNT],
    /// The activity at this moment, and since when; `None` outside of all spans.
    now: Cell<Option<(Activity, Instant)>>,
}

thread_local! {
    static CLOCK: Clock = const { Clock { spent: [const { Cell::new(Duration::ZERO) }; _], now: Cell::new(None) } };
}

impl Clock {
    /// Turns to another activity. Returns the one before.
    fn turn(&self, to: Option<Activity>) -> Option<Activity> {
        let now = Instant::now();
        let (before, since) = self.now.replace(to.map(|to| (to, now))).unzip();
        if let (Some(before), Some(since)) = (before, since) {
            let spent = &self.spent[before as usize];
            spent.set(spent.get() + (now - since));
        }
        before
    }
}

/// Takes the times of this thread since the last call.
pub(crate) fn take_times() -> ThreadTimes {
    CLOCK.with(|clock| clock.spent.each_ref().map(Cell::take).into())
}

/// A span. It ends when it is dropped, on the thread that began it.
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
    /// The library that the range was begun with.
    nvtx: Option<&'static Nvtx>,
    /// What the thread did before.
    before: Option<Activity>,
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
            before: CLOCK.with(|clock| clock.turn(Some(activity))),
            _thread: PhantomData,
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        CLOCK.with(|clock| clock.turn(self.before));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_without_the_activities_inside() {
        let sleep = |ms| std::thread::sleep(Duration::from_millis(ms));
        take_times();
        {
            let _sample = Span::of_sample(0, 0);
            sleep(20);
            {
                let _read = Span::enter(Activity::Read);
                sleep(40);
            }
            sleep(20);
        }
        sleep(20);
        let times = take_times();
        let (sample, read) = (times.sample.as_millis(), times.read.as_millis());
        assert!((40..60).contains(&sample) && (40..60).contains(&read), "{times:?}");
        assert_eq!((times.decode, take_times()), (Duration::ZERO, ThreadTimes::default()));
    }
}
