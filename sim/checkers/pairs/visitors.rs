//! Whoever asks on a port of the agent is answered, once; and of streams there are never too many.

use super::Judge;
use crate::clock::At;
use crate::ledger::{Ask, Ledger};
use crate::trace::{Fact, Moment, Streamed};
use std::collections::{BTreeMap, BTreeSet};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::ids::RequestId;
use steplet_core::time::Span;

/// As many as the door may have open (issue 4, item 7).
const STREAMS_MOST: usize = 64;
/// On top of what the runtime may take: a token and three questions about its owner, 30 s each.
const PATIENCE: Span = Span::from_secs(150);

#[derive(Default)]
pub struct Visitors {
    waiting: BTreeMap<RequestId, At>,
    /// Logs that are followed: their end is to come, however late.
    follows: BTreeSet<RequestId>,
    /// Their clients have left; an answer that is on its way may still come.
    gone: BTreeSet<RequestId>,
    streams: BTreeSet<RequestId>,
    longest: Span,
}

impl Visitors {
    /// The last word on a request.
    fn end(&mut self, request: RequestId, what: &str, out: &mut Vec<String>) {
        let waited = self.waiting.remove(&request).is_some() || self.gone.remove(&request);
        if !waited {
            out.push(format!("{what} for {request:?}, which does not wait for one"));
        }
    }
}

impl Judge for Visitors {
    fn promise(&self) -> &'static str {
        "each request has exactly one end"
    }

    fn ended(&mut self, _: &Ledger, _: Moment) {
        self.waiting.clear();
        self.follows.clear();
        self.gone.clear();
    }

    fn event(&mut self, _: &Ledger, moment: Moment, event: &Event, out: &mut Vec<String>) {
        match event {
            Event::Boot(boot) => {
                self.longest = boot.settings.runtime_request_timeout + PATIENCE;
            }
            Event::Request(request) => {
                self.waiting.insert(request.id, moment.at);
            }
            Event::Gone { request } if !self.follows.remove(request) => {
                self.waiting.remove(request);
                self.gone.insert(*request);
            }
            _ => {}
        }
        let longest = self.longest;
        let late = |(_, since): &(&RequestId, &At)| moment.at.since(**since) > longest;
        if let Some((request, _)) = self.waiting.iter().find(late) {
            let request = *request;
            out.push(format!("{request:?} waits for more than {} s", longest.secs()));
            self.waiting.remove(&request);
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        _: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            match effect {
                Effect::Reply { request, .. } => self.end(*request, "a reply", out),
                Effect::Stream { request, .. } => self.end(*request, "a stream", out),
                Effect::SendFile { request, .. } => self.end(*request, "a file", out),
                Effect::SendLog { request, log } => {
                    self.end(*request, "a log", out);
                    if log.follow {
                        self.follows.insert(*request);
                    }
                }
                Effect::EndLog { request } if !self.follows.remove(request) => {
                    out.push(format!("the end of a log for {request:?}, which follows none"));
                }
                _ => {}
            }
        }
    }

    fn fact(&mut self, _: &Ledger, _: Moment, fact: &Fact, out: &mut Vec<String>) {
        let Fact::Stream { request, what } = fact else { return };
        match what {
            Streamed::Opened => {
                self.streams.insert(*request);
            }
            Streamed::Refused(_) => {}
            Streamed::Ended(_) => {
                self.streams.remove(request);
            }
        }
        if self.streams.len() > STREAMS_MOST {
            out.push(format!("{} streams are open at once", self.streams.len()));
        }
    }
}
