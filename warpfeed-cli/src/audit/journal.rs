//! The file `audit.jsonl`: a line that identifies the images, then a record a line.

use super::Split;
use super::record::Record;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use warpfeed::internal::file::open_by;
use warpfeed::internal::lock::{Lock, only_writer};
use warpfeed::{Error, Result};

/// Version of the records.
const VERSION: u32 = 1;
/// Longest line that is read back.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Subject {
    audit: u32,
    splits: Vec<Audited>,
    /// The fields that are read, if they were named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Audited {
    name: String,
    images: u64,
    /// The source's fingerprint, in hexadecimal.
    fingerprint: String,
}

/// The file, at the place where the next record is written.
pub(super) struct Journal {
    path: PathBuf,
    file: BufWriter<File>,
    /// Keeps other audits away.
    _lock: Option<Lock>,
}

impl Journal {
    /// Opens the file in `folder`, which is created if it is missing. With `resume`, `add` gets each record that the
    /// file has; a line that is cut off or damaged, and all after it, are removed. Without, the file begins anew.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the file is about other images, if an unfinished one would be lost, or if another audit
    /// is writing to it; [`Error::Io`] if the file cannot be read or written.
    pub(super) fn open(
        folder: &Path,
        (splits, fields): (&[Split], &[String]),
        resume: bool,
        add: &mut dyn FnMut(Record),
    ) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let path = folder.join("audit.jsonl");
        let lock = only_writer("audit", "out", &path, "an audit")?;
        let opened = open_by(&path, File::options().read(true).write(true).create(true).truncate(false));
        let (mut file, _) = opened.map_err(Error::io("open", &path))?;
        let splits = splits.iter().map(Audited::of).collect();
        let subject = Subject { audit: VERSION, splits, fields: fields.to_vec() };
        let images: u64 = subject.splits.iter().map(|split| split.images).sum();
        let io = || Error::io("read", &path);
        let (mut reader, mut line) = (BufReader::new(&file), Vec::new());
        let begun = next(&mut reader, &mut line).map_err(io())?.then(|| serde_json::from_slice::<Subject>(&line).ok());
        let is_ours = begun.flatten().is_some_and(|begun| begun == subject);
        if resume && !is_ours && file.metadata().map_err(io())?.len() > 0 {
            let expected = "a folder with an unfinished audit of the same images, or without one";
            return Err(Error::parameter("audit", "out", expected, folder.display()));
        }
        let (mut end, mut records) = (line.len() as u64, 0);
        if is_ours {
            while next(&mut reader, &mut line).map_err(io())? {
                let Some(record) = read_record(&line, images) else { break };
                end += line.len() as u64;
                records += 1;
                if resume {
                    add(record);
                }
            }
        }
        if !resume && is_ours && records < images && records > 0 {
            let expected = "a folder without an unfinished audit of these images: resume it, or remove its audit.jsonl";
            return Err(Error::parameter("audit", "out", expected, folder.display()));
        }
        drop(reader);
        let keep = if resume && is_ours { end } else { 0 };
        let begin = |file: &mut File| file.set_len(keep).and_then(|()| file.seek(SeekFrom::Start(keep))).map(drop);
        begin(&mut file).map_err(Error::io("write", &path))?;
        let mut journal = Self { path, file: BufWriter::with_capacity(1 << 16, file), _lock: lock };
        if keep == 0 {
            journal.write(&subject)?;
        }
        Ok(journal)
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record) -> Result<()> {
        self.write(record)
    }

    /// Writes what is still held.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.file.flush().map_err(Error::io("write", &self.path))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let written = serde_json::to_writer(&mut self.file, line).map_err(Into::into);
        written.and_then(|()| self.file.write_all(b"\n")).map_err(Error::io("write", &self.path))
    }
}

impl Audited {
    fn of(split: &Split) -> Self {
        let Split { name, images } = split;
        Self { name: name.clone(), images: images.len(), fingerprint: format!("{:016x}", images.fingerprint()) }
    }
}

/// Reads the next line with its end. `false` if there is none that is whole.
fn next(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    reader.take(MAX_LINE_BYTES).read_until(b'\n', line)?;
    let is_whole = line.last() == Some(&b'\n');
    if !is_whole {
        line.clear();
    }
    Ok(is_whole)
}

fn read_record(line: &[u8], images: u64) -> Option<Record> {
    serde_json::from_slice(line).ok().filter(|record: &Record| u64::from(record.image) < images)
}
