//! Your own transforms: salt noise by code of its own, and a jigger made of the crate's operations.

use std::sync::Arc;
use warpfeed::{
    Augmentation, CustomOp, DType, EncodedImages, Fill, Image, Interpolation, JpegOptions, Layout, Op, Pipeline,
    Result, SampleRng, Size, Transform, encode_jpeg,
};

/// Turns single pixels white.
struct Salt {
    /// Most grains, as a part of the pixels.
    most: f64,
}

impl Augmentation for Salt {
    fn name(&self) -> &'static str {
        "salt"
    }

    /// Everything random is drawn here, from `draw` alone; the closure that runs later only does what was drawn.
    fn draw(&self, draw: &mut SampleRng, size: Size) -> Result<Vec<Op>> {
        let grains = (size.area_px() as f64 * draw.uniform(0.0, self.most)) as u64;
        let places: Vec<u64> = (0..grains).map(|_| draw.below(size.area_px())).collect();
        let apply = move |image: &mut Image| {
            for &place in &places {
                image.pixels_mut()[place as usize] = [255; 4];
            }
        };
        Ok(vec![Op::Custom(CustomOp { name: "salt", apply: Arc::new(apply) })])
    }
}

/// Shifts by a few pixels and turns by a few degrees. Made of the crate's operations, so it is fused with its
/// neighbours and its recipe can be written down.
struct Jigger;

impl Augmentation for Jigger {
    fn name(&self) -> &'static str {
        "jigger"
    }

    fn draw(&self, draw: &mut SampleRng, Size { width, height }: Size) -> Result<Vec<Op>> {
        let (x, y) = (draw.below(9) as i32 - 4, draw.below(9) as i32 - 4);
        let (degrees, interpolation, fill) = (draw.uniform(-3.0, 3.0), Interpolation::Nearest, Fill::BLACK);
        Ok(vec![Op::Crop { x, y, width, height, fill }, Op::Rotate { degrees, interpolation, expand: false, fill }])
    }
}

fn main() -> Result<()> {
    let black = encode_jpeg(&Image::new(Size::new(80, 60)), &JpegOptions::default())?;
    let pipeline = Pipeline::builder(EncodedImages::new((0..6).map(|label| (black.clone(), label))))
        .shuffle(3)
        .augment(Transform::Custom(Arc::new(Jigger)))
        .resize(64, 64)
        .augment(Transform::Custom(Arc::new(Salt { most: 0.1 })))
        .output(DType::U8, Layout::Nhwc)
        .build()?;
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        for (i, index) in batch.indices().iter().enumerate() {
            let grains = batch.images().image_bytes(i)?.chunks(3).filter(|pixel| pixel == &[255; 3]).count();
            println!("image {index}: {grains} grains of salt, by {:?}", pipeline.recipe(0, *index)?);
        }
    }
    Ok(())
}
