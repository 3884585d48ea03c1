//! The chained hash of a run: equal chains mean equal runs.

use crate::effect::Effect;
use crate::event::Event;
use crate::time::Now;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain(pub [u8; 32]);

impl Chain {
    /// Takes in one step. `event` and `effects` are their postcard encodings.
    pub fn absorb(&mut self, now: Now, event: &[u8], effects: &[u8]) {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(now.mono.0.to_le_bytes());
        hash.update(now.wall.0.to_le_bytes());
        hash.update((event.len() as u64).to_le_bytes());
        hash.update(event);
        hash.update(effects);
        self.0 = hash.finalize().into();
    }

    /// The part that each frame carries.
    pub fn short(&self) -> [u8; 4] {
        [self.0[0], self.0[1], self.0[2], self.0[3]]
    }
}

/// The bytes of an event on the tape and in the chain.
pub fn encode_event(event: &Event) -> Vec<u8> {
    postcard::to_allocvec(event).expect("an event always encodes")
}

/// The bytes of a step's effects on the tape and in the chain.
pub fn encode_effects(effects: &[Effect]) -> Vec<u8> {
    postcard::to_allocvec(effects).expect("effects always encode")
}
