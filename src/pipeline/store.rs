//! Where the samples of a batch go while it is filled.

use crate::cuda::InFlight;
use crate::cuda::gpu::Gpu;
use crate::error::{Error, Result};
use crate::tensor::HostBuffer;
use std::sync::{Arc, OnceLock};

/// A batch being filled.
pub(super) enum Store {
    /// In host memory: finished images.
    Host(Slots),
    /// On a device: what is to be done there. The first worker to need it begins it.
    Cuda(Arc<Takeoff>),
}

/// A flight, once it has begun; otherwise the call that failed and the driver's words.
pub(super) type Takeoff = OnceLock<Result<InFlight, (String, String)>>;

impl Store {
    /// The place of sample `i`.
    pub(super) fn place(&self, i: usize) -> Place {
        match self {
            Self::Host(slots) => Place::Host(slots.slot(i)),
            Self::Cuda(flight) => Place::Cuda(Arc::clone(flight), i),
        }
    }
}

/// One sample's place in a batch, on its way to the worker that fills it.
pub(super) enum Place {
    Host(SlotPointer),
    Cuda(Arc<Takeoff>, usize),
}

/// What a worker fills in.
pub(super) enum Target<'a> {
    /// The sample's bytes.
    Host(&'a mut [u8]),
    /// The flight, and the sample's place in it.
    Cuda(&'a InFlight, usize),
}

impl Place {
    /// What to fill in. `gpu` and the number of the batch's samples are for a flight that has not begun yet.
    ///
    /// # Errors
    /// [`Error::Device`] if the device has no memory.
    ///
    /// # Safety
    /// The batch must still be filling, and no one else may use the sample's place meanwhile.
    #[allow(unsafe_code)]
    pub(super) unsafe fn target(&self, gpu: Option<&Gpu>, samples: usize) -> Result<Target<'_>> {
        match (self, gpu) {
            // SAFETY: the contract.
            (Self::Host(slot), _) => Ok(Target::Host(unsafe { slot.bytes() })),
            (Self::Cuda(flight, i), Some(gpu)) => {
                let flight = flight.get_or_init(|| {
                    gpu.begin(samples).map_err(|error| match error {
                        Error::Device { call, message } => (call, message),
                        error => ("begin a batch".to_owned(), error.to_string()),
                    })
                });
                match flight {
                    Ok(flight) => Ok(Target::Cuda(flight, *i)),
                    Err((call, message)) => Err(Error::Device { call: call.clone(), message: message.clone() }),
                }
            }
            (Self::Cuda(..), None) => Err(Error::Device {
                call: "begin a batch".to_owned(),
                message: "the pipeline has no device".to_owned(),
            }),
        }
    }
}

/// The buffer of a batch, written by several workers at once, each to slots of its own.
pub(super) struct Slots {
    buffer: HostBuffer,
    start: *mut u8,
    slot_bytes: usize,
}

// SAFETY: `start` points into `buffer`, which is owned and never reallocated while in here; see `Slots::slot`.
#[allow(unsafe_code)]
unsafe impl Send for Slots {}

impl Slots {
    pub(super) fn new(mut buffer: HostBuffer, slot_bytes: usize) -> Self {
        let start = buffer.as_bytes_mut().as_mut_ptr();
        Self { buffer, start, slot_bytes }
    }

    /// The buffer, filled.
    pub(super) fn into_buffer(self) -> HostBuffer {
        self.buffer
    }

    /// Where slot `i` lies.
    pub(super) fn slot(&self, i: usize) -> SlotPointer {
        debug_assert!((i + 1) * self.slot_bytes <= self.buffer.as_bytes().len());
        SlotPointer { start: self.start.wrapping_add(i * self.slot_bytes), len_bytes: self.slot_bytes }
    }
}

/// One slot of a batch on its way to the worker that fills it.
pub(super) struct SlotPointer {
    start: *mut u8,
    len_bytes: usize,
}

impl SlotPointer {
    /// The slot's bytes.
    ///
    /// # Safety
    /// The batch must still be filling, and no one else may use the slot meanwhile.
    #[allow(unsafe_code)]
    pub(super) unsafe fn bytes<'a>(&self) -> &'a mut [u8] {
        // SAFETY: the slot lies inside the batch's buffer (`Slots::slot`), which lives and stays in place while the batch
        // is filling, and the caller is the slot's only user.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len_bytes) }
    }
}
