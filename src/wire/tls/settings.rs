//! Names and numbers of kubelet's TLS settings, which are Go's, and what this build makes of them.
//!
//! What Go knows and this build does not have is left out with a word, since hardening guides hand
//! out lists with suites that no client needs; what Go does not know either is an error.

use std::fmt;

use rustls::SupportedProtocolVersion;
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};

/// Go's names of cipher suites and their IANA numbers, `crypto/tls` of Go 1.25, the insecure ones
/// included. TLS 1.3 suites may be named, but Go has them always on.
const CIPHER_SUITES: [(&str, u16); 27] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", 0xc009),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", 0xc023),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", 0xc00a),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", 0xcca9),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
    ("TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", 0xc007),
    ("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA", 0xc012),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", 0xc013),
    ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", 0xc027),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
    ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", 0xc014),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", 0xcca8),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", 0xc011),
    ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", 0x000a),
    ("TLS_RSA_WITH_AES_128_CBC_SHA", 0x002f),
    ("TLS_RSA_WITH_AES_128_CBC_SHA256", 0x003c),
    ("TLS_RSA_WITH_AES_128_GCM_SHA256", 0x009c),
    ("TLS_RSA_WITH_AES_256_CBC_SHA", 0x0035),
    ("TLS_RSA_WITH_AES_256_GCM_SHA384", 0x009d),
    ("TLS_RSA_WITH_RC4_128_SHA", 0x0005),
];

const MIN_VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];

/// IANA numbers of key exchange groups that Go knows.
const CURVES: [(i64, &str); 7] = [
    (23, "CurveP256"),
    (24, "CurveP384"),
    (25, "CurveP521"),
    (29, "X25519"),
    (4587, "SecP256r1MLKEM768"),
    (4588, "X25519MLKEM768"),
    (4589, "SecP384r1MLKEM1024"),
];

/// Why TLS cannot be set up. The text is for the operator and says what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsError {
    UnknownCipherSuite(String),
    UnknownMinVersion(String),
    UnknownCurve(i64),
    /// None of the wished curves is in this build.
    NoCurve,
    /// The PEM of a certificate, key or CA bundle, or what is in it.
    BadPem(&'static str, String),
    /// Neither a host name nor an address.
    BadName(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::UnknownCipherSuite(name) => {
                let known: Vec<_> = CIPHER_SUITES.iter().map(|(name, _)| *name).collect();
                write!(f, "unknown cipher suite {name:?}, known are {}", known.join(", "))
            }
            TlsError::UnknownMinVersion(name) => {
                write!(f, "unknown TLS version {name:?}, known are {}", MIN_VERSIONS.join(", "))
            }
            TlsError::UnknownCurve(id) => {
                let known = CURVES.iter().map(|(id, name)| format!("{id} ({name})"));
                let known: Vec<_> = known.collect();
                write!(f, "unknown curve {id}, known are {}", known.join(", "))
            }
            TlsError::NoCurve => {
                write!(
                    f,
                    "no wished curve is at hand; 23 (CurveP256), 24 (CurveP384) and 29 (X25519) are"
                )
            }
            TlsError::BadPem(what, why) => write!(f, "{what}: {why}"),
            TlsError::BadName(name) => write!(f, "{name:?} is no name of a server"),
        }
    }
}

/// Versions, suites and curves to use.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    pub(crate) provider: CryptoProvider,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    /// What was wished and is left out, one sentence each, for the log.
    pub left_out: Vec<String>,
}

impl TlsSettings {
    /// From `tlsCipherSuites`, `tlsMinVersion` and `tlsCurvePreferences`; empty ones mean
    /// everything.
    ///
    /// TLS 1.2 is the floor whatever the configuration says. Order is no preference here, nor in
    /// Go.
    pub fn new(
        cipher_suites: &[impl AsRef<str>],
        min_version: &str,
        curves: &[i64],
    ) -> Result<TlsSettings, TlsError> {
        let mut settings = TlsSettings {
            provider: ring::default_provider(),
            versions: vec![&TLS13, &TLS12],
            left_out: Vec::new(),
        };
        match min_version {
            "" | "VersionTLS12" => {}
            "VersionTLS13" => settings.versions = vec![&TLS13],
            "VersionTLS10" | "VersionTLS11" => {
                settings.left_out.push(format!("{min_version}: TLS 1.2 is the floor"));
            }
            _ => return Err(TlsError::UnknownMinVersion(min_version.to_owned())),
        }
        settings.keep_cipher_suites(cipher_suites)?;
        settings.keep_curves(curves)?;
        Ok(settings)
    }

