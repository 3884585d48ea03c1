//! The core, its chain and the recorder as one: what the reactor steps.

use super::recorder::Recorder;
use steplet_core::Core;
use steplet_core::chain::{Chain, encode_effects, encode_event};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::time::Now;

/// A core whose steps are chained and, if there is a recorder, taped.
pub struct Taped {
    core: Core,
    chain: Chain,
    steps: u64,
    pub recorder: Option<Recorder>,
}

impl Taped {
    /// `core` has seen nothing yet.
    pub fn new(core: Core, recorder: Option<Recorder>) -> Taped {
        Taped { core, chain: Chain::default(), steps: 0, recorder }
    }

    /// One step of the core. The event is on the tape before the core sees it. `now` should be read in whole
    /// microseconds, and its wall clock move against the monotonic one only when it is set: then the time of a
    /// step takes two or three bytes.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let event_bytes = encode_event(&event);
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &event_bytes);
        }
        let effects = self.core.step(now, event);
        self.chain.absorb(now, &event_bytes, &encode_effects(&effects));
        self.steps += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.effects(now, &effects, &self.chain, &self.core);
        }
        effects
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The chained hash of all steps so far.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }
}
