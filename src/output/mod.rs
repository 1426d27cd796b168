//! Files for people and other programs: contact sheets, PNG and NumPy files.

pub(crate) mod npy;
pub(crate) mod sheet;
