//! `warpfeed apply`: one image through explicit operations.

use super::setting_args::{OfImages, SettingArgs, choice};
use super::source::{SourceArgs, one_sample};
use clap::Args;
use std::path::{Path, PathBuf};
use warpfeed::fields::{Fields, draw, read_fields, write_fields};
use warpfeed::image::planes::Element;
use warpfeed::image::{Image, Size};
use warpfeed::ops::Op;
use warpfeed::source::{MAX_ENCODED_BYTES, Source, read_limited, read_up_to};
use warpfeed::{ApplyOptions, DType, Device, Error, JpegDecoder, Layout, Pixels, Result, Strategy, apply_with_fields};

/// Largest list of operations, in bytes.
const MAX_OPS_BYTES: u64 = 1 << 24;

/// Put one image through explicit operations
///
/// SOURCE is an image, a folder with one sample such as a Zarr array, or with --index or --name any source of warpfeed
/// run.
/// The operations are a JSON list such as [{"op": "rotate", "degrees": 5}, {"op": "center_crop", "width": 224,
/// "height": 224}].
#[derive(Args)]
pub struct Apply {
    #[command(flatten)]
    source: SourceArgs,
    /// Take the sample with this index of SOURCE, which may be any source, instead of a file.
    #[arg(long, value_name = "I", conflicts_with = "name")]
    index: Option<u64>,
    /// Take the sample of SOURCE with this name, or end of a name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// File with the operations; - for standard input.
    #[arg(long, value_name = "FILE")]
    ops: PathBuf,
    /// File with the image's boxes, keypoints and mask, which follow the operations.
    ///
    /// {"boxes": {"format": "XYXY", "values": [[x1, y1, x2, y2]], "clamping": "soft"}, "keypoints": {"values": [[x,
    /// y]], "convention": "corner"}, "mask": {"path": "mask.png", "fill": 255}}; each part may be missing. format may
    /// be XYWH or CXCYWH, clamping null, convention pixel_index.
    #[arg(long, value_name = "IN.json", requires = "fields_out")]
    fields: Option<PathBuf>,
    /// Output file for the fields after the operations; the mask is written next to OUT, as OUT.mask.png.
    #[arg(long, value_name = "OUT.json", requires = "fields")]
    fields_out: Option<PathBuf>,
    /// Draw the fields after the operations over the image.
    #[arg(long, requires = "fields")]
    draw: bool,
    /// Output file: .png, or .npy (u8 [H, W, 3], or [H, W, C] in the image's own type; f32 [C, H, W] after normalize).
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// How operations are run.
    #[arg(long, value_parser = choice::<Strategy>("strategy"), default_value = "fused")]
    strategy: Strategy,
    #[command(flatten)]
    opening: SettingArgs<OfImages>,
    /// Device for the operations: auto, cpu, cuda, cuda:I.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
    /// JPEG decoder for a GPU: auto, device, cpu, or by nvJPEG hybrid, hardware, hardware-device.
    #[arg(long, value_name = "PATH", default_value = "cpu")]
    jpeg_decoder: JpegDecoder,
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
        let (name, bytes) = self.read()?;
        let options =
            ApplyOptions::default().strategy(self.strategy).device(self.device).jpeg_decoder(self.jpeg_decoder);
        let header = warpfeed::image::probe(&bytes).ok();
        let options = options.pixels(header.as_ref().map_or(Pixels::Rgb, Pixels::usual));
        let options = self.opening.given().try_fold(options, |options, (name, text)| options.set(name, text))?;
        // Pixels stay as they are, unless operations make floating-point numbers of them.
        let converts = ops.iter().any(|op| matches!(op, Op::Normalize(_) | Op::ToFloat(_)));
        let own = match (options.pixels, &header) {
            (Pixels::Own, Some(header)) => header.kind.element,
            (Pixels::Kind(kind), _) => kind.element,
            _ => Element::U8,
        };
        let options = match own {
            _ if converts => options,
            Element::U8 => options.dtype(DType::U8).layout(Layout::Nhwc),
            Element::U16 => options.dtype(DType::U16).layout(Layout::Nhwc),
            Element::F32 => options.layout(Layout::Nhwc),
        };
        let given = self.fields.as_ref().map(|path| read_fields(path, options.max_pixels)).transpose()?;
        let applied = match &given {
            None => warpfeed::apply(&bytes, &ops, &options).map(|image| (image, Fields::new())),
            Some(fields) => apply_with_fields(&bytes, fields, &ops, &options),
        };
        let (result, fields) = applied.map_err(|source| match source {
            // Wrong operations are not the image's fault.
            wrong if wrong.is_parameter() => wrong,
            source => Error::Sample { index: self.index.unwrap_or(0), name, source: Box::new(source) },
        })?;
        if let Some(path) = &self.fields_out {
            let [height, width] = match (result.layout(), result.shape()) {
                (Layout::Nchw, [_, _, height, width]) | (Layout::Nhwc, [_, height, width, _]) => [height, width],
            };
            let size = Size::new(width as u32, height as u32);
            write_fields(&fields, size, path, self.output.with_extension("mask.png"))?;
        }
        match (npy, result.dtype()) {
            (true, _) => warpfeed::image::write_npy(&result, &self.output),
            (false, DType::U8) if result.shape()[3] == 3 => {
                let [_, height, width, _] = result.shape().map(|side| side as u32);
                let mut image = Image::from_rgb(Size { width, height }, result.as_bytes()?)?;
                if self.draw {
                    draw(&mut image, &fields);
                }
                warpfeed::image::write_png(&image, &self.output)
            }
            (false, _) => {
                let expected = "a .npy file for other results than RGB of 8 bits; operations without normalize are those \
                                of warpfeed recipe --dtype u8";
                Err(wrong_use("output", expected, "a .png file"))
            }
        }
    }

    /// The image's name and its encoded bytes.
    fn read(&self) -> Result<(String, Vec<u8>)> {
        let is_named = self.index.is_some() || self.name.is_some();
        if !is_named && !self.source.spec.is_dir() {
            return Ok((self.source.name(), read_limited(&self.source.spec, MAX_ENCODED_BYTES)?));
        }
        let source = self.source.open()?.into_data_set()?;
        if !is_named && source.len() != 1 {
            let got = format!("a folder with {} samples", source.len());
            return Err(wrong_use("source", "an image, or a source with --index or --name", &got));
        }
        let name_of = |index| (index < source.len()).then(|| source.name(index).into_owned());
        let index = one_sample(self.index, self.name.as_deref(), name_of, Some(source.len()))?;
        let bytes = source.encoded(index)?;
        Ok((source.name(index).into_owned(), bytes))
    }
}

fn read_ops(path: &Path) -> Result<Vec<Op>> {
    let text = if path == Path::new("-") {
        read_up_to(std::io::stdin().lock(), MAX_OPS_BYTES).map_err(|source| Error::Io {
            action: "read",
            path: "standard input".into(),
            source: source.into(),
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
