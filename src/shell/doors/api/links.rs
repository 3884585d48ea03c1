//! The way to the API server: one connection that takes requests, the steps towards it, and those that it replaced.
//!
//! ```text
//!  Down -> Asking (a plugin, a name) -> Dialing (addresses, proxy, TLS) -> Up
//!    ^____________________|__________________|_______________________________|
//! ```
//! Nothing is done before a request wants a connection. Back from Up, the next request may try at once; after a
//! failure on the way it is told the reason until the back-off is over.

use super::credential::Credentials;
use super::link::{Link, Said};
use super::pipe::Pipe;
use super::server::{Address, ApiServer, Login};
use crate::shell::clock;
use crate::shell::doors::{Door, Job, reason};
use crate::shell::vault::Secret;
use mio::Registry;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use steplet_core::event::{DiskReply, Outcome};
use steplet_core::time::{Mono, Span, Wall};
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

pub struct Links {
    registry: Registry,
    door: Door,
    server: ApiServer,
    credentials: Credentials,
    phase: Phase,
    links: BTreeMap<usize, Link>,
    /// Links that were ever made.
    made: usize,
    jobs: Vec<Job>,
    retry_at: Mono,
    back_off: Span,
    /// Why there is no connection.
    down: String,
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

#[derive(Clone, Copy)]
enum Question {
    Plugin,
    Name,
}

impl Links {
    pub fn new(registry: Registry, door: Door, server: ApiServer) -> Links {
        let (login, kept) = (server.login.clone(), server.kept.clone());
        Links {
            registry,
            door,
            credentials: Credentials::new(login, server.identity.clone(), kept),
            server,
            phase: Phase::Down,
            links: BTreeMap::new(),
            made: 0,
            jobs: Vec::new(),
            retry_at: Mono(0),
            back_off: BACK_OFF,
            down: String::new(),
        }
    }

    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// The files of the credentials have changed.
    pub fn look_again(&mut self) {
        self.credentials.look_again();
        self.retry_at = Mono(0);
        self.back_off = BACK_OFF;
    }

    /// The server, for people.
    pub fn name(&self) -> String {
        let (address, prefix) = (self.server.address.authority(), &self.server.prefix);
        match &self.server.proxy {
            None => format!("https://{address}{prefix}"),
            Some(proxy) => {
                format!("https://{address}{prefix} through the proxy {}", proxy.address.authority())
            }
        }
    }

    pub fn get(&self, number: usize) -> Option<&Link> {
        self.links.get(&number)
    }

    pub fn get_mut(&mut self, number: usize) -> Option<&mut Link> {
        self.links.get_mut(&number)
    }

    /// Lets a connection go on, and says what happened on it; None if it is over.
    pub fn drive(&mut self, number: usize) -> Option<Vec<Said>> {
        self.links.get_mut(&number).map(|link| link.drive(&self.registry))
    }

    pub fn all(&self) -> impl Iterator<Item = (usize, &Link)> {
        self.links.iter().map(|(number, link)| (*number, link))
    }

    /// What a helper shall do next.
    pub fn take_job(&mut self) -> Option<Job> {
        self.jobs.pop()
    }

    /// The value of `Authorization` for a request now.
    pub fn header(&mut self, now: Mono) -> Result<Option<&Secret>, String> {
        self.credentials.header(now)
    }

    /// The connection for a request, or None while it is on its way. Errors: there is none, and why.
    pub fn usable(&mut self, now: Mono) -> Result<Option<usize>, String> {
        if matches!(self.phase, Phase::Up(_)) {
            if self.credentials.has_changed(now) {
                log::info!("Our certificate has changed: the next connection shows the new one");
                self.leave(now);
            } else if self.credentials.wants_plugin(wall()) {
                self.leave(now);
            }
        }
        if matches!(self.phase, Phase::Down) && self.retry_at <= now {
            self.begin(now);
        }
        match self.phase {
            Phase::Up(number) => Ok(Some(number)),
            Phase::Asking(_) | Phase::Dialing { .. } => Ok(None),
            Phase::Down => Err(self.down.clone()),
        }
    }

    /// What is under way while there is no connection, for people.
    pub fn under_way(&self) -> &'static str {
        match self.phase {
            Phase::Asking(Question::Plugin) => "the credential plugin is being asked",
            Phase::Asking(Question::Name) => "its name is being looked up",
            Phase::Down | Phase::Dialing { .. } | Phase::Up(_) => "it is being connected to",
        }
    }

    /// Begins to connect: with a plugin, a name, or an address.
    fn begin(&mut self, now: Mono) {
        if let Login::Exec(plugin) = &self.server.login
            && self.credentials.wants_plugin(wall())
        {
            self.jobs.push(Job::AskPlugin(plugin.clone()));
            self.credentials.asking(now);
            self.phase = Phase::Asking(Question::Plugin);
            return;
        }
        let proxy = self.server.proxy.as_ref();
        let address = proxy.map_or(&self.server.address, |proxy| &proxy.address);
        if let Some(literal) = address.literal() {
            return self.dial(vec![literal], now);
        }
        let Address { host, port } = address.clone();
        self.jobs.push(Job::LookUp { host, port });
        self.phase = Phase::Asking(Question::Name);
    }

