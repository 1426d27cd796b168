//! The device memory limits of this process's pipelines.

use super::lock;
use crate::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// The limits of all pipelines.
static LIMITS: Mutex<Vec<Weak<Limit>>> = Mutex::new(Vec::new());

/// The limit of a pipeline, and how much of it is allocated.
#[derive(Debug)]
pub(super) struct Limit {
    ordinal: u32,
    pub(super) bytes: usize,
    allocated_bytes: AtomicUsize,
}

impl Limit {
    /// A limit of `bytes` on device `ordinal`. Default: half of the free memory that other pipelines may not still
    /// take, but at least a sixteenth of the free memory. The rest is left to the trainer and to nvJPEG's own memory.
    pub(super) fn new(ordinal: u32, bytes: Option<u64>, free: impl FnOnce() -> Result<usize>) -> Result<Arc<Self>> {
        let mut limits = lock(&LIMITS);
        let others: Vec<_> = limits.iter().filter_map(Weak::upgrade).collect();
        let bytes = match bytes {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => {
                let free = free()?;
                let others = others.iter().filter(|other| other.ordinal == ordinal);
                let promised = others.fold(0_usize, |sum, other| sum.saturating_add(other.left_bytes()));
                (free.saturating_sub(promised) / 2).max(free / 16)
            }
        };
        let limit = Arc::new(Self { ordinal, bytes, allocated_bytes: AtomicUsize::new(0) });
        limits.retain(|limit| limit.strong_count() > 0);
        limits.push(Arc::downgrade(&limit));
        Ok(limit)
    }

    fn left_bytes(&self) -> usize {
        self.bytes.saturating_sub(self.allocated_bytes.load(Relaxed))
    }

    /// Notes that of a batch's share other memory is allocated than before.
    pub(super) fn changed(&self, before_bytes: usize, now_bytes: usize) {
        self.allocated_bytes.fetch_add(now_bytes, Relaxed);
        self.allocated_bytes.fetch_sub(before_bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Limit;

    #[test]
    fn what_other_pipelines_may_still_take_is_not_free() {
        // No test has a device of this number.
        const DEVICE: u32 = 1_000;
        let limit = |bytes, free: usize| Limit::new(DEVICE, bytes, || Ok(free)).unwrap();
        let first = limit(None, 64 << 20);
        assert_eq!(first.bytes, 32 << 20);
        assert_eq!(limit(None, 64 << 20).bytes, 16 << 20);
        // The other one has gone. Memory that the first has allocated is no longer free, and is not taken off twice.
        first.changed(0, 32 << 20);
        assert_eq!(limit(None, 32 << 20).bytes, 16 << 20);
        first.changed(32 << 20, 8 << 20);
        assert_eq!(limit(None, 56 << 20).bytes, 16 << 20);
        assert_eq!(limit(Some(5), 56 << 20).bytes, 5);
        let _all = limit(Some(u64::MAX), 0);
        assert_eq!(limit(None, 64 << 20).bytes, 4 << 20);
        assert_eq!(Limit::new(DEVICE + 1, None, || Ok(64 << 20)).unwrap().bytes, 32 << 20, "another device");
    }
}
