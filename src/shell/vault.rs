//! Secrets that the core may carry about, but never see: it gets a seal, which a door opens on the
//! way out.

use std::borrow::Cow;
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

    /// A URL as the core may know it: sealed when it may hold a credential.
    pub fn seal_url(&mut self, url: &str) -> String {
        match shown_url(url) {
            Cow::Borrowed(_) => url.to_owned(),
            Cow::Owned(_) => self.seal(url),
        }
    }

    /// The secret behind a seal; any other text as it is.
    pub fn open<'a>(&'a self, text: &'a str) -> &'a str {
        self.kept.get(text).map_or(text, String::as_str)
    }
}

/// A URL as it may be shown: scheme and host alone when there is a user, a password or a query in it.
pub fn shown_url(url: &str) -> Cow<'_, str> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map(|(_, host)| host);
    if host.is_none() && !path.contains(['?', '@']) {
        return Cow::Borrowed(url);
    }
    // After a stray slash in a password the rest of it looks like a path.
    let host = match host {
        Some(host) => host,
        None if path.contains('@') => "<masked>",
        None => authority,
    };
    Cow::Owned(format!("{scheme}://{host}/<masked>"))
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

    #[test]
    fn urls_with_credentials_are_sealed() {
        let check = |url: &str, want: &str| {
            assert_eq!(shown_url(url), want, "{url}");
            let mut vault = Vault::default();
            let sealed = vault.seal_url(url);
            assert_eq!(sealed == url, want == url, "{url}");
            assert!(!sealed.contains("s3cret"), "{url}");
            assert_eq!(vault.open(&sealed), url);
        };
        check("", "");
        check("http://host:8080/pods.yaml", "http://host:8080/pods.yaml");
        check("https://me:s3cret@host:1/pods", "https://host:1/<masked>");
        check("https://me:s3c@s3cret@host", "https://host/<masked>");
        check("https://host/pods?token=s3cret", "https://host/<masked>");
        check("https://host?token=s3cret", "https://host/<masked>");
        check("https://me:s3/s3cret@host/pods", "https://<masked>/<masked>");
        check("me:s3cret@host", "://host/<masked>");
    }
}
