//! TLS against a rustls client in memory: versions, certificates, cut connections, hostile bytes.

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use steplet_wire::http_server::{Event, HttpServer, Protocol};
use steplet_wire::tls::{Broken, Client, TlsError, TlsServer, TlsSession, TlsSettings};

use crate::memory::Rng;

const NOW: u64 = 1_800_000_000;

struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
struct Pair {
    certificate: String,
    key: String,
}

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority { pem, issuer: Issuer::new(params, key) }
}

impl Authority {
    fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut params = CertificateParams::new(vec!["node".to_owned()]).expect("a name");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn client(&self, usage: ExtendedKeyUsagePurpose) -> Pair {
        self.issue(|params| {
            params.extended_key_usages = vec![usage];
            params.distinguished_name.push(DnType::OrganizationName, "system:masters");
            params.distinguished_name.push(DnType::CommonName, "admin");
        })
    }
}

fn settings() -> TlsSettings {
    TlsSettings::new(&[""; 0], "", &[]).expect("no wishes")
}

fn server(settings: &TlsSettings, ca: &Authority, client_ca: Option<&Authority>) -> TlsServer {
    let pair = ca.issue(|_| {});
    let client_ca = client_ca.map(|ca| ca.pem.as_bytes());
    let server =
        TlsServer::new(settings, pair.certificate.as_bytes(), pair.key.as_bytes(), client_ca);
    server.unwrap_or_else(|error| panic!("{error}"))
}

fn client(
    ca: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    alpn: &[&str],
    own: Option<&Pair>,
) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem.as_bytes()).expect("PEM")).expect("a CA");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
            builder
                .with_client_auth_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
                .expect("a pair")
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    ClientConnection::new(Arc::new(config), "node".try_into().expect("a name")).expect("a client")
}

/// What came out plain at either end, and the server's first error.
struct Moved {
    at_server: Vec<u8>,
    at_client: Vec<u8>,
    result: Result<(), Broken>,
}

/// Moves bytes both ways, at most `step` at once to the server, until nobody has any.
fn run(client: &mut ClientConnection, session: &mut TlsSession, step: usize) -> Moved {
    let mut moved = Moved { at_server: Vec::new(), at_client: Vec::new(), result: Ok(()) };
    loop {
        let mut there = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut there).expect("memory");
        }
        for piece in there.chunks(step) {
            if moved.result.is_ok() {
                let plain = |bytes: &[u8]| moved.at_server.extend_from_slice(bytes);
                moved.result = session.feed(piece, plain);
            }
        }
        let mut back = Vec::new();
        while session.wants_write() {
            session.write_to(&mut back).expect("memory");
        }
        let mut rest = &back[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            if client.process_new_packets().is_err() {
                return moved;
            }
            let _ = client.reader().read_to_end(&mut moved.at_client);
        }
        if there.is_empty() && back.is_empty() {
            return moved;
        }
    }
}

const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];

#[test]
fn both_versions_in_all_pieces() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, Some(&ca));
    let own = ca.client(ExtendedKeyUsagePurpose::ClientAuth);
    for version in BOTH {
        for step in [1, 2, 3, 5, 17, 100, 1000, usize::MAX] {
            let mut session = server.accept();
            let mut client = client(&ca, &[version], &["h2", "http/1.1"], Some(&own));
            client.writer().write_all(b"question").expect("memory");
            let moved = run(&mut client, &mut session, step);
            assert_eq!((moved.at_server.as_slice(), moved.result), (&b"question"[..], Ok(())));
            assert_eq!(session.alpn(), Some(&b"h2"[..]));
            assert!(!session.is_handshaking() && !session.is_ended());

            assert_eq!(session.write(b"answer"), 6);
            session.close();
            client.send_close_notify();
            let moved = run(&mut client, &mut session, step);
            assert_eq!(moved.result, Ok(()));
            assert_eq!(moved.at_client, b"answer");
            assert_eq!(client.reader().read(&mut [0]).expect("a clean end"), 0);
            assert!(session.is_ended());
            assert_eq!(session.feed_eof(), Ok(()));
        }
    }
}

