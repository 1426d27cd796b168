//! Builds the CUDA kernels where there is a compiler for them.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The compute capabilities that kernels are compiled for, unless WARPFEED_CUDA_ARCHS says otherwise. A card runs code
/// for its own major number and a minor number up to its own. So these serve all cards from Turing (2018) on that CUDA
/// 13 knows, except Thor. The card of the building machine does not matter: it need not be the user's.
const ARCHITECTURES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

/// CUDA 11.8, the first version that knows sm_89 and sm_90.
const OLDEST_NVCC: (u32, u32) = (11, 8);

/// The variables that decide whether and how kernels are compiled. PATH is not among them: it differs between shell and
/// editor, so each would rebuild what the other built.
const VARIABLES: [&str; 10] = [
    "NVCC",
    "CUDA_HOME",
    "CUDA_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "WARPFEED_NVCC",
    "WARPFEED_CUDA_ARCHS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=WARPFEED_OPT_LEVEL={}", env::var("OPT_LEVEL").expect("cargo sets it"));
    commit();
    if let Err(message) = kernels() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

/// Sets WARPFEED_COMMIT, which reports print, to the commit of the git checkout, with `-dirty` if the sources differ
/// from it. Does nothing if the variable is already set or there is no checkout, as in a crate from crates.io. Only
/// release builds do this: measurements use them, and other builds would be rebuilt after each commit.
fn commit() {
    println!("cargo::rerun-if-env-changed=WARPFEED_COMMIT");
    if env::var("PROFILE").as_deref() != Ok("release")
        || set("WARPFEED_COMMIT").is_some()
        || !Path::new(".git").exists()
    {
        return;
    }
    let git = |args: &[&str]| run(Command::new("git").args(args)).map(|said| said.trim().to_owned());
    let Ok(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    // HEAD and its log. The log changes with each commit; HEAD itself only changes with the branch.
    let files = ["HEAD", "logs/HEAD"].map(|file| git(&["rev-parse", "--git-path", file]));
    for file in files.into_iter().flatten().filter(|file| Path::new(file).exists()) {
        println!("cargo::rerun-if-changed={file}");
    }
    let folders = ["src", "warpfeed-bench", "warpfeed-cli", "warpfeed-image"];
    folders.iter().for_each(|folder| println!("cargo::rerun-if-changed={folder}"));
    let compiled =
        [&["diff", "--quiet", "HEAD", "--", "kernels", "build.rs", "Cargo.toml", "Cargo.lock"], &folders[..]];
    let clean = git(&compiled.concat());
    println!("cargo::rustc-env=WARPFEED_COMMIT={head}{}", if clean.is_ok() { "" } else { "-dirty" });
}

/// Makes `kernels.fatbin` in OUT_DIR from all of kernels/*.cu. WARPFEED_ARCHITECTURES names its architectures, and
/// WARPFEED_CUDA_VERSION the version of nvcc. Without nvcc the file is empty, and WARPFEED_WITHOUT_KERNELS says why.
fn kernels() -> Result<(), String> {
    println!("cargo::rerun-if-changed=kernels");
    for name in VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let wanted = wanted_architectures()?;
    let (architectures, version, lack) = match find_nvcc()? {
        Ok(nvcc) => {
            let (major, minor) = nvcc.version;
            (nvcc.compile(&wanted, &out)?, format!("{major}.{minor}"), String::new())
        }
        Err(lack) => {
            fs::write(out.join("kernels.fatbin"), []).map_err(|error| format!("kernels.fatbin: {error}"))?;
            (Vec::new(), String::new(), lack)
        }
    };
    println!("cargo::rustc-env=WARPFEED_ARCHITECTURES={}", words(&architectures));
    println!("cargo::rustc-env=WARPFEED_CUDA_VERSION={version}");
    println!("cargo::rustc-env=WARPFEED_WITHOUT_KERNELS={lack}");
    Ok(())
}

struct Nvcc {
    path: PathBuf,
    version: (u32, u32),
}

/// The first compiler that runs and is new enough, or the reason why there is none.
fn find_nvcc() -> Result<Result<Nvcc, String>, String> {
    match set("WARPFEED_NVCC") {
        Some(value) if value == "off" => return Ok(Err("WARPFEED_NVCC=off".to_owned())),
        Some(value) => {
            let value = value.display();
            return Err(format!("WARPFEED_NVCC can only be off, not {value}: a compiler is named by NVCC"));
        }
        None => {}
    }
    if env::var_os("DOCS_RS").is_some() {
        return Ok(Err("docs.rs".to_owned()));
    }
    let mut unfit = Vec::new();
    for path in candidates() {
        match version(&path) {
            Ok(version) if version >= OLDEST_NVCC => return Ok(Ok(Nvcc { path, version })),
            Ok((major, minor)) => unfit.push(format!(
                "{} is of CUDA {major}.{minor}, and {}.{} is the oldest that will do",
                path.display(),
                OLDEST_NVCC.0,
                OLDEST_NVCC.1
            )),
            Err(error) => {
                unfit.push(format!("{} does not run: {}", path.display(), error.lines().next().unwrap_or_default()));
            }
        }
    }
    for line in &unfit {
        println!("cargo::warning=built without CUDA kernels: {line}");
    }
    Ok(Err(if unfit.is_empty() { "no nvcc was found".to_owned() } else { unfit.join("; ") }))
}

/// Places where nvcc may be, if the files exist. If NVCC is set, only that one. Otherwise the toolkit that the
/// environment names, PATH, the usual folder, the active Python environment, and the folder that scripts/setup makes.
fn candidates() -> Vec<PathBuf> {
    if let Some(nvcc) = set("NVCC") {
        return vec![nvcc.into()];
    }
    let name = format!("nvcc{}", env::consts::EXE_SUFFIX);
    let mut folders: Vec<_> =
        ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set).map(|home| Path::new(&home).join("bin")).collect();
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    folders.push("/usr/local/cuda/bin".into());
    let project = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join(".cuda");
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(set).map(PathBuf::from);
    for environment in environments.chain([project]) {
        // Conda's own package is in its bin, and so in PATH; PyPI's is below site-packages.
        for python in children(&environment.join("lib"), "python3") {
            let wheels = children(&python.join("site-packages/nvidia"), "");
            folders.extend(wheels.into_iter().map(|wheel| wheel.join("bin")));
        }
    }
    folders.into_iter().map(|folder| folder.join(&name)).filter(|path| path.is_file()).collect()
}

