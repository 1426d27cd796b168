//! CIFAR-10 and CIFAR-100 in their binary version.

use super::idx::interleave;
use super::window::read_exact_at;
use super::{ReadRequest, Sample, Source, no_fields, no_such_sample};
use crate::error::{Error, Result};
use crate::os::file::{if_there, open_with_metadata, read_text_limited};
use crate::raster::Size;
use crate::targets::Target;
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIDE: u32 = 32;
const CHANNELS: u8 = 3;
const IMAGE_BYTES: usize = (SIDE * SIDE) as usize * CHANNELS as usize;

/// The field of CIFAR-100's second label, the superclass.
const COARSE: &str = "coarse";

/// Largest size of a file of class names, in bytes.
const MAX_NAMES_BYTES: u64 = 1 << 16;

/// The data set that files belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Records of a label and an image.
    Cifar10,
    /// Records of a coarse label, a fine one, and an image.
    Cifar100,
}

impl Kind {
    fn label_bytes(self) -> usize {
        match self {
            Self::Cifar10 => 1,
            Self::Cifar100 => 2,
        }
    }

    fn classes(self) -> u8 {
        match self {
            Self::Cifar10 => 10,
            Self::Cifar100 => 100,
        }
    }

    /// Name of the file next to the images that names the classes, one on each line.
    fn names(self) -> &'static str {
        match self {
            Self::Cifar10 => "batches.meta.txt",
            Self::Cifar100 => "fine_label_names.txt",
        }
    }
}

/// CIFAR-10 or CIFAR-100 in the binary version: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or
/// `train.bin` and `test.bin`. Class names come from `batches.meta.txt` or `fine_label_names.txt` next to these files,
/// if it exists.
///
/// The label of CIFAR-100 is the fine one; the coarse one is the field `coarse` of its targets.
///
/// ```
/// # use warpfeed::source::{CifarFiles, Source};
/// let folder = tempfile::tempdir().unwrap();
/// let batch = folder.path().join("test_batch.bin");
/// let mut record = vec![7; 1 + 3 * 32 * 32]; // a label, then all red, all green and all blue values
/// std::fs::write(&batch, &record).unwrap();
/// let source = CifarFiles::cifar10([batch])?;
/// assert_eq!((source.len(), source.label(0)), (1, Some(7)));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CifarFiles {
    kind: Kind,
    files: Vec<Batch>,
    /// The label bytes of each sample, as in the files.
    labels: Vec<u8>,
    classes: Vec<String>,
}

#[derive(Debug, Clone)]
struct Batch {
    path: PathBuf,
    file: Arc<File>,
    /// Index of the file's first image.
    first: u64,
}

impl CifarFiles {
    /// Opens files of CIFAR-10, in this order.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Decode`] if it is not a file of CIFAR-10, [`Error::Parameter`]
    /// if there are no files.
    pub fn cifar10(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        Self::open(Kind::Cifar10, files)
    }

    /// Opens files of CIFAR-100, in this order.
    ///
    /// # Errors
    /// The errors of [`cifar10`](Self::cifar10), for files of CIFAR-100.
    pub fn cifar100(files: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        Self::open(Kind::Cifar100, files)
    }

    fn open(kind: Kind, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Self> {
        let mut this = Self { kind, files: Vec::new(), labels: Vec::new(), classes: Vec::new() };
        for path in paths {
            this.add(path.as_ref())?;
        }
        let Some(first) = this.files.first() else {
            return Err(Error::parameter("CifarFiles::open", "files", "one at least", "none"));
        };
        this.classes = classes(kind, &first.path)?;
        Ok(this)
    }

    fn add(&mut self, path: &Path) -> Result<()> {
        let (file, metadata) = open_with_metadata(path)?;
        let damaged = |message: String| Error::decode("CIFAR", format!("{}: {message}", path.display()));
        let (len_bytes, record_bytes) = (metadata.len(), self.record_bytes());
        if len_bytes == 0 || len_bytes % record_bytes != 0 {
            let expected = format!("{len_bytes} bytes are not records of {record_bytes}, as {:?} has", self.kind);
            return Err(damaged(expected));
        }
        let (first, images) = (self.len(), len_bytes / record_bytes);
        let label_bytes = self.kind.label_bytes();
        for image in 0..images {
            let mut labels = [0; 2];
            let labels = &mut labels[..label_bytes];
            read_exact_at(&file, labels, image * record_bytes).map_err(Error::io("read", path))?;
            let class = labels[label_bytes - 1];
            if class >= self.kind.classes() {
                return Err(damaged(format!("image {image} has the label {class}, which {:?} has not", self.kind)));
            }
            self.labels.extend_from_slice(labels);
        }
        self.files.push(Batch { path: path.to_owned(), file: file.into(), first });
        Ok(())
    }

    fn record_bytes(&self) -> u64 {
        (self.kind.label_bytes() + IMAGE_BYTES) as u64
    }

    /// Returns the file of an image, and the image's number in that file.
    fn batch(&self, index: u64) -> (&Batch, u64) {
        let batch = &self.files[self.files.partition_point(|batch| batch.first <= index) - 1];
        (batch, index - batch.first)
    }
}

/// Reads the names of the classes from the file next to `file`. Returns none if that file is missing.
fn classes(kind: Kind, file: &Path) -> Result<Vec<String>> {
    let path = file.with_file_name(kind.names());
    let Some(text) = if_there(read_text_limited(&path, MAX_NAMES_BYTES))? else { return Ok(Vec::new()) };
    let names: Vec<String> = text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() != usize::from(kind.classes()) {
        let message = format!("{}: {} names, and {} classes", path.display(), names.len(), kind.classes());
        return Err(Error::decode("CIFAR", message));
    }
    Ok(names)
}

impl Source for CifarFiles {
    fn len(&self) -> u64 {
        (self.labels.len() / self.kind.label_bytes()) as u64
    }

