//! Tests with a stand-in for nvJPEG (fake.c).
#![cfg(unix)]

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::{Arc, Mutex};

use nvjpeg::{
    Backend, BatchState, CudaStream, DecodeParams, Decoder, DecoderState, DeviceBuffer, Error, Flags, Handle, Image,
    JpegStream, Library, MemoryKind, MemorySource, PinnedBuffer, Region, Status,
};

/// An image in the stand-in's format: 5 x 3, three components, all bytes 42.
const IMAGE: &[u8] = &[b'J', 5, 3, 3, 42];

/// A stand-in for one test, so that tests do not see each other's events.
struct Fake {
    folder: tempfile::TempDir,
    library: Library,
    exports: libloading::Library,
}

fn compile(folder: &Path, flags: &[&str]) -> PathBuf {
    let path = folder.join("libnvjpeg.so.12");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake.c");
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&path)
        .args(flags)
        .arg(source)
        .status();
    assert!(status.expect("the tests need a C compiler: cc, or $CC").success());
    path
}

impl Fake {
    fn new(flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = compile(folder.path(), flags);
        let library = Library::load_from(&path).unwrap();
        // SAFETY: fake.c has no initializers.
        let exports = unsafe { libloading::Library::new(&path) }.unwrap();
        Self { folder, library, exports }
    }

    fn handle(&self) -> Handle {
        Handle::new(&self.library, Backend::Default, Flags::NONE).unwrap()
    }

    fn log(&self) -> Vec<String> {
        // SAFETY: fake.c declares the function with this type, and its string is never freed.
        let text = unsafe {
            let log = self.exports.get::<unsafe extern "C" fn() -> *const c_char>("fake_log").unwrap();
            CStr::from_ptr(log())
        };
        text.to_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// Makes the next call of a function fail.
    fn fail(&self, function: &str, status: c_int) {
        let name = CString::new(function).unwrap();
        // SAFETY: fake.c declares the function with this type.
        unsafe {
            self.exports.get::<unsafe extern "C" fn(*const c_char, c_int)>("fake_fail").unwrap()(name.as_ptr(), status);
        }
    }
}

#[test]
fn version_and_path_are_those_of_the_file() {
    let fake = Fake::new(&[]);
    assert_eq!(fake.library.version().unwrap().to_string(), "12.3.4");
    assert_eq!(fake.library.cuda_runtime_version().unwrap().to_string(), "12.9.1");
    assert_eq!(fake.library.path(), fake.folder.path().join("libnvjpeg.so.12"));
}

#[test]
fn missing_optional_functions_are_errors_only_when_they_are_called() {
    let fake = Fake::new(&["-DWITHOUT_OPTIONAL"]);
    assert!(fake.library.functions().nvjpegDecodeBatchedSupported.is_none());
    let handle = fake.handle();

    let error = handle.hardware_decoders().unwrap_err();
    assert!(matches!(error, Error::MissingFunction { function: "nvjpegGetHardwareDecoderInfo", since: "11.8", .. }));
    let text = error.to_string();
    assert!(text.contains("libnvjpeg.so.12 has no nvjpegGetHardwareDecoderInfo: those since CUDA 11.8 do"), "{text}");

    let mut buffer = PinnedBuffer::new(&handle).unwrap();
    let mut batch = BatchState::new(&handle).unwrap();
    // SAFETY: nothing is under way, and the stream is null.
    let results = unsafe { [buffer.reserve(1, ptr::null_mut()), batch.preallocate(1, 1, 1)] };
    assert!(results.iter().all(|result| matches!(result, Err(Error::MissingFunction { .. }))), "{results:?}");
    let mut stream = JpegStream::new(&handle).unwrap();
    assert!(matches!(stream.parse(IMAGE).unwrap().is_for_batches(), Err(Error::MissingFunction { .. })));
    assert!(matches!(stream.parse_header(IMAGE), Err(Error::MissingFunction { .. })));
    let mut params = DecodeParams::new(&handle).unwrap();
    let made = Handle::with_memory(&fake.library, Backend::Default, Flags::NONE, Arc::<Buffers>::default()).map(drop);
    let results = [made, handle.pad_memory(1, 1), params.set_region(None)];
    assert!(results.iter().all(|result| matches!(result, Err(Error::MissingFunction { .. }))), "{results:?}");
}

/// Memory that is a number: 0x100 for the device, and 0x200 that is pinned.
#[derive(Default)]
struct Buffers(Mutex<Vec<String>>);

// SAFETY: nothing uses the memory.
unsafe impl MemorySource for Buffers {
    fn allocate(&self, kind: MemoryKind, size_bytes: usize, _stream: CudaStream) -> Option<*mut c_void> {
        self.0.lock().unwrap().push(format!("{kind:?} {size_bytes}"));
        Some(ptr::without_provenance_mut(if kind == MemoryKind::Device { 0x100 } else { 0x200 }))
    }

