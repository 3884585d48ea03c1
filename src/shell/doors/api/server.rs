//! Which API server, how to reach it, and who we are to it: what a kubeconfig says.

use crate::shell::doors::reason;
use crate::shell::vault::Secret;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Access to one API server.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiServer {
    pub address: Address,
    /// Before every path, without a slash at its end; mostly empty.
    pub prefix: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    pub authorities: Authorities,
    /// Our certificate and its key.
    pub identity: Option<(Pem, Pem)>,
    /// The pair that the agent keeps itself: when it is there it goes before the other one.
    pub kept: Option<PathBuf>,
    pub login: Login,
    pub proxy: Option<Proxy>,
    pub user_agent: String,
}

/// A host name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An IPv6 address has no brackets here.
    pub host: String,
    pub port: u16,
}

/// A text with certificates or a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Pem {
    Inline(Secret),
    /// Read when a connection is made, and again when it has changed.
    File(PathBuf),
}

/// Whose certificates servers may have.
#[derive(Clone, Debug, PartialEq)]
pub enum Authorities {
    Given(Pem),
    /// Those that the distribution trusts.
    System,
    /// `insecure-skip-tls-verify`
    Everybody,
}

/// What requests carry to say who we are.
#[derive(Clone, Debug, PartialEq)]
pub enum Login {
    /// Nothing: our certificate says it.
    None,
    /// The value of the header `Authorization`.
    Header(Secret),
    /// A bearer token that is read again when the file has changed, at most once a minute.
    TokenFile(PathBuf),
    /// A program that knows.
    Exec(Box<ExecPlugin>),
}

/// A credential plugin of client-go (client.authentication.k8s.io).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecPlugin {
    pub command: String,
    pub args: Vec<String>,
    /// Beside our own environment.
    pub env: Vec<(String, String)>,
    pub api_version: String,
    /// `spec.cluster` of what the plugin is told, as JSON, if it wants to know.
    pub cluster: Option<String>,
    pub install_hint: String,
}

/// An HTTP proxy, which is asked to CONNECT.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxy {
    pub address: Address,
    /// Speak TLS to the proxy itself.
    pub tls: bool,
    /// The value of the header `Proxy-Authorization`.
    pub authorization: Option<Secret>,
}

/// A certificate with a long chain has a tenth of it; the bundle of a distribution, a quarter.
const FILE_MAX: u64 = 1 << 20;
/// Where distributions keep the certificates that they trust.
pub const SYSTEM_AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

impl Address {
    /// As in a URL and in `:authority`.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// None for a host name.
    pub fn literal(&self) -> Option<SocketAddr> {
        let host: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(host, self.port))
    }
}

impl Pem {
    /// Errors: a sentence with the file.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Pem::Inline(text) => Ok(text.expose().as_bytes().to_vec()),
            Pem::File(path) => read(path),
        }
    }

    pub fn path(&self) -> Option<&Path> {
        match self {
            Pem::Inline(_) => None,
            Pem::File(path) => Some(path),
        }
    }
}

impl Authorities {
    /// The PEM bundle; None when everybody is believed.
    pub fn read(&self) -> Result<Option<Vec<u8>>, String> {
        match self {
            Authorities::Given(pem) => pem.read().map(Some),
            Authorities::Everybody => Ok(None),
            Authorities::System => {
                let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
                let all = named.into_iter().chain(SYSTEM_AUTHORITIES.map(PathBuf::from));
                let found = all.into_iter().find_map(|path| read(&path).ok());
                found.map(Some).ok_or_else(|| {
                    "the kubeconfig names no certificate authority, and this machine has no \
                     bundle of them"
                        .into()
                })
            }
        }
    }
}

/// What changes when a file does: its number, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64, u64, i64, i64);

impl Stamp {
    /// None when there is no such file.
    pub fn of(path: &Path) -> Option<Stamp> {
        let metadata = fs::metadata(path).ok()?;
        Some(Stamp(metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }
}

/// A small file that is there as a whole.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = crate::shell::doors::disk::open_regular(path);
    let read = file.and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {}", path.display(), reason(&error)))?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(format!("{} is larger than {FILE_MAX} bytes", path.display()));
    }
    Ok(bytes)
}
