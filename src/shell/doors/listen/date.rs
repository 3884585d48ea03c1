//! The Date header, IMF-fixdate of RFC 9110, 5.6.7.

use std::time::{SystemTime, UNIX_EPOCH};
use steplet_api::time::Time;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Keeps the text for the second that it is good for.
#[derive(Default)]
pub struct Dates {
    second: u64,
    text: String,
}

impl Dates {
    pub fn now(&mut self) -> &str {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        if self.text.is_empty() || self.second != second {
            (self.second, self.text) = (second, date(second));
        }
        &self.text
    }
}

fn date(second: u64) -> String {
    let ns = i64::try_from(second).unwrap_or_default().saturating_mul(1_000_000_000);
    let time = Time::from_ns(ns);
    // 2006-01-02T15:04:05Z
    let (date, clock) = time.as_str().split_once('T').unwrap_or_default();
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next(), parts.next(), parts.next());
    let month: usize = month.and_then(|m| m.parse().ok()).unwrap_or(1);
    format!(
        "{}, {} {} {} {} GMT",
        DAYS[(second / 86_400 % 7) as usize],
        day.unwrap_or_default(),
        MONTHS[(month - 1) % 12],
        year.unwrap_or_default(),
        clock.trim_end_matches('Z'),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |second, want| assert_eq!(date(second), want);
        check(0, "Thu, 01 Jan 1970 00:00:00 GMT");
        check(784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT");
        check(1_796_051_045, "Mon, 30 Nov 2026 15:04:05 GMT");
        assert!(Dates::default().now().ends_with(" GMT"));
    }
}
