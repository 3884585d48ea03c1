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

/// And of those that strangers show at our port: whoever floods it pushes out others of his kind only.
const VISITORS_MAX: usize = 1024;
const VISITOR_BYTES_MAX: usize = 8 << 20;

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
    /// Of each class that is bounded: number and bytes of its secrets.
    held: BTreeMap<Class, (usize, usize)>,
    /// Counts the uses.
    uses: Cell<u64>,
}

/// Whose a secret is; the first of two counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Configuration,
    Cluster,
    Visitor,
}

impl Class {
    /// Secrets and bytes that are kept of it.
    fn bounds(self) -> (usize, usize) {
        match self {
            Class::Configuration => (usize::MAX, usize::MAX),
            Class::Cluster => (CLUSTER_MAX, CLUSTER_BYTES_MAX),
            Class::Visitor => (VISITORS_MAX, VISITOR_BYTES_MAX),
        }
    }
}

struct Kept {
    secret: Rc<str>,
    class: Class,
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
        self.take(secret, Class::Configuration)
    }

    /// Takes a secret of the cluster and returns its seal.
    pub fn seal_of_cluster(&mut self, secret: &str) -> Sealed {
        self.take(secret, Class::Cluster)
    }

    /// Takes a secret that somebody shows at our port and returns its seal.
    pub fn seal_of_visitor(&mut self, secret: &str) -> Sealed {
        self.take(secret, Class::Visitor)
    }

    fn take(&mut self, secret: &str, class: Class) -> Sealed {
        let number = match self.numbers.get(secret) {
            Some(&number) => number,
            None => {
                self.given += 1;
                let secret: Rc<str> = secret.into();
                self.numbers.insert(Rc::clone(&secret), self.given);
                self.count(class, secret.len(), true);
                self.kept.insert(self.given, Kept { secret, class, used: Cell::new(0) });
                self.given
            }
        };
        self.raise(number, class);
        self.use_now(number);
        self.make_room(class, number);
        Sealed::numbered(number)
    }

    /// What is kept for one reason may be kept for a better one.
    fn raise(&mut self, number: u64, class: Class) {
        let kept = self.kept.get_mut(&number).expect("a numbered secret is kept");
        let (before, bytes) = (kept.class, kept.secret.len());
        if class < before {
            kept.class = class;
            self.count(before, bytes, false);
            self.count(class, bytes, true);
        }
    }

    fn count(&mut self, class: Class, bytes: usize, more: bool) {
        let held = self.held.entry(class).or_default();
        *held = match more {
            true => (held.0 + 1, held.1 + bytes),
            false => (held.0 - 1, held.1 - bytes),
        };
    }

    fn make_room(&mut self, class: Class, but: u64) {
        let bounds = class.bounds();
        while let Some(held) = self.held.get(&class)
            && (held.0 > bounds.0 || held.1 > bounds.1)
        {
            let those = self.kept.iter();
            let those = those.filter(|(number, kept)| kept.class == class && **number != but);
            let Some((&oldest, _)) = those.min_by_key(|(_, kept)| kept.used.get()) else { break };
            self.forget(oldest);
        }
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
            self.count(kept.class, kept.secret.len(), false);
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
        let held = |vault: &Vault| vault.held[&Class::Cluster].0;
        let open = |seal: Sealed| vault.open(seal).is_ok();
        assert!(open(ours) && open(seals[0]) && open(ninth) && !open(seals[1]) && open(seals[2]));
        let again = vault.seal_of_cluster(&large(2));
        assert!(again.number() > ninth.number(), "no number is given twice");
        let huge = vault.seal_of_cluster(&"x".repeat(CLUSTER_BYTES_MAX + 1));
        assert!(vault.open(huge).is_ok() && vault.kept.len() == 2, "{vault:?}");
        for n in 0..2 * CLUSTER_MAX {
            vault.seal_of_cluster(&n.to_string());
        }
        assert_eq!((held(&vault), vault.kept.len()), (CLUSTER_MAX, CLUSTER_MAX + 1));
        // Strangers push out nobody else.
        for n in 0..2 * VISITORS_MAX {
            vault.seal_of_visitor(&format!("visitor {n}"));
        }
        assert_eq!(vault.held[&Class::Visitor].0, VISITORS_MAX);
        assert_eq!((held(&vault), vault.open(ours).is_ok()), (CLUSTER_MAX, true));
        // What the configuration names too is kept for good.
        let both = vault.seal_of_cluster("both");
        assert_eq!(vault.seal("both"), both);
        assert_eq!(held(&vault), CLUSTER_MAX - 1);
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
