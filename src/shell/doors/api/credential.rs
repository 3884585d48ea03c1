//! Who we are to the API server, as of now: files that change, and programs that are asked.

use super::server::{Login, Pem, Stamp, read};
use crate::shell::doors::pki;
use crate::shell::vault::Secret;
use serde::Deserialize;
use std::path::PathBuf;
use steplet_core::time::{Mono, Span, Wall};

/// How often files are looked at, while there are requests (client-go reads a token file once a minute).
const LOOK: Span = Span::from_secs(60);
/// A plugin whose credential the server refuses is not asked again sooner.
const ASK_AGAIN: Span = Span::from_secs(30);

pub struct Credentials {
    login: Login,
    identity: Option<(Pem, Pem)>,
    kept: Option<PathBuf>,
    /// Files of the identity, as they were when it was last read.
    seen: Vec<(PathBuf, Option<Stamp>)>,
    look_at: Mono,
    token: Option<(Option<Stamp>, Secret)>,
    token_look_at: Mono,
    granted: Option<Granted>,
    asked_at: Option<Mono>,
}

/// Our certificate with its chain, and its key, in PEM.
pub struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// What a plugin said.
struct Granted {
    header: Option<Secret>,
    identity: Option<(Pem, Pem)>,
    expires: Option<Wall>,
}

impl Credentials {
    pub fn new(login: Login, identity: Option<(Pem, Pem)>, kept: Option<PathBuf>) -> Credentials {
        Credentials {
            login,
            identity,
            kept,
            seen: Vec::new(),
            look_at: Mono(0),
            token: None,
            token_look_at: Mono(0),
            granted: None,
            asked_at: None,
        }
    }

    /// Whether a plugin must be asked before the next request.
    pub fn wants_plugin(&self, wall: Wall) -> bool {
        let good = |granted: &Granted| granted.expires.is_none_or(|at| at > wall);
        matches!(self.login, Login::Exec(_)) && !self.granted.as_ref().is_some_and(good)
    }

    /// A plugin is about to be asked.
    pub fn asking(&mut self, now: Mono) {
        self.asked_at = Some(now);
    }

    /// Takes what a plugin has printed. Errors: what is wrong with it, without a word of it.
    pub fn grant(&mut self, printed: &[u8]) -> Result<(), String> {
        self.granted = Some(Granted::parse(printed)?);
        Ok(())
    }

    /// The server has answered 401.
    pub fn refused(&mut self, now: Mono) {
        let due = self.asked_at.is_none_or(|at| at + ASK_AGAIN <= now);
        if matches!(self.login, Login::Exec(_)) && due {
            self.granted = None;
        }
    }

    /// Our certificate and its key, read now. `wall`: one that has expired is shown only if there is no other.
    pub fn identity(&mut self, wall: Wall) -> Result<Option<Identity>, String> {
        let granted = self.granted.as_ref().and_then(|granted| granted.identity.as_ref());
        let given = granted.or(self.identity.as_ref());
        let files = given.into_iter().flat_map(|(certificate, key)| [certificate, key]);
        let files = files.filter_map(|pem| pem.path()).chain(self.kept.as_deref());
        self.seen = files.map(|path| (path.to_owned(), Stamp::of(path))).collect();
        if let Some(path) = &self.kept {
            match (read(path), given) {
                (Ok(both), None) => {
                    return Ok(Some(Identity { certificate: both.clone(), key: both }));
                }
                (Ok(both), Some(_))
                    if pki::pair(&both, &both).is_ok_and(|pair| pair.not_after > wall) =>
                {
                    return Ok(Some(Identity { certificate: both.clone(), key: both }));
                }
                // A token says who we are, too.
                (Err(why), None) if self.login == Login::None => return Err(why),
                _ => {}
            }
        }
        let Some((certificate, key)) = given else { return Ok(None) };
        Ok(Some(Identity { certificate: certificate.read()?, key: key.read()? }))
    }

