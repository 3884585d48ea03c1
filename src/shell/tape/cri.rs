//! CRI messages by field: JSON from their bytes, and back. The fields are told by `cri.txt`, which is made from
//! the published proto file; types for all of these messages would take thirty times the room in the program.

use super::json::{from_text_or_hex, hex, text_or_hex, unhex};
use super::part::{put_varint, varint};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The key of fields that `cri.txt` does not know: their bytes.
const UNKNOWN: &str = "unknown";

/// The name of a message.
pub type Message = &'static str;

struct Schema {
    /// Call to request and response.
    calls: BTreeMap<&'static str, (Message, Message)>,
    messages: BTreeMap<Message, Vec<Field>>,
    enums: BTreeMap<&'static str, BTreeMap<i64, &'static str>>,
}

struct Field {
    number: u64,
    name: &'static str,
    shape: Shape,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    One,
    Repeated,
    /// Keys are strings.
    Map,
}

#[derive(Clone, Copy)]
enum Kind {
    String,
    /// In JSON text where it is that, else `{"hex": …}`.
    Bytes,
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Enum(&'static str),
    Message(Message),
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::parse(include_str!("cri.txt")));

/// The request of a call; `path` is a gRPC path, or the name of the method alone.
pub fn request_of(path: &str) -> Option<Message> {
    SCHEMA.calls.get(short(path)).map(|(request, _)| *request)
}

pub fn response_of(path: &str) -> Option<Message> {
    SCHEMA.calls.get(short(path)).map(|(_, response)| *response)
}

/// `/runtime.v1.RuntimeService/ListContainers` is `ListContainers`.
pub fn short(path: &str) -> &str {
    // Requests to the API server have short names: `PATCH nodes/status`.
    if path.starts_with('/') { path.rsplit('/').next().unwrap_or(path) } else { path }
}

/// All fields of a message, those that it does not hold with their defaults; None when it is none.
pub fn decode(message: Message, bytes: &[u8]) -> Option<Value> {
    SCHEMA.decode(message, bytes)
}

/// The encoding of a message; fields that are not there have their defaults.
///
/// # Errors
/// A sentence that names the field.
pub fn encode(message: Message, value: &Value) -> Result<Vec<u8>, String> {
    SCHEMA.encode(message, value)
}

impl Schema {
    fn parse(text: &'static str) -> Schema {
        let mut schema =
            Schema { calls: BTreeMap::new(), messages: BTreeMap::new(), enums: BTreeMap::new() };
        let (mut message, mut names) = ("", "");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&'static str> = line.split_whitespace().collect();
            match (line.starts_with(' '), &words[..]) {
                (false, ["rpc", name, request, response]) => {
                    schema.calls.insert(name, (request, response));
                }
                (false, ["message", name]) => {
                    (message, names) = (name, "");
                    schema.messages.insert(message, Vec::new());
                }
                (false, ["enum", name]) => names = name,
                (true, [number, name]) if !names.is_empty() => {
                    let number = number.parse().expect("cri.txt has numbers");
                    schema.enums.entry(names).or_default().insert(number, name);
                }
                (true, [number, name, kind @ ..]) => {
                    let number = number.parse().expect("cri.txt has numbers");
                    let (shape, kind) = match kind {
                        ["repeated", kind] => (Shape::Repeated, *kind),
                        ["map", kind] => (Shape::Map, *kind),
                        [kind] => (Shape::One, *kind),
                        _ => unreachable!("cri.txt has no line {line:?}"),
                    };
                    let field = Field { number, name, shape, kind: Kind::parse(kind) };
                    schema.messages.entry(message).or_default().push(field);
                }
                _ => unreachable!("cri.txt has no line {line:?}"),
            }
        }
        schema
    }

    fn decode(&self, message: Message, mut bytes: &[u8]) -> Option<Value> {
        let fields = self.messages.get(message)?;
        let absent = fields.iter().map(|field| (field.name.to_owned(), self.default(field)));
        let mut object: Map<String, Value> = absent.collect();
        let mut unknown = Vec::new();
        while !bytes.is_empty() {
            let whole = bytes;
            let (tag, rest) = varint(bytes)?;
            let (wire, rest) = Wire::take(tag & 7, rest)?;
            bytes = rest;
            let field = fields.iter().find(|field| field.number == tag >> 3);
            let Some(field) = field.filter(|field| field.takes(wire)) else {
                unknown.extend_from_slice(&whole[..whole.len() - rest.len()]);
                continue;
            };
            let slot = object.get_mut(field.name)?;
            match (field.shape, wire, slot) {
                (Shape::One, _, slot) => *slot = self.value(field.kind, wire)?,
                (Shape::Map, Wire::Bytes(entry), Value::Object(map)) => {
                    let (key, value) = self.entry(field.kind, entry)?;
                    map.insert(key, value);
                }
                (_, Wire::Bytes(mut packed), Value::Array(all)) if field.kind.is_number() => {
                    while !packed.is_empty() {
                        let (number, rest) = varint(packed)?;
                        packed = rest;
                        all.push(self.value(field.kind, Wire::Number(number))?);
                    }
                }
                (_, wire, Value::Array(all)) => all.push(self.value(field.kind, wire)?),
                _ => return None,
            }
        }
        if !unknown.is_empty() {
            object.insert(UNKNOWN.into(), hex(&unknown).into());
        }
        Some(Value::Object(object))
    }

