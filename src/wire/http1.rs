//! The server side of an HTTP/1.0 or HTTP/1.1 connection. Use it through
//! [`crate::http_server::HttpServer`].
//!
//! ```text
//!  reading   Head -> Body -> Answer -> Head ...        the client's half
//!                               \-> Tunnel             after status 101
//!            any -> Over                               end, refusal, or no keep-alive
//!  writing   Head -> Body(framing) -> Finished         the half of the open exchange
//! ```
//! The next head is read only when both halves of an exchange are through, so pipelined requests
//! wait in the input. A body that the answer did not wait for is read over, within the same bound.

use bytes::{Buf, Bytes, BytesMut};

use crate::http_server::{Event, Length, Version};
use crate::outbox::{Outbox, release_if_idle};

use body::{BodyReader, Part};
use head::Refusal;

mod answer;
mod body;
pub(crate) mod head;

pub use answer::{AnswerHead, NoAnswer};

/// Most bytes in a request's head, Go's `MaxHeaderBytes` as kubelet leaves it.
const HEAD_MAX: usize = 1024 * 1024;
/// Input beyond this waits in the socket, unless it belongs to a head.
const INPUT_MAX: usize = 64 * 1024;
/// Room kept for what frames a chunk: sixteen digits at most and two line ends.
const CHUNK_FRAME: usize = 20;

pub struct Http1 {
    body_max: u64,
    input: BytesMut,
    input_ended: bool,
    out: Outbox,
    reading: Reading,
    exchange: Option<Exchange>,
    last_id: u64,
    /// No request after the open one.
    last: bool,
    closed_said: bool,
}

enum Reading {
    Head {
        scanned: usize,
    },
    Body(BodyReader),
    /// The request is whole; its answer is not.
    Answer,
    Tunnel,
    /// The client has ended the tunnel on its side.
    TunnelOver,
    Over,
}

/// A request and its answer.
struct Exchange {
    id: u64,
    version: Version,
    is_head: bool,
    keep_alive: bool,
    writing: Writing,
    /// What `finish_with` left to send.
    rest: Option<Bytes>,
    /// A write was not taken whole.
    starved: bool,
    half_closed_said: bool,
}

enum Writing {
    Head,
    Body(Framing),
    Finished,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// Answers without a body: to HEAD, and of status 204 and 304.
    Nothing,
    Length(u64),
    Chunked,
    /// For HTTP/1.0: the end of the connection is the end of the body.
    UntilClose,
    Tunnel,
}

impl Http1 {
    pub fn new(body_max: u64) -> Http1 {
        Http1 {
            body_max,
            input: BytesMut::new(),
            input_ended: false,
            out: Outbox::default(),
            reading: Reading::Head { scanned: 0 },
            exchange: None,
            last_id: 0,
            last: false,
            closed_said: false,
        }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        if !matches!(self.reading, Reading::Over) {
            self.input.extend_from_slice(bytes);
        }
    }

    pub fn feed_eof(&mut self) {
        self.input_ended = true;
    }

    pub fn wants_input(&self) -> bool {
        let max = match self.reading {
            Reading::Head { .. } => HEAD_MAX + INPUT_MAX,
            Reading::Over => 0,
            _ => INPUT_MAX,
        };
        !self.input_ended && self.input.len() < max
    }

    pub fn output(&mut self) -> &[u8] {
        self.out.bytes()
    }

    pub fn consume_output(&mut self, n: usize) {
        self.out.consume(n);
    }

    pub fn is_idle(&self) -> bool {
        self.exchange.is_none()
    }

    pub fn close_when_idle(&mut self) {
        self.last = true;
        if let Some(exchange) = &mut self.exchange {
            exchange.keep_alive = false;
        }
    }

    pub fn poll(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.send_rest();
        if let Some(exchange) = &mut self.exchange
            && exchange.starved
            && self.out.room() > CHUNK_FRAME
        {
            exchange.starved = false;
            events.push(Event::Writable { id: exchange.id });
        }
        while self.step(&mut events) {}
        release_if_idle(&mut self.input);
        events
    }

