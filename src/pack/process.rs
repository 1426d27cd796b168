//! Whether another process lives, as far as this one can tell.

/// What tells this process from all others, in whatever container or on whatever machine they run: the system's start,
/// the container's numbers of processes, the process's number in it, and its start. `None` where the system does not say.
#[cfg(target_os = "linux")]
pub(super) fn identity() -> Option<String> {
    let pid = std::process::id();
    Some(format!("{} {pid} {}", numbering()?, running_since(pid)?))
}

/// Whether the process with this identity lives; `None` if that cannot be told here.
#[cfg(target_os = "linux")]
pub(super) fn is_alive(identity: &str) -> Option<bool> {
    let (rest, since) = identity.rsplit_once(' ')?;
    let (numbers, pid) = rest.rsplit_once(' ')?;
    (numbers == numbering()?).then_some(())?;
    Some(running_since(pid.parse().ok()?).as_deref() == Some(since))
}

/// Within what processes have these numbers.
#[cfg(target_os = "linux")]
fn numbering() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// When a process has begun, in the system's ticks; `None` if there is none, or it has ended and nobody has asked how.
#[cfg(target_os = "linux")]
fn running_since(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have spaces and brackets of its own. See proc(5): the state is field 3, the start field 22.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ended = ["Z", "X"].contains(fields.first()?);
    fields.get(19).filter(|_| !ended).map(|&start| start.to_owned())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn identity() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_alive(_identity: &str) -> Option<bool> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn processes_are_alive_until_they_end() {
        let own = identity().unwrap();
        assert_eq!(is_alive(&own), Some(true));
        let mut child = Command::new("sleep").arg("100").stdout(Stdio::null()).spawn().unwrap();
        let other = format!("{} {} {}", numbering().unwrap(), child.id(), running_since(child.id()).unwrap());
        assert_eq!(is_alive(&other), Some(true));
        child.kill().unwrap();
        while is_alive(&other) == Some(true) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(is_alive(&other), Some(false));
        // Another process of that number, and processes elsewhere.
        let (rest, since) = own.rsplit_once(' ').unwrap();
        assert_eq!(is_alive(&format!("{rest} {since}0")), Some(false));
        for elsewhere in [format!("x{own}"), "1".to_owned(), String::new()] {
            assert_eq!(is_alive(&elsewhere), None, "{elsewhere}");
        }
    }
}
