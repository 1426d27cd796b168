//! The image that annotations refer to: as it is stored, or as its EXIF tag turns it. Only this file compares sizes.

// An annotator sees either the stored image or, in browsers and most tools, the upright one; the size that is written
// down tells which, unless both have the same. Then the annotations are taken for the stored image's, as torchvision's
// CocoDetection and VOCDetection, TensorFlow's decoder and datasets have it: they do not turn images. detectron2 and
// Ultralytics do.

use crate::decode::Header;
use crate::error::Result;
use crate::fields::Fields;
use crate::raster::Size;

/// The image that annotations are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// The size of that image.
    pub size: Size,
    /// The EXIF tag that turns the stored image into it; 1 for the stored image itself.
    tag: u8,
}

impl Frame {
    /// The stored image, to which annotations without a size refer.
    pub fn stored(header: &Header) -> Self {
        Self { size: header.size, tag: 1 }
    }

    /// The image that annotations of a stated size are of.
    ///
    /// # Errors
    /// A message with both sizes if the image has neither stored nor upright the stated size.
    pub fn of(header: &Header, stated: Size) -> Result<Self, String> {
        let turned = header.orientation >= 5;
        match header.size {
            size if size == stated => Ok(Self::stored(header)),
            size if turned && size.transposed() == stated => Ok(Self { size: stated, tag: header.orientation }),
            size => {
                let upright = if turned { format!(", {} upright", size.transposed()) } else { String::new() };
                Err(format!("it is of an image of {stated} pixels, which has {size}{upright}"))
            }
        }
    }

    /// The frame of annotations that may state a size.
    ///
    /// # Errors
    /// The message of [`of`](Self::of).
    pub fn of_stated(header: &Header, stated: Option<Size>) -> Result<Self, String> {
        stated.map_or_else(|| Ok(Self::stored(header)), |stated| Self::of(header, stated))
    }

    /// Turns fields of this image into those of the stored image.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a mask has not the size of this image.
    pub fn to_stored(self, fields: Fields) -> Result<Fields> {
        // A quarter turn is undone by the other one, and what mirrors by itself.
        let back = match self.tag {
            6 => 8,
            8 => 6,
            tag => tag,
        };
        fields.turned(self.size, back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::field_mover::FieldMover;
    use crate::decode::probe;
    use crate::encode::{JpegOptions, encode_jpeg};
    use crate::fields::{BOXES, BoxFormat, Boxes, Field, KEYPOINTS, KeyPoints, MASK, MASKS, Mask};
    use crate::ops::filter::PassOrder;
    use crate::ops::orientation::{Orientation, oriented};
    use crate::plan::{Planner, Strategy};
    use crate::raster::{DEFAULT_MAX_PIXELS, Image};

    fn header(size: Size, orientation: u16) -> Header {
        let options = JpegOptions { orientation: Some(orientation), ..JpegOptions::default() };
        probe(&encode_jpeg(&Image::new(size), &options).unwrap()).unwrap()
    }

    #[test]
    fn the_stated_size_decides_and_another_is_named_with_the_images() {
        let (wide, high) = (Size::new(20, 10), Size::new(10, 20));
        for tag in 1..=8_u8 {
            let header = header(wide, tag.into());
            assert_eq!(Frame::of(&header, wide), Ok(Frame { size: wide, tag: 1 }), "{tag}");
            let upright = Frame::of(&header, high);
            if tag >= 5 {
                assert_eq!(upright, Ok(Frame { size: high, tag }));
            } else {
                assert!(upright.unwrap_err().contains("of an image of 10 x 20 pixels, which has 20 x 10"), "{tag}");
            }
        }
        let neither = Frame::of(&header(wide, 6), Size::new(40, 20)).unwrap_err();
        assert_eq!(neither, "it is of an image of 40 x 20 pixels, which has 20 x 10, 10 x 20 upright");
        // Where both sizes are equal, annotations are of the stored image.
        let square = Size::new(9, 9);
        assert_eq!(Frame::of(&header(square, 6), square), Ok(Frame { size: square, tag: 1 }));
    }

    /// Fields of the upright image come back after they are turned to the stored image and upright again.
    #[test]
    fn fields_of_the_upright_image_lie_on_it_again_once_it_is_turned() {
        let planner = Planner {
            strategy: Strategy::Sequential,
            order: PassOrder::default(),
            max_px: DEFAULT_MAX_PIXELS,
            values: None,
        };
        let upright = Size::new(6, 9);
        let plane = |of: fn(u32, u32) -> bool| -> Vec<u8> {
            (0..upright.area_px() as u32).map(|i| of(i % 6, i / 6).into()).collect()
        };
        let points = KeyPoints::of_objects(2, vec![[1.5, 2.5], [4.5, 7.0]], vec![2, 1]).unwrap();
        let fields = Fields::new()
            .with(BOXES, Boxes::new(BoxFormat::Xywh, vec![[1.0, 2.0, 3.0, 4.0]]))
            .and_then(|fields| fields.with(KEYPOINTS, points.flip_index([1, 0]).unwrap()))
            .and_then(|fields| fields.with(MASKS, Mask::of_objects(upright, [plane(|x, y| x < 2 && y > 5)]).unwrap()))
            .and_then(|fields| fields.with(MASK, Mask::new(upright, plane(|x, y| x + y == 7)).unwrap().with_fill(255)))
            .and_then(|fields| fields.with("area", vec![3.0]))
            .unwrap();
        for tag in 5..=8_u8 {
            let header = header(upright.transposed(), tag.into());
            let stored = Frame::of(&header, upright).unwrap().to_stored(fields.clone()).unwrap();
            let Some(Field::Mask(mask)) = stored.get(MASK) else { panic!("{stored:?}") };
            assert_eq!(mask.size(), header.size, "{tag}");
            let ops = oriented(tag, Orientation::Apply);
            let (back, size) = FieldMover::default().follow(stored, header.size, &ops, &planner).unwrap();
            assert_eq!((back, size), (fields.clone(), upright), "{tag}");
        }
    }
}
