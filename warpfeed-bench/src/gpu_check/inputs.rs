//! Images that decoders are checked on: the kinds in training sets, and difficult ones.

use crate::synth;
use std::borrow::Cow;
use warpfeed::Result;
use warpfeed::image::{ChromaSampling, Image, JpegColor, JpegOptions, Pixel, Size, encode_jpeg};
use warpfeed::source::{ReadRequest, Sample, Source};

/// Images in memory, each named after its kind.
pub(super) struct Inputs(Vec<(&'static str, Vec<u8>)>);

impl Inputs {
    /// Kinds that nvJPEG's hybrid decoder takes. The hardware decoder takes those that are not progressive.
    pub(super) fn usual() -> Result<Self> {
        let of = |sampling| JpegOptions { sampling, ..JpegOptions::default() };
        let kinds = [
            ("4:4:4", of(ChromaSampling::S444)),
            ("4:2:2", of(ChromaSampling::S422)),
            ("4:2:0", of(ChromaSampling::S420)),
            ("4:4:0", of(ChromaSampling::S440)),
            ("gray", JpegOptions { color: JpegColor::Gray, ..JpegOptions::default() }),
            ("with restarts", JpegOptions { restart_interval_rows: 1, ..JpegOptions::default() }),
            ("progressive", JpegOptions { progressive: true, ..JpegOptions::default() }),
        ];
        let made = kinds.into_iter().zip(0..).map(|((name, options), i)| Ok((name, encode_jpeg(&scene(i), &options)?)));
        made.collect::<Result<_>>().map(Self)
    }

    /// Files that are truncated, have several scans, or are in inks, between usual ones.
    pub(super) fn awkward() -> Result<Self> {
        let Self(usual) = Self::usual()?;
        let cut = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
        let progressive = JpegOptions { progressive: true, ..JpegOptions::default() };
        let inks = JpegOptions { color: JpegColor::Cmyk, ..JpegOptions::default() };
        let awkward = [
            ("cut off", cut(&encode_jpeg(&scene(10), &JpegOptions::default())?)),
            ("progressive, cut off", cut(&encode_jpeg(&scene(11), &progressive)?)),
            ("a scan for each component", one_scan_each(&scene(12))?),
            ("in inks", encode_jpeg(&scene(13), &inks)?),
        ];
        Ok(Self(usual.into_iter().zip(awkward).flat_map(|(usual, awkward)| [usual, awkward]).collect()))
    }
}

impl Source for Inputs {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read<'a>(&'a self, index: u64, _want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
        sample.lend(&self.0[index as usize].1);
        Ok(())
    }

    fn label(&self, _index: u64) -> Option<u32> {
        None
    }

    fn name(&self, index: u64) -> Cow<'_, str> {
        format!("made image, {}", self.0[index as usize].0).into()
    }
}

/// An image similar to a photograph. Noise would not do: on it decoders may differ arbitrarily.
fn scene(index: u64) -> Image {
    synth::image(1, index, index as u32 % 4, 4)
}

/// A baseline JPEG with luma and color differences in three scans, as some cameras and old programs write them. It is
/// assembled from three gray JPEGs, whose data are those of such a scan.
fn one_scan_each(image: &Image) -> Result<Vec<u8>> {
    let Size { width, height } = image.size();
    let half = |a: u8, b: u8| (128 + (i32::from(a) - i32::from(b)) / 2) as u8;
    // Roughly luma and the two color differences.
    let value = |component: u8, &[red, green, blue, _]: &Pixel| match component {
        1 => green,
        2 => half(blue, green),
        _ => half(red, green),
    };
    let gray = JpegOptions { color: JpegColor::Gray, ..JpegOptions::default() };
    let mut out = vec![0xFF, 0xD8];
    for component in 1..=3 {
        let plane: Vec<u8> = image.pixels().iter().flat_map(|pixel| [value(component, pixel); 3]).collect();
        let jpeg = encode_jpeg(&Image::from_rgb(image.size(), &plane)?, &gray)?;
        let mut at = 2;
        loop {
            let (marker, len) = (jpeg[at + 1], usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]])));
            let segment = at..at + 2 + len;
            at = segment.end;
            match marker {
                // All three scans share the quantization table; each scan has its own Huffman tables.
                0xDB if component == 1 => out.extend(&jpeg[segment]),
                0xC4 => out.extend(&jpeg[segment]),
                0xC0 if component == 1 => {
                    out.extend([0xFF, 0xC0, 0, 17, 8]);
                    out.extend((height as u16).to_be_bytes());
                    out.extend((width as u16).to_be_bytes());
                    out.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
                }
                0xDA => break,
                _ => {}
            }
        }
        out.extend([0xFF, 0xDA, 0, 8, 1, component, 0, 0, 63, 0]);
        // Everything up to the end-of-image marker.
        out.extend(&jpeg[at..jpeg.len() - 2]);
    }
    out.extend([0xFF, 0xD9]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpfeed::image::Rect;
    use warpfeed::image::{Decoder, probe};

    #[test]
    fn the_cpu_decodes_all_but_those_that_are_cut_off() {
        let inputs = Inputs::awkward().unwrap();
        for (name, bytes) in &inputs.0 {
            let header = probe(bytes).unwrap();
            let mut image = Image::default();
            let decoded = Decoder::new().unwrap().decode(bytes, &header, Rect::full(header.size), false, &mut image);
            assert_eq!(decoded.is_err(), name.contains("cut off"), "{name}: {decoded:?}");
        }
    }

    /// The color differences of a gray image must be those of no color.
    #[test]
    fn three_scans_hold_the_image() {
        let mut image = scene(3);
        image.pixels_mut().iter_mut().for_each(|pixel| *pixel = [pixel[1], pixel[1], pixel[1], 255]);
        let bytes = one_scan_each(&image).unwrap();
        let header = probe(&bytes).unwrap();
        assert!(header.size == image.size() && header.components == 3 && !header.progressive);
        let mut decoded = Image::default();
        Decoder::new().unwrap().decode(&bytes, &header, Rect::full(header.size), false, &mut decoded).unwrap();
        let pairs = image.pixels().iter().zip(decoded.pixels());
        let sum: u64 = pairs.map(|(a, b)| (0..3).map(|c| u64::from(a[c].abs_diff(b[c]))).sum::<u64>()).sum();
        assert!(sum < 3 * 4 * image.size().area_px(), "{sum}");
    }
}
