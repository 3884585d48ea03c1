//! One entry of the store as a file: a head that says how to read it, and the rest encrypted.
//!
//! ```text
//! "steplet" | version 1 | 1: it holds secrets | name of the key, 8 | nonce, 12 | ChaCha20-Poly1305 of the body, tag 16
//! ```
//! The head and the entry's name are authenticated with the body, so a file under another name does not open. The nonce
//! is drawn for each writing; one key serves 2^32 of them, which a node that writes each second reaches in 136 years.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

const MAGIC: &[u8; 7] = b"steplet";
const VERSION: u8 = 1;
/// Magic, version, flag and name of the key.
const HEAD: usize = 7 + 1 + 1 + 8;
const NONCE: usize = 12;

/// What entries are encrypted with. It does not print.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    bytes: [u8; 32],
    /// Tells keys apart, and nothing of them.
    name: [u8; 8],
}

/// Why a file is not an entry that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// Cut, overwritten, renamed, or of somebody else.
    Damaged,
    Version(u8),
    Key,
}

impl Key {
    /// Made of what a key file holds, whatever its form.
    pub fn of(material: &[u8]) -> Key {
        let root = hmac::Key::new(hmac::HMAC_SHA256, material);
        let derive = |label: &[u8]| -> [u8; 32] {
            hmac::sign(&root, label).as_ref().try_into().expect("SHA-256 has 32 bytes")
        };
        let mut name = [0; 8];
        name.copy_from_slice(&derive(b"steplet offline store 1: name")[..8]);
        Key { bytes: derive(b"steplet offline store 1: key"), name }
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.bytes);
        LessSafeKey::new(key.expect("a key of 32 bytes"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Random bytes of the system. Errors: it has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random numbers"))?;
    Ok(bytes)
}

/// The file of an entry. Errors: no random numbers.
pub fn seal(key: &Key, name: &str, secret: bool, body: &[u8]) -> io::Result<Vec<u8>> {
    let nonce: [u8; NONCE] = random()?;
    let mut file = head(key, VERSION, secret);
    let mut sealed = body.to_vec();
    let aad = Aad::from([&file, name.as_bytes()].concat());
    (key.cipher())
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
        .map_err(|_| io::Error::other("the entry is too large to encrypt"))?;
    file.extend(nonce);
    file.append(&mut sealed);
    Ok(file)
}

fn head(key: &Key, version: u8, secret: bool) -> Vec<u8> {
    [&MAGIC[..], &[version, secret.into()], &key.name].concat()
}

/// Whether the entry holds secrets, and its body.
pub fn open(key: &Key, name: &str, file: &[u8]) -> Result<(bool, Vec<u8>), Unfit> {
    let (head, rest) = file.split_at_checked(HEAD).ok_or(Unfit::Damaged)?;
    let (magic, head_rest) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Unfit::Damaged);
    }
    if head_rest[0] != VERSION {
        return Err(Unfit::Version(head_rest[0]));
    }
    if head_rest[2..] != key.name {
        return Err(Unfit::Key);
    }
    let (nonce, body) = rest.split_first_chunk::<NONCE>().ok_or(Unfit::Damaged)?;
    let aad = Aad::from([head, name.as_bytes()].concat());
    let mut body = body.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let length =
        key.cipher().open_in_place(nonce, aad, &mut body).map_err(|_| Unfit::Damaged)?.len();
    body.truncate(length);
    Ok((head_rest[1] == 1, body))
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Damaged => f.write_str("damaged"),
            Unfit::Version(version) => {
                write!(f, "of format {version}, and this program writes {VERSION}")
            }
            Unfit::Key => f.write_str("encrypted with another key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_and_nothing_else_does() {
        let key = Key::of(b"0123456789abcdef");
        let body = br#"{"kind":"Secret","data":{"a":"czNjcmV0"}}"#;
        let file = seal(&key, "secret-1", true, body).expect("random numbers");
        assert_eq!(open(&key, "secret-1", &file), Ok((true, body.to_vec())));
        let open_one = seal(&key, "pod-1", false, b"{}").expect("random numbers");
        assert_eq!(open(&key, "pod-1", &open_one), Ok((false, b"{}".to_vec())));
        assert!(!file.windows(8).any(|bytes| bytes == b"czNjcmV0"));
        let again = seal(&key, "secret-1", true, body).expect("random numbers");
        assert_ne!(file, again, "no nonce is used twice");

        // Cut at every byte, and every byte flipped.
        for cut in 0..file.len() {
            assert_eq!(open(&key, "secret-1", &file[..cut]), Err(Unfit::Damaged), "cut at {cut}");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone();
                flipped[at] ^= 1 << bit;
                let got = open(&key, "secret-1", &flipped);
                let want = match at {
                    7 => Unfit::Version(1 ^ 1 << bit),
                    9..17 => Unfit::Key,
                    _ => Unfit::Damaged,
                };
                assert_eq!(got, Err(want), "bit {bit} of byte {at}");
            }
        }
        assert_eq!(open(&key, "secret-2", &file), Err(Unfit::Damaged), "under another name");
        let mut longer = file.clone();
        longer.push(0);
        assert_eq!(open(&key, "secret-1", &longer), Err(Unfit::Damaged));
        assert_eq!(open(&Key::of(b"another key here"), "secret-1", &file), Err(Unfit::Key));
        for version in [0, 2, 255] {
            let mut other = file.clone();
            other[7] = version;
            assert_eq!(open(&key, "secret-1", &other), Err(Unfit::Version(version)));
        }
        assert_eq!(open(&key, "secret-1", &[0; 64]), Err(Unfit::Damaged));
        assert_eq!(format!("{key:?}"), "Key");
    }
}
