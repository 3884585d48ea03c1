//! Takes away what is no longer needed: dead containers beyond the last of each name, old sandboxes, and every trace
//! of pods that are gone.
//!
//! Upstream: pkg/kubelet/kuberuntime/kuberuntime_gc.go, kubelet_pods.go HandlePodCleanups (v1.36).
//! Upstream lists directories and cgroups every two seconds; here a pod that ends is cleaned up by its worker,
//! and the sweep of leftovers (of a crash, of another life) runs once a minute.
//! Owns: removals under way. Publishes: `facts.housekeeping`: the pods that something is being removed of.
//! Hears: Inspected, Progressed, Forgotten, SourcesReady, RuntimeNamed. Says: RuntimeNote, Swept, Inspected.
//! Asks: RemoveContainer, StopPodSandbox, RemovePodSandbox, directory and cgroup lists and removals.
//! Never: touches a pod that has a worker beyond its dead containers (all of them while it begins anew), or one that
//! nobody knows before all sources were read.

use super::requests;
use super::view::{ContainerState, PodView};
use super::workers::Phase;
use crate::cx::Cx;
use crate::effect::{Call, DiskOp, HelperOp, KernelOp};
use crate::event::{DiskReply, KernelReply, Outcome, RpcError};
use crate::ids::{ContainerId, PodUid, SandboxId};
use crate::managers::cri::{self, answer};
use crate::note::{Note, PodNote, RuntimeNote};
use crate::planted::planted;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cri as api;
use steplet_api::pod_facts::QosClass;

