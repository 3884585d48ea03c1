//! The kubelet's own HTTP servers: 10250 with TLS, 10255 and 10248 without.
//!
//! A request goes to the core as an event when its head has arrived; the reply, or which log to send, comes back as
//! an effect. Everything is bounded: connections, heads, bodies, buffers, requests, logs, times, and the work of a
//! turn. When the place is full, the connection that can be spared best makes room.

mod address;
mod certificate;
mod connection;
mod date;
mod target;
mod tunnel;

pub use address::Listeners;
pub use certificate::Tls;

use super::splice::Pump;
use super::splice::below::{self, Found};
use super::{Door, Inbox, reason};
use bytes::Bytes;
use certificate::Certificate;
use connection::{Connection, Origin, Said};
use date::Dates;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use steplet_core::effect::{LogQuery, Reply};
use steplet_core::event::{Event, Listener};
use steplet_core::ids::RequestId;
use steplet_core::time::{Mono, Span};
use steplet_wire::http_server::RequestHead;
use tunnel::Tunnel;

/// How long connections are served in one turn, and how long new ones are taken.
const SERVE_PER_TURN: Duration = Duration::from_millis(2);
const ACCEPT_PER_TURN: Duration = Duration::from_millis(1);
/// A port that is taken, or a certificate that cannot be made yet, is tried again (upstream: 5 s).
const RETRY: Span = Span::from_secs(5);
/// When no descriptor is left and no connection can be spared.
const RETRY_ACCEPT: Span = Span::from_secs(1);
const TELL_AGAIN: Span = Span::from_secs(600);
/// Requests that one listener has under way, logs among them.
const REQUESTS_MAX: usize = 256;
const LOGS_MAX: usize = 128;
const STREAMS_MAX: usize = 64;
/// Bytes of answers that the clients of one listener have not taken yet. Beyond, nothing new is asked of the core,
/// and what it has answered already is dropped.
const HELD_MAX: usize = 8 << 20;
const TOO_MUCH: &str = "Service Unavailable: too much is asked at once\n";
/// Indexes below this are listeners.
const FIRST_CONNECTION: usize = 8;

/// Connections of one listener. The probe of a supervisor must get through whatever happens on the others.
fn places(listener: Listener) -> usize {
    match listener {
        Listener::Secure => 256,
        Listener::ReadOnly => 64,
        Listener::Healthz => 32,
    }
}

pub struct Listen {
    registry: Registry,
    sockets: Vec<Socket>,
    connections: BTreeMap<usize, Box<Connection>>,
    /// Requests that the core still has to do with: connection, and the request's id there.
    requests: BTreeMap<RequestId, (usize, u64)>,
    next_connection: usize,
    next_request: u64,
    /// Connections that can move on at once.
    queue: VecDeque<usize>,
    dates: Dates,
}

struct Socket {
    listener: Listener,
    address: std::net::SocketAddr,
    certificate: Option<Certificate>,
    state: State,
    /// When trouble was told last.
    told_at: Option<Mono>,
}

enum State {
    Closed { open_at: Mono },
    Open { socket: TcpListener, accept_at: Option<Mono> },
}

impl Listen {
    pub fn new(registry: Registry, listeners: Listeners) -> Listen {
        let sockets = listeners.0.into_iter().map(|(listener, address, tls)| Socket {
            listener,
            address,
            certificate: tls.map(Certificate::new),
            state: State::Closed { open_at: Mono(0) },
            told_at: None,
        });
        Listen {
            registry,
            sockets: sockets.collect(),
            connections: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_connection: FIRST_CONNECTION,
            next_request: 0,
            queue: VecDeque::new(),
            dates: Dates::default(),
        }
    }

