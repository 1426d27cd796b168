//! The images of the benches: synthetic, or from the folder `WARPFEED_PHOTOS`.

use std::sync::LazyLock;
use warpfeed::image::{JpegOptions, encode_jpeg};
use warpfeed_bench::synth;

/// Largest number of images that are held in memory.
const MOST: u64 = 200;
/// Number of synthetic images. Making them takes time.
const MADE: u64 = 48;

static IMAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| match std::env::var_os("WARPFEED_PHOTOS") {
    Some(folder) => {
        let source = warpfeed::source::open(folder).and_then(warpfeed::source::Input::into_data_set);
        let source = source.expect("WARPFEED_PHOTOS names a folder of class folders or a list file");
        let read = |index| source.encoded(index).expect("an image can be read");
        (0..source.len().min(MOST)).map(read).collect()
    }
    None => {
        let options = JpegOptions { quality: 95, ..JpegOptions::default() };
        (0..MADE).map(|i| encode_jpeg(&synth::image(1, i, 0, 1), &options).expect("it can be encoded")).collect()
    }
});

/// Encoded images, in memory.
pub fn images() -> &'static [Vec<u8>] {
    &IMAGES
}
