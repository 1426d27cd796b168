//! A list of all transforms and operations, for people.

use super::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A transform or an operation in the list of all ([`catalog`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CatalogEntry {
    /// The name in the written form.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Whether it draws random numbers: a transform. Otherwise it is an explicit operation.
    pub random: bool,
    /// A constructor in Rust, with example parameters. Methods of the type change the parameters that are not given.
    pub constructor: &'static str,
    /// The written form of the constructor's result, as in a file of transforms. Parameters that the constructor does
    /// not have are at their defaults.
    pub written: Value,
    /// The parameters of the written form, from which a test writes Python's classes.
    #[cfg(test)]
    #[serde(skip)]
    pub(super) parameters: Vec<super::parameters::Parameter>,
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

/// The entry of a type. `summary` begins with a space.
pub(super) fn entry<T: DeserializeOwned + Into<Transform>>(
    summary: &'static str,
    constructor: &'static str,
    example: T,
) -> CatalogEntry {
    let example: Transform = example.into();
    let written = serde_json::to_value(&example).unwrap_or_default();
    CatalogEntry {
        name: example.name(),
        summary: summary.trim_start(),
        random: !matches!(example, Transform::Explicit(_)),
        constructor,
        #[cfg(test)]
        parameters: super::parameters::parameters::<T>(&written),
        written,
    }
}
