// Made from nvjpeg.h by nvjpeg-sys/regenerate. Do not edit.

pub const NVJPEG_MAX_COMPONENT: u32 = 4;
pub const NVJPEG_VER_MAJOR: u32 = 13;
pub const NVJPEG_VER_MINOR: u32 = 3;
pub const NVJPEG_VER_PATCH: u32 = 2;
pub const NVJPEG_VER_BUILD: u32 = 43;
pub const NVJPEG_FLAGS_DEFAULT: u32 = 0;
pub const NVJPEG_FLAGS_HW_DECODE_NO_PIPELINE: u32 = 1;
pub const NVJPEG_FLAGS_ENABLE_MEMORY_POOLS: u32 = 2;
pub const NVJPEG_FLAGS_BITSTREAM_STRICT: u32 = 4;
pub const NVJPEG_FLAGS_REDUCED_MEMORY_DECODE: u32 = 8;
pub const NVJPEG_FLAGS_REDUCED_MEMORY_DECODE_ZERO_COPY: u32 = 16;
pub const NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION: u32 = 32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
pub type cudaStream_t = *mut CUstream_st;
impl libraryPropertyType_t {
    pub const MAJOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(0);
    pub const MINOR_VERSION: libraryPropertyType_t = libraryPropertyType_t(1);
    pub const PATCH_LEVEL: libraryPropertyType_t = libraryPropertyType_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct libraryPropertyType_t(pub ::std::os::raw::c_uint);
pub use self::libraryPropertyType_t as libraryPropertyType;
impl nvjpegStatus_t {
    pub const NVJPEG_STATUS_SUCCESS: nvjpegStatus_t = nvjpegStatus_t(0);
    pub const NVJPEG_STATUS_NOT_INITIALIZED: nvjpegStatus_t = nvjpegStatus_t(1);
    pub const NVJPEG_STATUS_INVALID_PARAMETER: nvjpegStatus_t = nvjpegStatus_t(2);
    pub const NVJPEG_STATUS_BAD_JPEG: nvjpegStatus_t = nvjpegStatus_t(3);
    pub const NVJPEG_STATUS_JPEG_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(4);
    pub const NVJPEG_STATUS_ALLOCATOR_FAILURE: nvjpegStatus_t = nvjpegStatus_t(5);
    pub const NVJPEG_STATUS_EXECUTION_FAILED: nvjpegStatus_t = nvjpegStatus_t(6);
    pub const NVJPEG_STATUS_ARCH_MISMATCH: nvjpegStatus_t = nvjpegStatus_t(7);
    pub const NVJPEG_STATUS_INTERNAL_ERROR: nvjpegStatus_t = nvjpegStatus_t(8);
    pub const NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: nvjpegStatus_t = nvjpegStatus_t(9);
    pub const NVJPEG_STATUS_INCOMPLETE_BITSTREAM: nvjpegStatus_t = nvjpegStatus_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegStatus_t(pub ::std::os::raw::c_uint);
impl nvjpegExifOrientation {
    pub const NVJPEG_ORIENTATION_UNKNOWN: nvjpegExifOrientation = nvjpegExifOrientation(0);
    pub const NVJPEG_ORIENTATION_NORMAL: nvjpegExifOrientation = nvjpegExifOrientation(1);
    pub const NVJPEG_ORIENTATION_FLIP_HORIZONTAL: nvjpegExifOrientation = nvjpegExifOrientation(2);
    pub const NVJPEG_ORIENTATION_ROTATE_180: nvjpegExifOrientation = nvjpegExifOrientation(3);
    pub const NVJPEG_ORIENTATION_FLIP_VERTICAL: nvjpegExifOrientation = nvjpegExifOrientation(4);
    pub const NVJPEG_ORIENTATION_TRANSPOSE: nvjpegExifOrientation = nvjpegExifOrientation(5);
    pub const NVJPEG_ORIENTATION_ROTATE_90: nvjpegExifOrientation = nvjpegExifOrientation(6);
    pub const NVJPEG_ORIENTATION_TRANSVERSE: nvjpegExifOrientation = nvjpegExifOrientation(7);
    pub const NVJPEG_ORIENTATION_ROTATE_270: nvjpegExifOrientation = nvjpegExifOrientation(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegExifOrientation(pub ::std::os::raw::c_uint);
pub use self::nvjpegExifOrientation as nvjpegExifOrientation_t;
impl nvjpegChromaSubsampling_t {
    pub const NVJPEG_CSS_444: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(0);
    pub const NVJPEG_CSS_422: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(1);
    pub const NVJPEG_CSS_420: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(2);
    pub const NVJPEG_CSS_440: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(3);
    pub const NVJPEG_CSS_411: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(4);
    pub const NVJPEG_CSS_410: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(5);
    pub const NVJPEG_CSS_GRAY: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(6);
    pub const NVJPEG_CSS_410V: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(7);
    pub const NVJPEG_CSS_UNKNOWN: nvjpegChromaSubsampling_t = nvjpegChromaSubsampling_t(-1);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegChromaSubsampling_t(pub ::std::os::raw::c_int);
impl nvjpegOutputFormat_t {
    pub const NVJPEG_OUTPUT_UNCHANGED: nvjpegOutputFormat_t = nvjpegOutputFormat_t(0);
    pub const NVJPEG_OUTPUT_YUV: nvjpegOutputFormat_t = nvjpegOutputFormat_t(1);
    pub const NVJPEG_OUTPUT_Y: nvjpegOutputFormat_t = nvjpegOutputFormat_t(2);
    pub const NVJPEG_OUTPUT_RGB: nvjpegOutputFormat_t = nvjpegOutputFormat_t(3);
    pub const NVJPEG_OUTPUT_BGR: nvjpegOutputFormat_t = nvjpegOutputFormat_t(4);
    pub const NVJPEG_OUTPUT_RGBI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(5);
    pub const NVJPEG_OUTPUT_BGRI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(6);
    pub const NVJPEG_OUTPUT_UNCHANGEDI_U16: nvjpegOutputFormat_t = nvjpegOutputFormat_t(7);
    pub const NVJPEG_OUTPUT_NV12: nvjpegOutputFormat_t = nvjpegOutputFormat_t(8);
    pub const NVJPEG_OUTPUT_YUY2: nvjpegOutputFormat_t = nvjpegOutputFormat_t(9);
    pub const NVJPEG_OUTPUT_UNCHANGEDI: nvjpegOutputFormat_t = nvjpegOutputFormat_t(10);
    pub const NVJPEG_OUTPUT_FORMAT_MAX: nvjpegOutputFormat_t = nvjpegOutputFormat_t(10);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegOutputFormat_t(pub ::std::os::raw::c_uint);
impl nvjpegInputFormat_t {
    pub const NVJPEG_INPUT_YUV: nvjpegInputFormat_t = nvjpegInputFormat_t(1);
    pub const NVJPEG_INPUT_RGB: nvjpegInputFormat_t = nvjpegInputFormat_t(3);
    pub const NVJPEG_INPUT_BGR: nvjpegInputFormat_t = nvjpegInputFormat_t(4);
    pub const NVJPEG_INPUT_RGBI: nvjpegInputFormat_t = nvjpegInputFormat_t(5);
    pub const NVJPEG_INPUT_BGRI: nvjpegInputFormat_t = nvjpegInputFormat_t(6);
    pub const NVJPEG_INPUT_NV12: nvjpegInputFormat_t = nvjpegInputFormat_t(8);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegInputFormat_t(pub ::std::os::raw::c_uint);
impl nvjpegBackend_t {
    pub const NVJPEG_BACKEND_DEFAULT: nvjpegBackend_t = nvjpegBackend_t(0);
    pub const NVJPEG_BACKEND_HYBRID: nvjpegBackend_t = nvjpegBackend_t(1);
    pub const NVJPEG_BACKEND_GPU_HYBRID: nvjpegBackend_t = nvjpegBackend_t(2);
    pub const NVJPEG_BACKEND_HARDWARE: nvjpegBackend_t = nvjpegBackend_t(3);
    pub const NVJPEG_BACKEND_GPU_HYBRID_DEVICE: nvjpegBackend_t = nvjpegBackend_t(4);
    pub const NVJPEG_BACKEND_HARDWARE_DEVICE: nvjpegBackend_t = nvjpegBackend_t(5);
    pub const NVJPEG_BACKEND_LOSSLESS_JPEG: nvjpegBackend_t = nvjpegBackend_t(6);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegBackend_t(pub ::std::os::raw::c_uint);
impl nvjpegEncBackend_t {
    pub const NVJPEG_ENC_BACKEND_DEFAULT: nvjpegEncBackend_t = nvjpegEncBackend_t(0);
    pub const NVJPEG_ENC_BACKEND_GPU: nvjpegEncBackend_t = nvjpegEncBackend_t(1);
    pub const NVJPEG_ENC_BACKEND_HARDWARE: nvjpegEncBackend_t = nvjpegEncBackend_t(2);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegEncBackend_t(pub ::std::os::raw::c_uint);
impl nvjpegJpegEncoding_t {
    pub const NVJPEG_ENCODING_UNKNOWN: nvjpegJpegEncoding_t = nvjpegJpegEncoding_t(0);
    pub const NVJPEG_ENCODING_BASELINE_DCT: nvjpegJpegEncoding_t = nvjpegJpegEncoding_t(192);
    pub const NVJPEG_ENCODING_EXTENDED_SEQUENTIAL_DCT_HUFFMAN: nvjpegJpegEncoding_t = nvjpegJpegEncoding_t(193);
    pub const NVJPEG_ENCODING_PROGRESSIVE_DCT_HUFFMAN: nvjpegJpegEncoding_t = nvjpegJpegEncoding_t(194);
    pub const NVJPEG_ENCODING_LOSSLESS_HUFFMAN: nvjpegJpegEncoding_t = nvjpegJpegEncoding_t(195);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegJpegEncoding_t(pub ::std::os::raw::c_uint);
impl nvjpegScaleFactor_t {
    pub const NVJPEG_SCALE_NONE: nvjpegScaleFactor_t = nvjpegScaleFactor_t(0);
    pub const NVJPEG_SCALE_1_BY_2: nvjpegScaleFactor_t = nvjpegScaleFactor_t(1);
    pub const NVJPEG_SCALE_1_BY_4: nvjpegScaleFactor_t = nvjpegScaleFactor_t(2);
    pub const NVJPEG_SCALE_1_BY_8: nvjpegScaleFactor_t = nvjpegScaleFactor_t(3);
}
#[repr(transparent)]
#[derive(Debug, Copy, Clone, Hash, PartialEq, Eq)]
pub struct nvjpegScaleFactor_t(pub ::std::os::raw::c_uint);
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegImage_t {
    pub channel: [*mut ::std::os::raw::c_uchar; 4usize],
    pub pitch: [usize; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegImage_t"][::std::mem::size_of::<nvjpegImage_t>() - 64usize];
    ["Alignment of nvjpegImage_t"][::std::mem::align_of::<nvjpegImage_t>() - 8usize];
    ["Offset of field: nvjpegImage_t::channel"][::std::mem::offset_of!(nvjpegImage_t, channel) - 0usize];
    ["Offset of field: nvjpegImage_t::pitch"][::std::mem::offset_of!(nvjpegImage_t, pitch) - 32usize];
};
pub type tDevMalloc = ::std::option::Option<
    unsafe extern "C" fn(arg1: *mut *mut ::std::os::raw::c_void, arg2: usize) -> ::std::os::raw::c_int,
>;
pub type tDevFree =
    ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int>;
pub type tPinnedMalloc = ::std::option::Option<
    unsafe extern "C" fn(
        arg1: *mut *mut ::std::os::raw::c_void,
        arg2: usize,
        flags: ::std::os::raw::c_uint,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedFree =
    ::std::option::Option<unsafe extern "C" fn(arg1: *mut ::std::os::raw::c_void) -> ::std::os::raw::c_int>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegDevAllocator_t {
    pub dev_malloc: tDevMalloc,
    pub dev_free: tDevFree,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegDevAllocator_t"][::std::mem::size_of::<nvjpegDevAllocator_t>() - 16usize];
    ["Alignment of nvjpegDevAllocator_t"][::std::mem::align_of::<nvjpegDevAllocator_t>() - 8usize];
    ["Offset of field: nvjpegDevAllocator_t::dev_malloc"]
        [::std::mem::offset_of!(nvjpegDevAllocator_t, dev_malloc) - 0usize];
    ["Offset of field: nvjpegDevAllocator_t::dev_free"]
        [::std::mem::offset_of!(nvjpegDevAllocator_t, dev_free) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegPinnedAllocator_t {
    pub pinned_malloc: tPinnedMalloc,
    pub pinned_free: tPinnedFree,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegPinnedAllocator_t"][::std::mem::size_of::<nvjpegPinnedAllocator_t>() - 16usize];
    ["Alignment of nvjpegPinnedAllocator_t"][::std::mem::align_of::<nvjpegPinnedAllocator_t>() - 8usize];
    ["Offset of field: nvjpegPinnedAllocator_t::pinned_malloc"]
        [::std::mem::offset_of!(nvjpegPinnedAllocator_t, pinned_malloc) - 0usize];
    ["Offset of field: nvjpegPinnedAllocator_t::pinned_free"]
        [::std::mem::offset_of!(nvjpegPinnedAllocator_t, pinned_free) - 8usize];
};
pub type tDevMallocV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tDevFreeV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedMallocV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
pub type tPinnedFreeV2 = ::std::option::Option<
    unsafe extern "C" fn(
        ctx: *mut ::std::os::raw::c_void,
        ptr: *mut ::std::os::raw::c_void,
        size: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegDevAllocatorV2_t {
    pub dev_malloc: tDevMallocV2,
    pub dev_free: tDevFreeV2,
    pub dev_ctx: *mut ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegDevAllocatorV2_t"][::std::mem::size_of::<nvjpegDevAllocatorV2_t>() - 24usize];
    ["Alignment of nvjpegDevAllocatorV2_t"][::std::mem::align_of::<nvjpegDevAllocatorV2_t>() - 8usize];
    ["Offset of field: nvjpegDevAllocatorV2_t::dev_malloc"]
        [::std::mem::offset_of!(nvjpegDevAllocatorV2_t, dev_malloc) - 0usize];
    ["Offset of field: nvjpegDevAllocatorV2_t::dev_free"]
        [::std::mem::offset_of!(nvjpegDevAllocatorV2_t, dev_free) - 8usize];
    ["Offset of field: nvjpegDevAllocatorV2_t::dev_ctx"]
        [::std::mem::offset_of!(nvjpegDevAllocatorV2_t, dev_ctx) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegPinnedAllocatorV2_t {
    pub pinned_malloc: tPinnedMallocV2,
    pub pinned_free: tPinnedFreeV2,
    pub pinned_ctx: *mut ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of nvjpegPinnedAllocatorV2_t"][::std::mem::size_of::<nvjpegPinnedAllocatorV2_t>() - 24usize];
    ["Alignment of nvjpegPinnedAllocatorV2_t"][::std::mem::align_of::<nvjpegPinnedAllocatorV2_t>() - 8usize];
    ["Offset of field: nvjpegPinnedAllocatorV2_t::pinned_malloc"]
        [::std::mem::offset_of!(nvjpegPinnedAllocatorV2_t, pinned_malloc) - 0usize];
    ["Offset of field: nvjpegPinnedAllocatorV2_t::pinned_free"]
        [::std::mem::offset_of!(nvjpegPinnedAllocatorV2_t, pinned_free) - 8usize];
    ["Offset of field: nvjpegPinnedAllocatorV2_t::pinned_ctx"]
        [::std::mem::offset_of!(nvjpegPinnedAllocatorV2_t, pinned_ctx) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegHandle {
    _unused: [u8; 0],
}
pub type nvjpegHandle_t = *mut nvjpegHandle;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegJpegState {
    _unused: [u8; 0],
}
pub type nvjpegJpegState_t = *mut nvjpegJpegState;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegEncoderState {
    _unused: [u8; 0],
}
pub type nvjpegEncoderState_t = *mut nvjpegEncoderState;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegEncoderParams {
    _unused: [u8; 0],
}
pub type nvjpegEncoderParams_t = *mut nvjpegEncoderParams;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegBufferPinned {
    _unused: [u8; 0],
}
pub type nvjpegBufferPinned_t = *mut nvjpegBufferPinned;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegBufferDevice {
    _unused: [u8; 0],
}
pub type nvjpegBufferDevice_t = *mut nvjpegBufferDevice;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegJpegStream {
    _unused: [u8; 0],
}
pub type nvjpegJpegStream_t = *mut nvjpegJpegStream;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegDecodeParams {
    _unused: [u8; 0],
}
pub type nvjpegDecodeParams_t = *mut nvjpegDecodeParams;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvjpegJpegDecoder {
    _unused: [u8; 0],
}
pub type nvjpegJpegDecoder_t = *mut nvjpegJpegDecoder;
pub mod functions {
    use super::*;
    pub type nvjpegGetProperty =
        unsafe extern "C" fn(type_: libraryPropertyType, value: *mut ::std::os::raw::c_int) -> nvjpegStatus_t;
    pub type nvjpegGetCudartProperty =
        unsafe extern "C" fn(type_: libraryPropertyType, value: *mut ::std::os::raw::c_int) -> nvjpegStatus_t;
    pub type nvjpegCreate = unsafe extern "C" fn(
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocator_t,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegCreateSimple = unsafe extern "C" fn(handle: *mut nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegCreateEx = unsafe extern "C" fn(
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocator_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        flags: ::std::os::raw::c_uint,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegCreateExV2 = unsafe extern "C" fn(
        backend: nvjpegBackend_t,
        dev_allocator: *mut nvjpegDevAllocatorV2_t,
        pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
        flags: ::std::os::raw::c_uint,
        handle: *mut nvjpegHandle_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDestroy = unsafe extern "C" fn(handle: nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegSetDeviceMemoryPadding =
        unsafe extern "C" fn(padding: usize, handle: nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegGetDeviceMemoryPadding =
        unsafe extern "C" fn(padding: *mut usize, handle: nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegSetPinnedMemoryPadding =
        unsafe extern "C" fn(padding: usize, handle: nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegGetPinnedMemoryPadding =
        unsafe extern "C" fn(padding: *mut usize, handle: nvjpegHandle_t) -> nvjpegStatus_t;
    pub type nvjpegGetHardwareDecoderInfo = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        num_engines: *mut ::std::os::raw::c_uint,
        num_cores_per_engine: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t;
    pub type nvjpegGetHardwareEncoderInfo =
        unsafe extern "C" fn(handle: nvjpegHandle_t, num_engines: *mut ::std::os::raw::c_uint) -> nvjpegStatus_t;
    pub type nvjpegJpegStateCreate =
        unsafe extern "C" fn(handle: nvjpegHandle_t, jpeg_handle: *mut nvjpegJpegState_t) -> nvjpegStatus_t;
    pub type nvjpegJpegStateDestroy = unsafe extern "C" fn(jpeg_handle: nvjpegJpegState_t) -> nvjpegStatus_t;
    pub type nvjpegGetImageInfo = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        nComponents: *mut ::std::os::raw::c_int,
        subsampling: *mut nvjpegChromaSubsampling_t,
        widths: *mut ::std::os::raw::c_int,
        heights: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecode = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        output_format: nvjpegOutputFormat_t,
        destination: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedInitialize = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        max_cpu_threads: ::std::os::raw::c_int,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatched = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedPreAllocate = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        batch_size: ::std::os::raw::c_int,
        width: ::std::os::raw::c_int,
        height: ::std::os::raw::c_int,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedParseJpegTables = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderStateCreate = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: *mut nvjpegEncoderState_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderStateCreateWithBackend = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: *mut nvjpegEncoderState_t,
        backend: nvjpegEncBackend_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderStateDestroy = unsafe extern "C" fn(encoder_state: nvjpegEncoderState_t) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsCreate = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_params: *mut nvjpegEncoderParams_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsDestroy = unsafe extern "C" fn(encoder_params: nvjpegEncoderParams_t) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsSetQuality = unsafe extern "C" fn(
        encoder_params: nvjpegEncoderParams_t,
        quality: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsSetEncoding = unsafe extern "C" fn(
        encoder_params: nvjpegEncoderParams_t,
        etype: nvjpegJpegEncoding_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsSetOptimizedHuffman = unsafe extern "C" fn(
        encoder_params: nvjpegEncoderParams_t,
        optimized: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsSetSamplingFactors = unsafe extern "C" fn(
        encoder_params: nvjpegEncoderParams_t,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsSetRestartInterval = unsafe extern "C" fn(
        encoder_params: nvjpegEncoderParams_t,
        restart_interval: ::std::os::raw::c_uint,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncodeGetBufferSize = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_params: nvjpegEncoderParams_t,
        image_width: ::std::os::raw::c_int,
        image_height: ::std::os::raw::c_int,
        max_stream_length: *mut usize,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncodeYUV = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: nvjpegEncoderState_t,
        encoder_params: nvjpegEncoderParams_t,
        source: *const nvjpegImage_t,
        chroma_subsampling: nvjpegChromaSubsampling_t,
        image_width: ::std::os::raw::c_int,
        image_height: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncodeImage = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: nvjpegEncoderState_t,
        encoder_params: nvjpegEncoderParams_t,
        source: *const nvjpegImage_t,
        input_format: nvjpegInputFormat_t,
        image_width: ::std::os::raw::c_int,
        image_height: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncode = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: nvjpegEncoderState_t,
        encoder_params: nvjpegEncoderParams_t,
        source: *const nvjpegImage_t,
        input_subsampling: nvjpegChromaSubsampling_t,
        input_format: nvjpegInputFormat_t,
        image_width: ::std::os::raw::c_int,
        image_height: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncodeRetrieveBitstreamDevice = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: nvjpegEncoderState_t,
        data: *mut ::std::os::raw::c_uchar,
        length: *mut usize,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncodeRetrieveBitstream = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        encoder_state: nvjpegEncoderState_t,
        data: *mut ::std::os::raw::c_uchar,
        length: *mut usize,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferPinnedCreate = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        pinned_allocator: *mut nvjpegPinnedAllocator_t,
        buffer: *mut nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferPinnedCreateV2 = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        pinned_allocator: *mut nvjpegPinnedAllocatorV2_t,
        buffer: *mut nvjpegBufferPinned_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferPinnedResize =
        unsafe extern "C" fn(buffer: nvjpegBufferPinned_t, size: usize, stream: cudaStream_t) -> nvjpegStatus_t;
    pub type nvjpegBufferPinnedDestroy = unsafe extern "C" fn(buffer: nvjpegBufferPinned_t) -> nvjpegStatus_t;
    pub type nvjpegBufferDeviceCreate = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        device_allocator: *mut nvjpegDevAllocator_t,
        buffer: *mut nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferDeviceCreateV2 = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        device_allocator: *mut nvjpegDevAllocatorV2_t,
        buffer: *mut nvjpegBufferDevice_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferDeviceResize =
        unsafe extern "C" fn(buffer: nvjpegBufferDevice_t, size: usize, stream: cudaStream_t) -> nvjpegStatus_t;
    pub type nvjpegBufferDeviceDestroy = unsafe extern "C" fn(buffer: nvjpegBufferDevice_t) -> nvjpegStatus_t;
    pub type nvjpegBufferPinnedRetrieve = unsafe extern "C" fn(
        buffer: nvjpegBufferPinned_t,
        size: *mut usize,
        ptr: *mut *mut ::std::os::raw::c_void,
    ) -> nvjpegStatus_t;
    pub type nvjpegBufferDeviceRetrieve = unsafe extern "C" fn(
        buffer: nvjpegBufferDevice_t,
        size: *mut usize,
        ptr: *mut *mut ::std::os::raw::c_void,
    ) -> nvjpegStatus_t;
    pub type nvjpegStateAttachPinnedBuffer =
        unsafe extern "C" fn(decoder_state: nvjpegJpegState_t, pinned_buffer: nvjpegBufferPinned_t) -> nvjpegStatus_t;
    pub type nvjpegStateAttachDeviceBuffer =
        unsafe extern "C" fn(decoder_state: nvjpegJpegState_t, device_buffer: nvjpegBufferDevice_t) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamCreate =
        unsafe extern "C" fn(handle: nvjpegHandle_t, jpeg_stream: *mut nvjpegJpegStream_t) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamDestroy = unsafe extern "C" fn(jpeg_stream: nvjpegJpegStream_t) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamParse = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        save_metadata: ::std::os::raw::c_int,
        save_stream: ::std::os::raw::c_int,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamParseHeader = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamParseTables = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        data: *const ::std::os::raw::c_uchar,
        length: usize,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetJpegEncoding = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        jpeg_encoding: *mut nvjpegJpegEncoding_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetFrameDimensions = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        width: *mut ::std::os::raw::c_uint,
        height: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetComponentsNum = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        components_num: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetComponentDimensions = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        component: ::std::os::raw::c_uint,
        width: *mut ::std::os::raw::c_uint,
        height: *mut ::std::os::raw::c_uint,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetExifOrientation = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        orientation_flag: *mut nvjpegExifOrientation_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetSamplePrecision =
        unsafe extern "C" fn(jpeg_stream: nvjpegJpegStream_t, precision: *mut ::std::os::raw::c_uint) -> nvjpegStatus_t;
    pub type nvjpegJpegStreamGetChromaSubsampling = unsafe extern "C" fn(
        jpeg_stream: nvjpegJpegStream_t,
        chroma_subsampling: *mut nvjpegChromaSubsampling_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsCreate =
        unsafe extern "C" fn(handle: nvjpegHandle_t, decode_params: *mut nvjpegDecodeParams_t) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsDestroy = unsafe extern "C" fn(decode_params: nvjpegDecodeParams_t) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsSetOutputFormat = unsafe extern "C" fn(
        decode_params: nvjpegDecodeParams_t,
        output_format: nvjpegOutputFormat_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsSetROI = unsafe extern "C" fn(
        decode_params: nvjpegDecodeParams_t,
        offset_x: ::std::os::raw::c_int,
        offset_y: ::std::os::raw::c_int,
        roi_width: ::std::os::raw::c_int,
        roi_height: ::std::os::raw::c_int,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsSetAllowCMYK =
        unsafe extern "C" fn(decode_params: nvjpegDecodeParams_t, allow_cmyk: ::std::os::raw::c_int) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsSetScaleFactor =
        unsafe extern "C" fn(decode_params: nvjpegDecodeParams_t, scale_factor: nvjpegScaleFactor_t) -> nvjpegStatus_t;
    pub type nvjpegDecodeParamsSetExifOrientation = unsafe extern "C" fn(
        decode_params: nvjpegDecodeParams_t,
        orientation: nvjpegExifOrientation_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecoderCreate = unsafe extern "C" fn(
        nvjpeg_handle: nvjpegHandle_t,
        implementation: nvjpegBackend_t,
        decoder_handle: *mut nvjpegJpegDecoder_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecoderDestroy = unsafe extern "C" fn(decoder_handle: nvjpegJpegDecoder_t) -> nvjpegStatus_t;
    pub type nvjpegDecoderJpegSupported = unsafe extern "C" fn(
        decoder_handle: nvjpegJpegDecoder_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedSupported = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedSupportedEx = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_stream: nvjpegJpegStream_t,
        decode_params: nvjpegDecodeParams_t,
        is_supported: *mut ::std::os::raw::c_int,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecoderStateCreate = unsafe extern "C" fn(
        nvjpeg_handle: nvjpegHandle_t,
        decoder_handle: nvjpegJpegDecoder_t,
        decoder_state: *mut nvjpegJpegState_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeJpeg = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        jpeg_bitstream: nvjpegJpegStream_t,
        destination: *mut nvjpegImage_t,
        decode_params: nvjpegDecodeParams_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeJpegHost = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        decode_params: nvjpegDecodeParams_t,
        jpeg_stream: nvjpegJpegStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeJpegTransferToDevice = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeJpegDevice = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        decoder: nvjpegJpegDecoder_t,
        decoder_state: nvjpegJpegState_t,
        destination: *mut nvjpegImage_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegDecodeBatchedEx = unsafe extern "C" fn(
        handle: nvjpegHandle_t,
        jpeg_handle: nvjpegJpegState_t,
        data: *const *const ::std::os::raw::c_uchar,
        lengths: *const usize,
        destinations: *mut nvjpegImage_t,
        decode_params: *mut nvjpegDecodeParams_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsCopyMetadata = unsafe extern "C" fn(
        encoder_state: nvjpegEncoderState_t,
        encode_params: nvjpegEncoderParams_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
    pub type nvjpegEncoderParamsCopyQuantizationTables = unsafe extern "C" fn(
        encode_params: nvjpegEncoderParams_t,
        jpeg_stream: nvjpegJpegStream_t,
        stream: cudaStream_t,
    ) -> nvjpegStatus_t;
}
