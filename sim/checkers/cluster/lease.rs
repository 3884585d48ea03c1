//! The cluster gives up a node whose lease is old (node-monitor-grace-period): whatever befalls the runtime or the
//! clock, the lease is renewed as long as the server answers.

use crate::checkers::Judge;
use crate::clock::At;
use crate::doors::api::Stored;
use crate::ledger::Ledger;
use crate::setup::NODE;
use crate::trace::{Change, Moment};
use steplet_core::event::Event;
use steplet_core::time::Span;

#[derive(Default)]
pub struct Lease {
    joined: bool,
    /// Since when the server answers, the agent runs and the Node has not been deleted.
    fine: Option<At>,
    way_fine: bool,
    runs: bool,
    renewed: At,
}

/// Ten seconds, a little stretched, and the way there.
const AGE_MOST: Span = Span::from_secs(15);
/// A request that vanished ends after ten seconds, the next one follows ten seconds later; a registration waits for
/// seven, or as long as it was told.
const AFTER_TROUBLE: Span = Span::from_secs(30);

impl Lease {
    fn begin(&mut self, at: At) {
        self.fine = (self.way_fine && self.runs).then_some(at);
    }
}

impl Judge for Lease {
    fn promise(&self) -> &'static str {
        "the lease is renewed as long as the API server answers"
    }

    fn started(&mut self, _: &Ledger, moment: Moment) {
        self.runs = true;
        self.begin(moment.at);
    }

    fn ended(&mut self, _: &Ledger, moment: Moment) {
        self.runs = false;
        self.begin(moment.at);
    }

    fn change(&mut self, _: &Ledger, moment: Moment, change: &Change) {
        if let Change::Way { fine } = change
            && *fine != self.way_fine
        {
            self.way_fine = *fine;
            self.begin(moment.at);
        }
    }

    fn stored(&mut self, _: &Ledger, moment: Moment, stored: &Stored, _: &mut Vec<String>) {
        match stored.plural {
            "leases" if stored.object["metadata"]["name"] == NODE && !stored.gone => {
                self.renewed = moment.at;
            }
            "nodes" if stored.gone => self.begin(moment.at),
            _ => {}
        }
    }

    fn event(&mut self, _: &Ledger, moment: Moment, event: &Event, out: &mut Vec<String>) {
        if let Event::Boot(boot) = event {
            self.joined = boot.settings.api.is_some();
        }
        let Some(fine) = self.fine.filter(|_| self.joined) else { return };
        let long = moment.at.since(fine) >= AFTER_TROUBLE;
        if long && moment.at.since(self.renewed) > AGE_MOST {
            let ago = moment.at.since(self.renewed).secs();
            out.push(format!("it was renewed {ago} s ago"));
            self.begin(moment.at);
        }
    }
}
