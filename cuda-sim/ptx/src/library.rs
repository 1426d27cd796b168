//! A shared object with an image's kernels and the simulation.

use crate::flow::BasicBlocks;
use crate::parse::{self, Entry, Module};
use crate::translate::{self, Place};
use crate::{Error, Result, image};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs, thread};

/// The simulation, as it is compiled with translated kernels.
const SOURCES: [(&str, &str); 7] = [
    ("cuda.h", include_str!("../../cpp/cuda.h")),
    ("kernel.h", include_str!("../../cpp/kernel.h")),
    ("machine.h", include_str!("../../cpp/machine.h")),
    ("ptx.h", include_str!("../../cpp/ptx.h")),
    ("ptx.cpp", include_str!("../../cpp/ptx.cpp")),
    ("sim.cpp", include_str!("../../cpp/sim.cpp")),
    ("ways.cpp", include_str!("../../cpp/ways.cpp")),
];

/// Signed numbers wrap, contraction to fused multiply-adds is off, and the compiler takes memory for what it is.
const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-DCUDA_SIM_ONE_THREAD",
    "-w",
];

/// Makes a shared object of an image, a fat binary or PTX, in a folder where earlier results are found again. The
/// folder also gets the PTX, in whose lines messages count. Several processes may do so at once.
///
/// # Errors
/// An image without PTX, PTX that the simulation does not know (see [`translate`](crate::translate)), or a compiler
/// that fails or is not there. It is `c++`, or CXX if that is set.
pub fn library(image: &[u8], folder: &Path) -> Result<PathBuf> {
    let text = image::ptx(image)?;
    let maker = Maker::new(folder)?;
    let made = folder.join(format!("{:016x}.so", maker.hash(&text)));
    if made.exists() {
        return Ok(made);
    }
    let module = parse::module(&text)?;
    let (mut files, mut kernels) = (Vec::new(), Vec::new());
    for name in ["sim.cpp", "ptx.cpp", "ways.cpp"] {
        files.push((name.to_owned(), format!("#include \"{name}\"\n")));
    }
    for entry in &module.entries {
        let kernel = translate::kernel(&module, entry)?;
        files.push((format!("{}.cpp", entry.name), kernel.text));
        kernels.push((entry, kernel.blocks));
    }
    files.push(("table.cpp".to_owned(), table(&module, &kernels)?));
    let objects = maker.compile(files)?;
    maker.write(&made.with_extension("ptx"), &text)?;
    maker.finish(&made, |to| {
        let mut command = maker.compiler();
        command.args(["-shared", "-Wl,-Bsymbolic", "-o"]).arg(to).args(&objects).arg("-lm");
        command
    })?;
    Ok(made)
}

/// The table of the kernels, for sim.cpp.
fn table(module: &Module, kernels: &[(&Entry, BasicBlocks)]) -> Result<String> {
    let (mut text, mut rows) = (String::from("#include \"kernel.h\"\n\n"), String::new());
    let extents = |places: &[Place]| -> String {
        places.iter().map(|place| format!("{{{}, {}}}, ", place.offset, place.bytes)).collect()
    };
    let numbers = |numbers: &[u16]| -> String { numbers.iter().map(|number| format!("{number}, ")).collect() };
    for (entry @ Entry { name, most_threads, start, .. }, blocks) in kernels {
        let (parameters, shared) = (translate::parameters(entry)?, translate::shared(module, entry)?);
        let function = translate::function(name);
        // An array has at least one element.
        let added = write!(
            text,
            "extern \"C\" void {function}(const void*);\n\
             static const cuda_sim::Extent {name}_parameters[] = {{ {}{{0, 0}}}}, {name}_shared[] = {{ {}{{0, 0}}}};\n\
             static const uint16_t {name}_lengths[] = {{ {}0}}, {name}_ranks[] = {{ {}0}};\n",
            extents(&parameters),
            extents(&shared),
            numbers(&blocks.lengths),
            numbers(&blocks.ranks),
        );
        added.expect("strings take everything");
        let (parameters, shared) = (parameters.len(), shared.len());
        let waits = translate::waits(entry);
        let row = writeln!(
            rows,
            "    {{\"{name}\", {function}, {most_threads}, {waits}, {name}_parameters, {parameters}, {name}_shared, {shared}, \
             {name}_lengths, {name}_ranks, {start}}},"
        );
        row.expect("strings take everything");
    }
    let count = module.entries.len();
    Ok(format!(
        "{text}\nnamespace cuda_sim {{\nconst Kernel kernels[] = {{\n{rows}    {{nullptr, nullptr, 0, false, nullptr, 0, \
         nullptr, 0, nullptr, nullptr, 0}},\n}};\nconst size_t kernel_count = {count};\n}}\n"
    ))
}

