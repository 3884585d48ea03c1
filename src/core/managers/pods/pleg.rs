//! Pod lifecycle event generator: lists what the runtime has each second and looks closer at pods that differ.
//!
//! Upstream: pkg/kubelet/pleg/generic.go (v1.36).
//! Owns: the rows of the last relist, the inspections under way.
//! Publishes: `facts.pleg`: a view of each pod, how long ago the last relist succeeded.
//! Hears: Booted, RuntimeNote (what our own calls changed). Says: Inspected, RuntimeBack.
//! Asks: ListPodSandbox, ListContainers, PodSandboxStatus, ContainerStatus, the termination message.
//! Never: lets an answer that was asked for earlier overwrite what was learned later. Freshness is a counter
//! of asks, never a clock (k/k#134153).

use super::view::{ContainerState, ContainerView, PodView, SandboxView};
use crate::cx::Cx;
use crate::effect::{Call, DiskOp};
use crate::event::{DiskReply, Outcome, RpcError};
use crate::facts::Facts;
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::limits::{MESSAGE_BYTES_MAX, PLEG_UNHEALTHY_AFTER};
use crate::managers::cri::{self, answer};
use crate::managers::metrics::{DEFAULT, Histogram};
use crate::note::{Note, PodNote, RuntimeNote};
use crate::planted::planted;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cri as api;
use steplet_api::pod_facts::annotation;

/// How often the runtime's lists are asked for.
const PERIOD: Span = Span::from_secs(1);
/// A termination message of a container that fell back to its log: 80 lines, 2048 bytes
/// (pkg/kubelet/container/runtime.go).
const LOG_TAIL_LINES: u32 = 80;
const LOG_TAIL_BYTES: u32 = 2_048;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pleg {
    /// When the next relist starts; None before Boot and while one is under way.
    next: Option<Mono>,
    relist: Option<Relist>,
    /// Counts asks and learnings: what was asked at a lower count knows less.
    count: u64,
    inspecting: BTreeMap<PodUid, Inspection>,
    /// Pods to look at again when the present inspection has ended.
    again: BTreeSet<PodUid>,
    /// Pods whose inspection failed: tried again with the next relist.
    failed: BTreeSet<PodUid>,
    /// Removed by us: a list asked for before that may still show them.
    gone: BTreeMap<Box<str>, u64>,
    /// A list showed something older than we knew: take the next one whole.
    take_whole: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Relist {
    started: Mono,
    count: u64,
    open: u8,
    failed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Inspection {
    open: u32,
    failed: bool,
    name: Box<str>,
    namespace: Box<str>,
    sandboxes: Vec<SandboxView>,
    containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Sandboxes { count: u64 },
    Containers { count: u64 },
    Sandbox { uid: PodUid, id: SandboxId },
    Container { uid: PodUid, id: ContainerId },
    TerminationLog { uid: PodUid, id: ContainerId, fallback: Option<String> },
    LogTail { uid: PodUid, id: ContainerId },
}

/// One line of the last lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row<S> {
    uid: PodUid,
    state: S,
    /// The sandbox that a container is in.
    within: SandboxId,
    /// The count at which this was learned.
    as_of: u64,
    /// The last list that showed it: older ones may not.
    seen: bool,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlegFacts {
    sandboxes: BTreeMap<SandboxId, Row<bool>>,
    containers: BTreeMap<ContainerId, Row<ContainerState>>,
    views: BTreeMap<PodUid, PodView>,
    /// Pods of which a row is newer than the view.
    stale: BTreeSet<PodUid>,
    /// Name and namespace of pods that a list showed and that have no view yet.
    strangers: BTreeMap<PodUid, (Box<str>, Box<str>)>,
    relists: u64,
    reachable: bool,
    last_good: Option<Mono>,
    durations: Histogram,
    intervals: Histogram,
    last_start: Option<Mono>,
}

impl PlegFacts {
    /// What is known of a pod; None when the runtime has nothing of it.
    pub fn view(&self, uid: &PodUid) -> Option<&PodView> {
        self.views.get(uid)
    }

    pub fn views(&self) -> &BTreeMap<PodUid, PodView> {
        &self.views
    }

    /// Whether the view of this pod is what the runtime last showed: nothing may be planned on an older one.
    pub fn fresh(&self, uid: &PodUid) -> bool {
        self.relists > 0 && !self.stale.contains(uid)
    }

    /// Pods with a sandbox that was ready in the last list, looked at or not.
    pub fn ready(&self) -> BTreeSet<&PodUid> {
        self.sandboxes.values().filter(|row| row.state).map(|row| &row.uid).collect()
    }

    /// Pods of this name that a list showed and that were not looked at yet.
    pub fn strangers_of<'a>(
        &'a self,
        name: &'a str,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a PodUid> {
        let same = move |known: &(Box<str>, Box<str>)| *known.0 == *name && *known.1 == *namespace;
        self.strangers.iter().filter(move |(_, known)| same(known)).map(|(uid, _)| uid)
    }

    /// Remembers the names of pods that are about to be looked at for the first time.
    fn meet<'a>(
        &mut self,
        changed: &BTreeSet<PodUid>,
        all_labels: impl Iterator<Item = &'a BTreeMap<String, String>>,
    ) {
        for labels in all_labels {
            let Some(uid) = uid_of(labels).filter(|uid| changed.contains(uid)) else { continue };
            if !self.views.contains_key(&uid) {
                self.strangers.entry(uid).or_insert_with(|| named(labels));
            }
        }
    }

    /// Whether the runtime answered the last relist.
    pub fn reachable(&self) -> bool {
        self.reachable
    }

    pub fn relists(&self) -> u64 {
        self.relists
    }

    pub fn last_good(&self) -> Option<Mono> {
        self.last_good
    }

    /// Of relists, in `metrics::DEFAULT` buckets.
    pub fn durations(&self) -> &Histogram {
        &self.durations
    }

    pub fn intervals(&self) -> &Histogram {
        &self.intervals
    }

    /// The relist succeeded within the last three minutes.
    pub fn healthy(&self, now: Mono) -> bool {
        self.last_good.is_some_and(|at| now.since(at) <= PLEG_UNHEALTHY_AFTER)
    }
}

