//! Loading nvJPEG at run time, and looking up its functions by name.

use std::collections::HashSet;
use std::env;
use std::ffi::{OsStr, OsString, c_int};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nvjpeg_sys::Functions;
use nvjpeg_sys::bindings::libraryPropertyType_t;

use crate::error::{Attempt, Error, Result, check};

/// The environment variable with the path of the library or of its folder. If it is set, no other place is tried.
pub const PATH_VARIABLE: &str = "WARPFEED_NVJPEG";

/// File names of the library, the latest first. The number is CUDA's major version.
#[cfg(not(windows))]
const NAMES: [&str; 4] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so"];
#[cfg(windows)]
const NAMES: [&str; 3] = ["nvjpeg64_13.dll", "nvjpeg64_12.dll", "nvjpeg64_11.dll"];

/// A pattern for all these names, for messages.
const ANY: &str = if cfg!(windows) { "nvjpeg64_*.dll" } else { "libnvjpeg.so*" };

/// The folder for this processor in CUDA's packages, below the toolkit's `targets`.
const TARGET: &str = if cfg!(target_arch = "aarch64") { "sbsa-linux" } else { "x86_64-linux" };

/// Python environments in the working folder: the usual one, and the one that warpfeed's scripts/setup makes.
const LOCAL: [&str; 2] = [".venv", ".cuda"];

const REMEDY: &str = "install the CUDA toolkit, or run `pip install nvidia-nvjpeg` in the active Python environment, \
                      or set WARPFEED_NVJPEG to the path of libnvjpeg.so.13";

/// A version of nvJPEG, or of the CUDA runtime that it was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The loaded nvJPEG. It stays loaded until the process ends. Clones refer to the same library.
#[derive(Debug, Clone)]
pub struct Library {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    functions: Functions,
    path: PathBuf,
}

impl Library {
    /// Finds and loads nvJPEG. If `$WARPFEED_NVJPEG` is set, it is the only place that is tried. Otherwise these are
    /// tried in order: the loader's path, the usual CUDA folders, and the active Python environment (`$VIRTUAL_ENV`,
    /// `$CONDA_PREFIX`, `./.venv`, `./.cuda`).
    ///
    /// This needs no driver and no device.
    ///
    /// # Errors
    ///
    /// [`Error::NotLoaded`] with the places that were tried and the remedy; [`Error::MissingFunctions`] if every
    /// library that was found is not nvJPEG of CUDA 11 or later.
    ///
    /// ```
    /// match nvjpeg::Library::load() {
    ///     Ok(library) => assert!(library.version()?.major >= 11),
    ///     Err(error) => assert!(error.to_string().contains("pip install nvidia-nvjpeg")),
    /// }
    /// # Ok::<(), nvjpeg::Error>(())
    /// ```
    pub fn load() -> Result<Self> {
        Self::load_first(candidates(&|name| env::var_os(name), Path::new("/usr/local")))
    }

    /// Loads nvJPEG from one file.
    ///
    /// # Errors
    ///
    /// [`Error::NotLoaded`] if it cannot be loaded; [`Error::MissingFunctions`] if it is not nvJPEG of CUDA 11 or
    /// later.
    ///
    /// ```
    /// let error = nvjpeg::Library::load_from("/nowhere/libnvjpeg.so.13").unwrap_err();
    /// assert!(error.to_string().contains("/nowhere/libnvjpeg.so.13"));
    /// ```
    pub fn load_from(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_first(vec![path.as_ref().to_owned()])
    }

