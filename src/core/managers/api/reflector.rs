//! A list of objects kept up to date: listed once, then watched, and listed anew when the thread is lost.
//!
//! Upstream: client-go/tools/cache/reflector.go (v1.36): bookmarks, 410, back-off of 0.8 to 30 s.
//! It is a part of the manager whose objects it brings, which hands it the answers to its calls.
//! Owns: the version up to which the list is known. Publishes: -. Hears: -. Says: -. Asks: GET and watch of the list.
//! Never: takes what it cannot read for gone; it is passed on by its name.

use super::{Refusal, WITHIN, escaped, judged};
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, Lane, Verb};
use crate::event::Outcome;
use crate::ids::Token;
use crate::rng::Rng;
use crate::route::Then;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{ApiStatus, List, OnlyMeta, WatchKind, WatchLine, kind_of_line};
use steplet_api::json;
use steplet_api::meta::{Named, ObjectMeta};

const REST: Span = Span::from_millis(800);
/// After an outage, stretched by up to as much again.
const BACK: Span = Span::from_millis(100);
const REST_MOST: Span = Span::from_secs(30);
/// Objects a page of a list.
const PAGE: u32 = 500;
/// Pages of one list; more is no list of a node's objects.
const PAGES_MOST: usize = 100;
/// A watch is ended by the server after five to ten minutes.
const WATCH_LEAST: u64 = 300;
/// A watch that lasted so long was well.
const LASTED: Span = Span::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reflector {
    /// `/api/v1/pods`
    path: String,
    /// `fieldSelector=...`, or empty.
    selector: String,
    seals: bool,
    lane: Lane,
    state: State,
    version: String,
    pause: Option<Span>,
    rng: Rng,
    /// What was last said to be wrong.
    problem: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum State {
    #[default]
    Off,
    /// Waits before it lists, or watches on from `version`.
    Resting {
        until: Mono,
        list: bool,
    },
    Listing {
        call: Token,
        pages: Vec<Bytes>,
    },
    Watching {
        call: Token,
        since: Mono,
    },
}

/// What a line of the watch brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<T> {
    /// It is there, and like this.
    Set(T),
    Gone(T),
    /// It is there in a form that cannot be read.
    Unreadable(Box<Unread>),
}

/// The name of an object that cannot be read, and why.
pub type Unread = (ObjectMeta, String);

/// All objects there are. Those that cannot be read are there too.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    pub items: Vec<T>,
    pub unreadable: Vec<Unread>,
}

impl Reflector {
    /// Of the objects at `path` whose field has this value; `field` like `spec.nodeName`.
    pub fn of(path: &str, field: &str, value: &str, rng: Rng) -> Reflector {
        let selector = match field {
            "" => String::new(),
            field => format!("fieldSelector={}", escaped(&format!("{field}={value}"))),
        };
        Reflector { path: path.into(), selector, rng, ..Reflector::default() }
    }

    /// Its objects hold secrets.
    pub fn sealed(mut self) -> Reflector {
        self.seals = true;
        self
    }

    /// Asks on this lane.
    pub fn by(mut self, lane: Lane) -> Reflector {
        self.lane = lane;
        self
    }

