//! Secrets that the core may carry about, but never see: it gets a seal, which a door opens on the
//! way out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use steplet_core::effect::Content;
use steplet_core::sealed::Sealed;

/// The secrets of this process. A seal is the number of its secret, counted from 1.
#[derive(Default)]
pub struct Vault {
    kept: Vec<Secret>,
}

/// A secret that was opened, on its way out. Printing it says nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Secret(String);

/// The seal is none of this vault's: it is of an earlier life of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealLost(pub Sealed);

impl Vault {
    /// Takes a secret and returns its seal.
    pub fn seal(&mut self, secret: &str) -> Sealed {
        let known = self.kept.iter().position(|kept| kept.0 == secret);
        let at = known.unwrap_or_else(|| {
            self.kept.push(Secret(secret.to_owned()));
            self.kept.len() - 1
        });
        Sealed::numbered(at as u64 + 1)
    }

    /// A URL as the core may know it: what may be shown of it, and the seal of the whole when that
    /// is more.
    pub fn seal_url(&mut self, url: &str) -> (String, Option<Sealed>) {
        match shown_url(url) {
            Cow::Borrowed(_) => (url.to_owned(), None),
            Cow::Owned(shown) => (shown, Some(self.seal(url))),
        }
    }

    pub fn open(&self, seal: Sealed) -> Result<Secret, SealLost> {
        let at = seal.number().checked_sub(1).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.kept.get(at)).cloned().ok_or(SealLost(seal))
    }
}

/// The secrets of one effect, on their way out with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened(BTreeMap<Sealed, Secret>);

impl Opened {
    /// Errors: a seal that this vault did not give.
    pub fn of<'a>(
        contents: impl IntoIterator<Item = &'a Content>,
        vault: &Vault,
    ) -> Result<Opened, SealLost> {
        let seals = contents.into_iter().filter_map(|content| match content {
            Content::Plain(_) => None,
            Content::Sealed(seal) | Content::Decoded(seal) => Some(*seal),
        });
        seals.map(|seal| Ok((seal, vault.open(seal)?))).collect::<Result<_, _>>().map(Opened)
    }

    /// The bytes that a content stands for. Errors: why there are none, without a word of the secret.
    pub fn content(&self, content: &Content) -> Result<Vec<u8>, String> {
        let open = |seal: &Sealed| self.0.get(seal).ok_or_else(|| SealLost(*seal).to_string());
        match content {
            Content::Plain(bytes) => Ok(bytes.to_vec()),
            Content::Sealed(seal) => Ok(open(seal)?.0.clone().into_bytes()),
            Content::Decoded(seal) => {
                STANDARD.decode(&open(seal)?.0).map_err(|_| format!("{seal} is not base64"))
            }
        }
    }
}

impl Secret {
    /// The secret itself, for the wire: not for messages.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Secret {
        Secret(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vault of {}", self.kept.len())
    }
}

impl fmt::Display for SealLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the secret behind {} is not in this process", self.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_open_and_say_nothing() {
        let mut vault = Vault::default();
        let seal = vault.seal("Bearer s3cret");
        assert_eq!(vault.seal("Bearer s3cret"), seal, "the same secret, the same seal");
        let other = vault.seal("other");
        assert_ne!(other, seal);
        assert_eq!(vault.open(seal).unwrap().expose(), "Bearer s3cret");
        assert_eq!(vault.open(other).unwrap().expose(), "other");
        let printed = format!("{vault:?} {seal:?} {seal} {:?}", vault.open(seal));
        assert!(!printed.contains("s3cret") && printed.contains("sealed:1"), "{printed}");
        for number in [0, 3, u64::MAX] {
            let lost = Sealed::numbered(number);
            assert_eq!(vault.open(lost), Err(SealLost(lost)));
        }
    }

    #[test]
    fn contents_open_on_their_way_out() {
        let mut vault = Vault::default();
        let [plain, coded, wrong] = ["s3cret", "czNjcmV0AP8=", "s3cret!"].map(|s| vault.seal(s));
        let contents = [
            Content::Plain("x".into()),
            Content::Sealed(plain),
            Content::Decoded(coded),
            Content::Decoded(wrong),
        ];
        let opened = Opened::of(&contents, &vault).unwrap();
        let bytes = contents.each_ref().map(|content| opened.content(content));
        let want = [b"x".to_vec(), b"s3cret".to_vec(), b"s3cret\0\xff".to_vec()];
        assert_eq!(bytes[..3], want.map(Ok));
        assert_eq!(bytes[3], Err("sealed:3 is not base64".into()));
        assert!(!format!("{opened:?} {bytes:?}", bytes = &bytes[3]).contains("s3cret"));
        let lost = Sealed::numbered(9);
        assert_eq!(Opened::of(&[Content::Sealed(lost)], &vault), Err(SealLost(lost)));
        assert!(opened.content(&Content::Sealed(lost)).is_err());
    }

    #[test]
    fn urls_with_credentials_are_sealed() {
        let check = |url: &str, want: &str| {
            let mut vault = Vault::default();
            let (shown, whole) = vault.seal_url(url);
            assert_eq!((shown.as_str(), whole.is_none()), (want, want == url), "{url}");
            let opened = whole.map(|seal| vault.open(seal).unwrap());
            assert_eq!(opened.as_ref().map_or(want, Secret::expose), url);
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
