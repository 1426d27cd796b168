//! A folder of class folders.

use super::metadata::Metadata;
use super::names::alternatives;
use super::{ReadRequest, Sample, Source, most_frequent, no_fields, no_such_sample, path_from_bytes, read_image};
use crate::decode::Format;
use crate::error::{Error, Result};
use crate::targets;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest number of kinds of skipped files that are counted apart.
const MAX_KINDS: usize = 16;

/// Endings of images that are not read.
const OTHER_IMAGES: [&str; 7] = [".avif", ".bmp", ".gif", ".heic", ".heif", ".jp2", ".jxl"];

/// Ends the name of the kind of images that lie next to class folders.
const BESIDE: &str = "beside the class folders";

/// Largest number of bytes of file names in one [`Folder`], whose positions are `u32`. More names become another
/// [`Folder`] of the same path.
const FOLDER_NAMES_BYTES: u64 = if cfg!(test) { 64 } else { u32::MAX as u64 };

/// Images in class folders: `root/cat/1.jpg`, `root/dog/old/2.png`, ...
///
/// Samples and labels come in the order of torchvision's `ImageFolder`. The class folders, sorted by name, get the
/// labels 0, 1, 2, ... Within a class, folders are sorted by their whole path, and within a folder files are sorted by
/// name, all by Unicode code points. Images are the files that end in `.jpg`, `.jpeg`, `.png`, `.webp`, `.pgm`, `.ppm`,
/// `.tif` or `.tiff`, in upper or lower case, and arrays (`.npy`, `.npz`) in a folder without other images. Other files
/// are skipped and counted, unless their name starts with a dot. Symbolic links are followed; a link to a folder that
/// contains it is skipped and counted.
///
/// Differences from torchvision:
/// - a class folder without images keeps its label and has no samples; torchvision refuses it;
/// - a folder that has images only directly in it has no labels; torchvision refuses it;
/// - of torchvision's endings, `.bmp` is no image here;
/// - a folder that cannot be listed is an error, not an empty folder.
///
/// The files are not opened until they are read. Each takes the length of its name and 4 bytes of memory.
///
/// ```
/// # use warpfeed::source::{ImageFolder, Source};
/// let root = tempfile::tempdir().unwrap();
/// for name in ["dog/2.JPG", "cat/1.png", "cat/notes.txt"] {
///     let path = root.path().join(name);
///     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
///     std::fs::write(path, "").unwrap();
/// }
/// let source = ImageFolder::open(root.path())?;
/// assert_eq!(source.classes(), ["cat", "dog"]);
/// assert_eq!(source.path(0), root.path().join("cat/1.png"));
/// assert_eq!((source.len(), source.label(1), source.skipped_files()), (2, Some(1), 1));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ImageFolder {
    root: PathBuf,
    classes: Vec<String>,
    /// All file names in one allocation: a million allocations would cost more than the names.
    names: Vec<u8>,
    /// End of each name, relative to the start of its folder's names.
    ends: Vec<u32>,
    /// The folders that hold images, in order.
    folders: Vec<Folder>,
    skipped: Skipped,
    /// The metadata files next to the images; `None` until the first target is read.
    metadata: Arc<Mutex<Option<Arc<Metadata>>>>,
}

/// A folder that holds images.
#[derive(Debug, Clone)]
struct Folder {
    /// Path from the root. The separator is `/` on all systems.
    path: Box<[u8]>,
    label: u32,
    /// Index of the folder's first image.
    first: u64,
    /// Start of the folder's names in `ImageFolder::names`.
    names: u64,
}

