//! Counts of the objects that operations drop, by rule.

use serde::ser::{Serialize, SerializeMap, Serializer};
use std::ops::AddAssign;

/// A rule by which an operation drops an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropRule {
    /// `sanitize`: a side of the box is smaller than `min_size`.
    MinSize,
    /// `sanitize`: the box's area is smaller than `min_area`.
    MinArea,
    /// `sanitize`: the box reaches outside the image.
    Outside,
    /// `sanitize`: operations have left less of the box's area than `min_visibility`.
    MinVisibility,
    /// `select_objects`: the box's center lies outside the rectangle.
    SelectObjects,
    /// `keep_objects`: the object is not among those that stay.
    KeepObjects,
    /// `copy_paste`: pasted objects cover the object.
    Covered,
}

impl DropRule {
    const NAMES: &'static [&'static str] =
        &["min_size", "min_area", "outside", "min_visibility", "select_objects", "keep_objects", "covered"];
}

/// Number of objects that operations dropped, by rule. An object that breaks several rules counts for the first.
///
/// | rule | dropped by |
/// | --- | --- |
/// | `min_size`, `min_area`, `outside`, `min_visibility` | `sanitize`, which ends recipes of samples with fields |
/// | `select_objects` | crops that keep the objects whose centers they show |
/// | `keep_objects` | transforms with a rule of their own |
/// | `covered` | `copy_paste`, where pasted objects leave nothing of an object |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedObjects([u64; DropRule::NAMES.len()]);

impl DroppedObjects {
    /// The names of the rules that dropped objects, each with the number of objects.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DropRule::NAMES.iter().copied().zip(self.0).filter(|(_, objects)| *objects > 0)
    }

    /// Number of objects over all rules.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add(&mut self, rule: DropRule, objects: usize) {
        self.0[rule as usize] += objects as u64;
    }
}

impl AddAssign for DroppedObjects {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, objects)| *sum += objects);
    }
}

/// Serializes as a map from rules to numbers.
impl Serialize for DroppedObjects {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        self.iter().try_for_each(|(rule, objects)| map.serialize_entry(rule, &objects))?;
        map.end()
    }
}
