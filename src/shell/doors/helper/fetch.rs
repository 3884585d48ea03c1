//! GET of a manifest from a URL. It blocks, so it runs in a helper process.
//!
//! Upstream: pkg/kubelet/config/http.go (v1.36).

use crate::shell::doors::api::SYSTEM_AUTHORITIES;
use crate::shell::vault::{Secret, shown_url};
use std::io;
use std::time::Duration;
use steplet_core::event::{Fault, FaultKind};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

const WITHIN: Duration = Duration::from_secs(10);
const BYTES_MAX: u64 = 10 << 20;

/// The body of a good answer.
///
/// Errors: `TimedOut` after 10 s, `Invalid` for a body over 10 MiB and for a status other than 2xx.
pub fn fetch(url: &Secret, headers: &[(String, Secret)]) -> Result<Vec<u8>, Fault> {
    let url = url.expose();
    let mut config = Agent::config_builder().timeout_global(Some(WITHIN));
    if url.starts_with("https:") {
        config = config.tls_config(tls());
    }
    let mut get = config.build().new_agent().get(url);
    for (name, value) in headers {
        get = get.header(name, value.expose());
    }
    let mut response = get.call().map_err(|error| fault(url, error))?;
    let body = response.body_mut().with_config().limit(BYTES_MAX);
    body.read_to_vec().map_err(|error| fault(url, error))
}

fn tls() -> TlsConfig {
    // Fails if it was done already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = std::env::var_os("SSL_CERT_FILE").map(Into::into);
    let pem = file
        .into_iter()
        .chain(SYSTEM_AUTHORITIES.map(std::path::PathBuf::from))
        .find_map(|path| std::fs::read(path).ok());
    let roots: Vec<Certificate<'static>> = parse_pem(&pem.unwrap_or_default())
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build()
}

fn fault(url: &str, error: ureq::Error) -> Fault {
    let kind = match &error {
        ureq::Error::Timeout(_) => FaultKind::TimedOut,
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => FaultKind::TimedOut,
        ureq::Error::StatusCode(_) | ureq::Error::BodyExceedsLimit(_) => FaultKind::Invalid,
        _ => FaultKind::Other,
    };
    let shown = shown_url(url);
    let why = error.to_string().replace(url, &shown);
    Fault { kind, message: format!("{shown}: {why}") }
}
