//! One worker: what is known of a pod, and where it is in its life.

use super::crashes::Crashes;
use crate::backoff::BackOff;
use crate::event::PodReady;
use crate::managers::containers::hash;
use crate::managers::containers::resources::{cpu_milli, memory_bytes};
use crate::managers::pods::plan::Step;
use crate::managers::pods::policy;
use crate::managers::pods::view::PodView;
use crate::planted::planted;
use crate::time::{Mono, Now, Span, Wall};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};
use steplet_api::container::Container;
use steplet_api::pod::Pod;
use steplet_api::pod_facts::{QosClass, effective_requests, is_static, qos_class};
use steplet_api::status::phase;

/// The default of `terminationGracePeriodSeconds`.
const GRACE_DEFAULT: i64 = 30;
/// The runtime gets no shorter grace (minimumGracePeriodInSeconds in pkg/kubelet/kuberuntime).
pub(super) const GRACE_LEAST: i64 = 2;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    pub(super) pod: Arc<Pod>,
    requests: Requests,
    /// The runtime has it, no source does: the spec is unknown.
    pub(super) orphan: bool,
    /// Counts the lives under this UID, while the worker stands.
    pub(super) life: u32,
    pub(super) phase: Phase,
    /// A step is out.
    pub(super) busy: bool,
    /// Configured again while it was ending: begins anew afterwards.
    pub(super) again: Option<Arc<Pod>>,
    /// What was found when the directories were made, in this life of the program.
    pub(super) setup: Option<PodReady>,
    /// No step is taken before this, whatever happens.
    pub(super) pause: Option<Mono>,
    /// The last step that stopped or started something, to notice when it changes nothing.
    pub(super) last_step: Option<Step>,
    pub(super) crashes: Crashes,
    pub(super) reasons: BTreeMap<Box<str>, Reason>,
    /// `status.startTime`, and the same moment for activeDeadlineSeconds.
    pub(super) started: Wall,
    pub(super) since: Mono,
    /// The event of a network that is not ready was said.
    pub(super) network_said: bool,
    /// A clean-up that fails is tried again ever more slowly.
    pub(super) clean_up: Option<BackOff>,
    /// What the last failed clean-up was told with.
    pub(super) clean_up_said: String,
    pub(super) wake: Option<Mono>,
    /// The Node was, or is being, looked at once more because of its labels.
    pub(super) node_looked: bool,
}

/// What a pod requests, read from its spec once: each pod that starts asks for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub burstable: bool,
}

