use super::*;
use crate::fields::{Field, MaskValues};
use crate::source::Source;

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
    std::fs::write(&path, json).unwrap();
    let coco = CocoFiles::open(folder.path(), &path);
    (folder, coco)
}

fn annotation(id: u32, image: u32, rest: &str) -> String {
    format!(r#"{{"id": {id}, "image_id": {image}, {rest}}}"#)
}

fn read(coco: &CocoFiles, index: u64, names: &[&str]) -> Result<Fields> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut sample = Sample::default();
    let want = Want::IMAGE.without_image().and_fields(&names);
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
        annotation(6, 5, r#""category_id": 3, "bbox": [0, 2, 1, 0], "keypoints": [2, 1, 2, 0, 0, 0, 3, 2, 1]"#),
    ];
    let (folder, coco) = opened(&rows.join(","));
    let coco = coco.unwrap();
    assert_eq!((coco.len(), coco.classes()), (2, &["cat".to_owned(), "dog".to_owned()][..]));
    assert_eq!(coco.name(0), folder.path().join("b.png").to_string_lossy());
    let found = read(&coco, 1, &[BOXES, LABELS, "category_ids", "area", "iscrowd", "ids", KEYPOINTS]).unwrap();
    assert_eq!(found.boxes().unwrap().rows(), [[1.0, 1.0, 3.5, 3.0], [0.0, 2.0, 1.0, 2.0]]);
    assert_eq!(found.get(LABELS), Some(&Field::Integers(vec![1, 0])));
    assert_eq!(found.get("category_ids"), Some(&Field::Integers(vec![7, 3])));
    assert_eq!(found.get("ids"), Some(&Field::Integers(vec![9, 6])));
    assert_eq!(found.get("area"), Some(&Field::Floats(vec![4.25, 0.0])));
    let Some(Field::KeyPoints(points)) = found.get(KEYPOINTS) else { panic!("{found:?}") };
    assert_eq!(points.points()[3..], [[2.5, 1.5], [0.0, 0.0], [3.5, 2.5]]);
    assert_eq!(points.visibility(), [0, 0, 0, 2, 0, 1]);
    // A crowd is no object unless it is asked for; an image without objects stays a sample.
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
    let one = annotation(1, 5, r#""category_id": 3"#);
    for (annotations, message) in [
        (annotation(1, 77, r#""category_id": 3"#), "annotation 1 is of image 77"),
        (format!("{one}, {one}"), "annotation 1 is there twice"),
        (r#"{"id": 1, "image_id": 5}"#.to_owned(), "category_id"),
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
