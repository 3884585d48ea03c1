//! The client's end of an HTTP/2 connection: what gRPC and plain requests have in common.
//!
//! Requests wait here until the server takes them, go out within its windows, and end in exactly one `done` each
//! unless they are cancelled. What an answer means is said by an [`Answer`], one for each request.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, response};

use crate::duplex::{Far, Flag, Near, duplex};

/// Most requests under way at once; further ones wait in order. What HTTP/2 servers usually allow.
pub(crate) const STREAMS_MAX: usize = 100;
/// Bytes of request DATA that h2 holds for one stream.
const SEND_BUFFER: usize = 64 * 1024;
/// An error text may come as a header, percent-encoded, and may quote much of a request.
const HEADER_LIST_MAX: u32 = 64 * 1024;
/// h2 counts small DATA frames that wait to be read against this. One `feed` can hold thousands of
/// small messages of a stream, which is no attack when it comes from a runtime or a watch.
const SMALL_FRAME_BUDGET: usize = 4 * 1024 * 1024;

/// Reads the answer to one request.
pub(crate) trait Answer: Default {
    /// What the owner of the connection is told.
    type Event;
    /// How a request ended.
    type End;

    /// The head is there, and the whole answer if `whole`. `Some` ends the request, an error takes it back too.
    fn head(
        &mut self,
        id: u64,
        head: response::Parts,
        whole: bool,
        events: &mut Vec<Self::Event>,
    ) -> Result<Option<Self::End>, Self::End>;

    /// A part of the body. An error takes the request back.
    fn data(
        &mut self,
        id: u64,
        data: Bytes,
        events: &mut Vec<Self::Event>,
    ) -> Result<(), Self::End>;

    /// The server has ended its answer.
    fn end(&mut self, trailers: Option<HeaderMap>) -> Self::End;

    /// The stream or the connection failed.
    fn failed(error: &h2::Error) -> Self::End;

    /// The connection is over, or the server is leaving; `sent` if it may have seen the request.
    fn unavailable(why: &str, sent: bool) -> Self::End;

    fn done(id: u64, end: Self::End) -> Self::Event;

    fn closed(why: String) -> Self::Event;
}

/// Bytes that a server may send ahead on one stream, and on all together.
pub(crate) struct Windows {
    pub(crate) stream: u32,
    pub(crate) connection: u32,
}

/// A connection; see the module. After every change the caller polls.
pub(crate) struct Link<A: Answer> {
    near: Near,
    flag: Flag,
    /// `None` after the connection ended.
    open: Option<Open>,
    waiting: VecDeque<Waiting>,
    streams: Vec<Stream<A>>,
    /// Ends of requests that never reached the wire.
    refused: Vec<(u64, A::End)>,
}

struct Open {
    connection: Connection<Far, Bytes>,
    requests: SendRequest<Bytes>,
    /// The server has announced that it takes no further requests.
    leaving: bool,
}

struct Waiting {
    id: u64,
    request: Request<()>,
    body: Bytes,
}

/// A request on the wire.
struct Stream<A> {
    id: u64,
    send: SendStream<Bytes>,
    unsent: Bytes,
    receive: Receive,
    answer: A,
}

enum Receive {
    Head(ResponseFuture),
    Body(RecvStream),
}

