//! The fat binary of kernels/*.cu, which build.rs makes.

use crate::cuda::driver::{Context, Module};
use crate::error::{Error, Result};
use crate::os::file;
use std::borrow::Cow;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Environment variable that names a file to load instead of the embedded kernels: a fat binary, or a cubin for the
/// device.
pub(crate) const PATH_VARIABLE: &str = "WARPFEED_KERNELS";

/// The fat binary from build.rs. Empty if build.rs found no compiler.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// Largest size of a file of kernels, many times that of all kernels for all cards. A larger file is not one.
const LIMIT_BYTES: u64 = 64 << 20;

/// Advice for a build without kernels.
pub(crate) const REMEDY: &str = "get NVIDIA's compiler and rebuild: scripts/setup in a checkout, the CUDA toolkit \
    anywhere (cargo clean -p warpfeed makes cargo look again); or name a compiled image by WARPFEED_KERNELS";

/// The image to load: the file that `$WARPFEED_KERNELS` names if it is set, otherwise the embedded one.
///
/// # Errors
/// [`Error::Device`] if no kernels are embedded, with the reason and the remedy, or if the file cannot be read or has
/// more than 64 MiB.
pub(crate) fn fatbin() -> Result<Cow<'static, [u8]>> {
    choose(path(), EMBEDDED)
}

/// The kernels in a context. All that use them at a time share one module: loading takes the driver some time, and
/// tools that rewrite kernels far longer.
///
/// # Errors
/// The errors of [`fatbin`]; [`Error::Device`] if the driver refuses the kernels.
pub(in crate::backend) fn module(context: &Context) -> Result<Arc<Module>> {
    static LOADED: Mutex<Vec<(u64, Weak<Module>)>> = Mutex::new(Vec::new());
    let image = fatbin()?;
    let mut hasher = DefaultHasher::new();
    image.hash(&mut hasher);
    let of_image = hasher.finish();
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    loaded.retain(|(_, module)| module.strong_count() > 0);
    let known = loaded.iter().filter(|(of, _)| *of == of_image).filter_map(|(_, module)| module.upgrade());
    // A module keeps its context, so no other context has the same address. Its handle may be another's after a reset.
    if let Some(module) = { known }.find(|module| Arc::ptr_eq(module.context(), context)) {
        return Ok(module);
    }
    let module = Arc::new(Module::load(context, &image)?);
    loaded.push((of_image, Arc::downgrade(&module)));
    Ok(module)
}

/// The kernels of device `ordinal`, which stay loaded until this is dropped.
pub fn keep_loaded(ordinal: u32) -> Result<impl Sized> {
    module(&crate::cuda::driver::context(ordinal)?)
}

/// The file that `$WARPFEED_KERNELS` names.
pub(crate) fn path() -> Option<PathBuf> {
    std::env::var_os(PATH_VARIABLE).filter(|path: &OsString| !path.is_empty()).map(PathBuf::from)
}

/// The compute capabilities with embedded machine code, ascending, as 90 for 9.0. The embedded PTX is for the first
/// one. Empty if no kernels are embedded.
pub(crate) fn architectures() -> impl Iterator<Item = u32> {
    env!("WARPFEED_ARCHITECTURES").split(' ').filter_map(|number| number.parse().ok())
}

/// The version of the compiler of the embedded kernels, as `"13.0"`. Empty if no kernels are embedded.
pub(crate) fn compiler() -> &'static str {
    env!("WARPFEED_CUDA_VERSION")
}

/// The reason why no kernels are embedded. `None` if there are kernels.
pub(crate) fn lack() -> Option<&'static str> {
    Some(env!("WARPFEED_WITHOUT_KERNELS")).filter(|lack| !lack.is_empty())
}

fn choose(path: Option<PathBuf>, embedded: &'static [u8]) -> Result<Cow<'static, [u8]>> {
    let error = |message| Error::Device { call: "load the CUDA kernels".to_owned(), message };
    let Some(path) = path else {
        return match lack() {
            _ if !embedded.is_empty() => Ok(Cow::Borrowed(embedded)),
            lack => Err(error(format!("warpfeed was built without them ({}): {REMEDY}", lack.unwrap_or("none")))),
        };
    };
    file::read(&path, LIMIT_BYTES)
        .map(Cow::Owned)
        .map_err(|reason| error(format!("{}, which {PATH_VARIABLE} names, cannot be read: {reason}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_embedded_is_a_fat_binary_for_these_architectures_or_the_reason_is_known() {
        assert_eq!(EMBEDDED.is_empty(), lack().is_some());
        assert_eq!(EMBEDDED.is_empty(), architectures().next().is_none());
        assert_eq!(EMBEDDED.is_empty(), compiler().is_empty());
        assert!(architectures().is_sorted());
        if !EMBEDDED.is_empty() {
            assert_eq!(EMBEDDED[..4], 0xBA55_ED50_u32.to_le_bytes(), "a fat binary's first word");
        }
    }

    #[test]
    fn a_build_without_kernels_says_how_to_get_them() {
        let error = choose(None, &[]).unwrap_err();
        assert!(error.is_device());
        assert!(error.to_string().contains("scripts/setup"), "{error}");
    }

    #[test]
    fn the_file_named_comes_before_what_is_embedded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        let refused = |file: &PathBuf| choose(Some(file.clone()), b"embedded").unwrap_err().to_string();
        assert!(refused(&file).contains(PATH_VARIABLE));
        std::fs::write(&file, b"named").unwrap();
        assert_eq!(*choose(Some(file.clone()), b"embedded").unwrap(), *b"named");
        std::fs::File::create(&file).unwrap().set_len(LIMIT_BYTES + 1).unwrap(); // sparse
        assert!(refused(&file).contains("67108864"));
        assert_eq!(*choose(None, b"embedded").unwrap(), *b"embedded");
    }
}
