//! Values of a batch's fields, for trainers.

#[cfg(feature = "dlpack")]
use super::{DType, HostBuffer, Storage};
use crate::error::{Error, Result};
use crate::fields::{BatchFields, BoxFormat, Field, MaskValues};
use crate::raster::Size;

/// Values of a batch's fields with a shape, in host memory, to be handed to a trainer. [`BatchFields`] makes the values,
/// and this type tensors of them.
///
/// ```
/// use warpfeed::{FieldTensor, FieldValues};
///
/// // As of `BatchFields::boxes` and `BatchFields::integers`.
/// let boxes = FieldTensor::from(vec![[10.0, 5.0, 30.0, 25.0], [0.0, 0.0, 8.0, 9.0]]);
/// let labels = FieldTensor::from(vec![7_i64, 3]);
/// assert_eq!((boxes.shape(), labels.shape()), (&[2, 4][..], &[2][..]));
/// assert_eq!(labels.values(), &FieldValues::I64(vec![7, 3]));
/// # #[cfg(feature = "dlpack")] {
/// let shared: dlpark::versioned::Dlpack = boxes.into_dlpack()?;
/// assert_eq!(shared.validate().expect("it is well formed").shape(), [2, 4]);
/// # }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTensor {
    values: FieldValues,
    shape: Vec<usize>,
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

impl FieldValues {
    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U8(values) => values.len(),
            Self::U16(values) => values.len(),
        }
    }
}

/// One row of numbers for each object: `[T, K]`, such as boxes and keypoints.
impl<const K: usize> From<Vec<[f32; K]>> for FieldTensor {
    fn from(rows: Vec<[f32; K]>) -> Self {
        Self { shape: vec![rows.len(), K], values: FieldValues::F32(rows.into_flattened()) }
    }
}

macro_rules! from_numbers {
    ($($name:ident: $type:ty,)*) => {$(
        /// One number for each object or image: `[T]`.
        impl From<Vec<$type>> for FieldTensor {
            fn from(values: Vec<$type>) -> Self {
                Self { shape: vec![values.len()], values: FieldValues::$name(values) }
            }
        }
    )*};
}

from_numbers! {
    F32: f32,
    I64: i64,
    U32: u32,
}

impl BatchFields {
    /// All boxes in this format, in pixels: `[T, 4]`, f32.
    ///
    /// # Errors
    /// As of [`boxes`](Self::boxes).
    pub fn box_tensor(&self, format: BoxFormat) -> Result<FieldTensor> {
        self.boxes(format).map(FieldTensor::from)
    }

    /// The keypoints of all objects: `[T, K, 3]`, f32, where an object has K points; `[T, 1, 3]` for points of images.
    ///
    /// # Errors
    /// As of [`keypoints`](Self::keypoints).
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

    /// All masks on images of one size, one plane after the other: `[N, H, W]`, or `[T, H, W]` for masks of objects; u8 or
    /// u16.
    ///
    /// # Errors
    /// As of [`masks`](Self::masks).
    pub fn mask_tensor(&self, name: &str) -> Result<FieldTensor> {
        let size = self.sizes().first().copied().unwrap_or(Size::new(0, 0));
        Ok(of_masks(self.masks(name)?, size))
    }

    /// The masks of each image, whose sizes may differ: `[1, H, W]`, or `[K, H, W]` for masks of K objects.
    ///
    /// # Errors
    /// As of [`masks`](Self::masks).
    pub fn mask_tensors(&self, name: &str) -> Result<Vec<FieldTensor>> {
        let alone = |(i, size)| Self::new(self.image(i).map(|fields| (fields.clone(), size)).into_iter().collect());
        self.sizes().into_iter().enumerate().map(|image| alone(image).mask_tensor(name)).collect()
    }

    /// All masks on images of size `size`, as [`padded_masks`](Self::padded_masks) has them: `[N, H, W]` or `[T, H, W]`.
    ///
    /// # Errors
    /// As of [`padded_masks`](Self::padded_masks).
    pub fn padded_mask_tensor(&self, name: &str, size: Size) -> Result<FieldTensor> {
        Ok(of_masks(self.padded_masks(name, size)?, size))
    }
}

fn of_masks(values: MaskValues, size: Size) -> FieldTensor {
    let planes = values.len().checked_div(size.area_px() as usize).unwrap_or(0);
    let shape = vec![planes, size.height as usize, size.width as usize];
    let values = match values {
        MaskValues::U8(values) => FieldValues::U8(values),
        MaskValues::U16(values) => FieldValues::U16(values),
    };
    FieldTensor { values, shape }
}

impl FieldTensor {
    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values, row by row.
    #[must_use]
    pub fn values(&self) -> &FieldValues {
        &self.values
    }

