//! Proxies on the way to the API server: `proxy-url`, or else the environment as Go reads it.
//!
//! Upstream: golang.org/x/net/http/httpproxy.

use crate::shell::doors::api::{Address, Proxy};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use steplet_wire::percent;

/// The rest of a URL after its `://` as address and path. Errors: what is wrong with it.
pub(super) fn split(rest: &str, default_port: u16) -> Result<(Address, &str), String> {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains(['?', '#']) {
        return Err("has a query or a fragment, which no API server has; leave it out".into());
    }
    if authority.contains('@') {
        return Err("has a user in it; write username and password of the user".into());
    }
    address(authority, default_port).map(|address| (address, path))
}

fn address(authority: &str, default_port: u16) -> Result<Address, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']').ok_or("has a [ without its ]")?;
            if !host.contains(':') || host.parse::<IpAddr>().is_err() {
                return Err(format!("\"{host}\" is no IPv6 address"));
            }
            (host, after.strip_prefix(':').or((after.is_empty()).then_some("")))
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!("an IPv6 address stands in brackets: [{authority}]"));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(named) {
        return Err(format!("\"{host}\" is no host"));
    }
    let port = match port {
        Some("") => default_port,
        Some(port) => match port.parse() {
            Ok(port @ 1..) => port,
            _ => return Err(format!("\"{port}\" is no port")),
        },
        None => return Err(format!("\"{authority}\" is no host and port")),
    };
    Ok(Address { host: host.to_ascii_lowercase(), port })
}

/// A proxy's URL. Errors: what is wrong with it, without its password.
pub(super) fn parse(url: &str) -> Result<Proxy, String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("must begin with http:// or https://".into());
    };
    let tls = match scheme {
        "http" => false,
        "https" => true,
        "socks5" | "socks5h" => {
            return Err(format!(
                "{scheme} proxies are not spoken to; an http:// or https:// one is"
            ));
        }
        _ => return Err(format!("must begin with http:// or https://, not \"{scheme}://\"")),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if path.contains('@') {
        return Err("has a / in its user or password; write it as %2F".into());
    }
    let (user, authority) = match authority.rsplit_once('@') {
        Some((user, authority)) => (Some(user), authority),
        None => (None, authority),
    };
    let authorization = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        let [name, password] = [name, password].map(|part| percent::decode(part.as_bytes()).0);
        let packed = STANDARD.encode([&name[..], b":", &password].concat());
        format!("Basic {packed}").into()
    });
    let address = address(authority, if tls { 443 } else { 80 })?;
    Ok(Proxy { address, tls, authorization })
}