impl Pleg {
    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &RuntimeNote) {
        self.count += 1;
        let as_of = self.count;
        let facts = &mut cx.facts.pleg;
        let uid = match note {
            RuntimeNote::SandboxMade { uid, id } => {
                let within = SandboxId::default();
                let row = Row { uid: uid.clone(), state: true, within, as_of, seen: true };
                facts.sandboxes.insert(id.clone(), row);
                uid
            }
            RuntimeNote::ContainerMade { uid, id, sandbox, .. } => {
                let (state, within) = (ContainerState::Created, sandbox.clone());
                let row = Row { uid: uid.clone(), state, within, as_of, seen: true };
                facts.containers.insert(id.clone(), row);
                uid
            }
            RuntimeNote::ContainerStarted { uid, id } => {
                if let Some(row) = facts.containers.get_mut(id) {
                    (row.as_of, row.state) = (as_of, ContainerState::Running);
                }
                uid
            }
            RuntimeNote::ContainerStopped { uid, id } => {
                if let Some(row) = facts.containers.get_mut(id) {
                    (row.as_of, row.state) = (as_of, ContainerState::Exited);
                }
                uid
            }
            RuntimeNote::SandboxStopped { uid, id } => {
                if let Some(row) = facts.sandboxes.get_mut(id) {
                    (row.as_of, row.state) = (as_of, false);
                }
                uid
            }
            RuntimeNote::ContainerRemoved { uid, id } => {
                facts.containers.remove(id);
                self.gone.insert(id.0.clone(), as_of);
                uid
            }
            RuntimeNote::SandboxRemoved { uid, id } => {
                facts.sandboxes.remove(id);
                self.gone.insert(id.0.clone(), as_of);
                uid
            }
        };
        self.inspect(cx, uid);
    }

    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>) {
        self.next = Some(cx.now.mono);
        self.on_tick(cx);
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_none_or(|at| at > cx.now.mono) {
            return;
        }
        self.next = None;
        let facts = &mut cx.facts.pleg;
        if let Some(last) = facts.last_start.replace(cx.now.mono) {
            facts.intervals.observe(DEFAULT, cx.now.mono.since(last));
        }
        self.count += 1;
        let count = self.count;
        self.relist = Some(Relist { started: cx.now.mono, count, open: 2, failed: false });
        let within = cx.facts.settings().runtime_request_timeout;
        let same = !core::mem::take(&mut self.take_whole);
        let body = api::ListPodSandboxRequest::default();
        cx.call(Ask::Sandboxes { count }, cri::list(cri::LIST_POD_SANDBOX, &body, within, same));
        let body = api::ListContainersRequest::default();
        cx.call(Ask::Containers { count }, cri::list(cri::LIST_CONTAINERS, &body, within, same));
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        match then {
            Ask::Sandboxes { count } => {
                let ok = self.on_sandboxes(cx, count, outcome);
                self.list_done(cx, ok);
            }
            Ask::Containers { count } => {
                let ok = self.on_containers(cx, count, outcome);
                self.list_done(cx, ok);
            }
            Ask::Sandbox { uid, id } => {
                let status = answer::<api::PodSandboxStatusResponse>(outcome);
                self.on_sandbox(cx, uid, &id, status);
            }
            Ask::Container { uid, id } => {
                let status = answer::<api::ContainerStatusResponse>(outcome);
                self.on_container(cx, uid, &id, status);
            }
            Ask::TerminationLog { uid, id, fallback } => {
                let text = tail(outcome);
                match fallback {
                    Some(path) if text.is_empty() => {
                        let op = DiskOp::ReadTail {
                            within: cx.facts.settings().pod_logs_dir.clone(),
                            path,
                            most: LOG_TAIL_BYTES,
                            lines: Some(LOG_TAIL_LINES),
                            cri_log: true,
                        };
                        cx.call(Ask::LogTail { uid, id }, Call::Disk(op));
                    }
                    _ => self.on_message(cx, uid, &id, text),
                }
            }
            Ask::LogTail { uid, id } => self.on_message(cx, uid, &id, tail(outcome)),
        }
    }

    fn list_done(&mut self, cx: &mut Cx<'_>, ok: bool) {
        let Some(relist) = &mut self.relist else { return };
        relist.open -= 1;
        relist.failed |= !ok;
        if relist.open > 0 {
            return;
        }
        let (started, count, failed) = (relist.started, relist.count, relist.failed);
        self.relist = None;
        // A relist that took longer than the period is followed at once, but not in a loop.
        self.next = Some(Mono((started + PERIOD).0.max(cx.now.mono.0 + PERIOD.0 / 10)));
        if failed {
            self.take_whole = true;
            cx.facts.pleg.reachable = false;
            return;
        }
        self.gone.retain(|_, as_of| *as_of > count);
        let facts = &mut cx.facts.pleg;
        facts.relists += 1;
        facts.last_good = Some(cx.now.mono);
        facts.durations.observe(DEFAULT, cx.now.mono.since(started));
        for uid in core::mem::take(&mut self.failed) {
            self.inspect(cx, &uid);
        }
        if !core::mem::replace(&mut cx.facts.pleg.reachable, true) {
            cx.say(Note::Pod(PodNote::RuntimeBack));
        }
    }

    fn on_sandboxes(&mut self, cx: &mut Cx<'_>, count: u64, outcome: Outcome) -> bool {
        if outcome == Outcome::Same {
            return true;
        }
        let Ok(list) = answer::<api::ListPodSandboxResponse>(outcome) else { return false };
        let shown = list.items.iter().filter_map(|s| {
            let uid = uid_of(&s.labels)?;
            let ready = s.state == api::PodSandboxState::SandboxReady as i32;
            Some(Shown {
                id: SandboxId::from(s.id.as_str()),
                uid,
                state: ready,
                within: SandboxId::default(),
            })
        });
        let rows = &mut cx.facts.pleg.sandboxes;
        let changed = merge(rows, shown, count, &self.gone, &mut self.take_whole);
        cx.facts.pleg.meet(&changed, list.items.iter().map(|s| &s.labels));
        self.inspect_all(cx, changed);
        true
    }

    fn on_containers(&mut self, cx: &mut Cx<'_>, count: u64, outcome: Outcome) -> bool {
        if outcome == Outcome::Same {
            return true;
        }
        let Ok(list) = answer::<api::ListContainersResponse>(outcome) else { return false };
        let shown = list.containers.iter().filter_map(|c| {
            let uid = uid_of(&c.labels)?;
            let within = SandboxId::from(c.pod_sandbox_id.as_str());
            Some(Shown {
                id: ContainerId::from(c.id.as_str()),
                uid,
                state: state_of(c.state),
                within,
            })
        });
        let rows = &mut cx.facts.pleg.containers;
        let mut changed = merge(rows, shown, count, &self.gone, &mut self.take_whole);
        if planted(1) {
            changed.clear();
        }
        cx.facts.pleg.meet(&changed, list.containers.iter().map(|c| &c.labels));
        self.inspect_all(cx, changed);
        true
    }

    fn inspect_all(&mut self, cx: &mut Cx<'_>, uids: BTreeSet<PodUid>) {
        for uid in uids {
            self.inspect(cx, &uid);
        }
    }

    /// Asks for the status of everything of a pod that differs from its view. One inspection a pod at a time:
    /// a container that hangs holds up its own pod only (k/k#94829).
    fn inspect(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        cx.facts.pleg.stale.insert(uid.clone());
        if self.inspecting.contains_key(uid) {
            self.again.insert(uid.clone());
            return;
        }
        let within = cx.facts.settings().runtime_request_timeout;
        let facts = &cx.facts.pleg;
        let view = facts.views.get(uid);
        let mut now = Inspection::default();
        let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
        for (id, row) in facts.sandboxes.iter().filter(|(_, row)| row.uid == *uid) {
            match view.and_then(|v| v.sandboxes.iter().find(|s| s.id == *id)) {
                Some(known) if known.ready == row.state => now.sandboxes.push(known.clone()),
                _ => sandboxes.push(id.clone()),
            }
        }
        for (id, row) in facts.containers.iter().filter(|(_, row)| row.uid == *uid) {
            match view.and_then(|v| v.containers.iter().find(|c| c.id == *id)) {
                Some(known) if known.state == row.state => now.containers.push(known.clone()),
                _ => containers.push(id.clone()),
            }
        }
        now.open = (sandboxes.len() + containers.len()) as u32;
        self.inspecting.insert(uid.clone(), now);
        for id in sandboxes {
            let body = api::PodSandboxStatusRequest {
                pod_sandbox_id: id.0.clone().into(),
                verbose: false,
            };
            let ask = Ask::Sandbox { uid: uid.clone(), id };
            cx.call(ask, cri::call(cri::POD_SANDBOX_STATUS, &body, within));
        }
        for id in containers {
            let body =
                api::ContainerStatusRequest { container_id: id.0.clone().into(), verbose: false };
            let ask = Ask::Container { uid: uid.clone(), id };
            cx.call(ask, cri::call(cri::CONTAINER_STATUS, &body, within));
        }
        self.settle(cx, uid.clone());
    }

    fn on_sandbox(
        &mut self,
        cx: &mut Cx<'_>,
        uid: PodUid,
        id: &SandboxId,
        status: Result<api::PodSandboxStatusResponse, RpcError>,
    ) {
        let Some(inspection) = self.inspecting.get_mut(&uid) else { return };
        inspection.open -= 1;
        match status {
            Ok(api::PodSandboxStatusResponse { status: Some(s), .. }) => {
                (inspection.name, inspection.namespace) = named(&s.labels);
                let view = SandboxView { id: id.clone(), ..sandbox_view(s) };
                inspection.sandboxes.push(view);
            }
            Err(e) if e.code == RpcError::NOT_FOUND => {
                cx.facts.pleg.sandboxes.remove(id);
            }
            _ => inspection.failed = true,
        }
        self.settle(cx, uid);
    }

    fn on_container(
        &mut self,
        cx: &mut Cx<'_>,
        uid: PodUid,
        id: &ContainerId,
        status: Result<api::ContainerStatusResponse, RpcError>,
    ) {
        let Some(inspection) = self.inspecting.get_mut(&uid) else { return };
        match status {
            Ok(api::ContainerStatusResponse { status: Some(status), .. }) => {
                let fallback = log_fallback(&status);
                (inspection.name, inspection.namespace) = named(&status.labels);
                let within = cx.facts.settings().containers_dir(&uid);
                let mut view = ContainerView { id: id.clone(), ..container_view(status, &within) };
                if let Some(row) = cx.facts.pleg.containers.get(id) {
                    view.sandbox = row.within.clone();
                }
                let exited = view.state == ContainerState::Exited;
                let path = String::from(&*view.termination_log);
                inspection.containers.push(view);
                if exited && !path.is_empty() {
                    let most = MESSAGE_BYTES_MAX as u32;
                    let op = DiskOp::ReadTail { within, path, most, lines: None, cri_log: false };
                    let ask = Ask::TerminationLog { uid, id: id.clone(), fallback };
                    cx.call(ask, Call::Disk(op));
                    return;
                }
            }
            Err(e) if e.code == RpcError::NOT_FOUND => {
                cx.facts.pleg.containers.remove(id);
            }
            _ => inspection.failed = true,
        }
        inspection.open -= 1;
        self.settle(cx, uid);
    }

    fn on_message(&mut self, cx: &mut Cx<'_>, uid: PodUid, id: &ContainerId, text: String) {
        let Some(inspection) = self.inspecting.get_mut(&uid) else { return };
        inspection.open -= 1;
        if let Some(c) = inspection.containers.iter_mut().find(|c| c.id == *id)
            && !text.is_empty()
        {
            c.message = text.into();
        }
        self.settle(cx, uid);
    }

    /// Publishes the view once every answer of the inspection is in.
    fn settle(&mut self, cx: &mut Cx<'_>, uid: PodUid) {
        if self.inspecting.get(&uid).is_none_or(|i| i.open > 0) {
            return;
        }
        let done = self.inspecting.remove(&uid).unwrap_or_default();
        if done.failed {
            self.failed.insert(uid.clone());
        } else {
            let facts = &mut cx.facts.pleg;
            let mut view = facts.views.get(&uid).cloned().unwrap_or_default();
            if !done.name.is_empty() {
                (view.name, view.namespace) = (done.name, done.namespace);
            }
            (view.sandboxes, view.containers) = (done.sandboxes, done.containers);
            view.sort();
            if view.sandboxes.is_empty() && view.containers.is_empty() {
                facts.views.remove(&uid);
            } else {
                facts.views.insert(uid.clone(), view.clone());
            }
            if !self.again.contains(&uid) {
                self.correct_rows(cx, &view);
                cx.facts.pleg.stale.remove(&uid);
                cx.facts.pleg.strangers.remove(&uid);
                cx.say(Note::Pod(PodNote::Inspected { uid: uid.clone() }));
            }
        }
        if self.again.remove(&uid) {
            self.inspect(cx, &uid);
        }
    }

    /// A status is newer than the row that led to it: without this, the two would be compared for ever.
    fn correct_rows(&mut self, cx: &mut Cx<'_>, view: &PodView) {
        let facts = &mut cx.facts.pleg;
        for s in &view.sandboxes {
            if let Some(row) = facts.sandboxes.get_mut(&s.id)
                && row.state != s.ready
            {
                (row.state, row.as_of) = (s.ready, self.count);
                self.take_whole = true;
            }
        }
        for c in &view.containers {
            if let Some(row) = facts.containers.get_mut(&c.id)
                && row.state != c.state
            {
                (row.state, row.as_of) = (c.state, self.count);
                self.take_whole = true;
            }
        }
    }

    pub(crate) fn check(&self, facts: &Facts) {
        for view in facts.pleg.views.values() {
            let mut sorted = view.clone();
            sorted.sort();
            assert!(sorted == *view, "pleg: a view is not in order of attempts");
        }
        for (uid, i) in &self.inspecting {
            assert!(i.open > 0, "pleg: the inspection of {uid} has ended and was not settled");
        }
    }
}

