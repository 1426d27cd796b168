//! Values of a batch's fields, for trainers.

use super::Tensor;
#[cfg(feature = "dlpack")]
use super::{DType, HostBuffer, Storage, dlpack};
use crate::cuda::{CudaBuffer, Pool};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::fields::{BatchFields, BoxFormat, Field, MaskOnDevice, MaskValues};
use crate::os::memory;
use crate::raster::Size;
use std::sync::Arc;

/// Values of a batch's fields with a shape, to be handed to a trainer. [`BatchFields`] makes the values, and this type
/// tensors of them. Masks of images on a device are there too, in memory that all tensors of a field share; all else is
/// in host memory until [`to_device_of`](Self::to_device_of) copies it.
///
/// ```
/// use warpfeed::{FieldTensor, FieldValues};
///
/// // As of `BatchFields::boxes` and `BatchFields::integers`.
/// let boxes = FieldTensor::from(vec![[10.0, 5.0, 30.0, 25.0], [0.0, 0.0, 8.0, 9.0]]);
/// let labels = FieldTensor::from(vec![7_i64, 3]);
/// assert_eq!((boxes.shape(), labels.shape()), (&[2, 4][..], &[2][..]));
/// assert_eq!(labels.values()?, &FieldValues::I64(vec![7, 3]));
/// # #[cfg(feature = "dlpack")] {
/// let shared: dlpark::versioned::Dlpack = boxes.into_dlpack()?;
/// assert_eq!(shared.validate().expect("it is well formed").shape(), [2, 4]);
/// # }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FieldTensor {
    values: Place,
    shape: Vec<usize>,
}

/// Place of a batch's images: a device or host memory. [`FieldTensor::to_device_of`] puts values there, also after the
/// images have been given away. `DeviceOf::from(batch.images())` is their place.
#[derive(Debug, Clone)]
pub struct DeviceOf(Option<Arc<Pool>>);

impl From<&Tensor> for DeviceOf {
    fn from(images: &Tensor) -> Self {
        Self(images.cuda().map(|images| Arc::clone(images.pool())))
    }
}

/// Place of a field's values.
#[derive(Debug, Clone)]
enum Place {
    Host(FieldValues),
    Device(OnDevice),
}

/// Values in device memory.
#[derive(Debug, Clone)]
struct OnDevice {
    memory: Arc<CudaBuffer>,
    offset_bytes: usize,
    element: Element,
    /// For each dimension the distance between neighbors, in elements.
    strides: Vec<usize>,
}

/// Type of the values of a [`FieldTensor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    F32,
    I64,
    U32,
    U8,
    U16,
}

impl Element {
    const fn size_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::F32 | Self::U32 => 4,
            Self::I64 => 8,
        }
    }

    /// The name in NumPy.
    const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::I64 => "int64",
            Self::U32 => "uint32",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
        }
    }

    #[cfg(feature = "dlpack")]
    const fn dlpack(self) -> dlpark::ffi::DLDataType {
        use dlpark::ffi::DLDataType;
        match self {
            Self::F32 => DLDataType::F32,
            Self::I64 => DLDataType::I64,
            Self::U32 => DLDataType::U32,
            Self::U8 => DLDataType::U8,
            Self::U16 => DLDataType::U16,
        }
    }

    /// The values that bytes of a device are.
    fn values(self, bytes: Vec<u8>) -> FieldValues {
        match self {
            Self::F32 => FieldValues::F32(bytes.as_chunks().0.iter().copied().map(f32::from_ne_bytes).collect()),
            Self::I64 => FieldValues::I64(bytes.as_chunks().0.iter().copied().map(i64::from_ne_bytes).collect()),
            Self::U32 => FieldValues::U32(bytes.as_chunks().0.iter().copied().map(u32::from_ne_bytes).collect()),
            Self::U8 => FieldValues::U8(bytes),
            Self::U16 => FieldValues::U16(bytes.as_chunks().0.iter().copied().map(u16::from_ne_bytes).collect()),
        }
    }
}

impl FieldValues {
    const fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I64(_) => Element::I64,
            Self::U32(_) => Element::U32,
            Self::U8(_) => Element::U8,
            Self::U16(_) => Element::U16,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice(values),
            Self::I64(values) => bytemuck::cast_slice(values),
            Self::U32(values) => bytemuck::cast_slice(values),
            Self::U8(values) => values,
            Self::U16(values) => bytemuck::cast_slice(values),
        }
    }
}

/// The values of a [`FieldTensor`], by their type.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FieldValues {
    /// Boxes, keypoints, numbers.
    F32(Vec<f32>),
    /// Labels, ids.
    I64(Vec<i64>),
    /// Numbers of images ([`BatchFields::batch_indices`]).
    U32(Vec<u32>),
    /// Masks of 8 bits.
    U8(Vec<u8>),
    /// Masks of 16 bits.
    U16(Vec<u16>),
}

