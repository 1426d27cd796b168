//! Batches of images, each with random numbers of its own.

use super::run::size_after;
use super::scratch::with_scratch;
use super::{Key, Transforms, View};
use crate::backend::MAX_BATCH_BYTES;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::ops::Op;
use crate::os::threads::{MAX_THREADS, spawn_scoped};
use crate::raster::Size;
use crate::tensor::{Storage, Tensor};
use std::sync::{Mutex, PoisonError};

impl Transforms {
    /// Makes a tensor of several images, each with the draws of its own key. With `threads` of 0 or 1 only the caller's
    /// thread works; further threads end with the call. Without images the tensor is empty.
    ///
    /// ```
    /// use warpfeed::image::Size;
    /// use warpfeed::ops::random_resized_crop;
    /// use warpfeed::transforms::{Key, Transforms, View};
    ///
    /// let crop = Transforms::new([random_resized_crop(16)])?;
    /// let (frames, size) = (vec![0_u8; 4 * 84 * 84], Size::new(84, 84));
    /// let images = frames.chunks(84 * 84).map(|frame| View::hwc(frame, size, 1)).collect::<Result<Vec<_>, _>>()?;
    /// let keys: Vec<_> = (0..4).map(|index| Key::new(42, 0, index)).collect();
    /// assert_eq!(crop.apply_batch(&images, &keys, 2)?.shape(), [4, 3, 16, 16]);
    /// assert_eq!(crop.apply_batch(&[], &[], 0)?.shape(), [0, 3, 16, 16]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are not as many keys as images, or if the images do not all end in the same size;
    /// [`Error::Limits`] for more than 64 GiB; [`Error::Sample`] with the number of the first image that cannot be used,
    /// and the reason, which is one of [`apply_with_fields`](Self::apply_with_fields).
    pub fn apply_batch(&self, images: &[View<'_>], keys: &[Key], threads: usize) -> Result<Tensor> {
        check_each("keys", keys.len(), images.len())?;
        if threads > MAX_THREADS {
            return Err(Error::parameter("apply_batch", "threads", format!("0 to {MAX_THREADS}"), threads));
        }
        let sizes = || images.iter().map(View::size);
        let recipes = self.recipes(sizes(), keys)?;
        let size = self.common_size(sizes(), &recipes)?;
        let (image_bytes, len_bytes) = (self.elements.image_bytes(size), self.batch_bytes(size, images.len())?);
        let mut buffer = self.pool.take(len_bytes)?;
        let places = buffer.as_bytes_mut()[..len_bytes].chunks_exact_mut(image_bytes.max(1));
        let work = Mutex::new(places.zip(images.iter().zip(&recipes)).enumerate());
        let next = || work.lock().unwrap_or_else(PoisonError::into_inner).next();
        let run = || -> Option<(usize, Error)> {
            while let Some((i, (bytes, (image, recipe)))) = next() {
                if let Err(error) = with_scratch(|scratch| self.fill(scratch, recipe, *image, size, bytes)) {
                    // The images after this one are not needed any more.
                    while next().is_some() {}
                    return Some((i, error));
                }
            }
            None
        };
        let more = threads.min(images.len()).saturating_sub(1);
        let failed = std::thread::scope(|scope| {
            // If a thread cannot be started, the call is slower, but not wrong.
            let start = |i| spawn_scoped(scope, format!("warpfeed-{i}"), run);
            let others: Vec<_> = (0..more).map_while(|i| start(i).ok()).collect();
            let own = run();
            let join = |other: std::thread::ScopedJoinHandle<'_, _>| {
                other.join().unwrap_or_else(|panic| Some((0, Error::panic(panic.as_ref()))))
            };
            others.into_iter().filter_map(join).chain(own).min_by_key(|(i, _)| *i)
        });
        match failed {
            Some((i, error)) => Err(of_image(i, error)),
            None => Ok(self.elements.tensor(Storage::Host(buffer), size, images.len())),
        }
    }

    /// The bytes of a tensor.
    pub(super) fn batch_bytes(&self, size: Size, images: usize) -> Result<usize> {
        let got = (self.elements.image_bytes(size) as u64).saturating_mul(images as u64);
        if got > MAX_BATCH_BYTES {
            let remedy = "use fewer images, or smaller ones";
            return Err(Error::Limits { what: "a batch in bytes", got, limit: MAX_BATCH_BYTES, remedy });
        }
        Ok(got as usize)
    }

    /// Draws for images of these sizes.
    pub(super) fn recipes(&self, sizes: impl Iterator<Item = Size>, keys: &[Key]) -> Result<Vec<Vec<Op>>> {
        let none = Fields::new();
        let draw = |(i, (size, key)): (usize, (Size, &Key))| {
            with_scratch(|_| self.recipe(size, &none, *key)).map_err(|error| of_image(i, error))
        };
        sizes.zip(keys).enumerate().map(draw).collect()
    }

    /// The size in which images of these sizes all end. Without images: that of the list, or 0 x 0.
    pub(super) fn common_size(&self, sizes: impl Iterator<Item = Size>, recipes: &[impl AsRef<[Op]>]) -> Result<Size> {
        let mut common = None;
        for (i, (size, recipe)) in sizes.zip(recipes).enumerate() {
            let size = size_after(recipe.as_ref(), size).map_err(|error| of_image(i, error))?;
            let first = *common.get_or_insert(size);
            if size != first {
                let expected = format!(
                    "such that all end in the size of the first, {first}: end with a crop or a resize to a width and height"
                );
                return Err(Error::parameter(
                    "apply_batch",
                    "images",
                    expected,
                    format!("image {i}, which ends in {size}"),
                ));
            }
        }
        Ok(common.or(self.size).unwrap_or(Size::new(0, 0)))
    }
}

/// Checks that there is one of `what` for each image.
pub(super) fn check_each(what: &'static str, got: usize, images: usize) -> Result<()> {
    if got == images {
        return Ok(());
    }
    Err(Error::parameter("apply_batch", what, format!("{images}, one for each image"), got))
}

/// The error on an image of a call.
pub(super) fn of_image(i: usize, error: Error) -> Error {
    Error::Sample { index: i as u64, name: format!("image {i} of the call"), source: Box::new(error) }
}
