//! What a certificate says of itself, and whether a key is its own.
//!
//! For the certificates of this node: who gave them is not asked, since whoever they are shown to judges that.

use core::net::IpAddr;

use rustls::crypto::ring;
use rustls::sign::CertifiedKey;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use super::subject::{Der, OBJECT_ID, SEQUENCE, VERSION, subject};
use super::{Subject, TlsError, certificates};

/// The first certificate of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// RFC 3339, in UTC.
    pub not_before: String,
    pub not_after: String,
    pub subject: Subject,
    /// Of subjectAltName, in their order.
    pub dns_names: Vec<String>,
    pub ips: Vec<IpAddr>,
    /// The certificate in DER.
    pub der: Vec<u8>,
}

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const OCTETS: u8 = 0x04;
/// The explicit tag of the extensions.
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

impl Leaf {
    /// The certificate of a chain and its key, both in PEM.
    ///
    /// Errors: what cannot be read, or a key that is not the certificate's.
    pub fn of_pair(chain: &[u8], key: &[u8]) -> Result<Leaf, TlsError> {
        let chain = certificates("certificate", chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| TlsError::BadPem("private key", error.to_string()))?;
        let leaf = leaf(&chain[0]);
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|error| TlsError::BadPem("certificate and key", error.to_string()))?;
        leaf.ok_or_else(|| TlsError::BadPem("certificate", "it is no X.509 certificate".into()))
    }
}

fn leaf(der: &[u8]) -> Option<Leaf> {
    let mut outer = Der(Der(der).take(SEQUENCE)?);
    let mut fields = Der(outer.take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.any()?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields.any()?;
    }
    let mut validity = Der(fields.take(SEQUENCE)?);
    let (not_before, not_after) = (time(validity.any()?)?, time(validity.any()?)?);
    let mut leaf = Leaf { not_before, not_after, subject: subject(der)?, ..Leaf::default() };
    leaf.der = der.to_vec();
    while !fields.0.is_empty() {
        if let (EXTENSIONS, list) = fields.any()? {
            let mut list = Der(Der(list).take(SEQUENCE)?);
            while !list.0.is_empty() {
                extension(Der(list.take(SEQUENCE)?), &mut leaf)?;
            }
        }
    }
    Some(leaf)
}

fn extension(mut fields: Der<'_>, leaf: &mut Leaf) -> Option<()> {
    let id = fields.take(OBJECT_ID)?;
    // Whether it is critical may stand before the value.
    let (mut tag, mut value) = fields.any()?;
    if tag != OCTETS {
        (tag, value) = fields.any()?;
    }
    if id != ALTERNATIVE_NAMES || tag != OCTETS {
        return Some(());
    }
    let mut names = Der(Der(value).take(SEQUENCE)?);
    while !names.0.is_empty() {
        match names.any()? {
            (DNS_NAME, name) => leaf.dns_names.push(String::from_utf8(name.to_vec()).ok()?),
            (IP_ADDRESS, bytes) => {
                let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                leaf.ips.push(v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()?);
            }
            _ => {}
        }
    }
    Some(())
}

/// `261130120000Z` or `20261130120000Z`, the only forms that RFC 5280 allows (4.1.2.5).
fn time((tag, text): (u8, &[u8])) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.strip_suffix('Z').filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?;
    let whole = match (tag, digits.len()) {
        (UTC_TIME, 12) if digits < "50" => format!("20{digits}"),
        (UTC_TIME, 12) => format!("19{digits}"),
        (GENERALIZED_TIME, 14) => digits.to_owned(),
        _ => return None,
    };
    let (date, clock) = whole.split_at(8);
    let (year, month, day) = (&date[..4], &date[4..6], &date[6..]);
    let (hour, minute, second) = (&clock[..2], &clock[2..4], &clock[4..]);
    Some(format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let check = |tag, text: &str, want: Option<&str>| {
            assert_eq!(time((tag, text.as_bytes())).as_deref(), want, "{text}");
        };
        check(UTC_TIME, "261130120506Z", Some("2026-11-30T12:05:06Z"));
        check(UTC_TIME, "700101000000Z", Some("1970-01-01T00:00:00Z"));
        check(GENERALIZED_TIME, "20510203040506Z", Some("2051-02-03T04:05:06Z"));
        check(GENERALIZED_TIME, "261130120506Z", None);
        check(UTC_TIME, "2611301205+1Z", None);
        check(UTC_TIME, "261130120506", None);
        check(OCTETS, "261130120506Z", None);
    }

    #[test]
    fn what_is_none_is_an_error() {
        let check = |chain: &[u8], key: &[u8], want: &str| {
            let why = Leaf::of_pair(chain, key).unwrap_err().to_string();
            assert!(why.starts_with(want), "{why}");
        };
        check(b"", b"", "certificate: no certificate in it");
        let nonsense = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        check(nonsense, b"", "private key: ");
        assert_eq!(leaf(&[]), None);
        assert_eq!(leaf(&[0x30, 0]), None);
    }
}
