//! The text of a flag as JSON, by its kind. All uses of one flag are read together, since lists and
//! maps add up.

use super::table::Kind;
use crate::shell::tape::TAPE_BYTES_MIN;
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use steplet_api::config::GoDuration;
use steplet_api::quantity::Quantity;

/// What the uses of a flag say, or what is wrong with them.
pub(super) fn read(kind: Kind, uses: &[&str]) -> Result<Value, String> {
    let last = uses.last().copied().unwrap_or("");
    match kind {
        Kind::Text | Kind::Version => Ok(Value::from(last)),
        Kind::Bool => bool(last).map(Value::from),
        Kind::Int32 | Kind::Int64 => {
            let int = integer(last).ok_or_else(|| format!("must be an integer, not \"{last}\""))?;
            let fits = kind == Kind::Int64 || i32::try_from(int).is_ok();
            let what = || format!("must be an integer of 32 bits, not \"{last}\"");
            if fits { Ok(Value::from(int)) } else { Err(what()) }
        }
        Kind::Duration => match GoDuration::parse(last) {
            Some(duration) => Ok(Value::from(duration.to_string())),
            None => Err(format!("must be a duration such as 1m30s, not \"{last}\"")),
        },
        Kind::Ip => match last.parse::<IpAddr>() {
            Ok(_) => Ok(Value::from(last)),
            Err(_) => Err(format!("must be an IP address, not \"{last}\"")),
        },
        Kind::Quantity => match Quantity::parse(last) {
            Ok(quantity) => Ok(Value::from(quantity.to_string())),
            Err(error) => Err(format!("\"{last}\": {error}")),
        },
        Kind::Level => level(last).map(Value::from),
        Kind::List => lists(uses),
        Kind::Map => pairs(uses, '='),
        Kind::Thresholds => pairs(uses, '<'),
        Kind::Pair => {
            let pairs = uses.iter().map(|pair| split(pair, '='));
            let pairs = pairs.map(|pair| pair.map(|(key, value)| (key, Value::from(value))));
            Ok(Value::Object(pairs.collect::<Result<Map<_, _>, _>>()?))
        }
        Kind::BoolMap => {
            let pairs = parts(uses).map(|pair| {
                let (key, value) = split(pair, '=')?;
                let on = bool(&value).map_err(|what| format!("{key} {what}"))?;
                Ok((key, Value::from(on)))
            });
            Ok(Value::Object(pairs.collect::<Result<Map<_, _>, String>>()?))
        }
        Kind::Headers => headers(uses),
        Kind::Taints => taints(last),
        Kind::ReservedMemory => reserved_memory(uses),
        Kind::VModule => {
            let items = parts(uses).map(|pair| {
                let (pattern, verbosity) = split(pair, '=')?;
                Ok(json!({"filePattern": pattern, "verbosity": level(&verbosity)?}))
            });
            Ok(Value::Array(items.collect::<Result<_, String>>()?))
        }
    }
}

/// The comma-separated parts of all uses, empty ones left out.
fn parts<'a>(uses: &'a [&str]) -> impl Iterator<Item = &'a str> {
    uses.iter().flat_map(|text| text.split(',')).filter(|part| !part.is_empty())
}

fn split(pair: &str, by: char) -> Result<(String, String), String> {
    match pair.split_once(by) {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err(format!("must be pairs KEY{by}VALUE, not \"{pair}\"")),
    }
}

fn pairs(uses: &[&str], by: char) -> Result<Value, String> {
    let pairs = parts(uses).map(|pair| split(pair, by));
    let pairs = pairs.map(|pair| pair.map(|(key, value)| (key, Value::from(value))));
    Ok(Value::Object(pairs.collect::<Result<Map<_, _>, _>>()?))
}

/// Labels: a key alone has an empty value.
pub(super) fn labels(uses: &[&str]) -> impl Iterator<Item = (String, String)> {
    parts(uses).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key.trim().to_owned(), value.trim().to_owned())
    })
}

