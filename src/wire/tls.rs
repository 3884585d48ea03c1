//! TLS as a filter: encrypted bytes in, plain bytes out, and back.
//!
//! A server asks for a client's certificate if a CA is given, and never demands it: like kubelet, it
//! lets every client in, and whoever authenticates requests asks [`TlsSession::client`] who it is.
//! A client ([`TlsClient`]) judges the server in the handshake.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConnection, Connection, DigitallySignedStruct, DistinguishedName};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

pub use client::{TlsClient, Trust};
pub use leaf::Leaf;
pub use settings::{TlsError, TlsSettings};
pub use subject::Subject;

mod client;
mod leaf;
mod settings;
mod subject;

/// Most bytes, plain or encrypted, that a session holds for its socket.
const BUFFER_MAX: usize = 32 * 1024;

/// First bytes of clients that forgot the `s` of `https`, and what Go's server tells them.
const PLAIN_HTTP: [&[u8]; 5] = [b"GET /", b"HEAD ", b"POST ", b"PUT /", b"OPTIO"];
const PLAIN_HTTP_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// What all sessions of a listener share. A changed certificate or CA means a new one for new
/// sessions.
pub struct TlsServer {
    config: Arc<ServerConfig>,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
}

impl TlsServer {
    /// From PEM: the certificate with its chain, its key (PKCS #1, PKCS #8 or SEC 1), and the CA
    /// bundle for clients. It fails if the key is not the certificate's.
    pub fn new(
        settings: &TlsSettings,
        certificate: &[u8],
        key: &[u8],
        client_ca: Option<&[u8]>,
    ) -> Result<TlsServer, TlsError> {
        let provider = Arc::new(settings.provider.clone());
        let chain = certificates("certificate", certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| TlsError::BadPem("private key", error.to_string()))?;
        let client_ca = client_ca.map(|bundle| verifier(bundle, &provider)).transpose()?;
        let bad = |error: rustls::Error| TlsError::BadPem("certificate and key", error.to_string());
        let builder = ServerConfig::builder_with_details(provider, Arc::new(NoClock))
            .with_protocol_versions(&settings.versions)
            .map_err(bad)?;
        let builder = match &client_ca {
            Some(verifier) => {
                builder.with_client_cert_verifier(Arc::new(AskOnly(verifier.clone())))
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(bad)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Resumption would keep memory for each client and need a clock; kubelet's clients keep
        // connections.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsServer { config: Arc::new(config), client_ca })
    }

    /// Whether a bundle can be used as the CA for clients.
    pub fn check_client_ca(settings: &TlsSettings, bundle: &[u8]) -> Result<(), TlsError> {
        verifier(bundle, &Arc::new(settings.provider.clone())).map(|_| ())
    }

    /// A session for a connection that was just accepted.
    pub fn accept(&self) -> TlsSession {
        // Only a configuration that cannot be built here makes this fail.
        let connection = ServerConnection::new(self.config.clone());
        let mut connection = connection.expect("a server configuration with suites and curves");
        connection.set_buffer_limit(Some(BUFFER_MAX));
        TlsSession {
            connection: Connection::Server(connection),
            client_ca: self.client_ca.clone(),
            ended: false,
            fresh: true,
            in_plain: &[],
        }
    }
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if found.is_empty() => Err(TlsError::BadPem(what, "no certificate in it".into())),
        Ok(found) => Ok(found),
        Err(error) => Err(TlsError::BadPem(what, error.to_string())),
    }
}

fn verifier(
    bundle: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let bad = |why: String| TlsError::BadPem("client CA", why);
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client CA", bundle)? {
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| bad(error.to_string()))
}

/// The connection is not as TLS asks, or was cut; the text is for the log. Write out what is left,
/// an alert perhaps, and close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

/// Who is at the other end, as far as certificates tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Why the certificate does not count: another CA, expired, not for clients. `None` if it does.
    pub refused: Option<String>,
    pub subject: Subject,
    /// The client's own certificate in DER.
    pub certificate: Vec<u8>,
}

