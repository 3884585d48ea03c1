//! Secrets that the core may carry about, but never see: it gets a seal, which a door opens on the
//! way out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use steplet_core::effect::Content;
use steplet_core::sealed::Sealed;

/// Bytes and number of the secrets of the cluster that are kept. An object has a mebibyte at most, and the tokens of
/// a full node have one together.
const CLUSTER_BYTES_MAX: usize = 32 << 20;
const CLUSTER_MAX: usize = 8 * 1024;

/// The secrets of this process. A seal is the number of its secret, counted from 1; the same secret has the same seal
/// as long as it is kept.
///
/// Secrets of the configuration are kept for good. Those of the cluster come without end, since tokens are renewed:
/// beyond a bound the one goes that was neither sealed nor opened for the longest time. Its number is never given
/// again, so whoever still has it is told `SealLost` and reads the source again.
#[derive(Default)]
pub struct Vault {
    kept: BTreeMap<u64, Kept>,
    numbers: BTreeMap<Rc<str>, u64>,
    /// Seals that were ever given.
    given: u64,
    /// Of the cluster's secrets: their number, and their bytes.
    cluster: (usize, usize),
    /// Counts the uses.
    uses: Cell<u64>,
}

struct Kept {
    secret: Rc<str>,
    of_cluster: bool,
    used: Cell<u64>,
}

/// A secret that was opened, on its way out. Printing it says nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Secret(String);

/// The seal is none of this vault's: it is of an earlier life of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealLost(pub Sealed);

impl Vault {
    /// Takes a secret of the configuration and returns its seal.
    pub fn seal(&mut self, secret: &str) -> Sealed {
        self.take(secret, false)
    }

    /// Takes a secret of the cluster and returns its seal.
    pub fn seal_of_cluster(&mut self, secret: &str) -> Sealed {
        let seal = self.take(secret, true);
        while self.cluster.0 > CLUSTER_MAX || self.cluster.1 > CLUSTER_BYTES_MAX {
            let others = self
                .kept
                .iter()
                .filter(|(number, kept)| kept.of_cluster && **number != seal.number());
            let Some((&oldest, _)) = others.min_by_key(|(_, kept)| kept.used.get()) else { break };
            self.forget(oldest);
        }
        seal
    }

    fn take(&mut self, secret: &str, of_cluster: bool) -> Sealed {
        if let Some(&number) = self.numbers.get(secret) {
            let kept = self.kept.get_mut(&number).expect("a numbered secret is kept");
            if kept.of_cluster && !of_cluster {
                kept.of_cluster = false;
                self.cluster = (self.cluster.0 - 1, self.cluster.1 - secret.len());
            }
            self.use_now(number);
            return Sealed::numbered(number);
        }
        self.given += 1;
        let secret: Rc<str> = secret.into();
        if of_cluster {
            self.cluster = (self.cluster.0 + 1, self.cluster.1 + secret.len());
        }
        self.numbers.insert(Rc::clone(&secret), self.given);
        self.kept.insert(self.given, Kept { secret, of_cluster, used: Cell::new(0) });
        self.use_now(self.given);
        Sealed::numbered(self.given)
    }

    fn use_now(&self, number: u64) {
        self.uses.set(self.uses.get() + 1);
        if let Some(kept) = self.kept.get(&number) {
            kept.used.set(self.uses.get());
        }
    }

    fn forget(&mut self, number: u64) {
        if let Some(kept) = self.kept.remove(&number) {
            self.numbers.remove(&kept.secret);
            self.cluster = (self.cluster.0 - 1, self.cluster.1 - kept.secret.len());
        }
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
        let kept = self.kept.get(&seal.number()).ok_or(SealLost(seal))?;
        self.use_now(seal.number());
        Ok(Secret(kept.secret.to_string()))
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
    fn of_the_clusters_secrets_the_oldest_go() {
        let mut vault = Vault::default();
        let ours = vault.seal("ours");
        let large = |n: usize| format!("{n}").repeat(CLUSTER_BYTES_MAX / 8);
        let seals: Vec<Sealed> = (1..=8).map(|n| vault.seal_of_cluster(&large(n))).collect();
        assert!(seals.iter().all(|seal| vault.open(*seal).is_ok()));
        assert_eq!(vault.seal_of_cluster(&large(1)), seals[0], "the same secret, the same seal");
        let ninth = vault.seal_of_cluster(&large(9));
        let open = |seal: Sealed| vault.open(seal).is_ok();
        assert!(open(ours) && open(seals[0]) && open(ninth) && !open(seals[1]) && open(seals[2]));
        let again = vault.seal_of_cluster(&large(2));
        assert!(again.number() > ninth.number(), "no number is given twice");
        let huge = vault.seal_of_cluster(&"x".repeat(CLUSTER_BYTES_MAX + 1));
        assert!(vault.open(huge).is_ok() && vault.kept.len() == 2, "{vault:?}");
        for n in 0..2 * CLUSTER_MAX {
            vault.seal_of_cluster(&n.to_string());
        }
        assert_eq!((vault.cluster.0, vault.kept.len()), (CLUSTER_MAX, CLUSTER_MAX + 1));
        // What the configuration names too is kept for good.
        let both = vault.seal_of_cluster("both");
        assert_eq!(vault.seal("both"), both);
        assert_eq!(vault.cluster.0, CLUSTER_MAX - 1);
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
