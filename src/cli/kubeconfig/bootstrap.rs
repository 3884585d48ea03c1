//! With which credentials a node begins: those of `--kubeconfig`, or else those that are there to ask for others.
//!
//! Upstream: pkg/kubelet/certificate/bootstrap/bootstrap.go (v1.36). Its files are kept to the letter, since kubeadm
//! waits for them.

use super::{Read, read_as};
use crate::cli::flags::{Files, KubeletFlags, Problem};
use crate::shell::clock;
use crate::shell::doors::api::{ApiServer, Login};
use crate::shell::doors::pki::{self, Place};
use crate::shell::vault::Secret;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::PathBuf;
use steplet_core::event::Pair;

/// The way to the cluster.
#[derive(Clone, Debug)]
pub struct Access {
    pub api: ApiServer,
    /// Good for asking for a certificate, and used for nothing else.
    pub bootstrap: Option<ApiServer>,
    /// The certificate that the kubeconfig itself brings, when it is not the one that the agent keeps.
    pub given: Option<Pair>,
    /// That one stands in the kubeconfig itself.
    pub given_inline: bool,
    /// The kubeconfig that names the kept pair, when there are bootstrap credentials.
    pub new: Option<Secret>,
    /// There is no usable one: it is to be written.
    pub missing: bool,
    /// What is to be said about it at start.
    pub problems: Vec<Problem>,
    pub warnings: Vec<String>,
}

/// `rotate`: `rotateCertificates`. Errors: all problems of the files that would have been needed.
pub fn access(
    flags: &KubeletFlags,
    rotate: bool,
    files: &dyn Files,
) -> Result<Access, Vec<Problem>> {
    let main = read_as("kubeconfig", &flags.kubeconfig, files);
    let with = (!flags.bootstrap_kubeconfig.is_empty())
        .then(|| read_as("bootstrap-kubeconfig", &flags.bootstrap_kubeconfig, files));
    // Upstream's path, from the root: it stands in the new file.
    let dir = files.absolute(&flags.cert_dir).unwrap_or_else(|_| flags.cert_dir.clone());
    let place = Place::new(&dir, "kubelet-client");
    let kept = (rotate || with.is_some()).then(|| place.current());
    let mut warnings = Vec::new();
    let (main, bootstrap) = match (main, with) {
        (Ok(main), with) if with.is_none() || is_usable(&main.api, &place) => {
            (main, with.and_then(Result::ok))
        }
        (main, Some(Ok(bootstrap))) => {
            if let Err(problems) = &main
                && !is_missing(&flags.kubeconfig, files)
            {
                let all: Vec<String> = problems.iter().map(Problem::to_string).collect();
                let what = "is written anew when there is a certificate";
                warnings.push(format!("--kubeconfig {what}: {}", all.join("; ")));
            }
            return Ok(begin_with(bootstrap, kept, warnings));
        }
        (Ok(main), _) => (main, None),
        (Err(mut problems), with) => {
            problems.extend(with.and_then(Result::err).into_iter().flatten());
            return Err(problems);
        }
    };
    let given = given(&main.api, kept.as_ref());
    let given_inline = main.api.identity.as_ref().is_some_and(|(pem, _)| pem.path().is_none());
    let new = bootstrap.as_ref().zip(kept.as_ref()).map(|(read, kept)| new_file(read, kept));
    let mut problems = main.ignored;
    let mut bootstrap = bootstrap.map(|read| {
        problems.extend(read.ignored);
        read.api
    });
    if let Some(bootstrap) = &mut bootstrap {
        bootstrap.kept = None;
    }
    let api = ApiServer { kept, ..main.api };
    Ok(Access { api, bootstrap, given, given_inline, new, missing: false, problems, warnings })
}

/// The same cluster, with the pair that there will be.
fn begin_with(read: Read, kept: Option<PathBuf>, warnings: Vec<String>) -> Access {
    let new = kept.as_ref().map(|kept| new_file(&read, kept));
    let bootstrap = read.api;
    let api = ApiServer { identity: None, login: Login::None, kept, ..bootstrap.clone() };
    let (given, given_inline, missing, problems) = (None, false, true, read.ignored);
    Access {
        api,
        bootstrap: Some(bootstrap),
        given,
        given_inline,
        new,
        missing,
        problems,
        warnings,
    }
}

fn is_missing(path: &str, files: &dyn Files) -> bool {
    files.read(path, 0).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Whether the API server would know us.
fn is_usable(api: &ApiServer, place: &Place) -> bool {
    if place.read().is_ok_and(|pair| pair.is_some_and(|pair| is_good(&pair))) {
        return true;
    }
    match &api.identity {
        Some(_) => given(api, None).is_some_and(|pair| is_good(&pair)),
        None => api.login != Login::None,
    }
}

/// A clock that was never set says nothing of an end.
fn is_good(pair: &Pair) -> bool {
    !clock::is_plausible() || pair.not_after > clock::Clock::new().now().wall
}

fn given(api: &ApiServer, kept: Option<&PathBuf>) -> Option<Pair> {
    let (certificate, key) = api.identity.as_ref()?;
    if certificate.path().is_some() && certificate.path() == kept.map(PathBuf::as_path) {
        return None;
    }
    pki::pair(&certificate.read().ok()?, &key.read().ok()?).ok()
}

/// The kubeconfig of a node that has its certificate.
fn new_file(read: &Read, kept: &std::path::Path) -> Secret {
    let kept = plain(&kept.display().to_string());
    let mut cluster = String::new();
    for (key, value) in read.cluster.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => plain(text),
            Value::Bool(on) => on.to_string(),
            // Extensions are for plugins, of which there is none.
            _ => continue,
        };
        cluster.push_str(&format!("    {key}: {value}\n"));
    }
    Secret::from(format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n{cluster}  name: default-cluster\n\
         contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: \
         default-auth\n  name: default-context\ncurrent-context: default-context\nusers:\n- name: \
         default-auth\n  user:\n    client-certificate: {kept}\n    client-key: {kept}\n"
    ))
}

