//! Batches in the caller's memory, in a bounded number of blocks.

use crate::common::source;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use warpfeed::ops::{RandomResize, random_horizontal_flip, random_resized_crop};
use warpfeed::{
    BatchMemory, DType, Device, Error, Layout, MemoryBlock, Pipeline, PipelineBuilder, Result, image::Size, view,
};

const LINE: usize = 64;
/// Value of bytes that an allocator leaves in memory.
const RUBBISH: u8 = 0xa5;

/// An allocator that counts its blocks, and can make wrong ones.
#[derive(Clone, Default)]
struct Blocks {
    live: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    /// Bytes that every block is short.
    short: usize,
    /// Bytes that every block begins after the cache line.
    beside: usize,
    /// The number of the block that is refused.
    refused: Option<usize>,
}

/// A block's memory, with a guard before and after it.
struct Block {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    live: Arc<AtomicUsize>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let (before, rest) = self.memory.split_at(self.start);
        assert!(before.iter().chain(&rest[self.len..]).all(|byte| *byte == RUBBISH), "written beside the block");
        self.live.fetch_sub(1, SeqCst);
    }
}

impl BatchMemory for Blocks {
    fn block(&self, len_bytes: usize) -> Result<MemoryBlock> {
        let number = self.asked.fetch_add(1, SeqCst);
        if self.refused == Some(number) {
            return Err(Error::foreign("no pinned memory is left"));
        }
        self.most.fetch_max(self.live.fetch_add(1, SeqCst) + 1, SeqCst);
        let mut memory = vec![RUBBISH; len_bytes + 3 * LINE];
        let start = LINE + memory.as_ptr().addr().wrapping_neg() % LINE + self.beside;
        let len = len_bytes - self.short;
        let address = NonNull::new(memory[start..].as_mut_ptr()).unwrap();
        let owner = Block { memory, start, len, live: Arc::clone(&self.live) };
        // SAFETY: the vector's memory stays in place, and belongs to the owner alone.
        #[allow(unsafe_code)]
        Ok(unsafe { MemoryBlock::new(address, len, owner) })
    }
}

fn builder() -> PipelineBuilder {
    let builder = Pipeline::builder(source(11)).device(Device::Cpu).batch_size(4).shuffle(3).threads(2);
    builder.transform(random_horizontal_flip(0.5))
}

#[test]
fn batches_are_filled_in_the_blocks_and_equal_those_in_other_memory() {
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
        for (layout, prefetch) in [(Layout::Nchw, 1), (Layout::Nhwc, 3)] {
            let blocks = Blocks::default();
            let builder = || builder().transform(random_resized_crop(Size::new(13, 9))).output(dtype, layout);
            let pipeline = builder().prefetch(prefetch).batch_memory(blocks.clone()).build().unwrap();
            assert_eq!(blocks.asked.load(SeqCst), 0, "none before they are needed");
            for (want, got) in builder().build().unwrap().epoch(1).zip(pipeline.epoch(1)) {
                let [want, got] = [want, got].map(|batch| batch.unwrap().into_images());
                let address = got.as_bytes().unwrap().as_ptr();
                assert!(want.as_bytes().unwrap() == got.as_bytes().unwrap(), "{dtype} {layout:?}");
                assert!(want.into_block().is_err(), "it is the pipeline's own memory");
                let owner: Box<Block> = got.into_block().unwrap().into_owner().downcast().unwrap();
                assert_eq!(owner.memory[owner.start..].as_ptr(), address);
            }
            assert_eq!((blocks.asked.load(SeqCst), blocks.live.load(SeqCst)), (3, 0));
            assert!(blocks.most.load(SeqCst) <= prefetch + 1);
        }
    }
}

