//! Which module of the library may use which: those with earlier lines in the table, which has the lowest layer first.
//! Tests in src/ may use any module. The crates warpfeed-bench and warpfeed-cli use the names in lib.rs and in its
//! module `internal`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Modules of warpfeed-image, which src/lib.rs imports.
const IMAGE: [&str; 4] = ["decode", "encode", "raster", "simd"];

/// Each module and what it may use.
const MODULES: &[(&str, &str)] = &[
    // The ground.
    ("address", ""),
    ("error", "address"),
    ("hex", ""),
    ("interpolation", ""),
    ("options", "error"),
    ("rng", ""),
    ("trace", ""),
    ("os", "error"),
    ("output", "error os"),
    ("device", "error"),
    // Labels and targets, and what is done to images.
    ("cuda", "device error os"),
    ("fields", "cuda device error interpolation os"),
    ("targets", "error fields output"),
    ("shapes", "error options rng"),
    ("ops", "error fields interpolation os rng shapes targets"),
    ("plan", "error ops"),
    ("pixels", "error ops"),
    ("mix", "error rng targets"),
    // Samples, and the order that they come in.
    ("order", "device error os rng"),
    ("store", "address error os"),
    ("source", "address error fields hex interpolation ops order os output rng store targets"),
    ("sampler", "error order rng source"),
    // Where batches are made.
    ("tensor", "cuda device error fields mix os output targets"),
    ("backend", "cuda device error fields mix ops os plan source targets tensor trace"),
    // What a program builds and calls.
    ("apply", "backend device error fields ops options os pixels plan tensor"),
    ("preset", "error fields mix ops targets"),
    ("transforms", "apply backend error fields ops os pixels plan preset rng targets tensor"),
    ("preprocess", "apply backend device error fields ops os pixels plan preset tensor"),
    ("contract", "apply error hex ops os output plan preprocess preset tensor"),
    (
        "pipeline",
        "apply backend device error fields hex mix ops options order os pixels plan preprocess preset rng sampler shapes source targets tensor trace",
    ),
    // Tools around pipelines.
    ("doctor", "backend cuda error"),
    ("pack", "address apply error fields ops order os pipeline plan source store targets"),
];

