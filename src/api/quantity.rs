//! Amounts of resources, as `resource.Quantity` of apimachinery: a number with a suffix, exact to a billionth.
//!
//! Upstream: k8s.io/apimachinery/pkg/api/resource. Integers only: the amount is held in billionths ("nanos"), so that
//! sums and comparisons are exact and every build prints the same. Upstream keeps numbers of any size; here what does
//! not fit in `i128` nanos (over 1.7e29) is refused when parsed, and sums stop there.

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

    /// The amount without its sign in nanos; what is finer than a nano counts as a whole one, on the ground that who
    /// asks for something shall get something.
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

    /// Reads the text of a quantity. What is finer than a nano is rounded away from zero; binary amounts stop at
    /// `i64::MAX`; a binary amount below one is written in decimal from then on.
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

/// The canonical form: no fraction, the largest suffix that allows this. Binary amounts that are not whole, or are
/// below 1024, are written in decimal.
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
