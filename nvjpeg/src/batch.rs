//! Decoding many images in one call.

use std::ffi::c_int;
use std::ptr;

use nvjpeg_sys::bindings::{
    cudaStream_t, nvjpegChromaSubsampling_t, nvjpegImage_t, nvjpegJpegState_t, nvjpegOutputFormat_t,
};

use crate::decoder::Image;
use crate::error::{Error, Result};
use crate::handle::{Handle, call, call_optional};
use crate::params::OUTPUT_FORMAT;

/// State for decoding batches, one after another, with the handle's back end.
#[derive(Debug)]
pub struct BatchState {
    raw: nvjpegJpegState_t,
    handle: Handle,
    batch_size: usize,
    format: nvjpegOutputFormat_t,
    // These vectors are reused for each batch.
    data: Vec<*const u8>,
    lengths_bytes: Vec<usize>,
    images: Vec<nvjpegImage_t>,
}

// SAFETY: nvJPEG's documentation asks for one state per thread at a time, and does not bind a state to a thread. The
// addresses in the vectors are read only during the call that put them there.
unsafe impl Send for BatchState {}

impl BatchState {
    /// A new state, which must be [initialized](Self::initialize) before it decodes.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn new(handle: &Handle) -> Result<Self> {
        handle.report_drop_error()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is valid; `raw` is written to before the call returns.
        unsafe { call!(handle.functions(), nvjpegJpegStateCreate(handle.as_raw(), &raw mut raw))? };
        Ok(Self {
            raw,
            handle: handle.clone(),
            batch_size: 0,
            format: OUTPUT_FORMAT,
            data: Vec::new(),
            lengths_bytes: Vec::new(),
            images: Vec::new(),
        })
    }

    /// A new state for [planes](Image::planes) instead of interleaved RGB: luma and chroma in the size in which the image
    /// has them.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Status`].
    pub fn for_planes(handle: &Handle) -> Result<Self> {
        let mut state = Self::new(handle)?;
        state.format = nvjpegOutputFormat_t::NVJPEG_OUTPUT_YUV;
        Ok(state)
    }

    /// Prepares for batches of one size. Also call this after a batch that failed. For hardware decoders, use one
    /// thread.
    ///
    /// # Safety
    ///
    /// No earlier batch of this state is under way on the device.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for numbers of 0 or above `i32::MAX`, or [`Error::Status`].
    pub unsafe fn initialize(&mut self, batch_size: usize, cpu_threads: usize) -> Result<()> {
        const CALL: &str = "nvjpegDecodeBatchedInitialize";
        self.batch_size = 0;
        let (size, threads) = (positive(CALL, "batch_size", batch_size)?, positive(CALL, "cpu_threads", cpu_threads)?);
        // SAFETY: handle and state are valid, and the state is idle by this function's contract.
        unsafe {
            call!(
                self.handle.functions(),
                nvjpegDecodeBatchedInitialize(self.handle.as_raw(), self.raw, size, threads, self.format)
            )?;
        }
        self.batch_size = batch_size;
        self.data.reserve(batch_size);
        self.lengths_bytes.reserve(batch_size);
        self.images.reserve(batch_size);
        Ok(())
    }

    /// Allocates memory for batches of images up to a size, of any chroma subsampling, so that decoding need not
    /// allocate.
    ///
    /// # Safety
    ///
    /// No earlier batch of this state is under way on the device.
    ///
    /// # Synchronization
    ///
    /// It may allocate, which waits for the device; complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`], [`Error::Parameter`] for sizes of 0 or above `i32::MAX`, or [`Error::Status`].
    pub unsafe fn preallocate(&mut self, batch_size: usize, width_px: u32, height_px: u32) -> Result<()> {
        const CALL: &str = "nvjpegDecodeBatchedPreAllocate";
        let size = positive(CALL, "batch_size", batch_size)?;
        let width = positive(CALL, "width_px", width_px as usize)?;
        let height = positive(CALL, "height_px", height_px as usize)?;
        // These images have the largest planes.
        let subsampling = nvjpegChromaSubsampling_t::NVJPEG_CSS_444;
        // SAFETY: handle and state are valid, and the state is idle by this function's contract.
        unsafe {
            call_optional!(
                self.handle.library(),
                nvjpegDecodeBatchedPreAllocate(
                    self.handle.as_raw(),
                    self.raw,
                    size,
                    width,
                    height,
                    subsampling,
                    self.format,
                )
            )
        }
    }

    /// Decodes a batch. There are as many images and destinations as [`initialize`](Self::initialize) was told.
    ///
    /// # Safety
    ///
    /// - `stream` is a live stream of the handle's device, or null.
    /// - Each destination is device memory of at least its image's rows times its pitch, for each plane. The pitch is at
    ///   least a row.
    ///   The memory stays allocated until the work is done, and no two destinations overlap.
    /// - Nothing else uses the destinations before the work is done. With
    ///   [`Backend::Hardware`](crate::Backend::Hardware) they must already be idle when this is called, as known from
    ///   an event or from synchronizing: the hardware decoder of Hopper does not keep the order of the stream, so
    ///   memory that was only freed on `stream` is not idle.
    /// - Until the work is done, as known from an event or from synchronizing, the images' bytes are neither changed
    ///   nor dropped, and the state is neither used again nor dropped.
    ///
    /// # Synchronization
    ///
    /// Nothing is complete on return. The destinations are written on `stream`, and work that is queued there
    /// afterwards may read them. The call may wait for the device to allocate.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for numbers that do not agree; [`Error::Status`] if any image fails. nvJPEG does not say
    /// which image: call `initialize` again, and decode the images one by one to find out.
    pub unsafe fn decode(&mut self, jpegs: &[&[u8]], destinations: &[Image], stream: cudaStream_t) -> Result<()> {
        const CALL: &str = "nvjpegDecodeBatched";
        if self.batch_size == 0 {
            return Err(Error::parameter(CALL, "state", "initialized for a batch size", "one that is not"));
        }
        for (parameter, got) in [("jpegs", jpegs.len()), ("destinations", destinations.len())] {
            if got != self.batch_size {
                let expected = format!("as many as initialized for ({})", self.batch_size);
                return Err(Error::parameter(CALL, parameter, expected, got));
            }
        }

        replace(&mut self.data, jpegs.iter().map(|jpeg| jpeg.as_ptr()));
        replace(&mut self.lengths_bytes, jpegs.iter().map(|jpeg| jpeg.len()));
        replace(&mut self.images, destinations.iter().map(|image| image.0));
        let (data, lengths, images) = (self.data.as_ptr(), self.lengths_bytes.as_ptr(), self.images.as_mut_ptr());
        // SAFETY: handle and state are valid. The arrays have as many elements as the state was initialized for, and
        // stay until the next batch. The rest is the contract.
        unsafe {
            call!(
                self.handle.functions(),
                nvjpegDecodeBatched(self.handle.as_raw(), self.raw, data, lengths, images, stream)
            )
        }
    }
}

impl Drop for BatchState {
    fn drop(&mut self) {
        // SAFETY: the state is valid and owned here. The contract of `decode` says that no work uses it any more.
        self.handle.note_drop(unsafe { call!(self.handle.functions(), nvjpegJpegStateDestroy(self.raw)) });
    }
}

fn replace<T>(vector: &mut Vec<T>, items: impl Iterator<Item = T>) {
    vector.clear();
    vector.extend(items);
}

/// A number in nvJPEG's type.
fn positive(call: &'static str, parameter: &'static str, number: usize) -> Result<c_int> {
    match c_int::try_from(number) {
        Ok(number @ 1..) => Ok(number),
        _ => Err(Error::parameter(call, parameter, format!("1 to {}", c_int::MAX), number)),
    }
}