    unsafe fn free(&self, kind: MemoryKind, address: *mut c_void, _stream: CudaStream) -> bool {
        self.0.lock().unwrap().push(format!("{kind:?} at {address:?}"));
        kind == MemoryKind::Device
    }
}

#[test]
fn memory_is_asked_of_the_caller() {
    let fake = Fake::new(&[]);
    let memory = Arc::<Buffers>::default();
    let handle = Handle::with_memory(&fake.library, Backend::Default, Flags::NONE, memory.clone()).unwrap();
    // SAFETY: fake.c declares the function with this type.
    let failed = unsafe { fake.exports.get::<unsafe extern "C" fn() -> c_int>("fake_free").unwrap()() };
    assert_eq!(failed, 1, "what the source says");
    assert_eq!(*memory.0.lock().unwrap(), ["Device 100", "Pinned 100", "Device at 0x100", "Pinned at 0x200"]);
    drop(handle);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn paddings_headers_and_regions_arrive() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    handle.pad_memory(4, 2).unwrap();
    let mut params = DecodeParams::new(&handle).unwrap();
    let region = Region { x_px: 1, y_px: 2, width_px: 3, height_px: 4 };
    params.set_region(Some(region)).unwrap();
    params.set_region(None).unwrap();
    assert!(matches!(params.set_region(Some(Region { x_px: u32::MAX, ..region })), Err(Error::Parameter { .. })));
    let log = fake.log();
    let of = |what: &str| log.iter().filter(|line| line.contains(what)).cloned().collect::<Vec<_>>();
    assert_eq!(of("padding"), ["device padding 4", "pinned padding 2"]);
    assert_eq!(of("region"), ["region 1 2 3 4", "region 0 0 -1 -1"]);
    let mut stream = JpegStream::new(&handle).unwrap();
    assert_eq!(stream.parse_header(IMAGE).unwrap().size().unwrap().height_px, 3);
    assert_eq!(stream.parse_header(b"rubbish").unwrap_err().status(), Some(Status::BadJpeg));
}

#[test]
fn missing_required_functions_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = compile(folder.path(), &["-DWITHOUT_DECODER"]);
    let error = Library::load_from(&path).unwrap_err();
    assert_eq!(error, Error::MissingFunctions { library: path.clone(), functions: vec!["nvjpegDecoderCreate"] });
    let expected = "is no nvJPEG of CUDA 11 or later: it lacks nvjpegDecoderCreate";
    assert_eq!(error.to_string(), format!("{} {expected}", path.display()));
}

#[test]
fn a_later_place_is_used_when_the_library_of_an_earlier_one_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, flags: &[&str]| {
        let environment = folder.path().join(name);
        let lib = environment.join("lib");
        std::fs::create_dir_all(&lib).unwrap();
        (compile(&lib, flags), environment)
    };
    let (_, old) = place("old", &["-DWITHOUT_DECODER"]);
    let (good, conda) = place("good", &[]);
    let output = load_in_a_child(&[("VIRTUAL_ENV", old.as_path()), ("CONDA_PREFIX", conda.as_path())]);
    // On a machine with nvJPEG, that one is found first.
    let installed = output.contains("/usr/local/cuda") || output.contains("loaded libnvjpeg.so");
    assert!(installed || output.contains(&format!("loaded {} 12.3.4", good.display())), "{output}");
}

