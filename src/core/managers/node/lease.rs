//! The node's Lease: by its renewal a cluster knows that the agent lives.
//!
//! Upstream: k8s.io/component-helpers/apimachinery/lease, pkg/kubelet/kubelet.go (v1.36).
//! Owns: the lease as it was last seen. Publishes: -. Hears: NodeKnown. Says: -.
//! Asks: GET, POST and PUT of the lease, without a limit of requests.
//! Never: waits for anything but its own answer; a failure costs one period at most.

use crate::cx::Cx;
use crate::effect::{ApiCall, Call, Lane, Verb};
use crate::event::Outcome;
use crate::managers::api::{Refusal, judged};
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{Lease as Object, LeaseSpec};
use steplet_api::json;
use steplet_api::meta::{ObjectMeta, OwnerReference};
use steplet_api::time::Time;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Attempts of one renewal that follow each other at once.
const TRIES: u32 = 5;
/// Between attempts to make it, doubled up to the most.
const MAKE_REST: Span = Span::from_millis(100);
const MAKE_REST_MOST: Span = Span::from_secs(7);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    rng: Rng,
    known: Option<Object>,
    next: Option<Mono>,
    asking: bool,
    tries: u32,
    rest: Option<Span>,
    problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Look,
    Make,
    Renew,
}

impl Lease {
    pub(crate) fn on_booted(&mut self, rng: Rng) {
        self.rng = rng;
    }

    /// The Node is there: its UID owns the lease.
    pub(crate) fn on_node_known(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_none() && !self.asking {
            self.look(cx);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_some_and(|at| at <= cx.now.mono) {
            self.next = None;
            self.tries = 0;
            match self.known {
                Some(_) => self.renew(cx),
                None => self.look(cx),
            }
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        self.asking = false;
        let read = judged(outcome).and_then(|body| {
            let object = json::from_slice::<Object>(&body);
            object.map_err(|message| Refusal { message, ..Refusal::default() })
        });
        match (ask, read) {
            (Ask::Look, Ok(object)) => {
                self.known = Some(object);
                self.renew(cx);
            }
            (Ask::Make | Ask::Renew, Ok(object)) => {
                (self.known, self.rest, self.problem) = (Some(object), None, None);
                self.sleep(cx);
            }
            (Ask::Look, Err(refusal)) if refusal.is_not_found() => self.make(cx),
            // Somebody else wrote it: look again, and go on from there.
            (Ask::Renew, Err(refusal)) if matches!(refusal.status, 404 | 409) => {
                self.known = None;
                self.again(cx, &refusal);
            }
            (Ask::Renew, Err(refusal)) => self.again(cx, &refusal),
            (Ask::Look | Ask::Make, Err(refusal)) => {
                self.complain(&refusal);
                let rest = self.rest.map_or(MAKE_REST, |rest| rest.times(2).min(MAKE_REST_MOST));
                self.rest = Some(rest);
                self.next = Some(cx.now.mono + refusal.retry_after.unwrap_or(rest));
            }
        }
    }

    fn again(&mut self, cx: &mut Cx<'_>, refusal: &Refusal) {
        self.tries += 1;
        // A server that does not answer is not asked in a loop: the way to it is being looked for.
        if self.tries >= TRIES || refusal.is_silence() || refusal.retry_after.is_some() {
            self.complain(refusal);
            return self.sleep(cx);
        }
        match self.known {
            Some(_) => self.renew(cx),
            None => self.look(cx),
        }
    }

    fn complain(&mut self, refusal: &Refusal) {
        if self.problem.as_ref() != Some(&refusal.message) {
            log::warn!("The lease of the node is not renewed: {}", refusal.message);
            self.problem = Some(refusal.message.clone());
        }
    }

    /// A quarter of its duration, stretched a little.
    fn sleep(&mut self, cx: &Cx<'_>) {
        let seconds = cx.facts.settings().api.as_ref().map_or(40, |api| api.lease_seconds);
        let period = Span(Span::from_secs(seconds.into()).0 / 4);
        self.next = Some(cx.now.mono + self.rng.jitter(period, 4));
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        let path = self.path(cx);
        self.ask(cx, Ask::Look, Verb::Get, path, Bytes::new());
    }

    fn make(&mut self, cx: &mut Cx<'_>) {
        let object = self.object(cx, Object::default());
        self.ask(cx, Ask::Make, Verb::Post, LEASES.into(), json::to_vec(&object).into());
    }

    fn renew(&mut self, cx: &mut Cx<'_>) {
        let object = self.object(cx, self.known.clone().unwrap_or_default());
        let path = self.path(cx);
        self.ask(cx, Ask::Renew, Verb::Put, path, json::to_vec(&object).into());
    }

    fn path(&self, cx: &Cx<'_>) -> String {
        format!("{LEASES}/{}", cx.facts.settings().node_name)
    }

    fn object(&self, cx: &Cx<'_>, mut object: Object) -> Object {
        let settings = cx.facts.settings();
        let name = settings.node_name.as_str();
        let seconds = settings.api.as_ref().map_or(40, |api| api.lease_seconds);
        object.api_version = "coordination.k8s.io/v1".into();
        object.kind = "Lease".into();
        let meta = &mut object.metadata;
        if meta.name.is_empty() {
            let (name, namespace) = (name.into(), "kube-node-lease".into());
            *meta = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        }
        if let Some(node) = cx.facts.node.node().filter(|_| meta.owner_references.is_empty()) {
            meta.owner_references = vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.into(),
                uid: node.metadata.uid.clone(),
                ..OwnerReference::default()
            }];
        }
        object.spec = LeaseSpec {
            holder_identity: Some(name.into()),
            lease_duration_seconds: i32::try_from(seconds).ok(),
            renew_time: Some(Time::micro_from_ns(cx.now.wall.0)),
            ..object.spec
        };
        object
    }

    fn ask(&mut self, cx: &mut Cx<'_>, ask: Ask, verb: Verb, path: String, body: Bytes) {
        let api = cx.facts.settings().api.as_ref();
        let within = api.map_or(Span::from_secs(10), |api| {
            api.status_update.min(Span::from_secs(api.lease_seconds.into()))
        });
        self.asking = true;
        self.next = None;
        let lane = Lane::Heartbeat;
        cx.call(
            ask,
            Call::Api(ApiCall { verb, path, body, within, lane, seals: false, secret: None }),
        );
    }
}
