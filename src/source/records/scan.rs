//! Scanning shards for their records, several at once.

use super::format::RecordFormat;
use super::found::ScannedShard;
use super::index;
use super::options::RecordOptions;
use super::parser::{Names, Parser};
use super::shard::Shard;
use crate::error::Result;
use crate::source::ReadRequest;
use crate::source::window::Window;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Scans all shards, or loads their indices, on at most `threads` threads.
pub(super) fn scan_all(
    format: RecordFormat,
    count: usize,
    open: &(impl Fn(usize) -> Result<Shard> + Sync),
    threads: usize,
    options: &RecordOptions,
) -> Result<Vec<(Shard, ScannedShard)>> {
    let next = AtomicUsize::new(0);
    type Scanned = Option<Result<(Shard, ScannedShard)>>;
    let results: Vec<Mutex<Scanned>> = (0..count).map(|_| Mutex::default()).collect();
    let work = || {
        while let i = next.fetch_add(1, Ordering::Relaxed)
            && i < count
        {
            let outcome = open(i).and_then(|shard| scan(format, &shard, options).map(|found| (shard, found)));
            let failed = outcome.is_err();
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            if failed {
                // Stops the other threads: an error makes their results useless.
                next.store(count, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for i in 1..threads.min(count) {
            // If the system gives no more threads, the existing ones scan all shards.
            if std::thread::Builder::new().name(format!("scan {i}")).spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Scans one shard, or loads its index if that matches.
fn scan(format: RecordFormat, shard: &Shard, options: &RecordOptions) -> Result<ScannedShard> {
    let key = index::Key::new(format, options, shard);
    if let Some(found) = options.keep_index.then(|| index::load(shard, &key)).flatten() {
        return Ok(found);
    }
    let file = shard.open_once()?;
    let mut window = Window::new(&file, shard.len_bytes);
    let mut found = ScannedShard::default();
    let mut parser = Parser::new(format, options, &ReadRequest::IMAGE, 0);
    while let Some(entry) = parser.next(&mut window)? {
        found.add(entry);
    }
    found.skipped_files = parser.skipped_files();
    if options.keep_index {
        index::keep(shard, &key, &found);
    }
    Ok(found)
}

/// Samples of a shard whose fields are noted.
const NOTED: usize = 100;

/// Returns the names of the fields that the first samples of a shard have.
pub(super) fn names(format: RecordFormat, options: &RecordOptions, shard: &Shard) -> Result<Names> {
    let file = shard.open_once()?;
    let mut window = Window::new(&file, shard.len_bytes);
    let mut parser = Parser::new(format, options, &ReadRequest::IMAGE, 0);
    parser.keep_names(true);
    let mut samples = 0;
    while samples < NOTED && parser.next(&mut window)?.is_some() {
        samples += 1;
    }
    Ok(parser.names())
}

/// Returns the offsets at which the samples of a shard begin.
pub(super) fn starts(format: RecordFormat, options: &RecordOptions, shard: &Shard) -> Result<Vec<u64>> {
    let file = shard.open_once()?;
    let mut window = Window::new(&file, shard.len_bytes);
    let (mut parser, mut starts) = (Parser::new(format, options, &ReadRequest::IMAGE, 0), Vec::new());
    while let Some(entry) = parser.next(&mut window)? {
        starts.push(entry.part.start);
    }
    Ok(starts)
}
