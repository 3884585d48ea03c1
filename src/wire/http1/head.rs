//! Heads of HTTP/1: finds and parses those of requests, writes those of answers.
//!
//! Stricter than Go where leniency lets two readers see two different requests (RFC 9112, section
//! 11.2): both a length and a transfer coding, folded lines, a coding on HTTP/1.0.

use http::StatusCode;

use crate::http_server::{RequestHead, Version};

/// Most header lines; more are refused with 431.
const HEADERS_MAX: usize = 1024;

/// Why a request is answered by the connection itself, before anyone else sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) u16);

const BAD: Refusal = Refusal(400);

/// How the end of a request's body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Length(u64),
    Chunked,
}

#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) head: RequestHead,
    pub(crate) body: BodyKind,
    /// The client may send another request after this one.
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
}

/// Where the head at the front of `input` ends. `scanned` is kept by the caller between calls, from
/// 0, so that no byte is looked at twice however small the pieces are in which the head comes.
pub(crate) fn head_end(input: &[u8], scanned: &mut usize) -> Option<usize> {
    while let Some(at) = input[*scanned..].iter().position(|b| *b == b'\n') {
        let line_end = *scanned + at;
        match &input[line_end + 1..] {
            [b'\n', ..] => return Some(line_end + 2),
            [b'\r', b'\n', ..] => return Some(line_end + 3),
            [] | [b'\r'] => {
                *scanned = line_end;
                return None;
            }
            _ => *scanned = line_end + 1,
        }
    }
    *scanned = input.len();
    None
}

/// Parses a whole head.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Refusal> {
    let lines = bytes.iter().filter(|b| **b == b'\n').count();
    if lines > HEADERS_MAX {
        return Err(Refusal(431));
    }
    let mut slots = vec![httparse::EMPTY_HEADER; lines];
    let mut request = httparse::Request::new(&mut slots);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(BAD),
        Err(httparse::Error::Version) => return Err(Refusal(505)),
        Err(_) => return Err(BAD),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(BAD);
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let headers = Headers(request.headers);
    let mut head = RequestHead {
        version,
        method: method.to_owned(),
        target: String::new(),
        authority: host(&headers, version)?,
        headers: headers.all(),
    };
    place_target(&mut head, target)?;
    let body = body_kind(&headers, version)?;
    let expects_continue = expects_continue(&headers, version)?;
    let keep_alive = match version {
        Version::Http10 => headers.has_token("connection", "keep-alive"),
        _ => !headers.has_token("connection", "close"),
    };
    Ok(Parsed { head, body, keep_alive, expects_continue })
}

/// The header lines of one head.
struct Headers<'a>(&'a [httparse::Header<'a>]);

impl Headers<'_> {
    fn values(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let named = self.0.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value.trim_ascii())
    }

    fn all(&self) -> Vec<(String, String)> {
        let text = |header: &httparse::Header<'_>| {
            let value = std::str::from_utf8(header.value.trim_ascii()).ok()?;
            Some((header.name.to_ascii_lowercase(), value.to_owned()))
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Is `token` in a header that is a list of tokens?
    fn has_token(&self, name: &str, token: &str) -> bool {
        let mut tokens = self.values(name).flat_map(|value| value.split(|b| *b == b','));
        tokens.any(|t| t.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }
}

fn host(headers: &Headers, version: Version) -> Result<String, Refusal> {
    let mut hosts = headers.values("host");
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::Http10 => Ok(String::new()),
        (Some(host), None) => {
            let plain = host.iter().all(|b| b.is_ascii_graphic() && !b"/\\?#@\"<>".contains(b));
            let host = String::from_utf8(host.to_vec()).map_err(|_| BAD)?;
            if plain { Ok(host) } else { Err(BAD) }
        }
        _ => Err(BAD),
    }
}

