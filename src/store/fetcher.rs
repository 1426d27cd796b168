//! The thread that fetches. It is a tokio runtime of its own. Nobody blocks on it and nobody waits for it to end, so
//! callers may be inside or outside of another runtime.

use crate::error::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// Interval at which a waiting thread checks whether to give up.
const LOOK: Duration = Duration::from_millis(50);

/// Runs futures in the background.
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

    /// Starts `work` in the background.
    pub fn fetch<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        let (give, result) = sync_channel(1);
        let task = self.runtime.as_ref().map(|runtime| {
            let task = runtime.spawn(async move {
                // The receiver has given up waiting: nobody wants the result.
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
            // A shutdown that waits for its threads panics inside of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// The result of work in the background. Dropping it aborts the work.
pub(crate) struct Answer<T> {
    result: Receiver<T>,
    task: Option<AbortHandle>,
}

impl<T> Answer<T> {
    /// Waits for the result, unless `stopped` is set first.
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
