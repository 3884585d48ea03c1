//! Open watches: each says what changes as long as it lasts, in order.

use super::request::{Query, Resource};
use super::store::Change;
use crate::clock::At;
use crate::doors::runtime::Caller;
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Watch {
    pub resource: &'static Resource,
    pub query: Query,
    pub seals: bool,
    /// Its head has arrived: no deadline counts any more.
    pub headed: bool,
    /// When its last line arrives: none overtakes it.
    last: At,
    /// Lines that the way to the agent holds back.
    held: Vec<Bytes>,
    /// It has ended, and the agent cannot hear of it.
    pub ended: bool,
}

/// More than this is not kept for an agent that cannot be reached: the connection breaks.
const HELD_MOST: usize = 500;

impl Watch {
    pub fn new(resource: &'static Resource, query: Query, seals: bool, head: At) -> Watch {
        Watch { resource, query, seals, headed: false, last: head, held: Vec::new(), ended: false }
    }

    /// When something that is sent now, or then, arrives.
    pub fn arrival(&mut self, at: At) -> At {
        self.last = self.last.max(at);
        self.last
    }

    pub fn hold(&mut self, line: Bytes) {
        self.ended |= self.held.len() >= HELD_MOST;
        if !self.ended {
            self.held.push(line);
        }
    }

    pub fn release(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.held)
    }
}

#[derive(Debug, Default)]
pub struct Watches {
    open: BTreeMap<Caller, Watch>,
}

impl Watches {
    pub fn open(&mut self, caller: Caller, watch: Watch) {
        self.open.insert(caller, watch);
    }

    pub fn watch(&mut self, caller: Caller) -> Option<&mut Watch> {
        self.open.get_mut(&caller)
    }

    pub fn close(&mut self, caller: Caller) -> Option<Watch> {
        self.open.remove(&caller)
    }

    pub fn callers(&self) -> Vec<Caller> {
        self.open.keys().copied().collect()
    }

    /// Those that a change concerns, and what they are told.
    pub fn hearing(&self, change: &Change) -> Vec<(Caller, Value)> {
        let watches = self.open.iter();
        let of_kind = watches.filter(|(_, watch)| watch.resource.plural == change.key.plural);
        let told = of_kind.filter_map(|(caller, watch)| {
            let kind = change.seen_by(&watch.query)?;
            Some((*caller, line(kind, &change.object)))
        });
        told.collect()
    }
}

pub fn line(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}

pub fn bookmark(resource: &Resource, version: u64) -> Value {
    let metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
    line(
        "BOOKMARK",
        &json!({"kind": resource.kind, "apiVersion": resource.version, "metadata": metadata}),
    )
}
