//! Parquet files with images, Hugging Face's format.

mod columns;
mod cursors;
mod labels;
mod lists;
mod objects;
mod targets;
#[cfg(test)]
mod tests;

use super::arrays;
use super::frame::Frame;
use super::{MAX_ENCODED_BYTES, ReadRequest, RecordOptions, Sample, Source, as_in, no_such_sample, shared_source};
use crate::decode::{Header, probe};
use crate::error::{Error, Result};
use crate::fields::{BOXES, BoxFormat, Field, Fields, LABELS};
use crate::os::file::Share;
use crate::raster::Size;
use crate::source::records::stated_size;
use crate::targets::{self as found, Target};
use columns::{Allowance, Shard, class_names, column, column_names, damaged, features, guarded, pages};
use cursors::{Cursor, Cursors, NextRow, Row};
use labels::{Labels, Numbered};
use lists::Lists;
use parquet::basic::Type;
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Largest number of kept [`Cursor`]s, each with a decompressed page; lower if fewer files may be open.
const MAX_CURSORS: usize = 32;

shared_source! {
    /// Images in Parquet files: a column of structs `{bytes, path}`, as Hugging Face stores its `Image`, of binary
    /// values, or of lists of lists of numbers, as Hugging Face stores `Array2D` and `Array3D`. Needs the feature
    /// `parquet`.
    ///
    /// Lists of two dimensions are rows and columns; [`open_with_axes`](Self::open_with_axes) takes the meaning of
    /// three. Their numbers are u8, truth values, u16 or f32; i8, i16 and f16 become f32. An image of them is gray or
    /// RGB pixels of 8 bits, or a NumPy file. One with null, or with lists of different lengths, gives
    /// [`Error::Decode`], and so does one that takes more than 512 MiB with its levels.
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
    ///
    /// A field is a column, named like `box.list.element` or `box`. Each row holds a number, text or bytes, or a list of
    /// numbers. A column is read one row group at a time; the last four groups are kept in memory. Clones share what is
    /// in memory.
    pub struct ParquetFiles(Rows)
}

/// The rows of Parquet files.
struct Rows {
    files: Vec<PathBuf>,
    metadata: Vec<ParquetMetaData>,
    /// The column of images in each file.
    images: Vec<ImageColumn>,
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

/// A column of images.
struct ImageColumn {
    column: usize,
    /// If its values are lists and not encoded images.
    lists: Option<Lists>,
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

impl ParquetFiles {
    /// Opens `files`, in this order.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Decode`] if a file cannot be read, [`Error::Parameter`] if a file lacks the columns,
    /// or if there are no rows.
    pub fn open(files: &[PathBuf], options: &RecordOptions) -> Result<Self> {
        Rows::open(files, None, options).map(|rows| Self(Arc::new(rows)))
    }

    /// Opens `files`, whose images are lists of numbers. `axes` has a letter for each of their dimensions: `c`
    /// channels, `h` rows, `w` columns, such as `hwc`.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); [`Error::Parameter`] if images are not lists or have other dimensions,
    /// [`Error::Unsupported`] with the type of numbers that images do not have.
    pub fn open_with_axes(files: &[PathBuf], axes: &str, options: &RecordOptions) -> Result<Self> {
        Rows::open(files, Some(axes), options).map(|rows| Self(Arc::new(rows)))
    }

    /// Whether the classes are the texts in the column, which another split would number in another way.
    pub(super) fn own_names(&self) -> bool {
        self.0.own_names
    }
}

impl Rows {
    fn open(files: &[PathBuf], axes: Option<&str>, options: &RecordOptions) -> Result<Self> {
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
            let image = ImageColumn::find(path, &metadata, wanted, axes)?;
            let name = wanted.unwrap_or("image, img or bytes");
            let expected = || format!("a column of binary values, or of lists of lists of numbers, {name}");
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
        let (path, metadata) = (&self.files[file], &self.metadata[file]);
        let ImageColumn { column, lists } = &self.images[file];
        let allowance = Arc::new(Allowance::new(lists.as_ref().map_or(u64::MAX, Lists::max_values)));
        let pages = pages(path, metadata, (number, *column), Arc::clone(&allowance))?;
        let descriptor = metadata.file_metadata().schema_descr().column(*column);
        let reader = guarded(path, || Ok(get_column_reader(descriptor, Box::new(pages))))?;
        Ok(Cursor { group, next: 0, reader, allowance })
    }

