//! The targets of a batch.

use super::{DType, Storage};
use crate::cuda::CudaBuffer;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::mix::MixPlan;
use crate::targets::{Annotation, Form, Target, TargetSpec, TargetType};
use bytemuck::Pod;

/// The targets of a batch, in the order of its images.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::{Target, TargetSpec, Targets, image::{Image, JpegOptions, encode_jpeg}};
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new([(jpeg.clone(), 0), (jpeg, 1)])
///     .with_targets("box", [Target::Floats(vec![0.5, 1.0]), Target::Bytes(b"2 3".to_vec())])?;
/// let pipeline = Pipeline::builder(source).targets(TargetSpec::floats(2).field("box")).transform(CenterCrop::new(8)).build()?;
/// let batch = pipeline.epoch(0).next().unwrap()?;
/// let Some(Targets::Numbers(boxes)) = batch.targets() else { unreachable!("they were asked for") };
/// assert_eq!((boxes.shape(), boxes.to_host()?.as_slice::<f32>()?), ([2, 2], &[0.5, 1.0, 2.0, 3.0][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug)]
pub enum Targets {
    /// The same number of values for each image, on the images' device.
    Numbers(TargetTensor),
    /// Bytes of any length for each image, in host memory.
    Bytes(TargetBytes),
}

/// A Rust type that a target's numbers can be read as.
pub trait TargetElement: Pod {
    /// The matching [`TargetType`].
    const TYPE: TargetType;
}

impl TargetElement for f32 {
    const TYPE: TargetType = TargetType::F32;
}
impl TargetElement for u32 {
    const TYPE: TargetType = TargetType::U32;
}

/// Numbers of shape `[N, K]`: contiguous, in host memory or on a device. When dropped, the memory goes back to the
/// pipeline that it came from.
#[derive(Debug)]
pub struct TargetTensor {
    storage: Storage,
    shape: [usize; 2],
    element: TargetType,
}

impl TargetTensor {
    /// The shape `[N, K]`: K numbers for each of N images.
    #[must_use]
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// The type of the numbers.
    #[must_use]
    pub fn element(&self) -> TargetType {
        self.element
    }

    /// The device that holds the numbers. [`Device::Cpu`] is host memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The device memory that holds the numbers; `None` if they are in host memory.
    #[must_use]
    pub fn cuda(&self) -> Option<&CudaBuffer> {
        self.storage.cuda()
    }

    /// All numbers as bytes in the machine's byte order.
    #[doc(hidden)]
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.storage.as_bytes(self.len_bytes())
    }

    /// All numbers. The first image's come first.
    ///
    /// # Errors
    /// [`Error::Parameter`] if `T` is not the tensor's type; [`Error::Unsupported`] if the tensor is on a device:
    /// [`to_host`](Self::to_host) copies it.
    pub fn as_slice<T: TargetElement>(&self) -> Result<&[T]> {
        if T::TYPE != self.element {
            let expected = format!("the tensor's {:?}", self.element);
            return Err(Error::parameter("TargetTensor::as_slice", "T", expected, format!("{:?}", T::TYPE)));
        }
        Ok(bytemuck::cast_slice(self.as_bytes()?))
    }

    /// Copies the tensor to host memory. The copy is complete when this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if a device fails; [`Error::OutOfMemory`] if there is no memory for the copy.
    pub fn to_host(&self) -> Result<Self> {
        let copy = self.storage.to_host(DType::F32, self.len_bytes())?;
        Ok(Self { storage: Storage::Host(copy), ..*self })
    }

    /// Turns the tensor into a managed DLPack tensor of two dimensions over the same memory. See
    /// [`Tensor::into_dlpack`](crate::Tensor::into_dlpack).
    ///
    /// # Synchronization
    /// See [`Tensor::into_dlpack`](crate::Tensor::into_dlpack).
    ///
    /// # Errors
    /// The errors of [`Tensor::into_dlpack`](crate::Tensor::into_dlpack).
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
    /// The errors of [`Tensor::into_dlpack_on`](crate::Tensor::into_dlpack_on).
    #[cfg(feature = "dlpack")]
    #[allow(unsafe_code)]
    pub unsafe fn into_dlpack_on<M: dlpark::ManagedTensorBase>(
        self,
        stream: Option<isize>,
    ) -> Result<dlpark::Managed<M>> {
        super::dlpack::check_stream("TargetTensor::into_dlpack_on", stream, self.cuda().is_some())?;
        // SAFETY: this function's contract.
        self.managed(|buffer| unsafe { super::dlpack::lend_on(buffer, stream) })
    }

    #[cfg(feature = "dlpack")]
    fn managed<M: dlpark::ManagedTensorBase>(
        self,
        lend: impl FnOnce(&CudaBuffer) -> Result<u64>,
    ) -> Result<dlpark::Managed<M>> {
        let dtype = match self.element {
            TargetType::F32 => dlpark::ffi::DLDataType::F32,
            TargetType::U32 => dlpark::ffi::DLDataType::U32,
        };
        super::dlpack::managed(self.storage, dtype, self.shape, [self.shape[1], 1], lend)
    }

    /// Copies the tensor to one of candle 0.11 on `device`, through host memory if it is on a device.
    ///
    /// # Synchronization
    /// The given tensor may be used as soon as this returns.
    ///
    /// # Errors
    /// [`Error::Device`] if candle cannot copy the tensor to `device`.
    #[cfg(feature = "candle")]
    pub fn into_candle(self, device: &candle_core::Device) -> Result<candle_core::Tensor> {
        let host = if self.cuda().is_some() { self.to_host()? } else { self };
        let shape = host.shape;
        match host.element {
            TargetType::F32 => candle_core::Tensor::from_slice(host.as_slice::<f32>()?, &shape, device),
            TargetType::U32 => candle_core::Tensor::from_slice(host.as_slice::<u32>()?, &shape, device),
        }
        .map_err(|error| super::candle::failed("TargetTensor::into_candle", &error))
    }

    fn len_bytes(&self) -> usize {
        4 * self.shape[0] * self.shape[1]
    }
}