    pub fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Resting { until, .. } => Some(until),
            State::Off | State::Listing { .. } | State::Watching { .. } => None,
        }
    }

    /// Begins, unless it has begun.
    pub fn start(&mut self, cx: &mut Cx<'_>, then: impl Into<Then>) {
        if self.state == State::Off {
            self.list(cx, then, "", Vec::new());
        }
    }

    pub fn stop(&mut self, cx: &mut Cx<'_>) {
        match core::mem::take(&mut self.state) {
            State::Listing { call, .. } | State::Watching { call, .. } => cx.cancel(call),
            State::Off | State::Resting { .. } => {}
        }
    }

    /// The server answers somebody again: no need to wait, but not all at the same moment.
    pub fn on_api_back(&mut self, cx: &Cx<'_>) {
        if let State::Resting { until, .. } = &mut self.state {
            self.pause = None;
            *until = (*until).min(cx.now.mono + self.rng.jitter(BACK, 100));
        }
    }

    /// What is watched cannot be the whole: lists anew after a while.
    pub fn again(&mut self, cx: &mut Cx<'_>, after: Span) {
        if let State::Watching { call, .. } = self.state {
            cx.cancel(call);
            self.state = State::Resting { until: cx.now.mono + after, list: true };
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>, then: impl Into<Then>) {
        match self.state {
            State::Resting { until, list } if until <= cx.now.mono => match list {
                true => self.list(cx, then, "", Vec::new()),
                false => self.watch(cx, then),
            },
            _ => {}
        }
    }

    /// A line of the watch.
    pub fn on_line<T>(&mut self, cx: &mut Cx<'_>, line: &Bytes) -> Option<Change<T>>
    where
        T: DeserializeOwned + Default + Named,
    {
        let State::Watching { call, since } = self.state else { return None };
        let (kind, read) = match json::from_slice::<WatchLine<T>>(line) {
            Ok(line) if line.kind != WatchKind::Error => (line.kind, Ok(line.object)),
            // Its object cannot be read, or is no T, or it is no line at all.
            other => match kind_of_line(line) {
                Ok(kind) if kind != WatchKind::Error => (kind, Err(other.err())),
                kind => {
                    self.broken(line, kind);
                    cx.cancel(call);
                    self.rest(cx, true);
                    return None;
                }
            },
        };
        if cx.now.mono.since(since) >= LASTED {
            (self.pause, self.problem) = (None, None);
        }
        let object = match read {
            Ok(object) => object,
            Err(why) => {
                let line = json::from_slice::<WatchLine<OnlyMeta>>(line);
                let meta = line.map_or_else(|_| ObjectMeta::default(), |it| it.object.metadata);
                let unread = (meta, why.unwrap_or_default());
                return (kind == WatchKind::Set).then_some(Change::Unreadable(Box::new(unread)));
            }
        };
        let version = &*object.metadata().resource_version;
        if !version.is_empty() {
            self.version = version.into();
        }
        match kind {
            WatchKind::Set => Some(Change::Set(object)),
            WatchKind::Deleted => Some(Change::Gone(object)),
            WatchKind::Bookmark | WatchKind::Error => None,
        }
    }

    /// A line that ends the watch.
    fn broken(&mut self, line: &[u8], kind: Result<WatchKind, String>) {
        if let Err(why) = kind {
            // What it would have said is lost: only a new list can tell.
            return self.complain(format!("a line of the watch cannot be read: {why}"));
        }
        let status = json::from_slice::<WatchLine<ApiStatus>>(line).map(|line| line.object);
        let refusal = Refusal::of_status(status.unwrap_or_default());
        // That it is only behind is no trouble, and the list may come at once.
        match refusal.is_expired() {
            true => self.pause = None,
            false => self.complain(refusal.message),
        }
    }

    /// The end of one of its calls; a whole list, when that is what it brought.
    pub fn on_done<T>(
        &mut self,
        cx: &mut Cx<'_>,
        then: impl Into<Then>,
        outcome: Outcome,
    ) -> Option<Listed<T>>
    where
        T: DeserializeOwned,
    {
        match (core::mem::take(&mut self.state), judged(outcome)) {
            (State::Listing { mut pages, .. }, Ok(page)) => {
                let read = json::from_slice::<List>(&page);
                let next = read.map(|list| String::from(&*list.metadata.continue_token));
                pages.push(page);
                match next {
                    Ok(next) if !next.is_empty() && pages.len() < PAGES_MOST => {
                        self.list(cx, then, &next, pages);
                        None
                    }
                    Ok(next) if !next.is_empty() => {
                        self.fail(cx, format!("more than {PAGES_MOST} pages"), true, None);
                        None
                    }
                    Ok(_) => self.listed(cx, then, &pages),
                    Err(why) => {
                        self.fail(cx, why, true, None);
                        None
                    }
                }
            }
            (State::Watching { since, .. }, Ok(_)) if cx.now.mono.since(since) >= LASTED => {
                (self.pause, self.problem) = (None, None);
                self.watch(cx, then);
                None
            }
            (State::Watching { .. }, Ok(_)) => {
                self.rest(cx, false);
                None
            }
            (State::Listing { .. } | State::Watching { .. }, Err(refusal))
                if refusal.is_expired() =>
            {
                self.pause = None;
                self.rest(cx, true);
                None
            }
            (State::Listing { .. }, Err(refusal)) => {
                self.fail(cx, refusal.message, true, refusal.retry_after);
                None
            }
            (State::Watching { .. }, Err(refusal)) => {
                // Who does not know the version any more says 410; after all else the watch may go on.
                self.fail(cx, refusal.message, false, refusal.retry_after);
                None
            }
            (other, _) => {
                self.state = other;
                None
            }
        }
    }

    fn listed<T>(
        &mut self,
        cx: &mut Cx<'_>,
        then: impl Into<Then>,
        pages: &[Bytes],
    ) -> Option<Listed<T>>
    where
        T: DeserializeOwned,
    {
        let mut listed = Listed { items: Vec::new(), unreadable: Vec::new() };
        for page in pages {
            let Ok(list) = json::from_slice::<List>(page) else { continue };
            self.version = String::from(&*list.metadata.resource_version);
            for item in list.items() {
                match json::from_slice::<T>(item) {
                    Ok(object) => listed.items.push(object),
                    Err(why) => {
                        let meta = json::from_slice::<OnlyMeta>(item).unwrap_or_default().metadata;
                        listed.unreadable.push((meta, why));
                    }
                }
            }
        }
        self.problem = None;
        self.watch(cx, then);
        Some(listed)
    }

    fn list(&mut self, cx: &mut Cx<'_>, then: impl Into<Then>, next: &str, pages: Vec<Bytes>) {
        let mut path = format!("{}?limit={PAGE}", self.path);
        for part in [&self.selector, &more(next)] {
            if !part.is_empty() {
                path = format!("{path}&{part}");
            }
        }
        let call = cx.call(then, self.request(Verb::Get, path));
        self.state = State::Listing { call, pages };
    }

    fn watch(&mut self, cx: &mut Cx<'_>, then: impl Into<Then>) {
        let seconds = WATCH_LEAST + self.rng.below(WATCH_LEAST);
        let mut path = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}",
            self.path,
            escaped(&self.version)
        );
        if !self.selector.is_empty() {
            path = format!("{path}&{}", self.selector);
        }
        let call = cx.call(then, self.request(Verb::Watch, path));
        self.state = State::Watching { call, since: cx.now.mono };
    }

    fn request(&self, verb: Verb, path: String) -> Call {
        let (body, lane, seals) = (Bytes::new(), self.lane, self.seals);
        Call::Api(ApiCall { verb, path, body, within: WITHIN, lane, seals, secret: None })
    }

    fn fail(&mut self, cx: &Cx<'_>, why: String, list: bool, after: Option<Span>) {
        self.complain(why);
        self.rest(cx, list);
        if let (State::Resting { until, .. }, Some(after)) = (&mut self.state, after) {
            *until = (*until).max(cx.now.mono + after);
        }
    }

    fn rest(&mut self, cx: &Cx<'_>, list: bool) {
        let rest = self.pause.map_or(REST, |pause| pause.times(2).min(REST_MOST));
        self.pause = Some(rest);
        self.state = State::Resting { until: cx.now.mono + self.rng.jitter(rest, 100), list };
    }

    fn complain(&mut self, why: String) {
        if self.problem.as_ref() != Some(&why) {
            log::warn!("Cannot follow {} of the API server: {why}", self.path);
            self.problem = Some(why);
        }
    }
}

fn more(next: &str) -> String {
    if next.is_empty() { String::new() } else { format!("continue={}", escaped(next)) }
}
