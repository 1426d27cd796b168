//! Copies from a CUDA device to burn's tensors on the same device. burn cannot take over another library's memory, and
//! only its own kernels can be queued on its streams. So the host waits before the copy and after it.
#![allow(unsafe_code)]

use burn::backend::fusion::{NoOp, custom::StreamId, get_client};
use burn::backend::ir::{InitOperationIr, OperationIr};
use burn::backend::{Cube, DispatchDevice, tensor::FloatTensor};
use burn::tensor::{DType, Device, Shape};
use burn_cubecl::cubecl::{cuda::CudaRuntime, server::ServerError};
use burn_cubecl::{CubeBackend, CubeDevice, tensor::CubeTensor};
use cubecl_runtime::runtime::Runtime;
use warpfeed::{Error, Result};

/// Copies the tensor to memory of burn's, in any type that `dtype` allows. `None` if `device` is not the CUDA device
/// that holds the tensor.
pub(crate) fn copy(tensor: &warpfeed::Tensor, device: &Device, dtype: DType) -> Result<Option<FloatTensor<Cube>>> {
    let (Some(cuda), DispatchDevice::Cube(device)) = (tensor.cuda(), device.as_dispatch().clone().inner()) else {
        return Ok(None);
    };
    if !matches!(&device, CubeDevice::Cuda(burn) if burn.index == cuda.ordinal() as usize) {
        return Ok(None);
    }
    let client = device.client();
    let handle = client.empty(cuda.len_bytes());
    burn_std::future::block_on(client.sync()).map_err(refused)?;
    let memory = client.get_resource::<<CudaRuntime as Runtime>::Server>(handle.clone()).map_err(refused)?;
    // SAFETY: as many bytes were asked for, in the device's primary context, and stay in place while `memory` lives.
    // Earlier uses were waited for, and no other code knows of them yet.
    unsafe {
        cuda.copy_to(memory.resource().ptr)?;
    }
    drop(memory);
    let shape = Shape::from(tensor.shape());
    let copy = CubeTensor::new_contiguous(client, device.clone(), shape.clone(), handle, dtype);
    // Registers the tensor with burn's fusion, as burn does with its own tensors.
    let fusion = get_client::<CubeBackend>(&device);
    let init = InitOperationIr::create(shape, dtype, || fusion.register_tensor_handle(copy.into()));
    Ok(fusion.register(StreamId::current(), OperationIr::Init(init), NoOp::<CubeBackend>::new()).pop())
}

fn refused(error: ServerError) -> Error {
    Error::Device { call: "copy a batch to memory of burn's".to_owned(), message: error.to_string() }
}
