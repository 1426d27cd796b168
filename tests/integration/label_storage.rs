//! Labels mean the same however they are stored, as in `label_storage.tsv`. `WARPFEED_WRITE_TABLE=1` writes it anew.

use crate::common::jpeg;
use crate::records::{bytes_feature, example, feature, field, int_feature, member, recordio, varint};
use Stored::{Bool, Float, Int, List, Missing, Null, Text};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warpfeed::pack::{PackOptions, pack};
use warpfeed::source::{Input, OpenOptions, RecordFormat, RecordOptions, Source, StreamStart};
use warpfeed::{Error, Result};

/// A label as a file holds it.
#[derive(Debug, Clone, PartialEq)]
enum Stored {
    Int(i64),
    Text(&'static str),
    Float(f64),
    Bool(bool),
    List(&'static [i64]),
    Null,
    Missing,
}

impl Stored {
    fn json(&self) -> Option<String> {
        Some(match self {
            Int(number) => number.to_string(),
            Text(text) => serde_json::to_string(text).unwrap(),
            Float(number) => serde_json::to_string(number).unwrap(),
            Bool(is) => is.to_string(),
            List(numbers) => serde_json::to_string(numbers).unwrap(),
            Null => "null".to_owned(),
            Missing => return None,
        })
    }

    /// The content of a part or of a cell.
    fn text(&self) -> Option<String> {
        if let Text(text) = self { Some((*text).to_owned()) } else { self.json() }
    }
}

/// The labels of three samples, each under a name of its kind.
const VALUES: [(&str, [Stored; 3]); 19] = [
    ("integers", [Int(3), Int(1), Int(2)]),
    ("integers, all 0", [Int(0), Int(0), Int(0)]),
    ("-1 for all", [Int(-1), Int(-1), Int(-1)]),
    ("-1 for one", [Int(3), Int(-1), Int(2)]),
    ("-2 for one", [Int(3), Int(-2), Int(2)]),
    ("beyond 32 bits", [Int(3), Int(4_294_967_296), Int(2)]),
    ("digits", [Text("3"), Text("1"), Text("2")]),
    ("digits after 0", [Text("03"), Text("01"), Text("10")]),
    ("01, 1, 001", [Text("01"), Text("1"), Text("001")]),
    ("names", [Text("dog"), Text("cat"), Text("dog")]),
    ("names and digits", [Text("1"), Text("bee"), Text("2")]),
    ("an empty text", [Text("dog"), Text(""), Text("cat")]),
    ("whole floats", [Float(3.0), Float(1.0), Float(2.0)]),
    ("fractions", [Float(0.5), Float(1.0), Float(2.0)]),
    ("truth values", [Bool(true), Bool(false), Bool(true)]),
    ("lists", [List(&[3]), List(&[1, 2]), List(&[])]),
    ("null for all", [Null, Null, Null]),
    ("null for one", [Int(3), Null, Int(2)]),
    ("missing for one", [Int(3), Missing, Int(2)]),
];

const MISSING: [Stored; 3] = [Missing, Missing, Missing];

/// Place of labels.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Cls,
    ClsBefore,
    ClsApart,
    Json(&'static str),
    Ending(&'static str),
    Feature(&'static str),
    Header,
    Array,
    Column(&'static str),
    /// A column that Hugging Face's metadata describe as ClassLabel of cat, cow, dog and elk.
    ClassLabel,
    Line,
    ListColumn(&'static str),
}

impl Place {
    fn format(self) -> &'static str {
        match self {
            Self::Cls | Self::ClsBefore | Self::ClsApart | Self::Json(_) | Self::Ending(_) => "WebDataset",
            Self::Feature(_) => "TFRecord",
            Self::Header | Self::Array => "RecordIO",
            Self::Column(_) | Self::ClassLabel => "Parquet",
            Self::Line | Self::ListColumn(_) => "list",
        }
    }

    fn words(self) -> String {
        match self {
            Self::Cls => ".cls".to_owned(),
            Self::ClsBefore => ".cls before the image".to_owned(),
            Self::ClsApart => ".cls after all images".to_owned(),
            Self::Json(name) => format!("json.{name}"),
            Self::Ending(name) => format!(".{name}"),
            Self::Feature(name) => format!("feature {name}"),
            Self::Header => "header".to_owned(),
            Self::Array => "array".to_owned(),
            Self::Column(name) | Self::ListColumn(name) => format!("column {name}"),
            Self::ClassLabel => "column label, ClassLabel".to_owned(),
            Self::Line => "after the tab".to_owned(),
        }
    }

    fn ending(self) -> &'static str {
        match self.format() {
            "WebDataset" => "tar",
            "TFRecord" => "tfrecord",
            "RecordIO" => "rec",
            "Parquet" => "parquet",
            _ => "tsv",
        }
    }

    /// Writes a file of samples with these labels; false if this place cannot hold them.
    fn write(self, path: &Path, labels: &[Stored]) -> bool {
        let image = |i: usize| jpeg(8, 8, i as u64 + 1);
        let bytes: Option<Vec<u8>> = match self.format() {
            "WebDataset" => self.tar(labels, image),
            "TFRecord" => labels
                .iter()
                .enumerate()
                .map(|(i, label)| self.example(label, &image(i)))
                .collect::<Option<Vec<_>>>()
                .map(|all| all.concat()),
            "RecordIO" => labels
                .iter()
                .enumerate()
                .map(|(i, label)| self.record(label, &image(i)))
                .collect::<Option<Vec<_>>>()
                .map(|all| all.concat()),
            "Parquet" => return self.parquet(path, labels, image),
            _ => {
                labels
                    .iter()
                    .enumerate()
                    .for_each(|(i, _)| fs::write(path.with_file_name(format!("{i}.jpg")), image(i)).unwrap());
                self.list(labels)
            }
        };
        bytes.is_some_and(|bytes| fs::write(path, bytes).is_ok())
    }

    fn tar(self, labels: &[Stored], image: impl Fn(usize) -> Vec<u8>) -> Option<Vec<u8>> {
        let (mut all, mut apart) = (Vec::new(), Vec::new());
        for (i, label) in labels.iter().enumerate() {
            let image = member(&format!("{i}.jpg"), b'0', &image(i));
            let part = match self {
                Self::Json(name) => {
                    let field = label.json().map(|value| format!("{{\"width\": 8, {name:?}: {value}}}"));
                    Some(member(&format!("{i}.json"), b'0', field.as_deref().unwrap_or("{\"width\": 8}").as_bytes()))
                }
                Self::Ending(name) => label.text().map(|text| member(&format!("{i}.{name}"), b'0', text.as_bytes())),
                _ if *label == Null => return None,
                _ => label.text().map(|text| member(&format!("{i}.cls"), b'0', text.as_bytes())),
            };
            let part = part.unwrap_or_default();
            match self {
                Self::ClsBefore => all.extend([part, image].concat()),
                Self::ClsApart => {
                    all.extend(image);
                    apart.extend(part);
                }
                _ => all.extend([image, part].concat()),
            }
        }
        Some([all, apart, vec![0; 1024]].concat())
    }

    fn example(self, label: &Stored, image: &[u8]) -> Option<Vec<u8>> {
        let Self::Feature(name) = self else { return None };
        let image = bytes_feature("image/encoded", image);
        Some(match label {
            Int(number) => example(&[image, int_feature(name, *number as u64)]),
            Text(text) => example(&[image, bytes_feature(name, text.as_bytes())]),
            Float(number) => example(&[image, feature(name, 2, &field(1, &(*number as f32).to_le_bytes()))]),
            List(numbers) => {
                let packed: Vec<u8> = numbers.iter().flat_map(|&number| varint(number as u64)).collect();
                example(&[image, feature(name, 3, &field(1, &packed))])
            }
            Missing => example(&[image]),
            Bool(_) | Null => return None,
        })
    }

    fn record(self, label: &Stored, image: &[u8]) -> Option<Vec<u8>> {
        let label = match label {
            Int(number) => *number as f32,
            Float(number) => *number as f32,
            _ => return None,
        };
        Some(if self == Self::Header { recordio(&[label], image) } else { recordio(&[label, 9.0], image) })
    }

    fn list(self, labels: &[Stored]) -> Option<Vec<u8>> {
        let mut text = String::new();
        if let Self::ListColumn(name) = self {
            writeln!(text, "#path\ttext\t{name}").unwrap();
        }
        for (i, label) in labels.iter().enumerate() {
            let label = label.text()?;
            let column = if self == Self::Line { "" } else { "\tx" };
            writeln!(text, "{i}.jpg{column}\t{label}").unwrap();
        }
        Some(text.into_bytes())
    }

    fn parquet(self, path: &Path, labels: &[Stored], image: impl Fn(usize) -> Vec<u8>) -> bool {
        let name = if let Self::Column(name) = self { name } else { "label" };
        let kind = match labels.iter().find(|label| !matches!(label, Null | Missing)) {
            Some(Int(_)) => "int64 {};",
            Some(Text(_)) => "binary {} (STRING);",
            Some(Float(_)) => "double {};",
            Some(Bool(_)) => "boolean {};",
            Some(List(_)) => "group {} (LIST) { repeated group list { optional int64 element; } }",
            Some(Null | Missing) | None if labels.contains(&Null) => "int64 {};",
            _ => "",
        };
        if labels.contains(&Missing) && !kind.is_empty() {
            return false;
        }
        let column = if kind.is_empty() { String::new() } else { format!("optional {}", kind.replacen("{}", name, 1)) };
        let schema = format!(
            "message rows {{ optional group image {{ optional binary bytes; optional binary path (STRING); }} {column} }}"
        );
        let classes =
            r#"{"info": {"features": {"label": {"names": ["cat", "cow", "dog", "elk"], "_type": "ClassLabel"}}}}"#;
        let metadata =
            (self == Self::ClassLabel).then(|| vec![KeyValue::new("huggingface".to_owned(), classes.to_owned())]);
        let properties =
            WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(metadata).build();
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let mut writer = SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, properties.into()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let images: Vec<ByteArray> = (0..labels.len()).map(|i| image(i).into()).collect();
        let mut number = 0;
        let levels: Vec<i16> = labels.iter().map(|label| i16::from(!matches!(label, Null))).collect();
        while let Some(mut column) = group.next_column().unwrap() {
            match number {
                0 => {
                    _ = column
                        .typed::<ByteArrayType>()
                        .write_batch(&images, Some(&vec![2; labels.len()]), None)
                        .unwrap()
                }
                1 => _ = column.typed::<ByteArrayType>().write_batch(&[], Some(&vec![1; labels.len()]), None).unwrap(),
                _ if kind.starts_with("int64") => {
                    let values: Vec<i64> = labels
                        .iter()
                        .filter_map(|label| if let Int(number) = label { Some(*number) } else { None })
                        .collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&levels), None).unwrap();
                }
                _ if kind.starts_with("binary") => {
                    let values: Vec<ByteArray> = labels
                        .iter()
                        .filter_map(|label| if let Text(text) = label { Some(ByteArray::from(*text)) } else { None })
                        .collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
                }
                _ if kind.starts_with("double") => {
                    let values: Vec<f64> = labels
                        .iter()
                        .filter_map(|label| if let Float(number) = label { Some(*number) } else { None })
                        .collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&levels), None).unwrap();
                }
                _ if kind.starts_with("boolean") => {
                    let values: Vec<bool> =
                        labels.iter().filter_map(|label| if let Bool(is) = label { Some(*is) } else { None }).collect();
                    column.typed::<BoolType>().write_batch(&values, Some(&levels), None).unwrap();
                }
                _ => {
                    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
                    for label in labels {
                        let List(numbers) = label else { continue };
                        values.extend_from_slice(numbers);
                        defined.extend(if numbers.is_empty() { vec![1] } else { vec![3; numbers.len()] });
                        repeated.extend((0..numbers.len().max(1)).map(|i| i16::from(i > 0)));
                    }
                    column.typed::<Int64Type>().write_batch(&values, Some(&defined), Some(&repeated)).unwrap();
                }
            }
            column.close().unwrap();
            number += 1;
        }
        group.close().unwrap();
        writer.close().unwrap();
        true
    }
}

