//! Handlers behind enableDebuggingHandlers that are asked by hand: `/checkpoint`, `/logs/`, `/debug/flags/v`, `/debug/pprof/`.
//!
//! Upstream: pkg/kubelet/server/server.go, kubelet.CheckpointContainer in pkg/kubelet/kubelet.go (v1.36). Pure.

use super::streams::{Refusal, find};
use crate::effect::{Call, KernelOp};
use crate::event::{Request, RpcError};
use crate::facts::Facts;
use crate::managers::cri;
use crate::managers::pods::view::ContainerState;
use crate::time::{Span, Wall};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::cri as api;
use steplet_api::time::Time;

/// Where `/logs/` looks.
pub(super) const LOGS_ROOT: &str = "/var/log";

/// The call that writes a checkpoint, and the file that it writes.
pub(super) fn checkpoint(
    facts: &Facts,
    request: &Request,
    now: Wall,
) -> Result<(Call, String), Refusal> {
    let parts: Vec<&str> = request.path.split('/').skip(2).collect();
    let [namespace, pod, name] = parts[..] else {
        return Err((404, "404 page not found\n".into()));
    };
    let view = find(facts, namespace, pod, None)?;
    let running = view.container(name).filter(|c| c.state == ContainerState::Running);
    let running = running.ok_or_else(|| (404, format!("container {name} does not exist\n")))?;
    let settings = facts.settings();
    let wanted = request.query.iter().find(|(key, _)| key == "timeout");
    let timeout = match wanted.map(|(_, seconds)| seconds.parse::<u32>()) {
        None => 0,
        Some(Ok(seconds)) => seconds,
        Some(Err(_)) => return Err((404, "cannot parse value of timeout parameter\n".into())),
    };
    let seconds = Time::from_ns(now.0);
    let dir = format!("{}/checkpoints", settings.root_dir);
    let location = format!("{dir}/checkpoint-{pod}_{namespace}-{name}-{seconds}.tar");
    let body = api::CheckpointContainerRequest {
        container_id: running.id.as_str().into(),
        location: location.clone(),
        timeout: timeout.into(),
    };
    let within = match timeout {
        0 => settings.runtime_request_timeout,
        seconds => Span::from_secs(seconds.into()),
    };
    Ok((cri::call(cri::CHECKPOINT_CONTAINER, &body, within), location))
}

/// Why there is no checkpoint, as upstream says it.
pub(super) fn no_checkpoint(path: &str, error: &RpcError) -> String {
    let container = path.trim_start_matches("/checkpoint/");
    let code = code_name(error.code);
    let message = &error.message;
    format!("checkpointing of {container} failed (rpc error: code = {code} desc = {message})\n")
}

/// The name of a gRPC status, as Go prints it.
fn code_name(code: i32) -> &'static str {
    match code {
        RpcError::INVALID_ARGUMENT => "InvalidArgument",
        RpcError::DEADLINE_EXCEEDED => "DeadlineExceeded",
        RpcError::NOT_FOUND => "NotFound",
        RpcError::UNIMPLEMENTED => "Unimplemented",
        RpcError::UNAVAILABLE => "Unavailable",
        _ => "Unknown",
    }
}

/// What lies below `/var/log` under this path, relative and without detours.
pub(super) fn log_path(request: &Request) -> Result<String, Refusal> {
    if request.query.iter().any(|(key, _)| key == "query") {
        let why = "the query form of /logs/ is not served by this node agent: read the files below /logs/, \
                   or run journalctl on the node; enableSystemLogQuery has no effect\n";
        return Err((501, why.into()));
    }
    let path = request.path.trim_start_matches("/logs");
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if path.contains('\0') || parts.contains(&"..") {
        return Err((400, "invalid URL path\n".into()));
    }
    Ok(parts.join("/"))
}

/// What a PUT of `/debug/flags/v` says, and the call that does it.
pub(super) fn verbosity(request: &Request) -> Result<(Call, String), Refusal> {
    let text = String::from_utf8_lossy(&request.body).into_owned();
    let level = text.parse::<i32>().map_err(|_| {
        let why = format!("strconv.ParseInt: parsing {text:?}: invalid syntax");
        (400, format!("failed set klog.logging.verbosity {text}: {why}"))
    })?;
    let said = format!("successfully set klog.logging.verbosity to {text}");
    Ok((Call::Kernel(KernelOp::SetVerbosity(level.max(0).unsigned_abs())), said))
}

pub(super) fn no_profiles() -> String {
    "this node agent has no profiles of Go: /metrics has its figures, perf(1) profiles its process, and \
     `steplet tape` shows what it did, step by step\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Listener;
    use crate::ids::RequestId;
    use bytes::Bytes;

    fn request(path: &str, query: &[(&str, &str)], body: &'static str) -> Request {
        Request {
            id: RequestId(1),
            listener: Listener::Secure,
            loopback: true,
            certificate: None,
            bearer: None,
            upgrade: false,
            body: Bytes::from_static(body.as_bytes()),
            method: "GET".into(),
            path: path.into(),
            query: query.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        }
    }

    #[test]
    fn paths_of_logs_have_no_detours() {
        let check = |path: &str, want: Result<&str, u16>| {
            let got = log_path(&request(path, &[], "")).map_err(|(status, _)| status);
            assert_eq!(got.as_deref(), want.as_ref().copied(), "{path}");
        };
        check("/logs", Ok(""));
        check("/logs/", Ok(""));
        check("/logs/syslog", Ok("syslog"));
        check("/logs//pods/./a/0.log", Ok("pods/a/0.log"));
        check("/logs/../etc/shadow", Err(400));
        check("/logs/a/../../etc/shadow", Err(400));
        check("/logs/..a", Ok("..a"));
        check("/logs/a\0b", Err(400));
        let query = log_path(&request("/logs/", &[("query", "kubelet")], ""));
        assert_eq!(query.map_err(|(status, _)| status), Err(501));
    }

    #[test]
    fn verbosities() {
        let check = |body: &'static str, want: Result<u32, u16>| {
            let got = verbosity(&request("/debug/flags/v", &[], body));
            let got = got.map(|(call, _)| call).map_err(|(status, _)| status);
            assert_eq!(
                got,
                want.map(|level| Call::Kernel(KernelOp::SetVerbosity(level))),
                "{body}"
            );
        };
        check("4", Ok(4));
        check("0", Ok(0));
        check("-1", Ok(0));
        check("", Err(400));
        check("four", Err(400));
        check("99999999999", Err(400));
    }
}
