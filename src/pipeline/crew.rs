//! The threads that work on an epoch, or on the epochs of several devices.

use super::schedule::Running;
use crate::error::Error;
use crate::threads;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What became of a thread's turn at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It worked on a position.
    Worked,
    /// There is no room before the consumer takes a batch.
    Full,
    /// There is nothing left to begin, now and for ever.
    Done,
}

/// One thread's part in an epoch. Dropped before its end, as by a panic, it fails the epoch: a consumer would wait for ever
/// for what the thread has left undone.
pub(super) trait Hand: Send {
    /// Works on the next position, if there is one and room for it.
    fn step(&mut self) -> Step;

    /// Counts time that the thread has waited for room, if there was none here.
    fn add_wait(&self, time: Duration);

    /// Keeps what it has for the next epoch.
    fn end(&mut self);
}

/// Where threads wait for room in any of their epochs.
#[derive(Default)]
pub(super) struct Room {
    /// How often something has changed.
    changes: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    /// Has all threads look again.
    pub(super) fn change(&self) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.changes.fetch_add(1, SeqCst);
        drop(lock);
        self.changed.notify_all();
    }

    fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Waits until there were more changes than `seen`.
    fn wait(&self, seen: u64) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.changes() == seen {
            lock = self.changed.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Threads, which are joined once the last of their epochs has let go of them.
pub(super) struct Crew {
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Up to `count` threads for these epochs, and why there is none where there should be some.
    pub(super) fn start(epochs: &[Arc<Running>], room: &Arc<Room>, count: usize) -> (Self, Option<Error>) {
        let mut threads = Vec::new();
        for i in 0..count {
            // Hands come to be on their thread: one that is refused has none to fail an epoch.
            let (epochs, room) = (epochs.to_vec(), Arc::clone(room));
            match threads::spawn(format!("warpfeed-{i}"), move || work(epochs, &room, i)) {
                Ok(thread) => threads.push(thread),
                // Fewer threads than asked for are slower, not wrong; none at all is an error at the first batch.
                Err(error) => {
                    let refused = threads.is_empty().then_some(error);
                    return (Self { threads }, refused);
                }
            }
        }
        (Self { threads }, None)
    }

    /// How many threads there are.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // Its panic has been turned into an error.
            let _ = thread.join();
        }
    }
}

/// A thread's life: it works on its epochs in turn, from number `first` on, passing over those that are full.
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

/// Works on the next epoch that has something to do; full if there is none and one has room later.
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
