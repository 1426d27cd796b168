//! Separable, antialiased resizing of a view, row by row, equal to [`resize`](crate::ops::resize).

use super::gather::{Gather, plain_row};
use super::vertical::vertical_pass;
use crate::ops::filter::{Interpolation, Taps};
use crate::ops::resize::{Resampling, horizontal_row};
use crate::plan::view::ImageView;
use crate::raster::{Image, Pixel, Rect};
use crate::simd::wide;
use std::ops::Range;

/// Memory of [`resample`], kept from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    columns: Columns,
    rows: Taps,
    lines: Lines,
}

/// Rows on their way.
#[derive(Debug, Default)]
struct Lines {
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
    /// Makes the weights count from the first of the columns that are read, and prepares them for vectors.
    fn prepare(&mut self, read: Range<u32>, interpolation: Interpolation) {
        self.taps.starts.iter_mut().for_each(|start| *start -= read.start);
        self.vectors = false;
        #[cfg(target_arch = "x86_64")]
        if interpolation != Interpolation::Nearest {
            self.vectors = self.prepared.prepare(&self.taps, read.len());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = interpolation;
    }

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
    let Scratch { columns, rows, lines } = scratch;
    let (horizontal, vertical) = (!across.is_identity(), !down.is_identity());
    if vertical {
        rows.compute(down, part.y..part.bottom(), interpolation);
    }
    // The columns of the view that are read.
    let read = if horizontal {
        columns.taps.compute(across, part.x..part.right(), interpolation);
        let last = columns.taps.len() - 1;
        let (start, weights) = columns.taps.of(last);
        let read = columns.taps.starts[0]..(start + weights.len()) as u32;
        columns.prepare(read.clone(), interpolation);
        read
    } else {
        part.x..part.right()
    };
    let source = Source { view, gather: Gather::new(view), image, left: read.start, width: read.len() };
    let passes = Passes { source, columns: horizontal.then_some(&*columns), part };
    grow(&mut lines.line, read.len());
    grow(&mut lines.output, part.width as usize);
    match (interpolation, vertical) {
        (Interpolation::Nearest, _) => passes.nearest(vertical.then_some(&*rows), lines, emit),
        (_, false) => passes.horizontal(lines, emit),
        (_, true) => passes.vertical(rows, vertical_first, lines, emit),
    }
}

/// The columns of a view that a resize reads.
struct Source<'a> {
    view: &'a ImageView,
    gather: Gather<'a>,
    image: &'a Image,
    left: u32,
    width: usize,
}

impl Source<'_> {
    /// Row `y`: a slice of the image, or gathered into `line`.
    fn row<'a>(&'a self, y: u32, line: &'a mut [Pixel]) -> &'a [Pixel] {
        let line = &mut line[..self.width];
        if self.view.is_plain_rows() {
            return plain_row(self.view, self.image, y, self.left, self.width as u32);
        }
        self.gather.row(self.image, y, self.left, line);
        line
    }
}

/// A resize whose weights are computed.
struct Passes<'a> {
    source: Source<'a>,
    /// `None` if columns stay as they are.
    columns: Option<&'a Columns>,
    part: Rect,
}

impl Passes<'_> {
    /// Copies the nearest pixels; `rows` is `None` if rows stay as they are.
    fn nearest(&self, rows: Option<&Taps>, lines: &mut Lines, emit: &mut dyn FnMut(u32, &[Pixel])) {
        let output = &mut lines.output[..self.part.width as usize];
        for (i, y) in (self.part.y..self.part.bottom()).enumerate() {
            let source_y = rows.map_or(y, |rows| rows.of(i).0 as u32);
            let source = self.source.row(source_y, &mut lines.line);
            let Some(columns) = self.columns else {
                emit(y, source);
                continue;
            };
            output.iter_mut().zip(&columns.taps.starts).for_each(|(out, x)| *out = source[*x as usize]);
            emit(y, output);
        }
    }

    /// Resizes rows alone.
    fn horizontal(&self, lines: &mut Lines, emit: &mut dyn FnMut(u32, &[Pixel])) {
        let output = &mut lines.output[..self.part.width as usize];
        for y in self.part.y..self.part.bottom() {
            let source = self.source.row(y, &mut lines.line);
            let Some(columns) = self.columns else {
                emit(y, source);
                continue;
            };
            columns.row(source, output);
            emit(y, output);
        }
    }

    /// Resizes columns, and rows before or after.
    fn vertical(
        &self,
        rows: &Taps,
        vertical_first: bool,
        Lines { line, ring, middle, output }: &mut Lines,
        emit: &mut dyn FnMut(u32, &[Pixel]),
    ) {
        let Self { source, part, .. } = self;
        let output = &mut output[..part.width as usize];
        // The ring holds rows of the view, or the results of the horizontal pass.
        let (before, after) = if vertical_first { (None, self.columns) } else { (self.columns, None) };
        let ring_width = if before.is_some() { output.len() } else { source.width };
        let ring_rows = rows.most();
        // If the view's rows are rows of the image, the vertical pass reads them in the image.
        let in_place = before.is_none() && source.view.is_plain_rows();
        if !in_place {
            grow(ring, ring_width * ring_rows);
        }
        grow(middle, ring_width);
        let mut ready = rows.starts.first().copied().unwrap_or(0);
        for (i, y) in (part.y..part.bottom()).enumerate() {
            let (start, weights) = rows.of(i);
            let out = if after.is_some() { &mut middle[..ring_width] } else { &mut *output };
            if in_place {
                let (left, width) = (source.left, source.width as u32);
                let row = |tap: usize| plain_row(source.view, source.image, (start + tap) as u32, left, width);
                vertical_pass(row, weights, out);
            } else {
                ready = ready.max(start as u32);
                while (ready as usize) < start + weights.len() {
                    let slot = &mut ring[ready as usize % ring_rows * ring_width..][..ring_width];
                    match before {
                        Some(columns) => columns.row(source.row(ready, line), slot),
                        None => source.gather.row(source.image, ready, source.left, slot),
                    }
                    ready += 1;
                }
                let row = |tap: usize| &ring[(start + tap) % ring_rows * ring_width..][..ring_width];
                vertical_pass(row, weights, out);
            }
            if let Some(columns) = after {
                columns.row(&middle[..ring_width], output);
            }
            emit(y, output);
        }
    }
}

fn grow(buffer: &mut Vec<Pixel>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, [0; 4]);
    }
}