/// The options that a row opens its set with.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    label: Option<&'static str>,
    classes: &'static [&'static str],
    split: Option<&'static str>,
    window: bool,
}

impl Options {
    fn open(self, path: &Path) -> Result<Input> {
        let classes = self.classes.iter().map(|&name| name.to_owned()).collect();
        let label = self.label.map(str::to_owned);
        let records = RecordOptions::default().label(label).classes(classes);
        let split = self.split.map(str::to_owned);
        OpenOptions::default().records(records).split(split).window(self.window.then_some(1)).open(path)
    }

    fn words(self) -> String {
        let mut words = Vec::new();
        words.extend(self.label.map(|label| format!("label field {label}")));
        words.extend((!self.classes.is_empty()).then(|| format!("classes {}", self.classes.join(" "))));
        words.extend(self.split.map(|split| format!("split {split}")));
        words.extend(self.window.then(|| "front to back".to_owned()));
        words.join(", ")
    }
}

/// The value that an error refuses.
fn refused(error: &Error) -> String {
    match error {
        Error::Parameter { parameter, .. } => format!("refused: {parameter}"),
        Error::Unsupported { .. } => "refused: give the classes".to_owned(),
        Error::Decode { .. } => "refused: damaged".to_owned(),
        other => panic!("{other}"),
    }
}

