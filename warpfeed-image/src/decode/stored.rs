//! Values as files store them, and their conversion to the values of [`Planes`].
//!
//! Types that [`Planes`] lack are converted where this is exact: whole numbers with a sign of 8 and 16 bits, and
//! floating-point numbers of 16 bits, become `f32`.

use crate::planes::{Element, MAX_CHANNELS, PixelKind, Planes, Value};

/// The type of a stored value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    U8,
    U16,
    I8,
    I16,
    F16,
    F32,
}

/// The order of a value's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub(super) const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };
}

impl Stored {
    /// The type of the values in [`Planes`].
    pub(super) const fn element(self) -> Element {
        match self {
            Self::U8 => Element::U8,
            Self::U16 => Element::U16,
            Self::I8 | Self::I16 | Self::F16 | Self::F32 => Element::F32,
        }
    }

    /// Number of bytes of a value.
    pub(super) const fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The numbers of all channels that an image may have.
const ALL_BANDS: [u16; MAX_CHANNELS as usize] = {
    let mut all = [0; MAX_CHANNELS as usize];
    let mut i = 0;
    while i < all.len() {
        all[i] = i as u16;
        i += 1;
    }
    all
};

/// The numbers of all channels of an image.
pub fn all_bands(kind: PixelKind) -> &'static [u16] {
    &ALL_BANDS[..usize::from(kind.channels)]
}

/// Pixels of a row that follow each other in a file.
#[derive(Clone, Copy)]
pub(super) struct StoredPixels<'a> {
    /// The stored bytes: all channels of a pixel, then the next pixel.
    pub(super) bytes: &'a [u8],
    pub(super) stored: Stored,
    pub(super) order: ByteOrder,
    /// Number of values of a pixel.
    pub(super) channels: usize,
}

/// Places in a plane for a row's pixels: the first is `start`, and each is `step` after the one before.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) start: usize,
    pub(super) count: usize,
    pub(super) step: usize,
}

impl StoredPixels<'_> {
    /// Writes channel `band` of the pixels to channel `to` of the planes. The planes have the type that
    /// [`Stored::element`] says.
    pub(super) fn write(&self, band: usize, planes: &mut Planes, to: usize, places: Places) {
        let is_big = self.order == ByteOrder::Big;
        match self.stored {
            Stored::U8 => self.convert(band, planes.plane_mut(to), places, |[value]| value),
            Stored::I8 => self.convert(band, planes.plane_mut(to), places, |[value]| f32::from(value as i8)),
            Stored::U16 if is_big => self.convert(band, planes.plane_mut(to), places, u16::from_be_bytes),
            Stored::U16 => self.convert(band, planes.plane_mut(to), places, u16::from_le_bytes),
            Stored::I16 if is_big => {
                self.convert(band, planes.plane_mut(to), places, |value| f32::from(i16::from_be_bytes(value)));
            }
            Stored::I16 => {
                self.convert(band, planes.plane_mut(to), places, |value| f32::from(i16::from_le_bytes(value)));
            }
            Stored::F16 if is_big => {
                self.convert(band, planes.plane_mut(to), places, |value| half_to_f32(u16::from_be_bytes(value)));
            }
            Stored::F16 => {
                self.convert(band, planes.plane_mut(to), places, |value| half_to_f32(u16::from_le_bytes(value)));
            }
            Stored::F32 if is_big => self.convert(band, planes.plane_mut(to), places, f32::from_be_bytes),
            Stored::F32 => self.convert(band, planes.plane_mut(to), places, f32::from_le_bytes),
        }
    }

    fn convert<const N: usize, T: Value>(
        &self,
        band: usize,
        plane: &mut [T],
        places: Places,
        load: impl Fn([u8; N]) -> T + Copy,
    ) {
        /// Numbers of channels that are known when compiling let the compiler use vectors.
        fn spread<const N: usize, const C: usize, T>(
            values: &[[u8; N]],
            band: usize,
            to: &mut [T],
            load: impl Fn([u8; N]) -> T,
        ) {
            to.iter_mut().zip(values.as_chunks::<C>().0).for_each(|(to, pixel)| *to = load(pixel[band]));
        }
        let (values, _) = self.bytes.as_chunks::<N>();
        if places.step != 1 {
            let to = plane[places.start..].iter_mut().step_by(places.step).take(places.count);
            to.zip(values.iter().skip(band).step_by(self.channels)).for_each(|(to, value)| *to = load(*value));
            return;
        }
        let to = &mut plane[places.start..][..places.count];
        match self.channels {
            1 => to.iter_mut().zip(values).for_each(|(to, value)| *to = load(*value)),
            2 => spread::<N, 2, T>(values, band, to, load),
            3 => spread::<N, 3, T>(values, band, to, load),
            4 => spread::<N, 4, T>(values, band, to, load),
            channels => {
                to.iter_mut().zip(values.iter().skip(band).step_by(channels)).for_each(|(to, value)| *to = load(*value))
            }
        }
    }
}

