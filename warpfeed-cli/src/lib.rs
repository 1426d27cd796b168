//! The command `warpfeed`, for programs that bring it along, with its audits of data sets.

pub mod audit;
mod command;

pub use command::command;