    /// The files may have changed: they are looked at with the next request.
    pub fn look_again(&mut self) {
        self.look_at = Mono(0);
    }

    /// Whether the files of the identity have changed since it was read; looks once a minute.
    pub fn has_changed(&mut self, now: Mono) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK;
        // While one is being replaced it may be missing.
        self.seen.iter().any(|(path, stamp)| {
            let there = Stamp::of(path);
            there.is_some() && there != *stamp
        })
    }

    /// The value of `Authorization`, if there is one. Errors: there should be, and the file cannot be read.
    pub fn header(&mut self, now: Mono) -> Result<Option<&Secret>, String> {
        match &self.login {
            Login::None => Ok(None),
            Login::Header(value) => Ok(Some(value)),
            Login::Exec(_) => Ok(self.granted.as_ref().and_then(|g| g.header.as_ref())),
            Login::TokenFile(path) => {
                if self.token.is_none() || self.token_look_at <= now {
                    self.token_look_at = now + LOOK;
                    let stamp = Stamp::of(path);
                    if self.token.as_ref().is_none_or(|(seen, _)| *seen != stamp) {
                        match (token(path.clone()), &self.token) {
                            (Ok(header), _) => self.token = Some((stamp, header)),
                            (Err(why), None) => return Err(why),
                            (Err(why), Some(_)) => {
                                log::warn!("The last token stays in use: {why}");
                            }
                        }
                    }
                }
                Ok(self.token.as_ref().map(|(_, header)| header))
            }
        }
    }
}

fn token(path: PathBuf) -> Result<Secret, String> {
    let text = read(&path)?;
    let text = std::str::from_utf8(&text).unwrap_or_default().trim();
    if text.is_empty() {
        return Err(format!("{} holds no token", path.display()));
    }
    Ok(bearer(text))
}

/// The value of `Authorization` for a token.
pub fn bearer(token: &str) -> Secret {
    Secret::from(format!("Bearer {token}"))
}

/// ExecCredential of client.authentication.k8s.io, as far as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    #[serde(default)]
    token: String,
    #[serde(default)]
    client_certificate_data: String,
    #[serde(default)]
    client_key_data: String,
}

