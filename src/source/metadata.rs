//! What lies beside images in `metadata.csv` and `metadata.jsonl`, as Hugging Face's imagefolder has it.

use super::read_file_within;
use super::records::tar::json_field;
use crate::error::{Error, Result};
use crate::targets::Target;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The column that names an image, from the folder of the file.
const FILE_NAME: &str = "file_name";

/// The longest file, in bytes: 4 GiB, held in memory.
const MAX_BYTES: u64 = 4 << 30;

/// The rows of all such files of a source, by the path of their image.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    files: Vec<File>,
    rows: HashMap<PathBuf, (usize, Range<usize>)>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    text: Vec<u8>,
    /// The names of the columns; `None` of JSON lines, which have their own.
    columns: Option<Vec<Vec<u8>>>,
}

impl Metadata {
    /// Reads the files in `folders`, as far as there are.
    pub fn read(folders: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut this = Self::default();
        for folder in folders {
            for name in ["metadata.csv", "metadata.jsonl"] {
                let path = folder.join(name);
                let mut text = Vec::new();
                match read_file_within(&path, &mut text, MAX_BYTES) {
                    Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                    Ok(_) => this.add(&folder, path, text)?,
                }
            }
        }
        Ok(this)
    }

    fn add(&mut self, folder: &Path, path: PathBuf, text: Vec<u8>) -> Result<()> {
        let refuse = |at: usize, got: &str| {
            let line = 1 + text[..at].iter().filter(|&&byte| byte == b'\n').count();
            let expected = format!("with the column {FILE_NAME} and a path in each row");
            Err(Error::parameter("targets", "metadata", expected, format!("{got} in {} line {line}", path.display())))
        };
        let number = self.files.len();
        let mut at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let columns = if path.extension().is_some_and(|ending| ending == "csv") {
            let header = record(&text, at);
            let names = fields(&text[header.clone()]);
            at = header.end;
            if !names.iter().any(|name| name == FILE_NAME.as_bytes()) {
                return refuse(header.start, "no such column");
            }
            Some(names)
        } else {
            None
        };
        while at < text.len() {
            let row = match columns {
                Some(_) => record(&text, at),
                None => at..text[at..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| at + end + 1),
            };
            at = row.end;
            if text[row.clone()].trim_ascii().is_empty() {
                continue;
            }
            match field(columns.as_deref(), &text[row.clone()], FILE_NAME) {
                Ok(Some(Target::Bytes(name))) if !name.is_empty() => {
                    self.rows.insert(folder.join(super::path_from_bytes(&name)), (number, row));
                }
                Ok(_) => return refuse(row.start, "none"),
                Err(message) => return refuse(row.start, &message),
            }
        }
        self.files.push(File { path, text, columns });
        Ok(())
    }

    /// Whether there is no such file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What the row of an image has in a column; `None` if there is no such row or column. What is wrong names the file.
    pub fn target(&self, image: &Path, column: &str) -> Result<Option<Target>, String> {
        let Some((number, row)) = self.rows.get(image) else { return Ok(None) };
        let File { path, text, columns } = &self.files[*number];
        field(columns.as_deref(), &text[row.clone()], column)
            .map_err(|message| format!("{message} ({})", path.display()))
    }
}

/// What a row has in a column.
fn field(columns: Option<&[Vec<u8>]>, row: &[u8], name: &str) -> Result<Option<Target>, String> {
    let Some(columns) = columns else { return json_field(row, name) };
    let Some(at) = columns.iter().position(|column| column == name.as_bytes()) else { return Ok(None) };
    let mut values = fields(row);
    Ok((at < values.len()).then(|| Target::Bytes(values.swap_remove(at))))
}

/// Where the CSV record lies that begins at `start`: up to the line end that is not between quotation marks.
fn record(text: &[u8], start: usize) -> Range<usize> {
    let mut quoted = false;
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' if !quoted => return start..at + 1,
            _ => {}
        }
    }
    start..text.len()
}

/// The fields of a CSV record (RFC 4180): separated by commas, between quotation marks or not, which stand twice for one.
fn fields(record: &[u8]) -> Vec<Vec<u8>> {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    let record = record.strip_suffix(b"\r").unwrap_or(record);
    let (mut fields, mut quoted, mut rest) = (vec![Vec::new()], false, record);
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b'"' if quoted && rest.first() == Some(&b'"') => rest = &rest[1..],
            b'"' => {
                quoted = !quoted;
                continue;
            }
            b',' if !quoted => {
                fields.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(field) = fields.last_mut() {
            field.push(*byte);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_read_as_rfc_4180_has_it() {
        let text = b"a,\"b,\"\"c\"\"\nd\",\r\nx,y,z";
        let first = record(text, 0);
        assert_eq!(fields(&text[first.clone()]), [&b"a"[..], b"b,\"c\"\nd", b""]);
        assert_eq!(fields(&text[record(text, first.end)]), [b"x", b"y", b"z"]);
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

    #[test]
    fn rows_without_a_path_are_refused_with_file_and_line() {
        for (name, text) in [
            ("metadata.csv", "name,text\n1.jpg,one\n"),
            ("metadata.csv", "text,file_name\none,1.jpg\ntwo\n"),
            ("metadata.jsonl", "{\"file_name\": \"1.jpg\"}\n\n{\"text\": 3}\n"),
            ("metadata.jsonl", "{\"file_name\": \n"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
            let error = Metadata::read([folder.path().to_owned()]).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(&format!("{name} line ")), "{error}");
        }
    }
}
