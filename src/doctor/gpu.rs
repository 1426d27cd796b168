//! Checks of the GPU path. Nothing here panics, whatever is missing.
#![allow(unsafe_code)]

use super::check::Check;
use crate::backend::cuda::cards::{Card, cards};
use crate::backend::cuda::fatbin;
use crate::cuda::cufile::Loaded;
use crate::cuda::driver::{check, driver_is_there};
use crate::error::Result;
use cudarc::driver::sys;
use nvjpeg::{Backend, Flags, Handle, Library};
use std::fmt::Write as _;
use std::path::Path;

/// CUDA version of the oldest driver that can load nvJPEG and the kernels of a supported compiler.
const OLDEST_CUDA: Version = (12, 0);

/// Major and minor number of a CUDA version or a compute capability.
type Version = (i32, i32);

/// The checks of the GPU path.
pub(crate) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let (version, gpus) = match driver() {
        Ok((check, version)) => {
            checks.push(check);
            let gpus = cards();
            checks.extend(devices(&gpus));
            (Some(version), gpus.unwrap_or_default())
        }
        Err(check) => {
            checks.push(check);
            (None, Vec::new())
        }
    };
    checks.push(kernels(version, &gpus));
    let (check, library) = nvjpeg(version);
    checks.push(check);
    if let (Some(library), false) = (library, gpus.is_empty()) {
        checks.push(hardware(&library));
    }
    if !gpus.is_empty() {
        checks.push(gpu_direct());
        checks.push(pinned_memory());
    }
    checks
}

/// The driver and its CUDA version.
fn driver() -> std::result::Result<(Check, Version), Check> {
    const NAME: &str = "NVIDIA driver";
    if !driver_is_there() {
        let remedy = "nothing on a machine without an NVIDIA card; else install its driver (525 or later), or start the \
                      container with --gpus all: libcuda.so.1 is what is looked for";
        return Err(Check::new(NAME, "none: pipelines run on the CPU", Some(remedy)));
    }
    let mut number = 0;
    // SAFETY: the driver is there, and writes to the number before the call returns. It needs no cuInit.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut number) }.result();
    if let Err(error) = check("cuDriverGetVersion", answer) {
        return Err(Check::new(NAME, error.to_string(), Some("install the driver anew")));
    }
    let version = (number / 1000, number % 1000 / 10);
    let mut found = format!("CUDA {}.{}", version.0, version.1);
    if let Ok(release) = std::fs::read_to_string("/sys/module/nvidia/version") {
        let _ = write!(found, ", driver {}", release.trim());
    }
    let remedy = (version < OLDEST_CUDA).then_some("install a driver for CUDA 12 or later (525, or 580 for CUDA 13)");
    Ok((Check::new(NAME, found, remedy), version))
}

fn devices(gpus: &Result<Vec<Card>>) -> Vec<Check> {
    let remedy =
        "see what nvidia-smi says; CUDA_VISIBLE_DEVICES hides devices, and containers have them with --gpus all";
    match gpus {
        Err(error) => vec![Check::new("GPU", error.to_string(), Some(remedy))],
        Ok(gpus) if gpus.is_empty() => vec![Check::new("GPU", "none that the driver shows", Some(remedy))],
        Ok(gpus) => gpus
            .iter()
            .enumerate()
            .map(|(ordinal, gpu)| {
                let ((major, minor), memory) = (gpu.capability, gpu.memory_bytes as f64 / 1e9);
                let found = format!("cuda:{ordinal}, {}, compute capability {major}.{minor}, {memory:.1} GB", gpu.name);
                Check::new("GPU", found, None)
            })
            .collect(),
    }
}

/// Way in which the embedded kernels run on a card.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    MachineCode,
    /// The driver compiles their PTX.
    Ptx,
    No,
}

/// Way in which kernels for `architectures` fit a card. Machine code runs on cards of the same major number with an
/// equal or higher minor number. PTX, which is made for the lowest architecture, runs on that one and all later ones.
fn fit(architectures: &[i32], (major, minor): Version) -> Fit {
    if architectures.iter().any(|number| number / 10 == major && number % 10 <= minor) {
        Fit::MachineCode
    } else if architectures.iter().any(|number| *number <= major * 10 + minor) {
        Fit::Ptx
    } else {
        Fit::No
    }
}

