//! `data.yaml`, the file of a YOLO data set, in a part of YAML.

/// Contents of a file. Other keys are skipped with everything below them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct DataFile {
    pub path: Option<String>,
    /// The splits with their folders and lists of images, in the order of the file.
    pub splits: Vec<(String, Vec<String>)>,
    /// The names of the classes, class 0 first.
    pub names: Vec<String>,
    pub kpt_shape: Option<[usize; 2]>,
    pub flip_idx: Option<Vec<usize>>,
}

/// The value of a key.
#[derive(Debug, PartialEq)]
enum Value {
    Missing,
    Scalar(String),
    List(Vec<String>),
    Map(Vec<(String, String)>),
}

type Lines<'a> = std::iter::Peekable<std::vec::IntoIter<(usize, &'a str)>>;

impl DataFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// A message with the line of the key.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let (mut classes, mut seen) = (None, Vec::new());
        let lines: Vec<(usize, &str)> =
            text.trim_start_matches('\u{feff}').lines().zip(1..).map(|(l, n)| (n, l)).collect();
        let mut lines = lines.into_iter().peekable();
        while let Some((number, line)) = lines.next() {
            let line = without_comment(line);
            if line.is_empty() || (line == "---" && seen.is_empty()) {
                continue;
            }
            let failed = |message: String| format!("line {number}: {message}");
            let (key, rest) = entry(line).map_err(failed)?;
            let below = below(&mut lines);
            if seen.contains(&key) {
                return Err(failed(format!("{key} is there twice")));
            }
            let value = || value(rest, &below).map_err(|message| failed(format!("{key}: {message}")));
            match &*key {
                "path" => found.path = value()?.scalar().map_err(failed)?,
                "train" | "val" | "test" => {
                    let paths = match value()? {
                        Value::Missing => Vec::new(),
                        Value::Scalar(path) => vec![path],
                        Value::List(paths) => paths,
                        Value::Map(_) => return Err(failed(format!("{key} must be a path or a list of them"))),
                    };
                    if !paths.is_empty() {
                        found.splits.push((key.clone(), paths));
                    }
                }
                "names" => found.names = names(value()?).map_err(failed)?,
                "nc" => classes = value()?.scalar().map_err(failed)?,
                "kpt_shape" => {
                    let shape = value()?.numbers().map_err(failed)?;
                    let shape = <[usize; 2]>::try_from(shape);
                    found.kpt_shape = Some(shape.map_err(|_| failed("kpt_shape must be two numbers".to_owned()))?);
                }
                "flip_idx" => found.flip_idx = Some(value()?.numbers().map_err(failed)?),
                _ => {}
            }
            seen.push(key);
        }
        match classes {
            Some(count) if found.names.is_empty() => {
                let count = count.parse().ok().filter(|count| *count <= 1_000_000);
                let count: usize = count.ok_or_else(|| "nc must be the number of classes".to_owned())?;
                found.names = (0..count).map(|class| format!("class_{class}")).collect();
            }
            Some(count) if count != found.names.len().to_string() => {
                return Err(format!("nc is {count}, but there are {} names", found.names.len()));
            }
            _ => {}
        }
        if found.names.is_empty() { Err("it has no names of classes".to_owned()) } else { Ok(found) }
    }
}

impl Value {
    fn scalar(self) -> Result<Option<String>, String> {
        match self {
            Self::Missing => Ok(None),
            Self::Scalar(text) => Ok(Some(text)),
            other => Err(format!("one value is expected, not {other:?}")),
        }
    }

    fn numbers(self) -> Result<Vec<usize>, String> {
        let Self::List(items) = self else { return Err("a list of numbers is expected".to_owned()) };
        let number = |item: &String| item.parse().map_err(|_| format!("{item:?} is no whole number"));
        items.iter().map(number).collect()
    }
}

/// The names of classes: a list, or a map from each number below their count to its name.
fn names(value: Value) -> Result<Vec<String>, String> {
    match value {
        Value::List(names) => Ok(names),
        Value::Map(pairs) => {
            let number = |(number, name): (String, String)| Some((number.parse::<usize>().ok()?, name));
            let mut named: Vec<_> =
                pairs.into_iter().map(number).collect::<Option<_>>().ok_or("names must have numbers as keys")?;
            named.sort();
            if named.iter().enumerate().any(|(i, (number, _))| i != *number) {
                return Err("names must have each number from 0 on once".to_owned());
            }
            Ok(named.into_iter().map(|(_, name)| name).collect())
        }
        _ => Err("names must be a list or a map".to_owned()),
    }
}

