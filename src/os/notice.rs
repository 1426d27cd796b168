//! Lines on standard error that a process prints once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Largest number of lines that are remembered, and printed.
const MAX_LINES: usize = 1_000;

/// Whether the process has not said this before.
pub fn is_new(text: &str) -> bool {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.len() < MAX_LINES && said.insert(text.to_owned())
}

/// Prints a warning that is new. Names in it may have any characters.
pub(crate) fn warn(text: &str) {
    if is_new(text) {
        let shown: String =
            text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
        eprintln!("warpfeed: {shown}");
    }
}

#[cfg(test)]
mod tests {
    use super::is_new;

    #[test]
    fn a_line_is_new_once() {
        assert!(is_new("a line of this test") && !is_new("a line of this test"));
    }
}