fn kernels(driver: Option<Version>, gpus: &[Card]) -> Check {
    const NAME: &str = "CUDA kernels";
    let image = match fatbin::fatbin() {
        Ok(image) => image,
        Err(error) if fatbin::path().is_some() => {
            return Check::new(NAME, error.to_string(), Some("name another file by WARPFEED_KERNELS, or unset it"));
        }
        Err(_) => {
            let found = format!("none in this build ({})", fatbin::lack().unwrap_or("without a reason"));
            return Check::new(NAME, found, Some(fatbin::REMEDY));
        }
    };
    if let Some(path) = fatbin::path() {
        let found = format!("{} bytes from {} (WARPFEED_KERNELS)", image.len(), path.display());
        return Check::new(NAME, found, None);
    }
    let architectures: Vec<i32> = fatbin::architectures().filter_map(|number| number.try_into().ok()).collect();
    let names: Vec<_> = architectures.iter().map(|number| format!("sm_{number}")).collect();
    let lowest = architectures.first().copied().unwrap_or_default();
    let mut found = format!("{} and PTX of compute_{lowest}, by CUDA {}", names.join(" "), fatbin::compiler());
    let compiler = fatbin::compiler().split('.').next().and_then(|major| major.parse::<i32>().ok());
    if let (Some((have, _)), Some(need)) = (driver, compiler)
        && have < need
    {
        let remedy = format!(
            "this driver is for CUDA {have} and loads nothing that CUDA {need} made: install a driver for CUDA {need}, or \
             build with the nvcc of a CUDA {have} toolkit (NVCC=.../bin/nvcc)"
        );
        return Check::new(NAME, found, Some(&remedy));
    }
    for (ordinal, gpu) in gpus.iter().enumerate() {
        let (major, minor) = gpu.capability;
        match fit(&architectures, gpu.capability) {
            Fit::MachineCode => {}
            Fit::Ptx => {
                let _ = write!(found, "; cuda:{ordinal} has its driver compile the PTX when it first starts");
            }
            Fit::No => {
                let remedy = format!(
                    "cuda:{ordinal} is older than all of these: rebuild with WARPFEED_CUDA_ARCHS={major}{minor}, by an nvcc \
                     that knows it"
                );
                return Check::new(NAME, found, Some(&remedy));
            }
        }
    }
    Check::new(NAME, found, None)
}

fn nvjpeg(driver: Option<Version>) -> (Check, Option<Library>) {
    const NAME: &str = "nvJPEG";
    let library = match Library::load() {
        Ok(library) => library,
        Err(nvjpeg::Error::NotLoaded { attempts, remedy, .. }) => {
            let found = format!("not found in {} places: JPEGs are decoded on the CPU", attempts.len());
            return (Check::new(NAME, found, Some(remedy)), None);
        }
        Err(error) => {
            let remedy = "install a later nvJPEG (pip install nvidia-nvjpeg), or name one by WARPFEED_NVJPEG";
            return (Check::new(NAME, error.to_string(), Some(remedy)), None);
        }
    };
    let path = library.path().display();
    let (version, runtime) = match (library.version(), library.cuda_runtime_version()) {
        (Ok(version), Ok(runtime)) => (version, runtime),
        (Err(error), _) | (_, Err(error)) => {
            return (Check::new(NAME, format!("{path}: {error}"), Some("install nvJPEG anew")), None);
        }
    };
    let found = format!("{version} at {path}");
    match driver {
        Some((have, _)) if i64::from(have) < i64::from(runtime.major) => {
            let remedy = format!(
                "this driver is for CUDA {have}, this nvJPEG needs one for CUDA {}: install the driver, or pip install \
                 nvidia-nvjpeg-cu{have}",
                runtime.major
            );
            (Check::new(NAME, found, Some(&remedy)), None)
        }
        _ => (Check::new(NAME, found, None), Some(library)),
    }
}

/// Whether device 0 has hardware decoders.
fn hardware(library: &Library) -> Check {
    const NAME: &str = "hardware decoder";
    // nvJPEG refuses this if there are no such decoders, and if it lacks libnvcuvid to reach them.
    let handle = Handle::new(library, Backend::Hardware, Flags::UPSAMPLING_WITH_INTERPOLATION);
    match (handle.and_then(|handle| handle.hardware_decoders()), nvjpeg::probe_nvcuvid()) {
        (Ok(found), _) if found.engines > 0 => {
            Check::new(NAME, format!("{}, of {} images each", found.engines, found.cores_per_engine), None)
        }
        (Err(nvjpeg::Error::MissingFunction { .. }), Ok(())) => Check::new(
            NAME,
            "unknown: this nvJPEG does not tell",
            Some("install the nvJPEG of CUDA 11.8 or later (pip install nvidia-nvjpeg)"),
        ),
        // Cards with them: A100, A30, H100, H200, B200, Jetson Orin and similar ones.
        (_, Ok(())) => Check::new(NAME, "none on this card: CUDA cores decode", None),
        (_, Err(nvjpeg::Error::NotLoaded { remedy, .. })) => {
            Check::new(NAME, "none, as libnvcuvid.so.1 is missing: CUDA cores decode", Some(remedy))
        }
        (_, Err(error)) => Check::new(NAME, error.to_string(), Some("install the driver anew")),
    }
}

