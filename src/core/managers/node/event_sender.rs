//! Brings Kubernetes events to the API server: repeats as a count, floods thinned out.
//!
//! Upstream: client-go/tools/record/{event,events_cache}.go (v1.36).
//! Owns: what is to be sent, and what was sent lately. Publishes: `facts.event_sender`. Hears: Said. Says: -.
//! Asks: POST of an event, PATCH of its count, one at a time.
//! Never: waits for the API server with anything else; keeps more than the last few hundred events for it.

use crate::cx::Cx;
use crate::effect::{Call, Lane, Verb};
use crate::event::Outcome;
use crate::managers::api::{judged, request};
use crate::note::Said;
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use serde_json::json;
use steplet_api::cluster::{Event, EventSource, ObjectReference};
use steplet_api::json;
use steplet_api::time::Time;

const QUEUE_MOST: usize = 500;
const REST: Span = Span::from_secs(10);
/// After an outage.
const BACK: Span = Span::from_secs(1);
const TRIES_MOST: u32 = 12;
/// What is remembered of events that were sent: the oldest goes first.
const KNOWN_MOST: usize = 512;
/// So many different messages of one kind within ten minutes become one.
const SIMILAR_MOST: usize = 10;
const SIMILAR_WITHIN: Span = Span::from_secs(600);
/// An object may have this many events at once, and one more every five minutes.
const BURST: u64 = 25;
const REFILL: Span = Span::from_secs(300);
const OBJECTS_MOST: usize = 4096;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventSender {
    rng: Rng,
    queue: VecDeque<Event>,
    sending: Option<Sending>,
    rest_until: Option<Mono>,
    tries: u32,
    known: BTreeMap<Key, Known>,
    similar: BTreeMap<Key, Similar>,
    /// By object: when its bucket will be full again.
    full_at: BTreeMap<Box<str>, Mono>,
    /// Numbers the names of events of one instant.
    count: u64,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventSenderFacts {
    dropped: u64,
}

impl EventSenderFacts {
    /// Events that the API server never got: thinned out, refused, or too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Object, field, kind, reason; and the message, where it counts.
type Key = (Box<str>, Box<str>, Box<str>, Box<str>, Box<str>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    name: Box<str>,
    first: Time,
    count: i32,
    at: Mono,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Similar {
    messages: BTreeSet<Box<str>>,
    at: Mono,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Sending {
    event: Event,
    patch: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Send,
}

impl EventSender {
    pub(crate) fn on_booted(&mut self, rng: Rng) {
        self.rng = rng;
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.rest_until.filter(|_| self.sending.is_none() && !self.queue.is_empty())
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.rest_until = self.rest_until.map(|at| at.min(cx.now.mono + BACK));
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.rest_until.is_some_and(|at| at <= cx.now.mono) {
            self.rest_until = None;
            self.send(cx);
        }
    }

    pub(crate) fn on_said(&mut self, cx: &mut Cx<'_>, said: &Said) {
        if cx.facts.settings().api.is_none() {
            return;
        }
        let Some(object) = object(cx, said) else { return };
        let name: Box<str> = format!("{} {}/{}", object.kind, object.namespace, object.name).into();
        if self.spams(cx, &name) {
            cx.facts.event_sender.dropped += 1;
            return;
        }
        let event = self.event(cx, said, object);
        if self.queue.len() == QUEUE_MOST {
            self.queue.pop_front();
            cx.facts.event_sender.dropped += 1;
        }
        self.queue.push_back(event);
        self.send(cx);
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, _: Ask, outcome: Outcome) {
        let Some(sending) = self.sending.take() else { return };
        match judged(outcome) {
            Ok(_) => self.tries = 0,
            // Its first one has expired on the server.
            Err(refusal) if sending.patch && refusal.is_not_found() => {
                self.known.retain(|_, known| known.name != sending.event.metadata.name);
                self.queue.push_front(sending.event);
            }
            Err(refusal)
                if refusal.status == 429 || refusal.status >= 500 || refusal.is_silence() =>
            {
                self.tries += 1;
                if self.tries < TRIES_MOST {
                    self.queue.push_front(sending.event);
                    let rest = refusal.retry_after.unwrap_or(REST);
                    self.rest_until = Some(cx.now.mono + self.rng.jitter(rest, 20));
                    return;
                }
                self.tries = 0;
                cx.facts.event_sender.dropped += 1;
                log::warn!("An event could not be sent: {}", refusal.message);
            }
            Err(refusal) => {
                self.tries = 0;
                cx.facts.event_sender.dropped += 1;
                log::info!("The API server does not take an event: {}", refusal.message);
            }
        }
        self.send(cx);
    }

    /// Whether the object has had too many.
    fn spams(&mut self, cx: &Cx<'_>, object: &str) -> bool {
        let now = cx.now.mono;
        self.full_at.retain(|_, at| *at > now);
        if self.full_at.len() >= OBJECTS_MOST {
            return true;
        }
        let full_at = self.full_at.get(object).copied().unwrap_or(now).max(now);
        if full_at.since(now) > REFILL.times(BURST - 1) {
            return true;
        }
        self.full_at.insert(object.into(), full_at + REFILL);
        false
    }

    /// As the API server will have it; a repeat has the name of the first.
    fn event(&mut self, cx: &Cx<'_>, said: &Said, object: ObjectReference) -> Event {
        let now = cx.now;
        let kind: &str = if said.warning { "Warning" } else { "Normal" };
        let of: Box<str> = format!("{}/{}/{}", object.namespace, object.name, object.uid).into();
        let key = |message: &str| -> Key {
            let field = object.field_path.clone();
            (of.clone(), field, kind.into(), (*said.reason).into(), message.into())
        };
        self.similar.retain(|_, similar| now.mono.since(similar.at) < SIMILAR_WITHIN);
        if self.similar.len() >= KNOWN_MOST {
            self.similar.pop_first();
        }
        let fresh = Similar { messages: BTreeSet::new(), at: now.mono };
        let similar = self.similar.entry(key("")).or_insert(fresh);
        similar.at = now.mono;
        if similar.messages.len() < SIMILAR_MOST {
            similar.messages.insert(said.message.as_str().into());
        }
        let combined = similar.messages.len() >= SIMILAR_MOST;
        let mut message = said.message.clone();
        if combined {
            message = format!("(combined from similar events): {message}");
        }
        let key = key(if combined { "" } else { &said.message });
        self.count += 1;
        let at = Time::from_ns(now.wall.0);
        let unique = now.wall.0.unsigned_abs().wrapping_add(self.count);
        let name: Box<str> = format!("{}.{unique:x}", object.name).into();
        let known = match self.known.get_mut(&key) {
            Some(known) => {
                known.count = known.count.saturating_add(1);
                known.at = now.mono;
                known.clone()
            }
            None => {
                let known = Known { name, first: at.clone(), count: 1, at: now.mono };
                self.remember(key, known.clone());
                known
            }
        };
        let host: Box<str> = cx.facts.settings().node_name.as_str().into();
        let namespace =
            if object.namespace.is_empty() { "default".into() } else { object.namespace.clone() };
        let mut event = Event {
            api_version: "v1".into(),
            kind: "Event".into(),
            reason: (*said.reason).into(),
            message: message.into(),
            first_timestamp: known.first,
            last_timestamp: at,
            count: known.count,
            type_: kind.into(),
            involved_object: object,
            source: EventSource { component: "kubelet".into(), host: host.clone() },
            reporting_component: "kubelet".into(),
            reporting_instance: host,
            ..Event::default()
        };
        (event.metadata.name, event.metadata.namespace) = (known.name, namespace);
        event
    }

    fn remember(&mut self, key: Key, known: Known) {
        if self.known.len() >= KNOWN_MOST {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.at);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.known.remove(&key);
            }
        }
        self.known.insert(key, known);
    }

    fn send(&mut self, cx: &mut Cx<'_>) {
        if self.sending.is_some() || self.rest_until.is_some() {
            return;
        }
        let Some(event) = self.queue.pop_front() else { return };
        let known = self.known.values().any(|known| known.name == event.metadata.name);
        let patch = event.count > 1 && known;
        let call = request_of(&event, patch);
        self.sending = Some(Sending { event, patch });
        cx.call(Ask::Send, call);
    }
}

fn request_of(event: &Event, patch: bool) -> Call {
    let path = format!("/api/v1/namespaces/{}/events", event.metadata.namespace);
    if !patch {
        return request(Verb::Post, path, json::to_vec(event).into(), Lane::Events);
    }
    let change = json!({
        "count": event.count,
        "lastTimestamp": event.last_timestamp,
        "message": event.message,
    });
    let path = format!("{path}/{}", event.metadata.name);
    request(Verb::Patch, path, json::to_vec(&change).into(), Lane::Events)
}

/// What the event is about; None of a pod that nobody knows any more.
fn object(cx: &Cx<'_>, said: &Said) -> Option<ObjectReference> {
    let Some(uid) = &said.uid else {
        return Some(ObjectReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: cx.facts.settings().node_name.as_str().into(),
            ..ObjectReference::default()
        });
    };
    let worker = cx.facts.workers.worker(uid).map(|worker| worker.pod());
    let pod = worker.or_else(|| cx.facts.sources.pod(uid))?;
    let meta = &pod.metadata;
    Some(ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: String::from(&*said.field).into(),
    })
}
