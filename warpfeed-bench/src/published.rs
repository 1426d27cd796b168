//! Figures published by others, with their sources.

use serde::Serialize;

/// A publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Publication {
    /// Title of the publication.
    pub title: &'static str,
    /// Address of the publication.
    pub url: &'static str,
    /// Subject of its figures, and the figures that are shown here.
    pub about: &'static str,
}

/// The comparison that [`augment_load`](super::augment_load) repeats.
pub const SAGEMAKER_DALI: Publication = Publication {
    title: "Accelerate computer vision training using GPU preprocessing with NVIDIA DALI on Amazon SageMaker",
    url: "https://aws.amazon.com/blogs/machine-learning/accelerate-computer-vision-training-using-gpu-preprocessing-with-nvidia-dali-on-amazon-sagemaker/",
    about: "One V100 with 8 CPUs, Imagenette's 9,469 images in batches of 32. Compare growth and savings, not seconds.",
};

/// The grid that [`workers`](super::workers) repeats.
pub const DEEPLIZARD: Publication = Publication {
    title: "PyTorch DataLoader num_workers - Deep Learning Speed Limit Increase",
    url: "https://deeplizard.com/learn/video/kWVgvsejXsE",
    about: "Workers 0, 1, 2, 4, 8 and 16 with batches of 100, 1000 and 10000 of small images, one epoch each, learning rate 0.01. \
            Compare how times change with the workers, not seconds.",
};

/// The sweep that [`workers`](super::workers) repeats.
pub const GLUON: Publication = Publication {
    title: "Maximize training performance with Gluon data loader workers",
    url: "https://aws.amazon.com/blogs/machine-learning/maximize-training-performance-with-gluon-data-loader-workers/",
    about: "Workers from none to one for each processor, a small network on MNIST, batches of 64, one epoch each. Compare how times \
            change with the workers, not seconds.",
};

/// The comparisons of storage that [`workers`](super::workers) repeats.
pub const SAGEMAKER_IO: Publication = Publication {
    title: "Optimizing I/O for GPU performance tuning of deep learning training in Amazon SageMaker",
    url: "https://aws.amazon.com/blogs/machine-learning/optimizing-i-o-for-gpu-performance-tuning-of-deep-learning-training-in-amazon-sagemaker/",
    about: "ResNet-50 on Caltech-256's 30,600 images, one GPU with 8 CPUs. Compare how times change, not seconds. It also says that \
            2,000,000 files of 5 kB take hours to download, and 2,000 files of 5 MB take minutes.",
};

/// The tuning that [`configurations`](super::configurations) repeats.
pub const LARGER_SCALE: Publication = Publication {
    title: "Training at larger scale, part 4: optimizing the pipeline: data",
    url: "https://coenvde.github.io/blogs/training-at-larger-scale/part4.html",
    about: "PyTorch's DataLoader over 3 epochs of 50 batches against a step of stated length, with chunked arrays in a cloud. It \
            became 35 times as fast as its baseline without workers, prefetch and pinned memory: 140 epochs in the time of 4. \
            Earthmover first made it 15 times as fast.",
};

/// Published seconds per epoch at one load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PublishedEpoch {
    /// Name of the model.
    pub model: &'static str,
    /// Number of repetitions of the operations.
    pub load: u32,
    /// Seconds with trial A, on the CPU.
    pub trial_a_s: f64,
    /// Seconds with trial B, on the GPU.
    pub trial_b_s: f64,
}

const fn epoch(model: &'static str, load: u32, trial_a_s: f64, trial_b_s: f64) -> PublishedEpoch {
    PublishedEpoch { model, load, trial_a_s, trial_b_s }
}

