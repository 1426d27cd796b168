//! Pipes. Waiting for their writers ends when the epoch is dropped.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A pipe's reading end.
pub(super) struct Pipe<R> {
    read: R,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems' reads wait for the writer"))]
    stopped: Arc<AtomicBool>,
}

impl<R> Pipe<R> {
    /// Reads from an open pipe.
    pub fn over(read: R, stopped: Arc<AtomicBool>) -> Self {
        Self { read, stopped }
    }
}

#[cfg(not(target_os = "linux"))]
impl Pipe<File> {
    /// Opens a named pipe, once it has a writer.
    pub fn open(path: &Path, stopped: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(Self::over(File::open(path)?, stopped))
    }
}

#[cfg(not(target_os = "linux"))]
impl<R: Read> Read for Pipe<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer)
    }
}

/// The implementation for Linux. There, a pipe that was opened without waiting is not at its end before it has had a
/// writer; other systems differ.
#[cfg(target_os = "linux")]
mod polled {
    use super::{Arc, AtomicBool, File, Path, Pipe, Read, io};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::OFlags;
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::Ordering::Relaxed;

    /// Longest wait before `stopped` is checked again.
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

    impl Pipe<File> {
        /// Opens a named pipe, which need not have a writer yet.
        pub fn open(path: &Path, stopped: Arc<AtomicBool>) -> io::Result<Self> {
            let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
            Ok(Self::over(file, stopped))
        }
    }

    impl<R: Read + AsFd> Read for Pipe<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            loop {
                if self.stopped.load(Relaxed) {
                    return Err(io::Error::other("the epoch was dropped"));
                }
                let ready = match poll(&mut [PollFd::new(&self.read, PollFlags::IN)], Some(&PAUSE)) {
                    Err(rustix::io::Errno::INTR) => continue,
                    ready => ready?,
                };
                if ready == 0 {
                    continue;
                }
                match self.read.read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return read,
                }
            }
        }
    }
}
