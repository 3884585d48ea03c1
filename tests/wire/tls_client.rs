//! Our client of TLS against our server of it, in memory: trust, names, dates, identities.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use std::time::{Duration, SystemTime};
use steplet_wire::tls::{Client, TlsClient, TlsError, TlsServer, TlsSession, TlsSettings, Trust};

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

struct Pair {
    certificate: String,
    key: String,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

impl Authority {
    fn issue(&self, names: &[&str], from: u64, until: u64) -> Pair {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = (SystemTime::UNIX_EPOCH + Duration::from_secs(from)).into();
        params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(until)).into();
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

fn server(pair: &Pair, client_ca: Option<&Authority>) -> TlsSession {
    let settings = TlsSettings::new(&[""; 0], "", &[]).expect("no wishes");
    let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
    let server = TlsServer::new(&settings, certificate, key, client_ca.map(|ca| ca.pem.as_bytes()));
    server.unwrap_or_else(|error| panic!("{error}")).accept()
}

/// Moves bytes both ways, `step` at once, until nobody has any. What came out at the server, or the client's trouble.
fn run(client: &mut TlsSession, server: &mut TlsSession, step: usize) -> Result<Vec<u8>, String> {
    let (mut got, mut trouble) = (Vec::new(), None);
    loop {
        let (mut there, mut back) = (Vec::new(), Vec::new());
        while client.wants_write() {
            client.write_to(&mut there).expect("memory");
        }
        for piece in there.chunks(step) {
            let _ = server.feed(piece, |plain| got.extend_from_slice(plain));
        }
        while server.wants_write() {
            server.write_to(&mut back).expect("memory");
        }
        for piece in back.chunks(step) {
            if trouble.is_none() {
                trouble = client.feed(piece, |_| {}).err();
            }
        }
        if there.is_empty() && back.is_empty() {
            return trouble.map_or(Ok(got), |broken| Err(broken.0));
        }
    }
}

fn shake(
    trust: Trust<'_>,
    name: &str,
    identity: Option<&Pair>,
    server: &mut TlsSession,
    step: usize,
) -> Result<Vec<u8>, String> {
    let identity = identity.map(|pair| (pair.certificate.as_bytes(), pair.key.as_bytes()));
    let client = TlsClient::new(trust, name, identity, &["h2"]).expect("a client");
    let mut session = client.connect(NOW);
    assert_eq!(session.write(b"question"), 8);
    let got = run(&mut session, server, step)?;
    assert_eq!(session.alpn(), Some(&b"h2"[..]));
    Ok(got)
}

#[test]
fn a_server_is_judged_by_authority_name_and_date() {
    let (ca, other, anew) = (authority("ca"), authority("other"), authority("ca"));
    let good = ca.issue(&["api.example", "10.0.0.1"], NOW - DAY, NOW + DAY);
    let check = |trust: &Authority, name: &str, pair: &Pair, want: Result<(), &str>| {
        let trust = Trust::Authorities(trust.pem.as_bytes());
        let seen = shake(trust, name, None, &mut server(pair, None), usize::MAX);
        match want {
            Ok(()) => assert_eq!(seen.as_deref(), Ok(&b"question"[..])),
            Err(want) => assert_eq!(seen, Err(format!("the server's certificate {want}"))),
        }
    };
    check(&ca, "api.example", &good, Ok(()));
    check(&ca, "10.0.0.1", &good, Ok(()));
    check(&other, "api.example", &good, Err("is of none of the trusted authorities"));
    let anew_is = "is not signed by the trusted authority, but by another one of its name";
    check(&anew, "api.example", &good, Err(anew_is));
    let names = "does not name api; it names DnsName(\"api.example\"), IpAddress(10.0.0.1)";
    check(&ca, "api", &good, Err(names));
    let old = ca.issue(&["api"], NOW - 9 * DAY, NOW - 3 * DAY);
    check(&ca, "api", &old, Err("has expired 3 days ago by this machine's clock"));
    let new = ca.issue(&["api"], NOW + 3_600, NOW + 3 * DAY);
    let not_yet = "is not valid yet: by this machine's clock it will be in 60 minutes";
    check(&ca, "api", &new, Err(not_yet));
    let everybody = shake(Trust::Everybody, "other", None, &mut server(&old, None), usize::MAX);
    assert_eq!(everybody.as_deref(), Ok(&b"question"[..]));
}

#[test]
fn an_identity_is_shown_in_all_pieces() {
    let ca = authority("ca");
    let pair = ca.issue(&["api"], NOW - DAY, NOW + DAY);
    for step in [1, 2, 5, 100, usize::MAX] {
        let mut server = server(&pair, Some(&ca));
        let trust = Trust::Authorities(ca.pem.as_bytes());
        let seen = shake(trust, "api", Some(&pair), &mut server, step);
        assert_eq!(seen.as_deref(), Ok(&b"question"[..]));
        let Some(Client { refused: None, subject, .. }) = server.client(NOW) else {
            panic!("no client")
        };
        assert_eq!(subject.common_name, "system:node:n1");
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let ca = authority("ca");
    let (a, b) = (ca.issue(&["a"], 0, NOW), ca.issue(&["b"], 0, NOW));
    let check = |ca: &str, name: &str, certificate: &str, key: &str, want: &str| {
        let identity = Some((certificate.as_bytes(), key.as_bytes()));
        let made = TlsClient::new(Trust::Authorities(ca.as_bytes()), name, identity, &["h2"]);
        match made.err() {
            Some(TlsError::BadPem(seen, why)) => assert!(seen == want && !why.is_empty(), "{seen}"),
            Some(error) => assert_eq!(error.to_string(), want),
            None => panic!("{want}"),
        }
    };
    check("", "api", &a.certificate, &a.key, "CA");
    check(&a.key, "api", &a.certificate, &a.key, "CA");
    check(&ca.pem, "a b", &a.certificate, &a.key, "\"a b\" is no name of a server");
    check(&ca.pem, "api", "", &a.key, "client certificate");
    check(&ca.pem, "api", &a.certificate, "", "client key");
    check(&ca.pem, "api", &a.certificate, &b.key, "client certificate and key");
    // As in kubelet-client-current.pem, both may stand in one file.
    let both = format!("{}{}", a.certificate, a.key);
    let identity = Some((both.as_bytes(), both.as_bytes()));
    let trust = Trust::Authorities(ca.pem.as_bytes());
    assert!(TlsClient::new(trust, "api", identity, &["h2"]).is_ok());
}

#[test]
fn a_server_without_tls_is_told_apart() {
    let client = TlsClient::new(Trust::Everybody, "api", None, &["h2"]).expect("a client");
    let mut session = client.connect(NOW);
    let broken = session.feed(b"HTTP/1.0 400 Bad Request\r\n\r\n", |_| {}).unwrap_err();
    assert_eq!(broken.0, "what it says is not TLS");
}
