//! One gRPC client connection: HTTP/2 by h2, polled by hand, unary and server-streaming calls.
//!
//! After every `feed`, `feed_eof`, `call`, `cancel` and `consume_output` the caller polls once and
//! then writes out what `output` shows. Deadlines belong to the caller, who cancels. No PING is
//! ever sent: runtimes in Go close a connection that pings more often than every five minutes.
//!
//! Every call that was neither cancelled nor dropped with the client ends in exactly one
//! [`Event::Done`].

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri, header, response};

use crate::grpc_frame::{self, Deframer, MESSAGE_MAX};
use crate::grpc_status::{Code, GrpcStatus};
use crate::http2::link::{Answer, Link, Windows};

const WINDOWS: Windows = Windows { stream: 64 * 1024 - 1, connection: 128 * 1024 };

const USER_AGENT: &str = concat!("grpc-steplet/", env!("CARGO_PKG_VERSION"));

/// What happened on a connection. `id` is the caller's.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// One message of the answer, without its prefix.
    Message { id: u64, body: Bytes },
    /// The call is over; nothing more comes under this id.
    Done { id: u64, status: GrpcStatus },
    /// The connection is over, with the reason for the log. All calls have ended before it.
    Closed(String),
}

/// A client connection; see the module.
pub struct GrpcClient {
    authority: String,
    link: Link<Messages>,
}

impl GrpcClient {
    /// A connection whose `:authority` is `localhost` for a unix socket, else `host:port`.
    pub fn new(authority: &str) -> GrpcClient {
        GrpcClient { authority: authority.to_owned(), link: Link::new(&WINDOWS) }
    }

    /// Bytes from the socket, at most some 64 KiB between two polls.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.link.feed(bytes);
    }

    /// The socket is at its end or broken. Calls that are not complete end as `Unavailable`.
    pub fn feed_eof(&mut self) {
        self.link.feed_eof();
    }

    /// False while the peer does not read what answers its frames: leave its bytes in the socket.
    pub fn wants_input(&self) -> bool {
        self.link.wants_input()
    }

    /// Bytes for the socket, at most 128 KiB in all, empty if there are none.
    pub fn output(&mut self) -> &[u8] {
        self.link.output()
    }

    /// `n` bytes from the front of the last `output` are written.
    pub fn consume_output(&mut self, n: usize) {
        self.link.consume_output(n);
    }

    /// False once calls cannot succeed here any more: the connection ended or the server is
    /// leaving.
    pub fn accepts_calls(&self) -> bool {
        self.link.accepts()
    }

    /// Number of calls that have not ended.
    pub fn open_calls(&self) -> usize {
        self.link.len()
    }

    /// Starts a call, or queues it behind a hundred others.
    ///
    /// `path` is `/package.Service/Method`, `body` the encoded message. `timeout_ms` goes to the
    /// server as `grpc-timeout`. An id that is still in use is a bug.
    pub fn call(&mut self, id: u64, path: &str, body: Bytes, timeout_ms: Option<u64>) {
        assert!(!self.link.is_in_use(id), "call {id} is still open");
        let status = if body.len() > MESSAGE_MAX {
            let text =
                format!("message to send is larger than max ({} vs. {MESSAGE_MAX})", body.len());
            GrpcStatus::new(Code::ResourceExhausted, text)
        } else if !self.link.is_open() {
            GrpcStatus::new(Code::Unavailable, "connection closed")
        } else {
            match request(&self.authority, path, timeout_ms) {
                Ok(request) => {
                    return self.link.start(id, request, grpc_frame::encode(&body));
                }
                Err(error) => GrpcStatus::new(Code::Internal, format!("{path}: {error}")),
            }
        };
        self.link.refuse(id, status);
    }

    /// Ends a call without an event; an id that is not open is left alone.
    pub fn cancel(&mut self, id: u64) {
        self.link.cancel(id);
    }

    /// Moves everything on as far as it goes and says what happened, in order.
    pub fn poll(&mut self) -> Vec<Event> {
        self.link.poll()
    }
}

/// The messages of one answer.
#[derive(Default)]
struct Messages(Deframer);

impl Answer for Messages {
    type Event = Event;
    type End = GrpcStatus;

