//! Requests to the API server: many on one connection, which is made when a request needs it.
//!
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
mod links;
mod pipe;
pub(crate) mod seal;
mod server;

pub use credential::bearer;
pub use server::SYSTEM_AUTHORITIES;
pub use server::{Address, ApiServer, Authorities, ExecPlugin, Login, Pem, Proxy, read};

use super::{Door, Inbox, Job, reason};
use crate::shell::vault::Vault;
use answer::Answer;
use link::{Link, Said};
use links::Links;
use mio::Registry;
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::{ApiCall, Verb};
use steplet_core::event::{Item, Outcome};
use steplet_core::ids::Token;
use steplet_core::time::Mono;
use steplet_wire::http2::client::{Event, Head};

/// Requests under way; what the core asks for is far below.
const CALLS_MAX: usize = 4096;
/// Bytes of unfinished answers, all together.
const HELD_MAX: usize = 64 << 20;
/// Bytes read from one connection in a turn, so that a talkative server cannot hold the loop.
const READ_PER_TURN: usize = 1 << 20;
const BUFFER: usize = 64 * 1024;

pub struct Api {
    links: Links,
    calls: BTreeMap<Token, Call>,
    /// Requests that wait for a connection, in order.
    waiting: Vec<Token>,
    deadlines: BTreeSet<(Mono, Token)>,
    buffer: Box<[u8]>,
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
    /// `door` is whose descriptors these are.
    pub(crate) fn new(registry: Registry, door: Door, server: ApiServer) -> Api {
        Api {
            links: Links::new(registry, door, server),
            calls: BTreeMap::new(),
            waiting: Vec::new(),
            deadlines: BTreeSet::new(),
            buffer: vec![0; BUFFER].into(),
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        let call = self.deadlines.first().map(|(at, _)| *at);
        self.links.deadline().into_iter().chain(call).min()
    }

    pub fn busy(&self) -> bool {
        self.links.all().any(|(_, link)| link.can_read())
    }

    /// What a helper shall do next; its answer comes back by `helped`.
    pub fn take_job(&mut self) -> Option<Job> {
        self.links.take_job()
    }

    pub fn helped(&mut self, outcome: Outcome, now: Mono, inbox: &mut Inbox) {
        self.links.helped(outcome, now);
        self.proceed(now, inbox);
    }

    pub fn call(&mut self, token: Token, request: ApiCall, now: Mono, inbox: &mut Inbox) {
        if self.calls.len() >= CALLS_MAX {
            let why = "too many requests under way".to_owned();
            return inbox.done(token, Outcome::Api(Err(why)));
        }
        let deadline = now + request.within;
        self.deadlines.insert((deadline, token));
        let (deadline, answer) = (Some(deadline), Answer::default());
        self.calls.insert(token, Call { request, deadline, sent: None, again: false, answer });
        self.waiting.push(token);
        self.proceed(now, inbox);
    }

    /// Our certificate has changed, or there is one at last: the next request is not to wait for that to be noticed.
    pub fn look_again(&mut self) {
        self.links.look_again();
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
                if let Some(link) = self.links.get_mut(sent.link) {
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
        match self.links.usable(now) {
            Ok(None) => {}
            Ok(Some(number)) => {
                for token in std::mem::take(&mut self.waiting) {
                    self.send(number, token, now, inbox);
                }
            }
            Err(why) => {
                for token in std::mem::take(&mut self.waiting) {
                    self.fail(token, why.clone(), inbox);
                }
            }
        }
    }

    fn send(&mut self, number: usize, token: Token, now: Mono, inbox: &mut Inbox) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let (method, content) = match call.request.verb {
            Verb::Get | Verb::Watch => ("GET", "application/json"),
            Verb::Post => ("POST", "application/json"),
            Verb::Put => ("PUT", "application/json"),
            Verb::Patch => ("PATCH", "application/strategic-merge-patch+json"),
            Verb::Delete => ("DELETE", "application/json"),
        };
        let body = call.request.body.clone();
        let header = match self.links.header(now) {
            Ok(header) => header.cloned(),
            Err(why) => return self.fail(token, why, inbox),
        };
        let server = self.links.server();
        let (path, agent) =
            (format!("{}{}", server.prefix, call.request.path), server.user_agent.clone());
        let mut headers = vec![("accept", "application/json"), ("user-agent", &*agent)];
        headers.extend(header.as_ref().map(|value| ("authorization", value.expose())));
        if !body.is_empty() {
            headers.push(("content-type", content));
        }
        let Some(link) = self.links.get_mut(number) else { return };
        call.sent = Some(Sent { link: number, read: link.read });
        link.http.request(token.0, method, &path, &headers, body);
        link.stale = true;
    }

    /// Sees to everything whose time has come.
    pub fn expire(&mut self, now: Mono, inbox: &mut Inbox) {
        while let Some((number, why)) = self.links.late(now) {
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
        let (within, name) = (call.request.within, self.links.name());
        let within = format!("{}.{:03} s", within.secs(), within.millis() % 1000);
        let why = match &call.sent {
            Some(_) => format!("no answer of {name} within {within}"),
            None => format!("no connection to {name} within {within}: {}", self.links.under_way()),
        };
        inbox.done(token, Outcome::Api(Err(why)));
        if let Some(Sent { link, read }) = call.sent
            && self.links.get(link).is_some_and(|link| link.read == read)
        {
            self.close(link, "not a byte came from it, a new one is made", now, inbox);
        }
    }

    /// Ends a connection and what is under way on it.
    fn close(&mut self, number: usize, why: &str, now: Mono, inbox: &mut Inbox) {
        let on = |call: &Call| call.sent.as_ref().is_some_and(|sent| sent.link == number);
        let calls = self.calls.iter().filter(|(_, call)| on(call)).map(|(token, _)| *token);
        for token in calls.collect::<Vec<_>>() {
            self.fail(token, format!("the connection is given up: {why}"), inbox);
        }
        self.links.over(number, why, now);
        self.proceed(now, inbox);
    }

    pub fn ready(
        &mut self,
        number: usize,
        event: &mio::event::Event,
        now: Mono,
        inbox: &mut Inbox,
        vault: &mut Vault,
    ) {
        let Some(link) = self.links.get_mut(number) else { return };
        link.ready(event);
        self.pump(number, now, inbox, vault);
    }

    /// Writes what is left to write, and reads on where the last turn stopped.
    pub fn flush(&mut self, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        let full = inbox.is_full();
        let wants = |link: &Link| link.stale || (link.can_read() && !full);
        let numbers = self.links.all().filter(|(_, link)| wants(link));
        for number in numbers.map(|(number, _)| number).collect::<Vec<_>>() {
            self.pump(number, now, inbox, vault);
        }
    }

    fn pump(&mut self, number: usize, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        let mut left = READ_PER_TURN;
        while let Some(said) = self.links.drive(number) {
            for said in said {
                self.take(number, said, now, inbox, vault);
            }
            let Some(link) = self.links.get_mut(number) else { break };
            if left > 0 && link.can_read() && !inbox.is_full() {
                left = left.saturating_sub(link.read(&mut self.buffer));
            } else if !link.stale {
                break;
            }
        }
        self.links.tidy_up(number, now);
        self.proceed(now, inbox);
    }

    fn take(&mut self, number: usize, said: Said, now: Mono, inbox: &mut Inbox, vault: &mut Vault) {
        match said {
            Said::Open => {
                self.links.opened(number);
                self.proceed(now, inbox);
            }
            Said::Over(why) => {
                self.links.over(number, &why, now);
                self.proceed(now, inbox);
            }
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
        self.links.answered(number, head.status, now);
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
