//! Host memory of batches, and its pool.

use super::block::{BatchMemory, LINE_BYTES, MemoryBlock};
use super::pinned::{Pinned, Readers};
use super::{DType, Element};
use crate::cuda::driver::{self, Context};
use crate::error::{Error, Result};
use crate::os::memory::{self, Asked};
use bytemuck::allocation::pod_collect_to_vec;
use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use half::{bf16, f16};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Elements in host memory that begin on a cache line. When dropped, the buffer goes back to its pool, or the caller's
/// memory to the caller.
pub(crate) struct HostBuffer {
    /// The pin of all its pages, for copies to a CUDA device. It must be dropped before the memory.
    pin: Option<Box<Pinned>>,
    memory: Memory,
    /// Start of the first whole cache line, or page, in the memory.
    start_bytes: usize,
    len_bytes: usize,
    home: Option<Arc<Pool>>,
}

/// The owner of a buffer's memory.
enum Memory {
    Own(Elements),
    /// The caller's, for elements of this type.
    Callers(MemoryBlock, DType),
}

/// Vectors of the element's type, so that a trainer whose tensors are vectors can take them unchanged. The type is not
/// a cache line, because the system gives zeroed pages only for memory aligned to at most 16 bytes; memory with a
/// larger alignment would have to be zeroed.
#[derive(Clone)]
pub(super) enum Elements {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
    U8(Vec<u8>),
    U16(Vec<u16>),
}

impl HostBuffer {
    /// A buffer of `len_bytes` zero bytes, which must be a whole number of elements.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is not enough memory.
    pub(crate) fn new(dtype: DType, len_bytes: usize) -> Result<Self> {
        Self::aligned(dtype, len_bytes, LINE_BYTES)
    }

    /// A pinned buffer of `len_bytes` zero bytes.
    fn pinned(dtype: DType, len_bytes: usize, context: &Context) -> Result<Self> {
        // The largest page size of Linux on a machine with a GPU (aarch64).
        const PAGE_BYTES: usize = 65_536;
        // Pinning affects the whole first and last page, so the buffer takes whole pages.
        let pages_bytes = len_bytes.max(1).checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let mut buffer = Self::aligned(dtype, pages_bytes, PAGE_BYTES)?;
        // SAFETY: whole pages of a vector, which stays where it is until the pin is gone: `pin` is dropped before
        // `memory`, and taken before the vector is given away.
        #[allow(unsafe_code)]
        let pin = unsafe { Pinned::new(context, buffer.as_bytes_mut())? };
        (buffer.pin, buffer.len_bytes) = (Some(Box::new(pin)), len_bytes);
        Ok(buffer)
    }

    /// A buffer of `len_bytes` bytes in the caller's memory. Its content is what was there.
    fn of_caller(dtype: DType, len_bytes: usize, memory: &dyn BatchMemory) -> Result<Self> {
        // Pinning memory is a call that a capture of another thread would refuse.
        let relaxed = driver::relaxed();
        let block = memory.block(len_bytes)?.checked(len_bytes)?;
        drop(relaxed);
        Ok(Self { pin: None, memory: Memory::Callers(block, dtype), start_bytes: 0, len_bytes, home: None })
    }

    fn aligned(dtype: DType, len_bytes: usize, align_bytes: usize) -> Result<Self> {
        fn zeros<T: Zeroable>(len_bytes: usize) -> Result<Vec<T>> {
            memory::zeros(len_bytes.div_ceil(size_of::<T>()), "a batch", memory::SMALLER_BATCHES)
        }
        let all_bytes = len_bytes.saturating_add(align_bytes);
        let elements = match dtype {
            DType::F32 => Elements::F32(zeros(all_bytes)?),
            DType::F16 => Elements::F16(zeros(all_bytes)?),
            DType::Bf16 => Elements::Bf16(zeros(all_bytes)?),
            DType::U8 => Elements::U8(zeros(all_bytes)?),
            DType::U16 => Elements::U16(zeros(all_bytes)?),
        };
        let start_bytes = elements.as_bytes().as_ptr().addr().wrapping_neg() % align_bytes;
        Ok(Self { pin: None, memory: Memory::Own(elements), start_bytes, len_bytes, home: None })
    }