impl ImageFolder {
    /// Lists the images below `root`. NumPy's arrays (`.npy`, `.npz`) are images only if there are no others.
    ///
    /// # Errors
    /// [`Error::Io`] if a folder cannot be listed, or if there is no image.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        Self::open_those(root.as_ref(), is_image)
    }

    /// Lists the files below `root` whose names `is_taken`.
    fn open_those(root: &Path, is_taken: fn(&[u8]) -> bool) -> Result<Self> {
        let mut walk = Walk { ancestors: vec![identity(root)?], ..Walk::new(is_taken) };
        let (top, mut class_folders) = walk.list(root)?;
        class_folders.sort_unstable_by(|a, b| by_code_points(a, b));
        let mut found = Self {
            root: root.to_owned(),
            classes: class_folders.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            names: Vec::new(),
            ends: Vec::new(),
            folders: Vec::new(),
            skipped: Skipped::default(),
            metadata: Arc::default(),
        };
        for (label, class) in class_folders.into_iter().enumerate() {
            let label = u32::try_from(label).map_err(|_| too_many("class folders", root))?;
            walk.descend(root, class)?;
            walk.listings.sort_unstable_by(|a, b| by_code_points(&a.path, &b.path));
            for listing in walk.listings.drain(..) {
                found.add(&listing, label);
            }
        }
        if found.ends.is_empty() && !top.spans.is_empty() {
            // Images without class folders have no labels.
            found.classes.clear();
            found.add(&top, 0);
        } else {
            // Like torchvision, skips files next to class folders.
            for name in top.spans.iter().map(|&span| top.name(span)) {
                walk.skipped.add(&format!("{} {BESIDE}", ending(name)));
            }
        }
        if found.ends.is_empty() {
            if walk.has_arrays() {
                return Self::open_those(root, is_array);
            }
            let (folders, others) = (found.classes.len(), walk.skipped.files());
            let none = format!(
                "it has {folders} folders, {others} other files, and no file that ends in {}: give a folder of class \
                 folders with images, or one of images",
                image_endings()
            );
            return Err(Error::io("find images in", root)(io::Error::new(io::ErrorKind::NotFound, none)));
        }
        found.skipped = walk.skipped;
        found.names.shrink_to_fit();
        found.ends.shrink_to_fit();
        found.refuse_if_most_are_left_out()?;
        Ok(found)
    }

    /// Refuses a folder if more images are left out than read.
    fn refuse_if_most_are_left_out(&self) -> Result<()> {
        let (left_out, kinds) = self.skipped.images();
        if left_out <= self.ends.len() as u64 {
            return Ok(());
        }
        Err(Error::Unsupported {
            feature: format!("{}, with {} images to read and {kinds} left out,", self.root.display(), self.ends.len()),
            remedy: format!(
                "put images into class folders and make them {}, or give a folder without the others \
                 (ImageFolder::below reads all images below a folder, without labels)",
                image_endings()
            ),
        })
    }

    /// Lists the images below `root` in any depth, without labels: hidden files and folders are skipped, all others are
    /// walked, and images come in the order of their whole paths.
    ///
    /// ```
    /// # use warpfeed::source::{ImageFolder, Source};
    /// let root = tempfile::tempdir().unwrap();
    /// for name in ["2.jpg", "cat/1.png"] {
    ///     let path = root.path().join(name);
    ///     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    ///     std::fs::write(path, "").unwrap();
    /// }
    /// let source = ImageFolder::below(root.path())?;
    /// assert_eq!((source.len(), source.label(1), source.classes().len()), (2, None, 0));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn below(root: impl AsRef<Path>) -> Result<Self> {
        Self::below_those(root.as_ref(), is_image)
    }

    fn below_those(root: &Path, is_taken: fn(&[u8]) -> bool) -> Result<Self> {
        let mut walk = Walk::new(is_taken);
        walk.without_hidden(root, Vec::new())?;
        let mut images: Vec<(Vec<u8>, usize)> = Vec::new();
        for (at, listing) in walk.listings.iter().enumerate() {
            let path = |&span| {
                if listing.path.is_empty() {
                    listing.name(span).to_vec()
                } else {
                    [&listing.path, &b"/"[..], listing.name(span)].concat()
                }
            };
            images.extend(listing.spans.iter().map(path).map(|path| (path, at)));
        }
        if images.iter().all(|(path, _)| std::str::from_utf8(path).is_ok()) {
            images.sort_unstable();
        } else {
            images.sort_unstable_by(|(a, _), (b, _)| by_code_points(a, b));
        }
        let mut found = Self {
            root: root.to_owned(),
            classes: Vec::new(),
            names: Vec::new(),
            ends: Vec::new(),
            folders: Vec::new(),
            skipped: Skipped::default(),
            metadata: Arc::default(),
        };
        for run in images.chunk_by(|(_, a), (_, b)| a == b) {
            let folder = &walk.listings[run[0].1].path;
            let start = if folder.is_empty() { 0 } else { folder.len() + 1 };
            found.extend(folder, run.iter().map(|(path, _)| &path[start..]), 0);
        }
        if found.ends.is_empty() && walk.has_arrays() {
            return Self::below_those(root, is_array);
        }
        found.skipped = walk.skipped;
        if found.ends.is_empty() {
            let none =
                format!("it has {} other files, and none that ends in {}", found.skipped.files(), image_endings());
            return Err(Error::io("find images in", root)(io::Error::new(io::ErrorKind::NotFound, none)));
        }
        found.names.shrink_to_fit();
        found.ends.shrink_to_fit();
        Ok(found)
    }

    fn add(&mut self, listing: &Listing, label: u32) {
        self.names.reserve(listing.names.len());
        self.ends.reserve(listing.spans.len());
        self.extend(&listing.path, listing.spans.iter().map(|&span| listing.name(span)), label);
    }

    /// Adds images of a folder, given by its path from the root.
    fn extend<'a>(&mut self, folder: &[u8], names: impl Iterator<Item = &'a [u8]>, label: u32) {
        let mut room = 0;
        for name in names {
            if room < name.len() as u64 {
                let (first, names) = (self.ends.len() as u64, self.names.len() as u64);
                self.folders.push(Folder { path: folder.into(), label, first, names });
                room = FOLDER_NAMES_BYTES.max(name.len() as u64);
            }
            room -= name.len() as u64;
            self.names.extend_from_slice(name);
            let start = self.folders.last().map_or(0, |folder| folder.names);
            self.ends.push((self.names.len() as u64 - start) as u32);
        }
    }

    fn folder(&self, index: u64) -> &Folder {
        assert!(index < self.len(), "no sample {index} in {}", self.root.display());
        &self.folders[self.folders.partition_point(|folder| folder.first <= index) - 1]
    }

    /// Returns the metadata files of the root and of the folders that hold images. The first call reads them.
    fn metadata(&self) -> Result<Arc<Metadata>> {
        let mut metadata = self.metadata.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metadata) = &*metadata {
            return Ok(Arc::clone(metadata));
        }
        let below = self.folders.iter().filter(|folder| !folder.path.is_empty());
        let mut folders: Vec<PathBuf> = below.map(|folder| self.root.join(path_from_bytes(&folder.path))).collect();
        // A folder with very many images has several entries in `folders`.
        folders.dedup();
        folders.push(self.root.clone());
        Ok(Arc::clone(metadata.insert(Arc::new(Metadata::read(folders)?))))
    }

    /// Returns the path of image `index`.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    #[must_use]
    pub fn path(&self, index: u64) -> PathBuf {
        let folder = self.folder(index);
        let start = if index == folder.first { 0 } else { self.ends[index as usize - 1] };
        let (start, end) = (folder.names + u64::from(start), folder.names + u64::from(self.ends[index as usize]));
        let name = &self.names[start as usize..end as usize];
        let mut path = PathBuf::with_capacity(self.root.as_os_str().len() + folder.path.len() + name.len() + 2);
        path.push(&self.root);
        if !folder.path.is_empty() {
            path.push(path_from_bytes(&folder.path));
        }
        path.push(path_from_bytes(name));
        path
    }
}

