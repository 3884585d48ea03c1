//! Pod workers: the life of each pod, from its first sight to the last trace of it.
//!
//! Upstream: pkg/kubelet/pod_workers.go, kubelet.go (v1.36).
//! Owns: a worker for each pod UID that is configured or that the runtime still has.
//! Publishes: `facts.workers`.
//! Hears: Configured, Unconfigured, SourcesReady, Inspected, RuntimeBack, Swept, StepNote::Done, ContainerMade,
//! ManifestsRead, StrangerGone, ShutdownWanted.
//! Says: Stranger, Step Wanted and CancelWanted, Progressed, Forgotten, Said.
//! Asks: nothing; the runtime manager does.
//! Never: starts anything of a pod that terminates; another life under its UID begins with an empty worker.
//!
//! ```text
//!            same name still ends          nothing left to run, or no longer configured
//! Configured ─────► Waiting ─────► Syncing ─────► Terminating ─────► Cleaning ─────► Ended
//!                      ▲                          containers stop    volumes, cgroup   (kept while configured)
//!                      └── Removing ◄── configured anew under the same UID: what the last life left goes first
//! ```

pub mod crashes;
mod ending;
mod worker;

use super::admit;
use super::plan::{self, Marks, Plan, Step};
use super::requests::field_of;
use super::view::PodView;
pub use worker::{Ending, Phase, Reason, Requests, Why, Worker};
use worker::{deadline_at, finished_otherwise, over_by_object};

use crate::cx::Cx;
use crate::effect::Effect;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::containers::hash;
use crate::note::{Note, PodNote, RuntimeNote, Said, StepDone, StepError, StepNote};
use crate::planted::planted;
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::pod::Pod;
use steplet_api::pod_facts::is_static;

/// After an error (backOffPeriod in pkg/kubelet/kubelet.go): 10 s, stretched by up to half.
const RETRY: Span = Span::from_secs(10);
/// A request to stop that fails sooner has reached nobody.
const STOP_REACHED: Span = Span::from_secs(2);
/// Before a step is repeated that changed nothing.
const PAUSE: Span = Span::from_secs(1);
/// No pod is looked at more often without a reason.
const SYNC_LEAST: Span = Span::from_secs(1);
/// While the network is not ready.
const RETRY_NETWORK: Span = Span::from_secs(1);
/// How long after a start calls of an earlier life may go on in the runtime.
const AFTERMATH: Span = Span::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    rng: Rng,
    booted: Mono,
    timers: BTreeSet<(Mono, PodUid)>,
    sources_ready: bool,
    /// Pods that were let go while the runtime still has their dead.
    remains: BTreeSet<PodUid>,
    /// A signal asked for the end, and the pods are being stopped.
    leaving: bool,
    /// When to leave although not everything has been stopped and removed.
    leave_by: Option<Mono>,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkersFacts {
    workers: BTreeMap<PodUid, Worker>,
    /// Containers that were started: init containers (true) and others.
    starts: BTreeMap<bool, u64>,
    orphans: u64,
}

impl WorkersFacts {
    /// Containers started in this life, by whether they are init containers.
    pub fn starts(&self) -> &BTreeMap<bool, u64> {
        &self.starts
    }

    /// Pods that only the runtime had, in this life.
    pub fn orphans(&self) -> u64 {
        self.orphans
    }

    pub fn worker(&self, uid: &PodUid) -> Option<&Worker> {
        self.workers.get(uid)
    }

    pub fn all(&self) -> &BTreeMap<PodUid, Worker> {
        &self.workers
    }
}

