//! The events of a run, and a log of them as JSON lines.

use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use warpfeed::{Error, Result};

/// An event of a run. Times are seconds since the run began.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A run begins.
    RunStart {
        /// Name of the run.
        run: String,
        /// Settings of the run.
        settings: Value,
    },
    /// The first batch of an epoch is there.
    SetUp {
        /// Number of the epoch.
        epoch: u64,
        /// Time at which the epoch was requested.
        start_s: f64,
        /// Seconds until the first batch was there.
        seconds: f64,
    },
    /// A batch went through the training step.
    Batch {
        /// Number of the epoch.
        epoch: u64,
        /// Number of the batch in the epoch, from 0.
        batch: u64,
        /// Time at which the batch was requested.
        start_s: f64,
        /// Seconds until the batch was there; 0 for the first of an epoch, whose wait is the set-up.
        fetch_s: f64,
        /// Seconds of the training step.
        train_s: f64,
        /// Number of images in the batch, without padding.
        images: u64,
    },
    /// An epoch is over.
    Epoch {
        /// Number of the epoch.
        epoch: u64,
        /// Time at which the epoch was requested.
        start_s: f64,
        /// Seconds that the epoch took, set-up included.
        seconds: f64,
        /// Number of images in the epoch, without padding.
        images: u64,
        /// Mean loss, if the step reports it.
        loss: Option<f64>,
        /// Mean accuracy, 0 to 1, if the step reports it.
        accuracy: Option<f64>,
    },
    /// A run is over.
    RunEnd {
        /// Name of the run.
        run: String,
        /// Seconds that the run took.
        seconds: f64,
    },
}

/// A file of events, one JSON object per line. Each line is written with one system call, so a reader finds only whole
/// lines, even while the run goes on or after the process was killed.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    path: PathBuf,
    line: Vec<u8>,
}

impl EventLog {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        // The file is truncated first and then opened for appending: if another program truncates it meanwhile, no hole
        // is left.
        File::create(path).map_err(Error::io("create", path))?;
        let file = File::options().append(true).open(path).map_err(Error::io("open", path))?;
        Ok(Self { file, path: path.to_owned(), line: Vec::new() })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    ///
    /// ```
    /// use warpfeed_bench::events::{Event, EventLog};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("events.jsonl");
    /// let mut log = EventLog::create(&path)?;
    /// log.write(&Event::RunEnd { run: "2 threads".into(), seconds: 1.5 })?;
    /// let text = std::fs::read_to_string(&path).unwrap();
    /// assert_eq!(text, "{\"event\":\"run_end\",\"run\":\"2 threads\",\"seconds\":1.5}\n");
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, event)
            .map_err(std::io::Error::from)
            .and_then(|()| {
                self.line.push(b'\n');
                self.file.write_all(&self.line)
            })
            .map_err(Error::io("write", &self.path))
    }
}
