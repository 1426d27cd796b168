//! Decoded chunks, kept for the next samples that share them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warpfeed_image::Result;

/// Number of bytes that an entry takes besides its data.
const ENTRY_BYTES: usize = 256;

/// The decoded chunks that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The chunk with this number.
    Chunk(u64),
    /// The index of the shard with this number.
    Index(u64),
}

/// Bytes that are read once for several samples, up to a number of bytes. The least recently used go first.
#[derive(Debug)]
pub(super) struct Cache {
    limit_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    slots: HashMap<Key, Slot>,
    /// The keys by the time of their last use.
    by_age: BTreeMap<u64, Key>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    /// Whoever reads the data holds the lock, and others who want them wait.
    data: Arc<Mutex<Option<Arc<Vec<u8>>>>>,
    used: u64,
    bytes: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, kept: Mutex::default() }
    }

    /// Whether data of this size are kept.
    pub(super) fn keeps(&self, len_bytes: usize) -> bool {
        len_bytes.saturating_add(ENTRY_BYTES) <= self.limit_bytes
    }

    /// The data of a key, which `read` reads if they are not kept. They have at most `max_bytes`.
    pub(super) fn get(
        &self,
        key: Key,
        max_bytes: usize,
        read: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>> {
        if !self.keeps(max_bytes) {
            return read().map(Arc::new);
        }
        let slot = lock(&self.kept).slot(key);
        let mut data = lock(&slot);
        if let Some(data) = &*data {
            return Ok(Arc::clone(data));
        }
        let read = Arc::new(read()?);
        *data = Some(Arc::clone(&read));
        drop(data);
        let mut kept = lock(&self.kept);
        let kept = &mut *kept;
        if let Some(own) = kept.slots.get_mut(&key).filter(|own| Arc::ptr_eq(&own.data, &slot)) {
            own.bytes += read.len();
            kept.bytes += read.len();
        }
        kept.shrink(self.limit_bytes);
        Ok(read)
    }
}

impl Kept {
    /// The place of a key's data, which are now the most recently used.
    fn slot(&mut self, key: Key) -> Arc<Mutex<Option<Arc<Vec<u8>>>>> {
        self.clock += 1;
        let slot = self.slots.entry(key).or_insert_with(|| {
            self.bytes += ENTRY_BYTES;
            Slot { data: Arc::default(), used: 0, bytes: ENTRY_BYTES }
        });
        self.by_age.remove(&slot.used);
        slot.used = self.clock;
        self.by_age.insert(self.clock, key);
        Arc::clone(&slot.data)
    }

    fn shrink(&mut self, limit_bytes: usize) {
        while self.bytes > limit_bytes {
            let Some((_, oldest)) = self.by_age.pop_first() else { return };
            self.bytes -= self.slots.remove(&oldest).map_or(0, |slot| slot.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn the_least_recently_used_go_first() {
        let cache = Cache::new(3 * (100 + ENTRY_BYTES));
        let reads = AtomicUsize::new(0);
        let get = |number: u64| {
            let read = || {
                reads.fetch_add(1, Relaxed);
                Ok(vec![number as u8; 100])
            };
            assert_eq!(cache.get(Key::Chunk(number), 100, read).unwrap()[99], number as u8);
            reads.load(Relaxed)
        };
        assert_eq!([0, 1, 2, 0, 3].map(get), [1, 2, 3, 3, 4]);
        // 1 was the oldest.
        assert_eq!([0, 2, 3, 1, 0].map(get), [4, 4, 4, 5, 6]);
        let kept = lock(&cache.kept);
        assert_eq!((kept.slots.len(), kept.by_age.len(), kept.bytes), (3, 3, 3 * (100 + ENTRY_BYTES)));
    }

    #[test]
    fn what_is_too_large_or_damaged_is_not_kept() {
        let cache = Cache::new(1_000);
        for _ in 0..2 {
            assert_eq!(cache.get(Key::Index(1), 900, || Ok(vec![1; 900])).unwrap().len(), 900);
        }
        assert!(lock(&cache.kept).slots.is_empty());
        let damaged = || Err(super::super::codecs::bad("damaged"));
        assert!(cache.get(Key::Index(1), 9, damaged).is_err());
        assert_eq!(*cache.get(Key::Index(1), 9, || Ok(vec![5])).unwrap(), [5]);
    }

    #[test]
    fn threads_share_one_read() {
        let (cache, reads) = (Cache::new(1 << 20), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for number in 0..50 {
                        let read = || {
                            reads.fetch_add(1, Relaxed);
                            Ok(vec![number as u8; 10])
                        };
                        assert_eq!(*cache.get(Key::Chunk(number), 10, read).unwrap(), [number as u8; 10]);
                    }
                });
            }
        });
        assert_eq!(reads.load(Relaxed), 50);
    }
}
