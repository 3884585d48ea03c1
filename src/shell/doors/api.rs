//! Requests to the API server: many on one connection, which is made when a request needs it.
//!
//! ```text
//!  Down -> Asking (a plugin, a name) -> Dialing (addresses, proxy, TLS) -> Up
//!    ^____________________|__________________|_______________________________|
//! ```
//! Requests wait while a connection is on its way, each until its deadline. When none can be made they end with the
//! reason, and for a while others do so at once: the core decides when to try again, this door only keeps it from
//! knocking too often. A server that is leaving (GOAWAY), or a new certificate of ours, makes the next request open
//! another connection; the old one ends with its last request.
//!
//! No PING is sent. A request whose deadline comes while not a byte was read since it was sent condemns its
//! connection: whatever holds the bytes back, the next request makes a new one.

mod answer;
mod credential;
mod link;
mod pipe;
mod seal;
mod server;

pub use credential::bearer;
pub use server::{Address, ApiServer, Authorities, ExecPlugin, Login, Pem, Proxy};
pub use server::{SYSTEM_AUTHORITIES, read};

use super::{Door, Inbox, Job, reason};
use crate::shell::clock;
use crate::shell::vault::Vault;
use answer::Answer;
use credential::Credentials;
use link::{Link, Said};
use mio::Registry;
use pipe::Pipe;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use steplet_core::effect::{ApiCall, Verb};
use steplet_core::event::{DiskReply, Item, Outcome};
use steplet_core::ids::Token;
use steplet_core::time::{Mono, Span, Wall};
use steplet_wire::http2::client::{Event, Head};
use steplet_wire::tls::{TlsClient, TlsSession, Trust};

/// Between attempts to connect: doubles from the first to the second, less up to a half by chance
/// (client-go's reflector: staging/src/k8s.io/client-go/tools/cache/reflector.go, v1.36).
const BACK_OFF: Span = Span::from_millis(800);
const BACK_OFF_MAX: Span = Span::from_secs(30);
/// For one address and its TLS; while others are left, less.
const DIAL_TIME: Span = Span::from_secs(10);
const DIAL_TIME_OF_MANY: Span = Span::from_secs(4);
const ADDRESSES_MAX: usize = 8;
/// A connection that takes no new requests is closed after the longest that a watch is asked for.
const LEAVING_TIME: Span = Span::from_secs(660);
/// Requests under way; what the core asks for is far below.
const CALLS_MAX: usize = 4096;
/// Bytes of unfinished answers, all together.
const HELD_MAX: usize = 64 << 20;
/// Bytes read from one connection in a turn, so that a talkative server cannot hold the loop.
const READ_PER_TURN: usize = 1 << 20;
const BUFFER: usize = 64 * 1024;

pub struct Api {
    registry: Registry,
    access: Option<Box<Access>>,
    phase: Phase,
    links: BTreeMap<usize, Link>,
    /// Links that were ever made.
    made: usize,
    calls: BTreeMap<Token, Call>,
    /// Requests that wait for a connection, in order.
    waiting: Vec<Token>,
    deadlines: BTreeSet<(Mono, Token)>,
    jobs: Vec<Job>,
    retry_at: Mono,
    back_off: Span,
    /// Why there is no connection.
    down: String,
}

struct Access {
    server: ApiServer,
    credentials: Credentials,
    buffer: Box<[u8]>,
}

enum Phase {
    Down,
    /// A helper works on it.
    Asking(Question),
    Dialing {
        link: usize,
        left: Vec<SocketAddr>,
    },
    Up(usize),
}

#[derive(Clone, Copy, PartialEq)]
enum Question {
    Plugin,
    Name,
}

struct Call {
    request: ApiCall,
    /// None once a watch has begun.
    deadline: Option<Mono>,
    sent: Option<Sent>,
    /// It was sent before, to a server that has not touched it.
    again: bool,
    answer: Answer,
}

