//! Tests with NVIDIA's library, which can be loaded without a device.

use nvjpeg::{Backend, Flags, Functions, Handle, Library, Status, sys::bindings};

fn library() -> Library {
    Library::load().expect("these tests are for where nvJPEG is installed")
}

#[test]
#[ignore = "needs nvJPEG; the gate runs it: WARPFEED_NVJPEG=... cargo test -p warpfeed-nvjpeg --test real -- --ignored"]
fn every_function_of_the_header_is_found() {
    let library = library();
    let version = library.version().unwrap();
    assert_eq!(version.major, bindings::NVJPEG_VER_MAJOR);
    assert_eq!(library.cuda_runtime_version().unwrap().major, version.major);
    assert!(library.functions().nvjpegBufferPinnedResize.is_some());
    // SAFETY: nvJPEG is loaded already; the symbols are not called.
    unsafe {
        let raw = libloading::Library::new(library.path()).unwrap();
        for name in Functions::REQUIRED.iter().chain(Functions::OPTIONAL.iter().map(|(name, _)| name)) {
            assert!(raw.get::<unsafe extern "C" fn()>(*name).is_ok(), "{name} is gone");
        }
    }
}

/// Without a driver, nvJPEG refuses to make a handle for each back end, always with the same status, and keeps working.
#[test]
#[ignore = "needs nvJPEG; the gate runs it: WARPFEED_NVJPEG=... cargo test -p warpfeed-nvjpeg --test real -- --ignored"]
fn without_a_driver_a_handle_is_a_clean_error() {
    let library = library();
    for backend in [Backend::Default, Backend::Hybrid, Backend::GpuHybrid, Backend::Hardware] {
        match Handle::new(&library, backend, Flags::UPSAMPLING_WITH_INTERPOLATION) {
            Ok(handle) => println!("{backend:?}: there is a device, {:?}", handle.hardware_decoders()),
            Err(error) => {
                let status = error.status().unwrap();
                let expected = matches!(
                    status,
                    Status::ExecutionFailed | Status::ImplementationNotSupported | Status::ArchMismatch
                );
                assert!(expected, "{backend:?}: {error}");
                assert!(error.to_string().starts_with("nvjpegCreateEx: NVJPEG_STATUS_"), "{error}");
            }
        }
    }
}
