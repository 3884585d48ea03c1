//! The manifest directory and the manifest URL. Text here is JSON, which is YAML too; a scene brings its own reader.

use bytes::Bytes;
use std::collections::BTreeMap;
use steplet_core::event::{Item, Manifest, ManifestError, ManifestJson};

/// How a manifest's name and text become what the door hands on.
pub type Reader = fn(&str, &[u8]) -> Manifest;

#[derive(Debug)]
pub struct Manifests {
    pub reader: Reader,
    files: BTreeMap<String, Bytes>,
    /// The directory itself is missing.
    pub missing: bool,
    /// What the agent's door read last of each file; it dies with the agent.
    read: BTreeMap<String, u64>,
    /// What the URL serves; None refuses the connection.
    pub url: Option<Bytes>,
    fetched: Option<u64>,
}

impl Default for Manifests {
    fn default() -> Manifests {
        Manifests {
            reader: parse,
            files: BTreeMap::new(),
            missing: false,
            read: BTreeMap::new(),
            url: None,
            fetched: None,
        }
    }
}

/// What a manifest's text says, as the door hands it on.
pub fn parse(name: &str, text: &[u8]) -> Manifest {
    let content = serde_json::from_slice::<serde_json::Value>(text)
        .map(|value| ManifestJson { json: Bytes::from(value.to_string()), lines: Vec::new() })
        .map_err(|error| ManifestError {
            line: u32::try_from(error.line()).unwrap_or(0),
            message: error.to_string(),
        });
    Manifest { name: name.to_owned(), digest: digest(text), content }
}

fn digest(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Manifests {
    pub fn put(&mut self, name: &str, text: impl Into<Bytes>) {
        self.files.insert(name.to_owned(), text.into());
    }

    pub fn remove(&mut self, name: &str) -> Option<Bytes> {
        self.files.remove(name)
    }

    pub fn file(&self, name: &str) -> Option<&Bytes> {
        self.files.get(name)
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.files.iter().map(|(name, text)| (name.as_str(), text))
    }

    /// `DiskOp::ReadManifests`: changed files as items, then the sorted names.
    pub fn read(&mut self, path: &str, items: &mut Vec<Item>) -> Option<Vec<String>> {
        if self.missing || path.is_empty() {
            self.read.clear();
            return None;
        }
        let visible = |name: &&String| !name.starts_with('.');
        for name in self.files.keys().filter(visible) {
            let text = &self.files[name];
            let digest = digest(text);
            if self.read.insert(name.clone(), digest) != Some(digest) {
                items.push(Item::Manifest(Box::new((self.reader)(name, text))));
            }
        }
        let names: Vec<String> = self.files.keys().filter(visible).cloned().collect();
        self.read.retain(|name, _| names.contains(name));
        Some(names)
    }

    /// `HelperOp::FetchManifest`: None stands for the bytes of last time.
    pub fn fetch(&mut self, url: &str) -> Result<Option<Manifest>, String> {
        let text = self.url.clone().ok_or_else(|| format!("{url}: connection refused"))?;
        let digest = digest(&text);
        if self.fetched.replace(digest) == Some(digest) {
            return Ok(None);
        }
        Ok(Some((self.reader)(url, &text)))
    }

    /// The agent has died, and with it what its doors remembered.
    pub fn forget(&mut self) {
        self.read.clear();
        self.fetched = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_files_come_as_items_and_dot_files_never() {
        let mut manifests = Manifests::default();
        let read = |manifests: &mut Manifests| {
            let mut items = Vec::new();
            let names = manifests.read("/manifests", &mut items).expect("it is there");
            (names, items.len())
        };
        manifests.put("b.yaml", r#"{"kind":"Pod"}"#);
        manifests.put("a.yaml", "{");
        manifests.put(".a.swp", "{}");
        assert_eq!(read(&mut manifests), (vec!["a.yaml".into(), "b.yaml".into()], 2));
        assert_eq!(read(&mut manifests).1, 0);
        manifests.put("a.yaml", "{}");
        assert_eq!(read(&mut manifests).1, 1);
        manifests.remove("a.yaml");
        assert_eq!(read(&mut manifests), (vec!["b.yaml".into()], 0));
        manifests.put("a.yaml", "{}");
        assert_eq!(read(&mut manifests).1, 1);
    }

    #[test]
    fn torn_text_is_an_error_with_its_line() {
        assert_eq!(parse("x", b"{\n\"a\":").content.map_err(|e| e.line), Err(2));
        let json = parse("x", br#"{"b":1,"a":2}"#).content.expect("it is JSON").json;
        assert_eq!(json, r#"{"a":2,"b":1}"#);
    }
}
