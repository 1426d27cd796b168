//! A list file: each line has a path and a label.

use super::records::label;
use super::{ReadRequest, Sample, Source, no_fields, no_such_sample, path_from_bytes, read_image};
use crate::error::{Error, Result};
use crate::os::file::open_with_metadata;
use crate::targets::Target;
use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Largest length of a line, so that a file without line ends is not read whole as one line.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Largest size of a list, in bytes: 4 GiB.
const MAX_LIST_BYTES: u64 = 4 << 30;

/// Images named by a list file: lines of path, tab, label.
///
/// The label is a whole number from 0 to 4,294,967,295. Relative paths start at the folder of the list. Blank lines
/// and lines that start with `#` are skipped, and lines may end in CR LF. The label follows the last tab, so a path may
/// hold tabs; on Unix it may hold any bytes.
///
/// A list whose first line is `#path` has paths alone, and its images have no labels.
///
/// A list may name more columns in its first line: `#path` and the names, separated by tabs. Paths of such a list hold
/// no tabs. The column `label` has the labels; without it, images have none. The other columns are fields of targets,
/// held in memory.
///
/// ```
/// # use warpfeed::source::{ListFile, Source};
/// let folder = tempfile::tempdir().unwrap();
/// let list = folder.path().join("train.tsv");
/// std::fs::write(&list, "# path, label\ncats/1.jpg\t0\n/data/dogs/1.jpg\t1\n").unwrap();
/// let source = ListFile::open(&list)?;
/// assert_eq!((source.len(), source.label(1)), (2, Some(1)));
/// assert_eq!(source.path(0), folder.path().join("cats/1.jpg"));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ListFile {
    folder: PathBuf,
    /// All paths in one allocation, and the end of each: a million allocations would cost more than the paths.
    paths: Vec<u8>,
    ends: Vec<u64>,
    /// The label of each image; empty if images have none.
    labels: Vec<u32>,
    /// Names of the columns after the path, if the list names them.
    columns: Vec<String>,
    /// Number of the column of labels, not counting the path; `None` if there is none, or columns have no names.
    label: Option<usize>,
    /// Whether labels are wanted.
    takes_labels: bool,
    /// The part of each line after the path, and its end, if the list names its columns.
    values: Vec<u8>,
    value_ends: Vec<u64>,
}

