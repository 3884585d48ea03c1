//! One connection of a listener: socket, TLS, HTTP, and the answers that are on their way to the client.
//!
//! ```text
//!  Serving -> Closing -> Lingering -> Over
//! ```
//! Closing writes out what is left. Lingering has said that nothing more comes and throws away what the client
//! still sends: a socket that is closed with unread bytes in it takes back its last answer (RFC 9112, 9.6).

use super::tunnel::{BUFFER, Tunnel, Word};
use crate::shell::doors::splice::{Flow, Pump};
use bytes::{Buf, Bytes};
use mio::net::TcpStream;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::time::{Duration, Instant, SystemTime};
use steplet_core::effect::Reply;
use steplet_core::event::{Listener, User};
use steplet_core::ids::RequestId;
use steplet_core::time::{Mono, Span};
use steplet_wire::http_server::{Event, HttpServer, Length, Protocol, RequestHead};
use steplet_wire::tls::TlsSession;

/// A request's body; the only one that is looked at is that of a PUT.
const BODY_MAX: u64 = 64 * 1024;
/// What is kept of the body of a PUT, and how many such requests may be waiting for theirs.
const BODY_KEPT: usize = 1024;
const HELD_MOST: usize = 4;
/// Bytes read, and bytes written, before the HTTP connection is polled again.
const ROUND: usize = 64 * 1024;
const READ: usize = 16 * 1024;
/// How long one connection is served before others have their turn.
const SHARE: Duration = Duration::from_micros(500);
/// How long a handshake or the first head may take, how long a connection may be idle between requests, and how
/// long an answer may stand still (upstream: IdleTimeout 90 s, ReadTimeout and WriteTimeout 4 h).
const HEAD_TIME: Span = Span::from_secs(30);
const IDLE_TIME: Span = Span::from_secs(90);
const ANSWER_TIME: Span = Span::from_secs(4 * 3_600);
/// How long the client's last words are waited for.
const LINGER_TIME: Span = Span::from_secs(2);
/// A client that has taken nothing for this long may have to make room for others.
const STALL_TIME: Span = Span::from_secs(60);

pub struct Connection {
    socket: TcpStream,
    tls: Option<TlsSession>,
    /// None until TLS has agreed on a protocol, and when nothing more is asked.
    http: Option<HttpServer>,
    pub origin: Origin,
    phase: Phase,
    readable: bool,
    writable: bool,
    ended: bool,
    /// It was reset: to be known also of one that is neither read from nor written to.
    broken: bool,
    /// A request has come, so the next one has the longer idle time.
    served: bool,
    /// When a byte was written, or a request begun.
    progress: Mono,
    /// Requests whose answer the core may still begin or end.
    open: BTreeMap<u64, RequestId>,
    answers: BTreeMap<u64, Answer>,
    /// The client sends no more, though it may still read.
    half_closed: bool,
    /// The client does not take what there is for it.
    stuck: bool,
    /// The answer whose turn it is.
    next_answer: u64,
    /// Requests that are asked when their body is whole.
    held: BTreeMap<u64, (Box<RequestHead>, Vec<u8>)>,
    /// Of a request for a stream: what the runtime is to be told.
    head: Option<Box<RequestHead>>,
    /// It waits in the listener's queue.
    pub queued: bool,
}

/// Where a connection comes from.
#[derive(Clone, Copy)]
pub struct Origin {
    pub listener: Listener,
    /// From this machine.
    pub loopback: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Serving,
    Closing,
    Lingering { until: Mono },
    Over,
}

enum Answer {
    Whole(Bytes),
    Log { pump: Box<Pump>, begun: bool },
    Stream(Box<Tunnel>),
}

/// What the listener has to know.
pub enum Said {
    Request(u64, Box<RequestHead>, Bytes),
    /// The request is over before its answer was, or a log has come to its end.
    Gone(u64),
}

impl Connection {
    pub fn new(
        socket: TcpStream,
        tls: Option<TlsSession>,
        origin: Origin,
        now: Mono,
    ) -> Connection {
        let http = tls.is_none().then(|| HttpServer::new(Protocol::Http1, BODY_MAX));
        Connection {
            socket,
            tls,
            http,
            origin,
            phase: Phase::Serving,
            readable: true,
            writable: true,
            ended: false,
            broken: false,
            served: false,
            progress: now,
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            half_closed: false,
            stuck: false,
            next_answer: 0,
            held: BTreeMap::new(),
            head: None,
            queued: false,
        }
    }

