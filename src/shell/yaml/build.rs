//! From the parser's events to the tree: anchors, merges, keys and the bounds on all of them.

use super::events::{Anchor, Event, Events, Text};
use super::scalar::{self, Scalar};
use super::tree::{Child, Mark, Node, Tree, Value};
use super::{Duplicate, Limits, YamlError};
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_api::config::{push_index, push_key};

/// Builds the tree of the first document; later ones are not looked at, as upstream's decoder does
/// for a manifest. No document is a null.
pub(super) fn read(text: &str, limits: Limits) -> Result<Tree, YamlError> {
    let mut builder = Builder {
        events: Events::of(text),
        limits,
        values: 0,
        anchors: BTreeMap::new(),
        path: String::new(),
        duplicates: Vec::new(),
    };
    let root = match builder.events.pull()? {
        (Event::DocumentEnd, mark) => null(mark),
        (event, mark) => Child { mark, node: builder.node(event, mark, 0)?, merged: false },
    };
    // What stands behind the value belongs to the document too: `a: {b: c}}` is no manifest.
    builder.events.pull()?;
    Ok(Tree { root, duplicates: builder.duplicates })
}

fn null(mark: Mark) -> Child {
    let json = "null".into();
    Child { mark, node: Node::new(Value::Literal { json, source: None }), merged: false }
}

struct Builder<'a> {
    events: Events<'a>,
    limits: Limits,
    /// Values built so far, and entries copied by merges.
    values: usize,
    /// `None` while the value is being built: an alias in there would be without end.
    anchors: BTreeMap<Anchor, Option<Rc<Node>>>,
    /// Where the builder is.
    path: String,
    duplicates: Vec<Duplicate>,
}

