//! Amounts of resources, as `resource.Quantity` of apimachinery: a number with a suffix, exact to a
//! billionth.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/resource. Integers only: the amount is held in billionths
//! ("nanos"), so that sums and comparisons are exact and every build prints the same. Upstream
//! keeps numbers of any size; here what does not fit in `i128` nanos (over 1.7e29) is refused when
//! parsed, and sums stop there.

use alloc::format;
use core::cmp::Ordering;
use core::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANO: i128 = 1_000_000_000;
const NANOS_IN_MILLI: i128 = 1_000_000;

/// An amount. Two are equal when they are the same amount, whatever suffix they are written with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How an amount likes to be written; sums keep the format of the first operand that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Powers of 1000: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `e6`, ...
    DecimalExponent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuantityError {
    /// Not a sign, digits with at most one point, and a suffix.
    Syntax,
    /// A suffix that is none of those known.
    Suffix,
    /// More than this type holds.
    Range,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            QuantityError::Syntax => "not a quantity: want a number and a suffix, as in 1.5Gi",
            QuantityError::Suffix => {
                "unknown suffix of a quantity: want n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3"
            }
            QuantityError::Range => "the quantity is too large",
        })
    }
}

/// The part behind the digits: what one unit is worth.
enum Scale {
    /// The point moves this many places to the right.
    Ten(i32),
    /// Shift to the left.
    Two(u32),
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

fn suffix_scale(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Ten(*exponent), Format::DecimalSi));
    }
    if let Some(power) = (0u32..).zip(BINARY_SUFFIXES).find(|(_, name)| *name == suffix) {
        return Ok((Scale::Two(10 * power.0), Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let exponent: i64 = exponent.parse().map_err(|_| QuantityError::Suffix)?;
    let bounded = i32::try_from(exponent.clamp(-1_000_000, 1_000_000)).expect("clamped");
    Ok((Scale::Ten(bounded), Format::DecimalExponent))
}

/// The text of a quantity in its parts.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Parts<'a>, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if text.is_empty() || !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Syntax);
        }
        Ok(Parts {
            negative: text.starts_with('-'),
            whole: whole.as_bytes(),
            fraction: fraction.as_bytes(),
            suffix,
        })
    }

    /// The amount without its sign in nanos; what is finer than a nano counts as a whole one, on
    /// the ground that who asks for something shall get something.
    fn nanos(&self, scale: &Scale) -> Result<i128, QuantityError> {
        let (point, unit) = match scale {
            Scale::Ten(exponent) => (i64::from(*exponent), NANO),
            Scale::Two(shift) => (0, NANO << shift),
        };
        let count = (self.whole.len() + self.fraction.len()) as i64;
        let point = self.whole.len() as i64 + point;
        let digits =
            || self.whole.iter().chain(self.fraction).map(|digit| i128::from(digit - b'0'));

        let mut units: i128 = 0;
        for digit in digits().take(point.max(0) as usize) {
            units = units
                .checked_mul(10)
                .and_then(|tens| tens.checked_add(digit))
                .ok_or(QuantityError::Range)?;
        }
        for _ in count..point {
            if units == 0 {
                break;
            }
            units = units.checked_mul(10).ok_or(QuantityError::Range)?;
        }

        // Long multiplication of the digits behind the point, from the last one on.
        let (mut below, mut inexact) = (0, false);
        let behind = count - point.clamp(0, count);
        for digit in digits().rev().take(behind as usize) {
            let tenfold = below + digit * unit;
            below = tenfold / 10;
            inexact |= tenfold % 10 != 0;
        }
        for _ in point..0 {
            if below == 0 {
                break;
            }
            inexact |= below % 10 != 0;
            below /= 10;
        }
        let above = units.checked_mul(unit).ok_or(QuantityError::Range)?;
        above.checked_add(below + i128::from(inexact)).ok_or(QuantityError::Range)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { nanos: 0, format: Format::DecimalSi };

    pub const fn new(value: i64, format: Format) -> Quantity {
        Quantity { nanos: value as i128 * NANO, format }
    }

    pub const fn from_milli(milli: i64, format: Format) -> Quantity {
        Quantity { nanos: milli as i128 * NANOS_IN_MILLI, format }
    }

    /// Reads the text of a quantity. What is finer than a nano is rounded away from zero; binary
    /// amounts stop at `i64::MAX`; a binary amount below one is written in decimal from then on.
    pub fn parse(text: &str) -> Result<Quantity, QuantityError> {
        const BINARY_MAX: i128 = i64::MAX as i128 * NANO;
        let parts = Parts::of(text)?;
        let (scale, mut format) = suffix_scale(parts.suffix)?;
        let mut nanos = match (parts.nanos(&scale), format) {
            (Ok(nanos), Format::BinarySi) => nanos.min(BINARY_MAX),
            (Err(QuantityError::Range), Format::BinarySi) => BINARY_MAX,
            (nanos, _) => nanos?,
        };
        if format == Format::BinarySi && (1..NANO).contains(&nanos) {
            format = Format::DecimalSi;
        }
        if parts.negative {
            nanos = -nanos;
        }
        Ok(Quantity { nanos, format })
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whole units, rounded away from zero, held within `i64`.
    pub fn value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANO))
    }

    /// Thousandths, rounded away from zero, held within `i64`.
    pub fn milli_value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANOS_IN_MILLI))
    }

    /// The exact amount in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount in whole thousandths, rounded away from zero: API defaulting keeps no finer
    /// amounts.
    #[must_use]
    pub fn round_to_milli(&self) -> Quantity {
        let milli = divide_away_from_zero(self.nanos, NANOS_IN_MILLI);
        Quantity { nanos: milli.saturating_mul(NANOS_IN_MILLI), format: self.format }
    }

    /// The sum; the format is that of the first operand that is not zero.
    #[must_use]
    pub fn add(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// The difference; the format is that of the first operand that is not zero.
    #[must_use]
    pub fn sub(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        Quantity { nanos: self.nanos.saturating_sub(other.nanos), format }
    }
}

