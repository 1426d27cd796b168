//! Other libraries get the batches' memory and numbers.

use warpfeed::ops::Resize;
use warpfeed::{
    Batch, DType, Layout, Pipeline, Target, TargetTensor, Targets,
    image::{JpegOptions, Size, encode_jpeg},
    source::EncodedImages,
};

const DTYPES: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::U8];

/// Seven images in batches of three: [3, 3, 9, 7] or [3, 9, 7, 3], and a last batch of one.
fn batches(dtype: DType, layout: Layout) -> impl Iterator<Item = Batch> {
    let jpeg = |i| encode_jpeg(&warpfeed_bench::synth::image(1, i, 0, 1), &JpegOptions::default()).unwrap();
    let builder = Pipeline::builder(EncodedImages::new((0..7).map(|i| (jpeg(i), 10 + i as u32))));
    let pipeline = builder.batch_size(3).transform(Resize::new(Size::new(7, 9))).output(dtype, layout).build().unwrap();
    pipeline.epoch(0).map(Result::unwrap)
}

fn sides(n: usize, layout: Layout) -> [usize; 4] {
    match layout {
        Layout::Nchw => [n, 3, 9, 7],
        Layout::Nhwc => [n, 9, 7, 3],
    }
}

#[test]
fn a_tensor_outlives_its_batch_and_can_be_copied() {
    for (dtype, layout) in DTYPES.into_iter().flat_map(|dtype| [(dtype, Layout::Nchw), (dtype, Layout::Nhwc)]) {
        let bytes: Vec<Vec<u8>> = batches(dtype, layout).map(|b| b.images().as_bytes().unwrap().to_vec()).collect();
        for ((batch, bytes), n) in batches(dtype, layout).zip(bytes).zip([3, 3, 1]) {
            let copy = batch.images().to_host().unwrap();
            let place = batch.images().as_bytes().unwrap().as_ptr();
            let (images, labels, indices) = batch.into_parts();
            let labels = labels.unwrap();
            assert_eq!((images.as_bytes().unwrap(), images.shape()), (&bytes[..], sides(n, layout)));
            assert_eq!(images.as_bytes().unwrap().as_ptr(), place);
            assert_eq!((copy.as_bytes().unwrap(), copy.shape(), copy.layout()), (&bytes[..], images.shape(), layout));
            assert_ne!(copy.as_bytes().unwrap().as_ptr(), place);
            assert!(labels.iter().zip(&indices).all(|(label, index)| u64::from(*label) == 10 + index));
            let size = bytes.len() / n;
            assert_eq!(images.image_bytes(n - 1).unwrap(), &bytes[(n - 1) * size..]);
            assert!(images.image_bytes(n).unwrap_err().is_parameter());
        }
    }
}