    fn load_first(candidates: Vec<PathBuf>) -> Result<Self> {
        let (mut attempts, mut unfit) = (Vec::new(), None);
        for path in candidates {
            // This reason is shorter than the loader's, for the many places without a library. The loader itself looks
            // up bare names.
            if path.components().count() > 1 && !path.is_file() {
                attempts.push(Attempt { path, reason: "no such file".to_owned() });
                continue;
            }
            // SAFETY: nvJPEG's initializers have no preconditions. Whoever installed the file under this name, or gave
            // its path, must see to it that it is nvJPEG, as with any library that the system's loader finds.
            match unsafe { libloading::Library::new(&path) } {
                Ok(library) => match Self::resolve(library, path) {
                    Ok(library) => return Ok(library),
                    // A library that is too old must not hide a good one elsewhere.
                    Err(error) => unfit = unfit.or(Some(error)),
                },
                Err(error) => {
                    let reason = in_full(&error);
                    let reason = reason.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&reason).to_owned();
                    attempts.push(Attempt { path, reason });
                }
            }
        }
        Err(unfit.unwrap_or(Error::NotLoaded { library: "nvJPEG", attempts, remedy: REMEDY }))
    }

    fn resolve(library: libloading::Library, path: PathBuf) -> Result<Self> {
        // SAFETY: the library is nvJPEG, as argued where it is loaded. No other library exports these names.
        match unsafe { Functions::resolve(&library) } {
            Ok(functions) => {
                // It is never unloaded, because the CUDA runtime inside it has its own threads and exit handlers. So
                // the functions stay valid, whoever copies them.
                std::mem::forget(library);
                Ok(Self { inner: Arc::new(Inner { functions, path }) })
            }
            Err(functions) => Err(Error::MissingFunctions { library: path, functions }),
        }
    }

    /// The file that was loaded, or the name under which the system's loader found the library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// nvJPEG's functions, which stay valid until the process ends.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.inner.functions
    }

    /// nvJPEG's version. No device is needed.
    ///
    /// # Errors
    ///
    /// [`Error::Status`], which is not known to happen.
    pub fn version(&self) -> Result<Version> {
        version(|property, value| {
            // SAFETY: `value` points to an int for the length of the call.
            check("nvjpegGetProperty", unsafe { (self.functions().nvjpegGetProperty)(property, value) })
        })
    }

    /// The version of the CUDA runtime inside nvJPEG. No device is needed.
    ///
    /// # Errors
    ///
    /// [`Error::Status`], which is not known to happen.
    pub fn cuda_runtime_version(&self) -> Result<Version> {
        version(|property, value| {
            // SAFETY: `value` points to an int for the length of the call.
            check("nvjpegGetCudartProperty", unsafe { (self.functions().nvjpegGetCudartProperty)(property, value) })
        })
    }

    /// The error for a missing optional function.
    pub(crate) fn missing(&self, function: &'static str) -> Error {
        let since = Functions::OPTIONAL.iter().find(|(name, _)| *name == function).map_or("a later version", |f| f.1);
        Error::MissingFunction { library: self.path().to_owned(), function, since }
    }
}

fn version(get: impl Fn(libraryPropertyType_t, *mut c_int) -> Result<()>) -> Result<Version> {
    let number = |property| {
        let mut value = 0;
        get(property, &raw mut value).map(|()| value.unsigned_abs())
    };
    Ok(Version {
        major: number(libraryPropertyType_t::MAJOR_VERSION)?,
        minor: number(libraryPropertyType_t::MINOR_VERSION)?,
        patch: number(libraryPropertyType_t::PATCH_LEVEL)?,
    })
}

/// Checks that `libnvcuvid.so.1` can be loaded. nvJPEG needs it for the hardware decoders, and silently has none
/// without it. Containers lack it if they are started without the `video` capability.
///
/// # Errors
///
/// [`Error::NotLoaded`] with the loader's reason and the remedy.
///
/// ```
/// if let Err(error) = nvjpeg::probe_nvcuvid() {
///     assert!(error.to_string().contains("NVIDIA_DRIVER_CAPABILITIES"));
/// }
/// ```
pub fn probe_nvcuvid() -> Result<()> {
    let name = if cfg!(windows) { "nvcuvid.dll" } else { "libnvcuvid.so.1" };
    // SAFETY: loading the driver's library has no preconditions; nvJPEG loads it in the same way.
    let loaded = unsafe { libloading::Library::new(name) };
    loaded.map(drop).map_err(|error| Error::NotLoaded {
        library: "libnvcuvid",
        attempts: vec![Attempt { path: name.into(), reason: in_full(&error) }],
        remedy: "there are no hardware decoders without it: it comes with the NVIDIA driver, and containers have it \
                 with NVIDIA_DRIVER_CAPABILITIES=compute,utility,video",
    })
}

/// The loader's own words, which libloading keeps in the error's source.
fn in_full(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The files to try, in order. Bare names are for the system's loader.
fn candidates(variable: &dyn Fn(&str) -> Option<OsString>, local: &Path) -> Vec<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set(PATH_VARIABLE) {
        return if path.is_dir() { in_folder(&path) } else { vec![path] };
    }
    let mut paths: Vec<PathBuf> = NAMES.iter().map(PathBuf::from).collect();
    for toolkit in toolkits(local) {
        for folder in [toolkit.join("lib64"), toolkit.join("targets").join(TARGET).join("lib")] {
            paths.extend(in_folder(&folder));
        }
    }
    for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).chain(LOCAL.map(PathBuf::from)) {
        // Conda's packages are in its lib, PyPI's below site-packages.
        paths.extend(in_folder(&environment.join("lib")));
        let wheels = wheel_folders(&environment);
        if wheels.is_empty() {
            paths.push(environment.join("lib/python3*/site-packages/nvidia/*/lib").join(ANY));
        }
        paths.extend(wheels.iter().flat_map(|folder| in_folder(folder)));
    }
    let mut seen = HashSet::new();
    paths.retain(|path| seen.insert(path.clone()));
    paths
}

