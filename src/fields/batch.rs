//! The fields of a batch, by sample and as flat lists.

use super::{BoxFormat, Boxes, Field, Fields, Mask, MaskKind, MaskOnDevice, MaskValues};
use crate::cuda::CudaBuffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::os::memory;
use crate::raster::Size;
use std::borrow::Cow;
use std::sync::Arc;

/// The fields of a batch's images, in the order of the images.
///
/// Numbers of objects differ from image to image. So rows are handed over flat, those of the first image first, with
/// [`offsets`](Self::offsets) or [`batch_indices`](Self::batch_indices), or [`padded`](Self::padded) to one number of
/// rows for each image.
///
/// Values are in host memory, but masks are where the images are. In batches on a device, the fields of single images
/// ([`image`](Self::image)) are those without masks; `mask_tensor` and its like have the masks on the device, and
/// [`masks`](Self::masks) and [`to_host`](Self::to_host) copy them.
///
/// ```
/// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed::fields::{BoxFormat, Boxes, Fields};
/// use warpfeed::prelude::*;
///
/// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..2).map(|label| (jpeg.clone(), label))).fields(["boxes", "labels"], |sample| {
///     let boxes = vec![[10.0, 5.0, 30.0, 25.0]; 1 + sample.index as usize];
///     let labels = vec![7; boxes.len()];
///     Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, boxes))?.with("labels", labels)
/// });
/// let pipeline = Pipeline::builder(source).fields(["boxes", "labels"]).transform(Resize::new(Size::new(20, 15))).build()?;
/// let batch = pipeline.epoch(0).next().unwrap()?;
/// let fields = batch.fields(0).unwrap();
/// assert_eq!((fields.offsets(), fields.batch_indices()), (vec![0, 1, 3], vec![0, 1, 1]));
/// assert_eq!(fields.boxes(BoxFormat::Cxcywh)?[2], [10.0, 7.5, 10.0, 10.0]);
/// assert_eq!(fields.integers("labels")?, [7, 7, 7]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BatchFields {
    images: Vec<(Fields, Size)>,
    on_device: Option<OnDevice>,
}

/// The masks of a batch that are on a device.
#[derive(Debug, Clone)]
struct OnDevice {
    /// The names of all fields, in their order.
    names: Arc<[String]>,
    /// For each name the masks of the images; `None` where the field is not a mask.
    masks: Vec<Vec<Option<MaskOnDevice>>>,
}

/// Boxes of a batch with the same number of rows for each image ([`BatchFields::padded`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Padded {
    /// `[N, rows, 4]`; rows without a box are 0.
    pub boxes: Vec<[f32; 4]>,
    /// `[N, rows]`; rows without a box are -1.
    pub labels: Vec<i64>,
    /// Number of boxes of each image.
    pub counts: Vec<usize>,
    /// Rows of each image.
    pub rows: usize,
}

impl BatchFields {
    /// The fields of images and the images' sizes.
    pub(crate) fn new(images: Vec<(Fields, Size)>) -> Self {
        Self { images, on_device: None }
    }

    /// Adds masks on a device: for each name of a field those of the images.
    pub(crate) fn with_masks(self, names: &Arc<[String]>, masks: Vec<Vec<Option<MaskOnDevice>>>) -> Self {
        Self { on_device: Some(OnDevice { names: Arc::clone(names), masks }), ..self }
    }

    /// The device that the masks are on; [`Device::Cpu`] if they are in host memory.
    #[must_use]
    pub fn device(&self) -> Device {
        let masks = self.on_device.iter().flat_map(|on_device| on_device.masks.iter().flatten().flatten());
        masks.map(|mask| Device::Cuda(mask.memory.ordinal())).next().unwrap_or(Device::Cpu)
    }

    /// The masks of the images that are on a device under this name; `None` if they are not.
    pub(crate) fn masks_on_device(&self, name: &str) -> Option<Vec<&MaskOnDevice>> {
        let on_device = self.on_device.as_ref()?;
        let masks = on_device.names.iter().zip(&on_device.masks).find(|(own, _)| *own == name)?.1;
        masks.iter().map(Option::as_ref).collect()
    }

