//! Calls to the container runtime: gRPC over a unix socket.
//!
//! A connection is made when a call needs it. While there is none, calls end as `Unavailable` at
//! once: the core decides when to try again, this door only keeps it from knocking too often.

use super::{Door, Inbox, reason};
use bytes::Bytes;
use mio::net::UnixStream;
use mio::{Interest, Registry};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use steplet_core::effect;
use steplet_core::event::{Outcome, RpcError};
use steplet_core::ids::Token;
use steplet_core::time::{Mono, Span};
use steplet_wire::canon::{self, Shape};
use steplet_wire::grpc_client::{Event, GrpcClient};
use steplet_wire::grpc_status::{Code, GrpcStatus};

/// Between two attempts to connect; doubles from the first to the second
/// (staging/src/k8s.io/cri-client/pkg/remote_runtime.go).
const BACK_OFF: Span = Span::from_millis(100);
const BACK_OFF_MAX: Span = Span::from_secs(3);
/// Calls under way on one connection; a runtime that answers none must not fill the memory.
const CALLS_MAX: usize = 4096;
/// Bytes read from one connection in a turn, so that a talkative runtime cannot hold the loop.
const READ_PER_TURN: usize = 1 << 20;
const BUFFER: usize = 64 * 1024;

pub struct Rpc {
    registry: Registry,
    links: Vec<Link>,
    /// The link of `Peer::Images`; that of `Peer::Runtime` is 0.
    images: usize,
    calls: BTreeMap<Token, Call>,
    deadlines: BTreeSet<(Mono, Token)>,
    buffer: Box<[u8]>,
}

struct Call {
    link: usize,
    deadline: Option<Mono>,
    /// The path, for a list whose answer may be `Same`.
    list: Option<Cow<'static, str>>,
    answer: Answer,
}

enum Answer {
    None,
    One(Bytes),
    TooMany,
}

/// A runtime's socket, connected or not.
struct Link {
    index: usize,
    path: PathBuf,
    up: Option<Up>,
    retry_at: Mono,
    back_off: Span,
    /// Why there is no connection.
    down: String,
    /// The digest of the last list given to the core, for each path.
    last: BTreeMap<Cow<'static, str>, u128>,
}

struct Up {
    stream: UnixStream,
    client: GrpcClient,
    /// The socket may hold bytes that no event will announce again.
    readable: bool,
    /// The other end has closed: a short read is then not the last one.
    closed: bool,
    /// The socket took no more, and an event is asked for when it does.
    blocked: bool,
    /// The client has not been polled since it was given something.
    stale: bool,
}