    pub fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    pub fn ready(&mut self, event: &mio::event::Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.writable |= event.is_writable() || event.is_write_closed() || event.is_error();
        self.broken |= event.is_error();
    }

    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Nothing is asked any more.
    pub fn is_closing(&self) -> bool {
        self.phase != Phase::Serving
    }

    fn is_idle(&self) -> bool {
        // Who is slow with a body asks for nothing yet.
        let idle = !self.held.is_empty() || self.http.as_ref().is_none_or(HttpServer::is_idle);
        idle && self.open.is_empty() && self.answers.is_empty()
    }

    /// How willingly this connection is given up for a new one, and since when nothing has moved in it; None
    /// when it is not.
    pub fn spare(&self, now: Mono) -> Option<(u8, Mono)> {
        match self.phase {
            Phase::Lingering { .. } | Phase::Over => Some((0, self.progress)),
            _ if self.is_idle() => Some((1, self.progress)),
            _ if self.stands_still(now) => Some((2, self.progress)),
            _ => None,
        }
    }

    /// Its client has not taken anything for a while; a log that is followed may just be silent.
    fn stands_still(&self, now: Mono) -> bool {
        (self.stuck || !self.writable) && now.since(self.progress) > STALL_TIME
    }

    /// Requests under way, and bytes held for them.
    pub fn load(&self) -> (usize, usize) {
        let held = self.answers.values().map(|answer| match answer {
            Answer::Whole(body) => body.len(),
            Answer::Log { .. } | Answer::Stream(_) => 0,
        });
        (self.open.len().max(self.answers.len()), held.sum())
    }

    pub fn logs(&self) -> usize {
        self.answers.values().filter(|a| matches!(a, Answer::Log { .. })).count()
    }

    /// When the connection is given up.
    fn limit(&self) -> Mono {
        match self.phase {
            Phase::Lingering { until } => until,
            Phase::Closing => self.progress + HEAD_TIME,
            Phase::Over => self.progress,
            Phase::Serving if self.is_stream() => {
                let limits = self.answers.values().filter_map(|answer| match answer {
                    Answer::Stream(tunnel) => Some(tunnel.limit()),
                    Answer::Log { .. } | Answer::Whole(_) => None,
                });
                limits.min().unwrap_or(self.progress)
            }
            Phase::Serving if !self.is_idle() => self.progress + ANSWER_TIME,
            Phase::Serving if self.served => self.progress + IDLE_TIME,
            Phase::Serving => self.progress + HEAD_TIME,
        }
    }

    /// When the connection is given up, or a log is looked at again.
    pub fn deadline(&self) -> Mono {
        let looks = self.answers.values().filter_map(|answer| match answer {
            Answer::Log { pump, .. } => pump.look_at(),
            Answer::Whole(_) | Answer::Stream(_) => None,
        });
        looks.fold(self.limit(), Mono::min)
    }

    pub fn is_late(&self, now: Mono) -> bool {
        self.limit() <= now
    }

    /// Says farewell to a client that has been idle for long, or that waits for a stream in vain; false if there is
    /// no way to.
    pub fn wind_up(&mut self, now: Mono) -> bool {
        if self.phase == Phase::Serving && self.is_stream() {
            for answer in self.answers.values_mut() {
                if let Answer::Stream(tunnel) = answer
                    && tunnel.limit() <= now
                {
                    tunnel.give_up();
                }
            }
            return true;
        }
        let idle = self.phase == Phase::Serving && self.served && self.is_idle();
        let Some(http) = self.http.as_mut().filter(|_| idle) else { return false };
        http.close_when_idle();
        (self.progress, self.served) = (now, false);
        true
    }

