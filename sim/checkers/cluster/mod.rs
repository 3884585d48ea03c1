//! What a cluster may expect of its node.

pub mod certificates;
pub mod deletion;
pub mod lease;
pub mod requests;
pub mod truth;

use crate::clock::At;
use crate::trace::Change;
use serde_json::Value;
use steplet_core::time::Span;

/// Since when all is well: no fault since they were all over, and the agent runs.
#[derive(Debug, Default)]
pub(super) struct Calm {
    healed: Option<At>,
    started: Option<At>,
}

impl Calm {
    pub fn change(&mut self, at: At, change: &Change) {
        match change {
            Change::Healed => self.healed = Some(at),
            Change::Fault { .. } | Change::Rebooted | Change::RuntimeCrashed => self.healed = None,
            Change::Way { fine: false } => self.healed = None,
            _ => {}
        }
    }

    pub fn started(&mut self, at: At) {
        self.started = Some(at);
    }

    pub fn ended(&mut self) {
        self.started = None;
    }

    /// Whether it has lasted so long.
    pub fn lasted(&self, at: At, span: Span) -> bool {
        let long = |since: Option<At>| since.is_some_and(|since| at.since(since) >= span);
        long(self.healed) && long(self.started)
    }
}

pub(super) fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// `namespace/name`
pub(super) fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

/// The API server's picture of a static pod.
pub(super) fn is_mirror(object: &Value) -> bool {
    object.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
}