    /// The fields with all masks in host memory, so that [`image`](Self::image) has them. Masks that are there already
    /// are not copied.
    ///
    /// # Synchronization
    /// Waits until masks on a device are complete, and copies them.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails; [`Error::OutOfMemory`] if there is no memory for the copy.
    pub fn to_host(&self) -> Result<Self> {
        let Some(OnDevice { names, masks }) = &self.on_device else { return Ok(self.clone()) };
        let mut images: Vec<(Fields, Size)> = self.images.iter().map(|(_, size)| (Fields::new(), *size)).collect();
        // Masks share memory with those before and after them.
        let mut copied = Copied::default();
        for (name, masks) in names.iter().zip(masks) {
            for (i, (fields, _)) in images.iter_mut().enumerate() {
                let own = self.images[i].0.get(name).cloned();
                let field = match masks.get(i).and_then(Option::as_ref) {
                    Some(mask) => Some(mask.to_field(copied.bytes_of(&mask.memory)?)),
                    None => own,
                };
                if let Some(field) = field {
                    fields.insert(Cow::Owned(name.clone()), field)?;
                }
            }
        }
        Ok(Self::new(images))
    }

    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Whether there is no image.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// The fields of image `i`, without masks that are on a device ([`to_host`](Self::to_host)); `None` if there are
    /// fewer images.
    #[must_use]
    pub fn image(&self, i: usize) -> Option<&Fields> {
        self.images.get(i).map(|(fields, _)| fields)
    }

    /// The fields of some images, in the order in which they are named: for example those of a batch without its
    /// padding. Missing images are left out.
    #[must_use]
    pub fn of_images(&self, images: &[usize]) -> Self {
        let some = |of: &Vec<Option<MaskOnDevice>>| images.iter().filter_map(|i| of.get(*i)).cloned().collect();
        let on_device = self.on_device.as_ref().map(|OnDevice { names, masks }| OnDevice {
            names: Arc::clone(names),
            masks: masks.iter().map(some).collect(),
        });
        Self { images: images.iter().filter_map(|i| self.images.get(*i)).cloned().collect(), on_device }
    }

    /// The size of each image.
    #[must_use]
    pub fn sizes(&self) -> Vec<Size> {
        self.images.iter().map(|(_, size)| *size).collect()
    }

    /// The number of the first row of each image in the flat lists, and the number of all rows: `[N + 1]`.
    #[must_use]
    pub fn offsets(&self) -> Vec<usize> {
        let mut offsets = vec![0];
        for i in 0..self.len() {
            offsets.push(offsets[offsets.len() - 1] + self.objects(i));
        }
        offsets
    }

    /// Number of objects of image `i`.
    fn objects(&self, i: usize) -> usize {
        let on_device = self.on_device.iter().flat_map(|on_device| &on_device.masks);
        let masks =
            on_device.filter_map(|masks| masks.get(i)?.as_ref().filter(|mask| mask.kind == MaskKind::OfObjects));
        masks.map(|mask| mask.planes).next().unwrap_or_else(|| self.images[i].0.objects())
    }

    /// The number of the image of each row: `[T]`.
    #[must_use]
    pub fn batch_indices(&self) -> Vec<u32> {
        (0..self.len()).flat_map(|i| std::iter::repeat_n(i as u32, self.objects(i))).collect()
    }

    /// All boxes in this format: `[T, 4]`, in pixels.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no boxes.
    pub fn boxes(&self, format: BoxFormat) -> Result<Vec<[f32; 4]>> {
        let boxes = self.images.iter().map(|(fields, _)| fields.boxes().ok_or_else(no_boxes).map(|b| b.to(format)));
        Ok(boxes.collect::<Result<Vec<Boxes>>>()?.iter().flat_map(Boxes::rows).copied().collect())
    }