/// Bytes of any length for each image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetBytes {
    values: Vec<u8>,
    offsets: Vec<u64>,
}

impl TargetBytes {
    /// The bytes of all images, one after the other.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// The offset of each image's bytes in [`values`](Self::values), and the end of the last: one entry more than
    /// images.
    #[must_use]
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The bytes of image `i`; `None` if the batch has no such image.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let (start, end) = (*self.offsets.get(i)?, *self.offsets.get(i + 1)?);
        self.values.get(start as usize..end as usize)
    }
}

/// The labels and targets of a batch's samples, in host memory while the batch is made.
pub(crate) struct Annotations {
    /// The labels. If samples have none, they are zeros, which are not delivered.
    labels: Vec<u32>,
    labeled: bool,
    /// `None` if no targets were asked for.
    rows: Option<Rows>,
}

impl Annotations {
    /// The annotations of a batch's samples, which have labels if the first one does.
    pub(crate) fn new(spec: Option<&TargetSpec>, samples: Vec<Annotation>) -> Self {
        let labeled = samples.first().is_some_and(|sample| sample.label.is_some());
        debug_assert!(samples.iter().all(|sample| sample.label.is_some() == labeled));
        let labels = samples.iter().map(|sample| sample.label.unwrap_or(0)).collect();
        Self {
            labels,
            labeled,
            rows: spec.map(|spec| Rows::new(spec, samples.into_iter().filter_map(|sample| sample.target))),
        }
    }

    /// Annotations of images without any.
    pub(crate) fn none(samples: usize) -> Self {
        Self { labels: vec![0; samples], labeled: false, rows: None }
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// The labels, as a device has them: zeros if samples have none.
    pub(crate) fn labels_or_zeros(&self) -> &[u32] {
        &self.labels
    }

    /// The labels; `None` if samples have none.
    pub(crate) fn labels(&self) -> Option<&[u32]> {
        self.labeled.then_some(&self.labels[..])
    }

    /// Mixes f32 targets by the weights of the mixed images.
    pub(crate) fn mix(&mut self, plan: &MixPlan) {
        if let Some(Rows::Floats(rows)) = &mut self.rows {
            plan.mix_rows(rows);
        }
    }

    /// Targets that are numbers, as bytes, which the back end copies to the images' device.
    pub(crate) fn numbers(&self) -> Option<&[u8]> {
        match self.rows.as_ref()? {
            Rows::Classes(classes) => Some(bytemuck::cast_slice(classes)),
            Rows::Floats(floats) => Some(bytemuck::cast_slice(floats)),
            Rows::Bytes(_) => None,
        }
    }

    /// The batch's labels and targets. `storage`: the back end's copy of [`numbers`](Self::numbers).
    pub(crate) fn finish(self, storage: Option<Storage>) -> (Option<Vec<u32>>, Option<Targets>) {
        let images = self.labels.len();
        let numbers = |element, len: usize| {
            let shape = [images, len / images.max(1)];
            storage.map(|storage| Targets::Numbers(TargetTensor { storage, shape, element }))
        };
        let targets = self.rows.and_then(|rows| match rows {
            Rows::Bytes(bytes) => Some(Targets::Bytes(bytes)),
            Rows::Classes(classes) => numbers(TargetType::U32, classes.len()),
            Rows::Floats(floats) => numbers(TargetType::F32, floats.len()),
        });
        (self.labeled.then_some(self.labels), targets)
    }
}

/// The targets of a batch's samples, one after the other.
enum Rows {
    Classes(Vec<u32>),
    Floats(Vec<f32>),
    Bytes(TargetBytes),
}

impl Rows {
    fn new(spec: &TargetSpec, rows: impl Iterator<Item = Target>) -> Self {
        match spec.form {
            Form::Class { .. } => {
                Self::Classes(rows.map(|row| if let Target::Class(class) = row { class } else { 0 }).collect())
            }
            Form::Bytes => {
                let mut bytes = TargetBytes { values: Vec::new(), offsets: vec![0] };
                for row in rows {
                    if let Target::Bytes(row) = row {
                        bytes.values.extend(row);
                    }
                    bytes.offsets.push(bytes.values.len() as u64);
                }
                Self::Bytes(bytes)
            }
            Form::MultiHot { .. } | Form::Floats { .. } | Form::Soft { .. } => {
                let mut floats = Vec::new();
                for row in rows {
                    if let Target::Floats(row) = row {
                        floats.extend(row);
                    }
                }
                Self::Floats(floats)
            }
        }
    }
}
