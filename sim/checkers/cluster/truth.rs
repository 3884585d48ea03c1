//! What the API server has of a pod is true, a few seconds late at most; and an end is final there too.

use super::{Calm, is_mirror, name, uid};
use crate::checkers::Judge;
use crate::clock::At;
use crate::doors::api::Stored;
use crate::ledger::Ledger;
use crate::trace::{Change, Moment};
use serde_json::Value;
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_core::event::Event;
use steplet_core::time::Span;

#[derive(Default)]
pub struct Truth {
    pods: BTreeMap<String, Rc<Value>>,
    calm: Calm,
    looked: At,
    /// Container ids that were reported already.
    told: Vec<String>,
}

/// A dead container may be called running for so long.
const LATE: Span = Span::from_secs(10);
/// So long after the last fault: requests that vanished, back-offs, calls of the runtime that were held up.
const CALM: Span = Span::from_secs(60);
const LOOK: Span = Span::from_secs(1);

impl Truth {
    /// Containers that the API server shows as running, and that are dead.
    fn look(&mut self, ledger: &Ledger, at: At, out: &mut Vec<String>) {
        for pod in self.pods.values() {
            let statuses = ["containerStatuses", "initContainerStatuses"].into_iter();
            let statuses = statuses.filter_map(|list| pod["status"][list].as_array()).flatten();
            for status in statuses {
                let running = status["state"].get("running").is_some();
                if !running && status["ready"] != true {
                    continue;
                }
                let id = status["containerID"].as_str().unwrap_or_default();
                let id = id.rsplit('/').next().unwrap_or_default();
                let Some(record) = ledger.containers.get(id) else { continue };
                let Some(exit) = record.exited else { continue };
                // A static pod whose manifest was not read in this life is nobody's.
                if is_mirror(pod) && ledger.known.pod(&record.key).is_none() {
                    continue;
                }
                if at.since(exit.at) > LATE && running && !self.told.iter().any(|told| told == id) {
                    let ago = at.since(exit.at).secs();
                    self.told.push(id.to_owned());
                    out.push(format!("{} is shown as running, dead for {ago} s", record.name()));
                }
            }
        }
    }
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

impl Judge for Truth {
    fn promise(&self) -> &'static str {
        "the status of a pod in the API server is true, and a final phase is never left"
    }

    fn started(&mut self, _: &Ledger, moment: Moment) {
        self.calm.started(moment.at);
    }

    fn ended(&mut self, _: &Ledger, _: Moment) {
        self.calm.ended();
    }

    fn change(&mut self, _: &Ledger, moment: Moment, change: &Change) {
        self.calm.change(moment.at, change);
    }

    fn stored(&mut self, _: &Ledger, _: Moment, stored: &Stored, out: &mut Vec<String>) {
        if stored.plural != "pods" {
            return;
        }
        let (uid, now) = (uid(&stored.object).to_owned(), phase(&stored.object));
        let before = stored.before.as_deref().map_or("", phase);
        let final_phase = ["Succeeded", "Failed"].contains(&before);
        // The picture of a static pod whose uid is pinned shows its next life too.
        if final_phase && now != before && !is_mirror(&stored.object) {
            out.push(format!("{} went from {before} to {now}", name(&stored.object)));
        }
        if stored.gone {
            self.pods.remove(&uid);
        } else {
            self.pods.insert(uid, Rc::clone(&stored.object));
        }
    }

    fn event(&mut self, ledger: &Ledger, moment: Moment, _: &Event, out: &mut Vec<String>) {
        if moment.at.since(self.looked) >= LOOK && self.calm.lasted(moment.at, CALM) {
            self.looked = moment.at;
            self.look(ledger, moment.at, out);
        }
    }
}