struct Sent {
    link: usize,
    /// What had been read from the link then.
    read: u64,
}

impl Api {
    pub fn new(registry: Registry, server: Option<ApiServer>) -> Api {
        let access = server.map(|server| {
            let credentials = Credentials::new(server.login.clone(), server.identity.clone());
            Box::new(Access { server, credentials, buffer: vec![0; BUFFER].into() })
        });
        Api {
            registry,
            access,
            phase: Phase::Down,
            links: BTreeMap::new(),
            made: 0,
            calls: BTreeMap::new(),
            waiting: Vec::new(),
            deadlines: BTreeSet::new(),
            jobs: Vec::new(),
            retry_at: Mono(0),
            back_off: BACK_OFF,
            down: String::new(),
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        let call = self.deadlines.first().map(|(at, _)| *at);
        let links = self.links.iter().filter(|(number, _)| !self.is_current(**number));
        links.map(|(_, link)| link.open_by).chain(call).min()
    }

    /// Whether this link takes requests.
    fn is_current(&self, number: usize) -> bool {
        matches!(self.phase, Phase::Up(up) if up == number)
    }

    pub fn busy(&self) -> bool {
        self.links.values().any(Link::can_read)
    }

    /// What a helper shall do next.
    pub fn take_job(&mut self) -> Option<Job> {
        self.jobs.pop()
    }

    pub fn call(&mut self, token: Token, request: ApiCall, now: Mono, inbox: &mut Inbox) {
        let error = |why: &str| Outcome::Api(Err(why.into()));
        if self.access.is_none() {
            return inbox.done(token, error("no API server is configured"));
        }
        if self.calls.len() >= CALLS_MAX {
            return inbox.done(token, error("too many requests under way"));
        }
        let deadline = now + request.within;
        self.deadlines.insert((deadline, token));
        let (deadline, answer) = (Some(deadline), Answer::default());
        self.calls.insert(token, Call { request, deadline, sent: None, again: false, answer });
        self.waiting.push(token);
        self.proceed(now, inbox);
    }

    /// The core gave the request up.
    pub fn cancel(&mut self, token: Token) {
        self.forget(token);
    }

    /// Takes the request away from wherever it is.
    fn forget(&mut self, token: Token) -> Option<Call> {
        let call = self.calls.remove(&token)?;
        if let Some(at) = call.deadline {
            self.deadlines.remove(&(at, token));
        }
        match &call.sent {
            None => self.waiting.retain(|waiting| *waiting != token),
            Some(sent) => {
                if let Some(link) = self.links.get_mut(&sent.link) {
                    link.http.cancel(token.0);
                    link.stale = true;
                }
            }
        }
        Some(call)
    }

    fn fail(&mut self, token: Token, why: String, inbox: &mut Inbox) {
        if self.forget(token).is_some() {
            inbox.done(token, Outcome::Api(Err(why)));
        }
    }

    /// Sends what waits, or does the next step on the way to a connection.
    fn proceed(&mut self, now: Mono, inbox: &mut Inbox) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(access) = &mut self.access else { return };
        if matches!(self.phase, Phase::Up(_)) {
            if access.credentials.has_changed(now) {
                log::info!("Our certificate has changed: the next connection shows the new one");
                self.leave(now);
            } else if access.credentials.wants_plugin(wall()) {
                self.leave(now);
            }
        }
        match self.phase {
            Phase::Up(number) => {
                for token in std::mem::take(&mut self.waiting) {
                    self.send(number, token, now, inbox);
                }
            }
            Phase::Asking(_) | Phase::Dialing { .. } => {}
            Phase::Down if now < self.retry_at => self.fail_waiting(inbox),
            Phase::Down => self.begin(now, inbox),
        }
    }

    fn fail_waiting(&mut self, inbox: &mut Inbox) {
        for token in std::mem::take(&mut self.waiting) {
            self.fail(token, self.down.clone(), inbox);
        }
    }