#[test]
fn clients_are_known_by_their_certificates() {
    let (ca, other) = (authority("ca"), authority("other"));
    let server_with_ca = server(&settings(), &ca, Some(&ca));
    let told = |server: &TlsServer, own: Option<&Pair>, now: u64| -> Option<Client> {
        let mut session = server.accept();
        let mut client = client(&ca, BOTH, &[], own);
        client.writer().write_all(b"x").expect("memory");
        let moved = run(&mut client, &mut session, usize::MAX);
        assert_eq!((moved.at_server.as_slice(), moved.result), (&b"x"[..], Ok(())));
        session.client(now)
    };
    let good = ca.client(ExtendedKeyUsagePurpose::ClientAuth);
    let known = told(&server_with_ca, Some(&good), NOW).expect("a certificate");
    assert_eq!(known.refused, None);
    assert_eq!(known.subject.common_name, "admin");
    assert_eq!(known.subject.organizations, ["system:masters"]);
    let der = CertificateDer::from_pem_slice(good.certificate.as_bytes()).expect("PEM");
    assert_eq!(known.certificate, der.to_vec());

    let check = |own: &Pair, now: u64, why: &str| {
        let known = told(&server_with_ca, Some(own), now).expect("a certificate");
        let refused = known.refused.expect("a refusal");
        assert!(refused.contains(why), "{refused}");
        assert_eq!(known.subject, Default::default(), "an unproven name is not told");
    };
    check(&other.client(ExtendedKeyUsagePurpose::ClientAuth), NOW, "UnknownIssuer");
    check(&ca.client(ExtendedKeyUsagePurpose::ServerAuth), NOW, "key usage");
    check(&good, 100_000_000_000, "expired");
    check(&good, 0, "not valid yet");

    assert_eq!(told(&server_with_ca, None, NOW), None);
    assert_eq!(told(&server(&settings(), &ca, None), Some(&good), NOW), None);
}

#[test]
fn settings_reach_the_handshake() {
    let ca = authority("ca");
    let works = |suites: &[&str],
                 version: &str,
                 curves: &[i64],
                 offered: &[&'static SupportedProtocolVersion]| {
        let settings = TlsSettings::new(suites, version, curves).expect("known names");
        let mut session = server(&settings, &ca, None).accept();
        let mut client = client(&ca, offered, &["http/1.1"], None);
        let result = run(&mut client, &mut session, usize::MAX).result;
        assert_eq!(result.is_ok(), !session.is_handshaking());
        result.is_ok().then(|| client.negotiated_cipher_suite().map(|s| u16::from(s.suite())))
    };
    let (tls12, tls13) = (&[&rustls::version::TLS12], &[&rustls::version::TLS13]);
    assert!(works(&[], "VersionTLS13", &[], tls12).is_none());
    assert!(works(&[], "VersionTLS13", &[], tls13).is_some());
    let suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256";
    assert_eq!(works(&[suite], "", &[], tls12), Some(Some(0xcca9)));
    assert!(works(&["TLS_RSA_WITH_AES_128_GCM_SHA256"], "", &[], tls12).is_none());
    assert!(works(&["TLS_RSA_WITH_AES_128_GCM_SHA256"], "", &[], tls13).is_some());
    assert!(works(&[], "", &[24], BOTH).is_some());
}

#[test]
fn unusable_files_say_what_is_wrong() {
    let ca = authority("ca");
    let (a, b) = (ca.issue(|_| {}), ca.issue(|_| {}));
    let check = |certificate: &str, key: &str, client_ca: Option<&str>, what: &str| {
        let client_ca = client_ca.map(str::as_bytes);
        let made = TlsServer::new(&settings(), certificate.as_bytes(), key.as_bytes(), client_ca);
        match made.err() {
            Some(TlsError::BadPem(seen, why)) => assert!(seen == what && !why.is_empty(), "{seen}"),
            other => panic!("{what}: {other:?}"),
        }
    };
    check("", &a.key, None, "certificate");
    check(&a.key, &a.key, None, "certificate");
    check(&a.certificate, "", None, "private key");
    check(&a.certificate, &a.certificate, None, "private key");
    check(&a.certificate, &b.key, None, "certificate and key");
    check(&a.certificate, &a.key, Some(""), "client CA");
    check(
        &a.certificate,
        &a.key,
        Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        "client CA",
    );
    let truncated = &a.certificate[..a.certificate.len() / 2];
    check(truncated, &a.key, None, "certificate");
}

