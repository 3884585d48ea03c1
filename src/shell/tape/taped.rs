//! The core, its chain and the recorder as one: what the reactor steps.

use super::recorder::Recorder;
use postcard::ser_flavors::Flavor;
use sha2::{Digest, Sha256};
use steplet_core::Core;
use steplet_core::chain::{Chain, encode_effects, encode_event};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::time::Now;

/// SHA-256 of a core's snapshot, without the snapshot: it is taken often, and memory is short.
pub fn core_digest(core: &Core) -> [u8; 32] {
    let digest = Digesting { hash: Sha256::new(), buffer: Vec::with_capacity(BUFFER_BYTES) };
    postcard::serialize_with_flavor(core, digest).expect("a core always encodes")
}

const BUFFER_BYTES: usize = 8 << 10;

/// Takes in encoded bytes, which come one by one or a few at a time.
struct Digesting {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Flavor for Digesting {
    type Output = [u8; 32];

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.hash.update(&self.buffer);
            self.buffer.clear();
        }
        if bytes.len() > BUFFER_BYTES {
            self.hash.update(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<[u8; 32]> {
        self.hash.update(&self.buffer);
        Ok(self.hash.finalize().into())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[test]
    fn the_digest_is_that_of_the_encoding() {
        fn check(value: &impl Serialize) {
            let digest =
                Digesting { hash: Sha256::new(), buffer: Vec::with_capacity(BUFFER_BYTES) };
            let got = postcard::serialize_with_flavor(value, digest).unwrap();
            assert_eq!(got, *Sha256::digest(postcard::to_allocvec(value).unwrap()));
        }
        check(&());
        check(&(0..3 * BUFFER_BYTES as u32).collect::<Vec<_>>());
        let long = "x".repeat(2 * BUFFER_BYTES + 1);
        check(&(7, long.as_str(), 8, "short", long.as_str()));
        assert_eq!(core_digest(&Core::new()), *Sha256::digest(Core::new().snapshot()));
    }
}
