//! Who makes what at an object store, which has no locks.
//!
//! A claim is an object that is made only where there is none. The process that has it writes it anew every [`BEAT`]. A
//! claim is free when its process is known to be dead, as on one machine it may be, or when it has not changed for
//! [`LEASE`] by the clock of the process that watches it. That one takes it over by writing it on the condition that it is
//! still as it was read. So no two clocks are compared. A process that was only held up for so long finds out, at the
//! latest when it goes on to its next shard. Meanwhile both make the same: an object is written whole, with the same bytes
//! whoever writes it. So a claim saves work, and nothing depends on it. A store without conditions has the same shards
//! made more than once.

use super::super::lock::described;
use super::super::process;
use super::{Claimed, Store, Work, unless_missing};
use crate::error::Result;
use crate::pack::place::Claim;
use crate::store::{Answer, Object, patiently};
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Where claims lie.
pub(super) const FOLDER: &str = ".pack/claims";

/// How often a process says that it lives.
const BEAT: Duration = Duration::from_secs(5);

/// The process of a claim that has not changed for so long is dead.
const LEASE: Duration = Duration::from_secs(20);

/// How old the listing may be by which claims are watched.
const LOOK: Duration = Duration::from_secs(1);

/// No claim is longer.
const MAX_BYTES: u64 = 64 << 10;

/// How long giving a claim back may take at the end. One that stays is free after a while.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a claim says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Text {
    /// Who does what, for people.
    job: String,
    /// [`process::identity`]
    process: Option<String>,
    /// A random number, which tells claims of one process apart.
    id: String,
    beat: u64,
}

impl Text {
    fn payload(&self) -> PutPayload {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// The claims of other processes, as this one has seen them.
#[derive(Default)]
pub(super) struct Watch {
    looked: Option<Instant>,
    seen: HashMap<String, Seen>,
}

struct Seen {
    version: String,
    /// When it was first seen as it is.
    since: Instant,
    /// Whether it was seen to change.
    changed: bool,
    /// What it said when it was first asked for.
    text: Option<Text>,
}

/// A claim that this process has.
struct Held<'a> {
    store: &'a Store,
    object: Object,
    lost: Arc<AtomicBool>,
    /// Says that the process lives.
    beats: Option<Answer<()>>,
}

impl Claim for Held<'_> {
    fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.beats = None;
        if self.is_lost() {
            return;
        }
        let object = self.object.clone();
        let given_back = async move { patiently(|| object.server.objects.delete(&object.path)).await };
        let in_time = async move { tokio::time::timeout(PATIENCE, given_back).await };
        let _ = self.store.fetcher.fetch(in_time).wait(&AtomicBool::new(false));
    }
}

/// Claims a work.
pub(super) fn claim<'a>(store: &'a Store, work: Work, job: &str) -> Result<Claimed<'a>> {
    let name = match work {
        Work::All => "all".to_owned(),
        Work::Shard(i) => format!("{i:06}"),
    };
    let mut watch = store.watch.lock().unwrap_or_else(PoisonError::into_inner);
    watch.look(store)?;
    let file = format!("{FOLDER}/{name}");
    let id = format!("{:016x}", RandomState::new().hash_one(&name));
    let text = Text { job: described(job), process: process::identity(), id, beat: 0 };
    let object = store.object(&file);
    let Some(seen) = watch.seen.get_mut(&name) else {
        return match create(store, &object, &text).map_err(store.failed("write", &file))? {
            Some(version) => Ok(held(store, object, text, version)),
            None => {
                watch.looked = None;
                Ok(Claimed::Other(None))
            }
        };
    };
    if seen.text.is_none() {
        let asked = object.clone();
        let found = store.run(async move { read(&asked).await }).map_err(store.failed("read", &file))?;
        seen.text = found.and_then(|(text, _)| text);
    }
    match seen.is_free() {
        Some(false) => Ok(Claimed::Other(seen.text.as_ref().map(|text| text.job.clone()))),
        None => Ok(Claimed::Other(None)),
        Some(true) => {
            let other = watch.seen.remove(&name).and_then(|seen| seen.text);
            watch.looked = None;
            let taken = take_over(store, &object, other, &text).map_err(store.failed("write", &file))?;
            Ok(taken.map_or(Claimed::Other(None), |version| held(store, object, text, version)))
        }
    }
}

