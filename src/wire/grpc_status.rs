//! gRPC status: the codes, and how a status is read from HTTP/2 headers, resets and dead
//! connections.
//!
//! Source: the gRPC project's "gRPC over HTTP2" and "HTTP to gRPC status code mapping" documents.

use http::{HeaderMap, StatusCode};

use crate::percent;

/// The canonical codes; `code as u32` is the number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    Ok = 0,
    Canceled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

const CODES: [Code; 17] = [
    Code::Ok,
    Code::Canceled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

impl Code {
    /// A number outside the canonical ones is `Unknown`, as the gRPC documents ask.
    pub fn from_number(number: u32) -> Code {
        usize::try_from(number).ok().and_then(|n| CODES.get(n).copied()).unwrap_or(Code::Unknown)
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcStatus {
    pub code: Code,
    pub message: String,
}

impl GrpcStatus {
    pub fn new(code: Code, message: impl Into<String>) -> GrpcStatus {
        GrpcStatus { code, message: message.into() }
    }

    /// Reads `grpc-status` and `grpc-message`; `None` if there is no `grpc-status`.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<GrpcStatus> {
        let status = headers.get("grpc-status")?;
        let number = status.to_str().ok().and_then(|s| s.parse::<u32>().ok());
        let Some(number) = number else {
            return Some(GrpcStatus::new(
                Code::Unknown,
                format!("malformed grpc-status {status:?}"),
            ));
        };
        let message = headers.get("grpc-message").map(|m| message(m.as_bytes()));
        Some(GrpcStatus::new(Code::from_number(number), message.unwrap_or_default()))
    }

    /// The status of an answer that is not gRPC: a proxy or another server speaks.
    pub(crate) fn from_http(status: StatusCode, content_type: Option<&str>) -> GrpcStatus {
        let code = match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        };
        let kind = content_type.unwrap_or("none");
        GrpcStatus::new(
            code,
            format!("not a gRPC answer: HTTP status {status}, content-type {kind}"),
        )
    }

    /// The status of a call whose stream or connection failed.
    pub(crate) fn from_h2(error: &h2::Error) -> GrpcStatus {
        let code = match error.reason() {
            _ if error.is_io() || error.is_go_away() => Code::Unavailable,
            Some(h2::Reason::REFUSED_STREAM) => Code::Unavailable,
            Some(h2::Reason::CANCEL) => Code::Canceled,
            Some(h2::Reason::ENHANCE_YOUR_CALM) => Code::ResourceExhausted,
            Some(h2::Reason::INADEQUATE_SECURITY) => Code::PermissionDenied,
            _ => Code::Internal,
        };
        GrpcStatus::new(code, error.to_string())
    }
}

/// A `grpc-message`. The documents forbid to drop one for its form, so bytes that are not UTF-8 are
/// replaced.
fn message(text: &[u8]) -> String {
    String::from_utf8_lossy(&percent::decode(text).0).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_never_dropped() {
        let check = |input: &str, want: &str| assert_eq!(message(input.as_bytes()), want);
        check("a%20b%0Ac", "a b\nc");
        check("100%", "100%");
        check("%FF", "\u{fffd}");
    }

    #[test]
    fn status_is_read_from_headers() {
        let check = |status: Option<&'static str>, want: Option<Code>| {
            let mut headers = HeaderMap::new();
            if let Some(status) = status {
                headers.insert("grpc-status", status.parse().expect("a header value"));
            }
            assert_eq!(GrpcStatus::from_headers(&headers).map(|s| s.code), want, "{status:?}");
        };
        check(None, None);
        check(Some("0"), Some(Code::Ok));
        check(Some("16"), Some(Code::Unauthenticated));
        check(Some("17"), Some(Code::Unknown));
        check(Some("-1"), Some(Code::Unknown));
        check(Some("99999999999999"), Some(Code::Unknown));
        check(Some("ok"), Some(Code::Unknown));
    }

    #[test]
    fn codes_stand_at_their_number() {
        for (number, code) in CODES.iter().enumerate() {
            assert_eq!(*code as usize, number);
        }
    }
}
