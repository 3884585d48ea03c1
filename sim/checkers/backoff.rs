//! A program that keeps failing is restarted ever more slowly: at once, then after 10 s, 20 s, ... 300 s
//! (k/k#57291). The time is the world's own, so a clock step cannot fool the judge.

use super::Judge;
use crate::clock::At;
use crate::ledger::{ContainerRecord, Ledger};
use crate::trace::{Cause, Change, Fact, Moment};
use std::collections::BTreeMap;
use steplet_core::event::Event;
use steplet_core::time::Span;

/// The pause that the next failure must bring, by pod uid, container name and image; it dies with the agent.
#[derive(Default)]
pub struct Backoff {
    pauses: BTreeMap<(String, String, String), (Span, At)>,
    /// The same when every restart counts, whatever had ended the container: no pause is longer.
    longest: BTreeMap<(String, String, String), (Span, At)>,
    /// Since when nothing has gone wrong and nobody has touched a manifest.
    quiet: Option<At>,
    /// The node's `crashLoopBackOff.maxContainerRestartPeriod`.
    most: Span,
}

const FIRST: Span = Span::from_secs(10);
/// So long after the last restart all is forgotten.
const FORGET: Span = Span::from_secs(600);
/// The agent counts from when it sees the end, at the latest a relist later.
const TOLERANCE: Span = Span::from_millis(100);
/// What an earlier fault leaves: a failed step that is tried again, an image back-off.
const CALM: Span = Span::from_secs(60);
/// A relist, and the calls before the container is made.
const LATE: Span = Span::from_secs(5);

impl Judge for Backoff {
    fn promise(&self) -> &'static str {
        "a failing container is restarted after 0, 10, 20, ... 300 s, neither sooner nor much later"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.pauses.clear();
        self.longest.clear();
    }

    fn event(&mut self, _: &Ledger, _: Moment, event: &Event, _: &mut Vec<String>) {
        if let Event::Boot(boot) = event {
            self.most = boot.settings.crash_loop_max;
        }
    }

    fn change(&mut self, _: &Ledger, moment: Moment, change: &Change) {
        self.quiet = matches!(change, Change::Healed).then_some(moment.at);
    }

    fn fact(&mut self, ledger: &Ledger, moment: Moment, fact: &Fact, out: &mut Vec<String>) {
        let Fact::ContainerCreated(new) = fact else { return };
        let before = (ledger.of(&new.uid, &new.name))
            .filter(|record| record.fact.attempt < new.attempt)
            // Of another life under this uid.
            .filter(|record| !(record.over && record.removed.is_some()))
            .max_by_key(|record| record.fact.attempt);
        // Only an end by itself counts, and only while the runtime still shows it.
        let ended = |record: &ContainerRecord| {
            let exit = record.exited.filter(|exit| matches!(exit.cause, Cause::Itself))?;
            record.removed.is_none().then_some(exit.at)
        };
        let key = (new.uid.clone(), new.name.clone(), new.image.clone());
        if before.is_none_or(|record| record.over) {
            // A pod that is new, or went and came back.
            self.pauses.retain(|(uid, name, _), _| *uid != new.uid || *name != new.name);
            self.longest.retain(|(uid, name, _), _| *uid != new.uid || *name != new.name);
            // A new life of the agent cannot know that the dead container is of an earlier pod.
            if before.is_some() {
                self.longest.insert(key, (FIRST, moment.at));
            }
            return;
        }
        let longest = match self.longest.get(&key) {
            Some((pause, last)) if moment.at.since(*last) <= FORGET + *pause => *pause,
            _ => Span::ZERO,
        };
        let next = Span(longest.times(2).0.clamp(FIRST.0, self.most.0));
        self.longest.insert(key.clone(), (next, moment.at));
        let before = before.filter(|record| record.fact.image == new.image);
        // An edited image begins anew, also when it is the one of long ago.
        let same = |uid: &str, name: &str| *uid == *new.uid && *name == *new.name;
        self.pauses.retain(|(uid, name, image), _| !same(uid, name) || *image == new.image);
        let Some(exit_at) = before.and_then(ended) else { return };
        let pause = match self.pauses.get(&key) {
            Some((pause, last)) if exit_at.since(*last) <= FORGET => {
                let waited = moment.at.since(exit_at);
                let calm = self.quiet.is_some_and(|since| exit_at >= since + CALM);
                if waited + TOLERANCE < *pause || (calm && waited > longest + LATE) {
                    let (name, attempt) = (&new.name, new.attempt);
                    let waited = waited.millis();
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