/// One row of numbers for each object: `[T, K]`, such as boxes and keypoints.
impl<const K: usize> From<Vec<[f32; K]>> for FieldTensor {
    fn from(rows: Vec<[f32; K]>) -> Self {
        Self { shape: vec![rows.len(), K], values: Place::Host(FieldValues::F32(rows.into_flattened())) }
    }
}

macro_rules! from_numbers {
    ($($name:ident: $type:ty,)*) => {$(
        /// One number for each object or image: `[T]`.
        impl From<Vec<$type>> for FieldTensor {
            fn from(values: Vec<$type>) -> Self {
                Self { shape: vec![values.len()], values: Place::Host(FieldValues::$name(values)) }
            }
        }
    )*};
}

from_numbers! {
    F32: f32,
    I64: i64,
    U32: u32,
    U8: u8,
    U16: u16,
}

impl BatchFields {
    /// All boxes in this format, in pixels: `[T, 4]`, f32.
    ///
    /// # Errors
    /// See [`boxes`](Self::boxes).
    pub fn box_tensor(&self, format: BoxFormat) -> Result<FieldTensor> {
        self.boxes(format).map(FieldTensor::from)
    }

    /// The keypoints of all objects: `[T, K, 3]`, f32, where an object has K points; `[T, 1, 3]` for points of images.
    ///
    /// # Errors
    /// See [`keypoints`](Self::keypoints).
    pub fn keypoint_tensor(&self, name: &str) -> Result<FieldTensor> {
        let points = self.keypoints(name)?;
        // An image without objects need not say how many points each would have.
        let count = |i| match self.image(i)?.get(name)? {
            Field::KeyPoints(points) => Some((points.points().is_empty(), points.per_object().max(1))),
            _ => None,
        };
        let per_object = (0..self.len()).filter_map(count).min().map_or(1, |(_, per_object)| per_object);
        let objects = points.len() / per_object;
        FieldTensor::from(points).reshaped(&[objects, per_object, 3])
    }

    /// Values of the objects, `[T, ...]`, with the same number of rows for each image: `[N, rows, ...]`. Rows without
    /// an object are 0, and those beyond `rows` are left out. [`offsets`](Self::offsets) has the numbers of objects.
    ///
    /// ```
    /// # use warpfeed::image::{Image, JpegOptions, encode_jpeg};
    /// # use warpfeed::{FieldValues, fields::Fields, prelude::*};
    /// # let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
    /// // One object in the first image, and two in the second.
    /// let source = EncodedImages::new((0..2).map(|label| (jpeg.clone(), label)))
    ///     .fields(["labels"], |sample| Fields::new().with("labels", vec![7; 1 + sample.index as usize]));
    /// let pipeline = Pipeline::builder(source).fields(["labels"]).transform(CenterCrop::new(8)).build()?;
    /// let batch = pipeline.epoch(0).next().unwrap()?;
    /// let fields = batch.fields(0).unwrap();
    /// let labels = fields.padded_rows(fields.integers("labels")?, 3)?;
    /// assert_eq!(labels.values()?, &FieldValues::I64(vec![7, 0, 0, 7, 7, 0]));
    /// assert_eq!(labels.shape(), [2, 3]);
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are not as many rows as objects; [`Error::Unsupported`] for values on a device.
    pub fn padded_rows(&self, values: impl Into<FieldTensor>, rows: usize) -> Result<FieldTensor> {
        fn padded<T: Copy + Default>(values: &[T], offsets: &[usize], row_len: usize, image_len: usize) -> Vec<T> {
            let mut padded = Vec::new();
            for image in offsets.windows(2) {
                let own = &values[image[0] * row_len..image[1] * row_len];
                let end = padded.len() + image_len;
                padded.extend_from_slice(&own[..own.len().min(image_len)]);
                padded.resize(end, T::default());
            }
            padded
        }
        let wrong = |parameter, expected: String, got: String| {
            Err(Error::parameter("BatchFields::padded_rows", parameter, expected, got))
        };
        let (tensor, offsets) = (values.into(), self.offsets());
        let objects = offsets.last().copied().unwrap_or(0);
        let Some((_, row)) = tensor.shape.split_first().filter(|(count, _)| **count == objects) else {
            return wrong("values", format!("a row for each of {objects} objects"), format!("{:?}", tensor.shape));
        };
        let row_len: usize = row.iter().product();
        let Some(image_len) = row_len.checked_mul(rows).filter(|len| len.checked_mul(8 * self.len()).is_some()) else {
            return wrong("rows", "few enough for the memory".to_owned(), rows.to_string());
        };
        let values = match tensor.values()? {
            FieldValues::F32(values) => FieldValues::F32(padded(values, &offsets, row_len, image_len)),
            FieldValues::I64(values) => FieldValues::I64(padded(values, &offsets, row_len, image_len)),
            FieldValues::U32(values) => FieldValues::U32(padded(values, &offsets, row_len, image_len)),
            FieldValues::U8(values) => FieldValues::U8(padded(values, &offsets, row_len, image_len)),
            FieldValues::U16(values) => FieldValues::U16(padded(values, &offsets, row_len, image_len)),
        };
        Ok(FieldTensor { values: Place::Host(values), shape: [&[self.len(), rows], row].concat() })
    }

