//! `/exec`, `/attach`, `/portForward` and `/run`: which container, and how its runtime is asked.
//!
//! Upstream: getExec, getAttach, getPortForward and getRun in pkg/kubelet/server/server.go (v1.36). Pure.

use crate::effect::Call;
use crate::event::{Request, RpcError};
use crate::facts::Facts;
use crate::managers::cri;
use crate::managers::pods::view::{ContainerState, PodView};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::cri as api;

pub(super) type Refusal = (u16, String);

/// What is asked of the runtime; its answer is a URL for a stream.
pub(super) fn wanted(facts: &Facts, request: &Request) -> Result<Call, Refusal> {
    let parts: Vec<&str> = request.path.split('/').skip(1).collect();
    let within = facts.settings().runtime_request_timeout;
    let (kind, pod, container) = match parts[..] {
        ["portForward", namespace, pod] => ("portForward", find(facts, namespace, pod, None)?, ""),
        ["portForward", namespace, pod, uid] => {
            ("portForward", find(facts, namespace, pod, Some(uid))?, "")
        }
        [kind, namespace, pod, container] => (kind, find(facts, namespace, pod, None)?, container),
        [kind, namespace, pod, uid, container] => {
            (kind, find(facts, namespace, pod, Some(uid))?, container)
        }
        _ => return Err((404, "404 page not found\n".into())),
    };
    if kind == "portForward" {
        let sandbox = pod.sandbox().filter(|sandbox| sandbox.ready);
        let sandbox = sandbox.ok_or((500, "pod sandbox is not running\n".into()))?;
        let ports = all(request, "port").filter_map(|port| port.parse().ok()).collect();
        let body =
            api::PortForwardRequest { pod_sandbox_id: sandbox.id.as_str().into(), port: ports };
        return Ok(cri::call(cri::PORT_FORWARD, &body, within));
    }
    let running = pod.container(container).filter(|c| c.state == ContainerState::Running);
    let running = running.ok_or_else(|| (500, format!("container not found ({container:?})\n")))?;
    let container_id = String::from(running.id.as_str());
    if kind == "run" {
        let cmd: Vec<String> =
            all(request, "cmd").flat_map(str::split_whitespace).map(String::from).collect();
        let body = api::ExecSyncRequest { container_id, cmd, timeout: 0 };
        return Ok(cri::call(cri::EXEC_SYNC, &body, within));
    }
    let on = |name| all(request, name).next() == Some("1");
    let (stdin, stdout, tty) = (on("input"), on("output"), on("tty"));
    // A terminal has one output.
    let stderr = on("error") && !tty;
    if !(stdin || stdout || stderr) {
        return Err((400, "you must specify at least 1 of stdin, stdout, stderr\n".into()));
    }
    if kind == "exec" {
        let cmd = all(request, "command").map(String::from).collect();
        let body = api::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr };
        return Ok(cri::call(cri::EXEC, &body, within));
    }
    let body = api::AttachRequest { container_id, stdin, tty, stdout, stderr };
    Ok(cri::call(cri::ATTACH, &body, within))
}

fn all<'a>(request: &'a Request, name: &'a str) -> impl Iterator<Item = &'a str> {
    let named = request.query.iter().filter(move |(key, _)| key == name);
    named.map(|(_, value)| value.as_str())
}

pub(super) fn find<'a>(
    facts: &'a Facts,
    namespace: &str,
    pod: &str,
    uid: Option<&str>,
) -> Result<&'a PodView, Refusal> {
    let mut workers = facts.workers.all().iter().filter(|(_, worker)| !worker.orphan());
    let found = workers.find(|(known, worker)| {
        let meta = &worker.pod().metadata;
        *meta.name == *pod
            && *meta.namespace == *namespace
            && uid.is_none_or(|uid| uid == known.as_str())
    });
    let view = found.and_then(|(uid, _)| facts.pleg.view(uid));
    view.ok_or_else(|| (404, "pod does not exist\n".into()))
}

/// The URL that the runtime gave, by the call that asked.
pub(super) fn url(path: &str, body: &[u8]) -> String {
    use prost::Message;
    let url = match path {
        cri::EXEC => api::ExecResponse::decode(body).map(|it| it.url),
        cri::ATTACH => api::AttachResponse::decode(body).map(|it| it.url),
        _ => api::PortForwardResponse::decode(body).map(|it| it.url),
    };
    url.unwrap_or_default()
}

/// An error of the runtime as status and text.
pub(super) fn refusal(error: &RpcError) -> Refusal {
    let status = match error.code {
        RpcError::NOT_FOUND => 404,
        RpcError::RESOURCE_EXHAUSTED => 429,
        _ => 500,
    };
    (status, format!("{}\n", error.message))
}
