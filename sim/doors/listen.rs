//! The agent's ports and whoever asks there, and the runtime's streaming server behind them. No bytes are simulated: only
//! which requests are unanswered, and which streams are open.

use crate::trace::{Fact, Seen, StreamEnd, Streamed};
use crate::world::World;
use std::collections::BTreeMap;
use steplet_core::effect::{LogQuery, Reply};
use steplet_core::event::{Event, Listener, Request, User};
use steplet_core::ids::RequestId;

/// Streams that the agent's door has open at once.
pub const STREAMS_MAX: usize = 64;

/// A request as its client sends it.
#[derive(Clone, Debug)]
pub struct Visit {
    pub listener: Listener,
    pub method: String,
    /// Path and query; nothing in it is escaped.
    pub target: String,
    pub loopback: bool,
    /// Who the client's certificate names, or why that does not count.
    pub certificate: Option<Result<User, String>>,
    pub bearer: Option<String>,
    pub upgrade: bool,
    pub body: String,
}

impl Visit {
    /// From this machine, without a name.
    pub fn get(listener: Listener, target: &str) -> Visit {
        Visit {
            listener,
            method: "GET".into(),
            target: target.into(),
            loopback: true,
            certificate: None,
            bearer: None,
            upgrade: false,
            body: String::new(),
        }
    }
}

/// How the runtime's streaming server takes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    #[default]
    Serves,
    /// Nobody listens.
    Refuses,
    /// With this status, and no upgrade.
    Answers(u16),
}

#[derive(Debug, Default)]
pub struct Listen {
    asked: u64,
    /// Requests that the agent still has to do with, by what they asked for.
    open: BTreeMap<RequestId, String>,
    /// Open streams: what was asked for, and the URL that the runtime gave.
    streams: BTreeMap<RequestId, (String, String)>,
    /// Replies that nobody has taken yet.
    pub replies: BTreeMap<RequestId, Reply>,
    pub manner: Manner,
}

impl Listen {
    /// Opens a stream for a request whose client is still there.
    fn stream(&mut self, request: RequestId, url: String) -> Option<Streamed> {
        let target = self.open.remove(&request)?;
        Some(match self.manner {
            _ if self.streams.len() >= STREAMS_MAX => Streamed::Refused(429),
            Manner::Refuses => Streamed::Refused(500),
            Manner::Answers(status) => Streamed::Refused(status),
            Manner::Serves => {
                self.streams.insert(request, (target, url));
                Streamed::Opened
            }
        })
    }
}

impl World {
    /// Asks one of the agent's ports for a page of it, from this machine.
    pub fn request(&mut self, listener: Listener, target: &str) -> Option<RequestId> {
        self.visit(Visit::get(listener, target))
    }

    /// Asks one of the agent's ports; a reply comes into `replies`. None: the agent is not there.
    pub fn visit(&mut self, visit: Visit) -> Option<RequestId> {
        self.agent.as_ref()?;
        self.listen.asked += 1;
        let id = RequestId(self.listen.asked);
        let (path, query) = visit.target.split_once('?').unwrap_or((&visit.target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        self.listen.open.insert(id, visit.target.clone());
        let request = Request {
            id,
            listener: visit.listener,
            method: visit.method,
            path: path.into(),
            query: pairs.map(|(key, value)| (key.into(), value.into())).collect(),
            loopback: visit.loopback,
            certificate: visit.certificate,
            bearer: visit.bearer.map(|token| self.api.seal(&token)),
            upgrade: visit.upgrade,
            body: visit.body.into(),
        };
        self.step(Event::Request(request.into()));
        Some(id)
    }

    pub(crate) fn reply(&mut self, request: RequestId, reply: Reply) {
        if self.listen.open.remove(&request).is_some() {
            self.listen.replies.insert(request, reply);
        }
    }

    /// A log that is followed is the agent's affair until its container stops.
    pub(crate) fn send_log(&mut self, request: RequestId, log: &LogQuery) {
        if !log.follow {
            self.listen.open.remove(&request);
        }
    }

    pub(crate) fn send_file(&mut self, request: RequestId) {
        self.listen.open.remove(&request);
    }

    pub(crate) fn end_log(&mut self, request: RequestId) {
        self.listen.open.remove(&request);
    }

    pub(crate) fn stream(&mut self, request: RequestId, url: String) {
        if let Some(what) = self.listen.stream(request, url) {
            self.show(&Seen::Fact(&Fact::Stream { request, what }));
        }
    }

    /// The clients of what was asked with this target go away; how many there were.
    pub fn leave(&mut self, target: &str) -> usize {
        let asked = |(id, known): (&RequestId, &String)| (known == target).then_some(*id);
        let open: Vec<RequestId> = self.listen.open.iter().filter_map(asked).collect();
        for request in &open {
            self.listen.open.remove(request);
            self.step(Event::Gone { request: *request });
        }
        open.len() + self.end_streams(StreamEnd::Client, |known, _| known == target)
    }

    /// The streaming server ends the streams of a container or a sandbox; how many there were.
    pub fn cut_streams(&mut self, id: &str) -> usize {
        self.end_streams(StreamEnd::Server, |_, url| url.ends_with(id))
    }

    /// Ends the streams that `which` picks by target and URL.
    pub(crate) fn end_streams(
        &mut self,
        by: StreamEnd,
        which: impl Fn(&str, &str) -> bool,
    ) -> usize {
        let streams = std::mem::take(&mut self.listen.streams);
        let (over, left) = streams.into_iter().partition(|(_, (known, url))| which(known, url));
        self.listen.streams = left;
        let over: BTreeMap<RequestId, (String, String)> = over;
        for request in over.keys() {
            let what = Streamed::Ended(by);
            self.show(&Seen::Fact(&Fact::Stream { request: *request, what }));
        }
        over.len()
    }

    /// The agent's process is gone, and with it its connections.
    pub(crate) fn drop_connections(&mut self) {
        self.listen.open.clear();
        self.end_streams(StreamEnd::Agent, |_, _| true);
    }
}
