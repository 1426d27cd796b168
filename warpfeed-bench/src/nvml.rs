//! NVIDIA's management library (NVML), loaded at run time: utilization of GPUs and their decoders.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// `NVML_SUCCESS`.
const SUCCESS: c_int = 0;
/// `NVML_CLOCK_SM`.
const CLOCK_SM: c_int = 1;
/// `NVML_PCIE_UTIL_RX_BYTES`: bytes that the GPU receives.
const PCIE_RECEIVED: c_int = 1;
/// Longer than all names that are requested: `NVML_DEVICE_NAME_V2_BUFFER_SIZE` is 96.
const NAME_BYTES: usize = 256;

type Handle = *mut c_void;

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Default)]
struct Rates {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

type Call = unsafe extern "C" fn() -> c_int;
type ByPciAddress = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
type Version = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
type UtilizationRates = unsafe extern "C" fn(Handle, *mut Rates) -> c_int;
type ClockInfo = unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> c_int;
type MemoryInfo = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
type PcieThroughput = unsafe extern "C" fn(Handle, c_int, *mut c_uint) -> c_int;
type EngineUtilization = unsafe extern "C" fn(Handle, *mut c_uint, *mut c_uint) -> c_int;

/// The library, initialized.
pub(super) struct Nvml {
    library: Library,
    rates: Option<UtilizationRates>,
    memory: Option<MemoryInfo>,
    pcie: Option<PcieThroughput>,
    decoder: Option<EngineUtilization>,
    jpeg: Option<EngineUtilization>,
    /// CUDA's GPUs in CUDA's order; `None` for one that NVML does not know.
    devices: Vec<Option<Handle>>,
}

// SAFETY: NVML says of itself that it is thread-safe; its handles name devices and are valid on every thread.
#[allow(unsafe_code)]
unsafe impl Send for Nvml {}

/// Utilization of one GPU in NVML's last period (1/6 to 1 second), 0 to 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GpuUse {
    pub(super) gpu: f32,
    /// Share of its memory that is in use by any process.
    pub(super) memory: Option<f32>,
    /// Utilization of the video decoder.
    pub(super) decoder: Option<f32>,
    /// Utilization of the JPEG decoder.
    pub(super) jpeg: Option<f32>,
}

#[allow(unsafe_code)]
impl Nvml {
    /// Loads and initializes NVML for the GPUs at these PCI addresses. The error says why that failed.
    pub(super) fn open(addresses: &[CString]) -> Result<Self, String> {
        let found = NAMES.iter().find_map(|name| {
            // SAFETY: loading NVIDIA's library runs its initializers, which any program may run at any time.
            unsafe { Library::new(*name) }.ok()
        });
        let library = found.ok_or_else(|| format!("no {} where the system's loader looks", NAMES.join(" and no ")))?;
        Self::init(library, addresses)
    }

    fn init(library: Library, addresses: &[CString]) -> Result<Self, String> {
        // SAFETY: the types above are those of nvml.h for these names, and the pointers are kept no longer than
        // `library`, which is stored beside them. What is written to outlives each call.
        unsafe {
            let init = *library.get::<Call>(b"nvmlInit_v2").map_err(|error| error.to_string())?;
            let by_address =
                *library.get::<ByPciAddress>(b"nvmlDeviceGetHandleByPciBusId_v2").map_err(|error| error.to_string())?;
            let status = init();
            if status != SUCCESS {
                return Err(format!(
                    "nvmlInit_v2 failed with status {status}: the driver is there, but no GPU it can use"
                ));
            }
            let devices = addresses.iter().map(|address| {
                let mut handle = null_mut();
                (by_address(address.as_ptr(), &raw mut handle) == SUCCESS).then_some(handle)
            });
            let devices = devices.collect();
            let rates = library.get(b"nvmlDeviceGetUtilizationRates").ok().map(|symbol| *symbol);
            let memory = library.get(b"nvmlDeviceGetMemoryInfo").ok().map(|symbol| *symbol);
            let pcie = library.get(b"nvmlDeviceGetPcieThroughput").ok().map(|symbol| *symbol);
            let decoder = library.get(b"nvmlDeviceGetDecoderUtilization").ok().map(|symbol| *symbol);
            let jpeg = library.get(b"nvmlDeviceGetJpgUtilization").ok().map(|symbol| *symbol);
            Ok(Self { library, rates, memory, pcie, decoder, jpeg, devices })
        }
    }

    /// Number of CUDA's GPUs.
    pub(super) fn len(&self) -> usize {
        self.devices.len()
    }

    /// Version of the driver.
    pub(super) fn driver(&self) -> Option<String> {
        // SAFETY: the type is nvml.h's; the buffer is as long as the call is told.
        unsafe {
            let call = self.library.get::<Version>(b"nvmlSystemGetDriverVersion").ok()?;
            text(|buffer, len| call(buffer, len))
        }
    }

