//! An object's outline or run lengths, as COCO's JSON has them, and its pixels.

use super::outline::{self, fifths};
use super::runs::{self, decompress};
use crate::raster::Size;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The form of an object's outline.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Missing,
    Polygons,
    Runs,
    Bad(&'static str),
}

impl Shape {
    /// The pixels in an image of `size` of the shape that is made of `numbers`.
    ///
    /// # Errors
    /// As of [`Segmentation::plane`].
    pub(super) fn plane(self, numbers: &[i32], size: Size) -> Result<Vec<u8>, String> {
        let mut plane = vec![0; size.area_px() as usize];
        match self {
            Self::Missing => return Err("it has no segmentation".to_owned()),
            Self::Bad(message) => return Err(message.to_owned()),
            Self::Polygons => {
                let mut rest = numbers;
                while let [len, others @ ..] = rest {
                    let (corners, others) = others.split_at((*len as usize).min(others.len()));
                    outline::fill(corners, size, &mut plane);
                    rest = others;
                }
            }
            Self::Runs => runs::paint(numbers, size, &mut plane)?,
        }
        Ok(plane)
    }
}

/// An object's outline, with what it is made of.
pub(in crate::source) struct Segmentation {
    pub(super) shape: Shape,
    pub(super) numbers: Vec<i32>,
}

impl Default for Segmentation {
    fn default() -> Self {
        Self::bare(Shape::Missing)
    }
}

impl Segmentation {
    fn bare(shape: Shape) -> Self {
        Self { shape, numbers: Vec::new() }
    }

    fn polygons(polygons: &[Vec<f64>]) -> Self {
        let mut numbers = Vec::new();
        for polygon in polygons {
            // An odd last number is ignored, as by pycocotools.
            let corners = &polygon[..polygon.len() / 2 * 2];
            if corners.len() < 6 {
                return Self::bare(Shape::Bad("it has a polygon of fewer than 3 corners"));
            }
            numbers.push(corners.len() as i32);
            for corner in corners {
                match fifths(*corner) {
                    Some(corner) => numbers.push(corner),
                    None => return Self::bare(Shape::Bad("it has a polygon that reaches too far from the image")),
                }
            }
        }
        Self { shape: if polygons.is_empty() { Shape::Missing } else { Shape::Polygons }, numbers }
    }

    fn runs([height, width]: [i32; 2], runs: Vec<i32>) -> Self {
        Self { shape: Shape::Runs, numbers: [height, width].into_iter().chain(runs).collect() }
    }
}

impl Segmentation {
    /// The object's pixels in an image of `size`, row by row: 1, and 0 elsewhere.
    ///
    /// # Errors
    /// A message if there is no outline, or run lengths do not fit the image.
    pub(in crate::source) fn plane(&self, size: Size) -> Result<Vec<u8>, String> {
        self.shape.plane(&self.numbers, size)
    }
}

impl<'de> Deserialize<'de> for Segmentation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Segmentation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of polygons, or size and counts of run lengths")
            }

            fn visit_unit<E: de::Error>(self) -> Result<Segmentation, E> {
                Ok(Segmentation::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Segmentation, A::Error> {
                let mut polygons: Vec<Vec<f64>> = Vec::new();
                while let Some(polygon) = seq.next_element()? {
                    polygons.push(polygon);
                }
                Ok(Segmentation::polygons(&polygons))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segmentation, A::Error> {
                let (mut size, mut counts) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "size" => size = Some(map.next_value::<[i32; 2]>()?),
                        "counts" => counts = Some(map.next_value::<Counts>()?),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let (Some(size), Some(counts)) = (size, counts) else {
                    return Ok(Segmentation::bare(Shape::Bad("its segmentation has no size or no counts")));
                };
                Ok(match counts {
                    Counts::Runs(runs) if runs.iter().all(|run| *run >= 0) => Segmentation::runs(size, runs),
                    Counts::Runs(_) => Segmentation::bare(Shape::Bad("it has a negative run length")),
                    Counts::Text(text) => match decompress(text.as_bytes()) {
                        Ok(runs) => Segmentation::runs(size, runs),
                        Err(message) => Segmentation::bare(Shape::Bad(message)),
                    },
                })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Counts {
    Text(String),
    Runs(Vec<i32>),
}
