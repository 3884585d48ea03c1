//! Steps in words: what an event brought and what was done about it, each in half a line.

use super::call_name;
use super::cri::short;
use super::proto::Header;
use prost::Message;
use std::borrow::Cow;
use std::collections::BTreeMap;
use steplet_api::cri::*;
use steplet_api::time::Time;
use steplet_core::effect::{Call, DiskOp, Effect, HelperOp, KernelOp};
use steplet_core::event::{
    Chains, DiskReply, Event, Fault, HelperReply, Item, Kept, KernelReply, Manifest, Outcome, Pair,
    RpcError, Signal,
};
use steplet_core::ids::Token;
use steplet_core::time::Span;

/// The calls that are out in the world, by what they are called.
#[derive(Debug, Default)]
pub struct Calls(BTreeMap<Token, Cow<'static, str>>);

impl Calls {
    /// Those before the first step of a segment.
    pub fn before(header: &Header) -> Calls {
        let open = header.open.iter();
        Calls(open.map(|call| (Token(call.token), call.name.clone().into())).collect())
    }

    /// The call that an event is about; empty when it is not about one.
    pub fn of(&self, event: &Event) -> Cow<'static, str> {
        match event {
            Event::Done { token, .. } | Event::Item { token, .. } => {
                self.0.get(token).cloned().unwrap_or_default()
            }
            _ => Cow::Borrowed(""),
        }
    }

    pub fn answered(&mut self, event: &Event) {
        if let Event::Done { token, .. } = event {
            self.0.remove(token);
        }
    }

    pub fn asked(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Call { token, call } => {
                    self.0.insert(*token, call_name(call));
                }
                Effect::Cancel(token) => {
                    self.0.remove(token);
                }
                _ => {}
            }
        }
    }
}

