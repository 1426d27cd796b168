//! Several processes share an epoch: `mpirun -n 4 target/release/examples/ranks`, or with torchrun or srun.

use warpfeed::ops::random_resized_crop;
use warpfeed::{Device, Pipeline, Rank, Result, image::Size, source::DecodedImages};

fn main() -> Result<()> {
    let rank = Rank::from_environment()?.unwrap_or_default();
    // The GPU of this process. The pipeline runs on the CPU here, so that the example runs anywhere.
    let gpu = match rank.device() {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "no GPU".to_owned(),
    };
    let images = (0..11).map(|i| (Size::new(80, 60), vec![20 * i as u8; 3 * 80 * 60], i));
    let train = Pipeline::builder(DecodedImages::new(images)?)
        .batch_size(2)
        .shuffle(42)
        .partition(rank.partition())
        // Ranks exchange gradients after each batch, so all of them need the same number of batches.
        .equal_batches(true)
        .threads(rank.threads())
        .transform(random_resized_crop(64))
        .build()?;
    let (mut sizes, mut repeated, mut samples) = (Vec::new(), 0, Vec::new());
    for batch in train.epoch(0) {
        let batch = batch?;
        let images = batch.len() - batch.padding();
        sizes.push(images.to_string());
        repeated += batch.padding();
        samples.extend(batch.indices()[..images].iter().map(u64::to_string));
    }
    println!(
        "rank {} of {}, {gpu}, {} batches of {}, {repeated} repeated, samples {}",
        rank.rank(),
        rank.world_size(),
        sizes.len(),
        sizes.join(", "),
        samples.join(" ")
    );
    Ok(())
}