    fn send(&mut self, number: usize, token: Token, now: Mono, inbox: &mut Inbox) {
        let (Some(access), Some(link)) = (&mut self.access, self.links.get_mut(&number)) else {
            return;
        };
        let Some(call) = self.calls.get_mut(&token) else { return };
        call.sent = Some(Sent { link: number, read: link.read });
        let header = match access.credentials.header(now) {
            Ok(header) => header,
            Err(why) => return self.fail(token, why, inbox),
        };
        let mut headers =
            vec![("accept", "application/json"), ("user-agent", &*access.server.user_agent)];
        headers.extend(header.map(|value| ("authorization", value.expose())));
        let (method, content) = match call.request.verb {
            Verb::Get | Verb::Watch => ("GET", "application/json"),
            Verb::Post => ("POST", "application/json"),
            Verb::Put => ("PUT", "application/json"),
            Verb::Patch => ("PATCH", "application/strategic-merge-patch+json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        let body = call.request.body.clone();
        if !body.is_empty() {
            headers.push(("content-type", content));
        }
        let path = format!("{}{}", access.server.prefix, call.request.path);
        link.http.request(token.0, method, &path, &headers, body);
        link.stale = true;
    }

    /// The connection takes no more requests; the next one makes another.
    fn leave(&mut self, now: Mono) {
        if let Phase::Up(number) = self.phase {
            self.phase = Phase::Down;
            self.retry_at = now;
            if let Some(link) = self.links.get_mut(&number) {
                link.open_by = now + LEAVING_TIME;
                link.stale = true;
            }
        }
    }

    /// Begins to connect: with a plugin, a name, or an address.
    fn begin(&mut self, now: Mono, inbox: &mut Inbox) {
        let Some(access) = &mut self.access else { return };
        if let Login::Exec(plugin) = &access.server.login
            && access.credentials.wants_plugin(wall())
        {
            self.jobs.push(Job::AskPlugin(plugin.clone()));
            access.credentials.asking(now);
            self.phase = Phase::Asking(Question::Plugin);
            return;
        }
        let proxy = access.server.proxy.as_ref();
        let address = proxy.map_or(&access.server.address, |proxy| &proxy.address);
        if let Some(literal) = address.literal() {
            return self.dial(vec![literal], now, inbox);
        }
        let Address { host, port } = address.clone();
        self.jobs.push(Job::LookUp { host, port });
        self.phase = Phase::Asking(Question::Name);
    }

    /// A helper has done what this door asked for.
    pub fn helped(&mut self, outcome: Outcome, now: Mono, inbox: &mut Inbox) {
        let Phase::Asking(question) = self.phase else { return };
        let (Some(access), Outcome::Disk(result)) = (&mut self.access, outcome) else { return };
        match (question, result) {
            (Question::Plugin, Ok(DiskReply::Text(printed))) => {
                match access.credentials.grant(&printed) {
                    Ok(()) => self.begin(now, inbox),
                    Err(why) => self.unreachable(&format!("the plugin: {why}"), now, inbox),
                }
            }
            (Question::Name, Ok(DiskReply::Names(found))) => {
                let found = found.iter().filter_map(|address| address.parse().ok());
                let mut found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
                // The next one is at the end.
                found.reverse();
                self.dial(found, now, inbox);
            }
            (_, Ok(_)) => self.unreachable("a helper answered something else", now, inbox),
            (_, Err(fault)) => self.unreachable(&fault.message, now, inbox),
        }
    }

    /// Connects to the last of these addresses, and keeps the others for when it fails.
    fn dial(&mut self, mut left: Vec<SocketAddr>, now: Mono, inbox: &mut Inbox) {
        let mut why = "its name has no address".to_owned();
        while let Some(address) = left.pop() {
            let time = if left.is_empty() { DIAL_TIME } else { DIAL_TIME_OF_MANY };
            match self.connect(address, now + time) {
                Ok(link) => {
                    self.phase = Phase::Dialing { link, left };
                    return;
                }
                Err(error) => why = error,
            }
        }
        self.unreachable(&why, now, inbox);
    }

    fn connect(&mut self, address: SocketAddr, open_by: Mono) -> Result<usize, String> {
        let access = self.access.as_mut().ok_or("no API server is configured")?;
        let (tls, outer) = access.sessions()?;
        let server = &access.server;
        let (to, agent) = (server.address.authority(), &server.user_agent);
        let pipe = Pipe::connect(address, server.proxy.as_ref(), &to, agent, outer);
        let (number, pipe) = (self.made, pipe.map_err(|error| reason(&error))?);
        let link = Link::new(&self.registry, Door::Api.token(number), pipe, tls, &to, open_by);
        self.links.insert(number, link.map_err(|error| reason(&error))?);
        self.made += 1;
        Ok(number)
    }

    /// No connection can be made.
    fn unreachable(&mut self, why: &str, now: Mono, inbox: &mut Inbox) {
        self.phase = Phase::Down;
        let mut down = format!("cannot reach {}: {why}", self.name());
        if why.contains("certificate") && !clock::is_plausible() {
            down.push_str("; this machine's clock is wrong, set it first");
        }
        if down != self.down {
            log::warn!("{down}");
        }
        self.down = down;
        self.wait(now);
        self.fail_waiting(inbox);
    }

    fn wait(&mut self, now: Mono) {
        let by_chance = RandomState::new().build_hasher().finish() % (self.back_off.0 / 2);
        self.retry_at = now + Span(self.back_off.0 - by_chance);
        self.back_off = Span(self.back_off.times(2).0.min(BACK_OFF_MAX.0));
    }

    /// The server, for people.
    fn name(&self) -> String {
        let Some(access) = &self.access else { return String::new() };
        let (address, prefix) = (access.server.address.authority(), &access.server.prefix);
        match &access.server.proxy {
            None => format!("https://{address}{prefix}"),
            Some(proxy) => {
                format!("https://{address}{prefix} through the proxy {}", proxy.address.authority())
            }
        }
    }

    /// Sees to everything whose time has come.
    pub fn expire(&mut self, now: Mono, inbox: &mut Inbox) {
        let late = |(number, link): (&usize, &Link)| (link.open_by <= now).then_some(*number);
        let links = self.links.iter().filter(|(number, _)| !self.is_current(**number));
        for number in links.filter_map(late).collect::<Vec<_>>() {
            let connected = self.links.get(&number).is_some_and(Link::is_connected);
            let why = match (self.links.get(&number).is_some_and(Link::is_open), connected) {
                (true, _) => "the connection was replaced by another one",
                (_, true) => "it does not answer",
                (_, false) => "it cannot be connected to in time",
            };
            self.close(number, why, now, inbox);
        }
        while let Some(&(at, token)) = self.deadlines.first()
            && at <= now
        {
            self.overdue(token, now, inbox);
        }
    }

    fn overdue(&mut self, token: Token, now: Mono, inbox: &mut Inbox) {
        let Some(call) = self.forget(token) else { return };
        let (within, name) = (call.request.within, self.name());
        let within = format!("{}.{:03} s", within.secs(), within.millis() % 1000);
        let read = |sent: &Sent| self.links.get(&sent.link).is_some_and(|l| l.read != sent.read);
        let why = match (&call.sent, &self.phase) {
            (Some(_), _) => format!("no answer of {name} within {within}"),
            (None, Phase::Asking(Question::Plugin)) => {
                format!("the credential plugin has not answered within {within}")
            }
            (None, Phase::Asking(Question::Name)) => {
                format!("the name of {name} was not looked up within {within}")
            }
            (None, _) => format!("no connection to {name} within {within}"),
        };
        let dead = call.sent.filter(|sent| !read(sent));
        inbox.done(token, Outcome::Api(Err(why)));
        if let Some(sent) = dead {
            self.close(sent.link, "not a byte came from it, a new one is made", now, inbox);
        }
    }

    /// Ends a connection and what is under way on it.
    fn close(&mut self, number: usize, why: &str, now: Mono, inbox: &mut Inbox) {
        if self.links.contains_key(&number) {
            let on = |call: &Call| call.sent.as_ref().is_some_and(|sent| sent.link == number);
            let calls = self.calls.iter().filter(|(_, call)| on(call)).map(|(token, _)| *token);
            for token in calls.collect::<Vec<_>>() {
                self.fail(token, format!("the connection is given up: {why}"), inbox);
            }
            self.over(number, why, now, inbox);
        }
    }

    /// A connection is over; nothing is under way on it.
    fn over(&mut self, number: usize, why: &str, now: Mono, inbox: &mut Inbox) {
        // Closing the descriptor also ends the interest in it.
        let Some(link) = self.links.remove(&number) else { return };
        match &mut self.phase {
            Phase::Dialing { link, left } if *link == number => {
                if left.is_empty() {
                    return self.unreachable(why, now, inbox);
                }
                let left = std::mem::take(left);
                self.dial(left, now, inbox);
            }
            Phase::Up(up) if *up == number => {
                self.phase = Phase::Down;
                self.down = format!("the connection to {} has ended: {why}", self.name());
                log::warn!("{}", self.down);
                self.retry_at = now;
                if !link.answered {
                    self.wait(now);
                }
                self.proceed(now, inbox);
            }
            _ => {}
        }
    }

    pub fn ready(
        &mut self,
        number: usize,
        event: &mio::event::Event,
        now: Mono,
        inbox: &mut Inbox,
        vault: &mut Vault,
    ) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.ready(event);
        self.pump(number, now, inbox, vault);
    }

    /// Writes what is left to write, and reads on where the last turn stopped.
    pub fn flush(&mut self, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        let wants = |link: &Link, full: bool| link.stale || (link.can_read() && !full);
        let full = inbox.is_full();
        let numbers = self.links.iter().filter(|(_, link)| wants(link, full));
        for number in numbers.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.pump(number, now, inbox, vault);
        }
    }

