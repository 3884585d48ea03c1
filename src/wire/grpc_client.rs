//! One gRPC client connection: HTTP/2 by h2, polled by hand, unary and server-streaming calls.
//!
//! After every `feed`, `feed_eof`, `call`, `cancel` and `consume_output` the caller polls once and
//! then writes out what `output` shows. Deadlines belong to the caller, who cancels. No PING is
//! ever sent: runtimes in Go close a connection that pings more often than every five minutes.
//!
//! Every call that was neither cancelled nor dropped with the client ends in exactly one
//! [`Event::Done`].

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, Response, Uri, header};

use crate::duplex::{Far, Flag, Near, duplex};
use crate::grpc_frame::{self, Deframer, MESSAGE_MAX};
use crate::grpc_status::{Code, GrpcStatus};

/// Most calls under way at once; further ones wait in order. What HTTP/2 servers usually allow.
const CALLS_MAX: usize = 100;
/// Bytes a server may send ahead on one stream, and on all together.
const STREAM_WINDOW: u32 = 64 * 1024 - 1;
const CONNECTION_WINDOW: u32 = 128 * 1024;
/// Bytes of request DATA that h2 holds for one call.
const SEND_BUFFER: usize = 64 * 1024;
/// An error text comes as a header, percent-encoded, and may quote much of a request.
const HEADER_LIST_MAX: u32 = 64 * 1024;
/// h2 counts small DATA frames that wait to be read against this. One `feed` can hold thousands of
/// small messages of a stream, which is no attack when it comes from the runtime.
const SMALL_FRAME_BUDGET: usize = 4 * 1024 * 1024;

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
    near: Near,
    flag: Flag,
    /// `None` after the connection ended.
    link: Option<Link>,
    waiting: VecDeque<Waiting>,
    calls: Vec<Call>,
    /// Ends of calls that never reached the wire.
    refused: Vec<Event>,
}

struct Link {
    connection: Connection<Far, Bytes>,
    requests: SendRequest<Bytes>,
    /// The server has announced that it takes no further calls.
    leaving: bool,
}

struct Waiting {
    id: u64,
    request: Request<()>,
    body: Bytes,
}

/// A call on the wire.
struct Call {
    id: u64,
    send: SendStream<Bytes>,
    unsent: Bytes,
    answer: Answer,
}

enum Answer {
    Head(ResponseFuture),
    Body(RecvStream, Deframer),
}

