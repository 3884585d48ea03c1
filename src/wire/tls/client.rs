//! The client's side of TLS: whom to trust, and who we are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct,
    Error, InvalidMessage, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{BUFFER_MAX, TlsError, TlsSession, certificates};

/// Which servers are believed.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those with a certificate of these authorities, a PEM bundle, that names the server.
    Authorities(&'a [u8]),
    /// Everybody: whoever is on the way can read and change everything.
    Everybody,
}

/// What all sessions with a server share.
pub struct TlsClient {
    config: Arc<ClientConfig>,
    clock: Arc<Clock>,
    name: ServerName<'static>,
}

impl TlsClient {
    /// `name` is the host name or address that the server's certificate must have; `identity` is our certificate
    /// with its chain, and its key, in PEM; `alpn` are the protocols that we speak.
    ///
    /// Errors: PEM that cannot be read, a bundle without a usable certificate, a key that is not the certificate's,
    /// a name that is none.
    pub fn new(
        trust: Trust<'_>,
        name: &str,
        identity: Option<(&[u8], &[u8])>,
        alpn: &[&str],
    ) -> Result<TlsClient, TlsError> {
        let bad_name = |_| TlsError::BadName(name.to_owned());
        let name = ServerName::try_from(name.to_owned()).map_err(bad_name)?;
        let provider = Arc::new(ring::default_provider());
        let clock = Arc::new(Clock(AtomicU64::new(0)));
        let builder = ClientConfig::builder_with_details(provider.clone(), clock.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::BadPem("TLS", error.to_string()))?;
        let builder =
            builder.dangerous().with_custom_certificate_verifier(verifier(trust, provider)?);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates("client certificate", certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| TlsError::BadPem("client key", error.to_string()))?;
                let bad = |error: Error| {
                    TlsError::BadPem("client certificate and key", error.to_string())
                };
                builder.with_client_auth_cert(chain, key).map_err(bad)?
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        // One long connection has no use for tickets, and they would keep memory.
        config.resumption = Resumption::disabled();
        Ok(TlsClient { config: Arc::new(config), clock, name })
    }

    /// A session for a connection that was just made. `now` is the wall time in seconds since 1970, by which the
    /// server's certificate is judged.
    pub fn connect(&self, now: u64) -> TlsSession {
        self.clock.0.store(now, Ordering::Relaxed);
        // Only a configuration that cannot be built here makes this fail.
        let connection = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut connection = connection.expect("a client configuration with suites and curves");
        connection.set_buffer_limit(Some(BUFFER_MAX));
        TlsSession::of_client(connection)
    }
}

fn verifier(
    trust: Trust<'_>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    let Trust::Authorities(bundle) = trust else { return Ok(Arc::new(Believer(provider))) };
    let mut roots = RootCertStore::empty();
    // As Go, a bundle may hold what cannot be used beside what can.
    let (added, _) = roots.add_parsable_certificates(certificates("CA", bundle)?);
    if added == 0 {
        return Err(TlsError::BadPem("CA", "no usable certificate in it".into()));
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    match verifier {
        Ok(verifier) => Ok(verifier),
        Err(error) => Err(TlsError::BadPem("CA", error.to_string())),
    }
}

/// Checks that the server has its key, and nothing else (`insecure-skip-tls-verify`).
#[derive(Debug)]
struct Believer(Arc<CryptoProvider>);

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Stands still at the time of the last connect.
#[derive(Debug)]
struct Clock(AtomicU64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// What is wrong with the other side, in words for people.
pub(super) fn words(error: &Error) -> String {
    let of = |what: &str| format!("the server's certificate {what}");
    let days = |from: UnixTime, to: UnixTime| match to.as_secs().abs_diff(from.as_secs()) {
        seconds @ 0..7_200 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    };
    match error {
        Error::InvalidCertificate(wrong) => match wrong {
            CertificateError::UnknownIssuer => of("is of none of the trusted authorities"),
            CertificateError::BadSignature => {
                of("is not signed by the trusted authority, but by another one of its name")
            }
            CertificateError::Expired => of("has expired"),
            CertificateError::ExpiredContext { time, not_after } => {
                of(&format!("has expired {} ago by this machine's clock", days(*not_after, *time)))
            }
            CertificateError::NotValidYet => of("is not valid yet"),
            CertificateError::NotValidYetContext { time, not_before } => of(&format!(
                "is not valid yet: by this machine's clock it will be in {}",
                days(*time, *not_before)
            )),
            CertificateError::NotValidForName => of("does not name this server"),
            CertificateError::NotValidForNameContext { expected, presented } => of(&format!(
                "does not name {}; it names {}",
                expected.to_str(),
                if presented.is_empty() { "nothing".to_owned() } else { presented.join(", ") }
            )),
            other => of(&format!("is refused: {other}")),
        },
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what it says is not TLS".to_owned()
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it speaks another protocol than we do (ALPN)".to_owned()
        }
        Error::AlertReceived(alert) => format!("it refuses us with the TLS alert {alert:?}"),
        other => other.to_string(),
    }
}
