//! Tests of the catalog, and of the text that is made from it.

use super::*;
use crate::ops::parameters::Parameter;
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Parameters that come first in Python, in this order. They are required or may be `None`.
const FIRST: [(&str, &[&str]); 3] = [
    ("elastic", &["key"]),
    ("gaussian_noise", &["sigma", "key"]),
    ("resize", &["size", "width", "height", "max_size"]),
];

/// Parameters of transforms that the written form requires, but which have a default in Python, as in torchvision: the
/// example's value.
const WITH_DEFAULT: [&str; 5] = ["alpha", "distortion", "p", "policy", "sigma"];

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
        let _ = write!(table, "| {title} | in Rust | in Python | as JSON |\n| --- | --- | --- | --- |\n");
        for entry in catalog().into_iter().filter(|entry| entry.random == random) {
            let CatalogEntry { name, constructor, written, .. } = &entry;
            let _ = writeln!(table, "| {name} | `{constructor}` | `{}` | `{written}` |", literal(written));
        }
        table.push('\n');
    }
    compare("docs/operations.md", "<!--transforms-->\n", Some("<!--/transforms-->"), &table);
}

#[test]
fn python_has_the_catalog() {
    let classes: String = catalog().iter().map(class).collect();
    compare("warpfeed-python/python/warpfeed/transforms.py", "src/ops/tests/catalog.rs.\n", None, &classes);
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

/// The Python class of a transform or an operation.
fn class(entry: &CatalogEntry) -> String {
    let CatalogEntry { name, summary, .. } = entry;
    let title = python_name(name);
    let kind = if entry.random { "transform" } else { "op" };
    let mut class = format!("\n\n@dataclass(frozen=True)\nclass {title}(Written):\n");
    let _ = write!(class, "    \"\"\"{summary}\"\"\"\n\n    _tag = ({kind:?}, {name:?})\n");
    for (i, parameter) in in_order(entry).iter().enumerate() {
        let Parameter { name, python_type, default } = parameter;
        let blank = if i == 0 { "\n" } else { "" };
        // Python has a word for it.
        let name = if name == "from" { "from_" } else { name };
        let or_none = if *default == Some(Value::Null) { " | None" } else { "" };
        let default = default.as_ref().map_or_else(String::new, |value| format!(" = {}", literal(value)));
        let _ = writeln!(class, "{blank}    {name}: {python_type}{or_none}{default}");
    }
    class
}

fn python_name(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

/// The parameters in Python's order: without a default; with one, by their names; those that may be `None`.
fn in_order(entry: &CatalogEntry) -> Vec<Parameter> {
    let mut parameters = entry.parameters.clone();
    for last in parameters.iter_mut().filter(|parameter| parameter.default.is_none()).rev() {
        if !entry.random || !WITH_DEFAULT.contains(&last.name.as_str()) {
            break;
        }
        last.default = Some(entry.written[&last.name].clone());
    }
    let first = FIRST.iter().find(|(name, _)| *name == entry.name).map_or(&[][..], |(_, first)| first);
    let place = |parameter: &Parameter| first.iter().position(|name| *name == parameter.name);
    for parameter in parameters.iter_mut().filter(|parameter| place(parameter).is_some()) {
        parameter.default.take_if(|default| !default.is_null());
    }
    parameters.sort_by_key(|parameter| {
        let (kind, name) = match &parameter.default {
            None => (0, String::new()),
            Some(Value::Null) => (2, String::new()),
            Some(_) => (1, parameter.name.clone()),
        };
        (place(parameter).unwrap_or(first.len()), kind, name)
    });
    parameters
}

/// A value as Python writes it: a written form is a call of its class.
fn literal(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) if items.len() == 1 => format!("({},)", literal(&items[0])),
        Value::Array(items) => format!("({})", list(items.iter().map(literal).collect())),
        Value::Object(fields) => {
            let Some(name) = fields.get("transform").or(fields.get("op")) else {
                let field = |(name, value): (&String, &Value)| format!("{name:?}: {}", literal(value));
                return format!("{{{}}}", list(fields.iter().map(field).collect()));
            };
            let entry = catalog().into_iter().find(|entry| entry.name == name).expect("the catalog has it");
            let arguments = in_order(&entry).into_iter().filter_map(|Parameter { name, default, .. }| {
                let value = fields.get(&name).filter(|value| Some(*value) != default.as_ref())?;
                // Python has a word for it.
                let name = if name == "from" { "from_" } else { &name };
                Some(if default.is_some() { format!("{name}={}", literal(value)) } else { literal(value) })
            });
            format!("{}({})", python_name(entry.name), list(arguments.collect()))
        }
        other => other.to_string(),
    }
}
