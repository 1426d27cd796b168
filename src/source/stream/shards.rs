//! The shards of a stream: local files, pipes, standard input.

use super::pipe::Pipe;
use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use std::fs;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of one read from a local file.
const READ_BYTES: usize = 256 << 10;

/// The shards of a stream.
pub(in crate::source) trait Shards: Send + Sync {
    /// Number of shards.
    fn count(&self) -> usize;

    /// Returns a shard's path or address.
    fn name(&self, shard: usize) -> String;

    /// Opens a shard in its current version. Waiting for its bytes ends once `stopped` is set.
    fn find(&self, shard: usize, stopped: &Arc<AtomicBool>) -> Result<Box<dyn Shard>>;

    /// Whether shards can be read more than once and from any byte on.
    fn seekable(&self) -> bool;

    /// Largest number of bytes that reading holds.
    fn memory_bytes(&self) -> u64 {
        READ_BYTES as u64
    }
}

/// One shard.
pub(in crate::source) trait Shard: Send {
    /// Changes whenever the shard changes.
    fn version(&self) -> u64;

    /// Returns the bytes of the shard that are in `part`.
    fn read(&self, part: Range<u64>) -> Result<Box<dyn Read + Send>>;
}

/// Whether a file can only be read from front to back.
#[cfg(unix)]
pub(in crate::source) fn is_pipe(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(not(unix))]
pub(in crate::source) fn is_pipe(_path: &std::path::Path) -> bool {
    false
}

/// Local files, which may be pipes.
pub(super) struct Files(pub Vec<PathBuf>);

struct LocalFile {
    path: PathBuf,
    stopped: Arc<AtomicBool>,
}

impl Shards for Files {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn name(&self, shard: usize) -> String {
        self.0[shard].display().to_string()
    }

    fn find(&self, shard: usize, stopped: &Arc<AtomicBool>) -> Result<Box<dyn Shard>> {
        Ok(Box::new(LocalFile { path: self.0[shard].clone(), stopped: Arc::clone(stopped) }))
    }

    fn seekable(&self) -> bool {
        !self.0.iter().any(|path| is_pipe(path))
    }
}

impl Shard for LocalFile {
    /// The size. The modification time would differ after files were copied.
    fn version(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    fn read(&self, part: Range<u64>) -> Result<Box<dyn Read + Send>> {
        if is_pipe(&self.path) {
            let pipe = Pipe::open(&self.path, Arc::clone(&self.stopped)).map_err(Error::io("open", &self.path))?;
            return Ok(Box::new(BufReader::with_capacity(READ_BYTES, pipe)));
        }
        let (mut file, _) = open_with_metadata(&self.path)?;
        if part.start > 0 {
            file.seek(SeekFrom::Start(part.start)).map_err(Error::io("read", &self.path))?;
        }
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, file).take(part.end - part.start)))
    }
}

/// Standard input, which can be read once.
#[derive(Default)]
pub(super) struct StandardInput {
    taken: Arc<AtomicBool>,
}

struct TheInput {
    taken: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
}

impl Shards for StandardInput {
    fn count(&self) -> usize {
        1
    }

    fn name(&self, _shard: usize) -> String {
        "standard input".to_owned()
    }

    fn find(&self, _shard: usize, stopped: &Arc<AtomicBool>) -> Result<Box<dyn Shard>> {
        Ok(Box::new(TheInput { taken: Arc::clone(&self.taken), stopped: Arc::clone(stopped) }))
    }

    fn seekable(&self) -> bool {
        false
    }
}

impl Shard for TheInput {
    fn version(&self) -> u64 {
        0
    }

    fn read(&self, _part: Range<u64>) -> Result<Box<dyn Read + Send>> {
        if self.taken.swap(true, Relaxed) {
            return Err(Error::parameter("stream", "epochs", "1, as standard input can be read once", "another"));
        }
        let input = Pipe::over(io::stdin(), Arc::clone(&self.stopped));
        Ok(Box::new(BufReader::with_capacity(READ_BYTES, input)))
    }
}
