//! Brings the status of each pod to the API server, and takes pods off it that have ended.
//!
//! Upstream: pkg/kubelet/status/status_manager.go (v1.36).
//! Owns: what is under way to the API server, and its answers until the watch has them too.
//! Publishes: -. Hears: Progressed, ObjectChanged, Configured, MirrorsChanged, Forgotten, Unconfigured. Says: -.
//! Asks: PATCH of a pod's status, DELETE of a pod.
//! Never: writes a status that the API server has; deletes a pod that nobody asked to delete, that may still run, or
//! whose last status is not there yet. Both name the UID.

use super::workers::Phase;
use crate::cx::Cx;
use crate::effect::{Call, Lane, Verb};
use crate::event::Outcome;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::api::{Refusal, judged, request};
use crate::note::PodNote;
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steplet_api::cluster::{OnlyStatus, POD_STATUS_KEYS, merge_patch};
use steplet_api::json;
use steplet_api::meta::ObjectMeta;
use steplet_api::pod::Pod;
use steplet_api::pod_facts::is_static;
use steplet_api::status::{ContainerState, ContainerStatus, PodCondition, PodStatus, phase};

/// After a failure, doubled up to the most: upstream looks again every ten seconds.
const REST: Span = Span::from_secs(1);
/// After an outage.
const BACK: Span = Span::from_millis(100);
const REST_MOST: Span = Span::from_secs(10);
/// How long what only tells more of a start under way is kept back: the next word will say it too. Upstream looks at
/// the runtime once a second, and mostly does not see it at all.
const DETAILS: Span = Span::from_secs(1);
/// What the API server has refused for good is offered again ever more seldom, unless it says something new.
const REFUSED: Span = Span::from_secs(10);
const REFUSED_MOST: Span = Span::from_secs(600);
/// Requests under way at once.
const AT_ONCE: usize = 8;
/// Conditions that a kubelet writes. All others are somebody else's.
const OURS: [&str; 9] = [
    "PodScheduled",
    "Ready",
    "Initialized",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "DisruptionTarget",
    "AllContainersRestarting",
];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusSync {
    rng: Rng,
    /// To be compared with what the API server has.
    wanted: BTreeSet<PodUid>,
    /// With the patch; empty for a deletion.
    under_way: BTreeMap<PodUid, Bytes>,
    refused: BTreeMap<PodUid, Refused>,
    /// Details are kept back until then.
    held: BTreeMap<PodUid, Mono>,
    /// The objects as they were answered, newer than what the watch has brought.
    answered: BTreeMap<PodUid, Answered>,
    rest: Option<Span>,
    /// Nothing is asked before.
    not_before: Option<Mono>,
    problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Answered {
    /// Of the object, and its version.
    uid: Box<str>,
    version: u64,
    status: PodStatus,
}

/// A status that the API server calls wrong: the same one waits, and holds up nobody else's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Refused {
    patch: Bytes,
    rest: Span,
    /// None while it is being offered again.
    until: Option<Mono>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Patch(PodUid),
    Delete(PodUid),
}

