//! torchvision's transforms with given uniform numbers, from the folder that `WARPFEED_SHARED` names.

use crate::raster::Size;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::PathBuf;

/// A line of `draws.jsonl`.
#[derive(serde::Deserialize)]
pub(in crate::ops) struct Draw {
    transform: String,
    pub(in crate::ops) arguments: Value,
    size: [u32; 2],
    pub(in crate::ops) uniforms: Vec<f32>,
    pub(in crate::ops) result: Value,
}

impl Draw {
    /// The size of the image.
    pub(in crate::ops) fn size(&self) -> Size {
        Size::new(self.size[0], self.size[1])
    }
}

/// The draws of a transform, which has many.
pub(in crate::ops) fn draws(transform: &str) -> Vec<Draw> {
    let mut draws: Vec<Draw> = lines("draws.jsonl");
    draws.retain(|draw| draw.transform == transform);
    assert!(draws.len() >= 40, "{} of {transform}", draws.len());
    draws
}

/// The lines of a file.
pub(in crate::ops) fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let text = std::fs::read_to_string(shared.join("reference/detection").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
