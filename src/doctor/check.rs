//! The result of one check.

use serde::Serialize;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Finding, as text.
    pub found: String,
    /// Whether nothing is lacking.
    pub ok: bool,
    /// Remedy, if something is lacking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    pub(crate) fn new(name: &'static str, found: impl Into<String>, lack: Option<&str>) -> Self {
        Self { name, found: found.into(), ok: lack.is_none(), remedy: lack.map(str::to_owned) }
    }
}