#[test]
fn modules_use_what_the_table_has() {
    let mut files = Vec::new();
    collect(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), "src", &[], &mut files);
    let modules: BTreeSet<&str> = files.iter().map(|file| file.module[0].as_str()).collect();

    let mut wrong = Vec::new();
    let mut allowed = BTreeMap::new();
    for (module, uses) in MODULES {
        let uses: BTreeSet<&str> = uses.split_whitespace().collect();
        for used in uses.iter().filter(|used| !allowed.contains_key(*used)) {
            wrong.push(format!("the table: {used} does not stand before {module}, which uses it"));
        }
        if !modules.contains(module) || allowed.insert(*module, uses).is_some() {
            wrong.push(format!("the table: {module} is no module of src/, or stands there twice"));
        }
    }
    for module in modules.iter().filter(|module| !allowed.contains_key(*module)) {
        wrong.push(format!("the table: {module} is missing"));
    }

    let mut used = BTreeSet::new();
    for File { path, module, text } in &files {
        let user = module[0].as_str();
        for (line, name) in uses(module, text) {
            if IMAGE.contains(&name.as_str()) {
                continue;
            }
            if !modules.contains(name.as_str()) {
                wrong.push(format!(
                    "{path}:{line}: crate::{name} is no module: import it from the module that has it, not from lib.rs"
                ));
            } else if name != user && allowed.get(user).is_some_and(|uses| !uses.contains(name.as_str())) {
                wrong.push(format!("{path}:{line}: {user} uses {name}, which the table does not allow"));
            }
            used.insert((user, name));
        }
    }
    for (user, uses) in &allowed {
        for name in uses.iter().filter(|name| !used.contains(&(*user, (**name).to_owned()))) {
            wrong.push(format!("the table: {user} does not use {name}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A file of the library.
struct File {
    /// Relative to the package.
    path: String,
    /// The module that it is, from the library's root.
    module: Vec<String>,
    text: String,
}

/// Reads the files of a folder and of the folders in it, except lib.rs and modules named `tests`.
fn collect(package: &Path, folder: &str, module: &[String], files: &mut Vec<File>) {
    for entry in fs::read_dir(package.join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        let stem = name.trim_end_matches(".rs");
        let inner = if stem == "mod" { module.to_vec() } else { [module, &[stem.to_owned()]].concat() };
        if stem == "tests" || module.is_empty() && stem == "lib" {
            continue;
        }
        if name.ends_with(".rs") {
            let text = fs::read_to_string(package.join(&path)).unwrap();
            files.push(File { path, module: inner, text });
        } else if package.join(&path).is_dir() {
            collect(package, &path, &inner, files);
        }
    }
}

/// The top-level module that each path through `crate`, `self` or `super` in a file names, with its line; none for a
/// path that stays within the file's own. Code that is compiled only for tests is left out.
fn uses(module: &[String], text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let is = |at: usize, wanted: &[&str]| tokens.iter().skip(at).take(wanted.len()).map(|(_, token)| token).eq(wanted);
    let mut found = Vec::new();
    // The modules in braces that a token is in, each with the depth of the braces around it.
    let mut inside: Vec<(&str, usize)> = Vec::new();
    let (mut at, mut depth) = (0, 0);
    while at < tokens.len() {
        match tokens[at].1 {
            "#" if is(at + 1, &["[", "cfg", "(", "test", ")"])
                || is(at + 1, &["[", "cfg", "(", "all", "(", "test"]) =>
            {
                at = item_end(&tokens, at);
                continue;
            }
            "mod" if is(at + 2, &["{"]) => inside.push((tokens[at + 1].1, depth)),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inside.pop_if(|(_, around)| *around == depth);
            }
            "crate" | "self" | "super" if is(at + 1, &["::"]) && (at == 0 || !is(at - 1, &["::"])) => {
                let inner = inside.iter().map(|(name, _)| (*name).to_owned());
                follow(&tokens, at, module.iter().cloned().chain(inner).collect(), &mut found);
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Goes along a path from its first token, and into its groups. `path` is the module that it starts from. Returns the
/// index of the token after it.
fn follow(tokens: &[(usize, &str)], mut at: usize, mut path: Vec<String>, found: &mut Vec<(usize, String)>) -> usize {
    let is = |at: usize, wanted| tokens.get(at).is_some_and(|(_, token)| *token == wanted);
    loop {
        let (line, name) = tokens[at];
        at += 1;
        match name {
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            "{" => {
                while !is(at, "}") {
                    at = follow(tokens, at, path.clone(), found);
                    at += usize::from(is(at, ","));
                }
                return at + 1;
            }
            name => {
                if path.is_empty() {
                    found.push((line, name.to_owned()));
                }
                path.push(name.to_owned());
            }
        }
        if !is(at, "::") {
            return if is(at, "as") { at + 2 } else { at };
        }
        at += 1;
    }
}

/// The index of the token after the item whose first attribute begins at `start`.
fn item_end(tokens: &[(usize, &str)], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (_, token)) in tokens.iter().enumerate().skip(start) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            ")" | "]" | "}" => depth -= 1,
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Words, `::` and single characters, each with its line; no blanks, comments, strings and characters in quotes.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let (mut tokens, mut line, mut rest) = (Vec::new(), 1, text);
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut token = true;
        let len = if let Some(len) = skipped(rest) {
            token = false;
            len
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            token = !first.is_whitespace();
            first.len_utf8()
        };
        if token {
            tokens.push((line, &rest[..len]));
        }
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// The length of the comment, the string or the character in quotes that a text begins with.
fn skipped(text: &str) -> Option<usize> {
    let end =
        |start: usize, pattern: &str| text[start..].find(pattern).map_or(text.len(), |at| start + at + pattern.len());
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(end(2, "*/"));
    }
    if let Some(raw) = ["r", "br", "cr"].iter().find_map(|prefix| text.strip_prefix(prefix)) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            return Some(end(text.len() - raw.len() + hashes + 1, &format!("\"{}", &raw[..hashes])));
        }
    }
    if let Some(string) = text.strip_prefix('"') {
        let mut escaped = false;
        let close = |c: char| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        };
        return Some(string.find(close).map_or(text.len(), |at| at + 2));
    }
    let character = text.strip_prefix('\'')?;
    if character.starts_with('\\') {
        return Some(end(3, "'"));
    }
    // A lifetime has no second quote.
    let len = character.chars().next()?.len_utf8();
    character[len..].starts_with('\'').then_some(len + 2)
}

#[test]
fn a_use_is_found_wherever_it_stands() {
    let text = r####"
        //! crate::comment
        use crate::{a, b::{self as other, c}, d::*}; /* crate::comment */
        use super::super::e::f;
        pub(crate) use self::own::thing;
        #[cfg(test)]
        use crate::test::x;
        fn body<'a>(quote: char) -> &'a str {
            let _ = ('"', '\'', b'"', "\" crate::string", r#"" crate::string"#, quote == 'x');
            macro_rules! m { () => { $crate::g::h() } }
            crate::i::j(<crate::k::L as super::super::l::M>::n(), super::room::p())
        }
        mod inner { use super::super::super::q::r; mod deeper {} use super::own::s; }
        #[cfg(all(test, unix))]
        #[allow(unused)]
        mod tests { use crate::test::y; fn f() { crate::test::z() } }
        fn after() -> super::super::t::U { <T as V>::own::crate_() }
    "####;
    let found: Vec<_> = uses(&["own".to_owned(), "room".to_owned()], text).into_iter().map(|(_, name)| name).collect();
    assert_eq!(found, ["a", "b", "d", "e", "g", "i", "k", "l", "q", "t"]);
    assert_eq!(uses(&["a".to_owned()], "\n\nfn f() {\n    crate::b::c()\n}"), [(4, "b".to_owned())]);
}

/// Ways to open a file that wait for the other end of a pipe, and that may read without end.
const OTHER_WAYS: [&str; 8] = [
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options()",
    "fs::read(",
    "fs::write(",
    "fs::read_to_string(",
    "fs::copy(",
];

/// Places that open files in these ways, with the reason.
const OPENERS: &[(&str, &str)] = &[
    ("warpfeed-image/src/file.rs", "the one way"),
    ("warpfeed-image/src/decode/shared_folder.rs", "new files of random names"),
    ("src/os/atomic.rs", "new files of random names, folders, and outputs that the user names, which may be pipes"),
    ("src/source/stream/pipe.rs", "pipes that the user names as shards"),
    ("warpfeed-bench/src/ticks.rs", "the system's own files"),
    ("warpfeed-bench/src/events.rs", "an output that the user names, which may be a pipe"),
    ("warpfeed-cli/src/command/experiment.rs", "a new file of a random name"),
];

#[test]
fn files_are_opened_in_one_way() {
    let package = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut folders: Vec<String> =
        ["src", "warpfeed-bench/src", "warpfeed-cli/src", "warpfeed-image/src", "nvjpeg/src", "warpfeed-python/src"]
            .map(str::to_owned)
            .into();
    let mut wrong = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(package.join(&folder)).unwrap() {
            let path = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
            if package.join(&path).is_dir() {
                folders.push(path);
                continue;
            }
            let is_for_tests = path.contains("/tests") || !path.ends_with(".rs");
            if is_for_tests || OPENERS.iter().any(|(opener, _)| path == *opener) {
                continue;
            }
            let text = fs::read_to_string(package.join(&path)).unwrap();
            // What follows is for tests alone.
            let is_module = |rest: &str| {
                let item = rest.lines().skip(1).find(|line| !line.starts_with("#["));
                item.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
            };
            let mut ends = text.match_indices("\n#[cfg(").map(|(at, _)| at);
            let is_test =
                |rest: &str| ["\n#[cfg(test)]", "\n#[cfg(all(test"].iter().any(|start| rest.starts_with(start));
            let end = ends.find(|&at| is_test(&text[at..]) && is_module(&text[at..]));
            let lines = text[..end.unwrap_or(text.len())].lines().zip(1..);
            for (line, number) in lines.filter(|(line, _)| !line.trim_start().starts_with("//")) {
                // The system's own files are not pipes, and they end.
                let is_of_system = ["\"/proc", "\"/sys"].iter().any(|place| line.contains(place));
                let is_whole = |at: usize| !line[..at].ends_with(|before: char| before.is_alphanumeric());
                let mut ways = OTHER_WAYS.iter().flat_map(|way| line.match_indices(way));
                if ways.any(|(at, _)| is_whole(at)) && !is_of_system && !line.contains("open_by(") {
                    wrong.push(format!("{path}:{number}: {}", line.trim()));
                }
            }
        }
    }
    let help = "open it by warpfeed::source::read_limited, src/os/file.rs or warpfeed_image::file, or add the file to the table above";
    assert!(wrong.is_empty(), "{help}:\n{}", wrong.join("\n"));
}
