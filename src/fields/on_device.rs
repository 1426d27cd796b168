//! Masks and auxiliary images of a batch in device memory.

use super::{AuxImage, Field, Mask, MaskKind, MaskValues};
use crate::cuda::CudaBuffer;
use crate::raster::Size;
use std::sync::Arc;

/// A mask, or an auxiliary image, in device memory that it shares with others of its batch.
#[derive(Debug, Clone)]
pub(crate) struct MaskOnDevice {
    pub(crate) memory: Arc<CudaBuffer>,
    /// Offset of the first plane in it.
    pub(crate) offset_bytes: usize,
    pub(crate) size: Size,
    /// Size of the planes in memory: larger than the mask in a padded batch, in whose upper left corner it lies.
    pub(crate) room: Size,
    pub(crate) planes: usize,
    /// Whether values have 16 bits.
    pub(crate) is_wide: bool,
    pub(crate) kind: MaskKind,
    pub(crate) fill: u16,
}

impl MaskOnDevice {
    /// Bytes of a value.
    pub(crate) fn value_bytes(&self) -> usize {
        if self.is_wide { 2 } else { 1 }
    }

    /// Bytes of all planes in memory.
    pub(crate) fn len_bytes(&self) -> usize {
        self.planes * self.room.area_px() as usize * self.value_bytes()
    }

    /// The mask or auxiliary image, from the bytes of all of its memory.
    pub(super) fn to_field(&self, memory: &[u8]) -> Field {
        let value_bytes = self.value_bytes();
        let own = &memory[self.offset_bytes..][..self.len_bytes()];
        let [width, room_width] = [self.size, self.room].map(|size| size.width as usize * value_bytes);
        let plane_bytes = (self.room.area_px() as usize * value_bytes).max(1);
        let plane = |plane: &[u8]| {
            let rows = plane.chunks_exact(room_width).take(self.size.height as usize);
            let bytes: Vec<u8> = rows.flat_map(|row| &row[..width]).copied().collect();
            if self.is_wide {
                MaskValues::U16(bytes.as_chunks().0.iter().map(|pair| u16::from_ne_bytes(*pair)).collect())
            } else {
                MaskValues::U8(bytes)
            }
        };
        let planes = own.chunks_exact(plane_bytes).map(plane).collect();
        let mask = Mask::of_planes(self.size, planes, self.kind, self.fill);
        if let MaskKind::Aux(_) = self.kind { AuxImage::of_moved(mask).into() } else { mask.into() }
    }
}
