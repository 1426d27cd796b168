//! A store of things that are used again: one thread gives them, and the next takes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Things that nobody uses for the time being, up to a number.
#[derive(Debug)]
pub(super) struct Spares<T> {
    most: usize,
    things: Mutex<Vec<T>>,
}

impl<T> Spares<T> {
    /// A store for at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self { most, things: Mutex::default() }
    }

    /// A thing that was kept, if there is one.
    pub(super) fn take(&self) -> Option<T> {
        self.all().pop()
    }

    /// Keeps a thing, or drops it if there are as many as may be.
    pub(super) fn give(&self, thing: T) {
        let mut things = self.all();
        if things.len() < self.most {
            things.push(thing);
        }
    }

    /// All things that are kept. Nobody else takes or gives any meanwhile.
    pub(super) fn all(&self) -> MutexGuard<'_, Vec<T>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
