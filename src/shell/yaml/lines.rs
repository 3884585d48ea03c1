//! From the path of a field to the line that wrote it.

use super::tree::{Child, Mark, Value};
use steplet_api::config::{push_index, push_key};

/// Of a path that `all` tells. Kubernetes' longest keys are those of annotations, with 317 bytes.
const PATH_BYTES_MAX: usize = 1024;

/// Knows where each value of one document was written.
#[derive(Clone, Debug)]
pub struct LineMap {
    root: Child,
}

impl LineMap {
    pub(super) fn new(root: Child) -> Self {
        LineMap { root }
    }

    /// The place of the value at `path`, a JSON pointer (`/spec/containers/0`) or a field path as
    /// Kubernetes prints it (`spec.containers[0]`, `metadata.labels[example.com/app]`).
    /// The mark of a key where there is one.
    pub fn find(&self, path: &str) -> Option<Mark> {
        let (child, whole) = self.walk(path);
        whole.then_some(child.mark)
    }

    /// As `find`, but the place of the closest parent when the path itself is not in the text,
    /// which is where a missing field would be written.
    pub fn nearest(&self, path: &str) -> Mark {
        self.walk(path).0.mark
    }

    /// The characters that stood for a null, a boolean or a number: `0644` where the JSON says 420.
    pub fn source(&self, path: &str) -> Option<&str> {
        let (child, whole) = self.walk(path);
        match &child.node.value {
            Value::Literal { json, source } if whole => Some(source.as_ref().unwrap_or(json)),
            _ => None,
        }
    }

    /// Every field path with its line, sorted by path; at most `most` of them, those of the upper
    /// levels first. Below a path of over `PATH_BYTES_MAX` bytes there is none: each value in there
    /// would repeat a key that may be as long as the text.
    pub fn all(&self, most: usize) -> Vec<(String, u32)> {
        let mut level = vec![(String::new(), &self.root)];
        let mut all = Vec::new();
        while !level.is_empty() && all.len() < most {
            let mut next = Vec::new();
            for (path, child) in &level {
                // Aliases can make a level much longer than the text.
                let room = most - next.len();
                match &child.node.value {
                    Value::Map(entries) => {
                        next.extend(entries.iter().take(room).filter_map(|(key, child)| {
                            let long = path.len() + key.len() > PATH_BYTES_MAX;
                            (!long).then(|| (below(path, |path| push_key(path, key)), child))
                        }))
                    }
                    Value::List(items) => {
                        next.extend(
                            items.iter().take(room).enumerate().map(|(at, child)| {
                                (below(path, |path| push_index(path, at)), child)
                            }),
                        )
                    }
                    Value::Literal { .. } | Value::Text(_) => {}
                }
            }
            all.extend(next.iter().map(|(path, child)| (path.clone(), child.mark.line)));
            level = next;
        }
        all.truncate(most);
        all.sort();
        all
    }

    /// As deep as the path leads, and whether that was all of it.
    fn walk(&self, path: &str) -> (&Child, bool) {
        let steps = if path.starts_with('/') { pointer(path) } else { field_path(path) };
        let mut at = &self.root;
        for step in &steps {
            let next = match &at.node.value {
                Value::Map(entries) => entries.get(step.as_str()),
                Value::List(items) => step.parse::<usize>().ok().and_then(|i| items.get(i)),
                Value::Literal { .. } | Value::Text(_) => None,
            };
            match next {
                Some(child) => at = child,
                None => return (at, false),
            }
        }
        (at, true)
    }
}

fn below(path: &str, step: impl FnOnce(&mut String)) -> String {
    let mut path = path.to_owned();
    step(&mut path);
    path
}

/// RFC 6901.
fn pointer(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}

/// `a.b[0][x.y/z]` as its steps. A bracket runs to the next `]`, so keys in it may hold dots.
fn field_path(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            inner.split_once(']').unwrap_or((inner, ""))
        } else {
            rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()))
        };
        steps.push(step.to_owned());
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    steps
}
