//! The tree of values that a text stands for, and its JSON.
//!
//! Subtrees are shared, so that a document of aliases takes the room of its text and not of what it
//! expands to; `size` and `height` say what the expansion would be.

use super::{Duplicate, Limits, YamlError};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A place in a text; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub line: u32,
    /// In characters, not bytes.
    pub column: u32,
}

impl Mark {
    pub(super) const START: Mark = Mark { line: 1, column: 1 };

    /// The place right after `text`.
    pub(super) fn after(text: &str) -> Mark {
        let lines = text.bytes().filter(|&b| b == b'\n').count();
        let last = text.rsplit('\n').next().unwrap_or("");
        Mark { line: lines as u32 + 1, column: last.chars().count() as u32 + 1 }
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    pub root: Child,
    pub duplicates: Vec<Duplicate>,
}

/// A value at its place in the text. An alias is a second place for the same value.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// Of the key when the parent is a map, else of the value.
    pub mark: Mark,
    pub node: Rc<Node>,
    /// Came in through `<<`, so that a key of the same name is no duplicate.
    pub merged: bool,
}

#[derive(Debug)]
pub(super) struct Node {
    pub value: Value,
    /// Values in here after expansion, this one included.
    pub size: u64,
    /// Collections on the longest way down.
    pub height: u32,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Null, booleans and numbers: the JSON literal, and what the text said where that differs.
    Literal {
        json: Box<str>,
        source: Option<Box<str>>,
    },
    Text(Box<str>),
    List(Vec<Child>),
    Map(BTreeMap<Box<str>, Child>),
}

impl Node {
    pub(super) fn new(value: Value) -> Rc<Node> {
        let (size, height) = match &value {
            Value::Literal { .. } | Value::Text(_) => (1, 0),
            Value::List(items) => measure(items.iter()),
            Value::Map(entries) => measure(entries.values()),
        };
        Rc::new(Node { value, size, height })
    }
}

fn measure<'a>(children: impl Iterator<Item = &'a Child>) -> (u64, u32) {
    children.fold((1, 1), |(size, height), child| {
        (child.node.size.saturating_add(size), height.max(child.node.height + 1))
    })
}

/// The JSON of a tree: compact, keys sorted.
pub(super) fn write(root: &Child, limits: Limits) -> Result<Vec<u8>, YamlError> {
    if root.node.size > limits.values as u64 {
        let what = format!("aliases expand to more than {} values", limits.values);
        return Err(YamlError::at(root.mark, what));
    }
    let mut out = Vec::new();
    write_node(&root.node, limits.bytes.saturating_mul(4), &mut out)
        .map_err(|TooLarge| YamlError::at(root.mark, "aliases expand to more text than is read"))?;
    Ok(out)
}

struct TooLarge;

fn write_node(node: &Node, max: usize, out: &mut Vec<u8>) -> Result<(), TooLarge> {
    match &node.value {
        Value::Literal { json, .. } => out.extend_from_slice(json.as_bytes()),
        Value::Text(text) => write_text(text, out),
        Value::List(items) => {
            for (i, item) in items.iter().enumerate() {
                out.push(if i == 0 { b'[' } else { b',' });
                write_node(&item.node, max, out)?;
            }
            out.extend_from_slice(if items.is_empty() { b"[]" } else { b"]" });
        }
        Value::Map(entries) => {
            for (i, (key, child)) in entries.iter().enumerate() {
                out.push(if i == 0 { b'{' } else { b',' });
                write_text(key, out);
                out.push(b':');
                write_node(&child.node, max, out)?;
            }
            out.extend_from_slice(if entries.is_empty() { b"{}" } else { b"}" });
        }
    }
    if out.len() > max { Err(TooLarge) } else { Ok(()) }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a string has a JSON form and a Vec takes it");
}
