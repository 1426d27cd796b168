//! The worker threads of an epoch, or of several devices' epochs.

use super::schedule::{EpochShare, Running, Turn};
use super::wakeup::Wakeup;
use crate::error::Error;
use crate::os::threads;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Worker threads. They are joined when the last of their epochs drops its reference.
pub(super) struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    /// Starts up to `count` threads for these epochs. The error says why none could be started, if some were needed.
    pub(super) fn start(epochs: &[Arc<Running>], wakeup: &Arc<Wakeup>, count: usize) -> (Self, Option<Error>) {
        let mut threads = Vec::new();
        for i in 0..count {
            // A thread makes its shares itself: dropping the shares of a thread that could not be started would fail
            // the epochs.
            let (epochs, wakeup) = (epochs.to_vec(), Arc::clone(wakeup));
            match threads::spawn(format!("warpfeed-{i}"), move || work(epochs, &wakeup, i)) {
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

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic of the thread has already become an error of the epoch.
            let _ = thread.join();
        }
    }
}

/// Body of a worker thread: works on its epochs in turn, starting after epoch `first`, and skips those whose queue is
/// full.
fn work(epochs: Vec<Arc<Running>>, wakeup: &Wakeup, first: usize) {
    let mut shares: Vec<_> = epochs.into_iter().map(Running::share).collect();
    let mut turn = first;
    loop {
        let seen = wakeup.changes();
        match in_turn(&mut shares, &mut turn) {
            Turn::Worked => {}
            Turn::Full => {
                let start = Instant::now();
                wakeup.wait(seen);
                shares.iter().for_each(|share| share.add_wait(start.elapsed()));
            }
            Turn::Done => break,
        }
    }
    shares.iter_mut().for_each(|share| share.end());
}

/// Works on the next epoch that has a position to begin. `Full`: no epoch has one now, but some will.
fn in_turn(shares: &mut [EpochShare], turn: &mut usize) -> Turn {
    let mut all = Turn::Done;
    for _ in 0..shares.len() {
        *turn = (*turn + 1) % shares.len();
        match shares[*turn].take_turn() {
            Turn::Worked => return Turn::Worked,
            Turn::Full => all = Turn::Full,
            Turn::Done => {}
        }
    }
    all
}
