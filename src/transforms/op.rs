//! Single operations on single images.

use super::run::{end_gray, load, plan, to_image, to_view};
use super::scratch::with_scratch;
use super::view::View;
use super::view_mut::ViewMut;
use crate::backend::TablesOf;
use crate::error::{Error, Result};
use crate::ops::{Op, PassOrder};
use crate::plan::{Planner, Strategy};
use crate::raster::{DEFAULT_MAX_PIXELS, Image};

/// The tables of results that are not normalized.
static PLAIN: TablesOf = TablesOf::new(None);

/// The settings of operations by themselves: the defaults of pipelines.
const PLANNER: Planner =
    Planner { strategy: Strategy::Fused, order: PassOrder::Pillow13, max_px: DEFAULT_MAX_PIXELS, values: None };

impl Op {
    /// Makes a new image: the operation's result, as a pipeline computes it. Scratch memory is kept for later calls.
    ///
    /// ```
    /// use warpfeed::image::{Image, Size};
    /// use warpfeed::ops::{CenterCrop, Op, Resize};
    ///
    /// let image = Image::new(Size::new(40, 30));
    /// let small = Op::from(Resize::shorter_side(15)).apply(&image)?;
    /// assert_eq!(small.size(), Size::new(20, 15));
    /// assert_eq!(Op::from(CenterCrop::new(8)).apply(&small)?.size(), Size::new(8, 8));
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Parameter`] for an empty image, for parameters that are wrong or do not fit the image, and for
    /// [`Normalize`](crate::ops::Normalize), which makes no bytes; [`Error::Limits`] for an image that is too large;
    /// [`Error::OutOfMemory`] if there is no memory for the result; [`Error::Unsupported`] for an operation with other
    /// samples; [`Error::Panic`] if an operation of the caller's own panics.
    pub fn apply(&self, image: &Image) -> Result<Image> {
        let image = View::of_image(image)?;
        with_scratch(|scratch| {
            let plan = plan(&PLANNER, &image, std::slice::from_ref(self))?;
            load(scratch, &plan, image)?;
            let mut made = Image::default();
            to_image(scratch, &plan, &mut made)?;
            Ok(made)
        })
    }

    /// Writes the operation's result to the caller's memory, whose size is that of [`output_size`](Self::output_size).
    /// Only the part of `image` that the result needs is read. See [`ViewMut`] for an example, and for the types of
    /// elements.
    ///
    /// # Errors
    /// The errors of [`apply`](Self::apply), but for `Normalize`, which may write floating-point numbers;
    /// [`Error::Parameter`] for an output of another size or number of channels, or of a type that would need a
    /// conversion; [`Error::Unsupported`] for an operation on colors where the image is neither gray nor RGB of 8 bits.
    pub fn apply_to(&self, image: View<'_>, out: ViewMut<'_>) -> Result<()> {
        self.run(Some(image), out)
    }

    /// Replaces an image by the operation's result, which has its size. The image is copied first, so a result that
    /// could not be made leaves it as it was. See [`ViewMut`] for an example.
    ///
    /// # Errors
    /// The errors of [`apply_to`](Self::apply_to); [`Error::Parameter`] if the operation changes the image's size;
    /// [`Error::Unsupported`] for 16-bit floating-point numbers.
    pub fn apply_in_place(&self, image: ViewMut<'_>) -> Result<()> {
        self.run(None, image)
    }

    /// Runs the operation on `image`, or, without one, on the output.
    fn run(&self, image: Option<View<'_>>, out: ViewMut<'_>) -> Result<()> {
        with_scratch(|scratch| {
            let input = image.map_or_else(|| out.as_view(), Ok)?;
            let values = input.values();
            let mut ops = vec![self.clone()];
            if values.is_none() && out.channels() == 1 {
                end_gray(&mut ops);
            }
            let plan = plan(&Planner { values, ..PLANNER }, &input, &ops)?;
            if image.is_none() && plan.size != input.size() {
                let expected = format!("one that keeps the size, {}", input.size());
                return Err(Error::parameter(self.name(), "operation", expected, format!("a result of {}", plan.size)));
            }
            match plan.epilogue.normalize {
                None => to_view(scratch, &plan, image, values, &PLAIN, out),
                normalize => {
                    let tables = TablesOf::new(normalize.filter(|_| values.is_none()));
                    to_view(scratch, &plan, image, values, &tables, out)
                }
            }
        })
    }
}
