//! Deletions of pods: only those that somebody asked for, and only when nothing of the pod runs any more.

use super::{is_mirror, name, uid};
use crate::checkers::Judge;
use crate::doors::api::{By, Stored};
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use serde_json::Value;
use std::collections::BTreeMap;
use steplet_core::effect::{Call, Effect, Verb};

#[derive(Default)]
pub struct Deletion {
    /// Pods that are there, by uid: the name, and whether the agent may take it away.
    there: BTreeMap<String, (String, bool)>,
}

impl Judge for Deletion {
    fn promise(&self) -> &'static str {
        "a pod is taken off the API server when that was asked for and nothing of it runs"
    }

    fn stored(&mut self, ledger: &Ledger, _: Moment, stored: &Stored, out: &mut Vec<String>) {
        if stored.plural != "pods" {
            return;
        }
        let (object, uid) = (&stored.object, uid(&stored.object).to_owned());
        if !stored.gone {
            let free = is_mirror(object) || object["metadata"].get("deletionTimestamp").is_some();
            self.there.insert(uid, (name(object), free));
            return;
        }
        let known = self.there.remove(&uid);
        if stored.by == By::Others {
            return;
        }
        if known.is_none_or(|(_, free)| !free) {
            out.push(format!("{} is deleted, and nobody had asked for that", name(object)));
        }
        let running = ledger.containers.values().filter(|record| record.fact.uid == uid);
        for record in running.filter(|record| record.running() && !is_mirror(object)) {
            out.push(format!("{} is deleted while {} runs", name(object), record.name()));
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            let Effect::Call { call: Call::Api(call), .. } = effect else { continue };
            if call.verb != Verb::Delete || !call.path.contains("/pods/") {
                continue;
            }
            let options: Value = serde_json::from_slice(&call.body).unwrap_or_default();
            let wanted = options["preconditions"]["uid"].as_str().unwrap_or_default();
            if wanted.is_empty() {
                out.push(format!("DELETE {} names no uid", call.path));
            }
            if options["gracePeriodSeconds"] != 0 {
                out.push(format!("DELETE {} asks for a grace", call.path));
            }
            // One that is gone by now does no harm.
            if let Some((name, false)) = self.there.get(wanted) {
                out.push(format!("DELETE of {name}, and nobody had asked for that"));
            }
        }
    }
}
