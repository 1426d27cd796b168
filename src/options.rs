//! Options: structs with a method for each field, choices with a name for each value, and values as text.

use crate::apply::Thumbnail;
use crate::error::Error;
use crate::raster::Size;

/// Declares a struct of options, and a method with the name and the documentation of each field that sets it.
macro_rules! options {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

/// Declares a struct of options for making images of images: its own, then those that all such structs have.
macro_rules! image_options {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)* }) => {
        options! {
            $(#[$meta])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name {
                $($(#[$doc])* pub $field: $type,)*
                /// Strategy that runs the operations.
                pub strategy: $crate::plan::Strategy,
                /// The pass of a resize that comes first.
                pub pass_order: $crate::ops::filter::PassOrder,
                /// Handling of an EXIF orientation tag.
                pub orientation: $crate::ops::orientation::Orientation,
                /// Decodes a JPEG at a smaller scale whose sides are not below this size: see
                /// [`PipelineBuilder::draft`](crate::PipelineBuilder::draft).
                pub draft: Option<$crate::raster::Size>,
                /// Begins with a thumbnail of the image: see
                /// [`PipelineBuilder::thumbnail`](crate::PipelineBuilder::thumbnail). The recipes of a pipeline have
                /// the thumbnail's operation already; of them only its draft is used.
                pub thumbnail: Option<$crate::apply::Thumbnail>,
                /// Whether truncated JPEGs are accepted.
                pub accept_truncated: bool,
                /// Largest image accepted, in pixels, as stored and after each operation.
                pub max_pixels: u64,
                /// The device that runs the operations.
                pub device: $crate::device::Device,
                /// The decoder of JPEGs if the operations run on a GPU.
                pub jpeg_decoder: $crate::device::JpegDecoder,
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    strategy: $crate::plan::Strategy::default(),
                    pass_order: $crate::ops::filter::PassOrder::default(),
                    orientation: $crate::ops::orientation::Orientation::default(),
                    draft: None,
                    thumbnail: None,
                    accept_truncated: false,
                    max_pixels: $crate::raster::DEFAULT_MAX_PIXELS,
                    device: $crate::device::Device::Cpu,
                    jpeg_decoder: $crate::device::JpegDecoder::Cpu,
                }
            }
        }

        impl $name {
            /// Sets the option of this name, from text.
            ///
            /// # Errors
            /// [`Error::Parameter`](crate::Error::Parameter) for a name that is not an option's, or another text.
            pub fn set(mut self, name: &str, text: &str) -> $crate::error::Result<Self> {
                macro_rules! read {
                    ($option:ident) => {
                        self.$option = $crate::options::read(stringify!($option), text)?
                    };
                }
                match name {
                    $(stringify!($field) => read!($field),)*
                    "strategy" => read!(strategy),
                    "pass_order" => read!(pass_order),
                    "orientation" => read!(orientation),
                    "draft" => read!(draft),
                    "thumbnail" => read!(thumbnail),
                    "accept_truncated" => read!(accept_truncated),
                    "max_pixels" => read!(max_pixels),
                    "device" => read!(device),
                    "jpeg_decoder" => read!(jpeg_decoder),
                    _ => return Err($crate::options::unknown(name)),
                }
                Ok(self)
            }

            pub(crate) fn planner(&self) -> $crate::plan::Planner {
                let &Self { strategy, pass_order: order, max_pixels: max_px, .. } = self;
                $crate::plan::Planner { strategy, order, max_px }
            }

            pub(crate) fn opening(&self) -> $crate::apply::opening::Opening {
                let &Self { orientation, draft, thumbnail, .. } = self;
                $crate::apply::opening::Opening { orientation, draft, thumbnail }
            }

            /// The options of a back end for batches of this number of images.
            pub(crate) fn run_options(&self, images: usize) -> $crate::backend::RunOptions {
                $crate::backend::RunOptions {
                    jpeg_decoder: self.jpeg_decoder,
                    accept_truncated: self.accept_truncated,
                    batch_size: images,
                    batch_images: images,
                    ..$crate::backend::RunOptions::default()
                }
            }
        }
    };
}

