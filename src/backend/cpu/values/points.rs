//! Functions of single values.

use super::number::Number;
use crate::ops::noise;
use crate::ops::values::PointForm;
use crate::simd::wide;
use warpfeed_image::planes::{Element, Planes};

/// Replaces each value by a function of it.
pub(super) fn apply(planes: &mut Planes, form: &PointForm) {
    match (planes.kind().element, form) {
        (Element::U8, PointForm::Bytes(table)) => table.apply(planes.values_mut()),
        (Element::U16, PointForm::Words(table)) => {
            each::<u16>(planes, |v| table[usize::from(v)]);
        }
        (Element::U16, PointForm::Mask(mask)) => each::<u16>(planes, |v| v & mask),
        (Element::U16, PointForm::Invert { max }) => {
            let max = *max as u16;
            each::<u16>(planes, |v| max.saturating_sub(v));
        }
        (Element::U16, PointForm::Solarize { threshold, max }) => {
            // Of whole numbers, those below the next whole number.
            let (first, max) = (threshold.ceil(), *max as u16);
            each::<u16>(planes, |v| if f64::from(v) < first { v } else { max.saturating_sub(v) });
        }
        (Element::U16, PointForm::Scale { factor, max }) => {
            each::<u16>(planes, |v| {
                let value = f32::from(v) * factor;
                let value = if value > 0.0 { value } else { 0.0 };
                let value = if value < *max { value } else { *max };
                value as i32 as u16
            });
        }
        (Element::F32, PointForm::Invert { max }) => each::<f32>(planes, |v| max - v),
        (Element::F32, PointForm::Solarize { threshold, max }) => {
            each::<f32>(planes, |v| if f64::from(v) < *threshold { v } else { max - v });
        }
        (Element::F32, PointForm::Scale { factor, .. }) => each::<f32>(planes, |v| v * factor),
        // Operations make no other forms (`Operation::values`).
        _ => debug_assert!(false, "{form:?} of {}", planes.kind()),
    }
}

fn each<T: Number>(planes: &mut Planes, value: impl Fn(T) -> T) {
    let values = planes.values_mut::<T>();
    wide(
        #[inline(always)]
        || values.iter_mut().for_each(|v| *v = value(*v)),
    );
}

/// Adds normal noise.
pub(super) fn noise<T: Number>(planes: &mut Planes, [mean, sigma, max]: [f32; 3], clip: bool, key: u64) {
    let part = planes.part();
    for channel in 0..usize::from(planes.kind().channels) {
        let rows = planes.plane_mut::<T>(channel).chunks_exact_mut(part.width as usize);
        for (y, row) in (part.y..).zip(rows) {
            let each = |i: usize, deviate| row[i] = row[i].noisy(deviate * sigma + mean, clip, max);
            noise::channel_row(key, (part.x, y), channel, part.width, each);
        }
    }
}
