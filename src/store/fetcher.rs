//! The thread that fetches: a tokio runtime on which no other thread blocks.

use crate::error::{Error, Result};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

/// Interval at which a waiting thread checks whether to give up.
const LOOK: Duration = Duration::from_millis(50);

/// The error of an unanswered request.
const GIVEN_UP: &str = "the request was given up; if the process was forked since the source was opened, open it again";

/// Runs futures in the background. In a forked child it runs none: the thread and the clients' connections are the
/// parent's.
pub(crate) struct Fetcher {
    /// `None` once dropped.
    runtime: Option<Runtime>,
    /// The process that started the thread.
    process: u32,
}

impl Fetcher {
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("warpfeed-fetch").enable_all().build();
        let runtime = runtime.map_err(|error| Error::Device {
            call: "start the thread that fetches shards".into(),
            message: format!("{error}; free threads or memory"),
        })?;
        Ok(Self { runtime: Some(runtime), process: std::process::id() })
    }

    /// Starts `work` in the background.
    pub fn fetch<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Answer<T> {
        let (give, result) = sync_channel(1);
        let runtime = self.runtime.as_ref().filter(|_| self.process == std::process::id());
        let task = runtime.map(|runtime| {
            let task = runtime.spawn(async move {
                // The receiver has given up waiting, so the result is dropped.
                let _ = give.send(work.await);
            });
            task.abort_handle()
        });
        Answer { result, task }
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.process != std::process::id() {
            // A thread of the parent's may have held its locks.
            std::mem::forget(runtime);
        } else {
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
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other(GIVEN_UP)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn another_process_is_answered_at_once_and_ends_no_thread() {
        let mut fetcher = Fetcher::start().unwrap();
        let never = AtomicBool::new(false);
        assert_eq!(fetcher.fetch(async { 7 }).wait(&never).unwrap(), 7);
        let handle = fetcher.runtime.as_ref().unwrap().handle().clone();
        fetcher.process = fetcher.process.wrapping_add(1);
        let begin = Instant::now();
        assert!(fetcher.fetch(async { 7 }).wait(&never).unwrap_err().to_string().contains("forked"));
        assert!(begin.elapsed() < Duration::from_secs(30));
        drop(fetcher);
        assert_eq!(handle.block_on(async { 8 }), 8, "the parent's thread goes on");
    }
}