    /// Who the client is by its certificate: looked at for each request, since time goes on.
    pub fn certificate(&self) -> Option<Result<User, String>> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let client = self.tls.as_ref()?.client(now.as_secs())?;
        if let Some(why) = client.refused {
            log::info!("A client certificate does not count: {why}");
            return Some(Err(why));
        }
        let (name, groups) = (client.subject.common_name, client.subject.organizations);
        if name.is_empty() {
            return Some(Err("its subject has no common name".into()));
        }
        Some(Ok(User { name, groups, ..User::default() }))
    }

    pub fn opened(&mut self, id: u64, request: RequestId) {
        self.open.insert(id, request);
    }

    /// The core has no more to do with this request.
    pub fn settled(&mut self, id: u64) -> Option<RequestId> {
        self.open.remove(&id)
    }

    /// The requests that the core still has to do with.
    pub fn open(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    pub fn reply(&mut self, id: u64, reply: Reply, date: &str) {
        let Some(http) = &mut self.http else { return };
        let mut headers = vec![("content-type", &*reply.content_type), ("date", date)];
        if reply.status == 429 {
            headers.push(("retry-after", "1"));
        }
        http.respond(id, reply.status, &headers, Length::Exact(reply.body.len() as u64));
        self.answers.insert(id, Answer::Whole(reply.body));
    }

    pub fn start_log(&mut self, id: u64, mut pump: Pump) {
        if self.half_closed {
            pump.end();
        }
        self.answers.insert(id, Answer::Log { pump: Box::new(pump), begun: false });
    }

    /// Of a request that wants a stream.
    pub fn keep_head(&mut self, head: &RequestHead) {
        self.head = Some(Box::new(head.clone()));
    }

    pub fn take_head(&mut self) -> Option<Box<RequestHead>> {
        self.head.take()
    }

    pub fn start_stream(&mut self, id: u64, tunnel: Tunnel) {
        self.answers.insert(id, Answer::Stream(Box::new(tunnel)));
    }

    pub fn is_stream(&self) -> bool {
        self.answers.values().any(|answer| matches!(answer, Answer::Stream(_)))
    }

    pub fn stream_ready(&mut self, event: &mio::event::Event) {
        for answer in self.answers.values_mut() {
            if let Answer::Stream(tunnel) = answer {
                tunnel.ready(event);
            }
        }
    }

    fn tunnel(&mut self, id: u64) -> Option<&mut Tunnel> {
        match self.answers.get_mut(&id) {
            Some(Answer::Stream(tunnel)) => Some(tunnel),
            _ => None,
        }
    }

    pub fn end_log(&mut self, id: u64) {
        if let Some(Answer::Log { pump, .. }) = self.answers.get_mut(&id) {
            pump.end();
        }
    }

    /// Reads, answers and writes until nothing moves or its share of the turn is used up: then it is true, and
    /// wants to be called again without a word from the socket.
    pub fn go_on(&mut self, now: Mono, date: &str, said: &mut Vec<Said>) -> bool {
        let until = Instant::now() + SHARE;
        loop {
            match self.round(now, until, date, said) {
                Ok(true) if Instant::now() < until => {}
                Ok(moved) => return moved,
                Err(error) => {
                    log::debug!("A connection is broken: {error}");
                    self.phase = Phase::Over;
                }
            }
            if self.is_over() {
                return false;
            }
        }
    }

    fn round(
        &mut self,
        now: Mono,
        until: Instant,
        date: &str,
        said: &mut Vec<Said>,
    ) -> io::Result<bool> {
        if self.broken {
            return Err(self.socket.take_error()?.unwrap_or(ErrorKind::ConnectionReset.into()));
        }
        let read = self.read(now)?;
        self.poll(now, said);
        let fed = self.feed(now, until, date, said);
        let written = self.write(now)?;
        if self.phase == Phase::Closing && !self.has_output() {
            self.linger(now)?;
        }
        Ok(read || fed || written)
    }

    fn read(&mut self, now: Mono) -> io::Result<bool> {
        let mut buffer = [0; READ];
        let (mut total, ended) = (0, self.ended);
        // A stream hands on what was read before more is taken.
        let (size, most) = if self.is_stream() { (BUFFER / 2, 1) } else { (READ, ROUND) };
        while self.readable && !self.ended && total < most && self.wants_input() {
            match self.socket.read(&mut buffer[..size]) {
                Ok(0) => self.end_input(),
                Ok(n) => {
                    total += n;
                    self.take_in(&buffer[..n], now);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(total > 0 || self.ended != ended)
    }

    fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Serving => {
                let takes = |answer: &Answer| match answer {
                    Answer::Stream(tunnel) => tunnel.wants_input(),
                    Answer::Log { .. } | Answer::Whole(_) => true,
                };
                self.answers.values().all(takes)
                    && self.http.as_ref().is_none_or(HttpServer::wants_input)
            }
            Phase::Lingering { .. } => true,
            Phase::Closing | Phase::Over => false,
        }
    }

    fn end_input(&mut self) {
        self.ended = true;
        match &mut self.http {
            Some(http) if self.phase == Phase::Serving => http.feed_eof(),
            _ => self.phase = Phase::Over,
        }
    }

    fn take_in(&mut self, bytes: &[u8], now: Mono) {
        if self.phase != Phase::Serving {
            return;
        }
        let Some(tls) = &mut self.tls else {
            if let Some(http) = &mut self.http {
                http.feed(bytes);
            }
            return;
        };
        let mut plain = Vec::new();
        let fed = tls.feed(bytes, |part| plain.extend_from_slice(part));
        if self.http.is_none() && !tls.is_handshaking() {
            self.http = Some(HttpServer::new(Protocol::from_alpn(tls.alpn()), BODY_MAX));
            self.progress = now;
        }
        if let Some(http) = &mut self.http {
            http.feed(&plain);
            if tls.is_ended() {
                http.feed_eof();
            }
        }
        if let Err(broken) = fed {
            log::debug!("A client's TLS is broken: {}", broken.0);
            self.close();
        }
    }

    /// Nothing more is asked or answered; what is under way to the socket goes out.
    fn close(&mut self) {
        self.phase = Phase::Closing;
        self.answers.clear();
        self.http = None;
    }

    fn poll(&mut self, now: Mono, said: &mut Vec<Said>) {
        let Some(events) = self.http.as_mut().map(HttpServer::poll) else { return };
        let mut closed = false;
        for event in events {
            match event {
                Event::Request { id, head } => {
                    self.served = true;
                    self.progress = now;
                    if head.method == "PUT" && self.held.len() < HELD_MOST {
                        self.held.insert(id, (head, Vec::new()));
                    } else {
                        said.push(Said::Request(id, head, Bytes::new()));
                    }
                }
                Event::Gone { id } => {
                    self.held.remove(&id);
                    self.answers.remove(&id);
                    said.push(Said::Gone(id));
                }
                // Short answers go out; a log that would go on for ever ends where it is.
                Event::HalfClosed { id } => {
                    self.half_closed = true;
                    if let Some(Answer::Log { pump, .. }) = self.answers.get_mut(&id) {
                        pump.end();
                    }
                }
                Event::Refused { status } => log::debug!("Refused a request with {status}"),
                Event::Closed => closed = true,
                Event::Body { id, data } => {
                    self.progress = now;
                    if let Some((_, body)) = self.held.get_mut(&id) {
                        let room = BODY_KEPT.saturating_sub(body.len()).min(data.len());
                        body.extend_from_slice(&data[..room]);
                    }
                    if let Some(tunnel) = self.tunnel(id) {
                        tunnel.feed(&data);
                    }
                }
                Event::BodyEnd { id } => {
                    if let Some((head, body)) = self.held.remove(&id) {
                        said.push(Said::Request(id, head, body.into()));
                    }
                    if let Some(tunnel) = self.tunnel(id) {
                        tunnel.client_ended();
                    }
                }
                Event::Writable { .. } => {}
            }
        }
        if closed && self.phase == Phase::Serving {
            self.phase = Phase::Closing;
            self.answers.clear();
        }
    }

    /// Hands on what the answers have, each in its turn. True if anything moved.
    fn feed(&mut self, now: Mono, until: Instant, date: &str, said: &mut Vec<Said>) -> bool {
        let Some(http) = &mut self.http else { return false };
        let mut moved = false;
        self.stuck = false;
        let (before, after): (Vec<u64>, Vec<u64>) =
            self.answers.keys().partition(|id| **id < self.next_answer);
        for id in after.into_iter().chain(before) {
            let Some(answer) = self.answers.get_mut(&id) else { continue };
            self.next_answer = id;
            loop {
                if moved && Instant::now() >= until {
                    return true;
                }
                match answer.send(http, id, now, date) {
                    Sent::Some => moved = true,
                    Sent::Nothing => break,
                    Sent::Stuck => {
                        self.stuck = true;
                        break;
                    }
                    Sent::All => {
                        moved = true;
                        self.answers.remove(&id);
                        said.push(Said::Gone(id));
                        break;
                    }
                }
            }
        }
        moved
    }

    fn has_output(&mut self) -> bool {
        let plain = self.http.as_mut().is_some_and(|http| !http.output().is_empty());
        plain || self.tls.as_ref().is_some_and(TlsSession::wants_write)
    }

    fn write(&mut self, now: Mono) -> io::Result<bool> {
        let mut total = 0;
        let is_stream = self.is_stream();
        while self.writable && total < ROUND {
            let written = match (&mut self.tls, &mut self.http) {
                (Some(tls), http) => {
                    // TLS would take four times what a stream may hold.
                    if let Some(http) = http
                        && !(is_stream && tls.wants_write())
                    {
                        let taken = tls.write(http.output());
                        http.consume_output(taken);
                    }
                    if !tls.wants_write() {
                        break;
                    }
                    tls.write_to(&mut self.socket)
                }
                (None, Some(http)) => {
                    let output = http.output();
                    if output.is_empty() {
                        break;
                    }
                    let written = self.socket.write(output);
                    http.consume_output(*written.as_ref().unwrap_or(&0));
                    written
                }
                (None, None) => break,
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => total += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if total > 0 {
            self.progress = now;
        }
        Ok(total > 0)
    }

    /// Everything is written: says so, and waits for the client to do the same.
    fn linger(&mut self, now: Mono) -> io::Result<()> {
        if let Some(tls) = &mut self.tls
            && self.http.take().is_some()
        {
            tls.close();
            // If the socket does not take it at once, its end must do.
            while tls.wants_write() && tls.write_to(&mut self.socket).is_ok_and(|n| n > 0) {}
        }
        if self.ended {
            self.phase = Phase::Over;
            return Ok(());
        }
        self.socket.shutdown(std::net::Shutdown::Write)?;
        self.phase = Phase::Lingering { until: now + LINGER_TIME };
        Ok(())
    }
}

enum Sent {
    /// There may be more.
    Some,
    /// Nothing for now.
    Nothing,
    /// The client has to take something first.
    Stuck,
    All,
}

impl Answer {
    /// One slice of the answer.
    fn send(&mut self, http: &mut HttpServer, id: u64, now: Mono, date: &str) -> Sent {
        let (pump, begun) = match self {
            Answer::Whole(body) => {
                let taken = http.write_body(id, body);
                body.advance(taken);
                return match (body.is_empty(), taken) {
                    (true, _) => {
                        http.finish(id);
                        Sent::All
                    }
                    (false, 0) => Sent::Stuck,
                    (false, _) => Sent::Some,
                };
            }
            Answer::Stream(tunnel) => return stream(tunnel, http, id, date),
            Answer::Log { pump, begun } => (pump, begun),
        };
        let kind = pump.content_type();
        let flow = pump.go_on(now);
        if !*begun && !matches!(flow, Flow::More | Flow::Broken(_)) {
            *begun = true;
            let headers = [("content-type", kind), ("date", date)];
            http.respond(id, 200, &headers, Length::Unknown);
        }
        match flow {
            Flow::Bytes(bytes) => {
                let taken = http.write_body(id, bytes);
                pump.consume(taken);
                if taken == 0 { Sent::Stuck } else { Sent::Some }
            }
            Flow::More => Sent::Some,
            Flow::Wait => Sent::Nothing,
            Flow::Through => {
                http.finish(id);
                Sent::All
            }
            Flow::Broken(why) if *begun => {
                log::warn!("A log breaks off: {why}");
                http.abort(id);
                Sent::All
            }
            Flow::Broken(why) => {
                let headers = [("content-type", "text/plain; charset=utf-8"), ("date", date)];
                http.reply(id, 400, &headers, format!("{why}\n").into());
                Sent::All
            }
        }
    }
}

/// One slice of a stream: to the client what the runtime has, to the runtime what the client has sent.
fn stream(tunnel: &mut Tunnel, http: &mut HttpServer, id: u64, date: &str) -> Sent {
    match tunnel.go_on() {
        Word::Upgrade(headers) => {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            http.respond(id, 101, &headers, Length::Tunnel);
            Sent::Some
        }
        Word::Refusal(status, text) => {
            let headers = [("content-type", "text/plain; charset=utf-8"), ("date", date)];
            http.reply(id, status, &headers, text.into());
            Sent::All
        }
        Word::Bytes => {
            let room = BUFFER.saturating_sub(http.output().len());
            if room == 0 {
                return Sent::Stuck;
            }
            let input = tunnel.input();
            let taken = http.write_body(id, &input[..input.len().min(room)]);
            tunnel.consume(taken);
            if taken == 0 { Sent::Stuck } else { Sent::Some }
        }
        Word::Wait => Sent::Nothing,
        Word::Over => {
            http.finish(id);
            Sent::All
        }
    }
}
