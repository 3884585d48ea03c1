//! An API server in memory, with the real one's manners as far as a node agent meets them: versions, watches that
//! expire, patches that are merged, pods that are deleted in two steps. With it the door to it: the way there, and
//! seals in the place of secrets.
//!
//! It takes in calls and says what follows (`Out`): when to wake it, which calls are answered, what has changed.

pub mod cluster;
pub mod link;
mod merge;
mod permits;
mod pods;
pub mod refusal;
pub mod request;
mod serve;
pub mod store;
#[cfg(test)]
mod tests;
pub mod vault;
mod watch;

use super::offline::Store;
use super::runtime::Caller;
use crate::clock::At;
use crate::dice::Dice;
use bytes::Bytes;
use cluster::{Cluster, Place};
use link::{Fate, Link};
use refusal::Refusal;
use request::{Request, Resource};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use steplet_core::effect::ApiCall;
use steplet_core::effect::KeptEntry;
use steplet_core::event::ApiReply;
use steplet_core::sealed::Sealed;
use steplet_core::time::Span;
use vault::Vault;
use watch::Watches;

pub type Answer = Result<ApiReply, String>;

/// What the server, or the way to it, wants to be woken for.
#[derive(Clone, Debug, PartialEq)]
pub enum Wake {
    /// A request arrives at the server; nobody hears its answer when that is `lost`.
    Arrives {
        caller: Caller,
        call: Box<ApiCall>,
        lost: bool,
    },
    /// The head of a watch has come: its deadline does not count any more.
    Headed(Caller),
    /// The caller waits no longer.
    Deadline(Caller),
    /// The time of a watch is up.
    WatchEnds(Caller),
    Bookmark(Caller),
    /// A certificate is signed.
    Sign(String),
}

/// What the approvers and signers of the cluster do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Certificates are good for so long.
    For(Span),
    /// It takes so long that each has expired when it is there.
    TooLate,
    Denied,
    Failed,
    Never,
}

const YEAR: Span = Span::from_secs(365 * 86_400);

/// What follows from one input.
#[derive(Debug, Default)]
pub struct Out {
    pub wakes: Vec<(At, Wake)>,
    pub answers: Vec<(At, Caller, Answer)>,
    /// Lines of watches.
    pub lines: Vec<(At, Caller, Bytes)>,
    pub stored: Vec<Stored>,
    /// Requests that no node agent should make, and why.
    pub refused: Vec<String>,
    /// Faults of the way that struck a request.
    pub struck: Vec<&'static str>,
}

/// A change in the store.
#[derive(Clone, Debug)]
pub struct Stored {
    pub by: By,
    pub plural: &'static str,
    /// None: it is new.
    pub before: Option<Rc<Value>>,
    /// As it is now; of one that is gone, as it was last.
    pub object: Rc<Value>,
    pub gone: bool,
}

/// Who changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Agent,
    /// A user, or a controller.
    Others,
}

impl Stored {
    /// `namespace/name`; the name alone of what has no namespace.
    pub fn name(&self) -> String {
        let text = |field: &str| self.object["metadata"][field].as_str();
        let name = text("name").unwrap_or_default();
        text("namespace").map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"))
    }
}

#[derive(Debug)]
pub struct ApiServer {
    pub link: Link,
    cluster: Cluster,
    watches: Watches,
    vault: Vault,
    dice: Dice,
    node: String,
    /// Nothing takes time.
    swift: bool,
    /// Requests on their way, or at work.
    waiting: BTreeMap<Caller, At>,
    /// The most objects of a page, whatever the client's limit; 0: as the client says.
    pub page_most: usize,
    /// What becomes of requests for certificates.
    pub signing: Signing,
    /// Who a token belongs to: what token reviews answer.
    pub users: BTreeMap<String, String>,
    /// Subject access reviews allow everything; else what `grants` has.
    pub allows: bool,
    /// By user or group: `get metrics`, verb and subresource of a node.
    pub grants: BTreeSet<(String, String)>,
}

