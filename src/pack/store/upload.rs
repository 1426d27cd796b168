//! Writes an object: up to 8 MiB in one request, a larger one in parts, several at a time.
//!
//! object_store cannot list uploads. So an upload is first recorded in a small object of its own, and a later run can
//! abort the uploads of killed processes.

use super::{Place, Store, unless_missing, wait};
use crate::error::{Error, Result};
use crate::store::{Answer, patiently, told};
use object_store::multipart::PartId;
use object_store::path::Path as ObjectPath;
use object_store::{MultipartId, ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The folder of the records of uploads.
pub(super) const FOLDER: &str = ".pack/uploads";

/// Size of every part but the last, in bytes. Stores require 5 MiB or more, and some require equal sizes.
const PART_BYTES: usize = 8 << 20;

/// Largest size of an object. S3 and Google's store take 10,000 parts; a fifth is reserved for shards whose size is an
/// estimate.
pub(super) const MAX_BYTES: u64 = 8_000 * PART_BYTES as u64;

/// Number of parts that are sent in parallel.
const AT_ONCE: usize = 4;

/// Longest time to abort an upload after an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// The record of an upload in parts.
#[derive(Serialize, Deserialize)]
struct Begun {
    /// Name of the object in the folder.
    file: String,
    id: MultipartId,
}

/// An object being written. If it is dropped before it is finished, no object appears.
pub(super) struct Upload<'a> {
    store: &'a Store,
    file: &'a str,
    path: ObjectPath,
    part: Vec<u8>,
    len_bytes: u64,
    /// The upload in parts and the name of its record, once it has begun.
    begun: Option<(Begun, String)>,
    sent: usize,
    coming: VecDeque<Answer<object_store::Result<PartId>>>,
    parts: Vec<PartId>,
}

impl<'a> Upload<'a> {
    pub fn new(store: &'a Store, file: &'a str) -> Self {
        let path = store.object_path(file);
        let (part, begun, coming, parts) = Default::default();
        Self { store, file, path, part, len_bytes: 0, begun, sent: 0, coming, parts }
    }

    /// The upload's identifier at the store. Begins the upload if necessary.
    fn id(&mut self) -> object_store::Result<MultipartId> {
        if let Some((begun, _)) = &self.begun {
            return Ok(begun.id.clone());
        }
        let (uploads, path) = (self.store.uploads.clone(), self.path.clone());
        let id = self.store.run(async move { patiently(|| uploads.create_multipart(&path)).await })?;
        let note = format!("{FOLDER}/{:016x}.json", RandomState::new().hash_one(self.file));
        let begun = Begun { file: self.file.to_owned(), id: id.clone() };
        let text = serde_json::to_vec(&begun).unwrap_or_default();
        self.begun = Some((begun, note.clone()));
        self.store.put(&note, text)?;
        Ok(id)
    }

    /// Sends the current part.
    fn send(&mut self) -> object_store::Result<()> {
        let id = self.id()?;
        if self.coming.len() == AT_ONCE {
            self.receive()?;
        }
        let data = PutPayload::from(std::mem::take(&mut self.part));
        let (uploads, path, number) = (self.store.uploads.clone(), self.path.clone(), self.sent);
        self.sent += 1;
        let part = async move { patiently(|| uploads.put_part(&path, &id, number, data.clone())).await };
        self.coming.push_back(self.store.fetcher.fetch(part));
        Ok(())
    }

    /// Waits for the oldest part being sent.
    fn receive(&mut self) -> object_store::Result<()> {
        if let Some(part) = self.coming.pop_front() {
            self.parts.push(wait(part)?);
        }
        Ok(())
    }

    /// Completes the object, and makes it visible.
    pub fn finish(mut self) -> io::Result<()> {
        self.complete().map_err(told)
    }

    fn complete(&mut self) -> object_store::Result<()> {
        if self.begun.is_none() {
            return self.store.put(self.file, std::mem::take(&mut self.part));
        }
        if !self.part.is_empty() {
            self.send()?;
        }
        while !self.coming.is_empty() {
            self.receive()?;
        }
        let (uploads, path, id) = (self.store.uploads.clone(), self.path.clone(), self.id()?);
        let parts = std::mem::take(&mut self.parts);
        let (server, len_bytes) = (self.store.server(), self.len_bytes);
        self.store.run(async move {
            match patiently(|| uploads.complete_multipart(&path, &id, parts.clone())).await {
                // The object may be complete: by an earlier request whose answer was lost, or by another process that
                // wrote the same bytes. At Azure's store, that process's last request drops the parts of all others.
                Err(error) => {
                    let there = patiently(|| server.objects.head(&path)).await;
                    if there.is_ok_and(|found| found.size == len_bytes) { Ok(()) } else { Err(error) }
                }
                completed => completed.map(drop),
            }
        })?;
        if let Some((begun, note)) = self.begun.take() {
            // If another process has completed the object, this upload's parts remain. If aborting fails, the next
            // process that cleans up repeats it.
            let _ = self.store.run(abort(self.store, begun, note));
        }
        Ok(())
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.part.len() == PART_BYTES {
            self.send().map_err(told)?;
        }
        let taken = bytes.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        self.len_bytes += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        self.coming.clear();
        if let Some((begun, note)) = self.begun.take() {
            // The first error is the one to report. If this fails, the next process aborts the upload.
            let given_up = abort(self.store, begun, note);
            // The timeout needs the runtime of the fetcher's thread.
            let in_time = async move { tokio::time::timeout(PATIENCE, given_up).await };
            let _ = self.store.fetcher.fetch(in_time).wait(&AtomicBool::new(false));
        }
    }
}

/// Aborts an upload. One that is complete, or aborted already, has no parts.
fn abort(store: &Store, begun: Begun, note: String) -> impl Future<Output = object_store::Result<()>> + Send + use<> {
    let (uploads, path) = (store.uploads.clone(), store.object_path(&begun.file));
    let (server, note) = (store.server(), store.object_path(&note));
    async move {
        unless_missing(patiently(|| uploads.abort_multipart(&path, &begun.id)).await)?;
        unless_missing(patiently(|| server.objects.delete(&note)).await).map(drop)
    }
}

/// Aborts the recorded uploads.
pub(super) fn abort_uploads(store: &Store) -> Result<()> {
    let notes: Vec<String> = store.list(FOLDER)?.0.into_keys().map(|note| format!("{FOLDER}/{note}")).collect();
    for (text, note) in store.read_each(&notes)?.into_iter().zip(notes) {
        let Some(text) = text else { continue };
        let begun = serde_json::from_slice(&text).map_err(io::Error::from);
        let begun: Begun = begun.map_err(Error::io("read", store.url(&note)))?;
        let file = begun.file.clone();
        store.run(abort(store, begun, note)).map_err(store.failed("give up the upload of", &file))?;
    }
    Ok(())
}