/// First bytes of files that are not lists, with their kind and the remedy.
const OTHERS: [(&[u8], &str); 12] = [
    (b"\xff\xd8\xff", IMAGE),
    (b"\x89PNG", IMAGE),
    (b"RIFF", IMAGE),
    (b"PK\x03\x04", "a zip archive: unpack it, or pack its images into a tar"),
    (b"\x89HDF", "an HDF5 file: write its images to files or shards, as h5py reads them"),
    (b"PAR1", "a Parquet file: use the format parquet (--format parquet)"),
    (b"ARROW1", "an Arrow file: write it as Parquet"),
    (b"\x93NUMPY", "a NumPy array: write its images to files or shards"),
    (b"\x1f\x8b", "compressed by gzip: unpack it"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: unpack it"),
    (b"SQLite format 3", "an SQLite database: write its images to files or shards"),
    (b"\x80\x04\x95", "a pickle of Python: write its images to files or shards"),
];
const IMAGE: &str = "an image itself: give its folder, or use `warpfeed apply`";

/// Beginning of the first line of a list with named columns.
const COLUMNS: &[u8] = b"#path\t";

/// First line of a list without labels.
const PATHS_ALONE: &[u8] = b"#path";

impl ListFile {
    /// Reads the list at `path`. The images are not opened.
    ///
    /// # Errors
    /// [`Error::Io`] if the list cannot be read, [`Error::Parameter`] with file and line number if a line is not path,
    /// tab, label, or if there is no such line at all, [`Error::Limits`] if the list is longer than 4 GiB.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_by(path.as_ref(), None)
    }

    /// Opens a list whose labels are in the column `wanted`, by default `label`.
    pub(super) fn open_by(path: &Path, wanted: Option<&str>) -> Result<Self> {
        let (file, metadata) = open_with_metadata(path)?;
        if metadata.len() > MAX_LIST_BYTES {
            return Err(Error::Limits {
                what: "a list file, in bytes,",
                got: metadata.len(),
                limit: MAX_LIST_BYTES,
                remedy: "it is held in memory; pack the images into shards, or name fewer",
            });
        }
        let mut reader = BufReader::new(file.take(MAX_LIST_BYTES));
        let mut list = Self::empty(path.parent().unwrap_or(Path::new("")));
        let (mut line, mut paths_alone) = (Vec::new(), false);
        for number in 1_u64.. {
            line.clear();
            let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
            if read.map_err(Error::io("read", path))? == 0 {
                break;
            }
            let cut_off = read_whole_limit(&line);
            while let [rest @ .., b'\n' | b'\r'] = &line[..] {
                line.truncate(rest.len());
            }
            let line = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) } else { &line[..] };
            if let (1, false, Some(names)) = (number, cut_off, line.strip_prefix(COLUMNS)) {
                let names = String::from_utf8_lossy(names);
                list.columns = names.split('\t').map(|name| name.trim().to_owned()).collect();
                let mut before = HashSet::new();
                if let Some(name) = list.columns.iter().find(|name| !name.is_empty() && !before.insert(*name)) {
                    let got = format!("the column {name} twice in {} line 1", path.display());
                    return Err(Error::parameter("ListFile::open", "each column", "one of another name", got));
                }
            }
            if number == 1 {
                list.label = list.label_column(path, wanted)?;
                list.takes_labels = wanted != Some(label::NONE);
            }
            let other = OTHERS.iter().find(|(magic, _)| number == 1 && line.starts_with(magic));
            if let Some((_, what)) = other {
                let expected = "a folder of images, or a list of paths and labels";
                return Err(Error::parameter(
                    "ListFile::open",
                    "path",
                    expected,
                    format!("{}, {what}", path.display()),
                ));
            }
            paths_alone |= number == 1 && line == PATHS_ALONE;
            if line.trim_ascii().is_empty() || line[0] == b'#' {
                continue;
            }
            let entry = match (cut_off, list.columns.is_empty()) {
                (true, _) => None,
                _ if paths_alone => is_path(line).then_some((line, None)),
                (_, true) => parse(line),
                (_, false) => list.parse_columns(line),
            };
            let (name, label) = entry.ok_or_else(|| {
                Error::parameter(
                    "ListFile::open",
                    "each line",
                    if paths_alone {
                        "a path".to_owned()
                    } else if list.columns.is_empty() {
                        "a path, a tab, and a label from 0 to 4294967295 (without labels, begin with the line #path)"
                            .to_owned()
                    } else {
                        format!("a path, and behind tabs the columns {}", list.columns.join(", "))
                    },
                    format!("{} in {} line {number}", shown(line), path.display()),
                )
            })?;
            list.paths.extend_from_slice(name);
            list.ends.push(list.paths.len() as u64);
            list.labels.extend(label.filter(|_| list.takes_labels));
            if !list.columns.is_empty() {
                list.values.extend_from_slice(line.get(name.len() + 1..).unwrap_or_default());
                list.value_ends.push(list.values.len() as u64);
            }
        }
        if list.ends.is_empty() {
            let expected = "a file with lines of path, tab, label";
            return Err(Error::parameter(
                "ListFile::open",
                "path",
                expected,
                format!("{} without any", path.display()),
            ));
        }
        list.shrink();
        Ok(list)
    }

    /// Makes a list of these images and labels, without a file. Relative paths start at the current folder. The images
    /// are not opened. [`SourceExt::map_labels`](super::SourceExt::map_labels) names the labels.
    ///
    /// ```
    /// # use warpfeed::source::{ListFile, Source};
    /// let source = ListFile::of([("cats/1.jpg", 0), ("dogs/1.jpg", 1)]);
    /// assert_eq!((source.name(1), source.label(1)), ("dogs/1.jpg".into(), Some(1)));
    /// ```
    pub fn of<P: AsRef<Path>>(images: impl IntoIterator<Item = (P, u32)>) -> Self {
        Self::with(images.into_iter().map(|(path, label)| (path, Some(label))))
    }

    /// Makes a list of these images without labels, as [`of`](Self::of) does with labels.
    pub fn unlabeled<P: AsRef<Path>>(images: impl IntoIterator<Item = P>) -> Self {
        Self::with(images.into_iter().map(|path| (path, None)))
    }

    fn with<P: AsRef<Path>>(images: impl Iterator<Item = (P, Option<u32>)>) -> Self {
        let mut list = Self::empty(Path::new(""));
        for (path, label) in images {
            list.paths.extend_from_slice(path.as_ref().as_os_str().as_encoded_bytes());
            list.ends.push(list.paths.len() as u64);
            list.labels.extend(label);
        }
        list.shrink();
        list
    }

    fn empty(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            paths: Vec::new(),
            ends: Vec::new(),
            labels: Vec::new(),
            columns: Vec::new(),
            label: None,
            takes_labels: true,
            values: Vec::new(),
            value_ends: Vec::new(),
        }
    }

    fn shrink(&mut self) {
        self.paths.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.labels.shrink_to_fit();
    }

    /// Returns the path and the label of a line of a list with named columns.
    fn parse_columns<'a>(&self, line: &'a [u8]) -> Option<(&'a [u8], Option<u32>)> {
        let mut parts = line.split(|&byte| byte == b'\t');
        let path = parts.next().filter(|path| is_path(path))?;
        let values: Vec<&[u8]> = parts.collect();
        if values.len() != self.columns.len() {
            return None;
        }
        let label = self.label.map(|column| whole(values[column]));
        if label == Some(None) { None } else { Some((path, label.flatten())) }
    }

    /// Returns the number of the column of labels: `wanted`, or `label`.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there is no such column, or if another one may hold labels.
    fn label_column(&self, path: &Path, wanted: Option<&str>) -> Result<Option<usize>> {
        let is = |name: &str| self.columns.iter().position(|column| column == name);
        let there = || format!("{} with the columns {}", path.display(), self.columns.join(", "));
        match wanted {
            Some(label::NONE) => Ok(None),
            Some(name) => is(name).map(Some).ok_or_else(|| label::not_there("a column", name, there())),
            None => match is("label") {
                None if self.columns.iter().any(|name| label::is_like(name)) => {
                    Err(label::ask("the column `label`", there()))
                }
                found => Ok(found),
            },
        }
    }

    /// Returns the path of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn path(&self, index: u64) -> PathBuf {
        let index = index as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.folder.join(path_from_bytes(&self.paths[start as usize..self.ends[index] as usize]))
    }
}

