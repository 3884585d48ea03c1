//! An app gets the time to stop that its pod promises: not less, and never more (k/k#97722, k/k#83916).

use super::Judge;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use std::collections::BTreeSet;
use steplet_core::effect::Effect;

/// Containers that were asked to stop in this life: later requests may only be shorter.
#[derive(Default)]
pub struct Grace {
    stopping: BTreeSet<String>,
}

/// The runtime is never given less than this.
const LEAST: i64 = 2;

impl Judge for Grace {
    fn promise(&self) -> &'static str {
        "StopContainer gives the pod's grace, at least 2 s, and never more"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.stopping.clear();
    }

    /// Whoever is stopping has the time that it was given: to stop the sandbox kills at once.
    fn effects(
        &mut self,
        ledger: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        let mut earlier: Vec<&str> = Vec::new();
        for (_, ask) in effects {
            match ask {
                Some(Ask::Stop { container, .. }) => earlier.push(container),
                Some(Ask::StopSandbox { sandbox }) => {
                    sandbox_stops(ledger, sandbox, &earlier, out);
                }
                _ => {}
            }
        }
    }

    fn asked(&mut self, ledger: &Ledger, _: Moment, ask: &Ask, out: &mut Vec<String>) {
        let Ask::Stop { container, timeout } = ask else { return };
        let Some(record) = ledger.containers.get(container) else { return };
        let again = !self.stopping.insert(container.clone());
        let Some(pod) = &record.pod else { return };
        let grace = pod.grace_seconds.max(LEAST);
        let name = record.name();
        if *timeout > grace {
            out.push(format!("{name} gets {timeout} s, its pod says {grace} s"));
        } else if *timeout < LEAST {
            out.push(format!("{name} gets {timeout} s"));
        }
        // A pod whose spec this life of the agent has never seen, or has seen end, may be an orphan to it.
        let known = ledger.known.pod(&record.key).is_some_and(|known| known.text == pod.text);
        if known && !record.over && !again && *timeout < grace {
            out.push(format!("{name} gets only {timeout} s, its pod says {grace} s"));
        }
    }
}

/// `earlier` in the same step were asked to stop.
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