    /// All boxes in this format, as shares of their images' sides: `[T, 4]`.
    ///
    /// # Errors
    /// See [`boxes`](Self::boxes).
    pub fn relative_boxes(&self, format: BoxFormat) -> Result<Vec<[f32; 4]>> {
        let mut boxes = self.boxes(format)?;
        for (row, image) in boxes.iter_mut().zip(self.batch_indices()) {
            let Size { width, height } = self.images[image as usize].1;
            let sides = [width, height, width, height].map(|side| side as f32);
            row.iter_mut().zip(sides).for_each(|(value, side)| *value /= side);
        }
        Ok(boxes)
    }

    /// Boxes and labels with the same number of rows for each image. Rows beyond `rows` are left out.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no boxes, or no labels under the name `labels`.
    pub fn padded(&self, format: BoxFormat, labels: &str, rows: usize) -> Result<Padded> {
        let (all, classes, offsets) = (self.boxes(format)?, self.integers(labels)?, self.offsets());
        let mut padded = Padded { boxes: Vec::new(), labels: Vec::new(), counts: Vec::new(), rows };
        for range in offsets.windows(2) {
            let count = (range[1] - range[0]).min(rows);
            let own = range[0]..range[0] + count;
            padded.boxes.extend_from_slice(&all[own.clone()]);
            padded.labels.extend_from_slice(&classes[own]);
            padded.counts.push(count);
            padded.boxes.resize(padded.counts.len() * rows, [0.0; 4]);
            padded.labels.resize(padded.counts.len() * rows, -1);
        }
        Ok(padded)
    }

    /// The whole numbers of all objects: `[T]`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no such field, or it has other content.
    pub fn integers(&self, name: &str) -> Result<Vec<i64>> {
        self.flat(name, "whole numbers", |field| if let Field::Integers(rows) = field { Some(&rows[..]) } else { None })
    }

    /// The numbers of all objects: `[T]`.
    ///
    /// # Errors
    /// See [`integers`](Self::integers).
    pub fn floats(&self, name: &str) -> Result<Vec<f32>> {
        self.flat(name, "numbers", |field| if let Field::Floats(rows) = field { Some(&rows[..]) } else { None })
    }

    /// The keypoints of all objects, or of all images: x, y and COCO's visibility. `[T, K, 3]`, where an object has K
    /// points.
    ///
    /// # Errors
    /// See [`integers`](Self::integers).
    pub fn keypoints(&self, name: &str) -> Result<Vec<[f32; 3]>> {
        let mut all = Vec::new();
        for field in self.each(name) {
            let Field::KeyPoints(points) = field? else { return Err(other(name, "keypoints")) };
            let visible = points.visibility().iter().map(|v| f32::from(*v));
            all.extend(points.points().iter().zip(visible).map(|([x, y], visible)| [*x, *y, visible]));
        }
        Ok(all)
    }

    /// The values of all masks, one plane after the other: `[N, H, W]`, or `[T, H, W]` for masks of objects. All images
    /// have one size. Masks on a device are copied, as by [`to_host`](Self::to_host).
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no such field, it has other content, or sizes or types differ; the errors
    /// of [`to_host`](Self::to_host).
    pub fn masks(&self, name: &str) -> Result<MaskValues> {
        if self.on_device.is_some() {
            return self.to_host()?.masks(name);
        }
        self.planes(name, "a mask", |field| if let Field::Mask(mask) = field { Some(mask) } else { None })
    }

    /// The values of auxiliary images of one size, one channel after the other: `[N, 1, H, W]` or `[N, 3, H, W]`.
    /// Images on a device are copied, as by [`to_host`](Self::to_host).
    ///
    /// # Errors
    /// See [`masks`](Self::masks).
    pub fn aux_images(&self, name: &str) -> Result<MaskValues> {
        if self.on_device.is_some() {
            return self.to_host()?.aux_images(name);
        }
        self.planes(name, "an auxiliary image", |field| match field {
            Field::Image(image) => Some(image.as_mask()),
            _ => None,
        })
    }

