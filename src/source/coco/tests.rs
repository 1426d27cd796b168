use super::*;
use crate::encode::{JpegOptions, encode_jpeg};
use crate::fields::{Field, MaskValues};
use crate::raster::Image;
use crate::source::{Concat, Source, SourceExt};

/// A file with one image of 6 x 4 pixels, these annotations, and categories 3 (cat) and 7 (dog).
fn opened(annotations: &str) -> (tempfile::TempDir, Result<CocoFiles>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("instances.json");
    let json = format!(
        r#"{{"info": {{"year": 2017}}, "images": [{{"id": 5, "file_name": "a.png", "width": 6, "height": 4}},
        {{"id": 2, "coco_url": "http://images.cocodataset.org/val/b.png", "width": 6, "height": 4}}],
        "annotations": [{annotations}],
        "categories": [{{"id": 7, "name": "dog", "supercategory": "animal"}},
        {{"id": 3, "name": "cat", "keypoints": ["nose", "left_ear", "right_ear"], "skeleton": [[1, 2]]}}]}}"#
    );
    write(folder.path(), &json, 1);
    let coco = CocoFiles::open(folder.path(), &path);
    (folder, coco)
}

/// Writes a file of annotations, and the images a.png and b.png of 6 x 4 pixels, which are JPEGs with this tag.
fn write(folder: &Path, json: &str, orientation: u16) {
    let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
    let image = encode_jpeg(&Image::new(Size::new(6, 4)), &options).unwrap();
    std::fs::write(folder.join("instances.json"), json).unwrap();
    ["a.png", "b.png"].iter().for_each(|name| std::fs::write(folder.join(name), &image).unwrap());
}

fn annotation(id: u32, image: u32, rest: &str) -> String {
    format!(r#"{{"id": {id}, "image_id": {image}, {rest}}}"#)
}

fn read(coco: &CocoFiles, index: u64, names: &[&str]) -> Result<Fields> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut sample = Sample::default();
    let want = ReadRequest::IMAGE.without_image().and_fields(&names);
    coco.read(index, &want, &mut sample)?;
    sample.take_found(&want).map(|found| found.fields.map(|fields| (*fields).clone()).unwrap_or_default())
}

