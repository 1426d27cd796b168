//! The secret key of a packer of images with entry points, and the seal that it puts on images that it has decoded.
//!
//! The seal has the key's name, by which a reader recognizes its own key, and a tag: HighwayHash under the key of all
//! other bytes of the image and of the tag's place.

use super::entry_point_folder::{read_key, read_or_make_key};
use highway::{HighwayHash as _, HighwayHasher};
use std::io;
use std::path::Path;

const NAME_BYTES: usize = 4;
/// A forger succeeds once in 2^96 attempts.
const TAG_BYTES: usize = 12;

/// A secret key, under which entry points are put into images
/// ([`Decoder::with_entry_points`](super::Decoder::with_entry_points)) and trusted
/// ([`EntryPointStore::with_pack_key`](super::EntryPointStore::with_pack_key)).
///
/// It is a file that only its owner can read. Whoever has it can make images whose pixels depend on entry points: give
/// it to your own machines only.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PackKey {
    key: [u64; 4],
    name: [u8; NAME_BYTES],
}

impl PackKey {
    /// The key in a folder. It is drawn if there is none yet, and the folder is made. An existing key is never
    /// replaced: images that were packed under it would lose their seal.
    ///
    /// # Errors
    /// An error of the file system if the key cannot be read, or if there is none and the folder cannot be written;
    /// [`InvalidData`](io::ErrorKind::InvalidData) if the file is not a key of this version.
    pub fn in_folder(folder: impl AsRef<Path>) -> io::Result<Self> {
        read_or_make_key(folder.as_ref()).map(Self::new)
    }

    /// The key in a folder, if there is one.
    ///
    /// # Errors
    /// An error of the file system if the key cannot be read; [`InvalidData`](io::ErrorKind::InvalidData) if the file
    /// is not a key of this version.
    pub fn read(folder: impl AsRef<Path>) -> io::Result<Option<Self>> {
        Ok(read_key(folder.as_ref())?.map(Self::new))
    }

    pub(super) fn new(key: [u64; 4]) -> Self {
        let name = HighwayHasher::new(highway::Key(key)).hash64(b"the name of this key") as u32;
        Self { key, name: name.to_le_bytes() }
    }
}

impl std::fmt::Debug for PackKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackKey").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The place of a seal in an image: the key's name, and then the tag. Without a key both are zeros.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seal {
    start: usize,
}

impl Seal {
    /// Length of a seal.
    pub(super) const BYTES: usize = NAME_BYTES + TAG_BYTES;

    pub(super) fn at(start: usize) -> Self {
        Self { start }
    }

    /// Seals an image that has room for it.
    pub(super) fn put(self, image: &mut [u8], key: &PackKey) {
        let tag_start = self.start + NAME_BYTES;
        image[self.start..tag_start].copy_from_slice(&key.name);
        let tag = self.tag(image, key);
        image[tag_start..self.start + Self::BYTES].copy_from_slice(&tag);
    }

    /// Whether an image has been sealed with this key and has not been changed since.
    pub(super) fn is_valid(self, image: &[u8], key: &PackKey) -> bool {
        let Some(seal) = image.get(self.start..self.start + Self::BYTES) else { return false };
        let (name, tag) = seal.split_at(NAME_BYTES);
        *name == key.name && *tag == self.tag(image, key)
    }

    fn tag(self, image: &[u8], key: &PackKey) -> [u8; TAG_BYTES] {
        let mut hasher = HighwayHasher::new(highway::Key(key.key));
        hasher.append(&image[..self.start + NAME_BYTES]);
        hasher.append(&image[self.start + Self::BYTES..]);
        // No two images have all this in common, wherever their tags are.
        hasher.append(&(self.start as u64).to_le_bytes());
        let [low, high] = hasher.finalize128();
        let mut tag = [0; TAG_BYTES];
        tag[..8].copy_from_slice(&low.to_le_bytes());
        tag[8..].copy_from_slice(&(high as u32).to_le_bytes());
        tag
    }
}
