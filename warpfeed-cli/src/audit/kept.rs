//! The list file of the images that are kept.

use super::Audit;
use std::io::{self, Write};
use std::path::{Component, Path};
use warpfeed::internal::atomic;
use warpfeed::{Error, Result};

impl Audit {
    /// Writes a list file of the images of the first split that have none of the findings to drop. Paths are relative
    /// to the list if the images are below its folder.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no image is left, or if a path cannot be in a list; [`Error::Io`] if the list cannot be
    /// written.
    pub(super) fn write_kept(&self, path: &Path) -> Result<()> {
        let (images, drop) = (&self.splits[0].images, &self.options.drop);
        let folder = absolute(atomic::folder_of(path))?;
        let labeled = images.has_labels();
        let line = |index| -> Result<String> {
            let path = listed(&images.name(index), &folder)?;
            Ok(images.label(index).map_or_else(|| format!("{path}\n"), |label| format!("{path}\t{label}\n")))
        };
        if self.kept(drop).next().is_none() {
            return Err(Error::parameter(
                "audit",
                "drop",
                "findings that leave an image",
                "findings that all images have",
            ));
        }
        // All lines are made before the first is written, so that a path that cannot be listed leaves no list.
        self.kept(drop).try_for_each(|index| line(index).map(std::mem::drop))?;
        atomic::write_output(path, |file| {
            if !labeled {
                file.write_all(b"#path\n")?;
            }
            self.kept(drop).try_for_each(|index| file.write_all(line(index).map_err(io::Error::other)?.as_bytes()))
        })
    }
}

/// Refuses images that are not files.
pub(super) fn check_files(name: &str) -> Result<()> {
    // A name that is not text cannot be looked at, but only a file has one.
    if Path::new(name).symlink_metadata().is_ok() || name.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(());
    }
    let expected = "left out for images that are not files of their own: audit.jsonl names those of shards";
    Err(Error::parameter("audit", "kept", expected, format!("a list of images like {name}")))
}

fn absolute(path: &Path) -> Result<std::path::PathBuf> {
    std::path::absolute(path).map_err(Error::io("find", path))
}

/// The path of an image as a list in `folder` has it.
fn listed(name: &str, folder: &Path) -> Result<String> {
    let path = absolute(Path::new(name))?;
    let inside = path.strip_prefix(folder).ok().filter(|inside| {
        inside.components().all(|part| matches!(part, Component::Normal(_))) && !inside.as_os_str().is_empty()
    });
    let listed = match inside.unwrap_or(&path).to_string_lossy() {
        // A line that starts with # would be a comment.
        text if text.starts_with('#') => format!("./{text}"),
        text => text.into_owned(),
    };
    if listed.contains(['\n', '\0', char::REPLACEMENT_CHARACTER]) {
        let expected = "of images whose paths are text of one line";
        return Err(Error::parameter("audit", "kept", expected, format!("{name:?}")));
    }
    Ok(listed)
}
