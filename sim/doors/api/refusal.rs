//! Why the server does not do what it is asked: `Status` of meta/v1.

use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of HTTP.
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, reason, message: message.into() }
    }

    pub fn bad(message: impl Into<String>) -> Refusal {
        Refusal::new(400, "BadRequest", message)
    }

    pub fn forbidden(what: impl Into<String>) -> Refusal {
        Refusal::new(403, "Forbidden", what)
    }

    /// The path leads nowhere.
    pub fn not_here(path: &str) -> Refusal {
        let message = format!("the server could not find the requested resource: {path}");
        Refusal::new(404, "NotFound", message)
    }

    pub fn not_found(plural: &str, name: &str) -> Refusal {
        Refusal::new(404, "NotFound", format!("{plural} \"{name}\" not found"))
    }

    pub fn no_method(plural: &str) -> Refusal {
        let message = format!("the server does not allow this method on {plural}");
        Refusal::new(405, "MethodNotAllowed", message)
    }

    pub fn exists(plural: &str, name: &str) -> Refusal {
        Refusal::new(409, "AlreadyExists", format!("{plural} \"{name}\" already exists"))
    }

    pub fn conflict(plural: &str, name: &str, why: &str) -> Refusal {
        let message = format!("Operation cannot be fulfilled on {plural} \"{name}\": {why}");
        Refusal::new(409, "Conflict", message)
    }

    pub fn expired(message: impl Into<String>) -> Refusal {
        Refusal::new(410, "Expired", message)
    }

    pub fn invalid(kind: &str, name: &str, why: &str) -> Refusal {
        Refusal::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {why}"))
    }

    /// A version that this server has not reached yet.
    pub fn too_new(asked: u64, current: u64) -> Refusal {
        let message = format!("Too large resource version: {asked}, current: {current}");
        Refusal::new(504, "Timeout", message)
    }

    /// What a server in trouble says.
    pub fn trouble(code: u16) -> Refusal {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "User \"system:node\" cannot do this at the cluster scope"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            503 => ("ServiceUnavailable", "apiserver not ready"),
            504 => ("Timeout", "the server was unable to return a response in the time allotted"),
            _ => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
        };
        Refusal::new(code, reason, message)
    }

    pub fn status(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        })
    }
}
