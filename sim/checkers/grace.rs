//! An app gets the time to stop that its pod promises: not less, and never more (k/k#97722, k/k#83916).

use super::Judge;
use crate::ledger::{Ask, ContainerRecord, Ledger};
use crate::trace::{Fact, Moment};
use std::collections::BTreeSet;
use steplet_core::effect::Effect;

/// Containers that were asked to stop in this life of the agent and are still there.
#[derive(Default)]
pub struct Grace {
    stopping: BTreeSet<String>,
}

const LEAST: i64 = 2;

impl Judge for Grace {
    fn promise(&self) -> &'static str {
        "StopContainer gives the pod's grace, at least 2 s, and never more"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.stopping.clear();
    }

    fn effects(
        &mut self,
        ledger: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        let mut asked: Vec<&str> = Vec::new();
        for (_, ask) in effects {
            match ask {
                Some(Ask::Stop { container, timeout }) => {
                    if let Some(record) = ledger.containers.get(container) {
                        self.container_stops(ledger, record, *timeout, out);
                    }
                    asked.push(container);
                }
                Some(Ask::StopSandbox { sandbox }) => sandbox_stops(ledger, sandbox, &asked, out),
                _ => {}
            }
        }
        self.stopping.extend(asked.into_iter().map(str::to_owned));
    }

    fn fact(&mut self, _: &Ledger, _: Moment, fact: &Fact, _: &mut Vec<String>) {
        if let Fact::ContainerRemoved { container, .. } = fact {
            self.stopping.remove(container);
        }
    }
}

impl Grace {
    fn container_stops(
        &self,
        ledger: &Ledger,
        record: &ContainerRecord,
        timeout: i64,
        out: &mut Vec<String>,
    ) {
        let Some(pod) = &record.pod else { return };
        let asked = ledger.graces.get(&record.fact.uid);
        let grace = asked.map_or(pod.grace_seconds, |asked| *asked).max(LEAST);
        let name = record.name();
        // A user may have shortened it since, or another life of the agent was told of a longer one.
        if timeout > grace.max(pod.grace_seconds) {
            out.push(format!("{name} gets {timeout} s, its pod says {grace} s"));
        } else if timeout < LEAST {
            out.push(format!("{name} gets {timeout} s"));
        }
        // The time runs since the first request; also for one that comes up while its pod already ends. An edited pod
        // may have another grace.
        let begun = ledger.containers.values().any(|other| {
            other.fact.uid == record.fact.uid && self.stopping.contains(&other.fact.container)
        });
        let edited = ledger.known.pod(&record.key).map_or(grace, |now| now.grace_seconds);
        if !begun && timeout < grace.min(edited.max(LEAST)) {
            out.push(format!("{name} gets only {timeout} s, its pod says {grace} s"));
        }
    }
}

/// Whoever is stopping has the time that it was given: to stop the sandbox kills at once. `earlier` in the same step
/// were asked to stop.
fn sandbox_stops(ledger: &Ledger, sandbox: &str, earlier: &[&str], out: &mut Vec<String>) {
    let open = ledger.open.values().filter_map(|call| match Ask::from_call(call) {
        Some(Ask::Stop { container, .. }) => Some(container),
        _ => None,
    });
    for container in open.chain(earlier.iter().map(|id| (*id).to_owned())) {
        let Some(record) = ledger.containers.get(&container) else { continue };
        if record.fact.sandbox == sandbox && record.running() {
            out.push(format!("{} is stopping, and its sandbox is stopped", record.name()));
        }
    }
}