    /// Takes the values and the shape, for a library of your own: burn's `TensorData::new` takes both.
    #[must_use]
    pub fn into_parts(self) -> (FieldValues, Vec<usize>) {
        (self.values, self.shape)
    }

    /// Gives the values another shape.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the shape has another number of values.
    pub fn reshaped(self, shape: &[usize]) -> Result<Self> {
        if shape.iter().product::<usize>() != self.values.len() {
            let expected = format!("one of {} values", self.values.len());
            return Err(Error::parameter("FieldTensor::reshaped", "shape", expected, format!("{shape:?}")));
        }
        Ok(Self { shape: shape.to_vec(), ..self })
    }

    /// Turns the tensor into a managed DLPack tensor in host memory, with the same type and shape. See
    /// [`Tensor::into_dlpack`](crate::Tensor::into_dlpack). The values are copied once, to begin on a cache line.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than four dimensions; [`Error::OutOfMemory`] if there is no memory for the copy.
    #[cfg(feature = "dlpack")]
    pub fn into_dlpack<M: dlpark::ManagedTensorBase>(self) -> Result<dlpark::Managed<M>> {
        use dlpark::ffi::DLDataType;
        let (bytes, dtype): (&[u8], _) = match &self.values {
            FieldValues::F32(values) => (bytemuck::cast_slice(values), DLDataType::F32),
            FieldValues::I64(values) => (bytemuck::cast_slice(values), DLDataType::I64),
            FieldValues::U32(values) => (bytemuck::cast_slice(values), DLDataType::U32),
            FieldValues::U8(values) => (values, DLDataType::U8),
            FieldValues::U16(values) => (bytemuck::cast_slice(values), DLDataType::U16),
        };
        let mut buffer = HostBuffer::new(DType::U8, bytes.len())?;
        buffer.as_bytes_mut().copy_from_slice(bytes);
        let storage = Storage::Host(buffer);
        let lend = crate::cuda::CudaBuffer::lend;
        match self.shape[..] {
            [a] => super::dlpack::managed(storage, dtype, [a], [1], lend),
            [a, b] => super::dlpack::managed(storage, dtype, [a, b], [b, 1], lend),
            [a, b, c] => super::dlpack::managed(storage, dtype, [a, b, c], [b * c, c, 1], lend),
            [a, b, c, d] => super::dlpack::managed(storage, dtype, [a, b, c, d], [b * c * d, c * d, d, 1], lend),
            _ => Err(Error::Unsupported {
                feature: format!("DLPack for the shape {:?}", self.shape),
                remedy: "give it 1 to 4 dimensions (reshaped)".to_owned(),
            }),
        }
    }

    /// Turns the tensor into one of candle 0.11 on `device`, with the same shape. Masks of 16 bits become u32, as candle
    /// has no u16.
    ///
    /// # Synchronization
    /// The values are copied to a CUDA device before candle's later work there.
    ///
    /// # Errors
    /// [`Error::Device`] if candle cannot copy them to `device`.
    #[cfg(feature = "candle")]
    pub fn into_candle(self, device: &candle_core::Device) -> Result<candle_core::Tensor> {
        use candle_core::Tensor;
        let Self { values, shape } = self;
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
        assert_eq!(each[2].values(), &FieldValues::U8([[0; 6], [1; 6]].concat()));
        assert!(batch().mask_tensors("labels").is_err());
    }

    #[test]
    fn tensors_have_the_values_and_shapes_of_their_fields() {
        for (name, tensor, shape) in tensors() {
            assert_eq!(tensor.shape(), shape, "{name}");
            assert_eq!(tensor.values().len(), shape.iter().product::<usize>(), "{name}");
        }
        let boxes = batch().box_tensor(BoxFormat::Xyxy).unwrap();
        assert_eq!(boxes.values(), &FieldValues::F32([1.0, 0.0, 2.0, 2.0].repeat(3)));
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
    #[cfg(feature = "dlpack")]
    #[allow(unsafe_code)]
    fn dlpack_has_the_same_bytes() {
        for (name, tensor, shape) in tensors() {
            let (want, bits): (Vec<u8>, u8) = match tensor.values() {
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
            // SAFETY: the tensor is in host memory and has so many bytes, for as long as `shared` lives.
            let bytes = unsafe { std::slice::from_raw_parts(view.data_ptr().cast::<u8>(), want.len()) };
            assert_eq!(bytes, want, "{name}");
        }
    }

    #[test]
    #[cfg(feature = "candle")]
    fn candle_has_the_same_values() {
        let device = candle_core::Device::Cpu;
        for (name, tensor, shape) in tensors() {
            let values = tensor.values().clone();
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