    /// All masks on images of one size, one plane after the other: `[N, H, W]`, or `[T, H, W]` for masks of objects; u8
    /// or u16. Where the images are on a device, the masks are too, and are not copied.
    ///
    /// # Errors
    /// As for [`masks`](Self::masks); [`Error::Parameter`] for single images on a device, which are not one tensor
    /// together.
    pub fn mask_tensor(&self, name: &str) -> Result<FieldTensor> {
        if let Some(masks) = self.masks_on_device(name) {
            return joined(name, &masks, masks.first().map(|mask| mask.size));
        }
        let size = self.sizes().first().copied().unwrap_or(Size::new(0, 0));
        Ok(of_masks(self.masks(name)?, size))
    }

    /// The masks of each image, whose sizes may differ: `[1, H, W]`, or `[K, H, W]` for masks of K objects. They are
    /// where [`mask_tensor`](Self::mask_tensor) has them; in a padded batch on a device their rows have gaps.
    ///
    /// # Errors
    /// See [`masks`](Self::masks).
    pub fn mask_tensors(&self, name: &str) -> Result<Vec<FieldTensor>> {
        if let Some(masks) = self.masks_on_device(name) {
            return masks.iter().map(|mask| joined(name, &[*mask], Some(mask.size))).collect();
        }
        let alone = |(i, size)| Self::new(self.image(i).map(|fields| (fields.clone(), size)).into_iter().collect());
        self.sizes().into_iter().enumerate().map(|image| alone(image).mask_tensor(name)).collect()
    }

    /// The auxiliary images of one size: `[N, C, H, W]`, with 1 or 3 channels; u8 or u16. They are where
    /// [`mask_tensor`](Self::mask_tensor) has masks.
    ///
    /// # Errors
    /// See [`mask_tensor`](Self::mask_tensor).
    pub fn image_tensor(&self, name: &str) -> Result<FieldTensor> {
        let tensor = if let Some(images) = self.masks_on_device(name) {
            joined(name, &images, images.first().map(|image| image.size))?
        } else {
            let first = self.image(0).and_then(|fields| fields.get(name));
            let size = if let Some(Field::Image(image)) = first { image.size() } else { Size::new(1, 1) };
            of_masks(self.aux_images(name)?, size)
        };
        tensor.split_first(self.len())
    }

    /// The auxiliary image of each image, whose sizes may differ: `[1, C, H, W]`. They are where
    /// [`mask_tensors`](Self::mask_tensors) has masks.
    ///
    /// # Errors
    /// See [`image_tensor`](Self::image_tensor).
    pub fn image_tensors(&self, name: &str) -> Result<Vec<FieldTensor>> {
        if let Some(images) = self.masks_on_device(name) {
            return images.iter().map(|image| joined(name, &[*image], Some(image.size))?.split_first(1)).collect();
        }
        let alone = |(i, size)| Self::new(self.image(i).map(|fields| (fields.clone(), size)).into_iter().collect());
        self.sizes().into_iter().enumerate().map(|image| alone(image).image_tensor(name)).collect()
    }

    /// All masks on images of size `size`, as [`padded_masks`](Self::padded_masks) has them: `[N, H, W]` or `[T, H,
    /// W]`. Where the images are on a device, the masks are too, padded as the images are.
    ///
    /// # Errors
    /// As for [`padded_masks`](Self::padded_masks); on a device [`Error::Parameter`] for any size but that of the
    /// padded images.
    pub fn padded_mask_tensor(&self, name: &str, size: Size) -> Result<FieldTensor> {
        if let Some(masks) = self.masks_on_device(name) {
            return in_places(name, &masks, size);
        }
        Ok(of_masks(self.padded_masks(name, size)?, size))
    }