impl Source for ImageFolder {
    fn len(&self) -> u64 {
        self.ends.len() as u64
    }

    /// A field is a column of `metadata.csv` or `metadata.jsonl` in the root or in a folder that holds images. The
    /// column `file_name` is the image's path from that folder. The first read of a target loads these files into
    /// memory.
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("ImageFolder::read", index, self.len()));
        }
        let path = self.path(index);
        if let Some(field) = want.target {
            self.check_field(field)?;
            let found =
                self.metadata()?.target(&path, field).map_err(|message| targets::wrong(Some(field), message))?;
            sample.set_target(found.ok_or_else(|| targets::missing(field))?);
        }
        if want.image {
            read_image(&path, want, sample)?;
        }
        Ok(())
    }

    fn image_file(&self, index: u64) -> Option<PathBuf> {
        (index < self.len()).then(|| self.path(index))
    }

    fn label(&self, index: u64) -> Option<u32> {
        (!self.classes.is_empty()).then(|| self.folder(index).label)
    }

    fn check_field(&self, field: &str) -> Result<()> {
        if self.metadata()?.is_empty() {
            return Err(no_fields(format!("no metadata.csv or metadata.jsonl in {}", self.root.display()), field));
        }
        Ok(())
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        self.path(index).to_string_lossy().into_owned().into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn skipped_files(&self) -> u64 {
        self.skipped.files()
    }

    fn skipped_kinds(&self) -> Vec<(String, u64)> {
        most_frequent(self.skipped.kinds.clone())
    }

    /// Says which images are left out.
    fn warnings(&self) -> Vec<String> {
        let (left_out, kinds) = self.skipped.images();
        let read = self.ends.len();
        (left_out > 0)
            .then(|| format!("{}: {kinds} left out, and {read} images read", self.root.display()))
            .into_iter()
            .collect()
    }
}

