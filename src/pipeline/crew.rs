//! The worker threads of an epoch, or of the epochs of several devices.

use super::schedule::Running;
use crate::error::Error;
use crate::threads;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Result of a thread's turn at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The thread worked on a position.
    Worked,
    /// The queue is full until the consumer takes a batch.
    Full,
    /// No position is left to begin, now or later.
    Done,
}

/// One thread's part in an epoch. If it is dropped before its end, as after a panic, it fails the epoch: otherwise the
/// consumer would wait forever for the position that the thread left undone.
pub(super) trait Hand: Send {
    /// Works on the next position, if there is one and the queue is not full.
    fn step(&mut self) -> Step;

    /// Counts time that the thread has waited, if this epoch's queue was full.
    fn add_wait(&self, time: Duration);

    /// Keeps decoders and memory for the next epoch.
    fn end(&mut self);
}

/// A condition variable with a counter: threads wait on it when the queues of all their epochs are full.
#[derive(Default)]
pub(super) struct Room {
    /// Number of changes so far.
    changes: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    /// Wakes all waiting threads.
    pub(super) fn change(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, SeqCst);
        drop(lock);
        self.changed.notify_all();
    }

    fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Waits until there have been more changes than `seen`.
    fn wait(&self, seen: u64) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.changes() == seen {
            lock = self.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Worker threads. They are joined when the last of their epochs drops its reference.
pub(super) struct Crew {
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts up to `count` threads for these epochs. The error says why none could be started, if some were needed.
    pub(super) fn start(epochs: &[Arc<Running>], room: &Arc<Room>, count: usize) -> (Self, Option<Error>) {
        let mut threads = Vec::new();
        for i in 0..count {
            // A thread makes its hands itself: dropping the hands of a thread that could not be started would fail the
            // epochs.
            let (epochs, room) = (epochs.to_vec(), Arc::clone(room));
            match threads::spawn(format!("warpfeed-{i}"), move || work(epochs, &room, i)) {
                Ok(thread) => threads.push(thread),
                // Fewer threads than requested make the epoch slower, not wrong. No thread at all is an error at the
                // first batch.
                Err(error) => {
                    let refused = threads.is_empty().then_some(error);
                    return (Self { threads }, refused);
                }
            }
        }
        (Self { threads }, None)
    }

    /// Number of threads.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic of the thread has already become an error of the epoch.
            let _ = thread.join();
        }
    }
}

/// Body of a worker thread: works on its epochs in turn, starting after epoch `first`, and skips those whose queue is
/// full.
fn work(epochs: Vec<Arc<Running>>, room: &Room, first: usize) {
    let mut hands: Vec<_> = epochs.into_iter().map(|epoch| epoch.hand()).collect();
    let mut turn = first;
    loop {
        let seen = room.changes();
        match in_turn(&mut hands, &mut turn) {
            Step::Worked => {}
            Step::Full => {
                let start = Instant::now();
                room.wait(seen);
                hands.iter().for_each(|hand| hand.add_wait(start.elapsed()));
            }
            Step::Done => break,
        }
    }
    hands.iter_mut().for_each(|hand| hand.end());
}

/// Works on the next epoch that has a position to begin. `Full`: no epoch has one now, but some will.
fn in_turn(hands: &mut [Box<dyn Hand>], turn: &mut usize) -> Step {
    let mut all = Step::Done;
    for _ in 0..hands.len() {
        *turn = (*turn + 1) % hands.len();
        match hands[*turn].step() {
            Step::Worked => return Step::Worked,
            Step::Full => all = Step::Full,
            Step::Done => {}
        }
    }
    all
}
