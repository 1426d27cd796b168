//! Entry points in a folder, while the process is killed or the disk refuses.

use crate::pack::{image_folder, library};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Lets changes of a folder fail: refuses them as a disk that is mounted read-only (`FAULT=read-only`), takes no more
/// bytes (`full`), or kills the process before a change (`3`: before the third), a write after half of its bytes.
pub(crate) const FAULTS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static long changes;
static int is_inside(const char *path) {
    const char *folder = getenv("FOLDER");
    return strncmp(path, folder, strlen(folder)) == 0;
}
static int is_fault(const char *name) { return strcmp(getenv("FAULT"), name) == 0; }
static int is_last(void) { return ++changes == atol(getenv("FAULT")); }
static int refused(const char *path) {
    if (!is_inside(path)) return 0;
    if (is_last()) kill(getpid(), SIGKILL);
    errno = EROFS;
    return is_fault("read-only");
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && refused(path)) return -1;
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int mkdir(const char *path, mode_t mode) { return refused(path) ? -1 : syscall(SYS_mkdirat, AT_FDCWD, path, mode); }
int unlink(const char *path) { return refused(path) ? -1 : syscall(SYS_unlinkat, AT_FDCWD, path, 0); }
int rename(const char *from, const char *to) {
    return refused(to) ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return refused(to) ? -1 : syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}
ssize_t write(int file, const void *bytes, size_t count) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) > 0 && is_inside(path)) {
        if (is_fault("full")) {
            errno = ENOSPC;
            return -1;
        }
        if (is_last()) {
            syscall(SYS_write, file, bytes, count / 2);
            kill(getpid(), SIGKILL);
        }
    }
    return syscall(SYS_write, file, bytes, count);
}
"#;

/// Two epochs over the images, with entry points in the home below `folder`, and a fault if there is one.
fn run(images: &str, folder: &Path, fault: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
    command.args(["run", images, "--preset", "train", "--epochs", "2", "--threads", "1", "--digest", "--json"]);
    command.env_remove("XDG_CACHE_HOME").env_remove("WARPFEED_ENTRY_POINTS").env("HOME", folder.join("home"));
    if let Some(fault) = fault {
        command.env("LD_PRELOAD", folder.join("library.so")).env("FAULT", fault).env("FOLDER", folder.join("home"));
    }
    command.output().unwrap()
}

/// The digest of a run, and the number of images that were decoded from entry points.
fn report(output: &Output) -> (String, u64) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    (report["digest"].as_str().unwrap().to_owned(), report["decoded"]["entry_points"].as_u64().unwrap())
}

/// Every change of the folder, from the first run's key to the file's name, is once the one before which the process
/// dies.
#[test]
fn a_process_that_is_killed_while_it_writes_loses_nothing_but_time() {
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(folder.path(), 5);
    library(folder.path(), FAULTS);
    let home = folder.path().join("home");
    let (want, _) = report(&run(&images, folder.path(), Some("full")));
    let mut kills = 0;
    loop {
        fs::remove_dir_all(&home).unwrap();
        fs::create_dir(&home).unwrap();
        let output = run(&images, folder.path(), Some(&(kills + 1).to_string()));
        if output.status.signal().is_none() {
            break;
        }
        kills += 1;
        assert_eq!(report(&run(&images, folder.path(), None)).0, want, "kill {kills}");
        // Both epochs have them now, and nothing is left of the killed process.
        assert_eq!(report(&run(&images, folder.path(), None)), (want.clone(), 10), "kill {kills}");
        let points = fs::read_dir(home.join(".cache/warpfeed/entry-points")).unwrap();
        let left: Vec<_> = points.map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().ends_with(".tmp")), "kill {kills}: {left:?}");
    }
    assert!(kills > 10, "{kills}");
}