/// `1:02:03.456`
pub fn span_words(span: Span) -> String {
    let (millis, seconds) = (span.millis() % 1_000, span.secs());
    format!("{}:{:02}:{:02}.{millis:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The kind of an event, for counting: its door, and the call that it answers.
pub fn event_kind(event: &Event, call: &str) -> String {
    match event {
        Event::Boot(_) => "Boot".into(),
        Event::Tick => "Tick".into(),
        Event::Done { outcome: Outcome::Same, .. } => format!("{} same", short(call)),
        Event::Done { outcome, .. } if failed(outcome) => format!("{} failed", short(call)),
        Event::Done { .. } => short(call).into(),
        Event::Item { .. } => format!("{} item", short(call)),
        Event::Request(_) => "Request".into(),
        Event::Gone { .. } => "Gone".into(),
        Event::Signal(_) => "Signal".into(),
    }
}

/// The kind of an effect, for counting.
pub fn effect_kind(effect: &Effect) -> String {
    match effect {
        Effect::Call { call, .. } => short(&call_name(call)).into(),
        Effect::Cancel(_) => "Cancel".into(),
        Effect::Reply { .. } => "Reply".into(),
        Effect::SendLog { .. } => "SendLog".into(),
        Effect::EndLog { .. } => "EndLog".into(),
        Effect::Stream { .. } => "Stream".into(),
        Effect::SendFile { .. } => "SendFile".into(),
        Effect::Exit(_) => "Exit".into(),
    }
}

fn failed(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Same => false,
        Outcome::Rpc(result) => result.is_err(),
        Outcome::Disk(result) => result.is_err(),
        Outcome::Kernel(result) => result.is_err(),
        Outcome::Helper(result) => result.is_err(),
        Outcome::Api(Ok(reply)) => !(200..300).contains(&reply.status),
        Outcome::Api(Err(_)) => true,
    }
}

pub fn event_words(event: &Event, call: &str) -> String {
    match event {
        Event::Boot(boot) => {
            let (settings, machine) = (&boot.settings, &boot.machine);
            let memory = machine.memory_bytes >> 20;
            let cpus = machine.cpus;
            format!("Boot of node {}: {cpus} cpus, {memory} MiB", settings.node_name)
        }
        Event::Tick => "Tick".into(),
        Event::Done { token, outcome } => {
            format!("{}#{}: {}", short(call), token.0, outcome_words(outcome, call))
        }
        Event::Item { token, item } => match item {
            Item::Manifest(it) => format!("{}#{} gives {}", short(call), token.0, manifest(it)),
            Item::PathChanged => format!("{}#{}: changed", short(call), token.0),
            Item::Line(line) => format!("{}#{}: {}", short(call), token.0, line_words(line)),
        },
        Event::Request(it) => {
            let query: Vec<_> = it.query.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let mark = if query.is_empty() { "" } else { "?" };
            let id = it.id.0;
            format!("request {id}: {} {}{mark}{}", it.method, it.path, query.join("&"))
        }
        Event::Gone { request } => format!("request {}: client is gone", request.0),
        Event::Signal(Signal::Terminate) => "SIGTERM".into(),
        Event::Signal(Signal::Interrupt) => "SIGINT".into(),
    }
}

fn outcome_words(outcome: &Outcome, call: &str) -> String {
    match outcome {
        Outcome::Same => "same".into(),
        Outcome::Rpc(Ok(body)) => answer_words(call, body)
            .unwrap_or_else(|| format!("{} bytes that do not decode", body.len())),
        Outcome::Rpc(Err(RpcError { code, message })) => format!("{}: {message}", code_name(*code)),
        Outcome::Disk(Ok(reply)) => match reply {
            DiskReply::Manifests(None) => "no such path".into(),
            DiskReply::Manifests(Some(names)) => format!("{} manifests", names.len()),
            DiskReply::Text(text) => format!("{} bytes of text", text.len()),
            DiskReply::Names(names) => format!("{} names", names.len()),
            DiskReply::Pair(None) => "no certificate".into(),
            DiskReply::Pair(Some(pair)) => pair_words(pair),
            DiskReply::Done | DiskReply::PodReady(_) => "done".into(),
        },
        Outcome::Kernel(Ok(KernelReply::Names(names))) => format!("{} names", names.len()),
        Outcome::Kernel(Ok(KernelReply::Text(text))) => format!("{} bytes of text", text.len()),
        Outcome::Helper(Ok(HelperReply::Manifest(it))) => manifest(it),
        Outcome::Helper(Ok(HelperReply::Chains(Chains { ipv4, ipv6 }))) => {
            let words = |it: &Result<Kept, Fault>| match it {
                Ok(kept) => format!("{kept:?}"),
                Err(fault) => fault.message.clone(),
            };
            format!("IPv4 {}, IPv6 {}", words(ipv4), words(ipv6))
        }
        Outcome::Helper(Ok(HelperReply::Pair(pair))) => pair_words(pair),
        Outcome::Helper(Ok(HelperReply::CertificateRequest { digest, .. })) => digest.clone(),
        Outcome::Kernel(Ok(KernelReply::Signals(it))) => {
            let (memory, disk) = (it.memory_available >> 20, it.nodefs_available >> 20);
            format!("{memory} MiB of memory, {disk} MiB of disk left")
        }
        Outcome::Kernel(Ok(KernelReply::Done))
        | Outcome::Helper(Ok(HelperReply::Done | HelperReply::PodReady(_))) => "done".into(),
        Outcome::Disk(Err(fault)) | Outcome::Kernel(Err(fault)) | Outcome::Helper(Err(fault)) => {
            let Fault { kind, message } = fault;
            format!("{kind:?}: {message}")
        }
        Outcome::Api(Ok(reply)) => match said(&reply.body) {
            Some(message) => format!("{} {message}", reply.status),
            None => format!("{}, {} bytes", reply.status, reply.body.len()),
        },
        Outcome::Api(Err(why)) => why.clone(),
    }
}

/// The part of an answer of the API server that fits a line.
#[derive(serde::Deserialize)]
struct Shown {
    kind: Option<String>,
    message: Option<String>,
}

/// The message of a `Status`.
fn said(body: &[u8]) -> Option<String> {
    let shown: Shown = serde_json::from_slice(body).ok()?;
    shown.message.filter(|_| shown.kind.as_deref() == Some("Status"))
}

/// A line of a watch: what happened to which object.
fn line_words(line: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        r#type: String,
        object: Object,
    }
    #[derive(serde::Deserialize)]
    struct Object {
        #[serde(default)]
        metadata: Meta,
        message: Option<String>,
    }
    #[derive(Default, serde::Deserialize)]
    struct Meta {
        #[serde(default)]
        name: String,
    }
    match serde_json::from_slice::<Line>(line) {
        Ok(line) => {
            let what = line.object.message.unwrap_or(line.object.metadata.name);
            format!("{} {what}", line.r#type).trim_end().to_owned()
        }
        Err(_) => format!("{} bytes that are no line of a watch", line.len()),
    }
}

fn manifest(it: &Manifest) -> String {
    match &it.content {
        Ok(content) => {
            let value: serde_json::Value =
                serde_json::from_slice(&content.json).unwrap_or_default();
            let text = |at: &str| value.pointer(at).and_then(|v| v.as_str()).unwrap_or("?");
            format!("{}: {} {}", it.name, text("/kind"), text("/metadata/name"))
        }
        Err(error) if error.line == 0 => format!("{}: {}", it.name, error.message),
        Err(error) => format!("{}:{}: {}", it.name, error.line, error.message),
    }
}

pub fn effect_words(effect: &Effect) -> String {
    match effect {
        Effect::Call { token, call } => {
            let words = call_words(call);
            let space = if words.is_empty() { "" } else { " " };
            format!("{}#{}{space}{words}", short(&call_name(call)), token.0)
        }
        Effect::Cancel(token) => format!("cancel #{}", token.0),
        Effect::Reply { request, reply } => {
            format!("answer {} to request {}", reply.status, request.0)
        }
        Effect::SendLog { request, log } => format!("send {} to request {}", log.path, request.0),
        Effect::EndLog { request } => format!("end the log of request {}", request.0),
        Effect::Stream { request, .. } => format!("stream for request {}", request.0),
        Effect::SendFile { request, root, path } => {
            format!("send {root}/{path} to request {}", request.0)
        }
        Effect::Exit(status) => format!("exit {status}"),
    }
}

fn pair_words(pair: &Pair) -> String {
    let until = Time::from_ns(pair.not_after.0);
    format!("{} until {}", pair.names.common_name, until.as_str())
}

fn call_words(call: &Call) -> String {
    match call {
        Call::Rpc(rpc) => request_words(&rpc.path, &rpc.body)
            .unwrap_or_else(|| format!("{} bytes that do not decode", rpc.body.len())),
        Call::Disk(op) => match op {
            DiskOp::SetUpPod(setup) => setup.pod_dir.clone(),
            DiskOp::PrepareContainer(files) => files.log_dir.clone(),
            DiskOp::Symlink { link, .. } => link.clone(),
            DiskOp::ReadManifests { path }
            | DiskOp::WatchManifests { path }
            | DiskOp::ReadTail { path, .. }
            | DiskOp::List { path } => path.clone(),
            DiskOp::ReadPair { name, .. } | DiskOp::DropKey { name, .. } => name.clone(),
        },
        Call::Kernel(op) => match op {
            KernelOp::SetCgroups(groups) | KernelOp::SetSlices(groups) => match &groups[..] {
                [.., last] => last.path.clone(),
                [] => String::new(),
            },
            KernelOp::RemoveCgroup { path }
            | KernelOp::RemoveSlice { path }
            | KernelOp::ListCgroups { path } => path.clone(),
            KernelOp::SetVerbosity(verbosity) => verbosity.to_string(),
            KernelOp::ReadSignals { .. } | KernelOp::Figures => String::new(),
        },
        Call::Helper(op) => match op {
            HelperOp::SetUpPod(setup) => setup.pod_dir.clone(),
            HelperOp::TearDownPod { pod_dir } => pod_dir.clone(),
            HelperOp::RemoveTree { path } => path.clone(),
            HelperOp::FetchManifest { url, .. } => url.clone(),
            HelperOp::KeepChains { whole } => if *whole { "whole" } else { "" }.into(),
            HelperOp::Keep { set, unset } => {
                let set = set.iter().map(|kept| kept.name.as_str());
                let unset = unset.iter().map(|name| format!("-{name}"));
                set.map(str::to_owned).chain(unset).collect::<Vec<_>>().join(" ")
            }
            HelperOp::RequestPair { name, .. } | HelperOp::StorePair { name, .. } => name.clone(),
            HelperOp::WriteFile { path, .. } => path.clone(),
        },
        Call::Api(call) => call.path.clone(),
    }
}

/// What an answer says, for one line.
fn answer_words(path: &str, bytes: &[u8]) -> Option<String> {
    Some(match short(path) {
        "Version" => {
            let it = VersionResponse::decode(bytes).ok()?;
            format!("{} {}", it.runtime_name, it.runtime_version)
        }
        "Status" => status_words(StatusResponse::decode(bytes).ok()?),
        "ListPodSandbox" => {
            let items = ListPodSandboxResponse::decode(bytes).ok()?.items;
            let ready = items.iter().filter(|s| s.state() == PodSandboxState::SandboxReady).count();
            format!("{} sandboxes, {ready} ready", items.len())
        }
        "ListContainers" => {
            let all = ListContainersResponse::decode(bytes).ok()?.containers;
            let running = |c: &&Container| c.state() == ContainerState::ContainerRunning;
            format!("{} containers, {} running", all.len(), all.iter().filter(running).count())
        }
        "RunPodSandbox" => id(&RunPodSandboxResponse::decode(bytes).ok()?.pod_sandbox_id),
        "CreateContainer" => id(&CreateContainerResponse::decode(bytes).ok()?.container_id),
        "PodSandboxStatus" => {
            sandbox_words(PodSandboxStatusResponse::decode(bytes).ok()?.status.unwrap_or_default())
        }
        "ContainerStatus" => {
            container_words(ContainerStatusResponse::decode(bytes).ok()?.status.unwrap_or_default())
        }
        "ImageStatus" => match ImageStatusResponse::decode(bytes).ok()?.image {
            Some(image) => format!("present, {}", id(&image.id)),
            None => "absent".into(),
        },
        "PullImage" => id(&PullImageResponse::decode(bytes).ok()?.image_ref),
        "ListImages" => {
            format!("{} images", ListImagesResponse::decode(bytes).ok()?.images.len())
        }
        _ => "ok".into(),
    })
}

fn status_words(it: StatusResponse) -> String {
    let conditions = it.status.unwrap_or_default().conditions;
    let words = conditions.iter().map(|c| match (c.status, c.reason.as_str()) {
        (true, _) => c.r#type.clone(),
        (false, "") => format!("not {}", c.r#type),
        (false, reason) => format!("not {}: {reason}", c.r#type),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn sandbox_words(it: PodSandboxStatus) -> String {
    let ready = match it.state() {
        PodSandboxState::SandboxReady => "ready",
        PodSandboxState::SandboxNotready => "not ready",
    };
    let meta = it.metadata.unwrap_or_default();
    let ip = it.network.unwrap_or_default().ip;
    let ip = if ip.is_empty() { ip } else { format!(", {ip}") };
    format!("{}/{} attempt {} {ready}{ip}", meta.namespace, meta.name, meta.attempt)
}

fn container_words(it: ContainerStatus) -> String {
    let state = match it.state() {
        ContainerState::ContainerCreated => "created".into(),
        ContainerState::ContainerRunning => "running".into(),
        ContainerState::ContainerExited => format!("exited {} {}", it.exit_code, it.reason),
        ContainerState::ContainerUnknown => "unknown".into(),
    };
    let meta = it.metadata.unwrap_or_default();
    format!("{} attempt {} {}", meta.name, meta.attempt, state.trim_end())
}

/// What a call asks for, beyond its name; empty when that says it all.
fn request_words(path: &str, bytes: &[u8]) -> Option<String> {
    Some(match short(path) {
        "RunPodSandbox" => {
            let config = RunPodSandboxRequest::decode(bytes).ok()?.config.unwrap_or_default();
            let meta = config.metadata.unwrap_or_default();
            format!("{}/{} attempt {}", meta.namespace, meta.name, meta.attempt)
        }
        "CreateContainer" => {
            let it = CreateContainerRequest::decode(bytes).ok()?;
            let meta = it.config.unwrap_or_default().metadata.unwrap_or_default();
            format!("{} attempt {} in {}", meta.name, meta.attempt, id(&it.pod_sandbox_id))
        }
        "StopContainer" => {
            let it = StopContainerRequest::decode(bytes).ok()?;
            format!("{} grace {}s", id(&it.container_id), it.timeout)
        }
        "StartContainer" => id(&StartContainerRequest::decode(bytes).ok()?.container_id),
        "RemoveContainer" => id(&RemoveContainerRequest::decode(bytes).ok()?.container_id),
        "ContainerStatus" => id(&ContainerStatusRequest::decode(bytes).ok()?.container_id),
        "StopPodSandbox" => id(&StopPodSandboxRequest::decode(bytes).ok()?.pod_sandbox_id),
        "RemovePodSandbox" => id(&RemovePodSandboxRequest::decode(bytes).ok()?.pod_sandbox_id),
        "PodSandboxStatus" => id(&PodSandboxStatusRequest::decode(bytes).ok()?.pod_sandbox_id),
        "PullImage" => PullImageRequest::decode(bytes).ok()?.image.unwrap_or_default().image,
        "ImageStatus" => ImageStatusRequest::decode(bytes).ok()?.image.unwrap_or_default().image,
        _ => String::new(),
    })
}

/// The first characters of an id, as crictl shows it.
fn id(id: &str) -> String {
    let (kind, hex) = id.split_once(':').filter(|(k, _)| *k == "sha256").unwrap_or(("", id));
    let long = hex.len() > 13 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let short = if long { &hex[..13] } else { hex };
    if kind.is_empty() { short.into() } else { format!("{kind}:{short}") }
}

/// The names of gRPC's status codes.
fn code_name(code: i32) -> String {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    let name = usize::try_from(code).ok().and_then(|code| NAMES.get(code));
    name.map_or_else(|| format!("code {code}"), |name| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_read_like_kubernetes() {
        let check = |name, bytes: Vec<u8>, want: &str| {
            assert_eq!(answer_words(name, &bytes).as_deref(), Some(want));
        };
        let condition = |kind: &str, status, reason: &str| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            ..Default::default()
        };
        let status = StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", true, ""),
                    condition("NetworkReady", false, "NetworkPluginNotReady"),
                ],
            }),
            ..Default::default()
        };
        check(
            "Status",
            status.encode_to_vec(),
            "RuntimeReady, not NetworkReady: NetworkPluginNotReady",
        );
        let mut container = ContainerStatus {
            metadata: Some(ContainerMetadata { name: "web".into(), attempt: 2 }),
            exit_code: 137,
            reason: "OOMKilled".into(),
            ..Default::default()
        };
        container.set_state(ContainerState::ContainerExited);
        let answer = ContainerStatusResponse { status: Some(container), ..Default::default() };
        check("ContainerStatus", answer.encode_to_vec(), "web attempt 2 exited 137 OOMKilled");
        let id = "0123456789abcdef0123456789abcdef".into();
        let answer = CreateContainerResponse { container_id: id };
        check("CreateContainer", answer.encode_to_vec(), "0123456789abc");
    }
}
