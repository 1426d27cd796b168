//! scripts/setup on machines with and without a card.
#![cfg(unix)]

use std::fs::{self, read_to_string};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of scripts/ in a folder of its own, and a folder of stand-ins that comes first in PATH.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// One whose driver says that it is for this version of CUDA; `None` without a card.
    fn new(cuda: Option<&str>) -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(machine.path("scripts")).unwrap();
        for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), machine.path("scripts").join(entry.file_name())).unwrap();
            }
        }
        machine.tool("bin/nasm", "");
        machine.tool("bin/ldconfig", "");
        machine.tool(
            "bin/nvidia-smi",
            &cuda.map_or("exit 9".to_owned(), |cuda| {
                format!("echo '| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06      CUDA Version: {cuda}     |'")
            }),
        );
        // `python3 -m venv FOLDER`, whose pip makes an nvcc and an nvJPEG from the requirements that it is given.
        machine.tool(
            "bin/python3",
            r#"[ "$1 $2" = "-m venv" ] || exit 1
mkdir -p "$3/bin" && cat >"$3/bin/pip" <<'END' && chmod +x "$3/bin/pip"
#!/bin/sh
for last; do :; done
echo "$(basename "$last")" >>"$LOG"
site=$(dirname "$0")/../lib/python3.11/site-packages/nvidia/cu13
mkdir -p "$site/bin" "$site/lib"
case $last in *nvcc*) touch "$site/bin/nvcc" ;; *) touch "$site/lib/libnvjpeg.so.13" ;; esac
END"#,
        );
        machine
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs scripts/setup; what it installed, and what it said.
    fn set_up(&self, variables: &[(&str, &str)]) -> (Vec<String>, String) {
        let log = self.path("installed");
        fs::write(&log, "").unwrap();
        let mut command = Command::new(self.path("scripts/setup"));
        for name in ["NVCC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "WARPFEED_NVJPEG"] {
            command.env_remove(name);
        }
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        let output = command.env("PATH", path).env("LOG", &log).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let installed = read_to_string(log).unwrap().lines().map(str::to_owned).collect();
        (installed, String::from_utf8(output.stderr).unwrap())
    }
}

/// Whether setup finds a toolkit in places without stand-ins.
fn toolkit_is_installed() -> bool {
    Path::new("/usr/local/cuda").exists() || Path::new("/usr/bin/nvcc").exists()
}

#[test]
fn a_card_gets_compiler_and_nvjpeg_once() {
    for cuda in ["13.0", "13.3", "14.1"] {
        let machine = Machine::new(Some(cuda));
        let (installed, _) = machine.set_up(&[]);
        if toolkit_is_installed() {
            assert!(!installed.contains(&"nvcc-13.txt".to_owned()));
            continue;
        }
        assert_eq!(installed, ["nvcc-13.txt", "nvjpeg-13.txt"], "CUDA {cuda}");
        assert!(machine.path("build.rs").exists(), "touched, so that cargo looks again");
        assert!(machine.set_up(&[]).0.is_empty());
    }
}

#[test]
fn an_installed_toolkit_is_used() {
    let machine = Machine::new(Some("13.0"));
    machine.tool("toolkit/bin/nvcc", "");
    let home = machine.path("toolkit");
    let (installed, _) = machine.set_up(&[("CUDA_HOME", home.to_str().unwrap()), ("WARPFEED_NVJPEG", "/there")]);
    assert!(installed.is_empty(), "{installed:?}");
}

#[test]
fn a_driver_without_a_compiler_on_pypi_is_told_what_to_do() {
    let machine = Machine::new(Some("12.4"));
    let (installed, said) = machine.set_up(&[]);
    assert!(!installed.contains(&"nvcc-13.txt".to_owned()), "the driver could not load what it makes");
    assert!(said.contains("CUDA 12 toolkit") || toolkit_is_installed(), "{said}");
}

#[test]
fn without_a_card_nothing_is_installed() {
    let (installed, said) = Machine::new(None).set_up(&[]);
    assert!(installed.is_empty() || Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists());
    assert!(said.is_empty(), "{said}");
}