    fn head(
        &mut self,
        _: u64,
        head: response::Parts,
        whole: bool,
        _: &mut Vec<Event>,
    ) -> Result<Option<GrpcStatus>, GrpcStatus> {
        // Trailers-only: the whole answer is in the headers.
        if whole && let Some(status) = GrpcStatus::from_headers(&head.headers) {
            return Ok(Some(status));
        }
        let kind = head.headers.get(header::CONTENT_TYPE);
        let kind = kind.map(|v| v.to_str().unwrap_or("unreadable"));
        if head.status != http::StatusCode::OK || !kind.is_some_and(is_grpc) {
            return Err(GrpcStatus::from_http(head.status, kind));
        }
        Ok(None)
    }

    fn data(
        &mut self,
        id: u64,
        mut data: Bytes,
        events: &mut Vec<Event>,
    ) -> Result<(), GrpcStatus> {
        while let Some(body) = self.0.take(&mut data)? {
            events.push(Event::Message { id, body });
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<HeaderMap>) -> GrpcStatus {
        match trailers.and_then(|trailers| GrpcStatus::from_headers(&trailers)) {
            None => GrpcStatus::new(Code::Internal, "the server ended the stream without a status"),
            Some(status) if status.code == Code::Ok && !self.0.is_empty() => {
                GrpcStatus::new(Code::Internal, "the server ended the stream within a message")
            }
            Some(status) => status,
        }
    }

    fn failed(error: &h2::Error) -> GrpcStatus {
        GrpcStatus::from_h2(error)
    }

    fn unavailable(why: &str, _: bool) -> GrpcStatus {
        GrpcStatus::new(Code::Unavailable, why)
    }

    fn done(id: u64, status: GrpcStatus) -> Event {
        Event::Done { id, status }
    }

    fn closed(why: String) -> Event {
        Event::Closed(why)
    }
}

/// `application/grpc`, alone or with a suffix (`+proto`) or parameters.
fn is_grpc(content_type: &str) -> bool {
    let rest = content_type.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

fn request(
    authority: &str,
    path: &str,
    timeout_ms: Option<u64>,
) -> Result<Request<()>, http::Error> {
    // h2 refuses a URI without scheme and authority.
    let uri = Uri::builder().scheme("http").authority(authority).path_and_query(path).build()?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(uri)
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, USER_AGENT);
    if let Some(timeout_ms) = timeout_ms {
        request = request.header("grpc-timeout", grpc_timeout(timeout_ms));
    }
    request.body(())
}

/// At most eight digits, so the unit grows with the span; rounded up, as the caller's own deadline
/// rules.
fn grpc_timeout(ms: u64) -> String {
    const DIGITS: u64 = 99_999_999;
    let units = [("m", 1), ("S", 1000), ("M", 60_000), ("H", 3_600_000)];
    let fits = units.iter().find(|(_, unit)| ms.div_ceil(*unit) <= DIGITS);
    let (name, unit) = fits.unwrap_or(&units[3]);
    format!("{}{name}", ms.div_ceil(*unit).min(DIGITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_at_most_eight_digits() {
        let check = |ms, want: &str| assert_eq!(grpc_timeout(ms), want);
        check(0, "0m");
        check(30_000, "30000m");
        check(99_999_999, "99999999m");
        check(100_000_000, "100000S");
        check(100_000_001, "100001S");
        check(u64::MAX, "99999999H");
    }

    #[test]
    fn content_types_of_grpc() {
        let check = |kind, want| assert_eq!(is_grpc(kind), want, "{kind}");
        check("application/grpc", true);
        check("application/grpc+proto", true);
        check("application/grpc;charset=utf-8", true);
        check("application/grpc-web", false);
        check("text/html", false);
    }

    #[test]
    fn a_bad_path_or_a_huge_message_ends_the_call_alone() {
        let mut client = GrpcClient::new("localhost");
        client.call(1, "no path", Bytes::new(), None);
        client.call(2, "/s/m", Bytes::from(vec![0; MESSAGE_MAX + 1]), None);
        client.call(3, "bad path", Bytes::new(), None);
        client.cancel(3);
        client.call(4, "/s/m", Bytes::new(), None);
        let ends = client.poll().into_iter().map(|e| match e {
            Event::Done { id, status } => (id, status.code),
            other => panic!("{other:?}"),
        });
        assert_eq!(ends.collect::<Vec<_>>(), [(1, Code::Internal), (2, Code::ResourceExhausted)]);
        assert_eq!(client.open_calls(), 1);
    }
}