    /// Reads the image of row `index`, counted over all files, which is in `group`. Returns the image's header if it is
    /// not encoded.
    fn image(&self, index: u64, group: usize, sample: &mut Sample<'_>) -> Result<Option<Header>> {
        let Group { file, first, .. } = self.groups[group];
        let (path, row) = (&self.files[file], index - first);
        if let Some(fault) = self.faults.get(&index) {
            return Err(damaged(path, format!("row {index}: {fault}")));
        }
        let mut cursor = self.cursor(group, row)?;
        let before = (row - cursor.next) as usize;
        let allowance = Arc::clone(&cursor.allowance);
        let has_lists = self.images[file].lists.is_some();
        let next = NextRow { path, index, before, has_lists, allowance: &allowance };
        let wrong = |message: &str| next.wrong(message);
        let keep = |mut cursor: Cursor| {
            cursor.next = row + 1;
            let mut kept = self.cursors.kept();
            kept.open.push(cursor);
            kept.close_oldest();
        };
        if let Some(lists) = &self.images[file].lists {
            let planes = lists.read(&next, &mut cursor.reader)?;
            keep(cursor);
            arrays::write(&planes, sample)?;
            return Ok(Some(Header::of_array(planes.size(), planes.kind())));
        }
        let ColumnReader::ByteArrayColumnReader(reader) = &mut cursor.reader else {
            return Err(wrong("its image is not binary"));
        };
        let Row { values, .. } = next.row(reader)?;
        keep(cursor);
        let image = values.first().ok_or_else(|| wrong("its image is null"))?.data();
        if image.len() as u64 > MAX_ENCODED_BYTES {
            return Err(wrong(&format!("its image has {} bytes", image.len())));
        }
        let buffer = sample.buffer();
        buffer.clear();
        buffer.extend(image);
        Ok(None)
    }
}

impl ImageColumn {
    /// Finds the column of images: `wanted`, or else `image`, `img` or `bytes`. `None` if it is not there, or has no
    /// images.
    ///
    /// # Errors
    /// The errors of [`Lists::new`]; [`Error::Parameter`] for axes of a column without lists.
    fn find(path: &Path, metadata: &ParquetMetaData, wanted: Option<&str>, axes: Option<&str>) -> Result<Option<Self>> {
        let names = wanted.map_or_else(|| vec!["image", "img", "bytes"], |wanted| vec![wanted]);
        for name in names {
            if let Some(column) = column(metadata, Some(name), &[]) {
                let descriptor = metadata.file_metadata().schema_descr().column(column);
                if descriptor.physical_type() != Type::BYTE_ARRAY || descriptor.max_rep_level() > 0 {
                    return Ok(None);
                }
                if let Some(axes) = axes {
                    let expected = "only with images that are lists of numbers or a Zarr array";
                    let got = format!("{axes}, with the binary column {name} of {}", path.display());
                    return Err(Error::parameter("open", "axes", expected, got));
                }
                return Ok(Some(Self { column, lists: None }));
            }
            if let Some(column) = lists::find(metadata, name) {
                let lists = Lists::new(path, metadata, (name, column), axes)?;
                return Ok(Some(Self { column, lists: Some(lists) }));
            }
        }
        Ok(None)
    }
}

impl Source for Rows {
    fn len(&self) -> u64 {
        self.len
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("ParquetFiles::read", index, self.len()));
        }
        let group = self.group(index);
        if let Some(column) = want.target {
            let rows = self.targets(group, column)?;
            let found = rows.get((index - self.groups[group].first) as usize).cloned().flatten();
            sample.set_target(found.ok_or_else(|| found::missing(column))?);
        }
        if !want.image && want.fields.is_empty() {
            return Ok(());
        }
        let header = self.image(index, group, sample)?;
        if !want.fields.is_empty() {
            let header = header.map_or_else(|| Ok(probe(sample.bytes())?), Ok::<_, Error>)?;
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

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetFiles").field("files", &self.files).field("len", &self.len).finish_non_exhaustive()
    }
}
