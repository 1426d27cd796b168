//! The thread that fetches. It is a runtime of tokio's of its own, on which nobody blocks and which nobody waits for, so
//! that callers may be inside of a runtime or outside of any.

use crate::error::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// How often those who wait look whether they are to go on.
const LOOK: Duration = Duration::from_millis(50);

/// Fetches in the background.
pub(crate) struct Fetcher {
    /// `None` once dropped.
    runtime: Option<Runtime>,
}

impl Fetcher {
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("warpfeed-fetch").enable_all().build();
        let runtime = runtime.map_err(|error| Error::Device {
            call: "start the thread that fetches shards".into(),
            message: format!("{error}; free threads or memory"),
        })?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Begins `work`.
    pub fn fetch<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        let (give, result) = sync_channel(1);
        let task = self.runtime.as_ref().map(|runtime| {
            let task = runtime.spawn(async move {
                // Who has given up waiting wants nothing.
                let _ = give.send(work.await);
            });
            task.abort_handle()
        });
        Answer { result, task }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // What waits for its threads panics inside of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// What is to come. Dropping it gives up the work.
pub(crate) struct Answer<T> {
    result: Receiver<T>,
    task: Option<AbortHandle>,
}

impl<T> Answer<T> {
    /// Waits for it, unless `stopped` is set before.
    pub fn wait(self, stopped: &AtomicBool) -> io::Result<T> {
        loop {
            match self.result.recv_timeout(LOOK) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) if stopped.load(Relaxed) => {
                    return Err(io::Error::other("the epoch was dropped"));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the request was given up")),
            }
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