    /// Whether the buffer is pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        self.pin.is_some()
    }

    /// The pin, with the streams that read the buffer.
    pub(super) fn pin(&self) -> Option<&Pinned> {
        self.pin.as_deref()
    }

    /// Waits until the device no longer reads a pinned buffer. Others it never reads later.
    pub(super) fn wait_for_readers(&mut self) -> Result<()> {
        self.pin.as_deref_mut().map_or(Ok(()), Pinned::wait)
    }

    /// Waits for the streams that were named.
    fn wait_for_named_readers(&mut self) -> Result<()> {
        self.pin.as_deref_mut().map_or(Ok(()), Pinned::wait_for_named)
    }

    /// Waits for the device as far as that is possible: not while a trainer captures a graph. In a failed context
    /// nothing is read any more.
    fn is_idle(&mut self) -> bool {
        !self.wait_for_readers().is_err_and(|error| driver::is_capture(&error))
    }

    /// Makes the elements independent of pool, device and caller. Memory that the device may still read is copied, and
    /// left for later. The caller's is copied, and given back. The vector begins at `start_bytes` of the memory.
    fn detach(&mut self) -> Elements {
        self.home = None;
        let elements = match self.memory.take() {
            Memory::Own(elements) => elements,
            Memory::Callers(block, dtype) => return Elements::copied(dtype, &block.as_bytes()[..self.len_bytes]),
        };
        if self.is_idle() {
            self.pin = None;
            return elements;
        }
        let copy = elements.clone();
        if let Some(pin) = self.pin.take() {
            let context = Arc::clone(pin.context());
            driver::leave(&context, (pin, elements));
        }
        copy
    }

    /// For the consumer, who may have the device read it.
    pub(super) fn shown(&self) -> &[u8] {
        self.pin.as_ref().inspect(|pin| pin.show());
        self.as_bytes()
    }

    /// For the consumer, who may have the device read it.
    pub(super) fn shown_mut(&mut self) -> &mut [u8] {
        self.pin.as_ref().inspect(|pin| pin.show());
        self.as_bytes_mut()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.memory.as_bytes()[self.start_bytes..][..self.len_bytes]
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory.as_bytes_mut()[self.start_bytes..][..self.len_bytes]
    }

    /// The buffer's first `len` elements, of type `T`, as a vector. The memory does not go back to the pool.
    pub(super) fn into_vec<T: Element>(mut self, len: usize) -> Vec<T> {
        fn cut<A: Pod, T: Pod>(mut elements: Vec<A>, start_bytes: usize, len: usize) -> Vec<T> {
            let start = start_bytes / size_of::<A>();
            elements.copy_within(start..start + len, 0);
            elements.truncate(len);
            // The cast succeeds if both types are the same. Otherwise the elements, of equal size, are copied.
            bytemuck::allocation::try_cast_vec(elements).unwrap_or_else(|(_, elements)| pod_collect_to_vec(&elements))
        }
        match self.detach() {
            Elements::F32(elements) => cut(elements, self.start_bytes, len),
            Elements::F16(elements) => cut(elements, self.start_bytes, len),
            Elements::Bf16(elements) => cut(elements, self.start_bytes, len),
            Elements::U8(elements) => cut(elements, self.start_bytes, len),
            Elements::U16(elements) => cut(elements, self.start_bytes, len),
        }
    }

    /// The block that the buffer is in, if that is the caller's.
    pub(super) fn into_block(mut self) -> std::result::Result<MemoryBlock, Self> {
        match self.memory.take() {
            Memory::Callers(block, _) => Ok(block),
            memory => {
                self.memory = memory;
                Err(self)
            }
        }
    }

    /// Takes the vector, and the byte at which the buffer begins in it. The memory does not go back to the pool.
    #[cfg(feature = "candle")]
    pub(super) fn into_elements(mut self) -> (Elements, usize) {
        (self.detach(), self.start_bytes)
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if let Some(pool) = self.home.take() {
            let buffer = Self { pin: self.pin.take(), memory: self.memory.take(), home: None, ..*self };
            if pool.process == std::process::id() {
                pool.give(buffer);
            } else {
                // In a forked child, whose copy of the pool's lock a thread of the parent may have held.
                std::mem::forget((pool, buffer));
            }
        } else if let Some(mut pin) = self.pin.take()
            && !pin.try_wait()
        {
            // The device may still read the memory, and to wait for all streams would end a trainer's capture. The pin
            // goes first.
            let context = Arc::clone(pin.context());
            driver::leave(&context, (pin, self.memory.take()));
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} bytes)", self.len_bytes)
    }
}

