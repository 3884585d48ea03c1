//! How long the turns of the loop take: a histogram of fixed size, exact to one part in eight.

use std::fmt::Write;
use std::time::Duration;

/// Parts of each power of two.
const PARTS: u32 = 8;
/// Up to 2^24 microseconds, which is 16 seconds; the last bucket takes the rest.
const POWERS: u32 = 24;
const BUCKETS: usize = (POWERS * PARTS) as usize;

pub struct Turns {
    counts: [u64; BUCKETS],
    count: u64,
    total: Duration,
    max: Duration,
}

impl Turns {
    pub fn new() -> Turns {
        Turns { counts: [0; BUCKETS], count: 0, total: Duration::ZERO, max: Duration::ZERO }
    }

    pub fn add(&mut self, took: Duration) {
        self.counts[bucket(took)] += 1;
        self.count += 1;
        self.total += took;
        self.max = self.max.max(took);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn max(&self) -> Duration {
        self.max
    }

    /// The time that `share` per mille of all turns stayed within, rounded up to its bucket's end.
    pub fn within(&self, share: u64) -> Duration {
        let wanted = (self.count * share).div_ceil(1000);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end(at).min(self.max);
            }
        }
        self.max
    }

    /// Lines for `/metrics`, in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        let mut text = String::from(
            "# HELP steplet_turn_seconds How long one turn of the loop took.\n\
             # TYPE steplet_turn_seconds summary\n",
        );
        for (quantile, share) in [("0.5", 500), ("0.99", 990), ("0.999", 999), ("1", 1000)] {
            let seconds = self.within(share).as_secs_f64();
            let _ = writeln!(text, "steplet_turn_seconds{{quantile=\"{quantile}\"}} {seconds}");
        }
        let _ = writeln!(text, "steplet_turn_seconds_sum {}", self.total.as_secs_f64());
        let _ = writeln!(text, "steplet_turn_seconds_count {}", self.count);
        text
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::new()
    }
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |share| self.within(share).as_micros();
        let (p50, p99, p999) = (us(500), us(990), us(999));
        let (count, max) = (self.count, self.max.as_micros());
        write!(f, "{count} turns, p50 {p50} us, p99 {p99} us, p99.9 {p999} us, longest {max} us")
    }
}

/// Below eight microseconds each has a bucket of its own, above each power of two has eight.
fn bucket(took: Duration) -> usize {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if us < u64::from(PARTS) {
        return us as usize;
    }
    let power = us.ilog2();
    let part = (us >> (power - 3)) & u64::from(PARTS - 1);
    (((power - 2) * PARTS) as usize + part as usize).min(BUCKETS - 1)
}

/// The first time that no longer belongs to the bucket.
fn end(bucket: usize) -> Duration {
    let next = bucket as u64 + 1;
    let (row, part) = (next / u64::from(PARTS), next % u64::from(PARTS));
    let us = if row == 0 { part } else { (u64::from(PARTS) + part) << (row - 1) };
    Duration::from_micros(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket() {
        for us in (0..20_000).chain([1 << 20, (1 << 24) - 1]) {
            let at = bucket(Duration::from_micros(us));
            assert!(Duration::from_micros(us) < end(at), "{us} in {at}");
            assert!(at == 0 || Duration::from_micros(us) >= end(at - 1), "{us} in {at}");
        }
        assert_eq!(bucket(Duration::from_secs(3600)), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close_and_never_too_small() {
        let mut turns = Turns::new();
        assert_eq!(turns.within(999), Duration::ZERO);
        (1..=1000).for_each(|us| turns.add(Duration::from_micros(us)));
        let check = |share, least, most| {
            let us = turns.within(share).as_micros();
            assert!((least..=most).contains(&us), "{share}: {us}");
        };
        check(500, 500, 576);
        check(990, 990, 1000);
        check(1000, 1000, 1000);
        assert!(turns.metrics().contains("steplet_turn_seconds_count 1000\n"));
    }
}
