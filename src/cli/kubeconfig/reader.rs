//! The fields of a kubeconfig by their paths, and what is wrong with them.

use super::beside;
use crate::cli::flags::{Files, Problem};
use crate::shell::doors::reason;
use crate::shell::yaml::{self, Limits, LineMap, Mark};
use serde_json::Value;
use steplet_api::config::{self, ProblemKind};

/// A kubeconfig with the certificates of many clusters has a tenth of it.
const LIMITS: Limits = Limits { bytes: 1 << 20, values: 50_000, depth: 50 };

pub(super) struct Reader<'a> {
    name: &'a str,
    /// The file's path from the root.
    absolute: String,
    lines: LineMap,
    root: Value,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(
        flag: &str,
        name: &'a str,
        files: &dyn Files,
    ) -> Result<Reader<'a>, Vec<Problem>> {
        let of_file = |mark, what: String| vec![Problem::of_file(name, mark, what)];
        let bytes = files.read(name, LIMITS.bytes).map_err(|error| {
            let else_ = match flag {
                "kubeconfig" => "; without the flag the node stands alone",
                _ => "",
            };
            let what = format!("cannot read {name}: {}{else_}", reason(&error));
            vec![Problem::of_flag(flag, what)]
        })?;
        let document = yaml::to_json(&bytes, LIMITS).map_err(|error| {
            let mark = Mark { line: error.line, column: error.column };
            of_file(Some(mark), error.what)
        })?;
        let root: Value = serde_json::from_slice(&document.json).unwrap_or_default();
        if !root.is_object() {
            return Err(of_file(None, "is no kubeconfig".into()));
        }
        let absolute = files.absolute(name).unwrap_or_else(|_| name.to_owned());
        let mut reader =
            Reader { name, absolute, lines: document.lines, root, problems: Vec::new() };
        for twice in document.duplicates {
            reader.wrong(&twice.path, "is given twice".into());
        }
        Ok(reader)
    }

    /// Where a path in the file leads, seen from the file.
    pub(super) fn resolve(&self, path: &str) -> String {
        beside(&self.absolute, path)
    }

    pub(super) fn wrong(&mut self, path: &str, what: String) {
        self.say(path, ProblemKind::Refused, what);
    }

    pub(super) fn warn(&mut self, path: &str, what: String) {
        self.say(path, ProblemKind::Unknown, what);
    }

    fn say(&mut self, path: &str, kind: ProblemKind, what: String) {
        let problem = config::Problem::new(path, kind, what);
        let problem = Problem::in_file(self.name, &self.lines, problem);
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.root, |value, step| {
            let (key, index) = match step.strip_suffix(']').and_then(|step| step.split_once('[')) {
                Some((key, index)) => (key, index.parse::<usize>().ok()),
                None => (step, None),
            };
            let value = value.get(key)?;
            index.map_or(Some(value), |index| value.get(index))
        })
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.value(path).is_some_and(|value| !value.is_null())
    }

    /// Empty when it is missing.
    pub(super) fn text(&mut self, path: &str) -> String {
        let (kind, what) = match self.value(path) {
            None | Some(Value::Null) => return String::new(),
            Some(Value::String(text)) => return text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => {
                (ProblemKind::Mistyped { quote: true }, format!("must be a string, not {value}"))
            }
            Some(_) => (ProblemKind::Mistyped { quote: false }, "must be a string".to_owned()),
        };
        self.say(path, kind, what);
        String::new()
    }

    /// As `text`, of what no message may quote.
    pub(super) fn secret(&mut self, path: &str) -> String {
        match self.value(path) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(secret)) => secret.clone(),
            Some(_) => {
                self.wrong(path, "must be a string; put it in quotes".into());
                String::new()
            }
        }
    }

    pub(super) fn switch(&mut self, path: &str) -> bool {
        match self.value(path) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(on)) => *on,
            Some(_) => {
                self.wrong(path, "must be true or false".into());
                false
            }
        }
    }

    /// Of a list; 0 when it is missing.
    pub(super) fn len(&mut self, path: &str) -> usize {
        match self.value(path) {
            None | Some(Value::Null) => 0,
            Some(Value::Array(items)) => items.len(),
            Some(_) => {
                self.wrong(path, "must be a list".into());
                0
            }
        }
    }

    /// Names the keys that are none of these.
    pub(super) fn known(&mut self, path: &str, known: &[&str]) {
        let section = if path.is_empty() { Some(&self.root) } else { self.value(path) };
        let keys = match section {
            Some(Value::Object(section)) => section.keys(),
            _ => return,
        };
        let unknown: Vec<String> = keys.filter(|k| !known.contains(&k.as_str())).cloned().collect();
        for key in unknown {
            let mut at = path.to_owned();
            config::push_key(&mut at, &key);
            self.warn(&at, "unknown field".into());
        }
    }

    /// The names in a list of named things.
    pub(super) fn names(&self, list: &str) -> Vec<String> {
        let items = self.value(list).and_then(Value::as_array).into_iter().flatten();
        let names = items.filter_map(|item| item.get("name").and_then(Value::as_str));
        names.map(str::to_owned).collect()
    }

    /// The path of what the list has under this name, which stands at `wanted_at`.
    pub(super) fn entry(
        &mut self,
        list: &str,
        name: &str,
        wanted_at: &str,
        inner: &str,
    ) -> Option<String> {
        let named = |n: &usize, reader: &Reader<'_>| {
            let seen = reader.value(&format!("{list}[{n}].name"));
            seen.and_then(Value::as_str) == Some(name)
        };
        let found: Vec<usize> = (0..self.len(list)).filter(|n| named(n, self)).collect();
        match found[..] {
            [n] => {
                self.known(&format!("{list}[{n}]"), &["name", inner]);
                let path = format!("{list}[{n}].{inner}");
                if !self.value(&path).is_some_and(Value::is_object) {
                    self.wrong(&format!("{list}[{n}]"), format!("has no {inner}"));
                    return None;
                }
                Some(path)
            }
            [] => {
                let there = match self.names(list) {
                    names if names.is_empty() => format!("there are no {list}"),
                    names => format!("there are {}", names.join(", ")),
                };
                self.wrong(wanted_at, format!("names no {inner} of the file; {there}"));
                None
            }
            [_, second, ..] => {
                let what = format!("has the name of another {inner}, and is wanted");
                self.wrong(&format!("{list}[{second}]"), what);
                None
            }
        }
    }
}
