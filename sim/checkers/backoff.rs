//! A program that keeps failing is restarted ever more slowly: at once, then after 10 s, 20 s, ... 300 s
//! (k/k#57291). The time is the world's own, so a clock step cannot fool the judge.

use super::Judge;
use crate::clock::At;
use crate::ledger::{ContainerRecord, Ledger};
use crate::trace::{Cause, Fact, Moment};
use std::collections::BTreeMap;
use steplet_core::event::Event;
use steplet_core::time::Span;

/// The pause that the next failure must bring, by pod uid, container name and image; it dies with the agent.
#[derive(Default)]
pub struct Backoff {
    pauses: BTreeMap<(String, String, String), (Span, At)>,
    /// The node's `crashLoopBackOff.maxContainerRestartPeriod`.
    most: Span,
}

const FIRST: Span = Span::from_secs(10);
/// So long after the last restart all is forgotten.
const FORGET: Span = Span::from_secs(600);
/// The agent counts from when it sees the end, at the latest a relist later.
const TOLERANCE: Span = Span::from_millis(100);

impl Judge for Backoff {
    fn promise(&self) -> &'static str {
        "a failing container is restarted after 0, 10, 20, ... 300 s, not sooner"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.pauses.clear();
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Boot(boot) = event {
            self.most = boot.settings.crash_loop_max;
        }
    }

    fn fact(&mut self, ledger: &Ledger, moment: Moment, fact: &Fact, out: &mut Vec<String>) {
        let Fact::ContainerCreated(new) = fact else { return };
        let before = (ledger.of(&new.uid, &new.name))
            .filter(|record| record.fact.attempt < new.attempt)
            .max_by_key(|record| record.fact.attempt);
        // Only an end by itself counts, and only while the runtime still shows it.
        let ended = |record: &ContainerRecord| {
            let exit = record.exited.filter(|exit| matches!(exit.cause, Cause::Itself))?;
            record.removed.is_none().then_some(exit.at)
        };
        if before.is_none_or(|record| record.over) {
            // A pod that is new, or went and came back.
            self.pauses.retain(|(uid, name, _), _| *uid != new.uid || *name != new.name);
            return;
        }
        let before = before.filter(|record| record.fact.image == new.image);
        let Some(exit_at) = before.and_then(ended) else { return };
        let key = (new.uid.clone(), new.name.clone(), new.image.clone());
        let pause = match self.pauses.get(&key) {
            Some((pause, last)) if exit_at.since(*last) <= FORGET => {
                if moment.at.since(exit_at) + TOLERANCE < *pause {
                    let (name, attempt) = (&new.name, new.attempt);
                    let waited = moment.at.since(exit_at).millis();
                    let wanted = pause.secs();
                    out.push(format!(
                        "{}/{name}#{attempt} was made {waited} ms after the end of the last one, \
                         {wanted} s was due",
                        new.pod
                    ));
                }
                Span(pause.times(2).0.min(self.most.0))
            }
            _ => FIRST,
        };
        self.pauses.insert(key, (pause, moment.at));
    }
}