    /// The auxiliary images in places of size `size`, as [`padded_aux_images`](Self::padded_aux_images) has them: `[N,
    /// C, H, W]`. Where the images are on a device, these are too, padded as the images are: to the largest sides among
    /// them and the batch's divisor.
    ///
    /// # Errors
    /// As for [`padded_aux_images`](Self::padded_aux_images); on a device [`Error::Parameter`] for any other
    /// size.
    pub fn padded_image_tensor(&self, name: &str, size: Size) -> Result<FieldTensor> {
        let tensor = match self.masks_on_device(name) {
            Some(images) => in_places(name, &images, size)?,
            None => of_masks(self.padded_aux_images(name, size)?, size),
        };
        tensor.split_first(self.len())
    }
}

/// The tensor of masks that lie one after the other in device memory, all of size `size`, or of their places' if there
/// is none.
fn joined(name: &str, masks: &[&MaskOnDevice], size: Option<Size>) -> Result<FieldTensor> {
    let wrong = |expected: &str, got: &str| {
        Err(Error::parameter("BatchFields", "masks", expected, format!("{got} in the field {name}")))
    };
    let Some(first) = masks.first() else { return wrong("those of one image or more", "none") };
    if masks.iter().any(|mask| mask.is_wide != first.is_wide) {
        return wrong("of one type", "8 bits a pixel in some and 16 in others");
    }
    let size = size.unwrap_or(first.room);
    if masks.iter().any(|mask| size != first.room && mask.size != size) {
        return wrong("of one size: ask image by image", "different sizes");
    }
    let follows = |pair: &[&MaskOnDevice]| {
        let [before, mask] = pair else { return true };
        Arc::ptr_eq(&before.memory, &mask.memory) && before.offset_bytes + before.len_bytes() == mask.offset_bytes
    };
    if !masks.windows(2).all(follows) {
        return wrong("in one tensor: ask image by image", "a tensor for each image");
    }
    let planes = masks.iter().map(|mask| mask.planes).sum();
    let (width, area) = (first.room.width as usize, first.room.area_px() as usize);
    Ok(FieldTensor {
        values: Place::Device(OnDevice {
            memory: Arc::clone(&first.memory),
            offset_bytes: first.offset_bytes,
            element: if first.is_wide { Element::U16 } else { Element::U8 },
            strides: vec![area, width, 1],
        }),
        shape: vec![planes, size.height as usize, size.width as usize],
    })
}

/// The tensor of masks on a device with their padding, which have places of size `size`.
fn in_places(name: &str, masks: &[&MaskOnDevice], size: Size) -> Result<FieldTensor> {
    if let Some(other) = masks.iter().find(|mask| mask.room != size) {
        let expected = format!("{}, that of the places of {name} on the device", other.room);
        return Err(Error::parameter("BatchFields", "size", expected, size));
    }
    joined(name, masks, None)
}

fn of_masks(values: MaskValues, size: Size) -> FieldTensor {
    let planes = values.len().checked_div(size.area_px() as usize).unwrap_or(0);
    let shape = vec![planes, size.height as usize, size.width as usize];
    let values = match values {
        MaskValues::U8(values) => FieldValues::U8(values),
        MaskValues::U16(values) => FieldValues::U16(values),
    };
    FieldTensor { values: Place::Host(values), shape }
}

/// The strides of contiguous elements.
fn contiguous(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|i| shape[i + 1..].iter().product()).collect()
}

impl OnDevice {
    /// A copy of the elements of a shape in host memory.
    fn to_host(&self, shape: &[usize]) -> Result<FieldValues> {
        let value_bytes = self.element.size_bytes();
        // From the first element to the last.
        let reach = |(side, stride): (&usize, &usize)| side.saturating_sub(1) * stride;
        let len = if shape.contains(&0) { 0 } else { 1 + shape.iter().zip(&self.strides).map(reach).sum::<usize>() };
        let mut bytes = memory::zeros::<u8>(len * value_bytes, "fields of a batch", memory::SMALLER_BATCHES)?;
        self.memory.read(self.offset_bytes, &mut bytes)?;
        if self.strides != contiguous(shape) {
            let (row, rows) = shape.split_last().map_or((1, 1), |(row, outer)| (*row, outer.iter().product::<usize>()));
            let row_of = |i: usize| {
                let (mut rest, mut at) = (i, 0);
                for (side, stride) in shape.iter().zip(&self.strides).rev().skip(1) {
                    at += rest % side * stride;
                    rest /= side;
                }
                at * value_bytes..(at + row) * value_bytes
            };
            bytes = (0..rows).flat_map(|i| &bytes[row_of(i)]).copied().collect();
        }
        Ok(self.element.values(bytes))
    }
}

