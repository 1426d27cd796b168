//! Contracts: files that describe preprocessing, which training, serving and other programs are checked against. A
//! [`Contract`] holds explicit operations, the settings that decide about pixels, and digests of generated probe images
//! after each operation.

mod causes;
mod compare;
mod hypothesis;
mod line;
mod outputs;
mod probes;
mod resampling;

pub use causes::Cause;
pub use compare::{Comparison, Difference, ProbeOutcome, ProbeResult};
pub use probes::write_probes;

use crate::apply::opening::Thumbnail;
use crate::apply::{ApplyOptions, apply};
use crate::error::{Error, Result};
use crate::hex::hex;
use crate::ops::check::check_ops;
use crate::ops::filter::PassOrder;
use crate::ops::orientation::Orientation;
use crate::ops::values::PixelValues;
use crate::ops::{Op, Transform};
use crate::os::atomic;
use crate::os::file::read_text_limited;
use crate::plan::Strategy;
use crate::preprocess::{Preprocessor, PreprocessorOptions, explicit};
use crate::preset::Preset;
use crate::raster::Size;
use crate::tensor::{DType, Layout, Tensor};
use probes::{Probe, probes};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::path::Path;

/// Largest contract, in bytes.
const MAX_BYTES: u64 = 1 << 24;

/// Preprocessing of images: its operations, and digests of probe images after each of them.
///
/// ```
/// use warpfeed::contract::Contract;
/// use warpfeed::{Preprocessor, PreprocessorOptions, Preset};
///
/// // Where the model is trained and evaluated:
/// let options = PreprocessorOptions::default();
/// let contract = Contract::of(Preset::Eval, &options)?;
/// let text = contract.to_json()?;
///
/// // Where it is served: an error, unless this machine and this version make the same pixels.
/// let contract = Contract::parse(&text, "contract.json")?;
/// let preprocessor = Preprocessor::from_contract(&contract, &options)?;
/// assert_eq!(preprocessor.image_size().width, 224);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// Number of the set of probe images.
    contract: u32,
    /// The version of warpfeed that wrote it, for people.
    written_by: String,
    /// The operations of every image, after its orientation.
    operations: Vec<Op>,
    settings: Settings,
    /// The digests of each probe image.
    probes: Vec<Stages>,
}

/// The settings that decide about pixels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    dtype: DType,
    layout: Layout,
    strategy: Strategy,
    pass_order: PassOrder,
    orientation: Orientation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draft: Option<[u32; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    thumbnail: Option<Thumbnail>,
    accept_truncated: bool,
}

/// Digests of a probe image after each operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stages {
    /// The name of its file.
    image: String,
    /// SHA-256 of the decoded image, of the image after each operation, and of the tensor, each 64 hexadecimal digits;
    /// `None` if the image is refused.
    digests: Option<Vec<String>>,
}

impl Contract {
    /// The contract of a preprocessor with these operations and options. The options that say how much is done at once
    /// and where (`max_batch`, `threads`, `device`, `jpeg_decoder`, `max_pixels`) are not part of it.
    ///
    /// # Errors
    /// The errors of [`Preprocessor::new`]; [`Error::Unsupported`] for an operation of the caller's own.
    pub fn new(operations: impl IntoIterator<Item = Op>, options: &PreprocessorOptions) -> Result<Self> {
        let operations: Vec<Op> = operations.into_iter().collect();
        if let Some(custom) = operations.iter().find(|op| matches!(op, Op::Custom(_))) {
            return Err(Error::Unsupported {
                feature: format!("a contract with the caller's own operation {}", custom.name()),
                remedy: "write it with the operations that have a written form".to_owned(),
            });
        }
        let preprocessor = Preprocessor::new(operations.clone(), options)?;
        let stages = |probe: &Probe| -> Result<Stages> {
            let digests = stage_digests(&probe.bytes, &operations, &preprocessor, options)?;
            Ok(Stages { image: probe.name.to_owned(), digests })
        };
        let stages = probes()?.iter().map(stages).collect::<Result<_>>()?;
        Ok(Self {
            contract: probes::VERSION,
            written_by: concat!("warpfeed ", env!("CARGO_PKG_VERSION")).to_owned(),
            operations,
            settings: Settings {
                dtype: options.dtype,
                layout: options.layout,
                strategy: options.strategy,
                pass_order: options.pass_order,
                orientation: options.orientation,
                draft: options.draft.map(|Size { width, height }| [width, height]),
                thumbnail: options.thumbnail,
                accept_truncated: options.accept_truncated,
            },
            probes: stages,
        })
    }

