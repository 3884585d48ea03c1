//! Mirror pods: what the API server shows of pods that come from files and URLs.
//!
//! Upstream: pkg/kubelet/pod/mirror_client.go, tryReconcileMirrorPods in pkg/kubelet/kubelet.go (v1.36).
//! Owns: what is under way. Publishes: -. Hears: Configured, Unconfigured, MirrorsChanged, Progressed, SourcesReady,
//! NodeKnown.
//! Says: PartialList. Asks: POST and DELETE of mirror pods.
//! Never: deletes an object that is not the picture of a static pod of this node; each DELETE names the UID.

use super::status_sync::delete;
use super::workers::Phase;
use crate::cx::Cx;
use crate::effect::{Lane, Verb};
use crate::event::Outcome;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::api::{Refusal, judged, request};
use crate::note::{Note, PodNote};
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::Node;
use steplet_api::json;
use steplet_api::meta::OwnerReference;
use steplet_api::pod::Pod;
use steplet_api::pod_facts::{annotation, is_static};
use steplet_api::status::phase;

const REST: Span = Span::from_secs(1);
const REST_MOST: Span = Span::from_secs(60);

/// Namespace and name.
type Name = (Box<str>, Box<str>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mirror {
    rng: Rng,
    changed: bool,
    pods: BTreeMap<Name, State>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    UnderWay { rest: Span },
    Resting { until: Mono, rest: Span },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask(Name);

impl Mirror {
    pub(crate) fn on_booted(&mut self, rng: Rng) {
        self.rng = rng;
    }

    pub(crate) fn on_note(&mut self, note: &PodNote) {
        self.changed |= matches!(
            note,
            PodNote::Configured { .. }
                | PodNote::Unconfigured { .. }
                | PodNote::MirrorsChanged
                | PodNote::Progressed { .. }
                | PodNote::SourcesReady
        );
    }

    pub(crate) fn on_node_known(&mut self) {
        self.changed = true;
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let resting = self.pods.values().filter_map(|state| match state {
            State::Resting { until, .. } => Some(*until),
            State::UnderWay { .. } => None,
        });
        resting.min()
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.deadline().is_some_and(|at| at <= cx.now.mono) {
            self.changed = true;
            self.go_on(cx);
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        let Ask(name) = ask;
        let Some(State::UnderWay { rest }) = self.pods.remove(&name) else { return };
        let rest = match judged(outcome) {
            // Until the watch has it: the next look is soon enough.
            Ok(_) => REST,
            // The watch is behind, maybe for long, or its list was not whole.
            Err(Refusal { status: 404 | 409, .. }) => {
                if rest > REST {
                    cx.say(Note::PartialList);
                }
                rest.times(2).max(REST).min(REST_MOST)
            }
            Err(refusal) => {
                if rest == Span::ZERO {
                    log::warn!("The mirror pod {}/{}: {}", name.0, name.1, refusal.message);
                }
                rest.times(2).max(REST).min(REST_MOST)
            }
        };
        let until = cx.now.mono + self.rng.jitter(rest, 20);
        self.pods.insert(name, State::Resting { until, rest });
    }

    /// At the end of a step: what is missing is made, what is wrong or left over is taken away.
    pub(crate) fn go_on(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        let now = cx.now.mono;
        let mut todo: BTreeMap<Name, Option<Arc<Pod>>> = BTreeMap::new();
        if let Some(node) = cx.facts.node.node().filter(|_| cx.facts.sources.ready()) {
            for (name, made) in wrong(cx.facts, node) {
                todo.insert(name, made);
            }
        }
        // Whoever rests without something to do is done.
        self.pods.retain(|name, state| {
            matches!(state, State::UnderWay { .. }) || todo.contains_key(name)
        });
        for (name, made) in todo {
            let rest = match self.pods.get(&name) {
                Some(State::UnderWay { .. }) => continue,
                Some(State::Resting { until, .. }) if *until > now => continue,
                Some(State::Resting { rest, .. }) => *rest,
                None => Span::ZERO,
            };
            let call = match (made, cx.facts.sources.mirrors().get(&name)) {
                (Some(pod), None) => {
                    let path = format!("/api/v1/namespaces/{}/pods", name.0);
                    request(Verb::Post, path, json::to_vec(&*pod).into(), Lane::Main)
                }
                (_, Some(mirror)) => delete(mirror),
                (None, None) => continue,
            };
            self.pods.insert(name.clone(), State::UnderWay { rest });
            cx.call(Ask(name), call);
        }
    }
}

/// Mirror pods that are not as they should be, each with what is to be made of it.
fn wrong(facts: &Facts, node: &Node) -> Vec<(Name, Option<Arc<Pod>>)> {
    let sources = &facts.sources;
    let mut all = Vec::new();
    let mut named = BTreeMap::new();
    for pod in sources.pods().values().filter(|pod| is_static(pod)) {
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let right = sources.mirror(pod).is_some_and(|mirror| {
            hash(mirror, annotation::CONFIG_MIRROR) == hash(pod, annotation::CONFIG_HASH)
                && mirror.metadata.deletion_timestamp.is_none()
                && !(is_over(mirror) && lives(facts, &pod.metadata.uid))
        });
        if !right {
            all.push((name.clone(), Some(Arc::new(mirror_of(pod, node)))));
        }
        named.insert(name, ());
    }
    let stray = sources.mirrors().keys().filter(|name| !named.contains_key(*name));
    all.extend(stray.map(|name| (name.clone(), None)));
    all
}

fn is_over(mirror: &Pod) -> bool {
    matches!(&*mirror.status.phase, phase::SUCCEEDED | phase::FAILED)
}

/// It runs, maybe once more under its UID: a picture that says it has ended cannot be told otherwise.
fn lives(facts: &Facts, uid: &str) -> bool {
    let uid = PodUid(uid.into());
    let runs = facts.workers.worker(&uid).is_some_and(|w| *w.phase() == Phase::Syncing);
    let status = facts.statuses.status(&uid);
    runs && status.is_some_and(|status| &*status.phase == phase::RUNNING)
}

fn hash<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.get(key).map(|hash| &**hash)
}

/// The object to make: the static pod, owned by the node.
fn mirror_of(pod: &Pod, node: &Node) -> Pod {
    let mut mirror = pod.clone();
    let meta = &mut mirror.metadata;
    let hash: Box<str> = meta.annotations.get(annotation::CONFIG_HASH).cloned().unwrap_or_default();
    meta.annotations.insert(annotation::CONFIG_MIRROR.into(), hash);
    meta.uid = Box::default();
    meta.owner_references = vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.metadata.name.clone(),
        uid: node.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }];
    mirror.status = Default::default();
    mirror
}
