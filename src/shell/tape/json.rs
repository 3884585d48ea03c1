//! Events and effects as JSON, to look at and to edit. Bodies inside of them are shown as what they are: CRI
//! messages by field, manifests as objects, text as text, and anything else as `{"hex": "…"}`.

use super::cri::{self, Message};
use bytes::Bytes;
use serde_json::{Value, json};
use steplet_api::json::from_slice;
use steplet_core::effect::{Call, Effect};
use steplet_core::event::{DiskReply, Event, HelperReply, Item, KernelReply, Outcome};

/// Where a body stands in the JSON of an event.
const ANSWER: &str = "/Done/outcome/Rpc/Ok";
const TEXT: &str = "/Done/outcome/Disk/Ok/Text";
const FIGURES: &str = "/Done/outcome/Kernel/Ok/Text";
const FETCHED: &str = "/Done/outcome/Helper/Ok/Manifest/content/Ok/json";
const MANIFEST: &str = "/Item/item/Manifest/content/Ok/json";
const API_ANSWER: &str = "/Done/outcome/Api/Ok/body";
const LINE: &str = "/Item/item/Line";
const CONFIGZ: &str = "/Boot/settings/configz";
/// And of an effect.
const REQUEST: &str = "/Call/call/Rpc/body";
const API_REQUEST: &str = "/Call/call/Api/body";
const REPLY: &str = "/Reply/reply/body";

/// How the bytes of a body become JSON.
#[derive(Clone, Copy)]
enum Body {
    Message(Option<Message>),
    Json,
    Text,
}

/// `call` is the name of the call that a Done answers.
pub fn event_to_json(mut event: Event, call: &str) -> Value {
    let taken = event_body(&mut event).map(|(place, body)| (place, std::mem::take(body)));
    let mut value = serde_json::to_value(&event).expect("events are plain data");
    if let Some((place, bytes)) = taken {
        put(&mut value, place, unfold(&bytes, event_form(place, call)));
    }
    value
}

pub fn effect_to_json(mut effect: Effect) -> Value {
    let taken = match &mut effect {
        Effect::Call { call: Call::Rpc(rpc), .. } => {
            let message = cri::request_of(&rpc.path);
            Some((REQUEST, Body::Message(message), std::mem::take(&mut rpc.body)))
        }
        Effect::Call { call: Call::Api(call), .. } => {
            Some((API_REQUEST, Body::Json, std::mem::take(&mut call.body)))
        }
        Effect::Reply { reply, .. } => Some((REPLY, Body::Text, std::mem::take(&mut reply.body))),
        _ => None,
    };
    let mut value = serde_json::to_value(&effect).expect("effects are plain data");
    if let Some((place, body, bytes)) = taken {
        put(&mut value, place, unfold(&bytes, body));
    }
    value
}

/// The event that `value` stands for: `before`, which `event_to_json` made from `original`, with changes.
///
/// # Errors
/// A sentence that says what does not fit.
pub fn event_from_json(
    mut value: Value,
    before: &Value,
    mut original: Event,
    call: &str,
) -> Result<Event, String> {
    let kept = event_body(&mut original).map(|(place, body)| (place, std::mem::take(body)));
    let mut folded = None;
    for place in [ANSWER, TEXT, FIGURES, FETCHED, MANIFEST, API_ANSWER, LINE, CONFIGZ] {
        let Some(slot) = value.pointer_mut(place) else { continue };
        let body = std::mem::replace(slot, json!([]));
        let bytes = match &kept {
            // Not touched: the very bytes, whatever the form made of them.
            Some((at, bytes)) if *at == place && before.pointer(place) == Some(&body) => {
                bytes.clone()
            }
            _ => fold(&body, event_form(place, call))?.into(),
        };
        folded = Some((place, bytes));
    }
    let mut event: Event = from_slice(value.to_string().as_bytes())?;
    if let (Some((place, slot)), Some((at, bytes))) = (event_body(&mut event), folded)
        && place == at
    {
        *slot = bytes;
    }
    Ok(event)
}