    /// The contract of a preset without random draws, as [`Preprocessor::from_preset`] runs it.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::Parameter`] for a preset with random draws.
    pub fn of(preset: Preset, options: &PreprocessorOptions) -> Result<Self> {
        let transforms = if options.dtype == DType::U8 { preset.pixel_ops() } else { preset.ops() };
        Self::of_transforms(&transforms, options)
    }

    /// The contract of transforms that draw nothing at random.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); [`Error::Parameter`] for transforms with random draws.
    pub fn of_transforms(transforms: &[Transform], options: &PreprocessorOptions) -> Result<Self> {
        Self::new(explicit(transforms)?, options)
    }

    /// Parses a contract. `name` stands for it in errors.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the text is not a contract; [`Error::Unsupported`] if a newer version wrote it.
    pub fn parse(text: &str, name: &str) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| {
            Error::parameter("contract", "the file", "a contract of warpfeed", format!("{name}: {error}"))
        };
        #[derive(Deserialize)]
        struct Version {
            contract: u32,
        }
        let Version { contract } = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        if contract != probes::VERSION {
            return Err(Error::Unsupported {
                feature: format!("{name}, a contract of kind {contract},"),
                remedy: format!("this version of warpfeed reads contracts of kind {}", probes::VERSION),
            });
        }
        let contract: Self = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        let operations: Vec<Transform> = contract.operations.iter().cloned().map(Transform::from).collect();
        check_ops(&operations, None, PixelValues::RGB8).map_err(|error| wrong(&error))?;
        let stages = contract.operations.len() + 2;
        let lacks = |probe: &&Stages| probe.digests.as_ref().is_some_and(|digests| digests.len() != stages);
        match contract.probes.iter().find(lacks) {
            Some(probe) => Err(wrong(&format!("{} must have {stages} digests", probe.image))),
            None => Ok(contract),
        }
    }

    /// Reads a contract.
    ///
    /// # Errors
    /// The errors of [`parse`](Self::parse); [`Error::Io`] if the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(&read_text_limited(path, MAX_BYTES)?, &path.to_string_lossy())
    }

    /// The contract as JSON.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an operation that has no written form.
    pub fn to_json(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::Unsupported {
            feature: format!("writing the contract ({error})"),
            remedy: "write it with the operations that have a written form".to_owned(),
        })?;
        Ok(text + "\n")
    }

    /// Writes the contract into a file, whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let text = self.to_json()?;
        atomic::write_output(path.as_ref(), |file| file.write_all(text.as_bytes()))
    }

    /// The operations of every image, after its orientation.
    #[must_use]
    pub fn operations(&self) -> &[Op] {
        &self.operations
    }

    /// The contract's settings, and the rest of `options`.
    #[must_use]
    pub fn options(&self, options: &PreprocessorOptions) -> PreprocessorOptions {
        let Settings { dtype, layout, strategy, pass_order, orientation, draft, thumbnail, accept_truncated } =
            self.settings;
        let draft = draft.map(|[width, height]| Size { width, height });
        PreprocessorOptions {
            dtype,
            layout,
            strategy,
            pass_order,
            orientation,
            draft,
            thumbnail,
            accept_truncated,
            max_batch: options.max_batch,
            threads: options.threads,
            device: options.device,
            jpeg_decoder: options.jpeg_decoder,
            max_pixels: options.max_pixels,
            pixels: options.pixels,
            max_value: options.max_value,
        }
    }

    /// Names a stage of the operations for people.
    fn stage_name(&self, stage: usize) -> String {
        match (stage.checked_sub(1), stage.checked_sub(1).and_then(|at| self.operations.get(at))) {
            (None, _) => "decoding".to_owned(),
            (Some(_), Some(op)) => format!("operation {stage}, {}", op.name()),
            (Some(_), None) => "conversion to the tensor".to_owned(),
        }
    }

    /// Compares the tensors of the probe images with the contract's.
    fn verify(&self, preprocessor: &Preprocessor, options: &PreprocessorOptions) -> Result<()> {
        let probes = probes()?;
        for Stages { image, digests } in &self.probes {
            let Some(probe) = probes.iter().find(|probe| probe.name == image) else {
                return Err(Error::Unsupported {
                    feature: format!("a contract with the probe image {image}"),
                    remedy: "use the version of warpfeed that wrote it".to_owned(),
                });
            };
            let made = tensor_digest(&probe.bytes, preprocessor)?;
            if made.as_ref() == digests.as_ref().and_then(|digests| digests.last()) {
                continue;
            }
            let made = stage_digests(&probe.bytes, &self.operations, preprocessor, options)?;
            let stage = match (digests, &made) {
                (Some(wanted), Some(made)) => wanted.iter().zip(made).position(|(wanted, made)| wanted != made),
                _ => Some(0),
            };
            let stage = self.stage_name(stage.unwrap_or(self.operations.len() + 1));
            let stage = match (digests, made) {
                (Some(_), None) => format!("{stage} refuses the image"),
                (None, Some(_)) => format!("{stage} accepts the image, which the contract refuses"),
                _ => stage,
            };
            return Err(Error::Contract { image: image.clone(), stage });
        }
        Ok(())
    }
}

