//! The Node of this machine: registered, followed, and told how the machine is.
//!
//! Upstream: pkg/kubelet/kubelet_node_status.go (v1.36).
//! Owns: the Node as the API server last had it. Publishes: `facts.node`. Hears: Booted, NodeLookWanted.
//! Says: NodeKnown, NodeLooked, Said.
//! Asks: POST, GET, PATCH and the watch of the Node; the runtime's images; what the machine has left.
//! Never: writes what has not changed before a report is due; a deleted Node is registered anew, and that is said.

use super::node_status::{StatusInput, node_status, own_labels, same_but_for_heartbeats, turned};
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, KernelOp, Lane, Signals, Verb};
use crate::event::{Item, KernelReply, Outcome};
use crate::managers::api::reflector::{Change, Reflector};
use crate::managers::api::{Refusal, judged};
use crate::managers::cri;
use crate::note::{Note, Said};
use crate::rng::Rng;
use crate::settings::ApiSettings;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steplet_api::cluster::{
    ContainerImage, NODE_STATUS_KEYS, Node, NodeStatus, Taint, merge_patch,
};
use steplet_api::{cri as runtime, json};

const NODES: &str = "/api/v1/nodes";
/// Between attempts to register, doubled up to the most.
const REST: Span = Span::from_millis(100);
const REST_MOST: Span = Span::from_secs(7);
/// After the start the status is looked at this often, until the node is ready or so much time has passed.
const FAST: Span = Span::from_millis(100);
const FAST_FOR: Span = Span::from_secs(120);
/// The runtime's images are listed again after so long, or after a pull.
const IMAGES_EVERY: Span = Span::from_secs(300);
/// How long the first status waits for them.
const IMAGES_FOR: Span = Span::from_secs(2);
const NAMES_MOST: usize = 5;
const TRIES: u32 = 5;
const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeObject {
    rng: Rng,
    booted: Mono,
    stage: Stage,
    rest: Option<Span>,
    reflector: Reflector,
    /// When the status is computed next.
    next: Mono,
    /// When it is written although nothing changed.
    report_at: Mono,
    tries: u32,
    told_ready: bool,
    told_reboot: bool,
    /// Events said of the last write, which may be tried again.
    told: Vec<Box<str>>,
    images: Vec<ContainerImage>,
    images_at: Option<Mono>,
    /// They were listed, or cannot be.
    images_known: bool,
    pulls: u64,
    problem: Option<String>,
    /// Where the runtime keeps its images, as it said.
    imagefs: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Stage {
    /// No API server, or before the machine was looked at.
    #[default]
    Off,
    /// An answer about its registration is waited for.
    Registering,
    Resting(Mono),
    /// The Node is there.
    Standing,
    /// And a change of it is under way.
    Patching {
        ready: bool,
        changed: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Register,
    Look,
    /// Once more, since a pod wants labels that it does not have.
    LookAgain,
    Reconcile,
    Patch,
    Follow,
    Images,
    ImageFs,
    Signals,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    node: Option<Arc<Node>>,
    signals: Option<Signals>,
}

impl NodeFacts {
    /// As the API server last had it; None before it is registered.
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    /// For the tables of tests.
    #[cfg(test)]
    pub(super) fn look(&mut self, signals: Signals) {
        self.signals = Some(signals);
    }

    /// What the machine had left when it was last looked at; None before that.
    pub fn signals(&self) -> Option<&Signals> {
        self.signals.as_ref()
    }
}

impl NodeObject {
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>, rng: Rng) {
        self.rng = rng;
        self.booted = cx.now.mono;
        let settings = cx.facts.settings();
        if settings.api.is_none() {
            // How much the disk holds counts for admission all the same.
            return self.read_signals(cx);
        }
        let name = settings.node_name.clone();
        self.reflector = Reflector::of(NODES, "metadata.name", &name, self.rng.child(1));
        said(cx, false, "Starting", "Starting kubelet.".into());
        self.look_at_machine(cx);
    }

    /// The runtime has said what it is.
    pub(crate) fn on_runtime_named(&mut self, cx: &mut Cx<'_>) {
        if cx.facts.settings().api.is_some() {
            self.list_images(cx);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let own = match self.stage {
            Stage::Off | Stage::Registering | Stage::Patching { .. } => None,
            Stage::Resting(until) => Some(until),
            Stage::Standing => Some(self.next),
        };
        own.into_iter().chain(self.reflector.deadline()).min()
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.reflector.on_api_back(cx);
        if let Stage::Resting(until) = &mut self.stage {
            *until = (*until).min(cx.now.mono + REST);
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.reflector.on_tick(cx, Ask::Follow);
        match self.stage {
            Stage::Resting(until) if until <= cx.now.mono => self.register(cx),
            Stage::Standing if self.next <= cx.now.mono => {
                self.tries = 0;
                self.look_at_machine(cx);
                self.report(cx);
            }
            _ => {}
        }
    }

    pub(crate) fn on_item(&mut self, cx: &mut Cx<'_>, ask: Ask, item: Item) {
        let (Ask::Follow, Item::Line(line)) = (ask, item) else { return };
        match self.reflector.on_line::<Node>(cx, &line) {
            Some(Change::Set(node)) => self.know(cx, node),
            Some(Change::Gone(_)) => self.lost(cx),
            Some(Change::Unreadable(it)) => self.complain(&format!("cannot be read: {}", it.1)),
            None => {}
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        match ask {
            Ask::Signals => {
                if let Outcome::Kernel(Ok(KernelReply::Signals(signals))) = outcome {
                    cx.facts.node.signals = Some(signals);
                }
                if self.stage == Stage::Off && cx.facts.settings().api.is_some() {
                    self.register(cx);
                }
            }
            Ask::Images => {
                if let Ok(list) = cri::answer::<runtime::ListImagesResponse>(outcome) {
                    let api = cx.facts.settings().api.as_ref();
                    self.images = images(list, api.map_or(0, |api| api.max_images));
                }
                self.images_known = true;
                // The first status that says Ready names them.
                if self.stage == Stage::Standing && !self.told_ready {
                    self.report(cx);
                }
            }
            Ask::ImageFs => {
                if let Ok(info) = cri::answer::<runtime::ImageFsInfoResponse>(outcome) {
                    let first = info.image_filesystems.into_iter().next();
                    let place = first.and_then(|usage| usage.fs_id).unwrap_or_default().mountpoint;
                    if place != self.imagefs {
                        self.imagefs = place;
                        self.read_signals(cx);
                    }
                }
            }
            Ask::Follow => {
                if let Some(listed) = self.reflector.on_done::<Node>(cx, Ask::Follow, outcome) {
                    match listed.items.into_iter().next() {
                        Some(node) => self.know(cx, node),
                        None if listed.unreadable.is_empty() => self.lost(cx),
                        None => {}
                    }
                }
            }
            Ask::LookAgain => {
                if let Ok(body) = judged(outcome)
                    && let Ok(node) = json::from_slice::<Node>(&body)
                {
                    self.know(cx, node);
                }
                cx.say(Note::NodeLooked);
            }
            Ask::Register | Ask::Look | Ask::Reconcile | Ask::Patch => {
                let read = judged(outcome).and_then(|body| {
                    let object = json::from_slice::<Node>(&body);
                    object.map_err(|message| Refusal { message, ..Refusal::default() })
                });
                self.answered(cx, ask, read);
            }
        }
    }

    fn answered(&mut self, cx: &mut Cx<'_>, ask: Ask, read: Result<Node, Refusal>) {
        match (ask, read) {
            (Ask::Register, Ok(node)) => {
                log::info!("Registered as node {}", node.metadata.name);
                self.stand(cx, node);
            }
            // There already, or perhaps so: upstream looks in both cases.
            (Ask::Register, Err(refusal)) if matches!(refusal.status, 403 | 409) => self.look(cx),
            (Ask::Look, Ok(node)) => self.reconcile(cx, node),
            (Ask::Reconcile, Ok(node)) => self.stand(cx, node),
            (Ask::Patch, Ok(node)) => self.patched(cx, node),
            (Ask::Patch, Err(refusal)) if refusal.is_not_found() => self.lost(cx),
            // The Node was deleted meanwhile, and is being registered.
            (Ask::Patch, Err(_)) if !matches!(self.stage, Stage::Patching { .. }) => {}
            (Ask::Patch, Err(refusal)) => {
                self.complain(&refusal.message);
                self.stage = Stage::Standing;
                self.tries += 1;
                if self.tries < TRIES && !refusal.is_silence() && refusal.retry_after.is_none() {
                    self.report(cx);
                }
            }
            (_, Err(refusal)) => {
                self.complain(&refusal.message);
                let rest = self.rest.map_or(REST, |rest| rest.times(2).min(REST_MOST));
                self.rest = Some(rest);
                let rest = refusal.retry_after.unwrap_or(rest);
                self.stage = Stage::Resting(cx.now.mono + rest);
            }
            (_, Ok(_)) => {}
        }
    }

    /// What the runtime has, and what the machine has left.
    fn look_at_machine(&mut self, cx: &mut Cx<'_>) {
        self.read_signals(cx);
        self.list_images(cx);
    }

    fn read_signals(&self, cx: &mut Cx<'_>) {
        let root_dir = cx.facts.settings().root_dir.clone();
        let imagefs = self.imagefs.clone();
        cx.call(Ask::Signals, Call::Kernel(KernelOp::ReadSignals { root_dir, imagefs }));
    }

    fn list_images(&mut self, cx: &mut Cx<'_>) {
        let pulls = cx.facts.pulls.pulled();
        let stale = self.images_at.is_none_or(|at| cx.now.mono.since(at) >= IMAGES_EVERY);
        let answers = !cx.facts.runtime_status.name().is_empty();
        if answers && (stale || pulls != self.pulls) {
            (self.images_at, self.pulls) = (Some(cx.now.mono), pulls);
            let within = cx.facts.settings().runtime_request_timeout;
            let request = runtime::ListImagesRequest::default();
            cx.call(Ask::Images, cri::image_call(cri::LIST_IMAGES, &request, Some(within)));
            // Where they lie changes, if ever, when the runtime is set up anew.
            if stale {
                let request = runtime::ImageFsInfoRequest {};
                cx.call(Ask::ImageFs, cri::image_call(cri::IMAGE_FS_INFO, &request, Some(within)));
            }
        }
    }

    /// Before the Node is registered it is waited for.
    pub(crate) fn on_look_wanted(&mut self, cx: &mut Cx<'_>) {
        if cx.facts.node.node.is_some() {
            let path = path(cx, "");
            self.ask(cx, Ask::LookAgain, Verb::Get, path, Bytes::new());
        }
    }

    fn register(&mut self, cx: &mut Cx<'_>) {
        let Some(api) = cx.facts.settings().api.clone() else { return };
        if !api.register {
            return self.look(cx);
        }
        let mut node = self.wanted(cx, &api, Node::default());
        node.spec.provider_id = api.provider_id.as_str().into();
        node.spec.taints = taints(&api);
        self.tell(cx, &NodeStatus::default(), &node.status);
        self.stage = Stage::Registering;
        let body = json::to_vec(&node).into();
        self.ask(cx, Ask::Register, Verb::Post, NODES.into(), body);
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Registering;
        let path = path(cx, "");
        self.ask(cx, Ask::Look, Verb::Get, path, Bytes::new());
    }

    /// Brings what a kubelet puts on its Node to one that was there before.
    fn reconcile(&mut self, cx: &mut Cx<'_>, found: Node) {
        let Some(api) = cx.facts.settings().api.clone() else { return };
        let boot_id = cx.facts.machine().boot_id.clone();
        let before = &found.status.node_info.boot_id;
        if !before.is_empty() && **before != *boot_id && !self.told_reboot {
            self.told_reboot = true;
            let name = &cx.facts.settings().node_name;
            let text = format!("Node {name} has been rebooted, boot id: {boot_id}");
            said(cx, true, "Rebooted", text);
        }
        if !api.register {
            return self.stand(cx, found);
        }
        let new = self.wanted(cx, &api, found.clone());
        self.tell(cx, &found.status, &new.status);
        let patch = merge_patch(&json!(shown(&found)), &json!(shown(&new)), NODE_STATUS_KEYS);
        match patch {
            None => self.stand(cx, found),
            Some(patch) => {
                let path = path(cx, "/status");
                let body = json::to_vec(&patch).into();
                self.ask(cx, Ask::Reconcile, Verb::Patch, path, body);
            }
        }
    }

    /// The Node as it should be, made of the one that is there.
    fn wanted(&self, cx: &Cx<'_>, api: &ApiSettings, mut node: Node) -> Node {
        let settings = cx.facts.settings();
        let name = settings.node_name.as_str();
        (node.api_version, node.kind) = ("v1".into(), "Node".into());
        node.metadata.name = name.into();
        node.metadata.labels.extend(own_labels(cx.facts));
        let annotations = &mut node.metadata.annotations;
        annotations.insert(CONTROLLER_ATTACHES.into(), "true".into());
        if api.external_cloud && !api.node_ip.is_empty() {
            let provided = "alpha.kubernetes.io/provided-node-ip";
            annotations.insert(provided.into(), api.node_ip.as_str().into());
        }
        node.status = node_status(&self.input(cx, api), &node.status);
        node
    }

    fn input<'a>(&'a self, cx: &'a Cx<'_>, api: &'a ApiSettings) -> StatusInput<'a> {
        StatusInput { facts: cx.facts, api, images: &self.images, now: cx.now }
    }

    /// It is registered.
    fn stand(&mut self, cx: &mut Cx<'_>, node: Node) {
        (self.rest, self.problem) = (None, None);
        self.stage = Stage::Standing;
        self.next = cx.now.mono;
        self.report_at = cx.now.mono;
        self.know(cx, node);
        self.reflector.start(cx, Ask::Follow);
    }

    fn know(&mut self, cx: &mut Cx<'_>, node: Node) {
        if matches!(self.stage, Stage::Off | Stage::Registering | Stage::Resting(_)) {
            return;
        }
        let known = cx.facts.node.node.as_ref();
        // A watch may be behind the answer to a patch.
        let version =
            |node: &Node| node.metadata.resource_version.parse::<u64>().unwrap_or(u64::MAX);
        if known.is_some_and(|known| version(known) > version(&node)) {
            return;
        }
        let new = known.is_none_or(|known| known.metadata.uid != node.metadata.uid);
        cx.facts.node.node = Some(Arc::new(node));
        if new {
            cx.say(Note::NodeKnown);
            cx.say(Note::NodeLooked);
        }
    }

    /// Somebody deleted it.
    fn lost(&mut self, cx: &mut Cx<'_>) {
        if !matches!(self.stage, Stage::Standing | Stage::Patching { .. }) {
            return;
        }
        cx.facts.node.node = None;
        let name = &cx.facts.settings().node_name;
        let registers = cx.facts.settings().api.as_ref().is_some_and(|api| api.register);
        let next = if registers {
            "it is registered anew"
        } else {
            "registerNode is false, so it is waited for"
        };
        log::error!("The Node {name} was deleted under this agent: {next}; pods run on");
        self.stage = Stage::Resting(cx.now.mono + REST);
    }

    /// Writes the status, if it says something new or was not written for long.
    fn report(&mut self, cx: &mut Cx<'_>) {
        let Some(api) = cx.facts.settings().api.clone() else { return };
        let Some(node) = cx.facts.node.node.clone() else { return };
        self.next = cx.now.mono + self.rng.jitter(api.status_update, 4);
        // Who is refused is not heard sooner by asking on.
        let fast =
            !self.told_ready && self.problem.is_none() && cx.now.mono.since(self.booted) < FAST_FOR;
        if fast {
            self.next = self.next.min(cx.now.mono + FAST);
        }
        let old = &node.status;
        let new = node_status(&self.input(cx, &api), old);
        let changed = !same_but_for_heartbeats(old, &new);
        let due = self.report_at <= cx.now.mono;
        // On the fast path it is worth a request when the node becomes ready, not each time.
        let ready = new.conditions.iter().any(|c| &*c.type_ == "Ready" && &*c.status == "True");
        let patient = ready && !self.images_known && cx.now.mono.since(self.booted) < IMAGES_FOR;
        if !(changed || due) || (fast && !ready && !due) || patient {
            self.told_ready |= ready && !patient;
            return;
        }
        let (before, after) = (json!({ "status": old }), json!({ "status": new }));
        let Some(patch) = merge_patch(&before, &after, NODE_STATUS_KEYS) else { return };
        self.tell(cx, old, &new);
        self.stage = Stage::Patching { ready, changed };
        let path = path(cx, "/status");
        self.ask(cx, Ask::Patch, Verb::Patch, path, json::to_vec(&patch).into());
    }

    /// Events for the conditions that turned, each once however often it has to be written.
    fn tell(&mut self, cx: &mut Cx<'_>, old: &NodeStatus, new: &NodeStatus) {
        let turned = turned(old, new);
        let name = cx.facts.settings().node_name.clone();
        let told: Vec<Box<str>> = turned.iter().map(|reason| (*reason).into()).collect();
        if self.told == told {
            return;
        }
        for reason in turned {
            said(cx, false, reason, format!("Node {name} status is now: {reason}"));
        }
        self.told = told;
    }

    fn patched(&mut self, cx: &mut Cx<'_>, node: Node) {
        let Some(api) = cx.facts.settings().api.as_ref() else { return };
        let Stage::Patching { ready, changed } = self.stage else { return };
        self.stage = Stage::Standing;
        self.problem = None;
        self.told.clear();
        self.told_ready |= ready;
        // After a change the next report comes at a time of its own, so that not all nodes report at once.
        let report = api.status_report;
        let spread = self.rng.below(report.0);
        let wait = if changed { Span((report.0 / 2).saturating_add(spread)) } else { report };
        self.report_at = cx.now.mono + wait;
        self.know(cx, node);
    }

    fn ask(&mut self, cx: &mut Cx<'_>, ask: Ask, verb: Verb, path: String, body: Bytes) {
        let api = cx.facts.settings().api.as_ref();
        let within = api.map_or(Span::from_secs(10), |api| {
            api.status_update.min(Span::from_secs(api.lease_seconds.into()))
        });
        let within = within.max(Span::from_secs(1));
        let lane = Lane::Heartbeat;
        cx.call(
            ask,
            Call::Api(ApiCall { verb, path, body, within, lane, seals: false, secret: None }),
        );
    }

    fn complain(&mut self, why: &str) {
        if self.problem.as_deref() != Some(why) {
            log::warn!("The Node cannot be kept up to date: {why}");
            self.problem = Some(why.into());
        }
    }
}

fn path(cx: &Cx<'_>, sub: &str) -> String {
    format!("{NODES}/{}{sub}", cx.facts.settings().node_name)
}

/// What a patch may change.
fn shown(node: &Node) -> Node {
    let mut shown = Node { status: node.status.clone(), ..Node::default() };
    shown.metadata.labels = node.metadata.labels.clone();
    shown.metadata.annotations = node.metadata.annotations.clone();
    shown
}

fn taints(api: &ApiSettings) -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.into(),
        value: value.into(),
        effect: effect.into(),
        ..Taint::default()
    };
    let asked = api.taints.iter().map(|(key, value, effect)| taint(key, value, effect));
    let cloud = taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule");
    asked.chain(api.external_cloud.then_some(cloud)).collect()
}

/// The largest first, digests before tags.
fn images(list: runtime::ListImagesResponse, most: i32) -> Vec<ContainerImage> {
    let all = list.images.into_iter().map(|image| {
        let names = image.repo_digests.into_iter().chain(image.repo_tags).take(NAMES_MOST);
        ContainerImage {
            names: names.map(String::into_boxed_str).collect(),
            size_bytes: i64::try_from(image.size).unwrap_or(i64::MAX),
        }
    });
    let mut all: Vec<ContainerImage> = all.collect();
    let names = |image: &ContainerImage| -> Vec<Box<str>> { image.names.clone() };
    all.sort_by(|a, b| (b.size_bytes, names(a)).cmp(&(a.size_bytes, names(b))));
    if let Ok(most) = usize::try_from(most) {
        all.truncate(most);
    }
    all
}

fn said(cx: &mut Cx<'_>, warning: bool, reason: &'static str, message: String) {
    let (uid, field) = (None, String::new());
    cx.say(Note::Said(Said { uid, field, warning, reason: reason.into(), message }.into()));
}