    /// The addresses that are open, in the order of the listeners.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        let open = self.sockets.iter().filter_map(|socket| match &socket.state {
            State::Open { socket, .. } => socket.local_addr().ok(),
            State::Closed { .. } => None,
        });
        open.collect()
    }

    pub fn ready(&mut self, index: usize, event: &mio::event::Event, now: Mono, inbox: &mut Inbox) {
        if index < FIRST_CONNECTION {
            self.accept(index, now, inbox);
        } else if let Some(connection) = self.connections.get_mut(&index) {
            connection.ready(event);
            self.enqueue(index);
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        let sockets = self.sockets.iter().filter_map(|socket| match socket.state {
            State::Closed { open_at } => Some(open_at),
            State::Open { accept_at, .. } => accept_at,
        });
        let connections = self.connections.values().map(|c| c.deadline());
        sockets.chain(connections).min()
    }

    /// Something can go on at once.
    pub fn busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Serves connections for a while, after the times that have come.
    pub fn tend(&mut self, now: Mono, inbox: &mut Inbox) {
        for index in 0..self.sockets.len() {
            match self.sockets[index].state {
                State::Closed { open_at } if open_at <= now => {
                    self.sockets[index].open(&self.registry, index, now)
                }
                State::Open { accept_at: Some(at), .. } if at <= now => {
                    self.accept(index, now, inbox)
                }
                _ => {}
            }
        }
        let due: Vec<(usize, bool)> = (self.connections.iter())
            .filter(|(_, c)| c.deadline() <= now)
            .map(|(index, c)| (*index, c.is_late(now)))
            .collect();
        for (index, late) in due {
            let goes_on = !late || self.connections.get_mut(&index).is_some_and(|c| c.wind_up(now));
            if goes_on {
                self.enqueue(index);
            } else {
                self.close(index, inbox);
            }
        }
        let started = Instant::now();
        while started.elapsed() < SERVE_PER_TURN
            && let Some(index) = self.queue.pop_front()
        {
            self.go_on(index, now, inbox);
        }
    }

    fn enqueue(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(&index)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.queue.push_back(index);
        }
    }

    fn accept(&mut self, index: usize, now: Mono, inbox: &mut Inbox) {
        let started = Instant::now();
        while started.elapsed() < ACCEPT_PER_TURN {
            let Some(listening) = self.sockets.get_mut(index) else { return };
            let State::Open { socket, accept_at } = &mut listening.state else { return };
            *accept_at = None;
            match socket.accept() {
                Ok((stream, peer)) => {
                    let loopback = peer.ip().to_canonical().is_loopback();
                    let origin = Origin { listener: listening.listener, loopback };
                    let session = listening.certificate.as_mut().map(|c| c.accept(now));
                    // One that a cluster has not issued yet: upstream's handshakes fail, too.
                    let Some(session) = session.map_or(Some(None), |s| s.map(Some)) else {
                        if listening.may_tell(now) {
                            log::warn!("No serving certificate is available for {peer} yet");
                        }
                        continue;
                    };
                    self.take_in(Connection::new(stream, session, origin, now), now, inbox);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // One that is gone again, or a network that was down for it (accept(2)).
                Err(error) if !is_shortage(&error) => {}
                // Without descriptors that is the answer even if nobody waits.
                Err(_) if !somebody_waits(socket) => return,
                Err(error) => {
                    *accept_at = Some(now + RETRY_ACCEPT);
                    if listening.may_tell(now) {
                        log::warn!("Too many connections: {}", reason(&error));
                    }
                    let all = [Listener::Secure, Listener::ReadOnly, Listener::Healthz];
                    if !self.make_room(&all, now, inbox) {
                        return;
                    }
                }
            }
        }
        // More may wait, and nothing will say so again.
        if let Some(Socket { state: State::Open { accept_at, .. }, .. }) =
            self.sockets.get_mut(index)
        {
            *accept_at = Some(now);
        }
    }

    fn take_in(&mut self, mut connection: Connection, now: Mono, inbox: &mut Inbox) {
        let listener = connection.origin.listener;
        let others = self.connections.values().filter(|c| c.origin.listener == listener);
        if others.count() >= places(listener) && !self.make_room(&[listener], now, inbox) {
            return;
        }
        keep_alive(connection.socket());
        let index = self.next_connection;
        self.next_connection += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered =
            self.registry.register(connection.socket(), Door::Listen.token(index), interest);
        match registered {
            Ok(()) => {
                self.connections.insert(index, Box::new(connection));
                self.enqueue(index);
            }
            Err(error) => log::warn!("Cannot watch a connection: {}", reason(&error)),
        }
    }

    /// Closes the connection that can be spared best; false if there is none.
    fn make_room(&mut self, of: &[Listener], now: Mono, inbox: &mut Inbox) -> bool {
        let those = self.connections.iter().filter(|(_, c)| of.contains(&c.origin.listener));
        let spare = those.filter_map(|(index, c)| Some((c.spare(now)?, *index))).min();
        let Some((_, index)) = spare else { return false };
        self.close(index, inbox);
        true
    }

    /// Moves one connection on as far as it goes within its share of the turn.
    fn go_on(&mut self, index: usize, now: Mono, inbox: &mut Inbox) {
        let Some(connection) = self.connections.get_mut(&index) else { return };
        connection.queued = false;
        let mut said = Vec::new();
        let more = connection.go_on(now, self.dates.now(), &mut said);
        for word in said {
            match word {
                Said::Request(id, head, body) => self.asked(index, id, (&head, body), inbox),
                Said::Gone(id) => self.gone(index, id, inbox),
            }
        }
        let Some(connection) = self.connections.get_mut(&index) else { return };
        if connection.is_over() {
            self.close(index, inbox);
            return;
        }
        if connection.is_closing() {
            for id in connection.open() {
                self.gone(index, id, inbox);
            }
        }
        if more {
            self.enqueue(index);
        }
    }

    fn asked(
        &mut self,
        index: usize,
        id: u64,
        (head, body): (&RequestHead, Bytes),
        inbox: &mut Inbox,
    ) {
        let Some(origin) = self.connections.get(&index).map(|c| c.origin) else { return };
        let (requests, held) = self.load(origin.listener);
        if requests >= REQUESTS_MAX {
            let why = format!("Too Many Requests: {REQUESTS_MAX} are under way\n");
            return self.refuse(index, id, 429, why);
        }
        if held >= HELD_MAX {
            return self.refuse(index, id, 503, TOO_MUCH.into());
        }
        let request = RequestId(self.next_request + 1);
        match target::request(request, origin, head) {
            Err(what) => self.refuse(index, id, 400, what),
            Ok(mut event) => {
                self.next_request += 1;
                self.requests.insert(request, (index, id));
                if let Some(connection) = self.connections.get_mut(&index) {
                    connection.opened(id, request);
                    event.certificate = connection.certificate();
                    event.body = body;
                    if event.upgrade {
                        connection.keep_head(head);
                    }
                }
                inbox.request(event, head.bearer());
            }
        }
    }

    /// Requests under way on one listener, and bytes held for them.
    fn load(&self, listener: Listener) -> (usize, usize) {
        let those = self.connections.values().filter(|c| c.origin.listener == listener);
        those.map(|c| c.load()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn gone(&mut self, index: usize, id: u64, inbox: &mut Inbox) {
        let request = self.connections.get_mut(&index).and_then(|c| c.settled(id));
        if let Some(request) = request {
            self.requests.remove(&request);
            inbox.push(Event::Gone { request });
        }
    }

    fn close(&mut self, index: usize, inbox: &mut Inbox) {
        let Some(connection) = self.connections.get(&index) else { return };
        for id in connection.open() {
            self.gone(index, id, inbox);
        }
        // Closing the descriptor takes it out of the poll as well.
        self.connections.remove(&index);
    }

    /// Answers in place of the core.
    fn refuse(&mut self, index: usize, id: u64, status: u16, text: String) {
        let content_type = "text/plain; charset=utf-8".into();
        self.answer(index, id, Reply { status, content_type, body: text.into() });
    }

    fn answer(&mut self, index: usize, id: u64, reply: Reply) {
        if let Some(connection) = self.connections.get_mut(&index) {
            connection.reply(id, reply, self.dates.now());
            self.enqueue(index);
        }
    }

    /// The core has said its last word on a request.
    fn settle(&mut self, request: RequestId) -> Option<(usize, u64)> {
        let (index, id) = self.requests.remove(&request)?;
        self.connections.get_mut(&index)?.settled(id);
        Some((index, id))
    }

    pub fn reply(&mut self, request: RequestId, reply: Reply) {
        let Some((index, id)) = self.settle(request) else { return };
        let held = self.connections.get(&index).map_or(0, |c| self.load(c.origin.listener).1);
        if held > 0 && held + reply.body.len() > HELD_MAX {
            return self.refuse(index, id, 503, TOO_MUCH.into());
        }
        self.answer(index, id, reply);
    }

    pub fn send_log(&mut self, request: RequestId, log: &LogQuery) {
        let Some(&(index, id)) = self.requests.get(&request) else { return };
        let logs: usize = self.connections.values().map(|c| c.logs()).sum();
        let opened = match logs < LOGS_MAX {
            true => Pump::open(log).map_err(|why| (400, why)),
            false => Err((429, format!("Too Many Requests: {LOGS_MAX} logs are being read"))),
        };
        // Of a log that is followed the core wants to know when its reader is gone.
        if !log.follow {
            self.settle(request);
        }
        match opened {
            Ok(pump) => {
                if let Some(connection) = self.connections.get_mut(&index) {
                    connection.start_log(id, pump);
                    self.enqueue(index);
                }
            }
            Err((status, why)) => self.refuse(index, id, status, format!("{why}\n")),
        }
    }

    pub fn send_file(&mut self, request: RequestId, root: &str, path: &str) {
        let logs: usize = self.connections.values().map(|c| c.logs()).sum();
        let Some((index, id)) = self.settle(request) else { return };
        let found = match logs < LOGS_MAX {
            true => below::look(root, path),
            false => Err((429, format!("Too Many Requests: {LOGS_MAX} logs are being read"))),
        };
        let pump = match found {
            Ok(Found::Directory(page)) => {
                let content_type = "text/html; charset=utf-8".into();
                let reply = Reply { status: 200, content_type, body: page.into() };
                return self.answer(index, id, reply);
            }
            Ok(Found::File(file)) => Pump::raw(file).map_err(|error| (500, reason(&error))),
            Err(refusal) => Err(refusal),
        };
        match pump {
            Ok(pump) => {
                if let Some(connection) = self.connections.get_mut(&index) {
                    connection.start_log(id, pump);
                    self.enqueue(index);
                }
            }
            Err((status, why)) => self.refuse(index, id, status, format!("{why}\n")),
        }
    }

    /// The runtime's end of a stream has something, or room.
    pub fn stream_ready(&mut self, index: usize, event: &mio::event::Event) {
        if let Some(connection) = self.connections.get_mut(&index) {
            connection.stream_ready(event);
            self.enqueue(index);
        }
    }

    /// Connects a request with the runtime's streaming server.
    pub fn stream(&mut self, request: RequestId, url: &str) {
        let streams = self.connections.values().filter(|c| c.is_stream()).count();
        let Some((index, id)) = self.settle(request) else { return };
        if streams >= STREAMS_MAX {
            let why = format!("Too Many Requests: {STREAMS_MAX} streams are open\n");
            return self.refuse(index, id, 429, why);
        }
        let Some(connection) = self.connections.get_mut(&index) else { return };
        let now = crate::shell::clock::mono();
        let Some(head) = connection.take_head() else {
            return self.refuse(index, id, 400, "Upgrade request required\n".into());
        };
        let dialed = Tunnel::dial(url, &head, now).and_then(|mut tunnel| {
            let token = Door::Stream.token(index);
            tunnel.register(&self.registry, token).map_err(|error| reason(&error))?;
            Ok(tunnel)
        });
        match dialed {
            Ok(tunnel) => {
                connection.start_stream(id, tunnel);
                self.enqueue(index);
            }
            Err(why) => self.refuse(index, id, 500, format!("{why}\n")),
        }
    }

    pub fn end_log(&mut self, request: RequestId) {
        if let Some((index, id)) = self.settle(request)
            && let Some(connection) = self.connections.get_mut(&index)
        {
            connection.end_log(id);
            self.enqueue(index);
        }
    }
}

impl Socket {
    /// The same trouble is told again only after a while.
    fn may_tell(&mut self, now: Mono) -> bool {
        let may = self.told_at.is_none_or(|at| now.since(at) >= TELL_AGAIN);
        if may {
            self.told_at = Some(now);
        }
        may
    }

    fn open(&mut self, registry: &Registry, index: usize, now: Mono) {
        let address = self.address;
        let ready = self.certificate.as_mut().map_or(Ok(()), Certificate::load);
        let opened = ready.and_then(|()| {
            let what = |error| format!("cannot listen on {address}: {}", reason(&error));
            let mut socket = TcpListener::bind(address).map_err(what)?;
            let token = Door::Listen.token(index);
            registry.register(&mut socket, token, Interest::READABLE).map_err(what)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                let protocol = if self.certificate.is_some() { "https" } else { "http" };
                let shown = socket.local_addr().unwrap_or(address);
                log::info!("Listening on {protocol}://{shown}");
                self.state = State::Open { socket, accept_at: Some(now) };
                self.told_at = None;
            }
            Err(why) => {
                if self.may_tell(now) {
                    log::error!("{why}; it is tried again every {} s", RETRY.secs());
                }
                self.state = State::Closed { open_at: now + RETRY };
            }
        }
    }
}

/// Too few descriptors, or too little memory, here or in the system.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

fn somebody_waits(socket: &TcpListener) -> bool {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// A client whose machine is gone is noticed within three minutes, as Go's servers do. What cannot be set is not
/// missed.
fn keep_alive(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let _ = setsockopt(socket, sockopt::KeepAlive, &true);
    let _ = setsockopt(socket, sockopt::TcpKeepIdle, &15);
    let _ = setsockopt(socket, sockopt::TcpKeepInterval, &15);
    let _ = setsockopt(socket, sockopt::TcpKeepCount, &9);
}