impl GrpcClient {
    /// A connection whose `:authority` is `localhost` for a unix socket, else `host:port`.
    pub fn new(authority: &str) -> GrpcClient {
        let (near, far) = duplex();
        let flag = Flag::new();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .header_table_size(1024)
            .max_header_list_size(HEADER_LIST_MAX)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(CALLS_MAX)
            .max_concurrent_reset_streams(2 * CALLS_MAX)
            .data_frame_budget(SMALL_FRAME_BUDGET);
        let handshake = pin!(builder.handshake::<_, Bytes>(far));
        // The handshake only writes the 24-byte preface, for which an empty buffer has room.
        let link = match handshake.poll(&mut Context::from_waker(&flag.waker)) {
            Poll::Ready(Ok((requests, connection))) => {
                Link { connection, requests, leaving: false }
            }
            Poll::Ready(Err(error)) => unreachable!("the preface met an error: {error}"),
            Poll::Pending => unreachable!("the preface had to wait"),
        };
        GrpcClient {
            authority: authority.to_owned(),
            near,
            flag,
            link: Some(link),
            waiting: VecDeque::new(),
            calls: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// Bytes from the socket, at most some 64 KiB between two polls.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.near.feed(bytes);
    }

    /// The socket is at its end or broken. Calls that are not complete end as `Unavailable`.
    pub fn feed_eof(&mut self) {
        self.near.feed_eof();
    }

    /// False while the peer does not read what answers its frames: leave its bytes in the socket.
    pub fn wants_input(&self) -> bool {
        self.link.is_some() && self.near.wants_input()
    }

    /// Bytes for the socket, at most 128 KiB in all, empty if there are none.
    pub fn output(&mut self) -> &[u8] {
        self.near.output()
    }

    /// `n` bytes from the front of the last `output` are written.
    pub fn consume_output(&mut self, n: usize) {
        self.near.consume_output(n);
    }

    /// False once calls cannot succeed here any more: the connection ended or the server is
    /// leaving.
    pub fn accepts_calls(&self) -> bool {
        self.link.as_ref().is_some_and(|link| !link.leaving)
    }

    /// Number of calls that have not ended.
    pub fn open_calls(&self) -> usize {
        self.calls.len() + self.waiting.len()
    }

    /// Starts a call, or queues it behind [`CALLS_MAX`] others.
    ///
    /// `path` is `/package.Service/Method`, `body` the encoded message. `timeout_ms` goes to the
    /// server as `grpc-timeout`. An id that is still in use is a bug.
    pub fn call(&mut self, id: u64, path: &str, body: Bytes, timeout_ms: Option<u64>) {
        let in_use =
            self.calls.iter().any(|c| c.id == id) || self.waiting.iter().any(|w| w.id == id);
        assert!(!in_use, "call {id} is still open");
        let status = if body.len() > MESSAGE_MAX {
            let text =
                format!("message to send is larger than max ({} vs. {MESSAGE_MAX})", body.len());
            GrpcStatus::new(Code::ResourceExhausted, text)
        } else if self.link.is_none() {
            GrpcStatus::new(Code::Unavailable, "connection closed")
        } else {
            match request(&self.authority, path, timeout_ms) {
                Ok(request) => return self.waiting.push_back(Waiting { id, request, body }),
                Err(error) => GrpcStatus::new(Code::Internal, format!("{path}: {error}")),
            }
        };
        self.refused.push(Event::Done { id, status });
    }

    /// Ends a call without an event; an id that is not open is left alone.
    pub fn cancel(&mut self, id: u64) {
        self.waiting.retain(|w| w.id != id);
        self.refused.retain(|e| !matches!(e, Event::Done { id: refused, .. } if *refused == id));
        if let Some(at) = self.calls.iter().position(|c| c.id == id) {
            self.calls.remove(at).send.send_reset(Reason::CANCEL);
        }
    }

    /// Moves everything on as far as it goes and says what happened, in order.
    pub fn poll(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.refused);
        let waker = self.flag.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        while let Some(link) = &mut self.link {
            self.flag.take();
            let ended = match Pin::new(&mut link.connection).poll(cx) {
                Poll::Pending => None,
                Poll::Ready(Ok(())) => Some("connection closed by the server".to_owned()),
                Poll::Ready(Err(error)) => Some(error.to_string()),
            };
            advance_all(&mut self.calls, cx, &mut events);
            if let Some(reason) = ended {
                self.close(reason, &mut events);
                break;
            }
            self.start_waiting(cx, &mut events);
            if !self.flag.take() {
                break;
            }
        }
        events
    }

    fn start_waiting(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) {
        let Some(link) = &mut self.link else { return };
        // Asked even with nothing waiting: this is how a GOAWAY shows.
        let mut ready = link.requests.poll_ready(cx);
        let limit = link.requests.current_max_send_streams().min(CALLS_MAX);
        while let Poll::Ready(Ok(())) = ready {
            if self.calls.len() >= limit {
                return;
            }
            let Some(Waiting { id, request, body }) = self.waiting.pop_front() else { return };
            match link.requests.send_request(request, false) {
                Ok((answer, send)) => {
                    let unsent = grpc_frame::encode(&body);
                    let mut call = Call { id, send, unsent, answer: Answer::Head(answer) };
                    call.send(cx);
                    self.calls.push(call);
                }
                Err(error) => events.push(Event::Done { id, status: GrpcStatus::from_h2(&error) }),
            }
            ready = link.requests.poll_ready(cx);
        }
        if let Poll::Ready(Err(error)) = ready {
            link.leaving = true;
            let status = GrpcStatus::new(Code::Unavailable, error.to_string());
            let done = |w: Waiting| Event::Done { id: w.id, status: status.clone() };
            events.extend(self.waiting.drain(..).map(done));
        }
    }

    fn close(&mut self, reason: String, events: &mut Vec<Event>) {
        self.link = None;
        let open = self.calls.drain(..).map(|c| c.id).chain(self.waiting.drain(..).map(|w| w.id));
        let status = GrpcStatus::new(Code::Unavailable, reason.clone());
        events.extend(open.map(|id| Event::Done { id, status: status.clone() }));
        events.push(Event::Closed(reason));
    }
}

fn advance_all(calls: &mut Vec<Call>, cx: &mut Context<'_>, events: &mut Vec<Event>) {
    calls.retain_mut(|call| match call.advance(cx, events) {
        Poll::Pending => true,
        Poll::Ready(status) => {
            events.push(Event::Done { id: call.id, status });
            false
        }
    });
}

