//! Takes the secrets out of an answer: the core gets the number of a seal in the place of each.
//!
//! Only what is known is let through: a Secret, a list or a watch line of them, a TokenRequest, and a Status. The
//! seal of a value of a Secret is of its base64, as it came; that of a token is of the token. Annotations of a Secret
//! are left out, since `kubectl apply` keeps a copy of the whole object in one of them.

use crate::shell::vault::{SealLost, Vault};
use bytes::Bytes;
use serde_json::{Map, Value};
use steplet_core::sealed::Sealed;

/// The answer, or the line of a watch, with seals. Errors: nothing of it may be shown; why, without a word of it.
pub fn seal(text: &[u8], vault: &mut Vault) -> Result<Bytes, String> {
    if text.is_empty() {
        return Ok(Bytes::new());
    }
    let parsed = serde_json::from_slice(text);
    let Ok(Value::Object(mut object)) = parsed else {
        return Err("an answer with secrets is no JSON object".into());
    };
    // A line of a watch wraps its object, which has its own kind.
    match object.get_mut("object") {
        Some(Value::Object(inner)) if !inner.is_empty() => seal_object(inner, vault)?,
        _ => seal_object(&mut object, vault)?,
    }
    Ok(Value::Object(object).to_string().into())
}

fn seal_object(object: &mut Map<String, Value>, vault: &mut Vault) -> Result<(), String> {
    match object.get("kind").and_then(Value::as_str) {
        Some("Secret") => seal_secret(object, vault),
        Some("SecretList") => {
            let items = object.get_mut("items").and_then(Value::as_array_mut);
            for item in items.into_iter().flatten() {
                // Its items have no kind of their own.
                match item {
                    Value::Object(secret) => seal_secret(secret, vault)?,
                    _ => return Err("a list of Secrets holds something else".into()),
                }
            }
            Ok(())
        }
        Some("TokenRequest") => {
            let token = object.get_mut("status").and_then(|status| status.get_mut("token"));
            match token {
                Some(token) => seal_value(token, vault),
                None => Ok(()),
            }
        }
        Some("Status") => Ok(()),
        _ => Err("an answer with secrets is of an unknown kind".into()),
    }
}

fn seal_secret(secret: &mut Map<String, Value>, vault: &mut Vault) -> Result<(), String> {
    secret.remove("stringData");
    if let Some(Value::Object(metadata)) = secret.get_mut("metadata") {
        metadata.remove("annotations");
        metadata.remove("managedFields");
    }
    match secret.get_mut("data") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(data)) => {
            data.values_mut().try_for_each(|value| seal_value(value, vault))
        }
        Some(_) => Err("the data of a Secret is no object".into()),
    }
}

fn seal_value(value: &mut Value, vault: &mut Vault) -> Result<(), String> {
    match value {
        Value::String(secret) => {
            *value = vault.seal_of_cluster(secret).number().into();
            Ok(())
        }
        Value::Null => Ok(()),
        _ => Err("a secret is no text".into()),
    }
}

/// Why seals cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    Lost(SealLost),
    /// Not as this door seals.
    Odd,
}

/// The way back, of a single object: each secret stands where its seal was.
pub fn open(text: &[u8], vault: &Vault) -> Result<String, Unopened> {
    let Ok(Value::Object(mut object)) = serde_json::from_slice(text) else {
        return Err(Unopened::Odd);
    };
    match object.get("kind").and_then(Value::as_str) {
        Some("Secret") => {
            if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
                data.values_mut().try_for_each(|value| open_value(value, vault))?;
            }
        }
        Some("TokenRequest") => {
            if let Some(token) = object.get_mut("status").and_then(|status| status.get_mut("token"))
            {
                open_value(token, vault)?;
            }
        }
        Some("Status") => {}
        _ => return Err(Unopened::Odd),
    }
    Ok(Value::Object(object).to_string())
}

