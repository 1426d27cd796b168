//! Tests of the catalog, and of the text that is made from it.

use super::*;
use std::fmt::Write;
use std::fs;
use std::path::Path;

#[test]
fn the_written_forms_of_the_catalog_are_read() {
    assert!(Transform::catalog().is_ok());
    for entry in catalog() {
        let read: Transform = serde_json::from_value(entry.written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), entry.written, "{}", entry.constructor);
        read.validate().unwrap();
    }
}

#[test]
fn the_documentation_has_the_catalog() {
    let mut table = String::new();
    for (random, title) in [(true, "transform"), (false, "operation")] {
        let _ = write!(table, "| {title} | in Rust | as JSON |\n| --- | --- | --- |\n");
        for entry in catalog().into_iter().filter(|entry| entry.random == random) {
            let _ = writeln!(table, "| {} | `{}` | `{}` |", entry.name, entry.constructor, entry.written);
        }
        table.push('\n');
    }
    compare("docs/operations.md", "<!--transforms-->\n", Some("<!--/transforms-->"), &table);
}

/// Compares a file's text between two marks, or after one, with what it should be. With `WARPFEED_WRITE_TABLE` writes
/// it first.
fn compare(path: &str, begin: &str, end: Option<&str>, want: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = fs::read_to_string(&file).unwrap();
    let start = text.find(begin).expect("the text begins") + begin.len();
    let stop = end.map_or(text.len(), |end| start + text[start..].find(end).expect("the text ends"));
    if std::env::var_os("WARPFEED_WRITE_TABLE").is_some() {
        fs::write(file, [&text[..start], want, &text[stop..]].concat()).unwrap();
    } else {
        let remedy = "WARPFEED_WRITE_TABLE=1 cargo test --package warpfeed --lib catalog";
        assert!(text[start..stop] == *want, "{path} is not what the catalog gives; {remedy} writes it");
    }
}