    fn pump(&mut self, number: usize, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        let mut left = READ_PER_TURN;
        while let Some(link) = self.links.get_mut(&number) {
            for said in link.drive(&self.registry) {
                self.take(number, said, now, inbox, vault);
            }
            let Some(link) = self.links.get_mut(&number) else { break };
            if left == 0 || !link.can_read() || inbox.is_full() {
                if link.stale {
                    continue;
                }
                break;
            }
            let Some(access) = &mut self.access else { break };
            left = left.saturating_sub(link.read(&mut access.buffer));
        }
        self.tidy_up(number, now, inbox);
    }

    /// Lets go of a connection that takes no requests and has none.
    fn tidy_up(&mut self, number: usize, now: Mono, inbox: &mut Inbox) {
        let Some(link) = self.links.get(&number) else { return self.proceed(now, inbox) };
        if link.is_open() && self.is_current(number) && !link.http.accepts_requests() {
            log::info!("{} asks to connect anew", self.name());
            self.leave(now);
        }
        let Some(link) = self.links.get(&number) else { return };
        if link.is_open() && !self.is_current(number) && link.http.open_requests() == 0 {
            self.links.remove(&number);
        }
        self.proceed(now, inbox);
    }

    fn take(&mut self, number: usize, said: Said, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        match said {
            Said::Open => {
                log::info!("Connected to {}", self.name());
                self.down.clear();
                if let Phase::Dialing { link, .. } = self.phase
                    && link == number
                {
                    self.phase = Phase::Up(number);
                    self.proceed(now, inbox);
                }
            }
            Said::Over(why) => self.over(number, &why, now, inbox),
            Said::Http(Event::Head { id, head }) => self.head(number, Token(id), head, now, inbox),
            Said::Http(Event::Data { id, data }) => self.data(Token(id), &data, inbox, vault),
            Said::Http(Event::Done { id }) => {
                let Some(call) = self.forget(Token(id)) else { return };
                let result = call.answer.end().and_then(|mut reply| {
                    if call.request.seals {
                        reply.body = seal::seal(&reply.body, vault)?;
                    }
                    Ok(reply)
                });
                inbox.done(Token(id), Outcome::Api(result));
            }
            Said::Http(Event::Failed { id, why, untouched }) => {
                match self.calls.get_mut(&Token(id)) {
                    Some(call) if untouched && !call.again => {
                        call.sent = None;
                        call.again = true;
                        self.waiting.push(Token(id));
                    }
                    _ => self.fail(Token(id), why, inbox),
                }
            }
            Said::Http(Event::Closed(_)) => unreachable!("the link says Over instead"),
        }
    }

