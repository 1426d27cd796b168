//! Folders with a data set's splits, in published layouts.

use super::SourceFormat;
use super::folder::class_folders;
use crate::error::{Error, Result};
use crate::os::file::{if_there, read_text_limited};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The usual splits, each with its usual names.
const USUAL: [&[&str]; 3] = [&["train", "training"], &["val", "valid", "validation", "dev"], &["test", "testing"]];

/// The number of the training split among them.
const TRAIN: usize = 0;

/// Name of the folder, and beginning of the name of the archive, of the development kit with ImageNet's labels of 2012.
const DEVKIT: &str = "ILSVRC2012_devkit_t12";

/// Largest size of `refs/main`, which holds the name of a revision, in bytes.
const MAX_REF_BYTES: u64 = 1 << 10;

/// A split of a data set.
#[derive(Debug, PartialEq)]
pub(super) struct Split {
    pub name: String,
    /// One folder, or files of one format.
    pub files: Vec<PathBuf>,
    /// Format of the files; `None` if their names tell it.
    pub format: Option<SourceFormat>,
    /// The part of a record that is its label; `None` for the usual one.
    pub label: Option<&'static str>,
    /// Folder or archive of the development kit, which has the labels of ImageNet's validation images.
    pub devkit: Option<PathBuf>,
    /// Classes of the data set, if splits are folders of class folders; empty otherwise.
    pub classes: Vec<String>,
    /// The files of the training split, whose classes number the labels of this one; empty if this is the training
    /// split, if there is none, or if the format fixes the classes.
    pub train: Vec<PathBuf>,
}

impl Split {
    fn new(name: &str, files: Vec<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            files,
            format: None,
            label: None,
            devkit: None,
            classes: Vec::new(),
            train: Vec::new(),
        }
    }

    /// Whether it is a split for validation or test.
    pub fn is_held_out(&self) -> bool {
        usual(&self.name).is_some_and(|number| number != TRAIN)
    }

    /// Whether `wanted` is the name of this split or another usual name of it.
    fn is(&self, wanted: &str) -> bool {
        self.name == wanted || usual(&self.name).is_some() && usual(&self.name) == usual(wanted)
    }
}

/// Returns the number of the usual split with this name.
fn usual(name: &str) -> Option<usize> {
    let name = name.to_ascii_lowercase();
    USUAL.iter().position(|names| names.contains(&name.as_str()))
}

/// Returns the split `wanted` of the data set in `folder`, or its only split. `None` if the folder holds no splits and
/// none is wanted.
pub(super) fn find(folder: &Path, wanted: Option<&str>) -> Result<Option<Split>> {
    let mut splits = splits(folder)?;
    let names = || splits.iter().map(|split| split.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match wanted {
        None if splits.len() < 2 => Ok(splits.pop()),
        None => Err((format!("one of {}, since the folder holds several", names()), "none".to_owned())),
        Some(wanted) => match splits.iter().position(|split| split.is(wanted)) {
            Some(at) => Ok(Some(splits.swap_remove(at))),
            None if splits.is_empty() => {
                Err(("only for a folder that holds several splits".to_owned(), wanted.to_owned()))
            }
            None => Err((format!("one of {}", names()), wanted.to_owned())),
        },
    };
    found.map_err(|(expected, got)| {
        Error::parameter("open", "split", expected, format!("{got}, of {}", folder.display()))
    })
}

/// The visible files and folders in a folder.
struct Listing {
    folder: PathBuf,
    files: Vec<String>,
    folders: Vec<String>,
}

impl Listing {
    fn new(folder: &Path) -> Result<Self> {
        let mut listing = Self { folder: folder.to_owned(), files: Vec::new(), folders: Vec::new() };
        for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
            let path = entry.map_err(Error::io("list", folder))?.path();
            // All files of these data sets have names that are UTF-8.
            let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'))
            else {
                continue;
            };
            let list = if path.is_dir() { &mut listing.folders } else { &mut listing.files };
            list.push(name.to_owned());
        }
        listing.files.sort_unstable();
        listing.folders.sort_unstable();
        Ok(listing)
    }

    fn has(&self, file: &str) -> bool {
        self.files.iter().any(|name| name == file)
    }

    /// Returns the paths of the files for whose names `wanted` returns true.
    fn paths(&self, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        self.files.iter().filter(|name| wanted(name)).map(|name| self.folder.join(name)).collect()
    }
}