/// Lists the folders directly in `root`, which are the classes of an [`ImageFolder`], in the order of their labels.
pub(super) fn class_folders(root: &Path) -> Result<Vec<String>> {
    let mut folders = Walk::new(is_image).list(root)?.1;
    folders.sort_unstable_by(|a, b| by_code_points(a, b));
    Ok(folders.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned()).collect())
}

/// The images directly in one folder, sorted by name.
struct Listing {
    path: Vec<u8>,
    names: Vec<u8>,
    /// Start and length of each name.
    spans: Vec<(u32, u16)>,
}

impl Listing {
    fn name(&self, (start, len): (u32, u16)) -> &[u8] {
        &self.names[start as usize..][..usize::from(len)]
    }
}

/// Numbers of skipped files, in all and by kind.
#[derive(Debug, Clone, Default)]
struct Skipped {
    kinds: BTreeMap<String, u64>,
}

impl Skipped {
    fn files(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// The number of images, and their kinds with numbers.
    fn images(&self) -> (u64, String) {
        let is_image = |kind: &str| OTHER_IMAGES.contains(&kind) || kind.ends_with(BESIDE);
        let kinds =
            most_frequent(self.kinds.iter().filter(|(kind, _)| is_image(kind)).map(|(kind, n)| (kind.clone(), *n)));
        let named: Vec<String> = kinds.iter().map(|(kind, number)| format!("{number} {kind}")).collect();
        (kinds.iter().map(|(_, number)| number).sum(), named.join(", "))
    }

    fn add(&mut self, kind: &str) {
        let kind = if self.kinds.len() < MAX_KINDS || self.kinds.contains_key(kind) { kind } else { "others" };
        *self.kinds.entry(kind.to_owned()).or_default() += 1;
    }
}

/// Returns the ending of a file's name in lower case, with its dot.
fn ending(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    match Path::new(&*name).extension() {
        Some(ending) => format!(".{}", ending.to_string_lossy().to_lowercase()),
        None => "without an ending".to_owned(),
    }
}

struct Walk {
    skipped: Skipped,
    /// The folders from the root to the current one, to detect links that lead back to one of them.
    ancestors: Vec<Identity>,
    listings: Vec<Listing>,
    /// Whether a file of this name is an image.
    is_taken: fn(&[u8]) -> bool,
}

impl Walk {
    fn new(is_taken: fn(&[u8]) -> bool) -> Self {
        Self { skipped: Skipped::default(), ancestors: Vec::new(), listings: Vec::new(), is_taken }
    }

