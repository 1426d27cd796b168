//! Links libtorch like tch does, sets its path for run time, and compiles the bindings.

use std::env;
use std::path::Path;

fn main() {
    let mut sources = vec!["src/dlpack.cpp"];
    if env::var_os("CARGO_FEATURE_TRAIN").is_some() {
        sources.push("src/autocast.cpp");
    }
    sources.iter().for_each(|source| println!("cargo::rerun-if-changed={source}"));
    let Some(lib) = env::var_os("DEP_TCH_LIBTORCH_LIB") else { return };
    let lib = Path::new(&lib);
    println!("cargo::rustc-link-arg=-Wl,-rpath={}", lib.display());
    // Nothing refers to CUDA's part of libtorch by name, so the linker would leave it out.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-link-arg=-ltorch");
    }
    let mut build = cc::Build::new();
    let include = lib.with_file_name("include");
    build.cpp(true).std("c++17").warnings(false).include(include).files(sources).compile("warpfeed_tch");
}