/// Whether images may be read past the host. The driver of cuFile is not opened, because that may hang.
fn gpu_direct() -> Check {
    const NAME: &str = "GPUDirect Storage";
    let found = Loaded::find().and_then(|library| Ok((library.version()?, library)));
    let found = match found {
        Ok(((major, minor), library)) => format!("cuFile {major}.{minor} at {}", library.path().display()),
        Err(error) => return Check::new(NAME, format!("none: {error}"), None),
    };
    let has_module = ["/sys/module/nvidia_fs", "/proc/driver/nvidia-fs"].iter().any(|path| Path::new(path).exists());
    let path = if has_module {
        "the kernel module nvidia-fs is loaded"
    } else {
        "without the kernel module nvidia-fs, images pass the host's memory unless cuFile uses PCI peer-to-peer DMA"
    };
    Check::new(NAME, format!("{found}; {path}"), None)
}

/// The limit of memory that the GPU copies from. NVIDIA's driver does not count it as locked, so `ulimit -l` does not
/// limit it; a container's memory limit does.
fn pinned_memory() -> Check {
    const NAME: &str = "pinned memory";
    if Path::new("/dev/dxg").exists() {
        return Check::new(NAME, "limited by Windows, under WSL", None);
    }
    let number = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    match (number("memory.max"), number("memory.current")) {
        (Some(limit), Some(used)) => {
            let free = limit.saturating_sub(used);
            let found = format!("{:.1} of {:.1} GB that this container may use", free as f64 / 1e9, limit as f64 / 1e9);
            let remedy = (free < 1 << 30)
                .then_some("raise the container's memory limit, or use a smaller --batch-size and --prefetch");
            Check::new(NAME, found, remedy)
        }
        _ => Check::new(NAME, "no limit but memory (ulimit -l does not count)", None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_serves_its_major_number_and_ptx_what_is_newer() {
        let embedded = [75, 80, 86, 89, 90, 100, 120];
        for capability in [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)] {
            assert_eq!(fit(&embedded, capability), Fit::MachineCode, "{capability:?}");
        }
        for capability in [(11, 0), (13, 0)] {
            assert_eq!(fit(&embedded, capability), Fit::Ptx, "{capability:?}");
        }
        assert_eq!(fit(&embedded, (7, 0)), Fit::No);
        assert_eq!(fit(&[86], (8, 0)), Fit::No);
        assert_eq!(fit(&[90], (10, 0)), Fit::Ptx);
        assert_eq!(fit(&[], (9, 0)), Fit::No);
    }

    #[test]
    fn kernels_that_do_not_fit_driver_or_card_are_a_lack() {
        let gpu = |capability| Card { name: "card".to_owned(), capability, memory_bytes: 1 << 30 };
        if fatbin::architectures().next().is_some() && fatbin::path().is_none() {
            assert!(kernels(Some((99, 0)), &[gpu((9, 0))]).ok);
            assert!(kernels(Some((10, 0)), &[gpu((9, 0))]).remedy.unwrap().contains("CUDA 10"));
            assert!(kernels(Some((99, 0)), &[gpu((3, 5))]).remedy.unwrap().contains("WARPFEED_CUDA_ARCHS=35"));
        } else {
            assert_eq!(kernels(None, &[]).ok, fatbin::path().is_some());
        }
    }

    #[test]
    fn devices_are_numbered_and_their_absence_has_a_remedy() {
        let gpu = |name: &str| Card { name: name.to_owned(), capability: (9, 0), memory_bytes: 141_000_000_000 };
        let checks = devices(&Ok(vec![gpu("first"), gpu("second")]));
        assert_eq!(checks[1].found, "cuda:1, second, compute capability 9.0, 141.0 GB");
        assert!(devices(&Ok(Vec::new()))[0].remedy.as_ref().unwrap().contains("CUDA_VISIBLE_DEVICES"));
    }
}
