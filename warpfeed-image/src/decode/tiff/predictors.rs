//! Predictors: rows of differences become rows of values.

use crate::decode::stored::ByteOrder;

/// Adds up the differences between pixels of `channels` values of `value_bytes` bytes, in a row. The values then have
/// the byte order of this machine.
pub(super) fn add_differences(row: &mut [u8], value_bytes: usize, channels: usize, order: ByteOrder) {
    let is_big = order == ByteOrder::Big;
    match value_bytes {
        1 => by_channels(row, channels, |[value]| value, |value| [value], u8::wrapping_add),
        2 if is_big => by_channels(row, channels, u16::from_be_bytes, u16::to_ne_bytes, u16::wrapping_add),
        2 => by_channels(row, channels, u16::from_le_bytes, u16::to_ne_bytes, u16::wrapping_add),
        _ if is_big => by_channels(row, channels, u32::from_be_bytes, u32::to_ne_bytes, u32::wrapping_add),
        _ => by_channels(row, channels, u32::from_le_bytes, u32::to_ne_bytes, u32::wrapping_add),
    }
}

fn by_channels<const N: usize, T: Copy + Default>(
    row: &mut [u8],
    channels: usize,
    load: impl Fn([u8; N]) -> T + Copy,
    store: impl Fn(T) -> [u8; N] + Copy,
    add: impl Fn(T, T) -> T + Copy,
) {
    /// The sums stay in registers.
    fn sum<const N: usize, const C: usize, T: Copy + Default>(
        values: &mut [[u8; N]],
        load: impl Fn([u8; N]) -> T,
        store: impl Fn(T) -> [u8; N],
        add: impl Fn(T, T) -> T,
    ) {
        let mut sums = [T::default(); C];
        for pixel in values.as_chunks_mut::<C>().0 {
            for (value, sum) in pixel.iter_mut().zip(&mut sums) {
                *sum = add(*sum, load(*value));
                *value = store(*sum);
            }
        }
    }
    let (values, _) = row.as_chunks_mut::<N>();
    match channels {
        1 => sum::<N, 1, T>(values, load, store, add),
        2 => sum::<N, 2, T>(values, load, store, add),
        3 => sum::<N, 3, T>(values, load, store, add),
        4 => sum::<N, 4, T>(values, load, store, add),
        _ => {
            let mut sums = [T::default(); crate::planes::MAX_CHANNELS as usize];
            for pixel in values.chunks_exact_mut(channels) {
                for (value, sum) in pixel.iter_mut().zip(&mut sums) {
                    *sum = add(*sum, load(*value));
                    *value = store(*sum);
                }
            }
        }
    }
}

/// Restores a row of floating-point numbers of `value_bytes` bytes. All first bytes come first, which are the highest
/// ones whatever the file's byte order is, and bytes are differences from the pixel to the left. The numbers then have
/// the byte order of this machine. `scratch` has the row's length.
pub(super) fn join_floats(row: &mut [u8], value_bytes: usize, channels: usize, scratch: &mut [u8]) {
    add_differences(row, 1, channels, ByteOrder::NATIVE);
    scratch.copy_from_slice(row);
    let len = row.len() / value_bytes;
    let place = |byte: usize| &scratch[byte * len..][..len];
    match value_bytes {
        2 => {
            let parts = place(0).iter().zip(place(1));
            let values = row.as_chunks_mut::<2>().0.iter_mut();
            values.zip(parts).for_each(|(to, (a, b))| *to = u16::from_be_bytes([*a, *b]).to_ne_bytes());
        }
        _ => {
            let parts = place(0).iter().zip(place(1)).zip(place(2)).zip(place(3));
            let values = row.as_chunks_mut::<4>().0.iter_mut();
            values.zip(parts).for_each(|(to, (((a, b), c), d))| {
                *to = u32::from_be_bytes([*a, *b, *c, *d]).to_ne_bytes();
            });
        }
    }
}
