//! YAML as Go's Kubernetes reads it, turned into canonical JSON, with the line of every key.
//!
//! Manifests and kubelet configurations are YAML 1.1 in the dialect of `sigs.k8s.io/yaml`: `0644`
//! is 420, `yes` is true, `12:30:45` stays text. Parsers of YAML 1.2 read the same bytes
//! differently, and a wrong file mode is a wrong permission. So the grammar comes from a kept
//! parser's events and the meaning of scalars, tags, merges and keys is decided here, to the letter
//! of the Go library.
//!
//! Input that starts with `{` is JSON and is read as JSON, as upstream does.

mod build;
mod events;
mod json;
mod lines;
mod scalar;
mod tree;

pub use lines::LineMap;
pub use tree::Mark;

use std::borrow::Cow;

/// What one text may cost. Everything beyond ends in an error, never in a long turn of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the text. The JSON may take four times as many.
    pub bytes: usize,
    /// Values, keys not counted, after aliases are expanded.
    pub values: usize,
    /// Collections inside collections.
    pub depth: u32,
}

impl Limits {
    /// For manifests and configurations: upstream reads at most 10 MiB of either.
    pub const FILE: Limits = Limits { bytes: 10 << 20, values: 500_000, depth: 100 };
}

/// A text that was understood.
#[derive(Debug)]
pub struct Document {
    /// Compact JSON with sorted keys, each once.
    pub json: Vec<u8>,
    /// Where each value was written.
    pub lines: LineMap,
    /// Keys that were given twice in one mapping, in the order of the text; the last one counts.
    /// Strict readers refuse them, lenient ones warn.
    pub duplicates: Vec<Duplicate>,
}

/// A key that was given twice, with the place of the later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// Field path, such as `spec.containers[0].image`.
    pub path: String,
    pub mark: Mark,
}

/// Why a text was not understood. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub line: u32,
    pub column: u32,
    pub what: String,
}

impl YamlError {
    fn at(mark: Mark, what: impl Into<String>) -> Self {
        YamlError { line: mark.line, column: mark.column, what: what.into() }
    }
}

impl std::fmt::Display for YamlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for YamlError {}

/// Reads the first document of a YAML stream, or a JSON object.
///
/// An empty text is `null`, as upstream's decoder has it. Source of the dialect:
/// `sigs.k8s.io/yaml` 1.6 over `go.yaml.in/yaml/v2` 2.4.
pub fn to_json(text: &[u8], limits: Limits) -> Result<Document, YamlError> {
    if text.len() > limits.bytes {
        let what = format!("larger than {} bytes", limits.bytes);
        return Err(YamlError::at(Mark::START, what));
    }
    let text = decode(text)?;
    let tree = if text.trim_start().starts_with('{') {
        json::read(&text, limits)?
    } else {
        printable(&text)?;
        build::read(&text, limits)?
    };
    let json = tree::write(&tree.root, limits)?;
    Ok(Document { json, lines: LineMap::new(tree.root), duplicates: tree.duplicates })
}

/// Bytes to text: UTF-8, or UTF-16 when a byte order mark says so, as libyaml reads them.
fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, YamlError> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units).collect::<Result<String, _>>()
    };
    let text = match bytes {
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        _ => {
            let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
            return std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
                let good = &bytes[..error.valid_up_to()];
                YamlError::at(Mark::after(&String::from_utf8_lossy(good)), "not UTF-8")
            });
        }
    };
    text.map(Cow::Owned).map_err(|_| YamlError::at(Mark::START, "not UTF-16"))
}

/// YAML has no place for control characters, raw; they are the mark of a binary file.
fn printable(text: &str) -> Result<(), YamlError> {
    let fits = |c: char| {
        matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}'
            | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    };
    match text.char_indices().find(|&(_, c)| !fits(c)) {
        None => Ok(()),
        Some((at, c)) => {
            let what = format!("control character U+{:04X} is not allowed", u32::from(c));
            Err(YamlError::at(Mark::after(&text[..at]), what))
        }
    }
}

#[cfg(test)]
mod tests;
