//! Points in time as the API writes them: RFC 3339, kept as the text that came, read and written as
//! nanoseconds since 1970 in UTC.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND_NS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// An RFC 3339 time; empty means "not set". The text is kept as it came, so that it is written back
/// unchanged. Equality is equality of the text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Time(Box<str>);

impl Time {
    /// With seconds, as `metav1.Time` is written; the fraction is cut off. `ns` counts from 1970.
    pub fn from_ns(ns: i64) -> Time {
        Time(format!("{}Z", DateTime::from_ns(ns)).into())
    }

    /// With six digits of fraction, as `metav1.MicroTime` of leases and events is written.
    pub fn micro_from_ns(ns: i64) -> Time {
        let micros = ns.rem_euclid(SECOND_NS) / 1_000;
        Time(format!("{}.{micros:06}Z", DateTime::from_ns(ns)).into())
    }

    /// With as many digits of fraction as are needed, as Go's RFC3339Nano writes it.
    pub fn nano_from_ns(ns: i64) -> Time {
        let nanos = ns.rem_euclid(SECOND_NS);
        let mut text = format!("{}", DateTime::from_ns(ns));
        if nanos != 0 {
            text.push_str(format!(".{nanos:09}").trim_end_matches('0'));
        }
        text.push('Z');
        Time(text.into())
    }

    /// Takes a time from text; `None` when it is neither empty nor RFC 3339.
    pub fn parse(text: &str) -> Option<Time> {
        (text.is_empty() || parse_ns(text).is_some()).then(|| Time(text.into()))
    }

    /// Nanoseconds since 1970; `None` when not set.
    pub fn ns(&self) -> Option<i64> {
        parse_ns(&self.0)
    }

    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Time::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format_args!("{text:?} is not a time as in RFC 3339"))
        })
    }
}

/// A civil date and time of day in UTC, whole seconds.
struct DateTime {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
}

