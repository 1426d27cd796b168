//! Links libtorch as tch does, finds it again at run time, and compiles the one call of it that tch lacks.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/autocast.cpp");
    let Some(lib) = env::var_os("DEP_TCH_LIBTORCH_LIB") else { return };
    let lib = Path::new(&lib);
    println!("cargo::rustc-link-arg=-Wl,-rpath={}", lib.display());
    // Nothing calls CUDA's part of libtorch by name, so that the linker would leave it out.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-link-arg=-ltorch");
    }
    let mut build = cc::Build::new();
    let include = lib.with_file_name("include");
    build.cpp(true).std("c++17").warnings(false).include(include).file("src/autocast.cpp").compile("autocast");
}
