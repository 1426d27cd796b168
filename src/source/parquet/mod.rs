//! Parquet files with images, Hugging Face's format.

mod labels;
mod objects;
mod targets;

use super::frame::Frame;
use super::{MAX_ENCODED_BYTES, ReadRequest, RecordOptions, Sample, Source, no_such_sample};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Field, Fields, LABELS};
use crate::os::file::{Keeper, Share, open_with_metadata};
use crate::raster::Size;
use crate::source::records::stated_size;
use crate::targets::{self as found, Target};
use bytes::Bytes;
use labels::{Labels, Numbered};
use parquet::basic::Type;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length};
use parquet::file::serialized_reader::{SerializedFileReader, SerializedPageReader};
use parquet::schema::types::ColumnDescriptor;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Largest number of kept [`Cursor`]s, each with a decompressed page; lower if fewer files may be open.
const MAX_CURSORS: usize = 32;

/// Images in Parquet files: a column of structs `{bytes, path}`, as Hugging Face stores its `Image`, or of binary
/// values. Needs the feature `parquet`.
///
/// Unless [`RecordOptions`] name columns, the images are in `image` (or `image.bytes`), `img`, or `bytes`, and the
/// labels in `label` or `labels`. Without these, images have no labels, unless a column sounds like one of labels: then
/// opening asks. Labels are numbers, truth values, or names, which [`RecordOptions::classes`] or their sorted order
/// numbers. The names of Hugging Face's `ClassLabel` are the [`classes`](Source::classes). A column of nulls or of -1
/// alone, as in test sets of the hub, stands for no labels. Rows come in the given order of the files. A row whose
/// image is null, or whose label is missing or not a class, gives [`Error::Decode`] when it is read.
///
/// A column `objects` has fields, as Hugging Face stores them: a struct of lists or a list of structs with `bbox`
/// ([`boxes`](crate::fields::BOXES)), `category` (`labels`), `id` (`ids`), and others by their names. No schema gives
/// the meaning of a box's numbers, so [`RecordOptions::boxes`] must. Columns `width` and `height` are the size of the
/// image that they refer to, as in [`CocoFiles`](super::CocoFiles). Names of categories, where they are texts, are
/// numbered by [`RecordOptions::classes`].
///
/// All labels are in memory, 4 bytes each. Reading an image decompresses the page that holds it and keeps the page for
/// the next image. So reading in the order of the files is fast; in any other order, each image costs a page (usually
/// 1 MB).
pub struct ParquetFiles {
    files: Vec<PathBuf>,
    metadata: Vec<ParquetMetaData>,
    /// The column of images in each file.
    images: Vec<usize>,
    groups: Vec<Group>,
    /// Number of rows.
    len: u64,
    /// The label of each row; empty if rows have none.
    labels: Vec<u32>,
    /// Rows that cannot be used, each with the reason.
    faults: BTreeMap<u64, String>,
    classes: Vec<String>,
    own_names: bool,
    cursors: Arc<Cursors>,
    _share: Share,
    /// The targets of the row groups that were read last, the oldest first.
    targets: Mutex<VecDeque<TargetGroup>>,
    /// The objects of the row groups that were read last, the oldest first.
    objects: Mutex<VecDeque<ObjectGroup>>,
    /// Format of boxes.
    boxes: Option<BoxFormat>,
    /// The classes of objects that are texts.
    named: Vec<String>,
}

/// A field of the objects of a row group.
struct ObjectGroup {
    group: usize,
    field: String,
    rows: Arc<Vec<objects::Objects>>,
}

/// The targets in a column of a row group.
struct TargetGroup {
    group: usize,
    column: String,
    rows: Arc<Vec<Option<Target>>>,
}

/// Largest number of row groups for which a column is kept.
const TARGET_GROUPS: usize = 4;
/// Largest number of columns of a row group that are kept as targets: the target, and the size of images.
const TARGET_COLUMNS: usize = 3;
/// The columns of the size of images.
const SIDES: [&str; 2] = ["width", "height"];

/// A row group.
struct Group {
    file: usize,
    /// Number of the group in the file.
    number: usize,
    /// Index of the group's first row in all files.
    first: u64,
}

/// A position in a row group where reading can continue.
struct Cursor {
    group: usize,
    /// Number of the next row in the group.
    next: u64,
    reader: ColumnReaderImpl<ByteArrayType>,
}

/// The cursors that are kept, each with an open file, those first that were used least recently.
#[derive(Default)]
struct Cursors(Mutex<KeptCursors>);

#[derive(Default)]
struct KeptCursors {
    open: Vec<Cursor>,
    most: usize,
}

impl Cursors {
    fn kept(&self) -> MutexGuard<'_, KeptCursors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeptCursors {
    fn close_oldest(&mut self) {
        self.open.drain(..self.open.len().saturating_sub(self.most));
    }
}