/// One connection; see the module.
pub struct TlsSession {
    connection: Connection,
    client_ca: Option<Arc<dyn ClientCertVerifier>>,
    ended: bool,
    /// A client may still show by its first bytes that it does not speak TLS.
    fresh: bool,
    /// What goes out in place of TLS.
    in_plain: &'static [u8],
}

impl TlsSession {
    fn of_client(connection: ClientConnection) -> TlsSession {
        let connection = Connection::Client(connection);
        TlsSession { connection, client_ca: None, ended: false, fresh: false, in_plain: &[] }
    }

    /// Takes bytes from the socket, and hands plain ones to `plain` as they come out.
    ///
    /// Afterwards [`Self::write_to`] may have something, also after an error.
    pub fn feed(&mut self, mut cipher: &[u8], mut plain: impl FnMut(&[u8])) -> Result<(), Broken> {
        let first = std::mem::replace(&mut self.fresh, false);
        if first && PLAIN_HTTP.iter().any(|verb| cipher.starts_with(verb)) {
            self.in_plain = PLAIN_HTTP_ANSWER;
            return Err(Broken("an HTTP request without TLS".into()));
        }
        while !cipher.is_empty() && !self.ended {
            let taken = self.connection.read_tls(&mut cipher);
            taken.map_err(|error| Broken(error.to_string()))?;
            let done = self.connection.process_new_packets();
            // What was whole before the bad record still counts.
            let mut reader = self.connection.reader();
            while let Ok(bytes @ [_, ..]) = reader.fill_buf() {
                let n = bytes.len();
                plain(bytes);
                reader.consume(n);
            }
            self.ended = done.map_err(|error| Broken(client::words(&error)))?.peer_has_closed();
        }
        Ok(())
    }

    /// The socket is at its end. An error means that the other side never said so within TLS: what came
    /// may be less than what was sent.
    pub fn feed_eof(&mut self) -> Result<(), Broken> {
        if self.ended { Ok(()) } else { Err(Broken("cut off without close_notify".into())) }
    }

    /// Has the other side said that it sends no more?
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The protocol agreed on: `h2`, `http/1.1`, or none.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Who the client is by its certificate at this wall time, in seconds since 1970; `None` without
    /// one. It costs the check of a signature or two, so a connection's answer may be kept a while.
    pub fn client(&self, now: u64) -> Option<Client> {
        let verifier = self.client_ca.as_ref()?;
        let (own, chain) = self.connection.peer_certificates()?.split_first()?;
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        let refused = match (verifier.verify_client_cert(own, chain, now), subject::subject(own)) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), None) => Err("unreadable subject".to_owned()),
            (Ok(_), Some(subject)) => Ok(subject),
        };
        let certificate = own.to_vec();
        Some(match refused {
            Ok(subject) => Client { refused: None, subject, certificate },
            Err(why) => Client { refused: Some(why), subject: Subject::default(), certificate },
        })
    }

    /// Takes plain bytes for the other side from the front of `plain` and says how many; none while the
    /// buffer is full.
    pub fn write(&mut self, plain: &[u8]) -> usize {
        // A writer into memory fails only after the end of the session.
        self.connection.writer().write(plain).unwrap_or(plain.len())
    }

    /// Is there something for the socket?
    pub fn wants_write(&self) -> bool {
        !self.in_plain.is_empty() || self.connection.wants_write()
    }

    /// Writes what there is to `socket`, in one call; errors are the socket's own.
    pub fn write_to(&mut self, socket: &mut dyn Write) -> io::Result<usize> {
        if self.in_plain.is_empty() {
            return self.connection.write_tls(socket);
        }
        let n = socket.write(self.in_plain)?;
        self.in_plain = &self.in_plain[n..];
        Ok(n)
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Asks for a certificate, checks that the client has its key, and leaves the judgement to
/// [`TlsSession::client`]: in kubelet a bad certificate is one way less to authenticate, not a dead
/// connection.
#[derive(Debug)]
struct AskOnly(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for AskOnly {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// A server without tickets that judges certificates later has no use for the time.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}