    fn planes(&self, name: &str, expected: &str, of: impl Fn(&Field) -> Option<&Mask>) -> Result<MaskValues> {
        let (mut bytes, mut words, mut size) = (Vec::new(), Vec::new(), None);
        for field in self.each(name) {
            let mask = of(field?).ok_or_else(|| other(name, expected))?;
            if *size.get_or_insert(mask.size()) != mask.size() {
                let got = format!("images of different sizes in the field {name}");
                return Err(Error::parameter("BatchFields::masks", "images", "of one size: ask image by image", got));
            }
            for plane in mask.planes() {
                match &**plane {
                    MaskValues::U8(values) => bytes.extend_from_slice(values),
                    MaskValues::U16(values) => words.extend_from_slice(values),
                }
            }
        }
        match (bytes.is_empty(), words.is_empty()) {
            (_, true) => Ok(bytes.into()),
            (true, false) => Ok(words.into()),
            (false, false) => Err(other(name, "values of one type: some have 8 bits a pixel, some 16")),
        }
    }

    /// The values of all masks on images of size `size`, one plane after the other: `[N, H, W]`, or `[T, H, W]` for
    /// masks of objects. Each mask lies in the upper left corner, and the rest has its fill. Masks on a device are
    /// copied, as by [`to_host`](Self::to_host).
    ///
    /// # Errors
    /// [`Error::Parameter`] if the batch has no such field, it has other content, types differ, or a mask is larger;
    /// the errors of [`to_host`](Self::to_host).
    pub fn padded_masks(&self, name: &str, size: Size) -> Result<MaskValues> {
        if self.on_device.is_some() {
            return self.to_host()?.padded_masks(name, size);
        }
        self.placed(name, size, |field| match field {
            Field::Mask(mask) => Ok(mask.padded(name, size)?.into()),
            _ => Err(other(name, "a mask")),
        })?
        .masks(name)
    }

    /// The values of auxiliary images in places of size `size`, one channel after the other: `[N, C, H, W]`. Each lies
    /// in the upper left corner, and the rest has its fill. Images on a device are copied, as by
    /// [`to_host`](Self::to_host).
    ///
    /// # Errors
    /// See [`padded_masks`](Self::padded_masks).
    pub fn padded_aux_images(&self, name: &str, size: Size) -> Result<MaskValues> {
        if self.on_device.is_some() {
            return self.to_host()?.padded_aux_images(name, size);
        }
        self.placed(name, size, |field| match field {
            Field::Image(image) => Ok(image.padded(name, size)?.into()),
            _ => Err(other(name, "an auxiliary image")),
        })?
        .aux_images(name)
    }

    /// The fields of images of one size, with the field that `place` makes of the one of this name.
    fn placed(&self, name: &str, size: Size, place: impl Fn(&Field) -> Result<Field>) -> Result<Self> {
        let one = |field: Result<&Field>| Ok((Fields::new().with(name.to_owned(), place(field?)?)?, size));
        self.each(name).map(one).collect::<Result<_>>().map(Self::new)
    }

    fn each<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Result<&'a Field>> {
        let missing = move || Error::parameter("BatchFields", "name", "a field that the pipeline delivers", name);
        self.images.iter().map(move |(fields, _)| fields.get(name).ok_or_else(missing))
    }

    fn flat<T: Copy>(&self, name: &str, expected: &str, of: impl Fn(&Field) -> Option<&[T]>) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for field in self.each(name) {
            all.extend_from_slice(of(field?).ok_or_else(|| other(name, expected))?);
        }
        Ok(all)
    }
}

/// The bytes of the memory on a device that was copied last.
#[derive(Default)]
struct Copied {
    of: Option<Arc<CudaBuffer>>,
    bytes: Vec<u8>,
}

impl Copied {
    fn bytes_of(&mut self, buffer: &Arc<CudaBuffer>) -> Result<&[u8]> {
        if !self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, buffer)) {
            self.bytes = memory::zeros(buffer.len_bytes(), "the masks of a batch", memory::SMALLER_BATCHES)?;
            buffer.read(0, &mut self.bytes)?;
            self.of = Some(Arc::clone(buffer));
        }
        Ok(&self.bytes)
    }
}

fn no_boxes() -> Error {
    Error::parameter("BatchFields", "fields", "boxes among the fields that the pipeline delivers", "none")
}

fn other(name: &str, expected: &str) -> Error {
    Error::parameter("BatchFields", "field", expected, format!("{name}, which is something else"))
}