impl FieldTensor {
    /// Bytes in host memory, as many as the shape says.
    pub(crate) fn of_bytes(values: Vec<u8>, shape: Vec<usize>) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        Self { values: Place::Host(FieldValues::U8(values)), shape }
    }

    /// Splits the first dimension in two; the first of them is `outer`.
    fn split_first(mut self, outer: usize) -> Result<Self> {
        let (Some(first), Some(stride)) = (self.shape.first().copied(), self.strides().first().copied()) else {
            return Ok(self);
        };
        let inner = first.checked_div(outer).unwrap_or(0);
        if inner * outer != first {
            return Err(Error::parameter(
                "BatchFields",
                "images",
                "of as many channels each",
                "1 in some and 3 in others",
            ));
        }
        self.shape.splice(..1, [outer, inner]);
        if let Place::Device(values) = &mut self.values {
            values.strides.insert(0, inner * stride);
        }
        Ok(self)
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// For each dimension, the distance between neighbors, in elements.
    #[must_use]
    pub fn strides(&self) -> Vec<usize> {
        match &self.values {
            Place::Host(_) => contiguous(&self.shape),
            Place::Device(values) => values.strides.clone(),
        }
    }

    /// The device that holds the values. [`Device::Cpu`] is host memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.cuda().map_or(Device::Cpu, |memory| Device::Cuda(memory.ordinal()))
    }

    /// The device memory that holds the values, from [`offset_bytes`](Self::offset_bytes) on; `None` if they are in
    /// host memory. Other tensors of the field share it, and it goes back to the pipeline when batch and tensors are
    /// dropped.
    #[must_use]
    pub fn cuda(&self) -> Option<&CudaBuffer> {
        if let Place::Device(values) = &self.values { Some(&values.memory) } else { None }
    }

    /// Offset of the first value in the device memory.
    #[must_use]
    pub fn offset_bytes(&self) -> usize {
        if let Place::Device(values) = &self.values { values.offset_bytes } else { 0 }
    }

    /// The name of the values' type, as in NumPy.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match &self.values {
            Place::Host(values) => values.element().name(),
            Place::Device(values) => values.element.name(),
        }
    }

    /// The values, row by row.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if they are on a device: [`to_host`](Self::to_host) copies them.
    pub fn values(&self) -> Result<&FieldValues> {
        match &self.values {
            Place::Host(values) => Ok(values),
            Place::Device(_) => Err(super::on_device(self.device())),
        }
    }

    /// The tensor in host memory. Values that are on a device are copied without gaps.
    ///
    /// # Synchronization
    /// The copy is complete when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if a device fails; [`Error::OutOfMemory`] if there is no memory for the copy.
    pub fn to_host(&self) -> Result<Self> {
        match &self.values {
            Place::Host(_) => Ok(self.clone()),
            Place::Device(values) => {
                Ok(Self { values: Place::Host(values.to_host(&self.shape)?), shape: self.shape.clone() })
            }
        }
    }

    /// The tensor where the images of its batch are: for images on a device a copy of values that are in host memory,
    /// for DLPack and for kernels of your own; else the tensor itself. The memory goes back to the pipeline when the
    /// last tensor that shares it is dropped. `images`: the images of the batch, or their place.
    ///
    /// # Synchronization
    /// The copy is complete when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails, or its memory is full.
    pub fn to_device_of(self, images: impl Into<DeviceOf>) -> Result<Self> {
        match (&self.values, images.into().0) {
            (Place::Host(values), Some(pool)) => Ok(Self {
                values: Place::Device(OnDevice {
                    memory: Arc::new(pool.copy_beside(values.as_bytes())?),
                    offset_bytes: 0,
                    element: values.element(),
                    strides: contiguous(&self.shape),
                }),
                shape: self.shape,
            }),
            _ => Ok(self),
        }
    }

    /// Takes the values and the shape, for a library of your own: burn's `TensorData::new` takes both. Values on a
    /// device are copied, as by [`to_host`](Self::to_host).
    ///
    /// # Errors
    /// The errors of [`to_host`](Self::to_host).
    pub fn into_parts(self) -> Result<(FieldValues, Vec<usize>)> {
        let Self { values, shape } = self;
        let values = match values {
            Place::Host(values) => values,
            Place::Device(values) => values.to_host(&shape)?,
        };
        Ok((values, shape))
    }

    /// Gives the values another shape.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the shape has another number of values; [`Error::Unsupported`] if there are gaps between
    /// rows ([`BatchFields::mask_tensors`]).
    pub fn reshaped(self, shape: &[usize]) -> Result<Self> {
        let len: usize = self.shape.iter().product();
        if shape.iter().product::<usize>() != len {
            let expected = format!("one of {len} values");
            return Err(Error::parameter("FieldTensor::reshaped", "shape", expected, format!("{shape:?}")));
        }
        if self.strides() != contiguous(&self.shape) {
            let remedy = "copy it with to_host() first".to_owned();
            return Err(Error::Unsupported { feature: "another shape of masks with gaps".to_owned(), remedy });
        }
        let values = match self.values {
            Place::Device(values) => Place::Device(OnDevice { strides: contiguous(shape), ..values }),
            host @ Place::Host(_) => host,
        };
        Ok(Self { values, shape: shape.to_vec() })
    }

    /// Turns the tensor into a managed DLPack tensor, with the same type and shape. See
    /// [`Tensor::into_dlpack`](crate::Tensor::into_dlpack), also about synchronization. Values in host memory are
    /// copied once, to begin on a cache line. Values on a device are not copied, and share their memory with other
    /// tensors of the field, so they are to be read only.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than four dimensions; [`Error::OutOfMemory`] if there is no memory for the copy;
    /// [`Error::Device`] if the device fails.
    #[cfg(feature = "dlpack")]
    pub fn into_dlpack<M: dlpark::ManagedTensorBase>(self) -> Result<dlpark::Managed<M>> {
        self.managed(CudaBuffer::lend)
    }

    /// Makes a managed DLPack tensor for a consumer that names its stream, as
    /// [`Tensor::into_dlpack_on`](crate::Tensor::into_dlpack_on) does.
    ///
    /// # Safety
    /// See [`Tensor::into_dlpack_on`](crate::Tensor::into_dlpack_on).
    ///
    /// # Errors
    /// The errors of [`into_dlpack`](Self::into_dlpack); [`Error::Parameter`] for an invalid stream, and for every
    /// stream if the values are in host memory.
    #[cfg(feature = "dlpack")]
    #[allow(unsafe_code)]
    pub unsafe fn into_dlpack_on<M: dlpark::ManagedTensorBase>(
        self,
        stream: Option<isize>,
    ) -> Result<dlpark::Managed<M>> {
        dlpack::check_stream("FieldTensor::into_dlpack_on", stream, self.cuda().is_some())?;
        // SAFETY: this function's contract.
        self.managed(|buffer| unsafe { dlpack::lend_on(buffer, stream) })
    }

    #[cfg(feature = "dlpack")]
    fn managed<M: dlpark::ManagedTensorBase>(
        self,
        lend: impl FnOnce(&CudaBuffer) -> Result<u64>,
    ) -> Result<dlpark::Managed<M>> {
        let strides = self.strides();
        match (&self.shape[..], &strides[..]) {
            (&[a], &[i]) => self.values.managed([a], [i], lend),
            (&[a, b], &[i, j]) => self.values.managed([a, b], [i, j], lend),
            (&[a, b, c], &[i, j, k]) => self.values.managed([a, b, c], [i, j, k], lend),
            (&[a, b, c, d], &[i, j, k, l]) => self.values.managed([a, b, c, d], [i, j, k, l], lend),
            _ => Err(Error::Unsupported {
                feature: format!("DLPack for the shape {:?}", self.shape),
                remedy: "give it 1 to 4 dimensions (reshaped)".to_owned(),
            }),
        }
    }

    /// Turns the tensor into one of candle 0.11 on `device`, with the same shape. Masks of 16 bits become u32, as
    /// candle has no u16.
    ///
    /// # Synchronization
    /// The values are copied to a CUDA device before candle's later work there. Values on a device go through host
    /// memory, and are complete there when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if candle cannot copy them to `device`; the errors of [`to_host`](Self::to_host).
    #[cfg(feature = "candle")]
    pub fn into_candle(self, device: &candle_core::Device) -> Result<candle_core::Tensor> {
        use candle_core::Tensor;
        let (values, shape) = self.into_parts()?;
        match values {
            FieldValues::F32(values) => Tensor::from_vec(values, shape, device),
            FieldValues::I64(values) => Tensor::from_vec(values, shape, device),
            FieldValues::U32(values) => Tensor::from_vec(values, shape, device),
            FieldValues::U8(values) => Tensor::from_vec(values, shape, device),
            FieldValues::U16(values) => {
                Tensor::from_vec(values.into_iter().map(u32::from).collect::<Vec<_>>(), shape, device)
            }
        }
        .map_err(|error| super::candle::failed("FieldTensor::into_candle", &error))
    }
}

