//! The target of a request, taken apart: path and query, percent-decoded, as the core wants them.

use super::connection::Origin;
use bytes::Bytes;
use steplet_core::event::Request;
use steplet_core::ids::RequestId;
use steplet_wire::http_server::{RequestHead, Version};
use steplet_wire::percent;

/// Longest target, and most pairs in its query: what no client of a kubelet comes near.
const TARGET_MAX: usize = 8 * 1024;
const PAIRS_MAX: usize = 64;

/// The request for the core. Errors: what is wrong with it, as the text of a 400.
pub fn request(id: RequestId, origin: Origin, head: &RequestHead) -> Result<Request, String> {
    let bad = |what: &str| Err(format!("400 Bad Request: {what}\n"));
    if head.target.len() > TARGET_MAX {
        return bad("the request target is too long");
    }
    let (path, query) = head.target.split_once('?').unwrap_or((&head.target, ""));
    let Some(path) = decode(path, false) else { return bad("malformed path") };
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (decode(key, true), decode(value, true)) else {
            return bad("malformed query");
        };
        pairs.push((key, value));
    }
    if pairs.len() > PAIRS_MAX {
        return bad("too many query parameters");
    }
    Ok(Request {
        id,
        listener: origin.listener,
        method: head.method.clone(),
        path,
        query: pairs,
        loopback: origin.loopback,
        certificate: None,
        bearer: None,
        upgrade: wants_upgrade(head),
        body: Bytes::new(),
    })
}

/// HTTP/2 has no upgrades: whoever wants one there is told so by the core.
fn wants_upgrade(head: &RequestHead) -> bool {
    let mut tokens = head.values("connection").flat_map(|value| value.split(','));
    head.version == Version::Http11
        && tokens.any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
        && head.values("upgrade").next().is_some()
}

/// `%41` is A; in a query `+` is a blank. None when it is no UTF-8 or the escapes are malformed.
fn decode(text: &str, plus: bool) -> Option<String> {
    let text = if plus { text.replace('+', " ") } else { text.to_owned() };
    let (bytes, well_formed) = percent::decode(text.as_bytes());
    String::from_utf8(bytes).ok().filter(|_| well_formed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_escapes() {
        let check = |text, plus, want: Option<&str>| {
            assert_eq!(decode(text, plus).as_deref(), want, "{text}");
        };
        check("/a%20b", false, Some("/a b"));
        check("a+b", false, Some("a+b"));
        check("a+b%2B", true, Some("a b+"));
        check("%", false, None);
        check("%ff", false, None);
        check("%C3%A4", false, Some("ä"));
    }
}