fn words_of(labels: &[Option<u32>], bad: &[bool], classes: &[String]) -> String {
    let label = |(label, bad): (&Option<u32>, &bool)| match label {
        _ if *bad => "bad".to_owned(),
        Some(label) => label.to_string(),
        None => "none".to_owned(),
    };
    let labels: Vec<String> = labels.iter().zip(bad).map(label).collect();
    let classes = if classes.is_empty() { String::new() } else { format!(" of {}", classes.join(" ")) };
    labels.join(" ") + &classes
}

/// The labels of a set, sample by sample, and the classes.
fn labels(input: &Input) -> String {
    let (mut labels, mut bad) = (Vec::new(), Vec::new());
    match input {
        Input::DataSet(source) => {
            for index in 0..source.len() {
                bad.push(source.encoded(index).is_err());
                labels.push(source.label(index));
            }
            assert!(labels.iter().zip(&bad).all(|(label, bad)| *bad || label.is_some() == source.has_labels()));
        }
        Input::Stream(stream) => {
            let mut samples = stream.begin(&StreamStart::whole(0)).unwrap();
            loop {
                let label = match samples.next() {
                    Ok(None) => break,
                    Ok(Some(sample)) => Some(sample.label),
                    Err(error) if error.is_bad_sample() => None,
                    Err(error) => return refused(&error),
                };
                bad.push(label.is_none());
                labels.push(label.flatten());
            }
        }
    }
    words_of(&labels, &bad, input.classes())
}

