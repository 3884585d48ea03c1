//! Which ports are served, by the configuration.
//!
//! Upstream: startKubelet and RunKubelet in cmd/kubelet/app/server.go (v1.36).

use super::certificate::Tls;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use steplet_api::config::KubeletConfiguration;
use steplet_core::event::Listener;
use steplet_wire::tls::TlsSettings;

/// The ports that are wanted, with what those need that speak TLS. None by default.
#[derive(Clone, Debug, Default)]
pub struct Listeners(pub Vec<(Listener, SocketAddr, Option<Tls>)>);

impl Listeners {
    /// `cert_dir` is where our own pairs are kept, `host` the name in a self-signed one, `joined` whether a cluster can
    /// be asked for one. Only `enableServer` ends 10250:
    /// the others are on when they have a port.
    ///
    /// Errors, for people: what is no address, port or TLS setting, with the name of its field.
    pub fn of(
        config: &KubeletConfiguration,
        cert_dir: &Path,
        host: &str,
        joined: bool,
    ) -> Result<Listeners, String> {
        let mut wanted = Vec::new();
        if config.enable_server {
            let secure = address("address", &config.address, "port", config.port)?;
            wanted.extend(secure.map(|a| (Listener::Secure, a)));
        }
        let read_only = config.read_only_port;
        let open = address("address", &config.address, "readOnlyPort", read_only)?;
        wanted.extend(open.map(|a| (Listener::ReadOnly, a)));
        let (bind, port) = (&config.healthz_bind_address, config.healthz_port);
        let healthz = address("healthzBindAddress", bind, "healthzPort", port)?;
        wanted.extend(healthz.map(|a| (Listener::Healthz, a)));
        let mut listeners = Listeners::default();
        for (listener, address) in wanted {
            let tls = (listener == Listener::Secure).then(|| tls(config, cert_dir, host, joined));
            listeners.0.push((listener, address, tls.transpose()?));
        }
        Ok(listeners)
    }
}

/// None for port 0: not served.
fn address(
    field: &str,
    ip: &str,
    port_field: &str,
    port: i32,
) -> Result<Option<SocketAddr>, String> {
    // The one name that the rules of the configuration let pass.
    let ip = if ip == "localhost" { "127.0.0.1" } else { ip };
    let ip: IpAddr = ip.parse().map_err(|_| format!("{field}: {ip:?} is no IP address"))?;
    let port = u16::try_from(port).map_err(|_| format!("{port_field}: {port} is no port"))?;
    Ok((port != 0).then(|| SocketAddr::new(ip, port)))
}

fn tls(
    config: &KubeletConfiguration,
    cert_dir: &Path,
    host: &str,
    joined: bool,
) -> Result<Tls, String> {
    let curves: Vec<i64> = config.tls_curve_preferences.iter().copied().map(i64::from).collect();
    let settings = TlsSettings::new(&config.tls_cipher_suites, &config.tls_min_version, &curves);
    let settings = settings.map_err(|error| error.to_string())?;
    for left_out in &settings.left_out {
        log::warn!("{left_out}; it is left out");
    }
    let client_ca = match config.authentication.x509.client_ca_file.as_str() {
        "" => None,
        path => Some(path.into()),
    };
    // As upstream, it goes before the files.
    if config.server_tls_bootstrap && joined {
        let current = cert_dir.join("kubelet-server-current.pem");
        let (certificate, key) = (current.clone(), current);
        return Ok(Tls { settings, certificate, key, self_signed: None, issued: true, client_ca });
    }
    match (config.tls_cert_file.as_str(), config.tls_private_key_file.as_str()) {
        ("", "") => Ok(Tls {
            settings,
            certificate: cert_dir.join("kubelet.crt"),
            key: cert_dir.join("kubelet.key"),
            self_signed: Some(host.to_owned()),
            issued: false,
            client_ca,
        }),
        (certificate, key) if !certificate.is_empty() && !key.is_empty() => {
            let (certificate, key) = (certificate.into(), key.into());
            Ok(Tls { settings, certificate, key, self_signed: None, issued: false, client_ca })
        }
        _ => Err("tlsCertFile and tlsPrivateKeyFile need each other".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(change: impl FnOnce(&mut KubeletConfiguration)) -> Result<String, String> {
        let mut config = KubeletConfiguration::default();
        change(&mut config);
        let listeners = Listeners::of(&config, "/pki".as_ref(), "node-a", true)?;
        let shown = listeners.0.iter().map(|(listener, address, tls)| {
            let tls = tls.as_ref().map(|tls| format!(" {}", tls.certificate.display()));
            format!("{listener:?} {address}{}", tls.unwrap_or_default())
        });
        Ok(shown.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn ports_of_configurations() {
        let secure = "Secure 0.0.0.0:10250 /pki/kubelet.crt";
        let health = "Healthz 127.0.0.1:10248";
        assert_eq!(of(|_| {}), Ok(format!("{secure}, {health}")));
        assert_eq!(of(|c| c.enable_server = false), Ok(health.into()));
        assert_eq!(of(|c| c.healthz_port = 0), Ok(secure.into()));
        let named = of(|c| c.healthz_bind_address = "localhost".into());
        assert_eq!(named, Ok(format!("{secure}, {health}")));
        let read_only = of(|c| {
            (c.enable_server, c.read_only_port, c.address) = (false, 10255, "::".into());
        });
        assert_eq!(read_only, Ok(format!("ReadOnly [::]:10255, {health}")));
        let pair = of(|c| {
            (c.healthz_port, c.tls_cert_file) = (0, "/a.crt".into());
            c.tls_private_key_file = "/a.key".into();
        });
        assert_eq!(pair, Ok("Secure 0.0.0.0:10250 /a.crt".into()));
    }

    #[test]
    fn configurations_that_are_wrong() {
        let check = |change: fn(&mut KubeletConfiguration), want: &str| {
            let why = of(change).expect_err(want);
            assert!(why.starts_with(want), "{why}");
        };
        check(|c| c.address = "here".into(), "address: \"here\" is no IP address");
        check(|c| c.read_only_port = 70_000, "readOnlyPort: 70000 is no port");
        check(|c| c.tls_cert_file = "/a.crt".into(), "tlsCertFile and tlsPrivateKeyFile need");
        check(|c| c.tls_min_version = "1.2".into(), "unknown TLS version \"1.2\"");
        check(|c| c.tls_curve_preferences = vec![1], "unknown curve 1");
    }
}
