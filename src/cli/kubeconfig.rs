//! Reads a kubeconfig: which API server, and who we are to it.
//!
//! Upstream: staging/src/k8s.io/client-go/tools/clientcmd (v1.36), which ignores what it does not know; here that is
//! named in a warning.

mod bootstrap;
mod proxy;
mod reader;

pub use bootstrap::{Access, access};

use super::flags::{Files, KUBERNETES_VERSION, Problem};
use crate::shell::doors::api::{self, ApiServer, Authorities, ExecPlugin, Login, Pem, Proxy};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reader::Reader;
use serde_json::{Value, json};
use steplet_api::config;

const EXEC_VERSIONS: [&str; 2] =
    ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
/// The extension of a cluster that plugins may be told.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// What the current context of a kubeconfig says.
pub struct Read {
    pub api: ApiServer,
    /// The cluster's section, with paths from the root.
    cluster: Value,
    /// What was ignored in it.
    ignored: Vec<Problem>,
}

/// The access that the file `name` gives, which the flag `flag` names.
///
/// # Errors
/// All problems of the file, each with its place and the way out.
fn read_as(flag: &str, name: &str, files: &dyn Files) -> Result<Read, Vec<Problem>> {
    let mut reader = Reader::open(flag, name, files)?;
    let context = current(&mut reader, &|name| files.variable(name));
    match context {
        Some((api, cluster)) if reader.problems.iter().all(|problem| problem.harmless) => {
            let mut cluster = reader.value(&cluster).cloned().unwrap_or_default();
            if let Some(path) = cluster["certificate-authority"].as_str().map(|p| reader.resolve(p))
            {
                cluster["certificate-authority"] = path.into();
            }
            Ok(Read { api, cluster, ignored: reader.problems })
        }
        _ => Err(reader.problems),
    }
}

#[cfg(test)]
fn read(name: &str, files: &dyn Files) -> Result<(ApiServer, Vec<Problem>), Vec<Problem>> {
    read_as("kubeconfig", name, files).map(|read| (read.api, read.ignored))
}

/// The server of the current context, and the path of its cluster.
fn current(
    reader: &mut Reader<'_>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<(ApiServer, String)> {
    let known = ["apiVersion", "kind", "preferences", "extensions", "current-context"];
    reader.known("", &[&known[..], &["clusters", "users", "contexts"]].concat());
    for (key, want) in [("apiVersion", "v1"), ("kind", "Config")] {
        let seen = reader.text(key);
        if !matches!(seen.as_str(), "") && seen != want {
            reader.wrong(key, format!("must be {want}, not \"{seen}\""));
        }
    }
    let current = reader.text("current-context");
    if current.is_empty() {
        let names = reader.names("contexts");
        let what = match names.first() {
            Some(name) => format!("is missing; write current-context: {name}"),
            None => "is missing, and there are no contexts".to_owned(),
        };
        reader.wrong("current-context", what);
        return None;
    }
    let context = reader.entry("contexts", &current, "current-context", "context")?;
    reader.known(&context, &["cluster", "user", "namespace", "extensions"]);
    let (cluster, user) = (format!("{context}.cluster"), format!("{context}.user"));
    let cluster = match reader.text(&cluster) {
        name if name.is_empty() => {
            reader.wrong(&context, "names no cluster".to_owned());
            return None;
        }
        name => reader.entry("clusters", &name, &cluster, "cluster"),
    };
    let user = match reader.text(&user) {
        name if name.is_empty() => Some(String::new()),
        name => reader.entry("users", &name, &user, "user"),
    };
    let (cluster, user) = (cluster?, user?);
    let server = server(reader, &cluster);
    let authorities = authorities(reader, &cluster);
    let proxy = proxy_of(reader, &cluster, server.as_ref().map(|s| &s.0), env);
    let identity = pair(reader, &user);
    let login = login(reader, &user, &cluster);
    let (address, prefix) = server?;
    let named = reader.text(&format!("{cluster}.tls-server-name"));
    let server_name = if named.is_empty() { address.host.clone() } else { named };
    let login = login?;
    let api = ApiServer {
        user_agent: user_agent(),
        address,
        prefix,
        server_name,
        authorities: authorities?,
        identity,
        kept: None,
        login,
        proxy: proxy?,
    };
    Some((api, cluster))
}

/// As client-go builds its own: program, version, platform, Kubernetes.
fn user_agent() -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = env!("CARGO_PKG_VERSION");
    format!("steplet/{version} (linux/{machine}) kubernetes/{KUBERNETES_VERSION}")
}