const GONE: &str = "unexpected EOF";

impl ApiServer {
    pub fn new(node: &str, swift: bool, dice: Dice) -> ApiServer {
        ApiServer {
            link: Link::default(),
            cluster: Cluster::new(dice.child(1)),
            watches: Watches::default(),
            vault: Vault::default(),
            dice: dice.child(2),
            node: node.to_owned(),
            swift,
            waiting: BTreeMap::new(),
            page_most: 0,
            signing: Signing::For(YEAR),
            users: BTreeMap::new(),
            allows: true,
            grants: BTreeSet::new(),
        }
    }

    /// The agent's door sends a request.
    pub fn call(&mut self, at: At, caller: Caller, call: ApiCall, out: &mut Out) {
        let subject = Request::read(&call).map_or(String::new(), |request| request.subject());
        let (fate, struck) = self.link.fate(&subject, &mut self.dice);
        out.struck.extend(struck);
        let deadline = at + call.within;
        self.waiting.insert(caller, deadline);
        out.wakes.push((deadline, Wake::Deadline(caller)));
        let there = at + self.trip();
        let call = Box::new(call);
        match fate {
            Fate::Through => out.wakes.push((there, Wake::Arrives { caller, call, lost: false })),
            Fate::AnswerLost => out.wakes.push((there, Wake::Arrives { caller, call, lost: true })),
            Fate::Refused => {
                let refused = "dial tcp 192.0.2.1:6443: connect: connection refused";
                out.answers.push((there, caller, Err(refused.into())));
            }
            Fate::Vanishes => {}
            Fate::Trouble(trouble) => {
                let back = there + self.trip();
                let body = Bytes::from(Refusal::trouble(trouble.code).status().to_string());
                let (status, retry_after) = (trouble.code, trouble.retry_after);
                out.answers.push((back, caller, Ok(ApiReply { status, retry_after, body })));
            }
        }
    }

    /// Goes on with what it wanted to be woken for.
    pub fn wake(&mut self, at: At, wake: Wake, out: &mut Out) {
        match wake {
            Wake::Arrives { caller, call, lost } => self.arrive(at, caller, &call, lost, out),
            Wake::Headed(caller) => {
                if let Some(watch) = self.watches.watch(caller) {
                    watch.headed = true;
                    self.waiting.remove(&caller);
                }
            }
            Wake::Deadline(caller) => {
                if self.waiting.contains_key(&caller) {
                    self.left(caller);
                    out.answers.push((at, caller, Err("context deadline exceeded".into())));
                }
            }
            Wake::WatchEnds(caller) => self.end_watch(at, caller, out),
            Wake::Bookmark(caller) => self.bookmark(at, caller, out),
            Wake::Sign(name) => self.sign(at, &name, out),
        }
    }

    /// Nobody waits for the answer any more: it came, was cancelled, or its caller has died.
    pub fn left(&mut self, caller: Caller) {
        self.waiting.remove(&caller);
        self.watches.close(caller);
    }

    /// The agent has died, and with it what its door remembered.
    pub fn forget(&mut self) {
        self.vault = Vault::default();
    }

    /// What a start of the agent finds in the offline store.
    pub fn reads(&mut self, store: &Store) -> Vec<KeptEntry> {
        store.read(&mut self.vault)
    }

    /// The secrets that the agent's door has sealed.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// The agent's door seals what a visitor brought.
    pub fn seal(&mut self, secret: &str) -> Sealed {
        self.vault.seal(secret)
    }

