//! Pascal VOC's XML: the elements that are read, each once.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// Elements within each other; VOC has 5.
const MAX_DEPTH: usize = 16;

/// Contents of a file about its image.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Annotation {
    /// Width and height of the image in pixels, as far as they are there.
    pub size: [Option<f64>; 2],
    pub objects: Vec<Object>,
}

/// An object as written: its coordinates count pixels from 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object {
    pub name: Option<String>,
    /// xmin, ymin, xmax, ymax.
    pub corners: [Option<f64>; 4],
    pub difficult: Option<bool>,
    pub truncated: Option<bool>,
}

impl Annotation {
    /// Reads a file's text.
    ///
    /// # Errors
    /// A message with the line, and the object from 1 if it is in one.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        let mut found = Self::default();
        let failed = found.read_events(&mut reader).err();
        let Some(message) = failed else { return Ok(found) };
        let at = (reader.buffer_position() as usize).min(text.len());
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        Err(format!("line {line}: {message}"))
    }

    fn read_events(&mut self, reader: &mut Reader<&[u8]>) -> Result<(), String> {
        let mut open: Vec<String> = Vec::new();
        // What stands in the innermost element, and whether no other element stands in it.
        let (mut content, mut leaf) = (String::new(), false);
        let mut rooted = false;
        loop {
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(start) => {
                    let name = String::from_utf8_lossy(start.name().into_inner()).into_owned();
                    if open.is_empty() && (rooted || name != "annotation") {
                        return Err(format!("<{name}> stands where one <annotation> is expected"));
                    }
                    if open.len() == MAX_DEPTH {
                        return Err(format!("more than {MAX_DEPTH} elements within each other"));
                    }
                    if open.len() == 1 && name == "object" {
                        self.objects.push(Object::default());
                    }
                    rooted = true;
                    open.push(name);
                    content.clear();
                    leaf = true;
                }
                Event::End(_) => {
                    let path: Vec<&str> = open.iter().skip(1).map(String::as_str).collect();
                    self.take(&path, if leaf { content.trim() } else { "" })?;
                    open.pop();
                    content.clear();
                    leaf = false;
                }
                Event::Text(text) => content.push_str(&text.decode().map_err(|error| error.to_string())?),
                Event::CData(text) => content.push_str(&text.decode().map_err(|error| error.to_string())?),
                Event::GeneralRef(reference) => content.push_str(&resolved(&reference)?),
                Event::DocType(_) => return Err("it has a DOCTYPE, which is not read".to_owned()),
                Event::Eof => break,
                _ => {}
            }
        }
        match open.last() {
            Some(name) => Err(format!("it ends within <{name}>")),
            None if !rooted => Err("it has no <annotation>".to_owned()),
            None => Ok(()),
        }
    }

    /// Takes the content of the element at this path within the root.
    fn take(&mut self, path: &[&str], content: &str) -> Result<(), String> {
        let number = self.objects.len();
        let object = self.objects.last_mut();
        match (path, object) {
            (["size", "width"], _) => set(&mut self.size[0], path, content, finite),
            (["size", "height"], _) => set(&mut self.size[1], path, content, finite),
            (["object", rest @ ..], Some(object)) => {
                object.take(rest, content).map_err(|message| format!("object {number}: {message}"))
            }
            _ => Ok(()),
        }
    }
}

