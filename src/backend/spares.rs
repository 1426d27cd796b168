//! A store of reusable objects.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unused objects, up to a largest number.
#[derive(Debug)]
pub(super) struct Spares<T> {
    most: usize,
    things: Mutex<Vec<T>>,
}

impl<T> Spares<T> {
    /// A store for at most `most` objects.
    pub(super) fn new(most: usize) -> Self {
        Self { most, things: Mutex::default() }
    }

    /// Takes an object, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        self.all().pop()
    }

    /// Keeps an object, or drops it if the store is full.
    pub(super) fn give(&self, thing: T) {
        let mut things = self.all();
        if things.len() < self.most {
            things.push(thing);
        }
    }

    /// Locks the store and returns all its objects.
    pub(super) fn all(&self) -> MutexGuard<'_, Vec<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