impl Granted {
    fn parse(printed: &[u8]) -> Result<Granted, String> {
        let parsed: Result<ExecCredential, _> = serde_json::from_slice(printed);
        let status = match parsed {
            Ok(ExecCredential { kind, status: Some(status) }) if kind == "ExecCredential" => status,
            Ok(_) => return Err("it printed no ExecCredential with a status".into()),
            // What serde says may quote a value.
            Err(error) => return Err(format!("it printed no JSON at line {}", error.line())),
        };
        let Status { expiration_timestamp, token, client_certificate_data, client_key_data } =
            status;
        let expires = match expiration_timestamp {
            None => None,
            Some(text) => match steplet_api::time::parse_ns(&text) {
                Some(ns) => Some(Wall(ns)),
                None => return Err("its expirationTimestamp is no time".into()),
            },
        };
        let pem = |text: String| Pem::Inline(Secret::from(text));
        let identity = match (client_certificate_data.is_empty(), client_key_data.is_empty()) {
            (true, true) => None,
            (false, false) => Some((pem(client_certificate_data), pem(client_key_data))),
            _ => return Err("it printed a certificate without its key, or a key alone".into()),
        };
        if token.is_empty() && identity.is_none() {
            return Err("it printed neither a token nor a certificate".into());
        }
        let header = (!token.is_empty()).then(|| bearer(&token));
        Ok(Granted { header, identity, expires })
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::ExecPlugin;
    use super::*;
    use crate::shell::scratch::Scratch;
    use std::fs;

    #[test]
    fn token_files_are_read_again_once_a_minute() {
        let scratch = Scratch::new("token-file");
        let path = scratch.path().join("token");
        let mut credentials = Credentials::new(Login::TokenFile(path.clone()), None, None);
        let check = |credentials: &mut Credentials, second, want: &str| {
            let header = credentials.header(Mono(0) + Span::from_secs(second));
            assert_eq!(header.unwrap().unwrap().expose(), want);
        };
        let why = credentials.header(Mono(0)).unwrap_err();
        assert!(why.ends_with("no such file or directory"), "{why}");
        fs::write(&path, " \n").unwrap();
        assert!(credentials.header(Mono(0)).unwrap_err().ends_with("holds no token"));
        fs::write(&path, "one\n").unwrap();
        check(&mut credentials, 1, "Bearer one");
        fs::write(&path, "second\n").unwrap();
        check(&mut credentials, 60, "Bearer one");
        check(&mut credentials, 61, "Bearer second");
        fs::remove_file(&path).unwrap();
        check(&mut credentials, 200, "Bearer second");
    }

    #[test]
    fn a_changed_certificate_is_noticed() {
        let scratch = Scratch::new("identity");
        let path = scratch.path().join("current.pem");
        fs::write(&path, "one").unwrap();
        let pem = || Pem::File(path.clone());
        let mut credentials = Credentials::new(Login::None, Some((pem(), pem())), None);
        assert_eq!(credentials.identity(Wall(0)).unwrap().unwrap().certificate, b"one");
        assert!(!credentials.has_changed(Mono(0)));
        fs::write(&path, "second").unwrap();
        assert!(!credentials.has_changed(Mono(0) + Span::from_secs(59)));
        assert!(credentials.has_changed(Mono(0) + Span::from_secs(60)));
        fs::remove_file(&path).unwrap();
        assert!(!credentials.has_changed(Mono(0) + Span::from_secs(120)));
        assert!(credentials.identity(Wall(0)).is_err());
    }

    #[test]
    fn plugins_grant_until_a_time() {
        let plugin = ExecPlugin {
            command: "login".into(),
            args: Vec::new(),
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".into(),
            cluster: None,
            install_hint: String::new(),
        };
        let mut credentials = Credentials::new(Login::Exec(Box::new(plugin)), None, None);
        let at = |second: i64| Wall(second * 1_000_000_000);
        assert!(credentials.wants_plugin(at(0)));
        let status = r#""token":"s3cret","expirationTimestamp":"1970-01-01T00:01:00Z""#;
        let printed = format!(r#"{{"kind":"ExecCredential","status":{{{status}}}}}"#);
        credentials.grant(printed.as_bytes()).unwrap();
        assert!(!credentials.wants_plugin(at(59)) && credentials.wants_plugin(at(60)));
        let header = credentials.header(Mono(0)).unwrap().unwrap();
        assert_eq!(header.expose(), "Bearer s3cret");
        credentials.asking(Mono(0));
        credentials.refused(Mono(0) + Span::from_secs(29));
        assert!(!credentials.wants_plugin(at(0)));
        credentials.refused(Mono(0) + Span::from_secs(30));
        assert!(credentials.wants_plugin(at(0)));
    }

    #[test]
    fn what_plugins_print_is_judged_without_a_word_of_it() {
        let check = |printed: &str, want: &str| {
            let why = Granted::parse(printed.as_bytes()).err().expect("refused");
            assert!(why.contains(want) && !why.contains("s3cret"), "{why}");
        };
        let of = |status: &str| format!(r#"{{"kind":"ExecCredential","status":{status}}}"#);
        check("s3cret", "no JSON at line 1");
        check(r#"{"kind":"ExecCredential"}"#, "with a status");
        check(r#"{"kind":"Pod","status":{"token":"s3cret"}}"#, "with a status");
        check(&of("{}"), "neither");
        check(&of(r#"{"token":["s3cret"]}"#), "no JSON");
        check(&of(r#"{"clientKeyData":"s3cret"}"#), "a key alone");
        check(&of(r#"{"token":"s3cret","expirationTimestamp":"s3cret"}"#), "no time");
        let both = of(r#"{"clientCertificateData":"c","clientKeyData":"k"}"#);
        assert!(Granted::parse(both.as_bytes()).unwrap().identity.is_some());
    }
}
