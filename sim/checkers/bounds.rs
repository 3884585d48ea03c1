//! Nothing grows without bound: open calls, and effects of one step.

use super::Judge;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use steplet_core::effect::Effect;

/// So that one growing queue is reported once, not at each step.
#[derive(Default)]
pub struct Bounds {
    reported: bool,
}

const OPEN_MOST: usize = 300;
const EFFECTS_MOST: usize = 500;

impl Judge for Bounds {
    fn promise(&self) -> &'static str {
        "queues are bounded"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        self.reported = false;
    }

    fn effects(
        &mut self,
        ledger: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        let (open, made) = (ledger.open.len(), effects.len());
        if (open > OPEN_MOST || made > EFFECTS_MOST) && !self.reported {
            self.reported = true;
            out.push(format!("{open} calls are open, {made} effects in one step"));
        }
    }
}