/// A text as YAML has it: in quotes where it could mean something else.
fn plain(text: &str) -> String {
    let simple = |c: char| c.is_ascii_alphanumeric() || "/:.-_+=".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    // No word that stands for a truth value has one of these.
    let is_word = !text.contains(['/', '.', '=', '+']);
    match begins && !is_word && !text.ends_with(':') && text.chars().all(simple) {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Fake;
    use super::*;
    use crate::shell::doors::api::Pem;
    use crate::shell::scratch::Scratch;

    const KUBECONFIG: &str = "/etc/k/kubelet.conf";
    const BOOTSTRAP: &str = "/etc/k/bootstrap-kubelet.conf";

    fn config(user: &str) -> Vec<u8> {
        format!(
            "clusters: [{{name: k, cluster: {{server: 'https://10.0.0.1:6443', \
             certificate-authority: pki/ca.crt, proxy-url: 'http://me:s3cret@p:1'}}}}]\nusers: \
             [{{name: u, user: {{{user}}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: \
             u}}}}]\ncurrent-context: c\n"
        )
        .into_bytes()
    }

    fn of(files: &[(&str, &[u8])], cert_dir: &str, rotate: bool) -> Result<Access, Vec<Problem>> {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.to_vec()));
        let flags = KubeletFlags {
            kubeconfig: KUBECONFIG.into(),
            bootstrap_kubeconfig: BOOTSTRAP.into(),
            cert_dir: cert_dir.into(),
            ..KubeletFlags::default()
        };
        access(&flags, rotate, &Fake(files.collect()))
    }

    #[test]
    fn a_node_without_a_kubeconfig_begins_with_the_other_one() {
        let scratch = Scratch::new("bootstrap");
        let dir = scratch.path().to_str().unwrap();
        let token = config("token: abcdef.0123456789abcdef");
        let access = of(&[(BOOTSTRAP, &token)], dir, true).unwrap();
        let current = scratch.path().join("kubelet-client-current.pem");
        assert!(access.missing && access.warnings.is_empty());
        assert_eq!((access.api.login.clone(), access.api.kept), (Login::None, Some(current)));
        let bootstrap = access.bootstrap.unwrap();
        assert!(matches!(bootstrap.login, Login::Header(_)) && bootstrap.kept.is_none());
        let new = access.new.unwrap();
        let written = Fake([(KUBECONFIG.to_owned(), new.expose().as_bytes().to_vec())].into());
        let read = super::super::read(KUBECONFIG, &written).unwrap().0;
        let pem = || Pem::File(scratch.path().join("kubelet-client-current.pem"));
        assert_eq!(read.identity, Some((pem(), pem())));
        assert_eq!((&read.address, &read.proxy), (&bootstrap.address, &bootstrap.proxy));
        assert_eq!(read.authorities, bootstrap.authorities);
        assert!(!new.expose().contains("0123456789abcdef"), "the token stays where it is");
    }

    #[test]
    fn which_file_counts() {
        let scratch = Scratch::new("bootstrap");
        let dir = scratch.path().to_str().unwrap();
        let token = config("token: abcdef.0123456789abcdef");
        let gone = config("client-certificate: /none.pem, client-key: /none.pem");
        let check = |files: &[(&str, &[u8])], want: &str| {
            let seen = match of(files, dir, true) {
                Ok(access) => format!(
                    "missing={} bootstrap={} warnings={}",
                    access.missing,
                    access.bootstrap.is_some(),
                    access.warnings.len()
                ),
                Err(problems) => format!("{} problems", problems.len()),
            };
            assert_eq!(seen, want);
        };
        // The token of a kubeconfig is a way, as it is; a certificate that is not there is none.
        check(&[(KUBECONFIG, &token)], "missing=false bootstrap=false warnings=0");
        check(
            &[(KUBECONFIG, &token), (BOOTSTRAP, &token)],
            "missing=false bootstrap=true warnings=0",
        );
        check(
            &[(KUBECONFIG, &gone), (BOOTSTRAP, &token)],
            "missing=true bootstrap=true warnings=0",
        );
        check(&[(KUBECONFIG, b""), (BOOTSTRAP, &token)], "missing=true bootstrap=true warnings=1");
        check(&[(KUBECONFIG, &gone)], "missing=false bootstrap=false warnings=0");
        check(&[], "2 problems");
    }

    #[test]
    fn texts_in_yaml() {
        let check = |text: &str, want: &str| assert_eq!(plain(text), want);
        check("https://10.0.0.1:6443", "https://10.0.0.1:6443");
        check("/var/lib/kubelet/pki/a.pem", "/var/lib/kubelet/pki/a.pem");
        check("LS0tLS1CRUdJTg==", "LS0tLS1CRUdJTg==");
        check("true", "\"true\"");
        check("a b", "\"a b\"");
        check("1.5", "\"1.5\"");
        check("http://[::1]:1", "\"http://[::1]:1\"");
    }
}