#[test]
fn every_status_becomes_an_error_with_call_name_and_code() {
    let fake = Fake::new(&[]);
    for (code, status, name) in [
        (1, Status::NotInitialized, "NVJPEG_STATUS_NOT_INITIALIZED"),
        (2, Status::InvalidParameter, "NVJPEG_STATUS_INVALID_PARAMETER"),
        (3, Status::BadJpeg, "NVJPEG_STATUS_BAD_JPEG"),
        (4, Status::JpegNotSupported, "NVJPEG_STATUS_JPEG_NOT_SUPPORTED"),
        (5, Status::AllocatorFailure, "NVJPEG_STATUS_ALLOCATOR_FAILURE"),
        (6, Status::ExecutionFailed, "NVJPEG_STATUS_EXECUTION_FAILED"),
        (7, Status::ArchMismatch, "NVJPEG_STATUS_ARCH_MISMATCH"),
        (8, Status::InternalError, "NVJPEG_STATUS_INTERNAL_ERROR"),
        (9, Status::ImplementationNotSupported, "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED"),
        (10, Status::IncompleteBitstream, "NVJPEG_STATUS_INCOMPLETE_BITSTREAM"),
        (77, Status::Unknown(77), "a status that this crate does not know"),
    ] {
        fake.fail("nvjpegCreateEx", code);
        let error = Handle::new(&fake.library, Backend::Default, Flags::NONE).unwrap_err();
        assert_eq!(error, Error::Status { call: "nvjpegCreateEx", status });
        assert!(error.to_string().starts_with(&format!("nvjpegCreateEx: {name} ({code}): ")), "{error}");
    }
    assert!(!fake.log().iter().any(|event| event == "nvjpegDestroy"), "what was not made is not destroyed");
}

#[test]
fn backend_and_flags_arrive() {
    let fake = Fake::new(&[]);
    drop(Handle::new(&fake.library, Backend::GpuHybrid, Flags::UPSAMPLING_WITH_INTERPOLATION).unwrap());
    assert_eq!(fake.log(), ["backend 2 flags 32", "nvjpegCreateEx", "nvjpegDestroy"]);
}

#[test]
fn owners_are_destroyed_after_what_they_own_whatever_the_order_of_drops() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let decoder = Decoder::new(&handle, Backend::Hybrid).unwrap();
    let mut state = DecoderState::new(&decoder).unwrap();
    state.attach_pinned(PinnedBuffer::new(&handle).unwrap()).unwrap();
    state.attach_device(DeviceBuffer::new(&handle).unwrap()).unwrap();
    let stream = JpegStream::new(&handle).unwrap();
    let params = DecodeParams::new(&handle).unwrap();
    let batch = BatchState::new(&handle).unwrap();
    let created = fake.log().len();

    drop(handle);
    drop(decoder);
    assert_eq!(fake.log().len(), created, "they are still needed");
    drop(state);
    drop(params);
    drop(stream);
    drop(batch);
    assert_eq!(
        fake.log()[created..],
        [
            "nvjpegJpegStateDestroy",
            "nvjpegBufferPinnedDestroy",
            "nvjpegBufferDeviceDestroy",
            "nvjpegDecoderDestroy",
            "nvjpegDecodeParamsDestroy",
            "nvjpegJpegStreamDestroy",
            "nvjpegJpegStateDestroy",
            "nvjpegDestroy",
        ]
    );
}

#[test]
fn a_failing_destruction_is_reported_by_the_next_creation_the_first_one_first() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let (stream, params) = (JpegStream::new(&handle).unwrap(), DecodeParams::new(&handle).unwrap());
    fake.fail("nvjpegJpegStreamDestroy", 6);
    drop(stream);
    fake.fail("nvjpegDecodeParamsDestroy", 8);
    drop(params);
    let error = BatchState::new(&handle).unwrap_err();
    assert_eq!(error, Error::Status { call: "nvjpegJpegStreamDestroy", status: Status::ExecutionFailed });
    assert!(BatchState::new(&handle).is_ok(), "once");
}

