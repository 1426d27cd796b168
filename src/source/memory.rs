//! Images in memory, encoded or as RGB bytes.

use super::{ReadRequest, Sample, Source, as_in, no_fields, no_such_sample};
use crate::error::{Error, Result};
use crate::raster::Size;
use crate::targets::Target;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Encoded images that are already in memory, each with its label, or all without.
///
/// ```
/// # use warpfeed::source::{EncodedImages, Source};
/// let source = EncodedImages::new([(vec![0xff, 0xd8], 3), (vec![0x89, 0x50], 4)]);
/// assert_eq!((source.len(), source.label(1)), (2, Some(4)));
/// assert_eq!(source.encoded(1)?, [0x89, 0x50]);
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct EncodedImages {
    images: Vec<(Vec<u8>, Option<u32>)>,
    classes: Vec<String>,
    /// Targets by field, one for each image.
    targets: BTreeMap<String, Vec<Target>>,
}

impl EncodedImages {
    /// Makes a source of images in this order: the bytes of each (a JPEG, PNG or WebP file) and its label.
    #[must_use]
    pub fn new(images: impl IntoIterator<Item = (Vec<u8>, u32)>) -> Self {
        Self { images: images.into_iter().map(|(bytes, label)| (bytes, Some(label))).collect(), ..Self::default() }
    }

    /// Makes a source of images without labels in this order: the bytes of each.
    #[must_use]
    pub fn unlabeled(images: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self { images: images.into_iter().map(|bytes| (bytes, None)).collect(), ..Self::default() }
    }

    /// Names the labels, label 0 first.
    #[must_use]
    pub fn with_classes(mut self, classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a field of targets, one for each image.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the numbers of targets and images differ.
    pub fn with_targets(mut self, field: impl Into<String>, targets: impl IntoIterator<Item = Target>) -> Result<Self> {
        let targets: Vec<Target> = targets.into_iter().collect();
        if targets.len() != self.images.len() {
            let expected = format!("one for each of {} images", self.images.len());
            return Err(Error::parameter("with_targets", "targets", expected, targets.len()));
        }
        self.targets.insert(field.into(), targets);
        Ok(self)
    }

    /// Returns the targets of a field, one for each image.
    fn field(&self, field: &str) -> Result<&[Target]> {
        let fields = || self.targets.keys().cloned().collect::<Vec<_>>().join(", ");
        self.targets.get(field).map(Vec::as_slice).ok_or_else(|| no_fields(fields(), field))
    }
}

impl Source for EncodedImages {
    fn len(&self) -> u64 {
        self.images.len() as u64
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        let found = usize::try_from(index).ok().and_then(|i| self.images.get(i));
        let (bytes, _) = found.ok_or_else(|| no_such_sample("EncodedImages::read", index, self.len()))?;
        if let Some(field) = want.target {
            sample.set_target(self.field(field)?[index as usize].clone());
        }
        sample.lend(bytes);
        Ok(())
    }

    fn label(&self, index: u64) -> Option<u32> {
        self.images[index as usize].1
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("image {index} in memory").into()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn check_field(&self, field: &str) -> Result<()> {
        self.field(field).map(drop)
    }
}

/// Images in memory as arrays of RGB bytes, each with its label, or all without.
///
/// A pipeline uses the pixels without decoding. Each pixel takes 3 bytes.
///
/// ```
/// use warpfeed::{DType, Layout, Pipeline, source::DecodedImages, image::Size};
/// use warpfeed::ops::CenterCrop;
///
/// // Two images of 2 x 1 pixels: red and green, blue and white.
/// let images = [([255, 0, 0, 0, 255, 0], 3), ([0, 0, 255, 255, 255, 255], 4)];
/// let images = images.map(|(rgb, label)| (Size::new(2, 1), rgb, label));
/// let pipeline = Pipeline::builder(DecodedImages::new(images)?)
///     .batch_size(2)
///     .transform(CenterCrop::new(1))
///     .output(DType::U8, Layout::Nhwc)
///     .build()?;
/// let batch = pipeline.epoch(0).next().unwrap()?;
/// assert_eq!((batch.images().as_slice::<u8>()?, batch.labels()?), (&[255, 0, 0, 0, 0, 255][..], &[3, 4][..]));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct DecodedImages {
    /// The pixels in place of encoded bytes.
    images: EncodedImages,
    sizes: Vec<Size>,
}

impl DecodedImages {
    /// Makes a source of images in this order: the size of each, its pixels row by row with interleaved red, green and
    /// blue values, and its label. The pixels are copied once, here.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a size is empty or the pixels are not `3 * width * height` bytes.
    pub fn new<P: AsRef<[u8]>>(images: impl IntoIterator<Item = (Size, P, u32)>) -> Result<Self> {
        Self::with(images.into_iter().map(|(size, rgb, label)| (size, rgb, Some(label))))
    }

    /// Makes a source of images without labels in this order: the size of each, and its pixels as in
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn unlabeled<P: AsRef<[u8]>>(images: impl IntoIterator<Item = (Size, P)>) -> Result<Self> {
        Self::with(images.into_iter().map(|(size, rgb)| (size, rgb, None)))
    }

