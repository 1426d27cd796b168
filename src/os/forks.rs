//! Values that a forked child must not touch: its parent's threads and GPUs are gone, and locks may be held.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A value of the process that made it. It is not dropped in a forked child.
#[derive(Debug, Clone)]
pub(crate) struct OfProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OfProcess<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: std::process::id() }
    }

    /// Whether this process has inherited the value from the one that forked it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }
}

impl<T> Deref for OfProcess<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for OfProcess<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for OfProcess<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if !self.is_inherited() {
            // SAFETY: it is dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