    fn head(&mut self, number: usize, token: Token, head: Head, now: Mono, inbox: &mut Inbox) {
        self.back_off = BACK_OFF;
        if let Some(link) = self.links.get_mut(&number) {
            link.answered = true;
        }
        if head.status == 401
            && let Some(access) = &mut self.access
        {
            access.credentials.refused(now);
        }
        let Some(call) = self.calls.get_mut(&token) else { return };
        let watch = call.request.verb == Verb::Watch;
        match call.answer.head(&head, watch) {
            Err(why) => self.fail(token, why, inbox),
            // A watch that was refused is an answer like others, and has its deadline.
            Ok(()) if watch && (200..300).contains(&head.status) => {
                if let Some(at) = call.deadline.take() {
                    self.deadlines.remove(&(at, token));
                }
            }
            Ok(()) => {}
        }
    }

    fn data(&mut self, token: Token, data: &[u8], inbox: &mut Inbox, vault: &mut Vault) {
        let held: usize = self.calls.values().map(|call| call.answer.len()).sum();
        let Some(call) = self.calls.get_mut(&token) else { return };
        let seals = call.request.seals;
        let taken = match call.answer.data(data) {
            Ok(_) if held > HELD_MAX => Err("too many long answers at once".to_owned()),
            taken => taken,
        };
        let lines = taken.and_then(|lines| match seals {
            true => lines.iter().map(|line| seal::seal(line, vault)).collect(),
            false => Ok(lines),
        });
        match lines {
            Ok(lines) => {
                lines.into_iter().for_each(|line| inbox.item(token, Item::Line(line)));
            }
            Err(why) => self.fail(token, why, inbox),
        }
    }
}

impl Access {
    /// TLS with the API server, and with the proxy if it wants that. Errors: a sentence.
    fn sessions(&mut self) -> Result<(TlsSession, Option<TlsSession>), String> {
        let Access { server, credentials, .. } = self;
        let authorities = server.authorities.read()?;
        let trust = authorities.as_deref().map_or(Trust::Everybody, Trust::Authorities);
        let identity = credentials.identity()?;
        let own = identity.as_ref().map(|own| (&own.certificate[..], &own.key[..]));
        let now = u64::try_from(wall().0 / 1_000_000_000).unwrap_or_default();
        let make = |name: &str, own, alpn: &[&str]| {
            let client = TlsClient::new(trust, name, own, alpn);
            client.map(|client| client.connect(now)).map_err(|error| error.to_string())
        };
        let inner = make(&server.server_name, own, &["h2"])?;
        let proxy = server.proxy.as_ref().filter(|proxy| proxy.tls);
        let outer =
            proxy.map(|proxy| make(&proxy.address.host, None, &["http/1.1"])).transpose()?;
        Ok((inner, outer))
    }
}

fn wall() -> Wall {
    clock::Clock::new().now().wall
}