    /// Takes one step of the reading half; false if there is none to take.
    fn step(&mut self, events: &mut Vec<Event>) -> bool {
        let id = self.exchange.as_ref().map_or(self.last_id, |e| e.id);
        let answered =
            self.exchange.as_ref().is_none_or(|e| matches!(e.writing, Writing::Finished));
        match &mut self.reading {
            Reading::Head { .. } => return self.read_head(events),
            Reading::Body(reader) => match reader.next(&mut self.input) {
                Ok(Part::Data(_)) if answered => {}
                Ok(Part::Data(data)) => events.push(Event::Body { id, data }),
                Ok(Part::End) => {
                    self.reading = Reading::Answer;
                    if !answered {
                        events.push(Event::BodyEnd { id });
                    }
                }
                Ok(Part::Wait) if self.input_ended => self.break_off(events),
                Ok(Part::Wait) => return false,
                Err(refusal) => self.refuse(refusal, events),
            },
            Reading::Answer if answered => self.next_exchange(),
            Reading::Answer => return self.watch_for_the_end(events),
            Reading::Tunnel if !self.input.is_empty() => {
                let data = Bytes::copy_from_slice(&self.input);
                self.input.clear();
                events.push(Event::Body { id, data });
            }
            Reading::Tunnel if self.input_ended => {
                self.reading = Reading::TunnelOver;
                events.push(Event::BodyEnd { id });
            }
            Reading::Tunnel | Reading::TunnelOver if answered => self.end(),
            Reading::Tunnel | Reading::TunnelOver => return false,
            Reading::Over => {
                // A refused or broken-off connection has no exchange; a finished one only has
                // output.
                if self.closed_said {
                    return false;
                }
                self.closed_said = true;
                events.push(Event::Closed);
            }
        }
        true
    }

    fn read_head(&mut self, events: &mut Vec<Event>) -> bool {
        let Reading::Head { scanned } = &mut self.reading else { return false };
        // Some clients send an empty line after a body (RFC 9112, section 2.2).
        while *scanned == 0 && self.input.starts_with(b"\r\n") {
            self.input.advance(2);
        }
        let end = head::head_end(&self.input, scanned);
        if end.unwrap_or(self.input.len()) > HEAD_MAX {
            self.refuse(Refusal(431), events);
        } else if let Some(end) = end {
            let bytes = self.input.split_to(end);
            match self.begin(&bytes) {
                Ok(event) => events.push(event),
                Err(refusal) => self.refuse(refusal, events),
            }
        } else if self.input_ended || (self.last && self.input.is_empty()) {
            self.end();
        } else {
            return false;
        }
        true
    }

