//! A folder of shards at an object store. `upload` writes objects, which appear whole or not at all.
//!
//! There are no locks, because two processes that make one shard write the same bytes. Each makes its own part, and
//! then, in a random order, the shards without a record. The manifest is written on the condition that it is unchanged.
//! An upload that fails is complete if an object of its length exists: the answer may have been lost, or another
//! process was faster.

mod upload;

use super::PackOptions;
use super::place::{Contents, JOB, Listing, Place};
use crate::address::Address;
use crate::error::{Error, Result};
use crate::source::packed::{MANIFEST, MAX_BYTES};
use crate::source::stream::remote;
use crate::store::{Answer, Fetcher, Object, Server, patiently, told};
use object_store::multipart::MultipartStore;
use object_store::path::Path as ObjectPath;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use upload::{Upload, abort_uploads};

/// Number of small requests that are sent in parallel.
const SIDE_BY_SIDE: usize = 32;

/// Largest number of shards: a listing of more would exceed 128 MiB and would not be read.
const MOST_SHARDS: usize = 250_000;

/// Largest object that stores copy in one request. TFRecord shards are copied to their final names.
const MAX_COPY_BYTES: u64 = 5_000_000_000;

pub(super) struct Store {
    folder: Object,
    uploads: Arc<dyn MultipartStore>,
    fetcher: Arc<Fetcher>,
    /// The version of the manifest that was last read or written here.
    manifest: Mutex<Option<UpdateVersion>>,
}

impl Store {
    pub fn open(address: Address) -> Result<Self> {
        let url = address.public().trim_end_matches('/').to_owned();
        let expected = "a folder, or an address that begins with s3://, gs:// or az:// and has no pattern";
        let refused = || Error::parameter("pack", "out", expected, &url);
        if url.contains(['{', '}', '*', '?', '[', ']']) {
            return Err(refused());
        }
        let folder = Object::new(url.clone(), address, &mut HashMap::new())?;
        let uploads = folder.server.uploads.clone().ok_or_else(refused)?;
        let (fetcher, manifest) = (Arc::new(Fetcher::start()?), Mutex::default());
        Ok(Self { folder, uploads, fetcher, manifest })
    }

    fn server(&self) -> Server {
        self.folder.server.clone()
    }

    fn url(&self, file: &str) -> String {
        if file.is_empty() { self.folder.url.clone() } else { format!("{}/{file}", self.folder.url) }
    }

    fn object_path(&self, file: &str) -> ObjectPath {
        let parts = file.split('/').filter(|part| !part.is_empty());
        parts.fold(self.folder.path.clone(), |path, part| path.join(part))
    }

    fn object(&self, file: &str) -> Object {
        Object { url: self.url(file), path: self.object_path(file), ..self.folder.clone() }
    }

    /// Runs requests to the store and waits for their result.
    fn run<T: Send + 'static>(
        &self,
        requests: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        wait(self.fetcher.fetch(requests))
    }

    /// Writes a small object.
    fn put(&self, file: &str, contents: Vec<u8>) -> object_store::Result<()> {
        let (server, path, contents) = (self.server(), self.object_path(file), PutPayload::from(contents));
        self.run(async move { patiently(|| server.objects.put(&path, contents.clone())).await.map(drop) })
    }

    /// Writes a manifest over the version that was last read or written here. It uses a single request, because uploads
    /// in parts have no conditions.
    fn put_manifest(&self, text: Vec<u8>) -> Result<()> {
        let mut seen = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        let (object, text) = (self.object(MANIFEST), PutPayload::from(text));
        let mode = seen.clone().map_or(PutMode::Create, PutMode::Update);
        let written = self.run(async move { put_if(&object, text, mode).await });
        let version = written.map_err(self.failed("write", MANIFEST))?;
        *seen = Some(version.ok_or_else(|| (self as &dyn Place).taken("another run"))?);
        Ok(())
    }

    /// Sends many small requests and returns the answers in their order.
    fn ask_each<I, T, F>(
        &self,
        items: impl IntoIterator<Item = I>,
        ask: impl Fn(I) -> F,
    ) -> Vec<object_store::Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (mut coming, mut answers) = (VecDeque::new(), Vec::new());
        for item in items {
            if coming.len() == SIDE_BY_SIDE {
                answers.extend(coming.pop_front().map(wait));
            }
            coming.push_back(self.fetcher.fetch(ask(item)));
        }
        answers.extend(coming.into_iter().map(wait));
        answers
    }

    fn failed(&self, action: &'static str, file: &str) -> impl FnOnce(object_store::Error) -> Error {
        let url = self.url(file);
        move |error| Error::io(action, url)(told(error))
    }
}

/// Waits for an answer.
fn wait<T>(answer: Answer<object_store::Result<T>>) -> object_store::Result<T> {
    let given_up = |error: io::Error| object_store::Error::Generic { store: "request", source: error.into() };
    answer.wait(&AtomicBool::new(false)).map_err(given_up)?
}

