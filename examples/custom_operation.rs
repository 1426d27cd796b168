//! Custom transforms: salt noise in its own code, and a jigger composed of the crate's operations.

use warpfeed::ops::Resize;
use warpfeed::{
    DType, Layout, Pipeline, Result,
    image::{Image, JpegOptions, Size, encode_jpeg},
    ops::{Crop, Custom, CustomTransform, Op, Rotate, SampleInfo, SampleRng},
    source::EncodedImages,
};

/// Turns single pixels white.
struct Salt {
    /// Largest number of grains, as a share of the pixels.
    most: f64,
}

impl CustomTransform for Salt {
    fn name(&self) -> &'static str {
        "salt"
    }

    /// Draws all random numbers, from `rng` alone. The closure that runs later only applies them.
    fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        let area_px = sample.size.area_px();
        let grains = (area_px as f64 * rng.uniform(0.0, self.most)) as u64;
        let places: Vec<u64> = (0..grains).map(|_| rng.below(area_px)).collect();
        let salt = Custom::new("salt", move |image: &mut Image| {
            for &place in &places {
                image.pixels_mut()[place as usize] = [255; 4];
            }
        });
        Ok(vec![salt.keeps_places().into()])
    }

    /// Boxes and masks stay where they are.
    fn fields_follow(&self) -> bool {
        true
    }
}

/// Shifts by a few pixels and turns by a few degrees. It consists of the crate's operations, so it is fused with its
/// neighbors, and its recipe can be written as JSON.
struct Jigger;

impl CustomTransform for Jigger {
    fn name(&self) -> &'static str {
        "jigger"
    }

    fn draw(&self, rng: &mut SampleRng, sample: &SampleInfo<'_>) -> Result<Vec<Op>> {
        let (x, y) = (rng.below(9) as i32 - 4, rng.below(9) as i32 - 4);
        Ok(vec![Crop::new(x, y, sample.size).into(), Rotate::new(rng.uniform(-3.0, 3.0)).into()])
    }

    /// Boxes and masks follow the crate's operations by themselves.
    fn fields_follow(&self) -> bool {
        true
    }
}

fn main() -> Result<()> {
    let black = encode_jpeg(&Image::new(Size::new(80, 60)), &JpegOptions::default())?;
    let pipeline = Pipeline::builder(EncodedImages::new((0..6).map(|label| (black.clone(), label))))
        .shuffle(3)
        .transform(Jigger)
        .transform(Resize::new(Size::new(64, 64)))
        .transform(Salt { most: 0.1 })
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
