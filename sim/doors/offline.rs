//! The store for times without the API server: what a helper has brought there, and what of it comes back.

use super::api::vault::Vault;
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use steplet_core::effect::KeptEntry;
use steplet_core::sealed::Sealed;

/// An entry with its secrets in the clear, as only the door and the disk have it.
#[derive(Clone, Debug)]
pub struct Entry {
    name: String,
    sealed: bool,
    body: Value,
}

/// A change on its way to the disk.
#[derive(Clone, Debug, Default)]
pub struct Change {
    set: Vec<Entry>,
    unset: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Store {
    entries: BTreeMap<String, Entry>,
    /// What a helper is at work on.
    pub under_way: Option<Change>,
}

impl Change {
    /// None: a seal is of an earlier life.
    pub fn of(set: &[KeptEntry], unset: &[String], vault: &Vault) -> Option<Change> {
        let entry = |kept: &KeptEntry| {
            let mut body = serde_json::from_slice(&kept.body).expect("the agent keeps JSON");
            if kept.sealed {
                open(&mut body, vault)?;
            }
            Some(Entry { name: kept.name.clone(), sealed: kept.sealed, body })
        };
        let set = set.iter().map(entry).collect::<Option<Vec<_>>>()?;
        Some(Change { set, unset: unset.to_vec() })
    }

    /// How many files it writes or takes away.
    pub fn files(&self) -> usize {
        self.set.len() + self.unset.len()
    }
}

fn open(body: &mut Value, vault: &Vault) -> Option<()> {
    let open = |value: &mut Value| {
        let Some(number) = value.as_u64() else { return Some(()) };
        *value = vault.open(Sealed::numbered(number))?.into();
        Some(())
    };
    if let Some(data) = body.get_mut("data").and_then(Value::as_object_mut) {
        data.values_mut().try_for_each(open)?;
    }
    body.pointer_mut("/status/token").map_or(Some(()), open)
}

impl Store {
    /// The first `files` of what is under way are on the disk; the rest never happened.
    pub fn finish(&mut self, files: usize) {
        let Some(change) = self.under_way.take() else { return };
        let gone = files.saturating_sub(change.set.len());
        for entry in change.set.into_iter().take(files) {
            self.entries.insert(entry.name.clone(), entry);
        }
        for name in change.unset.into_iter().take(gone) {
            self.entries.remove(&name);
        }
    }

    /// What a start of the agent finds, sealed for its new life.
    pub fn read(&self, vault: &mut Vault) -> Vec<KeptEntry> {
        let kept = self.entries.values().map(|entry| {
            let mut body = entry.body.clone();
            if entry.sealed {
                vault.seal_all(&mut body);
            }
            let body = Bytes::from(body.to_string());
            KeptEntry { name: entry.name.clone(), body, sealed: entry.sealed }
        });
        kept.collect()
    }

    /// Entries whose name begins so cannot be read any more, and are moved aside. How many there were.
    pub fn spoil(&mut self, prefix: &str) -> usize {
        let before = self.entries.len();
        self.entries.retain(|name, _| !name.starts_with(prefix));
        before - self.entries.len()
    }

    /// One of them, by its number.
    pub fn spoil_one(&mut self, number: usize) -> bool {
        let name = self.entries.keys().nth(number).cloned();
        name.is_some_and(|name| self.entries.remove(&name).is_some())
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_change_is_a_part_of_it() {
        let mut vault = Vault::default();
        vault.seal("of something else");
        let seal = vault.seal("czNjcmV0").number();
        let kept = |name: &str, body: String, sealed| KeptEntry {
            name: name.into(),
            body: body.into(),
            sealed,
        };
        let set = [
            kept("secret-1", format!(r#"{{"kind":"Secret","data":{{"a":{seal}}}}}"#), true),
            kept("pod-1", "{}".into(), false),
        ];
        let change = Change::of(&set, &["pod-0".into()], &vault).expect("the vault has it");
        assert!(Change::of(&set, &[], &Vault::default()).is_none());
        for (files, want) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
            let mut store = Store { under_way: Some(change.clone()), ..Store::default() };
            store.finish(files);
            assert_eq!(store.len(), want, "{files}");
            let read = store.read(&mut Vault::default());
            if let Some(secret) = read.iter().find(|kept| kept.sealed) {
                assert_eq!(secret.body, r#"{"data":{"a":1},"kind":"Secret"}"#);
            }
        }
    }
}
