//! Kubernetes events: kept in a bounded ring and logged.
//!
//! Upstream: client-go tools/record (v1.36), reasons of pkg/kubelet/events/event.go.
//! Owns: the ring. Publishes: `facts.events`. Hears: Said. Says: -. Asks: -.
//! Never: grows; repeats of one event only raise its count.

use crate::cx::Cx;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::limits::EVENTS_KEPT_MAX;
use crate::note::Said;
use crate::time::Wall;
use alloc::collections::VecDeque;
use alloc::string::String;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Events {}

/// The published slice, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventsFacts {
    ring: VecDeque<Told>,
    /// All that were ever said.
    total: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub uid: Option<PodUid>,
    /// `namespace/name` of the pod, which may be gone by the time this is read; empty without one.
    pub pod: String,
    pub field: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub count: u32,
    pub last: Wall,
}

impl EventsFacts {
    pub fn ring(&self) -> &VecDeque<Told> {
        &self.ring
    }

    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Events {
    pub(crate) fn on_said(&mut self, cx: &mut Cx<'_>, said: &Said) {
        let pod = said.uid.as_ref().map(|uid| pod_name(cx.facts, uid)).unwrap_or_default();
        let about = if pod.is_empty() { &cx.facts.settings().node_name } else { &pod };
        let kind = if said.warning { "Warning" } else { "Normal" };
        log::info!("event {kind} {} {about} {} {}", said.reason, said.field, said.message);
        let facts = &mut cx.facts.events;
        facts.total += 1;
        let known = facts.ring.iter_mut().find(|told| {
            told.uid == said.uid
                && told.field == said.field
                && told.reason == said.reason
                && told.message == said.message
        });
        if let Some(told) = known {
            told.count = told.count.saturating_add(1);
            told.last = cx.now.wall;
            return;
        }
        if facts.ring.len() == EVENTS_KEPT_MAX {
            facts.ring.pop_front();
        }
        facts.ring.push_back(Told {
            uid: said.uid.clone(),
            pod,
            field: said.field.clone(),
            warning: said.warning,
            reason: said.reason.clone().into_owned(),
            message: said.message.clone(),
            count: 1,
            last: cx.now.wall,
        });
    }
}

/// `namespace/name`, also of a pod that has no worker any more, as long as an event of it is kept.
fn pod_name(facts: &Facts, uid: &PodUid) -> String {
    let pod = facts.workers.worker(uid).map(|worker| worker.pod());
    let pod = pod.or_else(|| facts.sources.pod(uid));
    if let Some(pod) = pod {
        return alloc::format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
    }
    let before = facts.events.ring.iter().rev().find(|told| told.uid.as_ref() == Some(uid));
    before.map(|told| told.pod.clone()).unwrap_or_default()
}
