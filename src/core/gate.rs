//! How fast requests may leave for the API server: a token bucket a lane, and those that wait for it.
//!
//! Upstream: client-go/util/flowcontrol/throttle.go (v1.36); heartbeats have no limit.

use crate::effect::{ApiCall, Lane};
use crate::ids::Token;
use crate::settings::ApiSettings;
use crate::time::Mono;
use alloc::collections::{BTreeMap, VecDeque};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gate {
    lanes: BTreeMap<Lane, Bucket>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Bucket {
    /// Nanoseconds in which one more request may go; 0: no limit.
    every: u64,
    burst: u64,
    /// When the bucket will be full again, less what it holds: one request more moves it by `every`.
    full_at: Mono,
    waiting: VecDeque<(Token, ApiCall)>,
}

impl Bucket {
    fn new(qps: u32, burst: u32) -> Bucket {
        let every = 1_000_000_000u64.checked_div(qps.into()).unwrap_or(0);
        Bucket { every, burst: u64::from(burst.max(1)), ..Bucket::default() }
    }

    /// When the next request may go.
    fn free_at(&self) -> Mono {
        Mono(self.full_at.0.saturating_sub(self.every.saturating_mul(self.burst - 1)))
    }

    fn take(&mut self, now: Mono) {
        self.full_at = Mono(self.full_at.max(now).0.saturating_add(self.every));
    }
}

impl Gate {
    pub fn of(settings: &ApiSettings) -> Gate {
        let main = Bucket::new(settings.qps, settings.burst);
        let events = Bucket::new(settings.event_qps, settings.event_burst);
        Gate { lanes: [(Lane::Main, main), (Lane::Events, events)].into() }
    }

    /// Gives the call back when it may go now; else it waits, and `release` has it.
    pub fn pass(&mut self, now: Mono, token: Token, call: ApiCall) -> Option<ApiCall> {
        let Some(bucket) = self.lanes.get_mut(&call.lane) else { return Some(call) };
        if bucket.waiting.is_empty() && bucket.free_at() <= now {
            bucket.take(now);
            return Some(call);
        }
        bucket.waiting.push_back((token, call));
        None
    }

    /// The next call whose time has come.
    pub fn release(&mut self, now: Mono) -> Option<(Token, ApiCall)> {
        let ready = |bucket: &&mut Bucket| !bucket.waiting.is_empty() && bucket.free_at() <= now;
        let bucket = self.lanes.values_mut().find(ready)?;
        bucket.take(now);
        bucket.waiting.pop_front()
    }

    /// True when the call was still waiting.
    pub fn forget(&mut self, token: Token) -> bool {
        let mut lanes = self.lanes.values_mut();
        lanes.any(|bucket| {
            let before = bucket.waiting.len();
            bucket.waiting.retain(|(waiting, _)| *waiting != token);
            bucket.waiting.len() < before
        })
    }

    pub fn deadline(&self) -> Option<Mono> {
        let waits = self.lanes.values().filter(|bucket| !bucket.waiting.is_empty());
        waits.map(Bucket::free_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Verb;
    use crate::time::Span;
    use alloc::vec;
    use alloc::vec::Vec;

    fn call(lane: Lane) -> ApiCall {
        let (path, body, within) = (Default::default(), Default::default(), Span::from_secs(1));
        ApiCall { verb: Verb::Get, path, body, within, lane, seals: false, secret: None }
    }

    #[test]
    fn a_burst_then_a_steady_rate() {
        let settings = ApiSettings { qps: 10, burst: 3, ..ApiSettings::default() };
        let mut gate = Gate::of(&settings);
        let start = Mono(5_000_000_000);
        let passed = (1..=6).filter(|n| gate.pass(start, Token(*n), call(Lane::Main)).is_some());
        assert_eq!(passed.count(), 3);
        assert!(gate.pass(start, Token(9), call(Lane::Heartbeat)).is_some(), "never waits");
        assert_eq!(gate.deadline(), Some(start + Span::from_millis(100)));
        assert!(gate.release(start).is_none());
        assert!(gate.forget(Token(5)) && !gate.forget(Token(5)));
        let later = start + Span::from_millis(250);
        let released: Vec<u64> =
            core::iter::from_fn(|| gate.release(later)).map(|(token, _)| token.0).collect();
        assert_eq!((released, gate.deadline()), (vec![4, 6], None));
        // After a rest the whole burst is there again.
        let rested = later + Span::from_secs(10);
        let passed = (11..=15).filter(|n| gate.pass(rested, Token(*n), call(Lane::Main)).is_some());
        assert_eq!(passed.count(), 3);
    }
}
