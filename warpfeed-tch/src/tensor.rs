//! Conversion of batches to libtorch's tensors, without a copy, by `at::fromDLPack`, which tch does not have.
//! `Tensor::from_blob` would not report when the last view is gone.
#![allow(unsafe_code)]

use dlpark::ffi::DLManagedTensor;
use dlpark::legacy::Dlpack;
use warpfeed::{Batch, CudaBuffer, Error, FieldTensor, FieldValues, Result, TargetTensor, TargetType};

/// Converts warpfeed's batches to tch's tensors.
///
/// A tensor owns the memory that the pipeline filled. The memory goes back to the pipeline when the last tensor that
/// shares it is dropped, on any thread. Views of it, and tensors that libtorch keeps for gradients, share it too.
///
/// ```
/// use warpfeed::prelude::*;
/// use warpfeed::image::{Image, JpegOptions, encode_jpeg};
/// use warpfeed_tch::IntoTch;
///
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..3).map(|label| (jpeg.clone(), label)));
/// let pipeline = Pipeline::builder(source).batch_size(4).transform(CenterCrop::new(8)).build()?;
/// let (images, labels) = pipeline.epoch(0).next().unwrap()?.into_tch()?;
/// assert_eq!((images.size(), images.kind()), (vec![3, 3, 8, 8], tch::Kind::Float));
/// assert_eq!(Vec::<i64>::try_from(labels).unwrap(), [0, 1, 2]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait IntoTch {
    /// The resulting type.
    type Tch;

    /// Converts to tensors of tch over the same memory, in host memory or on a CUDA device.
    ///
    /// # Synchronization
    /// Returns at once. On a CUDA device libtorch works on the legacy default stream. Work that is queued there after
    /// this call finds the tensor complete. When the last tensor is dropped, the pipeline reuses the memory after the
    /// work that is queued there by then.
    ///
    /// # Errors
    /// [`Error::Device`] if libtorch lacks the device or refuses the tensor; [`Error::Unsupported`] for integers as
    /// targets.
    fn into_tch(self) -> Result<Self::Tch>;
}

/// Images, `[N, C, H, W]` or `[N, H, W, C]`, in their own type. tch has no `u16`: these become 32-bit integers, by a copy.
impl IntoTch for warpfeed::Tensor {
    type Tch = tch::Tensor;

    fn into_tch(self) -> Result<tch::Tensor> {
        self.cuda().map_or(Ok(()), has_device)?;
        if self.dtype() == warpfeed::DType::U16 {
            return wide(&self);
        }
        // SAFETY: `None` names the legacy default stream, which is always there.
        adopt(unsafe { self.into_dlpack_on(None)? })
    }
}

/// Numbers of 16 bits as 32-bit integers, on the same device.
fn wide(tensor: &warpfeed::Tensor) -> Result<tch::Tensor> {
    let device = tensor.cuda().map_or(tch::Device::Cpu, |cuda| tch::Device::Cuda(cuda.ordinal() as usize));
    let host = tensor.to_host()?;
    let values: Vec<i32> = host.as_slice::<u16>()?.iter().map(|value| i32::from(*value)).collect();
    let shape = host.shape().map(|side| side as i64);
    let made = tch::Tensor::f_from_slice(&values).and_then(|made| made.f_reshape(shape)?.f_to_device(device));
    made.map_err(|error| failed("widen images of 16 bits", error))
}

/// Float targets, `[N, K]`.
impl IntoTch for TargetTensor {
    type Tch = tch::Tensor;

    fn into_tch(self) -> Result<tch::Tensor> {
        if self.element() != TargetType::F32 {
            return Err(Error::Unsupported {
                feature: "whole numbers as libtorch's targets".to_owned(),
                remedy: "ask for floats (TargetSpec::floats, soft), or copy as_slice::<u32>()".to_owned(),
            });
        }
        if let Some(cuda) = self.cuda() {
            has_device(cuda)?;
            // SAFETY: null is the legacy default stream, which is always there.
            unsafe { cuda.on_raw_stream(std::ptr::null_mut())? };
        }
        adopt(self.into_dlpack()?)
    }
}

/// Values of a batch's fields, in their shape: boxes, keypoints, labels, masks. Masks of 8 bits on a CUDA device stay
/// where they are, and so do floats and labels that `FieldTensor::to_device_of` has copied to the images' device. All
/// else is copied once, and values in host memory stay there. tch has no unsigned numbers but bytes, so masks of 16
/// bits and numbers of images become 64-bit integers.
///
/// ```
/// use warpfeed::FieldTensor;
/// use warpfeed_tch::IntoTch;
///
/// // As of `BatchFields::boxes` and `BatchFields::batch_indices`.
/// let boxes = FieldTensor::from(vec![[10.0, 5.0, 30.0, 25.0], [0.0, 0.0, 8.0, 9.0]]).into_tch()?;
/// let images = FieldTensor::from(vec![0_u32, 2]).into_tch()?;
/// assert_eq!((boxes.size(), boxes.kind()), (vec![2, 4], tch::Kind::Float));
/// assert_eq!(Vec::<i64>::try_from(images).unwrap(), [0, 2]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
impl IntoTch for FieldTensor {
    type Tch = tch::Tensor;

