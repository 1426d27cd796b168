//! Comparison with results of Pillow, torchvision, OpenCV and DALI, on the CPU, or on the device that
//! `WARPFEED_TEST_DEVICE` names, also of cases in the folder that `WARPFEED_SHARED` names.

use crate::common::{self, npy::read_npy};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use warpfeed::image::Size;
use warpfeed::{
    ApplyOptions, DType, Device, Error, Orientation, Preprocessor, PreprocessorOptions, Strategy, Tensor, Thumbnail,
    apply, ops::Op,
};

#[derive(Deserialize)]
struct Case {
    image: String,
    kind: String,
    ops: Vec<Op>,
    shape: Vec<u64>,
    sha256: Option<String>,
    compare: Compare,
    array: Option<String>,
    #[serde(default)]
    orientation: Option<String>,
    #[serde(default)]
    draft: Option<[u32; 2]>,
    #[serde(default)]
    thumbnail: Option<Thumbnail>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Compare {
    /// No element differs by more than `max_abs`, but for a share of them.
    Close {
        #[serde(default)]
        max_abs: f64,
        #[serde(default)]
        share: f64,
    },
    Exact(Exact),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Exact {
    Exact,
}

/// All files below a folder by name.
fn files(dir: &Path, found: &mut HashMap<String, PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(entry.file_name().into_string().unwrap(), path);
        }
    }
}

fn values(tensor: &Tensor) -> Vec<f64> {
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().unwrap().iter().map(|v| f64::from(*v)).collect(),
        _ => tensor.as_bytes().unwrap().iter().map(|v| f64::from(*v)).collect(),
    }
}

/// The fault of the result, if any.
fn difference(case: &Case, folder: &Path, got: &Tensor) -> Option<String> {
    if got.shape()[1..].iter().map(|side| *side as u64).ne(case.shape.iter().copied()) {
        return Some(format!("shape {:?}, want {:?}", got.shape(), case.shape));
    }
    match case.compare {
        Compare::Exact(Exact::Exact) => {
            let digest = common::sha256(got.as_bytes().unwrap());
            (Some(&digest) != case.sha256.as_ref()).then(|| "other bytes".to_owned())
        }
        Compare::Close { max_abs, share } => {
            let array = case.array.as_ref().unwrap();
            let want = [folder.join(array), folder.join("arrays").join(array)];
            let (_, _, want) = read_npy(want.iter().find(|path| path.exists()).unwrap());
            let got = values(got);
            let off = got.iter().zip(&want).map(|(got, want)| (got - f64::from(*want)).abs());
            let beyond = off.filter(|off| *off > max_abs).count() as f64 / want.len() as f64;
            (beyond > share).then(|| format!("{beyond} off by more than {max_abs}, {share} allowed"))
        }
    }
}

/// The same by a preprocessor, if the operations end in one size.
fn preprocessed(bytes: &[u8], ops: &[Op], options: &ApplyOptions) -> Option<Result<Tensor, Error>> {
    let &ApplyOptions { dtype, layout, strategy, orientation, draft, thumbnail, accept_truncated, device, .. } =
        options;
    let options = PreprocessorOptions::default()
        .dtype(dtype)
        .layout(layout)
        .max_batch(1)
        .strategy(strategy)
        .orientation(orientation)
        .draft(draft)
        .thumbnail(thumbnail)
        .accept_truncated(accept_truncated)
        .device(device);
    match Preprocessor::new(ops.to_vec(), &options) {
        Ok(preprocessor) => Some(preprocessor.run(&[bytes]).and_then(|made| match made.device() {
            Device::Cpu => Ok(made),
            _ => made.to_host(),
        })),
        Err(error) if error.to_string().contains("such that every image ends in the same size") => None,
        Err(error) => Some(Err(error)),
    }
}

/// Runs every case of a file with both exact strategies; how many runs there were.
fn check(cases: &Path, images: &Path) -> usize {
    let folder = cases.parent().unwrap();
    let mut found = HashMap::new();
    files(images, &mut found);
    let text = fs::read_to_string(cases).unwrap();
    let device = std::env::var("WARPFEED_TEST_DEVICE").map_or(Device::Cpu, |name| name.parse().unwrap());
    let mut wrong = String::new();
    let mut count = 0;
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let path = found.get(&case.image).unwrap_or_else(|| panic!("no image {}", case.image));
        let bytes = fs::read(path).unwrap();
        for strategy in [Strategy::Sequential, Strategy::Fused] {
            let orientation = match case.orientation.as_deref() {
                Some("apply") => Orientation::Apply,
                _ => Orientation::Ignore,
            };
            let accept_truncated = case.kind.ends_with("truncated");
            let draft = case.draft.map(|[width, height]| Size::new(width, height));
            let options = common::as_made(&case.ops)
                .strategy(strategy)
                .orientation(orientation)
                .draft(draft)
                .thumbnail(case.thumbnail)
                .accept_truncated(accept_truncated)
                .device(device);
            let applied = apply(&bytes, &case.ops, &options);
            for result in [Some(applied), preprocessed(&bytes, &case.ops, &options)].into_iter().flatten() {
                let problem = match result {
                    Ok(got) => difference(&case, folder, &got),
                    Err(error) => Some(error.to_string()),
                };
                if let Some(problem) = problem {
                    writeln!(wrong, "{} {} {strategy:?}: {problem}", case.image, case.kind).unwrap();
                }
                count += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "of {count}:\n{wrong}");
    count
}

#[test]
fn own_images() {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/reference");
    assert!(check(&here.join("cases.jsonl"), &here.join("images")) > 1_000);
    assert!(check(&here.join("dali.jsonl"), &here.join("images")) > 10);
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/ and data/photos/; scripts/test runs it where that is set"]
fn shared_photographs() {
    let shared = std::env::var_os("WARPFEED_SHARED").map(PathBuf::from).expect("WARPFEED_SHARED names a folder");
    for cases in ["photos", "dali", "ops"] {
        assert!(check(&shared.join("reference").join(cases).join("cases.jsonl"), &shared.join("data/photos")) > 0);
    }
}
