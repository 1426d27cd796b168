//! Tests of Parquet files.

use super::*;
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType, Int32Type,
    Int64Type,
};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs::File;
use std::path::Path;

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
    assert!(source.0.cursors.kept().open.len() <= MAX_CURSORS);
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
        let boxes = column.typed::<FloatType>();
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
        let floats = |values: &[f32]| Some(Target::Floats(values.iter().map(|value| value + group as f32).collect()));
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
    assert!(source.0.targets.lock().unwrap().len() <= TARGET_GROUPS * TARGET_COLUMNS);
    assert!(source.target(0, "bag").unwrap_err().is_parameter());
    assert!(source.check_field("bag").unwrap_err().is_parameter() && source.check_field("box").is_ok());
}

/// Writes 4 rows of 20 x 10 pixels: two objects, none, null, and one whose box lies outside.
fn with_objects(path: &Path, of_lists: bool, texts: bool) {
    with_sides(path, of_lists, texts, 1, [20, 10]);
}

/// Writes the rows of [`with_objects`], with an orientation tag, and this width and height in all rows but the second.
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
                let column = column.typed::<FloatType>();
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
    for (sides, message) in [([40, 20], "40 x 20 pixels, which has 20 x 10, 10 x 20 upright"), ([0, 10], "0 x 10")] {
        let error = read(6, sides, 0).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("row 0"), "{error}");
    }
}

/// Definition levels of a schema of objects.
struct Defined {
    /// Of an object's only number.
    scalar: i16,
    /// Of a number of a box.
    number: i16,
    /// Of a row without objects.
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

/// Values of a column, in the order of the rows.
enum Column {
    Bools(Vec<bool>),
    Integers(Vec<i32>),
    Floats(Vec<f32>),
    Halves(Vec<half::f16>),
    Doubles(Vec<f64>),
}

/// Writes images as lists of `dimensions`, in pages of a few values: the levels of each value, null and empty list, and
/// the values.
fn with_lists(path: &Path, element: &str, dimensions: usize, levels: [Vec<i16>; 2], values: &Column) {
    let list = |inner: String| format!("(LIST) {{ repeated group list {{ {inner} }} }}");
    let group = |name: &str, inner: String| format!("optional group {name} {}", list(inner));
    let lists = (1..dimensions).fold(format!("optional {element};"), |inner, _| group("element", inner));
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {} }}", group("image", lists))).unwrap());
    for version in [1, 2] {
        let version = if version == 1 { WriterVersion::PARQUET_1_0 } else { WriterVersion::PARQUET_2_0 };
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_data_page_size_limit(20)
            .set_write_batch_size(3)
            .build();
        let path = path.with_extension(format!("{}.parquet", version.as_num()));
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::clone(&schema), properties.into()).unwrap();
        let mut rows = writer.next_row_group().unwrap();
        let mut column = rows.next_column().unwrap().unwrap();
        let (definitions, repetitions) = (Some(&levels[0][..]), Some(&levels[1][..]));
        let written = match values {
            Column::Bools(values) => column.typed::<BoolType>().write_batch(values, definitions, repetitions),
            Column::Integers(values) => column.typed::<Int32Type>().write_batch(values, definitions, repetitions),
            Column::Floats(values) => column.typed::<FloatType>().write_batch(values, definitions, repetitions),
            Column::Doubles(values) => column.typed::<DoubleType>().write_batch(values, definitions, repetitions),
            Column::Halves(values) => {
                let bytes = |value: &half::f16| ByteArray::from(value.to_le_bytes().to_vec()).into();
                let values: Vec<FixedLenByteArray> = values.iter().map(bytes).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&values, definitions, repetitions)
            }
        };
        written.unwrap();
        column.close().unwrap();
        rows.close().unwrap();
        writer.close().unwrap();
    }
}

/// The levels of whole arrays of these shapes, one a row.
fn levels(shapes: &[&[usize]]) -> [Vec<i16>; 2] {
    let (mut definitions, mut repetitions) = (Vec::new(), Vec::new());
    for shape in shapes {
        let len: usize = shape.iter().product();
        definitions.extend(vec![1 + 2 * shape.len() as i16; len]);
        let depth = |at: usize| (0..=shape.len()).find(|depth| at.is_multiple_of(shape[*depth..].iter().product()));
        repetitions.extend((0..len).map(|at| depth(at).unwrap() as i16));
    }
    [definitions, repetitions]
}

