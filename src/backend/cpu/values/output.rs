//! The last step: writes planes to the batch, normalized and cast.

use super::number::Number;
use crate::backend::PixelForm;
use crate::backend::cpu::normalize::Cast;
use crate::ops::{Overwrite, noise};
use crate::plan::Epilogue;
use crate::raster::Rect;
use crate::simd::wide;
use crate::tensor::DType;
use half::{bf16, f16};
use warpfeed_image::planes::{Planes, Value};
use warpfeed_image::with_element;

/// One sample's place in a batch.
pub(crate) struct ValueOutput<'a> {
    bytes: &'a mut [u8],
    elements: PixelForm,
}

impl<'a> ValueOutput<'a> {
    /// An output of these elements. `bytes` has the image's length in their type, and its alignment.
    pub(crate) fn new(bytes: &'a mut [u8], elements: PixelForm) -> Self {
        Self { bytes, elements }
    }

    /// Writes a complete image. Whole numbers are divided by `max` where they become floating-point numbers.
    pub(super) fn write(&mut self, planes: &Planes, max: f32, epilogue: &Epilogue) {
        let Self { bytes, elements } = self;
        let element = planes.kind().element;
        with_element!(element, T => match elements.dtype {
            DType::U8 | DType::U16 => copied::<T>(planes, *elements, bytemuck::cast_slice_mut(bytes)),
            DType::F32 => converted::<T, f32>(planes, max, epilogue, *elements, bytemuck::cast_slice_mut(bytes)),
            DType::F16 => converted::<T, f16>(planes, max, epilogue, *elements, bytemuck::cast_slice_mut(bytes)),
            DType::Bf16 => converted::<T, bf16>(planes, max, epilogue, *elements, bytemuck::cast_slice_mut(bytes)),
        });
    }
}

/// Writes values as they are.
fn copied<T: Value>(planes: &Planes, elements: PixelForm, out: &mut [T]) {
    let channels = usize::from(planes.kind().channels);
    if elements.has_planes() {
        return out.copy_from_slice(planes.values());
    }
    for channel in 0..channels {
        let to = out[channel..].iter_mut().step_by(channels);
        to.zip(planes.plane::<T>(channel)).for_each(|(to, from)| *to = *from);
    }
}

/// Writes values as floating-point numbers.
fn converted<T: Number, U: Cast>(planes: &Planes, max: f32, epilogue: &Epilogue, elements: PixelForm, out: &mut [U]) {
    let (channels, size) = (usize::from(planes.kind().channels), planes.size());
    let is_whole = T::IS_WHOLE;
    let area = size.area_px() as usize;
    for channel in 0..channels {
        let from = planes.plane::<T>(channel);
        let (mean, std) = epilogue.normalize.map_or((0.0, 1.0), |(mean, std)| (mean.of(channel), std.of(channel)));
        let normalizes = epilogue.normalize.is_some();
        // Each operation is rounded by itself.
        let value = |v: T| {
            let v = if is_whole { v.to_f32() / max } else { v.to_f32() };
            U::from_f32(if normalizes { (v - mean) / std } else { v })
        };
        if elements.has_planes() {
            let to = &mut out[channel * area..][..area];
            wide(
                #[inline(always)]
                || to.iter_mut().zip(from).for_each(|(to, from)| *to = value(*from)),
            );
        } else {
            let to = out[channel..].iter_mut().step_by(channels);
            to.zip(from).for_each(|(to, from)| *to = value(*from));
        }
    }
    for erasure in &epilogue.erasures {
        erase(erasure, size.width as usize, (channels, area), elements, out);
    }
}

/// Overwrites a rectangle with values in the output's units.
fn erase<U: Cast>(of: &Overwrite, width: usize, (channels, area): (usize, usize), elements: PixelForm, out: &mut [U]) {
    let Rect { x, y, width: across, .. } = of.rect;
    for channel in 0..channels {
        let value = of.values.of(channel);
        for y in y..of.rect.bottom() {
            let start = y as usize * width + x as usize;
            let (start, step) = if elements.has_planes() {
                (channel * area + start, 1)
            } else {
                (start * channels + channel, channels)
            };
            if of.std == 0.0 {
                let to = out[start..].iter_mut().step_by(step).take(across as usize);
                to.for_each(|to| *to = U::from_f32(value));
            } else {
                let each = |i: usize, deviate: f32| out[start + i * step] = U::from_f32(value + of.std * deviate);
                noise::channel_row(of.key, (x, y), channel, across, each);
            }
        }
    }
}