#[test]
fn a_good_image_is_parsed_after_rubbish() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let mut stream = JpegStream::new(&handle).unwrap();
    for rubbish in [&b""[..], b"J", b"rubbish"] {
        assert_eq!(stream.parse(rubbish).unwrap_err().status(), Some(Status::BadJpeg));
    }
    let size = stream.parse(IMAGE).unwrap().size().unwrap();
    assert_eq!((size.width_px, size.height_px), (5, 3));
}

#[test]
fn parameters_that_lack_their_format_are_destroyed() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    fake.fail("nvjpegDecodeParamsSetOutputFormat", 2);
    assert_eq!(DecodeParams::new(&handle).unwrap_err().status(), Some(Status::InvalidParameter));
    assert!(fake.log().ends_with(&["nvjpegDecodeParamsCreate".to_owned(), "nvjpegDecodeParamsDestroy".to_owned()]));
}

#[test]
fn a_image_is_decoded_in_phases() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let decoder = Decoder::new(&handle, Backend::Hybrid).unwrap();
    let mut state = DecoderState::new(&decoder).unwrap();
    let mut stream = JpegStream::new(&handle).unwrap();
    let params = DecodeParams::new(&handle).unwrap();
    let jpeg = stream.parse(IMAGE).unwrap();
    assert!(decoder.supports(&jpeg, &params).unwrap(), "nvJPEG's 0 is yes");

    let error = state.decode_host(&params, &jpeg).unwrap_err();
    let expected = "nvjpegDecodeJpegHost: state must be given a pinned and a device buffer, got neither";
    assert_eq!(error.to_string(), expected);
    assert!(state.attach_pinned(PinnedBuffer::new(&handle).unwrap()).unwrap().is_none());
    assert!(state.attach_device(DeviceBuffer::new(&handle).unwrap()).unwrap().is_none());
    let spare = state.attach_pinned(PinnedBuffer::new(&handle).unwrap()).unwrap();
    assert!(spare.is_some(), "the first one comes back");

    let mut pixels = vec![0; 15 * 3];
    state.decode_host(&params, &jpeg).unwrap();
    // SAFETY: the stand-in decodes to host memory, in the call; the destination has 3 rows of 15 bytes.
    unsafe {
        state.transfer_to_device(&jpeg, ptr::null_mut()).unwrap();
        state.decode_device(&Image::interleaved(pixels.as_mut_ptr(), 15), ptr::null_mut()).unwrap();
    }
    assert_eq!(pixels, [42; 45]);

    fake.fail("nvjpegDecodeJpegHost", 4);
    assert_eq!(state.decode_host(&params, &jpeg).unwrap_err().status(), Some(Status::JpegNotSupported));
    let (pinned, device) = state.detach();
    assert!(pinned.is_some() && device.is_some());
    assert!(matches!(state.decode_host(&params, &jpeg), Err(Error::Parameter { .. })));

    let gray = [b'J', 5, 3, 1, 0];
    let mut other = JpegStream::new(&handle).unwrap();
    assert!(!decoder.supports(&other.parse(&gray).unwrap(), &params).unwrap());
}

#[test]
fn objects_of_another_handle_are_refused() {
    let fake = Fake::new(&[]);
    let (one, two) = (fake.handle(), fake.handle());
    let decoder = Decoder::new(&one, Backend::Hybrid).unwrap();
    let mut state = DecoderState::new(&decoder).unwrap();
    let error = state.attach_pinned(PinnedBuffer::new(&two).unwrap()).unwrap_err();
    let expected = "nvjpegStateAttachPinnedBuffer: buffer must be made from the same handle, got one of another handle";
    assert_eq!(error.to_string(), expected);
    let mut stream = JpegStream::new(&two).unwrap();
    let jpeg = stream.parse(IMAGE).unwrap();
    let params = DecodeParams::new(&one).unwrap();
    assert!(matches!(decoder.supports(&jpeg, &params), Err(Error::Parameter { parameter: "jpeg", .. })));
    assert!(DecoderState::new(&Decoder::new(&one.clone(), Backend::Hybrid).unwrap()).is_ok());
}