/// An entry of a list.
struct Shown<I, S> {
    id: I,
    uid: PodUid,
    state: S,
    within: SandboxId,
}

/// Brings the rows up to a list asked for at `count`, and names the pods that differ.
fn merge<I: Ord + Clone + AsRef<str>, S: PartialEq + Copy>(
    rows: &mut BTreeMap<I, Row<S>>,
    shown: impl Iterator<Item = Shown<I, S>>,
    count: u64,
    gone: &BTreeMap<Box<str>, u64>,
    stale: &mut bool,
) -> BTreeSet<PodUid> {
    let mut changed = BTreeSet::new();
    for row in rows.values_mut() {
        row.seen = false;
    }
    for Shown { id, uid, state, within } in shown {
        if gone.get(id.as_ref()).is_some_and(|as_of| *as_of >= count) {
            *stale = true;
            continue;
        }
        match rows.get_mut(&id) {
            Some(row) => {
                row.seen = true;
                if row.as_of >= count && !planted(4) {
                    *stale |= row.state != state;
                } else if row.state != state {
                    (row.state, row.as_of) = (state, count);
                    changed.insert(uid);
                }
            }
            None => {
                changed.insert(uid.clone());
                rows.insert(id, Row { uid, state, within, as_of: count, seen: true });
            }
        }
    }
    rows.retain(|_, row| {
        let keep = row.seen || (row.as_of >= count && !planted(4));
        *stale |= !row.seen && keep;
        if !keep {
            changed.insert(row.uid.clone());
        }
        keep
    });
    changed
}

