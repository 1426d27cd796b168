//! Opening regular files without waiting, reading them by position, and limiting open ones.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Fills `buffer` with the bytes from `offset` on.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, buffer, offset);
    #[cfg(not(unix))]
    {
        use std::os::windows::fs::FileExt;
        let mut done = 0;
        while done < buffer.len() {
            match file.seek_read(&mut buffer[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Opens a regular file to read it, with its metadata. Anything else is an error at once: a pipe without a writer would
/// be waited for.
///
/// # Errors
/// An error of the system, or one that names the kind of file at the path.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    open_by(path, File::options().read(true))
}

/// Opens a regular file by these options, which may create it. Every file is opened by this, except pipes that the user
/// names.
///
/// # Errors
/// The errors of [`open`].
pub fn open_by(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    let file = match open_at_once(path, options) {
        Ok(file) => file,
        // A socket, for one, cannot be opened at all.
        Err(error) => return Err(fs::metadata(path).ok().and_then(|metadata| refuse(&metadata)).unwrap_or(error)),
    };
    let metadata = file.metadata()?;
    match refuse(&metadata) {
        Some(error) => Err(error),
        None => Ok((file, metadata)),
    }
}

/// Reason why a file that is not regular is not read.
fn refuse(metadata: &Metadata) -> Option<io::Error> {
    let what = match metadata {
        metadata if metadata.is_file() => return None,
        metadata if metadata.is_dir() => "it is a folder and not a regular file",
        _ => "it is not a regular file (but a pipe, a socket or a device)",
    };
    let kind = if metadata.is_dir() { io::ErrorKind::IsADirectory } else { io::ErrorKind::InvalidData };
    Some(io::Error::new(kind, what))
}

/// Opens without waiting for the other end of a pipe. Of a regular file the flag changes nothing.
#[cfg(target_os = "linux")]
fn open_at_once(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    options.custom_flags(flags.bits() as i32).open(path)
}

/// Looks before it opens, as other systems have other flags.
#[cfg(not(target_os = "linux"))]
fn open_at_once(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::metadata(path).ok().and_then(|metadata| refuse(&metadata)) {
        Some(error) => Err(error),
        None => options.open(path),
    }
}

/// Largest number of files that are kept open, by all of the process together: a quarter of those that it may open, and
/// at most 1,024.
pub fn most_open() -> usize {
    /// Number of files that processes may usually open, where the system does not say.
    const USUAL: usize = 1024;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    (soft_limit(&limits).unwrap_or(USUAL) / 4).clamp(1, 1024)
}

/// The limit in force, from Linux's table: name, soft limit, hard limit, unit. `None` too for one that is not a number.
fn soft_limit(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

/// Somebody who keeps files open, in order not to open them again.
pub trait Keeper: Send + Sync {
    /// Sets how many files may be kept open, and closes those beyond. It must not begin or end a [`Share`].
    fn keep_at_most(&self, most: usize);
}

/// All keepers of the process, with the number of files that each would keep.
static KEEPERS: Mutex<Vec<(Weak<dyn Keeper>, usize)>> = Mutex::new(Vec::new());

/// A keeper's share of the files that are kept open: all keepers together keep no more than [`most_open`]. It changes
/// when others begin or end.
#[derive(Debug)]
pub struct Share(());

impl Share {
    /// Begins a keeper's share. `wanted`: the number of files that it would keep.
    pub fn begin(keeper: Weak<dyn Keeper>, wanted: usize) -> Self {
        deal(Some((keeper, wanted)));
        Self(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        deal(None);
    }
}

/// Tells all keepers their shares: equal ones, but what one does not want goes to the others.
fn deal(new: Option<(Weak<dyn Keeper>, usize)>) {
    let mut keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    keepers.extend(new);
    keepers.retain(|(keeper, _)| keeper.strong_count() > 0);
    keepers.sort_by_key(|(_, wanted)| *wanted);
    let shares = shares(most_open(), &keepers.iter().map(|(_, wanted)| *wanted).collect::<Vec<_>>());
    let mut alive = Vec::new();
    for ((keeper, _), share) in keepers.iter().zip(shares) {
        if let Some(keeper) = keeper.upgrade() {
            keeper.keep_at_most(share);
            alive.push(keeper);
        }
    }
    drop(keepers);
    // A keeper that ends here ends its share.
    drop::<Vec<Arc<dyn Keeper>>>(alive);
}

/// The share of each, of `most`. `wanted` is sorted.
fn shares(most: usize, wanted: &[usize]) -> Vec<usize> {
    let (mut left, mut others) = (most, wanted.len());
    let share = |wanted: &usize| {
        let share = (*wanted).min(left / others);
        (left, others) = (left - share, others - 1);
        share
    };
    wanted.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_from_the_systems_table() {
        let line =
            |soft: &str| format!("Max processes  7 8 processes\nMax open files            {soft} 4096  files \n");
        assert_eq!(
            [line("40"), line("unlimited"), String::new()].map(|text| soft_limit(&text)),
            [Some(40), None, None]
        );
        assert!((1..=1024).contains(&most_open()));
        #[cfg(target_os = "linux")]
        assert!(soft_limit(&fs::read_to_string("/proc/self/limits").unwrap()).is_some());
    }

    #[test]
    fn keepers_share_what_may_be_kept_open() {
        assert_eq!(shares(16, &[64, 122]), [8, 8]);
        assert_eq!(shares(256, &[2, 64, 122, 200]), [2, 64, 95, 95]);
        assert_eq!(shares(1, &[5, 5, 5]), [0, 0, 1]);
        assert!(shares(16, &[]).is_empty());
    }

    #[test]
    fn a_share_changes_when_others_begin_and_end() {
        #[derive(Default)]
        struct Counts(std::sync::atomic::AtomicUsize);
        impl Keeper for Counts {
            fn keep_at_most(&self, most: usize) {
                self.0.store(most, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let begin = || {
            let keeper = Arc::new(Counts::default());
            let weak = Arc::downgrade(&keeper);
            (keeper, Share::begin(weak, usize::MAX))
        };
        let most = |counts: &Counts| counts.0.load(std::sync::atomic::Ordering::Relaxed);
        // Other tests of this process have shares too.
        let (first, _first_share) = begin();
        let alone = most(&first);
        let others: Vec<_> = (0..7).map(|_| begin()).collect();
        let (among, together) = (most(&first), others.iter().map(|(other, _)| most(other)).sum::<usize>());
        assert!(among <= alone / 2 && among + together <= most_open(), "{alone}, {among}, {together}");
        drop(others);
        assert!(most(&first) > among);
    }
}
