//! Recipes that have a name.

pub(crate) mod preset;
