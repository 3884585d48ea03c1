//! When a certificate is to be renewed, what is asked for, and what became of a request. Pure.
//!
//! Upstream: client-go/util/certificate/certificate_manager.go and csr/csr.go, pkg/kubelet/certificate/kubelet.go
//! (v1.36).

use crate::effect::CertificateNames;
use crate::event::Pair;
use crate::rng::Rng;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{CertificateSigningRequest, CertificateSigningRequestSpec, NodeAddress};
use steplet_api::json;
use steplet_api::meta::ObjectMeta;

/// Shown by clocks that were never set: 2026-01-01, before this program was made.
const PLAUSIBLE: Wall = Wall(1_767_225_600_000_000_000);

/// What a certificate is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Shown to the API server.
    #[default]
    Client,
    /// Shown by 10250.
    Serving,
}

impl Kind {
    /// The beginning of its files' names.
    pub fn file_name(self) -> &'static str {
        match self {
            Kind::Client => "kubelet-client",
            Kind::Serving => "kubelet-server",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Client => "client certificate",
            Kind::Serving => "serving certificate",
        }
    }

    fn signer(self) -> &'static str {
        match self {
            Kind::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Kind::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    fn usages(self) -> [&'static str; 2] {
        match self {
            Kind::Client => ["digital signature", "client auth"],
            Kind::Serving => ["digital signature", "server auth"],
        }
    }
}

/// Whether a clock that shows this can be right.
pub fn is_plausible(now: Wall) -> bool {
    now >= PLAUSIBLE
}

/// A clock that cannot be right says nothing of an end.
pub fn is_expired(pair: &Pair, now: Wall) -> bool {
    is_plausible(now) && pair.not_after <= now
}

/// At 70 to 90 percent of its life.
pub fn renewal(pair: &Pair, rng: &mut Rng) -> Wall {
    let life = i128::from(pair.not_after.0) - i128::from(pair.not_before.0);
    let permille = i128::from(700 + rng.below(201));
    Wall(i64::try_from(i128::from(pair.not_before.0) + life * permille / 1000).unwrap_or(i64::MAX))
}

/// The same of one that was issued just now. Signers date certificates back by minutes, which of a short one can be
/// most of its life: it serves at least for half of what is left.
pub fn renewal_of_new(pair: &Pair, now: Wall, rng: &mut Rng) -> Wall {
    let half = pair.not_after.0.saturating_sub(now.0) / 2;
    renewal(pair, rng).max(Wall(now.0.saturating_add(half.max(0))))
}

pub fn client_names(node: &str) -> CertificateNames {
    CertificateNames {
        common_name: format!("system:node:{node}"),
        organizations: vec!["system:nodes".into()],
        ..CertificateNames::default()
    }
}

/// With the node's addresses. None without an IP address: signers want one.
pub fn serving_names(node: &str, addresses: &[NodeAddress]) -> Option<CertificateNames> {
    let mut names = client_names(node);
    for NodeAddress { type_, address } in addresses {
        let list = match &**type_ {
            _ if address.is_empty() => continue,
            "InternalIP" | "ExternalIP" => &mut names.ips,
            // A host name may be an address.
            "Hostname" if address.parse::<core::net::IpAddr>().is_ok() => &mut names.ips,
            "Hostname" | "InternalDNS" | "ExternalDNS" => &mut names.dns_names,
            _ => continue,
        };
        list.push(String::from(&**address));
    }
    for list in [&mut names.ips, &mut names.dns_names] {
        list.sort();
        list.dedup();
    }
    (!names.ips.is_empty()).then_some(names)
}

/// Whether a certificate names all that is wanted; it may name more.
pub fn satisfies(have: &CertificateNames, want: &CertificateNames) -> bool {
    let holds = |have: &[String], want: &[String]| want.iter().all(|name| have.contains(name));
    have.common_name == want.common_name
        && holds(&have.organizations, &want.organizations)
        && holds(&have.dns_names, &want.dns_names)
        && holds(&have.ips, &want.ips)
}

/// The object that asks for a certificate.
pub fn request(kind: Kind, name: &str, pem: &[u8]) -> Bytes {
    let object = CertificateSigningRequest {
        api_version: "certificates.k8s.io/v1".into(),
        kind: "CertificateSigningRequest".into(),
        metadata: ObjectMeta { name: name.into(), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: STANDARD.encode(pem).into(),
            signer_name: kind.signer().into(),
            usages: kind.usages().map(Box::from).to_vec(),
        },
        ..CertificateSigningRequest::default()
    };
    json::to_vec(&object).into()
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// Nobody has approved it, or its certificate is not there yet.
    Pending,
    /// The chain in PEM.
    Issued(Bytes),
    /// Denied, failed, or answered with nonsense; for people.
    Refused(String),
}