#[test]
fn views_ragged_and_padded_images_are_in_blocks_too() {
    let blocks = Blocks::default();
    let views = || builder().views([view([random_resized_crop(8)]).times(2), view([random_resized_crop(5)])]);
    let pipeline = views().batch_memory(blocks.clone()).build().unwrap();
    for (want, got) in views().build().unwrap().epoch(0).zip(pipeline.epoch(0)) {
        for (want, got) in want.unwrap().into_views().into_iter().zip(got.unwrap().into_views()) {
            assert_eq!(want.as_bytes().unwrap(), got.as_bytes().unwrap());
            got.into_block().unwrap();
        }
    }
    assert_eq!(blocks.asked.swap(0, SeqCst), 6);

    let sizes = || builder().transform(RandomResize::new(20..=40));
    let ragged = sizes().batch_memory(blocks.clone()).build_ragged().unwrap();
    for (want, got) in sizes().build_ragged().unwrap().epoch(0).zip(ragged.epoch(0)) {
        for (want, got) in want.unwrap().into_images().into_iter().zip(got.unwrap().into_images()) {
            assert_eq!(want.as_bytes().unwrap(), got.as_bytes().unwrap());
            got.into_block().unwrap();
        }
    }
    assert_eq!(blocks.asked.swap(0, SeqCst), 11);

    let padded = sizes().batch_memory(blocks.clone()).build_padded(32).unwrap();
    for (want, got) in sizes().build_padded(32).unwrap().epoch(0).zip(padded.epoch(0)) {
        let [want, got] = [want, got].map(|batch| batch.unwrap().into_images().into_tensor());
        assert_eq!(want.as_bytes().unwrap(), got.as_bytes().unwrap());
        got.into_block().unwrap();
    }
    assert_eq!((blocks.asked.load(SeqCst), blocks.live.load(SeqCst)), (3, 0));
}

#[test]
fn a_batch_in_a_block_goes_wherever_others_go_and_the_block_goes_back() {
    let blocks = Blocks::default();
    let builder = || builder().transform(random_resized_crop(8)).output(DType::F32, Layout::Nchw);
    let tensors =
        |builder: PipelineBuilder| builder.build().unwrap().epoch(0).map(|batch| batch.unwrap().into_images());
    let (own, given) = (tensors(builder()), tensors(builder().batch_memory(blocks.clone())));
    let own: Vec<_> = own.collect();
    let mut given: Vec<_> = given.collect();
    assert_eq!(blocks.live.load(SeqCst), 3, "as many as the consumer holds");
    let last = given.pop().unwrap();
    assert_eq!(last.into_vec::<f32>().unwrap(), own[2].as_slice::<f32>().unwrap());
    assert_eq!(blocks.live.load(SeqCst), 2);
    let mut middle = given.pop().unwrap();
    middle.as_bytes_mut().unwrap().fill(1);
    {
        let first = given.pop().unwrap().into_candle(&candle_core::Device::Cpu).unwrap();
        let got = first.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(got, own[0].as_slice::<f32>().unwrap());
        assert_eq!(blocks.live.load(SeqCst), 1);
    }
    drop((given, middle));
    assert_eq!(blocks.live.load(SeqCst), 0);

    let pipeline = builder().batch_memory(blocks.clone()).build().unwrap();
    for epoch in 0..20 {
        drop(pipeline.epoch(epoch).next());
    }
    assert_eq!(blocks.live.load(SeqCst), 0, "epochs that are given up");
}

#[test]
fn blocks_that_do_not_fit_and_callers_that_have_none_end_the_epoch() {
    let ends = |blocks: Blocks| {
        let builder = builder().transform(random_resized_crop(8)).batch_memory(blocks.clone());
        let results: Vec<_> = builder.build().unwrap().epoch(0).collect();
        let ready = results.iter().filter(|result| result.is_ok()).count();
        let error = results.into_iter().find_map(|result| result.err()).unwrap();
        assert_eq!(blocks.live.load(SeqCst), 0);
        (ready, error.to_string())
    };
    let (ready, error) = ends(Blocks { short: 1, ..Blocks::default() });
    assert_eq!((ready, &error[..]), (0, "batch_memory: block must be 3072 bytes at least, got 3071 bytes"));
    let (ready, error) = ends(Blocks { beside: 16, ..Blocks::default() });
    assert!(ready == 0 && error.starts_with("batch_memory: block must be an address that 64 divides"), "{error}");
    let (ready, error) = ends(Blocks { refused: Some(2), ..Blocks::default() });
    assert_eq!((ready, &error[..]), (2, "no pinned memory is left"));
    let both = builder().transform(random_resized_crop(8)).batch_memory(Blocks::default()).pin_batches(0).build();
    assert!(both.unwrap_err().is_parameter());
}