/// The value of a floating-point number of 16 bits. All of them exist in 32 bits, and the bits of NaNs are kept.
pub fn half_to_f32(half: u16) -> f32 {
    /// 2^112, the quotient of the two types' smallest normal numbers.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = u32::from(half & 0x7FFF) << 13;
    let bits =
        if half & 0x7C00 == 0x7C00 { magnitude | 0x7F80_0000 } else { (f32::from_bits(magnitude) * SCALE).to_bits() };
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::{Rect, Size};

    #[test]
    fn all_halves_are_exact() {
        for half in 0..=u16::MAX {
            let (exponent, fraction) = (i32::from(half >> 10 & 31), f64::from(half & 0x3FF));
            let magnitude = match exponent {
                0 => fraction * 2_f64.powi(-24),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
            };
            let found = half_to_f32(half);
            assert_eq!(found.is_sign_negative(), half >> 15 == 1, "{half:#x}");
            assert!(f64::from(found.abs()) == magnitude || found.is_nan() && magnitude.is_nan(), "{half:#x}");
            if magnitude.is_nan() {
                assert_eq!(found.to_bits() >> 13 & 0x3FF, u32::from(half & 0x3FF));
            }
        }
    }

    #[test]
    fn channels_come_from_their_places() {
        let size = Size::new(7, 2);
        for stored in [Stored::U8, Stored::U16, Stored::I8, Stored::I16, Stored::F16, Stored::F32] {
            for (channels, order) in [(1, ByteOrder::Little), (2, ByteOrder::Big), (3, ByteOrder::Little)]
                .into_iter()
                .chain([(3, ByteOrder::Big), (4, ByteOrder::Little), (5, ByteOrder::Big), (13, ByteOrder::Little)])
            {
                // The whole number i, and 0 above; negative in types with a sign.
                let value = |i: usize| -> f32 {
                    let magnitude = (i % 100) as f32;
                    if stored.element() == Element::F32 { -magnitude } else { magnitude }
                };
                let bytes: Vec<u8> = (0..7 * channels)
                    .flat_map(|i| {
                        let value = value(i);
                        let mut bytes = match stored {
                            Stored::U8 => vec![value as u8],
                            Stored::I8 => vec![value as i8 as u8],
                            Stored::U16 => (value as u16).to_be_bytes().to_vec(),
                            Stored::I16 => (value as i16).to_be_bytes().to_vec(),
                            Stored::F32 => value.to_be_bytes().to_vec(),
                            Stored::F16 => {
                                (0..=u16::MAX).find(|half| half_to_f32(*half) == value).unwrap().to_be_bytes().to_vec()
                            }
                        };
                        if order == ByteOrder::Little {
                            bytes.reverse();
                        }
                        bytes
                    })
                    .collect();
                let pixels = StoredPixels { bytes: &bytes, stored, order, channels };
                let mut planes = Planes::default();
                planes
                    .reset_part(PixelKind { element: stored.element(), channels: 1 }, size, Rect::full(size))
                    .unwrap();
                for band in 0..channels {
                    pixels.write(band, &mut planes, 0, Places { start: 7, count: 7, step: 1 });
                    pixels.write(band, &mut planes, 0, Places { start: 1, count: 2, step: 3 });
                    let got: Vec<f64> = crate::with_element!(stored.element(), T => planes.values::<T>().iter().map(|v| f64::from(*v)).collect());
                    let want: Vec<f64> = (0..7).map(|x| value(x * channels + band).into()).collect();
                    assert_eq!((got[1], got[4]), (want[0], want[1]), "{stored:?}");
                    assert_eq!(got[7..], want, "{stored:?}, {channels} channels, {order:?}");
                }
            }
        }
    }
}
