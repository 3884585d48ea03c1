//! Back-off in integers on the monotonic clock: clock steps change nothing.

use crate::time::{Mono, Span};
use serde::{Deserialize, Serialize};

/// Doubling periods: `base`, 2 x base, ... up to `most`. When to forget is the owner's rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackOff {
    period: Span,
    /// The last failure.
    at: Mono,
}

impl BackOff {
    /// The first failure: the period is `base`.
    pub fn first(now: Mono, base: Span) -> BackOff {
        BackOff { period: base, at: now }
    }

    /// One more failure: the period doubles, up to `most`.
    pub fn again(&mut self, now: Mono, base: Span, most: Span) {
        self.period = self.period.times(2).min(most).max(base.min(most));
        self.at = now;
    }

    pub fn period(&self) -> Span {
        self.period
    }

    pub fn at(&self) -> Mono {
        self.at
    }

    /// When `period` has passed since `from`, if that still lies ahead.
    pub fn until(&self, from: Mono, now: Mono) -> Option<Mono> {
        let end = from + self.period;
        (end > now).then_some(end)
    }
}
