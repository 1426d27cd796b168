//! Compiles kernels/*.cu for the host, with a registry and a call before each memory access.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let member = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let kernels = member.join("../kernels");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed={}", kernels.display());
    println!("cargo:rerun-if-env-changed=CUDA_SIM_CXXFLAGS");

    let mut includes = String::new();
    let mut declarations = String::new();
    let mut entries = String::new();
    for source in sources(&kernels) {
        println!("cargo:rerun-if-changed={}", source.display());
        let text = fs::read_to_string(&source).expect("kernels are UTF-8");
        writeln!(includes, "#include \"{}\"", source.display()).expect("strings take everything");
        for name in global_functions(&text) {
            writeln!(declarations, "extern \"C\" void {name}(warpfeed::Launch);").expect("strings take everything");
            writeln!(
                entries,
                "    {{\"{name}\", run<{name}>, 1024, true, nullptr, 0, nullptr, 0, nullptr, nullptr, 0}},"
            )
            .expect("strings take everything");
        }
    }
    let registry = format!(
        "{declarations}
namespace cuda_sim {{
const Kernel kernels[] = {{
{entries}}};
const size_t kernel_count = sizeof(kernels) / sizeof(kernels[0]);
}}
"
    );
    fs::write(out.join("kernels.inc"), includes).expect("OUT_DIR can be written");
    fs::write(out.join("registry.inc"), registry).expect("OUT_DIR can be written");

    compiler(&out).file("cpp/sim.cpp").file("cpp/registry.cpp").compile("cuda_sim");
    let mut kernels = compiler(&out);
    // Equal to nvcc's -fmad=false. `#pragma unroll` is for the device's compiler.
    kernels.file("cpp/kernels.cpp").flag("-ffp-contract=off").flag("-Wno-unknown-pragmas");
    println!("cargo:rustc-check-cfg=cfg(accesses_are_seen)");
    if kernels.get_compiler().is_like_gnu() {
        println!("cargo:rustc-cfg=accesses_are_seen");
        // With the kernel's AddressSanitizer, the program defines the functions that it calls. The calls come before
        // each access, instead of code that reads shadow memory, and nothing is put between variables.
        kernels.flag("-fsanitize=kernel-address");
        for parameter in ["instrumentation-with-call-threshold", "stack", "globals"] {
            kernels.flag(format!("--param=asan-{parameter}=0"));
        }
    }
    kernels.compile("cuda_sim_device_code");
}

fn compiler(out: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").include(out).opt_level(2).warnings(true).warnings_into_errors(true).flag("-Wall");
    // Example: -fsanitize=undefined.
    for flag in env::var("CUDA_SIM_CXXFLAGS").unwrap_or_default().split_whitespace() {
        build.flag(flag);
    }
    build
}

/// kernels/*.cu, in the order of their names.
fn sources(kernels: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(kernels).expect("kernels/ is there");
    let paths = entries.map(|entry| entry.expect("kernels/ can be listed").path());
    let mut sources: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "cu")).collect();
    sources.sort();
    sources
}

/// Names of a source's `extern "C" __global__` functions.
fn global_functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("extern \"C\" __global__ ").skip(1).filter_map(|rest| {
        let (head, _) = rest.split_once("(const ")?;
        head.rsplit(char::is_whitespace).next()
    })
}
