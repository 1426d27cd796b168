//! An object's outline or run lengths in COCO's JSON.

use super::loose::{Numbers, Value};
use super::outline::{self, fifths};
use super::runs::{self, decompress};
use crate::error::Error;
use crate::fields::empty_plane;
use crate::raster::Size;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
    /// See [`Segmentation::plane`].
    pub(super) fn plane(self, numbers: &[i32], size: Size) -> Result<Vec<u8>, NoPixels> {
        let mut plane = empty_plane(size)?;
        match self {
            Self::Missing => return Err(NoPixels::Wrong("it has no segmentation".to_owned())),
            Self::Bad(message) => return Err(NoPixels::Wrong(message.to_owned())),
            Self::Polygons => {
                let mut rest = numbers;
                while let [len, others @ ..] = rest {
                    let (corners, others) = others.split_at((*len as usize).min(others.len()));
                    outline::fill(corners, size, &mut plane);
                    rest = others;
                }
            }
            Self::Runs => runs::paint(numbers, size, &mut plane).map_err(NoPixels::Wrong)?,
        }
        Ok(plane)
    }
}

/// Reason why an object has no pixels.
pub(in crate::source) enum NoPixels {
    /// The fault of its outline.
    Wrong(String),
    /// The memory for them is refused.
    Memory(Error),
}

impl From<Error> for NoPixels {
    fn from(error: Error) -> Self {
        Self::Memory(error)
    }
}

impl NoPixels {
    /// The error, with one for a wrong outline.
    pub(in crate::source) fn or(self, wrong: impl FnOnce(String) -> Error) -> Error {
        match self {
            Self::Wrong(message) => wrong(message),
            Self::Memory(error) => error,
        }
    }
}

/// An object's outline, with its numbers.
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
    /// A message if there is no outline, or run lengths do not fit the image; an error if there is no memory.
    pub(in crate::source) fn plane(&self, size: Size) -> Result<Vec<u8>, NoPixels> {
        self.shape.plane(&self.numbers, size)
    }
}

impl<'de> Deserialize<'de> for Segmentation {
    /// Takes any value; a value that is not an outline becomes [`Shape::Bad`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        const NO_OUTLINE: &str = "its segmentation is neither a list of polygons nor run lengths";

        impl<'de> Visitor<'de> for Either {
            type Value = Segmentation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of polygons, or size and counts of run lengths")
            }

            fn visit_unit<E>(self) -> Result<Segmentation, E> {
                Ok(Segmentation::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Segmentation, E> {
                Ok(Segmentation::bare(Shape::Bad(NO_OUTLINE)))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Segmentation, E> {
                Ok(Segmentation::bare(Shape::Bad(NO_OUTLINE)))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Segmentation, E> {
                Ok(Segmentation::bare(Shape::Bad(NO_OUTLINE)))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Segmentation, E> {
                Ok(Segmentation::bare(Shape::Bad(NO_OUTLINE)))
            }

            fn visit_str<E>(self, _: &str) -> Result<Segmentation, E> {
                Ok(Segmentation::bare(Shape::Bad(NO_OUTLINE)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Segmentation, A::Error> {
                let (mut polygons, mut bad): (Vec<Vec<f64>>, _) = (Vec::new(), None);
                while let Some(polygon) = seq.next_element()? {
                    match polygon {
                        Value::List(Numbers::All(polygon)) => polygons.push(polygon),
                        Value::List(Numbers::Mixed) => bad = Some("its segmentation has a corner that is no number"),
                        Value::Whole(_) | Value::Number(_) => {
                            bad = Some("its segmentation is a list of numbers, not of polygons: [[x, y, ...]]");
                        }
                        _ => bad = Some(NO_OUTLINE),
                    }
                }
                Ok(bad.map_or_else(
                    || Segmentation::polygons(&polygons),
                    |message| Segmentation::bare(Shape::Bad(message)),
                ))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Segmentation, A::Error> {
                let (mut size, mut counts) = (Value::Missing, Value::Missing);
                while let Some(key) = map.next_key::<String>()? {
                    match &*key {
                        "size" => size = map.next_value()?,
                        "counts" => counts = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let whole = |numbers: &[f64]| numbers.iter().map(|number| whole(*number)).collect::<Option<Vec<i32>>>();
                let size = match &size {
                    Value::List(Numbers::All(size)) => whole(size).and_then(|size| <[i32; 2]>::try_from(size).ok()),
                    _ => None,
                };
                let bad = |message| Ok(Segmentation::bare(Shape::Bad(message)));
                let Some(size) = size else { return bad("its segmentation has no size, or no counts") };
                match counts {
                    Value::List(Numbers::All(runs)) => match whole(&runs) {
                        Some(runs) if runs.iter().all(|run| *run >= 0) => Ok(Segmentation::runs(size, runs)),
                        Some(_) => bad("it has a negative run length"),
                        None => bad("it has a run length that is no whole number"),
                    },
                    Value::Text(text) => match decompress(text.as_bytes()) {
                        Ok(runs) => Ok(Segmentation::runs(size, runs)),
                        Err(message) => bad(message),
                    },
                    _ => bad("its segmentation has no size, or no counts"),
                }
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// The whole number of 32 bits, if a number is one.
fn whole(number: f64) -> Option<i32> {
    (number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX)).then_some(number as i32)
}