#[test]
fn a_cut_connection_is_no_clean_end() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, None);
    assert!(server.accept().feed_eof().is_err());
    let mut session = server.accept();
    let mut client = client(&ca, BOTH, &[], None);
    run(&mut client, &mut session, usize::MAX).result.expect("a handshake");
    assert!(session.feed_eof().is_err());
}

#[test]
fn a_client_that_does_not_read_holds_little() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, None);
    let fill = |session: &mut TlsSession| {
        let mut taken = 0;
        while let n @ 1.. = session.write(&[b'x'; 10_000]) {
            taken += n;
            assert!(taken <= 32 * 1024, "{taken} bytes taken");
        }
        taken
    };
    let mut early = server.accept();
    assert!(fill(&mut early) > 0);
    let mut session = server.accept();
    let mut client = client(&ca, BOTH, &[], None);
    run(&mut client, &mut session, usize::MAX).result.expect("a handshake");
    let taken = fill(&mut session);
    let moved = run(&mut client, &mut session, usize::MAX);
    assert_eq!(moved.at_client, vec![b'x'; taken]);
    assert_eq!(fill(&mut session), taken);
}

#[test]
fn clients_without_tls_are_told_so() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, None);
    let check = |bytes: &[u8], answer: &[u8]| {
        let mut session = server.accept();
        assert!(session.feed(bytes, |_| panic!("plain bytes")).is_err());
        let mut told = Vec::new();
        while session.wants_write() {
            session.write_to(&mut told).expect("memory");
        }
        assert!(told.starts_with(answer), "{told:?}");
    };
    check(
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP",
    );
    // A fatal alert.
    check(b"SSH-2.0-OpenSSH_9.2\r\n", &[21, 3, 3, 0, 2, 2]);
}

#[test]
fn both_protocols_behind_one_port() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, None);
    let check = |alpn: &[&str], request: &[u8], protocol: Protocol| {
        let mut session = server.accept();
        let mut client = client(&ca, BOTH, alpn, None);
        client.writer().write_all(request).expect("memory");
        let moved = run(&mut client, &mut session, 100);
        assert_eq!(moved.result, Ok(()));
        assert_eq!(Protocol::from_alpn(session.alpn()), protocol);
        let mut http = HttpServer::new(protocol, 0);
        http.feed(&moved.at_server);
        let events = http.poll();

        let Event::Request { id, head } = &events[0] else { panic!("{events:?}") };
        assert_eq!(head.target, "/");
        http.reply(*id, 200, &[], Bytes::from_static(b"ok"));
        http.poll();
        let answer = http.output().to_vec();
        assert_eq!(session.write(&answer), answer.len());
        assert_eq!(run(&mut client, &mut session, 100).at_client, answer);
    };
    check(&["http/1.1"], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Protocol::Http1);
    check(&[], b"GET / HTTP/1.0\r\n\r\n", Protocol::Http1);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let get = [0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x87];
    // `:authority` is missing, which a server may let pass.
    check(&["h2", "http/1.1"], &[&preface[..], &get].concat(), Protocol::Http2);
}

#[test]
fn mutated_handshakes_never_panic() {
    let ca = authority("ca");
    let server = server(&settings(), &ca, Some(&ca));
    let own = ca.client(ExtendedKeyUsagePurpose::ClientAuth);
    let mut rng = Rng(1);
    let (mut broken, mut through) = (0, 0);
    for round in 0..600 {
        let mut session = server.accept();
        let mut client = client(&ca, &[BOTH[round % 2]], &["h2"], Some(&own));
        client.writer().write_all(b"question").expect("memory");
        // The first or the second flight is spoilt.
        let spoilt = rng.below(2);
        let mut result = Ok(());
        for flight in 0..2 {
            let mut there = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut there).expect("memory");
            }
            if flight == spoilt {
                there = rng.mutate(&there);
            }
            let step = 1 + rng.below(there.len().max(1));
            for piece in there.chunks(step) {
                result = result.and(session.feed(piece, |_| {}));
            }
            let mut back = Vec::new();
            while session.wants_write() {
                session.write_to(&mut back).expect("memory");
            }
            let mut rest = &back[..];
            while !rest.is_empty() && client.read_tls(&mut rest).is_ok() {
                let _ = client.process_new_packets();
            }
        }
        let _ = session.client(NOW);
        if result.is_err() { broken += 1 } else { through += 1 }
    }
    assert!(broken > 100, "{broken} broken, {through} not");
}
