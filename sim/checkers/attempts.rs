//! The attempt number is the only order of containers that no clock can break (k/k#134153, k/k#83050, k/k#127948).

use super::Judge;
use crate::ledger::Ledger;
use crate::trace::{Fact, Moment};

pub struct Attempts;

impl Judge for Attempts {
    fn promise(&self) -> &'static str {
        "attempts only rise, and each is used once"
    }

    fn fact(&mut self, ledger: &Ledger, _: Moment, fact: &Fact, out: &mut Vec<String>) {
        // What is removed counts still, unless its pod has ended: the uid may come back as a new pod.
        let (what, of, attempt, highest) = match fact {
            Fact::SandboxRan(new) => {
                let others = (ledger.sandboxes.values())
                    .filter(|old| old.fact.uid == new.uid && old.fact.sandbox != new.sandbox)
                    .filter(|old| !(old.removed && old.over));
                let highest = others.map(|old| old.fact.attempt).max();
                ("sandbox", &new.uid, new.attempt, highest)
            }
            Fact::ContainerCreated(new) => {
                let others = (ledger.of(&new.uid, &new.name))
                    .filter(|old| old.fact.container != new.container)
                    .filter(|old| !(old.removed.is_some() && old.over))
                    // Nothing tells of a container that never ran and is gone.
                    .filter(|old| old.started.is_some() || old.removed.is_none());
                let highest = others.map(|old| old.fact.attempt).max();
                (new.name.as_str(), &new.uid, new.attempt, highest)
            }
            _ => return,
        };
        if let Some(highest) = highest.filter(|highest| attempt <= *highest) {
            out.push(format!("{what} of {of}: attempt {attempt} after attempt {highest}"));
        }
    }
}