impl Keeper for Cursors {
    fn keep_at_most(&self, most: usize) {
        let mut kept = self.kept();
        kept.most = most;
        kept.close_oldest();
    }
}

/// A file in which reading past the end is an error. The library skips unknown parts of a page's header element by
/// element, as many as a damaged header claims, and takes the end of a file for an element without bytes, so it would
/// count for minutes. This type also refuses ranges beyond the end before memory is allocated for them.
struct Shard {
    file: File,
    len_bytes: u64,
}

impl Shard {
    fn open(path: &Path) -> Result<Self> {
        let (file, metadata) = open_with_metadata(path)?;
        Ok(Self { file, len_bytes: metadata.len() })
    }
}

impl Length for Shard {
    fn len(&self) -> u64 {
        self.len_bytes
    }
}

impl ChunkReader for Shard {
    type T = NeverAtEnd<BufReader<File>>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        self.file.get_read(start).map(NeverAtEnd)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len_bytes) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.file.get_bytes(start, length)
    }
}

/// A reader that returns an error at its end.
struct NeverAtEnd<R>(R);

impl<R: Read> Read for NeverAtEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

fn damaged(path: &Path, message: impl std::fmt::Display) -> Error {
    Error::decode("Parquet", format!("{}: {message}", path.display()))
}

/// Calls the library and turns its errors and panics, which damaged files can cause, into [`Error::Decode`].
fn guarded<T>(path: &Path, call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| damaged(path, error)),
        Err(panic) => Err(damaged(path, Error::panic(&*panic))),
    }
}

/// Returns the column named by `wanted`, or the first of `usual` that exists. For a struct, this is its field `bytes`.
fn column(metadata: &ParquetMetaData, wanted: Option<&str>, usual: &[&str]) -> Option<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let find = |name: &str| {
        let bytes = format!("{name}.bytes");
        let is = |column: &ColumnDescriptor| [name, bytes.as_str()].contains(&column.path().string().as_str());
        (0..schema.num_columns()).find(|&i| is(&schema.column(i)))
    };
    wanted.map_or_else(|| usual.iter().find_map(|name| find(name)), find)
}

fn column_names(metadata: &ParquetMetaData) -> String {
    let columns = metadata.file_metadata().schema_descr().columns();
    columns.iter().map(|column| column.path().string()).collect::<Vec<_>>().join(", ")
}

/// Makes a reader of one column of a row group.
fn reader<T: DataType>(
    path: &Path,
    metadata: &ParquetMetaData,
    group: usize,
    column: usize,
) -> Result<ColumnReaderImpl<T>> {
    let file = Arc::new(Shard::open(path)?);
    guarded(path, || {
        let group = metadata.row_group(group);
        let rows = usize::try_from(group.num_rows())?;
        let pages = SerializedPageReader::new(file, group.column(column), rows, None)?;
        Ok(ColumnReaderImpl::new(metadata.file_metadata().schema_descr().column(column), Box::new(pages)))
    })
}

