//! Numbers of images, annotations and categories, or texts.

use super::loose::Value;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Identity of an image, an annotation or a category: a number, or the place of a text among [`Ids`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(i64);

impl Id {
    /// Nothing: the value is missing, null, or of another type.
    pub const NONE: Self = Self(i64::MAX);
    /// Numbers below stand for texts.
    const FIRST_NUMBER: i64 = i64::MIN + (1 << 40);

    /// The place of an image.
    pub fn at(place: usize) -> Self {
        Self(place as i64)
    }

    /// The number, if it is one.
    pub fn number(self) -> Option<i64> {
        (Self::FIRST_NUMBER..i64::MAX).contains(&self.0).then_some(self.0)
    }

    fn place(self) -> Option<usize> {
        (self.0 < Self::FIRST_NUMBER).then(|| (self.0 - i64::MIN) as usize)
    }
}

/// The texts among the numbers of a file. Texts and numbers are never equal, as in Python.
#[derive(Debug, Default)]
pub(super) struct Ids {
    texts: Vec<Text>,
    places: HashMap<Text, i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Text {
    Written(String),
    /// A number that is not whole, or that is very large.
    Odd(String),
}

impl Ids {
    /// The identity that a value names.
    pub fn of(&mut self, value: &Value) -> Id {
        match (value.whole().map(Id), value) {
            (Some(id), _) if id.number().is_some() => id,
            (_, Value::Text(text)) => self.text(Text::Written(text.clone())),
            (Some(Id(number)), _) => self.text(Text::Odd(number.to_string())),
            (None, Value::Number(number)) if number.is_finite() => self.text(Text::Odd(number.to_string())),
            _ => Id::NONE,
        }
    }

    fn text(&mut self, text: Text) -> Id {
        let next = i64::MIN + self.texts.len() as i64;
        Id(*self.places.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        }))
    }

    /// Adds the ids of another part of the file, and returns their map to the ids here.
    pub fn join(&mut self, other: Self) -> impl Fn(Id) -> Id + use<> {
        let here: Vec<Id> = other.texts.into_iter().map(|text| self.text(text)).collect();
        move |id| id.place().map_or(id, |place| here[place])
    }

    /// The number that is written as this text, or the text that is written as this number.
    pub fn of_other_kind(&self, id: Id) -> Option<Id> {
        match (id.number(), self.written(id)) {
            (Some(number), _) => self.places.get(&Text::Written(number.to_string())).copied().map(Id),
            (None, Some(text)) => text.parse().ok().map(Id),
            _ => None,
        }
    }

    /// The text that is written in the file.
    pub fn written(&self, id: Id) -> Option<&str> {
        match self.texts.get(id.place()?)? {
            Text::Written(text) => Some(text),
            Text::Odd(_) => None,
        }
    }

    /// Order of numbers, and of texts after them.
    pub fn compare(&self, a: Id, b: Id) -> Ordering {
        match (a.place(), b.place()) {
            (Some(a), Some(b)) => self.texts[a].cmp(&self.texts[b]),
            (None, None) => a.0.cmp(&b.0),
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }

    /// The number or text, for messages.
    pub fn show(&self, id: Id) -> String {
        match id.place().map(|place| &self.texts[place]) {
            Some(Text::Written(text)) => format!("{text:?}"),
            Some(Text::Odd(text)) => text.clone(),
            None if id == Id::NONE => "without a number".to_owned(),
            None => id.0.to_string(),
        }
    }
}
