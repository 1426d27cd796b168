//! Kernels of operations: names, grids and calls.
//!
//! Operations know nothing else of GPUs. An operation fills in its kernel's descriptor
//! ([`descriptors`](super::descriptors)) through a [`CallRecorder`]. The back end finds all kernels in [`REGISTRY`] and
//! names no operation.
#![allow(unsafe_code)]

use super::descriptors::{
    Axis, BlurSample, BoxBlurSample, ColorSample, ContrastSample, CropSample, DevicePointer, ElasticSample,
    EraseNoiseSample, EraseSample, Erasure, FieldLoadSample, FieldStoreSample, FinishSample, FlipSample, FusedSample,
    HistogramSample, MixSample, MixupBatch, MixupSample, MorphologySample, NoiseSample, PerspectiveSample,
    PlanesBlurSample, PlanesCopySample, PlanesEraseSample, PlanesErasure, PlanesExtremeSample, PlanesFinishSample,
    PlanesImage, PlanesNearestSample, PlanesNoiseSample, PlanesPointsSample, PlanesResizeSample, PlanesWarpSample,
    ResizeSample, RotateSample, SharpnessSample, SourceImage, StepDescriptor, TableSample, TargetImage, ViewLoadSample,
};
use super::filter::{Interpolation, PassOrder, Stretch};
use crate::error::Result;
use crate::raster::{Rect, Size};
use bytemuck::NoUninit;
use std::ops::Range;
use warpfeed_image::planes::PixelKind;

/// A kernel, as an operation's file lists it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kernel {
    /// Name of the function in kernels/*.cu.
    pub(crate) name: &'static str,
    pub(crate) grid: KernelGrid,
}

/// Grid by which a kernel covers an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum KernelGrid {
    /// One pixel per thread, in blocks of 32 x 8.
    Pixels,
    /// Tiles of 32 x 16 pixels, with a block of 256 threads each.
    Tiles,
}

impl Kernel {
    /// A kernel with one pixel per thread.
    pub(crate) const fn pixels(name: &'static str) -> Self {
        Self { name, grid: KernelGrid::Pixels }
    }
}

/// The kernels of all operations. A kernel that several operations share is listed once for each.
pub(crate) const REGISTRY: [Kernel; count()] = {
    let mut registry = [super::KERNELS[0][0]; count()];
    let (mut list, mut next) = (0, 0);
    while list < super::KERNELS.len() {
        let mut i = 0;
        while i < super::KERNELS[list].len() {
            registry[next] = super::KERNELS[list][i];
            next += 1;
            i += 1;
        }
        list += 1;
    }
    registry
};

const fn count() -> usize {
    let (mut list, mut count) = (0, 0);
    while list < super::KERNELS.len() {
        count += super::KERNELS[list].len();
        list += 1;
    }
    count
}

/// A kernel's place in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelId(pub(crate) usize);

impl KernelId {
    /// The kernel of this name. A name that is not in the registry does not compile.
    pub(crate) const fn of(name: &str) -> Self {
        let mut i = 0;
        while i < REGISTRY.len() {
            if equal(REGISTRY[i].name.as_bytes(), name.as_bytes()) {
                return Self(i);
            }
            i += 1;
        }
        panic!("no operation has a kernel of this name");
    }
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Makes the kernel calls of one image, in order.
pub(crate) trait CallRecorder {
    /// The current image.
    fn source(&self) -> SourceImage;

    /// Makes a new image, the part `part` of a whole of this size, the current one.
    fn target(&mut self, whole: Size, part: Rect) -> Result<TargetImage>;

    /// Makes an earlier image the current one again. Its memory is not reused from then on, but operations that work in
    /// place still change it.
    fn go_back(&mut self, image: SourceImage);

    /// Uploads a table to the device, at an address that is a multiple of 16.
    fn put(&mut self, table: &[u8]) -> Result<DevicePointer>;

    /// Uninitialized memory on the device.
    fn scratch(&mut self, len_bytes: usize) -> Result<DevicePointer>;

    /// The weights of the output pixels `window` of a resize along an axis.
    fn axis(&mut self, stretch: Stretch, window: Range<u32>, interpolation: Interpolation) -> Result<Axis>;

    /// Order of a resize's passes.
    fn order(&self) -> PassOrder;