impl ParquetFiles {
    /// Opens `files`, in this order.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Decode`] if a file cannot be read, [`Error::Parameter`] if a file lacks the columns,
    /// or if there are no rows.
    pub fn open(files: &[PathBuf], options: &RecordOptions) -> Result<Self> {
        let cursors = Arc::new(Cursors::default());
        let keeper: Weak<Cursors> = Arc::downgrade(&cursors);
        let mut this = Self {
            files: files.to_vec(),
            metadata: Vec::with_capacity(files.len()),
            images: Vec::with_capacity(files.len()),
            groups: Vec::new(),
            len: 0,
            labels: Vec::new(),
            faults: BTreeMap::new(),
            classes: Vec::new(),
            own_names: false,
            _share: Share::begin(keeper, MAX_CURSORS),
            cursors,
            targets: Mutex::default(),
            objects: Mutex::default(),
            boxes: options.boxes,
            named: options.classes.clone(),
        };
        let mut labels = Labels::new(options);
        let mut labeled = None;
        for (number, path) in files.iter().enumerate() {
            let file = Shard::open(path)?;
            let len_bytes = file.len_bytes;
            let metadata = guarded(path, || Ok(SerializedFileReader::new(file)?.metadata().clone()))?;
            let there = || format!("{} with the columns {}", path.display(), column_names(&metadata));
            let missing = |what, expected: String| Error::parameter("ParquetFiles::open", what, expected, there());
            let wanted = options.image.as_deref();
            let image = column(&metadata, wanted, &["image", "img", "bytes"]);
            let image = image.filter(|&i| {
                let column = metadata.file_metadata().schema_descr().column(i);
                column.physical_type() == Type::BYTE_ARRAY && column.max_rep_level() == 0
            });
            let expected = || format!("a column of binary values, {}", wanted.unwrap_or("image, img or bytes"));
            this.images.push(image.ok_or_else(|| missing("image", expected()))?);
            let label = labels::find(&metadata, options.label.as_deref(), &there)?;
            if label.is_some() != *labeled.get_or_insert(label.is_some()) {
                return Err(missing("label", "a column of labels in each file, or in none".to_owned()));
            }
            let has_objects = objects::find(&metadata, LABELS).is_ok();
            if !has_objects && label.is_none() {
                options.without_classes("Parquet files without labels and objects")?;
            }
            if let Some(label) = label {
                let own = class_names(&metadata, label);
                if number > 0 && own != this.classes {
                    let got = format!("others in {} than in {}", path.display(), files[0].display());
                    return Err(Error::parameter("ParquetFiles::open", "classes", "the same in all files", got));
                }
                this.classes = own;
            } else if this.classes.is_empty() {
                this.classes = match this.named.is_empty() {
                    true => objects::class_names(&features(&metadata)),
                    false => this.named.clone(),
                };
            }
            // Run-length coding can claim any number of rows in a few bytes. But each row has an image, so a valid file
            // has at least as many bytes as rows.
            let groups = metadata.row_groups().iter();
            let rows = groups.fold(0_u64, |rows, group| rows.saturating_add(group.num_rows().unsigned_abs()));
            if rows > len_bytes {
                return Err(damaged(path, format!("{rows} rows in {len_bytes} bytes")));
            }
            for group in 0..metadata.num_row_groups() {
                this.groups.push(Group { file: number, number: group, first: this.len });
                let rows =
                    u64::try_from(metadata.row_group(group).num_rows()).map_err(|_| damaged(path, "negative rows"))?;
                if let Some(label) = label {
                    labels.read(path, &metadata, (group, label, rows))?;
                }
                this.len += rows;
            }
            this.metadata.push(metadata);
        }
        if this.len == 0 {
            let got = files.first().map_or_else(String::new, |path| path.display().to_string());
            return Err(Error::parameter("ParquetFiles::open", "files", "files with at least one row", got));
        }
        let described = std::mem::take(&mut this.classes);
        let Numbered { labels, faults, classes, own_names } = labels.numbered(described, options)?;
        Ok(Self { labels, faults, classes, own_names, ..this })
    }

    /// Whether the classes are the texts in the column, which another split would number in another way.
    pub(super) fn own_names(&self) -> bool {
        self.own_names
    }

    fn group(&self, index: u64) -> usize {
        self.groups.partition_point(|group| group.first <= index) - 1
    }

    /// Returns the targets in `column` of a row group, and keeps them for later calls.
    fn targets(&self, group: usize, column: &str) -> Result<Arc<Vec<Option<Target>>>> {
        let kept = || self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |kept: &&TargetGroup| kept.group == group && kept.column == column;
        if let Some(found) = kept().iter().find(is) {
            return Ok(Arc::clone(&found.rows));
        }
        let Group { file, number, .. } = self.groups[group];
        let rows = Arc::new(targets::read(&self.files[file], &self.metadata[file], number, column)?);
        let mut kept = kept();
        if kept.len() >= TARGET_GROUPS * TARGET_COLUMNS {
            kept.pop_front();
        }
        kept.push_back(TargetGroup { group, column: column.to_owned(), rows: Arc::clone(&rows) });
        Ok(rows)
    }

    /// Returns a field of the objects of a row group, and keeps it for later calls.
    fn objects(&self, group: usize, field: &str, wanted: usize) -> Result<Arc<Vec<objects::Objects>>> {
        let kept = || self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |kept: &&ObjectGroup| kept.group == group && kept.field == field;
        if let Some(found) = kept().iter().find(is) {
            return Ok(Arc::clone(&found.rows));
        }
        let Group { file, number, .. } = self.groups[group];
        let rows = Arc::new(objects::read(&self.files[file], &self.metadata[file], number, field)?);
        let mut kept = kept();
        while kept.len() >= TARGET_GROUPS * wanted {
            kept.pop_front();
        }
        kept.push_back(ObjectGroup { group, field: field.to_owned(), rows: Arc::clone(&rows) });
        Ok(rows)
    }

    /// The size that columns `width` and `height` state for the image of a row of `group`.
    fn stated(&self, group: usize, row: usize) -> Result<Option<Result<Size, String>>> {
        let metadata = &self.metadata[self.groups[group].file];
        let mut sides = [None; 2];
        for (side, column) in sides.iter_mut().zip(SIDES) {
            if targets::find(metadata, column).is_err() {
                return Ok(None);
            }
            *side = match self.targets(group, column)?.get(row) {
                Some(Some(Target::Integers(values))) => values.first().map(|value| *value as f64),
                // pandas writes NaN for missing values.
                Some(Some(Target::Floats(values))) => {
                    values.first().filter(|value| !value.is_nan()).map(|value| f64::from(*value))
                }
                _ => None,
            };
        }
        let [Some(width), Some(height)] = sides else { return Ok(None) };
        Ok(Some(stated_size(width, height)))
    }

