//! The file `found.jsonl`: the images that have findings, a line each.

use super::{Audit, Finding};
use serde::Serialize;
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use warpfeed::Result;
use warpfeed::internal::atomic;

/// An image with findings.
#[derive(Debug, Serialize)]
pub(super) struct Found<'a> {
    pub(super) split: &'a str,
    /// Its index in the split.
    pub(super) index: u64,
    pub(super) name: Cow<'a, str>,
    /// Its class; `None` if images have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<Cow<'a, str>>,
    pub(super) findings: Vec<Finding>,
    /// Name of an image that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) copy_of: Option<Cow<'a, str>>,
}

impl Audit {
    /// Describes an image by its number.
    pub(super) fn found(&self, image: u32) -> Found<'_> {
        let (split, index) = self.at(image);
        let findings = Finding::of(self.rows[image as usize].found).collect();
        let name_of = |image| {
            let (source, index) = self.sample(image);
            source.name(index)
        };
        let copy_of = self.original(image).map(name_of);
        let name = &self.splits[split].name;
        let class = Some(self.class(image)).filter(|class| !class.is_empty());
        Found { split: name, index, name: name_of(image), class, findings, copy_of }
    }

    /// The earlier image that an image is a copy of.
    pub(super) fn original(&self, image: u32) -> Option<u32> {
        let at = self.copies.binary_search_by_key(&image, |&(copy, _)| copy).ok()?;
        Some(self.copies[at].1)
    }

    /// The name of an image's class, or its label; empty if it has none.
    pub(super) fn class(&self, image: u32) -> Cow<'_, str> {
        let (source, index) = self.sample(image);
        let label = source.label(index);
        let named =
            |label: u32| source.classes().get(label as usize).map_or_else(|| label.to_string().into(), Into::into);
        label.map(named).unwrap_or_default()
    }

    /// Writes the images with findings.
    pub(super) fn write_found(&self, folder: &Path) -> Result<()> {
        atomic::write(&folder.join("found.jsonl"), |file| {
            let all = 0..self.rows.len() as u32;
            for image in all.filter(|&image| Finding::of(self.rows[image as usize].found).next().is_some()) {
                serde_json::to_writer(&mut *file, &self.found(image))?;
                file.write_all(b"\n")?;
            }
            Ok(())
        })
    }
}