/// The version that `nvcc --version` prints after "release".
fn version(nvcc: &Path) -> Result<(u32, u32), String> {
    let text = run(Command::new(nvcc).arg("--version"))?;
    let release = text.split("release ").nth(1).and_then(|rest| rest.split(',').next());
    let numbers = release.and_then(|release| release.split_once('.'));
    numbers
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| "it does not say its version".to_owned())
}

/// WARPFEED_CUDA_ARCHS as sorted numbers, or the default if it is not set.
fn wanted_architectures() -> Result<Vec<u32>, String> {
    let Some(value) = set("WARPFEED_CUDA_ARCHS") else { return Ok(ARCHITECTURES.to_vec()) };
    let value = value.to_string_lossy();
    let numbers: Option<Vec<u32>> = value
        .split([' ', ',', ';'])
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().ok().filter(|number| (50..1000).contains(number)))
        .collect();
    let mut numbers = numbers.filter(|numbers| !numbers.is_empty()).ok_or_else(|| {
        format!(
            "WARPFEED_CUDA_ARCHS must be compute capabilities without a dot, with spaces between, for example \"{}\", \
             not {value:?}",
            words(&ARCHITECTURES)
        )
    })?;
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

impl Nvcc {
    /// Compiles all kernels in one translation unit, so that one image has them all. Returns the architectures.
    fn compile(&self, wanted: &[u32], out: &Path) -> Result<Vec<u32>, String> {
        let architectures = self.known_of(wanted)?;
        let sources = children(Path::new("kernels"), "");
        let names = sources
            .iter()
            .filter(|path| path.extension() == Some(OsStr::new("cu")))
            .filter_map(|path| path.file_name());
        let unit: String = names.map(|name| format!("#include \"{}\"\n", name.display())).collect();
        fs::write(out.join("kernels.cu"), unit).map_err(|error| format!("kernels.cu: {error}"))?;

        let mut command = Command::new(&self.path);
        // No contraction to fused multiply-adds, like on the CPU, so that the bytes are equal. The compilers for the
        // architectures run in parallel.
        command.args(["-fatbin", "--threads", "0", "-std=c++17", "-O3", "-fmad=false", "-Wno-deprecated-gpu-targets"]);
        // Only device code is made, so the host compiler may be newer than nvcc knows.
        command.arg("-allow-unsupported-compiler");
        for architecture in &architectures {
            command.arg(format!("-gencode=arch=compute_{architecture},code=sm_{architecture}"));
        }
        // On other cards the driver compiles the PTX. It is made for the lowest architecture, since PTX runs on its own
        // architecture and all later ones, and nothing here gains from a higher one.
        if let Some(lowest) = architectures.first() {
            command.arg(format!("-gencode=arch=compute_{lowest},code=compute_{lowest}"));
        }
        // This compression makes the file a tenth of the size. Drivers support it from CUDA 12.4 on.
        if self.version >= (13, 0) {
            command.arg("--compress-mode=size");
        }
        command.arg("-I").arg(fs::canonicalize("kernels").map_err(|error| format!("kernels: {error}"))?);
        command.arg("-o").arg(out.join("kernels.fatbin")).arg(out.join("kernels.cu"));
        let said = run(&mut command).map_err(|error| {
            format!(
                "{} (CUDA {}.{}) fails: WARPFEED_NVCC=off builds without kernels, NVCC names another compiler\n{error}",
                self.path.display(),
                self.version.0,
                self.version.1
            )
        })?;
        for line in said.lines() {
            println!("cargo::warning={line}");
        }
        Ok(architectures)
    }

    /// The architectures to compile for. Architectures that this compiler does not know are left out of the default
    /// list. In WARPFEED_CUDA_ARCHS they are an error.
    fn known_of(&self, wanted: &[u32]) -> Result<Vec<u32>, String> {
        let listed = run(Command::new(&self.path).arg("--list-gpu-code"))
            .map_err(|error| format!("{} --list-gpu-code: {error}", self.path.display()))?;
        let all: Vec<u32> =
            listed.split_whitespace().filter_map(|name| name.strip_prefix("sm_")?.parse().ok()).collect();
        let (known, unknown): (Vec<u32>, Vec<u32>) = wanted.iter().partition(|wanted| all.contains(wanted));
        let (path, (major, minor)) = (self.path.display(), self.version);
        if known.is_empty() || !unknown.is_empty() && set("WARPFEED_CUDA_ARCHS").is_some() {
            return Err(format!(
                "WARPFEED_CUDA_ARCHS: {path} (CUDA {major}.{minor}) knows {}, not {}",
                words(&all),
                words(&unknown)
            ));
        }
        if !unknown.is_empty() {
            println!("cargo::warning={path} (CUDA {major}.{minor}) does not know {}: left out", words(&unknown));
        }
        Ok(known)
    }
}

/// A command's output on both streams. The error says how it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{}\n{text}", output.status)) }
}

/// An environment variable, if it is set and not empty.
fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn words(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// The entries of a folder whose names have a prefix, sorted; none if the folder cannot be read.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}
