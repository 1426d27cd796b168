//! The GPU path against the CPU path, on a device: that its kernels give the CPU's bytes ([`kernels`], [`operations`]), that
//! nvJPEG decodes what the CPU decodes to nearly the same pixels ([`decoding`]), how fast decoders are
//! ([`decoding_bound`]), and what they take from training ([`step_beside_decoding`]).

mod bound;
mod decoding;
mod equality;
mod inputs;

pub use bound::{Area, StepBeside, decoding_bound, step_beside_decoding};
pub use decoding::{DecodedBy, Decoding, decoding};
pub use equality::{Equality, kernels, operations};
