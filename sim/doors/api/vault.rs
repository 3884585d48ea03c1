//! The seals of the agent's door to the API server: numbers in the place of secrets.

use serde_json::{Value, json};
use steplet_core::sealed::Sealed;

/// The secrets of one life of the agent: the same secret, the same number.
#[derive(Debug, Default)]
pub struct Vault {
    kept: Vec<String>,
}

impl Vault {
    pub fn seal(&mut self, secret: &str) -> Sealed {
        let known = self.kept.iter().position(|kept| kept == secret);
        let at = known.unwrap_or_else(|| {
            self.kept.push(secret.to_owned());
            self.kept.len() - 1
        });
        Sealed::numbered(at as u64 + 1)
    }

    /// None: the seal is of an earlier life.
    pub fn open(&self, seal: Sealed) -> Option<&str> {
        let at = usize::try_from(seal.number().checked_sub(1)?).ok()?;
        self.kept.get(at).map(String::as_str)
    }

    /// Seals what is secret in an answer: an object, a list, or an object in a line of a watch.
    pub fn seal_all(&mut self, answer: &mut Value) {
        if let Some(Value::Array(items)) = answer.get_mut("items") {
            items.iter_mut().for_each(|item| self.seal_one(item));
        }
        if let Some(object) = answer.get_mut("object") {
            self.seal_one(object);
        }
        self.seal_one(answer);
    }

    fn seal_one(&mut self, object: &mut Value) {
        if let Some(Value::Object(data)) = object.get_mut("data") {
            data.values_mut().for_each(|value| self.put_seal(value));
        }
        if let Some(token) = object.pointer_mut("/status/token") {
            self.put_seal(token);
        }
    }

    fn put_seal(&mut self, value: &mut Value) {
        if let Some(secret) = value.as_str() {
            *value = json!(self.seal(secret).number());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_become_numbers_wherever_they_are() {
        let mut vault = Vault::default();
        let mut sealed = |mut answer: Value| {
            vault.seal_all(&mut answer);
            answer
        };
        let secret = json!({"kind": "Secret", "data": {"a": "eA==", "b": "eQ==", "c": "eA=="}});
        let want = json!({"kind": "Secret", "data": {"a": 1, "b": 2, "c": 1}});
        assert_eq!(sealed(secret.clone()), want);
        assert_eq!(sealed(json!({"items": [secret]})), json!({"items": [want]}));
        assert_eq!(sealed(json!({"type": "ADDED", "object": secret}))["object"], want);
        let token = json!({"kind": "TokenRequest", "status": {"token": "t"}});
        assert_eq!(sealed(token)["status"]["token"], 3);
        assert_eq!(vault.open(Sealed::numbered(2)), Some("eQ=="));
        assert_eq!(vault.open(Sealed::numbered(9)), None);
        assert_eq!(vault.open(Sealed::numbered(0)), None);
    }
}
