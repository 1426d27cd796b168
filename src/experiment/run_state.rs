//! The state file of a run, from which a later process continues it.

use crate::error::{Error, Result};
use crate::pipeline::EpochState;
use crate::{atomic, file};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Samples and batches that a run had delivered when it was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Earlier {
    /// Samples, without padding.
    pub images: u64,
    /// Batches.
    pub batches: u64,
}

/// The state file of a run. It holds the run's progress: it is written after every batch, and read to continue the run.
/// A power loss undoes at most about a second of the run. To this end a second file, `.NAME.synced`, lies beside it
/// until the run is done.
#[derive(Debug, Clone)]
pub struct StateFile {
    /// Path of the file. The file is created with the first batch. At the end it stays, and then says that the run is
    /// complete.
    pub path: PathBuf,
    /// Other settings that must not change, as text. They are compared with those that the run began with.
    pub settings: String,
}

/// Version of the files that are written and read.
const STATE_VERSION: u32 = 1;

/// Limit of a state's size. The state of a stream with a window of a million samples takes a tenth of it.
const MAX_STATE_BYTES: u64 = 128 << 20;

/// Time between syncs, and so the part of a run that a power loss may undo.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Contents of a state file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunState {
    version: u32,
    settings: String,
    pub(super) epoch: EpochState,
    pub(super) delivered: Earlier,
    /// The unfinished state of SHA-256, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
}

impl StateFile {
    /// The state that an earlier process left; `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<RunState>> {
        let read = |path: &Path| file::if_there(file::read_limited(path, MAX_STATE_BYTES));
        let Some(text) = read(&self.path)? else { return Ok(None) };
        let refused = |expected: String, got: String| {
            let got =
                format!("{got} in {}: go on with the same, or remove the file to begin anew", self.path.display());
            Err(Error::parameter("run", "state", expected, got))
        };
        let state: RunState = match serde_json::from_slice(&text) {
            Ok(state) => state,
            // After a power loss the file may be empty or torn.
            Err(error) => match read(&self.synced_path())?.and_then(|text| serde_json::from_slice(&text).ok()) {
                Some(state) => state,
                None => return refused("a file that an earlier run wrote".to_owned(), error.to_string()),
            },
        };
        if state.version != STATE_VERSION {
            return refused(format!("of version {STATE_VERSION}"), format!("version {}", state.version));
        }
        if state.settings != self.settings {
            return refused(format!("of a run with {}", self.settings), state.settings);
        }
        Ok(Some(state))
    }

    /// Path of the synced state, which survives a power loss, while the run goes on.
    fn synced_path(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".synced");
        self.path.with_file_name(name)
    }

    pub(super) fn writer(&self) -> Result<StateWriter<'_>> {
        let folder = atomic::folder_of(&self.path);
        let is_ours = |name: &str| [self.path.clone(), self.synced_path()].iter().any(|path| path.ends_with(name));
        // If the folder is missing, writing the state will report it.
        if folder.is_dir() {
            atomic::remove_leftovers(folder, atomic::LEFTOVER_AGE, is_ours)?;
        }
        Ok(StateWriter { file: self, synced: None })
    }
}

/// Writes states: each one to the file, which is enough if the process is killed, and once a second also to a second
/// file, which is synced and survives a power loss. A sync after every batch would cost more than the batches.
pub(super) struct StateWriter<'a> {
    file: &'a StateFile,
    synced: Option<Instant>,
}

impl StateWriter<'_> {
    pub(super) fn write(&mut self, epoch: EpochState, delivered: Earlier, digest: Option<String>) -> Result<()> {
        let settings = self.file.settings.clone();
        let state = RunState { version: STATE_VERSION, settings, epoch, delivered, digest };
        let text = serde_json::to_vec(&state).map_err(|error| Error::io("write", &self.file.path)(error.into()))?;
        if self.synced.is_none_or(|time| time.elapsed() >= SYNC_INTERVAL) {
            atomic::write_synced(&self.file.synced_path(), |file| file.write_all(&text))?;
            self.synced = Some(Instant::now());
        }
        atomic::write(&self.file.path, |file| file.write_all(&text))
    }

    /// Makes the last state survive a power loss.
    pub(super) fn finish(self) -> Result<()> {
        if self.synced.is_none() {
            return Ok(());
        }
        let (path, synced_path) = (&self.file.path, self.file.synced_path());
        let sync = || {
            File::options()
                .write(true)
                .open(path)?
                .sync_all()
                .and_then(|()| atomic::sync_folder(atomic::folder_of(path)))
        };
        sync().map_err(Error::io("sync", path))?;
        match fs::remove_file(&synced_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", synced_path)(error)),
            _ => Ok(()),
        }
    }
}
