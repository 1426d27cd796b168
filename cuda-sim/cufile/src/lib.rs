//! A simulated cuFile for tests (cuda-sim/README.md), as a shared object `libcufile.so.0`. Pointers are null or point to
//! what cuFile's manual says. Data arrive during a call, ahead of all work that is queued on the device.

// Other systems have no simulated driver, but the workspace must build there too.
#![cfg(target_os = "linux")]

mod api;
mod batch;
mod driver;
mod faults;
mod sim;
mod state;