/// The shape and the numbers of an image, from its NumPy file or its pixels.
fn array(encoded: &[u8]) -> (Vec<usize>, Vec<f64>) {
    if encoded.starts_with(crate::output::npy::MAGIC) {
        return crate::output::npy::array(encoded).unwrap();
    }
    let header = probe(encoded).unwrap();
    let mut shape = vec![header.size.height as usize, header.size.width as usize, header.components.into()];
    let pixels = &encoded[encoded.len() - shape.iter().product::<usize>()..];
    shape.truncate(3);
    (shape, pixels.iter().map(|value| f64::from(*value)).collect())
}

/// The type of a column, its values as they are written and as numbers, and their type in NumPy.
type ListCase<'a> = (&'a str, (Column, Vec<f64>), &'a [u8]);

#[test]
fn lists_of_numbers_are_images() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let shapes: [&[usize]; 4] = [&[4, 5, 3], &[2, 2, 2], &[1, 1, 1], &[3, 4, 7]];
    let total: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
    let numbers = |from: i32| (0..total as i32).map(move |i| from + i * 37 % 126).collect::<Vec<i32>>();
    let integers = |from| (Column::Integers(numbers(from)), numbers(from).iter().map(|v| f64::from(*v)).collect());
    let floats: Vec<f32> = numbers(0).iter().map(|value| *value as f32 / 3.0 - 5.0).collect();
    let halves: Vec<half::f16> = floats.iter().map(|value| half::f16::from_f32(*value)).collect();
    let cases: [ListCase<'_>; 7] = [
        ("int32 element (INTEGER(8,false))", integers(130), b"|u1"),
        ("int32 element (INTEGER(8,true))", integers(-128), b"<f4"),
        ("int32 element (INTEGER(16,false))", integers(65_400), b"<u2"),
        ("int32 element (INT_16)", integers(-32_768), b"<f4"),
        ("float element", (Column::Floats(floats.clone()), floats.iter().map(|v| f64::from(*v)).collect()), b"<f4"),
        (
            "fixed_len_byte_array(2) element (FLOAT16)",
            (Column::Halves(halves.clone()), halves.iter().map(|value| value.to_f64()).collect()),
            b"<f4",
        ),
        (
            "boolean element",
            (
                Column::Bools(numbers(0).iter().map(|value| value % 2 == 1).collect()),
                numbers(0).iter().map(|value| f64::from(value % 2)).collect(),
            ),
            b"|u1",
        ),
    ];
    let options = RecordOptions::default();
    for (element, (column, want), kind) in &cases {
        with_lists(&path, element, 3, levels(&shapes), column);
        for (file, axes) in ["1.parquet", "2.parquet"].iter().flat_map(|file| ["hwc", "chw", "wch"].map(|a| (file, a)))
        {
            let file = [path.with_extension(file)];
            let source = ParquetFiles::open_with_axes(&file, axes, &options).unwrap();
            assert_eq!((source.len(), source.label(0)), (4, None));
            for row in [0, 1, 2, 3, 2, 0, 3, 1] {
                let first: usize = shapes[..row].iter().map(|shape| shape.iter().product::<usize>()).sum();
                let at = |letter| axes.find(letter).unwrap();
                let side = |letter| shapes[row][at(letter)];
                let stride = |letter| shapes[row][at(letter) + 1..].iter().product::<usize>();
                let place = |y, x, c| first + y * stride('h') + x * stride('w') + c * stride('c');
                let pixels = (0..side('h')).flat_map(|y| (0..side('w')).map(move |x| (y, x)));
                let values = pixels.flat_map(|(y, x)| (0..side('c')).map(move |c| want[place(y, x, c)])).collect();
                let encoded = source.encoded(row as u64).unwrap();
                let is_npy = encoded.starts_with(crate::output::npy::MAGIC);
                assert_eq!(array(&encoded), (vec![side('h'), side('w'), side('c')], values), "{element} {axes} {row}");
                assert_eq!(is_npy, *kind != b"|u1" || side('c') % 2 == 0 || side('c') > 3, "{element} {axes} {row}");
                assert!(!is_npy || encoded.windows(3).any(|part| part == *kind), "{element}");
            }
        }
    }
    with_lists(&path, "int32 element (UINT_8)", 2, levels(&[&[2, 3], &[1, 1]]), &Column::Integers((1..=7).collect()));
    let file = [path.with_extension("1.parquet")];
    for (source, pnm) in [
        (ParquetFiles::open(&file, &options), &b"P5\n3 2\n255\n\x01\x02\x03\x04\x05\x06"[..]),
        (ParquetFiles::open_with_axes(&file, "wh", &options), &b"P5\n2 3\n255\n\x01\x04\x02\x05\x03\x06"[..]),
    ] {
        assert_eq!(source.unwrap().encoded(0).unwrap(), pnm);
    }
    for axes in ["hwc", "nhw", "h", "", "hh"] {
        let error = ParquetFiles::open_with_axes(&file, axes, &options).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("axes"), "{axes}: {error}");
    }
}

