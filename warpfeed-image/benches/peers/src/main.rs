//! The work of `../decode.rs` with other decoders: zune-jpeg, the crate `image`, and libjpeg-turbo.

#[path = "../../common/mod.rs"]
mod common;

use divan::Bencher;
use divan::counter::ItemsCount;
use std::io::Cursor;
use std::ptr;
use std::sync::LazyLock;
use turbojpeg_sys::*;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

static JPEGS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| common::jpegs(encode));

fn main() {
    divan::main();
}

fn encode(width: u32, height: u32, rgb: &[u8]) -> Vec<u8> {
    let (mut out, mut len) = (ptr::null_mut(), 0);
    // SAFETY: `rgb` has three bytes a pixel, and libjpeg-turbo allocates `len` bytes at `out`.
    unsafe {
        let handle = tj3Init(TJINIT_TJINIT_COMPRESS as i32);
        tj3Set(handle, TJPARAM_TJPARAM_QUALITY as i32, 90);
        tj3Set(handle, TJPARAM_TJPARAM_SUBSAMP as i32, TJSAMP_TJSAMP_420 as i32);
        let (width, height, format) = (width as i32, height as i32, TJPF_TJPF_RGB as i32);
        let status = tj3Compress8(handle, rgb.as_ptr(), width, 0, height, format, &mut out, &mut len);
        assert_eq!(status, 0, "it can be encoded");
        let jpeg = std::slice::from_raw_parts(out, len as usize).to_vec();
        tj3Free(out.cast());
        tj3Destroy(handle);
        jpeg
    }
}

fn decode(bencher: Bencher<'_, '_>, is_whole: bool) {
    // SAFETY: the handle is used by this thread alone.
    let handle = unsafe { tj3Init(TJINIT_TJINIT_DECOMPRESS as i32) };
    let mut pixels: Vec<u8> = Vec::new();
    bencher.counter(ItemsCount::new(JPEGS.len())).bench_local(|| {
        for (number, bytes) in JPEGS.iter().enumerate() {
            // SAFETY: `bytes` is read alone, and `pixels` has room for the rectangle, four bytes a pixel.
            unsafe {
                assert_eq!(tj3DecompressHeader(handle, bytes.as_ptr(), bytes.len() as _), 0);
                let get = |parameter| tj3Get(handle, parameter as i32);
                let (mut width, mut height) = (get(TJPARAM_TJPARAM_JPEGWIDTH), get(TJPARAM_TJPARAM_JPEGHEIGHT));
                // Forgets the last image's rectangle.
                tj3SetCroppingRegion(handle, tjregion { x: 0, y: 0, w: 0, h: 0 });
                if !is_whole {
                    let [x, y, w, h] = common::rectangle(number, 4, width as u32, height as u32).map(|v| v as i32);
                    let mcu = match get(TJPARAM_TJPARAM_SUBSAMP) as TJSAMP {
                        TJSAMP_TJSAMP_444 | TJSAMP_TJSAMP_GRAY | TJSAMP_TJSAMP_440 => 8,
                        TJSAMP_TJSAMP_411 => 32,
                        _ => 16,
                    };
                    (width, height) = (w + x % mcu, h);
                    let status = tj3SetCroppingRegion(handle, tjregion { x: x - x % mcu, y, w: width, h });
                    assert_eq!(status, 0, "the rectangle is inside");
                }
                pixels.resize(pixels.len().max(4 * width as usize * height as usize), 0);
                let format = TJPF_TJPF_RGBX as i32;
                tj3Decompress8(handle, bytes.as_ptr(), bytes.len() as _, pixels.as_mut_ptr(), 4 * width, format);
            }
            divan::black_box(&pixels);
        }
    });
    // SAFETY: it is not used any more.
    unsafe { tj3Destroy(handle) };
}

#[divan::bench(sample_size = 1)]
fn libjpeg_turbo_whole(bencher: Bencher<'_, '_>) {
    decode(bencher, true);
}

#[divan::bench(sample_size = 1)]
fn libjpeg_turbo_rectangle_of_half_the_sides(bencher: Bencher<'_, '_>) {
    decode(bencher, false);
}

/// Into four bytes a pixel, as libjpeg-turbo above. It has no way to decode a rectangle.
#[divan::bench(sample_size = 1)]
fn zune_jpeg_whole(bencher: Bencher<'_, '_>) {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGBA);
    bencher.counter(ItemsCount::new(JPEGS.len())).bench_local(|| {
        for bytes in JPEGS.iter() {
            let mut decoder = zune_jpeg::JpegDecoder::new_with_options(Cursor::new(bytes), options);
            divan::black_box(decoder.decode().expect("it decodes"));
        }
    });
}

/// Into three bytes a pixel. It has no way to decode a rectangle.
#[divan::bench(sample_size = 1)]
fn image_whole(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(JPEGS.len())).bench_local(|| {
        for bytes in JPEGS.iter() {
            let decoded = image::load_from_memory_with_format(bytes, image::ImageFormat::Jpeg);
            divan::black_box(decoded.expect("it decodes").into_rgb8());
        }
    });
}
