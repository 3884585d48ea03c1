//! The server side of an HTTP/2 connection by h2, polled by hand. Use it through
//! [`crate::http_server::HttpServer`].

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use crate::duplex::{Far, Flag, Near, duplex};
use crate::http_server::{Event, Length, RequestHead, Version};
use crate::http1::head::{clean_value, is_hop_header};

/// Requests under way at once on one connection.
const STREAMS_MAX: u32 = 100;
/// Bytes of a request's head, unpacked. Less than on HTTP/1, since a hundred of them may be open at
/// once on one connection, and a few bytes on the wire can stand for many.
const HEAD_MAX: u32 = 64 * 1024;
/// Bytes that a client may send ahead on one stream, and on all together.
const STREAM_WINDOW: u32 = 64 * 1024 - 1;
const CONNECTION_WINDOW: u32 = 128 * 1024;
/// Bytes of an answer that h2 holds for one stream.
const SEND_BUFFER: usize = 32 * 1024;
/// Streams that a client opened and reset before they were looked at; more end the connection.
const RESETS_UNSEEN_MAX: usize = 20;
/// Streams that a client spoilt, in a connection's life; more end the connection.
const RESETS_BY_ERROR_MAX: usize = 100;

pub struct Http2 {
    body_max: u64,
    near: Near,
    flag: Flag,
    link: Link,
    streams: Vec<Stream>,
}

enum Link {
    Greeting(Handshake<Far, Bytes>),
    Open(Connection<Far, Bytes>),
    Over { said: bool },
}

/// A request and its answer.
struct Stream {
    id: u64,
    /// `None` once the body is whole or not wanted.
    receive: Option<RecvStream>,
    /// Bytes that the body may still have.
    left: u64,
    is_head: bool,
    answer: Answer,
    /// What `finish_with` left to send.
    rest: Option<Bytes>,
    /// A write was not taken whole.
    starved: bool,
}

enum Answer {
    None(SendResponse<Bytes>),
    Body(SendStream<Bytes>),
    /// The end of the stream went out with the head.
    Bodiless,
    Finished,
}

impl Http2 {
    pub fn new(body_max: u64) -> Http2 {
        let (near, far) = duplex();
        let mut builder = Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_MAX)
            .max_send_buffer_size(SEND_BUFFER)
            .max_concurrent_reset_streams(STREAMS_MAX as usize)
            .max_pending_accept_reset_streams(RESETS_UNSEEN_MAX)
            .max_local_error_reset_streams(Some(RESETS_BY_ERROR_MAX));
        let link = Link::Greeting(builder.handshake(far));
        Http2 { body_max, near, flag: Flag::new(), link, streams: Vec::new() }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.near.feed(bytes);
    }

    pub fn feed_eof(&mut self) {
        self.near.feed_eof();
    }

    pub fn wants_input(&self) -> bool {
        !matches!(self.link, Link::Over { .. }) && self.near.wants_input()
    }

    pub fn output(&mut self) -> &[u8] {
        self.near.output()
    }

    pub fn consume_output(&mut self, n: usize) {
        self.near.consume_output(n);
    }

    pub fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    pub fn close_when_idle(&mut self) {
        match &mut self.link {
            Link::Open(connection) => connection.graceful_shutdown(),
            Link::Greeting(_) => self.link = Link::Over { said: false },
            Link::Over { .. } => {}
        }
    }

    pub fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let waker = self.flag.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        loop {
            self.flag.take();
            self.accept(cx, &mut events);
            self.streams.retain_mut(|stream| stream.advance(cx, &mut events));
            if !self.flag.take() {
                break;
            }
        }
        if let Link::Over { said } = &mut self.link {
            let open = self.streams.drain(..).filter(|s| !matches!(s.answer, Answer::Finished));
            events.extend(open.map(|s| Event::Gone { id: s.id }));
            if !std::mem::replace(said, true) {
                events.push(Event::Closed);
            }
        }
        events
    }

    /// Drives the connection, and with it all streams; takes in what requests there are.
    fn accept(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) {
        if let Link::Greeting(handshake) = &mut self.link {
            match Pin::new(handshake).poll(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(connection)) => self.link = Link::Open(connection),
                Poll::Ready(Err(_)) => self.link = Link::Over { said: false },
            }
        }
        let Link::Open(connection) = &mut self.link else { return };
        loop {
            match connection.poll_accept(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let (stream, head) = Stream::new(request, respond, self.body_max);
                    events.push(Event::Request { id: stream.id, head: Box::new(head) });
                    self.streams.push(stream);
                }
                // h2 has sent its GOAWAY and flushed, or the client is gone.
                Poll::Ready(Some(Err(_)) | None) => {
                    self.link = Link::Over { said: false };
                    return;
                }
            }
        }
    }

    fn open(&mut self, id: u64) -> Option<&mut Stream> {
        self.streams.iter_mut().find(|s| s.id == id)
    }

    pub fn respond(&mut self, id: u64, status: u16, headers: &[(&str, &str)], length: Length) {
        assert!(length != Length::Tunnel, "HTTP/2 has no upgrade");
        assert!((200..600).contains(&status), "status {status}");
        if let Some(stream) = self.open(id) {
            stream.respond(status, headers, length);
        }
    }

    pub fn write_body(&mut self, id: u64, data: &[u8]) -> usize {
        let Some(stream) = self.open(id) else { return data.len() };
        let taken = stream.write(data);
        stream.starved = taken < data.len();
        taken
    }

    pub fn finish_with(&mut self, id: u64, rest: Bytes) {
        if let Some(stream) = self.open(id) {
            stream.rest = Some(rest);
            stream.send_rest();
        }
    }

    pub fn abort(&mut self, id: u64) {
        if let Some(at) = self.streams.iter().position(|s| s.id == id) {
            match self.streams.remove(at).answer {
                Answer::None(mut respond) => respond.send_reset(Reason::INTERNAL_ERROR),
                Answer::Body(mut send) => send.send_reset(Reason::INTERNAL_ERROR),
                Answer::Bodiless | Answer::Finished => {}
            }
        }
    }
}

