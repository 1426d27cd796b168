//! A warning if this crate is compiled without optimization, as by `cargo run`.

use std::sync::Once;

/// The environment variable that silences the warning.
const VARIABLE: &str = "WARPFEED_ALLOW_SLOW";

/// Prints one line to standard error, once in a process, if this crate was compiled without optimization.
pub(crate) fn warn() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(line) = warning(env!("WARPFEED_OPT_LEVEL"), std::env::var_os(VARIABLE).is_some()) {
            eprintln!("{line}");
        }
    });
}

/// The warning at an optimization level, unless it is silenced.
fn warning(opt_level: &str, is_silenced: bool) -> Option<String> {
    (opt_level == "0" && !is_silenced).then(|| {
        format!(
            "warpfeed: compiled without optimization, so about 30 times slower: build with --release, or add \
             [profile.dev.package.\"*\"] opt-level = 3 to your Cargo.toml ({VARIABLE}=1 silences this)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn only_builds_without_optimization_warn_unless_silenced() {
        let line = warning("0", false).unwrap();
        assert!(line.contains("opt-level = 3") && line.lines().count() == 1, "{line}");
        assert!(warning("0", true).is_none());
        for level in ["1", "2", "3", "s", "z"] {
            assert!(warning(level, false).is_none(), "{level}");
        }
    }
}