    fn default(&self, field: &Field) -> Value {
        match (field.shape, field.kind) {
            (Shape::Repeated, _) => Value::Array(Vec::new()),
            (Shape::Map, _) => Value::Object(Map::new()),
            (Shape::One, Kind::Message(_)) => Value::Null,
            (Shape::One, Kind::String | Kind::Bytes) => "".into(),
            (Shape::One, kind) => self.value(kind, Wire::Number(0)).unwrap_or_default(),
        }
    }

    fn value(&self, kind: Kind, wire: Wire<'_>) -> Option<Value> {
        Some(match (kind, wire) {
            (Kind::String, Wire::Bytes(text)) => str::from_utf8(text).ok()?.into(),
            (Kind::Bytes, Wire::Bytes(bytes)) => text_or_hex(bytes),
            (Kind::Message(message), Wire::Bytes(bytes)) => self.decode(message, bytes)?,
            (Kind::Bool, Wire::Number(number)) => (number != 0).into(),
            (Kind::Int32, Wire::Number(number)) => (number as i32).into(),
            (Kind::Int64, Wire::Number(number)) => (number as i64).into(),
            (Kind::Uint32, Wire::Number(number)) => (number as u32).into(),
            (Kind::Uint64, Wire::Number(number)) => number.into(),
            (Kind::Enum(names), Wire::Number(number)) => {
                let number = i64::from(number as i32);
                let name = self.enums.get(names).and_then(|names| names.get(&number));
                name.map_or(number.into(), |name| (*name).into())
            }
            _ => return None,
        })
    }

    fn entry(&self, kind: Kind, mut bytes: &[u8]) -> Option<(String, Value)> {
        let mut key = String::new();
        let mut value = match kind {
            Kind::String | Kind::Bytes => Value::from(""),
            Kind::Message(message) => self.decode(message, &[])?,
            kind => self.value(kind, Wire::Number(0))?,
        };
        while !bytes.is_empty() {
            let (tag, rest) = varint(bytes)?;
            let (wire, rest) = Wire::take(tag & 7, rest)?;
            bytes = rest;
            match (tag >> 3, wire) {
                (1, Wire::Bytes(text)) => key = str::from_utf8(text).ok()?.to_owned(),
                (2, wire) => value = self.value(kind, wire)?,
                _ => {}
            }
        }
        Some((key, value))
    }

    fn encode(&self, message: Message, value: &Value) -> Result<Vec<u8>, String> {
        let object = value.as_object().ok_or_else(|| format!("{message}: {value} is no object"))?;
        let fields = &self.messages[message];
        for key in object.keys().filter(|key| *key != UNKNOWN) {
            if !fields.iter().any(|field| field.name == key) {
                let known: Vec<_> = fields.iter().map(|field| field.name).collect();
                return Err(format!("{message} has no {key:?}, only: {}", known.join(", ")));
            }
        }
        let mut out = Vec::new();
        for field in fields {
            let value = object.get(field.name).unwrap_or(&Value::Null);
            self.put(&mut out, message, field, value)?;
        }
        if let Some(unknown) = object.get(UNKNOWN) {
            let bytes = unknown.as_str().and_then(unhex);
            out.extend(bytes.ok_or_else(|| format!("{UNKNOWN}: hexadecimal digits are wanted"))?);
        }
        Ok(out)
    }

