//! Every decision of the node agent, as one pure function of state: `core.step(now, event) -> effects`.
//!
//! The crate is `no_std`: there is no clock, file, socket, environment or random source to reach for.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod backoff;
pub mod calls;
pub mod chain;
pub mod cx;
pub mod effect;
pub mod event;
pub mod facts;
mod gate;
pub mod ids;
pub mod limits;
pub mod managers;
pub mod note;
pub mod planted;
pub mod rng;
pub mod route;
pub mod sealed;
pub mod settings;
pub mod time;

use alloc::vec::Vec;
use cx::{Asks, Cx};
use effect::Effect;
use event::Event;
use facts::Facts;
use managers::Managers;
use serde::{Deserialize, Serialize};
use time::{Mono, Now};

/// The whole agent. It is a value: a clone is a what-if, its encoding a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Core {
    facts: Facts,
    managers: Managers,
    asks: Asks,
    booted: bool,
}

/// Why a snapshot could not be read: it was made by another build, or is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSnapshot;

impl Core {
    /// A core that waits for `Event::Boot`.
    pub fn new() -> Core {
        Core {
            facts: Facts::default(),
            managers: Managers::default(),
            asks: Asks::default(),
            booted: false,
        }
    }

    /// Takes in one event and returns what to do about it. Deterministic: the same core, instant and event
    /// give the same effects and the same core in every process.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let boot = matches!(event, Event::Boot(_));
        assert!(boot != self.booted, "Boot is the first event, and only the first");
        self.booted = true;
        let ticked = matches!(event, Event::Tick);
        let mut effects = Vec::new();
        let mut cx = Cx::new(now, &mut self.facts, &mut self.asks, &mut effects);
        route::event(&mut self.managers, &mut cx, event);
        route::drain(&mut self.managers, &mut cx);
        if ticked {
            let next = self.deadline();
            assert!(next.is_none_or(|at| at > now.mono), "a tick must leave nothing due");
        }
        effects
    }

    /// When the core wants its next `Tick`.
    pub fn deadline(&self) -> Option<Mono> {
        [route::deadline(&self.managers), self.asks.deadline()].into_iter().flatten().min()
    }

    /// What may be seen of the state: for `/pods`, the live table, checkers and replays.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The invariants of every manager; a broken one panics with its name.
    pub fn check(&self) {
        route::check(&self.managers, &self.facts);
    }

    pub fn snapshot(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a core always encodes")
    }

    pub fn restore(snapshot: &[u8]) -> Result<Core, BadSnapshot> {
        let mut core: Core = postcard::from_bytes(snapshot).map_err(|_| BadSnapshot)?;
        if planted::planted(10) {
            core.managers.workers = Default::default();
        }
        Ok(core)
    }
}

impl Default for Core {
    fn default() -> Core {
        Core::new()
    }
}