pub fn fate(object: &CertificateSigningRequest) -> Fate {
    for condition in &object.status.conditions {
        let what = match &*condition.type_ {
            "Denied" => "was denied",
            "Failed" => "was approved, but its signer failed",
            _ => continue,
        };
        let why: Vec<&str> = [&*condition.reason, &*condition.message]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect();
        return Fate::Refused(format!("{what} ({})", why.join(": ")));
    }
    match &*object.status.certificate {
        "" => Fate::Pending,
        coded => match STANDARD.decode(coded) {
            Ok(chain) => Fate::Issued(chain.into()),
            Err(_) => Fate::Refused("brought what is no base64".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steplet_api::cluster::CertificateSigningRequestCondition;

    const HOUR: i64 = 3_600_000_000_000;

    fn pair(from: i64, to: i64) -> Pair {
        let at = |hours| Wall(PLAUSIBLE.0 + hours * HOUR);
        Pair { not_before: at(from), not_after: at(to), ..Pair::default() }
    }

    #[test]
    fn renewal_is_at_a_time_of_its_own_late_in_the_life() {
        let pair = pair(0, 1000);
        let mut rng = Rng::new(1);
        let hours = |at: Wall| (at.0 - PLAUSIBLE.0) / HOUR;
        let drawn: Vec<i64> = (0..200).map(|_| hours(renewal(&pair, &mut rng))).collect();
        assert!(drawn.iter().all(|at| (700..=900).contains(at)), "{drawn:?}");
        assert!(drawn.iter().min() < Some(&720) && drawn.iter().max() > Some(&880), "{drawn:?}");
        let now = |hour| Wall(PLAUSIBLE.0 + hour * HOUR);
        let check = |hour, least: i64| {
            let at = hours(renewal_of_new(&pair, now(hour), &mut Rng::new(1)));
            assert!(at >= least, "{at}");
        };
        check(0, 700);
        check(900, 950);
        check(2000, 700);
    }

    #[test]
    fn a_clock_that_was_never_set_ends_nothing() {
        let pair = pair(0, 10);
        let check = |at, want| assert_eq!(is_expired(&pair, Wall(at)), want);
        check(0, false);
        check(PLAUSIBLE.0 + 9 * HOUR, false);
        check(PLAUSIBLE.0 + 10 * HOUR, true);
    }

    #[test]
    fn names_of_the_serving_certificate() {
        let check = |addresses: &[(&str, &str)], want: Option<(&[&str], &[&str])>| {
            let addresses: Vec<NodeAddress> = addresses
                .iter()
                .map(|(kind, address)| NodeAddress {
                    type_: (*kind).into(),
                    address: (*address).into(),
                })
                .collect();
            let names = serving_names("n1", &addresses);
            let seen = names.as_ref().map(|names| (names.ips.clone(), names.dns_names.clone()));
            let own = |list: &[&str]| list.iter().map(|text| String::from(*text)).collect();
            assert_eq!(seen, want.map(|(ips, dns)| (own(ips), own(dns))));
        };
        check(&[], None);
        check(&[("Hostname", "n1")], None);
        check(&[("InternalIP", "192.0.2.7"), ("Hostname", "n1")], Some((&["192.0.2.7"], &["n1"])));
        check(
            &[
                ("ExternalIP", "2001:db8::1"),
                ("InternalIP", "192.0.2.7"),
                ("Hostname", "192.0.2.7"),
            ],
            Some((&["192.0.2.7", "2001:db8::1"], &[])),
        );
    }

    #[test]
    fn a_certificate_may_name_more_than_is_wanted() {
        let want = client_names("n1");
        let more = CertificateNames { ips: vec!["192.0.2.7".into()], ..want.clone() };
        assert!(satisfies(&want, &want) && satisfies(&more, &want) && !satisfies(&want, &more));
        assert!(!satisfies(&client_names("n2"), &want));
    }

    #[test]
    fn fates_of_requests() {
        let check = |conditions: &[(&str, &str, &str)], certificate: &str, want: Fate| {
            let mut object = CertificateSigningRequest::default();
            object.status.certificate = certificate.into();
            let condition = |(type_, reason, message): &(&str, &str, &str)| {
                CertificateSigningRequestCondition {
                    type_: (*type_).into(),
                    status: "True".into(),
                    reason: (*reason).into(),
                    message: (*message).into(),
                }
            };
            object.status.conditions = conditions.iter().map(condition).collect();
            assert_eq!(fate(&object), want);
        };
        let refused = |why: &str| Fate::Refused(why.into());
        check(&[], "", Fate::Pending);
        check(&[("Approved", "Auto", "")], "", Fate::Pending);
        check(&[("Approved", "Auto", "")], "cGVt", Fate::Issued(Bytes::from_static(b"pem")));
        check(&[("Approved", "Auto", "")], "?", refused("brought what is no base64"));
        check(
            &[("Denied", "NotMine", "who is it")],
            "",
            refused("was denied (NotMine: who is it)"),
        );
        check(
            &[("Approved", "A", ""), ("Failed", "Signer", "")],
            "",
            refused("was approved, but its signer failed (Signer)"),
        );
    }
}
