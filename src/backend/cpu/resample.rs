//! Separable, antialiased resizing of a view, row by row, equal to [`resize`](crate::ops::resize).

use super::gather::{Gather, plain_row};
use super::vertical::vertical_pass;
use crate::ops::filter::{Interpolation, Taps};
use crate::ops::resize::{Resampling, horizontal_row};
use crate::plan::view::ImageView;
use crate::raster::{Image, Pixel, Rect};
use crate::simd::wide;

/// Memory of [`resample`], kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    columns: Columns,
    rows: Taps,
    /// A row of the view.
    line: Vec<Pixel>,
    /// Rows that the vertical pass still needs.
    ring: Vec<Pixel>,
    /// A row between the passes, or of the output.
    middle: Vec<Pixel>,
    output: Vec<Pixel>,
}

/// The horizontal pass's weights.
#[derive(Debug, Default)]
struct Columns {
    taps: Taps,
    #[cfg(target_arch = "x86_64")]
    prepared: super::horizontal::Prepared,
    /// Whether the weights prepared for vectors are used.
    vectors: bool,
}

impl Columns {
    /// Resizes one row, which has the columns that the weights reach.
    fn row(&self, from: &[Pixel], to: &mut [Pixel]) {
        #[cfg(target_arch = "x86_64")]
        if self.vectors {
            return self.prepared.row(from, to);
        }
        wide(
            #[inline(always)]
            || horizontal_row(from, &self.taps, to),
        );
    }
}

/// Resizes `view` of `image` and passes each row of `part` of the result to `emit`, with its position in the result.
pub(crate) fn resample(
    view: &ImageView,
    image: &Image,
    resampling: &Resampling,
    part: Rect,
    scratch: &mut Scratch,
    emit: &mut dyn FnMut(u32, &[Pixel]),
) {
    let &Resampling { columns: across, rows: down, interpolation, vertical_first } = resampling;
    let (horizontal, vertical) = (!across.is_identity(), !down.is_identity());
    let gather = Gather::new(view);
    let Scratch { columns, rows, line, ring, middle, output } = scratch;
    if horizontal {
        columns.taps.compute(across, part.x..part.right(), interpolation);
    }
    if vertical {
        rows.compute(down, part.y..part.bottom(), interpolation);
    }
    // The columns of the view that are read.
    let (left, right) = if horizontal {
        let last = columns.taps.len() - 1;
        let (start, weights) = columns.taps.of(last);
        (columns.taps.starts[0], (start + weights.len()) as u32)
    } else {
        (part.x, part.right())
    };
    let width = (right - left) as usize;
    let out_width = part.width as usize;
    if horizontal {
        columns.taps.starts.iter_mut().for_each(|start| *start -= left);
        columns.vectors = false;
        #[cfg(target_arch = "x86_64")]
        if interpolation != Interpolation::Nearest {
            columns.vectors = columns.prepared.prepare(&columns.taps, width);
        }
    }
    grow(line, width);
    grow(output, out_width);
    let output = &mut output[..out_width];

    if interpolation == Interpolation::Nearest {
        for (i, y) in (part.y..part.bottom()).enumerate() {
            let source_y = if vertical { rows.of(i).0 as u32 } else { y };
            let source = view_row(view, &gather, image, source_y, left, &mut line[..width]);
            if horizontal {
                output.iter_mut().zip(&columns.taps.starts).for_each(|(out, x)| *out = source[*x as usize]);
                emit(y, output);
            } else {
                emit(y, source);
            }
        }
        return;
    }
    if !vertical {
        for y in part.y..part.bottom() {
            let source = view_row(view, &gather, image, y, left, &mut line[..width]);
            if horizontal {
                columns.row(source, output);
                emit(y, output);
            } else {
                emit(y, source);
            }
        }
        return;
    }

    // The ring holds rows of the view, or the results of the horizontal pass.
    let horizontal_first = horizontal && !vertical_first;
    let ring_width = if horizontal_first { out_width } else { width };
    let ring_rows = rows.most();
    // If the view's rows are rows of the image, the vertical pass reads them in the image.
    let in_place = !horizontal_first && view.is_plain_rows();
    if !in_place {
        grow(ring, ring_width * ring_rows);
    }
    grow(middle, ring_width);
    let mut ready = rows.starts.first().copied().unwrap_or(0);
    for (i, y) in (part.y..part.bottom()).enumerate() {
        let (start, weights) = rows.of(i);
        if in_place {
            let out = if horizontal { &mut middle[..ring_width] } else { &mut *output };
            let row = |tap: usize| plain_row(view, image, (start + tap) as u32, left, width as u32);
            vertical_pass(row, weights, out);
        } else {
            ready = ready.max(start as u32);
            while (ready as usize) < start + weights.len() {
                let slot = &mut ring[ready as usize % ring_rows * ring_width..][..ring_width];
                if horizontal_first {
                    let source = view_row(view, &gather, image, ready, left, &mut line[..width]);
                    columns.row(source, slot);
                } else {
                    gather.row(image, ready, left, slot);
                }
                ready += 1;
            }
            let out = if horizontal && !horizontal_first { &mut middle[..ring_width] } else { &mut *output };
            let row = |tap: usize| &ring[(start + tap) % ring_rows * ring_width..][..ring_width];
            vertical_pass(row, weights, out);
        }
        if horizontal && !horizontal_first {
            columns.row(&middle[..ring_width], output);
        }
        emit(y, output);
    }
}

fn grow(buffer: &mut Vec<Pixel>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, [0; 4]);
    }
}

/// Row `y` of the view from column `x`: a slice of the image, or gathered into `line`.
fn view_row<'a>(
    view: &ImageView,
    gather: &Gather<'_>,
    image: &'a Image,
    y: u32,
    x: u32,
    line: &'a mut [Pixel],
) -> &'a [Pixel] {
    if view.is_plain_rows() {
        return plain_row(view, image, y, x, line.len() as u32);
    }
    gather.row(image, y, x, line);
    line
}
