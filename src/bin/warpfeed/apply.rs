//! `warpfeed apply`: one image through explicit operations.

use super::options::{OrientationName, StrategyName};
use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::{
    ApplyOptions, DType, DecodePath, Device, Error, Result,
    image::{Image, Size},
    ops::Op,
    source::{MAX_ENCODED_BYTES, read_limited, read_up_to},
};

/// Largest list of operations, in bytes.
const MAX_OPS_BYTES: u64 = 1 << 24;

/// Put one image through explicit operations
///
/// The operations are a JSON list such as [{"op": "rotate", "degrees": 5}, {"op": "center_crop", "width": 224,
/// "height": 224}].
#[derive(Args)]
pub struct Apply {
    /// The image: JPEG, PNG or WebP.
    image: PathBuf,
    /// File with the operations; - for standard input.
    #[arg(long, value_name = "FILE")]
    ops: PathBuf,
    /// Output file: .png, or .npy (u8 [H, W, 3]; f32 [3, H, W] after normalize).
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// How operations are run.
    #[arg(long, value_enum, default_value_t)]
    strategy: StrategyName,
    /// What to do with EXIF orientation.
    #[arg(long, value_enum, default_value_t)]
    orientation: OrientationName,
    /// Decode a truncated JPEG as far as possible instead of refusing it.
    #[arg(long)]
    accept_truncated: bool,
    /// Device for the operations: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// JPEG decoder for a GPU: auto (nvJPEG), fastest (all, by measured speed), cpu, hybrid (nvJPEG), hardware.
    #[arg(long, value_name = "PATH", default_value = "cpu")]
    decode: DecodePath,
}

impl Apply {
    pub fn run(self) -> Result<()> {
        let extension = self.output.extension().map(|e| e.to_string_lossy().to_lowercase());
        let npy = match extension.as_deref() {
            Some("npy") => true,
            Some("png") => false,
            _ => return Err(wrong_use("output", "a file ending in .png or .npy", &self.output.display().to_string())),
        };
        self.device.available()?;
        let ops = read_ops(&self.ops)?;
        let bytes = read_limited(&self.image, MAX_ENCODED_BYTES)?;
        let options = ApplyOptions {
            strategy: self.strategy.into(),
            orientation: self.orientation.into(),
            accept_truncated: self.accept_truncated,
            device: self.device,
            decode: self.decode,
            ..ApplyOptions::default()
        };
        let result = warpfeed::apply(&bytes, &ops, &options).map_err(|source| match source {
            // Wrong operations are not the image's fault.
            wrong if wrong.is_parameter() => wrong,
            source => Error::Sample { index: 0, name: self.image.display().to_string(), source: Box::new(source) },
        })?;
        match (npy, result.dtype()) {
            (true, _) => warpfeed::image::write_npy(&result, &self.output),
            (false, DType::U8) => {
                let [_, height, width, _] = result.shape().map(|side| side as u32);
                warpfeed::image::write_png(&Image::from_rgb(Size { width, height }, result.as_bytes()?)?, &self.output)
            }
            (false, _) => Err(wrong_use("output", "a .npy file after normalize: a PNG holds bytes", "a .png file")),
        }
    }
}

fn read_ops(path: &Path) -> Result<Vec<Op>> {
    let text = if path == Path::new("-") {
        read_up_to(std::io::stdin().lock(), MAX_OPS_BYTES).map_err(|source| Error::Io {
            action: "read",
            path: "standard input".into(),
            source,
        })?
    } else {
        read_limited(path, MAX_OPS_BYTES)?
    };
    let wrong = |error| wrong_use("--ops", "a JSON list of operations", &format!("{}: {error}", path.display()));
    serde_json::from_slice(&text).map_err(|error: serde_json::Error| wrong(error))
}

fn wrong_use(parameter: &'static str, expected: &str, got: &str) -> Error {
    Error::Parameter { operation: "apply", parameter, expected: expected.to_owned(), got: got.to_owned() }
}
