//! A batch in host memory while it is being filled.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::tensor::HostBuffer;
use std::sync::atomic::{AtomicBool, Ordering};

/// The buffer of one view of a batch: the first images of all samples, then the second ones, and so on. Each of these
/// sections has room for the samples of the largest batch.
pub(super) struct HostView {
    buffer: HostBuffer,
    start: *mut u8,
    image_bytes: usize,
    /// Number of images of each sample.
    times: usize,
    /// Number of samples that have room.
    samples: usize,
}

impl HostView {
    pub(super) fn new(mut buffer: HostBuffer, image_bytes: usize, times: usize) -> Self {
        let samples = buffer.as_bytes().len() / (image_bytes * times).max(1);
        let start = buffer.as_bytes_mut().as_mut_ptr();
        Self { buffer, start, image_bytes, times, samples }
    }

    /// Moves the images of the samples at `places`, which must be in rising order, to the beginning of the buffer.
    /// After them it puts `padding` copies of the last one. It does so for each repetition of the view.
    fn close_up(&mut self, places: &[usize], padding: usize) {
        let (bytes, image_bytes) = (self.buffer.as_bytes_mut(), self.image_bytes);
        let mut copy = |to: usize, from: usize| {
            if to != from {
                bytes.copy_within(from * image_bytes..(from + 1) * image_bytes, to * image_bytes);
            }
        };
        // Every image moves towards the beginning or stays, so no image is overwritten before it was copied.
        let mut to = 0;
        for repetition in 0..self.times {
            for place in places {
                copy(to, repetition * self.samples + place);
                to += 1;
            }
            for _ in 0..padding {
                copy(to, to - 1);
                to += 1;
            }
        }
    }
}

/// The buffers of a batch. Several workers write them at once, each to slots of its own.
pub(crate) struct HostBatch {
    views: Vec<HostView>,
    /// Whether each slot is in use.
    taken: Vec<AtomicBool>,
}

// SAFETY: each `start` points into its `buffer`, which is owned and not reallocated while it is here.
unsafe impl Send for HostBatch {}
// SAFETY: a shared reference gives access to the buffers only through slots, and `taken` gives each slot to one holder
// at a time.
unsafe impl Sync for HostBatch {}

impl HostBatch {
    /// A batch of `slots` slots, for which the buffers must have room.
    pub(super) fn new(views: Vec<HostView>, slots: usize) -> Self {
        let room = views.iter().map(|view| view.samples).min().unwrap_or(0);
        debug_assert!(slots <= room);
        Self { views, taken: (0..slots.min(room)).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Returns slot `i`, for exclusive use until it is dropped.
    ///
    /// # Errors
    /// [`Error::Panic`] if there is no such slot or it is in use, which would be a defect of this crate.
    pub(super) fn slot(&self, i: usize) -> Result<Slot<'_>> {
        let taken = self.taken.get(i).filter(|taken| !taken.swap(true, Ordering::Acquire));
        let taken =
            taken.ok_or_else(|| Error::Panic { message: format!("slot {i} of a batch is in use or missing") })?;
        Ok(Slot { views: &self.views, place: i, taken })
    }

    /// The buffers with the slots at `places`, which must be in rising order, at their beginnings. After them come
    /// `padding` copies of the last one.
    pub(super) fn into_buffers(mut self, places: &[usize], padding: usize) -> Vec<HostBuffer> {
        self.views.iter_mut().for_each(|view| view.close_up(places, padding));
        self.views.into_iter().map(|view| view.buffer).collect()
    }
}

/// One slot of a batch: a sample's place in each repetition of each view.
pub(super) struct Slot<'a> {
    views: &'a [HostView],
    place: usize,
    taken: &'a AtomicBool,
}

impl Slot<'_> {
    /// The bytes of each image, view after view.
    pub(super) fn images(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let place = self.place;
        self.views.iter().flat_map(move |view| {
            (0..view.times).map(move |repetition| {
                let offset = (repetition * view.samples + place) * view.image_bytes;
                // SAFETY: the image lies inside the buffer, which has room for `samples` samples in each repetition
                // (`new`; `HostBatch::new` limits `place`), and stays in place while the batch is borrowed. No other
                // thread has the slot, and no two of these images overlap.
                unsafe { std::slice::from_raw_parts_mut(view.start.add(offset), view.image_bytes) }
            })
        })
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn view(len_bytes: usize, times: usize) -> HostView {
        HostView::new(HostBuffer::new(DType::U8, len_bytes).unwrap(), 2, times)
    }

    #[test]
    fn a_slot_is_nobody_elses_and_gaps_are_closed() {
        let batch = HostBatch::new(vec![view(10, 1), view(20, 2)], 4);
        for i in 0..4 {
            batch.slot(i).unwrap().images().zip(0..).for_each(|(bytes, image)| bytes.fill(10 * image + i as u8));
        }
        let held = batch.slot(1).unwrap();
        assert!(batch.slot(1).is_err() && batch.slot(4).is_err());
        drop(held);
        drop(batch.slot(1).unwrap());
        let buffers = batch.into_buffers(&[1, 3], 3);
        assert_eq!(buffers[0].as_bytes(), [1, 1, 3, 3, 3, 3, 3, 3, 3, 3]);
        let twice = [11, 11, 13, 13, 13, 13, 13, 13, 13, 13, 21, 21, 23, 23, 23, 23, 23, 23, 23, 23];
        assert_eq!(buffers[1].as_bytes(), twice);
    }
}
