//! What a scalar means: the YAML 1.1 of go-yaml v2, as the Kubernetes libraries use it.
//!
//! Source: `resolve.go` of `go.yaml.in/yaml/v2` 2.4, observed case by case. Base-60 numbers and
//! dates stay text there, `0o` is octal there, and `y` is a boolean.

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    /// From the lowest i64 to the highest u64.
    Int(i128),
    Float(f64),
    Text(String),
}

/// The meaning of `text`. `tag` is empty when there is none, and `!!int` for
/// `tag:yaml.org,2002:int`. `plain` is false for quoted and block scalars, which are text unless a
/// tag says otherwise.
pub(super) fn resolve(tag: &str, plain: bool, text: &str) -> Result<Scalar, String> {
    match tag {
        "" if !plain => Ok(Scalar::Text(text.to_owned())),
        "" => Ok(implicit(text)),
        "!!binary" => binary(text).map(Scalar::Text),
        "!!bool" | "!!int" | "!!float" | "!!null" => match (tag, implicit(text)) {
            ("!!float", Scalar::Int(int)) => Ok(Scalar::Float(int as f64)),
            (_, scalar) if kind(&scalar) == tag => Ok(scalar),
            (_, scalar) => Err(format!("`{text}` is {}, not {tag}", kind(&scalar))),
        },
        // Tags of applications, and !!str, leave the text as it is.
        _ => Ok(Scalar::Text(text.to_owned())),
    }
}

fn kind(scalar: &Scalar) -> &'static str {
    match scalar {
        Scalar::Null => "!!null",
        Scalar::Bool(_) => "!!bool",
        Scalar::Int(_) => "!!int",
        Scalar::Float(_) => "!!float",
        Scalar::Text(_) => "!!str",
    }
}

fn implicit(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| Scalar::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Scalar> {
    let digits = match text.as_bytes() {
        // Behind a leading dot underscores stand between digits only, else anywhere but in front.
        [b'.', ..] if text.split('_').any(|part| part.is_empty() || part == ".") => return None,
        [b'0'..=b'9' | b'.' | b'+' | b'-', ..] => text.replace('_', ""),
        _ => return None,
    };
    if let Some(int) = integer(&digits) {
        return Some(Scalar::Int(int));
    }
    // Rust reads `inf` and rounds 1e400 to infinity, Go does neither.
    let shaped = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    let float = if digits.bytes().all(shaped) { digits.parse::<f64>().ok() } else { None };
    float.filter(|float| float.is_finite()).map(Scalar::Float)
}

/// Go's base-prefix integers: a leading zero is octal, as in `0644`.
fn integer(text: &str) -> Option<i128> {
    let (negative, signed, digits) = match text.as_bytes().first()? {
        b'-' => (true, true, &text[1..]),
        b'+' => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    let int = if negative { -size } else { size };
    // Only what has no sign may use the sixty-fourth bit.
    let max = if signed { i128::from(i64::MAX) } else { i128::from(u64::MAX) };
    (i128::from(i64::MIN)..=max).contains(&int).then_some(int)
}

/// The bytes of a !!binary, as JSON shows them.
fn binary(text: &str) -> Result<String, String> {
    let code = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let text: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for (i, four) in text.chunks(4).enumerate() {
        let last = (i + 1) * 4 == text.len();
        let kept = match four {
            [_, _, b'=', b'='] if last => 2,
            [_, _, _, b'='] if last => 3,
            [_, _, _, _] => 4,
            _ => 0,
        };
        let bits =
            four[..kept].iter().try_fold(0u32, |bits, &b| Some(bits << 6 | u32::from(code(b)?)));
        let bits = bits.filter(|_| kept > 0).ok_or("!!binary is not base64")?;
        let bits = bits << (6 * (4 - kept));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..kept]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The JSON literal of a float, as Go's encoder writes it; none for infinities and NaN.
pub(super) fn float_json(float: f64) -> Option<String> {
    let size = float.abs();
    if !float.is_finite() {
        None
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{float:e}");
        Some(if size >= 1e21 { text.replace('e', "e+") } else { text })
    } else {
        Some(format!("{float}"))
    }
}

/// How a float reads as the key of a map: Go's `%g` in single precision.
pub(super) fn float_key(float: f64) -> String {
    let single = float as f32;
    if single.is_nan() {
        return ".nan".to_owned();
    }
    if single.is_infinite() {
        return if single > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let text = format!("{single:e}");
    let (digits, exponent) = text.split_once('e').expect("this format always has an exponent");
    let exponent: i32 = exponent.parse().expect("which is an integer");
    // Six is where the shortest form of Go's %g turns to exponents.
    if single == 0.0 || (-4..6).contains(&exponent) {
        format!("{single}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}
