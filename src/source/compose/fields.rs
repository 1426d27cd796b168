//! Fields that a program computes.

use super::Described;
use crate::error::Result;
use crate::fields::Fields;
use crate::source::{ReadRequest, Sample, Source, as_in};
use std::borrow::Cow;
use std::sync::Arc;

/// A source with additional fields, which a function computes. Made by [`SourceExt::fields`](super::SourceExt::fields).
pub struct WithFields {
    source: Arc<dyn Source>,
    names: Vec<String>,
    of: Box<dyn Fn(Described<'_>) -> Result<Fields> + Send + Sync>,
}

impl WithFields {
    pub(super) fn new(
        source: Arc<dyn Source>,
        names: Vec<String>,
        of: impl Fn(Described<'_>) -> Result<Fields> + Send + Sync + 'static,
    ) -> Self {
        Self { source, names, of: Box::new(of) }
    }
}

impl Source for WithFields {
    // Fields do not decide which samples come, so the fingerprint is the source's.
    as_in!(|self| self.source; len prefetch ahead_bytes label name classes image_size skipped fingerprint);

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if !want.fields.iter().any(|name| self.names.contains(name)) {
            return self.source.read(index, want, sample);
        }
        let others: Vec<String> = want.fields.iter().filter(|name| !self.names.contains(name)).cloned().collect();
        let rest = want.and_fields(&others);
        let mut fields = Fields::new();
        if !rest.is_nothing() {
            self.source.read(index, &rest, sample)?;
            fields = sample.take_fields();
        }
        let described = Described { index, label: self.label(index), name: self.name(index) };
        let own = (self.of)(described)?;
        for (name, field) in own.into_named().filter(|(name, _)| want.fields.iter().any(|wanted| wanted == name)) {
            fields.insert(name, field)?;
        }
        sample.set_fields(fields);
        Ok(())
    }

    fn checked_fields(&self) -> Vec<String> {
        self.source.checked_fields()
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if self.names.iter().any(|name| name == field) { Ok(()) } else { self.source.check_field(field) }
    }
}

impl std::fmt::Debug for WithFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} samples with the fields {}", self.len(), self.names.join(", "))
    }
}