fn open_value(value: &mut Value, vault: &Vault) -> Result<(), Unopened> {
    let seal = Sealed::numbered(value.as_u64().ok_or(Unopened::Odd)?);
    *value = vault.open(seal).map_err(Unopened::Lost)?.expose().into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_sealed_is_opened_where_it_stood() {
        let mut vault = Vault::default();
        for object in [
            json!({"kind": "Secret", "type": "Opaque", "data": {"a": "czNjcmV0", "b": "eA=="}}),
            json!({"kind": "TokenRequest", "status": {"token": "a.b.c", "at": 5}}),
            json!({"kind": "Status", "message": "no such secret"}),
        ] {
            let text = object.to_string();
            let sealed = seal(text.as_bytes(), &mut vault).expect("known");
            assert_eq!(open(&sealed, &vault), Ok(text));
        }
        let odd =
            |text: &str| assert_eq!(open(text.as_bytes(), &vault), Err(Unopened::Odd), "{text}");
        odd("[]");
        odd(r#"{"kind":"ConfigMap","data":{"a":1}}"#);
        odd(r#"{"kind":"Secret","data":{"a":"open"}}"#);
        let lost = open(br#"{"kind":"Secret","data":{"a":99}}"#, &vault);
        assert_eq!(lost, Err(Unopened::Lost(SealLost(Sealed::numbered(99)))));
    }

    #[test]
    fn secrets_are_taken_out_of_every_known_kind() {
        let check = |answer: Value, want: Value| {
            let mut vault = Vault::default();
            let sealed = seal(answer.to_string().as_bytes(), &mut vault).expect("known");
            assert_eq!(serde_json::from_slice::<Value>(&sealed).expect("JSON"), want);
            assert!(!String::from_utf8_lossy(&sealed).contains("czNj"), "{sealed:?}");
            let first = vault.open(Sealed::numbered(1));
            assert!(first.is_err() || first.unwrap().expose().starts_with("czNj"));
        };
        let applied = "kubectl.kubernetes.io/last-applied-configuration";
        let secret = json!({"kind": "Secret", "type": "Opaque", "data": {"a": "czNjcmV0", "b": "czNj", "c": "czNjcmV0"},
            "metadata": {"name": "s", "annotations": {applied: "{\"data\":{\"a\":\"czNjcmV0\"}}"},
            "managedFields": []}});
        let want = json!({"kind": "Secret", "type": "Opaque", "data": {"a": 1, "b": 2, "c": 1},
            "metadata": {"name": "s"}});
        check(secret.clone(), want.clone());
        check(json!({"type": "ADDED", "object": secret}), json!({"type": "ADDED", "object": want}));
        let list = |item: &Value| json!({"kind": "SecretList", "metadata": {}, "items": [item]});
        check(list(&secret), list(&want));
        check(json!({"kind": "Secret", "data": null}), json!({"kind": "Secret", "data": null}));
        let request = |token: Value| json!({"kind": "TokenRequest", "status": {"token": token}});
        check(request("czNj.x.y".into()), request(1.into()));
        let status = json!({"kind": "Status", "code": 404, "message": "secrets \"s\" not found"});
        check(status.clone(), status.clone());
        check(
            json!({"type": "ERROR", "object": status}),
            json!({"type": "ERROR", "object": status}),
        );
    }

    #[test]
    fn what_is_not_known_is_not_shown() {
        let check = |answer: &str| {
            let why = seal(answer.as_bytes(), &mut Vault::default()).unwrap_err();
            assert!(!why.contains("s3cret"), "{why}");
        };
        check("s3cret");
        check("\"s3cret\"");
        check(r#"{"data":{"a":"s3cret"}}"#);
        check(r#"{"kind":"ConfigMap","data":{"a":"s3cret"}}"#);
        check(r#"{"kind":"Secret","data":"s3cret"}"#);
        check(r#"{"kind":"Secret","data":{"a":["s3cret"]}}"#);
        check(r#"{"kind":"SecretList","items":["s3cret"]}"#);
        check(r#"{"type":"ADDED","object":{"data":{"a":"s3cret"}}}"#);
        check(r#"{"kind":"TokenRequest","status":{"token":{"a":"s3cret"}}}"#);
        assert_eq!(seal(b"", &mut Vault::default()), Ok(Bytes::new()));
    }
}
