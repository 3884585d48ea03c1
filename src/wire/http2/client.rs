//! One HTTP/2 connection to a server, for many requests at once.
//!
//! After every `feed`, `feed_eof`, `request`, `cancel` and `consume_output` the caller polls once and then writes out
//! what `output` shows. Deadlines belong to the caller, who cancels, and so do bounds of answers: a part of a body
//! comes as soon as it is there. No PING is ever sent, so an idle connection wakes nobody.
//!
//! Every request that was neither cancelled nor dropped with the client ends in exactly one [`Event::Done`] or
//! [`Event::Failed`].

use bytes::Bytes;
use http::{HeaderMap, Request, Uri, header, response};

use super::link::{Answer, Link, Windows};

/// What comes is taken at once, so the windows only bound what is on its way.
const WINDOWS: Windows = Windows { stream: 256 * 1024, connection: 1024 * 1024 };

/// What happened on a connection. `id` is the caller's.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Head {
        id: u64,
        head: Head,
    },
    /// A part of the body. It holds on to the buffer that it was read into: copy what is kept.
    Data {
        id: u64,
        data: Bytes,
    },
    /// The answer is whole; nothing more comes under this id.
    Done {
        id: u64,
    },
    /// The answer will not be whole.
    Failed {
        id: u64,
        why: String,
        /// The server has not done anything about the request: it may be sent again elsewhere.
        untouched: bool,
    },
    /// The connection is over, with the reason. All requests have ended before it.
    Closed(String),
}

/// What is told of the head of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// `Retry-After` in seconds; a date there is not read.
    pub retry_after_seconds: Option<u64>,
    /// `Content-Encoding` other than `identity`.
    pub encoding: Option<String>,
}

/// A client connection; see the module.
pub struct Http2Client {
    scheme: &'static str,
    authority: String,
    link: Link<Plain>,
}

impl Http2Client {
    /// Over TLS, to the server of this `:authority` (`host:port`).
    pub fn new(authority: &str) -> Http2Client {
        let authority = authority.to_owned();
        Http2Client { scheme: "https", authority, link: Link::new(&WINDOWS) }
    }

    /// Bytes from the server, at most some 64 KiB between two polls.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.link.feed(bytes);
    }

    /// The connection is at its end or broken.
    pub fn feed_eof(&mut self) {
        self.link.feed_eof();
    }

    /// False while the server does not read what answers its frames: leave its bytes in the socket.
    pub fn wants_input(&self) -> bool {
        self.link.wants_input()
    }

    /// Bytes for the server, at most 128 KiB in all, empty if there are none.
    pub fn output(&mut self) -> &[u8] {
        self.link.output()
    }

    /// `n` bytes from the front of the last `output` are written.
    pub fn consume_output(&mut self, n: usize) {
        self.link.consume_output(n);
    }

    /// False once requests cannot succeed here any more: the connection ended or the server is leaving.
    pub fn accepts_requests(&self) -> bool {
        self.link.accepts()
    }

    /// Number of requests that have not ended.
    pub fn open_requests(&self) -> usize {
        self.link.len()
    }

    /// Sends a request, or queues it behind a hundred others. `path` holds the query; an empty body is none. A
    /// request that HTTP cannot carry fails. An id that is still in use is a bug.
    pub fn request(
        &mut self,
        id: u64,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) {
        assert!(!self.link.is_in_use(id), "request {id} is still open");
        if !self.link.is_open() {
            return self.link.refuse(id, Plain::unavailable("connection closed", false));
        }
        match request(self.scheme, &self.authority, method, path, headers) {
            Ok(request) => self.link.start(id, request, body),
            Err(error) => self.link.refuse(id, Plain::unavailable(&error.to_string(), true)),
        }
    }

    /// Ends a request without an event; an id that is not open is left alone.
    pub fn cancel(&mut self, id: u64) {
        self.link.cancel(id);
    }

    /// Moves everything on as far as it goes and says what happened, in order.
    pub fn poll(&mut self) -> Vec<Event> {
        self.link.poll()
    }
}

fn request(
    scheme: &str,
    authority: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Request<()>, http::Error> {
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build()?;
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(())
}

/// An answer as it comes.
#[derive(Default)]
struct Plain;

struct Failure {
    why: String,
    untouched: bool,
}

impl Answer for Plain {
    type Event = Event;
    type End = Result<(), Failure>;

    fn head(
        &mut self,
        id: u64,
        head: response::Parts,
        whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<Option<Self::End>, Self::End> {
        let text = |name| head.headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()));
        let encoding = text(header::CONTENT_ENCODING).map(|encoding| encoding.into_owned());
        let head = Head {
            status: head.status.as_u16(),
            retry_after_seconds: text(header::RETRY_AFTER).and_then(|s| s.trim().parse().ok()),
            encoding: encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")),
        };
        events.push(Event::Head { id, head });
        Ok(whole.then_some(Ok(())))
    }

    fn data(&mut self, id: u64, data: Bytes, events: &mut Vec<Event>) -> Result<(), Self::End> {
        if !data.is_empty() {
            events.push(Event::Data { id, data });
        }
        Ok(())
    }

    fn end(&mut self, _: Option<HeaderMap>) -> Self::End {
        Ok(())
    }

    fn failed(error: &h2::Error) -> Self::End {
        // A server that shuts down says so, and which streams it has not looked at (RFC 9113, 8.7).
        let untouched = error.is_remote()
            && match error.reason() {
                Some(h2::Reason::REFUSED_STREAM) => error.is_reset(),
                Some(h2::Reason::NO_ERROR) => error.is_go_away(),
                _ => false,
            };
        Err(Failure { why: error.to_string(), untouched })
    }

    fn unavailable(why: &str, sent: bool) -> Self::End {
        Err(Failure { why: why.to_owned(), untouched: !sent })
    }

    fn done(id: u64, end: Self::End) -> Event {
        match end {
            Ok(()) => Event::Done { id },
            Err(Failure { why, untouched }) => Event::Failed { id, why, untouched },
        }
    }

    fn closed(why: String) -> Event {
        Event::Closed(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_http_cannot_carry_fails_alone() {
        let mut client = Http2Client::new("api:6443");
        let bad = [
            ("G T", "/api", ("accept", "*")),
            ("GET", "a b", ("accept", "*")),
            ("GET", "/api", ("a b", "c")),
            ("GET", "/api", ("authorization", "Bearer a\nb")),
        ];
        for (id, (method, path, header)) in bad.into_iter().enumerate() {
            client.request(id as u64, method, path, &[header], Bytes::new());
        }
        client.request(9, "GET", "/api?watch=1", &[], Bytes::new());
        let events = client.poll();
        assert_eq!(events.len(), 4, "{events:?}");
        assert!(events.iter().all(|event| matches!(event, Event::Failed { untouched: false, .. })));
        assert_eq!(client.open_requests(), 1);
    }
}