    /// How long a message is on its way.
    fn trip(&mut self) -> Span {
        let usual = if self.swift { 0 } else { self.dice.between(200_000, 12_000_000) };
        let slow = match self.link.slow_by {
            Span::ZERO => Span::ZERO,
            by => self.dice.span(Span::ZERO, by),
        };
        Span(usual) + slow
    }

    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        let resource = Resource::of_plural(plural)?;
        let place = Place { resource, namespace, name, status: false };
        self.cluster.object(place).ok().map(|object| &**object)
    }

    /// All objects of a kind, in order of namespace and name.
    pub fn objects(&self, plural: &str) -> impl Iterator<Item = &Value> {
        self.cluster.store.all(plural).map(|object| &**object)
    }

    /// Somebody in the cluster creates an object.
    pub fn create(&mut self, at: At, object: Value, out: &mut Out) -> Result<(), Refusal> {
        let (resource, namespace) = place_of(&object)?;
        self.write(at, By::Others, out, |cluster| cluster.create(at, resource, &namespace, object))
            .map(|_| ())
    }

    /// Somebody changes an object, whatever its version; its status when `part` says so.
    pub fn update(
        &mut self,
        at: At,
        part: &str,
        patch: &Value,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let (resource, namespace) = place_of(patch)?;
        let name = patch["metadata"]["name"].as_str().unwrap_or_default();
        let place = Place { resource, namespace: &namespace, name, status: part == "status" };
        self.write(at, By::Others, out, |cluster| cluster.patch(place, patch)).map(|_| ())
    }

    /// Somebody deletes an object; a pod with this grace, or its own.
    pub fn delete(
        &mut self,
        at: At,
        (plural, namespace, name): (&str, &str, &str),
        grace_seconds: Option<i64>,
        out: &mut Out,
    ) -> Result<(), Refusal> {
        let resource = Resource::of_plural(plural).ok_or_else(|| Refusal::not_here(plural))?;
        let place = Place { resource, namespace, name, status: false };
        let options = grace_seconds.map_or(json!({}), |grace| json!({"gracePeriodSeconds": grace}));
        self.write(at, By::Others, out, |cluster| cluster.delete(at, place, &options)).map(|_| ())
    }

    /// Does something to the objects, and tells of what has changed.
    fn write<T>(
        &mut self,
        at: At,
        by: By,
        out: &mut Out,
        what: impl FnOnce(&mut Cluster) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let before = self.cluster.store.version();
        let done = what(&mut self.cluster);
        self.spread(at, before, by, out);
        done
    }

    /// The history is gone: watches that begin in the past are too old.
    pub fn expire(&mut self) {
        self.cluster.store.expire();
    }

    /// Every watch breaks in the middle.
    pub fn cut_watches(&mut self, at: At, out: &mut Out) -> usize {
        let callers = self.watches.callers();
        for caller in &callers {
            self.left(*caller);
            out.answers.push((at, *caller, Err(GONE.into())));
        }
        callers.len()
    }

    /// The server's process ends: what is open breaks.
    pub fn go_down(&mut self, at: At, out: &mut Out) {
        self.link.down = true;
        self.cut_watches(at, out);
        for caller in std::mem::take(&mut self.waiting).into_keys() {
            out.answers.push((at, caller, Err(GONE.into())));
        }
    }

    /// The way is open again: what was held back arrives, if the connection has survived.
    pub fn close_hole(&mut self, at: At, out: &mut Out) {
        self.link.hole = false;
        for caller in self.watches.callers() {
            let Some(watch) = self.watches.watch(caller) else { continue };
            if watch.ended {
                self.left(caller);
                out.answers.push((at, caller, Err("read: connection reset by peer".into())));
                continue;
            }
            for line in watch.release() {
                out.lines.push((watch.arrival(at), caller, line));
            }
        }
    }
}

/// What an object is, and where it belongs.
fn place_of(object: &Value) -> Result<(&'static Resource, String), Refusal> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let resource = Resource::of_kind(kind);
    let resource = resource.ok_or_else(|| Refusal::bad(format!("no kind {kind:?} is known")))?;
    let namespace = object["metadata"]["namespace"].as_str();
    let namespace = if resource.namespaced { namespace.unwrap_or("default") } else { "" };
    Ok((resource, namespace.to_owned()))
}