impl Object {
    fn take(&mut self, path: &[&str], content: &str) -> Result<(), String> {
        let corner = |name: &str| ["xmin", "ymin", "xmax", "ymax"].iter().position(|own| *own == name);
        match path {
            ["name"] => {
                set(&mut self.name, path, content, |text| Some(text.to_owned()).filter(|name| !name.is_empty()))
            }
            ["difficult"] => set(&mut self.difficult, path, content, flag),
            ["truncated"] => set(&mut self.truncated, path, content, flag),
            ["bndbox", name] => match corner(name) {
                Some(corner) => set(&mut self.corners[corner], path, content, finite),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Sets what an element says, unless it was there before or says something else.
fn set<T>(to: &mut Option<T>, path: &[&str], content: &str, read: impl Fn(&str) -> Option<T>) -> Result<(), String> {
    let name = path.last().copied().unwrap_or_default();
    if to.is_some() {
        return Err(format!("<{name}> is there twice"));
    }
    *to = Some(read(content).ok_or_else(|| {
        let start: String = content.chars().take(40).collect();
        format!("<{name}> is {start:?}")
    })?);
    Ok(())
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The text of a reference: one of XML's five entities, or a character by its number.
fn resolved(reference: &BytesRef<'_>) -> Result<String, String> {
    let name = reference.decode().map_err(|error| error.to_string())?;
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.into());
    }
    let text = resolve_predefined_entity(&name).ok_or_else(|| format!("the entity &{name}; is not read"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_objects_own_elements_count() {
        let text = r#"<?xml version="1.0"?><!-- VOC2012 -->
            <annotation><filename>a &amp; b.jpg</filename>
            <size><width>500</width><height>375</height><depth>3</depth></size>
            <object><name> R&amp;D &#x3c;1&gt;</name><pose/><difficult>1</difficult>
              <bndbox><xmax>45.70000</xmax><xmin>8</xmin><ymin>1</ymin><ymax>375</ymax></bndbox>
              <part><name>head</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>10</xmax><ymax>10</ymax></bndbox></part>
            </object>
            <object><name><![CDATA[dog]]></name><truncated>0</truncated></object>
            <owner><name>someone</name></owner></annotation>"#;
        let found = Annotation::read(text).unwrap();
        assert_eq!(found.size, [Some(500.0), Some(375.0)]);
        let first = Object {
            name: Some("R&D <1>".to_owned()),
            corners: [Some(8.0), Some(1.0), Some(45.7), Some(375.0)],
            difficult: Some(true),
            truncated: None,
        };
        let second = Object { name: Some("dog".to_owned()), truncated: Some(false), ..Object::default() };
        assert_eq!(found.objects, [first, second]);
        assert_eq!(Annotation::read("<annotation/>").unwrap(), Annotation::default());
        for end in 0..text.len() {
            assert!(Annotation::read(&text[..end]).is_err(), "cut off at {end}");
        }
    }

    #[test]
    fn what_is_no_annotation_is_refused_with_its_line() {
        let deep = format!("<annotation>{}", "<a>".repeat(MAX_DEPTH));
        for (text, message) in [
            ("", "line 1: it has no <annotation>"),
            ("<a/>", "<a> stands where"),
            ("<annotation/><annotation/>", "stands where"),
            ("<annotation>\n<object>", "line 2: it ends within <object>"),
            ("<annotation></object>", "object"),
            (
                "<annotation>\n\n<object><name>a</name><name>b</name></object></annotation>",
                "line 3: object 1: <name> is there twice",
            ),
            ("<annotation><object><name> </name></object></annotation>", "object 1: <name> is \"\""),
            (
                "<annotation><object/><object><difficult>yes</difficult></object></annotation>",
                "object 2: <difficult> is \"yes\"",
            ),
            ("<annotation><object><bndbox><xmin>inf</xmin></bndbox></object></annotation>", "<xmin> is \"inf\""),
            ("<annotation><object><bndbox><xmin>1<b/>2</xmin></bndbox></object></annotation>", "<xmin> is \"\""),
            ("<!DOCTYPE a [<!ENTITY b \"c\">]><annotation/>", "DOCTYPE"),
            ("<annotation><object><name>&b;</name></object></annotation>", "&b;"),
            ("<annotation><object><name>&#xd800;</name></object></annotation>", "line 1"),
            ("<annotation", "line 1"),
            (&deep, "more than 16 elements"),
        ] {
            let error = Annotation::read(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
