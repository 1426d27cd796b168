//! Conversion of the values of fields to burn's tensors.

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use warpfeed::{Error, FieldTensor, FieldValues, Result};

/// Converts values of a batch's fields to burn's tensors on `device`, in their shape: boxes, keypoints, labels, masks,
/// and the pixel masks of padded batches.
///
/// Values in host memory become burn's without a copy on the CPU, and are uploaded to other devices, as burn's own data
/// are. Masks that a pipeline has made on a device go through host memory.
///
/// ```
/// use burn::tensor::{Bool, Device, Int, Tensor};
/// use warpfeed::FieldTensor;
/// use warpfeed_burn::FieldIntoBurn;
///
/// let device = Device::flex();
/// // As of `BatchFields::box_tensor`, `integers` and `mask_tensor`.
/// let boxes = FieldTensor::from(vec![[10.0, 5.0, 30.0, 25.0], [0.0, 0.0, 8.0, 9.0]]);
/// let labels = FieldTensor::from(vec![7_i64, 3]);
/// let masks = FieldTensor::from(vec![1_u8, 0, 0, 1]).reshaped(&[1, 2, 2])?;
/// let boxes: Tensor<2> = boxes.into_burn(&device)?;
/// let labels: Tensor<1, Int> = labels.into_burn_int(&device)?;
/// let masks: Tensor<3, Bool> = masks.into_burn_bool(&device)?;
/// assert_eq!((boxes.dims(), labels.dims(), masks.dims()), ([2, 4], [2], [1, 2, 2]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub trait FieldIntoBurn {
    /// Converts f32 to floats: boxes, keypoints, areas.
    ///
    /// # Synchronization
    /// The tensor may be used as soon as this returns.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the values have another number of dimensions than `D`; [`Error::Unsupported`] for whole
    /// numbers; [`Error::Device`] if masks cannot be copied from their device.
    fn into_burn<const D: usize>(self, device: &Device) -> Result<Tensor<D>>;

    /// Converts whole numbers. Labels, ids and numbers of images get the type that integers have on `device`; masks and
    /// auxiliary images keep their 8 or 16 bits, unsigned.
    ///
    /// # Synchronization
    /// See [`into_burn`](Self::into_burn).
    ///
    /// # Errors
    /// The errors of [`into_burn`](Self::into_burn), with [`Error::Unsupported`] for f32.
    fn into_burn_int<const D: usize>(self, device: &Device) -> Result<Tensor<D, Int>>;

    /// Converts whole numbers to whether they are not 0: masks of objects, pixel masks, `iscrowd`.
    ///
    /// # Synchronization
    /// See [`into_burn`](Self::into_burn).
    ///
    /// # Errors
    /// The errors of [`into_burn_int`](Self::into_burn_int).
    fn into_burn_bool<const D: usize>(self, device: &Device) -> Result<Tensor<D, Bool>>;
}

impl FieldIntoBurn for FieldTensor {
    fn into_burn<const D: usize>(self, device: &Device) -> Result<Tensor<D>> {
        match parts::<D>(self)? {
            (FieldValues::F32(values), shape) => {
                Ok(Tensor::from_data(TensorData::new(values, shape), (device, DType::F32)))
            }
            _ => Err(unsupported("whole numbers as burn's floats", "call into_burn_int, or into_burn_bool for masks")),
        }
    }

    fn into_burn_int<const D: usize>(self, device: &Device) -> Result<Tensor<D, Int>> {
        let (values, shape) = parts::<D>(self)?;
        Ok(match values {
            FieldValues::I64(values) => Tensor::from_data(TensorData::new(values, shape), device),
            FieldValues::U32(values) => Tensor::from_data(TensorData::new(values, shape), device),
            FieldValues::U8(values) => Tensor::from_data(TensorData::new(values, shape), (device, DType::U8)),
            FieldValues::U16(values) => Tensor::from_data(TensorData::new(values, shape), (device, DType::U16)),
            _ => return Err(floats("integers")),
        })
    }

    fn into_burn_bool<const D: usize>(self, device: &Device) -> Result<Tensor<D, Bool>> {
        let (values, shape) = parts::<D>(self)?;
        let values: Vec<bool> = match values {
            FieldValues::I64(values) => values.into_iter().map(|value| value != 0).collect(),
            FieldValues::U32(values) => values.into_iter().map(|value| value != 0).collect(),
            FieldValues::U8(values) => values.into_iter().map(|value| value != 0).collect(),
            FieldValues::U16(values) => values.into_iter().map(|value| value != 0).collect(),
            _ => return Err(floats("truth values")),
        };
        Ok(Tensor::from_data(TensorData::new(values, shape), device))
    }
}

/// The values and their shape of `D` dimensions.
fn parts<const D: usize>(tensor: FieldTensor) -> Result<(FieldValues, [usize; D])> {
    let (values, shape) = tensor.into_parts()?;
    match <[usize; D]>::try_from(&shape[..]) {
        Ok(shape) => Ok((values, shape)),
        Err(_) => Err(Error::Parameter {
            operation: "FieldIntoBurn",
            parameter: "D",
            expected: format!("{}, as many dimensions as the shape {shape:?} has", shape.len()),
            got: D.to_string(),
        }),
    }
}

fn floats(kind: &str) -> Error {
    unsupported(&format!("f32 as burn's {kind}"), "call into_burn")
}

fn unsupported(feature: &str, remedy: &str) -> Error {
    Error::Unsupported { feature: feature.to_owned(), remedy: remedy.to_owned() }
}
