//! Logins to registries, from the docker configurations in the pull secrets of pods.
//!
//! Upstream: pkg/credentialprovider/config.go and keyring.go (v1.36): the longest entry that fits an image wins.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;
use std::collections::BTreeMap;
use steplet_api::cri::AuthConfig;
use steplet_api::image::ImageReference;

const DOCKER_HUB: [&str; 2] = ["docker.io", "index.docker.io"];

/// `.dockerconfigjson`
#[derive(Deserialize)]
struct Config {
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    /// Base64 of `USERNAME:PASSWORD`; it goes before the two.
    auth: String,
}

/// The login of the first configuration that has one for the image. What is no configuration is passed over.
pub fn login(image: &str, configs: &[Vec<u8>]) -> Option<AuthConfig> {
    let (host, path) = place(image)?;
    configs.iter().find_map(|config| {
        let entries = read(config)?;
        let fits = entries.into_iter().filter_map(|(key, entry)| {
            let (pattern, prefix) = normal(&key);
            (host_fits(&pattern, &host) && path.starts_with(&prefix)).then_some((prefix, entry))
        });
        let (_, entry) = fits.max_by_key(|(prefix, _)| prefix.len())?;
        let (username, password) = entry.login()?;
        Some(AuthConfig { username, password, ..AuthConfig::default() })
    })
}

/// Also the older form, `.dockercfg`, which is the entries alone.
fn read(config: &[u8]) -> Option<BTreeMap<String, Entry>> {
    let whole = serde_json::from_slice::<Config>(config).map(|config| config.auths);
    let entries = whole.or_else(|_| serde_json::from_slice(config));
    // What is wrong with it would quote it.
    entries.map_err(|_| log::warn!("A pull secret holds no docker configuration")).ok()
}

impl Entry {
    fn login(self) -> Option<(String, String)> {
        if self.auth.is_empty() {
            return Some((self.username, self.password));
        }
        let plain = STANDARD.decode(&self.auth).or_else(|_| STANDARD_NO_PAD.decode(&self.auth));
        let plain = String::from_utf8(plain.ok()?).ok()?;
        plain.split_once(':').map(|(user, word)| (user.to_owned(), word.to_owned()))
    }
}

/// Registry and path of an image: `docker.io`, `/library/app`.
fn place(image: &str) -> Option<(String, String)> {
    ImageReference::parse(image)?;
    let name = image.split('@').next().unwrap_or_default();
    let (host, rest) = match name.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
        _ => (DOCKER_HUB[0], name),
    };
    // The tag goes: a port stands in the host.
    let path = rest.rsplit_once(':').map_or(rest, |(path, _)| path);
    let library = DOCKER_HUB.contains(&host) && !path.contains('/');
    let path = if library { format!("/library/{path}") } else { format!("/{path}") };
    Some((host.to_owned(), path))
}

/// The host and the path of an entry's key, which may be a URL of an API of either version.
fn normal(key: &str) -> (String, String) {
    let bare = key.split_once("://").map_or(key, |(_, rest)| rest);
    let (host, path) = bare.find('/').map_or((bare, ""), |at| bare.split_at(at));
    let path = ["/v1/", "/v2/"].iter().find_map(|api| path.strip_prefix(&api[..3])).unwrap_or(path);
    let path = if path == "/" { "" } else { path };
    (host.to_owned(), path.to_owned())
}

/// Part by part between the dots, `*` for any run of signs; the ports are equal.
fn host_fits(pattern: &str, host: &str) -> bool {
    if DOCKER_HUB.contains(&pattern) && DOCKER_HUB.contains(&host) {
        return true;
    }
    let split = |text: &str| -> (Vec<String>, String) {
        let (name, port) = text.split_once(':').unwrap_or((text, ""));
        (name.split('.').map(str::to_owned).collect(), port.to_owned())
    };
    let ((patterns, wanted), (parts, port)) = (split(pattern), split(host));
    wanted == port
        && patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| part_fits(pattern, part))
}

fn part_fits(pattern: &str, part: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == part };
    let Some(mut left) = part.strip_prefix(first) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &[(&str, &str)]) -> Vec<u8> {
        let entries = entries.iter().map(|(key, user)| {
            format!(r#"{key:?}:{{"username":{user:?},"password":"s3cret","email":"e"}}"#)
        });
        format!(r#"{{"auths":{{{}}}}}"#, entries.collect::<Vec<_>>().join(",")).into_bytes()
    }

    #[test]
    fn the_longest_entry_that_fits_wins() {
        let all = config(&[
            ("https://index.docker.io/v1/", "hub"),
            ("reg.example.com", "reg"),
            ("https://reg.example.com/v2/team", "team"),
            ("reg.example.com/team/app", "app"),
            ("reg.example.com:5000", "port"),
            ("*.cloud.example.com", "cloud"),
            ("eu-*x.example.org", "glob"),
        ]);
        let check = |image: &str, want: Option<&str>| {
            let got = login(image, std::slice::from_ref(&all)).map(|login| login.username);
            assert_eq!(got.as_deref(), want, "{image}");
        };
        check("app", Some("hub"));
        check("me/app:1", Some("hub"));
        check(&format!("docker.io/me/app@sha256:{}", "0".repeat(64)), Some("hub"));
        check("reg.example.com/other/app:2", Some("reg"));
        check("reg.example.com/team/other", Some("team"));
        check("reg.example.com/team/app:1", Some("app"));
        check("reg.example.com:5000/x", Some("port"));
        check("reg.example.com:5001/x", None);
        check("a.cloud.example.com/x", Some("cloud"));
        check("a.b.cloud.example.com/x", None);
        check("eu-west-x.example.org/x", Some("glob"));
        check("eu-west.example.org/x", None);
        check("other.example.com/x", None);
        check("NOT AN IMAGE", None);
    }

    #[test]
    fn forms_of_logins() {
        let check = |configs: &[&str], want: Option<(&str, &str)>| {
            let configs: Vec<Vec<u8>> = configs.iter().map(|it| it.as_bytes().to_vec()).collect();
            let got = login("r.io/app:1", &configs).map(|it| (it.username, it.password));
            let want = want.map(|(user, word)| (user.to_owned(), word.to_owned()));
            assert_eq!(got, want, "{configs:?}");
        };
        let me = Some(("me", "a:b"));
        check(&[r#"{"auths":{"r.io":{"auth":"bWU6YTpi"}}}"#], me);
        check(&[r#"{"auths":{"r.io":{"username":"x","password":"y","auth":"bWU6YTpi"}}}"#], me);
        check(&[r#"{"r.io":{"username":"me","password":"a:b"}}"#], me);
        check(&["nonsense", "[]", r#"{"auths":{"r.io":{"auth":"bWU6YTpi"}}}"#], me);
        check(&[r#"{"auths":{"r.io":{"auth":"???"}}}"#], None);
        check(&[r#"{"auths":{}}"#], None);
        check(&[], None);
    }
}