/// Lists are CSV: a part in double quotes may hold commas.
fn lists(uses: &[&str]) -> Result<Value, String> {
    let mut items: Vec<String> = Vec::new();
    for text in uses.iter().filter(|text| !text.is_empty()) {
        let mut item = String::new();
        let mut quoted = false;
        let mut letters = text.chars().peekable();
        while let Some(c) = letters.next() {
            match c {
                '"' if quoted && letters.next_if_eq(&'"').is_some() => item.push('"'),
                '"' if quoted || item.is_empty() => quoted = !quoted,
                ',' if !quoted => items.push(std::mem::take(&mut item)),
                _ => item.push(c),
            }
        }
        if quoted {
            return Err(format!("has a quote without an end: {text}"));
        }
        items.push(item);
    }
    Ok(Value::from(items))
}

fn headers(uses: &[&str]) -> Result<Value, String> {
    let mut headers: Map<String, Value> = Map::new();
    for pair in parts(uses) {
        // What stands there may be a credential, so it is not shown.
        let wrong = |_| "must be pairs NAME:VALUE".to_owned();
        let (name, value) = split(pair, ':').map_err(wrong)?;
        let values = headers.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(Value::from(value));
        }
    }
    Ok(Value::Object(headers))
}

/// `key=value:effect` or `key:effect`.
fn taints(text: &str) -> Result<Value, String> {
    let mut taints: Vec<Value> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let wrong = || format!("must be taints KEY=VALUE:EFFECT, not \"{part}\"");
        let (name, effect) = part.split_once(':').ok_or_else(wrong)?;
        let (key, value) = name.split_once('=').unwrap_or((name, ""));
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Err(format!(
                "{wrong}; effects are NoSchedule, PreferNoSchedule and NoExecute",
                wrong = wrong()
            ));
        }
        if taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
            return Err(format!("names {key}:{effect} twice"));
        }
        taints.push(json!({"key": key, "value": value, "effect": effect}));
    }
    Ok(Value::Array(taints))
}

fn reserved_memory(uses: &[&str]) -> Result<Value, String> {
    let mut reservations = Vec::new();
    for text in uses.iter().flat_map(|text| text.split(';')).filter(|text| !text.is_empty()) {
        let wrong = || format!("must be NODE:TYPE=QUANTITY,..., not \"{text}\"");
        let (node, limits) = text.split_once(':').ok_or_else(wrong)?;
        let node: i32 = node.parse().map_err(|_| wrong())?;
        let mut map = Map::new();
        for limit in limits.split(',') {
            let (kind, quantity) = limit.split_once('=').ok_or_else(wrong)?;
            map.insert(kind.to_owned(), Value::from(quantity));
        }
        reservations.push(json!({"numaNode": node, "limits": map}));
    }
    Ok(Value::Array(reservations))
}

/// The addresses of `--node-ip`; none for the words that only choose a family.
pub(in crate::cli) fn node_ips(text: &str) -> Result<Vec<IpAddr>, String> {
    if matches!(text, "" | "0.0.0.0" | "::") {
        return Ok(Vec::new());
    }
    let ips: Result<Vec<IpAddr>, _> = text.split(',').map(|ip| ip.trim().parse()).collect();
    let wrong = || format!("must be an address, or one of each family, not \"{text}\"");
    let ips = ips.map_err(|_| wrong())?;
    let twice = ips.len() == 2 && ips[0].is_ipv4() == ips[1].is_ipv4();
    if ips.len() > 2 || twice { Err(wrong()) } else { Ok(ips) }
}

/// Whether a ring of this many bytes can be kept; 0 stands for no tape.
pub(in crate::cli) fn tape_max(bytes: u64) -> Result<u64, String> {
    let least = TAPE_BYTES_MIN;
    match bytes {
        1.. if bytes < least => {
            Err(format!("must be 0, for no tape, or at least {}Mi, not {bytes} bytes", least >> 20))
        }
        _ => Ok(bytes),
    }
}

/// The words of Go's `strconv.ParseBool`.
pub(super) fn bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("must be true or false, not \"{text}\"")),
    }
}

