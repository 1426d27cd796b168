//! What is used again: kept by one and taken by the next.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Up to a number of things that nobody uses for the time being.
#[derive(Debug)]
pub(super) struct Kept<T> {
    most: usize,
    things: Mutex<Vec<T>>,
}

impl<T> Kept<T> {
    /// Keeps at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, things: Mutex::default() }
    }

    /// One that was kept, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        self.all().pop()
    }

    /// Keeps one, unless there are as many.
    pub(super) fn give(&self, thing: T) {
        let mut things = self.all();
        if things.len() < self.most {
            things.push(thing);
        }
    }

    /// All that are kept; nobody else takes or gives any meanwhile.
    pub(super) fn all(&self) -> MutexGuard<'_, Vec<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
