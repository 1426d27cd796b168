//! Options for other ways to store the images of `warpfeed bench workers`.

use super::experiment::{SubjectOptions, unused_name};
use super::values::seconds;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use warpfeed::ops::Transform;
use warpfeed::source::{EncodedImages, without_secrets};
use warpfeed::{Pipeline, Result};
use warpfeed_bench::stored::Stored;
use warpfeed_bench::subject::Subject;

#[derive(Args)]
pub struct StoredOptions {
    /// Also measure the same images from another source, such as shards that `warpfeed pack` made of them.
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    beside: Vec<PathBuf>,
    /// Also measure images that are decoded and resized ahead of time, held unpacked in a temporary folder.
    #[arg(long)]
    resized_ahead: bool,
    /// Also measure a source whose images each come only after S seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    sleep: Option<Duration>,
}

/// A folder that is removed in the end.
pub struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // It is in the system's folder for temporary files, so what remains will be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl StoredOptions {
    /// Number of further ways.
    pub fn count(&self) -> usize {
        self.beside.len() + usize::from(self.resized_ahead) + usize::from(self.sleep.is_some())
    }

    /// The further ways to store the subject's images, and a folder that has to live as long.
    pub fn others(
        &self,
        options: &SubjectOptions,
        subject: &Subject,
        ops: &[Transform],
    ) -> Result<(Vec<Stored>, TemporaryFolder)> {
        let folder = TemporaryFolder(std::env::temp_dir().join(unused_name()));
        let mut others = Vec::new();
        if self.resized_ahead {
            let builder = Pipeline::builder(EncodedImages::new([(Vec::new(), 0)]));
            let size = ops.iter().cloned().fold(builder, warpfeed::PipelineBuilder::transform).build()?.image_size();
            // A margin of an eighth around what is trained on, as in ImageNet's recipes.
            let side_px = (size.width.max(size.height) * 8).div_ceil(7);
            // Images are hardly longer than four times their height.
            let size_bytes = subject.len().unwrap_or(1_000) * u64::from(side_px).pow(2) * 3 * 4;
            others.push(Stored::resized(subject.input.clone(), side_px, &folder.0, size_bytes));
        }
        for spec in &self.beside {
            others.push(Stored::other(without_secrets(&spec.to_string_lossy()), options.other(spec)?));
        }
        others.extend(self.sleep.map(|time| Stored::sleeping(subject.input.clone(), time)).transpose()?);
        Ok((others, folder))
    }
}