    /// The wanted fields of row `index`, counted over all files, which is in `group` and has an image with this header.
    fn fields(&self, index: u64, group: usize, names: &[String], header: &Header) -> Result<Fields> {
        let mut fields = Fields::new();
        let Some(first) = names.first() else { return Ok(fields) };
        let row = (index - self.groups[group].first) as usize;
        let of_row = |message: String| found::wrong(Some(first), format!("{}: {message}", self.name(index)));
        let stated = self.stated(group, row)?.transpose().map_err(of_row)?;
        let frame = Frame::of_stated(header, stated).map_err(of_row)?;
        let size = frame.size;
        for name in names {
            let wrong = |message: String| found::wrong(Some(name), format!("{}: {message}", self.name(index)));
            let rows = self.objects(group, name, names.len())?;
            let own = rows.get(row).ok_or_else(|| wrong("its row group ends before".to_owned()))?;
            let format = match self.boxes {
                None if name == BOXES => return Err(objects::no_format(&self.name(index))),
                format => format.unwrap_or_default(),
            };
            let field = own.field(name, format, &self.named).map_err(wrong)?;
            if let Field::Boxes(boxes) = &field {
                boxes.check(size).map_err(wrong)?;
            }
            fields.insert(name.clone(), field).map_err(|error| wrong(error.to_string()))?;
        }
        frame.to_stored(fields)
    }

    /// Takes the kept cursor that is nearest before a row, or makes one at the beginning of the row's group.
    fn cursor(&self, group: usize, row: u64) -> Result<Cursor> {
        let mut kept = self.cursors.kept();
        let cursors = &mut kept.open;
        let before = |cursor: &Cursor| cursor.group == group && cursor.next <= row;
        let nearest = (0..cursors.len()).filter(|&i| before(&cursors[i])).max_by_key(|&i| cursors[i].next);
        if let Some(nearest) = nearest {
            return Ok(cursors.remove(nearest));
        }
        drop(kept);
        let Group { file, number, .. } = self.groups[group];
        let reader = reader(&self.files[file], &self.metadata[file], number, self.images[file])?;
        Ok(Cursor { group, next: 0, reader })
    }

    /// Reads the image of row `index`, counted over all files, which is in `group`.
    fn image(&self, index: u64, group: usize, buffer: &mut Vec<u8>) -> Result<()> {
        let (path, row) = (&self.files[self.groups[group].file], index - self.groups[group].first);
        let wrong = |message: &str| damaged(path, format!("row {index}: {message}"));
        if let Some(fault) = self.faults.get(&index) {
            return Err(wrong(fault));
        }
        let mut cursor = self.cursor(group, row)?;
        let (mut found, mut levels) = (Vec::new(), Vec::new());
        let read = guarded(path, || {
            let before = (row - cursor.next) as usize;
            if cursor.reader.skip_records(before)? < before {
                return Ok(0);
            }
            Ok(cursor.reader.read_records(1, Some(&mut levels), None, &mut found)?.0)
        })?;
        if read == 0 {
            return Err(wrong("its row group ends before"));
        }
        cursor.next = row + 1;
        {
            let mut kept = self.cursors.kept();
            kept.open.push(cursor);
            kept.close_oldest();
        }
        let image: &ByteArray = found.first().ok_or_else(|| wrong("its image is null"))?;
        let image = image.data();
        if image.len() as u64 > MAX_ENCODED_BYTES {
            return Err(wrong(&format!("its image has {} bytes", image.len())));
        }
        buffer.clear();
        buffer.extend(image);
        Ok(())
    }
}

/// Reads the values of a column in a row group; `None` for null.
fn values<T: DataType, V>(
    (path, metadata, group, column): (&Path, &ParquetMetaData, usize, usize),
    rows: u64,
    mut value: impl FnMut(&T::T) -> V,
) -> Result<Vec<Option<V>>> {
    const AT_ONCE: usize = 4096;
    let mut reader = reader::<T>(path, metadata, group, column)?;
    let defined = metadata.file_metadata().schema_descr().column(column).max_def_level();
    let mut all = Vec::new();
    while (all.len() as u64) < rows {
        let (mut found, mut levels) = (Vec::new(), Vec::new());
        let wanted = (rows - all.len() as u64).min(AT_ONCE as u64) as usize;
        let read = guarded(path, || reader.read_records(wanted, Some(&mut levels), None, &mut found))?.0;
        if read == 0 {
            return Err(damaged(path, format!("a row group of {rows} rows has only {}", all.len())));
        }
        let mut found = found.iter();
        for i in 0..read {
            let is_null = defined > 0 && levels.get(i) != Some(&defined);
            all.push(if is_null { None } else { found.next().map(&mut value) });
        }
    }
    Ok(all)
}

