//! What is said of one thing looked at.

use serde::Serialize;

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// Whether nothing is lacking.
    pub ok: bool,
    /// What to do about it, where something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    pub(crate) fn new(name: &'static str, found: impl Into<String>, lack: Option<&str>) -> Self {
        Self { name, found: found.into(), ok: lack.is_none(), remedy: lack.map(str::to_owned) }
    }
}
