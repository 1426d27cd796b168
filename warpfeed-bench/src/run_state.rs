//! The state file of a run, from which a later process continues it.

use super::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpfeed::internal::lock::Lock;
use warpfeed::internal::{atomic, file, lock};
use warpfeed::source::read_limited;
use warpfeed::{EpochState, Error, Partition, Pipeline, Result};

/// Samples and batches that a run had delivered when it was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Earlier {
    /// Samples, without padding.
    pub images: u64,
    /// Batches.
    pub batches: u64,
}

/// Samples and batches that a run had delivered when its number of ranks changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OtherRanks {
    /// The number of ranks before the last change.
    pub ranks: u32,
    /// Samples that all ranks together had delivered, without padding.
    pub images: u64,
    /// Batches that all ranks together had delivered.
    pub batches: u64,
}

/// The state file of a run. It holds the run's progress: it is written after every batch, and read to continue the run.
/// A power loss undoes at most about a second of the run. To this end a second file, `.NAME.synced`, lies next to it
/// until the run is done. With several ranks each has a file of its own, `NAME.RANK`.
///
/// # Another number of ranks
///
/// A run may be continued with another number of ranks, once the earlier processes have ended. Each new rank reads the
/// files of all ranks before and computes from them the state in which it begins ([`Pipeline::state_after`]). The new
/// ranks replace some of these files, at different times, and may be killed before all of them have. So a file says how
/// many times the number of ranks has changed, and has the beginning, which all ranks since the last change share. The
/// files with the most changes count:
///
/// - No new rank has written its file: all files are from before, and each rank computes the beginning from them. They
///   do not change any more, so every rank computes the same one.
/// - Some have: whoever has no file with so many changes takes the beginning from one that has.
/// - The number changes again before all have: a rank without a file with so many changes has delivered nothing since
///   the beginning.
///
/// While a rank runs, `.NAME.lock` next to its file is locked. A second process of the same rank is refused, and so is
/// one of another number of ranks as long as one of the ranks before still runs.
///
/// Before the first change, a rank without a file may have delivered batches, and its file may be on another machine.
/// So a change is then refused until each rank has a file.
#[derive(Debug, Clone)]
pub struct StateFile {
    /// Path of the file; with several ranks, without the rank. The file is created with the first batch. At the end it
    /// stays, and then says that the run is complete.
    pub path: PathBuf,
    /// Other settings that must not change, as text. They are compared with those that the run began with.
    pub settings: String,
}

/// Version of the files that are written and read, before the number of ranks changes.
const STATE_VERSION: u32 = 1;

/// Version of the files after a change, which earlier programs refuse.
const CHANGED_VERSION: u32 = 2;

/// Limit of a state's size. The state of a stream with a window of a million samples takes a tenth of it.
const MAX_STATE_BYTES: u64 = 128 << 20;

/// Time between syncs, and so the part of a run that a power loss may undo.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Most ranks of a run whose number of ranks changes.
const MAX_RANKS: u32 = 1 << 16;

/// Contents of a state file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    version: u32,
    settings: String,
    pub(super) epoch: EpochState,
    pub(super) delivered: Earlier,
    /// The unfinished state of SHA-256, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
    /// The last change of the number of ranks, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<Change>,
}

/// The last change of the number of ranks: the same in the files of all ranks since, but for the rank in `beginning`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Change {
    /// How many times the number has changed.
    changes: u32,
    /// The state in which a rank begins.
    beginning: EpochState,
    before: OtherRanks,
}

impl Saved {
    /// A rank's state after a change, before it has delivered anything.
    fn begun(settings: &str, change: Change) -> Self {
        let (epoch, delivered) = (change.beginning.clone(), Earlier::default());
        // A digest covers what this rank delivers since the change.
        let digest = Some(Digest::default().unfinished());
        Self { version: CHANGED_VERSION, settings: settings.to_owned(), epoch, delivered, digest, change: Some(change) }
    }

    /// How many times the number of ranks has changed.
    fn changes(&self) -> u32 {
        self.change.as_ref().map_or(0, |change| change.changes)
    }

    /// Deliveries of earlier processes of this rank since the last change; `None` if there was no such process.
    pub(super) fn earlier(&self) -> Option<Earlier> {
        let has_begun = |change: &Change| change.beginning != self.epoch;
        self.change.as_ref().is_none_or(has_begun).then_some(self.delivered)
    }

    /// Deliveries of all ranks before the last change of their number.
    pub(super) fn other_ranks(&self) -> Option<OtherRanks> {
        self.change.as_ref().map(|change| change.before)
    }
}