/// The libraries in a folder. If there are none, a path whose failure names the folder.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = NAMES.iter().map(|name| folder.join(name)).filter(|path| path.is_file()).collect();
    if found.is_empty() {
        found.push(folder.join(ANY));
    }
    found
}

/// `cuda`, then `cuda-13.1`, `cuda-12.8`, ... in a folder, the latest first.
fn toolkits(local: &Path) -> Vec<PathBuf> {
    let mut found = children(local, |name| name.starts_with("cuda-"));
    found.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    let mut toolkits = vec![local.join("cuda")];
    toolkits.extend(found);
    toolkits
}

/// The numbers in a path's last part: 12 and 8 of `cuda-12.8`.
fn numbers(path: &Path) -> Vec<u32> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

/// The folders into which the wheels nvidia-nvjpeg (`nvidia/cu13/lib`) and nvidia-nvjpeg-cu12 (`nvidia/nvjpeg/lib`) put
/// the library.
fn wheel_folders(environment: &Path) -> Vec<PathBuf> {
    children(&environment.join("lib"), |name| name.starts_with("python3"))
        .into_iter()
        .flat_map(|python| children(&python.join("site-packages/nvidia"), |_| true))
        .map(|package| package.join("lib"))
        .filter(|folder| in_folder(folder).iter().any(|path| path.is_file()))
        .collect()
}

/// The entries of a folder whose names satisfy a condition, in the order of their names. None if the folder cannot be
/// read.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<_> =
        paths.filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(&wanted)).collect();
    paths.sort();
    paths
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    fn position(candidates: &[PathBuf], wanted: &Path) -> usize {
        candidates
            .iter()
            .position(|path| path == wanted)
            .unwrap_or_else(|| panic!("{} is not among {candidates:?}", wanted.display()))
    }

    #[test]
    fn the_loader_comes_first_then_toolkits_then_python_environments() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().join("local");
        let newer = touch(local.join("cuda-12.10/lib64/libnvjpeg.so.12"));
        let older = touch(local.join("cuda-12.9/targets").join(TARGET).join("lib/libnvjpeg.so.12"));
        let venv = folder.path().join("venv");
        let wheel = touch(venv.join("lib/python3.12/site-packages/nvidia/cu13/lib/libnvjpeg.so.13"));
        touch(venv.join("lib/python3.12/site-packages/nvidia/cublas/lib/libcublas.so.13"));
        let conda = folder.path().join("conda");
        let package = touch(conda.join("lib/libnvjpeg.so.12"));

        let environment = |name: &str| match name {
            "VIRTUAL_ENV" => Some(venv.clone().into_os_string()),
            "CONDA_PREFIX" => Some(conda.clone().into_os_string()),
            _ => None,
        };
        let found = candidates(&environment, &local);
        let names = found[..4].iter().map(|path| path.to_str().unwrap());
        assert!(names.eq(["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so"]));
        let default = local.join("cuda/lib64/libnvjpeg.so*");
        let order = [&default, &newer, &older, &wheel, &package].map(|path| position(&found, path));
        assert!(order.is_sorted(), "{order:?}");
        assert!(!found.iter().any(|path| path.to_string_lossy().contains("cublas")));
    }

    #[test]
    fn the_variable_names_a_file_or_a_folder_and_excludes_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let set_to = |value: &Path| {
            let value = value.as_os_str().to_owned();
            candidates(&|name| (name == PATH_VARIABLE).then(|| value.clone()), Path::new("/usr/local"))
        };
        let file = folder.path().join("my-nvjpeg.so");
        assert_eq!(set_to(&file), [file]);
        assert_eq!(set_to(folder.path()), [folder.path().join("libnvjpeg.so*")]);
        let inside = touch(folder.path().join("libnvjpeg.so.12"));
        assert_eq!(set_to(folder.path()), [inside]);
        assert!(set_to(Path::new("")).len() > NAMES.len(), "an empty variable is one that is not set");
    }

    #[test]
    fn the_error_lists_what_was_looked_for_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let broken = touch(folder.path().join("libnvjpeg.so.12"));
        let error = Library::load_first(vec![folder.path().join("libnvjpeg.so.13"), broken]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("libnvjpeg.so.13: no such file"), "{text}");
        assert!(text.contains("libnvjpeg.so.12: file too short"), "{text}");
        assert!(text.contains("pip install nvidia-nvjpeg"), "{text}");
    }
}
