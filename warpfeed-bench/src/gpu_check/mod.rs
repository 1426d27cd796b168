//! Comparison of the GPU path with the CPU path: bytes of kernels, pixels of decoders, and the decoders' speed.

// nvJPEG. No two JPEG decoders need agree on a pixel: next to an edge of color, single values differ by 50. Such errors
// average out, so the means of images (at most 4 of 255) and of blocks of 8 x 8 pixels (at most 12) decide. libjpeg's
// own alternatives stay within 2.6 and 8.7 on 200 photographs. Each image is decoded into memory with two different
// fillings, so that unwritten pixels show. A decoder that refuses more than a tenth of the images meant for it fails,
// because the CPU would quietly do its work. Damaged images go through a pipeline, and the check compares which
// samples come.
//
// Training. A fixed amount of work is timed alone and together with the decoder. The slowdown is the decoder's share of the
// GPU. The work is integer arithmetic on all multiprocessors; it says nothing about memory bandwidth or tensor cores.
//
// The check runs in stages (`scripts/gpu-check`), the most important first. Each step has its own time limit, and its
// result is on disk before the next step begins, so a hang loses one step. A sanitizer that does not finish does not
// count as clean.

mod bound;
mod decoding;
mod engines;
mod equality;
mod inputs;
mod pixels;
mod views;

pub use bound::{Area, StepBeside, decoding_bound, step_beside_decoding};
pub use decoding::{DecodedBy, Decoding, decoding};
pub use engines::{EngineCase, EnginePlanes, engine_planes, engine_speed};
pub use equality::{Equality, kernels, operations};
