//! Reads packed shards again and compares them with the manifest.

use super::manifest::{Manifest, PackedFile};
use super::place::{self, Place};
use crate::error::{Error, Result};
use crate::source::packed::{MANIFEST, PackedFolder, is_sound};
use serde::Serialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Number of bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Number of shards that the manifest names.
    pub shards: u64,
    /// Number of images in the shards.
    pub images: u64,
    /// Size of the shards in bytes.
    pub bytes: u64,
    /// Whether the whole source is packed.
    pub complete: bool,
    /// Whether `pack.json` has a checksum of its own text. Earlier versions wrote none, so the counts in such a file
    /// are not verified.
    pub manifest_verified: bool,
    /// The files that differ from the packed ones.
    pub damaged: Vec<DamagedFile>,
}

/// A file that differs from the packed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DamagedFile {
    /// The path or address of the file.
    pub path: PathBuf,
    /// Description of the difference.
    pub error: String,
}

/// Reads all shards that [`pack`](super::pack) has written to `folder`, a path or an address, and compares their
/// lengths and checksums (CRC-32C) with those in `pack.json`, which has a checksum of its own text.
///
/// To repair a damaged file, remove it and pack again: packing continues from the shard before it.
///
/// `progress` receives the number of images in the shards that have been read.
///
/// # Errors
/// [`Error::Parameter`] if the folder has no `pack.json`; [`Error::Io`] if `pack.json` is damaged or reading fails.
///
/// ```
/// use warpfeed::pack::{PackOptions, pack, verify};
/// use warpfeed::prelude::*;
/// use warpfeed::{source::RecordFormat, image::{Image, JpegOptions, encode_jpeg}};
///
/// let folder = tempfile::tempdir().unwrap();
/// let jpeg = encode_jpeg(&Image::new(Size::new(40, 30)), &JpegOptions::default())?;
/// let source = EncodedImages::new((0..5).map(|label| (jpeg.clone(), label)));
/// let out = folder.path().join("train");
/// let packed = pack(&source, &out, &PackOptions::new(RecordFormat::WebDataset), &mut |_done| {})?;
/// assert!(verify(&out, &mut |_done| {})?.damaged.is_empty());
///
/// std::fs::write(&packed.shards[0], vec![0; packed.bytes as usize]).unwrap();
/// assert_eq!(verify(&out, &mut |_done| {})?.damaged[0].path, packed.shards[0]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
pub fn verify(folder: &Path, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport> {
    let place = &*place::open(folder)?;
    let text = place.read(MANIFEST)?;
    let found = text.as_deref().map_or(PackedFolder::Nothing, PackedFolder::<Manifest>::of);
    let Some(manifest) = found.whole(folder)? else {
        let expected = "one that `warpfeed pack` has made";
        return Err(Error::parameter("verify", "folder", expected, format!("{} without pack.json", folder.display())));
    };
    let mut report = VerifyReport {
        shards: manifest.shards.len() as u64,
        images: 0,
        bytes: 0,
        complete: manifest.complete,
        manifest_verified: text.as_deref().and_then(is_sound).is_some(),
        damaged: Vec::new(),
    };
    for shard in &manifest.shards {
        for file in &shard.files {
            let path = place.path(&file.name);
            let error = match difference(place, file) {
                Ok(None) => continue,
                Ok(Some(difference)) => difference,
                Err(error) if error.is_bad_sample() => error.to_string(),
                Err(error) => return Err(error),
            };
            report.damaged.push(DamagedFile { path, error });
        }
        report.images += shard.images;
        report.bytes += shard.bytes();
        progress(report.images);
    }
    Ok(report)
}

/// Describes how a file differs from what was packed. `None` if it does not.
fn difference(place: &dyn Place, packed: &PackedFile) -> Result<Option<String>> {
    let Some((len_bytes, mut file)) = place.open(&packed.name)? else { return Ok(Some("it is missing".to_owned())) };
    if len_bytes != packed.bytes {
        return Ok(Some(format!("it has {len_bytes} bytes where {} were packed", packed.bytes)));
    }
    let (mut chunk, mut crc) = (vec![0; CHUNK_BYTES], 0);
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(len_bytes) => crc = crc32c::crc32c_append(crc, &chunk[..len_bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("read", place.path(&packed.name))(error)),
        }
    }
    Ok((PackedFile::checksum(crc) != packed.crc32c).then(|| "its checksum is not that of what was packed".to_owned()))
}
