//! Lists of names: one a line, for splits, and in messages.

use super::read_text_limited;
use crate::error::{Error, Result};
use std::path::Path;

/// Largest list, in bytes.
const MAX_LIST_BYTES: u64 = 1 << 30;

/// Reads the lines of a list with their numbers, without white space around them; blank lines are skipped.
///
/// # Errors
/// [`Error::Io`] if the list cannot be read, [`Error::Parameter`] if it has no name.
pub(super) fn read_names(path: &Path) -> Result<Vec<(usize, String)>> {
    let text = read_text_limited(path, MAX_LIST_BYTES)?;
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate();
    let names: Vec<_> = lines.filter(|(_, name)| !name.is_empty()).map(|(i, name)| (i + 1, name.to_owned())).collect();
    if names.is_empty() {
        return Err(Error::parameter("open", "list", "a file with a name on each line", path.display()));
    }
    Ok(names)
}

/// A list of names for messages: `a, b or c`.
pub(super) fn alternatives(names: impl IntoIterator<Item = String>) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    let last = names.pop().unwrap_or_default();
    format!("{} or {last}", names.join(", "))
}
