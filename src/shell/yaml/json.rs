//! JSON input into the same tree, with the same lines and bounds.
//!
//! serde_json does the reading; the tree keeps number literals as they are written, since a JSON
//! reader that rounds them would not be the same door for both languages.

use super::tree::{Child, Mark, Node, Tree, Value};
use super::{Duplicate, Limits, YamlError};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_api::config::{push_index, push_key};

pub(super) fn read(text: &str, limits: Limits) -> Result<Tree, YamlError> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| {
        let mark = Mark { line: error.line() as u32, column: error.column() as u32 };
        YamlError::at(mark, plain(&error))
    })?;
    let places = Places::new(text);
    let mut reader = Reader { places, limits, values: 0, path: String::new(), duplicates: vec![] };
    let mark = reader.places.of(raw.get());
    let node = reader.node(raw, 0)?;
    Ok(Tree { root: Child { mark, node, merged: false }, duplicates: reader.duplicates })
}

/// What serde_json says, without its own line and column.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what).to_owned()
}

struct Reader<'a> {
    places: Places<'a>,
    limits: Limits,
    values: usize,
    path: String,
    duplicates: Vec<Duplicate>,
}

impl<'a> Reader<'a> {
    fn node(&mut self, raw: &'a RawValue, depth: u32) -> Result<Rc<Node>, YamlError> {
        let text = raw.get();
        let mark = self.places.of(text);
        let broken = |error: serde_json::Error| YamlError::at(mark, plain(&error));
        self.values += 1;
        if self.values > self.limits.values {
            return Err(YamlError::at(mark, format!("more than {} values", self.limits.values)));
        }
        if text.starts_with(['{', '[']) && depth == self.limits.depth {
            let what = format!("nested deeper than {}", self.limits.depth);
            return Err(YamlError::at(mark, what));
        }
        let value = match text.as_bytes()[0] {
            b'{' => self.map(entries(text).map_err(broken)?, depth + 1)?,
            b'[' => self.list(serde_json::from_str(text).map_err(broken)?, depth + 1)?,
            b'"' => Value::Text(serde_json::from_str(text).map_err(broken)?),
            _ => Value::Literal { json: text.into(), source: None },
        };
        Ok(Node::new(value))
    }

    fn list(&mut self, raws: Vec<&'a RawValue>, depth: u32) -> Result<Value, YamlError> {
        let mut items = Vec::with_capacity(raws.len());
        for (i, raw) in raws.into_iter().enumerate() {
            let outer = self.path.len();
            push_index(&mut self.path, i);
            let mark = self.places.of(raw.get());
            items.push(Child { mark, node: self.node(raw, depth)?, merged: false });
            self.path.truncate(outer);
        }
        Ok(Value::List(items))
    }

    fn map(
        &mut self,
        raws: Vec<(&'a RawValue, &'a RawValue)>,
        depth: u32,
    ) -> Result<Value, YamlError> {
        let mut map = BTreeMap::new();
        for (raw_key, raw) in raws {
            let mark = self.places.of(raw_key.get());
            let key: Box<str> = serde_json::from_str(raw_key.get())
                .map_err(|error| YamlError::at(mark, plain(&error)))?;
            let outer = self.path.len();
            push_key(&mut self.path, &key);
            let node = self.node(raw, depth)?;
            if map.insert(key, Child { mark, node, merged: false }).is_some() {
                self.duplicates.push(Duplicate { path: self.path.clone(), mark });
            }
            self.path.truncate(outer);
        }
        Ok(Value::Map(map))
    }
}

/// The members of an object in their order, doubles included.
fn entries(text: &str) -> Result<Vec<(&RawValue, &RawValue)>, serde_json::Error> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(&'de RawValue, &'de RawValue)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    serde_json::Deserializer::from_str(text).deserialize_map(Entries)
}

/// Finds the line of a slice of the text. The reader asks in the order of the text, so each step
/// looks only at what lies between.
struct Places<'a> {
    text: &'a str,
    at: usize,
    mark: Mark,
}

impl<'a> Places<'a> {
    fn new(text: &'a str) -> Self {
        Places { text, at: 0, mark: Mark::START }
    }

    fn of(&mut self, slice: &str) -> Mark {
        // serde_json lends raw values from the text itself, so the distance is the place.
        let at = (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        for c in self.text.get(self.at..at).unwrap_or("").chars() {
            self.mark = match c {
                '\n' => Mark { line: self.mark.line + 1, column: 1 },
                _ => Mark { column: self.mark.column + 1, ..self.mark },
            };
        }
        self.at = self.at.max(at);
        self.mark
    }
}