#[test]
fn lists_that_are_no_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let file = [path.with_extension("1.parquet")];
    let options = RecordOptions::default();
    // [[1, 2], [3, 4]], null, [], [[]], [[1, null]], [null], [[1], [2, 3]], [[1, 2], [3]], [[5, 6]]
    let definitions = [5, 5, 5, 5, 0, 1, 3, 5, 4, 2, 5, 5, 5, 5, 5, 5, 5, 5];
    let repetitions = [0, 2, 1, 2, 0, 0, 0, 0, 2, 0, 0, 1, 2, 0, 2, 1, 0, 2];
    let values = Column::Integers(vec![1, 2, 3, 4, 1, 1, 2, 3, 1, 2, 3, 5, 6]);
    with_lists(&path, "int32 element (UINT_16)", 2, [definitions.to_vec(), repetitions.to_vec()], &values);
    let wrong = [
        (1, "is null"),
        (2, "is an empty list"),
        (3, "has an empty list in its lists"),
        (4, "has null in its lists"),
        (5, "has null in its lists"),
        (6, "has lists of different lengths"),
        (7, "has lists of different lengths"),
    ];
    for version in ["1.parquet", "2.parquet"] {
        let source = ParquetFiles::open(&[path.with_extension(version)], &options).unwrap();
        for (row, message) in wrong.into_iter().chain(wrong.into_iter().rev()) {
            let error = source.encoded(row).unwrap_err();
            let (says, want) = (error.to_string(), format!("row {row}: its image in the column image {message}"));
            assert!(error.is_bad_sample() && says.contains(&want), "{says}");
        }
        assert_eq!(array(&source.encoded(8).unwrap()), (vec![1, 2, 1], vec![5.0, 6.0]));
        assert_eq!(array(&source.encoded(0).unwrap()), (vec![2, 2, 1], vec![1.0, 2.0, 3.0, 4.0]));
    }
    // A value that the type does not have.
    with_lists(&path, "int32 element (UINT_8)", 2, levels(&[&[1, 2]]), &Column::Integers(vec![1, 256]));
    let error = ParquetFiles::open(&file, &options).unwrap().encoded(0).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("a value that is no uint8"), "{error}");
    // More channels than images have.
    with_lists(&path, "int32 element (UINT_8)", 3, levels(&[&[1, 1, 65]]), &Column::Integers(vec![1; 65]));
    let error = ParquetFiles::open_with_axes(&file, "hwc", &options).unwrap().encoded(0).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("64 channels"), "{error}");
    let error = ParquetFiles::open(&file, &options).unwrap_err();
    assert!(error.is_parameter() && error.to_string().contains("such as hwc"), "{error}");

    for (element, values, name) in [
        ("int32 element", Column::Integers(vec![1]), "int32"),
        ("int32 element (UINT_32)", Column::Integers(vec![1]), "uint32"),
        ("double element", Column::Doubles(vec![1.0]), "float64"),
        ("int32 element (DATE)", Column::Integers(vec![1]), "INT32"),
    ] {
        with_lists(&path, element, 2, levels(&[&[1, 1]]), &values);
        let error = ParquetFiles::open(&file, &options).unwrap_err();
        let says = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }) && says.contains(&format!("images of {name} ")), "{says}");
    }
    for (dimensions, shape) in [(1, &[1][..]), (4, &[1, 1, 1, 1])] {
        with_lists(&path, "float element", dimensions, levels(&[shape]), &Column::Floats(vec![1.0]));
        let error = ParquetFiles::open(&file, &options).unwrap_err();
        assert!(error.to_string().contains(&format!("lists of {dimensions} dimensions")), "{error}");
    }
}