impl StateFile {
    /// The file of a rank.
    fn of_rank(&self, partition: Partition) -> PathBuf {
        if partition.world_size() == 1 {
            return self.path.clone();
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", partition.rank()));
        name.into()
    }

    /// The paths of all ranks' files, of any number of ranks.
    fn of_all_ranks(&self) -> Result<Vec<PathBuf>> {
        let (folder, name) = (atomic::folder_of(&self.path), self.path.file_name().and_then(|name| name.to_str()));
        let Some(name) = name.filter(|_| folder.is_dir()) else { return Ok(Vec::new()) };
        let is_ours = |file: &str| {
            let rank = |rest: &str| rest.parse().is_ok_and(|rank: u32| rank.to_string() == rest);
            file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(rank))
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
            let entry = entry.map_err(Error::io("list", folder))?;
            if entry.file_name().to_str().is_some_and(is_ours) {
                paths.push(self.path.with_file_name(entry.file_name()));
            }
        }
        Ok(paths)
    }

    /// Keeps other processes away from a rank's file until the result is dropped.
    pub(super) fn lock(&self, partition: Partition) -> Result<Option<Lock>> {
        lock::only_writer("run", "state", &self.of_rank(partition), &job(partition))
    }

    /// Refuses to change the number of ranks while one of another number still runs.
    fn check_ended(&self, own: Partition) -> Result<()> {
        let of_same = format!("/{}", job(own).split_once('/').map_or("", |(_, end)| end));
        let is_other = |text: &str| text.contains(", rank ") && !text.ends_with(&of_same);
        for path in self.of_all_ranks()? {
            if let Some(other) = Lock::holder(&lock::beside(&path), is_other).map_err(Error::io("lock", &path))? {
                return Err(lock::is_held("run", "state", &path, &other));
            }
        }
        Ok(())
    }

    /// The state from which the rank of `pipeline` continues; `None` if it begins anew.
    pub(super) fn find<I>(&self, pipeline: &Pipeline<I>) -> Result<Option<Saved>> {
        let own = pipeline.partition();
        let path = self.of_rank(own);
        let mut found = Vec::new();
        if let Some(saved) = read(&path)? {
            if self.of_rank(saved.epoch.partition()?) != path {
                // It is refused, with what differs.
                return Ok(Some(saved));
            }
            found.push(saved);
        }
        for path in self.of_all_ranks()?.iter().filter(|other| **other != path) {
            // If a file of another rank is damaged, that may not matter.
            let saved = read(path).or_else(|error| if error.is_parameter() { Ok(None) } else { Err(error) })?;
            found.extend(saved.filter(|saved| saved.epoch.partition().is_ok_and(|of| self.of_rank(of) == *path)));
        }
        let changes = found.iter().map(Saved::changes).max().unwrap_or(0);
        found.retain(|saved| saved.changes() == changes);
        let size = |saved: &Saved| saved.epoch.partition().map_or(0, Partition::world_size);
        if let Some(saved) = found.iter().find(|saved| saved.epoch.partition().is_ok_and(|of| of == own)) {
            self.check(saved)?;
            return Ok(Some(saved.clone()));
        }
        if let Some(saved) = found.iter().find(|saved| size(saved) == own.world_size()) {
            let Some(change) = &saved.change else { return Ok(None) };
            self.check(saved)?;
            let beginning = change.beginning.of_rank(own);
            return Ok(Some(Saved::begun(&self.settings, Change { beginning, ..change.clone() })));
        }
        match found.first() {
            Some(first) => self.take_over(pipeline, size(first), &found).map(Some),
            None => Ok(None),
        }
    }

    /// Continues a run that had `ranks` ranks, which have left `found`.
    fn take_over<I>(&self, pipeline: &Pipeline<I>, ranks: u32, found: &[Saved]) -> Result<Saved> {
        let refused = |expected: String, got: String| Err(Error::parameter("run", "state", expected, got));
        self.check_ended(pipeline.partition())?;
        let mut states: BTreeMap<u32, EpochState> = BTreeMap::new();
        let (mut images, mut batches) = (0_u64, 0_u64);
        for saved in found {
            self.check(saved)?;
            let partition = saved.epoch.partition()?;
            if partition.world_size() != ranks || ranks > MAX_RANKS {
                let expected = format!("files at {} of one run, of at most {MAX_RANKS} ranks", self.path.display());
                let got = format!(
                    "files of {ranks} and of {} ranks: remove those that are not to be continued",
                    partition.world_size()
                );
                return refused(expected, got);
            }
            states.insert(partition.rank(), saved.epoch.clone());
            images = images.saturating_add(saved.delivered.images);
            batches = batches.saturating_add(saved.delivered.batches);
        }
        let change = found.first().and_then(|saved| saved.change.as_ref());
        for rank in 0..ranks {
            let partition = Partition::new(rank, ranks)?;
            match change {
                Some(change) => {
                    states.entry(rank).or_insert_with(|| change.beginning.of_rank(partition));
                }
                None if states.contains_key(&rank) => {}
                None => {
                    let expected = format!(
                        "a state of each of {ranks} ranks, to continue with {}",
                        pipeline.partition().world_size()
                    );
                    let missing = self.of_rank(partition);
                    let got = format!(
                        "none in {}: continue with {ranks} ranks until each has written its state, or remove the files \
                         to begin anew",
                        missing.display()
                    );
                    return refused(expected, got);
                }
            }
        }
        let states: Vec<EpochState> = states.into_values().collect();
        let beginning = pipeline.state_after(&states)?;
        let earlier = change.map(|change| change.before);
        let before = OtherRanks {
            ranks,
            images: images.saturating_add(earlier.map_or(0, |before| before.images)),
            batches: batches.saturating_add(earlier.map_or(0, |before| before.batches)),
        };
        let changes = change.map_or(0, |change| change.changes).saturating_add(1);
        Ok(Saved::begun(&self.settings, Change { changes, beginning, before }))
    }