/// Name and namespace of the pod of an entry.
fn named(labels: &BTreeMap<String, String>) -> (Box<str>, Box<str>) {
    let label = |key: &str| labels.get(key).map_or("", String::as_str);
    (label(cri::LABEL_POD_NAME).into(), label(cri::LABEL_POD_NAMESPACE).into())
}

/// The pod of an entry; none if it is no pod's, or its UID could not stand in a path.
fn uid_of(labels: &BTreeMap<String, String>) -> Option<PodUid> {
    let uid = labels.get(cri::LABEL_POD_UID)?;
    PodUid::is_safe(uid).then(|| PodUid::from(uid.as_str()))
}

fn state_of(state: i32) -> ContainerState {
    match api::ContainerState::try_from(state) {
        Ok(api::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(api::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(api::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(api::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

fn sandbox_view(s: api::PodSandboxStatus) -> SandboxView {
    let network = s.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    let source = s.annotations.get(annotation::CONFIG_SOURCE).cloned();
    let options = s.linux.and_then(|l| l.namespaces).and_then(|n| n.options);
    SandboxView {
        id: s.id.into(),
        attempt: s.metadata.map_or(0, |m| m.attempt),
        ready: s.state == api::PodSandboxState::SandboxReady as i32,
        created_at: s.created_at,
        ips: core::iter::once(network.ip)
            .chain(more)
            .filter(|ip| !ip.is_empty())
            .map(String::into_boxed_str)
            .collect(),
        from_manifest: matches!(source.as_deref(), Some("file" | "http")),
        host_network: options.is_some_and(|o| o.network == api::NamespaceMode::Node as i32),
    }
}

/// `own`: where the agent has the files of this pod's containers. A volume of the pod may be mounted at the path of
/// the termination message too, and may hold whatever the pod likes, so it is not looked at.
fn container_view(s: api::ContainerStatus, own: &str) -> ContainerView {
    let (name, attempt) = s.metadata.map_or_else(Default::default, |m| (m.name, m.attempt));
    let note = |key: &str| s.annotations.get(key).map_or("", String::as_str);
    let path = note(cri::TERMINATION_PATH);
    let mut logs = s.mounts.iter().filter(|m| !path.is_empty() && m.container_path == path);
    let log = logs.find(|m| m.host_path.strip_prefix(own).is_some_and(|p| p.starts_with('/')));
    let message = bounded(s.message);
    ContainerView {
        sandbox: SandboxId::default(),
        name: name.into(),
        attempt,
        state: state_of(s.state),
        hash: note(cri::HASH).into(),
        image: s.image.map_or_else(String::new, |i| user_image(&i)).into(),
        image_ref: s.image_ref.into(),
        created_at: s.created_at,
        started_at: s.started_at,
        finished_at: s.finished_at,
        exit_code: s.exit_code,
        reason: s.reason.into(),
        message,
        grace_seconds: note(cri::POD_GRACE).parse().ok(),
        termination_log: log.map_or("", |m| m.host_path.as_str()).into(),
        id: s.id.into(),
    }
}

fn user_image(spec: &api::ImageSpec) -> String {
    let user = &spec.user_specified_image;
    if user.is_empty() { spec.image.clone() } else { user.clone() }
}

/// The log to read when the termination message is empty: only for FallbackToLogsOnError after an error.
fn log_fallback(s: &api::ContainerStatus) -> Option<String> {
    let wants =
        s.annotations.get(cri::TERMINATION_POLICY).is_some_and(|p| p == "FallbackToLogsOnError");
    (wants && s.exit_code != 0 && s.reason != "ContainerCannotRun").then(|| s.log_path.clone())
}

fn tail(outcome: Outcome) -> String {
    match outcome {
        Outcome::Disk(Ok(DiskReply::Text(text))) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    }
}

fn bounded(mut message: String) -> Box<str> {
    cri::cut(&mut message, MESSAGE_BYTES_MAX);
    message.into()
}