    fn into_tch(self) -> Result<tch::Tensor> {
        self.cuda().map_or(Ok(()), has_device)?;
        let device = self.cuda().map(|cuda| tch::Device::Cuda(cuda.ordinal() as usize));
        if device.is_some() && matches!(self.type_name(), "uint8" | "float32" | "int64") {
            // SAFETY: `None` names the legacy default stream, which is always there.
            return adopt(unsafe { self.into_dlpack_on(None)? });
        }
        let host = if device.is_some() { self.to_host()? } else { self };
        let wide: Option<Vec<i64>> = match host.values()? {
            FieldValues::U16(values) => Some(values.iter().copied().map(i64::from).collect()),
            FieldValues::U32(values) => Some(values.iter().copied().map(i64::from).collect()),
            _ => None,
        };
        let tensor = match wide {
            Some(values) => Self::from(values).reshaped(host.shape())?,
            None => host,
        };
        let tensor = adopt(tensor.into_dlpack()?)?;
        match device {
            Some(device) => tensor.f_to_device(device).map_err(|error| failed("copy masks", error)),
            None => Ok(tensor),
        }
    }
}

/// Images and labels (`[N]`, 64-bit integers), without the batch's padding. With several views, the images of the first
/// view. A batch with targets is refused until they are taken out ([`Batch::take_targets`]), and so is one of a source
/// without labels: use `into_images().into_tch()`.
impl IntoTch for Batch {
    type Tch = (tch::Tensor, tch::Tensor);

    fn into_tch(self) -> Result<Self::Tch> {
        self.check_targets_taken("Batch::into_tch")?;
        let count = self.len() - self.padding();
        let labels = self.labels()?;
        let labels = match self.images().cuda() {
            Some(cuda) => labels_on_device(cuda, count),
            None => {
                let labels: Vec<i64> = labels[..count].iter().map(|&label| label.into()).collect();
                tch::Tensor::f_from_slice(&labels).map_err(|error| failed("make a tensor of labels", error))
            }
        }?;
        let all = self.len();
        let images = self.into_images().into_tch()?;
        // A view has the first images of all samples, then the second ones, and so on.
        let times = images.size()[0] / all as i64;
        let parts =
            (0..times).map(|time| images.f_narrow(0, time * all as i64, count as i64)).collect::<Result<Vec<_>, _>>();
        let images =
            parts.and_then(|mut parts| if times == 1 { Ok(parts.remove(0)) } else { tch::Tensor::f_cat(&parts, 0) });
        Ok((images.map_err(|error| failed("leave out padding", error))?, labels))
    }
}

/// Copies the labels, which follow the images in device memory as 32-bit numbers.
fn labels_on_device(cuda: &CudaBuffer, count: usize) -> Result<tch::Tensor> {
    has_device(cuda)?;
    // SAFETY: null is the legacy default stream, which is always there.
    unsafe { cuda.on_raw_stream(std::ptr::null_mut())? };
    let (labels, device) = (cuda.labels_address()? as *const u8, tch::Device::Cuda(cuda.ordinal() as usize));
    // SAFETY: as many numbers lie there. This tensor is gone when the function returns; the copy of it is queued on the
    // legacy default stream, which the buffer waits for when it is dropped. libtorch counts with no unsigned numbers;
    // labels are below 2^31, being below the number of classes.
    let labels = unsafe { tch::Tensor::f_from_blob(labels, &[count as i64], &[1], tch::Kind::Int, device) };
    labels.and_then(|labels| labels.f_to_kind(tch::Kind::Int64)).map_err(|error| failed("copy labels", error))
}

/// Checks that libtorch can use the device that holds a batch.
fn has_device(cuda: &CudaBuffer) -> Result<()> {
    if i64::from(cuda.ordinal()) < tch::Cuda::device_count() {
        return Ok(());
    }
    let message = format!(
        "libtorch sees no CUDA device {}: link libtorch with CUDA, or copy the batch with to_host() first",
        cuda.ordinal()
    );
    Err(Error::Device { call: "give a batch to libtorch".to_owned(), message })
}

unsafe extern "C" {
    /// Returns null if libtorch refuses the tensor.
    fn warpfeed_tch_from_dlpack(managed: *mut DLManagedTensor) -> *mut torch_sys::C_tensor;
}

/// Makes a libtorch tensor that takes over DLPack's managed tensor.
fn adopt(managed: Dlpack) -> Result<tch::Tensor> {
    // SAFETY: well formed, and libtorch's from here on, which calls the deleter once.
    let tensor = unsafe { warpfeed_tch_from_dlpack(managed.into_raw()) };
    if tensor.is_null() {
        let message = "libtorch refuses its type or device".to_owned();
        return Err(Error::Device { call: "give a batch to libtorch".to_owned(), message });
    }
    // SAFETY: a new tensor, made as tch's own are, and tch's from here on.
    Ok(unsafe { tch::Tensor::from_ptr(tensor) })
}

/// Turns libtorch's error into ours, without its pages of C++ frames.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(call: &str, error: tch::TchError) -> Error {
    let text = error.to_string();
    Error::Device { call: call.to_owned(), message: text.lines().next().unwrap_or_default().to_owned() }
}
