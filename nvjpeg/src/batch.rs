//! Decoding many images in one call.

use std::ffi::c_int;
use std::ptr;

use nvjpeg_sys::bindings::{cudaStream_t, nvjpegDecodeParams_t, nvjpegImage_t, nvjpegJpegState_t};

use crate::decoder::Image;
use crate::error::{Error, Result};
use crate::handle::{Handle, call, call_optional};
use crate::info::Subsampling;
use crate::params::{DecodeParams, OutputFormat};

/// Largest size of a batch.
pub const MAX_BATCH_SIZE: usize = c_int::MAX as usize;

/// State for decoding batches, one after another, with the handle's back end.
#[derive(Debug)]
pub struct BatchState {
    raw: nvjpegJpegState_t,
    handle: Handle,
    batch_size: usize,
    // These vectors are reused for each batch.
    data: Vec<*const u8>,
    lengths_bytes: Vec<usize>,
    images: Vec<nvjpegImage_t>,
    params: Vec<nvjpegDecodeParams_t>,
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
            data: Vec::new(),
            lengths_bytes: Vec::new(),
            images: Vec::new(),
            params: Vec::new(),
        })
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
    /// [`Error::Parameter`] for sizes of 0 or above [`MAX_BATCH_SIZE`], or [`Error::Status`].
    pub unsafe fn initialize(
        &mut self,
        batch_size: usize,
        cpu_threads: usize,
        output_format: OutputFormat,
    ) -> Result<()> {
        const CALL: &str = "nvjpegDecodeBatchedInitialize";
        self.batch_size = 0;
        let (size, threads) = (positive(CALL, "batch_size", batch_size)?, positive(CALL, "cpu_threads", cpu_threads)?);
        // SAFETY: handle and state are valid, and the state is idle by this function's contract.
        unsafe {
            call!(
                self.handle.functions(),
                nvjpegDecodeBatchedInitialize(self.handle.as_raw(), self.raw, size, threads, output_format.raw())
            )?;
        }
        self.batch_size = batch_size;
        self.data.reserve(batch_size);
        self.lengths_bytes.reserve(batch_size);
        self.images.reserve(batch_size);
        self.params.reserve(batch_size);
        Ok(())
    }

    /// Allocates memory for batches of images up to a size, so that decoding need not allocate.
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
    pub unsafe fn preallocate(
        &mut self,
        batch_size: usize,
        width_px: u32,
        height_px: u32,
        subsampling: Subsampling,
        output_format: OutputFormat,
    ) -> Result<()> {
        const CALL: &str = "nvjpegDecodeBatchedPreAllocate";
        let size = positive(CALL, "batch_size", batch_size)?;
        let width = positive(CALL, "width_px", width_px as usize)?;
        let height = positive(CALL, "height_px", height_px as usize)?;
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
                    subsampling.raw(),
                    output_format.raw(),
                )
            )
        }
    }

    /// Reads Huffman and quantization tables for abbreviated images, which lack them. `jpeg` is a stream of tables.
    ///
    /// # Synchronization
    ///
    /// Complete on return.
    ///
    /// # Errors
    ///
    /// [`Error::MissingFunction`], or [`Error::Status`].
    pub fn parse_jpeg_tables(&mut self, jpeg: &[u8]) -> Result<()> {
        // SAFETY: handle and state are valid; `jpeg` is readable for its length during the call, which copies it.
        unsafe {
            call_optional!(
                self.handle.library(),
                nvjpegDecodeBatchedParseJpegTables(self.handle.as_raw(), self.raw, jpeg.as_ptr(), jpeg.len())
            )
        }
    }

    /// Decodes a batch. There are as many images and destinations as [`initialize`](Self::initialize) was told.
    /// Parameters, if given, are one per image (part, scale, orientation; the batch defines the output format).
    ///
    /// # Safety
    ///
    /// - `stream` is a live stream of the handle's device, or null.
    /// - Each plane that the output format has is device memory of at least its rows times its pitch in each
    ///   destination. The pitch is at least a row. The memory stays allocated until the work is done, and no two
    ///   destinations overlap.
    /// - Nothing else uses the destinations before the work is done. With
    ///   [`Backend::Hardware`](crate::Backend::Hardware) they must already be idle when this is called, as known from
    ///   an event or from synchronizing: the hardware decoder of Hopper does not keep the order of the stream, so
    ///   memory that was only freed on `stream` is not idle.
    /// - Until the work is done, as known from an event or from synchronizing, the images' bytes and the parameters are
    ///   neither changed nor dropped, and the state is neither used again nor dropped.
    /// - The handle's back end takes images in host memory, so its name does not end in `Device`.
    ///
    /// # Synchronization
    ///
    /// Nothing is complete on return. The destinations are written on `stream`, and work that is queued there
    /// afterwards may read them. The call may wait for the device to allocate.
    ///
    /// # Errors
    ///
    /// [`Error::Parameter`] for numbers that do not agree or for objects of another handle; [`Error::MissingFunction`]
    /// for parameters before CUDA 11.6; [`Error::Status`] if any image fails. nvJPEG does not say which image: call
    /// `initialize` again, and decode the images one by one to find out.
    pub unsafe fn decode(
        &mut self,
        jpegs: &[&[u8]],
        destinations: &[Image],
        params: Option<&[&DecodeParams]>,
        stream: cudaStream_t,
    ) -> Result<()> {
        let call = if params.is_some() { "nvjpegDecodeBatchedEx" } else { "nvjpegDecodeBatched" };
        let expected = || format!("as many as initialized for ({})", self.batch_size);
        let counts = [
            ("jpegs", jpegs.len()),
            ("destinations", destinations.len()),
            ("params", params.map_or(self.batch_size, <[_]>::len)),
        ];
        if self.batch_size == 0 {
            return Err(Error::parameter(call, "state", "initialized for a batch size", "one that is not"));
        }
        if let Some((parameter, got)) = counts.into_iter().find(|(_, count)| *count != self.batch_size) {
            return Err(Error::parameter(call, parameter, expected(), got));
        }
        for params in params.unwrap_or_default() {
            self.handle.require_same(params.handle(), call, "params")?;
        }

        replace(&mut self.data, jpegs.iter().map(|jpeg| jpeg.as_ptr()));
        replace(&mut self.lengths_bytes, jpegs.iter().map(|jpeg| jpeg.len()));
        replace(&mut self.images, destinations.iter().map(|image| image.0));
        let (handle, library) = (self.handle.as_raw(), self.handle.library());
        let (data, lengths, images) = (self.data.as_ptr(), self.lengths_bytes.as_ptr(), self.images.as_mut_ptr());
        if let Some(params) = params {
            replace(&mut self.params, params.iter().map(|params| params.as_raw()));
            let params = self.params.as_mut_ptr();
            // SAFETY: handle, state and parameters are valid and of one handle. The arrays have as many elements as the
            // state was initialized for, and stay until the next batch. The rest is the contract.
            unsafe {
                call_optional!(library, nvjpegDecodeBatchedEx(handle, self.raw, data, lengths, images, params, stream))
            }
        } else {
            // SAFETY: as above.
            unsafe { call!(library.functions(), nvjpegDecodeBatched(handle, self.raw, data, lengths, images, stream)) }
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
        _ => Err(Error::parameter(call, parameter, format!("1 to {MAX_BATCH_SIZE}"), number)),
    }
}