impl Workers {
    pub(crate) fn on_booted(&mut self, now: Mono, rng: Rng) {
        self.booted = now;
        self.rng = rng;
    }

    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        match note {
            PodNote::Configured { uid } => self.on_configured(cx, uid),
            PodNote::Unconfigured { uid } => self.on_unconfigured(cx, uid),
            PodNote::SourcesReady => {
                self.sources_ready = true;
                self.adopt_orphans(cx);
            }
            PodNote::Inspected { uid } => self.on_inspected(cx, uid),
            PodNote::RuntimeBack | PodNote::RuntimeNamed => {
                let uids: Vec<PodUid> = cx.facts.workers.workers.keys().cloned().collect();
                for uid in uids {
                    self.advance(cx, &uid);
                }
            }
            // Nothing of it is being swept away any more.
            PodNote::Swept { uid } => self.advance(cx, uid),
            PodNote::Progressed { .. }
            | PodNote::ObjectChanged { .. }
            | PodNote::MirrorsChanged
            | PodNote::Forgotten { .. } => {}
        }
    }

    fn on_configured(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        if self.leaving {
            return;
        }
        let Some(pod) = cx.facts.sources.pod(uid).cloned() else { return };
        let now = cx.now;
        let workers = &mut cx.facts.workers.workers;
        match workers.get_mut(uid) {
            None => {
                let mut worker = Worker::new(pod, false, now);
                // Forgotten a moment ago, and put back: it does not begin with the dead of its last life.
                if self.remains.contains(uid) {
                    worker.phase = Phase::Removing;
                }
                workers.insert(uid.clone(), worker);
                self.adopt_namesakes(cx, uid);
            }
            // A pod of the API server has one life: what comes while it ends is about its end.
            Some(worker) if worker.ending().is_some() && !is_static(&pod) => {
                return self.hasten(cx, uid, pod);
            }
            Some(worker) if matches!(worker.phase, Phase::Ended(_)) => {
                self.begin_anew(cx, uid, pod);
            }
            Some(worker) if worker.ending().is_some() => worker.again = Some(pod),
            Some(worker) => {
                worker.redefine(pod);
                worker.orphan = false;
                worker.reasons.clear();
                // Directories and a step under way belong to the spec before.
                worker.setup = None;
                worker.pause = None;
                if worker.busy {
                    cx.say(Note::Step(StepNote::CancelWanted { uid: uid.clone() }));
                }
            }
        }
        if let Some(why) = cx.facts.workers.workers.get(uid).and_then(|w| over_by_object(&w.pod)) {
            return self.terminate(cx, uid, why);
        }
        self.warn_of_unsupported(cx, uid);
        cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
        self.advance(cx, uid);
    }

    /// Another life under the same UID: what the last one left is removed first, and its attempts are not used again.
    fn begin_anew(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: Arc<Pod>) {
        let now = cx.now;
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        if let Some(at) = worker.wake {
            self.timers.remove(&(at, uid.clone()));
        }
        let (life, crashes) = (worker.life + 1, worker.crashes.next_life());
        *worker = Worker::new(pod, false, now);
        (worker.life, worker.crashes) = (life, crashes);
        worker.phase = Phase::Removing;
    }

    /// What a manifest asks for and does not get is said, once for each form of the pod.
    fn warn_of_unsupported(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get(uid) else { return };
        let spec = &worker.pod.spec;
        let all = spec.init_containers.iter().chain(&spec.containers);
        let mut names: Vec<&str> = Vec::new();
        for c in all {
            let probes = [&c.liveness_probe, &c.readiness_probe, &c.startup_probe];
            if probes.iter().any(|p| p.is_some()) || c.lifecycle.is_some() {
                names.push(&c.name);
            }
        }
        if !names.is_empty() {
            let message = format!(
                "probes and lifecycle hooks are not run by this version: {} count as started and \
                 ready while they run",
                names.join(", ")
            );
            self.said(cx, uid, true, "NotSupported", message);
        }
    }

    fn on_unconfigured(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        worker.again = None;
        match &mut worker.phase {
            Phase::Terminating(ending) | Phase::Cleaning(ending) => ending.why = Why::Unconfigured,
            Phase::Ended(_) => self.forget(cx, uid),
            Phase::Removing | Phase::Waiting | Phase::Syncing => {
                self.terminate(cx, uid, Why::Unconfigured);
            }
        }
    }

    fn on_inspected(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let facts = &mut *cx.facts;
        if facts.pleg.view(uid).is_none() {
            self.remains.remove(uid);
        }
        if let Some(worker) = facts.workers.workers.get_mut(uid) {
            if let Some(view) = facts.pleg.view(uid) {
                worker.crashes.observe(view, cx.now.mono);
            }
            self.recheck_ended(cx, uid);
            cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
            self.advance(cx, uid);
        } else {
            self.adopt_orphan(cx, uid);
            self.wake_namesakes(cx, uid);
            self.leave_if_done(cx);
        }
    }

    /// Pods of the runtime that no source has are stopped once all sources were read. One that bears the name of a
    /// configured pod is in its way, and goes without waiting for other sources (k/k#112814).
    /// In a cluster, a pod that no source has may be one that a list has left out: it goes when its own API server,
    /// asked for it, does not have it. One of a manifest goes when all manifests were read.
    pub(crate) fn on_manifests_read(&mut self, cx: &mut Cx<'_>) {
        self.adopt_orphans(cx);
    }

    pub(crate) fn on_stranger_gone(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        self.adopt_orphan(cx, uid);
    }

    fn adopt_orphans(&mut self, cx: &mut Cx<'_>) {
        let views: Vec<PodUid> = cx.facts.pleg.views().keys().cloned().collect();
        for uid in views {
            self.adopt_orphan(cx, &uid);
        }
    }

    fn adopt_namesakes(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get(uid) else { return };
        let (name, namespace) = worker.full_name();
        // A pod that was kept may be older than the one that runs.
        if cx.facts.sources.unseen(uid) {
            return;
        }
        let same = cx.facts.pleg.views().iter().filter(|(other, view)| {
            *other != uid && *view.name == *name && *view.namespace == *namespace
        });
        let same: Vec<PodUid> = same.map(|(other, _)| other.clone()).collect();
        for other in same {
            self.adopt_orphan(cx, &other);
        }
    }

    fn adopt_orphan(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let facts = &mut *cx.facts;
        let Some(view) = facts.pleg.view(uid).filter(|view| view.alive()) else { return };
        if facts.workers.workers.contains_key(uid) {
            return;
        }
        let mut workers = facts.workers.workers.iter();
        let namesake = workers.any(|(other, w)| {
            w.full_name() == (&*view.name, &*view.namespace) && !facts.sources.unseen(other)
        });
        // In the foreground the runtime may have pods of others.
        let ours = namesake || facts.housekeeping.ours(uid);
        if facts.boot.settings().stop_pods_on_exit && !ours {
            return;
        }
        let of_cluster = facts.boot.settings().api.is_some() && !view.from_manifest();
        let gone = match of_cluster {
            false => facts.sources.manifests_read(),
            true => self.sources_ready && facts.sources.is_gone(uid),
        };
        if !(gone || namesake || planted(7)) {
            if of_cluster && self.sources_ready {
                cx.say(Note::Stranger { uid: uid.clone() });
            }
            return;
        }
        let mut pod = Pod::default();
        pod.metadata.name = view.name.clone();
        pod.metadata.namespace = view.namespace.clone();
        pod.metadata.uid = uid.0.clone();
        let worker = Worker::new(Arc::new(pod), true, cx.now);
        facts.workers.workers.insert(uid.clone(), worker);
        facts.workers.orphans += 1;
        self.terminate(cx, uid, Why::Unconfigured);
    }

    /// Takes the next step of a pod, unless one is out or the view is not fresh.
    fn advance(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get(uid) else { return };
        let late = deadline_at(worker).is_some_and(|at| at <= cx.now.mono);
        if worker.busy && worker.phase == Phase::Syncing && late {
            return self.exceed_deadline(cx, uid);
        }
        if worker.busy || !cx.facts.pleg.fresh(uid) || !may_go_on(cx.facts, &worker.phase) {
            return;
        }
        if let Some(at) = worker.pause.filter(|at| *at > cx.now.mono) {
            return self.wake_at(cx, uid, at);
        }
        match worker.phase {
            Phase::Removing => self.remove_remains(cx, uid),
            Phase::Waiting => self.admit(cx, uid),
            Phase::Syncing => self.sync(cx, uid),
            Phase::Terminating(Ending { why: Why::Unconfigured, .. })
                if planted(5) && !worker.orphan =>
            {
                self.sync(cx, uid)
            }
            Phase::Terminating(_) => self.stop(cx, uid),
            Phase::Cleaning(_) => self.step(cx, uid, Step::Clean),
            Phase::Ended(_) => {}
        }
    }

    /// Housekeeping takes the dead away; a late arrival that still runs is stopped.
    fn remove_remains(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.workers.get_mut(uid) else { return };
        match facts.pleg.view(uid) {
            None => {
                worker.crashes = worker.crashes.next_life();
                self.set_phase(cx, uid, Phase::Waiting);
                self.advance(cx, uid);
            }
            Some(view) if view.alive() => {
                let step = plan::stop_all(&worker.pod, view, worker.grace_seconds(Some(view)));
                self.step(cx, uid, step);
            }
            Some(_) => {}
        }
    }

    fn admit(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get(uid) else { return };
        let mut others = cx.facts.workers.workers.iter().filter(|(other, _)| *other != uid);
        if others.any(|(_, w)| {
            w.full_name() == worker.full_name()
                && !matches!(w.phase, Phase::Removing | Phase::Waiting | Phase::Ended(_))
        }) {
            return;
        }
        // What is being swept away must not be what is about to be made.
        if cx.facts.housekeeping.sweeping(uid) {
            return;
        }
        let (name, namespace) = worker.full_name();
        let views = cx.facts.pleg.views().iter();
        let mut alive = views.filter(|(other, view)| *other != uid && view.alive());
        if cx.facts.sources.unseen(uid)
            && alive.any(|(_, view)| (&*view.name, &*view.namespace) == (name, namespace))
        {
            return;
        }
        // One of the same name that nobody knows, and that was not looked at yet, is waited for (k/k#112814).
        if cx.facts.pleg.strangers_of(name, namespace).any(|other| other != uid) {
            return;
        }
        // Of one that was seen, something has changed or was not shown yet: a dead sandbox may have a live container.
        let pleg = &cx.facts.pleg;
        let mut others = pleg.views().iter().filter(|(other, _)| *other != uid);
        if others.any(|(other, view)| {
            (&*view.name, &*view.namespace) == (name, namespace) && !pleg.fresh(other)
        }) {
            return self.wake_at(cx, uid, cx.now.mono + PAUSE);
        }
        let vote = admit::vote(&worker.pod, uid, cx.facts);
        match vote {
            Ok(()) if finished_otherwise(&worker.pod, cx.facts.pleg.view(uid)) => {
                let pod = worker.pod.clone();
                self.begin_anew(cx, uid, pod);
                cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
            }
            Ok(()) => {
                self.set_phase(cx, uid, Phase::Syncing);
                self.advance(cx, uid);
            }
            Err(no) if no.reason == admit::NODE_AFFINITY && self.looks_again(cx, uid) => {}
            Err(no) => {
                let message = format!("Pod was rejected: {}", no.message);
                self.said(cx, uid, true, no.reason.clone(), no.message);
                self.terminate(cx, uid, Why::Rejected(no.reason.into(), message));
            }
        }
    }

    /// A label that a pod wants may be newer than the Node as it is known: once for each pod that is made sure of.
    fn looks_again(&mut self, cx: &mut Cx<'_>, uid: &PodUid) -> bool {
        let member = cx.facts.settings().api.is_some();
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return false };
        if !member || core::mem::replace(&mut worker.node_looked, true) {
            return false;
        }
        cx.say(Note::NodeLookWanted);
        true
    }

    /// The Node is known as it is now.
    pub(crate) fn on_node_looked(&mut self, cx: &mut Cx<'_>) {
        let waiting = cx.facts.workers.workers.iter();
        let waiting = waiting.filter(|(_, w)| w.phase == Phase::Waiting && w.node_looked);
        let waiting: Vec<PodUid> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.advance(cx, &uid);
        }
    }

    fn sync(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let now = cx.now;
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.workers.get_mut(uid) else { return };
        // The view may be older than the worker: a source that answers late finds its pod already looked at.
        if let Some(view) = facts.pleg.view(uid) {
            worker.crashes.observe(view, now.mono);
        }
        if deadline_at(worker).is_some_and(|at| at <= now.mono) {
            return self.exceed_deadline(cx, uid);
        }
        let empty = PodView::default();
        let view = facts.pleg.view(uid).unwrap_or(&empty);
        let marks = Marks {
            hold: &|c, shown| worker.crashes.hold(c, shown, now.mono),
            grace_seconds: worker.grace_seconds(None),
            next_sandbox: worker.crashes.next_sandbox(),
            next_attempt: &|name| worker.crashes.next_attempt(name),
            hash: &hash::hash_text,
        };
        let plan = plan::plan(&worker.pod, view, &marks);
        match plan {
            Plan::Rest { until, held } => self.rest(cx, uid, until, &held),
            Plan::Finished => self.terminate(cx, uid, Why::Finished),
            Plan::Do(step) => self.start(cx, uid, step),
            Plan::Renew { stop, last: true } => self.step(cx, uid, stop),
            Plan::Renew { .. } if worker.crashes.sandbox_hold(now.mono).is_some() => {
                let until = worker.crashes.sandbox_hold(now.mono);
                self.rest(cx, uid, until, &[]);
            }
            Plan::Renew { stop, last: false } => {
                let text = "Pod sandbox changed, it will be killed and re-created.";
                self.said(cx, uid, false, "SandboxChanged", text.into());
                self.step(cx, uid, stop);
            }
            Plan::Replace { stop, message } => {
                self.said(cx, uid, false, "Killing", message);
                self.step(cx, uid, stop);
            }
        }
    }

    /// A step that starts something: directories and cgroup first, and not without a network.
    fn start(&mut self, cx: &mut Cx<'_>, uid: &PodUid, step: Step) {
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.workers.get_mut(uid) else { return };
        if worker.setup.is_none() {
            return self.step(cx, uid, Step::SetUp);
        }
        if let Some(problem) = facts.runtime_status.network_problem()
            && !worker.pod.spec.host_network
        {
            let message = format!("network is not ready: {problem}");
            let at = cx.now.mono + self.rng.jitter(RETRY_NETWORK, 50);
            if !core::mem::replace(&mut worker.network_said, true) {
                self.said(cx, uid, true, "NetworkNotReady", message);
            }
            return self.wake_at(cx, uid, at);
        }
        worker.network_said = false;
        // What an earlier life has asked for may still be under way in the runtime: asking again at once would meet
        // its own name there.
        let half_made = worker.setup.as_ref().is_some_and(|s| s.existed);
        let calm = self.booted + AFTERMATH;
        if half_made && cx.now.mono < calm {
            return self.wake_at(cx, uid, calm);
        }
        if let Step::RunSandbox { attempt } = &step {
            if let Some(at) = worker.crashes.sandbox_hold(cx.now.mono) {
                return self.wake_at(cx, uid, at);
            }
            worker.crashes.sandbox_made(*attempt, cx.now.mono);
        }
        if let Step::StartContainer(start) = &step {
            let most = facts.boot.settings().crash_loop_max;
            worker.crashes.restarted(&start.name, cx.now.mono, most);
        }
        self.step(cx, uid, step);
    }

    fn rest(&mut self, cx: &mut Cx<'_>, uid: &PodUid, until: Option<Mono>, held: &[Box<str>]) {
        let sync = cx.facts.settings().sync_frequency.max(SYNC_LEAST);
        let resync = cx.now.mono + self.rng.jitter(sync, 50);
        let now = cx.now.mono;
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        let deadline = deadline_at(worker);
        let held = worker.crashes.held(held, now);
        let mut said = Vec::new();
        for (name, period) in held {
            let pod = &worker.pod.metadata;
            let place = format!("pod={}_{}({uid})", pod.name, pod.namespace);
            let secs = period.secs();
            let message =
                format!("back-off {}restarting failed container={name} {place}", go_secs(secs));
            let reason = Reason { reason: "CrashLoopBackOff".into(), message };
            if worker.reasons.insert(name.clone(), reason.clone()) != Some(reason) {
                let pod = format!("{}_{}({uid})", pod.name, pod.namespace);
                said.push((
                    field_of(&worker.pod, &name),
                    format!("Back-off restarting failed container {name} in pod {pod}"),
                ));
            }
        }
        let changed = !said.is_empty();
        for (field, message) in said {
            let uid = Some(uid.clone());
            cx.say(Note::Said(
                Said { uid, field, warning: true, reason: "BackOff".into(), message }.into(),
            ));
        }
        if changed {
            cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
        }
        let at = [until, deadline].into_iter().flatten().fold(resync, Mono::min);
        self.wake_at(cx, uid, at);
    }

    fn step(&mut self, cx: &mut Cx<'_>, uid: &PodUid, step: Step) {
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        assert!(!worker.busy, "workers: two steps of {uid} at once");
        // The runtime said yes to this very step before, and nothing changed: not at its own speed.
        let repeats = matches!(step, Step::Stop { .. } | Step::StartContainer(_))
            && worker.last_step.as_ref() == Some(&step);
        if repeats {
            worker.last_step = None;
            let at = cx.now.mono + PAUSE;
            worker.pause = Some(at);
            return self.wake_at(cx, uid, at);
        }
        worker.last_step = Some(step.clone());
        worker.busy = true;
        let deadline = deadline_at(worker);
        if let Some(at) = deadline.filter(|at| *at > cx.now.mono) {
            self.wake_at(cx, uid, at);
        }
        cx.say(Note::Step(StepNote::Wanted { uid: uid.clone(), step: step.into() }));
    }

    /// An attempt is used up although its container may be gone before anybody looked at it.
    pub(crate) fn on_runtime(&mut self, cx: &mut Cx<'_>, note: &RuntimeNote) {
        if let RuntimeNote::ContainerMade { uid, name, attempt, .. } = note
            && let Some(worker) = cx.facts.workers.workers.get_mut(uid)
        {
            worker.crashes.used(name, *attempt);
        }
    }

    pub(crate) fn on_step(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        result: &Result<StepDone, StepError>,
    ) {
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        worker.busy = false;
        match result {
            Ok(StepDone::SetUp(found)) => {
                for (name, attempt) in &found.log_attempts {
                    worker.crashes.used(name, *attempt);
                }
                worker.setup = Some(found.clone());
            }
            Ok(StepDone::Cancelled) => {}
            Ok(StepDone::Other) => {
                if matches!(worker.phase, Phase::Cleaning(_)) {
                    return self.cleaned(cx, uid);
                }
            }
            Ok(StepDone::Started { container }) => {
                worker.reasons.remove(container);
                let inits = &worker.pod.spec.init_containers;
                let init = inits.iter().any(|c| c.name == *container);
                *cx.facts.workers.starts.entry(init).or_default() += 1;
            }
            Err(error) => return self.on_step_failed(cx, uid, error),
        }
        self.advance(cx, uid);
    }

    fn on_step_failed(&mut self, cx: &mut Cx<'_>, uid: &PodUid, error: &StepError) {
        let now = cx.now.mono;
        let at = now + self.rng.jitter(RETRY, 50);
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        if matches!(worker.phase, Phase::Cleaning(_)) {
            return self.clean_up_failed(cx, uid, error);
        }
        // What it was made from may have changed: the resolver file, directories that were taken away.
        if error.container.is_none() || error.reason.starts_with("CreateContainer") {
            worker.setup = None;
        }
        // The other containers of the pod are not held up.
        if let Some(name) = &error.container {
            worker.crashes.failed(name, at);
            let message = error.message.clone();
            let reason = Reason { reason: error.reason.into(), message };
            worker.reasons.insert(name.clone(), reason);
            let lives = worker.ending().is_none();
            cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
            if lives {
                return self.advance(cx, uid);
            }
        }
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        if let Phase::Terminating(ending) = &mut worker.phase {
            // What failed was a start: the end does not wait for its next try.
            if !matches!(worker.last_step, Some(Step::Stop { .. })) {
                return self.advance(cx, uid);
            }
            ending.asked = ending.asked.filter(|asked| now.since(*asked) >= STOP_REACHED);
        }
        worker.pause = Some(at);
        self.wake_at(cx, uid, at);
    }

    /// Those that waited for this pod's name may start.
    fn wake_namesakes(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let waiting = cx.facts.workers.workers.iter();
        let waiting = waiting.filter(|(other, w)| *other != uid && w.phase == Phase::Waiting);
        let waiting: Vec<PodUid> = waiting.map(|(other, _)| other.clone()).collect();
        for other in waiting {
            self.wake_at(cx, &other, cx.now.mono + Span::from_millis(1));
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.leave_by.is_some_and(|at| at <= cx.now.mono) {
            self.leave_by = None;
            log::error!("not all pods could be stopped; leaving without");
            cx.emit(Effect::Exit(1));
        }
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > cx.now.mono {
                break;
            }
            self.timers.pop_first();
            if let Some(worker) = cx.facts.workers.workers.get_mut(&uid) {
                worker.wake = None;
            }
            self.advance(cx, &uid);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.timers.first().map(|(at, _)| *at).into_iter().chain(self.leave_by).min()
    }

    fn wake_at(&mut self, cx: &mut Cx<'_>, uid: &PodUid, at: Mono) {
        let at = at.max(cx.now.mono + Span::from_millis(1));
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        if let Some(old) = worker.wake.replace(at) {
            self.timers.remove(&(old, uid.clone()));
        }
        self.timers.insert((at, uid.clone()));
    }

    fn set_phase(&mut self, cx: &mut Cx<'_>, uid: &PodUid, phase: Phase) {
        if let Some(worker) = cx.facts.workers.workers.get_mut(uid) {
            worker.phase = phase;
            cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
        }
    }

    fn said(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        warning: bool,
        reason: impl Into<Cow<'static, str>>,
        message: String,
    ) {
        let (uid, field, reason) = (Some(uid.clone()), String::new(), reason.into());
        cx.say(Note::Said(Said { uid, field, warning, reason, message }.into()));
    }

    pub(crate) fn check(&self, facts: &Facts) {
        for (at, uid) in &self.timers {
            let worker = facts.workers.workers.get(uid);
            assert!(worker.is_some_and(|w| w.wake == Some(*at)), "workers: a stray timer of {uid}");
        }
        for (uid, worker) in &facts.workers.workers {
            let waits =
                matches!(worker.phase, Phase::Syncing | Phase::Terminating(_) | Phase::Cleaning(_));
            assert!(
                !waits
                    || worker.busy
                    || worker.wake.is_some()
                    || !facts.pleg.fresh(uid)
                    || !may_go_on(facts, &worker.phase),
                "workers: nothing would ever move {uid} in {:?}",
                worker.phase
            );
        }
    }
}

/// Whether the runtime answers, and, for what is to be made, has said where cgroups lie. To stop and clean up, the
/// configuration says enough: housekeeping finds what lies elsewhere.
fn may_go_on(facts: &Facts, phase: &Phase) -> bool {
    let makes = matches!(phase, Phase::Waiting | Phase::Syncing);
    facts.pleg.reachable() && (!makes || facts.runtime_status.cgroup_driver().is_some())
}

/// A duration as Go prints whole seconds: `10s`, `2m40s`, with a blank behind.
fn go_secs(secs: u64) -> String {
    match (secs / 60, secs % 60) {
        (0, s) => format!("{s}s "),
        (m, s) => format!("{m}m{s}s "),
    }
}