/// Takes the lines that belong to the key before them: those that are indented, the items of a list, and the end of one
/// in brackets.
fn below<'a>(lines: &mut Lines<'a>) -> Vec<&'a str> {
    let mut below = Vec::new();
    let belongs = |line: &str| line.starts_with([' ', '\t', ']', '}']) || line == "-" || line.starts_with("- ");
    while let Some((_, line)) = lines.next_if(|(_, line)| without_comment(line).is_empty() || belongs(line)) {
        below.push(line);
    }
    below
}

/// Reads the value of a key: the rest of its line and the lines below.
fn value(rest: &str, below: &[&str]) -> Result<Value, String> {
    let below: Vec<&str> = below.iter().map(|line| without_comment(line)).filter(|line| !line.is_empty()).collect();
    if rest.starts_with(['[', '{']) {
        return flow(&[&[rest], &below[..]].concat().join(" "));
    }
    if let ([first, ..], false) = (&below[..], rest.is_empty()) {
        return Err(format!("a value of several lines is not read: {first}"));
    }
    if !rest.is_empty() {
        let text = scalar(rest)?;
        let missing = ["~", "null"].contains(&rest);
        return Ok(if missing { Value::Missing } else { Value::Scalar(text) });
    }
    let Some(first) = below.first() else { return Ok(Value::Missing) };
    let indent = |line: &str| line.len() - line.trim_start().len();
    if let Some(other) = below.iter().find(|line| indent(line) != indent(first)) {
        return Err(format!("lines within a list or a map are not read: {}", other.trim()));
    }
    let items = below.iter().map(|line| line.trim());
    if first.trim_start().starts_with('-') {
        let item = |line: &str| match line.strip_prefix('-') {
            Some(item) if item.starts_with(' ') => match entry(item.trim()) {
                Ok(_) => Err(format!("a map in a list is not read: {line}")),
                Err(_) => scalar(item.trim()),
            },
            _ => Err(format!("an item of a list is expected: {line}")),
        };
        return items.map(item).collect::<Result<_, _>>().map(Value::List);
    }
    let pair = |line| entry(line).and_then(|(key, rest)| Ok((key, scalar(rest)?)));
    items.map(pair).collect::<Result<_, _>>().map(Value::Map)
}

/// Reads `[a, b]` or `{0: a, 1: b}`.
fn flow(text: &str) -> Result<Value, String> {
    let wrong = || format!("this is not read: {text}");
    let (is_map, end) = if text.starts_with('{') { (true, '}') } else { (false, ']') };
    let inner = text[1..].strip_suffix(end).ok_or_else(wrong)?;
    let mut items = parts(inner);
    // A comma may follow the last item.
    if items.last().is_some_and(|item| item.is_empty()) {
        items.pop();
    }
    if is_map {
        let pair = |item: &str| entry(item).and_then(|(key, rest)| Ok((key, scalar(rest)?)));
        return items.into_iter().map(pair).collect::<Result<_, _>>().map(Value::Map);
    }
    items.into_iter().map(scalar).collect::<Result<_, _>>().map(Value::List)
}