    fn begin(&mut self, head: &[u8]) -> Result<Event, Refusal> {
        let parsed = head::parse(head)?;
        let reader = BodyReader::new(parsed.body, self.body_max)?;
        let has_body = parsed.body != head::BodyKind::Length(0);
        if parsed.expects_continue && has_body && self.input.is_empty() {
            self.out.put(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.last_id += 1;
        self.reading = Reading::Body(reader);
        self.exchange = Some(Exchange {
            id: self.last_id,
            version: parsed.head.version,
            is_head: parsed.head.method == "HEAD",
            keep_alive: parsed.keep_alive && !self.last,
            writing: Writing::Head,
            rest: None,
            starved: false,
            half_closed_said: false,
        });
        Ok(Event::Request { id: self.last_id, head: Box::new(parsed.head) })
    }

    fn watch_for_the_end(&mut self, events: &mut Vec<Event>) -> bool {
        match &mut self.exchange {
            Some(exchange) if self.input_ended && !exchange.half_closed_said => {
                exchange.half_closed_said = true;
                events.push(Event::HalfClosed { id: exchange.id });
                true
            }
            _ => false,
        }
    }

    fn next_exchange(&mut self) {
        let keep_alive = self.exchange.take().is_some_and(|e| e.keep_alive);
        if keep_alive {
            self.reading = Reading::Head { scanned: 0 };
        } else {
            self.end();
        }
    }

    /// Answers in place of the caller, if no answer has begun, and reads nothing more.
    fn refuse(&mut self, refusal: Refusal, events: &mut Vec<Event>) {
        let unanswered = self.exchange.as_ref().is_none_or(|e| matches!(e.writing, Writing::Head));
        if unanswered {
            self.out.put(head::refusal(refusal.0).as_bytes());
            events.push(Event::Refused { status: refusal.0 });
        }
        self.break_off(events);
    }

    /// Ends the connection, and with it an exchange that is not finished.
    fn break_off(&mut self, events: &mut Vec<Event>) {
        if let Some(exchange) = self.exchange.take()
            && !matches!(exchange.writing, Writing::Finished)
        {
            events.push(Event::Gone { id: exchange.id });
        }
        self.end();
    }

    fn end(&mut self) {
        self.exchange = None;
        self.input = BytesMut::new();
        self.reading = Reading::Over;
    }

    fn open(&mut self, id: u64) -> Option<&mut Exchange> {
        self.exchange.as_mut().filter(|e| e.id == id)
    }

    pub fn respond(&mut self, id: u64, status: u16, headers: &[(&str, &str)], length: Length) {
        let tunnel = length == Length::Tunnel;
        assert!(
            if tunnel { status == 101 } else { (200..600).contains(&status) },
            "status {status}"
        );
        let at_body_end = matches!(self.reading, Reading::Answer);
        let Some(exchange) = self.open(id) else { return };
        assert!(matches!(exchange.writing, Writing::Head), "a second answer to request {id}");
        if tunnel && !at_body_end {
            // An upgrade whose request still has a body to come cannot be told from the tunnel's
            // bytes.
            return self.end();
        }
        let mut head = head::status_and_headers(status, headers);
        let bodiless = exchange.is_head || status == 204 || status == 304;
        let framing = match length {
            Length::Tunnel => Framing::Tunnel,
            Length::Exact(n) => {
                if status != 204 && (status != 304 || n > 0) {
                    head.push_str(&format!("Content-Length: {n}\r\n"));
                }
                Framing::Length(n)
            }
            Length::Unknown if exchange.version == Version::Http10 => Framing::UntilClose,
            Length::Unknown => {
                if status != 204 && status != 304 {
                    head.push_str("Transfer-Encoding: chunked\r\n");
                }
                Framing::Chunked
            }
        };
        exchange.keep_alive &= bodiless || framing != Framing::UntilClose;
        match (exchange.keep_alive, exchange.version) {
            _ if tunnel => {}
            (false, _) => head.push_str("Connection: close\r\n"),
            (true, Version::Http10) => head.push_str("Connection: keep-alive\r\n"),
            (true, _) => {}
        }
        head.push_str("\r\n");
        exchange.writing = Writing::Body(if bodiless { Framing::Nothing } else { framing });
        self.out.put(head.as_bytes());
        if tunnel {
            self.reading = Reading::Tunnel;
        }
    }

    pub fn write_body(&mut self, id: u64, data: &[u8]) -> usize {
        let room = self.out.room();
        let Some(exchange) = self.exchange.as_mut().filter(|e| e.id == id) else {
            return data.len();
        };
        let Writing::Body(framing) = &mut exchange.writing else {
            panic!("a body of request {id} outside its answer")
        };
        let taken = match framing {
            Framing::Nothing => return data.len(),
            Framing::Chunked => data.len().min(room.saturating_sub(CHUNK_FRAME)),
            _ => data.len().min(room),
        };
        if let Framing::Length(left) = framing {
            assert!(data.len() as u64 <= *left, "request {id}: a body longer than its length");
            *left -= taken as u64;
        }
        exchange.starved = taken < data.len();
        if *framing != Framing::Chunked {
            self.out.put(&data[..taken]);
        } else if taken > 0 {
            self.out.put(format!("{taken:x}\r\n").as_bytes());
            self.out.put(&data[..taken]);
            self.out.put(b"\r\n");
        }
        taken
    }

    pub fn finish_with(&mut self, id: u64, rest: Bytes) {
        let Some(exchange) = self.open(id) else { return };
        assert!(
            matches!(exchange.writing, Writing::Body(_)),
            "request {id} has no answer to finish"
        );
        exchange.rest = Some(rest);
        self.send_rest();
    }

    fn send_rest(&mut self) {
        let Some(exchange) = &mut self.exchange else { return };
        let Some(mut rest) = exchange.rest.take() else { return };
        let id = exchange.id;
        let taken = self.write_body(id, &rest);
        rest.advance(taken);
        let Some(exchange) = &mut self.exchange else { return };
        exchange.starved = false;
        if !rest.is_empty() {
            exchange.rest = Some(rest);
            return;
        }
        match exchange.writing {
            Writing::Body(Framing::Chunked) => self.out.put(b"0\r\n\r\n"),
            // Shorter than promised: only the end of the connection tells the client.
            Writing::Body(Framing::Length(1..)) => exchange.keep_alive = false,
            _ => {}
        }
        exchange.writing = Writing::Finished;
    }

    pub fn abort(&mut self, id: u64) {
        if self.open(id).is_some() {
            self.end();
        }
    }
}
