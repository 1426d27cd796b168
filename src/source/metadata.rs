//! Hugging Face's imagefolder: data in `metadata.csv` and `metadata.jsonl`.

use super::records::tar::json_field;
use crate::error::{Error, Result};
use crate::os::file::{if_there, read_limited};
use crate::targets::Target;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The column with the path of an image, relative to the folder of the metadata file.
const FILE_NAME: &str = "file_name";

/// Largest size of a metadata file, in bytes: 4 GiB, held in memory.
const MAX_BYTES: u64 = 4 << 30;

/// The rows of all metadata files of a source, by the path of their image.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    files: Vec<File>,
    rows: HashMap<PathBuf, (usize, Range<usize>)>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    text: Vec<u8>,
    /// Names of the columns of CSV; `None` for JSON lines, which name their own.
    columns: Option<Vec<Vec<u8>>>,
}

fn refuse<T>(expected: &str, got: String) -> Result<T> {
    Err(Error::parameter("targets", "metadata", expected, got))
}

impl Metadata {
    /// Reads the metadata files that exist in `folders`.
    pub fn read(folders: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut this = Self::default();
        for folder in folders {
            let [csv, json] = ["metadata.csv", "metadata.jsonl"].map(|name| folder.join(name));
            if csv.exists() && json.exists() {
                let got = format!("{} and {}: remove or rename one of them", csv.display(), json.display());
                return refuse("one file in each folder", got);
            }
            for path in [csv, json] {
                if let Some(text) = if_there(read_limited(&path, MAX_BYTES))? {
                    this.add(&folder, path, text)?;
                }
            }
        }
        Ok(this)
    }

    fn add(&mut self, folder: &Path, path: PathBuf, text: Vec<u8>) -> Result<()> {
        let number = self.files.len();
        let (file, mut at) = File::new(path, text)?;
        self.files.push(file);
        let file = &self.files[number];
        while at < file.text.len() {
            let row = file.row(at)?;
            at = row.end;
            if file.text[row.clone()].trim_ascii().is_empty() {
                continue;
            }
            match self.rows.entry(folder.join(super::path_from_bytes(&file.image(&row)?))) {
                Entry::Vacant(entry) => drop(entry.insert((number, row))),
                Entry::Occupied(entry) => {
                    let (other, before) = entry.get();
                    let first = self.files[*other].line(before.start);
                    let got = format!("a second row of {} after that in {first}", entry.key().display());
                    return file.refuse(row.start, "one row for each image", &got);
                }
            }
        }
        Ok(())
    }

    /// Whether there are no metadata files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the value of a column in an image's row; `None` if there is no such row or column. The error names the
    /// file.
    pub fn target(&self, image: &Path, column: &str) -> Result<Option<Target>, String> {
        let Some((number, row)) = self.rows.get(image) else { return Ok(None) };
        let File { path, text, columns } = &self.files[*number];
        field(columns.as_deref(), &text[row.clone()], column)
            .map_err(|message| format!("{message} ({})", path.display()))
    }
}

impl File {
    /// Makes a file of its text, and returns it with the position of the byte at which its first row begins.
    fn new(path: PathBuf, text: Vec<u8>) -> Result<(Self, usize)> {
        let start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let is_csv = path.extension().is_some_and(|ending| ending == "csv");
        let mut this = Self { path, text, columns: is_csv.then(Vec::new) };
        if !is_csv {
            return Ok((this, start));
        }
        let header = this.row(start)?;
        let names = fields(&this.text[header.clone()]);
        // Several columns may lack a name, because no field can ask for them.
        let mut before = HashSet::new();
        if let Some(name) = names.iter().find(|name| !name.is_empty() && !before.insert(*name)) {
            let got = format!("the column {} twice", String::from_utf8_lossy(name));
            return this.refuse(start, "columns with different names", &got);
        }
        if !names.iter().any(|name| name == FILE_NAME.as_bytes()) {
            return this.refuse(start, WITH_PATHS, "no such column");
        }
        this.columns = Some(names);
        Ok((this, header.end))
    }