impl StatusSync {
    pub(crate) fn on_booted(&mut self, rng: Rng) {
        self.rng = rng;
    }

    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        if cx.facts.settings().api.is_none() {
            return;
        }
        match note {
            PodNote::Progressed { uid }
            | PodNote::Configured { uid }
            | PodNote::ObjectChanged { uid } => {
                self.wanted.insert(uid.clone());
            }
            PodNote::MirrorsChanged => {
                let pods = cx.facts.sources.pods().iter().filter(|(_, pod)| is_static(pod));
                self.wanted.extend(pods.map(|(uid, _)| uid.clone()));
            }
            PodNote::Forgotten { uid } | PodNote::Unconfigured { uid } => {
                self.wanted.remove(uid);
                self.held.remove(uid);
                self.answered.remove(uid);
                self.refused.remove(uid);
            }
            PodNote::SourcesReady
            | PodNote::Inspected { .. }
            | PodNote::RuntimeBack
            | PodNote::RuntimeNamed
            | PodNote::Swept { .. } => {}
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let rest = self.not_before.filter(|_| !self.wanted.is_empty());
        let held = self.held.iter().filter(|(uid, _)| !self.wanted.contains(*uid));
        let refused = self.refused.values().filter_map(|refused| refused.until);
        held.map(|(_, at)| *at).chain(refused).chain(rest).min()
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.rest = None;
        self.not_before = self.not_before.map(|at| at.min(cx.now.mono + BACK));
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        let due = self.held.iter().filter(|(_, at)| **at <= cx.now.mono);
        self.wanted.extend(due.map(|(uid, _)| uid.clone()));
        if self.not_before.is_some_and(|at| at <= cx.now.mono) {
            self.not_before = None;
            self.go_on(cx);
        }
        for (uid, refused) in &mut self.refused {
            if refused.until.is_some_and(|until| until <= cx.now.mono) {
                refused.until = None;
                self.wanted.insert(uid.clone());
            }
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        let answer = judged(outcome);
        match ask {
            Ask::Patch(uid) => {
                let patch = self.under_way.remove(&uid).unwrap_or_default();
                match answer {
                    Ok(body) => {
                        (self.rest, self.problem) = (None, None);
                        self.refused.remove(&uid);
                        if let Ok(pod) = json::from_slice::<OnlyStatus>(&body) {
                            let version = version(&pod.metadata);
                            let (uid_of, status) = (pod.metadata.uid, pod.status);
                            let answered = Answered { uid: uid_of, version, status };
                            self.answered.insert(uid.clone(), answered);
                        }
                        self.wanted.insert(uid);
                    }
                    // The watch will say what became of it.
                    Err(refusal) if matches!(refusal.status, 404 | 409) => {}
                    Err(refusal) if matches!(refusal.status, 400 | 422) => {
                        self.put_back(cx, uid, patch, &refusal.message);
                    }
                    Err(refusal) => self.again(cx, uid, refusal),
                }
            }
            Ask::Delete(uid) => {
                self.under_way.remove(&uid);
                match answer {
                    Ok(_) => (self.rest, self.problem) = (None, None),
                    Err(refusal) if matches!(refusal.status, 404 | 409) => {}
                    Err(refusal) => self.again(cx, uid, refusal),
                }
            }
        }
    }

    /// It would be refused again.
    fn put_back(&mut self, cx: &Cx<'_>, uid: PodUid, patch: Bytes, why: &str) {
        let before = self.refused.get(&uid).filter(|refused| refused.patch == patch);
        let rest = before.map_or(REFUSED, |refused| refused.rest.times(2).min(REFUSED_MOST));
        if before.is_none() {
            log::error!(
                "The API server refuses the status of pod {uid}, so it shows an old one: {why}"
            );
        }
        let until = Some(cx.now.mono + self.rng.jitter(rest, 20));
        self.refused.insert(uid, Refused { patch, rest, until });
    }

    fn again(&mut self, cx: &Cx<'_>, uid: PodUid, refusal: Refusal) {
        self.wanted.insert(uid);
        if self.problem.as_ref() != Some(&refusal.message) {
            log::warn!("The status of a pod cannot be written: {}", refusal.message);
            self.problem = Some(refusal.message);
        }
        if self.not_before.is_none() {
            let rest = self.rest.map_or(REST, |rest| rest.times(2).min(REST_MOST));
            self.rest = Some(rest);
            let rest = refusal.retry_after.unwrap_or(self.rng.jitter(rest, 20));
            self.not_before = Some(cx.now.mono + rest);
        }
    }

    /// At the end of a step, when all that it changed is known.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        if self.not_before.is_some() {
            return;
        }
        let mut later = BTreeSet::new();
        while let Some(uid) = self.wanted.pop_first() {
            if self.under_way.contains_key(&uid) || self.under_way.len() >= AT_ONCE {
                later.insert(uid);
            } else if let Some((ask, patch, call)) = self.next(cx.facts, cx.now.mono, &uid) {
                self.under_way.insert(uid, patch);
                cx.call(ask, call);
            }
        }
        self.wanted = later;
    }

    /// What is to be written of a pod, or that it is to go.
    fn next(&mut self, facts: &Facts, now: Mono, uid: &PodUid) -> Option<(Ask, Bytes, Call)> {
        let held = self.held.remove(uid);
        // What was kept says nothing of what the API server has by now.
        if facts.sources.unseen(uid) {
            return None;
        }
        let object = facts.sources.object(uid)?;
        let has = self.shown(uid, object);
        let status = facts.statuses.status(uid);
        if let Some(status) = status {
            let new = match is_static(facts.sources.pod(uid)?) {
                true => merged(status, &has),
                false => merged_for_good(status, &has),
            };
            if new != has && only_details(&new, &has) {
                let until = held.unwrap_or(now + DETAILS);
                if now < until {
                    self.held.insert(uid.clone(), until);
                    return None;
                }
            }
            let patch = (new != has).then(|| {
                let (before, after) = (json!({ "status": has }), json!({ "status": new }));
                merge_patch(&before, &after, POD_STATUS_KEYS)
            });
            if let Some(mut patch) = patch.flatten() {
                patch["metadata"] = json!({ "uid": object.metadata.uid });
                let path = format!("{}/status", path(object));
                let patch = Bytes::from(json::to_vec(&patch));
                let refused = self.refused.get(uid);
                if refused.is_some_and(|it| it.until.is_some() && it.patch == patch) {
                    return None;
                }
                let call = request(Verb::Patch, path, patch.clone(), Lane::Main);
                return Some((Ask::Patch(uid.clone()), patch, call));
            }
        }
        // Its end was asked for, nothing of it is left, and the last word on it is there.
        let asked = object.metadata.deletion_timestamp.is_some();
        let worker = facts.workers.worker(uid);
        let over = worker.is_some_and(|worker| matches!(worker.phase(), Phase::Ended(_)));
        let last = matches!(&*has.phase, phase::SUCCEEDED | phase::FAILED);
        if asked && over && last && status.is_some() && !is_static(facts.sources.pod(uid)?) {
            return Some((Ask::Delete(uid.clone()), Bytes::new(), delete(object)));
        }
        None
    }

    /// The status as the API server has it, by the watch or by a later answer.
    fn shown(&mut self, uid: &PodUid, object: &Pod) -> PodStatus {
        match self.answered.get(uid) {
            Some(answered)
                if answered.uid == object.metadata.uid
                    && answered.version > version(&object.metadata) =>
            {
                answered.status.clone()
            }
            _ => {
                self.answered.remove(uid);
                object.status.clone()
            }
        }
    }
}

