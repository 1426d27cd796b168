//! Several processes share an epoch, as they do in training on several GPUs:
//! `mpirun -n 4 target/release/examples/ranks`, or under torchrun or srun; alone, there is one rank.

use warpfeed::{Device, EncodedPictures, JpegOptions, Pipeline, Rank, Result, encode_jpeg, experiment::synth::picture};

fn main() -> Result<()> {
    let rank = Rank::from_environment()?.unwrap_or_default();
    // The GPU of this process. The pictures are made and decoded on the CPU here, so that the example runs anywhere.
    let gpu = match rank.device() {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "no GPU".to_owned(),
    };
    let pictures = (0..11).map(|i| Ok((encode_jpeg(&picture(1, i, 0, 1), &JpegOptions::default())?, i as u32)));
    let train = Pipeline::builder(EncodedPictures::new(pictures.collect::<Result<Vec<_>>>()?))
        .batch_size(2)
        .shuffle(42)
        .shard(rank.shard())
        // All ranks exchange gradients after each batch, so all must have as many.
        .even_shards(true)
        .threads(rank.threads())
        .random_resized_crop(64)
        .build()?;
    let (mut sizes, mut repeated, mut samples) = (Vec::new(), 0, Vec::new());
    for batch in train.epoch(0) {
        let batch = batch?;
        let pictures = batch.len() - batch.padding();
        sizes.push(pictures.to_string());
        repeated += batch.padding();
        samples.extend(batch.indices()[..pictures].iter().map(u64::to_string));
    }
    println!(
        "rank {} of {}, {gpu}, {} batches of {}, {repeated} repeated, samples {}",
        rank.index(),
        rank.count(),
        sizes.len(),
        sizes.join(", "),
        samples.join(" ")
    );
    Ok(())
}