#[test]
fn batches_have_the_size_that_they_were_initialized_for() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let mut state = BatchState::new(&handle).unwrap();
    let second = &[b'J', 5, 3, 3, 7][..];
    let mut pixels = [vec![0; 45], vec![0; 45]];
    let destinations = pixels.each_mut().map(|pixels| Image::interleaved(pixels.as_mut_ptr(), 15));
    let stream = ptr::null_mut();
    // SAFETY: the stand-in decodes to host memory, in the call; the destinations have 3 rows of 15 bytes.
    unsafe {
        let error = state.decode(&[IMAGE, second], &destinations, stream).unwrap_err();
        assert!(error.to_string().contains("state must be initialized for a batch size"), "{error}");
        assert!(state.initialize(0, 1).is_err());
        state.initialize(2, 1).unwrap();
        let error = state.decode(&[IMAGE], &destinations, stream).unwrap_err();
        assert_eq!(error.to_string(), "nvjpegDecodeBatched: jpegs must be as many as initialized for (2), got 1");
        assert!(state.decode(&[IMAGE, second], &destinations[..1], stream).is_err());

        state.decode(&[IMAGE, second], &destinations, stream).unwrap();
        let error = state.decode(&[IMAGE, b"rubbish"], &destinations, stream).unwrap_err();
        assert_eq!(error.status(), Some(Status::BadJpeg));
    }
    assert_eq!(pixels, [vec![42; 45], vec![7; 45]]);

    let mut parser = JpegStream::new(&handle).unwrap();
    assert!(parser.parse(IMAGE).unwrap().is_for_batches().unwrap(), "nvJPEG's 0 is yes");
    assert!(!parser.parse(&[b'J', 5, 3, 1, 0]).unwrap().is_for_batches().unwrap());
    assert_eq!(handle.hardware_decoders().unwrap().engines, 7);
}

#[test]
fn workers_share_a_handle_and_a_decoder() {
    let fake = Fake::new(&[]);
    let handle = fake.handle();
    let decoder = Decoder::new(&handle, Backend::Hybrid).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut parser = JpegStream::new(&handle).unwrap();
                assert_eq!(parser.parse(IMAGE).unwrap().size().unwrap().width_px, 5);
            });
        }
        let state = DecoderState::new(&decoder).unwrap();
        scope.spawn(move || drop(state));
    });
}

/// The output of `child_that_loads` in a process of its own with these variables.
fn load_in_a_child(variables: &[(&str, &Path)]) -> String {
    let output = Command::new(env::current_exe().unwrap())
        .args(["child_that_loads", "--exact", "--ignored", "--nocapture"])
        .env_remove("WARPFEED_NVJPEG")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "run by other tests, in a process with other variables"]
fn child_that_loads() {
    match Library::load() {
        Ok(library) => println!("loaded {} {}", library.path().display(), library.version().unwrap()),
        Err(error) => println!("failed {error}"),
    }
}

#[test]
fn the_variable_names_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let path = compile(folder.path(), &[]);
    let expected = format!("loaded {} 12.3.4", path.display());
    for value in [path.as_path(), folder.path()] {
        let output = load_in_a_child(&[("WARPFEED_NVJPEG", value)]);
        assert!(output.contains(&expected), "{output}");
    }
    let output = load_in_a_child(&[("WARPFEED_NVJPEG", Path::new("/nowhere/libnvjpeg.so.13"))]);
    assert!(output.contains("failed nvJPEG cannot be loaded"), "{output}");
    assert!(output.contains("/nowhere/libnvjpeg.so.13: no such file"), "{output}");
    assert!(!output.contains("/usr/local"), "nothing else is tried: {output}");
}