/// Whether the set packed in each format has the labels of its good samples, and the classes.
fn check_packed(source: &Arc<dyn Source>, folder: &Path) {
    let good: Vec<Option<u32>> =
        (0..source.len()).filter(|&i| source.encoded(i).is_ok()).map(|i| source.label(i)).collect();
    if good.is_empty() {
        return;
    }
    for &format in RecordFormat::ALL {
        let out = folder.join(format!("packed-{format:?}"));
        if good.iter().flatten().any(|&label| label > 1 << 24) && format == RecordFormat::RecordIo {
            assert!(pack(source, &out, &PackOptions::new(format), &mut |_| {}).is_err());
            continue;
        }
        pack(source, &out, &PackOptions::new(format), &mut |_| {}).unwrap();
        let packed = warpfeed::source::open(&out).unwrap().into_data_set().unwrap();
        let found: Vec<Option<u32>> = (0..packed.len()).map(|i| packed.label(i)).collect();
        assert_eq!((found, packed.classes()), (good.clone(), source.classes()), "{format:?}");
    }
}

/// Rows of the table that the test makes.
#[derive(Default)]
struct Table {
    rows: Vec<String>,
}

impl Table {
    /// Opens a set and adds its row.
    fn row(&mut self, [format, place, values]: [&str; 3], path: &Path, options: Options) {
        let opened = options.open(path);
        let result = opened.as_ref().map_or_else(refused, labels);
        if let Ok(Input::DataSet(source)) = &opened {
            let folder = tempfile::tempdir().unwrap();
            check_packed(source, folder.path());
        }
        self.rows.push([format, place, values, &options.words(), &result].join("\t"));
    }

    /// Writes a file of its own and adds its row.
    fn file(&mut self, place: Place, values: (&str, &[Stored]), options: Options) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("set.{}", place.ending()));
        if place.write(&path, values.1) {
            self.row([place.format(), &place.words(), values.0], &path, options);
        }
    }
}

/// Writes the splits of a data set: train has cat and dog, val the given labels.
fn splits(folder: &Path, place: Option<Place>, in_folders: bool, train: &[Stored], val: &[Stored]) -> [PathBuf; 2] {
    let write = |split: &str, labels: &[Stored]| {
        let Some(place) = place else {
            for (i, label) in labels.iter().enumerate() {
                let class = folder.join(split).join(label.text().unwrap());
                fs::create_dir_all(&class).unwrap();
                fs::write(class.join(format!("{i}.jpg")), jpeg(8, 8, i as u64)).unwrap();
            }
            return folder.join(split);
        };
        let path = if in_folders {
            fs::create_dir_all(folder.join(split)).unwrap();
            folder.join(split).join(format!("0.{}", place.ending()))
        } else {
            folder.join(format!("{split}-000000.{}", place.ending()))
        };
        assert!(place.write(&path, labels));
        if in_folders { folder.join(split) } else { path }
    };
    [if train.is_empty() { PathBuf::new() } else { write("train", train) }, write("val", val)]
}

