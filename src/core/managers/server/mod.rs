//! The kubelet's own HTTP endpoints: which path answers what, to whom.
//!
//! Upstream: pkg/kubelet/server/server.go (v1.36).
//! Owns: requests that wait for an answer, logs that are followed, how checks came out. Publishes: -.
//! Hears: Inspected. Says: -. Asks: the figures of the process; the runtime for streams, commands and checkpoints; by
//! `auth`: reviews of who asks.
//! Never: changes a pod; answers more people on 10250 than `Visitors` has while nobody can be told apart.

mod auth;
mod debugging;
mod healthz;
mod logs;
mod metrics_page;
mod pods;
mod streams;
mod zpages;

use auth::{Auth, Entry};

use crate::cx::Cx;
use crate::effect::{Call, Effect, KernelOp, Reply};
use crate::event::{KernelReply, Listener, Outcome, Request};
use crate::facts::Facts;
use crate::ids::{ContainerId, PodUid, RequestId};
use crate::managers::cri;
use crate::managers::pods::view::ContainerState;
use crate::note::PodNote;
use crate::sealed::Sealed;
use crate::settings::Visitors;
use crate::time::Now;
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steplet_api::cri::ExecSyncResponse;
use steplet_api::json;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Logs that end when their container does.
    follows: BTreeMap<RequestId, (PodUid, ContainerId)>,
    /// How many came, by the labels of their metric.
    requests: BTreeMap<String, u64>,
    /// How the checks of `/healthz` came out.
    checks: healthz::Tallies,
    /// When this agent began.
    started: Now,
    auth: Auth,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Figures {
        request: RequestId,
    },
    /// Whose token it is.
    Token {
        request: RequestId,
        token: Sealed,
    },
    /// Whether somebody may.
    Access {
        request: RequestId,
        subresource: String,
    },
    /// Where the runtime serves a stream; the path of the call that asked.
    Stream {
        request: RequestId,
        path: String,
    },
    /// The output of a command.
    Run {
        request: RequestId,
    },
    /// A checkpoint in this file; the path that asked.
    Checkpoint {
        request: RequestId,
        path: String,
        location: String,
    },
    /// Another verbosity, and what is said of it.
    Verbosity {
        request: RequestId,
        said: String,
    },
}

/// Paths that upstream serves and this program does not yet: refused by name.
const NOT_YET: [&str; 2] = ["/stats/", "/metrics/"];

impl Server {
    pub(crate) fn on_booted(&mut self, cx: &Cx<'_>) {
        self.started = cx.now;
    }

    pub(crate) fn on_request(&mut self, cx: &mut Cx<'_>, request: &Request) {
        if request.listener != Listener::Healthz {
            *self.requests.entry(labels(request)).or_default() += 1;
        }
        match cx.facts.settings().auth.clone() {
            Some(auth) if request.listener == Listener::Secure => {
                let entry = self.auth.enter(cx, &auth, request.clone().into());
                self.enter(cx, entry);
            }
            _ => self.serve(cx, request),
        }
    }

    fn enter(&mut self, cx: &mut Cx<'_>, entry: Entry) {
        match entry {
            Entry::May(request) => self.serve(cx, &request),
            Entry::Not(request, reply) => cx.reply(request, reply),
            Entry::Waits => {}
        }
    }

    fn serve(&mut self, cx: &mut Cx<'_>, request: &Request) {
        if let Some(reply) = self.answer(cx, request) {
            cx.reply(request.id, reply);
        }
    }

    /// The reply, or None when it comes later or the door pumps it.
    fn answer(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
        let path = request.path.as_str();
        if request.listener == Listener::Healthz {
            return Some(match path {
                _ if is_healthz(path) => self.healthz(cx, request),
                _ => text(404, "404 page not found\n"),
            });
        }
        let secure = request.listener == Listener::Secure;
        let settings = cx.facts.settings();
        if secure
            && settings.auth.is_none()
            && let Some((status, why)) = turned_away(settings.visitors, request)
        {
            return Some(text(status, why));
        }
        let debugged = secure && settings.debugging_handlers;
        match path {
            _ if is_healthz(path) => Some(self.healthz(cx, request)),
            "/pods" | "/pods/" => Some(only_get(request, || json(pods::pod_list(cx.facts)))),
            "/metrics" => {
                if request.method != "GET" {
                    return Some(not_allowed());
                }
                let ask = Ask::Figures { request: request.id };
                cx.call(ask, Call::Kernel(KernelOp::Figures));
                None
            }
            "/metrics/slis" => Some(only_get(request, || metrics(healthz::slis(&self.checks)))),
            _ if debugged => self.debug(cx, request),
            _ if is_debugging(path) => Some(text(405, "Debug endpoints are disabled.\n")),
            _ => Some(not_found(path)),
        }
    }

