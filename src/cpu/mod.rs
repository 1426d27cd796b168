//! The operations on the CPU: one file each.