    /// Current clock of a GPU's multiprocessors in MHz; `None` if NVML does not say.
    pub(super) fn clock_mhz(&self, device: usize) -> Option<u32> {
        let handle = (*self.devices.get(device)?)?;
        let mut mhz = 0;
        // SAFETY: the type is nvml.h's, the handle is NVML's own, and what is written to outlives the call.
        let status = unsafe {
            let call = self.library.get::<ClockInfo>(b"nvmlDeviceGetClockInfo").ok()?;
            call(handle, CLOCK_SM, &raw mut mhz)
        };
        (status == SUCCESS).then_some(mhz)
    }

    /// Utilization of a GPU; `None` if NVML does not say.
    pub(super) fn usage(&self, device: usize) -> Option<GpuUse> {
        let handle = (*self.devices.get(device)?)?;
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
        Some(GpuUse {
            gpu: rates.gpu as f32 / 100.0,
            memory: self.memory_used(handle),
            decoder: engine(self.decoder),
            jpeg: engine(self.jpeg),
        })
    }

    fn memory_used(&self, handle: Handle) -> Option<f32> {
        let mut memory = Memory::default();
        // SAFETY: as above.
        let status = unsafe { self.memory?(handle, &raw mut memory) };
        (status == SUCCESS && memory.total > 0).then(|| memory.used as f32 / memory.total as f32)
    }

    /// Megabytes per second that a GPU receives over its PCIe link; `None` if NVML does not say. NVML counts for 20 ms
    /// before it answers.
    pub(super) fn received_mb_per_s(&self, device: usize) -> Option<f32> {
        let handle = (*self.devices.get(device)?)?;
        let mut kb_per_s = 0;
        // SAFETY: as above.
        let status = unsafe { self.pcie?(handle, PCIE_RECEIVED, &raw mut kb_per_s) };
        (status == SUCCESS).then_some(kb_per_s as f32 / 1e3)
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

/// Text that a call writes into a buffer.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Option<String> {
    let mut buffer = [0_u8; NAME_BYTES];
    if call(buffer.as_mut_ptr().cast(), NAME_BYTES as c_uint) != SUCCESS {
        return None;
    }
    Some(CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().into_owned())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::process::Command;

    /// A library with two GPUs. CUDA shows only the second one, or both in the other order.
    const LIBRARY: &str = r#"
        #include <string.h>
        static int devices[2] = {10, 20};
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **device) {
            if (!strcmp(address, "0000:01:00.0")) *device = &devices[0];
            else if (!strcmp(address, "0000:02:00.0")) *device = &devices[1];
            else return 6;
            return 0;
        }
        int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
            rates[0] = *(int *)device;
            rates[1] = 0;
            return 0;
        }
        int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
            memory[0] = 100;
            memory[1] = 100 - *(int *)device;
            memory[2] = *(int *)device;
            return 0;
        }
        int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kb_per_s) {
            if (counter != 1) return 2;
            *kb_per_s = 1000000 * *(int *)device;
            return 0;
        }
        int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
            if (type != 1) return 2;
            *mhz = 100 * *(int *)device;
            return 0;
        }
    "#;

    #[test]
    fn gpus_are_cudas_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (folder.path().join("nvml.c"), folder.path().join("nvml.so"));
        std::fs::write(&source, LIBRARY).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let status = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        assert!(status.expect("the tests need a C compiler: cc, or $CC").success());
        let used = |addresses: &[&CStr]| {
            let addresses: Vec<CString> = addresses.iter().map(|&address| address.to_owned()).collect();
            // SAFETY: the library is the one above.
            #[allow(unsafe_code)]
            let nvml = Nvml::init(unsafe { Library::new(&library) }.unwrap(), &addresses).unwrap();
            let clocks: Vec<_> = (0..nvml.len()).map(|i| nvml.clock_mhz(i)).collect();
            let usage: Vec<_> = (0..nvml.len()).map(|i| nvml.usage(i).map(|usage| usage.gpu)).collect();
            let memory: Vec<_> = (0..nvml.len()).map(|i| nvml.usage(i).and_then(|usage| usage.memory)).collect();
            let received: Vec<_> = (0..nvml.len()).map(|i| nvml.received_mb_per_s(i)).collect();
            assert_eq!((&memory, received), (&usage, usage.iter().map(|gpu| gpu.map(|gpu| 1e5 * gpu)).collect()));
            assert_eq!(clocks, usage.iter().map(|gpu| gpu.map(|gpu| (1e4 * gpu).round() as u32)).collect::<Vec<_>>());
            usage
        };
        assert_eq!(used(&[c"0000:02:00.0"]), [Some(0.2)]);
        assert_eq!(used(&[c"0000:02:00.0", c"0000:01:00.0"]), [Some(0.2), Some(0.1)]);
        assert_eq!(used(&[c"0000:03:00.0", c"0000:01:00.0"]), [None, Some(0.1)]);
    }
}
