//! Two live containers of one name fight for ports, files and locks (k/k#112814, k/k#123087).

use super::Judge;
use crate::ledger::Ledger;
use crate::trace::{Fact, Moment};

pub struct OneLive;

impl Judge for OneLive {
    fn promise(&self) -> &'static str {
        "at most one live container of each pod and container name"
    }

    fn fact(&mut self, ledger: &Ledger, _: Moment, fact: &Fact, out: &mut Vec<String>) {
        let Fact::ContainerStarted { container } = fact else { return };
        let Some(new) = ledger.containers.get(container) else { return };
        // By full name, not by uid: an edited static pod has another uid and the same ports.
        let others = ledger.containers.values().filter(|record| {
            record.running()
                && record.fact.container != *container
                && record.key == new.key
                && record.fact.name == new.fact.name
        });
        for other in others {
            out.push(format!(
                "{} of {} starts while {} of {} runs",
                new.name(),
                new.fact.uid,
                other.name(),
                other.fact.uid
            ));
        }
    }
}