impl Preprocessor {
    /// A preprocessor that keeps a contract: its operations and settings, on `options`' device, with as many threads
    /// and images in a call. It makes tensors of all probe images, and refuses to start if one is not the contract's.
    /// With [`JpegDecoder::Cpu`](crate::JpegDecoder::Cpu), `Device` and `Auto` pixels are the same everywhere;
    /// nvJPEG's are not, and break a contract that was written without it.
    ///
    /// # Errors
    /// [`Error::Contract`] with the first operation after which the pixels differ; the errors of [`new`](Self::new).
    pub fn from_contract(contract: &Contract, options: &PreprocessorOptions) -> Result<Self> {
        let options = contract.options(options);
        let preprocessor = Self::new(contract.operations.iter().cloned(), &options)?;
        contract.verify(&preprocessor, &options)?;
        Ok(preprocessor)
    }
}

/// The tensor of one image; `None` if the image is refused.
fn tensor(image: &[u8], preprocessor: &Preprocessor) -> Result<Option<Tensor>> {
    match preprocessor.run(&[image]) {
        Ok(tensor) => tensor.into_host().map(Some),
        Err(error) if error.is_bad_sample() => Ok(None),
        Err(error) => Err(error),
    }
}

fn tensor_digest(image: &[u8], preprocessor: &Preprocessor) -> Result<Option<String>> {
    tensor(image, preprocessor)?.map(|tensor| digest(&tensor)).transpose()
}

/// The options for making one image.
fn one_image(options: &PreprocessorOptions) -> ApplyOptions {
    let &PreprocessorOptions { strategy, pass_order, orientation, draft, thumbnail, accept_truncated, .. } = options;
    let &PreprocessorOptions { dtype, layout, max_pixels, device, jpeg_decoder, pixels, max_value, .. } = options;
    ApplyOptions {
        dtype,
        layout,
        strategy,
        pass_order,
        orientation,
        draft,
        thumbnail,
        accept_truncated,
        max_pixels,
        pixels,
        max_value,
        device,
        jpeg_decoder,
    }
}

/// The image after the first `operations`, as bytes `[1, H, W, 3]` or, after a normalization, `f32` `[1, 3, H, W]`.
/// `None` if the image is refused.
fn stage(image: &[u8], operations: &[Op], options: &PreprocessorOptions) -> Result<Option<Tensor>> {
    match apply(image, operations, &one_image(options).as_made_by(operations)) {
        Ok(tensor) => Ok(Some(tensor)),
        Err(error) if error.is_bad_sample() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Digests of the decoded image, of the image after each operation, and of the tensor.
fn stage_digests(
    image: &[u8],
    operations: &[Op],
    preprocessor: &Preprocessor,
    options: &PreprocessorOptions,
) -> Result<Option<Vec<String>>> {
    let stages = (0..=operations.len()).map(|done| stage(image, &operations[..done], options));
    let tensors = stages.chain(std::iter::once_with(|| tensor(image, preprocessor)));
    tensors.map(|tensor| tensor?.map(|tensor| digest(&tensor)).transpose()).collect()
}

/// SHA-256 of a tensor's shape and bytes.
fn digest(tensor: &Tensor) -> Result<String> {
    let mut hash = Sha256::new();
    tensor.shape().iter().for_each(|side| hash.update((*side as u64).to_le_bytes()));
    hash.update(tensor.as_bytes()?);
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests;
