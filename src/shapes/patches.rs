//! Images as sequences of patches.

use crate::error::{Error, Result};
use crate::raster::Size;

/// The values of an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ImageValues<'a, T> {
    /// `[H, W, C]`: the channels of a pixel follow each other.
    Interleaved(&'a [T]),
    /// `[C, H, W]`: one plane after the other.
    Planes(&'a [T]),
}

/// How images are cut into patches: row by row, each patch as its values `[H, W, C]` or `[C, H, W]`.
///
/// An image whose sides are no multiples of the patch's is filled up with zeros at the right and below, as in timm's
/// `Patchify`.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::shapes::{ImageValues, Patches};
///
/// // An image of 3 x 2 pixels with one channel.
/// let image = ImageValues::Interleaved(&[1, 2, 3, 4, 5, 6]);
/// let mut patches = [9; 8];
/// let grid = Patches::new(2).cut(image, Size::new(3, 2), 1, &mut patches)?;
/// assert_eq!((grid.rows, grid.columns), (1, 2));
/// assert_eq!(patches, [1, 2, 4, 5, 3, 0, 6, 0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patches {
    patch: Size,
    channels_last: bool,
}

/// Numbers of patches of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// From top to bottom.
    pub rows: usize,
    /// From left to right.
    pub columns: usize,
}

impl Grid {
    /// Number of patches.
    #[must_use]
    pub const fn patches(self) -> usize {
        self.rows.saturating_mul(self.columns)
    }
}

impl Patches {
    /// Patches of this size in pixels, with the channels last. A `u32` is a square.
    #[must_use]
    pub fn new(patch: impl Into<Size>) -> Self {
        Self { patch: patch.into(), channels_last: true }
    }

    /// Whether a patch is `[H, W, C]` (timm's `ppc`) or `[C, H, W]` (`cpp`). Default: true.
    #[must_use]
    pub const fn channels_last(mut self, channels_last: bool) -> Self {
        self.channels_last = channels_last;
        self
    }

    /// Number of values of a patch.
    #[must_use]
    pub const fn values(&self, channels: usize) -> usize {
        (self.patch.area_px() as usize).saturating_mul(channels)
    }

    /// The patches of an image of this size in pixels.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a patch without pixels; [`Error::Unfit`] for an image without pixels.
    pub fn grid(&self, image: Size) -> Result<Grid> {
        if self.patch.is_empty() {
            return Err(Error::parameter("patches", "patch", "a size with pixels", self.patch));
        }
        if image.is_empty() {
            return Err(Error::unfit("patches", format!("an image of {image} pixels has no patch")));
        }
        let count = |side: u32, patch: u32| side.div_ceil(patch) as usize;
        Ok(Grid { rows: count(image.height, self.patch.height), columns: count(image.width, self.patch.width) })
    }

    /// Cuts an image into patches, `[N, values]`. `out` has as many values as all patches.
    ///
    /// # Errors
    /// The errors of [`grid`](Self::grid); [`Error::Parameter`] if the image or `out` have another number of values.
    pub fn cut<T: Copy + Default>(
        &self,
        image: ImageValues<'_, T>,
        size: Size,
        channels: usize,
        out: &mut [T],
    ) -> Result<Grid> {
        let grid = self.grid(size)?;
        let (ImageValues::Interleaved(values) | ImageValues::Planes(values)) = image;
        let wanted = u128::from(size.area_px()) * channels as u128;
        if channels == 0 || values.len() as u128 != wanted {
            let expected = format!("{wanted}, those of {channels} channels of {size} pixels, 1 channel or more");
            return Err(Error::parameter("patches", "the image's values", expected, values.len()));
        }
        let of_patch = self.values(channels);
        if out.len() as u128 != grid.patches() as u128 * of_patch as u128 {
            let expected = format!("{of_patch} for each of {} patches", grid.patches());
            return Err(Error::parameter("patches", "out", expected, out.len()));
        }
        let (width, height) = (size.width as usize, size.height as usize);
        let (across, down) = (self.patch.width as usize, self.patch.height as usize);
        // Distances of neighbors in the image: from row to row, from pixel to pixel, from channel to channel.
        let [row, pixel, channel] = match image {
            ImageValues::Interleaved(_) => [width * channels, channels, 1],
            ImageValues::Planes(_) => [width, 1, width * height],
        };
        for (number, patch) in out.chunks_exact_mut(of_patch).enumerate() {
            let (top, left) = (number / grid.columns * down, number % grid.columns * across);
            let (rows, columns) = (down.min(height - top), across.min(width - left));
            if rows < down || columns < across {
                patch.fill(T::default());
            }
            for y in 0..rows {
                let start = (top + y) * row + left * pixel;
                if self.channels_last {
                    let to = &mut patch[y * across * channels..][..columns * channels];
                    if channel == 1 {
                        to.copy_from_slice(&values[start..][..columns * channels]);
                        continue;
                    }
                    for (x, to) in to.chunks_exact_mut(channels).enumerate() {
                        to.iter_mut().enumerate().for_each(|(c, to)| *to = values[start + x * pixel + c * channel]);
                    }
                } else {
                    for c in 0..channels {
                        let to = &mut patch[(c * down + y) * across..][..columns];
                        let from = start + c * channel;
                        if pixel == 1 {
                            to.copy_from_slice(&values[from..][..columns]);
                        } else {
                            to.iter_mut().enumerate().for_each(|(x, to)| *to = values[from + x * pixel]);
                        }
                    }
                }
            }
        }
        Ok(grid)
    }
}

