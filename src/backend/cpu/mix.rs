//! MixUp and CutMix in host memory, the specification of kernels/mixup.cu.

use crate::backend::PixelForm;
use crate::mix::{MixPlan, MixedImage, Mixing};
use crate::raster::{Rect, Size};
use crate::tensor::DType;
use bytemuck::Pod;
use half::{bf16, f16};

/// Number of bytes of each image that are mixed at a time, so that those of two images stay in the processor's
/// first-level cache.
const BLOCK_BYTES: usize = 8 << 10;

/// Mixes the images in `batch`, of this size and with these elements, as the plan says.
pub(super) fn mix(batch: &mut [u8], plan: &MixPlan, size: Size, elements: PixelForm) {
    let rows = Rows { planes: elements.has_planes(), channels: elements.channels, size };
    mix_rows(batch, plan, elements.dtype, rows);
}

fn mix_rows(batch: &mut [u8], plan: &MixPlan, dtype: DType, rows: Rows) {
    match dtype {
        DType::F32 => mix_as::<f32>(bytemuck::cast_slice_mut(batch), plan, rows),
        DType::F16 => mix_as::<f16>(bytemuck::cast_slice_mut(batch), plan, rows),
        DType::Bf16 => mix_as::<bf16>(bytemuck::cast_slice_mut(batch), plan, rows),
        DType::U8 => mix_as::<u8>(batch, plan, rows),
        DType::U16 => mix_as::<u16>(bytemuck::cast_slice_mut(batch), plan, rows),
    }
}

/// A type of elements that can be mixed.
trait Mixable: Pod {
    fn widened(self) -> f32;
    fn rounded(value: f32) -> Self;
}

impl Mixable for f32 {
    fn widened(self) -> f32 {
        self
    }
    fn rounded(value: f32) -> Self {
        value
    }
}

