//! Panics of Rust code. Those of an epoch's threads become exceptions.

use std::collections::BTreeSet;
use std::panic::{set_hook, take_hook};
use std::sync::Mutex;

/// The places from which a panic was printed.
static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prints the panics of one place in the code once, and not for each sample and thread.
pub(crate) fn print_once() {
    let print = take_hook();
    set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        // While another thread prints, this one is not the first.
        if PRINTED.try_lock().is_ok_and(|mut printed| printed.insert(place)) {
            print(panic);
        }
    }));
}
