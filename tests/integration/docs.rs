//! The tests that docs name exist.

use std::fs;
use std::path::Path;

/// Tables of the documentation say of each subject which tests hold it.
#[test]
fn tests_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests/integration", "cuda-sim/nvjpeg/tests"] {
        collect(root, &root.join(folder), &mut files);
    }
    for (page, heading, column, least) in [
        ("docs/detection.md", "## What is tested", 2, 20),
        ("docs/caches.md", "## What kept files depend on", 4, 8),
        ("docs/gpu.md", "## In one process with other libraries", 3, 8),
    ] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let (_, table) = text.split_once(heading).unwrap();
        let table = table.split("\n## ").next().unwrap();
        let named = table.lines().filter_map(|line| line.split('|').nth(column));
        let names: Vec<&str> = named.flat_map(|names| names.split('`').skip(1).step_by(2)).collect();
        assert!(names.len() > least, "{page}: {names:?}");
        let missing: Vec<&&str> = names.iter().filter(|name| !exists(&files, name)).collect();
        assert!(missing.is_empty(), "{page}: no such tests: {missing:?}");
    }
}

/// Whether a file of the test's module has a test of this name, or, for a module of tests, such a module.
fn exists(files: &[(String, String)], name: &str) -> bool {
    let (modules, test) = name.rsplit_once("::").unwrap_or(("", name));
    let modules: Vec<&str> = modules.split("::").filter(|module| *module != "tests").collect();
    let own = files.iter().filter(|(path, _)| {
        let parts: Vec<&str> = path.split('/').collect();
        modules.iter().all(|module| parts.contains(module))
    });
    let searched = if test == "tests" { "#[test]\n".to_owned() } else { format!("fn {test}()") };
    own.map(|(_, text)| text).any(|text| text.contains(&searched))
}

/// All Rust files below a folder: their paths from the root without the ending, and their texts.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if let (Some("rs"), Ok(text)) = (path.extension().and_then(|e| e.to_str()), fs::read_to_string(&path)) {
            let name = path.strip_prefix(root).unwrap().with_extension("");
            files.push((name.to_str().unwrap().to_owned(), text));
        }
    }
}