/// For divisors above zero.
fn divide_away_from_zero(dividend: i128, divisor: i128) -> i128 {
    dividend / divisor + (dividend % divisor).signum()
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical form: no fraction, the largest suffix that allows this. Binary amounts that are
/// not whole, or are below 1024, are written in decimal.
impl fmt::Display for Quantity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return out.write_str("0");
        }
        let whole = self.nanos % NANO == 0;
        if self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANO {
            return self.write_binary(out);
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        let exponent_max = if self.format == Format::DecimalExponent { i32::MAX } else { 18 };
        while number % 1000 == 0 && exponent < exponent_max {
            number /= 1000;
            exponent += 3;
        }
        if self.format == Format::DecimalExponent {
            return match exponent {
                0 => write!(out, "{number}"),
                _ => write!(out, "{number}e{exponent}"),
            };
        }
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent);
        let (suffix, _) = suffix.expect("exponents go by threes from -9 to 18");
        write!(out, "{number}{suffix}")
    }
}

impl Quantity {
    fn write_binary(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut number, mut power) = (self.nanos / NANO, 0);
        while number % 1024 == 0 && power + 1 < BINARY_SUFFIXES.len() {
            number /= 1024;
            power += 1;
        }
        write!(out, "{number}{}", BINARY_SUFFIXES[power])
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

/// A string, or a bare number as manifests have it (`cpu: 2`).
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            from.deserialize_any(QuantityVisitor)
        } else {
            from.deserialize_str(QuantityVisitor)
        }
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a quantity")
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::new(number, Format::DecimalSi))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity { nanos: i128::from(number) * NANO, format: Format::DecimalSi })
    }

    /// The shortest text that names the number, since the text is what upstream would have read.
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Quantity, E> {
        self.visit_str(&format!("{number}"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text.trim())
            .map_err(|error| E::custom(format_args!("{error}, not {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    /// Compared with upstream's 0.36 for every line, but for sizes where upstream overflows.
    #[test]
    fn parsed_written_and_rounded() {
        fn check(text: &str, canonical: &str, value: i64, milli: i64) {
            let quantity = Quantity::parse(text).expect(text);
            assert_eq!(quantity.to_string(), canonical, "{text}");
            assert_eq!((quantity.value(), quantity.milli_value()), (value, milli), "{text}");
        }
        // As reported by users: milli-bytes, fractions of bytes, tiny and negative amounts.
        check("128m", "128m", 1, 128);
        check("5000000m", "5k", 5_000, 5_000_000);
        check("1.1Gi", "1181116006400m", 1_181_116_007, 1_181_116_006_400);
        check("1G", "1G", 1_000_000_000, 1_000_000_000_000);
        check("0.0005", "500u", 1, 1);
        check("-1", "-1", -1, -1_000);
        check("1e3", "1e3", 1_000, 1_000_000);
        check("100M", "100M", 100_000_000, 100_000_000_000);
        // Suffixes.
        check("1n", "1n", 1, 1);
        check("1500u", "1500u", 1, 2);
        check("1024Mi", "1Gi", 1 << 30, 1_073_741_824_000);
        check("1025Ki", "1025Ki", 1_049_600, 1_049_600_000);
        check("1Ti", "1Ti", 1 << 40, 1_099_511_627_776_000);
        check("1Ei", "1Ei", 1 << 60, i64::MAX);
        check("1E", "1E", 1_000_000_000_000_000_000, i64::MAX);
        check("1000000E", "1000000E", i64::MAX, i64::MAX);
        check("12.34e-5", "123400e-9", 1, 1);
        check("1e4", "10e3", 10_000, 10_000_000);
        check("1E3", "1e3", 1_000, 1_000_000);
        check("1e+3", "1e3", 1_000, 1_000_000);
        check("1e21", "1e21", i64::MAX, i64::MAX);
        check("1048576", "1048576", 1 << 20, 1_048_576_000);
        // Binary amounts below 1024, or not whole, turn decimal.
        check("0.5Ki", "512", 512, 512_000);
        check("0.5Mi", "512Ki", 1 << 19, 524_288_000);
        check("1.5Gi", "1536Mi", 3 << 29, 1_610_612_736_000);
        check("0.0001Ki", "102400u", 1, 103);
        check("-0.5Mi", "-512Ki", -(1 << 19), -524_288_000);
        // Finer than a nano, and longer than any integer.
        check("0.5n", "1n", 1, 1);
        check("-0.5n", "-1n", -1, -1);
        check("3.14159265358979", "3141592654n", 4, 3_142);
        check("1.000000000000000000000000000000000000000000001", "1000000001n", 2, 1_001);
        check("0.000000000000000000000000000000000000000000001", "1n", 1, 1);
        check("1.000000000000000000000000000000000000000001Ki", "1024000000001n", 1_025, 1_024_001);
        check("1e-10", "1e-9", 1, 1);
        // Too large: binary amounts stop at the largest i64.
        check("8Ei", "9223372036854775807", i64::MAX, i64::MAX);
        check(
            "99999999999999999999999999999999999999999Ki",
            "9223372036854775807",
            i64::MAX,
            i64::MAX,
        );
        // Nothing at all is zero, as upstream has it.
        for zero in ["0", "-0", "0Gi", ".", "-", "+", "Mi", "0e99999999999"] {
            check(zero, "0", 0, 0);
        }
        check("5.", "5", 5, 5_000);
        check(".5", "500m", 1, 500);
        check("+1", "1", 1, 1_000);
        check("00012", "12", 12, 12_000);
    }

    #[test]
    fn refused() {
        fn check(text: &str, want: QuantityError) {
            assert_eq!(Quantity::parse(text), Err(want), "{text}");
        }
        for text in
            ["", " 1", "1 ", "1.1.M", "1+1.0M", "1_000", "0x10", "1m5x", "aoeu", "1e3m", "1e1.5"]
        {
            check(text, QuantityError::Syntax);
        }
        for text in ["1i", "1ki", "1K", "1Mi5", "0.1mi", "1e", "1e-", "1ee3", "1nn", "-3.01e-"] {
            check(text, QuantityError::Suffix);
        }
        for text in ["1e30", "-1e99", "1e999999999999", "999999999999999999999999999999999999999"] {
            check(text, QuantityError::Range);
        }
    }

    #[test]
    fn sums_keep_the_format_of_the_first_that_is_not_zero() {
        fn check(left: &str, right: &str, sum: &str, difference: &str) {
            let parse = |text| Quantity::parse(text).expect("a quantity");
            assert_eq!(parse(left).add(&parse(right)).to_string(), sum);
            assert_eq!(parse(left).sub(&parse(right)).to_string(), difference);
        }
        check("1Gi", "1G", "2073741824", "73741824");
        check("1Gi", "1024", "1048577Ki", "1048575Ki");
        check("0", "1Gi", "1Gi", "-1Gi");
        check("0Gi", "1e3", "1e3", "-1e3");
        check("100m", "1", "1100m", "-900m");
        check("500m", "500m", "1", "0");
    }

    #[test]
    fn json_takes_numbers_too_and_writes_strings() {
        fn check(json: &str, want: Option<&str>) {
            let read = serde_json::from_str::<Quantity>(json).ok();
            let written = read.map(|quantity| serde_json::to_string(&quantity).expect("a string"));
            assert_eq!(written.as_deref(), want, "{json}");
        }
        check("2", Some("\"2\""));
        check("0.5", Some("\"500m\""));
        check("1e3", Some("\"1k\""));
        check("18446744073709551615", Some("\"18446744073709551615\""));
        check("\" 1Gi \"", Some("\"1Gi\""));
        check("\"1 Gi\"", None);
        check("true", None);
        check("{}", None);
    }

    /// The next number of a fixed sequence (xorshift), so that a failure comes back in every run.
    fn next(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn canonical_text_means_the_same_amount() {
        let mut state = 0x5eed;
        for _ in 0..20_000 {
            let digits = next(&mut state) % 19;
            let whole = next(&mut state) % 10u64.pow(digits as u32).max(1);
            let nanos = i128::from(whole) * i128::from(next(&mut state) % 2_000_000_000);
            for format in [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
                for nanos in [nanos, -nanos, nanos / NANO * NANO] {
                    let quantity = Quantity { nanos, format };
                    let text = quantity.to_string();
                    let back = Quantity::parse(&text).expect(&text);
                    assert_eq!(back, quantity, "{text}");
                    assert!(back.format() != format || back.to_string() == text, "{text}");
                    assert!(!text.contains('.'));
                    assert_eq!(quantity.add(&back).sub(&back), quantity);
                    assert!(i128::from(quantity.value()) * NANO >= nanos || nanos < 0);
                }
            }
        }
    }
}