/// The one body of an event that is shown in another form.
fn event_body(event: &mut Event) -> Option<(&'static str, &mut Bytes)> {
    match event {
        Event::Boot(boot) => Some((CONFIGZ, &mut boot.settings.configz)),
        Event::Done { outcome, .. } => match outcome {
            Outcome::Rpc(Ok(body)) => Some((ANSWER, body)),
            Outcome::Disk(Ok(DiskReply::Text(body))) => Some((TEXT, body)),
            Outcome::Kernel(Ok(KernelReply::Text(body))) => Some((FIGURES, body)),
            Outcome::Helper(Ok(HelperReply::Manifest(manifest))) => {
                manifest.content.as_mut().ok().map(|content| (FETCHED, &mut content.json))
            }
            Outcome::Api(Ok(reply)) => Some((API_ANSWER, &mut reply.body)),
            _ => None,
        },
        Event::Item { item: Item::Line(line), .. } => Some((LINE, line)),
        Event::Item { item: Item::Manifest(manifest), .. } => {
            manifest.content.as_mut().ok().map(|content| (MANIFEST, &mut content.json))
        }
        _ => None,
    }
}

fn event_form(place: &str, call: &str) -> Body {
    match place {
        ANSWER => Body::Message(cri::response_of(call)),
        TEXT | FIGURES => Body::Text,
        _ => Body::Json,
    }
}

fn put(value: &mut Value, place: &str, body: Value) {
    *value.pointer_mut(place).expect("the body was there") = body;
}

fn unfold(bytes: &[u8], body: Body) -> Value {
    let value = match body {
        Body::Message(message) => message.and_then(|message| cri::decode(message, bytes)),
        Body::Json => serde_json::from_slice(bytes).ok(),
        Body::Text => None,
    };
    value.unwrap_or_else(|| match body {
        Body::Message(_) => json!({ "hex": hex(bytes) }),
        Body::Json | Body::Text => text_or_hex(bytes),
    })
}

fn fold(value: &Value, body: Body) -> Result<Vec<u8>, String> {
    if let Some(bytes) = from_text_or_hex(value)
        && (value.is_object() || !matches!(body, Body::Message(_)))
    {
        return Ok(bytes);
    }
    match body {
        Body::Message(Some(message)) => cri::encode(message, value),
        Body::Json if value.get("hex").is_none() => Ok(value.to_string().into_bytes()),
        _ => Err("text, or hexadecimal digits as {\"hex\": …}, are wanted".into()),
    }
}

/// Bytes as JSON: the text that they are, or their digits.
pub fn text_or_hex(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "hex": hex(bytes) }),
    }
}