const SWEEP: Span = Span::from_secs(60);
const SWEEP_SOON: Span = Span::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Housekeeping {
    next: Option<Mono>,
    /// Containers and sandboxes that are being removed.
    removing: BTreeSet<Box<str>>,
    /// Log directories of pods that are going: known while the runtime still names them.
    log_dirs: BTreeMap<PodUid, String>,
    /// Paths that are being removed.
    paths: BTreeSet<String>,
    /// What the burstable pods asked for together when their class was last written.
    burstable_milli: Option<i64>,
    /// The last removal that failed, as it was told.
    told: String,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HousekeepingFacts {
    /// How many removals of files and cgroups are under way for a pod.
    sweeping: BTreeMap<PodUid, u32>,
    /// In the foreground: the pods that have a directory of ours, also of an earlier life.
    ours: BTreeSet<PodUid>,
}

impl HousekeepingFacts {
    /// Something of this pod is being removed: nothing may be made for it now.
    pub fn sweeping(&self, uid: &PodUid) -> bool {
        self.sweeping.contains_key(uid)
    }

    /// Whether a pod that no source has was ours.
    pub fn ours(&self, uid: &PodUid) -> bool {
        self.ours.contains(uid)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    RemoveContainer { uid: PodUid, id: ContainerId },
    StopSandbox { uid: PodUid, id: SandboxId },
    RemoveSandbox { uid: PodUid, id: SandboxId },
    PodDirs,
    LogDirs,
    Cgroups { class: QosClass },
    Path { uid: PodUid, path: String },
    Cgroup { uid: PodUid, path: String },
    Classes,
}

impl Housekeeping {
    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        match note {
            PodNote::Inspected { uid } => self.tidy(cx, uid),
            PodNote::Progressed { uid } => {
                let worker = cx.facts.workers.worker(uid);
                if worker.is_some_and(|w| *w.phase() == Phase::Removing) {
                    self.tidy(cx, uid);
                }
            }
            PodNote::Forgotten { uid } => {
                self.note_log_dir(cx, uid);
                self.tidy(cx, uid);
                // A sweep soon finds what the worker left, such as the cgroup of an orphan.
                self.next = self.next.map(|at| at.min(cx.now.mono + SWEEP_SOON));
            }
            PodNote::SourcesReady => {
                self.next = Some(cx.now.mono);
                let uids: Vec<PodUid> = cx.facts.pleg.views().keys().cloned().collect();
                for uid in uids {
                    self.tidy(cx, &uid);
                }
            }
            // Where cgroups lie is known now.
            PodNote::RuntimeNamed => self.next = self.next.map(|_| cx.now.mono),
            PodNote::Configured { .. }
            | PodNote::Unconfigured { .. }
            | PodNote::RuntimeBack
            | PodNote::ObjectChanged { .. }
            | PodNote::MirrorsChanged
            | PodNote::Swept { .. } => {}
        }
    }

    /// Removes what one pod has too much of.
    fn tidy(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let worker = cx.facts.workers.worker(uid);
        if worker.is_some_and(|w| *w.phase() != Phase::Removing) {
            return self.prune(cx, uid);
        }
        // What a worker is to be rid of is its own; what nobody knows has to wait until all sources were read.
        if worker.is_none() && !self.may_remove(cx, uid) {
            return;
        }
        let Some(view) = cx.facts.pleg.view(uid) else {
            if worker.is_none() {
                self.remove_log_dir(cx, uid);
            }
            return;
        };
        if view.alive() {
            return;
        }
        let containers: Vec<ContainerId> = view.containers.iter().map(|c| c.id.clone()).collect();
        let sandboxes: Vec<SandboxId> = view.sandboxes.iter().map(|s| s.id.clone()).collect();
        if worker.is_none() {
            self.note_log_dir(cx, uid);
        }
        let none = containers.is_empty();
        for id in containers {
            self.remove_container(cx, uid, id);
        }
        for id in sandboxes.into_iter().filter(|_| none) {
            self.stop_sandbox(cx, uid, id);
        }
    }

    /// What this life has let go goes. On a node all else goes that no source has, once all were read; in the
    /// foreground the runtime may have pods of others, and only those go that were ours.
    fn may_remove(&self, cx: &Cx<'_>, uid: &PodUid) -> bool {
        let ours = cx.facts.housekeeping.ours(uid) || !cx.facts.settings().stop_pods_on_exit;
        self.log_dirs.contains_key(uid) || (cx.facts.sources.ready() && ours)
    }

    /// Of a pod that is known, the newest dead container of each name stays: its log and its exit are asked for.
    fn prune(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(view) = cx.facts.pleg.view(uid) else { return };
        let (containers, sandboxes) = superfluous(view);
        for id in containers {
            self.remove_container(cx, uid, id);
        }
        for id in sandboxes {
            self.stop_sandbox(cx, uid, id);
        }
    }

    fn remove_container(&mut self, cx: &mut Cx<'_>, uid: &PodUid, id: ContainerId) {
        if !self.removing.insert(id.0.clone()) {
            return;
        }
        let within = cx.facts.settings().runtime_request_timeout;
        let body = api::RemoveContainerRequest { container_id: id.as_str().into() };
        let ask = Ask::RemoveContainer { uid: uid.clone(), id };
        cx.call(ask, cri::call(cri::REMOVE_CONTAINER, &body, within));
    }

    /// A sandbox is stopped once more before it is removed: that frees its network even after a reboot.
    fn stop_sandbox(&mut self, cx: &mut Cx<'_>, uid: &PodUid, id: SandboxId) {
        if !self.removing.insert(id.0.clone()) {
            return;
        }
        let within = cx.facts.settings().runtime_request_timeout;
        let body = api::StopPodSandboxRequest { pod_sandbox_id: id.as_str().into() };
        let ask = Ask::StopSandbox { uid: uid.clone(), id };
        cx.call(ask, cri::call(cri::STOP_POD_SANDBOX, &body, within));
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        match then {
            Ask::RemoveContainer { uid, id } => {
                self.removing.remove(id.as_str());
                if self.fine(answer::<api::RemoveContainerResponse>(outcome).map(|_| ())) {
                    cx.say(Note::Runtime(RuntimeNote::ContainerRemoved { uid, id }));
                }
            }
            Ask::StopSandbox { uid, id } => {
                if !self.fine(answer::<api::StopPodSandboxResponse>(outcome).map(|_| ())) {
                    self.removing.remove(id.as_str());
                    return;
                }
                let within = cx.facts.settings().runtime_request_timeout;
                let body = api::RemovePodSandboxRequest { pod_sandbox_id: id.as_str().into() };
                let ask = Ask::RemoveSandbox { uid, id };
                cx.call(ask, cri::call(cri::REMOVE_POD_SANDBOX, &body, within));
            }
            Ask::RemoveSandbox { uid, id } => {
                self.removing.remove(id.as_str());
                if self.fine(answer::<api::RemovePodSandboxResponse>(outcome).map(|_| ())) {
                    cx.say(Note::Runtime(RuntimeNote::SandboxRemoved { uid, id }));
                }
            }
            Ask::PodDirs => self.on_pod_dirs(cx, outcome),
            Ask::LogDirs => self.on_log_dirs(cx, outcome),
            Ask::Cgroups { class } => self.on_cgroups(cx, class, outcome),
            Ask::Classes => {
                if let Outcome::Kernel(Err(fault)) = outcome {
                    log::warn!("the cgroups of the classes are not up to date: {}", fault.message);
                    self.burstable_milli = None;
                }
            }
            Ask::Path { uid, path } | Ask::Cgroup { uid, path } => {
                self.swept(cx, &uid, &path);
                if let Outcome::Helper(Err(fault)) | Outcome::Kernel(Err(fault)) = outcome {
                    log::warn!("{path} is left behind for now: {}", fault.message);
                }
            }
        }
    }

    // The sweep of leftovers.

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_none_or(|at| at > cx.now.mono) {
            return;
        }
        self.next = Some(cx.now.mono + SWEEP);
        let named = cx.facts.runtime_status.cgroup_driver().is_some();
        if !cx.facts.pleg.reachable() || !named {
            return;
        }
        let settings = cx.facts.settings();
        let (root, logs) = (settings.root_dir.clone(), settings.pod_logs_dir.clone());
        let path = format!("{root}/pods");
        cx.call(Ask::PodDirs, Call::Disk(DiskOp::List { path }));
        cx.call(Ask::LogDirs, Call::Disk(DiskOp::List { path: logs }));
        self.write_classes(cx);
        // Whatever was not removed at its time is tried again.
        let all: Vec<PodUid> = cx.facts.pleg.views().keys().cloned().collect();
        for uid in all {
            self.tidy(cx, &uid);
        }
        if cx.facts.settings().stop_pods_on_exit {
            return;
        }
        for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let path = requests::layout(cx.facts).class(class);
            cx.call(Ask::Cgroups { class }, Call::Kernel(KernelOp::ListCgroups { path }));
        }
    }

    /// The weight of the burstable class follows the pods that are there.
    fn write_classes(&mut self, cx: &mut Cx<'_>) {
        let milli = requests::burstable_milli(cx.facts);
        if self.burstable_milli.replace(milli) != Some(milli) {
            let classes = requests::layout(cx.facts).set(requests::classes(cx.facts));
            cx.call(Ask::Classes, Call::Kernel(classes));
        }
    }

    fn sweep(&mut self, cx: &mut Cx<'_>, uid: &PodUid, path: String, then: Ask, call: Call) {
        if self.paths.insert(path) {
            *cx.facts.housekeeping.sweeping.entry(uid.clone()).or_default() += 1;
            cx.call(then, call);
        }
    }

    fn swept(&mut self, cx: &mut Cx<'_>, uid: &PodUid, path: &str) {
        self.paths.remove(path);
        let sweeping = &mut cx.facts.housekeeping.sweeping;
        if let Some(count) = sweeping.get_mut(uid) {
            *count -= 1;
            if *count == 0 {
                sweeping.remove(uid);
                cx.say(Note::Pod(PodNote::Swept { uid: uid.clone() }));
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    /// Nobody has anything of this pod any more.
    fn unknown(&self, cx: &Cx<'_>, uid: &PodUid) -> bool {
        cx.facts.workers.worker(uid).is_none()
            && cx.facts.pleg.view(uid).is_none()
            && cx.facts.sources.pod(uid).is_none()
            && cx.facts.pleg.fresh(uid)
    }

    fn on_pod_dirs(&mut self, cx: &mut Cx<'_>, outcome: Outcome) {
        let Outcome::Disk(Ok(DiskReply::Names(names))) = outcome else { return };
        for name in names.into_iter().filter(|name| PodUid::is_safe(name)) {
            let uid = PodUid::from(name);
            if self.unknown(cx, &uid) {
                let pod_dir = cx.facts.settings().pod_dir(&uid);
                let ask = Ask::Path { uid: uid.clone(), path: pod_dir.clone() };
                let call = Call::Helper(HelperOp::TearDownPod { pod_dir: pod_dir.clone() });
                self.sweep(cx, &uid, pod_dir, ask, call);
            } else if cx.facts.settings().stop_pods_on_exit && cx.facts.pleg.view(&uid).is_some() {
                self.claim(cx, uid);
            }
        }
    }

    /// A pod with a directory of ours, from before a crash: it is stopped and removed like any other that is gone.
    fn claim(&mut self, cx: &mut Cx<'_>, uid: PodUid) {
        let new = cx.facts.housekeeping.ours.insert(uid.clone());
        if new && cx.facts.pleg.fresh(&uid) {
            cx.say(Note::Pod(PodNote::Inspected { uid }));
        }
    }

    fn on_log_dirs(&mut self, cx: &mut Cx<'_>, outcome: Outcome) {
        let Outcome::Disk(Ok(DiskReply::Names(names))) = outcome else { return };
        let logs = cx.facts.settings().pod_logs_dir.clone();
        for name in names {
            // <namespace>_<name>_<uid>: neither namespaces nor names hold an underscore. Other names are not ours.
            let mut parts = name.splitn(3, '_');
            let (Some(_), Some(_), Some(uid)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            if !PodUid::is_safe(uid) {
                continue;
            }
            let uid = PodUid::from(uid);
            if self.unknown(cx, &uid) {
                self.remove_tree(cx, &uid, format!("{logs}/{name}"));
            }
        }
    }

    fn on_cgroups(&mut self, cx: &mut Cx<'_>, class: QosClass, outcome: Outcome) {
        let Outcome::Kernel(Ok(KernelReply::Names(names))) = outcome else { return };
        if planted(8) {
            return;
        }
        for name in names {
            let layout = requests::layout(cx.facts);
            let Some(uid) = layout.uid(&name, class) else { continue };
            let (path, uid) = (format!("{}/{name}", layout.class(class)), PodUid::from(uid));
            let known = |uid: &PodUid| layout.is_of(&name, class, uid.as_str());
            // Beside the UID itself, since the name of a slice may not give it back.
            let anyone =
                cx.facts.workers.all().keys().chain(cx.facts.pleg.views().keys()).any(known);
            if !anyone && self.unknown(cx, &uid) {
                let call = Call::Kernel(layout.remove(path.clone()));
                let ask = Ask::Cgroup { uid: uid.clone(), path: path.clone() };
                self.sweep(cx, &uid, path, ask, call);
            }
        }
    }

    fn note_log_dir(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(view) = cx.facts.pleg.view(uid) else { return };
        let path = cx.facts.settings().log_dir(&view.namespace, &view.name, uid);
        self.log_dirs.insert(uid.clone(), path);
    }

    fn remove_log_dir(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        if let Some(path) = self.log_dirs.remove(uid) {
            cx.facts.housekeeping.ours.remove(uid);
            self.remove_tree(cx, uid, path);
        }
    }

    fn remove_tree(&mut self, cx: &mut Cx<'_>, uid: &PodUid, path: String) {
        let ask = Ask::Path { uid: uid.clone(), path: path.clone() };
        let call = Call::Helper(HelperOp::RemoveTree { path: path.clone() });
        self.sweep(cx, uid, path, ask, call);
    }

    /// Whether a removal has come to its end; one that fails is told, and tried again with the next sweep.
    fn fine(&mut self, result: Result<(), RpcError>) -> bool {
        match result {
            Err(e) if e.code != RpcError::NOT_FOUND => {
                if self.told != e.message {
                    log::warn!("what is dead cannot be removed for now: {}", e.message);
                    self.told = e.message;
                }
                false
            }
            Ok(()) | Err(_) => true,
        }
    }
}

/// The dead beyond the newest of each name, what was made and never started before a newer one, and the sandboxes
/// below the newest that hold nothing.
fn superfluous(view: &PodView) -> (Vec<ContainerId>, Vec<SandboxId>) {
    let (mut newest, mut dead) = (BTreeSet::new(), BTreeSet::new());
    let mut containers = Vec::new();
    for c in &view.containers {
        let superseded = !newest.insert(&c.name);
        let keep = match c.state {
            ContainerState::Running | ContainerState::Unknown => true,
            ContainerState::Created => !superseded,
            ContainerState::Exited => dead.insert(&c.name),
        };
        if !keep {
            containers.push(c.id.clone());
        }
    }
    let empty = |id: &SandboxId| !view.containers.iter().any(|c| c.sandbox == *id);
    let old = view.sandboxes.iter().skip(1);
    let sandboxes = old.filter(|s| !s.ready && empty(&s.id)).map(|s| s.id.clone()).collect();
    (containers, sandboxes)
}