impl<A: Answer> Link<A> {
    pub(crate) fn new(windows: &Windows) -> Link<A> {
        let (near, far) = duplex();
        let flag = Flag::new();
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(windows.stream)
            .initial_connection_window_size(windows.connection)
            .header_table_size(1024)
            .max_header_list_size(HEADER_LIST_MAX)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(STREAMS_MAX)
            .max_concurrent_reset_streams(2 * STREAMS_MAX)
            .data_frame_budget(SMALL_FRAME_BUDGET);
        let handshake = pin!(builder.handshake::<_, Bytes>(far));
        // The handshake only writes the 24-byte preface, for which an empty buffer has room.
        let open = match handshake.poll(&mut Context::from_waker(&flag.waker)) {
            Poll::Ready(Ok((requests, connection))) => {
                Open { connection, requests, leaving: false }
            }
            Poll::Ready(Err(error)) => unreachable!("the preface met an error: {error}"),
            Poll::Pending => unreachable!("the preface had to wait"),
        };
        Link {
            near,
            flag,
            open: Some(open),
            waiting: VecDeque::new(),
            streams: Vec::new(),
            refused: Vec::new(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.near.feed(bytes);
    }

    pub(crate) fn feed_eof(&mut self) {
        self.near.feed_eof();
    }

    pub(crate) fn wants_input(&self) -> bool {
        self.open.is_some() && self.near.wants_input()
    }

    pub(crate) fn output(&mut self) -> &[u8] {
        self.near.output()
    }

    pub(crate) fn consume_output(&mut self, n: usize) {
        self.near.consume_output(n);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn accepts(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.leaving)
    }

    pub(crate) fn len(&self) -> usize {
        self.streams.len() + self.waiting.len()
    }

    pub(crate) fn is_in_use(&self, id: u64) -> bool {
        self.streams.iter().any(|s| s.id == id) || self.waiting.iter().any(|w| w.id == id)
    }

    /// Queues a request whose id is not in use.
    pub(crate) fn start(&mut self, id: u64, request: Request<()>, body: Bytes) {
        self.waiting.push_back(Waiting { id, request, body });
    }

    /// Lets the next poll say that a request has ended.
    pub(crate) fn refuse(&mut self, id: u64, end: A::End) {
        self.refused.push((id, end));
    }

    /// Ends a request without an event; an id that is not open is left alone.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.waiting.retain(|w| w.id != id);
        self.refused.retain(|(refused, _)| *refused != id);
        if let Some(at) = self.streams.iter().position(|s| s.id == id) {
            self.streams.remove(at).send.send_reset(Reason::CANCEL);
        }
    }

    /// Moves everything on as far as it goes and says what happened, in order.
    pub(crate) fn poll(&mut self) -> Vec<A::Event> {
        let mut events: Vec<_> = self.refused.drain(..).map(|(id, end)| A::done(id, end)).collect();
        let waker = self.flag.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        while let Some(open) = &mut self.open {
            self.flag.take();
            let ended = match Pin::new(&mut open.connection).poll(cx) {
                Poll::Pending => None,
                Poll::Ready(Ok(())) => Some("connection closed by the server".to_owned()),
                Poll::Ready(Err(error)) => Some(error.to_string()),
            };
            advance_all(&mut self.streams, cx, &mut events);
            if let Some(why) = ended {
                self.close(why, &mut events);
                break;
            }
            self.start_waiting(cx, &mut events);
            if !self.flag.take() {
                break;
            }
        }
        events
    }

    fn start_waiting(&mut self, cx: &mut Context<'_>, events: &mut Vec<A::Event>) {
        let Some(open) = &mut self.open else { return };
        // Asked even with nothing waiting: this is how a GOAWAY shows.
        let mut ready = open.requests.poll_ready(cx);
        let limit = open.requests.current_max_send_streams().min(STREAMS_MAX);
        while let Poll::Ready(Ok(())) = ready {
            if self.streams.len() >= limit {
                return;
            }
            let Some(Waiting { id, request, body }) = self.waiting.pop_front() else { return };
            match open.requests.send_request(request, body.is_empty()) {
                Ok((response, send)) => {
                    let receive = Receive::Head(response);
                    let mut stream =
                        Stream { id, send, unsent: body, receive, answer: A::default() };
                    stream.send(cx);
                    self.streams.push(stream);
                }
                Err(error) => events.push(A::done(id, A::failed(&error))),
            }
            ready = open.requests.poll_ready(cx);
        }
        if let Poll::Ready(Err(error)) = ready {
            open.leaving = true;
            let why = error.to_string();
            let waiting = self.waiting.drain(..);
            events.extend(waiting.map(|w| A::done(w.id, A::unavailable(&why, false))));
        }
    }

    fn close(&mut self, why: String, events: &mut Vec<A::Event>) {
        self.open = None;
        let sent = self.streams.drain(..).map(|s| (s.id, true));
        let open = sent.chain(self.waiting.drain(..).map(|w| (w.id, false)));
        events.extend(open.map(|(id, sent)| A::done(id, A::unavailable(&why, sent))));
        events.push(A::closed(why));
    }
}

fn advance_all<A: Answer>(
    streams: &mut Vec<Stream<A>>,
    cx: &mut Context<'_>,
    events: &mut Vec<A::Event>,
) {
    streams.retain_mut(|stream| match stream.advance(cx, events) {
        Poll::Pending => true,
        Poll::Ready(end) => {
            events.push(A::done(stream.id, end));
            false
        }
    });
}

impl<A: Answer> Stream<A> {
    fn advance(&mut self, cx: &mut Context<'_>, events: &mut Vec<A::Event>) -> Poll<A::End> {
        self.send(cx);
        match ready!(self.receive(cx, events)) {
            Ok(end) => Poll::Ready(end),
            Err(end) => {
                self.send.send_reset(Reason::CANCEL);
                Poll::Ready(end)
            }
        }
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

    /// `Ok` is an end that came from the other side, `Err` one for an answer that cannot go on.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        events: &mut Vec<A::Event>,
    ) -> Poll<Result<A::End, A::End>> {
        loop {
            match &mut self.receive {
                Receive::Head(future) => match ready!(Pin::new(future).poll(cx)) {
                    Err(error) => return Poll::Ready(Ok(A::failed(&error))),
                    Ok(response) => {
                        let (head, body) = response.into_parts();
                        let whole = body.is_end_stream();
                        if let Some(end) = self.answer.head(self.id, head, whole, events)? {
                            return Poll::Ready(Ok(end));
                        }
                        self.receive = Receive::Body(body);
                    }
                },
                Receive::Body(body) => match ready!(body.poll_data(cx)) {
                    Some(Ok(data)) => {
                        // Taken at once, so the window is given back at once. A stream that just
                        // ended takes none.
                        let _ = body.flow_control().release_capacity(data.len());
                        self.answer.data(self.id, data, events)?;
                    }
                    Some(Err(error)) => return Poll::Ready(Ok(A::failed(&error))),
                    None => {
                        let end = match ready!(body.poll_trailers(cx)) {
                            Ok(trailers) => self.answer.end(trailers),
                            Err(error) => A::failed(&error),
                        };
                        return Poll::Ready(Ok(end));
                    }
                },
            }
        }
    }
}
