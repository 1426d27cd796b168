//! A field of targets that a program computes.

use super::Described;
use crate::error::Result;
use crate::source::{ReadRequest, Sample, Source, as_in};
use crate::targets::Target;
use std::borrow::Cow;
use std::sync::Arc;

/// A source with an additional field of targets, which a function computes. Made by
/// [`SourceExt::targets`](super::SourceExt::targets).
pub struct WithTargets {
    source: Arc<dyn Source>,
    field: String,
    of: Box<dyn Fn(Described<'_>) -> Result<Target> + Send + Sync>,
}

impl WithTargets {
    pub(super) fn new(
        source: Arc<dyn Source>,
        field: String,
        of: impl Fn(Described<'_>) -> Result<Target> + Send + Sync + 'static,
    ) -> Self {
        Self { source, field, of: Box::new(of) }
    }
}

impl Source for WithTargets {
    // Targets do not decide which samples come, so the fingerprint is the source's.
    as_in!(|self| self.source; len prefetch ahead_bytes label name classes image_size skipped fingerprint);

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if want.target != Some(&self.field) {
            return self.source.read(index, want, sample);
        }
        let rest = want.and_target(None);
        if !rest.is_nothing() {
            self.source.read(index, &rest, sample)?;
        }
        let described = Described { index, label: self.label(index), name: self.name(index) };
        sample.set_target((self.of)(described)?);
        Ok(())
    }

    fn checked_fields(&self) -> Vec<String> {
        self.source.checked_fields()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if field == self.field { Ok(()) } else { self.source.check_field(field) }
    }
}

impl std::fmt::Debug for WithTargets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples with the field {}", self.len(), self.field)
    }
}
