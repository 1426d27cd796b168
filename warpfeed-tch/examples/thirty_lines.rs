//! The program of docs/tch.md, with which a test compares it.

use tch::nn::{self, Module, OptimizerConfig};
use warpfeed::{IMAGENET_MEAN, IMAGENET_STD, Pipeline};
use warpfeed::{ops::random_resized_crop, source::open_splits};
use warpfeed_tch::IntoTch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [train, _validation] = open_splits("imagenette2", ["train", "val"])?; // both number the classes alike
    let weights = nn::VarStore::new(tch::Device::cuda_if_available());
    let (vars, half) = (weights.root(), nn::ConvConfig { padding: 1, stride: 2, ..Default::default() });
    let network = nn::seq()
        .add(nn::conv2d(&vars / "first", 3, 16, 3, half))
        .add_fn(|x| x.relu())
        .add(nn::conv2d(&vars / "second", 16, 32, 3, half))
        .add_fn(|x| x.relu().mean_dim(&[2_i64, 3][..], false, tch::Kind::Float))
        .add(nn::linear(&vars / "head", 32, train.classes().len() as i64, Default::default()));
    let mut optimizer = nn::AdamW::default().build(&weights, 0.01)?;
    let pipeline = Pipeline::builder(train)
        .batch_size(32)
        .shuffle(42)
        .transform(random_resized_crop(64))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build()?;
    for epoch in 0..10 {
        let (mut sum, mut batches) = (0.0, 0);
        for batch in pipeline.epoch(epoch) {
            let (images, labels) = batch?.into_tch()?; // [32, 3, 64, 64] of f32, [32] of i64
            let logits = network.forward(&images.to_device(weights.device()));
            let loss = logits.cross_entropy_for_logits(&labels.to_device(weights.device()));
            optimizer.backward_step(&loss);
            (sum, batches) = (sum + loss.double_value(&[]), batches + 1);
        }
        println!("epoch {epoch}: loss {:.3}", sum / f64::from(batches));
    }
    Ok(())
}