    fn put(
        &self,
        out: &mut Vec<u8>,
        message: Message,
        field: &Field,
        value: &Value,
    ) -> Result<(), String> {
        let Field { number, name, shape, kind } = *field;
        let wrong = || format!("{message}.{name}: {value} does not fit");
        match (shape, value) {
            (_, Value::Null) => {}
            (Shape::One, value) => {
                let payload = self.payload(kind, value, wrong)?;
                // A message is there or not.
                if matches!(kind, Kind::Message(_)) || !kind.is_default(&payload) {
                    kind.put(out, number, &payload);
                }
            }
            (Shape::Repeated, Value::Array(all)) if kind.is_number() => {
                let mut packed = Vec::new();
                for value in all {
                    packed.extend(self.payload(kind, value, wrong)?);
                }
                if !packed.is_empty() {
                    put_bytes(out, number, &packed);
                }
            }
            (Shape::Repeated, Value::Array(all)) => {
                for value in all {
                    put_bytes(out, number, &self.payload(kind, value, wrong)?);
                }
            }
            (Shape::Map, Value::Object(map)) => {
                for (key, value) in map {
                    let mut entry = Vec::new();
                    if !key.is_empty() {
                        put_bytes(&mut entry, 1, key.as_bytes());
                    }
                    let payload = self.payload(kind, value, wrong)?;
                    if !kind.is_default(&payload) {
                        kind.put(&mut entry, 2, &payload);
                    }
                    put_bytes(out, number, &entry);
                }
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// A value without its tag and length.
    fn payload(
        &self,
        kind: Kind,
        value: &Value,
        wrong: impl Fn() -> String,
    ) -> Result<Vec<u8>, String> {
        let (signed, unsigned) = (value.as_i64(), value.as_u64());
        let number = match kind {
            Kind::String => return value.as_str().map(Into::into).ok_or_else(wrong),
            Kind::Bytes => return from_text_or_hex(value).ok_or_else(wrong),
            Kind::Message(message) => return self.encode(message, value),
            Kind::Bool => value.as_bool().map(u64::from),
            Kind::Int32 => signed.filter(|n| i32::try_from(*n).is_ok()).map(|n| n as u64),
            Kind::Int64 => signed.map(|n| n as u64),
            Kind::Uint32 => unsigned.filter(|n| u32::try_from(*n).is_ok()),
            Kind::Uint64 => unsigned,
            Kind::Enum(names) => {
                let named = |name| self.enums.get(names)?.iter().find(|(_, n)| **n == name);
                let number = value.as_str().and_then(named).map(|(number, _)| *number);
                number.or(signed.filter(|n| i32::try_from(*n).is_ok())).map(|n| n as u64)
            }
        };
        let mut out = Vec::new();
        let names = match kind {
            Kind::Enum(names) => self.enums.get(names).into_iter().flat_map(BTreeMap::values),
            _ => None.into_iter().flat_map(BTreeMap::values),
        };
        let known: Vec<&str> = names.copied().collect();
        let wrong = || match known.is_empty() {
            true => wrong(),
            false => format!("{}, only: {}", wrong(), known.join(", ")),
        };
        put_varint(&mut out, number.ok_or_else(wrong)?);
        Ok(out)
    }
}

/// A field's value as it stands on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed-size numbers, which no known field has.
    Fixed,
}

impl<'a> Wire<'a> {
    fn take(kind: u64, bytes: &'a [u8]) -> Option<(Wire<'a>, &'a [u8])> {
        match kind {
            0 => varint(bytes).map(|(number, rest)| (Wire::Number(number), rest)),
            1 => bytes.get(8..).map(|rest| (Wire::Fixed, rest)),
            2 => {
                let (length, rest) = varint(bytes)?;
                let (text, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                Some((Wire::Bytes(text), rest))
            }
            5 => bytes.get(4..).map(|rest| (Wire::Fixed, rest)),
            _ => None,
        }
    }
}

impl Field {
    fn takes(&self, wire: Wire<'_>) -> bool {
        match wire {
            Wire::Fixed => false,
            Wire::Number(_) => self.kind.is_number() && self.shape != Shape::Map,
            Wire::Bytes(_) => !self.kind.is_number() || self.shape != Shape::One,
        }
    }
}

impl Kind {
    fn parse(text: &'static str) -> Kind {
        match text {
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            "bool" => Kind::Bool,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "uint32" => Kind::Uint32,
            "uint64" => Kind::Uint64,
            _ => text.strip_prefix('=').map_or(Kind::Message(text), Kind::Enum),
        }
    }

    fn is_number(self) -> bool {
        !matches!(self, Kind::String | Kind::Bytes | Kind::Message(_))
    }

    /// Defaults are not written.
    fn is_default(self, payload: &[u8]) -> bool {
        if self.is_number() { payload == [0] } else { payload.is_empty() }
    }

    fn put(self, out: &mut Vec<u8>, number: u64, payload: &[u8]) {
        if self.is_number() {
            put_varint(out, number << 3);
            out.extend_from_slice(payload);
        } else {
            put_bytes(out, number, payload);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use steplet_api::cri::{
        Container, ContainerMetadata, ContainerState, ContainerStatus, KeyValue,
        LinuxContainerConfig, LinuxContainerSecurityContext, ListContainersResponse, Mount,
        MountPropagation,
    };

    #[test]
    fn every_message_is_known_down_to_its_leaves() {
        assert_eq!(SCHEMA.calls.len(), 22);
        for (request, response) in SCHEMA.calls.values() {
            assert!(decode(request, &[]).is_some() && decode(response, &[]).is_some());
        }
        for field in SCHEMA.messages.values().flatten() {
            match field.kind {
                Kind::Message(name) => assert!(SCHEMA.messages.contains_key(name), "{name}"),
                Kind::Enum(name) => assert!(SCHEMA.enums.contains_key(name), "{name}"),
                _ => {}
            }
        }
        assert_eq!(response_of("/runtime.v1.RuntimeService/Status"), Some("StatusResponse"));
        assert_eq!(request_of("Exec"), None);
    }

    /// What prost encodes is shown, and comes back as the same bytes.
    fn check(message: Message, it: &impl prost::Message) -> Value {
        let bytes = it.encode_to_vec();
        let value = decode(message, &bytes).unwrap();
        assert_eq!(encode(message, &value).unwrap(), bytes, "{value}");
        value
    }

    #[test]
    fn prost_and_the_schema_agree() {
        let labels = [("app".into(), "web".into()), ("empty".into(), String::new())];
        let mut status = ContainerStatus {
            id: "ab".into(),
            metadata: Some(ContainerMetadata::default()),
            created_at: -5,
            exit_code: -1,
            labels: labels.into(),
            mounts: vec![
                Mount { readonly: true, ..Mount::default() },
                Mount { container_path: "/data".into(), ..Mount::default() },
            ],
            ..ContainerStatus::default()
        };
        status.set_state(ContainerState::ContainerUnknown);
        status.mounts[1].set_propagation(MountPropagation::PropagationBidirectional);
        let value = check("ContainerStatus", &status);
        assert_eq!(value["state"], "CONTAINER_UNKNOWN");
        assert_eq!((&value["exit_code"], &value["created_at"]), (&json!(-1), &json!(-5)));
        assert_eq!(value["labels"], json!({"app": "web", "empty": ""}));
        assert_eq!(value["mounts"][1]["propagation"], "PROPAGATION_BIDIRECTIONAL");
        assert_eq!((&value["image"], &value["metadata"]["name"]), (&Value::Null, &json!("")));

        let groups = vec![0, 7, i64::MIN];
        let security =
            LinuxContainerSecurityContext { supplemental_groups: groups, ..Default::default() };
        let linux = LinuxContainerConfig { security_context: Some(security), ..Default::default() };
        let value = check("LinuxContainerConfig", &linux);
        assert_eq!(value["security_context"]["supplemental_groups"], json!([0, 7, i64::MIN]));
        let env = |value: &[u8]| KeyValue { key: "K".into(), value: value.into() };
        assert_eq!(check("KeyValue", &env(b"text"))["value"], "text");
        assert_eq!(check("KeyValue", &env(b"\xff"))["value"], json!({"hex": "ff"}));
        let containers = vec![Container::default(), Container::default()];
        check("ListContainersResponse", &ListContainersResponse { containers });
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let bytes = [0x0a, 1, b'x', 0xf8, 0x3f, 5, 0xfd, 0x3f, 1, 2, 3, 4];
        let value = decode("VersionRequest", &bytes).unwrap();
        assert_eq!(value, json!({"version": "x", "unknown": "f83f05fd3f01020304"}));
        assert_eq!(encode("VersionRequest", &value).unwrap(), bytes);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[0x0a][..], &[0x0a, 5, b'x'], &[0x0a, 1, 0xff], &[0x0b], &[0xff; 12]] {
            assert_eq!(decode("VersionRequest", bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn a_wrong_value_is_told() {
        for (message, value, want) in [
            ("VersionRequest", json!([]), "VersionRequest: [] is no object"),
            ("VersionRequest", json!({"v": 1}), "VersionRequest has no \"v\", only: version"),
            ("VersionRequest", json!({"version": 1}), "VersionRequest.version: 1 does not fit"),
            ("ContainerStatus", json!({"exit_code": 1u64 << 40}), "exit_code"),
            ("ContainerStatus", json!({"state": "RUNNING"}), "state"),
            ("ContainerStatus", json!({"mounts": {}}), "mounts"),
            ("ContainerStatus", json!({"unknown": "xyz"}), "hexadecimal"),
        ] {
            let got = encode(message, &value).unwrap_err();
            assert!(got.contains(want), "{got}");
        }
        let named = encode("ContainerStatus", &json!({"state": "CONTAINER_EXITED"}));
        assert_eq!(named, encode("ContainerStatus", &json!({"state": 2})));
    }
}