/// A sample's places in a batch.
#[derive(Debug)]
pub struct Slot<'a, T> {
    /// The patches, `[seq_len, values]`.
    pub patches: &'a mut [T],
    /// The places of the patches in the image, `[seq_len, 2]`: row and column.
    pub coord: &'a mut [i64],
    /// Whether there is a patch, `[seq_len]`.
    pub valid: &'a mut [bool],
}

impl Patches {
    /// Writes an image into its places in a batch. The places after its last patch are zeros, and not valid.
    ///
    /// # Errors
    /// The errors of [`cut`](Self::cut); [`Error::Parameter`] if the parts of the slot do not fit each other;
    /// [`Error::Unfit`] for an image with more patches than the slot, which timm cuts off.
    pub fn write<T: Copy + Default>(
        &self,
        image: ImageValues<'_, T>,
        size: Size,
        channels: usize,
        slot: Slot<'_, T>,
    ) -> Result<Grid> {
        let Slot { patches, coord, valid } = slot;
        let (grid, of_patch, seq_len) = (self.grid(size)?, self.values(channels), valid.len());
        if patches.len() as u128 != seq_len as u128 * of_patch as u128 || coord.len() as u128 != 2 * seq_len as u128 {
            let expected = format!("{of_patch} values and 2 coordinates for each of {seq_len} patches");
            let got = format!("{} values and {} coordinates", patches.len(), coord.len());
            return Err(Error::parameter("patches", "slot", expected, got));
        }
        let count = grid.patches();
        if count > seq_len {
            let message = format!("an image of {size} pixels has {count} patches, and the sequence {seq_len}");
            return Err(Error::unfit("patches", message));
        }
        let (own, rest) = patches.split_at_mut(count * of_patch);
        self.cut(image, size, channels, own)?;
        rest.fill(T::default());
        let (own, rest) = coord.split_at_mut(2 * count);
        for (number, at) in own.as_chunks_mut().0.iter_mut().enumerate() {
            *at = [(number / grid.columns) as i64, (number % grid.columns) as i64];
        }
        rest.fill(0);
        valid.iter_mut().enumerate().for_each(|(number, valid)| *valid = number < count);
        Ok(grid)
    }
}

/// A batch of sequences of patches. All have one length; shorter ones are filled up with zeros.
///
/// ```
/// use warpfeed::image::Size;
/// use warpfeed::shapes::{ImageValues, PatchBatch, Patches};
///
/// let mut batch = PatchBatch::new(Patches::new(1), 2, 3, 1)?;
/// batch.write(0, ImageValues::Planes(&[7_u8, 8]), Size::new(1, 2), 1)?;
/// assert_eq!(batch.patches(), [7, 8, 0, 0, 0, 0]);
/// assert_eq!(batch.coord()[..6], [0, 0, 1, 0, 0, 0]);
/// assert_eq!(batch.pixel_attention_mask(), [1, 1, 0, 0, 0, 0]);
/// assert_eq!(batch.spatial_shapes(), [2, 1, 0, 0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PatchBatch<T> {
    layout: Patches,
    seq_len: usize,
    channels: usize,
    patches: Vec<T>,
    coord: Vec<i64>,
    valid: Vec<bool>,
    grids: Vec<i64>,
}

impl<T: Copy + Default> PatchBatch<T> {
    /// A batch of `len` sequences of `seq_len` patches, all of them zeros and not valid.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a patch without pixels, no channels, or a batch of more values than memory can hold;
    /// [`Error::OutOfMemory`] if the system refuses the memory.
    pub fn new(layout: Patches, len: usize, seq_len: usize, channels: usize) -> Result<Self> {
        if layout.values(channels) == 0 {
            return Err(Error::parameter("patches", "patch", "a size with pixels, of 1 channel or more", layout.patch));
        }
        let places = len.saturating_mul(seq_len);
        Ok(Self {
            layout,
            seq_len,
            channels,
            patches: filled(places.saturating_mul(layout.values(channels)), T::default())?,
            coord: filled(places.saturating_mul(2), 0)?,
            valid: filled(places, false)?,
            grids: filled(len.saturating_mul(2), 0)?,
        })
    }