    /// A helper has done what it was asked for.
    pub fn helped(&mut self, outcome: Outcome, now: Mono) {
        let (Phase::Asking(question), Outcome::Disk(result)) = (&self.phase, outcome) else {
            return;
        };
        match (question, result) {
            (Question::Plugin, Ok(DiskReply::Text(printed))) => {
                match self.credentials.grant(&printed) {
                    Ok(()) => self.begin(now),
                    Err(why) => self.unreachable(&format!("the credential plugin: {why}"), now),
                }
            }
            (Question::Name, Ok(DiskReply::Names(found))) => {
                let found = found.iter().filter_map(|address| address.parse().ok());
                let mut found: Vec<SocketAddr> = found.take(ADDRESSES_MAX).collect();
                // The next one is at the end.
                found.reverse();
                self.dial(found, now);
            }
            (_, Ok(_)) => self.unreachable("a helper answered something else", now),
            (_, Err(fault)) => self.unreachable(&fault.message, now),
        }
    }

    /// Connects to the last of these addresses, and keeps the others for when it fails.
    fn dial(&mut self, mut left: Vec<SocketAddr>, now: Mono) {
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
        self.unreachable(&why, now);
    }

    fn connect(&mut self, address: SocketAddr, open_by: Mono) -> Result<usize, String> {
        let (tls, outer) = self.sessions()?;
        let (to, number) = (self.server.address.authority(), self.made);
        let (proxy, agent) = (self.server.proxy.as_ref(), &self.server.user_agent);
        let pipe = Pipe::connect(address, proxy, &to, agent, outer);
        let pipe = pipe.map_err(|error| reason(&error))?;
        let link = Link::new(&self.registry, self.door.token(number), pipe, tls, &to, open_by);
        self.links.insert(number, link.map_err(|error| reason(&error))?);
        self.made += 1;
        Ok(number)
    }

    /// TLS with the API server, and with the proxy if it wants that.
    fn sessions(&mut self) -> Result<(TlsSession, Option<TlsSession>), String> {
        let server = &self.server;
        let authorities = server.authorities.read()?;
        let trust = authorities.as_deref().map_or(Trust::Everybody, Trust::Authorities);
        let identity = self.credentials.identity(wall())?;
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

    /// No connection can be made.
    fn unreachable(&mut self, why: &str, now: Mono) {
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
    }

    fn wait(&mut self, now: Mono) {
        let by_chance = RandomState::new().build_hasher().finish() % (self.back_off.0 / 2);
        self.retry_at = now + Span(self.back_off.0 - by_chance);
        self.back_off = Span(self.back_off.times(2).0.min(BACK_OFF_MAX.0));
    }

    /// A connection is ready for requests.
    pub fn opened(&mut self, number: usize) {
        log::info!("Connected to {}", self.name());
        self.down.clear();
        self.phase = Phase::Up(number);
    }

    /// A request was answered with this status.
    pub fn answered(&mut self, number: usize, status: u16, now: Mono) {
        self.back_off = BACK_OFF;
        if let Some(link) = self.links.get_mut(&number) {
            link.answered = true;
        }
        if status == 401 {
            self.credentials.refused(now);
        }
    }

    /// The connection takes no more requests; the next one makes another.
    fn leave(&mut self, now: Mono) {
        if let Phase::Up(number) = self.phase {
            self.phase = Phase::Down;
            self.retry_at = now;
            if let Some(link) = self.links.get_mut(&number) {
                link.open_by = now + LEAVING_TIME;
            }
        }
    }

    /// Leaves a connection that the server wants to end, and lets go of one that was left and has no requests.
    pub fn tidy_up(&mut self, number: usize, now: Mono) {
        let Some(link) = self.links.get(&number).filter(|link| link.is_open()) else { return };
        if self.is_current(number) && !link.http.accepts_requests() {
            log::info!("{} asks to connect anew", self.name());
            self.leave(now);
        }
        let idle = self.links.get(&number).is_some_and(|link| link.http.open_requests() == 0);
        if idle && !self.is_current(number) {
            self.links.remove(&number);
        }
    }

    /// A connection is over; nothing is under way on it.
    pub fn over(&mut self, number: usize, why: &str, now: Mono) {
        // Closing the descriptor also ends the interest in it.
        let Some(link) = self.links.remove(&number) else { return };
        match &mut self.phase {
            Phase::Dialing { link, left } if *link == number => {
                if left.is_empty() {
                    return self.unreachable(why, now);
                }
                let left = std::mem::take(left);
                self.dial(left, now);
            }
            Phase::Up(up) if *up == number => {
                self.phase = Phase::Down;
                self.down = format!("the connection to {} has ended: {why}", self.name());
                // A server that is leaving closes what is idle.
                let level = if link.lost { log::Level::Warn } else { log::Level::Info };
                log::log!(level, "{}", self.down);
                self.retry_at = now;
                if !link.answered {
                    self.wait(now);
                }
            }
            _ => {}
        }
    }

    /// Whether this link takes requests.
    fn is_current(&self, number: usize) -> bool {
        matches!(self.phase, Phase::Up(up) if up == number)
    }

    /// When a connection is to be given up that is not open yet, or was left.
    pub fn deadline(&self) -> Option<Mono> {
        let others = self.all().filter(|(number, _)| !self.is_current(*number));
        others.map(|(_, link)| link.open_by).min()
    }

    /// A connection whose time is up, and what is to be said of it.
    pub fn late(&self, now: Mono) -> Option<(usize, &'static str)> {
        let mut others = self.all().filter(|(number, _)| !self.is_current(*number));
        let (number, link) = others.find(|(_, link)| link.open_by <= now)?;
        let why = match (link.is_open(), link.is_connected()) {
            (true, _) => "it was replaced by another one",
            (false, true) => "it does not answer",
            (false, false) => "it cannot be connected to in time",
        };
        Some((number, why))
    }
}

fn wall() -> Wall {
    clock::Clock::new().now().wall
}
