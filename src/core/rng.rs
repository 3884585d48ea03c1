//! Seeded random numbers. The seed arrives in `Boot`; each manager has a child of its own, so that a
//! draw in one never shifts the draws of another.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// SplitMix64: eight bytes of state, good enough for jitter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The generator of one manager; `salt` is its place in the list of managers.
    pub fn child(&self, salt: u64) -> Rng {
        let mut rng = Rng(self.0 ^ salt.wrapping_mul(0xa076_1d64_78bd_642f));
        rng.draw();
        rng
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// `span` stretched by a random share of up to `percent` of itself.
    pub fn jitter(&mut self, span: Span, percent: u64) -> Span {
        let most = u128::from(span.0) * u128::from(percent) / 100;
        span + Span(self.below(u64::try_from(most).unwrap_or(u64::MAX)))
    }
}