/// Whether the reader stopped in the middle of a line that is too long.
fn read_whole_limit(line: &[u8]) -> bool {
    line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n')
}

fn parse(line: &[u8]) -> Option<(&[u8], Option<u32>)> {
    let tab = line.iter().rposition(|&byte| byte == b'\t')?;
    let (path, label) = (&line[..tab], whole(&line[tab + 1..])?);
    is_path(path).then_some((path, Some(label)))
}

/// Whether the path is valid on this system.
fn is_path(path: &[u8]) -> bool {
    !path.is_empty() && !path.contains(&0) && (cfg!(unix) || std::str::from_utf8(path).is_ok())
}

/// Returns the label if it is a whole number.
fn whole(label: &[u8]) -> Option<u32> {
    let label = label.trim_ascii();
    // `u32::from_str` would accept a plus sign.
    if !label.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(label).ok()?.parse().ok()
}

/// Returns the start of a line, escaped for a message.
fn shown(line: &[u8]) -> String {
    let start = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
    format!("{start:?}{}", if line.len() > 80 { "..." } else { "" })
}

impl ListFile {
    /// Returns the number of a column, not counting the path.
    fn column(&self, field: &str) -> Result<usize> {
        let column = self.columns.iter().position(|column| column == field);
        column.ok_or_else(|| no_fields(format!("the columns {:?}", self.columns), field))
    }
}

