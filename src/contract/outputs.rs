//! Images that another program made of the probe images.

use crate::apply::{ApplyOptions, apply};
use crate::error::{Error, Result};
use crate::ops::orientation::Orientation;
use crate::os::file::read_limited;
use crate::output::npy;
use crate::raster::Size;
use crate::tensor::{DType, Layout, Tensor};
use half::{bf16, f16};
use std::path::{Path, PathBuf};

/// Largest output, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// An image as numbers, in planes of red, green and blue.
#[derive(Debug, Clone)]
pub(super) struct Planes {
    pub(super) size: Size,
    pub(super) planes: [Vec<f64>; 3],
    /// The order of the dimensions that it came in.
    pub(super) layout: Layout,
}

impl Planes {
    /// Planes of `[C, H, W]` or `[H, W, C]`, where C is 3, or 1 for gray. If both fit, it is `usual`.
    fn new(shape: &[usize], values: &[f64], usual: Layout) -> Result<Self, String> {
        let wrong = || format!("it has the shape {shape:?}, not [3, H, W] or [H, W, 3]");
        let shape: [usize; 3] = match *shape {
            [a, b, c] | [1, a, b, c] => [a, b, c],
            [height, width] => [1, height, width],
            _ => return Err(wrong()),
        };
        let is_color = |count: usize| count == 3 || count == 1;
        let layout = match (is_color(shape[0]), is_color(shape[2])) {
            (true, true) => usual,
            (true, false) => Layout::Nchw,
            (false, true) => Layout::Nhwc,
            (false, false) => return Err(wrong()),
        };
        let (channels, height, width) = match layout {
            Layout::Nchw => (shape[0], shape[1], shape[2]),
            Layout::Nhwc => (shape[2], shape[0], shape[1]),
        };
        let area = height * width;
        let size = u32::try_from(width).ok().zip(u32::try_from(height).ok()).map(|(w, h)| Size::new(w, h));
        let size = size.filter(|size| !size.is_empty() && values.len() == area * channels).ok_or_else(wrong)?;
        let planes = [0, 1, 2].map(|plane: usize| {
            let channel = plane.min(channels - 1);
            match layout {
                Layout::Nchw => values[channel * area..][..area].to_vec(),
                Layout::Nhwc => values.iter().skip(channel).step_by(channels).copied().collect(),
            }
        });
        Ok(Self { size, planes, layout })
    }

    /// The planes of a tensor with one image.
    pub(super) fn of(tensor: &Tensor) -> Result<Self> {
        let bytes = tensor.as_bytes()?;
        let halves = || bytes.as_chunks::<2>().0.iter();
        let values: Vec<f64> = match tensor.dtype() {
            DType::U8 => bytes.iter().map(|byte| f64::from(*byte)).collect(),
            DType::U16 => halves().map(|value| u16::from_ne_bytes(*value).into()).collect(),
            DType::F32 => bytes.as_chunks::<4>().0.iter().map(|value| f32::from_ne_bytes(*value).into()).collect(),
            DType::F16 => halves().map(|value| f16::from_ne_bytes(*value).to_f64()).collect(),
            DType::Bf16 => halves().map(|value| bf16::from_ne_bytes(*value).to_f64()).collect(),
        };
        let broken = |message| Error::Unfit { operation: "contract", message };
        Self::new(&tensor.shape(), &values, tensor.layout()).map_err(broken)
    }
}

/// Reads the image of this name from a folder, as `.npy`, or `.png`; `None` if there is neither.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read; [`Error::Decode`] if it is not an array of numbers or no image.
pub(super) fn read(folder: &Path, name: &str, usual: Layout) -> Result<Option<Planes>> {
    let file = |ending: &str| -> Option<PathBuf> {
        let path = folder.join(format!("{name}.{ending}"));
        path.exists().then_some(path)
    };
    if let Some(path) = file("npy") {
        let wrong = |message| Error::Decode { format: "array", message: format!("{}: {message}", path.display()) };
        let (shape, values) = npy::array(&read_limited(&path, MAX_BYTES)?).map_err(wrong)?;
        return Planes::new(&shape, &values, usual).map(Some).map_err(wrong);
    }
    let Some(path) = file("png") else { return Ok(None) };
    let options = ApplyOptions { orientation: Orientation::Ignore, ..ApplyOptions::default() }.as_made_by(&[]);
    let wrong = |error| Error::Decode { format: "PNG", message: format!("{}: {error}", path.display()) };
    let planes = Planes::of(&apply(&read_limited(&path, MAX_BYTES)?, &[], &options).map_err(wrong)?)?;
    // An image has no order of dimensions.
    Ok(Some(Planes { layout: usual, ..planes }))
}