impl Watch {
    /// Looks at all claims, unless it has just done so.
    fn look(&mut self, store: &Store) -> Result<()> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Ok(());
        }
        let found = store.list_objects(FOLDER)?.objects.into_iter().filter_map(|object| {
            let version = object.e_tag.unwrap_or_else(|| object.last_modified.to_string());
            Some((object.location.filename()?.to_owned(), version))
        });
        let mut before = std::mem::take(&mut self.seen);
        self.seen = found.map(|(name, version)| (name.clone(), Seen::now(version, before.remove(&name)))).collect();
        self.looked = Some(Instant::now());
        Ok(())
    }
}

impl Seen {
    /// A claim as it is now, which was seen `before`.
    fn now(version: String, before: Option<Self>) -> Self {
        match before {
            Some(before) if before.version == version => before,
            before => {
                let changed = before.is_some();
                Self { version, since: Instant::now(), changed, text: before.and_then(|before| before.text) }
            }
        }
    }

    /// Whether anybody may take it; `None` if that is not known yet.
    fn is_free(&self) -> Option<bool> {
        let identity = self.text.as_ref().and_then(|text| text.process.as_deref());
        let alive = identity.and_then(process::is_alive);
        // What could not be removed at its end stays while its process lives, and does not change.
        if alive == Some(false) || self.since.elapsed() >= LEASE {
            return Some(true);
        }
        (self.changed || alive == Some(true)).then_some(false)
    }
}

/// What a claim says, if that can be understood, and its version; `None` if there is none.
async fn read(object: &Object) -> object_store::Result<Option<(Option<Text>, UpdateVersion)>> {
    let Some((text, meta)) = unless_missing(object.contents(MAX_BYTES).await)? else { return Ok(None) };
    let version = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
    Ok(Some((serde_json::from_slice(&text).ok(), version)))
}

/// Writes a claim under a condition, if the store has conditions.
async fn put(object: &Object, text: &Text, mode: PutMode) -> object_store::Result<PutResult> {
    let put = |mode| {
        let options = PutOptions { mode, ..PutOptions::default() };
        object.server.objects.put_opts(&object.path, text.payload(), options)
    };
    match put(mode).await {
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => put(PutMode::Overwrite).await,
        answer => answer,
    }
}

/// Writes a claim under a condition. `None` if another process has it.
async fn put_own(object: &Object, text: &Text, mode: PutMode) -> object_store::Result<Option<UpdateVersion>> {
    match patiently(|| put(object, text, mode.clone())).await {
        Ok(put) => Ok(Some(put.into())),
        // Or it was written by an earlier request, whose answer was lost.
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } | StoreError::NotFound { .. }) => {
            let found = read(object).await?;
            let is_own = |found: &Option<Text>| found.as_ref().is_some_and(|found| found.id == text.id);
            Ok(found.filter(|(found, _)| is_own(found)).map(|(_, version)| version))
        }
        Err(error) => Err(error),
    }
}

/// Writes a claim where there is none.
fn create(store: &Store, object: &Object, text: &Text) -> object_store::Result<Option<UpdateVersion>> {
    let (object, text) = (object.clone(), text.clone());
    store.run(async move { put_own(&object, &text, PutMode::Create).await })
}

/// Writes a claim in the place of another, if that is still there.
fn take_over(
    store: &Store,
    object: &Object,
    other: Option<Text>,
    text: &Text,
) -> object_store::Result<Option<UpdateVersion>> {
    let (object, text) = (object.clone(), text.clone());
    store.run(async move {
        let id = |text: &Option<Text>| text.as_ref().map(|text| text.id.clone());
        match read(&object).await? {
            Some((found, version)) if id(&found) == id(&other) => {
                put_own(&object, &text, PutMode::Update(version)).await
            }
            _ => Ok(None),
        }
    })
}

/// A claim that this process has, and says so until it is dropped.
fn held(store: &Store, object: Object, mut text: Text, mut version: UpdateVersion) -> Claimed<'_> {
    let lost = Arc::new(AtomicBool::new(false));
    let (beaten, is_lost) = (object.clone(), Arc::clone(&lost));
    let beats = store.fetcher.fetch(async move {
        loop {
            tokio::time::sleep(BEAT).await;
            text.beat += 1;
            match put_own(&beaten, &text, PutMode::Update(version.clone())).await {
                Ok(Some(written)) => version = written,
                Ok(None) => break is_lost.store(true, Relaxed),
                // The next beat may come through.
                Err(_) => {}
            }
        }
    });
    Claimed::Taken(Box::new(Held { store, object, lost, beats: Some(beats) }))
}
