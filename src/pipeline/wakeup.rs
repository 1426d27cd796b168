//! Worker threads' wait for room in their epochs' queues.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};

/// A condition variable with a counter: threads wait on it when the queues of all their epochs are full.
#[derive(Default)]
pub(super) struct Wakeup {
    /// Number of changes so far.
    changes: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Wakeup {
    /// Wakes all waiting threads.
    pub(super) fn change(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, SeqCst);
        drop(lock);
        self.changed.notify_all();
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Waits until there have been more changes than `seen`.
    pub(super) fn wait(&self, seen: u64) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.changes() == seen {
            lock = self.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
