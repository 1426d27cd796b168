//! Back ends: each runs the stages of plans on one kind of device. None names an operation or a strategy.

pub(crate) mod cpu;