/// The address, and what stands before every path.
fn server(reader: &mut Reader<'_>, cluster: &str) -> Option<(api::Address, String)> {
    reader.known(
        cluster,
        &[
            "server",
            "tls-server-name",
            "insecure-skip-tls-verify",
            "certificate-authority",
            "certificate-authority-data",
            "proxy-url",
            // No answer is ever asked for compressed.
            "disable-compression",
            "extensions",
        ],
    );
    let path = format!("{cluster}.server");
    let problems = reader.problems.len();
    let url = reader.text(&path);
    if reader.problems.len() > problems {
        return None;
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", &url));
    let what = match scheme {
        _ if url.is_empty() => "is missing; write the URL of the API server".to_owned(),
        "http" => format!("is without TLS, which is not spoken here; write https://{rest}"),
        "https" => match proxy::split(rest, 443) {
            Ok((address, path)) => return Some((address, path.trim_end_matches('/').to_owned())),
            Err(what) => what,
        },
        _ => format!("must begin with https://, not \"{scheme}://\""),
    };
    reader.wrong(&path, what);
    None
}

fn authorities(reader: &mut Reader<'_>, cluster: &str) -> Option<Authorities> {
    let bundle = pem(reader, cluster, "certificate-authority");
    let skip = format!("{cluster}.insecure-skip-tls-verify");
    match (reader.switch(&skip), bundle?) {
        (true, Some(_)) => {
            let what = "cannot be true beside a certificate-authority; leave one of them out";
            reader.wrong(&skip, what.to_owned());
            None
        }
        (true, None) => Some(Authorities::Everybody),
        (false, Some(bundle)) => Some(Authorities::Given(bundle)),
        (false, None) => Some(Authorities::System),
    }
}

/// `KEY-data`, or else the file of `KEY`; the outer None is for a problem.
fn pem(reader: &mut Reader<'_>, section: &str, key: &str) -> Option<Option<Pem>> {
    let path = format!("{section}.{key}-data");
    let data = reader.text(&path);
    if data.is_empty() {
        let file = reader.text(&format!("{section}.{key}"));
        return Some((!file.is_empty()).then(|| Pem::File(reader.resolve(&file).into())));
    }
    // As Go, line ends within are passed over.
    let packed: String = data.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match STANDARD.decode(packed).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(text) => Some(Some(Pem::Inline(text.into()))),
        None => {
            reader.wrong(&path, "is no base64 of a PEM text".to_owned());
            None
        }
    }
}

/// The certificate of a user, and its key.
fn pair(reader: &mut Reader<'_>, user: &str) -> Option<(Pem, Pem)> {
    let certificate = pem(reader, user, "client-certificate")?;
    let key = pem(reader, user, "client-key")?;
    let what = match (certificate, key) {
        (Some(certificate), Some(key)) => return Some((certificate, key)),
        (None, None) => return None,
        (Some(_), None) => "has a client-certificate without a client-key",
        (None, Some(_)) => "has a client-key without a client-certificate",
    };
    reader.wrong(user, what.to_owned());
    None
}

/// What the requests of a user carry.
fn login(reader: &mut Reader<'_>, user: &str, cluster: &str) -> Option<Login> {
    if user.is_empty() {
        return Some(Login::None);
    }
    let certificates =
        ["client-certificate", "client-certificate-data", "client-key", "client-key-data"];
    let logins = ["token", "tokenFile", "username", "password", "exec", "extensions"];
    let refused = ["auth-provider", "as", "as-uid", "as-groups", "as-user-extra"];
    reader.known(user, &[&certificates[..], &logins, &refused].concat());
    for key in refused {
        let path = format!("{user}.{key}");
        if reader.has(&path) {
            let what = match key {
                "auth-provider" => "is not done; its providers are plugins now, see exec",
                _ => "is not done: a node acts as itself; leave it out",
            };
            reader.wrong(&path, what.to_owned());
        }
    }
    let at = |key: &str| format!("{user}.{key}");
    let [token, password] = ["token", "password"].map(|key| reader.secret(&at(key)));
    let [file, name] = ["tokenFile", "username"].map(|key| reader.text(&at(key)));
    let basic = !name.is_empty() || !password.is_empty();
    let exec = reader.has(&at("exec"));
    let bearer = !token.is_empty() || !file.is_empty();
    if usize::from(bearer) + usize::from(basic) + usize::from(exec) > 1 {
        let what = "has more than one of token, username and exec; leave the others out";
        reader.wrong(user, what.to_owned());
        return None;
    }
    if !file.is_empty() {
        return Some(Login::TokenFile(reader.resolve(&file).into()));
    }
    if !token.is_empty() {
        return Some(Login::Header(api::bearer(&token)));
    }
    if basic {
        let packed = STANDARD.encode(format!("{name}:{password}"));
        return Some(Login::Header(format!("Basic {packed}").into()));
    }
    match exec {
        true => exec_plugin(reader, &at("exec"), cluster).map(|p| Login::Exec(Box::new(p))),
        false => Some(Login::None),
    }
}