    /// CIFAR-100 has the field `coarse`.
    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        if index >= self.len() {
            return Err(no_such_sample("CifarFiles::read", index, self.len()));
        }
        if let Some(field) = want.target {
            self.check_field(field)?;
            sample.set_target(Target::Class(self.labels[index as usize * 2].into()));
        }
        if !want.image {
            return Ok(());
        }
        let (batch, image) = self.batch(index);
        let mut planes = [0; IMAGE_BYTES];
        let at = image * self.record_bytes() + self.kind.label_bytes() as u64;
        read_exact_at(&batch.file, &mut planes, at).map_err(Error::io("read", &batch.path))?;
        interleave(&planes, sample.buffer());
        sample.set_pixels(Size::new(SIDE, SIDE), CHANNELS)
    }

    fn label(&self, index: u64) -> Option<u32> {
        let label_bytes = self.kind.label_bytes();
        Some(self.labels[index as usize * label_bytes + label_bytes - 1].into())
    }

    fn image_size(&self) -> Option<Size> {
        Some(Size::new(SIDE, SIDE))
    }

    fn check_field(&self, field: &str) -> Result<()> {
        match (self.kind, field) {
            (Kind::Cifar100, COARSE) => Ok(()),
            (Kind::Cifar100, other) => Err(no_fields("`coarse` beside its label", other)),
            (Kind::Cifar10, other) => Err(no_fields("a label alone", other)),
        }
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        let (batch, image) = self.batch(index);
        format!("{} image {image}", batch.path.display()).into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A record whose pixel `i` of channel `c` is `i + 85 c`.
    fn record(labels: &[u8]) -> Vec<u8> {
        let pixels = (0..3).flat_map(|channel| (0..1024_usize).map(move |i| (i + 85 * channel) as u8));
        labels.iter().copied().chain(pixels).collect()
    }

    fn written(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let folder = tempfile::tempdir().unwrap();
        let path = |(name, content): &(&str, Vec<u8>)| {
            fs::write(folder.path().join(name), content).unwrap();
            folder.path().join(name)
        };
        let paths = files.iter().map(path).collect();
        (folder, paths)
    }

    #[test]
    fn images_and_labels_of_both() {
        let (folder, paths) =
            written(&[("data_batch_1.bin", [record(&[3]), record(&[9])].concat()), ("data_batch_2.bin", record(&[0]))]);
        let names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
        fs::write(folder.path().join("batches.meta.txt"), names).unwrap();
        let source = CifarFiles::cifar10(&paths).unwrap();
        assert_eq!((0..3).filter_map(|i| source.label(i)).collect::<Vec<_>>(), [3, 9, 0]);
        assert_eq!((source.classes()[3].as_str(), source.name(2).ends_with("data_batch_2.bin image 0")), ("cat", true));
        let mut sample = Sample::with_buffer(vec![1; 9000]);
        source.read(1, &ReadRequest::IMAGE, &mut sample).unwrap();
        let image = sample.encoded();
        assert_eq!(image.split_at(19), (&b"P6\n32 32\n255\n\x00\x55\xaa\x01\x56\xab"[..], &image[19..]));
        assert_eq!(image.len(), 13 + 3072);
        assert!(source.encoded(3).unwrap_err().is_parameter());
        assert!(source.target(0, "coarse").unwrap_err().is_parameter());

        let (_folder, paths) = written(&[("test.bin", [record(&[19, 99]), record(&[4, 0])].concat())]);
        let source = CifarFiles::cifar100(&paths).unwrap();
        assert_eq!((source.label(0).unwrap(), source.target(0, "coarse").unwrap()), (99, Target::Class(19)));
        assert_eq!(source.encoded(1).unwrap()[13..16], [0, 85, 170]);
    }

    #[test]
    fn other_files_are_refused() {
        let (_folder, paths) = written(&[
            ("data_batch_1.bin", record(&[3])[..3072].to_vec()),
            ("data_batch_2.bin", record(&[10])),
            ("data_batch_3.bin", Vec::new()),
        ]);
        for (path, says) in paths.iter().zip(["not records of 3073", "the label 10", "0 bytes"]) {
            let error = CifarFiles::cifar10([path]).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("data_batch_"), "{error}");
        }
        assert!(CifarFiles::cifar10([""; 0]).unwrap_err().is_parameter());
        let (folder, paths) = written(&[("test_batch.bin", record(&[3]))]);
        fs::write(folder.path().join("batches.meta.txt"), "airplane\n").unwrap();
        assert!(CifarFiles::cifar10(&paths).unwrap_err().to_string().contains("1 names"));
        fs::File::create(folder.path().join("batches.meta.txt")).unwrap().set_len(1 << 40).unwrap();
        assert!(CifarFiles::cifar10(&paths).unwrap_err().to_string().contains("more than 65536 bytes"));
        #[cfg(unix)]
        {
            let pipe = folder.path().join("batches.meta.txt");
            fs::remove_file(&pipe).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
            assert!(CifarFiles::cifar10(&paths).unwrap_err().to_string().contains("not a regular file"));
        }
    }
}