    /// Returns the file's path and the number of the line that contains byte `at`, for messages.
    fn line(&self, at: usize) -> String {
        let ends = |(i, byte): &(usize, &u8)| match byte {
            b'\n' => true,
            b'\r' => self.columns.is_some() && self.text.get(i + 1) != Some(&b'\n'),
            _ => false,
        };
        let number = 1 + self.text[..at].iter().enumerate().filter(ends).count();
        format!("{} line {number}", self.path.display())
    }

    fn refuse<T>(&self, at: usize, expected: &str, got: &str) -> Result<T> {
        refuse(expected, format!("{got} in {}", self.line(at)))
    }

    /// Returns the range of the row that begins at byte `at`.
    fn row(&self, at: usize) -> Result<Range<usize>> {
        if self.columns.is_none() {
            let end = self.text[at..].iter().position(|&byte| byte == b'\n');
            return Ok(at..end.map_or(self.text.len(), |end| at + end + 1));
        }
        match record(&self.text, at, |_| {}) {
            Some(row) => Ok(row),
            None => self.refuse(at, "quotation marks in pairs", "one without a partner, in the row that begins"),
        }
    }

    /// Returns the path of a row's image, from the folder of the file.
    fn image(&self, row: &Range<usize>) -> Result<Vec<u8>> {
        let bytes = &self.text[row.clone()];
        let wrong = match &self.columns {
            None => serde_json::Deserializer::from_slice(bytes).deserialize_map(Names).err().map(|e| e.to_string()),
            Some(columns) => {
                let (own, cells) = (columns.len(), fields(bytes).len());
                (own != cells).then(|| format!("{cells} cells where the first line has {own}"))
            }
        };
        match wrong.map_or_else(|| field(self.columns.as_deref(), bytes, FILE_NAME), Err) {
            Ok(Some(Target::Bytes(name))) if !name.is_empty() => Ok(name),
            Ok(_) => self.refuse(row.start, WITH_PATHS, "none"),
            Err(message) => self.refuse(row.start, ROWS, &message),
        }
    }
}

/// Requirements for rows, for messages.
const WITH_PATHS: &str = "with the column file_name and a path in each row";
const ROWS: &str = "rows of one cell for each column, texts with commas in quotation marks, or of one JSON object";

/// Visitor of a JSON object that refuses duplicate names. A reader would silently take one of them.
struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = object.next_entry::<String, _>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format_args!("the field {name} twice")));
            }
            names.insert(name);
        }
        Ok(())
    }
}

/// Returns the value of a column in a row.
fn field(columns: Option<&[Vec<u8>]>, row: &[u8], name: &str) -> Result<Option<Target>, String> {
    let Some(columns) = columns else { return json_field(row, name) };
    let Some(at) = columns.iter().position(|column| column == name.as_bytes()) else { return Ok(None) };
    let mut values = fields(row);
    Ok((at < values.len()).then(|| Target::Bytes(values.swap_remove(at))))
}

/// State of a reader of CSV, between two bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    CellStart,
    Unquoted,
    Quoted,
    /// After a quotation mark in a quoted cell: its end, or the first of two that stand for one.
    AfterQuote,
}

/// Reads the CSV record that begins at `start`, by the rules of Python's `csv` module in its default dialect: a cell is
/// quoted only if it begins with a quotation mark, what follows the closing one belongs to the cell, and a line ends
/// with `\n`, `\r` or both. Hands `cell` the bytes of each cell's value in turn, and `None` after each cell. Returns
/// the range of the record; `None` if a quoted cell has no end, which pandas refuses and Python takes to the end of the
/// file.
fn record(text: &[u8], start: usize, mut cell: impl FnMut(Option<u8>)) -> Option<Range<usize>> {
    let mut place = Place::CellStart;
    let mut at = start;
    while let Some(&byte) = text.get(at) {
        at += 1;
        place = match (place, byte) {
            (Place::Quoted, b'"') => Place::AfterQuote,
            (Place::Quoted, _) => {
                cell(Some(byte));
                Place::Quoted
            }
            (Place::CellStart, b'"') => Place::Quoted,
            (Place::AfterQuote, b'"') => {
                cell(Some(b'"'));
                Place::Quoted
            }
            (_, b',') => {
                cell(None);
                Place::CellStart
            }
            (_, b'\n' | b'\r') => {
                cell(None);
                at += usize::from(byte == b'\r' && text.get(at) == Some(&b'\n'));
                return Some(start..at);
            }
            _ => {
                cell(Some(byte));
                Place::Unquoted
            }
        };
    }
    cell(None);
    (place != Place::Quoted).then_some(start..at)
}