/// Writes an object under a condition, if the store has conditions. `None` if the condition is not met, unless the
/// object has this text already: from an earlier request whose answer was lost, or from another process of the job.
async fn put_if(object: &Object, text: PutPayload, mode: PutMode) -> object_store::Result<Option<UpdateVersion>> {
    let put = |mode: PutMode| object.server.objects.put_opts(&object.path, text.clone(), mode.into());
    let answer = match patiently(|| put(mode.clone())).await {
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            patiently(|| put(PutMode::Overwrite)).await
        }
        answer => answer,
    };
    match answer {
        Ok(put) => Ok(Some(put.into())),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } | StoreError::NotFound { .. }) => {
            let found = unless_missing(object.contents(MAX_BYTES).await)?;
            let is_same = |found: &[u8]| text.iter().flatten().eq(found);
            Ok(found.filter(|(found, _)| is_same(found)).map(|(_, meta)| version(meta)))
        }
        Err(error) => Err(error),
    }
}

fn version(meta: ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag, version: meta.version }
}

/// Turns the error for a missing object into `None`.
fn unless_missing<T>(answer: object_store::Result<T>) -> object_store::Result<Option<T>> {
    match answer {
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

impl Place for Store {
    fn name(&self) -> Option<String> {
        let host = self.folder.url.rsplit('/').next();
        self.folder.path.filename().or(host).map(str::to_owned)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.url(file).into()
    }

    fn check(&self, options: &PackOptions) -> Result<()> {
        let alone = options.format.facts().names_have_count && options.rank.is_none();
        let (most, why) = match alone {
            true => (MAX_COPY_BYTES, " for TFRecord without a rank, whose shards are renamed at the end"),
            false => (upload::MAX_BYTES, " at a store"),
        };
        if options.shard_bytes <= most {
            return Ok(());
        }
        Err(Error::parameter("pack", "shard_bytes", format!("at most {most}{why}"), options.shard_bytes))
    }

    fn most_shards(&self) -> usize {
        MOST_SHARDS
    }

    /// Stores have no folders.
    fn make(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Listing> {
        let (server, path) = (self.server(), self.object_path(folder));
        let found = self.run(async move { server.list(&path).await }).map_err(self.failed("list", folder))?;
        let name = |path: &ObjectPath| path.filename().unwrap_or_default().to_owned();
        let mut listing = Listing::default();
        listing.0.extend(found.common_prefixes.iter().map(|path| (name(path), None)));
        listing.0.extend(found.objects.iter().map(|object| (name(&object.location), Some(object.size))));
        Ok(listing)
    }

    fn open(&self, file: &str) -> Result<Option<(u64, Box<dyn Read>)>> {
        let opened = remote::open(&self.object(file), &self.fetcher)?;
        Ok(opened.map(|(len_bytes, bytes)| (len_bytes, bytes as Box<dyn Read>)))
    }

    /// Reads the text together with its version, because another process may write it again.
    fn read(&self, file: &str) -> Result<Option<Vec<u8>>> {
        let object = self.object(file);
        let answer = self.run(async move { object.contents(MAX_BYTES).await });
        let (text, meta) = unless_missing(answer).map_err(self.failed("read", file))?.unzip();
        if file == MANIFEST {
            *self.manifest.lock().unwrap_or_else(PoisonError::into_inner) = meta.map(version);
        }
        Ok(text)
    }

    fn read_each(&self, files: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        let answers = self.ask_each(files, |file| {
            let object = self.object(file);
            async move { object.contents(MAX_BYTES).await.map(|(contents, _)| contents) }
        });
        let read = |(answer, file): (_, &String)| unless_missing(answer).map_err(self.failed("read", file));
        answers.into_iter().zip(files).map(read).collect()
    }

    fn write(&self, file: &str, contents: Contents) -> Result<()> {
        if file == MANIFEST {
            let mut text = Vec::new();
            contents(&mut text).map_err(Error::io("write", self.url(file)))?;
            return self.put_manifest(text);
        }
        let mut upload = Upload::new(self, file);
        contents(&mut upload).and_then(|()| upload.finish()).map_err(Error::io("write", self.url(file)))
    }

    fn rename(&self, names: &[(String, String)]) -> Result<()> {
        let answers = self.ask_each(names, |(hidden, named)| {
            let (server, from, to) = (self.server(), self.object_path(hidden), self.object_path(named));
            async move {
                match patiently(|| server.objects.copy(&from, &to)).await {
                    Err(object_store::Error::NotFound { .. }) => patiently(|| server.objects.head(&to)).await.map(drop),
                    Ok(()) => patiently(|| server.objects.delete(&from)).await,
                    Err(error) => Err(error),
                }
            }
        });
        let renamed = |(answer, (hidden, _)): (object_store::Result<()>, &(String, String))| {
            answer.map_err(self.failed("rename", hidden))
        };
        answers.into_iter().zip(names).try_for_each(renamed)
    }

    fn remove(&self, files: &[String]) -> Result<()> {
        let answers = self.ask_each(files, |file| {
            let (server, path) = (self.server(), self.object_path(file));
            async move { patiently(|| server.objects.delete(&path)).await }
        });
        let removed =
            |(answer, file): (_, &String)| unless_missing(answer).map(drop).map_err(self.failed("remove", file));
        answers.into_iter().zip(files).try_for_each(removed)
    }

    /// Aborts uploads that were begun and never finished: they take space at the store, and are not objects.
    fn clear_job(&self) {
        let _ = abort_uploads(self);
        if let Ok(found) = self.list(JOB) {
            let files = found.0.into_iter().filter(|(_, len_bytes)| len_bytes.is_some());
            let _ = self.remove(&files.map(|(file, _)| format!("{JOB}/{file}")).collect::<Vec<_>>());
        }
    }
}