fn headers(all: &http::HeaderMap) -> Vec<(String, String)> {
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    };
    all.iter().filter_map(text).collect()
}

impl Stream {
    fn new(
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        body_max: u64,
    ) -> (Stream, RequestHead) {
        let id = u64::from(respond.stream_id().as_u32());
        let (parts, body) = request.into_parts();
        let host = parts.headers.get(http::header::HOST).and_then(|h| h.to_str().ok());
        let authority = parts.uri.authority().map(|a| a.as_str()).or(host).unwrap_or_default();
        let head = RequestHead {
            version: Version::Http2,
            method: parts.method.as_str().to_owned(),
            target: parts.uri.path_and_query().map_or("/", |t| t.as_str()).to_owned(),
            authority: authority.to_owned(),
            headers: headers(&parts.headers),
        };
        let stream = Stream {
            id,
            receive: Some(body),
            left: body_max,
            is_head: parts.method == Method::HEAD,
            answer: Answer::None(respond),
            rest: None,
            starved: false,
        };
        (stream, head)
    }

    /// False when the stream is over.
    fn advance(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) -> bool {
        if matches!(self.answer, Answer::Finished) {
            return false;
        }
        if self.is_reset(cx) || !self.receive(cx, events) {
            events.push(Event::Gone { id: self.id });
            return false;
        }
        self.send_rest();
        if let Answer::Body(send) = &mut self.answer {
            // Also registers for the next change of the window.
            let _ = send.poll_capacity(cx);
            if self.starved && send.capacity() > 0 {
                self.starved = false;
                events.push(Event::Writable { id: self.id });
            }
        }
        !matches!(self.answer, Answer::Finished)
    }

    fn is_reset(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.answer {
            Answer::None(respond) => respond.poll_reset(cx).is_ready(),
            Answer::Body(send) => send.poll_reset(cx).is_ready(),
            Answer::Bodiless | Answer::Finished => false,
        }
    }

    /// Takes in the body; false when the stream cannot go on.
    fn receive(&mut self, cx: &mut Context<'_>, events: &mut Vec<Event>) -> bool {
        let id = self.id;
        while let Some(receive) = &mut self.receive {
            match receive.poll_data(cx) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok(data))) => {
                    let _ = receive.flow_control().release_capacity(data.len());
                    let Some(left) = self.left.checked_sub(data.len() as u64) else {
                        return self.refuse(events);
                    };
                    self.left = left;
                    if !data.is_empty() {
                        // A copy: a kept part must not keep h2's read buffer.
                        events.push(Event::Body { id, data: Bytes::copy_from_slice(&data) });
                    }
                }
                Poll::Ready(Some(Err(_))) => return false,
                Poll::Ready(None) => {
                    self.receive = None;
                    events.push(Event::BodyEnd { id });
                }
            }
        }
        true
    }

    /// The body is longer than allowed.
    fn refuse(&mut self, events: &mut Vec<Event>) -> bool {
        if matches!(self.answer, Answer::None(_)) {
            self.respond(413, &[], Length::Exact(0));
            events.push(Event::Refused { status: 413 });
        } else if let Answer::Body(send) = &mut self.answer {
            send.send_reset(Reason::CANCEL);
        }
        false
    }

    fn respond(&mut self, status: u16, headers: &[(&str, &str)], length: Length) {
        let Answer::None(respond) = &mut self.answer else {
            panic!("a second answer to request {}", self.id)
        };
        let mut response = Response::new(());
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in headers.iter().filter(|(name, _)| !is_hop_header(name)) {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("header names are ours");
            if let Ok(value) = HeaderValue::from_str(&clean_value(value)) {
                response.headers_mut().append(name, value);
            }
        }
        let bodiless = self.is_head || status == 204 || status == 304 || length == Length::Exact(0);
        if let Length::Exact(n) = length
            && status != 204
            && (status != 304 || n > 0)
        {
            response.headers_mut().insert(http::header::CONTENT_LENGTH, n.into());
        }
        // An error means that the stream is reset, which the next poll sees.
        if let Ok(send) = respond.send_response(response, bodiless) {
            self.answer = if bodiless { Answer::Bodiless } else { Answer::Body(send) };
        }
    }

    fn write(&mut self, data: &[u8]) -> usize {
        let Answer::Body(send) = &mut self.answer else { return data.len() };
        send.reserve_capacity(data.len().min(SEND_BUFFER));
        let taken = data.len().min(send.capacity());
        if taken > 0 && send.send_data(Bytes::copy_from_slice(&data[..taken]), false).is_err() {
            return data.len();
        }
        taken
    }

    fn send_rest(&mut self) {
        let Some(mut rest) = self.rest.take() else { return };
        let taken = self.write(&rest);
        rest.advance(taken);
        if !rest.is_empty() {
            self.rest = Some(rest);
            return;
        }
        match &mut self.answer {
            // A failure means that the stream is reset; nobody waits for it any more.
            Answer::Body(send) => drop(send.send_data(Bytes::new(), true)),
            Answer::None(_) => return,
            Answer::Bodiless | Answer::Finished => {}
        }
        self.answer = Answer::Finished;
    }
}