    fn healthz(&mut self, cx: &Cx<'_>, request: &Request) -> Reply {
        healthz::answer(cx.facts, cx.now.mono, request, &mut self.checks)
    }

    /// What enableDebuggingHandlers opens.
    fn debug(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
        let path = request.path.as_str();
        let is_below = |head: &str| {
            path.strip_prefix(head).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let handlers = &cx.facts.settings().handlers;
        match path {
            "/configz" => Some(only_get(request, || json(pods::configz(cx.facts)))),
            "/flagz" if handlers.flagz => Some(only_get(request, || zpages::flagz(cx.facts))),
            "/statusz" if handlers.statusz => {
                Some(only_get(request, || zpages::statusz(cx.now, self.started)))
            }
            "/runningpods" | "/runningpods/" => {
                Some(only_get(request, || json(pods::running_pods(cx.facts))))
            }
            "/debug/flags/v" if !handlers.debug_flags => {
                Some(text(405, "flags endpoint is disabled.\n"))
            }
            "/debug/flags/v" => set_verbosity(cx, request),
            _ if is_below("/debug/pprof") && !handlers.profiling => {
                Some(text(405, "profiling endpoint is disabled.\n"))
            }
            _ if is_below("/debug/pprof") => Some(text(501, debugging::no_profiles())),
            _ if is_below("/logs") && !handlers.system_logs => {
                Some(text(405, "logs endpoint is disabled.\n"))
            }
            _ if is_below("/logs") => system_logs(cx, request),
            _ if path.starts_with("/checkpoint/") && handlers.checkpoint => checkpoint(cx, request),
            _ if path.starts_with("/containerLogs/") => self.container_logs(cx, request),
            _ if is_stream(path) || path.starts_with("/run/") => stream(cx, request),
            _ => Some(not_found(path)),
        }
    }

    fn container_logs(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
        if request.method != "GET" {
            return Some(not_allowed());
        }
        match logs::find(cx.facts, request, cx.now.wall) {
            Err((status, message)) => Some(text(status, message)),
            Ok(found) => {
                if found.query.follow {
                    self.follows.insert(request.id, (found.uid, found.container));
                }
                let log = found.query.into();
                cx.emit(Effect::SendLog { request: request.id, log });
                None
            }
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        let auth = cx.facts.settings().auth.clone();
        let request = match (then, auth) {
            (Ask::Stream { request, path }, _) => return on_stream(cx, request, &path, outcome),
            (Ask::Run { request }, _) => return on_run(cx, request, outcome),
            (Ask::Checkpoint { request, path, location }, _) => {
                return on_checkpoint(cx, request, (&path, &location), outcome);
            }
            (Ask::Verbosity { request, said }, _) => return cx.reply(request, text(200, said)),
            (Ask::Figures { request }, _) => request,
            (Ask::Token { request, token }, Some(auth)) => {
                let entry = self.auth.on_token(cx, &auth, (request, token), outcome);
                return self.enter(cx, entry);
            }
            (Ask::Access { request, subresource }, Some(auth)) => {
                let entry = self.auth.on_access(cx, &auth, (request, &subresource), outcome);
                return self.enter(cx, entry);
            }
            (Ask::Token { .. } | Ask::Access { .. }, None) => return,
        };
        let own = match outcome {
            Outcome::Kernel(Ok(KernelReply::Text(own))) => own,
            _ => Bytes::new(),
        };
        let mut page = metrics_page::page(cx.facts, cx.now, &self.requests);
        page.push_str(&String::from_utf8_lossy(&own));
        cx.reply(request, metrics(page));
    }

    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        let PodNote::Inspected { uid } = note else { return };
        let view = cx.facts.pleg.view(uid);
        let runs = |id: &ContainerId| {
            let container = view.and_then(|v| v.containers.iter().find(|c| c.id == *id));
            container.is_some_and(|c| c.state == ContainerState::Running)
        };
        let over = self.follows.iter().filter(|(_, (pod, id))| pod == uid && !runs(id));
        let over: Vec<RequestId> = over.map(|(request, _)| *request).collect();
        for request in over {
            self.follows.remove(&request);
            cx.emit(Effect::EndLog { request });
        }
    }

    pub(crate) fn on_gone(&mut self, request: RequestId) {
        self.follows.remove(&request);
        self.auth.on_gone(request);
    }

    pub(crate) fn check(&self, facts: &Facts) {
        for (request, (uid, _)) in &self.follows {
            let known = facts.pleg.view(uid).is_some() || !facts.pleg.fresh(uid);
            assert!(known, "server: {request:?} follows a log of {uid}, which is gone");
        }
    }
}

fn is_stream(path: &str) -> bool {
    ["/exec/", "/attach/", "/portForward/"].iter().any(|head| path.starts_with(head))
}

/// The runtime is asked first: None, unless that cannot be done.
fn stream(cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
    let streams = is_stream(&request.path);
    let method = request.method.as_str();
    if !(method == "POST" || method == "GET" && streams) {
        return Some(not_allowed());
    }
    if streams && !request.upgrade {
        return Some(text(500, "Upgrade request required\n"));
    }
    match streams::wanted(cx.facts, request) {
        Err((status, why)) => Some(text(status, why)),
        Ok(call) => {
            let request = request.id;
            let ask = match &call {
                Call::Rpc(rpc) if streams => {
                    Ask::Stream { request, path: rpc.path.clone().into_owned() }
                }
                _ => Ask::Run { request },
            };
            cx.call(ask, call);
            None
        }
    }
}

fn on_stream(cx: &mut Cx<'_>, request: RequestId, path: &str, outcome: Outcome) {
    match outcome {
        Outcome::Rpc(Ok(body)) => {
            cx.emit(Effect::Stream { request, url: streams::url(path, &body) });
        }
        other => refuse_stream(cx, request, other),
    }
}

fn on_run(cx: &mut Cx<'_>, request: RequestId, outcome: Outcome) {
    let content_type = Cow::Borrowed("text/plain; charset=utf-8");
    let (status, body) = match cri::answer::<ExecSyncResponse>(outcome.clone()) {
        Ok(output) if output.exit_code == 0 => (200, [output.stdout, output.stderr].concat()),
        Ok(output) => {
            let why = format!("command terminated with exit code {}\n", output.exit_code);
            (500, [output.stdout, output.stderr, why.into_bytes()].concat())
        }
        Err(_) => return refuse_stream(cx, request, outcome),
    };
    cx.reply(request, Reply { status, content_type, body: body.into() });
}

fn refuse_stream(cx: &mut Cx<'_>, request: RequestId, outcome: Outcome) {
    let (status, why) = match outcome {
        Outcome::Rpc(Err(error)) => streams::refusal(&error),
        _ => (500, "the runtime's answer cannot be read\n".into()),
    };
    cx.reply(request, text(status, why));
}

fn checkpoint(cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
    if request.method != "POST" {
        return Some(not_allowed());
    }
    match debugging::checkpoint(cx.facts, request, cx.now.wall) {
        Err((status, why)) => Some(text(status, why)),
        Ok((call, location)) => {
            let path = request.path.clone();
            cx.call(Ask::Checkpoint { request: request.id, path, location }, call);
            None
        }
    }
}

fn on_checkpoint(
    cx: &mut Cx<'_>,
    request: RequestId,
    (path, location): (&str, &str),
    outcome: Outcome,
) {
    let reply = match outcome {
        Outcome::Rpc(Ok(_)) => json(json::to_vec(&json!({ "items": [location] }))),
        Outcome::Rpc(Err(error)) => text(500, debugging::no_checkpoint(path, &error)),
        _ => text(500, "the runtime's answer cannot be read\n"),
    };
    cx.reply(request, reply);
}

/// A file below /var/log, or the names in a directory there.
fn system_logs(cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
    if request.method != "GET" {
        return Some(not_allowed());
    }
    match debugging::log_path(request) {
        Err((status, why)) => Some(text(status, why)),
        Ok(path) => {
            let root = debugging::LOGS_ROOT.into();
            cx.emit(Effect::SendFile { request: request.id, root, path });
            None
        }
    }
}

fn set_verbosity(cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
    if request.method != "PUT" {
        return Some(not_allowed());
    }
    match debugging::verbosity(request) {
        Err((status, why)) => Some(text(status, why)),
        Ok((call, said)) => {
            cx.call(Ask::Verbosity { request: request.id, said }, call);
            None
        }
    }
}

/// Who may not enter 10250, and what is said to them. Upstream: InstallAuthFilter in server.go, which guards every
/// path, healthz too.
fn turned_away(visitors: Visitors, request: &Request) -> Option<(u16, &'static str)> {
    match visitors {
        Visitors::Everybody => None,
        Visitors::Loopback if request.loopback => None,
        Visitors::Loopback => Some((
            403,
            "Forbidden: this node agent has no authorization yet and answers loopback only; \
             authorization.mode AlwaysAllow opens it to everybody\n",
        )),
    }
}

fn is_healthz(path: &str) -> bool {
    path == "/healthz" || path.starts_with("/healthz/")
}

/// What is answered by 405 where enableDebuggingHandlers is off; the rest of them is just not there.
fn is_debugging(path: &str) -> bool {
    let stubs = [
        "/run/",
        "/exec/",
        "/attach/",
        "/portForward/",
        "/containerLogs/",
        "/debug/pprof/",
        "/logs/",
    ];
    stubs.iter().any(|stub| path.starts_with(stub)) || path.trim_end_matches('/') == "/runningpods"
}

fn not_found(path: &str) -> Reply {
    match NOT_YET.iter().any(|known| path.starts_with(known) || *known == format!("{path}/")) {
        true => text(501, format!("{path} is not served by this version of the node agent\n")),
        false => text(404, "404 page not found\n"),
    }
}

fn not_allowed() -> Reply {
    text(405, "405: Method Not Allowed")
}

fn only_get(request: &Request, reply: impl FnOnce() -> Reply) -> Reply {
    match request.method == "GET" {
        true => reply(),
        false => not_allowed(),
    }
}

fn text(status: u16, body: impl Into<Cow<'static, str>>) -> Reply {
    let body = match body.into() {
        Cow::Borrowed(body) => Bytes::from_static(body.as_bytes()),
        Cow::Owned(body) => Bytes::from(body),
    };
    Reply { status, content_type: "text/plain; charset=utf-8".into(), body }
}

/// A page for Prometheus.
fn metrics(page: String) -> Reply {
    let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    Reply { status: 200, content_type: content_type.into(), body: page.into() }
}

fn json(body: Vec<u8>) -> Reply {
    Reply { status: 200, content_type: "application/json".into(), body: body.into() }
}

/// The labels of the request metrics (pkg/kubelet/server/metrics, v1.36). Strangers cannot make series.
fn labels(request: &Request) -> String {
    let path = known_path(request.path.split('/').nth(1).unwrap_or(""));
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let method = methods.into_iter().find(|known| *known == request.method).unwrap_or("other");
    let long = ["exec", "attach", "portForward", "debug"].contains(&path);
    let server = if request.listener == Listener::Secure { "readwrite" } else { "readonly" };
    format!("long_running=\"{long}\",method=\"{method}\",path=\"{path}\",server_type=\"{server}\"")
}

/// Unknown ones share a label.
fn known_path(head: &str) -> &str {
    let known = [
        "healthz",
        "pods",
        "metrics",
        "configz",
        "runningpods",
        "containerLogs",
        "exec",
        "attach",
        "run",
        "portForward",
        "stats",
        "checkpoint",
        "logs",
        "debug",
        "flagz",
        "statusz",
    ];
    if known.contains(&head) { head } else { "other" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, loopback: bool) -> Request {
        Request {
            id: RequestId(1),
            listener: Listener::Secure,
            method: method.into(),
            path: path.into(),
            query: Vec::new(),
            loopback,
            certificate: None,
            bearer: None,
            upgrade: false,
            body: Bytes::new(),
        }
    }

    #[test]
    fn strangers_make_no_series() {
        let check = |method, path, want: &str| {
            assert_eq!(labels(&request(method, path, true)), want, "{method} {path}");
        };
        let pods = r#"long_running="false",method="GET",path="pods",server_type="readwrite""#;
        check("GET", "/pods", pods);
        let exec = r#"long_running="true",method="POST",path="exec",server_type="readwrite""#;
        check("POST", "/exec/default/web/app", exec);
        let other = r#"long_running="false",method="other",path="other",server_type="readwrite""#;
        check("BREW", "/coffee\"", other);
    }

    #[test]
    fn who_may_enter() {
        let check = |mode, loopback, want: Option<u16>| {
            let request = request("GET", "/pods", loopback);
            let got = turned_away(Visitors::of(mode), &request);
            assert_eq!(got.map(|(status, _)| status), want, "{mode} {loopback}");
        };
        check("AlwaysAllow", true, None);
        check("AlwaysAllow", false, None);
        check("Webhook", true, None);
        check("Webhook", false, Some(403));
    }
}
