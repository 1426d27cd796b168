//! The command `warpfeed`, for programs that bring it along, with its audits of data sets and its checks of a machine.

pub mod audit;
mod command;
mod doctor;

pub use command::command;
pub use doctor::{Check, doctor};
