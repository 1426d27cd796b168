//! NVIDIA's management library, found at run time: names of the GPUs, and how busy they and their decoders are.
//!
//! Only a few calls of `nvml.h` are bound, by the `_v2` names that the header maps the plain ones to. A crate for the
//! whole library would bring a second `libloading` and `thiserror`.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;
/// More than any of the names that are asked for: `NVML_DEVICE_NAME_V2_BUFFER_SIZE` is 96.
const NAME_BYTES: usize = 256;

type Handle = *mut c_void;

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Default)]
struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

type Call = unsafe extern "C" fn() -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut Handle) -> c_int;
type Name = unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
type UtilizationRates = unsafe extern "C" fn(Handle, *mut Rates) -> c_int;
type EngineUtilization = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;

/// The library, initialized.
pub(super) struct Nvml {
    library: Library,
    rates: Option<UtilizationRates>,
    decoder: Option<EngineUtilization>,
    jpeg: Option<EngineUtilization>,
    devices: Vec<Handle>,
}

// SAFETY: NVML says of itself that it is thread-safe; its handles name devices and are valid on every thread.
#[allow(unsafe_code)]
unsafe impl Send for Nvml {}

/// How busy one GPU was in the library's last period (1/6 to 1 second), 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GpuUse {
    pub(super) gpu: f32,
    /// The video decoder.
    pub(super) decoder: Option<f32>,
    /// The JPEG decoder.
    pub(super) jpeg: Option<f32>,
}

#[allow(unsafe_code)]
impl Nvml {
    /// Finds and initializes the library, or says why not.
    pub(super) fn open() -> Result<Self, String> {
        let found = NAMES.iter().find_map(|name| {
            // SAFETY: loading NVIDIA's library runs its initializers, which any program may run at any time.
            unsafe { Library::new(*name) }.ok()
        });
        let library = found.ok_or_else(|| {
            format!(
                "no NVIDIA driver on this machine (looked for {} where the system's loader looks)",
                NAMES.join(" and ")
            )
        })?;
        // SAFETY: the types above are those of nvml.h for these names, and the pointers are kept no longer than
        // `library`, which is stored beside them. What is written to outlives each call.
        unsafe {
            let init = *library.get::<Call>(b"nvmlInit_v2").map_err(|error| error.to_string())?;
            let count = *library.get::<Count>(b"nvmlDeviceGetCount_v2").map_err(|error| error.to_string())?;
            let by_index =
                *library.get::<ByIndex>(b"nvmlDeviceGetHandleByIndex_v2").map_err(|error| error.to_string())?;
            let status = init();
            if status != SUCCESS {
                return Err(format!(
                    "nvmlInit_v2 failed with status {status}: the driver is there, but no GPU it can use"
                ));
            }
            let mut number = 0;
            if count(&raw mut number) != SUCCESS {
                number = 0;
            }
            let devices = (0..number).filter_map(|index| {
                let mut handle = null_mut();
                (by_index(index, &raw mut handle) == SUCCESS).then_some(handle)
            });
            let devices = devices.collect();
            let rates = library.get(b"nvmlDeviceGetUtilizationRates").ok().map(|symbol| *symbol);
            let decoder = library.get(b"nvmlDeviceGetDecoderUtilization").ok().map(|symbol| *symbol);
            let jpeg = library.get(b"nvmlDeviceGetJpgUtilization").ok().map(|symbol| *symbol);
            Ok(Self { library, rates, decoder, jpeg, devices })
        }
    }

    /// Number of GPUs.
    pub(super) fn len(&self) -> usize {
        self.devices.len()
    }

    /// Names of the GPUs.
    pub(super) fn names(&self) -> Vec<String> {
        // SAFETY: the type is nvml.h's; the buffer is as long as the call is told, and the handles are NVML's own.
        let name = |handle| unsafe {
            let call = self.library.get::<Name>(b"nvmlDeviceGetName").ok()?;
            text(|buffer, len| call(handle, buffer, len))
        };
        self.devices.iter().map(|&handle| name(handle).unwrap_or_else(|| "a GPU without a name".to_owned())).collect()
    }

    /// Version of the driver.
    pub(super) fn driver(&self) -> Option<String> {
        // SAFETY: the type is nvml.h's; the buffer is as long as the call is told.
        unsafe {
            let call = self.library.get::<Version>(b"nvmlSystemGetDriverVersion").ok()?;
            text(|buffer, len| call(buffer, len))
        }
    }

    /// How busy a GPU is; `None` if it does not say.
    pub(super) fn usage(&self, device: usize) -> Option<GpuUse> {
        let &handle = self.devices.get(device)?;
        let mut rates = Rates::default();
        // SAFETY: the handle is NVML's own, and what is written to outlives the call.
        if unsafe { self.rates?(handle, &raw mut rates) } != SUCCESS {
            return None;
        }
        let engine = |call: Option<EngineUtilization>| {
            let (mut percent, mut period_us) = (0, 0);
            // SAFETY: as above.
            let status = unsafe { call?(handle, &raw mut percent, &raw mut period_us) };
            (status == SUCCESS).then_some(percent as f32 / 100.0)
        };
        Some(GpuUse { gpu: rates.gpu as f32 / 100.0, decoder: engine(self.decoder), jpeg: engine(self.jpeg) })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: the library was initialized once by `open`; each initialization is paired with a shutdown.
        #[allow(unsafe_code)]
        unsafe {
            if let Ok(shutdown) = self.library.get::<Call>(b"nvmlShutdown") {
                shutdown();
            }
        }
    }
}

/// The text that a call has written into a buffer.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Option<String> {
    let mut buffer = [0_u8; NAME_BYTES];
    if call(buffer.as_mut_ptr().cast(), NAME_BYTES as c_uint) != SUCCESS {
        return None;
    }
    Some(CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().into_owned())
}
