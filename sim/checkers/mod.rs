//! The judges. Each keeps one promise, reads only what the world shows, and shares no code with the core.

mod attempts;
mod backoff;
mod bounds;
mod calls;
mod cgroups;
mod cluster;
mod ended;
mod grace;
mod healthy;
mod labels;
mod one_live;
mod pairs;
mod secrets;
pub mod settled;
mod status;

use crate::doors::api::Stored;
use crate::ledger::{Ask, Ledger};
use crate::trace::{Change, Fact, Moment, Seen, Violation, Witness};
use steplet_core::effect::Effect;
use steplet_core::event::Event;

/// One judge. It hears what it cares for, and puts into `out` what broke its promise.
pub(crate) trait Judge {
    fn promise(&self) -> &'static str;
    /// A new life of the agent has begun.
    fn started(&mut self, _ledger: &Ledger, _moment: Moment) {}
    fn ended(&mut self, _ledger: &Ledger, _moment: Moment) {}
    fn event(&mut self, _: &Ledger, _: Moment, _event: &Event, _out: &mut Vec<String>) {}
    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        _effects: &[(Effect, Option<Ask>)],
        _out: &mut Vec<String>,
    ) {
    }
    /// One thing that the agent asks to change.
    fn asked(&mut self, _: &Ledger, _: Moment, _ask: &Ask, _out: &mut Vec<String>) {}
    fn fact(&mut self, _: &Ledger, _: Moment, _fact: &Fact, _out: &mut Vec<String>) {}
    fn stored(&mut self, _: &Ledger, _: Moment, _stored: &Stored, _out: &mut Vec<String>) {}
    fn change(&mut self, _: &Ledger, _: Moment, _change: &Change) {}
}

/// All judges, as one witness.
pub struct Judges {
    judges: Vec<Box<dyn Judge>>,
    out: Vec<String>,
}

impl Judges {
    pub fn all() -> Judges {
        let judges: Vec<Box<dyn Judge>> = vec![
            Box::new(one_live::OneLive),
            Box::new(attempts::Attempts),
            Box::<ended::Ended>::default(),
            Box::new(labels::Labels),
            Box::<cgroups::Cgroups>::default(),
            Box::new(healthy::Healthy),
            Box::<grace::Grace>::default(),
            Box::<pairs::tokens::Tokens>::default(),
            Box::<pairs::visitors::Visitors>::default(),
            Box::<backoff::Backoff>::default(),
            Box::<calls::Calls>::default(),
            Box::<bounds::Bounds>::default(),
            Box::<status::Status>::default(),
            Box::<secrets::Secrets>::default(),
            Box::<cluster::lease::Lease>::default(),
            Box::<cluster::deletion::Deletion>::default(),
            Box::<cluster::truth::Truth>::default(),
            Box::<cluster::requests::Requests>::default(),
            Box::<cluster::certificates::Certificates>::default(),
        ];
        Judges { judges, out: Vec::new() }
    }
}

impl Witness for Judges {
    fn see(
        &mut self,
        ledger: &Ledger,
        moment: Moment,
        seen: &Seen<'_>,
        violations: &mut Vec<Violation>,
    ) {
        for judge in &mut self.judges {
            match seen {
                Seen::Started => judge.started(ledger, moment),
                Seen::Ended(_) => judge.ended(ledger, moment),
                Seen::Event(event) => judge.event(ledger, moment, event, &mut self.out),
                Seen::Effects(effects) => {
                    judge.effects(ledger, moment, effects, &mut self.out);
                    for ask in effects.iter().filter_map(|(_, ask)| ask.as_ref()) {
                        judge.asked(ledger, moment, ask, &mut self.out);
                    }
                }
                Seen::Fact(fact) => judge.fact(ledger, moment, fact, &mut self.out),
                Seen::Stored(stored) => judge.stored(ledger, moment, stored, &mut self.out),
                Seen::Change(change) => judge.change(ledger, moment, change),
            }
            let promise = judge.promise();
            let broken = self.out.drain(..);
            violations.extend(broken.map(|what| Violation { at: moment.at, promise, what }));
        }
    }
}