    /// Writes an image as sequence `index`.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an index beyond the last sequence, and the errors of [`Patches::write`].
    pub fn write(&mut self, index: usize, image: ImageValues<'_, T>, size: Size, channels: usize) -> Result<()> {
        let len = self.grids.len() / 2;
        if index >= len {
            return Err(Error::parameter("patches", "index", format!("below {len}"), index));
        }
        let of_patch = self.layout.values(self.channels);
        let slot = Slot {
            patches: &mut self.patches[index * self.seq_len * of_patch..][..self.seq_len * of_patch],
            coord: &mut self.coord[2 * index * self.seq_len..][..2 * self.seq_len],
            valid: &mut self.valid[index * self.seq_len..][..self.seq_len],
        };
        let grid = self.layout.write(image, size, channels, slot)?;
        self.grids[2 * index..][..2].copy_from_slice(&[grid.rows as i64, grid.columns as i64]);
        Ok(())
    }

    /// The patches, `[B, seq_len, values]`: timm's `patches`, SigLIP2's `pixel_values`.
    #[must_use]
    pub fn patches(&self) -> &[T] {
        &self.patches
    }

    /// The places of the patches in their images, `[B, seq_len, 2]`: row and column. timm's `patch_coord`.
    #[must_use]
    pub fn coord(&self) -> &[i64] {
        &self.coord
    }

    /// Whether there is a patch, `[B, seq_len]`: timm's `patch_valid`.
    #[must_use]
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// 1 where there is a patch, and 0 elsewhere, `[B, seq_len]`: SigLIP2's `pixel_attention_mask`.
    #[must_use]
    pub fn pixel_attention_mask(&self) -> Vec<i32> {
        self.valid.iter().map(|valid| i32::from(*valid)).collect()
    }

    /// Numbers of patches from top to bottom and from left to right, `[B, 2]`: SigLIP2's `spatial_shapes`.
    #[must_use]
    pub fn spatial_shapes(&self) -> &[i64] {
        &self.grids
    }
}

#[cfg(feature = "candle")]
impl<T: candle_core::WithDType> PatchBatch<T> {
    /// Turns the batch into tensors of candle 0.11 on `device`: patches `[B, seq_len, values]` of the images' type,
    /// coordinates `[B, seq_len, 2]` (i64, row and column), and validity `[B, seq_len]` (u8, 1 where there is a patch).
    /// candle's CPU gets the patches and coordinates without a copy.
    ///
    /// ```
    /// use candle_core::Device;
    /// use warpfeed::image::Size;
    /// use warpfeed::shapes::{ImageValues, PatchBatch, Patches};
    ///
    /// let mut batch = PatchBatch::new(Patches::new(1), 1, 3, 1)?;
    /// batch.write(0, ImageValues::Planes(&[0.5_f32, 0.25]), Size::new(1, 2), 1)?;
    /// let (patches, coord, valid) = batch.into_candle(&Device::Cpu)?;
    /// assert_eq!(patches.to_vec3::<f32>().unwrap(), [[[0.5], [0.25], [0.0]]]);
    /// assert_eq!(coord.to_vec3::<i64>().unwrap(), [[[0, 0], [1, 0], [0, 0]]]);
    /// assert_eq!(valid.to_vec2::<u8>().unwrap(), [[1, 1, 0]]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Synchronization
    /// A copy to another device is ordered before candle's later work on it.
    ///
    /// # Errors
    /// [`Error::Device`] if candle cannot copy the batch to `device`.
    pub fn into_candle(
        self,
        device: &candle_core::Device,
    ) -> Result<(candle_core::Tensor, candle_core::Tensor, candle_core::Tensor)> {
        use candle_core::Tensor;
        let (len, seq_len, values) = (self.grids.len() / 2, self.seq_len, self.layout.values(self.channels));
        let valid: Vec<u8> = self.valid.into_iter().map(u8::from).collect();
        let tensors = || {
            let patches = Tensor::from_vec(self.patches, (len, seq_len, values), device)?;
            let coord = Tensor::from_vec(self.coord, (len, seq_len, 2), device)?;
            Ok((patches, coord, Tensor::from_vec(valid, (len, seq_len), device)?))
        };
        tensors().map_err(|error: candle_core::Error| Error::Device {
            call: "PatchBatch::into_candle".to_owned(),
            message: error.to_string(),
        })
    }
}

fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
        what: "a batch of patches",
        bytes: (len as u64).saturating_mul(size_of::<T>() as u64),
        remedy: "use a smaller batch or shorter sequences, or allow more memory (ulimit -v, or the container's limit)",
    })?;
    all.resize(len, value);
    Ok(all)
}

#[cfg(test)]
mod tests;
