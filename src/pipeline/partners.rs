//! Other samples in a sample's recipe: they are read while it is drawn, because places depend on sizes, and later draws
//! on boxes; their images and fields are made before it runs. A partner's draw key comes out of the sample's own
//! numbers.

use super::cache::Loaded;
use super::recipes::Recipes;
use super::setup::Setup;
use super::worker::Worker;
use crate::apply::field_mover::FieldMover;
use crate::apply::opening::Stored;
use crate::error::Result;
use crate::ops::part::{Partner, Partners};
use crate::source::{ReadRequest, Sample, Source};
use crate::targets::Annotation;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Another sample that was read for the current one.
pub(super) struct LoadedPartner {
    pub(super) index: u64,
    pub(super) annotation: Annotation,
    pub(super) image: Loaded,
}

/// The parts of a sample that draws need.
fn partner(recipes: &Recipes, stored: Stored, annotation: Annotation) -> Partner {
    Partner { opened: recipes.opening.operations(stored), size: stored.size, annotation }
}

/// Reads samples for a worker and keeps them, so that none is read twice for a recipe.
pub(super) struct WorkerPartners<'w, 'a> {
    worker: RefCell<&'w mut Worker<'a>>,
    loaded: RefCell<Vec<LoadedPartner>>,
    /// Time that reading took.
    taken: Cell<Duration>,
}

impl<'w, 'a> WorkerPartners<'w, 'a> {
    pub(super) fn new(worker: &'w mut Worker<'a>) -> Self {
        Self { worker: RefCell::new(worker), loaded: RefCell::default(), taken: Cell::default() }
    }

    /// The samples that were read, and the time that this took.
    pub(super) fn into_loaded(self) -> (Vec<LoadedPartner>, Duration) {
        (self.loaded.into_inner(), self.taken.into_inner())
    }
}

impl Partners for WorkerPartners<'_, '_> {
    fn samples(&self) -> u64 {
        self.worker.borrow().setup().input.samples().unwrap_or(0)
    }

    fn partner(&self, index: u64) -> Result<Partner> {
        let (mut worker, mut loaded) = (self.worker.borrow_mut(), self.loaded.borrow_mut());
        let known = loaded.iter().position(|known| known.index == index);
        let place = match known {
            Some(place) => place,
            None => {
                let start = Instant::now();
                loaded.push(worker.partner(index)?);
                self.taken.set(self.taken.get() + start.elapsed());
                loaded.len() - 1
            }
        };
        let LoadedPartner { annotation, image, .. } = &loaded[place];
        Ok(partner(&worker.setup().recipes, image.stored, annotation.clone()))
    }
}

/// Reads what draws need of samples, for recipes that are drawn apart from an epoch.
pub(super) struct SourcePartners<'a> {
    pub(super) setup: &'a Setup,
    pub(super) source: &'a dyn Source,
}

impl SourcePartners<'_> {
    /// Reads a sample's header, and its annotation if recipes depend on it.
    pub(super) fn read(&self, index: u64) -> Result<(Stored, Annotation)> {
        let Self { setup: Setup { recipes, targets, fields, .. }, source } = self;
        let mut sample = Sample::default();
        let spec = targets.as_ref().filter(|_| recipes.see_annotations);
        let fields = if recipes.see_annotations { &fields[..] } else { &[] };
        let want = ReadRequest::IMAGE.and_target(spec.and_then(|spec| spec.field.as_deref())).and_fields(fields);
        source.read(index, &want, &mut sample)?;
        let annotation = Annotation::new(spec, source.label(index), sample.take_found(&want)?)?;
        let stored = Stored::from(&recipes.header(sample.image())?);
        Ok((stored, recipes.fit(annotation, stored, &mut FieldMover::default())?))
    }
}

impl Partners for SourcePartners<'_> {
    fn samples(&self) -> u64 {
        self.source.len()
    }

    fn partner(&self, index: u64) -> Result<Partner> {
        let (stored, annotation) = self.read(index)?;
        Ok(partner(&self.setup.recipes, stored, annotation))
    }
}
