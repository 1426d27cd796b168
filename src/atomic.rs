//! Files that appear whole or not at all.

use crate::error::{Error, Result};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes `path` through a temporary file beside it, which takes its name once it is complete. A failed or killed
/// write leaves what was there before; a killed one may leave `.NAME.PROCESS-N.tmp` too.
///
/// What is no regular file, such as `/dev/null` or a pipe, is written to directly: a rename would replace it.
pub(crate) fn write(path: &Path, contents: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let special = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let temporary = if special { None } else { Some(temporary_name(path)) };
    let result = (|| {
        let mut options = File::options();
        options.write(true);
        let file = match &temporary {
            Some(temporary) => options.create_new(true).open(temporary)?,
            None => options.open(path)?,
        };
        let mut writer = BufWriter::new(file);
        contents(&mut writer)?;
        writer.flush()?;
        drop(writer);
        temporary.as_ref().map_or(Ok(()), |temporary| fs::rename(temporary, path))
    })();
    if let (Err(_), Some(temporary)) = (&result, &temporary) {
        // The first error is the one to report.
        let _ = fs::remove_file(temporary);
    }
    result.map_err(Error::io("write", path))
}

fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, |file| file.write_all(b"old")).unwrap();
        let error = write(&path, |file| file.write_all(b"new").and(Err(io::Error::other("disk full")))).unwrap_err();
        assert!(error.to_string().contains("disk full") && error.to_string().contains("file"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("missing/file"), PathBuf::new()] {
            let error = write(&path, |file| file.write_all(b"x")).unwrap_err();
            assert!(error.to_string().starts_with(&format!("cannot write {}: ", path.display())), "{error}");
        }
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    #[cfg(unix)]
    fn devices_are_written_to_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        write(Path::new("/dev/null"), |file| file.write_all(b"x")).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }
}