/// Returns Hugging Face's description of the columns; null if there is none.
fn features(metadata: &ParquetMetaData) -> serde_json::Value {
    let entries = metadata.file_metadata().key_value_metadata();
    let entry = entries.and_then(|entries| entries.iter().find(|entry| entry.key == "huggingface"));
    let text = entry.and_then(|entry| entry.value.as_ref());
    let description: Option<serde_json::Value> = text.and_then(|text| serde_json::from_str(text).ok());
    description.map_or(serde_json::Value::Null, |mut description| description["info"]["features"].take())
}

/// Returns the names of the classes from Hugging Face's description of the columns; empty if it has none.
fn class_names(metadata: &ParquetMetaData, label: usize) -> Vec<String> {
    let column = metadata.file_metadata().schema_descr().column(label).path().string();
    serde_json::from_value(features(metadata)[&column]["names"].take()).unwrap_or_default()
}

impl Source for ParquetFiles {
    fn len(&self) -> u64 {
        self.len
    }

    /// A field is a column, named like `box.list.element` or `box`. Each row holds a number, text or bytes, or a list
    /// of numbers. A column is read one row group at a time; the last four groups are kept in memory.
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("ParquetFiles::read", index, self.len()));
        }
        let group = self.group(index);
        if let Some(column) = want.field {
            let rows = self.targets(group, column)?;
            let found = rows.get((index - self.groups[group].first) as usize).cloned().flatten();
            sample.set_target(found.ok_or_else(|| found::missing(column))?);
        }
        if want.image || !want.fields.is_empty() {
            self.image(index, group, sample.buffer())?;
        }
        if !want.fields.is_empty() {
            let header = probe(sample.bytes())?;
            sample.set_fields(self.fields(index, group, want.fields, &header)?);
        }
        Ok(())
    }

    fn label(&self, index: u64) -> Option<u32> {
        assert!(index < self.len, "no row {index}");
        self.labels.get(index as usize).copied().filter(|_| !self.faults.contains_key(&index))
    }

    fn has_labels(&self) -> bool {
        !self.labels.is_empty()
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        let group = &self.groups[self.group(index)];
        let path = self.files[group.file].display();
        let first = self.groups.iter().find(|first| first.file == group.file).map_or(0, |first| first.first);
        format!("{path} row {}", index - first).into()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.metadata.iter().try_for_each(|metadata| match objects::find(metadata, field) {
            Ok(_) => Ok(()),
            Err(_) => targets::find(metadata, field).map(drop),
        })
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn checked_fields(&self) -> Vec<String> {
        let is_there = |name: &&str| self.metadata.iter().all(|metadata| objects::find(metadata, name).is_ok());
        let boxes = self.boxes.map(|_| BOXES);
        boxes.into_iter().chain([LABELS]).filter(is_there).map(str::to_owned).collect()
    }
}

