//! What a transcript is made of: calls of the agent that change something, what happens in the runtime, and answers that
//! are errors. Calls that only look are left out.

use super::api::{renewal, stored_text};
use super::names::Names;
use crate::clock::At;
use crate::doors::api::Stored;
use crate::doors::api::request::Request;
use crate::ledger::{Ask, Ledger};
use crate::setup::NODE;
use crate::trace::{Cause, Fact, Moment, Seen, Streamed, Violation, Witness};
use prost::Message;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_api::cri::UpdateRuntimeConfigRequest;
use steplet_core::effect::{ApiCall, Call, Effect, HelperOp, Reply, Verb};
use steplet_core::event::{Event, HelperReply, Kept, Outcome};
use steplet_core::ids::{RequestId, Token};

#[derive(Debug, Default)]
pub struct Film {
    pub names: Names,
    pub lines: Vec<Line>,
    /// Calls that wait for an answer, as the transcript names them.
    open: BTreeMap<Token, (At, String)>,
    requests: BTreeMap<RequestId, String>,
    /// What the agent asked of the API server: `PATCH pods/status web`.
    pub asked: Vec<Line>,
    /// Of these, what waits for an answer.
    asking: BTreeMap<Token, String>,
    /// When the lease of the node was written last.
    pub renewed: Option<At>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub at: At,
    pub text: String,
    /// What the agent asked for: it follows what the agent says of itself in the same step.
    pub ask: bool,
}

/// The witness that fills a film.
pub struct Camera(pub Rc<RefCell<Film>>);

impl Witness for Camera {
    fn see(&mut self, _: &Ledger, moment: Moment, seen: &Seen<'_>, _: &mut Vec<Violation>) {
        let mut film = self.0.borrow_mut();
        match seen {
            Seen::Started => {
                film.open.clear();
                film.asking.clear();
            }
            Seen::Ended(status) => {
                let text = match status {
                    Some(status) => format!("agent-exit {status}"),
                    None => "agent-killed".into(),
                };
                film.add(moment.at, text);
            }
            Seen::Event(event) => film.event(moment.at, event),
            Seen::Effects(effects) => {
                for (effect, ask) in *effects {
                    film.effect(moment.at, effect, ask.as_ref());
                }
            }
            Seen::Fact(fact) => film.fact(moment.at, fact),
            Seen::Stored(stored) => film.stored(moment.at, stored),
            Seen::Change(_) => {}
        }
    }
}

impl Film {
    pub fn add(&mut self, at: At, text: String) {
        self.lines.push(Line { at, text, ask: false });
    }

    /// Puts names in place of uids that had none when the lines from `from` on were written.
    pub fn name_late(&mut self, from: usize) {
        for line in &mut self.lines[from..] {
            if line.ask {
                let words: Vec<&str> = line.text.split(' ').collect();
                let words = words.iter().map(|word| self.names.known_pod(word).unwrap_or(word));
                line.text = words.collect::<Vec<_>>().join(" ");
            }
        }
    }

    fn event(&mut self, at: At, event: &Event) {
        match event {
            Event::Request(request) => {
                self.requests.insert(request.id, request.path.clone());
            }
            Event::Done { token, outcome: Outcome::Api(answer) } => {
                let Some(text) = self.asking.remove(token) else { return };
                let why = match answer {
                    Ok(reply) if reply.status < 300 => return,
                    Ok(reply) => reply.status.to_string(),
                    // A node without a certificate asks and asks: the scene is about that anyway.
                    Err(why) if why.starts_with("kubelet-client-current.pem: ") => return,
                    Err(why) => why.clone(),
                };
                self.add(at, format!("error {text} {why}"));
            }
            Event::Done { outcome: Outcome::Helper(Ok(HelperReply::Chains(chains))), .. }
                if chains.ipv4 == Ok(Kept::Made) =>
            {
                self.add(at, "chains made".into());
            }
            Event::Done { token, outcome } => {
                let Some((_, call)) = self.open.remove(token) else { return };
                let error = match outcome {
                    Outcome::Rpc(Err(error)) => format!("code={} {}", error.code, error.message),
                    Outcome::Disk(Err(fault))
                    | Outcome::Kernel(Err(fault))
                    | Outcome::Helper(Err(fault)) => fault.message.clone(),
                    _ => return,
                };
                let error = self.names.scrub(&error);
                self.add(at, format!("error {call} {error}"));
            }
            _ => {}
        }
    }