impl Rpc {
    /// The sockets of the two services; if they are one, one connection serves both.
    pub fn new(registry: Registry, runtime: &Path, images: &Path) -> Rpc {
        let mut links = vec![Link::new(0, runtime)];
        if images != runtime {
            links.push(Link::new(1, images));
        }
        Rpc {
            registry,
            images: links.len() - 1,
            links,
            calls: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            buffer: vec![0; BUFFER].into(),
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub fn busy(&self) -> bool {
        self.links.iter().filter_map(|link| link.up.as_ref()).any(Up::can_read)
    }

    pub fn call(&mut self, token: Token, rpc: effect::Rpc, now: Mono, inbox: &mut Inbox) {
        let at = match rpc.peer {
            effect::Peer::Runtime => 0,
            effect::Peer::Images => self.images,
        };
        let link = &mut self.links[at];
        let up = match link.connected(&self.registry, now) {
            Ok(up) if up.client.open_calls() < CALLS_MAX => up,
            Ok(_) => return inbox.done(token, unavailable("too many calls under way")),
            Err(why) => return inbox.done(token, unavailable(why)),
        };
        let timeout_ms = rpc.within.map(Span::millis);
        up.client.call(token.0, &rpc.path, rpc.body, timeout_ms);
        up.stale = true;
        let deadline = rpc.within.map(|within| now + within);
        self.deadlines.extend(deadline.map(|at| (at, token)));
        if !rpc.same_as_last {
            // The core will know more than the last list that it was given.
            link.last.remove(&*rpc.path);
        }
        let list = rpc.same_as_last.then_some(rpc.path);
        self.calls.insert(token, Call { link: at, deadline, list, answer: Answer::None });
    }

    /// The core gave the call up; that it has seen its answer is no longer known.
    pub fn cancel(&mut self, token: Token) {
        let Some(call) = self.forget(token) else { return };
        let link = &mut self.links[call.link];
        if let Some(up) = &mut link.up {
            up.client.cancel(token.0);
            up.stale = true;
        }
    }

    /// The core may not have seen the lists that were given to it last.
    pub fn forget_lists(&mut self) {
        self.links.iter_mut().for_each(|link| link.last.clear());
    }

    pub fn expire(&mut self, now: Mono, inbox: &mut Inbox) {
        while let Some(&(at, token)) = self.deadlines.first()
            && at <= now
        {
            self.cancel(token);
            let code = RpcError::DEADLINE_EXCEEDED;
            let message = "context deadline exceeded".to_owned();
            inbox.done(token, Outcome::Rpc(Err(RpcError { code, message })));
        }
    }

    pub fn ready(&mut self, at: usize, event: &mio::event::Event, now: Mono, inbox: &mut Inbox) {
        let Some(up) = &mut self.links[at].up else { return };
        up.readable |= event.is_readable() || event.is_read_closed();
        up.closed |= event.is_read_closed();
        up.stale |= event.is_writable();
        self.pump(at, now, inbox);
    }

    /// Writes what is left to write, and reads on where the last turn stopped.
    pub fn flush(&mut self, now: Mono, inbox: &mut Inbox) {
        for at in 0..self.links.len() {
            if self.links[at].up.as_ref().is_some_and(|up| up.stale || up.can_read()) {
                self.pump(at, now, inbox);
            }
        }
    }

    fn pump(&mut self, at: usize, now: Mono, inbox: &mut Inbox) {
        let mut left = READ_PER_TURN;
        while let Some(up) = &mut self.links[at].up {
            let events = up.drive(&self.registry, at);
            for event in events {
                self.take(at, event, now, inbox);
            }
            let Some(up) = &mut self.links[at].up else { return };
            if left == 0 || !up.can_read() {
                return;
            }
            let read = up.read(&mut self.buffer);
            left = left.saturating_sub(read);
            if read > 0 {
                self.links[at].back_off = BACK_OFF;
            }
        }
    }

    fn take(&mut self, at: usize, event: Event, now: Mono, inbox: &mut Inbox) {
        match event {
            Event::Message { id, body } => {
                if let Some(call) = self.calls.get_mut(&Token(id)) {
                    call.answer = match call.answer {
                        Answer::None => Answer::One(body),
                        Answer::One(_) | Answer::TooMany => Answer::TooMany,
                    };
                }
            }
            Event::Done { id, status } => {
                let token = Token(id);
                let Some(call) = self.forget(token) else { return };
                let outcome = match answer(status, call.answer) {
                    Ok(body) => match call.list {
                        Some(path) => self.links[at].compare(path, body),
                        None => Outcome::Rpc(Ok(body)),
                    },
                    Err(error) => Outcome::Rpc(Err(error)),
                };
                inbox.done(token, outcome);
            }
            Event::Closed(why) => {
                let link = &mut self.links[at];
                log::warn!("The connection to {} has ended: {why}", link.path.display());
                link.fail(why, now);
            }
        }
    }

    fn forget(&mut self, token: Token) -> Option<Call> {
        let call = self.calls.remove(&token)?;
        if let Some(at) = call.deadline {
            self.deadlines.remove(&(at, token));
        }
        Some(call)
    }
}

impl Link {
    fn new(index: usize, path: &Path) -> Link {
        Link {
            index,
            path: path.to_owned(),
            up: None,
            retry_at: Mono(0),
            back_off: BACK_OFF,
            down: String::new(),
            last: BTreeMap::new(),
        }
    }

    /// The connection, made now if there is none and the back-off allows it; else why there is
    /// none.
    fn connected(&mut self, registry: &Registry, now: Mono) -> Result<&mut Up, String> {
        let leaving = |up: &Up| !up.client.accepts_calls() && up.client.open_calls() == 0;
        if self.up.as_ref().is_some_and(leaving) {
            self.up = None;
        }
        if self.up.is_none() {
            if now < self.retry_at {
                return Err(self.down.clone());
            }
            match Up::connect(registry, &self.path, Door::Rpc.token(self.index)) {
                Ok(up) => {
                    log::info!("Connected to {}", self.path.display());
                    self.up = Some(up);
                }
                Err(error) => {
                    let why =
                        format!("cannot connect to {}: {}", self.path.display(), reason(&error));
                    if why != self.down {
                        log::warn!("{why}");
                    }
                    self.fail(why, now);
                    return Err(self.down.clone());
                }
            }
        }
        Ok(self.up.as_mut().expect("connected above"))
    }

    fn fail(&mut self, why: String, now: Mono) {
        // Closing the descriptor also ends the interest in it.
        self.up = None;
        self.down = why;
        self.retry_at = now + self.back_off;
        self.back_off = Span(self.back_off.times(2).0.min(BACK_OFF_MAX.0));
    }

    /// `Same`, or the list in its canonical form.
    fn compare(&mut self, path: Cow<'static, str>, list: Bytes) -> Outcome {
        let Some(shape) = shape(&path) else { return Outcome::Rpc(Ok(list)) };
        let Ok(digest) = canon::digest(&list, shape) else {
            // The core's own decoder says what is wrong with it.
            self.last.remove(&path);
            return Outcome::Rpc(Ok(list));
        };
        if self.last.get(&path) == Some(&digest) {
            return Outcome::Same;
        }
        self.last.insert(path, digest);
        Outcome::Rpc(Ok(canon::canonical(&list, shape).map_or(list, Bytes::from)))
    }
}

impl Up {
    fn connect(registry: &Registry, path: &Path, token: mio::Token) -> io::Result<Up> {
        let mut stream = UnixStream::connect(path)?;
        registry.register(&mut stream, token, Interest::READABLE)?;
        let client = GrpcClient::new("localhost");
        Ok(Up { stream, client, readable: true, closed: false, blocked: false, stale: true })
    }

    fn can_read(&self) -> bool {
        self.readable && self.client.wants_input()
    }

    /// Lets the client go on, and writes what it has to say until the socket takes no more.
    fn drive(&mut self, registry: &Registry, at: usize) -> Vec<Event> {
        self.stale = false;
        let mut events = Vec::new();
        loop {
            events.append(&mut self.client.poll());
            let output = self.client.output();
            if output.is_empty() {
                self.interest(registry, at, false);
                return events;
            }
            match self.stream.write(output) {
                Ok(n) => self.client.consume_output(n),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.interest(registry, at, true);
                    return events;
                }
                Err(error) => {
                    log::debug!("Cannot write to the runtime: {error}");
                    self.client.feed_eof();
                    events.append(&mut self.client.poll());
                    return events;
                }
            }
        }
    }

    /// Reads once. Returns the number of bytes.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.readable = false;
                self.client.feed_eof();
                0
            }
            Ok(n) => {
                self.client.feed(&buffer[..n]);
                self.readable = n == buffer.len() || self.closed;
                n
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => {
                self.readable = false;
                if error.kind() != ErrorKind::WouldBlock {
                    log::debug!("Cannot read from the runtime: {error}");
                    self.client.feed_eof();
                }
                0
            }
        }
    }

    /// Writability is asked for only while the socket is full: each read of the peer would wake us.
    fn interest(&mut self, registry: &Registry, at: usize, blocked: bool) {
        if self.blocked == blocked {
            return;
        }
        self.blocked = blocked;
        let interest =
            if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if let Err(error) = registry.reregister(&mut self.stream, Door::Rpc.token(at), interest) {
            log::error!("Cannot watch the runtime's socket: {error}");
            self.client.feed_eof();
        }
    }
}

fn answer(status: GrpcStatus, answer: Answer) -> Result<Bytes, RpcError> {
    let internal =
        |message: &str| RpcError { code: Code::Internal as i32, message: message.to_owned() };
    match (status.code, answer) {
        (Code::Ok, Answer::One(body)) => Ok(body),
        (Code::Ok, Answer::None) => Err(internal("the runtime answered with no message")),
        (Code::Ok, Answer::TooMany) => Err(internal("the runtime answered with many messages")),
        (code, _) => Err(RpcError { code: code as i32, message: status.message }),
    }
}

fn unavailable(message: impl Into<String>) -> Outcome {
    Outcome::Rpc(Err(RpcError { code: RpcError::UNAVAILABLE, message: message.into() }))
}

/// The lists that are relisted each second; every other answer passes as it is.
fn shape(path: &str) -> Option<&'static Shape> {
    match path {
        "/runtime.v1.RuntimeService/ListPodSandbox" => Some(&canon::POD_SANDBOXES),
        "/runtime.v1.RuntimeService/ListContainers" => Some(&canon::CONTAINERS),
        _ => None,
    }
}
