//! The node's certificates on its disk, without cryptography: a key is a number, a request and a certificate say
//! whose key they are for.

use super::disk::fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steplet_core::effect::CertificateNames;
use steplet_core::event::{Fault, FaultKind, HelperReply, Pair};
use steplet_core::time::Wall;

#[derive(Debug, Default)]
pub struct Pki {
    keys: u64,
    places: BTreeMap<String, Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// Of the last request.
    key: Option<u64>,
    current: Option<Certificate>,
    /// Certificates that were ever stored.
    stored: usize,
}

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    pub key: u64,
    pub names: CertificateNames,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    pub wanted: Wanted,
    pub not_before: Wall,
    pub not_after: Wall,
}

impl Certificate {
    fn pair(&self) -> Pair {
        let digest = self.wanted.key << 32 ^ self.not_after.0.unsigned_abs();
        let (not_before, not_after) = (self.not_before, self.not_after);
        Pair { not_before, not_after, names: self.wanted.names.clone(), digest }
    }
}

impl Pki {
    pub fn current(&self, name: &str) -> Option<&Certificate> {
        self.places.get(name)?.current.as_ref()
    }

    pub fn stored(&self, name: &str) -> usize {
        self.places.get(name).map_or(0, |place| place.stored)
    }

    /// Somebody spoils the pair: its key is another one's now.
    pub fn swap_key(&mut self, name: &str) {
        self.keys += 1;
        if let Some(current) = self.places.get_mut(name).and_then(|place| place.current.as_mut()) {
            current.wanted.key = 0;
        }
    }

    pub fn read(&self, name: &str) -> Result<Option<Box<Pair>>, Fault> {
        match self.current(name) {
            Some(Certificate { wanted: Wanted { key: 0, .. }, .. }) => {
                Err(fault(FaultKind::Invalid, "certificate and key: KeyMismatch"))
            }
            current => Ok(current.map(|certificate| certificate.pair().into())),
        }
    }

    pub fn drop_key(&mut self, name: &str) {
        self.places.entry(name.to_owned()).or_default().key = None;
    }

    pub fn request(&mut self, name: &str, names: &CertificateNames) -> HelperReply {
        let place = self.places.entry(name.to_owned()).or_default();
        let key = *place.key.get_or_insert_with(|| {
            self.keys += 1;
            self.keys
        });
        let wanted = Wanted { key, names: names.clone() };
        let pem = serde_json::to_vec(&wanted).expect("it encodes").into();
        let digest = format!("{key}-{}", [&names.ips[..], &names.dns_names].concat().join("-"));
        HelperReply::CertificateRequest { digest: digest.trim_end_matches('-').into(), pem }
    }

    pub fn store(&mut self, name: &str, chain: &[u8], now: Wall) -> Result<Box<Pair>, Fault> {
        let wrong =
            |why: &str| fault(FaultKind::Invalid, format!("what was issued is of no use: {why}"));
        let place = self.places.entry(name.to_owned()).or_default();
        let issued: Certificate = serde_json::from_slice(chain).map_err(|_| wrong("nonsense"))?;
        if Some(issued.wanted.key) != place.key {
            return Err(wrong("certificate and key: KeyMismatch"));
        }
        if issued.not_after <= now {
            return Err(wrong("it has expired"));
        }
        place.key = None;
        place.stored += 1;
        Ok(place.current.insert(issued).pair().into())
    }
}