/// A page of lists without values: its header, whose fields are the type, two sizes, and the number and the encodings
/// of values and levels, and the lengths of the levels.
const EMPTY_PAGE: [u8; 25] = [21, 0, 21, 16, 21, 16, 44, 21, 0, 21, 0, 21, 6, 21, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn pages_without_values_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let shapes = levels(&[&[2, 3], &[2, 3], &[2, 3]]);
    with_lists(&path, "int32 element (UINT_8)", 2, shapes, &Column::Integers((0..18).collect()));
    let file = bytes::Bytes::from(std::fs::read(path.with_extension("1.parquet")).unwrap());
    let reader = SerializedFileReader::new(file.clone()).unwrap();
    let (schema, column) = (reader.metadata().file_metadata().schema_descr(), reader.metadata().row_group(0).column(0));
    let (start, len) = column.byte_range();
    let (chunk, first) = (&file[start as usize..][..len as usize], column.data_page_offset() - start as i64);
    // After the dictionary, where pyarrow writes such a page, and at the end.
    let (dictionary, pages) = chunk.split_at(first as usize);
    let padded = bytes::Bytes::from([dictionary, &EMPTY_PAGE, pages, &EMPTY_PAGE].concat());
    let metadata = column.clone().into_builder().set_dictionary_page_offset(Some(0)).set_data_page_offset(first);
    let metadata = metadata.set_total_compressed_size(padded.len() as i64).build().unwrap();
    let mut writer =
        SerializedFileWriter::new(File::create(&path).unwrap(), schema.root_schema_ptr(), Arc::default()).unwrap();
    let mut rows = writer.next_row_group().unwrap();
    let closed = ColumnCloseResult {
        bytes_written: padded.len() as u64,
        rows_written: 3,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    rows.append_column(&padded, closed).unwrap();
    rows.close().unwrap();
    writer.close().unwrap();
    let source = ParquetFiles::open(&[path], &RecordOptions::default()).unwrap();
    for row in [0, 1, 2, 2, 1, 0] {
        let want: Vec<f64> = (row * 6..row * 6 + 6).map(|value| value as f64).collect();
        assert_eq!(array(&source.encoded(row).unwrap()), (vec![2, 3, 1], want), "{row}");
    }
}

#[test]
fn pages_that_claim_too_many_values_are_refused() {
    let allowance = Allowance::new(10);
    for _ in 0..2 {
        allowance.renew();
        assert!(allowance.take(6).is_ok() && allowance.take(5).is_err() && allowance.take(4).is_ok());
    }
    assert!(allowance.take(1).is_err());
}

#[test]
fn pages_with_fewer_levels_than_values_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    with_lists(&path, "float element", 2, levels(&[&[2, 1][..]; 40]), &Column::Floats(vec![0.5; 80]));
    let path = path.with_extension("1.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes.clone())).unwrap();
    let start = file.metadata().row_group(0).column(0).data_page_offset() as usize;
    // In a page's header, a structure as field 5 and a whole number in it: the number of values, which becomes 63.
    let values = bytes[start..].windows(2).position(|pair| *pair == EMPTY_PAGE[6..8]).unwrap();
    bytes[start + values + 2] = 126;
    std::fs::write(&path, bytes).unwrap();
    let source = ParquetFiles::open(&[path], &RecordOptions::default()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(source.encoded(39)));
    let read = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it skips and skips");
    assert!(read.as_ref().is_err_and(Error::is_bad_sample), "{read:?}");
}