    /// Whether arrays were skipped.
    fn has_arrays(&self) -> bool {
        self.skipped.kinds.keys().any(|kind| is_array(kind.as_bytes()))
    }

    /// Lists the folder `path` (from the root) and all folders below it.
    fn descend(&mut self, root: &Path, path: Vec<u8>) -> Result<()> {
        let folder = root.join(path_from_bytes(&path));
        let identity = identity(&folder)?;
        if self.ancestors.contains(&identity) {
            self.skipped.add("link back to a folder around it");
            return Ok(());
        }
        let (listing, folders) = self.list(&folder)?;
        self.ancestors.push(identity);
        for name in folders {
            self.descend(root, [&path, &b"/"[..], &name].concat())?;
        }
        self.ancestors.pop();
        if !listing.spans.is_empty() {
            self.listings.push(Listing { path, ..listing });
        }
        Ok(())
    }

    /// Lists the folder `path` (from the root) and all folders below it, without hidden files and folders.
    fn without_hidden(&mut self, root: &Path, path: Vec<u8>) -> Result<()> {
        let folder = root.join(path_from_bytes(&path));
        let identity = identity(&folder)?;
        if self.ancestors.contains(&identity) {
            self.skipped.add("link back to a folder around it");
            return Ok(());
        }
        let (mut listing, folders) = self.list(&folder)?;
        listing.spans = listing.spans.iter().copied().filter(|&span| !listing.name(span).starts_with(b".")).collect();
        self.ancestors.push(identity);
        for name in folders.into_iter().filter(|name| !name.starts_with(b".")) {
            let below = if path.is_empty() { name } else { [&path, &b"/"[..], &name].concat() };
            self.without_hidden(root, below)?;
        }
        self.ancestors.pop();
        if !listing.spans.is_empty() {
            self.listings.push(Listing { path, ..listing });
        }
        Ok(())
    }

    /// Returns the images directly in `folder`, sorted, and the names of the folders directly in it.
    fn list(&mut self, folder: &Path) -> Result<(Listing, Vec<Vec<u8>>)> {
        let mut listing = Listing { path: Vec::new(), names: Vec::new(), spans: Vec::new() };
        let mut folders = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
            let entry = entry.map_err(Error::io("list", folder))?;
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            // Most systems return the type with the name; only links need another system call.
            let kind = entry.file_type().map_err(|error| Error::io("look at", entry.path())(error))?;
            // A broken link with the name of an image stays in the list, as in torchvision; reading it is an error.
            let target =
                if kind.is_symlink() { fs::metadata(entry.path()).ok().map(|m| m.file_type()) } else { Some(kind) };
            if target.is_some_and(|kind| kind.is_dir()) {
                folders.push(name.to_vec());
            } else if (self.is_taken)(name) && target.is_none_or(|kind| kind.is_file()) {
                let start = u32::try_from(listing.names.len()).map_err(|_| too_many("bytes of file names", folder))?;
                let len = u16::try_from(name.len()).map_err(|_| too_many("bytes in a file name", folder))?;
                listing.names.extend_from_slice(name);
                listing.spans.push((start, len));
            } else if !name.starts_with(b".") {
                self.skipped.add(&ending(name));
            }
        }
        let mut spans = std::mem::take(&mut listing.spans);
        spans.sort_unstable_by(|&a, &b| by_code_points(listing.name(a), listing.name(b)));
        listing.spans = spans;
        Ok((listing, folders))
    }
}

/// The endings of images, for messages.
pub(super) fn image_endings() -> String {
    let images = Format::ALL.iter().filter(|format| !format.is_array());
    alternatives(images.flat_map(|format| format.extensions()).map(|ending| format!(".{ending}")))
}

