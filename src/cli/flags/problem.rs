//! What is wrong with flags and files, said with its place.

use crate::shell::yaml::{LineMap, Mark};
use std::borrow::Cow;
use std::fmt;
use steplet_api::config::{self, ProblemKind};

/// Where the wrong word stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A flag, with its dashes.
    Flag(String),
    File {
        name: String,
        /// None when the whole file is meant.
        mark: Option<Mark>,
    },
    /// The built-in defaults, or the command line as a whole.
    Nowhere,
}

/// Beyond so many problems a list helps nobody.
const TOLD_MAX: usize = 20;
/// Bytes of a field path or of a sentence about it: names of fields are quoted, whatever their length.
const PART_MAX: usize = 500;

/// Problems as lines, the first of them when there are many.
pub fn told(problems: &[Problem]) -> Vec<String> {
    let mut lines: Vec<String> = problems.iter().take(TOLD_MAX).map(Problem::to_string).collect();
    if let more @ 1.. = problems.len().saturating_sub(TOLD_MAX) {
        lines.push(format!("{more} more problems"));
    }
    lines
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub place: Place,
    /// Field path, empty when no field is meant.
    pub path: String,
    pub what: String,
    /// What to write instead.
    pub fix: Option<String>,
    /// Whether the agent may start all the same, as the reference does.
    pub harmless: bool,
}

impl Problem {
    pub(in crate::cli) fn of_flag(name: &str, what: impl Into<String>) -> Problem {
        let dashes = if name.len() == 1 { "-" } else { "--" };
        Problem::new(Place::Flag(format!("{dashes}{name}")), what)
    }

    pub(in crate::cli) fn of_file(
        name: &str,
        mark: Option<Mark>,
        what: impl Into<String>,
    ) -> Problem {
        Problem::new(Place::File { name: name.to_owned(), mark }, what)
    }

    pub(in crate::cli) fn new(place: Place, what: impl Into<String>) -> Problem {
        Problem { place, path: String::new(), what: what.into(), fix: None, harmless: false }
    }

    /// A problem of a field in a file, at the line where the field stands or would stand.
    pub(in crate::cli) fn in_file(
        name: &str,
        lines: &LineMap,
        problem: config::Problem,
    ) -> Problem {
        let mark = lines.nearest(&problem.path);
        let fix = match problem.kind {
            ProblemKind::Mistyped { quote: true } => quoted(lines, &problem.path),
            _ => None,
        };
        Problem {
            path: problem.path,
            what: problem.what,
            fix,
            harmless: problem.kind == ProblemKind::Unknown,
            ..Problem::of_file(name, Some(mark), "")
        }
    }
}

/// `cpu: "1"`, or `- "1"` in a list: the line with the quotes it lacks.
fn quoted(lines: &LineMap, path: &str) -> Option<String> {
    let source = lines.source(path)?;
    let list = path.strip_suffix(']').and_then(|path| path.rsplit_once('['));
    let in_list = list.is_some_and(|(_, index)| index.bytes().all(|b| b.is_ascii_digit()));
    if in_list {
        return Some(format!("- \"{source}\""));
    }
    let key = match list {
        Some((_, key)) => key,
        None => path.rsplit('.').next().unwrap_or(path),
    };
    Some(format!("{key}: \"{source}\""))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Flag(flag) => write!(f, "{flag}: ")?,
            Place::File { name, mark: None } => write!(f, "{name}: ")?,
            Place::File { name, mark: Some(mark) } => {
                write!(f, "{name}:{}:{}: ", mark.line, mark.column)?;
            }
            Place::Nowhere => {}
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", cut(&self.path))?;
        }
        f.write_str(&cut(&self.what))?;
        match &self.fix {
            Some(fix) => write!(f, "; write {fix}"),
            None => Ok(()),
        }
    }
}

fn cut(text: &str) -> Cow<'_, str> {
    if text.len() <= PART_MAX {
        return text.into();
    }
    let end = text.floor_char_boundary(PART_MAX);
    format!("{}...", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_and_names_are_cut() {
        let long = Problem { path: "é".repeat(1000), ..Problem::new(Place::Nowhere, "is wrong") };
        assert_eq!(long.to_string(), format!("{}...: is wrong", "é".repeat(250)));
        let lines = told(&vec![Problem::new(Place::Nowhere, "is wrong"); 1000]);
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[19..], ["is wrong", "980 more problems"]);
    }
}