/// Takes `/path?query`, `*` of OPTIONS, and the absolute form that proxies send.
fn place_target(head: &mut RequestHead, target: &str) -> Result<(), Refusal> {
    let absolute = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://"));
    if let Some(rest) = absolute {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || authority.contains('@') {
            return Err(BAD);
        }
        head.authority = authority.to_owned();
        head.target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    } else if target.starts_with('/') || (target == "*" && head.method == "OPTIONS") {
        head.target = target.to_owned();
    } else {
        return Err(BAD);
    }
    Ok(())
}

fn body_kind(headers: &Headers, version: Version) -> Result<BodyKind, Refusal> {
    let mut codings = headers.values("transfer-encoding");
    let mut lengths = headers.values("content-length");
    if let Some(coding) = codings.next() {
        if version == Version::Http10 || lengths.next().is_some() || codings.next().is_some() {
            return Err(BAD);
        }
        let chunked = coding.eq_ignore_ascii_case(b"chunked");
        return if chunked { Ok(BodyKind::Chunked) } else { Err(Refusal(501)) };
    }
    let Some(length) = lengths.next() else { return Ok(BodyKind::Length(0)) };
    // The same length said twice is harmless, and some proxies do it.
    if length.is_empty() || !length.iter().all(u8::is_ascii_digit) || lengths.any(|l| l != length) {
        return Err(BAD);
    }
    let digits = std::str::from_utf8(length).map_err(|_| BAD)?;
    digits.parse().map(BodyKind::Length).map_err(|_| BAD)
}

fn expects_continue(headers: &Headers, version: Version) -> Result<bool, Refusal> {
    match headers.values("expect").next() {
        None => Ok(false),
        Some(_) if version == Version::Http10 => Ok(false),
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => Ok(true),
        Some(_) => Err(Refusal(417)),
    }
}

/// Headers that belong to the connection and not to the answer; the connection writes its own.
pub(crate) fn is_hop_header(name: &str) -> bool {
    const NAMES: [&str; 5] =
        ["connection", "content-length", "keep-alive", "proxy-connection", "transfer-encoding"];
    NAMES.iter().any(|hop| name.eq_ignore_ascii_case(hop))
}

/// A value that cannot end its line, as Go's server makes it.
pub(crate) fn clean_value(value: &str) -> String {
    value.replace(['\r', '\n', '\0'], " ")
}

/// The head of an answer without its last, empty line.
pub(crate) fn status_and_headers(status: u16, headers: &[(&str, &str)]) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or("Unknown"));
    for (name, value) in headers {
        let named = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && b != b':');
        assert!(named, "header name {name:?}");
        if !is_hop_header(name) || (status == 101 && name.eq_ignore_ascii_case("connection")) {
            head.push_str(&format!("{name}: {}\r\n", clean_value(value)));
        }
    }
    head
}

