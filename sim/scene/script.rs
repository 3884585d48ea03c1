//! How a scene is read: its head, its manifests, and its lines in order.

use crate::doors::runtime::app::span;
use std::collections::BTreeMap;
use steplet_core::time::Span;

/// A scene as it was written, for one choice of its variables.
#[derive(Debug, Default)]
pub struct Script {
    pub node: Vec<Cue>,
    pub manifests: BTreeMap<String, String>,
    pub cues: Vec<Cue>,
}

/// One line: when, and what happens or must be seen then. An expectation without a time is for the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue {
    pub line: usize,
    pub at: Option<Span>,
    pub words: Vec<String>,
}

/// A line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub line: usize,
    pub what: String,
}

impl Cue {
    pub fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    pub fn expectation(&self) -> Option<Vec<&str>> {
        let words = self.words();
        (words.first() == Some(&"expect")).then(|| words[1..].to_vec())
    }
}

impl Script {
    pub fn read(text: &str) -> Result<Script, Mistake> {
        let mut script = Script::default();
        let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line)).peekable();
        let mut last = Span::ZERO;
        while let Some((line, text)) = lines.next() {
            let mistake = |what: String| Mistake { line, what };
            let words = words(text).map_err(mistake)?;
            let Some(first) = words.first() else { continue };
            if first == "manifest" {
                let name = words.get(1).and_then(|name| name.strip_suffix(':'));
                let name = name.ok_or_else(|| mistake("want `manifest NAME:`".into()))?;
                let mut block = String::new();
                while let Some((_, text)) = lines.next_if(|(_, text)| indented(text)) {
                    block.push_str(text.strip_prefix("  ").unwrap_or_default());
                    block.push('\n');
                }
                if script.manifests.insert(name.to_owned(), block).is_some() {
                    return Err(mistake(format!("manifest {name} is given twice")));
                }
            } else if first == "node" {
                script.node.push(Cue { line, at: None, words: words[1..].to_vec() });
            } else if first == "expect" {
                script.cues.push(Cue { line, at: None, words });
            } else if first != "each" {
                let at = moment(first)
                    .ok_or_else(|| mistake(format!("{first:?} is neither a time nor a keyword")))?;
                if at < last {
                    return Err(mistake(format!("{first} lies before the line above")));
                }
                last = at;
                script.cues.push(Cue { line, at: Some(at), words: words[1..].to_vec() });
            }
        }
        Ok(script)
    }
}

fn indented(line: &str) -> bool {
    line.starts_with("  ") || line.trim().is_empty()
}

/// Words of a line; those in quotes keep their blanks and their opening quote, which marks them.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() && !rest.starts_with('#') {
        let end = match rest.strip_prefix('"') {
            Some(inner) => 1 + inner.find('"').ok_or("a quote is not closed")?,
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        words.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches('"').trim_start();
    }
    Ok(words)
}

/// `10s`, `1m30s`, `1h`, `500ms`: the time since the scene began.
pub fn moment(text: &str) -> Option<Span> {
    let mut total = Span::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        total = total + span(&rest[..digits + unit])?;
        rest = &rest[digits + unit..];
    }
    (!text.is_empty()).then_some(total)
}

/// The text for every choice of the variables that `each NAME = A, B, C` gives; `$NAME` stands for one.
/// The first element of each pair names the choice.
pub fn variations(text: &str) -> Vec<(String, String)> {
    let mut all = vec![(String::new(), text.to_owned())];
    for line in text.lines() {
        let Some((name, values)) = line.strip_prefix("each ").and_then(|l| l.split_once('='))
        else {
            continue;
        };
        let (name, mark) = (name.trim(), format!("${}", name.trim()));
        let values = values.split(',').map(str::trim);
        all = values
            .flat_map(|value| {
                let mark = &mark;
                all.iter().map(move |(chosen, text)| {
                    (format!("{chosen} {name}={value}"), text.replace(mark, value))
                })
            })
            .collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_is_quoted_and_drop_comments() {
        let check = |line: &str, want: &[&str]| assert_eq!(words(line).unwrap(), want, "{line}");
        check("10s put a.yaml # why", &["10s", "put", "a.yaml"]);
        check("  expect \"a b\" count 2", &["expect", "\"a b", "count", "2"]);
        check("# nothing", &[]);
        assert!(words("\"open").is_err());
    }

    #[test]
    fn moments_add_up() {
        for (text, want) in [
            ("10s", Some(10_000)),
            ("1m30s", Some(90_000)),
            ("1h0m1s500ms", Some(3_601_500)),
            ("10", None),
            ("s", None),
            ("", None),
            ("10x", None),
        ] {
            assert_eq!(moment(text).map(Span::millis), want, "{text:?}");
        }
    }

    #[test]
    fn a_script_has_a_node_manifests_and_lines_in_order() {
        let text = "node maxPods 1\nmanifest web:\n  a: 1\n  b: 2\n\n0s start agent\nexpect x\n";
        let script = Script::read(text).unwrap();
        assert_eq!(script.node[0].words, ["maxPods", "1"]);
        assert_eq!(script.manifests["web"], "a: 1\nb: 2\n\n");
        assert_eq!(script.cues.len(), 2);
        assert_eq!(script.cues[1].expectation(), Some(vec!["x"]));
        for (bad, line) in [("5s a\n1s b", 2), ("oops", 1), ("manifest web", 1)] {
            assert_eq!(Script::read(bad).map_err(|m| m.line).err(), Some(line), "{bad}");
        }
    }

    #[test]
    fn variables_multiply() {
        let all = variations("each A = 1, 2\neach B = x, y\n$A$B");
        let ends: Vec<_> = all.iter().map(|(_, text)| text.lines().last().unwrap()).collect();
        assert_eq!(ends, ["1x", "2x", "1y", "2y"]);
        assert_eq!(all[1].0, " A=2 B=x");
    }
}