/// A deletion without grace of exactly this object.
pub(super) fn delete(object: &Pod) -> Call {
    let body: Value = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": { "uid": object.metadata.uid },
    });
    request(Verb::Delete, path(object), json::to_vec(&body).into(), Lane::Main)
}

fn path(object: &Pod) -> String {
    let meta = &object.metadata;
    format!("/api/v1/namespaces/{}/pods/{}", meta.namespace, meta.name)
}

/// Versions of one object grow. One that is no number is as good as the newest.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.parse().unwrap_or(0)
}

/// The same for a pod of the cluster, whose end is final: what was kept on the disk may be older than that.
pub fn merged_for_good(ours: &PodStatus, has: &PodStatus) -> PodStatus {
    let mut status = merged(ours, has);
    if matches!(&*has.phase, phase::SUCCEEDED | phase::FAILED) && status.phase != has.phase {
        status.phase = has.phase.clone();
        (status.reason, status.message) = (has.reason.clone(), has.message.clone());
    }
    status
}

/// Our status, with what others have put beside it.
fn merged(ours: &PodStatus, has: &PodStatus) -> PodStatus {
    let mut status = ours.clone();
    let others = has.conditions.iter().filter(|c| !OURS.contains(&&*c.type_));
    let own = ours.conditions.iter().filter(|c| OURS.contains(&&*c.type_));
    let all: Vec<PodCondition> = others.chain(own).cloned().collect();
    status.conditions = all;
    // The scheduler, resource claims and ephemeral containers are not looked after here.
    status.nominated_node_name = has.nominated_node_name.clone();
    status.resource_claim_statuses = has.resource_claim_statuses.clone();
    status.extended_resource_claim_status = has.extended_resource_claim_status.clone();
    status.node_allocatable_resource_claim_statuses =
        has.node_allocatable_resource_claim_statuses.clone();
    status.ephemeral_container_statuses = has.ephemeral_container_statuses.clone();
    status
}

