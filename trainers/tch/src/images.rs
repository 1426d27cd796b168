//! A batch as tensors of libtorch, without a copy.
#![allow(unsafe_code)]

use warpfeed::{Batch, DType, Error, Layout, Result};

/// Calls `train` with the images without padding, `[N, 3, H, W]` with the batch's strides, and their labels, `[N]` of
/// 64 bits. Both are where the batch is: in host memory or on its CUDA device. There libtorch works on the legacy
/// default stream, which waits for the batch.
///
/// The tensors use the batch's memory. `train` must not keep them, nor anything that refers to them, such as gradients:
/// the batch goes back to its pipeline afterwards.
pub(crate) fn lend<T>(batch: &Batch, train: impl FnOnce(&tch::Tensor, &tch::Tensor) -> Result<T>) -> Result<T> {
    let tensor = batch.images();
    let count = batch.len() - batch.padding();
    let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let ([_, a, b, c], strides) = (tensor.shape().map(signed), tensor.strides().map(signed));
    let (shape, strides) = match tensor.layout() {
        Layout::Nchw => ([signed(count), a, b, c], strides),
        Layout::Nhwc => ([signed(count), c, a, b], [strides[0], strides[3], strides[1], strides[2]]),
    };
    let kind = match tensor.dtype() {
        DType::F32 => tch::Kind::Float,
        DType::F16 => tch::Kind::Half,
        DType::Bf16 => tch::Kind::BFloat16,
        DType::U8 => tch::Kind::Uint8,
    };
    let Some(cuda) = tensor.cuda() else {
        let address = tensor.as_bytes()?.as_ptr();
        // SAFETY: as many elements of this kind, so strided, lie there as long as the batch lives, which is borrowed;
        // nothing writes to them.
        let images = unsafe { tch::Tensor::f_from_blob(address, &shape, &strides, kind, tch::Device::Cpu) };
        let labels: Vec<i64> = batch.labels()[..count].iter().map(|&label| label.into()).collect();
        return train(&images.map_err(failed)?, &tch::Tensor::f_from_slice(&labels).map_err(failed)?);
    };
    let device = tch::Device::Cuda(cuda.ordinal() as usize);
    // SAFETY: null is the legacy default stream, which is always there.
    let address = unsafe { cuda.on_raw_stream(std::ptr::null_mut())? };
    // SAFETY: as above. The stream that reads them waits for the batch, and when the batch is dropped its memory waits
    // for all that is queued on that stream.
    let images = unsafe { tch::Tensor::f_from_blob(address as *const u8, &shape, &strides, kind, device) };
    let (labels, shape) = (cuda.labels_address()? as *const u8, [signed(count)]);
    // SAFETY: as above. libtorch has no unsigned numbers to count with; labels are below 2^31, being below the number
    // of classes.
    let labels = unsafe { tch::Tensor::f_from_blob(labels, &shape, &[1], tch::Kind::Int, device) };
    let labels = labels.and_then(|labels| labels.f_to_kind(tch::Kind::Int64)).map_err(failed)?;
    train(&images.map_err(failed)?, &labels)
}

/// An error of libtorch's; its message goes on for pages of C++ frames.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn failed(error: tch::TchError) -> Error {
    let text = error.to_string();
    let message = text.lines().next().unwrap_or_default().to_owned();
    Error::Device { call: "train with libtorch".to_owned(), message }
}