impl<'a> Builder<'a> {
    fn node(&mut self, event: Event<'a>, mark: Mark, depth: u32) -> Result<Rc<Node>, YamlError> {
        self.spend(1, mark)?;
        let deep = |height: u32| depth + height > self.limits.depth;
        let (anchor, node) = match event {
            Event::Alias(anchor) => {
                return match self.anchors.get(&anchor) {
                    Some(Some(node)) if deep(node.height) => Err(self.too_deep(mark)),
                    Some(Some(node)) => Ok(node.clone()),
                    Some(None) => Err(YamlError::at(mark, "an anchor's value contains itself")),
                    None => Err(YamlError::at(mark, "an alias of an unknown anchor")),
                };
            }
            Event::List(_) | Event::Map(_) if deep(1) => return Err(self.too_deep(mark)),
            Event::Scalar(text) => (text.anchor, literal(meaning(&text, mark)?, &text, mark)?),
            Event::List(anchor) => {
                self.open(&anchor);
                (anchor, self.list(depth + 1)?)
            }
            Event::Map(anchor) => {
                self.open(&anchor);
                (anchor, self.map(depth + 1)?)
            }
            Event::ListEnd | Event::MapEnd | Event::DocumentEnd => {
                return Err(YamlError::at(mark, "a value is missing"));
            }
        };
        let node = Node::new(node);
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, Some(node.clone()));
        }
        Ok(node)
    }

    fn open(&mut self, anchor: &Option<Anchor>) {
        if let Some(anchor) = anchor {
            self.anchors.insert(*anchor, None);
        }
    }

    fn list(&mut self, depth: u32) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            let (event, mark) = self.events.pull()?;
            if matches!(event, Event::ListEnd) {
                return Ok(Value::List(items));
            }
            let outer = self.path.len();
            push_index(&mut self.path, items.len());
            let node = self.node(event, mark, depth)?;
            self.path.truncate(outer);
            items.push(Child { mark, node, merged: false });
        }
    }

    fn map(&mut self, depth: u32) -> Result<Value, YamlError> {
        let mut entries = BTreeMap::new();
        loop {
            let (event, mark) = self.events.pull()?;
            if matches!(event, Event::MapEnd) {
                return Ok(Value::Map(entries));
            }
            if is_merge(&event) {
                self.merge(&mut entries, depth)?;
                continue;
            }
            let key = self.key(event, mark, depth)?;
            let outer = self.path.len();
            push_key(&mut self.path, &key);
            let (event, value_mark) = self.events.pull()?;
            let node = self.node(event, value_mark, depth)?;
            let child = Child { mark, node, merged: false };
            if entries.insert(key, child).is_some_and(|earlier| !earlier.merged) {
                self.duplicates.push(Duplicate { path: self.path.clone(), mark });
            }
            self.path.truncate(outer);
        }
    }

    /// Keys are text in JSON, so `1: a` and `yes: b` get the names that Go gives them.
    fn key(&mut self, event: Event<'a>, mark: Mark, depth: u32) -> Result<Box<str>, YamlError> {
        if let Event::Scalar(text) = &event {
            let scalar = meaning(text, mark)?;
            if let Some(anchor) = &text.anchor {
                let node = Node::new(literal(scalar.clone(), text, mark)?);
                self.anchors.insert(*anchor, Some(node));
            }
            return match scalar {
                Scalar::Null => Err(YamlError::at(mark, "null cannot be a key")),
                Scalar::Bool(bool) => Ok(bool.to_string().into()),
                Scalar::Int(int) => Ok(int.to_string().into()),
                Scalar::Float(float) => Ok(scalar::float_key(float).into()),
                Scalar::Text(text) => Ok(text.into()),
            };
        }
        match &self.node(event, mark, depth)?.value {
            Value::Text(text) => Ok(text.clone()),
            Value::Literal { json, .. } if **json != *"null" => Ok(json.clone()),
            _ => Err(YamlError::at(mark, "only scalars can be keys")),
        }
    }

    /// `<<`: takes over the entries of a map or of a list of maps, of which the first one wins.
    fn merge(
        &mut self,
        entries: &mut BTreeMap<Box<str>, Child>,
        depth: u32,
    ) -> Result<(), YamlError> {
        let (event, mark) = self.events.pull()?;
        let node = self.node(event, mark, depth)?;
        let whole = Child { mark, node, merged: true };
        let parts: &[Child] = match &whole.node.value {
            Value::List(items) => items,
            _ => std::slice::from_ref(&whole),
        };
        for part in parts.iter().rev() {
            let Value::Map(merged) = &part.node.value else {
                return Err(YamlError::at(mark, "<< takes a map or a list of maps"));
            };
            self.spend(merged.len(), mark)?;
            for (key, child) in merged {
                entries.insert(key.clone(), Child { merged: true, ..child.clone() });
            }
        }
        Ok(())
    }

    fn spend(&mut self, values: usize, mark: Mark) -> Result<(), YamlError> {
        self.values += values;
        if self.values <= self.limits.values {
            return Ok(());
        }
        Err(YamlError::at(mark, format!("more than {} values", self.limits.values)))
    }

    fn too_deep(&self, mark: Mark) -> YamlError {
        YamlError::at(mark, format!("nested deeper than {}", self.limits.depth))
    }
}

fn is_merge(event: &Event<'_>) -> bool {
    let Event::Scalar(text) = event else { return false };
    &*text.value == "<<" && (text.tag == "!!merge" || text.tag.is_empty() && text.plain)
}

fn meaning(text: &Text<'_>, mark: Mark) -> Result<Scalar, YamlError> {
    scalar::resolve(&text.tag, text.plain, &text.value).map_err(|what| YamlError::at(mark, what))
}

fn literal(scalar: Scalar, text: &Text<'_>, mark: Mark) -> Result<Value, YamlError> {
    let json = match scalar {
        Scalar::Text(text) => return Ok(Value::Text(text.into())),
        Scalar::Null => "null".to_owned(),
        Scalar::Bool(bool) => bool.to_string(),
        Scalar::Int(int) => int.to_string(),
        Scalar::Float(float) => scalar::float_json(float).ok_or_else(|| {
            YamlError::at(mark, format!("JSON has no number for `{}`", text.value))
        })?,
    };
    let source = (json != *text.value).then(|| (&*text.value).into());
    Ok(Value::Literal { json: json.into(), source })
}