/// The whole answer to a request that nobody else will see.
pub(crate) fn refusal(status: u16) -> String {
    let reason = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let text = format!("{status} {}", reason.unwrap_or("Unknown"));
    let kind = "Content-Type: text/plain; charset=utf-8\r\nConnection: close";
    format!("HTTP/1.1 {text}\r\n{kind}\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_end_at_an_empty_line_in_any_pieces() {
        let check = |input: &[u8], want: Option<usize>| {
            assert_eq!(head_end(input, &mut 0), want, "{input:?}");
            let mut scanned = 0;
            let found = (0..=input.len()).find_map(|n| head_end(&input[..n], &mut scanned));
            assert_eq!(found, want, "{input:?} byte by byte");
        };
        check(b"", None);
        check(b"GET / HTTP/1.1\r\nHost: a\r\n", None);
        check(b"GET / HTTP/1.1\r\nHost: a\r\n\r", None);
        check(b"GET / HTTP/1.1\r\n\r\n", Some(18));
        check(b"GET / HTTP/1.1\n\nmore", Some(16));
        check(b"GET / HTTP/1.1\n\r\nmore", Some(17));
        check(b"a\nb\n\n", Some(5));
    }

    fn outcome(lines: &str) -> Result<Parsed, u16> {
        parse(lines.replace('\n', "\r\n").as_bytes()).map_err(|r| r.0)
    }

    #[test]
    fn hostile_heads_are_refused() {
        let check = |lines: &str, want: u16| {
            assert_eq!(outcome(lines).map(|p| p.head).err(), Some(want), "{lines:?}");
        };
        check("GET / HTTP/1.1\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nHost: a\n\n", 400);
        check("GET / HTTP/1.1\nHost: a b\n\n", 400);
        check("GET / HTTP/1.1\nHost: a/b\n\n", 400);
        check("GET / HTTP/2.0\nHost: a\n\n", 505);
        check("PRI * HTTP/2.0\n\n", 505);
        check("GET /\n\n", 400);
        check("GET  HTTP/1.1\nHost: a\n\n", 400);
        check("GET x HTTP/1.1\nHost: a\n\n", 400);
        check("GET * HTTP/1.1\nHost: a\n\n", 400);
        check("CONNECT a:1 HTTP/1.1\nHost: a\n\n", 400);
        check("GET http:///x HTTP/1.1\nHost: a\n\n", 400);
        check("GET http://u@b/x HTTP/1.1\nHost: a\n\n", 400);
        check("GET / HTTP/1.1\nHost : a\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\n folded\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nX: \u{1}\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: -1\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: +1\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: 1, 1\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length:\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: 1\nContent-Length: 2\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: 99999999999999999999\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nContent-Length: 1\nTransfer-Encoding: chunked\n\n", 400);
        check("GET / HTTP/1.0\nTransfer-Encoding: chunked\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nTransfer-Encoding: gzip, chunked\n\n", 501);
        check("GET / HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nTransfer-Encoding: x\n\n", 400);
        check("GET / HTTP/1.1\nHost: a\nExpect: miracles\n\n", 417);
        check(&format!("GET / HTTP/1.1\nHost: a\n{}\n", "A: b\n".repeat(HEADERS_MAX)), 431);
    }

    #[test]
    fn heads_say_what_follows() {
        let check = |lines: &str, body: BodyKind, keep_alive: bool| {
            let parsed = outcome(lines).expect(lines);
            assert_eq!((parsed.body, parsed.keep_alive), (body, keep_alive), "{lines:?}");
        };
        let none = BodyKind::Length(0);
        check("GET / HTTP/1.1\nHost: a\n\n", none, true);
        check("GET / HTTP/1.1\nHost: a\nConnection: x, Close\n\n", none, false);
        check("GET / HTTP/1.0\n\n", none, false);
        check("GET / HTTP/1.0\nConnection: Keep-Alive\n\n", none, true);
        check("PUT / HTTP/1.1\nHost: a\nContent-Length: 7\n\n", BodyKind::Length(7), true);
        let twice = "PUT / HTTP/1.1\nHost: a\nContent-Length: 7\nContent-Length: 7\n\n";
        check(twice, BodyKind::Length(7), true);
        let chunked = "PUT / HTTP/1.1\nHost: a\nTransfer-Encoding: Chunked\n\n";
        check(chunked, BodyKind::Chunked, true);
    }

    #[test]
    fn targets_and_authorities() {
        let check = |lines: &str, target: &str, authority: &str| {
            let head = outcome(lines).expect(lines).head;
            assert_eq!((head.target.as_str(), head.authority.as_str()), (target, authority));
        };
        check("GET /a?b=c HTTP/1.1\nHost: h:1\n\n", "/a?b=c", "h:1");
        check("GET / HTTP/1.0\n\n", "/", "");
        check("GET http://other/x HTTP/1.1\nHost: h\n\n", "/x", "other");
        check("GET http://other HTTP/1.1\nHost: h\n\n", "/", "other");
        check("GET http://other?q HTTP/1.1\nHost: h\n\n", "/?q", "other");
        check("OPTIONS * HTTP/1.1\nHost: h\n\n", "*", "h");
    }

    #[test]
    fn answers_cannot_be_split() {
        let head = status_and_headers(200, &[("X", "a\r\nSet-Cookie: b"), ("Connection", "x")]);
        assert_eq!(head, "HTTP/1.1 200 OK\r\nX: a  Set-Cookie: b\r\n");
    }
}
