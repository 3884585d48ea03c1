//! The PodStatus of each pod, as it would be reported.
//!
//! Upstream: pkg/kubelet/status/status_manager.go, kubelet_pods.go (v1.36).
//! Owns: the last status of each pod. Publishes: `facts.statuses`.
//! Hears: Progressed, Forgotten, RuntimeNamed. Says: -. Asks: -.
//! Never: lets a phase leave Succeeded or Failed.

use super::status_plan::{Stage, StatusInput, Verdict, pod_status};
use super::workers::{Ending, Phase, Why, Worker};
use crate::cx::Cx;
use crate::ids::PodUid;
use crate::note::PodNote;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::status::PodStatus;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusFacts {
    statuses: BTreeMap<PodUid, Known>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    /// The worker's life that it is of.
    life: u32,
    status: PodStatus,
}

impl StatusFacts {
    pub fn status(&self, uid: &PodUid) -> Option<&PodStatus> {
        self.statuses.get(uid).map(|known| &known.status)
    }
}

impl Status {
    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        match note {
            PodNote::Progressed { uid } => self.refresh(cx, uid),
            PodNote::Forgotten { uid } => {
                cx.facts.statuses.statuses.remove(uid);
            }
            PodNote::Configured { .. }
            | PodNote::Unconfigured { .. }
            | PodNote::SourcesReady
            | PodNote::Inspected { .. }
            | PodNote::Swept { .. }
            | PodNote::ObjectChanged { .. }
            | PodNote::MirrorsChanged
            | PodNote::RuntimeBack => {}
            PodNote::RuntimeNamed => {
                let uids: Vec<PodUid> = cx.facts.workers.all().keys().cloned().collect();
                for uid in uids {
                    self.refresh(cx, &uid);
                }
            }
        }
    }

    fn refresh(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.worker(uid).filter(|w| !w.orphan()) else { return };
        // What an earlier life of this UID left says nothing of this one.
        let (life, fresh) = (worker.life(), *worker.phase() == Phase::Removing);
        let known = facts.statuses.statuses.get(uid).filter(|known| known.life == life);
        let known = known.map(|known| &known.status);
        // Before the first look at the runtime nothing is known: a running pod would be shown as Pending, or with
        // container IDs that name no runtime.
        let unnamed = facts.runtime_status.name().is_empty();
        if known.is_none() && (unnamed || !facts.pleg.fresh(uid)) {
            return;
        }
        // An earlier life of the agent has written into the pod's object: times and conditions go on from there.
        let written = facts.sources.pod(uid).map(|pod| &pod.status);
        let old = known.or(written.filter(|status| status.start_time.is_some()));
        let input = StatusInput {
            pod: worker.pod(),
            view: facts.pleg.view(uid).filter(|_| !fresh),
            old,
            reasons: &|name| worker.reasons().get(name).map(|r| (&*r.reason, r.message.as_str())),
            stage: stage(worker),
            verdict: verdict(worker),
            runtime_name: facts.runtime_status.name(),
            started: worker.started(),
            now: cx.now.wall,
            recursive_read_only: facts.runtime_status.recursive_read_only(),
            machine: facts.boot.machine(),
        };
        let status = pod_status(&input);
        if known != Some(&status) {
            facts.statuses.statuses.insert(uid.clone(), Known { life, status });
        }
    }
}

fn stage(worker: &Worker) -> Stage {
    match worker.phase() {
        Phase::Removing | Phase::Waiting | Phase::Syncing => Stage::Running,
        Phase::Terminating(_) => Stage::Terminating,
        Phase::Cleaning(_) | Phase::Ended(_) => Stage::Ended,
    }
}

fn verdict(worker: &Worker) -> Verdict<'_> {
    match worker.ending() {
        Some(Ending { why: Why::Rejected(reason, message), .. }) => {
            Verdict::Rejected(reason, message)
        }
        Some(Ending { why: Why::DeadlineExceeded, .. }) => {
            Verdict::Failed("DeadlineExceeded", DEADLINE_MESSAGE)
        }
        Some(Ending { why: Why::Finished | Why::Deleted | Why::Unconfigured, .. }) | None => {
            Verdict::None
        }
    }
}

pub(super) const DEADLINE_MESSAGE: &str =
    "Pod was active on the node longer than the specified deadline";