#[test]
fn labels_mean_what_is_stored_wherever_they_are_stored() {
    let mut table = Table::default();
    let plain = Options::default();
    let window = Options { window: true, ..plain };
    let named = |label| Options { label: Some(label), ..plain };
    let usual = [
        Place::Cls,
        Place::Json("label"),
        Place::Feature("image/class/label"),
        Place::Header,
        Place::Column("label"),
        Place::Line,
        Place::ListColumn("label"),
    ];
    for place in usual {
        for (kind, values) in &VALUES {
            table.file(place, (kind, values), plain);
            if !matches!(place.format(), "Parquet" | "list") {
                table.file(place, (kind, values), window);
            }
        }
    }
    let (integers, names) = (("integers", &VALUES[0].1[..]), ("names", &VALUES[9].1[..]));
    let elsewhere = [
        (Place::ClsBefore, "cls"),
        (Place::ClsApart, "cls"),
        (Place::Json("kind"), "json.kind"),
        (Place::Json("class_id"), "json.class_id"),
        (Place::Ending("class"), "class"),
        (Place::Ending("txt"), "txt"),
        (Place::Feature("label"), "label"),
        (Place::Feature("kind"), "kind"),
        (Place::Feature("image/class/text"), "image/class/text"),
        (Place::Column("labels"), "labels"),
        (Place::Column("fine_label"), "fine_label"),
        (Place::Column("target"), "target"),
        (Place::Column("kind"), "kind"),
        (Place::ListColumn("class"), "class"),
        (Place::ListColumn("kind"), "kind"),
    ];
    for (place, name) in elsewhere {
        for values in [integers, names] {
            for options in [plain, named(name), named("lable"), named("none")] {
                table.file(place, values, options);
            }
        }
    }
    for place in [Place::Cls, Place::Json("label"), Place::Feature("image/class/label"), Place::Column("label")] {
        table.file(place, ("missing for all", &MISSING), plain);
        table.file(place, ("missing for all", &MISSING), named("none"));
        for classes in [&["dog", "cat"][..], &["dog", "elk"], &["10", "3", "1", "2"], &["a", "b"]] {
            for values in [integers, names, ("digits", &VALUES[6].1[..])] {
                for window in [false, true] {
                    if !window || place.format() != "Parquet" {
                        table.file(place, values, Options { classes, window, ..plain });
                    }
                }
            }
        }
    }
    table.file(Place::Array, integers, plain);
    table.file(Place::Header, integers, named("none"));
    table.file(Place::Header, integers, named("label"));
    table.file(Place::Line, integers, named("none"));
    for (kind, values) in [
        ("integers", &[Int(2), Int(0), Int(1)][..]),
        ("a number without a name", &[Int(2), Int(4)]),
        names,
        ("-1 for all", &VALUES[2].1),
    ] {
        table.file(Place::ClassLabel, (kind, values), plain);
    }

    let train = [Text("cat"), Text("dog")];
    let kinds = [
        ("WebDataset, flat", Some(Place::Cls), false),
        ("WebDataset, in folders", Some(Place::Cls), true),
        ("TFRecord, flat", Some(Place::Feature("image/class/label")), false),
        ("Parquet, flat", Some(Place::Column("label")), false),
        ("Parquet, in folders", Some(Place::Column("label")), true),
        ("class folders", None, true),
    ];
    for (kind, place, in_folders) in kinds {
        for (values, train, val) in [
            ("train cat dog, val dog", &train[..], &[Text("dog")][..]),
            ("train cat dog, val cat dog elk", &train, &[Text("cat"), Text("dog"), Text("elk")]),
            ("train 0 1, val dog", &[Int(0), Int(1)], &[Text("dog")]),
            ("train cat dog, val 1", &train, &[Int(1)]),
            ("val dog", &[], &[Text("dog")]),
        ] {
            if place.is_none() && values.contains('1') {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            let [_, direct] = splits(folder.path(), place, in_folders, train, val);
            for split in ["train", "val"] {
                if !train.is_empty() {
                    table.row(["splits", kind, values], folder.path(), Options { split: Some(split), ..plain });
                }
            }
            table.row(["val by its path", kind, values], &direct, plain);
            if place.is_some() {
                table.row(["val by its path", kind, values], &direct, Options { classes: &["cat", "dog"], ..plain });
            }
        }
    }

    let head = "format\tplace\tstored\toptions\tlabels\n";
    let found = head.to_owned() + &table.rows.iter().map(|row| row.clone() + "\n").collect::<String>();
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/integration/label_storage.tsv");
    if std::env::var_os("WARPFEED_WRITE_TABLE").is_some() {
        fs::write(&path, &found).unwrap();
    }
    assert!(table.rows.len() >= 200, "{}", table.rows.len());
    let want = fs::read_to_string(path).unwrap();
    for (found, want) in found.lines().zip(want.lines()) {
        assert_eq!(found, want);
    }
    assert_eq!(found.lines().count(), want.lines().count());
}
