//! Transforms on the caller's memory, of any size and strides.

use crate::{MAX_AREA_PX, file};
use warpfeed::fields::{BoxFormat, Boxes, Fields};
use warpfeed::image::Size;
use warpfeed::ops::TransformFile;
use warpfeed::transforms::{Key, Transforms, TransformsOptions, View, ViewMut};
use warpfeed::{DType, Layout, Strategy};

/// Number of bytes of [`views`] before the list.
const FORM_BYTES: usize = 24;

/// The first bytes are size, strides and form of an image; the rest is a file of transforms. Views of the same pixels
/// give the same bytes, and the memory between the places of a result stays as it was.
pub fn views(data: &[u8]) {
    let Some((form, list)) = data.split_at_checked(FORM_BYTES) else { return };
    let number = |at: usize| u16::from_le_bytes([form[2 * at], form[2 * at + 1]]);
    let Ok(file) = TransformFile::read(file("views.json", list)) else { return };
    let options = TransformsOptions::default().max_pixels(MAX_AREA_PX).channels(usize::from(number(0) % 4));
    let options = options.strategy(Strategy::ALL[usize::from(number(1)) % Strategy::ALL.len()]);
    let options = if number(0) & 8 == 0 { options } else { options.dtype(DType::U8).layout(Layout::Nhwc) };
    let Ok(transforms) = Transforms::from_file(file, &options) else { return };

    let (size, channels) =
        (Size::new(u32::from(number(2) % 300), u32::from(number(3) % 300)), usize::from(number(4) % 5));
    let strides = [5, 6, 7].map(|at| i64::from(number(at) as i16) / (1 << (number(8) % 12)));
    let memory: Vec<u8> = (0..1_u32 << 16).map(|i| (i * 31 >> 3) as u8).collect();
    let key = Key { seed: u64::from(number(9)), epoch: u64::from(form[20]), index: u64::from(form[21]) };
    let is_hwc = form[22] & 1 == 0;
    let view = if is_hwc { View::hwc(&memory, size, channels) } else { View::chw(&memory, size, channels) };
    let Ok(view) = view.and_then(|view| if form[22] & 2 == 0 { Ok(view) } else { view.strides(strides) }) else {
        return;
    };
    if size.area_px() > MAX_AREA_PX {
        return;
    }
    let boxes =
        Boxes::new(BoxFormat::Xyxy, vec![[1.0, 2.0, 9.0, 8.0], [0.0, 0.0, size.width as f32, size.height as f32]]);
    let fields = if form[23] & 1 == 0 { Fields::new() } else { Fields::new().with("boxes", boxes).expect("two boxes") };
    let Ok((tensor, _)) = transforms.apply_with_fields(view, &fields, key) else { return };
    let batch = transforms.apply_batch(&[view; 2], &[key; 2], 2);
    if fields.is_empty() {
        let batch = batch.expect("an image that can be used can be used twice");
        assert!(batch.image_bytes(1).ok() == tensor.image_bytes(0).ok(), "a batch has the pixels of its images");
    }
    // The same recipe, to memory with other strides.
    let recipe = transforms.draw(size, &fields, key).expect("what was drawn is drawn again");
    let out = recipe.iter().try_fold(size, |size, op| op.output_size(size)).expect("the recipe fits");
    let channels = options.channels;
    let mut made = vec![77_u8; 3 * memory.len()];
    let to =
        if form[23] & 2 == 0 { ViewMut::hwc(&mut made, out, channels) } else { ViewMut::chw(&mut made, out, channels) };
    let to = to.and_then(|to| if form[23] & 4 == 0 { Ok(to) } else { to.strides(strides) });
    if let Ok(to) = to
        && transforms.run(&recipe, view, to).is_ok()
        && tensor.dtype() == DType::U8
    {
        let (mut written, mut wanted) = (made, tensor.as_bytes().expect("on the host").to_vec());
        if form[23] & 4 == 0 {
            written.truncate(wanted.len());
        }
        written.sort_unstable();
        wanted.sort_unstable();
        // Values that were there before may be among them.
        let mut written = written.into_iter();
        assert!(wanted.iter().all(|value| written.any(|other| other == *value)), "a value was not written");
    }

    // Pixels of four bytes give the bytes of the same memory with strides.
    let (pixels, _) = memory.as_chunks::<4>();
    if let Ok(view) = View::pixels(pixels, size)
        && channels == 3
    {
        let strides = [4 * i64::from(size.width), 4, 1];
        let same = View::hwc(&memory, size, 3).and_then(|same| same.strides(strides)).expect("the same memory");
        let len = out.area_px() as usize;
        let (mut quads, mut triples) = (vec![[0; 4]; len], vec![0_u8; 3 * len]);
        let to = ViewMut::pixels(&mut quads, out).expect("as many as there are");
        let done = transforms.run(&recipe, view, to).is_ok();
        let to = ViewMut::hwc(&mut triples, out, 3).expect("as many as there are");
        assert!(done == transforms.run(&recipe, same, to).is_ok(), "both forms can be used");
        assert!(quads.iter().zip(triples.as_chunks::<3>().0).all(|(a, b)| a[..3] == b[..]), "pixels are the triples");
    }
}
