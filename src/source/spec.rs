//! The files that a source's name stands for: braces and wildcards.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// Largest number of files that one pattern may name; more are probably a typing error.
pub(super) const MAX_NAMES: usize = 1_000_000;

/// Options of wildcards. As in a shell, a wildcard does not match the leading dot of a hidden file.
pub(super) const WILDCARDS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: false, require_literal_leading_dot: true };

/// Returns the files that `spec` names, in order: `spec` itself if it exists or is not a pattern, otherwise the
/// expansion of its braces (`{000..146}`, `{a,b}`) and wildcards (`*`, `?`, `[a-z]`). A wildcard must match at least
/// one file; other names are checked when they are opened.
pub(super) fn files(spec: &Path) -> Result<Vec<PathBuf>> {
    let pattern = spec.to_str().filter(|text| text.contains(['{', '*', '?', '[']) && !spec.exists());
    let Some(pattern) = pattern else { return Ok(vec![spec.to_owned()]) };
    let mut files = Vec::new();
    for name in expand(pattern)? {
        if !name.contains(['*', '?', '[']) || Path::new(&name).exists() {
            files.push(PathBuf::from(name));
            continue;
        }
        let refused = |error: glob::PatternError| refuse("a pattern of *, ? and [a-z]", format!("{name}: {error}"));
        let before = files.len();
        for found in glob::glob_with(&name, WILDCARDS).map_err(refused)? {
            files.push(found.map_err(|error| Error::io("list", error.path().to_owned())(error.into()))?);
            check_count(files.len(), pattern)?;
        }
        if files.len() == before {
            return Err(refuse("a pattern that some file's name fits", name));
        }
    }
    Ok(files)
}

pub(in crate::source) fn refuse(expected: &str, got: impl ToString) -> Error {
    Error::parameter("open", "source", expected, got)
}

fn check_count(count: usize, pattern: &str) -> Result<()> {
    let allowed = || refuse(&format!("a pattern for at most {MAX_NAMES} files"), pattern);
    if count > MAX_NAMES { Err(allowed()) } else { Ok(()) }
}

/// Expands the braces of `pattern` as in a shell: the first varies slowest. Braces with neither a range nor a comma
/// stay as they are.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let Some(len) = rest[open..].find('}') else { break };
        let (before, inside) = (&rest[..open], &rest[open + 1..open + len]);
        rest = &rest[open + len + 1..];
        let choices = match (numbers(inside, pattern)?, inside.contains(',')) {
            (Some(numbers), _) => numbers,
            (None, true) => inside.split(',').map(str::to_owned).collect(),
            (None, false) => vec![format!("{{{inside}}}")],
        };
        check_count(names.len().saturating_mul(choices.len()), pattern)?;
        names =
            names.iter().flat_map(|name| choices.iter().map(move |choice| format!("{name}{before}{choice}"))).collect();
    }
    Ok(names.into_iter().map(|name| name + rest).collect())
}

/// Returns the numbers of a range such as `000..146`. If one end begins with a zero, all numbers have as many digits as
/// the longer end.
fn numbers(range: &str, pattern: &str) -> Result<Option<Vec<String>>> {
    let Some((first, last)) = range.split_once("..") else { return Ok(None) };
    let digits = |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Ok(None);
    }
    let padded = [first, last].iter().any(|text| text.len() > 1 && text.starts_with('0'));
    let width = if padded { first.len().max(last.len()) } else { 0 };
    let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else { return Ok(None) };
    check_count(usize::try_from(first.abs_diff(last)).unwrap_or(usize::MAX).saturating_add(1), pattern)?;
    let number = |i: u64| format!("{i:0width$}");
    Ok(Some(if first <= last {
        (first..=last).map(number).collect()
    } else {
        (last..=first).rev().map(number).collect()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn braces_expand_as_in_a_shell() {
        let cases: &[(&str, &[&str])] = &[
            ("a.tar", &["a.tar"]),
            ("t-{8..11}.tar", &["t-8.tar", "t-9.tar", "t-10.tar", "t-11.tar"]),
            ("t-{008..11}", &["t-008", "t-009", "t-010", "t-011"]),
            ("{2..0}", &["2", "1", "0"]),
            ("{a,b}{0..1}", &["a0", "a1", "b0", "b1"]),
            ("{train,}/x", &["train/x", "/x"]),
            ("{a}{", &["{a}{"]),
            ("}{1..x}", &["}{1..x}"]),
        ];
        for (pattern, want) in cases {
            assert_eq!(expand(pattern).unwrap(), *want, "{pattern}");
        }
        for pattern in ["{0..999999999999}", "{0..999}{0..999}{0..9}"] {
            assert!(expand(pattern).unwrap_err().is_parameter(), "{pattern}");
        }
    }

    #[test]
    fn patterns_name_the_files_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["b-1.tar", "b-0.tar", "b-10.tar", ".b-2.tar", "odd{1..2}.tar", "a.rec"] {
            fs::write(path(name), "").unwrap();
        }
        let names = |pattern: &str| -> Vec<String> {
            let found = files(&path(pattern)).unwrap().into_iter();
            found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("b-*.tar"), ["b-0.tar", "b-1.tar", "b-10.tar"]);
        assert_eq!(names("*.tar"), ["b-0.tar", "b-1.tar", "b-10.tar", "odd{1..2}.tar"]);
        assert_eq!(names("{a.*,b-[01].tar}"), ["a.rec", "b-0.tar", "b-1.tar"]);
        assert_eq!(names("b-{0..2}.tar"), ["b-0.tar", "b-1.tar", "b-2.tar"]);
        assert_eq!(names("odd{1..2}.tar"), ["odd{1..2}.tar"], "what exists is meant as it is");
        for (pattern, says) in [("c-*.tar", "c-*.tar"), ("b-[.tar", "error")] {
            let error = files(&path(pattern)).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
        }
    }
}