/// The mask of the first object of image 5, one string a row.
fn mask(segmentation: &str) -> Result<Vec<String>, String> {
    let own = format!(r#""category_id": 3, "bbox": [0, 0, 1, 1], "segmentation": {segmentation}"#);
    let (_folder, coco) = opened(&annotation(1, 5, &own));
    let fields = read(&coco.unwrap(), 1, &[MASKS]).map_err(|error| error.to_string())?;
    let Some(Field::Mask(mask)) = fields.get(MASKS) else { panic!("{fields:?}") };
    let MaskValues::U8(values) = &*mask.planes()[0] else { panic!("{mask:?}") };
    Ok(values.chunks(6).map(|row| row.iter().map(|v| if *v == 1 { '#' } else { '.' }).collect()).collect())
}

#[test]
fn rows_are_in_the_order_of_images_and_labels_have_no_gaps() {
    let rows = [
        annotation(9, 5, r#""category_id": 7, "bbox": [1, 1, 2.5, 2], "area": 4.25, "iscrowd": 0"#),
        annotation(4, 2, r#""category_id": 3, "bbox": [0, 0, 6, 4], "iscrowd": true"#),
        annotation(
            6,
            5,
            r#""category_id": 3, "bbox": [0, 2, 1, 0], "area": 0, "keypoints": [2, 1, 2, 0, 0, 0, 3, 2, 1]"#,
        ),
    ];
    let (folder, coco) = opened(&rows.join(","));
    let coco = coco.unwrap();
    assert_eq!((coco.len(), coco.classes()), (2, &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!(coco.name(0), folder.path().join("b.png").to_string_lossy());
    assert_eq!([coco.image_id(0), coco.image_id(1)], [Some(2), Some(5)]);
    let parts = Concat::new([Arc::new(coco.clone().subset([1]).unwrap()) as Arc<dyn Source>]).unwrap();
    assert_eq!(parts.image_id(0), Some(5));
    let found = read(&coco, 1, &[BOXES, LABELS, "category_ids", "area", "iscrowd", "ids", KEYPOINTS]).unwrap();
    assert_eq!(found.boxes().unwrap().rows(), [[1.0, 1.0, 3.5, 3.0], [0.0, 2.0, 1.0, 2.0]]);
    assert_eq!(found.get(LABELS), Some(&Field::Integers(vec![1, 0])));
    assert_eq!(found.get("category_ids"), Some(&Field::Integers(vec![7, 3])));
    assert_eq!(found.get("ids"), Some(&Field::Integers(vec![9, 6])));
    assert_eq!(found.get("area"), Some(&Field::Floats(vec![4.25, 0.0])));
    let Some(Field::KeyPoints(points)) = found.get(KEYPOINTS) else { panic!("{found:?}") };
    assert_eq!(points.points()[3..], [[2.5, 1.5], [0.0, 0.0], [3.5, 2.5]]);
    assert_eq!(points.visibility(), [0, 0, 0, 2, 0, 1]);
    // A crowd is not an object unless it is asked for; an image without objects stays a sample.
    assert_eq!(read(&coco, 0, &[BOXES]).unwrap().objects(), 0);
    assert_eq!(read(&coco.clone().crowds(true), 0, &[BOXES]).unwrap().objects(), 1);
    let annotated = coco.annotated_only().unwrap();
    assert_eq!((annotated.len(), annotated.target(0, IMAGE_ID).unwrap()), (1, Target::Integers(vec![5])));
    assert!(annotated.check_field("masks").is_ok() && annotated.check_field("depth").unwrap_err().is_parameter());
}

#[test]
fn polygons_and_run_lengths_become_the_pixels_of_pycocotools() {
    // The expected pixels are pycocotools 2.0.11's.
    let square = ["......", ".###..", ".###..", "......"];
    assert_eq!(mask("[[1, 1, 4, 1, 4, 3, 1, 3]]").unwrap(), square);
    assert_eq!(mask("[[1, 1, 4, 1, 4, 3, 1, 3, 9]]").unwrap(), square, "an odd last number is ignored");
    assert_eq!(mask("[[1, 1, 3, 1, 3, 3, 1, 3], [2, 1, 4, 1, 4, 3, 2, 3]]").unwrap(), square, "parts are united");
    assert_eq!(mask(r#"{"size": [4, 6], "counts": [5, 2, 2, 2, 2, 2, 9]}"#).unwrap(), square);
    assert_eq!(mask(r#"{"size": [4, 6], "counts": "5220007"}"#).unwrap(), square);
    // Masks are read again as they were written, whatever they begin and end with.
    for pixels in [
        [0_u8; 24],
        [1; 24],
        [0, 1, 1, 0].repeat(6).try_into().unwrap(),
        [1, 0, 0, 0, 0, 1].repeat(4).try_into().unwrap(),
    ] {
        let size = Size::new(6, 4);
        let (mut plane, text) = (vec![0; 24], runs::compress(&pixels, size));
        let numbers = [vec![4, 6], runs::decompress(text.as_bytes()).unwrap()].concat();
        runs::paint(&numbers, size, &mut plane).unwrap();
        assert_eq!(plane, pixels, "{text}");
    }
    let square: Vec<u8> = square.concat().bytes().map(|pixel| u8::from(pixel == b'#')).collect();
    assert_eq!(runs::compress(&square, Size::new(6, 4)), "5220007");
    for (counts, message) in [("522000", "of 15 pixels"), ("522000P", "within a number"), ("522000 ", "no run lengths")]
    {
        let error = mask(&format!(r#"{{"size": [4, 6], "counts": "{counts}"}}"#)).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn objects_that_are_wrong_make_their_sample_bad_and_are_named() {
    for (rest, field, message) in [
        (r#""category_id": 4, "bbox": [0, 0, 1, 1]"#, LABELS, "category 4"),
        (r#""category_id": 3, "bbox": [0, 0, -1, 1]"#, BOXES, "is no box"),
        (r#""category_id": 3, "bbox": [0, 0, 1e60, 1]"#, BOXES, "is no box"),
        (r#""category_id": 3, "bbox": [9, 0, 1, 1]"#, BOXES, "outside the image"),
        (r#""category_id": 3, "bbox": [9, 0, 1]"#, BOXES, "no bbox"),
        (r#""category_id": 3, "segmentation": [[1, 2, 3, 4]]"#, MASKS, "fewer than 3 corners"),
        (r#""category_id": 3, "segmentation": [[1, 2, 3, 4, 1e9, 6]]"#, MASKS, "too far"),
        (r#""category_id": 3, "segmentation": {"size": [4, 6], "counts": [20, 3]}"#, MASKS, "of 23 pixels"),
        (r#""category_id": 3, "segmentation": {"size": [6, 4], "counts": [24]}"#, MASKS, "of 4 x 6 pixels"),
        (r#""category_id": 3, "segmentation": {"size": [4, 6], "counts": [25, -1]}"#, MASKS, "negative"),
        (r#""category_id": 3, "segmentation": {"size": [4, 6]}"#, MASKS, "no counts"),
        (r#""category_id": 3, "segmentation": []"#, MASKS, "no segmentation"),
        (r#""category_id": 3, "keypoints": [1, 2]"#, KEYPOINTS, "2 numbers for 3 keypoints"),
        (r#""category_id": 3, "keypoints": [1, 2, "2", 0, 0, 0, 0, 0, 0]"#, KEYPOINTS, "no list of numbers"),
        (r#""category_id": 3, "keypoints": [NaN, 2, 2, 0, 0, 0, 0, 0, 0]"#, KEYPOINTS, "number 0 of its keypoints"),
        (r#""category_id": 3, "bbox": null"#, BOXES, "no bbox"),
        (r#""category_id": 3, "bbox": [0, 0, NaN, 1]"#, BOXES, "is no box"),
        (r#""category_id": 3, "bbox": [0, 0, -Infinity, 1]"#, BOXES, "is no box"),
        (r#""category_id": 3, "bbox": [0, 0, "1", 1]"#, BOXES, "no bbox"),
        (r#""category_id": 3, "bbox": {"x": 1}"#, BOXES, "no bbox"),
        (r#""category_id": 3, "area": NaN"#, "area", "its area"),
        (r#""category_id": 3"#, "area", "its area"),
        (r#""category_id": null"#, LABELS, "category without a number"),
        (r#""bbox": [0, 0, 1, 1]"#, LABELS, "category without a number"),
        (r#""category_id": "3""#, LABELS, "category \"3\""),
        (r#""category_id": "3""#, "category_ids", "its category_id is no whole number"),
        (r#""category_id": 3, "iscrowd": "0""#, BOXES, "its iscrowd is not 0 or 1"),
        (r#""category_id": 3, "segmentation": [5, 5, 25, 5, 25, 15]"#, MASKS, "a list of numbers, not of polygons"),
        (r#""category_id": 3, "segmentation": [[1, 1, 4, 1, null, 3]]"#, MASKS, "a corner that is no number"),
        (r#""category_id": 3, "segmentation": "none""#, MASKS, "neither a list of polygons"),
        (r#""category_id": 3, "segmentation": {"size": [4, 6], "counts": [20.5, 3]}"#, MASKS, "no whole number"),
    ] {
        let (_folder, coco) = opened(&annotation(17, 5, rest));
        let error = read(&coco.unwrap(), 1, &[field]).unwrap_err();
        let text = error.to_string();
        assert!(error.is_bad_sample() && text.contains(message), "{rest}: {text}");
        assert!(text.contains("annotation 17") && text.contains("instances.json"), "{text}");
    }
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    for (annotations, message) in [
        (annotation(1, 77, r#""category_id": 3"#), "annotation 1 of image 77"),
        (r#"{"id": 1, "image_id": null}"#.to_owned(), "annotation 1 has no image_id"),
        ("null".to_owned(), "an object for each annotation"),
        ("{".to_owned(), "line"),
    ] {
        let (_folder, coco) = opened(&annotations);
        let error = coco.unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(message), "{error}");
        assert!(error.to_string().contains("instances.json"), "{error}");
    }
    let (folder, coco) = opened("");
    let path = folder.path().join("instances.json");
    let text = std::fs::read_to_string(&path).unwrap().replace("a.png", "../a.png");
    std::fs::write(&path, text).unwrap();
    drop(coco);
    let coco = CocoFiles::open(folder.path(), &path).unwrap();
    assert!(coco.encoded(1).unwrap_err().to_string().contains("leads out of the folder"));
}

#[test]
fn files_are_read_as_python_reads_them() {
    let json = |images: &str, annotations: &str| {
        format!(
            "\u{feff}{{\"images\": [{images}], \"annotations\": [{annotations}], \
             \"categories\": [{{\"id\": 7.0, \"name\": \"dog\"}}, {{\"id\": \"a\", \"name\": \"cat\"}}]}}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let open = |images: &str, annotations: &str| {
        write(folder.path(), &json(images, annotations), 1);
        CocoFiles::open(folder.path(), folder.path().join("instances.json"))
    };
    let (a, b) =
        (r#"{"id": 1.0, "file_name": "a.png", "width": 6.0, "height": 4}"#, r#"{"id": "x", "file_name": "b.png"}"#);
    let rows = [
        r#"{"id": 1, "image_id": true, "category_id": 7, "bbox": [0, 0, 1, 1], "bbox": [1.0, 1, 2, 2]}"#,
        r#"{"id": "t", "image_id": "x", "category_id": "a", "bbox": [0, 0, 3, 3], "iscrowd": null, "area": NaN}"#,
    ];
    let coco = open(&[b, a].join(","), &rows.join(",")).unwrap();
    assert_eq!((coco.classes(), coco.len()), (&["dog".to_owned(), "cat".to_owned()][..], 2));
    let first = read(&coco, 0, &[BOXES, LABELS, "ids"]).unwrap();
    assert_eq!(first.boxes().unwrap().rows(), [[1.0, 1.0, 3.0, 3.0]], "of equal keys the last counts");
    assert_eq!((first.get(LABELS), first.get("ids")), (Some(&vec![0].into()), Some(&vec![1].into())));
    let second = read(&coco, 1, &[BOXES, LABELS]).unwrap();
    assert_eq!((second.boxes().unwrap().len(), second.get(LABELS)), (1, Some(&vec![1].into())));
    assert!(read(&coco, 1, &["ids"]).unwrap_err().to_string().contains("annotation \"t\": its id is no whole number"));
    assert_eq!(coco.target(1, IMAGE_ID).unwrap(), Target::Bytes(b"x".to_vec()));
    assert!(coco.warnings().is_empty());
    // One image is at fault, and the other is not.
    let good = r#"{"id": 5, "image_id": 1, "category_id": 7, "bbox": [0, 0, 1, 1]}"#;
    for (images, row, message) in [
        (r#"{"id": 2, "width": 6, "height": 4}"#, "", "image 2: its file_name is missing"),
        (r#"{"id": 2, "file_name": 3}"#, "", "image 2: its file_name is missing, or no text"),
        (r#"{"file_name": "b.png"}"#, "", "its id is missing"),
        (r#"{"id": 2, "file_name": "b.png", "width": "6", "height": 4}"#, "", "image 2: its width and height"),
        (r#"{"id": 2, "file_name": "b.png", "width": 0, "height": 4}"#, "", "image 2: its width and height"),
        (r#"{"id": 2, "file_name": "b.png"}, {"id": 2, "file_name": "a.png"}"#, "", "image 2: its id is also"),
        (
            r#"{"id": 2, "file_name": "b.png"}"#,
            r#", {"id": 6, "image_id": "2"}"#,
            "annotation 6: its image_id is a text",
        ),
        (r#"{"id": 2, "file_name": "b.png"}"#, r#", {"image_id": 2}"#, "without a number: its id is missing"),
        (
            r#"{"id": 2, "file_name": "b.png"}"#,
            r#", {"id": 6, "image_id": 2}, {"id": 6, "image_id": 2}"#,
            "annotation 6: its id is also",
        ),
    ] {
        let coco = open(&[a, images].join(","), &format!("{good}{row}")).unwrap();
        assert_eq!((coco.len(), read(&coco, 0, &[BOXES]).unwrap().objects()), (2, 1), "{images}");
        let error = read(&coco, 1, &[BOXES]).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains(message), "{message}: {error}");
        assert!(error.to_string().contains("instances.json"), "{error}");
    }
    let lost = open(a, &[good, r#"{"id": 6, "image_id": 9}"#].join(",")).unwrap();
    assert!(lost.warnings()[0].contains("1 of 2 annotations are of images that are not among the file's"));
    assert_eq!(open(&[a, a].join(","), good).unwrap().len(), 1, "equal rows are one");
}

#[test]
fn made_files_are_read_as_pycocotools_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let image = encode_jpeg(&Image::new(Size::new(60, 40)), &JpegOptions::default()).unwrap();
    (0..4).for_each(|i| std::fs::write(folder.path().join(format!("im{i}.jpg")), &image).unwrap());
    let path = folder.path().join("instances.json");
    let (mut cases, mut images) = (0, 0);
    for case in super::super::folder::tests::made_cases("coco") {
        let text = case["text"].as_str().unwrap();
        std::fs::write(&path, text).unwrap();
        cases += 1;
        let Some(wanted) = case["images"].as_array() else {
            assert!(CocoFiles::open(folder.path(), &path).is_err(), "{text}");
            continue;
        };
        let coco = CocoFiles::open(folder.path(), &path).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(coco.len(), wanted.len() as u64, "{text}");
        for (index, want) in (0..).zip(wanted) {
            images += 1;
            let found = |name: &str| match read(&coco, index, &[name]) {
                Ok(fields) => Some(fields.get(name).unwrap().clone()),
                Err(error) => {
                    assert!(error.is_bad_sample() && error.to_string().contains("annotation "), "{text}: {error}");
                    None
                }
            };
            let boxes =
                found(BOXES).map(|field| if let Field::Boxes(boxes) = field { boxes.rows().to_vec() } else { vec![] });
            let wanted_boxes: Option<Vec<[f32; 4]>> = serde_json::from_value(want["boxes"].clone()).unwrap();
            let wanted_boxes =
                wanted_boxes.map(|rows| Boxes::new(BoxFormat::Xywh, rows).to(BoxFormat::Xyxy).rows().to_vec());
            assert_eq!(boxes, wanted_boxes, "image {index} of {text}");
            let labels = found(LABELS).map(|field| if let Field::Integers(labels) = field { labels } else { vec![] });
            assert_eq!(serde_json::json!(labels), want["labels"], "image {index} of {text}");
            let area = |plane: &std::sync::Arc<MaskValues>| {
                let MaskValues::U8(values) = &**plane else { return 0 };
                values.iter().map(|value| u64::from(*value)).sum::<u64>()
            };
            let areas = found(MASKS).map(|field| match field {
                Field::Mask(mask) => mask.planes().iter().map(area).collect::<Vec<_>>(),
                _ => vec![],
            });
            assert_eq!(serde_json::json!(areas), want["masks"], "image {index} of {text}");
        }
    }
    assert!(cases >= 100, "{cases}");
    println!("{cases} files of {images} images");
}

#[test]
fn the_stated_size_says_which_image_annotations_are_of() {
    let json = |width: u32, height: u32| {
        format!(
            r#"{{"images": [{{"id": 1, "file_name": "a.png", "width": {width}, "height": {height}}}], "annotations":
            [{{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 3], "segmentation": [[1, 1, 3, 1, 3, 4, 1, 4]],
            "keypoints": [0, 0, 2, 3, 5, 1]}}],
            "categories": [{{"id": 1, "name": "a", "keypoints": ["left_eye", "right_eye"]}}]}}"#
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let found = |width, height, tag| {
        write(folder.path(), &json(width, height), tag);
        let coco = CocoFiles::open(folder.path(), folder.path().join("instances.json")).unwrap();
        read(&coco, 0, &[BOXES, MASKS, KEYPOINTS])
    };
    let stored = found(6, 4, 6).unwrap();
    assert_eq!(stored.boxes().unwrap().rows(), [[1.0, 1.0, 3.0, 4.0]]);
    // In the stored image of 6 x 4 pixels, the upright image's (x, y) is at (y, 4 - x).
    let turned = found(4, 6, 6).unwrap();
    assert_eq!(turned.boxes().unwrap().rows(), [[1.0, 1.0, 4.0, 3.0]]);
    let Some(Field::KeyPoints(points)) = turned.get(KEYPOINTS) else { panic!("{turned:?}") };
    assert_eq!((points.points(), points.visibility()), (&[[0.5, 3.5], [5.5, 0.5]][..], &[2, 1][..]));
    let Some(Field::Mask(mask)) = turned.get(MASKS) else { panic!("{turned:?}") };
    let inside = |i: u32| u8::from((1..4).contains(&(i % 6)) && (1..3).contains(&(i / 6)));
    assert_eq!((mask.size(), &*mask.planes()[0]), (Size::new(6, 4), &(0..24).map(inside).collect::<Vec<u8>>().into()));
    for (width, height, tag, message) in [
        (12, 8, 1, "image 1: it is of an image of 12 x 8 pixels, which has 6 x 4"),
        (4, 6, 3, "an image of 4 x 6 pixels, which has 6 x 4"),
        (4, 4, 6, "an image of 4 x 4 pixels, which has 6 x 4, 4 x 6 upright"),
    ] {
        let error = found(width, height, tag).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains(message), "{error}");
    }
}

#[test]
fn sides_that_names_do_not_tell_are_given() {
    let (folder, coco) = opened("");
    assert!(coco.unwrap().warnings().is_empty());
    let path = folder.path().join("instances.json");
    let text =
        std::fs::read_to_string(&path).unwrap().replace("left_ear", "oreille g").replace("right_ear", "oreille d");
    std::fs::write(&path, text).unwrap();
    let open = || CocoFiles::open(folder.path(), &path).unwrap();
    assert!(open().warnings()[0].contains("--flip-index"), "{:?}", open().warnings());
    let given = open().flip_index([0, 2, 1]).unwrap();
    let found = read(&given, 0, &[KEYPOINTS]).unwrap();
    let Some(Field::KeyPoints(points)) = found.get(KEYPOINTS) else { panic!("{found:?}") };
    assert!(given.warnings().is_empty() && points.mirrored() == Some(&[0, 2, 1]));
    assert!(open().flip_index([0, 1]).is_err() && open().flip_index([0, 1, 1]).is_err());
}

/// The cases of a reference file, `coco_masks.jsonl`, that pycocotools wrote.
#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_masks() {
    #[derive(serde::Deserialize)]
    struct Case {
        size: [u32; 2],
        polygons: Option<Vec<Vec<f64>>>,
        rle_in: Option<Vec<i32>>,
        counts: Option<String>,
        rle: Option<Vec<i32>>,
    }
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let path = shared.join("reference/detection/coco_masks/coco_masks.jsonl");
    let mut compared = 0;
    for (number, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
        let Case { size: [height, width], polygons, rle_in, counts, rle } = serde_json::from_str(line).unwrap();
        let (Some(counts), Some(rle)) = (counts, rle) else { continue };
        let size = Size::new(width, height);
        let painted = |runs: &[i32]| {
            let mut plane = vec![0; size.area_px() as usize];
            let numbers = [&[height as i32, width as i32], runs].concat();
            runs::paint(&numbers, size, &mut plane).map(|()| plane)
        };
        let want = painted(&rle).unwrap();
        assert_eq!(runs::decompress(counts.as_bytes()).unwrap(), rle, "line {number}");
        if let Some(runs) = rle_in {
            assert_eq!(painted(&runs).unwrap(), want, "line {number}");
            compared += 1;
        }
        if let Some(polygons) = polygons {
            let mut plane = vec![0; size.area_px() as usize];
            for polygon in polygons {
                let corners: Vec<i32> = polygon.iter().map(|value| outline::fifths(*value).unwrap()).collect();
                outline::fill(&corners[..corners.len() / 2 * 2], size, &mut plane);
            }
            assert_eq!(plane, want, "line {number}");
            assert_eq!(runs::compress(&plane, size), counts, "line {number}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn an_image_of_too_many_masks_is_a_bad_sample() {
    let folder = tempfile::tempdir().unwrap();
    let image = encode_jpeg(&Image::new(Size::new(1200, 1000)), &JpegOptions::default()).unwrap();
    std::fs::write(folder.path().join("a.jpg"), image).unwrap();
    let of = |objects: usize| {
        let square = r#""category_id": 3, "bbox": [0, 0, 9, 9], "segmentation": [[0, 0, 9, 0, 9, 9, 0, 9]]"#;
        let rows: Vec<String> = (0..objects).map(|id| annotation(id as u32, 5, square)).collect();
        let path = folder.path().join("instances.json");
        let text = format!(
            r#"{{"images": [{{"id": 5, "file_name": "a.jpg", "width": 1200, "height": 1000}}],
            "annotations": [{}], "categories": [{{"id": 3, "name": "cat"}}]}}"#,
            rows.join(",")
        );
        std::fs::write(&path, text).unwrap();
        CocoFiles::open(folder.path(), &path).unwrap()
    };
    let error = read(&of(2000), 0, &[MASKS]).unwrap_err();
    assert!(error.is_bad_sample() && error.to_string().contains("masks of an image's objects"), "{error}");
    // All else of the image can be used.
    assert_eq!(read(&of(2000), 0, &[BOXES]).unwrap().objects(), 2000);
    assert_eq!(read(&of(20), 0, &[MASKS]).unwrap().objects(), 20);
}
