//! Durations as Go writes them.

use super::record::{Field, Reader};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use serde_json::Value;

/// A span of time as configurations and flags give it: `1m30s`. A plain number is refused there, as
/// upstream does.
///
/// Source: Go's `time.ParseDuration` and `Duration.String`, and `metav1.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration {
    /// Nanoseconds, possibly negative.
    pub ns: i64,
}

impl GoDuration {
    pub const fn from_millis(millis: i64) -> Self {
        GoDuration { ns: millis * 1_000_000 }
    }

    pub const fn from_secs(secs: i64) -> Self {
        GoDuration::from_millis(secs * 1_000)
    }

    /// Reads `[-+](N[.N]UNIT)+` or `0`. None when the text is another or the span exceeds 292
    /// years.
    pub fn parse(text: &str) -> Option<GoDuration> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(GoDuration::default());
        }
        let mut total = 0i128;
        while !rest.is_empty() {
            let (ns, after) = one_part(rest)?;
            total = total.checked_add(ns).filter(|total| *total <= i128::from(i64::MAX) + 1)?;
            rest = after;
        }
        let total = if negative { -total } else { total };
        let any = text.bytes().any(|b| b.is_ascii_digit());
        i64::try_from(total).ok().filter(|_| any).map(|ns| GoDuration { ns })
    }
}

/// `1.5h` and what follows it.
fn one_part(text: &str) -> Option<(i128, &str)> {
    let number_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = text.split_at(number_end);
    let unit_end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, after) = rest.split_at(unit_end);
    let unit: i128 = match unit {
        "ns" => 1,
        // Micro sign and Greek mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.into() };
    // Beyond eighteen digits nothing of a nanosecond is left.
    let digits = &fraction[..fraction.len().min(18)];
    let part: i128 = if digits.is_empty() { 0 } else { digits.parse::<u64>().ok()?.into() };
    let part = part * unit / 10i128.pow(digits.len() as u32);
    Some((whole * unit + part, after))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.ns.unsigned_abs();
        if ns == 0 {
            return f.write_str("0s");
        }
        if self.ns < 0 {
            f.write_str("-")?;
        }
        match ns {
            0..1_000 => write!(f, "{ns}ns"),
            1_000..1_000_000 => write!(f, "{}\u{b5}s", decimal(ns, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", decimal(ns, 1_000_000)),
            _ => {
                let minutes = ns / 60_000_000_000;
                match minutes {
                    0 => {}
                    1..60 => write!(f, "{minutes}m")?,
                    _ => write!(f, "{}h{}m", minutes / 60, minutes % 60)?,
                }
                write!(f, "{}s", decimal(ns % 60_000_000_000, 1_000_000_000))
            }
        }
    }
}

/// `ns / unit` without trailing zeros.
fn decimal(ns: u64, unit: u64) -> String {
    let (whole, rest) = (ns / unit, ns % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = unit.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

impl Field for GoDuration {
    fn read(&mut self, value: &Value, reader: &mut Reader) {
        match value {
            Value::String(text) => match GoDuration::parse(text) {
                Some(duration) => *self = duration,
                None => reader.invalid(format!("\"{text}\" is no duration, as \"1m30s\" would be")),
            },
            Value::Null if reader.patch => {}
            // metav1.Duration reads null as an empty string.
            Value::Null => reader.invalid("null is no duration; leave the field out".to_string()),
            _ => reader.mistyped("a duration such as \"1m30s\"", value),
        }
    }
    fn write(&self) -> Value {
        Value::String(self.to_string())
    }
    fn omitted(&self) -> bool {
        false
    }
    fn is_zero(&self) -> bool {
        self.ns == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_and_print() {
        let check = |text: &str, want: Option<&str>| {
            assert_eq!(GoDuration::parse(text).map(|d| d.to_string()).as_deref(), want, "{text}");
        };
        check("0", Some("0s"));
        check("-0", Some("0s"));
        check("1m30s", Some("1m30s"));
        check("90s", Some("1m30s"));
        check("1.5h", Some("1h30m0s"));
        check("4h", Some("4h0m0s"));
        check("100ms", Some("100ms"));
        check("1.5ms", Some("1.5ms"));
        check("1us", Some("1\u{b5}s"));
        check("1\u{3bc}s", Some("1\u{b5}s"));
        check("+.5s", Some("500ms"));
        check("1.s", Some("1s"));
        check("-1s", Some("-1s"));
        check("1m1m", Some("2m0s"));
        check("2562047h47m16.854775807s", Some("2562047h47m16.854775807s"));
        check("-2562047h47m16.854775808s", Some("-2562047h47m16.854775808s"));
        check("2562047h47m16.854775808s", None);
        check("0.0000000000000000000001h", Some("0s"));
        for bad in [
            "",
            "60",
            "1",
            "s",
            ".s",
            "-",
            "1d",
            "1 s",
            "1s ",
            "1..5s",
            "99999999999999999999h",
            "--1s",
        ] {
            check(bad, None);
        }
    }
}