/// The default folder cannot be written: entry points are in memory, and the run is the same.
#[test]
fn a_read_only_home_and_a_full_disk_lose_nothing_but_time() {
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(folder.path(), 5);
    library(folder.path(), FAULTS);
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let want = report(&run(&images, folder.path(), None));
    for is_known in [true, false] {
        for fault in ["read-only", "full"] {
            let (digest, used) = report(&run(&images, folder.path(), Some(fault)));
            assert!(digest == want.0 && used >= want.1, "{fault}, {is_known}: {used} of {}", want.1);
        }
        fs::remove_dir_all(home.join(".cache")).unwrap();
    }
    assert!(want.1 > 0);
}

/// The key lies in the user's settings, apart from the entry points, so it stays if somebody empties the cache folder.
#[test]
fn packed_points_are_trusted_under_the_users_key() {
    let folder = tempfile::tempdir().unwrap();
    let images = image_folder(folder.path(), 5);
    let packed = folder.path().join("packed").to_str().unwrap().to_owned();
    let warpfeed = |home: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.env_remove("XDG_CONFIG_HOME").env_remove("WARPFEED_PACK_KEY").env("HOME", folder.path().join(home));
        // Without vectors, points that must be checked are not used.
        command.env("WARPFEED_SIMD", "none").args(arguments).output().unwrap()
    };
    let run = |home| {
        let options = ["--threads", "1", "--digest", "--json", "--entry-points", "memory"];
        report(&warpfeed(home, &[&["run", &packed, "--preset", "train"][..], &options].concat()))
    };
    let packing = warpfeed("home", &["pack", &images, "-o", &packed, "--format", "tfrecord", "--entry-points"]);
    assert!(packing.status.success(), "{}", String::from_utf8_lossy(&packing.stderr));
    assert!(folder.path().join("home/.config/warpfeed/pack-key/key").is_file());
    let (want, sealed) = run("home");
    assert_eq!(sealed, 5);
    assert_eq!(run("another home"), (want, 0));
}

/// Has a process fork a child that lives on (`HOW=fork`), or stop (`stop`), while it holds the folder's lock.
const HOLDS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int rename(const char *from, const char *to) {
    size_t len = strlen(to);
    if (len > 7 && !strcmp(to + len - 7, ".points")) {
        if (!strcmp(getenv("HOW"), "stop")) raise(SIGSTOP);
        else if (!fork()) {
            sleep(30);
            _exit(0);
        }
    }
    return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
"#;

#[test]
fn neither_a_forked_child_nor_a_stopped_process_is_waited_for() {
    for how in ["fork", "stop"] {
        let [folder, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (images, others) = (image_folder(folder.path(), 5), image_folder(other.path(), 7));
        library(folder.path(), HOLDS);
        let mut first = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        first.args(["run", &images, "--threads", "1"]).env("HOME", folder.path().join("home"));
        first.env_remove("XDG_CACHE_HOME").env_remove("WARPFEED_ENTRY_POINTS").env("HOW", how);
        first.env("LD_PRELOAD", folder.path().join("library.so")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut first = first.spawn().unwrap();
        let points = folder.path().join("home/.cache/warpfeed/entry-points");
        let is_written = || {
            let names = fs::read_dir(&points).into_iter().flatten().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_str().unwrap().ends_with(".points")).count()
        };
        if how == "fork" {
            assert!(first.wait().unwrap().success());
            assert!(is_written() > 0);
        } else {
            let status = format!("/proc/{}/stat", first.id());
            while !fs::read_to_string(&status).unwrap().contains(") T ") {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let before = is_written();
        let start = Instant::now();
        let output = run(&others, folder.path(), None);
        // It took 50 s.
        assert!(start.elapsed() < Duration::from_secs(20), "{how}: {:?}", start.elapsed());
        report(&output);
        let said = String::from_utf8_lossy(&output.stderr).contains("another process is writing");
        assert_eq!((is_written() > before, said), (how == "fork", how == "stop"), "{how}");
        let _ = first.kill();
        first.wait().unwrap();
    }
}
