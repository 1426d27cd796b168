//! Writes batches and samples of a training into folders.

use serde::Serialize;
use std::io::Write as _;
use std::path::Path;
use warpfeed::image::{Image, contact_sheet, write_npy, write_png};
use warpfeed::internal::atomic;
use warpfeed::ops::Op;
use warpfeed::{Batch, BatchImages, DType, Error, Layout, Pipeline, Receipt, Result, Tensor};

/// Pixels between the images of a sheet.
const GAP_PX: u32 = 4;
/// Name of the file of receipts.
const RECEIPTS: &str = "receipts.json";
/// Name of the file of recipes.
const RECIPES: &str = "recipe.json";
/// Name of the contact sheet.
const SHEET: &str = "sheet.png";

/// The files that [`write_batch`] wrote, and what made the images: the contents of `receipts.json`.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WrittenBatch {
    /// Number of the epoch.
    pub epoch: u64,
    /// The files with the numbers of the batch.
    pub tensors: Vec<WrittenTensor>,
    /// Each image, view after view.
    pub images: Vec<WrittenImage>,
}

/// A tensor in a file.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WrittenTensor {
    /// Name of the file: `.npy`, or `.bin` with the bare elements for `bf16`, which NumPy lacks.
    pub file: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Order of the dimensions.
    pub layout: Layout,
    /// The shape. A batch of one image lacks the first number in its `.npy`.
    pub shape: [usize; 4],
}

/// An image in a file.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct WrittenImage {
    /// Name of the file.
    pub file: String,
    /// What made the image.
    #[serde(flatten)]
    pub receipt: Receipt,
}

/// Writes a batch into a folder, which is created: each image as PNG ([`Batch::to_rgb`]), all of them on a contact
/// sheet `sheet.png`, the tensor as it is in `tensor.npy`, and the receipts in `receipts.json`. With several views, or
/// a tensor for each image, files are named by their numbers.
///
/// # Errors
/// [`Error::Io`] if a file cannot be written; the errors of [`Batch::receipts`]; [`Error::Parameter`] if the images are
/// too large for a sheet.
///
/// ```
/// use warpfeed_bench::replay::write_batch;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..2).map(|label| (jpeg.clone(), label)));
/// let pipeline = Pipeline::builder(source).transform(CenterCrop::new(8)).normalize(IMAGENET_MEAN, IMAGENET_STD).build()?;
/// let folder = tempfile::tempdir().unwrap();
/// for batch in pipeline.epoch(0) {
///     let written = write_batch(&batch?, folder.path())?;
///     assert_eq!((&*written.tensors[0].file, &*written.images[1].file), ("tensor.npy", "001.png"));
/// }
/// assert!(folder.path().join("sheet.png").exists() && folder.path().join("receipts.json").exists());
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_batch<I: BatchImages>(batch: &Batch<I>, folder: &Path) -> Result<WrittenBatch> {
    std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let views = batch.to_rgb()?;
    let (several, mut names, mut all) = (views.len() > 1, Vec::new(), Vec::new());
    for (view, images) in views.into_iter().enumerate() {
        for (i, image) in images.into_iter().enumerate() {
            let name = if several { format!("view{view}-{i:03}.png") } else { format!("{i:03}.png") };
            write_png(&image, folder.join(&name))?;
            names.push(name);
            all.push(image);
        }
    }
    write_sheet(&all, folder)?;
    let receipts = names.into_iter().zip(batch.receipts(true)?);
    let images = receipts.map(|(file, receipt)| WrittenImage { file, receipt }).collect();
    let tensors: Vec<&Tensor> = batch.tensors().flatten().collect();
    let name = |i| if tensors.len() > 1 { format!("tensor{i:03}") } else { "tensor".to_owned() };
    let write = |(i, tensor): (usize, &&Tensor)| write_tensor(tensor, folder, name(i));
    let tensors = tensors.iter().enumerate().map(write).collect::<Result<_>>()?;
    let written = WrittenBatch { epoch: batch.state().epoch(), tensors, images };
    write_json(&written, &folder.join(RECEIPTS))?;
    Ok(written)
}

fn write_tensor(tensor: &Tensor, folder: &Path, name: String) -> Result<WrittenTensor> {
    let tensor = &tensor.to_host()?;
    let file = if tensor.dtype() == DType::Bf16 {
        let file = name + ".bin";
        let bytes = tensor.as_bytes()?;
        atomic::write_output(&folder.join(&file), |out| out.write_all(bytes))?;
        file
    } else {
        let file = name + ".npy";
        write_npy(tensor, folder.join(&file))?;
        file
    };
    Ok(WrittenTensor { file, dtype: tensor.dtype(), layout: tensor.layout(), shape: tensor.shape() })
}

/// Writes what becomes of a sample into a folder, which is created: the decoded image and the image after each
/// operation ([`Pipeline::stages`]) as `00-decoded.png`, `01-hflip.png` and so on, all of them on a contact sheet
/// `sheet.png`, and the operations in `recipe.json`, as `warpfeed apply` takes them. With several images of a sample,
/// names begin with the image's number, and the file has a list for each. Returns the names of the images.
///
/// # Errors
/// [`Error::Io`] if a file cannot be written; the errors of [`Pipeline::stages`].
///
/// ```
/// use warpfeed_bench::replay::write_stages;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::prelude::*;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let pipeline = Pipeline::builder(EncodedImages::new([(jpeg, 0)])).transform(CenterCrop::new(8)).build()?;
/// let folder = tempfile::tempdir().unwrap();
/// let names = write_stages(&pipeline, (0, 0, 0), folder.path())?;
/// assert_eq!(names, ["00-decoded.png", "01-center-crop.png"]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn write_stages<I>(
    pipeline: &Pipeline<I>,
    (epoch, index, repetition): (u64, u64, u32),
    folder: &Path,
) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let several = pipeline.recipes_of(epoch, index, repetition)?.len() > 1;
    let (mut names, mut all) = (Vec::new(), Vec::new());
    let recipes = pipeline.stages(epoch, index, repetition, &mut |stage| {
        let before = if several { format!("image{}-", stage.image) } else { String::new() };
        let name = format!("{before}{:02}-{}.png", stage.number, stage.operation.replace('_', "-"));
        write_png(&stage.pixels, folder.join(&name))?;
        names.push(name);
        all.push(stage.pixels);
        Ok(())
    })?;
    write_sheet(&all, folder)?;
    let path = folder.join(RECIPES);
    match &recipes[..] {
        [recipe] => write_json::<Vec<Op>>(recipe, &path)?,
        recipes => write_json(&recipes, &path)?,
    }
    Ok(names)
}

/// Writes a sheet about as wide as high.
fn write_sheet(images: &[Image], folder: &Path) -> Result<()> {
    let columns = (1..).find(|columns| columns * columns >= images.len() as u32).unwrap_or(1);
    write_png(&contact_sheet(images, columns, GAP_PX)?, folder.join(SHEET))
}

fn write_json<T: Serialize>(value: &T, path: &Path) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| Error::io("write", path)(error.into()))?;
    atomic::write_output(path, |file| file.write_all(&text).and_then(|()| file.write_all(b"\n")))
}
