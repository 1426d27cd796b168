//! The spans that profilers see, and their nesting.

mod common;

use common::{small, source};
use std::collections::BTreeSet;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use warpfeed::Device;

/// A span as it began: its name, its numbers, and the spans of its thread that it began in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    path: Vec<&'static str>,
    batch: Option<u64>,
    sample: Option<u64>,
}

#[derive(Default)]
struct Recorder {
    /// Name and numbers, by the id less 1.
    spans: Mutex<Vec<(&'static str, Numbers)>>,
    entered: Mutex<Vec<(std::thread::ThreadId, u64)>>,
    begun: Option<&'static Mutex<BTreeSet<Begun>>>,
}

/// Numbers of the batch and of the sample.
#[derive(Clone, Copy)]
struct Numbers([Option<u64>; 2]);

impl Visit for Numbers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0[usize::from(field.name() == "sample")] = Some(value);
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "warpfeed"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut numbers = Numbers([None; 2]);
        span.record(&mut numbers);
        let mut spans = self.spans.lock().unwrap();
        spans.push((span.metadata().name(), numbers));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, _event: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let (thread, mut entered) = (std::thread::current().id(), self.entered.lock().unwrap());
        entered.push((thread, span.into_u64()));
        let spans = self.spans.lock().unwrap();
        let of = |id: u64| spans[id as usize - 1];
        let path = entered.iter().filter(|(other, _)| *other == thread).map(|(_, id)| of(*id).0).collect();
        let [batch, sample] = of(span.into_u64()).1.0;
        self.begun.unwrap().lock().unwrap().insert(Begun { path, batch, sample });
    }

    fn exit(&self, span: &Id) {
        let (thread, mut entered) = (std::thread::current().id(), self.entered.lock().unwrap());
        let last = entered.iter().rposition(|(other, _)| *other == thread).unwrap();
        assert_eq!(entered.remove(last).1, span.into_u64(), "spans of a thread end in the order of their beginnings");
    }
}

#[test]
fn samples_and_batches_have_spans_with_what_was_done_for_them() {
    static BEGUN: Mutex<BTreeSet<Begun>> = Mutex::new(BTreeSet::new());
    tracing::subscriber::set_global_default(Recorder { begun: Some(&BEGUN), ..Recorder::default() }).unwrap();
    let pipeline = small(source(12)).device(Device::Cpu).build().unwrap();
    let mut batches = Vec::new();
    for batch in pipeline.epoch(0) {
        batches.push(batch.unwrap().indices().to_vec());
    }
    let mut want = BTreeSet::new();
    let mut add = |path: &[&'static str], batch, sample| {
        want.insert(Begun { path: path.to_vec(), batch, sample });
    };
    for (batch, indices) in (0..).zip(&batches) {
        add(&["hand_over"], Some(batch), None);
        add(&["batch"], Some(batch), None);
        indices.iter().for_each(|index| add(&["sample"], Some(batch), Some(*index)));
    }
    // The end of the epoch is waited for too.
    add(&["hand_over"], Some(3), None);
    add(&["batch", "settle"], None, None);
    for inside in ["read", "header", "draw", "decode", "augment"] {
        add(&["sample", inside], None, None);
    }
    assert_eq!(*BEGUN.lock().unwrap(), want);
}
