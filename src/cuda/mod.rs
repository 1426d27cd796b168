//! The GPU path.
#![allow(dead_code, reason = "what joins its parts and the pipeline is not there yet")]

pub(crate) mod image;
mod params;