/// The figures of [`SAGEMAKER_DALI`].
pub const EPOCHS: [PublishedEpoch; 12] = [
    epoch("resnet18", 1, 41.67, 21.30),
    epoch("resnet18", 4, 49.95, 21.37),
    epoch("resnet18", 8, 61.92, 21.08),
    epoch("resnet18", 12, 77.82, 21.33),
    epoch("resnet50", 1, 72.64, 46.94),
    epoch("resnet50", 4, 75.21, 45.02),
    epoch("resnet50", 8, 81.22, 46.29),
    epoch("resnet50", 12, 88.89, 46.43),
    epoch("resnet152", 1, 166.96, 119.96),
    epoch("resnet152", 4, 169.68, 115.23),
    epoch("resnet152", 8, 169.03, 117.73),
    epoch("resnet152", 12, 173.18, 114.38),
];

/// Number of images in an epoch of [`EPOCHS`].
pub const EPOCH_IMAGES: u32 = 9_469;
/// Number of images in a batch of [`EPOCHS`].
pub const EPOCH_BATCH: u32 = 32;

/// Model and load of [`UTILIZATION`].
pub const UTILIZATION_OF: (&str, u32) = ("resnet18", 12);

/// 95th percentiles of utilization of [`SAGEMAKER_DALI`]'s machine, in percent: with trial A and with trial B.
pub const UTILIZATION: [(&str, f64, f64); 2] = [("CPU", 100.0, 64.87), ("GPU", 31.0, 55.0)];

/// A published run of one epoch with a number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkersRun {
    /// Images in a batch.
    pub batch_size: usize,
    /// Number of workers.
    pub workers: usize,
    /// Seconds of the epoch.
    pub epoch_s: f64,
    /// Seconds of the whole run, if they were published.
    pub run_s: Option<f64>,
    /// Seconds of the evaluation, if they were published.
    pub evaluation_s: Option<f64>,
    /// Loss of the training, if it was published.
    pub loss: Option<f64>,
    /// Accuracy, 0 to 1: of [`GLUON`] in the evaluation, of [`DEEPLIZARD`] in training.
    pub accuracy: f64,
}

const fn gluon(workers: usize, epoch_s: f64, evaluation_s: f64) -> WorkersRun {
    let evaluation_s = Some(evaluation_s);
    WorkersRun { batch_size: 64, workers, epoch_s, run_s: None, evaluation_s, loss: None, accuracy: 0.98 }
}

/// The figures of [`GLUON`].
pub const GLUON_RUNS: [WorkersRun; 5] = [
    gluon(0, 12.96, 4.154),
    gluon(2, 6.167, 2.499),
    gluon(4, 4.04, 2.589),
    gluon(6, 3.765, 2.61),
    gluon(8, 3.94, 2.666),
];

const fn grid(batch_size: usize, workers: usize, of: [f64; 4]) -> WorkersRun {
    let [epoch_s, run_s, loss, accuracy] = of;
    WorkersRun { batch_size, workers, epoch_s, run_s: Some(run_s), evaluation_s: None, loss: Some(loss), accuracy }
}

/// The figures of [`DEEPLIZARD`].
pub const GRID_RUNS: [WorkersRun; 18] = [
    grid(100, 0, [23.281_029, 23.374_832, 0.566_253, 0.782_583]),
    grid(100, 1, [18.125_359, 18.965_940, 0.573_350, 0.783_917]),
    grid(100, 2, [18.161_020, 19.037_995, 0.574_852, 0.782_133]),
    grid(100, 4, [18.637_056, 19.669_869, 0.593_246, 0.775_067]),
    grid(100, 8, [18.631_994, 20.123_626, 0.587_598, 0.777_500]),
    grid(100, 16, [20.110_439, 22.930_428, 0.596_401, 0.775_983]),
    grid(1000, 0, [21.254_815, 21.941_008, 1.105_825, 0.577_500]),
    grid(1000, 1, [15.961_835, 17.457_127, 1.013_017, 0.612_267]),
    grid(1000, 2, [16.060_656, 17.614_599, 0.881_558, 0.666_200]),
    grid(1000, 4, [16.206_196, 17.883_490, 1.034_153, 0.606_767]),
    grid(1000, 8, [16.700_765, 18.882_340, 0.963_817, 0.626_400]),
    grid(1000, 16, [17.912_993, 21.747_298, 1.046_822, 0.601_683]),
    grid(10_000, 0, [22.219_368, 27.145_123, 2.173_913, 0.265_983]),
    grid(10_000, 1, [16.563_987, 23.368_729, 2.156_031, 0.191_167]),
    grid(10_000, 2, [16.128_202, 23.030_015, 2.182_048, 0.210_250]),
    grid(10_000, 4, [16.248_334, 22.108_252, 2.245_768, 0.200_683]),
    grid(10_000, 8, [16.921_782, 23.897_321, 2.177_970, 0.206_483]),
    grid(10_000, 16, [18.555_999, 26.654_219, 2.153_342, 0.208_017]),
];