mod dlpack {
    use super::*;
    use dlpark::ffi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned};
    use dlpark::{Managed, ManagedTensorBase};

    #[allow(unsafe_code)]
    fn check<M: ManagedTensorBase>(dtype: DType, layout: Layout) {
        for (batch, n) in batches(dtype, layout).zip([3, 3, 1]) {
            let bytes = batch.images().as_bytes().unwrap().to_vec();
            let place = batch.images().as_bytes().unwrap().as_ptr().addr();
            let strides = batch.images().strides().map(|stride| stride as i64);
            let shared: Managed<M> = batch.into_images().into_dlpack().unwrap();
            // As a consumer in C gets it and gives it back, on a thread of its own.
            let address = shared.into_raw() as usize;
            std::thread::spawn(move || {
                // SAFETY: the address is what `into_raw` gave, once.
                let shared = unsafe { Managed::from_raw(address as *mut M) }.unwrap();
                let view = shared.validate_export().unwrap();
                assert_eq!(view.shape(), sides(n, layout).map(|side| side as i64));
                assert_eq!((view.strides(), view.is_compact().unwrap()), (Some(&strides[..]), true));
                let want = match dtype {
                    DType::F32 => DLDataType::F32,
                    DType::F16 => DLDataType::F16,
                    DType::Bf16 => DLDataType::BF16,
                    DType::U8 => DLDataType::U8,
                    other => unreachable!("{other}"),
                };
                assert!(view.dtype().matches(want));
                assert_eq!(<(u32, i32)>::from(view.device()), DLDevice::CPU.into());
                assert_eq!((view.data_ptr().addr(), view.byte_offset()), (place, 0));
                // SAFETY: the tensor is in host memory and is not written to.
                assert_eq!(unsafe { view.cpu_bytes() }.unwrap(), bytes);
                assert!(shared.flags().is_empty());
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn another_library_reads_the_same_memory() {
        for dtype in DTYPES {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                check::<DLManagedTensor>(dtype, layout);
                check::<DLManagedTensorVersioned>(dtype, layout);
            }
        }
    }
}

mod candle {
    use super::*;
    use candle_core::{CpuStorage, DType as Candle, Device, Storage};

    fn address(tensor: &candle_core::Tensor) -> usize {
        let (storage, layout) = tensor.storage_and_layout();
        assert!(layout.is_contiguous());
        let Storage::Cpu(storage) = &*storage else { panic!("it is in host memory") };
        let (start, size) = match storage {
            CpuStorage::F32(vector) => (vector.as_ptr().addr(), 4),
            CpuStorage::F16(vector) => (vector.as_ptr().addr(), 2),
            CpuStorage::BF16(vector) => (vector.as_ptr().addr(), 2),
            CpuStorage::U8(vector) => (vector.as_ptr().addr(), 1),
            _ => panic!("no batch has this type"),
        };
        start + layout.start_offset() * size
    }

    #[test]
    fn candle_computes_on_the_memory_that_the_pipeline_filled() {
        for (dtype, theirs) in DTYPES.into_iter().zip([Candle::F32, Candle::F16, Candle::BF16, Candle::U8]) {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                for (batch, n) in batches(dtype, layout).zip([3, 3, 1]) {
                    let images = batch.images();
                    let place = images.as_bytes().unwrap().as_ptr().addr();
                    let want: Vec<f32> = match dtype {
                        DType::F32 => images.as_slice::<f32>().unwrap().to_vec(),
                        DType::F16 => images.as_slice::<half::f16>().unwrap().iter().map(|v| v.to_f32()).collect(),
                        DType::Bf16 => images.as_slice::<half::bf16>().unwrap().iter().map(|v| v.to_f32()).collect(),
                        DType::U8 => images.as_slice::<u8>().unwrap().iter().map(|v| f32::from(*v)).collect(),
                        other => unreachable!("{other}"),
                    };
                    let labels = batch.labels().unwrap().to_vec();
                    let (images, targets) = batch.into_candle(&Device::Cpu).unwrap();
                    assert_eq!((images.dims(), images.dtype()), (&sides(n, layout)[..], theirs));
                    assert_eq!(address(&images), place);
                    let got = images.to_dtype(Candle::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                    assert_eq!(got, want);
                    assert_eq!(targets.to_vec1::<u32>().unwrap(), labels);
                }
            }
        }
    }
}

/// Seven images in batches of three, with targets of two numbers and of one class.
fn targets(spec: &str) -> Vec<TargetTensor> {
    let jpeg = |i| encode_jpeg(&warpfeed_bench::synth::image(1, i, 0, 1), &JpegOptions::default()).unwrap();
    let images = EncodedImages::new((0..7).map(|i| (jpeg(i), 10 + i as u32)));
    let images = images.with_targets("two", (0..7).map(|i| Target::Integers(vec![i, -i]))).unwrap();
    let builder =
        Pipeline::builder(images).batch_size(3).transform(Resize::new(Size::new(7, 9))).targets(spec.parse().unwrap());
    let pipeline = builder.device(warpfeed::Device::Cpu).build().unwrap();
    let tensor = |mut batch: Batch| match batch.take_targets() {
        Some(Targets::Numbers(numbers)) => numbers,
        other => unreachable!("{other:?}"),
    };
    pipeline.epoch(0).map(|batch| tensor(batch.unwrap())).collect()
}

#[test]
fn targets_are_handed_over_by_dlpack() {
    use dlpark::ffi::DLDataType;
    for (spec, dtype, len) in [("float=2:two", DLDataType::F32, 2), ("class=20", DLDataType::U32, 1)] {
        for (tensor, n) in targets(spec).into_iter().zip([3, 3, 1]) {
            let shared: dlpark::versioned::Dlpack = tensor.into_dlpack().unwrap();
            let view = shared.validate().unwrap();
            assert_eq!((view.shape(), view.num_bytes()), (&[n, len][..], 4 * (n * len) as usize));
            assert_eq!(view.dtype(), dtype);
        }
    }
}

#[test]
fn targets_are_handed_over_to_candle() {
    let cpu = candle_core::Device::Cpu;
    let all = |spec| targets(spec).into_iter().map(|tensor| tensor.into_candle(&cpu).unwrap());
    let floats: Vec<Vec<f32>> = all("float=2:two").flat_map(|tensor| tensor.to_vec2::<f32>().unwrap()).collect();
    assert_eq!(floats, (0..7).map(|i| vec![i as f32, -i as f32]).collect::<Vec<_>>());
    let classes: Vec<Vec<u32>> = all("class=20").flat_map(|tensor| tensor.to_vec2::<u32>().unwrap()).collect();
    assert_eq!(classes, (0..7).map(|i| vec![10 + i]).collect::<Vec<_>>());
}