impl std::fmt::Debug for ParquetFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFiles").field("files", &self.files).field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::Int64Type;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    const SCHEMA: &str = "message rows {
        optional group image { optional binary bytes; optional binary path (STRING); }
        optional int64 label;
        required binary species (STRING);
    }";

    fn image(i: usize) -> Vec<u8> {
        vec![i as u8; 500 + 37 * i]
    }

    /// Rows in groups of 10 and pages of about 2 kB; image 7 and label 9 are null.
    fn file(path: &Path, rows: usize) {
        let names = r#"{"info": {"features": {"label": {"names": ["ant", "bee", "cow"], "_type": "ClassLabel"}}}}"#;
        let properties = WriterProperties::builder()
            .set_compression(parquet::basic::Compression::SNAPPY)
            .set_data_page_size_limit(2000)
            .set_write_batch_size(1)
            .set_key_value_metadata(Some(vec![KeyValue::new("huggingface".to_owned(), names.to_owned())]))
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties.into()).unwrap();
        for start in (0..rows).step_by(10) {
            let rows: Vec<usize> = (start..rows.min(start + 10)).collect();
            let mut group = writer.next_row_group().unwrap();
            let bytes: Vec<ByteArray> = rows.iter().filter(|&&i| i != 7).map(|&i| image(i).into()).collect();
            let levels: Vec<i16> = rows.iter().map(|&i| if i == 7 { 1 } else { 2 }).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&bytes, Some(&levels), None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[], Some(&vec![1; rows.len()]), None).unwrap();
            column.close().unwrap();
            let labels: Vec<i64> = rows.iter().filter(|&&i| i != 9).map(|&i| i as i64 % 3).collect();
            let levels: Vec<i16> = rows.iter().map(|&i| i16::from(i != 9)).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&labels, Some(&levels), None).unwrap();
            column.close().unwrap();
            let species: Vec<ByteArray> = rows.iter().map(|&i| ["dog", "cat"][i % 2].into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&species, None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    #[test]
    fn rows_are_read_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.parquet", "b.parquet"].map(|name| folder.path().join(name));
        files.iter().for_each(|path| file(path, 25));
        let source = ParquetFiles::open(&files, &RecordOptions::default()).unwrap();
        assert_eq!((source.len(), source.classes()), (50, &["ant", "bee", "cow"].map(str::to_owned)[..]));
        for index in (0..50).chain((0..50).rev()).chain((0..50).map(|i| i * 7 % 50)) {
            let row = index as usize % 25;
            match source.encoded(index) {
                Ok(bytes) => assert_eq!((bytes, source.label(index)), (image(row), Some(row as u32 % 3))),
                Err(error) => {
                    let says = if row == 7 { "image is null" } else { "label is null" };
                    assert!(row == 7 || row == 9, "{error}");
                    assert!(error.is_bad_sample() && error.to_string().contains(says), "{error}");
                }
            }
        }
        assert!(source.name(30).ends_with("b.parquet row 5"));
        assert!(source.cursors.kept().open.len() <= MAX_CURSORS);
    }

    #[test]
    fn columns_may_be_named_and_labels_be_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        file(&path, 5);
        let named = |image: &str, label: &str| {
            let options =
                RecordOptions { image: Some(image.into()), label: Some(label.into()), ..RecordOptions::default() };
            ParquetFiles::open(std::slice::from_ref(&path), &options)
        };
        let source = named("image", "species").unwrap();
        assert_eq!(source.classes(), ["cat", "dog"]);
        assert_eq!([source.label(0), source.label(1)], [Some(1), Some(0)]);
        for (image, label) in [("pixels", "label"), ("label", "label"), ("image", "species.name")] {
            let error = named(image, label).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("image.bytes, image.path"), "{error}");
        }
    }

    #[test]
    fn columns_and_lists_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let schema = "message rows {
            required binary bytes;
            optional group box (LIST) { repeated group list { optional float element; } }
            required int64 kind;
            optional binary text (STRING);
        }";
        let mut writer = SerializedFileWriter::new(
            File::create(&path).unwrap(),
            Arc::new(parse_message_type(schema).unwrap()),
            WriterProperties::builder().build().into(),
        )
        .unwrap();
        for group in 0..3_i64 {
            let mut rows = writer.next_row_group().unwrap();
            let images: Vec<ByteArray> = (0..4).map(|i| vec![i; 20].into()).collect();
            let mut column = rows.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&images, None, None).unwrap();
            column.close().unwrap();
            // [1, 2], null, [], [3]; then each plus the group's number.
            let values: Vec<f32> = [1.0, 2.0, 3.0].iter().map(|value| value + group as f32).collect();
            let mut column = rows.next_column().unwrap().unwrap();
            let boxes = column.typed::<parquet::data_type::FloatType>();
            boxes.write_batch(&values, Some(&[3, 3, 0, 1, 3]), Some(&[0, 1, 0, 0, 0])).unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let kinds: Vec<i64> = (0..4).map(|i| 10 * group + i).collect();
            column.typed::<Int64Type>().write_batch(&kinds, None, None).unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            let texts = ["one", "two", "four"].map(ByteArray::from);
            column.typed::<ByteArrayType>().write_batch(&texts, Some(&[1, 1, 0, 1]), None).unwrap();
            column.close().unwrap();
            rows.close().unwrap();
        }
        writer.close().unwrap();

        let source = ParquetFiles::open(&[path], &RecordOptions::default()).unwrap();
        for index in (0..12).chain((0..12).rev()) {
            let (group, row) = (index as i64 / 4, index as usize % 4);
            let floats =
                |values: &[f32]| Some(Target::Floats(values.iter().map(|value| value + group as f32).collect()));
            let boxes = [floats(&[1.0, 2.0]), None, Some(Target::Floats(vec![])), floats(&[3.0])];
            let text = |text: &str| Some(Target::Bytes(text.as_bytes().to_vec()));
            let texts = [text("one"), text("two"), None, text("four")];
            let found = |field| match source.target(index, field) {
                Ok(target) => Some(target),
                Err(error) => {
                    assert!(error.is_bad_sample() && error.to_string().contains(field), "{error}");
                    None
                }
            };
            assert_eq!(found("box"), boxes[row], "{index}");
            assert_eq!(found("kind"), Some(Target::Integers(vec![10 * group + row as i64])));
            assert_eq!(found("text"), texts[row]);
        }
        assert!(source.targets.lock().unwrap().len() <= TARGET_GROUPS * TARGET_COLUMNS);
        assert!(source.target(0, "bag").unwrap_err().is_parameter());
        assert!(source.check_field("bag").unwrap_err().is_parameter() && source.check_field("box").is_ok());
    }

    /// Writes 4 rows of 20 x 10 pixels: two objects, none, null, and one whose box lies outside.
    fn with_objects(path: &Path, of_lists: bool, texts: bool) {
        with_sides(path, of_lists, texts, 1, [20, 10]);
    }

    /// Writes the rows of [`with_objects`], with an orientation tag, and this width and height in all rows but the
    /// second.
    fn with_sides(path: &Path, of_lists: bool, texts: bool, orientation: u16, sides: [i64; 2]) {
        let category = if texts { "binary category (STRING)" } else { "int64 category" };
        let list = |inner: &str| format!("(LIST) {{ repeated group list {{ {inner} }} }}");
        let bbox = list("optional float element;");
        let objects = if of_lists {
            let (boxes, ids) = (list(&format!("optional group element {bbox}")), list("optional int64 element;"));
            let labels = list(&format!("optional {};", category.replace("category", "element")));
            format!(
                "optional group objects {{ optional group id {ids} optional group bbox {boxes} \
                 optional group category {labels} }}"
            )
        } else {
            let own = format!("optional int64 id; optional group bbox {bbox} optional {category};");
            format!("optional group objects {}", list(&format!("optional group element {{ {own} }}")))
        };
        let names = r#"{"info": {"features": {"objects": {"feature": {"category": {"names": ["cat", "dog"]}}}}}}"#;
        let properties = WriterProperties::builder()
            .set_key_value_metadata(Some(vec![KeyValue::new("huggingface".to_owned(), names.to_owned())]))
            .build();
        let stated = "optional int64 width; optional int64 height;";
        let schema = format!("message rows {{ required binary image; {objects} {stated} }}");
        let schema = parse_message_type(&schema).unwrap();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema), properties.into()).unwrap();
        let mut rows = writer.next_row_group().unwrap();
        let options = crate::encode::JpegOptions { orientation: Some(orientation), ..Default::default() };
        let jpeg = crate::encode::encode_jpeg(&crate::raster::Image::new(Size::new(20, 10)), &options);
        let mut column = rows.next_column().unwrap().unwrap();
        let images = vec![ByteArray::from(jpeg.unwrap()); 4];
        column.typed::<ByteArrayType>().write_batch(&images, None, None).unwrap();
        column.close().unwrap();
        // The deepest level is that of a value; a row of no objects stops at the list, and a null row at the top.
        let defined = rows_levels(of_lists);
        for number in 0..3 {
            let mut column = rows.next_column().unwrap().unwrap();
            match number {
                0 => {
                    let levels = defined.scalar;
                    let ids = [7, 8, 9];
                    let levels = [levels, levels, defined.empty, 0, levels];
                    column.typed::<Int64Type>().write_batch(&ids, Some(&levels), Some(&[0, 1, 0, 0, 0])).unwrap();
                }
                1 => {
                    let boxes = [2.0_f32, 3.0, 4.0, 5.0, 0.5, 0.0, 1.0, 1.0, 21.0, 1.0, 2.0, 2.0];
                    let mut levels = vec![defined.number; 8];
                    levels.extend([defined.empty, 0]);
                    levels.extend([defined.number; 4]);
                    let repetitions = [0, 2, 2, 2, 1, 2, 2, 2, 0, 0, 0, 2, 2, 2];
                    let column = column.typed::<parquet::data_type::FloatType>();
                    column.write_batch(&boxes, Some(&levels), Some(&repetitions)).unwrap();
                }
                _ => {
                    let levels = [defined.scalar, defined.scalar, defined.empty, 0, defined.scalar];
                    let repetitions = [0, 1, 0, 0, 0];
                    if texts {
                        let texts = ["dog", "cat", "cat"].map(ByteArray::from);
                        let column = column.typed::<ByteArrayType>();
                        column.write_batch(&texts, Some(&levels), Some(&repetitions)).unwrap();
                    } else {
                        let column = column.typed::<Int64Type>();
                        column.write_batch(&[1, 0, 0], Some(&levels), Some(&repetitions)).unwrap();
                    }
                }
            }
            column.close().unwrap();
        }
        for side in sides {
            let mut column = rows.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[side; 3], Some(&[1, 0, 1, 1]), None).unwrap();
            column.close().unwrap();
        }
        rows.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn columns_of_sides_say_which_image_boxes_are_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let names = [BOXES.to_owned()];
        let read = |orientation, sides, index| {
            with_sides(&path, false, false, orientation, sides);
            let options = RecordOptions { boxes: Some(BoxFormat::Xywh), ..RecordOptions::default() };
            let source = ParquetFiles::open(std::slice::from_ref(&path), &options).unwrap();
            let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
            source.read(index, &want, &mut sample)?;
            let found = sample.take_found(&want)?.fields.unwrap();
            Ok::<_, Error>(found.boxes().unwrap().rows().first().copied())
        };
        assert_eq!(read(6, [20, 10], 0).unwrap(), Some([2.0, 3.0, 4.0, 5.0]));
        // (2, 3) to (6, 8) of the upright image of 10 x 20 pixels.
        assert_eq!(read(6, [10, 20], 0).unwrap(), Some([3.0, 4.0, 5.0, 4.0]));
        assert_eq!(read(6, [99, 99], 1).unwrap(), None, "no size is stated");
        for (sides, message) in [([40, 20], "40 x 20 pixels, which has 20 x 10, 10 x 20 upright"), ([0, 10], "0 x 10")]
        {
            let error = read(6, sides, 0).unwrap_err();
            assert!(error.is_bad_sample() && error.to_string().contains(message), "{error}");
            assert!(error.to_string().contains("row 0"), "{error}");
        }
    }

    /// Definition levels of a schema of objects.
    struct Defined {
        /// Level of an object's only number.
        scalar: i16,
        /// Level of a number of a box.
        number: i16,
        /// Level of a row without objects.
        empty: i16,
    }

    fn rows_levels(of_lists: bool) -> Defined {
        // objects, list, [struct,] bbox, list, element
        if of_lists { Defined { scalar: 4, number: 6, empty: 2 } } else { Defined { scalar: 4, number: 6, empty: 1 } }
    }

    #[test]
    fn objects_are_structs_of_lists_or_lists_of_structs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let names = [BOXES, LABELS, "ids"].map(str::to_owned);
        let read = |source: &ParquetFiles, index: u64| {
            let (mut sample, want) = (Sample::default(), ReadRequest::IMAGE.without_image().and_fields(&names));
            source.read(index, &want, &mut sample)?;
            sample.take_found(&want).map(|found| (*found.fields.unwrap()).clone())
        };
        for (of_lists, texts) in [(true, false), (false, false), (true, true), (false, true)] {
            with_objects(&path, of_lists, texts);
            let classes = if texts { vec!["cat".to_owned(), "dog".to_owned()] } else { Vec::new() };
            let options = RecordOptions { boxes: Some(BoxFormat::Xywh), classes, ..RecordOptions::default() };
            let source = ParquetFiles::open(std::slice::from_ref(&path), &options).unwrap();
            assert_eq!(source.classes(), ["cat", "dog"], "{of_lists}");
            for index in [0, 2, 1, 0] {
                let found = read(&source, index).unwrap();
                let two = index == 0;
                let boxes = [[2.0, 3.0, 4.0, 5.0], [0.5, 0.0, 1.0, 1.0]];
                let own = found.boxes().unwrap();
                assert_eq!((own.rows(), own.format()), (&boxes[..if two { 2 } else { 0 }], BoxFormat::Xywh));
                let labels = if two { vec![1, 0] } else { Vec::new() };
                let is_empty = |field: Option<&Field>| field.and_then(Field::objects) == Some(0);
                assert!(if two { found.get(LABELS) == Some(&labels.into()) } else { is_empty(found.get(LABELS)) });
                assert!(!two || found.get("ids") == Some(&vec![7, 8].into()));
            }
            let error = read(&source, 3).unwrap_err();
            let text = error.to_string();
            assert!(error.is_bad_sample() && text.contains("outside the image") && text.contains("row 3"), "{text}");
            assert!(source.check_field("area").unwrap_err().is_parameter());
            let unsaid = RecordOptions { boxes: None, ..options };
            let error = read(&ParquetFiles::open(std::slice::from_ref(&path), &unsaid).unwrap(), 0).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains("CXCYWH"), "{error}");
        }
    }

    #[test]
    fn damaged_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        file(&path, 12);
        let whole = std::fs::read(&path).unwrap();
        let (mut random, mut refused) = (1_u64, 0);
        for round in 0..400 {
            let mut bytes = whole.clone();
            for _ in 0..1 + round % 3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (random >> 33) as usize % bytes.len();
                bytes[at] ^= 1 << (random >> 20 & 7);
            }
            if round % 10 == 0 {
                bytes.truncate((random >> 33) as usize % bytes.len());
            }
            std::fs::write(&path, &bytes).unwrap();
            match ParquetFiles::open(std::slice::from_ref(&path), &RecordOptions::default()) {
                Ok(source) => {
                    let read = |i| source.encoded(i).is_err_and(|error| error.is_bad_sample());
                    refused += (0..source.len().min(100)).filter(|&i| read(i)).count();
                }
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn elements_that_a_damaged_header_claims_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        file(&path, 12);
        let metadata = SerializedFileReader::new(File::open(&path).unwrap()).unwrap().metadata().clone();
        let column = metadata.row_group(0).column(0);
        let header = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let mut bytes = std::fs::read(&path).unwrap();
        // A field that the library does not know: a list of 2,147,483,647 doubles.
        bytes[header as usize..][..7].copy_from_slice(&[0xF9, 0xF7, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]);
        std::fs::write(&path, &bytes).unwrap();

        let source = ParquetFiles::open(&[path], &RecordOptions::default()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(source.encoded(0)));
        let read = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it counts and counts");
        assert!(read.as_ref().is_err_and(Error::is_bad_sample), "{read:?}");
    }
}