/// How the images of [`SAGEMAKER_IO`] were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum IoStorage {
    /// As files, decoded and resized when they were needed.
    Raw,
    /// Resized ahead of time, and held unpacked.
    Resized,
    /// Not at all: each item slept a second.
    Sleeping,
}

/// A row of [`SAGEMAKER_IO`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct IoRun {
    /// How the images were stored.
    pub storage: IoStorage,
    /// Number of workers.
    pub workers: usize,
    /// Seconds of an epoch, if they were published.
    pub epoch_s: Option<f64>,
    /// Images per second.
    pub images_per_s: f64,
    /// Utilization of the GPU in words.
    pub gpu: Option<&'static str>,
}

/// The figures of [`SAGEMAKER_IO`].
pub const IO_RUNS: [IoRun; 5] = [
    IoRun { storage: IoStorage::Raw, workers: 1, epoch_s: Some(260.0), images_per_s: 100.0, gpu: Some("at most 50 %") },
    IoRun {
        storage: IoStorage::Raw,
        workers: 7,
        epoch_s: Some(96.0),
        images_per_s: 300.0,
        gpu: Some("95 % on average"),
    },
    IoRun { storage: IoStorage::Resized, workers: 1, epoch_s: Some(96.0), images_per_s: 300.0, gpu: None },
    IoRun { storage: IoStorage::Sleeping, workers: 1, epoch_s: None, images_per_s: 1.0, gpu: None },
    IoRun { storage: IoStorage::Sleeping, workers: 3, epoch_s: None, images_per_s: 3.0, gpu: None },
];

/// Machines of [`LARGER_SCALE`]: cores, GPUs, and the fewest and the most cores that are for workers.
pub const WORKER_CORES: [(usize, usize, usize, usize); 2] = [(20, 1, 18, 18), (160, 8, 144, 152)];

/// Epochs of the baseline of [`LARGER_SCALE`] in the time of the tuned pipeline's 140.
pub const BASELINE_EPOCHS: f64 = 4.0;

/// Pipelines tuned by [`LARGER_SCALE`], and how many times as fast as its baseline each became.
pub const TIMES_THE_BASELINE: [(&str, f64); 2] = [("published, the author's", 35.0), ("published, Earthmover's", 15.0)];

/// The published seconds per epoch of a model at a load; `None` if there are none.
///
/// ```
/// use warpfeed_bench::published::seconds;
/// assert_eq!(seconds("resnet50", 4).unwrap().trial_a_s, 75.21);
/// assert!(seconds("vit", 4).is_none());
/// ```
#[must_use]
pub fn seconds(model: &str, load: u32) -> Option<&'static PublishedEpoch> {
    EPOCHS.iter().find(|epoch| (epoch.model, epoch.load) == (model, load))
}

/// Ratio of a model's published time at the second load to trial A's at the first.
pub(super) fn growth(model: &str, loads: (u32, u32), of: fn(&PublishedEpoch) -> f64) -> Option<f64> {
    Some(of(seconds(model, loads.1)?) / seconds(model, loads.0)?.trial_a_s)
}