/// The pod is starting as it was before, and nothing that somebody may wait for has changed.
fn only_details(new: &PodStatus, has: &PodStatus) -> bool {
    let starting = |status: &PodStatus| &*status.phase == phase::PENDING;
    let same = |(new, has): (&ContainerStatus, &ContainerStatus)| {
        let made = |state: &ContainerState| {
            state.waiting.as_ref().is_some_and(|waiting| waiting.reason.is_empty())
        };
        let waits = has.state.waiting.is_some();
        new.name == has.name && (new.state == has.state || made(&new.state) && waits)
    };
    let all = |new: &[ContainerStatus], has: &[ContainerStatus]| {
        new.len() == has.len() && new.iter().zip(has).all(same)
    };
    starting(new)
        && starting(has)
        && has.start_time.is_some()
        && (&new.reason, &new.message) == (&has.reason, &has.message)
        && new.observed_generation == has.observed_generation
        && all(&new.container_statuses, &has.container_statuses)
        && all(&new.init_container_statuses, &has.init_container_statuses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tells_more_of_a_start() {
        let check = |new: &str, has: &str, want| {
            let read = |text: &str| json::from_slice::<PodStatus>(text.as_bytes()).expect("JSON");
            assert_eq!(only_details(&read(new), &read(has)), want, "{new} on {has}");
        };
        let pod = |state: &str| {
            format!(
                r#"{{"phase":"Pending","startTime":"2026-01-01T00:00:00Z","containerStatuses":[{{
                "name":"c","state":{{{state}}}}}]}}"#
            )
        };
        let (creating, made) = (r#""waiting":{"reason":"ContainerCreating"}"#, r#""waiting":{}"#);
        let (creating, made) = (pod(creating), pod(made));
        let backing_off = pod(r#""waiting":{"reason":"ImagePullBackOff"}"#);
        let running = pod(r#""running":{}"#);
        check(&made, &creating, true);
        check(&made.replace(r#","cont"#, r#","podIP":"10.0.0.1","cont"#), &creating, true);
        check(&backing_off, &creating, false);
        check(&running, &creating, false);
        check(&made, &running, false);
        check(&creating.replace("Pending", "Failed"), &creating, false);
        check(&creating, r#"{"phase":"Pending"}"#, false);
        check(&creating.replace(r#"{"ph"#, r#"{"reason":"Evicted","ph"#), &creating, false);
    }

    #[test]
    fn an_end_is_final() {
        let check = |ours: &str, has: &str, want: &str| {
            let of = |phase: &str| PodStatus { phase: phase.into(), ..PodStatus::default() };
            assert_eq!(&*merged_for_good(&of(ours), &of(has)).phase, want, "{ours} on {has}");
        };
        check("Running", "Pending", "Running");
        check("Failed", "Running", "Failed");
        check("Running", "Failed", "Failed");
        check("Failed", "Succeeded", "Succeeded");
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let status = |text: &str| {
            let conditions = text.split_whitespace().map(|word| {
                let (type_, status) = word.split_once('=').expect("a table");
                PodCondition {
                    type_: type_.into(),
                    status: status.into(),
                    ..PodCondition::default()
                }
            });
            PodStatus { conditions: conditions.collect(), ..PodStatus::default() }
        };
        let check = |ours, has, want: &str| {
            assert_eq!(merged(&status(ours), &status(has)), status(want), "{ours} on {has}");
        };
        check("Ready=True", "", "Ready=True");
        check("Ready=True", "Ready=False Gate=True", "Gate=True Ready=True");
        check("", "Ready=False Gate=True", "Gate=True");
    }
}