/// Go's integers of any base: `0x1F`, `0o17`, `017`, `0b11`, `1_000`.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // An underscore stands between two digits, or between the base and a digit.
    let based = radix != 10;
    let lone = digits.split('_').enumerate().any(|(i, part)| part.is_empty() && !(based && i == 0));
    let digits = digits.replace('_', "");
    if lone || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let size = i128::from_str_radix(&digits, radix).ok()?;
    i64::try_from(if negative { -size } else { size }).ok()
}

fn level(text: &str) -> Result<i32, String> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let level = if digits { text.parse().ok() } else { None };
    level.ok_or_else(|| format!("must be a verbosity such as 4, not \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::Kind::*;
    use super::*;

    #[test]
    fn kinds() {
        let check = |kind: Kind, uses: &[&str], want: &str| {
            let got = read(kind, uses).map_or_else(|_| "error".to_owned(), |v| v.to_string());
            assert_eq!(got, want, "{kind:?} {uses:?}");
        };
        check(Text, &["a", "b"], "\"b\"");
        check(Bool, &["T"], "true");
        check(Bool, &["yes"], "error");
        for (text, want) in [
            ("20", "20"),
            ("0x10", "16"),
            ("017", "15"),
            ("-1", "-1"),
            ("+1", "1"),
            ("1_000", "1000"),
        ] {
            check(Int32, &[text], want);
        }
        for bad in ["", "1.5", "1e3", "08", "1__0", "_1", "0x", "x", "3000000000"] {
            check(Int32, &[bad], "error");
        }
        check(Int64, &["3000000000"], "3000000000");
        check(Duration, &["90s"], "\"1m30s\"");
        check(Duration, &["90"], "error");
        check(Ip, &["::1"], "\"::1\"");
        check(Ip, &["localhost"], "error");
        check(List, &["a,b", "c"], r#"["a","b","c"]"#);
        check(List, &["\"a,b\",c"], r#"["a,b","c"]"#);
        check(List, &[""], "[]");
        check(List, &["\"a"], "error");
        check(Map, &["cpu=1, memory=1Gi,", "pid=5"], r#"{"cpu":"1","memory":"1Gi","pid":"5"}"#);
        check(Map, &["cpu"], "error");
        check(Map, &[""], "{}");
        check(Pair, &["a=b,c", "d=e"], r#"{"a":"b,c","d":"e"}"#);
        check(
            Thresholds,
            &["memory.available<1Gi,nodefs.available<5%"],
            r#"{"memory.available":"1Gi","nodefs.available":"5%"}"#,
        );
        check(BoolMap, &["A=true,B=0"], r#"{"A":true,"B":false}"#);
        check(BoolMap, &["A=on"], "error");
        check(Headers, &["A:b,A:c", "D:e:f"], r#"{"A":["b","c"],"D":["e:f"]}"#);
        assert_eq!(read(Headers, &["secret"]), Err("must be pairs NAME:VALUE".to_owned()));
        check(
            Taints,
            &["x=1:NoSchedule", "a=b:NoSchedule,c:NoExecute"],
            concat!(
                r#"[{"effect":"NoSchedule","key":"a","value":"b"},"#,
                r#"{"effect":"NoExecute","key":"c","value":""}]"#
            ),
        );
        check(Taints, &["a"], "error");
        check(Taints, &["a:Never"], "error");
        check(Taints, &["a:NoSchedule,a:NoSchedule"], "error");
        check(
            ReservedMemory,
            &["0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi"],
            concat!(
                r#"[{"limits":{"hugepages-1M":"2Gi","memory":"1Gi"},"numaNode":0},"#,
                r#"{"limits":{"memory":"2Gi"},"numaNode":1}]"#
            ),
        );
        check(ReservedMemory, &["memory=1Gi"], "error");
        check(Quantity, &["64Mi"], "\"64Mi\"");
        check(Level, &["4"], "4");
        check(Level, &["-1"], "error");
        check(
            VModule,
            &["a=1,b*=2"],
            r#"[{"filePattern":"a","verbosity":1},{"filePattern":"b*","verbosity":2}]"#,
        );
        check(VModule, &["a"], "error");
    }
}