fn splits(folder: &Path) -> Result<Vec<Split>> {
    let listing = Listing::new(folder)?;
    if let Some(snapshot) = snapshot(&listing)? {
        let mut found = splits(&snapshot)?;
        if found.is_empty() {
            // Hugging Face's name for a data set without splits.
            found.push(Split::new("train", vec![snapshot]));
        }
        return Ok(found);
    }
    for find in [published, shards, class_folder_splits] {
        let found = find(&listing)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    // Data sets on Hugging Face's hub have their files in `data`.
    if listing.folders == ["data"] {
        return shards(&Listing::new(&folder.join("data"))?);
    }
    Ok(Vec::new())
}

/// Returns the folder of a data set in the cache of Hugging Face's hub (`datasets--USER--NAME`): the revision that is
/// `main`, or the only one.
fn snapshot(listing: &Listing) -> Result<Option<PathBuf>> {
    let has = |name: &str| listing.folders.iter().any(|folder| folder == name);
    if !has("snapshots") || !has("blobs") && !has("refs") {
        return Ok(None);
    }
    let snapshots = listing.folder.join("snapshots");
    let main = listing.folder.join("refs/main");
    if let Some(revision) = if_there(read_text_limited(&main, MAX_REF_BYTES))? {
        let revision = revision.trim();
        // A cache from elsewhere must not be able to name a folder outside of itself.
        if Path::new(revision).components().ne([Component::Normal(revision.as_ref())]) {
            let expected = "a cache whose refs/main holds the name of a folder in snapshots, and no path: give the folder \
                            of a revision";
            return Err(Error::parameter("open", "source", expected, format!("{revision:?} in {}", main.display())));
        }
        let revision = snapshots.join(revision);
        if revision.is_dir() {
            return Ok(Some(revision));
        }
    }
    let revisions = Listing::new(&snapshots)?.folders;
    match &revisions[..] {
        [revision] => Ok(Some(snapshots.join(revision))),
        _ => {
            let expected = "one revision, or refs/main that names one: give the folder of a revision";
            let got = format!("{} revisions in {}", revisions.len(), snapshots.display());
            Err(Error::parameter("open", "source", expected, got))
        }
    }
}

/// Finds the splits of data sets with fixed file names: CIFAR-10, CIFAR-100, MNIST and data sets with its names,
/// ImageNet's archives.
fn published(listing: &Listing) -> Result<Vec<Split>> {
    let with = |name: &str, files: Vec<PathBuf>, format| Split { format, ..Split::new(name, files) };
    let numbered = |name: &str| name.strip_prefix("data_batch_").and_then(|rest| rest.strip_suffix(".bin")).is_some();
    let idx = |start: &'static str| move |name: &str| name.starts_with(start) && !name.ends_with(".md5");
    let found = if listing.has("data_batch_1.bin") {
        let format = Some(SourceFormat::Cifar10);
        let test = listing.paths(|name| name == "test_batch.bin");
        vec![with("train", listing.paths(numbered), format), with("test", test, format)]
    } else if listing.has("train.bin") && listing.has("fine_label_names.txt") {
        let format = Some(SourceFormat::Cifar100);
        let file = |file: &'static str| listing.paths(move |name| name == file);
        vec![with("train", file("train.bin"), format), with("test", file("test.bin"), format)]
    } else {
        let [mut train, mut test] =
            ["train-images-idx3-ubyte", "t10k-images-idx3-ubyte"].map(|name| listing.paths(idx(name)));
        // A folder may have the unpacked and the packed file; either will do.
        train.truncate(1);
        test.truncate(1);
        let tar = |file: &'static str| listing.paths(move |name| name == file);
        let label = Some(super::records::FOLDER);
        let devkit = |name: &&String| name.starts_with(DEVKIT);
        let devkit = listing.folders.iter().chain(&listing.files).find(devkit).map(|name| listing.folder.join(name));
        vec![
            with("train", train, Some(SourceFormat::Idx)),
            with("test", test, Some(SourceFormat::Idx)),
            Split { label, ..Split::new("train", tar("ILSVRC2012_img_train.tar")) },
            Split {
                devkit: devkit.or_else(|| Some(listing.folder.join(DEVKIT))),
                ..Split::new("val", tar("ILSVRC2012_img_val.tar"))
            },
        ]
    };
    Ok(found.into_iter().filter(|split| !split.files.is_empty()).collect())
}

/// Finds splits of shards whose names begin with that of the split: `train-00000-of-00002.parquet`, `val-000000.tar`,
/// `test.tfrecord`.
fn shards(listing: &Listing) -> Result<Vec<Split>> {
    let mut found: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
    for name in &listing.files {
        let path = listing.folder.join(name);
        if SourceFormat::by_name(&path)
            .is_some_and(|format| !matches!(format, SourceFormat::Idx | SourceFormat::Cifar10 | SourceFormat::Zarr))
        {
            let end = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
            found.entry(&name[..end]).or_default().push(path);
        }
    }
    if found.keys().filter_map(|name| usual(name)).count() < 2 {
        return Ok(Vec::new());
    }
    let train = found.iter().find(|(name, _)| usual(name) == Some(TRAIN)).map(|(_, files)| files.clone());
    let split = |(name, files): (&str, Vec<PathBuf>)| {
        let train = train.clone().filter(|_| usual(name) != Some(TRAIN)).unwrap_or_default();
        Split { train, ..Split::new(name, files) }
    };
    Ok(found.into_iter().map(split).collect())
}

/// Finds splits that are folders of class folders, if all folders have names of splits: `train/cat/1.jpg`,
/// `val/cat/2.jpg`.
fn class_folder_splits(listing: &Listing) -> Result<Vec<Split>> {
    let is_train = |name: &&String| usual(name) == Some(TRAIN);
    let Some(train) = listing.folders.iter().find(is_train) else { return Ok(Vec::new()) };
    if listing.folders.len() < 2 || !listing.folders.iter().all(|name| usual(name).is_some()) {
        return Ok(Vec::new());
    }
    let train = listing.folder.join(train);
    let classes = class_folders(&train)?;
    let split = |name: &String| {
        let files = vec![listing.folder.join(name)];
        let train = if files[0] == train { Vec::new() } else { vec![train.clone()] };
        Split { classes: classes.clone(), train, ..Split::new(name, files) }
    };
    Ok(listing.folders.iter().map(split).collect())
}

/// Numbering of the labels of files that were given without a split.
#[derive(Debug, PartialEq)]
pub(super) enum Kin {
    /// They are a data set of their own, or its training split.
    Alone,
    /// By the classes of the training split with these files.
    Train(Vec<PathBuf>),
    /// Their names say that they are a split (the text), and there is no training split next to them.
    Orphan(String),
}

/// Finds the training split next to `files`, or next to the only folder among them, if their names are those of another
/// split.
pub(super) fn kin(files: &[PathBuf]) -> Result<Kin> {
    let name_of = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let start = |name: &str| name[..name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len())].to_owned();
    // A path like `.` tells no name.
    let whole = fs::canonicalize(&files[0]).unwrap_or_default();
    let folder = files.len() == 1 && files[0].is_dir();
    let Some(name) = name_of(&whole).map(|name| if folder { name } else { start(&name) }) else {
        return Ok(Kin::Alone);
    };
    let same =
        |path: &PathBuf| path.parent() == files[0].parent() && name_of(path).is_some_and(|own| start(&own) == name);
    if usual(&name).is_none_or(|number| number == TRAIN) || !folder && !files.iter().all(same) {
        return Ok(Kin::Alone);
    }
    let Some(around) = whole.parent() else { return Ok(Kin::Orphan(name)) };
    let listing = Listing::new(around)?;
    let train: Vec<PathBuf> = if folder {
        let train = listing.folders.iter().find(|name| usual(name) == Some(TRAIN));
        train.map(|name| around.join(name)).into_iter().collect()
    } else {
        let format = SourceFormat::by_name(&whole);
        let is = |name: &str| usual(&start(name)) == Some(TRAIN) && SourceFormat::by_name(Path::new(name)) == format;
        listing.paths(is)
    };
    Ok(if train.is_empty() { Kin::Orphan(name) } else { Kin::Train(train) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::folder::tests::tree;

    /// Returns the name of each split and its files, relative to the root.
    fn found(root: &tempfile::TempDir) -> Vec<(String, Vec<String>)> {
        let path = |path: &PathBuf| path.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned();
        let splits = splits(root.path()).unwrap();
        splits.into_iter().map(|split| (split.name, split.files.iter().map(path).collect())).collect()
    }

    fn split(name: &str, files: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
    }

    #[test]
    fn data_sets_as_they_are_unpacked() {
        let revision = "datasets/snapshots/4be2";
        let hub = ["datasets/refs/main", "datasets/blobs/0a", &format!("{revision}/data/train-00000-of-00001.parquet")];
        let hub: Vec<&str> =
            hub.into_iter().chain(["datasets/snapshots/4be2/data/test-00000-of-00001.parquet"]).collect();
        for (files, want) in [
            (
                &["train/cat/1.jpg", "val/cat/2.jpg", "README.md"][..],
                vec![split("train", &["train"]), split("val", &["val"])],
            ),
            (
                &["train-000000.tar", "train-000001.tar", "val-000000.tar", "info.json"],
                vec![split("train", &["train-000000.tar", "train-000001.tar"]), split("val", &["val-000000.tar"])],
            ),
            (
                &["README.md", "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet"],
                vec![
                    split("train", &["data/train-00000-of-00001.parquet"]),
                    split("validation", &["data/validation-00000-of-00001.parquet"]),
                ],
            ),
            (
                &["data_batch_2.bin", "data_batch_1.bin", "test_batch.bin", "batches.meta.txt", "readme.html"],
                vec![split("train", &["data_batch_1.bin", "data_batch_2.bin"]), split("test", &["test_batch.bin"])],
            ),
            (
                &["train.bin", "test.bin", "fine_label_names.txt"],
                vec![split("train", &["train.bin"]), split("test", &["test.bin"])],
            ),
            (
                &["train-images-idx3-ubyte.gz", "train-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"],
                vec![split("train", &["train-images-idx3-ubyte"]), split("test", &["t10k-images-idx3-ubyte.gz"])],
            ),
            (
                &["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"],
                vec![split("train", &["ILSVRC2012_img_train.tar"]), split("val", &["ILSVRC2012_img_val.tar"])],
            ),
            // Without splits: classes of vehicles (one is called train), shards of one data set, class folders.
            (&["train/1.jpg", "tram/1.jpg"], vec![]),
            (&["train-000000.tar", "train-000001.tar"], vec![]),
            (&["a-0.tar", "b-0.tar"], vec![]),
            (&["cat/1.jpg", "dog/1.jpg"], vec![]),
        ] {
            assert_eq!(found(&tree(files)), want, "{files:?}");
        }
        let root = tree(&hub);
        fs::write(root.path().join("datasets/refs/main"), "4be2\n").unwrap();
        let train = find(&root.path().join("datasets"), Some("train")).unwrap().unwrap();
        assert_eq!(train.files, [root.path().join(revision).join("data/train-00000-of-00001.parquet")]);
        fs::create_dir(root.path().join("datasets/snapshots/aaaa")).unwrap();
        assert!(find(&root.path().join("datasets"), Some("test")).is_ok(), "refs/main says which");
        fs::remove_file(root.path().join("datasets/refs/main")).unwrap();
        let error = find(&root.path().join("datasets"), Some("test")).unwrap_err().to_string();
        assert!(error.contains("2 revisions"), "{error}");
    }

    #[test]
    fn a_revision_is_a_folder_of_the_cache() {
        let root = tree(&["cache/refs/main", "cache/snapshots/4be2/cat/1.jpg", "other/dog/1.jpg"]);
        let (cache, main) = (root.path().join("cache"), root.path().join("cache/refs/main"));
        let absolute = root.path().join("other").display().to_string();
        for path in ["../../other", "../../..", "..", ".", "", "4be2/cat", "4be2/..", "./4be2", &absolute] {
            fs::write(&main, format!("{path}\n")).unwrap();
            let error = find(&cache, None).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(main.to_str().unwrap()), "{path:?}: {error}");
        }
        fs::write(&main, "4be2\n").unwrap();
        assert_eq!(find(&cache, None).unwrap().unwrap().files, [cache.join("snapshots/4be2")]);
        fs::write(&main, "4be2".repeat(1000)).unwrap();
        assert!(find(&cache, None).unwrap_err().to_string().contains("more than 1024 bytes"));
        #[cfg(unix)]
        {
            fs::remove_file(&main).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&main).status().unwrap().success());
            assert!(find(&cache, None).unwrap_err().to_string().contains("not a regular file"));
        }
    }

    #[test]
    fn a_split_is_named_as_people_name_it() {
        let root = tree(&["train/cat/1.jpg", "validation/cat/2.jpg", "test/cat/3.jpg"]);
        for (wanted, want) in [("val", "validation"), ("valid", "validation"), ("train", "train"), ("test", "test")] {
            let split = find(root.path(), Some(wanted)).unwrap().unwrap();
            assert_eq!((split.name.as_str(), &split.classes[..]), (want, &["cat".to_owned()][..]));
        }
        for (wanted, says) in
            [(None, "one of test, train, validation"), (Some("extra"), "one of test, train, validation")]
        {
            let error = find(root.path(), wanted).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
        }
        let plain = tree(&["cat/1.jpg"]);
        assert_eq!(find(plain.path(), None).unwrap(), None);
        assert!(find(plain.path(), Some("train")).unwrap_err().is_parameter());
    }
}