#[cfg(feature = "dlpack")]
impl Place {
    fn managed<M: dlpark::ManagedTensorBase, const N: usize>(
        self,
        shape: [usize; N],
        strides: [usize; N],
        lend: impl FnOnce(&CudaBuffer) -> Result<u64>,
    ) -> Result<dlpark::Managed<M>> {
        let values = match self {
            Self::Host(values) => values,
            Self::Device(OnDevice { memory, offset_bytes, element, .. }) => {
                // SAFETY: shape and strides are those of values in this memory (`joined`, `to_device_of`).
                #[allow(unsafe_code)]
                return unsafe { dlpack::managed_part((memory, offset_bytes), element.dlpack(), shape, strides, lend) };
            }
        };
        let (bytes, dtype) = (values.as_bytes(), values.element().dlpack());
        let mut buffer = HostBuffer::new(DType::U8, bytes.len())?;
        buffer.as_bytes_mut().copy_from_slice(bytes);
        dlpack::managed(Storage::Host(buffer), dtype, shape, strides, lend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{Boxes, Fields, KeyPoints, Mask};

    fn batch() -> BatchFields {
        let size = Size::new(3, 2);
        let image = |objects: usize| {
            let points = (0..2 * objects).map(|i| [i as f32, 0.5]).collect();
            let planes = (0..objects).map(|i| vec![i as u8; 6]);
            let fields = Fields::new()
                .with("boxes", Boxes::new(BoxFormat::Xywh, vec![[1.0, 0.0, 1.0, 2.0]; objects]))
                .and_then(|fields| fields.with("labels", vec![objects as i64; objects]))
                .and_then(|fields| fields.with("keypoints", KeyPoints::of_objects(2, points, vec![2; 2 * objects])?))
                .and_then(|fields| fields.with("points", KeyPoints::of_image(vec![[1.0, 1.0]])))
                .and_then(|fields| fields.with("masks", Mask::of_objects(size, planes)?))
                .and_then(|fields| fields.with("mask", Mask::new(size, vec![objects as u16 * 1000; 6])?));
            (fields.unwrap(), size)
        };
        BatchFields::new(vec![image(1), image(0), image(2)])
    }

    fn tensors() -> Vec<(&'static str, FieldTensor, Vec<usize>)> {
        let batch = batch();
        vec![
            ("boxes", batch.box_tensor(BoxFormat::Xyxy).unwrap(), vec![3, 4]),
            ("labels", batch.integers("labels").unwrap().into(), vec![3]),
            ("batch indices", batch.batch_indices().into(), vec![3]),
            ("keypoints", batch.keypoint_tensor("keypoints").unwrap(), vec![3, 2, 3]),
            ("points", batch.keypoint_tensor("points").unwrap(), vec![3, 1, 3]),
            ("masks", batch.mask_tensor("masks").unwrap(), vec![3, 2, 3]),
            ("mask", batch.mask_tensor("mask").unwrap(), vec![3, 2, 3]),
            ("padded", batch.padded_mask_tensor("mask", Size::new(4, 4)).unwrap(), vec![3, 4, 4]),
            ("no objects", Vec::<[f32; 4]>::new().into(), vec![0, 4]),
        ]
    }

    #[test]
    fn each_image_has_the_masks_of_its_own_objects() {
        let each = batch().mask_tensors("masks").unwrap();
        assert_eq!(each.iter().map(FieldTensor::shape).collect::<Vec<_>>(), [[1, 2, 3], [0, 2, 3], [2, 2, 3]]);
        assert_eq!(each[2].values().unwrap(), &FieldValues::U8([[0; 6], [1; 6]].concat()));
        assert!(batch().mask_tensors("labels").is_err());
    }

    #[test]
    fn tensors_have_the_values_and_shapes_of_their_fields() {
        for (name, tensor, shape) in tensors() {
            assert_eq!(tensor.shape(), shape, "{name}");
            let len = match tensor.values().unwrap() {
                FieldValues::F32(values) => values.len(),
                FieldValues::I64(values) => values.len(),
                FieldValues::U32(values) => values.len(),
                FieldValues::U8(values) => values.len(),
                FieldValues::U16(values) => values.len(),
            };
            assert_eq!(len, shape.iter().product::<usize>(), "{name}");
        }
        let boxes = batch().box_tensor(BoxFormat::Xyxy).unwrap();
        assert_eq!(boxes.values().unwrap(), &FieldValues::F32([1.0, 0.0, 2.0, 2.0].repeat(3)));
        assert!(boxes.clone().reshaped(&[2, 5]).unwrap_err().is_parameter());
        assert_eq!(boxes.reshaped(&[12]).unwrap().shape(), [12]);
        // A batch without objects.
        let none = BatchFields::new(vec![(
            Fields::new().with("boxes", Boxes::new(BoxFormat::Xyxy, Vec::new())).unwrap(),
            Size::new(1, 1),
        )]);
        assert_eq!(none.box_tensor(BoxFormat::Xyxy).unwrap().shape(), [0, 4]);
        // An image without objects does not say how many points an object has.
        let image = |per_object, points: usize| {
            let points = KeyPoints::of_objects(per_object, vec![[0.5, 0.5]; points], vec![2; points]).unwrap();
            (Fields::new().with("keypoints", points).unwrap(), Size::new(1, 1))
        };
        let shape = |images| BatchFields::new(images).keypoint_tensor("keypoints").unwrap().shape().to_vec();
        assert_eq!(shape(vec![image(1, 0), image(3, 6)]), [2, 3, 3]);
        assert_eq!(shape(vec![image(3, 0)]), [0, 3, 3]);
    }

    #[test]
    fn rows_are_padded_for_each_image() {
        // Images of 1, 0 and 2 objects.
        let (batch, f32s) = (batch(), |tensor: &FieldTensor| match tensor.values().unwrap() {
            FieldValues::F32(values) => values.clone(),
            other => panic!("{other:?}"),
        });
        let keypoints = batch.padded_rows(batch.keypoint_tensor("keypoints").unwrap(), 2).unwrap();
        assert_eq!(keypoints.shape(), [3, 2, 2, 3]);
        let (own, none) = ([0.0, 0.5, 2.0, 1.0, 0.5, 2.0], [0.0; 6]);
        let second = [2.0, 0.5, 2.0, 3.0, 0.5, 2.0];
        assert_eq!(f32s(&keypoints), [own, none, none, none, own, second].concat());
        let boxes = batch.padded_rows(batch.box_tensor(BoxFormat::Xywh).unwrap(), 1).unwrap();
        let one = [1.0, 0.0, 1.0, 2.0];
        assert_eq!((boxes.shape(), f32s(&boxes)), (&[3, 1, 4][..], [one, [0.0; 4], one].concat()));
        let masks = batch.padded_rows(batch.mask_tensor("masks").unwrap(), 3).unwrap();
        assert_eq!(masks.shape(), [3, 3, 2, 3]);
        assert!(batch.padded_rows(batch.mask_tensor("mask").unwrap(), 3).is_ok(), "as many images as objects");
        assert!(batch.padded_rows(vec![7_i64, 3], 3).unwrap_err().is_parameter());
    }

    #[test]
    #[cfg(feature = "dlpack")]
    #[allow(unsafe_code)]
    fn dlpack_has_the_same_bytes() {
        for (name, tensor, shape) in tensors() {
            let (want, bits): (Vec<u8>, u8) = match tensor.values().unwrap() {
                FieldValues::F32(values) => (bytemuck::cast_slice(values).to_vec(), 32),
                FieldValues::I64(values) => (bytemuck::cast_slice(values).to_vec(), 64),
                FieldValues::U32(values) => (bytemuck::cast_slice(values).to_vec(), 32),
                FieldValues::U8(values) => (values.clone(), 8),
                FieldValues::U16(values) => (bytemuck::cast_slice(values).to_vec(), 16),
            };
            let shared: dlpark::versioned::Dlpack = tensor.into_dlpack().unwrap();
            let view = shared.validate().expect("it is well formed");
            let own: Vec<usize> = view.shape().iter().map(|side| *side as usize).collect();
            assert_eq!((own, view.num_bytes(), view.dtype().bits), (shape, want.len(), bits), "{name}");
            assert_eq!(view.data_ptr().addr() % 64, 0, "{name}");
            // SAFETY: the tensor is in host memory and has this number of bytes, for as long as `shared` lives.
            let bytes = unsafe { std::slice::from_raw_parts(view.data_ptr().cast::<u8>(), want.len()) };
            assert_eq!(bytes, want, "{name}");
        }
    }

    #[test]
    #[cfg(feature = "candle")]
    fn candle_has_the_same_values() {
        let device = candle_core::Device::Cpu;
        for (name, tensor, shape) in tensors() {
            let values = tensor.values().unwrap().clone();
            let tensor = tensor.into_candle(&device).unwrap();
            assert_eq!(tensor.dims(), shape, "{name}");
            let flat = tensor.flatten_all().unwrap();
            match values {
                FieldValues::F32(values) => assert_eq!(flat.to_vec1::<f32>().unwrap(), values),
                FieldValues::I64(values) => assert_eq!(flat.to_vec1::<i64>().unwrap(), values),
                FieldValues::U32(values) => assert_eq!(flat.to_vec1::<u32>().unwrap(), values),
                FieldValues::U8(values) => assert_eq!(flat.to_vec1::<u8>().unwrap(), values),
                FieldValues::U16(values) => {
                    assert_eq!(flat.to_vec1::<u32>().unwrap(), values.into_iter().map(u32::from).collect::<Vec<_>>());
                }
            }
        }
    }
}