impl Memory {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Own(elements) => elements.as_bytes(),
            Self::Callers(block, _) => block.as_bytes(),
        }
    }

    fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(elements) => elements.as_bytes_mut(),
            Self::Callers(block, _) => block.as_bytes_mut(),
        }
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Own(Elements::U8(Vec::new())))
    }
}

impl Elements {
    /// A copy of these bytes, which are elements of this type.
    fn copied(dtype: DType, bytes: &[u8]) -> Self {
        match dtype {
            DType::F32 => Self::F32(pod_collect_to_vec(bytes)),
            DType::F16 => Self::F16(pod_collect_to_vec(bytes)),
            DType::Bf16 => Self::Bf16(pod_collect_to_vec(bytes)),
            DType::U8 => Self::U8(bytes.to_vec()),
            DType::U16 => Self::U16(pod_collect_to_vec(bytes)),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::F32(elements) => cast_slice(elements),
            Self::F16(elements) => cast_slice(elements),
            Self::Bf16(elements) => cast_slice(elements),
            Self::U8(elements) => elements,
            Self::U16(elements) => cast_slice(elements),
        }
    }

    fn as_bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::F32(elements) => cast_slice_mut(elements),
            Self::F16(elements) => cast_slice_mut(elements),
            Self::Bf16(elements) => cast_slice_mut(elements),
            Self::U8(elements) => elements,
            Self::U16(elements) => cast_slice_mut(elements),
        }
    }
}

/// A pool of buffers. Reuse saves page faults, which fresh memory costs every 4 KiB.
///
/// The rule for pinned buffers: until a batch is dropped, its consumer may queue work that reads the batch on any
/// stream of the device, and the pool fills the buffer again only after that work. Copies from pinned memory run later
/// than the call that asks for them. A consumer that names its streams ([`Tensor::read_on`](super::Tensor::read_on)) is
/// waited for by events. Others do not say which they are: burn copies from a slice, libtorch from a tensor that it got
/// by DLPack. For them the pool waits for all work that was queued in the context when the buffer came back, before the
/// buffer is used again. A wait covers all buffers that came back before it, so there is less than one for each batch.
/// It ends captures of graphs, so nothing waits when a buffer is dropped.
pub(crate) struct Pool {
    free: Mutex<Spares>,
    dtype: DType,
    /// Largest number of unused buffers, and of their bytes. One buffer is kept whatever its size.
    keep: usize,
    keep_bytes: u64,
    /// The context to pin buffers in; `None` for pageable buffers.
    pin: Option<Context>,
    /// Source of buffers in the caller's memory. The pool then keeps none.
    caller: Option<Arc<dyn BatchMemory>>,
    /// The process that made the pool.
    process: u32,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} buffers of {} kept)", self.lock().buffers.len(), self.keep)
    }
}

/// The buffers of a pool that are not in use.
#[derive(Debug)]
struct Spares {
    /// Each with the number of buffers that came back before it.
    buffers: Vec<(u64, HostBuffer)>,
    asked: Asked,
    /// Number of buffers that have come back.
    given: u64,
    /// The device no longer reads the buffers whose numbers are below this.
    settled: u64,
}