/// Gives the values of an enumeration names, by which command lines, files and Python say them.
macro_rules! choices {
    ($type:ident, $what:literal: $($value:ident = $name:literal, $description:literal;)*) => {
        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The name, which `parse` reads.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                $crate::options::choice($what, Self::ALL, Self::name, text)
            }
        }

        impl $crate::options::TextValue for $type {
            const CHOICES: &'static [(&'static str, &'static str)] = &[$(($name, $description)),*];

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| $crate::options::names(Self::ALL, Self::name))
            }
        }
    };
}

/// The value with this name.
pub(crate) fn choice<T: Copy>(
    what: &'static str,
    all: &[T],
    name: fn(T) -> &'static str,
    text: &str,
) -> Result<T, Error> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| Error::parameter(what, "name", names(all, name), format!("{text:?}")))
}

pub(crate) fn names<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    all.iter().map(|value| name(*value)).collect::<Vec<_>>().join(", ")
}

/// Reads the option `name`.
pub(crate) fn read<T: TextValue>(name: &'static str, text: &str) -> Result<T, Error> {
    T::read(text).map_err(|expected| Error::parameter("option", name, expected, format!("{text:?}")))
}

pub(crate) fn unknown(name: &str) -> Error {
    Error::parameter("option", "name", "that of an option", format!("{name:?}"))
}

/// A value that is written as text.
pub(crate) trait TextValue: Sized {
    /// The names of all values, with a line about each; empty if there are other values.
    const CHOICES: &'static [(&'static str, &'static str)] = &[];

    /// Reads a value. For other text: what is expected.
    fn read(text: &str) -> Result<Self, String>;
}

macro_rules! by_from_str {
    ($($type:ty: $expected:literal,)*) => {
        $(impl TextValue for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| $expected.to_owned())
            }
        })*
    };
}

by_from_str! {
    bool: "true or false",
    f64: "a number",
    u32: "a whole number",
    u64: "a whole number",
    usize: "a whole number",
    std::num::NonZeroU64: "a whole number, 1 or more",
    crate::BadLimit: "a number, or a share from 0% to 100%",
    crate::Device: "auto, cpu, cuda or cuda:I",
    crate::Partition: "R/W",
}

/// Types whose errors say more.
macro_rules! by_own_error {
    ($($type:ty),*) => {
        $(impl TextValue for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: Error| error.to_string())
            }
        })*
    };
}

by_own_error!(crate::Mix, crate::TargetSpec);

impl<T: TextValue> TextValue for Option<T> {
    const CHOICES: &'static [(&'static str, &'static str)] = T::CHOICES;

    fn read(text: &str) -> Result<Self, String> {
        T::read(text).map(Some)
    }
}

/// Names with commas between them.
impl TextValue for Vec<String> {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

/// Sides in pixels: `256` for both, or `640x480`.
impl TextValue for Size {
    fn read(text: &str) -> Result<Self, String> {
        let (width, height) = text.split_once('x').unwrap_or((text, text));
        let side = |text: &str| text.parse().ok().filter(|side: &u32| *side > 0);
        let size = side(width).zip(side(height)).map(|(width, height)| Self { width, height });
        size.ok_or_else(|| "a number of pixels, or width x height such as 640x480".to_owned())
    }
}

/// A size, and after a slash the reducing gap, or `none`: `256`, `256x200/3`.
impl TextValue for Thumbnail {
    fn read(text: &str) -> Result<Self, String> {
        let (size, gap) = text.split_once('/').map_or((text, None), |(size, gap)| (size, Some(gap)));
        let thumbnail = Self::new(TextValue::read(size)?);
        Ok(match gap {
            None => thumbnail,
            Some("none") => thumbnail.reducing_gap(None),
            Some(gap) => {
                let gap = gap.parse().map_err(|_| "a number, or none, after the slash".to_owned())?;
                thumbnail.reducing_gap(Some(gap))
            }
        })
    }
}