pub fn from_text_or_hex(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(fields) if fields.len() == 1 => unhex(fields.get("hex")?.as_str()?),
        _ => None,
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |d: u8| (d as char).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? * 16 + digit(*low)?) as u8);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Sets one value; names are matched without regard to case when they do not match exactly.
///
/// # Errors
/// A sentence that names the part of the path that is not there, and what is.
pub fn set(value: &mut Value, path: &str, new: Value) -> Result<(), String> {
    let mut at = value;
    for part in path.split('.') {
        at = match at {
            Value::Object(fields) => {
                let known = || fields.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let key = fields.keys().find(|key| *key == part);
                let key = key.or_else(|| fields.keys().find(|key| key.eq_ignore_ascii_case(part)));
                let key = key.cloned().ok_or_else(|| {
                    format!("{path}: there is no {part:?} here, only: {}", known())
                })?;
                fields.get_mut(&key).expect("the key was found")
            }
            Value::Array(items) => {
                let count = items.len();
                let item = part.parse::<usize>().ok().and_then(|place| items.get_mut(place));
                item.ok_or_else(|| format!("{path}: {part:?} is not a place in {count} items"))?
            }
            _ => return Err(format!("{path}: nothing lies below {part:?}")),
        };
    }
    *at = new;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use steplet_api::cri::{Container, ListContainersResponse};
    use steplet_core::event::{Manifest, ManifestJson};
    use steplet_core::ids::Token;

    const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";

    fn done(outcome: Outcome) -> Event {
        Event::Done { token: Token(4), outcome }
    }

    fn list(state: i32) -> Event {
        let containers = vec![Container { id: "ab".into(), state, ..Container::default() }];
        let body = ListContainersResponse { containers }.encode_to_vec();
        done(Outcome::Rpc(Ok(body.into())))
    }

    fn manifest(json: &'static str) -> Event {
        let json = Bytes::from_static(json.as_bytes());
        let content = Ok(ManifestJson { json, lines: vec![("kind".into(), 2)] });
        let item = Item::Manifest(Box::new(Manifest { name: "a.yaml".into(), digest: 3, content }));
        Event::Item { token: Token(5), item }
    }

    fn edited(event: &Event, path: &str, new: Value) -> Result<Event, String> {
        let before = event_to_json(event.clone(), LIST);
        let mut value = before.clone();
        set(&mut value, path, new)?;
        event_from_json(value, &before, event.clone(), LIST)
    }

    #[test]
    fn what_is_not_touched_stays_the_same_bytes() {
        let raw = done(Outcome::Rpc(Ok(Bytes::from_static(&[0xff, 0x01]))));
        let unknown_field = done(Outcome::Rpc(Ok(Bytes::from_static(&[0xf8, 0x3f, 0x01]))));
        let odd = manifest("{\"b\": 1.50, \"a\": [ ]}");
        let text = done(Outcome::Disk(Ok(DiskReply::Text(Bytes::from_static(b"bye\xff")))));
        for event in [list(1), raw, unknown_field, odd, text, done(Outcome::Same), Event::Tick] {
            let value = event_to_json(event.clone(), LIST);
            assert_eq!(event_from_json(value.clone(), &value, event.clone(), LIST), Ok(event));
        }
    }

    #[test]
    fn bodies_are_edited_by_field() {
        let got = edited(&list(1), "done.outcome.rpc.ok.containers.0.state", json!(2));
        assert_eq!(got, Ok(list(2)));
        let error = json!({"Err": {"code": 14, "message": "gone"}});
        let got = edited(&list(1), "Done.outcome.Rpc", error).unwrap();
        assert!(
            matches!(got, Event::Done { outcome: Outcome::Rpc(Err(error)), .. } if error.code == 14)
        );
        let got = edited(
            &manifest("{\"kind\":\"Pod\"}"),
            "item.item.manifest.content.ok.json.kind",
            json!("Job"),
        );
        assert_eq!(got, Ok(manifest("{\"kind\":\"Job\"}")));
        let got = edited(&list(1), "done.outcome.rpc.ok", json!({"hex": "0aFF"}));
        assert_eq!(got, Ok(done(Outcome::Rpc(Ok(Bytes::from_static(&[0x0a, 0xff]))))));
        let got = edited(&done(Outcome::Same), "done.outcome", json!({"Rpc": {"Ok": {}}}));
        assert_eq!(got, Ok(done(Outcome::Rpc(Ok(Bytes::new())))));
    }

    #[test]
    fn a_wrong_path_or_value_is_told() {
        for (path, new, want) in [
            ("done.outcome.rpc.err.code", json!(1), "there is no \"err\" here, only: Ok"),
            ("done.outcome.rpc.ok.containers.7", json!(1), "\"7\" is not a place in 1 items"),
            ("done.token.x", json!(1), "nothing lies below \"x\""),
            ("done.token", json!("x"), "invalid type"),
            ("done.outcome.rpc.ok.containers", json!("x"), "does not fit"),
            ("done.outcome.rpc.ok", json!({"hex": "0"}), "has no \"hex\""),
        ] {
            let got = edited(&list(1), path, new).unwrap_err();
            assert!(got.contains(want), "{path}: {got}");
        }
    }
}