impl Mixable for f16 {
    fn widened(self) -> f32 {
        self.to_f32()
    }
    fn rounded(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Mixable for u16 {
    fn widened(self) -> f32 {
        self.into()
    }
    fn rounded(value: f32) -> Self {
        value.round_ties_even() as Self
    }
}

impl Mixable for bf16 {
    fn widened(self) -> f32 {
        self.to_f32()
    }
    fn rounded(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Mixable for u8 {
    fn widened(self) -> f32 {
        self.into()
    }
    fn rounded(value: f32) -> Self {
        value.round_ties_even() as Self
    }
}

/// The rows of an image, each of one channel or of interleaved channels.
#[derive(Clone, Copy)]
struct Rows {
    /// Whether each channel has its own rows.
    planes: bool,
    channels: usize,
    size: Size,
}

impl Rows {
    /// Number of elements in a row.
    fn len(self) -> usize {
        self.elements_px() * self.size.width as usize
    }

    /// Number of elements of a pixel in a row.
    fn elements_px(self) -> usize {
        if self.planes { 1 } else { self.channels }
    }

    fn count(self) -> usize {
        self.channels * self.size.height as usize / self.elements_px()
    }
}

/// Mixes in place. The original elements of the image that changes first are copied, because another image needs them
/// later.
fn mix_as<T: Mixable>(batch: &mut [T], plan: &MixPlan, rows: Rows) {
    let (len, image_len, images) = (rows.len(), rows.len() * rows.count(), plan.images.len());
    let block_rows = (BLOCK_BYTES / (len * size_of::<T>())).max(1);
    let mut own = Vec::with_capacity(block_rows * len);
    for first in (0..rows.count()).step_by(block_rows) {
        let range = first * len..(first + block_rows).min(rows.count()) * len;
        let block = Block { rows, first };
        let at = |image: usize| image * image_len + range.start..image * image_len + range.end;
        if plan.flip {
            for (front, back) in (0..images.div_ceil(2)).map(|front| (front, images - 1 - front)) {
                own.clear();
                own.extend_from_slice(&batch[at(front)]);
                if front < back {
                    let (before, behind) = batch.split_at_mut(back * image_len);
                    block.mix(&mut before[at(front)], &behind[range.clone()], plan.images[front]);
                }
                block.mix(&mut batch[at(back)], &own, plan.images[back]);
            }
        } else {
            own.clear();
            own.extend_from_slice(&batch[at(images - 1)]);
            // From the last image to the first, so that each one's partner has not been mixed yet.
            for image in (1..images).rev() {
                let (before, behind) = batch.split_at_mut(image * image_len);
                block.mix(&mut behind[range.clone()], &before[at(image - 1)], plan.images[image]);
            }
            block.mix(&mut batch[at(0)], &own, plan.images[0]);
        }
    }
}

/// A range of rows of each image.
#[derive(Clone, Copy)]
struct Block {
    rows: Rows,
    first: usize,
}

impl Block {
    /// Mixes one image's rows with its partner's.
    fn mix<T: Mixable>(self, own: &mut [T], partner: &[T], image: MixedImage) {
        match image.mixing {
            Mixing::Nothing => {}
            Mixing::Blend => {
                let [share, rest] = image.weights();
                for (own, partner) in own.iter_mut().zip(partner) {
                    *own = T::rounded(own.widened() * share + partner.widened() * rest);
                }
            }
            Mixing::Paste(rect) => self.paste(own, partner, rect),
        }
    }

    fn paste<T: Mixable>(self, own: &mut [T], partner: &[T], rect: Rect) {
        let (len, pixel) = (self.rows.len(), self.rows.elements_px());
        let (left, right) = (rect.x as usize * pixel, rect.right() as usize * pixel);
        let rows = own.chunks_exact_mut(len).zip(partner.chunks_exact(len));
        for (row, (own, partner)) in (self.first..).zip(rows) {
            let y = (row % self.rows.size.height as usize) as u32;
            if (rect.y..rect.bottom()).contains(&y) {
                own[left..right].copy_from_slice(&partner[left..right]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use sha2::{Digest, Sha256};

    /// Compares images and targets with those of torchvision and timm for the same shares and rectangles
    /// (tests/reference/mix.py): images byte for byte, targets within one unit in the last place of an f32 of 1.
    #[test]
    fn mixed_batches_are_torchvisions_and_timms() {
        let mut cases = 0;
        for line in include_str!("../../../tests/reference/mix.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let images = case["images"].as_array().unwrap();
            let size = Size::new(case["width"].as_u64().unwrap() as u32, case["height"].as_u64().unwrap() as u32);
            let len = 3 * size.area_px() as usize;
            let element = |i: usize| (31 * (i / len) + 7 * (i % len)) % 256;
            let mut batch: Vec<f32> = (0..images.len() * len).map(|i| element(i) as f32 / 100.0 - 1.2).collect();
            let image = |image: &Value| {
                let lambda = image["lambda"].as_f64().unwrap();
                let side = |i: usize| image["rect"][i].as_u64().unwrap() as u32;
                let mixing = match (&image["rect"], lambda) {
                    (Value::Null, 1.0) => Mixing::Nothing,
                    (Value::Null, _) => Mixing::Blend,
                    _ => Mixing::Paste(Rect {
                        x: side(0),
                        y: side(1),
                        width: side(2) - side(0),
                        height: side(3) - side(1),
                    }),
                };
                MixedImage { lambda, mixing }
            };
            let plan = MixPlan { flip: case["style"] == "timm", images: images.iter().map(image).collect() };
            let rows = Rows { planes: true, channels: 3, size };
            mix_rows(bytemuck::cast_slice_mut(&mut batch), &plan, DType::F32, rows);
            let bytes: Vec<u8> = batch.iter().flat_map(|value| value.to_le_bytes()).collect();
            let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, case["sha256"], "{line}");

            const CLASSES: usize = 5;
            let smoothing = case["smoothing"].as_f64().unwrap();
            let off = smoothing / CLASSES as f64;
            let soft = |i: usize| if i / CLASSES % CLASSES == i % CLASSES { 1.0 - smoothing + off } else { off };
            let mut rows: Vec<f32> = (0..images.len() * CLASSES).map(|i| soft(i) as f32).collect();
            plan.mix_rows(&mut rows);
            for (got, want) in rows.iter().zip(case["targets"].as_array().unwrap()) {
                assert!((f64::from(*got) - want.as_f64().unwrap()).abs() < 1.2e-7, "{got} and {want}: {line}");
            }
            cases += 1;
        }
        assert_eq!(cases, 40);
    }

    /// The result by definition: every element from copies of both images.
    fn plainly<T: Mixable>(batch: &[T], plan: &MixPlan, Rows { planes, channels, size }: Rows) -> Vec<T> {
        let (images, pixels) = (plan.images.len(), size.area_px() as usize);
        let len = channels * pixels;
        let mix = |i: usize| {
            let (image, element) = (i / len, i % len);
            let partner = if plan.flip { images - 1 - image } else { (image + images - 1) % images };
            let other = batch[partner * len + element];
            let pixel = if planes { element % pixels } else { element / channels };
            let (x, y) = (pixel as u32 % size.width, pixel as u32 / size.width);
            match plan.images[image].mixing {
                Mixing::Nothing => batch[i],
                Mixing::Blend => {
                    let [share, rest] = plan.images[image].weights();
                    T::rounded(batch[i].widened() * share + other.widened() * rest)
                }
                Mixing::Paste(rect) => {
                    let inside = (rect.x..rect.right()).contains(&x) && (rect.y..rect.bottom()).contains(&y);
                    if inside { other } else { batch[i] }
                }
            }
        };
        (0..batch.len()).map(mix).collect()
    }

    fn check<T: Mixable>(dtype: DType) {
        let paste = |x, y, width, height| Mixing::Paste(Rect { x, y, width, height });
        for size in [Size::new(1, 1), Size::new(7, 5), Size::new(3, 70), Size::new(700, 3)] {
            let forms = [(true, 3), (false, 3), (true, 1)];
            let cases = forms.into_iter().flat_map(|form| [1, 2, 5, 6].map(|images| (form, images)));
            for ((planes, channels), images, flip) in
                cases.flat_map(|(form, images)| [false, true].map(|flip| (form, images, flip)))
            {
                let rows = Rows { planes, channels, size };
                let inside = paste(size.width / 3, size.height / 4, size.width / 2, size.height / 2);
                let kinds = [Mixing::Blend, inside, Mixing::Nothing, paste(0, 0, size.width, size.height)];
                let image = |i: usize| MixedImage { lambda: 0.3 + 0.1 * i as f64, mixing: kinds[i % 4] };
                let plan = MixPlan { flip, images: (0..images).map(image).collect() };
                let len = images * channels * size.area_px() as usize;
                let value = |i: usize| T::rounded(((i * 7919) % 509) as f32 * 0.5);
                let mut batch: Vec<T> = (0..len).map(value).collect();
                let want = plainly(&batch, &plan, rows);
                mix_rows(bytemuck::cast_slice_mut(&mut batch), &plan, dtype, rows);
                let equal = bytemuck::cast_slice::<T, u8>(&batch) == bytemuck::cast_slice::<T, u8>(&want);
                assert!(equal, "{dtype} {size} {images} images of {channels}, planes {planes}, flip {flip}");
            }
        }
    }

    #[test]
    fn in_place_is_as_written_out() {
        check::<f32>(DType::F32);
        check::<f16>(DType::F16);
        check::<bf16>(DType::Bf16);
        check::<u8>(DType::U8);
    }
}
