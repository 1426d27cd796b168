//! The images of a batch, on any device and of any sizes.

use crate::device::Device;
use crate::error::Result;
use crate::tensor::{DType, Layout, Tensor};

/// The images of a view in host memory.
pub struct HostImages<'a> {
    tensors: Vec<Held<'a>>,
    /// The tensor of each image, and the image's place in it.
    places: Vec<(usize, usize)>,
}

impl<'a> HostImages<'a> {
    /// Copies tensors on a device to the host.
    pub fn new(tensors: &'a [Tensor]) -> Result<Self> {
        let places = tensors.iter().enumerate().flat_map(|(i, tensor)| (0..tensor.shape()[0]).map(move |row| (i, row)));
        let on_host = |tensor: &'a Tensor| match tensor.device() {
            Device::Cpu => Ok(Held::Batch(tensor)),
            _ => tensor.to_host().map(Held::Copy),
        };
        Ok(Self { tensors: tensors.iter().map(on_host).collect::<Result<_>>()?, places: places.collect() })
    }

    /// Number of images.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// The shape of an image's tensor.
    pub fn shape(&self, image: usize) -> [usize; 4] {
        self.tensor(image).0.shape()
    }

    /// The type and the layout of an image's elements.
    pub(crate) fn elements(&self, image: usize) -> (DType, Layout) {
        let tensor = self.tensor(image).0;
        (tensor.dtype(), tensor.layout())
    }

    /// The bytes of an image.
    pub fn image_bytes(&self, image: usize) -> Result<&[u8]> {
        let (tensor, row) = self.tensor(image);
        tensor.image_bytes(row)
    }

    fn tensor(&self, image: usize) -> (&Tensor, usize) {
        let (tensor, row) = self.places[image];
        match &self.tensors[tensor] {
            Held::Batch(tensor) => (tensor, row),
            Held::Copy(tensor) => (tensor, row),
        }
    }
}

/// A tensor in host memory: the batch's own, or a copy.
enum Held<'a> {
    Batch(&'a Tensor),
    Copy(Tensor),
}