/// Splits at the commas outside quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, character) in unquoted(text) {
        if character == ',' {
            parts.push(text[start..at].trim());
            start = at + 1;
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// Splits `key: value`.
fn entry(line: &str) -> Result<(String, &str), String> {
    let ends = |at: usize| line[at + 1..].is_empty() || line[at + 1..].starts_with(' ');
    let colon = unquoted(line).find(|(at, character)| *character == ':' && ends(*at));
    let (at, _) = colon.ok_or_else(|| format!("a key and a value are expected: {line}"))?;
    Ok((scalar(line[..at].trim_end())?, line[at + 1..].trim()))
}

/// The text of a value in quotes or without.
fn scalar(text: &str) -> Result<String, String> {
    let wrong = || format!("this is not read: {text}");
    if let Some(rest) = text.strip_prefix('\'') {
        let inner = rest.strip_suffix('\'').ok_or_else(wrong)?;
        let single = inner.replace("''", "");
        return if single.contains('\'') { Err(wrong()) } else { Ok(inner.replace("''", "'")) };
    }
    if let Some(rest) = text.strip_prefix('"') {
        let inner = rest.strip_suffix('"').ok_or_else(wrong)?;
        let mut found = String::new();
        let mut characters = inner.chars();
        while let Some(character) = characters.next() {
            match character {
                '"' => return Err(wrong()),
                '\\' => found.push(characters.next().filter(|c| ['"', '\\', '/'].contains(c)).ok_or_else(wrong)?),
                other => found.push(other),
            }
        }
        return Ok(found);
    }
    // Anchors, tags, text of several lines, and lists within lists.
    if text.starts_with(['&', '*', '!', '|', '>', '%', '@', '`', '[', '{', '?', ']', '}']) || text.contains(": ") {
        return Err(wrong());
    }
    Ok(text.to_owned())
}

/// The line without white space at its end and without a comment.
fn without_comment(line: &str) -> &str {
    let starts = |at: usize| at == 0 || line[..at].ends_with([' ', '\t']);
    let comment = unquoted(line).find(|(at, character)| *character == '#' && starts(*at));
    line[..comment.map_or(line.len(), |(at, _)| at)].trim_end()
}

/// The characters outside quotes, with their places. A quote begins where a value can begin.
fn unquoted(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let (mut quote, mut before, mut escaped) = (None, ' ', false);
    text.char_indices().filter(move |(_, character)| {
        let outside = quote.is_none();
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"') if *character == '\\' => escaped = true,
            Some(open) if open == *character => quote = None,
            None if ['\'', '"'].contains(character) && [' ', '\t', '[', '{', ','].contains(&before) => {
                quote = Some(*character);
            }
            _ => {}
        }
        before = *character;
        outside && quote.is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).into()
    }

    #[test]
    fn lists_and_maps_are_read_in_each_form() {
        let block = "# Ultralytics\n---\npath: ../sets/coco8 # root\ntrain: images/train\nval:\n  - images/val\n\
                     \x20 - 'more images/val'\n\
                     test: # none\n\nnames:\n  0: person\n  2: \"a \\\"dog\\\" # 2\"\n  1: it's # one\n\
                     download: |\n  import os\n\n  x = {'a': [1]}\nroboflow:\n  workspace: a\n";
        let found = DataFile::read(block).unwrap();
        assert_eq!(found.path.as_deref(), Some("../sets/coco8"));
        let splits = [("train", texts(["images/train"])), ("val", texts(["images/val", "more images/val"]))];
        assert_eq!(found.splits, splits.map(|(name, paths)| (name.to_owned(), paths)));
        assert_eq!(found.names, ["person", "it's", "a \"dog\" # 2"]);
        let flow = "nc: 3\nnames: ['a''s', b,\n  \"c, d\"]\nkpt_shape: [17, 3]\nflip_idx: [1, 0,]\nval: [x, y]";
        let found = DataFile::read(flow).unwrap();
        assert_eq!((found.names, found.kpt_shape), (texts(["a's", "b", "c, d"]), Some([17, 3])));
        assert_eq!((found.flip_idx, &found.splits[0].1), (Some(vec![1, 0]), &texts(["x", "y"])));
        // As PyYAML writes lists.
        assert_eq!(DataFile::read("names:\n- a\n- b\nnc: 2\n").unwrap().names, ["a", "b"]);
        assert_eq!(DataFile::read("names: {1: b, 0: a}").unwrap().names, ["a", "b"]);
        assert_eq!(DataFile::read("names: [\n  'a', # one\n  'b',\n]\nnc: 2").unwrap().names, ["a", "b"]);
        assert_eq!(DataFile::read("nc: 2").unwrap().names, ["class_0", "class_1"]);
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, message) in [
            ("", "no names"),
            ("names:\n  0: a\n  2: b", "line 1: names must have each number from 0 on once"),
            ("names:\n  cat: a", "numbers as keys"),
            ("nc: 3\nnames: [a]", "nc is 3, but there are 1 names"),
            ("nc: many", "nc must be the number"),
            ("names: [a]\nnames: [b]", "line 2: names is there twice"),
            ("\nnames: cat", "line 2: names must be a list"),
            ("names: &x [a]", "line 1: names: this is not read: &x [a]"),
            ("names: [a, [b]]", "this is not read"),
            ("names: [a, b", "this is not read"),
            ("names:\n  - a\n    b", "lines within"),
            ("names:\n  - a: b", "a map in a list is not read: - a: b"),
            ("names:\n  - a\n  b: c", "an item of a list is expected: b: c"),
            ("path: a\n  b", "several lines is not read"),
            ("path: [a]", "one value is expected"),
            ("path: >\n  a", "several lines is not read"),
            ("train: {a: b}", "train must be a path"),
            ("kpt_shape: [17]", "two numbers"),
            ("flip_idx: [-1]", "\"-1\" is no whole number"),
            ("what", "line 1: a key and a value are expected: what"),
            ("path: 'a", "this is not read: 'a"),
            ("path: \"a\\n\"", "this is not read"),
        ] {
            let error = DataFile::read(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        // Cut off anywhere, a list of names is not a shorter list.
        let text = r#"names: ["a\\", 'b''c', é]"#;
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(DataFile::read(&text[..end]).is_err(), "cut off at {end}");
        }
        assert_eq!(DataFile::read(text).unwrap().names, ["a\\", "b'c", "é"]);
    }
}
