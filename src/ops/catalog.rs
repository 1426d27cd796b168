//! A list of all transforms and operations, for people.

use super::*;
use serde_json::Value;

/// A transform or an operation in the list of all ([`catalog`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CatalogEntry {
    /// The name in the written form.
    pub name: &'static str,
    /// Whether it draws random numbers: a transform. Otherwise it is an explicit operation.
    pub random: bool,
    /// A constructor in Rust, with example parameters. Methods of the type change the parameters that are not given.
    pub constructor: &'static str,
    /// The written form of the constructor's result, as in a file of transforms. Parameters that the constructor does
    /// not have are at their defaults.
    pub written: Value,
}

/// Lists every transform, then every explicit operation.
///
/// ```
/// let rotation = warpfeed::ops::catalog().into_iter().find(|entry| entry.name == "random_rotation").unwrap();
/// assert_eq!(rotation.constructor, "RandomRotation::new(-5.0..=5.0)");
/// assert_eq!(rotation.written["degrees"], serde_json::json!([-5.0, 5.0]));
/// ```
#[must_use]
pub fn catalog() -> Vec<CatalogEntry> {
    let transforms = Transform::catalog().unwrap_or_default();
    transforms.into_iter().chain(Op::catalog()).collect()
}

/// The entry of an example.
pub(super) fn entry(constructor: &'static str, example: impl Into<Transform>) -> CatalogEntry {
    let example: Transform = example.into();
    let written = serde_json::to_value(&example).unwrap_or_default();
    let random = !matches!(example, Transform::Explicit(_));
    CatalogEntry { name: example.name(), random, constructor, written }
}