/// The cells of a CSV record.
fn fields(text: &[u8]) -> Vec<Vec<u8>> {
    let (mut fields, mut field) = (Vec::new(), Vec::new());
    record(text, 0, |byte| match byte {
        Some(byte) => field.push(byte),
        None => fields.push(std::mem::take(&mut field)),
    });
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of all records; the last is missing if it has no end.
    fn all(text: &[u8]) -> Vec<Vec<String>> {
        let (mut at, mut rows) = (0, Vec::new());
        while at < text.len()
            && let Some(row) = record(text, at, |_| {})
        {
            at = row.end;
            rows.push(fields(&text[row]).into_iter().map(|cell| String::from_utf8(cell).unwrap()).collect());
        }
        rows
    }

    /// The expected cells are those of Python's csv module.
    #[test]
    fn csv_is_read_as_python_reads_it() {
        for (text, want) in [
            ("a,\"b,\"\"c\"\"\nd\",\r\nx,y,z", &[&["a", "b,\"c\"\nd", ""][..], &["x", "y", "z"]][..]),
            ("1,a 5\" pipe\n2,a 6\" pipe\n", &[&["1", "a 5\" pipe"], &["2", "a 6\" pipe"]]),
            ("5\" x 7\",say \"hi\" now, \"a\"", &[&["5\" x 7\"", "say \"hi\" now", " \"a\""]]),
            ("\"a\"b\"c,\"\",\"\"\"\"", &[&["ab\"c", "", "\""]]),
            ("a\rb\r\nc\n\rd", &[&["a"], &["b"], &["c"], &[""], &["d"]]),
            ("\"a\r\nb\"\n,", &[&["a\r\nb"], &["", ""]]),
            ("a\n\"b\n", &[&["a"]]),
        ] {
            assert_eq!(all(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn made_tables_are_read_as_pythons_csv_module_reads_them() {
        let mut cases = 0;
        for case in super::super::folder::tests::made_cases("csv") {
            let text = case["text"].as_str().unwrap();
            let (mut at, mut rows) = (0, Some(Vec::new()));
            while at < text.len() {
                let Some(row) = record(text.as_bytes(), at, |_| {}) else {
                    rows = None;
                    break;
                };
                at = row.end;
                let row = &text[row];
                if !row.trim_end_matches(['\n', '\r']).is_empty() {
                    let cells = fields(row.as_bytes()).into_iter().map(|cell| String::from_utf8(cell).unwrap());
                    rows.iter_mut().for_each(|rows| rows.push(cells.clone().collect::<Vec<_>>()));
                }
            }
            assert_eq!(serde_json::json!(rows), case["rows"], "{text:?}");
            cases += 1;
        }
        assert!(cases >= 100, "{cases}");
        println!("{cases} tables");
    }

    #[test]
    fn rows_belong_to_the_images_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("cat");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("metadata.csv"), "file_name,text\n1.jpg,one\ncat/2.jpg,\"two, too\"\n")
            .unwrap();
        std::fs::write(inner.join("metadata.jsonl"), "{\"file_name\": \"3.jpg\", \"box\": [1, 2]}\n").unwrap();
        let metadata = Metadata::read([folder.path().to_owned(), inner.clone()]).unwrap();
        let target = |path: PathBuf, column| metadata.target(&path, column).unwrap();
        assert_eq!(target(folder.path().join("1.jpg"), "text"), Some(Target::Bytes(b"one".to_vec())));
        assert_eq!(target(inner.join("2.jpg"), "text"), Some(Target::Bytes(b"two, too".to_vec())));
        assert_eq!(target(inner.join("3.jpg"), "box"), Some(Target::Bytes(b"[1,2]".to_vec())));
        assert_eq!((target(inner.join("3.jpg"), "text"), target(inner.join("4.jpg"), "text")), (None, None));
    }

    /// Returns the message of the error for a file with this text.
    fn refused(name: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        let error = Metadata::read([folder.path().to_owned()]).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        error.to_string()
    }

    #[test]
    fn rows_that_do_not_fit_the_header_are_refused_with_file_and_line() {
        // A comma in a text without quotation marks shifts the following columns.
        for (row, cells) in [("2.jpg,a cat, asleep,7", 4), ("2.jpg,a cat", 2), ("2.jpg,a cat,7,", 4)] {
            let message = refused("metadata.csv", &format!("file_name,text,class\n1.jpg,dog,3\n{row}\n3.jpg,fox,1\n"));
            let says = format!("{cells} cells where the first line has 3 in ");
            assert!(message.contains(&says) && message.ends_with("metadata.csv line 3"), "{message}");
        }
        // An unpaired quotation mark would take the rest of the file into one cell.
        let message = refused("metadata.csv", "file_name,text\n1.jpg,12\" tall\n2.jpg,\"5 tall\n3.jpg,six\n");
        assert!(message.contains("quotation marks in pairs") && message.ends_with("metadata.csv line 3"), "{message}");
    }

    #[test]
    fn what_comes_twice_is_refused_with_file_and_lines() {
        for (name, text, says, line) in [
            ("metadata.csv", "file_name,text\n1.jpg,a\n2.jpg,b\n./1.jpg,c\n", "metadata.csv line 2 in ", 4),
            (
                "metadata.jsonl",
                "{\"file_name\": \"1.jpg\"}\n{\"file_name\": \"1.jpg\"}\n",
                "metadata.jsonl line 1 in ",
                2,
            ),
            ("metadata.csv", "file_name,text,text\n1.jpg,a,b\n", "the column text twice", 1),
            ("metadata.csv", "file_name,file_name\n1.jpg,a\n", "the column file_name twice", 1),
            ("metadata.jsonl", "\n{\"file_name\": \"1.jpg\", \"text\": 1, \"text\": 2}\n", "the field text twice", 2),
        ] {
            let message = refused(name, text);
            assert!(message.contains(says) && message.ends_with(&format!("{name} line {line}")), "{message}");
        }
        // Rows of two files may be of one image, too.
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("cat");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(folder.path().join("metadata.csv"), "file_name,text\n1.jpg,one\ncat/2.jpg,two\n").unwrap();
        std::fs::write(inner.join("metadata.csv"), "file_name,text\n2.jpg,zwei\n").unwrap();
        let error = Metadata::read([folder.path().to_owned(), inner.clone()]).unwrap_err().to_string();
        assert!(error.contains("metadata.csv line 3 in ") && error.ends_with("cat/metadata.csv line 2"), "{error}");
        // Columns without a name, as spreadsheets write them, are ignored.
        std::fs::write(inner.join("metadata.csv"), "file_name,,\n3.jpg,,\n").unwrap();
        Metadata::read([folder.path().to_owned(), inner.clone()]).unwrap();
        // A folder with both files is refused: neither file has precedence.
        std::fs::write(inner.join("metadata.jsonl"), "").unwrap();
        let error = Metadata::read([folder.path().to_owned(), inner]).unwrap_err().to_string();
        assert!(error.contains("cat/metadata.csv and ") && error.contains("cat/metadata.jsonl: remove"), "{error}");
    }

    #[test]
    fn rows_without_a_path_are_refused_with_file_and_line() {
        for (name, text) in [
            ("metadata.csv", "name,text\n1.jpg,one\n"),
            ("metadata.csv", "text,file_name\none,1.jpg\ntwo\n"),
            ("metadata.jsonl", "{\"file_name\": \"1.jpg\"}\n\n{\"text\": 3}\n"),
            ("metadata.jsonl", "{\"file_name\": \n"),
        ] {
            let message = refused(name, text);
            assert!(message.contains(&format!("{name} line ")), "{message}");
        }
    }
}
