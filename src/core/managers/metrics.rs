//! Counters and histograms of the managers, in integers: sums are nanoseconds, seconds are made when printed.

use crate::time::Span;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Upper bounds in microseconds, ascending.
pub type Buckets = &'static [u64];

/// prometheus.DefBuckets: 5 ms to 10 s.
pub const DEFAULT: Buckets = &[
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// 5 ms, each 2.5 times the last, 14 of them (runtime operations in pkg/kubelet/metrics/metrics.go).
pub const RUNTIME: Buckets = &[
    5_000,
    12_500,
    31_250,
    78_125,
    195_313,
    488_281,
    1_220_703,
    3_051_758,
    7_629_395,
    19_073_486,
    47_683_716,
    119_209_290,
    298_023_224,
    745_058_060,
];

/// A minute, 1 h, 4 h, 1 d, 1 week, 30 d, 90 d, 180 d, 360 d, 4 years (pkg/kubelet/certificate/kubelet.go).
pub const AGES: Buckets = &[
    60_000_000,
    3_600_000_000,
    14_400_000_000,
    86_400_000_000,
    604_800_000_000,
    2_592_000_000_000,
    7_776_000_000_000,
    15_552_000_000_000,
    31_104_000_000_000,
    124_416_000_000_000,
];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// One a bucket, then one for what is above the last; empty before the first observation.
    counts: Vec<u64>,
    sum_ns: u64,
}

impl Histogram {
    pub fn observe(&mut self, buckets: Buckets, span: Span) {
        if self.counts.is_empty() {
            self.counts.resize(buckets.len() + 1, 0);
        }
        let us = span.0 / 1_000;
        let at = buckets.iter().position(|most| us <= *most).unwrap_or(buckets.len());
        self.counts[at] += 1;
        self.sum_ns = self.sum_ns.saturating_add(span.0);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The lines of this series; `labels` is empty or `key="value",`.
    pub fn print(&self, out: &mut String, name: &str, labels: &str, buckets: Buckets) {
        let mut total = 0;
        for (index, most) in buckets.iter().enumerate() {
            total += self.counts.get(index).copied().unwrap_or(0);
            let le = seconds(Span(*most * 1_000));
            out.push_str(&format!("{name}_bucket{{{labels}le=\"{le}\"}} {total}\n"));
        }
        let count = self.count();
        out.push_str(&format!("{name}_bucket{{{labels}le=\"+Inf\"}} {count}\n"));
        let labels = labels.trim_end_matches(',');
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        out.push_str(&format!("{name}_sum{braces} {}\n", seconds(Span(self.sum_ns))));
        out.push_str(&format!("{name}_count{braces} {count}\n"));
    }
}

/// Seconds with the digits that it has: `0.005`, `10`.
pub fn seconds(span: Span) -> String {
    let (whole, rest) = (span.0 / 1_000_000_000, span.0 % 1_000_000_000);
    if rest == 0 {
        return format!("{whole}");
    }
    String::from(format!("{whole}.{rest:09}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_print_as_prometheus_reads_them() {
        let mut h = Histogram::default();
        h.observe(&[5_000, 10_000], Span::from_millis(7));
        h.observe(&[5_000, 10_000], Span::from_millis(70));
        let mut out = String::new();
        h.print(&mut out, "x_seconds", "op=\"a\",", &[5_000, 10_000]);
        let want = "x_seconds_bucket{op=\"a\",le=\"0.005\"} 0\nx_seconds_bucket{op=\"a\",le=\"0.01\"} 1\n\
            x_seconds_bucket{op=\"a\",le=\"+Inf\"} 2\nx_seconds_sum{op=\"a\"} 0.077\nx_seconds_count{op=\"a\"} 2\n";
        assert_eq!(out, want);
    }
}