    /// Adds a call. `extent` is the size in pixels of the area that the kernel makes or changes.
    fn add(&mut self, kernel: KernelId, descriptor: Descriptor, extent: Size);
}

/// Makes the kernel calls of one image that is not RGB of 8 bits, in order.
pub(crate) trait PlanesRecorder {
    /// The current image.
    fn image(&self) -> PlanesImage;

    /// Whether others read the current image, so that it must stay as it is.
    fn is_shared(&self) -> bool;

    /// Makes a new image, the part `part` of a whole of this size, the current one.
    fn target(&mut self, kind: PixelKind, whole: Size, part: Rect) -> Result<PlanesImage>;

    /// Says that the current image is the part `part`, of the same size, of a whole of this size.
    fn moved_to(&mut self, whole: Size, part: Rect);

    /// Uploads a table to the device, at an address that is a multiple of 16.
    fn put(&mut self, table: &[u8]) -> Result<DevicePointer>;

    /// Uninitialized memory on the device.
    fn scratch(&mut self, len_bytes: usize) -> Result<DevicePointer>;

    /// Adds a call. `extent` is the size in pixels of the area that the kernel makes or changes.
    fn add(&mut self, kernel: KernelId, descriptor: Descriptor, extent: Size);
}

impl dyn PlanesRecorder + '_ {
    /// Adds a call of a kernel with the descriptor `sample`.
    pub(crate) fn call(&mut self, kernel: KernelId, sample: &impl NoUninit, extent: Size) {
        self.add(kernel, Descriptor::new(sample), extent);
    }
}

impl dyn CallRecorder + '_ {
    /// The size of the complete image. The current image may be a part of it.
    pub(crate) fn whole(&self) -> Size {
        let source = self.source();
        Size::new(source.whole_width, source.whole_height)
    }

    /// Adds a call of a kernel with the descriptor `sample`. `extent` is the size in pixels of the area that the kernel
    /// makes or changes.
    pub(crate) fn call(&mut self, kernel: KernelId, sample: &impl NoUninit, extent: Size) {
        self.add(kernel, Descriptor::new(sample), extent);
    }
}

/// An image's descriptor, as the kernel reads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    bytes: [u8; Self::MOST_BYTES],
    len_bytes: usize,
}

impl Descriptor {
    /// Size of the largest descriptor.
    pub(crate) const MOST_BYTES: usize = size_of::<FusedSample>();

    pub(crate) fn new<S: NoUninit>(sample: &S) -> Self {
        const { assert!(size_of::<S>() <= Self::MOST_BYTES) };
        let mut bytes = [0; Self::MOST_BYTES];
        bytes[..size_of::<S>()].copy_from_slice(bytemuck::bytes_of(sample));
        Self { bytes, len_bytes: size_of::<S>() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Overwrites the number at `offset`.
    pub(crate) fn set<T: NoUninit>(&mut self, offset: usize, number: &T) {
        self.bytes[offset..offset + size_of::<T>()].copy_from_slice(bytemuck::bytes_of(number));
    }
}

macro_rules! descriptors {
    ($($type:ty,)*) => {
        $(
            // SAFETY: plain numbers without padding; descriptors.rs asserts that by the structs' sizes.
            unsafe impl NoUninit for $type {}
        )*
    };
}

descriptors! {
    StepDescriptor,
    Erasure,
    FusedSample,
    FinishSample,
    FlipSample,
    CropSample,
    RotateSample,
    ResizeSample,
    BlurSample,
    MorphologySample,
    ContrastSample,
    ColorSample,
    TableSample,
    HistogramSample,
    MixSample,
    PerspectiveSample,
    BoxBlurSample,
    SharpnessSample,
    EraseSample,
    EraseNoiseSample,
    NoiseSample,
    ElasticSample,
    MixupSample,
    MixupBatch,
    FieldLoadSample,
    ViewLoadSample,
    FieldStoreSample,
    PlanesCopySample,
    PlanesResizeSample,
    PlanesNearestSample,
    PlanesWarpSample,
    PlanesBlurSample,
    PlanesExtremeSample,
    PlanesPointsSample,
    PlanesNoiseSample,
    PlanesEraseSample,
    PlanesErasure,
    PlanesFinishSample,
}