fn exec_plugin(reader: &mut Reader<'_>, exec: &str, cluster: &str) -> Option<ExecPlugin> {
    let known = ["command", "args", "env", "apiVersion", "installHint", "provideClusterInfo"];
    reader.known(exec, &[&known[..], &["interactiveMode"]].concat());
    let at = |key: &str| format!("{exec}.{key}");
    let command = reader.text(&at("command"));
    if command.is_empty() {
        reader.wrong(exec, "names no command".to_owned());
    }
    let api_version = reader.text(&at("apiVersion"));
    if !EXEC_VERSIONS.contains(&api_version.as_str()) {
        let what = format!("must be {}, not \"{api_version}\"", EXEC_VERSIONS.join(" or "));
        reader.wrong(&at("apiVersion"), what);
    }
    if reader.text(&at("interactiveMode")) == "Always" {
        let what = "cannot be Always: a node agent has no terminal; write Never or IfAvailable";
        reader.wrong(&at("interactiveMode"), what.to_owned());
    }
    let args = (0..reader.len(&at("args"))).map(|n| format!("{exec}.args[{n}]"));
    let args = args.map(|path| reader.text(&path)).collect();
    let mut env = Vec::new();
    for n in 0..reader.len(&at("env")) {
        let one = format!("{exec}.env[{n}]");
        let name = reader.text(&format!("{one}.name"));
        if name.is_empty() || name.contains(['=', '\0']) {
            reader.wrong(&one, "names no variable".to_owned());
        }
        env.push((name, reader.text(&format!("{one}.value"))));
    }
    let told = reader.switch(&at("provideClusterInfo")).then(|| told(reader, cluster));
    Some(ExecPlugin {
        // A bare name is looked for in the PATH.
        command: if command.contains('/') { reader.resolve(&command) } else { command },
        args,
        env,
        api_version,
        cluster: told,
        install_hint: reader.text(&at("installHint")),
    })
}

/// The cluster as a plugin may know it.
fn told(reader: &mut Reader<'_>, cluster: &str) -> String {
    let mut told = json!({});
    for key in ["server", "tls-server-name", "proxy-url"] {
        let text = reader.text(&format!("{cluster}.{key}"));
        if !text.is_empty() {
            told[key] = text.into();
        }
    }
    for key in ["insecure-skip-tls-verify", "disable-compression"] {
        if reader.switch(&format!("{cluster}.{key}")) {
            told[key] = true.into();
        }
    }
    if let Some(Some(bundle)) = pem(reader, cluster, "certificate-authority") {
        match bundle.read() {
            Ok(text) => told["certificate-authority-data"] = STANDARD.encode(text).into(),
            Err(what) => reader.wrong(&format!("{cluster}.certificate-authority"), what),
        }
    }
    for n in 0..reader.len(&format!("{cluster}.extensions")) {
        let extension = format!("{cluster}.extensions[{n}]");
        if reader.text(&format!("{extension}.name")) == EXEC_EXTENSION {
            let config = reader.value(&format!("{extension}.extension")).cloned();
            told["config"] = config.unwrap_or(Value::Null);
        }
    }
    told.to_string()
}

/// The proxy on the way to the server; the outer None is for a problem.
fn proxy_of(
    reader: &mut Reader<'_>,
    cluster: &str,
    server: Option<&api::Address>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<Option<Proxy>> {
    let path = format!("{cluster}.proxy-url");
    let url = reader.text(&path);
    if !url.is_empty() {
        return match proxy::parse(&url) {
            Ok(proxy) => Some(Some(proxy)),
            Err(what) => {
                reader.wrong(&path, what);
                None
            }
        };
    }
    match proxy::of_environment(server?, env) {
        Ok(proxy) => Some(proxy),
        Err(what) => {
            reader.problems.push(Problem::new(super::flags::Place::Nowhere, what));
            None
        }
    }
}

/// Where a relative path of the file `name` leads.
fn beside(name: &str, path: &str) -> String {
    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
    if path.starts_with('/') { path.to_owned() } else { config::join(directory, path) }
}

#[cfg(test)]
mod tests;
