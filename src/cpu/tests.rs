//! Tests across operations.
