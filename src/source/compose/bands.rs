//! Samples of several files, each with a part of an image's channels.

use super::first_8_bytes;
use crate::error::{Error, Result};
use crate::source::{MAX_ENCODED_BYTES, ReadRequest, Sample, Source, as_in, no_such_sample};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use warpfeed_image::decode::join_bands;

/// Samples of several files of another source, put together by their names: see
/// [`SourceExt::bands`](super::SourceExt::bands).
#[derive(Clone)]
pub struct Bands {
    source: Arc<dyn Source>,
    /// The endings of the files' stems.
    names: Vec<String>,
    /// For each sample, the indices of its files in the source, in the order of the names.
    files: Vec<u64>,
}

/// A file's name without its band, and the number of the band; `None` if it ends in no band's name.
fn split<'a>(name: &'a str, bands: &[String]) -> Option<(&'a str, usize)> {
    let slash = name.rfind(['/', '\\']).map_or(0, |at| at + 1);
    let dot = name[slash..].find('.').map_or(name.len(), |at| slash + at);
    let stem = &name[..dot];
    let ends = |band: &str| {
        let at = stem.len().checked_sub(band.len()).filter(|at| *at >= slash && stem.is_char_boundary(*at))?;
        let (before, end) = stem.split_at(at);
        let apart = at == slash || before.ends_with(['_', '-', ' ']);
        (end.eq_ignore_ascii_case(band) && apart).then(|| before.trim_end_matches(['_', '-', ' ', '/', '\\']))
    };
    bands.iter().enumerate().find_map(|(number, band)| Some((ends(band)?, number)))
}

impl Bands {
    pub(super) fn new(source: Arc<dyn Source>, names: Vec<String>) -> Result<Self> {
        let wrong = |expected: &str, got: String| Err(Error::parameter("bands", "names", expected, got));
        if names.is_empty() || names.iter().any(String::is_empty) {
            return wrong("the names of one band or more", format!("{names:?}"));
        }
        if let Some(twice) =
            (1..names.len()).find(|at| names[..*at].iter().any(|name| name.eq_ignore_ascii_case(&names[*at])))
        {
            return wrong("each band once", names[twice].clone());
        }
        let mut samples: BTreeMap<String, (u64, Vec<Option<u64>>)> = BTreeMap::new();
        for index in 0..source.len() {
            let name = source.name(index);
            let Some((sample, band)) = split(&name, &names) else { continue };
            let (_, files) = samples.entry(sample.to_owned()).or_insert_with(|| (index, vec![None; names.len()]));
            if files[band].replace(index).is_some() {
                return wrong("such that a sample has one file of each", format!("two of {}: {name}", names[band]));
            }
        }
        let mut all: Vec<_> = samples.into_iter().collect();
        // In the order of the source.
        all.sort_by_key(|(_, (first, _))| *first);
        let mut files = Vec::with_capacity(all.len() * names.len());
        for (sample, (_, own)) in &all {
            match own.iter().position(Option::is_none) {
                None => files.extend(own.iter().flatten()),
                Some(missing) => {
                    let expected = format!("such that each sample has all of {}", names.join(", "));
                    return wrong(&expected, format!("{sample} without {}", names[missing]));
                }
            }
        }
        if files.is_empty() {
            let example = source.is_empty().then(String::new).unwrap_or_else(|| source.name(0).into_owned());
            return wrong("such that files' names end in them, after _ or -", format!("{names:?}, and {example}"));
        }
        Ok(Self { source, names, files })
    }

    /// The indices of a sample's files in the source.
    fn files(&self, index: u64) -> &[u64] {
        let start = index as usize * self.names.len();
        &self.files[start..start + self.names.len()]
    }
}

impl Source for Bands {
    as_in!(|self| self.source; classes skipped check_field);

    fn len(&self) -> u64 {
        (self.files.len() / self.names.len()) as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("Bands::read", index, self.len()));
        }
        let files = self.files(index);
        // Fields and targets are those of the first file.
        self.source.read(files[0], &want.without_image(), sample)?;
        if want.image {
            let (mut parts, mut len_bytes) = (Vec::with_capacity(files.len()), 0);
            for file in files {
                parts.push(self.source.encoded(*file)?);
                len_bytes += parts[parts.len() - 1].len() as u64;
                if len_bytes > MAX_ENCODED_BYTES {
                    return Err(Error::Limits {
                        what: "the files of an image in bytes",
                        got: len_bytes,
                        limit: MAX_ENCODED_BYTES,
                        remedy: "use fewer bands, or smaller files",
                    });
                }
            }
            let buffer = sample.buffer();
            buffer.clear();
            buffer.extend_from_slice(&join_bands(&parts));
        }
        Ok(())
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.source.label(self.files(index)[0])
    }

    fn has_labels(&self) -> bool {
        self.source.has_labels()
    }

    /// The first file's name without its band.
    fn name(&self, index: u64) -> Cow<'_, str> {
        let name = self.source.name(self.files(index)[0]);
        split(&name, &self.names).map_or_else(|| name.clone().into_owned(), |(sample, _)| sample.to_owned()).into()
    }

    fn image_id(&self, index: u64) -> Option<i64> {
        self.source.image_id(self.files(index)[0])
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update(b"bands\0\0\0");
        hash.update(self.source.fingerprint().to_le_bytes());
        self.files.iter().for_each(|file| hash.update(file.to_le_bytes()));
        first_8_bytes(hash)
    }
}

impl std::fmt::Debug for Bands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bands of {} samples: {}", self.len(), self.names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn bands_end_the_names_of_files() {
        let bands = ["B02", "B8A", "B8"].map(str::to_owned);
        for (name, want) in [
            ("a/S2_1_B02.tif", Some(("a/S2_1", 0))),
            ("a/b8a.TIFF", Some(("a", 1))),
            ("a/x-B8.jp2.tif", Some(("a/x", 2))),
            ("B02/x.tif", None),
            ("a/xB02.tif", None),
            ("a/B02_x.tif", None),
        ] {
            assert_eq!(split(name, &bands), want, "{name}");
        }
    }
}