    fn with<P: AsRef<[u8]>>(images: impl Iterator<Item = (Size, P, Option<u32>)>) -> Result<Self> {
        let (mut all, mut sizes) = (Vec::new(), Vec::new());
        for (index, (size, rgb, label)) in images.enumerate() {
            let rgb = rgb.as_ref();
            if size.is_empty() || rgb.len() as u64 != 3 * size.area_px() {
                return Err(Error::parameter(
                    "DecodedImages::new",
                    "images",
                    format!("3 bytes for each of {size} pixels, at least one pixel"),
                    format!("{} bytes for image {index}", rgb.len()),
                ));
            }
            all.push((rgb.to_vec(), label));
            sizes.push(size);
        }
        Ok(Self { images: EncodedImages { images: all, ..EncodedImages::default() }, sizes })
    }

    /// Names the labels, label 0 first.
    #[must_use]
    pub fn with_classes(self, classes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { images: self.images.with_classes(classes), ..self }
    }

    /// Adds a field of targets, one for each image.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the numbers of targets and images differ.
    pub fn with_targets(self, field: impl Into<String>, targets: impl IntoIterator<Item = Target>) -> Result<Self> {
        Ok(Self { images: self.images.with_targets(field, targets)?, ..self })
    }
}

impl Source for DecodedImages {
    as_in!(|self| self.images; len label name classes check_field);

    fn image_size(&self) -> Option<Size> {
        let first = *self.sizes.first()?;
        self.sizes.iter().all(|size| *size == first).then_some(first)
    }

    fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        self.images.read(index, want, sample)?;
        sample.set_pixels(self.sizes[index as usize], 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_borrowed_and_a_wrong_index_is_an_error() {
        let source = EncodedImages::new(vec![(vec![1, 2, 3], 5)]).with_classes(["zero"]);
        let mut sample = Sample::with_buffer(vec![9]);
        source.read(0, &ReadRequest::IMAGE, &mut sample).unwrap();
        assert_eq!(sample.bytes().as_ptr(), source.images[0].0.as_ptr());
        assert_eq!(sample.into_buffer(), [9], "the buffer is not touched");
        assert_eq!(
            (source.label(0), source.name(0), source.classes()),
            (Some(5), "image 0 in memory".into(), &["zero".to_owned()][..])
        );
        let error = source.encoded(1).unwrap_err().to_string();
        assert!(error.contains("below 1") && error.contains("got 1"), "{error}");
        assert!(EncodedImages::default().is_empty());
        let unlabeled = EncodedImages::unlabeled([vec![1], vec![2]]);
        assert_eq!((unlabeled.len(), unlabeled.label(1), unlabeled.has_labels()), (2, None, false));
    }

    #[test]
    fn decoded_images_are_their_pixels_and_are_borrowed() {
        let sizes = [Size::new(1, 1), Size::new(7, 3), Size::new(3, 7), Size::new(33, 1)];
        let images = sizes.map(|size| {
            let rgb: Vec<u8> = (0..3 * size.area_px()).map(|i| (i * 37 % 256) as u8).collect();
            (size, rgb, size.width)
        });
        let source = DecodedImages::new(images.clone()).unwrap().with_classes(["zero"]);
        assert_eq!((source.len(), source.classes()), (4, &["zero".to_owned()][..]));
        let mut sample = Sample::default();
        for (index, (size, rgb, label)) in (0..).zip(&images) {
            source.read(index, &ReadRequest::IMAGE, &mut sample).unwrap();
            let lent = &source.images.images[index as usize].0;
            assert_eq!((sample.bytes().as_ptr(), sample.pixels()), (lent.as_ptr(), Some((*size, 3))));
            let bytes = source.encoded(index).unwrap();
            let header = crate::decode::probe(&bytes).unwrap();
            let mut image = crate::raster::Image::default();
            let whole = crate::raster::Rect::full(*size);
            crate::decode::Decoder::new().unwrap().decode(&bytes, &header, whole, false, &mut image).unwrap();
            assert_eq!((image.size(), &image.to_rgb(), source.label(index)), (*size, rgb, Some(*label)));
        }
        let error = source.encoded(4).unwrap_err().to_string();
        assert!(error.contains("below 4"), "{error}");
    }

    #[test]
    fn bytes_are_pixels_only_if_they_are_all_of_them() {
        let mut sample = Sample::default();
        for (size, channels, is_right) in [
            (Size::new(3, 2), 1, true),
            (Size::new(2, 1), 3, true),
            (Size::new(3, 1), 2, false),
            (Size::new(7, 1), 1, false),
            (Size::new(5, 1), 1, false),
            (Size::new(0, 6), 1, false),
            (Size::new(u32::MAX, u32::MAX), 3, false),
        ] {
            sample.lend(&[0; 6]);
            let set = sample.set_pixels(size, channels);
            assert!(set.as_ref().map_or_else(|error| error.is_bad_sample(), |()| true), "{set:?}");
            assert_eq!((set.is_ok(), sample.pixels()), (is_right, is_right.then_some((size, channels))));
        }
        sample.lend(&[0; 6]);
        sample.set_pixels(Size::new(6, 1), 1).unwrap();
        sample.keep(0..5);
        assert_eq!(sample.pixels(), None);
        sample.lend(&[0; 6]);
        sample.set_pixels(Size::new(6, 1), 1).unwrap();
        sample.buffer();
        assert_eq!(sample.pixels(), None);
    }

    #[test]
    fn arrays_that_are_no_images_are_refused() {
        for (size, len) in [(Size::new(0, 0), 0), (Size::new(3, 0), 0), (Size::new(2, 2), 11), (Size::new(2, 2), 16)] {
            let good = (Size::new(1, 1), vec![0; 3], 0);
            let error = DecodedImages::new([good, (size, vec![0; len], 0)]).unwrap_err().to_string();
            assert!(error.contains(&format!("{len} bytes for image 1")), "{error}");
        }
    }
}
