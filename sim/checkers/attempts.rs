//! The attempt number is the only order of containers that no clock can break (B01, B02, B03).

use super::Judge;
use crate::ledger::Ledger;
use crate::trace::{Fact, Moment};
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::event::{DiskReply, Event, Outcome};

/// The highest attempt so far, by pod uid and container name; the empty name is the sandbox.
#[derive(Default)]
pub struct Attempts {
    highest: BTreeMap<(String, String), u32>,
}

impl Attempts {
    /// A pod that the agent knows to be gone may come back as a new one with the same uid: once nothing
    /// of it is left in the runtime, its count begins anew.
    fn forget(&mut self, ledger: &Ledger) {
        if !ledger.informed {
            return;
        }
        let containers = (ledger.containers.values())
            .filter(|record| record.removed.is_none() || !record.over)
            .map(|record| &*record.fact.uid);
        let sandboxes = (ledger.sandboxes.values())
            .filter(|record| !record.removed)
            .map(|record| &*record.fact.uid);
        let left: BTreeSet<&str> = containers.chain(sandboxes).collect();
        self.highest.retain(|(uid, _), _| left.contains(uid.as_str()));
    }

    fn made(&mut self, uid: &str, name: &str, attempt: u32, out: &mut Vec<String>) {
        let key = (uid.to_owned(), name.to_owned());
        if let Some(highest) = self.highest.get(&key)
            && attempt <= *highest
        {
            let what = if name.is_empty() { "sandbox" } else { name };
            out.push(format!("{what} of {uid}: attempt {attempt} after attempt {highest}"));
        }
        let highest = self.highest.entry(key).or_default();
        *highest = attempt.max(*highest);
    }
}

impl Judge for Attempts {
    fn promise(&self) -> &'static str {
        "attempts only rise, and each is used once"
    }

    fn event(&mut self, ledger: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Done { outcome: Outcome::Disk(Ok(DiskReply::Manifests(_))), .. } = event {
            self.forget(ledger);
        }
    }

    fn fact(&mut self, ledger: &Ledger, _: Moment, fact: &Fact, out: &mut Vec<String>) {
        match fact {
            Fact::SandboxRan(fact) => self.made(&fact.uid, "", fact.attempt, out),
            Fact::ContainerCreated(fact) => self.made(&fact.uid, &fact.name, fact.attempt, out),
            Fact::SandboxRemoved { .. } => self.forget(ledger),
            _ => {}
        }
    }
}