impl Call {
    fn advance(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) -> Poll<GrpcStatus> {
        self.send(cx);
        let ended = self.receive(cx, events);
        if let Poll::Ready(Err(status)) = ended {
            self.send.send_reset(Reason::CANCEL);
            return Poll::Ready(status);
        }
        ended.map(|ended| ended.unwrap_or_else(|status| status))
    }

    /// Hands h2 as much of the request as its window allows. A failure shows on the receiving side.
    fn send(&mut self, cx: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            self.send.reserve_capacity(self.unsent.len());
            let capacity = match self.send.capacity() {
                0 => match self.send.poll_capacity(cx) {
                    Poll::Ready(Some(Ok(capacity))) => capacity,
                    Poll::Ready(_) | Poll::Pending => return,
                },
                capacity => capacity,
            };
            let part = self.unsent.split_to(capacity.min(self.unsent.len()));
            if self.send.send_data(part, self.unsent.is_empty()).is_err() {
                self.unsent.clear();
            }
        }
    }

    /// `Ok` is the status that the server gave, `Err` ours for an answer that cannot go on.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        events: &mut Vec<Event>,
    ) -> Poll<Result<GrpcStatus, GrpcStatus>> {
        loop {
            match &mut self.answer {
                Answer::Head(future) => match std::task::ready!(Pin::new(future).poll(cx)) {
                    Err(error) => return Poll::Ready(Ok(GrpcStatus::from_h2(&error))),
                    Ok(response) => match head(response) {
                        Head::Ended(status) => return Poll::Ready(Ok(status)),
                        Head::Refused(status) => return Poll::Ready(Err(status)),
                        Head::Body(body) => self.answer = Answer::Body(body, Deframer::default()),
                    },
                },
                Answer::Body(body, deframer) => match std::task::ready!(body.poll_data(cx)) {
                    Some(Ok(data)) => take_data(self.id, body, deframer, data, events)?,
                    Some(Err(error)) => return Poll::Ready(Ok(GrpcStatus::from_h2(&error))),
                    None => {
                        let trailers = std::task::ready!(body.poll_trailers(cx));
                        let whole = deframer.is_empty();
                        return Poll::Ready(Ok(last_word(trailers, whole)));
                    }
                },
            }
        }
    }
}

enum Head {
    /// Trailers-only: the whole answer is in the headers.
    Ended(GrpcStatus),
    Refused(GrpcStatus),
    Body(RecvStream),
}

fn head(response: Response<RecvStream>) -> Head {
    let (parts, body) = response.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE).map(|v| v.to_str().unwrap_or("unreadable"));
    if body.is_end_stream()
        && let Some(status) = GrpcStatus::from_headers(&parts.headers)
    {
        return Head::Ended(status);
    }
    if parts.status != http::StatusCode::OK || !kind.is_some_and(is_grpc) {
        return Head::Refused(GrpcStatus::from_http(parts.status, kind));
    }
    Head::Body(body)
}

/// `application/grpc`, alone or with a suffix (`+proto`) or parameters.
fn is_grpc(content_type: &str) -> bool {
    let rest = content_type.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

fn take_data(
    id: u64,
    body: &mut RecvStream,
    deframer: &mut Deframer,
    mut data: Bytes,
    events: &mut Vec<Event>,
) -> Result<(), GrpcStatus> {
    // Copied out at once, so the window is given back at once. A stream that just ended takes none.
    let _ = body.flow_control().release_capacity(data.len());
    while let Some(body) = deframer.take(&mut data)? {
        events.push(Event::Message { id, body });
    }
    Ok(())
}

/// The status of an answer whose body has ended; `whole` if it ended between two messages.
fn last_word(trailers: Result<Option<HeaderMap>, h2::Error>, whole: bool) -> GrpcStatus {
    let status = match trailers {
        Ok(trailers) => trailers.and_then(|t| GrpcStatus::from_headers(&t)),
        Err(error) => return GrpcStatus::from_h2(&error),
    };
    match status {
        None => GrpcStatus::new(Code::Internal, "the server ended the stream without a status"),
        Some(status) if status.code == Code::Ok && !whole => {
            GrpcStatus::new(Code::Internal, "the server ended the stream within a message")
        }
        Some(status) => status,
    }
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