impl DateTime {
    /// Days to a date, counted in years that begin in March and cycles of 400 years, since both
    /// repeat exactly.
    fn from_ns(ns: i64) -> DateTime {
        let seconds = ns.div_euclid(SECOND_NS);
        let days = seconds.div_euclid(DAY_SECONDS) + 719_468; // since 0000-03-01
        let cycle = days.div_euclid(146_097);
        let day_of_cycle = days.rem_euclid(146_097);
        let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
            - day_of_cycle / 146_096)
            / 365;
        let day_of_year =
            day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        DateTime {
            year: cycle * 400 + year_of_cycle + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: seconds.rem_euclid(DAY_SECONDS),
        }
    }

    /// Seconds since 1970: `from_ns` the other way round.
    fn seconds(&self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let cycle = year.div_euclid(400);
        let year_of_cycle = year.rem_euclid(400);
        let month_from_march = (self.month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        let day_of_cycle =
            365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
        (cycle * 146_097 + day_of_cycle - 719_468) * DAY_SECONDS + self.second_of_day
    }

    fn is_valid(&self) -> bool {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let days = match self.month {
            2 => 28 + i64::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        (1..=12).contains(&self.month) && (1..=days).contains(&self.day)
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = (self.year, self.month, self.day);
        let (hour, minute, second) =
            (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

/// Reads RFC 3339 with any number of fraction digits (those past nanoseconds are cut off) and any
/// zone, to nanoseconds since 1970. `None` for other text. Times outside the years 1678 to 2261 come
/// to the nearest end of that range.
pub fn parse_ns(text: &str) -> Option<i64> {
    let mut rest = text.as_bytes();
    let year = digits(&mut rest, 4)?;
    let month = digits(literal(&mut rest, b'-')?, 2)?;
    let day = digits(literal(&mut rest, b'-')?, 2)?;
    let hour = digits(literal(&mut rest, b'T')?, 2)?;
    let minute = digits(literal(&mut rest, b':')?, 2)?;
    let second = digits(literal(&mut rest, b':')?, 2)?;
    let date = DateTime { year, month, day, second_of_day: hour * 3600 + minute * 60 + second };
    if !date.is_valid() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let nanos = if literal(&mut rest, b'.').is_some() { fraction(&mut rest)? } else { 0 };
    let offset = zone_seconds(&mut rest)?;
    if !rest.is_empty() {
        return None;
    }
    let total = i128::from(date.seconds() - offset) * i128::from(SECOND_NS) + i128::from(nanos);
    Some(total.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

fn literal<'a, 'b>(rest: &'a mut &'b [u8], want: u8) -> Option<&'a mut &'b [u8]> {
    let (first, tail) = rest.split_first()?;
    if *first != want {
        return None;
    }
    *rest = tail;
    Some(rest)
}

fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let (head, tail) = rest.split_at_checked(count)?;
    if !head.iter().all(u8::is_ascii_digit) {
        return None;
    }
    *rest = tail;
    Some(head.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

/// The digits behind the point, at least one, as nanoseconds.
fn fraction(rest: &mut &[u8]) -> Option<i64> {
    let (mut nanos, mut place) = (0, SECOND_NS);
    while let Some((digit, tail)) = rest.split_first().filter(|(first, _)| first.is_ascii_digit()) {
        place /= 10;
        nanos += i64::from(digit - b'0') * place;
        *rest = tail;
    }
    (place < SECOND_NS).then_some(nanos)
}

/// `Z`, or the offset of the zone east of UTC.
fn zone_seconds(rest: &mut &[u8]) -> Option<i64> {
    let (sign, tail) = rest.split_first()?;
    *rest = tail;
    let sign = match sign {
        b'Z' => return Some(0),
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let hours = digits(rest, 2)?;
    let minutes = digits(literal(rest, b':')?, 2)?;
    (hours <= 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        fn check(ns: i64, seconds: &str, nano: &str, micro: &str) {
            assert_eq!(Time::from_ns(ns).as_str(), seconds);
            assert_eq!(Time::nano_from_ns(ns).as_str(), nano);
            assert_eq!(Time::micro_from_ns(ns).as_str(), micro);
            assert_eq!(parse_ns(nano), Some(ns));
        }
        check(0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z");
        check(
            1_709_251_199_120_000_000,
            "2024-02-29T23:59:59Z",
            "2024-02-29T23:59:59.12Z",
            "2024-02-29T23:59:59.120000Z",
        );
        check(
            -1,
            "1969-12-31T23:59:59Z",
            "1969-12-31T23:59:59.999999999Z",
            "1969-12-31T23:59:59.999999Z",
        );
        check(
            i64::MAX,
            "2262-04-11T23:47:16Z",
            "2262-04-11T23:47:16.854775807Z",
            "2262-04-11T23:47:16.854775Z",
        );
        check(
            i64::MIN,
            "1677-09-21T00:12:43Z",
            "1677-09-21T00:12:43.145224192Z",
            "1677-09-21T00:12:43.145224Z",
        );
    }

    #[test]
    fn every_day_of_eight_centuries_survives() {
        for day in -100_000..100_000 {
            let ns = day * DAY_SECONDS * SECOND_NS + day.rem_euclid(DAY_SECONDS) * SECOND_NS;
            assert_eq!(Time::from_ns(ns).ns(), Some(ns));
        }
    }

    #[test]
    fn zones_fractions_and_refusals() {
        fn check(text: &str, want: Option<i64>) {
            assert_eq!(parse_ns(text), want, "{text}");
        }
        check("1970-01-01T01:00:00+01:00", Some(0));
        check("1969-12-31T23:30:00.5-00:30", Some(500_000_000));
        check("1970-01-01T00:00:00.1234567891Z", Some(123_456_789));
        check("1970-01-01T00:00:00.Z", None);
        check("1970-01-01T00:00:00", None);
        check("1970-01-01 00:00:00Z", None);
        check("2023-02-29T00:00:00Z", None);
        check("1970-13-01T00:00:00Z", None);
        check("1970-01-01T24:00:00Z", None);
        check("1970-01-01T00:00:60Z", None);
        check("1970-01-01T00:00:00Zx", None);
        check("9999-12-31T23:59:59Z", Some(i64::MAX));
        check("0001-01-01T00:00:00Z", Some(i64::MIN));
        check("+970-01-01T00:00:00Z", None);
        check("", None);
    }
}
