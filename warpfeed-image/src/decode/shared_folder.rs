//! Who may use the files of a folder: its owner alone, or the group that may write to it. The files get the folder's
//! group. Whoever can write to a folder of entry points can change pixels, so such a group must trust each other.

use crate::file::open_by;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Makes a folder, and those above it, for its owner alone.
pub(super) fn create(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Makes a file that does not exist yet.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.write(true).create_new(true).open(path)?;
    share(&file, path);
    Ok(file)
}

/// Opens the file to be locked, and makes it if it does not exist.
pub(super) fn create_lock(folder: &Path) -> io::Result<File> {
    let path = folder.join("lock");
    match create_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_by(&path, File::options().write(true)).map(|(file, _)| file)
        }
        created => created,
    }
}

/// Lets the folder's group read and write a new file, if it may write to the folder. If that fails, the file is its
/// owner's alone.
#[cfg(unix)]
fn share(file: &File, path: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let folder = path.parent().and_then(|folder| fs::metadata(folder).ok());
    let (Some(folder), Ok(own)) = (folder, file.metadata()) else { return };
    let is_shared = folder.mode() & 0o020 != 0;
    let is_of_group = || own.gid() == folder.gid() || std::os::unix::fs::fchown(file, None, Some(folder.gid())).is_ok();
    if is_shared && is_of_group() {
        let _ = file.set_permissions(fs::Permissions::from_mode(0o660));
    }
}

#[cfg(not(unix))]
fn share(_: &File, _: &Path) {}
