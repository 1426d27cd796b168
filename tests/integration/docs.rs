//! The tests that docs name exist, and their links lead somewhere.

use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Tables of the documentation say of each subject which tests hold it.
#[test]
fn tests_that_pages_name_exist() {
    let root = root();
    let mut files = Vec::new();
    for folder in ["src", "warpfeed-bench/src", "warpfeed-cli/src", "tests/integration", "cuda-sim/nvjpeg/tests"] {
        collect(root, &root.join(folder), &mut files);
    }
    for (page, heading, column, least) in [
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

/// These programs are compiled in other workspaces.
#[test]
fn pages_have_the_examples_of_other_workspaces() {
    let read = |path| fs::read_to_string(root().join(path)).unwrap();
    for (page, example) in [
        ("docs/tch.md", "warpfeed-tch/examples/thirty_lines.rs"),
        ("docs/serving.md", "examples/onnx/src/bin/ort.rs"),
        ("docs/serving.md", "examples/onnx/src/bin/tract.rs"),
    ] {
        let text = read(example);
        let (_, program) = text.split_once("\n\n").unwrap();
        assert!(
            read(page).contains(&format!("```rust,ignore\n{program}```")),
            "{page} has another program than {example}"
        );
    }
}

/// Functions with names of at least this many underscores are tests, or are named in full for another reason.
const UNDERSCORES: usize = 3;

/// These pages name tests by their functions, and files by their paths.
#[test]
fn functions_and_files_that_pages_name_exist() {
    let root = root();
    let mut files = Vec::new();
    let folders = ["src", "tests", "cuda-sim", "warpfeed-image/src", "warpfeed-image/tests"];
    for folder in folders.into_iter().chain(["warpfeed-bench/src", "warpfeed-cli/src"]) {
        collect(root, &root.join(folder), &mut files);
    }
    for (page, least) in [("docs/reliability.md", 40), ("cuda-sim/README.md", 20)] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let quoted = lines(&text).into_iter().flat_map(|line| line.split('`').skip(1).step_by(2));
        let (paths, names): (Vec<&str>, Vec<&str>) = quoted.partition(|name| name.contains('/'));
        let functions: Vec<&str> = names.into_iter().filter(|name| is_function(name)).collect();
        assert!(functions.len() > least, "{page}: {functions:?}");
        for function in functions {
            let declared = format!("fn {function}(");
            assert!(files.iter().any(|(_, text)| text.contains(&declared)), "{page}: there is no function {function}");
        }
        let folder = root.join(page).parent().unwrap().to_owned();
        for path in paths.into_iter().filter(|path| path.ends_with(".rs") || path.ends_with(".py")) {
            let places = [root.join(path), folder.join(path), root.join("warpfeed-image/src/decode").join(path)];
            assert!(places.iter().any(|place| place.exists()), "{page}: there is no file {path}");
        }
    }
}

#[test]
fn links_of_pages_lead_somewhere() {
    let root = root();
    let mut wrong = Vec::new();
    for page in pages(root) {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root.join(&page) } else { root.join(&page).parent().unwrap().join(path) };
            let leads = if anchor.is_empty() {
                target.exists()
            } else {
                fs::read_to_string(target).is_ok_and(|text| anchors(&text).iter().any(|own| own == anchor))
            };
            if !leads {
                wrong.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere: {wrong:#?}");
}

/// The book's pages are those of its folder.
#[test]
fn the_book_has_every_page_once() {
    let root = root();
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
    let mut listed: Vec<String> = links(&summary).into_iter().map(|page| format!("docs/{page}")).collect();
    listed.push("docs/SUMMARY.md".to_owned());
    listed.sort();
    let mut found: Vec<String> = pages(root).into_iter().filter(|page| page.starts_with("docs/")).collect();
    found.sort();
    assert_eq!(listed, found);
}

/// All pages of the documentation, by their paths from the root.
fn pages(root: &Path) -> Vec<String> {
    let mut pages: Vec<String> = [
        "README.md",
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "DESIGN.md",
        "SECURITY.md",
        "cuda-sim/README.md",
        "kernels/README.md",
        "nvjpeg/README.md",
        "nvjpeg-sys/README.md",
        "warpfeed-bench/README.md",
        "warpfeed-burn/README.md",
        "warpfeed-cli/README.md",
        "warpfeed-image/README.md",
        "warpfeed-python/README.md",
        "warpfeed-tch/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages
}

/// Lines outside of blocks of code.
fn lines(text: &str) -> Vec<&str> {
    let (mut lines, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line);
        }
    }
    lines
}

/// Targets of links, without addresses of other sites.
fn links(text: &str) -> Vec<&str> {
    let rests = lines(text).into_iter().flat_map(|line| line.split("](").skip(1));
    let targets = rests.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://")).collect()
}

/// Anchors of a page's headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = lines(text).into_iter().filter(|line| line.starts_with('#'));
    let words = headings.map(|heading| heading.trim_start_matches('#').trim().to_lowercase());
    words
        .map(|words| words.replace(|c: char| !c.is_alphanumeric() && !" -_".contains(c), "").replace(' ', "-"))
        .collect()
}

/// Whether a name between backticks is a function's.
fn is_function(name: &str) -> bool {
    name.matches('_').count() >= UNDERSCORES
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
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
