//! The server side of one HTTP connection, the same for HTTP/1.1 and HTTP/2.
//!
//! After every `feed`, `feed_eof`, `consume_output` and every word of an answer the caller polls
//! once and then writes out what `output` shows. Requests of a connection are told apart by an id;
//! on HTTP/1.1 there is one at a time and pipelined ones wait. Time-outs are the caller's, by
//! [`HttpServer::is_idle`].

use bytes::Bytes;

use crate::http1::Http1;
use crate::http2::server::Http2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

/// What is kept of the head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    pub version: Version,
    pub method: String,
    /// Path and query as sent, beginning with `/`; or `*`.
    pub target: String,
    /// Host, perhaps with a port; empty only on HTTP/1.0.
    pub authority: String,
    /// All header lines whose value is text; names in lower case.
    pub headers: Vec<(String, String)>,
}

impl RequestHead {
    /// The values of a header, by its name in lower case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.headers.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The token of `Authorization: Bearer`, if there is one such header and no other.
    pub fn bearer(&self) -> Option<&str> {
        let mut all = self.values("authorization");
        let (scheme, token) = all.next()?.trim().split_once(' ')?;
        let token = token.trim();
        let one = all.next().is_none() && !token.is_empty() && !token.contains(' ');
        (one && scheme.eq_ignore_ascii_case("bearer")).then_some(token)
    }
}

/// What a connection has to say. A request ends in the caller's `finish` or `abort`, or in `Gone`.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Request {
        id: u64,
        head: Box<RequestHead>,
    },
    /// A part of the request's body, or bytes of a tunnel.
    Body {
        id: u64,
        data: Bytes,
    },
    /// The body is whole; comes once for every request that is not `Gone` before.
    BodyEnd {
        id: u64,
    },
    /// A write that was not taken whole can go on.
    Writable {
        id: u64,
    },
    /// The client sends no more, though it may still read: finish, and end an answer that has no
    /// end.
    HalfClosed {
        id: u64,
    },
    /// The request is over before its answer was through; further words to this id are ignored. It
    /// can still come after `finish_with`, while the rest is under way.
    Gone {
        id: u64,
    },
    /// A request that the connection has answered itself with this status.
    Refused {
        status: u16,
    },
    /// Nothing more is read. Write out what `output` holds, then close the socket.
    Closed,
}

/// How long the body of an answer will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Exact(u64),
    Unknown,
    /// With status 101: the connection becomes a plain stream of bytes. HTTP/1.1 only.
    Tunnel,
}

/// Which protocol a connection speaks. ALPN decides; without TLS it is HTTP/1.1, and HTTP/2's
/// preface is refused, as by Go's server unless it is told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub fn from_alpn(chosen: Option<&[u8]>) -> Protocol {
        if chosen == Some(b"h2") { Protocol::Http2 } else { Protocol::Http1 }
    }
}

/// A connection; see the module.
pub enum HttpServer {
    Http1(Box<Http1>),
    Http2(Box<Http2>),
}

/// Calls the method of the same name.
macro_rules! either {
    ($self:ident, $connection:ident => $call:expr) => {
        match $self {
            HttpServer::Http1($connection) => $call,
            HttpServer::Http2($connection) => $call,
        }
    };
}

impl HttpServer {
    /// `body_max` is the most bytes of a request's body; beyond it the request is refused with 413.
    pub fn new(protocol: Protocol, body_max: u64) -> HttpServer {
        match protocol {
            Protocol::Http1 => HttpServer::Http1(Box::new(Http1::new(body_max))),
            Protocol::Http2 => HttpServer::Http2(Box::new(Http2::new(body_max))),
        }
    }

    /// Bytes from the socket, at most some 64 KiB between two polls.
    pub fn feed(&mut self, bytes: &[u8]) {
        either!(self, c => c.feed(bytes));
    }

    /// The client sends no more.
    pub fn feed_eof(&mut self) {
        either!(self, c => c.feed_eof());
    }

    /// False while enough is buffered: leave the client's bytes in the socket.
    pub fn wants_input(&self) -> bool {
        either!(self, c => c.wants_input())
    }

    /// Bytes for the socket, empty if there are none.
    pub fn output(&mut self) -> &[u8] {
        either!(self, c => c.output())
    }

    /// `n` bytes from the front of the last `output` are written.
    pub fn consume_output(&mut self, n: usize) {
        either!(self, c => c.consume_output(n));
    }

    /// Moves everything on as far as it goes and says what happened, in order.
    pub fn poll(&mut self) -> Vec<Event> {
        either!(self, c => c.poll())
    }

    /// Is no request open? Then an idle time-out may close the connection. Bytes of an unfinished
    /// head are no activity: a client that sends its head for ever stays idle.
    pub fn is_idle(&self) -> bool {
        either!(self, c => c.is_idle())
    }

    /// Takes no further requests and closes when the open ones are answered.
    pub fn close_when_idle(&mut self) {
        either!(self, c => c.close_when_idle());
    }

    /// Begins the answer. `status` is final (200 to 599), or 101 with [`Length::Tunnel`]. The
    /// connection adds length and connection headers itself; line breaks in values become spaces.
    pub fn respond(&mut self, id: u64, status: u16, headers: &[(&str, &str)], length: Length) {
        either!(self, c => c.respond(id, status, headers, length));
    }

    /// Takes bytes of the body from the front of `data` and says how many; fewer than all means:
    /// wait for `Writable`. Bytes for a request that is gone, or beyond a HEAD, are taken and
    /// dropped.
    pub fn write_body(&mut self, id: u64, data: &[u8]) -> usize {
        either!(self, c => c.write_body(id, data))
    }

    /// Ends the body. An answer shorter than promised is cut off visibly.
    pub fn finish(&mut self, id: u64) {
        self.finish_with(id, Bytes::new());
    }

    /// Ends the body with these bytes, which the connection sends as the client takes them.
    pub fn finish_with(&mut self, id: u64, rest: Bytes) {
        either!(self, c => c.finish_with(id, rest));
    }

    /// A whole answer at once.
    pub fn reply(&mut self, id: u64, status: u16, headers: &[(&str, &str)], body: Bytes) {
        self.respond(id, status, headers, Length::Exact(body.len() as u64));
        self.finish_with(id, body);
    }

    /// Cuts the answer off, so that the client sees that it is not whole.
    pub fn abort(&mut self, id: u64) {
        either!(self, c => c.abort(id));
    }
}