impl Spares {
    /// Takes the smallest buffer of at least `len_bytes` bytes that is not much larger, one that the device no longer
    /// reads if there is such a one. Returns it with what may still read it.
    fn take(&mut self, len_bytes: usize) -> Option<(HostBuffer, Readers)> {
        self.asked.note(len_bytes);
        let settled = self.settled;
        let fits = |buffer: &HostBuffer| (len_bytes..=Asked::most_for(len_bytes)).contains(&buffer.len_bytes);
        let fitting = self.buffers.iter_mut().enumerate().filter(|(_, (_, buffer))| fits(buffer));
        let readers = |number, pin: Option<&mut Pinned>| match pin.map_or(Readers::Done, Pinned::readers) {
            Readers::Unknown if number < settled => Readers::Done,
            readers => readers,
        };
        let ranked =
            fitting.map(|(at, (number, buffer))| (readers(*number, buffer.pin.as_deref_mut()), buffer.len_bytes, at));
        let (readers, _, at) = ranked.min().filter(|(readers, ..)| *readers != Readers::Capturing)?;
        Some((self.buffers.swap_remove(at).1, readers))
    }

    /// Takes the buffer that is one too many.
    fn take_surplus(&mut self, keep: usize, keep_bytes: u64) -> Option<HostBuffer> {
        let lens = || self.buffers.iter().map(|(_, buffer)| buffer.len_bytes);
        // One is kept always, however large batches are.
        let is_large = || self.buffers.len() > 1 && lens().map(|len| len as u64).sum::<u64>() > keep_bytes;
        let is_full = self.buffers.len() > keep || is_large();
        let surplus = if is_full { self.asked.surplus(lens()) } else { None };
        surplus.map(|at| self.buffers.swap_remove(at).1)
    }
}

impl Pool {
    /// A pool that keeps at most `keep` buffers: of sizes that were asked for lately.
    pub(crate) fn new(dtype: DType, keep: usize) -> Self {
        let free = Spares { buffers: Vec::new(), asked: Asked::of_last(keep), given: 0, settled: 0 };
        let (free, process) = (Mutex::new(free), std::process::id());
        Self { free, dtype, keep, keep_bytes: u64::MAX, pin: None, caller: None, process }
    }

    /// A pool that keeps at most this number of bytes, if there is a bound.
    pub(crate) fn of_bytes(self, keep_bytes: Option<u64>) -> Self {
        Self { keep_bytes: keep_bytes.unwrap_or(u64::MAX), ..self }
    }

    /// A pool of pinned buffers, if there is a context to pin them in.
    pub(crate) fn pinned(self, context: Option<&Context>) -> Self {
        Self { pin: context.map(Arc::clone), ..self }
    }

    /// A pool whose buffers are in the caller's memory, if the caller gives some.
    pub(crate) fn of_caller(self, memory: Option<&Arc<dyn BatchMemory>>) -> Self {
        Self { caller: memory.map(Arc::clone), ..self }
    }

    /// Takes the smallest buffer of at least `len_bytes` bytes, or a new one. It still has its old contents, and goes
    /// back to the pool, or to the caller, when it is dropped.
    ///
    /// # Synchronization
    /// For a pinned buffer this may wait for the device. Nothing reads the buffer when this returns.
    ///
    /// # Errors
    /// The errors of [`HostBuffer::new`]; [`Error::Device`](crate::Error::Device) if the context of a pinned buffer has
    /// failed; the caller's error, or [`Error::Parameter`](crate::Error::Parameter) for a block that does not fit.
    pub(crate) fn take(self: &Arc<Self>, len_bytes: usize) -> Result<HostBuffer> {
        if let Some(memory) = &self.caller {
            return HostBuffer::of_caller(self.dtype, len_bytes, &**memory);
        }
        let make = || match &self.pin {
            Some(context) => HostBuffer::pinned(self.dtype, len_bytes, context),
            None => HostBuffer::new(self.dtype, len_bytes),
        };
        let free = self.lock().take(len_bytes);
        let mut buffer = match (free, &self.pin) {
            (Some((buffer, Readers::Unknown)), Some(context)) => match self.settle(context) {
                Ok(()) => buffer,
                Err(error) => {
                    let is_capture = driver::is_capture(&error);
                    self.give(buffer);
                    return Err(if is_capture { captured() } else { error });
                }
            },
            (Some((mut buffer, _)), _) => {
                buffer.wait_for_named_readers()?;
                buffer
            }
            (None, _) => make()?,
        };
        if let Some(pin) = &mut buffer.pin {
            pin.forget_readers();
        }
        buffer.home = Some(Arc::clone(self));
        Ok(buffer)
    }