    fn effect(&mut self, at: At, effect: &Effect, ask: Option<&Ask>) {
        match effect {
            Effect::Call { token, call: Call::Api(call) } => self.request(at, *token, call),
            Effect::Call { token, call } => {
                let text = ask.map(|ask| self.ask(ask)).or_else(|| self.chore(call));
                if let Some(text) = text {
                    let call = text.split(' ').take(2).collect::<Vec<_>>().join(" ");
                    self.open.insert(*token, (at, call));
                    self.lines.push(Line { at, text, ask: true });
                }
            }
            Effect::Reply { request, reply } => {
                let path = self.requests.get(request).cloned().unwrap_or_default();
                let text = format!("reply {path} {} {}", reply.status, body(reply));
                self.lines.push(Line { at, text, ask: true });
            }
            Effect::SendLog { log, .. } => {
                let mut text = format!("send-log {}", self.names.scrub(&log.path));
                for (word, set) in [("follow", log.follow), ("timestamps", log.timestamps)] {
                    if set {
                        text = format!("{text} {word}");
                    }
                }
                if let Some(lines) = log.tail_lines {
                    text = format!("{text} tail={lines}");
                }
                self.lines.push(Line { at, text, ask: true });
            }
            Effect::SendFile { root, path, .. } => {
                self.lines.push(Line { at, text: format!("send-file {root}/{path}"), ask: true });
            }
            Effect::EndLog { request } => {
                let path = self.requests.get(request).cloned().unwrap_or_default();
                self.lines.push(Line { at, text: format!("end-log {path}"), ask: true });
            }
            Effect::Stream { request, .. } => {
                let path = self.requests.get(request).cloned().unwrap_or_default();
                self.lines.push(Line { at, text: format!("stream {path}"), ask: true });
            }
            Effect::Cancel(token) => {
                self.asking.remove(token);
                if let Some((_, call)) = self.open.remove(token) {
                    self.lines.push(Line { at, text: format!("cancel {call}"), ask: true });
                }
            }
            Effect::Exit(_) => {}
        }
    }

    fn request(&mut self, at: At, token: Token, call: &ApiCall) {
        let Ok(request) = Request::read(call) else { return };
        let verb = match call.verb {
            Verb::Get if request.name.is_empty() => "LIST".into(),
            verb => format!("{verb:?}").to_uppercase(),
        };
        let subject = request.subject();
        let name = request.name.strip_suffix(NODE).unwrap_or(&request.name).trim_end_matches('-');
        let text = format!("{verb} {subject} {name}").trim_end().to_owned();
        // What is repeated anyway tells nothing when it fails.
        if !["leases", "nodes/status", "events"].contains(&&*subject) {
            self.asking.insert(token, text.clone());
        }
        self.asked.push(Line { at, text, ask: true });
    }

    /// A change in the store of the API server.
    fn stored(&mut self, at: At, stored: &Stored) {
        self.renewed = renewal(stored, at).or(self.renewed);
        let text = |path: &str| {
            stored.object.pointer(path).and_then(|text| text.as_str()).unwrap_or_default()
        };
        let (uid, namespace) = (text("/metadata/uid"), text("/metadata/namespace"));
        let hash = text("/metadata/annotations/kubernetes.io~1config.mirror");
        let name = match (stored.plural, self.names.known_pod(hash)) {
            ("pods", Some(of)) => format!("mirror-of {of}"),
            ("pods", None) => self.names.pod(uid, namespace, text("/metadata/name")),
            _ => text("/metadata/name").to_owned(),
        };
        if let Some(text) = stored_text(stored, &name) {
            self.add(at, text);
        }
    }

    fn ask(&mut self, ask: &Ask) -> String {
        match ask {
            Ask::RunSandbox(config) => {
                let of = config.metadata.clone().unwrap_or_default();
                let pod = self.names.pod(&of.uid, &of.namespace, &of.name);
                format!("RunPodSandbox {pod}#{}", of.attempt)
            }
            Ask::StopSandbox { sandbox } => format!("StopPodSandbox {}", self.names.of(sandbox)),
            Ask::RemoveSandbox { sandbox } => {
                format!("RemovePodSandbox {}", self.names.of(sandbox))
            }
            Ask::Create { config, .. } => {
                let of = config.metadata.clone().unwrap_or_default();
                let uid = config.labels.get(crate::ledger::POD_UID).map_or("", String::as_str);
                let pod = self.names.known_pod(uid).unwrap_or("?");
                let image = config.image.clone().unwrap_or_default().user_specified_image;
                format!("CreateContainer {pod}/{}#{} {image}", of.name, of.attempt)
            }
            Ask::Start { container } => format!("StartContainer {}", self.names.of(container)),
            Ask::Stop { container, timeout } => {
                format!("StopContainer {} timeout={timeout}", self.names.of(container))
            }
            Ask::Remove { container } => format!("RemoveContainer {}", self.names.of(container)),
            Ask::Pull { image } => format!("PullImage {image}"),
            Ask::RemoveCgroup { path } => {
                let uid = path.rsplit_once("/pod").map_or("", |(_, uid)| uid);
                format!("RemoveCgroup {}", self.names.known_pod(uid).unwrap_or(path))
            }
        }
    }

