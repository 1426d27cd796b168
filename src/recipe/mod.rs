//! Recipes: which operations, with which numbers. No pixels here.

pub(crate) mod draw;
pub(crate) mod op;
pub(crate) mod rotation;