struct Maker<'a> {
    folder: &'a Path,
    cxx: String,
    /// Hash of everything but the source that decides about an object.
    base: DefaultHasher,
}

impl<'a> Maker<'a> {
    fn new(folder: &'a Path) -> Result<Self> {
        let cxx = env::var("CXX").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".to_owned());
        let mut base = DefaultHasher::new();
        (&cxx, SOURCES, FLAGS).hash(&mut base);
        let maker = Self { folder, cxx, base };
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
        for (name, text) in SOURCES {
            let path = folder.join(name);
            if fs::read_to_string(&path).is_ok_and(|known| known == text) {
                continue;
            }
            maker.write(&path, text)?;
        }
        Ok(maker)
    }

    fn hash(&self, text: &str) -> u64 {
        let mut hasher = self.base.clone();
        text.hash(&mut hasher);
        hasher.finish()
    }

    fn compiler(&self) -> Command {
        Command::new(&self.cxx)
    }

    fn write(&self, path: &Path, text: &str) -> Result<()> {
        let temporary = self.temporary(path);
        let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| failed(path, &error))
    }

    fn temporary(&self, path: &Path) -> PathBuf {
        let extension = path.extension().unwrap_or_default().display();
        path.with_extension(format!("{}-{:?}.{extension}", std::process::id(), thread::current().id()))
    }

    /// Runs a command that makes a file, which appears when it is whole.
    fn finish(&self, path: &Path, command: impl FnOnce(&Path) -> Command) -> Result<()> {
        let temporary = self.temporary(path);
        let output = command(&temporary).output();
        let output = output.map_err(|error| Error::at(0, format!("{} does not run: {error}", self.cxx)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::at(0, format!("{} fails for {}:\n{said}", self.cxx, path.display())));
        }
        fs::rename(&temporary, path).map_err(|error| failed(path, &error))
    }

    /// Compiles files on all cores. Returns the objects, in another order.
    fn compile(&self, mut files: Vec<(String, String)>) -> Result<Vec<PathBuf>> {
        // Long files take the longest, so they come first; the list is taken from its end.
        files.sort_by_key(|(_, text)| text.len());
        let (files, results) = (Mutex::new(files), Mutex::new(Vec::new()));
        let work = || {
            loop {
                let next = files.lock().map(|mut files| files.pop());
                let Ok(Some((name, text))) = next else { return };
                let result = self.object(&name, &text);
                if let Ok(mut results) = results.lock() {
                    results.push(result);
                }
            }
        };
        thread::scope(|scope| {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            (0..cores).for_each(|_| drop(scope.spawn(work)));
        });
        results.into_inner().map_err(|_| Error::at(0, "a thread has failed"))?.into_iter().collect()
    }

    fn object(&self, name: &str, text: &str) -> Result<PathBuf> {
        let source = self.folder.join(name).with_extension(format!("{:016x}.cpp", self.hash(text)));
        let object = source.with_extension("o");
        // The simulation runs for longer than it is compiled, most kernels do not. Without any optimization the
        // registers of large kernels do not fit on a thread's stack.
        let optimization = if SOURCES.iter().any(|(source, _)| *source == name) { "-O2" } else { "-O1" };
        if !object.exists() {
            self.write(&source, text)?;
            self.finish(&object, |to| {
                let mut command = self.compiler();
                command.args(FLAGS).arg(optimization).arg("-c").arg(&source).arg("-o").arg(to);
                command
            })?;
        }
        Ok(object)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::at(0, format!("{}: {error}", path.display()))
}