/// `HTTPS_PROXY`, unless `NO_PROXY` or the loopback says otherwise; both also in lower case.
pub(super) fn of_environment(
    server: &Address,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, String> {
    let read = |name: &str| {
        let lower = name.to_ascii_lowercase();
        [name, &lower].into_iter().filter_map(env).find(|value| !value.is_empty())
    };
    let Some(url) = read("HTTPS_PROXY") else { return Ok(None) };
    if is_left_out(server, &read("NO_PROXY").unwrap_or_default()) {
        return Ok(None);
    }
    let url = if url.contains("://") { url } else { format!("http://{url}") };
    parse(&url).map(Some).map_err(|what| format!("HTTPS_PROXY in the environment: {what}"))
}

fn is_left_out(server: &Address, list: &str) -> bool {
    let ip: Option<IpAddr> = server.host.parse().ok();
    if server.host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    list.split(',').map(|item| item.trim().to_ascii_lowercase()).any(|item| {
        if item == "*" {
            return true;
        }
        if let Some((network, bits)) = item.split_once('/') {
            return ip.is_some_and(|ip| is_within(ip, network, bits));
        }
        let whole = item.trim_start_matches('[').trim_end_matches(']');
        let (host, port) = match item.rsplit_once(':') {
            _ if whole.parse::<IpAddr>().is_ok() => (whole, ""),
            Some((host, port)) => (host.trim_start_matches('[').trim_end_matches(']'), port),
            None => (whole, ""),
        };
        if host.is_empty() || !(port.is_empty() || port == server.port.to_string()) {
            return false;
        }
        if let Ok(left_out) = host.parse::<IpAddr>() {
            return ip == Some(left_out);
        }
        // `.example.com` and `*.example.com` are what is below, `example.com` is itself too.
        let below = host.strip_prefix('*').unwrap_or(host);
        match below.strip_prefix('.') {
            Some(_) => server.host.ends_with(below),
            None => server.host == below || server.host.ends_with(&format!(".{below}")),
        }
    })
}

fn is_within(ip: IpAddr, network: &str, bits: &str) -> bool {
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let equal = |a: u128, b: u128, width: u32| {
        bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0)
    };
    match (ip, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => equal(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => equal(a.to_bits(), b.to_bits(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address { host: host.into(), port }
    }

    #[test]
    fn addresses() {
        let check = |rest: &str, want: Result<(Address, &str), &str>| match (split(rest, 443), want)
        {
            (Ok(seen), Ok(want)) => assert_eq!(seen, want),
            (Err(seen), Err(want)) => assert!(seen.contains(want), "{rest}: {seen}"),
            (seen, want) => panic!("{rest}: {seen:?}, not {want:?}"),
        };
        check("API.example:6443", Ok((at("api.example", 6443), "")));
        check("api/k8s/c-1/", Ok((at("api", 443), "/k8s/c-1/")));
        check("10.0.0.1", Ok((at("10.0.0.1", 443), "")));
        check("[fd00::1]:6443", Ok((at("fd00::1", 6443), "")));
        check("[fd00::1]", Ok((at("fd00::1", 443), "")));
        check("fd00::1", Err("in brackets: [fd00::1]"));
        check("[fd00::1", Err("without its ]"));
        check("[api]:1", Err("no IPv6 address"));
        check("[fd00::1]6443", Err("is no host and port"));
        check("api:0", Err("\"0\" is no port"));
        check("api:70000", Err("is no port"));
        check("", Err("is no host"));
        check("a b", Err("is no host"));
        check("me@api", Err("has a user"));
        check("api?x=1", Err("has a query"));
    }

    #[test]
    fn urls_of_proxies() {
        let check =
            |url: &str, want: Result<(Address, bool, Option<&str>), &str>| match (parse(url), want)
            {
                (Ok(seen), Ok((address, tls, authorization))) => {
                    assert_eq!((seen.address, seen.tls), (address, tls));
                    assert_eq!(seen.authorization.as_ref().map(|s| s.expose()), authorization);
                }
                (Err(seen), Err(want)) => {
                    assert!(seen.contains(want) && !seen.contains("s3cret"), "{seen}");
                }
                (seen, want) => panic!("{url}: {seen:?}, not {want:?}"),
            };
        check("http://proxy:3128", Ok((at("proxy", 3128), false, None)));
        check("https://proxy/", Ok((at("proxy", 443), true, None)));
        check("http://me:p%40ss@proxy", Ok((at("proxy", 80), false, Some("Basic bWU6cEBzcw=="))));
        check("socks5://me:s3cret@proxy", Err("socks5 proxies are not spoken to"));
        check("ftp://me:s3cret@proxy", Err("not \"ftp://\""));
        check("proxy:3128", Err("must begin with"));
        check("http://me:1s3cret/s3cret@proxy", Err("write it as %2F"));
    }

    #[test]
    fn the_environment_as_go_reads_it() {
        let check = |server: Address, left_out: &str, proxied: bool| {
            let env = |name: &str| match name {
                "HTTPS_PROXY" => Some("proxy:3128".to_owned()),
                "no_proxy" => Some(left_out.to_owned()),
                _ => None,
            };
            let proxy = of_environment(&server, &env).unwrap().map(|proxy| proxy.address);
            assert_eq!(proxy, proxied.then(|| at("proxy", 3128)), "{server:?} {left_out}");
        };
        check(at("api.example.com", 6443), "", true);
        check(at("localhost", 6443), "", false);
        check(at("127.0.0.2", 6443), "", false);
        check(at("::1", 6443), "", false);
        check(at("api.example.com", 6443), "*", false);
        check(at("api.example.com", 6443), "example.com", false);
        check(at("example.com", 6443), "example.com", false);
        check(at("notexample.com", 6443), "example.com", true);
        check(at("example.com", 6443), ".example.com", true);
        check(at("api.example.com", 6443), "x, *.Example.com", false);
        check(at("api.example.com", 6443), "example.com:6443", false);
        check(at("api.example.com", 6443), "example.com:443", true);
        check(at("10.1.2.3", 6443), "10.0.0.0/8", false);
        check(at("11.1.2.3", 6443), "10.0.0.0/8,fd00::/8", true);
        check(at("10.1.2.3", 6443), "10.1.2.3", false);
        check(at("10.1.2.3", 6443), "10.1.2.3:443", true);
        check(at("fd00::1", 6443), "fd00::/8", false);
        check(at("fd00::1", 6443), "fd00::1", false);
        check(at("fd00::1", 6443), "[fd00::1]:6443", false);
        check(at("10.1.2.3", 6443), "10.0.0.0/x,/8,,:6443", true);
        assert_eq!(of_environment(&at("api", 1), &|_| None), Ok(None));
        let socks = |_: &str| Some("socks5://x".to_owned());
        assert!(of_environment(&at("10.0.0.1", 1), &socks).unwrap_err().starts_with("HTTPS_PROXY"));
    }
}