    fn keep_cipher_suites(&mut self, names: &[impl AsRef<str>]) -> Result<(), TlsError> {
        let mut wished = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            let known = CIPHER_SUITES.iter().find(|(known, _)| *known == name);
            let Some((_, number)) = known else {
                return Err(TlsError::UnknownCipherSuite(name.to_owned()));
            };
            if !self.provider.cipher_suites.iter().any(|s| u16::from(s.suite()) == *number) {
                self.left_out.push(format!("{name}: this cipher suite is not in this build"));
            }
            wished.push(*number);
        }
        if !names.is_empty() {
            let keeps = |suite: &rustls::SupportedCipherSuite| {
                suite.version() == &TLS13 || wished.contains(&u16::from(suite.suite()))
            };
            self.provider.cipher_suites.retain(keeps);
        }
        Ok(())
    }

    fn keep_curves(&mut self, ids: &[i64]) -> Result<(), TlsError> {
        for id in ids {
            let known = CURVES.iter().find(|(known, _)| known == id);
            let (_, name) = known.ok_or(TlsError::UnknownCurve(*id))?;
            let here = |group: &&dyn rustls::crypto::SupportedKxGroup| number(*group) == *id;
            if !self.provider.kx_groups.iter().any(here) {
                self.left_out.push(format!("{id} ({name}): this curve is not in this build"));
            }
        }
        if !ids.is_empty() {
            self.provider.kx_groups.retain(|group| ids.contains(&number(*group)));
            if self.provider.kx_groups.is_empty() {
                return Err(TlsError::NoCurve);
            }
        }
        Ok(())
    }
}

fn number(group: &dyn rustls::crypto::SupportedKxGroup) -> i64 {
    i64::from(u16::from(group.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Suites, versions, curves and left-out words that come of settings; or the error's first
    /// words.
    fn outcome(suites: &[&str], version: &str, curves: &[i64]) -> Result<[usize; 4], String> {
        let settings = TlsSettings::new(suites, version, curves).map_err(|e| e.to_string())?;
        let provider = &settings.provider;
        let counts = [provider.cipher_suites.len(), settings.versions.len()];
        Ok([counts[0], counts[1], provider.kx_groups.len(), settings.left_out.len()])
    }

    #[test]
    fn settings_of_every_kind() {
        let check = |suites: &[&str],
                     version: &str,
                     curves: &[i64],
                     want: Result<[usize; 4], &str>| {
            match (outcome(suites, version, curves), want) {
                (Ok(seen), Ok(want)) => assert_eq!(seen, want),
                (Err(seen), Err(want)) => assert!(seen.starts_with(want), "{seen}"),
                (seen, want) => panic!("{seen:?}, not {want:?}"),
            }
        };
        check(&[], "", &[], Ok([9, 2, 3, 0]));
        check(&[], "VersionTLS12", &[], Ok([9, 2, 3, 0]));
        check(&[], "VersionTLS13", &[], Ok([9, 1, 3, 0]));
        check(&[], "VersionTLS10", &[], Ok([9, 2, 3, 1]));
        check(&[], "TLS1.2", &[], Err("unknown TLS version \"TLS1.2\", known are VersionTLS10, "));
        check(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], "", &[], Ok([4, 2, 3, 0]));
        check(&["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305"], "", &[], Ok([4, 2, 3, 0]));
        check(&["TLS_RSA_WITH_AES_256_GCM_SHA384"], "", &[], Ok([3, 2, 3, 1]));
        check(&["TLS_AES_128_GCM_SHA256"], "", &[], Ok([3, 2, 3, 0]));
        check(
            &["ECDHE-RSA"],
            "",
            &[],
            Err("unknown cipher suite \"ECDHE-RSA\", known are TLS_AES"),
        );
        check(&[], "", &[23, 29], Ok([9, 2, 2, 0]));
        check(&[], "", &[4588, 29], Ok([9, 2, 1, 1]));
        check(&[], "", &[25], Err("no wished curve"));
        check(&[], "", &[1], Err("unknown curve 1, known are 23 (CurveP256), "));
    }
}