    /// What else takes part in the story: work on the directories of a pod, what the runtime is told.
    fn chore(&self, call: &Call) -> Option<String> {
        if let Call::Rpc(rpc) = call
            && rpc.path.ends_with("/UpdateRuntimeConfig")
        {
            let request = UpdateRuntimeConfigRequest::decode(&*rpc.body).ok()?;
            let network = request.runtime_config?.network_config?;
            return Some(format!("UpdateRuntimeConfig {}", network.pod_cidr));
        }
        let Call::Helper(HelperOp::TearDownPod { pod_dir }) = call else { return None };
        let uid = pod_dir.rsplit('/').next().unwrap_or_default();
        Some(format!("TearDownPod {}", self.names.known_pod(uid).unwrap_or(uid)))
    }

    fn fact(&mut self, at: At, fact: &Fact) {
        match fact {
            Fact::SandboxRan(ran) => {
                let pod = self.names.pod(&ran.uid, &ran.namespace, &ran.pod);
                self.names.sandbox(&ran.sandbox, &pod, ran.attempt);
                self.late(at, "ready", format!("{pod}#{}", ran.attempt), "RunPodSandbox");
            }
            Fact::ContainerCreated(made) => {
                let pod = self.names.pod(&made.uid, &made.namespace, &made.pod);
                self.names.container(&made.container, &pod, &made.name, made.attempt);
                let name = format!("{pod}/{}#{}", made.name, made.attempt);
                self.late(at, "created", name, "CreateContainer");
            }
            Fact::ContainerStarted { container } => {
                self.late(at, "started", self.names.of(container), "StartContainer");
            }
            Fact::ContainerExited { container, exit_code, cause } => {
                let name = self.names.of(container);
                self.add(at, format!("exited {name} code={exit_code} by={}", by(*cause)));
            }
            Fact::ContainerRemoved { container, cause } if *cause == Cause::Fault => {
                self.add(at, format!("lost {}", self.names.of(container)));
            }
            Fact::SandboxStopped { sandbox, cause } if *cause == Cause::Fault => {
                self.add(at, format!("sandbox-died {}", self.names.of(sandbox)));
            }
            Fact::SandboxStopped { .. }
            | Fact::SandboxRemoved { .. }
            | Fact::ContainerRemoved { .. }
            | Fact::ImagePulled { .. } => {}
            Fact::Stream { request, what } => {
                let path = self.requests.get(request).cloned().unwrap_or_default();
                match what {
                    Streamed::Opened => {}
                    Streamed::Refused(status) => {
                        self.add(at, format!("stream-refused {path} {status}"));
                    }
                    Streamed::Ended(by) => {
                        let by = format!("{by:?}").to_lowercase();
                        self.add(at, format!("stream-ended {path} by={by}"));
                    }
                }
            }
        }
    }

    /// What a call led to is told only when it took its time, or nobody waits for it any more.
    fn late(&mut self, at: At, what: &str, name: String, call: &str) {
        let call = format!("{call} {name}");
        let asked = self.open.values().find(|(_, open)| *open == call);
        if asked.is_none_or(|(asked, _)| *asked != at) {
            self.add(at, format!("{what} {name}"));
        }
    }
}

fn by(cause: Cause) -> &'static str {
    match cause {
        Cause::Itself => "itself",
        Cause::Stop => "StopContainer",
        Cause::SandboxStop => "StopPodSandbox",
        Cause::Cgroup => "RemoveCgroup",
        Cause::Remove => "RemoveContainer",
        Cause::Fault => "fault",
    }
}

/// A short text as it is, of anything else the size.
fn body(reply: &Reply) -> String {
    let text = String::from_utf8_lossy(&reply.body);
    match reply.content_type.starts_with("text/plain") && text.len() < 120 {
        true => format!("{:?}", text.trim_end()),
        false if reply.content_type.contains("json") => {
            let value: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            let count = value.get("items").and_then(|items| items.as_array()).map(Vec::len);
            count.map_or("JSON".into(), |count| format!("{count} pods"))
        }
        false => "text".into(),
    }
}
