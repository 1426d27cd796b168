//! The GPU path against the CPU path, on a device: that its kernels give the CPU's bytes ([`kernels`], [`operations`]), that
//! nvJPEG decodes what the CPU decodes to nearly the same pixels ([`decoding`]), and how fast nvJPEG is
//! ([`decoding_bound`]).

mod bound;
mod decoding;
mod equality;
mod inputs;

pub use bound::decoding_bound;
pub use decoding::{DecodedBy, Decoding, decoding};
pub use equality::{Equality, kernels, operations};
