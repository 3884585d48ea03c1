//! The kubelet's own HTTP endpoints: which path answers what, to whom.
//!
//! Upstream: pkg/kubelet/server/server.go (v1.36).
//! Owns: requests that wait for figures of the process, logs that are followed. Publishes: -.
//! Hears: Inspected. Says: -. Asks: the figures of the process, for /metrics; by `auth`: reviews of who asks.
//! Never: changes a pod; answers more people on 10250 than `Visitors` has while nobody can be told apart.

mod auth;
mod healthz;
mod logs;
mod metrics_page;
mod pods;
mod streams;

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
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::cri::ExecSyncResponse;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// Logs that end when their container does.
    follows: BTreeMap<RequestId, (PodUid, ContainerId)>,
    requests: BTreeMap<String, u64>,
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
}

/// Paths that upstream serves and this program does not yet: refused by name.
const NOT_YET: [&str; 5] = ["/stats/", "/checkpoint/", "/logs/", "/debug/", "/metrics/"];

impl Server {
    pub(crate) fn on_request(&mut self, cx: &mut Cx<'_>, request: &Request) {
        let head = request.path.split('/').nth(1).unwrap_or("");
        *self.requests.entry(known_path(head).into()).or_default() += 1;
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
                _ if is_healthz(path) => healthz::answer(cx.facts, cx.now.mono, request),
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
        match path {
            _ if is_healthz(path) => Some(healthz::answer(cx.facts, cx.now.mono, request)),
            "/pods" | "/pods/" => Some(only_get(request, || json(pods::pod_list(cx.facts)))),
            "/metrics" => {
                if request.method != "GET" {
                    return Some(text(405, "405: Method Not Allowed"));
                }
                let ask = Ask::Figures { request: request.id };
                cx.call(ask, Call::Kernel(KernelOp::Figures));
                None
            }
            _ if !secure && debugging(path) => Some(text(405, "Debug endpoints are disabled.\n")),
            _ if !secure => Some(not_found(path)),
            "/configz" => Some(only_get(request, || json(pods::configz(cx.facts)))),
            _ if !cx.facts.settings().debugging_handlers && debugging(path) => {
                Some(text(405, "Debug endpoints are disabled.\n"))
            }
            "/runningpods" | "/runningpods/" => {
                Some(only_get(request, || json(pods::running_pods(cx.facts))))
            }
            _ if path.starts_with("/containerLogs/") => self.container_logs(cx, request),
            _ if is_stream(path) || path.starts_with("/run/") => stream(cx, request),
            _ => Some(not_found(path)),
        }
    }

    fn container_logs(&mut self, cx: &mut Cx<'_>, request: &Request) -> Option<Reply> {
        if request.method != "GET" {
            return Some(text(405, "405: Method Not Allowed"));
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
        let content_type =
            Cow::Borrowed("text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
        cx.reply(request, Reply { status: 200, content_type, body: page.into() });
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
        return Some(text(405, "405: Method Not Allowed"));
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

fn debugging(path: &str) -> bool {
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

fn only_get(request: &Request, reply: impl FnOnce() -> Reply) -> Reply {
    match request.method == "GET" {
        true => reply(),
        false => text(405, "405: Method Not Allowed"),
    }
}

fn text(status: u16, body: impl Into<Cow<'static, str>>) -> Reply {
    let body = match body.into() {
        Cow::Borrowed(body) => Bytes::from_static(body.as_bytes()),
        Cow::Owned(body) => Bytes::from(body),
    };
    Reply { status, content_type: "text/plain; charset=utf-8".into(), body }
}

fn json(body: Vec<u8>) -> Reply {
    Reply { status: 200, content_type: "application/json".into(), body: body.into() }
}

/// The `path` label of the request metrics: unknown ones share one, so that strangers cannot make series.
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
    ];
    if known.contains(&head) { head } else { "other" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_enter() {
        let check = |mode, loopback, want: Option<u16>| {
            let request = Request {
                id: RequestId(1),
                listener: Listener::Secure,
                method: "GET".into(),
                path: "/pods".into(),
                query: Vec::new(),
                loopback,
                certificate: None,
                bearer: None,
                upgrade: false,
            };
            let got = turned_away(Visitors::of(mode), &request);
            assert_eq!(got.map(|(status, _)| status), want, "{mode} {loopback}");
        };
        check("AlwaysAllow", true, None);
        check("AlwaysAllow", false, None);
        check("Webhook", true, None);
        check("Webhook", false, Some(403));
    }
}
