//! Secrets that the core may carry about, but never see: it gets a seal, which a door opens on the
//! way out.

use std::collections::BTreeMap;

/// What a seal begins with. It is not allowed in an HTTP header's value, so no value can pass for a
/// seal.
const MARK: char = '\u{1}';

/// The secrets of this process by their seal.
#[derive(Default)]
pub struct Vault {
    kept: BTreeMap<String, String>,
}

impl Vault {
    /// Takes a secret and returns its seal, which says nothing about it.
    pub fn seal(&mut self, secret: &str) -> String {
        let seal = format!("{MARK}sealed:{}", self.kept.len() + 1);
        self.kept.insert(seal.clone(), secret.to_owned());
        seal
    }

    /// The secret behind a seal; any other text as it is.
    pub fn open<'a>(&'a self, text: &'a str) -> &'a str {
        self.kept.get(text).map_or(text, String::as_str)
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vault of {}", self.kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_open_and_say_nothing() {
        let mut vault = Vault::default();
        let seal = vault.seal("Bearer s3cret");
        assert!(!seal.contains("s3cret") && !format!("{vault:?}").contains("s3cret"));
        assert_eq!(vault.open(&seal), "Bearer s3cret");
        assert_eq!(vault.open("plain"), "plain");
    }
}