impl Requests {
    pub fn of(pod: &Pod) -> Requests {
        let requests = effective_requests(&pod.spec);
        Requests {
            cpu_milli: cpu_milli(&requests),
            memory_bytes: memory_bytes(&requests),
            burstable: qos_class(pod) == QosClass::Burstable,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Dead containers and sandboxes of an earlier life of this UID are being removed.
    Removing,
    /// An earlier pod of the same name has to end first.
    Waiting,
    Syncing,
    Terminating(Ending),
    /// Nothing runs; volumes and cgroup go.
    Cleaning(Ending),
    /// Kept for its status while it is configured.
    Ended(Ending),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    pub why: Why,
    pub grace_seconds: i64,
    /// When the first container was asked to stop: the grace begins there, not with the decision.
    pub asked: Option<Mono>,
}

impl Ending {
    /// Seconds of the grace that have not passed: it runs since the first request.
    pub(super) fn left(&self, now: Mono) -> i64 {
        let passed = self.asked.map_or(0, |asked| now.since(asked).secs());
        self.grace_seconds.saturating_sub(i64::try_from(passed).unwrap_or(i64::MAX))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Why {
    /// Every container ended by itself.
    Finished,
    /// The API server was asked to delete it.
    Deleted,
    /// No source has it any more, or the program leaves and takes its pods with it.
    Unconfigured,
    /// The admission said no: reason and message.
    Rejected(String, String),
    /// activeDeadlineSeconds have passed.
    DeadlineExceeded,
}

/// Why a container waits, in the words of pkg/kubelet/container/sync_result.go and pkg/kubelet/images/types.go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    pub reason: Box<str>,
    pub message: String,
}

impl Worker {
    pub(super) fn new(pod: Arc<Pod>, orphan: bool, now: Now) -> Worker {
        Worker {
            requests: Requests::of(&pod),
            pod,
            orphan,
            life: 0,
            phase: Phase::Waiting,
            busy: false,
            again: None,
            setup: None,
            pause: None,
            last_step: None,
            crashes: Crashes::default(),
            reasons: BTreeMap::new(),
            started: now.wall,
            since: now.mono,
            network_said: false,
            clean_up: None,
            clean_up_said: String::new(),
            wake: None,
            node_looked: false,
        }
    }

    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// The same pod by another definition.
    pub(super) fn redefine(&mut self, pod: Arc<Pod>) {
        self.requests = Requests::of(&pod);
        self.pod = pod;
    }

    /// Thousandths of a CPU that it asks for as a burstable pod; 0 of another class, and once it has ended.
    pub fn burstable_milli(&self) -> i64 {
        let counts = self.requests.burstable && !matches!(self.phase, Phase::Ended(_));
        if counts { self.requests.cpu_milli } else { 0 }
    }

    pub fn requests(&self) -> Requests {
        self.requests
    }

    pub fn orphan(&self) -> bool {
        self.orphan
    }

    /// Which life under this UID it is: what is known of another one does not count.
    pub fn life(&self) -> u32 {
        self.life
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Node files and log numbers found when the pod's directories were made.
    pub fn setup(&self) -> Option<&PodReady> {
        self.setup.as_ref()
    }

    pub fn reasons(&self) -> &BTreeMap<Box<str>, Reason> {
        &self.reasons
    }

    /// `status.startTime`.
    pub fn started(&self) -> Wall {
        self.started
    }

    /// How it ends, once it does.
    pub fn ending(&self) -> Option<&Ending> {
        match &self.phase {
            Phase::Removing | Phase::Waiting | Phase::Syncing => None,
            Phase::Terminating(e) | Phase::Cleaning(e) | Phase::Ended(e) => Some(e),
        }
    }

    /// `<name>_<namespace>`
    pub(super) fn full_name(&self) -> (&str, &str) {
        (&self.pod.metadata.name, &self.pod.metadata.namespace)
    }

    pub(super) fn grace_seconds(&self, view: Option<&PodView>) -> i64 {
        // Of an orphan only the containers' annotations tell; upstream takes 1 s, but a running container that was
        // not asked to stop by anybody deserves the grace it was started with.
        let noted = || view?.containers.iter().find_map(|c| c.grace_seconds);
        let grace = match self.orphan {
            true => noted(),
            false => {
                let asked = self.pod.metadata.deletion_grace_period_seconds;
                asked.or(self.pod.spec.termination_grace_period_seconds)
            }
        };
        let grace = grace.unwrap_or(if self.orphan { 1 } else { GRACE_DEFAULT });
        grace.max(GRACE_LEAST) * if planted(3) { 2 } else { 1 }
    }
}

/// Whether all that is left of the pod has ended for good, but by another definition than its present one: an edit
/// under a pinned UID that nobody saw being made.
pub(super) fn finished_otherwise(pod: &Pod, view: Option<&PodView>) -> bool {
    let Some(view) = view.filter(|view| !view.alive()) else { return false };
    let other = |c: &Container| {
        let shown = view.container(&c.name);
        shown.is_some_and(|s| !s.hash.is_empty() && *s.hash != *hash::hash_text(c))
    };
    policy::pod_finished(pod, view) && pod.spec.containers.iter().any(other)
}

/// Why a pod is not to run any more by its object in the API server: it is being deleted, or its phase is a last one.
pub(super) fn over_by_object(pod: &Pod) -> Option<Why> {
    if is_static(pod) {
        return None;
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Why::Deleted);
    }
    matches!(&*pod.status.phase, phase::SUCCEEDED | phase::FAILED).then_some(Why::Finished)
}

/// When activeDeadlineSeconds will have passed.
pub(super) fn deadline_at(worker: &Worker) -> Option<Mono> {
    let seconds = u64::try_from(worker.pod.spec.active_deadline_seconds?).ok()?;
    Some(worker.since + Span::from_secs(seconds))
}