    /// Waits until the device no longer reads the buffers that have come back.
    fn settle(&self, context: &Context) -> Result<()> {
        let given = self.lock().given;
        driver::wait_for_all(context)?;
        let mut free = self.lock();
        free.settled = free.settled.max(given);
        Ok(())
    }

    /// Takes a buffer back. Its `home` must be `None`, or the pool would own itself.
    fn give(&self, buffer: HostBuffer) {
        let mut free = self.lock();
        let number = free.given;
        free.given += 1;
        free.buffers.push((number, buffer));
        let too_many: Vec<_> = std::iter::from_fn(|| free.take_surplus(self.keep, self.keep_bytes)).collect();
        // Freed after the lock is released.
        drop(free);
        drop(too_many);
    }

    fn lock(&self) -> MutexGuard<'_, Spares> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a wait for unknown streams that a capture forbids, which has ended that capture.
fn captured() -> Error {
    Error::Device {
        call: "fill a pinned batch again".to_owned(),
        message: "a stream captures a graph, and it is not known which streams read the batch: name them before you \
                  drop it (Tensor::read_on), or give the pipeline pinned memory of your own (batch_memory)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_on_a_cache_line_and_are_zero() {
        for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
            for len in [0, 1, 7, 100, 100_000] {
                let buffer = HostBuffer::new(dtype, len * dtype.size_bytes()).unwrap();
                assert!(buffer.as_bytes().as_ptr().addr().is_multiple_of(64));
                assert_eq!(buffer.as_bytes(), vec![0; len * dtype.size_bytes()]);
            }
        }
    }

    #[test]
    fn a_pool_keeps_so_many_and_no_more() {
        let pool = Arc::new(Pool::new(DType::U8, 2));
        let mut held: Vec<HostBuffer> = (0..3).map(|_| pool.take(10).unwrap()).collect();
        held.iter_mut().for_each(|buffer| buffer.as_bytes_mut().fill(7));
        drop(held);
        let again: Vec<HostBuffer> = (0..3).map(|_| pool.take(10).unwrap()).collect();
        assert_eq!(again.iter().filter(|buffer| buffer.as_bytes() == [7; 10]).count(), 2);
        assert_eq!(Arc::strong_count(&pool), 4);
        drop(again);
        assert_eq!(Arc::strong_count(&pool), 1);
    }

    #[test]
    fn another_process_gives_nothing_back() {
        let mut pool = Pool::new(DType::U8, 2);
        pool.process = pool.process.wrapping_add(1);
        let pool = Arc::new(pool);
        let lock = pool.free.lock().unwrap();
        let mut buffer = HostBuffer::new(DType::U8, 10).unwrap();
        buffer.home = Some(Arc::clone(&pool));
        drop(buffer);
        assert!(lock.buffers.is_empty());
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_taken() {
        let pool = Arc::new(Pool::new(DType::U8, 3));
        drop([3000, 1000, 4000].map(|len| pool.take(len).unwrap()));
        let lens = [2500, 900, 4500].map(|len| pool.take(len).unwrap()).map(|buffer| buffer.len_bytes);
        assert_eq!(lens, [3000, 1000, 4500]);
    }

    #[test]
    fn a_pool_keeps_buffers_of_sizes_that_were_asked_for_lately() {
        let pool = Arc::new(Pool::new(DType::U8, 8).of_bytes(Some(1 << 20)));
        let kept = || pool.lock().buffers.iter().map(|(_, buffer)| buffer.len_bytes).sum::<usize>();
        for round in 0..100 {
            let len = |i| if (i + round) % 8 == 0 { 100_000 } else { 1000 };
            drop((0..8).map(|i| pool.take(len(i)).unwrap()).collect::<Vec<_>>());
            assert!(kept() <= 2 * 100_000 + 8 * 1000, "{round}: {}", kept());
        }
        drop([600_000, 600_000].map(|len| pool.take(len).unwrap()));
        assert!(kept() <= 1 << 20, "{}", kept());
    }
}
