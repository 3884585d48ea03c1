//! What is wrong with a configuration, and how a field is called.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::mem::take;

/// One thing that is wrong, at one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Field path, such as `systemReserved.cpu` or `evictionHard[memory.available]`; empty for the
    /// whole document.
    pub path: String,
    pub kind: ProblemKind,
    /// A sentence for the operator, without the path.
    pub what: String,
}

/// What a caller may do about a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// No field has this name. The document can be used without it, which is what upstream does.
    Unknown,
    /// The value is of another type. With `quote` the text of the value in quotes would do.
    Mistyped { quote: bool },
    /// The value breaks a rule.
    Invalid,
    /// The value promises what this program does not keep.
    Refused,
}

impl Problem {
    /// For rules that need more than the configuration to be checked.
    pub fn new(path: &str, kind: ProblemKind, what: String) -> Problem {
        Problem { path: path.to_string(), kind, what }
    }

    pub(super) fn invalid(what: String) -> Problem {
        Problem::new("", ProblemKind::Invalid, what)
    }

    pub(super) fn mistyped(wants: &str, found: &str, quote: bool) -> Problem {
        let what = format!("must be {wants}, not {found}");
        Problem::new("", ProblemKind::Mistyped { quote }, what)
    }

    pub(super) fn unknown(key: &str, fields: &[&str]) -> Problem {
        let what = match alike(key, fields) {
            Some(field) if field.eq_ignore_ascii_case(key) => {
                format!("unknown field, names are case-sensitive: {field}")
            }
            Some(field) => format!("unknown field; is it {field}?"),
            None => "unknown field".to_string(),
        };
        Problem::new("", ProblemKind::Unknown, what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.what),
            path => write!(f, "{path}: {}", self.what),
        }
    }
}

/// A list of problems, and the place in the document where the reader is.
#[derive(Debug, Default)]
pub(super) struct Problems {
    at: String,
    list: Vec<Problem>,
}

impl Problems {
    /// Goes one step down; the result leads back by `leave`.
    pub(super) fn enter_key(&mut self, key: &str) -> usize {
        let outer = self.at.len();
        push_key(&mut self.at, key);
        outer
    }

    pub(super) fn enter_index(&mut self, index: usize) -> usize {
        let outer = self.at.len();
        push_index(&mut self.at, index);
        outer
    }

    pub(super) fn leave(&mut self, outer: usize) {
        self.at.truncate(outer);
    }

    pub(super) fn place(&self) -> &str {
        &self.at
    }

    /// Adds a problem of the place where the reader is.
    pub(super) fn push(&mut self, problem: Problem) {
        self.list.push(Problem { path: self.at.clone(), ..problem });
    }

    pub(super) fn done(mut self) -> Vec<Problem> {
        take(&mut self.list)
    }
}

/// Adds a key to a field path: plain names with a dot, all others in brackets, as Kubernetes prints
/// them.
pub fn push_key(path: &mut String, key: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if key.is_empty() || !key.chars().all(plain) {
        path.extend(["[", key, "]"]);
    } else {
        path.extend([if path.is_empty() { "" } else { "." }, key]);
    }
}

/// Adds a list index to a field path.
pub fn push_index(path: &mut String, index: usize) {
    path.extend(["[", &index.to_string(), "]"]);
}

/// The field that someone who wrote `key` most likely meant: the same letters in another case, a
/// name that skips or adds a word, or a slip of two letters.
pub fn alike<'a>(key: &str, fields: &[&'a str]) -> Option<&'a str> {
    let lower = key.to_ascii_lowercase();
    let best = |near: &dyn Fn(&str) -> bool| {
        fields.iter().copied().find(|field| near(&field.to_ascii_lowercase()))
    };
    best(&|field| field == lower)
        .or_else(|| best(&|field| slip(field.as_bytes(), lower.as_bytes(), 2)))
        .or_else(|| {
            best(&|field| lower.len() > 4 && (within(&lower, field) || within(field, &lower)))
        })
}

/// Whether the letters of `short` stand in `long` in their order.
fn within(short: &str, long: &str) -> bool {
    let mut letters = long.bytes();
    short.len() * 2 > long.len()
        && short.bytes().all(|wanted| letters.any(|letter| letter == wanted))
}

/// Whether two names differ by at most `left` letters that are added, lost or changed.
fn slip(a: &[u8], b: &[u8], left: usize) -> bool {
    match (a, b) {
        ([], rest) | (rest, []) => rest.len() <= left,
        ([x, a @ ..], [y, b @ ..]) if x == y => slip(a, b, left),
        _ if left == 0 => false,
        ([_, a1 @ ..], [_, b1 @ ..]) => {
            slip(a1, b1, left - 1) || slip(a1, b, left - 1) || slip(a, b1, left - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_were_meant() {
        let fields =
            ["maxPods", "podsPerCore", "reservedSystemCPUs", "clusterDNS", "port", "staticPodPath"];
        let check = |key, want| assert_eq!(alike(key, &fields), want, "{key}");
        check("MaxPods", Some("maxPods"));
        check("maxpod", Some("maxPods"));
        check("reservedCpus", Some("reservedSystemCPUs"));
        check("clusterDns", Some("clusterDNS"));
        check("statisPodPaths", Some("staticPodPath"));
        check("nodeIP", None);
        check("x", None);
    }

    #[test]
    fn paths() {
        let mut problems = Problems::default();
        problems.enter_key("evictionHard");
        let outer = problems.enter_key("memory.available");
        problems.push(Problem::invalid("bad".into()));
        problems.leave(outer);
        problems.enter_index(3);
        problems.enter_key("x");
        problems.push(Problem::invalid("worse".into()));
        let said: Vec<String> = problems.done().iter().map(ToString::to_string).collect();
        assert_eq!(said, ["evictionHard[memory.available]: bad", "evictionHard[3].x: worse"]);
    }
}
