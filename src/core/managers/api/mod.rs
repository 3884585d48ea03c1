//! Asking the API server: requests, what their answers mean, and lists that are kept up to date.

pub mod reflector;

use crate::effect::{ApiCall, Call, Lane, Verb};
use crate::event::Outcome;
use crate::time::Span;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::ApiStatus;
use steplet_api::json;

/// How long an ordinary request may take.
pub const WITHIN: Span = Span::from_secs(30);

/// Why a request was not done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Of HTTP; 0 when there was no answer at all.
    pub status: u16,
    /// The reason in the answer's `Status`: NotFound, AlreadyExists, Conflict, Expired, ...
    pub reason: Box<str>,
    pub message: String,
    pub retry_after: Option<Span>,
}

impl Refusal {
    /// The object asked for is not there.
    pub fn is_not_found(&self) -> bool {
        self.status == 404
    }

    /// The resource version is older than what the server still knows.
    pub fn is_expired(&self) -> bool {
        self.status == 410 || matches!(&*self.reason, "Expired" | "Gone")
    }

    /// Nobody answered: the server, or the way to it, is gone.
    pub fn is_silence(&self) -> bool {
        self.status == 0
    }

    pub fn of_status(status: ApiStatus) -> Refusal {
        Refusal {
            status: u16::try_from(status.code).unwrap_or(500),
            reason: status.reason,
            message: status.message.into(),
            retry_after: None,
        }
    }
}

/// The body of an answer that says yes.
pub fn judged(outcome: Outcome) -> Result<Bytes, Refusal> {
    let silence =
        |message| Refusal { status: 0, reason: Box::default(), message, retry_after: None };
    let reply = match outcome {
        Outcome::Api(Ok(reply)) => reply,
        Outcome::Api(Err(why)) => return Err(silence(why)),
        other => return Err(silence(format!("no answer of an API server: {other:?}"))),
    };
    if (200..300).contains(&reply.status) {
        return Ok(reply.body);
    }
    let said = json::from_slice::<ApiStatus>(&reply.body).ok().filter(|it| &*it.kind == "Status");
    let said = said.unwrap_or_default();
    let message = if said.message.is_empty() {
        format!("the API server answers {}", reply.status)
    } else {
        said.message.into()
    };
    let retry_after = reply.retry_after;
    Err(Refusal { status: reply.status, reason: said.reason, message, retry_after })
}

pub fn get(path: String) -> Call {
    request(Verb::Get, path, Bytes::new(), Lane::Main)
}

pub fn request(verb: Verb, path: String, body: Bytes, lane: Lane) -> Call {
    Call::Api(ApiCall { verb, path, body, within: WITHIN, lane, seals: false, secret: None })
}

/// A value as it may stand in a query.
pub fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(byte.into());
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ApiReply;

    #[test]
    fn answers_are_judged() {
        let reply = |status, body: &'static str| {
            let body = Bytes::from_static(body.as_bytes());
            judged(Outcome::Api(Ok(ApiReply { status, retry_after: None, body })))
        };
        assert_eq!(reply(201, "{}"), Ok(Bytes::from_static(b"{}")));
        let refused = reply(404, r#"{"kind":"Status","reason":"NotFound","message":"no pod"}"#);
        let refused = refused.expect_err("it is not there");
        assert!(refused.is_not_found() && refused.message == "no pod" && !refused.is_expired());
        let odd = reply(500, "<html>").expect_err("an error");
        assert_eq!(odd.message, "the API server answers 500");
        assert!(judged(Outcome::Api(Err("reset".into()))).is_err_and(|it| it.is_silence()));
    }

    #[test]
    fn queries_are_escaped() {
        assert_eq!(escaped("spec.nodeName=n1"), "spec.nodeName%3Dn1");
        assert_eq!(escaped("a b/ü"), "a%20b%2F%C3%BC");
    }
}
