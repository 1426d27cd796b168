//! Builds the C code around libjpeg.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for file in
        ["src/decode/jpeg.c", "src/decode/huffman.h", "src/decode/progressive.h", "src/decode/idct.h", "src/encode.c"]
    {
        println!("cargo::rerun-if-changed={file}");
    }
    let include = env::var_os("DEP_JPEG_INCLUDE").expect("mozjpeg-sys exports its include folders");
    cc::Build::new()
        .files(["src/decode/jpeg.c", "src/encode.c"])
        .includes(env::split_paths(&include))
        .opt_level(3)
        .flag_if_supported("-ffp-contract=off")
        .flag_if_supported("-std=c11")
        .warnings(true)
        // libjpeg's headers: callbacks that need not use every argument.
        .flag_if_supported("-Wno-unused-parameter")
        .compile("warpfeed_jpeg");
}