impl Source for ListFile {
    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// A field is a column of a list that names its columns.
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("ListFile::read", index, self.len()));
        }
        if let Some(field) = want.target {
            let column = self.column(field)?;
            let end = self.value_ends[index as usize] as usize;
            let start = index.checked_sub(1).map_or(0, |before| self.value_ends[before as usize] as usize);
            let value = self.values[start..end].split(|&byte| byte == b'\t').nth(column).unwrap_or_default();
            sample.set_target(Target::Bytes(value.to_vec()));
        }
        if want.image {
            read_image(&self.path(index), want, sample)?;
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        (index < self.len()).then(|| self.path(index))
    }

    fn label(&self, index: u64) -> Option<u32> {
        assert!(index < self.len(), "no sample {index} in the list");
        self.labels.get(index as usize).copied()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.column(field).map(drop)
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.path(index).to_string_lossy().into_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &[u8]) -> (tempfile::TempDir, Result<ListFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.tsv");
        std::fs::write(&path, text).unwrap();
        let list = ListFile::open(path);
        (folder, list)
    }

    #[test]
    fn comments_blank_lines_crlf_and_a_mark_are_tolerated() {
        let text =
            b"\xef\xbb\xbfa.jpg\t0\r\n\r\n# a comment\twith tab\n  \t \nsub dir/b.jpg\t17\r\n/abs/c.png\t4294967295";
        let (folder, list) = open(text);
        let list = list.unwrap();
        let paths: Vec<PathBuf> = (0..list.len()).map(|i| list.path(i)).collect();
        assert_eq!(paths, [folder.path().join("a.jpg"), folder.path().join("sub dir/b.jpg"), "/abs/c.png".into()]);
        assert_eq!([0, 1, 2].map(|i| list.label(i).unwrap()), [0, 17, u32::MAX]);
        assert_eq!(list.name(2), "/abs/c.png");
        assert!(list.classes().is_empty());
    }

    #[test]
    fn a_list_over_the_limit_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.tsv");
        // A sparse file, which takes no space on the disk.
        std::fs::File::create(&path).unwrap().set_len(MAX_LIST_BYTES + 1).unwrap();
        let error = ListFile::open(&path).unwrap_err();
        assert!(matches!(error, Error::Limits { got, limit, .. } if got == limit + 1), "{error}");
        assert!(error.to_string().contains("pack the images into shards"), "{error}");
    }

    #[test]
    fn files_are_read_beside_the_list() {
        let (folder, list) = open(b"x\ty.jpg\t3\nmissing.jpg\t3\n");
        std::fs::write(folder.path().join("x\ty.jpg"), "bytes").unwrap();
        let list = list.unwrap();
        assert_eq!(list.encoded(0).unwrap(), b"bytes");
        assert!(list.encoded(1).unwrap_err().to_string().contains("missing.jpg"));
        assert!(list.encoded(2).unwrap_err().is_parameter());
    }

    #[test]
    fn a_list_without_a_file_reads_its_paths() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x\ty.jpg");
        std::fs::write(&path, "bytes").unwrap();
        let list = ListFile::of([(path.clone(), 3), (folder.path().join("missing.jpg"), 4)]);
        assert_eq!((list.len(), list.label(1), list.path(0)), (2, Some(4), path));
        assert_eq!(list.encoded(0).unwrap(), b"bytes");
        assert!(list.encoded(1).unwrap_err().to_string().contains("missing.jpg"));
        assert!(ListFile::of::<&Path>([]).is_empty());
        let unlabeled = ListFile::unlabeled(["a.jpg", "b.jpg"]);
        assert_eq!((unlabeled.len(), unlabeled.label(1), unlabeled.has_labels()), (2, None, false));
    }

    #[test]
    fn bad_lines_are_named_by_file_and_number() {
        let long = [&b"ok\t1\n"[..], &[b'x'; 100_000], b"\t1\n"].concat();
        for (text, line) in [
            (&b"a.jpg 0\n"[..], 1),
            (b"ok\t1\n\n#\na.jpg\t-1\n", 4),
            (b"ok\t1\na.jpg\t+1\n", 2),
            (b"a.jpg\t\n", 1),
            (b"a.jpg\t1.5\n", 1),
            (b"a.jpg\tcat\n", 1),
            (b"a.jpg\t4294967296\n", 1),
            (b"\t5\n", 1),
            (b"a\0b.jpg\t5\n", 1),
            (b"#path\tlabel\ttext\ttext\na.jpg\t1\tx\ty\n", 1),
            (b"#path\tlabel\ttext\na.jpg\t1\tx\ty\n", 2),
            (&long, 2),
        ] {
            let (_folder, list) = open(text);
            let error = list.unwrap_err();
            let message = error.to_string();
            assert!(error.is_parameter() && message.ends_with(&format!("list.tsv line {line}")), "{message}");
            assert!(message.len() < 400, "{message}");
        }
        for (start, says) in [
            (&b"PK\x03\x04"[..], "a zip archive"),
            (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
            (b"PAR1", "--format parquet"),
        ] {
            assert!(open(start).1.unwrap_err().to_string().contains(says), "{says}");
        }
        let (_folder, image) = open(b"\xff\xd8\xff\xe0\0\x10JFIF\0");
        assert!(image.unwrap_err().to_string().contains("list.tsv, an image itself"));
        for empty in [&b""[..], b"\n\n", b"# nothing\n"] {
            assert!(open(empty).1.unwrap_err().to_string().contains("without any"));
        }
    }

    #[test]
    fn a_list_without_the_column_of_labels_has_none_or_asks() {
        let (_folder, list) = open(b"#path\ttext\na.jpg\tx\nb.jpg\ty\n");
        let list = list.unwrap();
        assert_eq!((list.len(), list.label(0), list.has_labels()), (2, None, false));
        let (_folder, list) = open(b"#path\na b.jpg\nc\td.jpg\n");
        let list = list.unwrap();
        assert_eq!((list.len(), list.label(1), list.name(1).ends_with("/c\td.jpg")), (2, None, true));
        let (folder, list) = open(b"#path\tclass_id\ttext\na.jpg\t7\tx\n");
        let error = list.unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("class_id, text"), "{error}");
        let by = |name| ListFile::open_by(&folder.path().join("list.tsv"), Some(name));
        assert_eq!(by("class_id").unwrap().label(0), Some(7));
        assert_eq!(by("none").unwrap().label(0), None);
        assert!(by("label").unwrap_err().to_string().contains("class_id, text"));
    }

    #[test]
    #[cfg(unix)]
    fn paths_may_hold_any_bytes() {
        use std::os::unix::ffi::OsStrExt;
        let (folder, list) = open(b"caf\xe9.jpg\t1\n");
        let list = list.unwrap();
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9.jpg");
        std::fs::write(folder.path().join(name), "bytes").unwrap();
        assert_eq!(list.encoded(0).unwrap(), b"bytes");
        assert!(list.name(0).ends_with("caf\u{fffd}.jpg"));
    }
}
