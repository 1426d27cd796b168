//! The tests of the library and of the command: one program, because each takes seconds to link. `experiments` and
//! `trace` need processes of their own.

#[path = "../common/mod.rs"]
mod common;

mod annotated;
mod audit;
mod batch_memory;
mod buckets;
mod cache;
mod channels;
mod check_gpu;
mod command;
mod docs;
mod examples;
mod faults;
mod fields;
mod gpu;
mod group;
mod handover;
#[cfg(target_os = "linux")]
mod kept_points;
mod label_storage;
mod launched;
mod layers;
mod memory;
mod mishaps;
mod mix;
mod other_ranks;
mod pack;
mod pack_store;
mod partners;
mod pipeline;
mod pixels;
mod pixels_gpu;
mod ragged;
mod ranks;
mod record_fields;
mod records;
mod reference;
mod remote;
mod replay;
mod resume;
#[cfg(target_os = "linux")]
mod s3;
mod samplers;
mod setup;
mod strategies;
mod stream;
mod suites;
mod targets;
mod trainers;
mod transforms;
mod transforms_gpu;
mod views;