/// Whether a file's name ends like an image's. Arrays are left out, because features and labels are stored in them too.
pub(super) fn is_image(name: &[u8]) -> bool {
    format_of(name).is_some_and(|format| !format.is_array())
}

/// Whether a file's name ends like that of an array.
fn is_array(name: &[u8]) -> bool {
    format_of(name).is_some_and(Format::is_array)
}

fn format_of(name: &[u8]) -> Option<Format> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    Format::by_extension(&name[dot + 1..])
}

fn too_many(what: &str, folder: &Path) -> Error {
    Error::parameter("ImageFolder::open", "root", format!("a folder with fewer {what}"), folder.display())
}

/// Compares file names as Python does: by code points, where bytes that are not UTF-8 count as U+DC80 to U+DCFF. For
/// valid UTF-8 this is the order of the bytes.
fn by_code_points(a: &[u8], b: &[u8]) -> Ordering {
    if std::str::from_utf8(a).is_ok() && std::str::from_utf8(b).is_ok() {
        return a.cmp(b);
    }
    let code_points = |name: &'_ [u8]| -> Vec<u32> {
        let escaped = |chunk: std::str::Utf8Chunk<'_>| {
            let valid: Vec<u32> = chunk.valid().chars().map(u32::from).collect();
            valid.into_iter().chain(chunk.invalid().iter().map(|&byte| 0xdc00 + u32::from(byte)).collect::<Vec<_>>())
        };
        name.utf8_chunks().flat_map(escaped).collect()
    };
    code_points(a).cmp(&code_points(b))
}

/// Identifies a folder, whichever path leads to it.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = PathBuf;