    /// Checks that the state is of a run with the same settings.
    fn check(&self, saved: &Saved) -> Result<()> {
        if saved.settings == self.settings {
            return Ok(());
        }
        let path = saved.epoch.partition().map(|partition| self.of_rank(partition))?;
        Err(refused(&path, format!("of a run with {}", self.settings), &saved.settings))
    }

    /// The writer of a rank's file. `found`: what it continues.
    pub(super) fn writer(&self, partition: Partition, found: Option<&Saved>) -> Result<StateWriter<'_>> {
        let (path, change) = (self.of_rank(partition), found.and_then(|found| found.change.clone()));
        let (folder, synced_path) = (atomic::folder_of(&path), synced_path(&path));
        let is_ours = |name: &str| [&path, &synced_path].iter().any(|path| path.ends_with(name));
        // If the folder is missing, writing the state will report it.
        if folder.is_dir() {
            atomic::remove_leftovers(folder, atomic::LEFTOVER_AGE, is_ours)?;
        }
        Ok(StateWriter { settings: &self.settings, path, synced_path, change, synced: None })
    }
}

/// What a rank's lock says.
fn job(partition: Partition) -> String {
    format!("rank {partition} of a run")
}

/// Path of the synced state, which survives a power loss, while the run goes on.
fn synced_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".synced");
    path.with_file_name(name)
}

fn refused(path: &Path, expected: String, got: impl Display) -> Error {
    let got = format!("{got} in {}: go on with the same, or remove the file to begin anew", path.display());
    Error::parameter("run", "state", expected, got)
}

/// Reads a state file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Saved>> {
    let bytes = |path: &Path| file::if_there(read_limited(path, MAX_STATE_BYTES));
    let Some(text) = bytes(path)? else { return Ok(None) };
    let saved: Saved = match serde_json::from_slice(&text) {
        Ok(saved) => saved,
        // After a power loss the file may be empty or torn.
        Err(error) => match bytes(&synced_path(path))?.and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(saved) => saved,
            None => return Err(refused(path, "a file that an earlier run wrote".to_owned(), error)),
        },
    };
    let version = if saved.change.is_some() { CHANGED_VERSION } else { STATE_VERSION };
    if saved.version != version {
        let expected = format!("of version {STATE_VERSION} or {CHANGED_VERSION}");
        return Err(refused(path, expected, format_args!("version {}", saved.version)));
    }
    Ok(Some(saved))
}

/// Writes states: each one to the file, which is enough if the process is killed, and once a second also to a second
/// file, which is synced and survives a power loss. A sync after every batch would cost more than the batches.
pub(super) struct StateWriter<'a> {
    settings: &'a str,
    path: PathBuf,
    synced_path: PathBuf,
    change: Option<Change>,
    synced: Option<Instant>,
}

impl StateWriter<'_> {
    pub(super) fn write(&mut self, epoch: EpochState, delivered: Earlier, digest: Option<String>) -> Result<()> {
        let (settings, change) = (self.settings.to_owned(), self.change.clone());
        let version = if change.is_some() { CHANGED_VERSION } else { STATE_VERSION };
        let saved = Saved { version, settings, epoch, delivered, digest, change };
        let text = serde_json::to_vec(&saved).map_err(|error| Error::io("write", &self.path)(error.into()))?;
        if self.synced.is_none_or(|time| time.elapsed() >= SYNC_INTERVAL) {
            atomic::write_synced(&self.synced_path, |file| file.write_all(&text))?;
            self.synced = Some(Instant::now());
        }
        atomic::write(&self.path, |file| file.write_all(&text))
    }

    /// Makes the last state survive a power loss.
    pub(super) fn finish(self) -> Result<()> {
        if self.synced.is_none() {
            return Ok(());
        }
        let Self { path, synced_path, .. } = &self;
        let sync = || {
            file::open_by(path, File::options().write(true))?
                .0
                .sync_all()
                .and_then(|()| atomic::sync_folder(atomic::folder_of(path)))
        };
        sync().map_err(Error::io("sync", path))?;
        match fs::remove_file(synced_path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", synced_path)(error)),
            _ => Ok(()),
        }
    }
}