fn identity(folder: &Path) -> Result<Identity> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(folder).map_err(Error::io("open", folder))?;
        Ok((metadata.dev(), metadata.ino()))
    }
    #[cfg(not(unix))]
    fs::canonicalize(folder).map_err(Error::io("open", folder))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a tree of files, each with its own name as content, and of folders, whose names end in `/`.
    pub(in crate::source) fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            if file.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
        }
        root
    }

    /// The cases of a kind that tests/formats/annotations.py made, with the answers of the formats' own readers.
    pub(in crate::source) fn made_cases(kind: &str) -> impl Iterator<Item = serde_json::Value> {
        use std::io::BufRead;
        let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/annotations.jsonl");
        let path = std::env::var_os("WARPFEED_CASES").map_or(usual, PathBuf::from);
        let lines = io::BufReader::new(fs::File::open(path).unwrap()).lines();
        let cases = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
        cases.filter(move |case| case["kind"] == kind)
    }

    fn samples(root: &Path) -> Vec<(String, u32)> {
        let source = ImageFolder::open(root).unwrap();
        let all = 0..source.len();
        all.map(|i| (source.path(i).strip_prefix(root).unwrap().to_str().unwrap().to_owned(), source.label(i).unwrap()))
            .collect()
    }

    fn paths(root: &Path) -> Vec<String> {
        samples(root).into_iter().map(|(path, _)| path).collect()
    }

    /// The expected order is torchvision 0.29's for this tree.
    #[test]
    fn the_order_is_torchvisions() {
        let root = tree(&[
            "b/2.jpg",
            "b/10.jpg",
            "b/a/1.jpg",
            "b/a-b/1.jpg",
            "b/a/z/1.png",
            "b/a b/1.webp",
            "b/a.jpg/1.jpg",
            "b/Z.JPG",
            "b/ä.jpeg",
            "b/z.JpEg",
            "b/.jpg",
            "b/.hidden.jpg",
            "b/x.jpg.txt",
            "b/x.gif",
            "b/x.PGM",
            "b/y.ppm",
            "B/1.Png",
            "é/1.jpg",
            "日本/1.jpg",
            "日本/\u{10000}.jpg",
            "日本/\u{ff5e}.jpg",
            "10/1.WEBP",
            "9/1.jpg",
            ".dot/1.jpg",
            "readme.md",
            "beside.jpg",
        ]);
        let want = [
            (".dot/1.jpg", 0),
            ("10/1.WEBP", 1),
            ("9/1.jpg", 2),
            ("B/1.Png", 3),
            ("b/.hidden.jpg", 4),
            ("b/.jpg", 4),
            ("b/10.jpg", 4),
            ("b/2.jpg", 4),
            ("b/Z.JPG", 4),
            ("b/x.PGM", 4),
            ("b/y.ppm", 4),
            ("b/z.JpEg", 4),
            ("b/ä.jpeg", 4),
            ("b/a/1.jpg", 4),
            ("b/a b/1.webp", 4),
            ("b/a-b/1.jpg", 4),
            ("b/a.jpg/1.jpg", 4),
            ("b/a/z/1.png", 4),
            ("é/1.jpg", 5),
            ("日本/1.jpg", 6),
            ("日本/\u{ff5e}.jpg", 6),
            ("日本/\u{10000}.jpg", 6),
        ];
        let want: Vec<(String, u32)> = want.into_iter().map(|(path, label)| (path.to_owned(), label)).collect();
        assert_eq!(samples(root.path()), want);
        let source = ImageFolder::open(root.path()).unwrap();
        assert_eq!(source.classes(), [".dot", "10", "9", "B", "b", "é", "日本"]);
        // x.jpg.txt, x.gif, readme.md and the image next to the class folders.
        assert_eq!(source.skipped_files(), 4);
        assert_eq!(source.encoded(1).unwrap(), b"10/1.WEBP");
        assert!(source.name(1).ends_with("10/1.WEBP"));
        assert!(source.encoded(source.len()).unwrap_err().is_parameter());
    }

    #[test]
    fn empty_class_folders_keep_their_labels() {
        let root = tree(&["a/", "b/1.jpg", "c/d/e/", "d/1.jpg"]);
        assert_eq!(samples(root.path()), [("b/1.jpg".into(), 1), ("d/1.jpg".into(), 3)]);
        assert_eq!(ImageFolder::open(root.path()).unwrap().classes(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_folder_of_images_has_no_labels() {
        let root = tree(&["holiday/2.jpg", "holiday/1.jpg", "holiday/list.txt", "holiday/empty/"]);
        let folder = root.path().join("holiday");
        let source = ImageFolder::open(folder).unwrap();
        assert_eq!((source.len(), source.label(1), source.has_labels()), (2, None, false));
        assert_eq!((source.classes().len(), source.skipped_files()), (0, 1));
    }

    /// The expected order is that of Ultralytics: sorted paths of `glob("**/*.*", recursive=True)`.
    #[test]
    fn images_below_a_folder_are_found_in_any_depth_but_hidden_ones() {
        let root = tree(&[
            "2.jpg",
            "10.jpg",
            "a.jpg",
            "a/1.jpg",
            "a-b/1.jpg",
            "a/b/c/1.png",
            "a.d/1.JPG",
            "a/z.txt",
            ".ipynb_checkpoints/2-checkpoint.jpg",
            "a/.cache/1.jpg",
            "._2.jpg",
            "ä/1.jpg",
        ]);
        let source = ImageFolder::below(root.path()).unwrap();
        let paths: Vec<String> = (0..source.len())
            .map(|i| source.path(i).strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        let want = ["10.jpg", "2.jpg", "a-b/1.jpg", "a.d/1.JPG", "a.jpg", "a/1.jpg", "a/b/c/1.png", "ä/1.jpg"];
        assert_eq!((paths, source.skipped_files()), (want.map(str::to_owned).to_vec(), 1));
        assert!(source.classes().is_empty() && source.encoded(6).unwrap() == b"a/b/c/1.png");
        let none = ImageFolder::below(root.path().join("a/.cache/..")).map(|found| found.len());
        assert_eq!(none.unwrap(), 2);
        let empty = tree(&["a/1.txt", ".b/1.jpg"]);
        assert!(ImageFolder::below(empty.path()).unwrap_err().to_string().contains(".ppm"));
    }

    #[test]
    fn no_images_is_an_error_that_says_what_was_looked_for() {
        let root = tree(&["a/1.txt", "b/", ".DS_Store"]);
        let error = ImageFolder::open(root.path()).unwrap_err();
        let message = error.to_string();
        assert!(matches!(error, Error::Io { .. }) && message.contains(".webp"), "{message}");
        let path = root.path().display();
        assert!(message.contains(&format!("{path}: it has 2 folders, 1 other files")), "{message}");
        let missing = ImageFolder::open(root.path().join("missing")).unwrap_err();
        assert!(matches!(missing, Error::Io { .. }) && missing.to_string().contains("missing"));
    }

    #[test]
    fn long_folders_are_held_in_pieces() {
        // In tests a `Folder` holds 64 bytes of names.
        let names: Vec<String> = (0..50).map(|i| format!("a/{:0>1$}.jpg", i, 1 + i * 3)).collect();
        let root = tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut want = names.clone();
        want.sort();
        assert_eq!(paths(root.path()), want);
        assert!(ImageFolder::open(root.path()).unwrap().folders.len() > 20);
    }

    #[test]
    #[cfg(unix)]
    fn links_are_followed_and_cycles_passed_over() {
        use std::os::unix::fs::symlink;
        let elsewhere = tree(&["images/1.jpg", "images/sub/2.jpg", "one.jpg"]);
        let root = tree(&["a/0.jpg", "a/deep/3.jpg"]);
        symlink(elsewhere.path().join("images"), root.path().join("linked")).unwrap();
        symlink(elsewhere.path().join("one.jpg"), root.path().join("a/one.jpg")).unwrap();
        symlink("deep", root.path().join("a/twice")).unwrap();
        symlink("nowhere", root.path().join("a/broken.jpg")).unwrap();
        symlink("nowhere", root.path().join("a/broken.txt")).unwrap();
        symlink("..", root.path().join("a/deep/up")).unwrap();
        symlink("../..", root.path().join("a/deep/root")).unwrap();
        symlink("self", root.path().join("a/self")).unwrap();
        symlink(elsewhere.path(), elsewhere.path().join("images/sub/out")).unwrap();
        assert_eq!(
            paths(root.path()),
            [
                "a/0.jpg",
                "a/broken.jpg",
                "a/one.jpg",
                "a/deep/3.jpg",
                "a/twice/3.jpg",
                "linked/1.jpg",
                "linked/sub/2.jpg",
                "linked/sub/out/one.jpg",
            ]
        );
        let source = ImageFolder::open(root.path()).unwrap();
        // broken.txt, self, up and root (each by way of deep and of twice), and out/images.
        assert_eq!(source.skipped_files(), 7);
        let error = source.encoded(1).unwrap_err();
        assert!(error.is_bad_sample() && error.to_string().contains("broken.jpg"));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn names_that_are_not_utf8_work_in_pythons_order() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let root = tree(&["a/\u{e000}.jpg", "a/\u{d7ff}.jpg", "a/z.jpg"]);
        for name in [&b"a/\xff.jpg"[..], b"a/\x80.jpg", b"caf\xe9"] {
            let path = root.path().join(OsStr::from_bytes(name));
            if name.ends_with(b".jpg") {
                fs::write(path, name).unwrap();
            } else {
                fs::create_dir(&path).unwrap();
                fs::write(path.join("1.jpg"), name).unwrap();
            }
        }
        let source = ImageFolder::open(root.path()).unwrap();
        let read: Vec<Vec<u8>> = (0..source.len()).map(|i| source.encoded(i).unwrap()).collect();
        let want: [&[u8]; 6] = [
            b"a/z.jpg",
            "a/\u{d7ff}.jpg".as_bytes(),
            b"a/\x80.jpg",
            b"a/\xff.jpg",
            "a/\u{e000}.jpg".as_bytes(),
            b"caf\xe9",
        ];
        assert_eq!(read, want);
        assert_eq!(source.classes()[1], "caf\u{fffd}");
    }
}
