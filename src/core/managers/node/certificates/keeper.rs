//! Keeps one certificate: looks at the pair that is there, and asks for another one in time.
//!
//! ```text
//!            .-------------------- Resting <---------------------------------.
//!            v                        ^  a good pair, or nothing to be done   |
//!  Off -> Looking -> (plan) ----------'                                       | failed: the same key again
//!                      |  none, old, of other names                           | refused: a new key, much later
//!                      v                                                      |
//!                   Signing -> Posting -> Waiting -> Storing -----------------'
//! ```
//! Upstream: client-go/util/certificate/certificate_manager.go (v1.36), which makes a new key for each attempt.
//! Owns: the pair in use, as it was last seen, and the request for the next one. Publishes: -, the manager of both does.
//! Hears: NodeKnown and ApiBack, by way of it. Says: -. Asks: ReadPair, RequestPair, StorePair and DropKey of the disk;
//! POST, LIST and watch of one CertificateSigningRequest.
//! Never: lets go of key and request before a certificate is stored or refused: after a failure, a deadline or a restart
//! the same object is found again, so there is never more than one of a kind.

use super::plan::{self, Fate, Kind};
use super::{Ask, LOOK};
use crate::backoff::BackOff;
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, CertificateNames, DiskOp, HelperOp, Lane, Verb};
use crate::event::{DiskReply, Fault, FaultKind, HelperReply, Item, Outcome, Pair};
use crate::managers::api::reflector::{Change, Reflector};
use crate::managers::api::{WITHIN, judged};
use crate::rng::Rng;
use crate::time::{Mono, Span, Wall};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::CertificateSigningRequest;
use steplet_api::time::Time;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// For an approval.
const WAIT: Span = Span::from_secs(15 * 60);
const WAIT_FOR_FIRST: Span = Span::from_secs(3_600);
/// After a failure: doubled four times.
const REST: Span = Span::from_secs(2);
const REST_MOST: Span = Span::from_secs(32);
/// After a refusal, which needs a new request: doubled up to an hour, since each leaves an object behind.
const REFUSED: Span = Span::from_secs(5 * 60);
const REFUSED_MOST: Span = Span::from_secs(3_600);
/// A clock that was never set is looked at this often.
const CLOCK: Span = Span::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Keeper {
    kind: Kind,
    rng: Rng,
    stage: Stage,
    /// What is in use, and when it is renewed.
    held: Option<(Box<Pair>, Wall)>,
    /// What was signed with the key that is there.
    request: Option<Request>,
    /// And that the API server has it.
    accepted: bool,
    failed: Option<BackOff>,
    refused: Option<BackOff>,
    follower: Reflector,
    problem: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Stage {
    #[default]
    Off,
    Looking,
    Resting(Mono),
    Signing(Lane),
    Posting(Lane),
    Waiting {
        lane: Lane,
        until: Mono,
    },
    Storing(Lane),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Request {
    names: CertificateNames,
    digest: String,
    pem: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    Look,
    Sign,
    Post,
    Follow,
    Store,
    Drop,
}

/// What the manager of both has to hear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Told {
    /// The pair that is there was looked at.
    Looked,
    /// There is a new one, asked for on this lane.
    Stored(Lane),
    /// It could not be renewed this time.
    Failed,
}

/// What to do about a certificate.
enum Need {
    Nothing,
    Ask(Lane),
    /// Nothing can be done here; for people.
    Stuck(String),
}

impl Keeper {
    pub fn new(kind: Kind, rng: Rng) -> Keeper {
        Keeper { kind, rng, ..Keeper::default() }
    }

    pub fn pair(&self) -> Option<&Pair> {
        self.held.as_ref().map(|(pair, _)| &**pair)
    }

    /// A request lies with the API server: a certificate may come of it.
    pub fn is_hopeful(&self) -> bool {
        self.accepted
    }

    pub fn deadline(&self) -> Option<Mono> {
        let own = match self.stage {
            Stage::Resting(until) | Stage::Waiting { until, .. } => Some(until),
            Stage::Off
            | Stage::Looking
            | Stage::Signing(_)
            | Stage::Posting(_)
            | Stage::Storing(_) => None,
        };
        own.into_iter().chain(self.follower.deadline()).min()
    }

    /// Something changed that may matter: no need to wait.
    pub fn hurry(&mut self, cx: &mut Cx<'_>) {
        match self.stage {
            Stage::Off => self.look(cx),
            // What was refused has its time.
            Stage::Resting(_) if self.refused.is_none() => self.look(cx),
            Stage::Waiting { .. } => self.follower.on_api_back(cx),
            _ => {}
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) -> Option<Told> {
        self.follower.on_tick(cx, Ask::of(self.kind, Step::Follow));
        match self.stage {
            Stage::Resting(until) if until <= cx.now.mono => self.look(cx),
            Stage::Waiting { until, .. } if until <= cx.now.mono => {
                self.follower.stop(cx);
                let why =
                    "nobody has approved the request in time; it stays, and is waited for again";
                return Some(self.fail(cx, why.into()));
            }
            _ => {}
        }
        None
    }

    fn look(&mut self, cx: &mut Cx<'_>) {
        self.stage = Stage::Looking;
        let (dir, name) = self.place(cx);
        cx.call(Ask::of(self.kind, Step::Look), Call::Disk(DiskOp::ReadPair { dir, name }));
    }

    fn place(&self, cx: &Cx<'_>) -> (String, String) {
        let api = cx.facts.settings().api.as_ref();
        let dir = api.map_or("", |api| &api.certificates.dir);
        (dir.into(), self.kind.file_name().into())
    }

    pub fn on_done(&mut self, cx: &mut Cx<'_>, step: Step, outcome: Outcome) -> Option<Told> {
        match (step, outcome) {
            (Step::Look, Outcome::Disk(result)) => Some(self.looked(cx, result)),
            (Step::Sign, Outcome::Helper(result)) => self.signed(cx, result),
            (Step::Post, outcome) => self.posted(cx, outcome),
            (Step::Follow, outcome) => {
                let then = Ask::of(self.kind, Step::Follow);
                let listed = self.follower.on_done::<CertificateSigningRequest>(cx, then, outcome);
                match listed?.items.into_iter().next() {
                    Some(object) => self.seen(cx, &object),
                    None => self.gone(cx),
                }
            }
            (Step::Store, Outcome::Helper(result)) => Some(self.stored(cx, result)),
            (Step::Drop, _) => None,
            (_, other) => Some(self.fail(cx, format!("a door answers {other:?}"))),
        }
    }

    pub fn on_item(&mut self, cx: &mut Cx<'_>, item: &Item) -> Option<Told> {
        let Item::Line(line) = item else { return None };
        match self.follower.on_line::<CertificateSigningRequest>(cx, line)? {
            Change::Set(object) => self.seen(cx, &object),
            Change::Gone(_) => self.gone(cx),
            Change::Unreadable(it) => Some(self.refuse(cx, format!("cannot be read: {}", it.1))),
        }
    }

    fn looked(&mut self, cx: &mut Cx<'_>, result: Result<DiskReply, Fault>) -> Told {
        let broken = match result {
            Ok(DiskReply::Pair(pair)) => {
                let pair = self.or_given(cx, pair);
                self.hold(pair);
                None
            }
            Ok(other) => Some(format!("a door answers {other:?}")),
            Err(fault) => {
                // What cannot be read for now was good when it was read last.
                if fault.kind == FaultKind::Invalid {
                    let given = self.or_given(cx, None);
                    self.hold(given);
                }
                Some(fault.message)
            }
        };
        match self.need(cx, broken) {
            Need::Nothing => self.rest(cx),
            Need::Ask(lane) => self.ask(cx, lane),
            Need::Stuck(why) => {
                self.complain(&why);
                self.stage = Stage::Resting(cx.now.mono + LOOK);
            }
        }
        Told::Looked
    }

    /// Until it is renewed, or somebody may have replaced it.
    fn rest(&mut self, cx: &Cx<'_>) {
        let now = cx.now.wall;
        let left = self.held.as_ref().map_or(0, |(_, renew_at)| renew_at.0.saturating_sub(now.0));
        let rest = match u64::try_from(left) {
            _ if !plan::is_plausible(now) => CLOCK,
            Ok(left @ 1..) => LOOK.min(Span(left)),
            // It is not to be renewed, or there is none.
            _ => LOOK,
        };
        self.stage = Stage::Resting(cx.now.mono + rest);
    }

    /// The pair that the API door shows: ours, or else the kubeconfig's.
    fn or_given(&self, cx: &Cx<'_>, pair: Option<Box<Pair>>) -> Option<Box<Pair>> {
        let now = cx.now.wall;
        let api = cx.facts.settings().api.as_ref().filter(|_| self.kind == Kind::Client);
        let given = api.and_then(|api| api.certificates.given.as_ref());
        match (pair, given) {
            (Some(pair), Some(given)) if plan::is_expired(&pair, now) => {
                let better = !plan::is_expired(given, now);
                Some(if better { Box::new(given.clone()) } else { pair })
            }
            (pair, given) => pair.or_else(|| given.map(|given| Box::new(given.clone()))),
        }
    }

    fn hold(&mut self, pair: Option<Box<Pair>>) {
        let known = self.held.as_ref().map(|(pair, _)| pair.digest);
        if known == pair.as_ref().map(|pair| pair.digest) {
            return;
        }
        self.held = pair.map(|pair| {
            let renew_at = plan::renewal(&pair, &mut self.rng);
            (pair, renew_at)
        });
    }

    /// Whom the certificate must name; None while that is not known.
    fn names(&self, cx: &Cx<'_>) -> Option<CertificateNames> {
        let node = &cx.facts.settings().node_name;
        match self.kind {
            Kind::Client => Some(plan::client_names(node)),
            Kind::Serving => plan::serving_names(node, &cx.facts.node.node()?.status.addresses),
        }
    }

    fn need(&mut self, cx: &Cx<'_>, broken: Option<String>) -> Need {
        let now = cx.now.wall;
        // Whatever is there: no certificate can be judged, or asked for, by a clock that was never set.
        let (true, Some(names)) = (plan::is_plausible(now), self.names(cx)) else {
            return Need::Nothing;
        };
        let Some(settings) = cx.facts.settings().api.as_ref().map(|api| &api.certificates) else {
            return Need::Nothing;
        };
        if let Some((pair, renew_at)) = &self.held
            && !plan::is_expired(pair, now)
        {
            let renews = self.kind == Kind::Serving || settings.rotate;
            let given = settings.given.as_ref().filter(|_| settings.given_inline);
            let passed_on = given.is_some_and(|given| given.digest == pair.digest);
            let due = *renew_at <= now || passed_on || !plan::satisfies(&pair.names, &names);
            if !(renews && due) {
                self.problem = None;
                return Need::Nothing;
            }
            return Need::Ask(Lane::Main);
        }
        if self.kind == Kind::Serving {
            return Need::Ask(Lane::Main);
        }
        let what = match (&self.held, broken) {
            (_, Some(broken)) => format!("The client certificate cannot be used: {broken}"),
            (Some((pair, _)), None) => {
                let at = Time::from_ns(pair.not_after.0);
                format!("The client certificate has expired at {}", at.as_str())
            }
            (None, None) => "There is no client certificate".into(),
        };
        match settings.bootstrap {
            true => {
                if self.failed.is_none() && self.refused.is_none() {
                    let with = "one is asked for with the bootstrap kubeconfig";
                    self.complain(&format!("{what}; {with}"));
                }
                Need::Ask(Lane::Bootstrap)
            }
            false => Need::Stuck(format!(
                "{what}, and there is no bootstrap kubeconfig to ask for one with: give this node a \
                 new --bootstrap-kubeconfig (kubeadm join) or certificate, and restart it; pods run on"
            )),
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>, lane: Lane) {
        let Some(names) = self.names(cx) else { return };
        if self.request.as_ref().is_some_and(|request| request.names == names) {
            return self.post(cx, lane);
        }
        self.stage = Stage::Signing(lane);
        self.request =
            Some(Request { names: names.clone(), digest: String::new(), pem: Bytes::new() });
        let (dir, name) = self.place(cx);
        let op = HelperOp::RequestPair { dir, name, names };
        cx.call(Ask::of(self.kind, Step::Sign), Call::Helper(op));
    }

    fn signed(&mut self, cx: &mut Cx<'_>, result: Result<HelperReply, Fault>) -> Option<Told> {
        let Stage::Signing(lane) = self.stage else { return None };
        let request = self.request.take();
        match (result, request) {
            (Ok(HelperReply::CertificateRequest { digest, pem }), Some(request)) => {
                self.request = Some(Request { digest, pem, ..request });
                self.post(cx, lane);
                None
            }
            (Ok(other), _) => Some(self.fail(cx, format!("a helper answers {other:?}"))),
            (Err(fault), _) => Some(self.fail(cx, fault.message)),
        }
    }

    /// Upstream's name for the first one of a node.
    fn name(&self) -> String {
        let digest = self.request.as_ref().map_or("", |request| &request.digest);
        match self.kind {
            Kind::Client => format!("node-csr-{digest}"),
            Kind::Serving => format!("csr-{digest}"),
        }
    }

    fn post(&mut self, cx: &mut Cx<'_>, lane: Lane) {
        let Some(request) = &self.request else { return };
        let body = plan::request(self.kind, &self.name(), &request.pem);
        self.stage = Stage::Posting(lane);
        let (verb, path, seals, secret) = (Verb::Post, REQUESTS.into(), false, None);
        let call = ApiCall { verb, path, body, within: WITHIN, lane, seals, secret };
        cx.call(Ask::of(self.kind, Step::Post), Call::Api(call));
    }

    fn posted(&mut self, cx: &mut Cx<'_>, outcome: Outcome) -> Option<Told> {
        let Stage::Posting(lane) = self.stage else { return None };
        match judged(outcome) {
            Ok(_) => log::info!("Asked for a {}: {}", self.kind.words(), self.name()),
            // An earlier attempt, or an earlier life, has asked.
            Err(refusal) if refusal.status == 409 => {}
            Err(refusal) => {
                self.accepted = false;
                return Some(self.fail(cx, refusal.message));
            }
        }
        self.accepted = true;
        let first = self.held.is_none();
        let until = cx.now.mono + if first { WAIT_FOR_FIRST } else { WAIT };
        self.stage = Stage::Waiting { lane, until };
        let rng = Rng::new(self.rng.draw());
        self.follower = Reflector::of(REQUESTS, "metadata.name", &self.name(), rng).by(lane);
        self.follower.start(cx, Ask::of(self.kind, Step::Follow));
        None
    }

    /// The request as the API server has it.
    fn seen(&mut self, cx: &mut Cx<'_>, object: &CertificateSigningRequest) -> Option<Told> {
        let Stage::Waiting { lane, .. } = self.stage else { return None };
        match plan::fate(object) {
            Fate::Pending => None,
            Fate::Refused(why) => Some(self.refuse(cx, why)),
            Fate::Issued(chain) => {
                self.follower.stop(cx);
                self.stage = Stage::Storing(lane);
                let (dir, name) = self.place(cx);
                let op = HelperOp::StorePair { dir, name, chain };
                cx.call(Ask::of(self.kind, Step::Store), Call::Helper(op));
                None
            }
        }
    }

    /// Somebody deleted it.
    fn gone(&mut self, cx: &mut Cx<'_>) -> Option<Told> {
        let Stage::Waiting { .. } = self.stage else { return None };
        self.follower.stop(cx);
        self.accepted = false;
        Some(self.fail(cx, "the request was deleted".into()))
    }

    fn stored(&mut self, cx: &mut Cx<'_>, result: Result<HelperReply, Fault>) -> Told {
        let lane = match self.stage {
            Stage::Storing(lane) => lane,
            _ => Lane::Main,
        };
        let pair = match result {
            Ok(HelperReply::Pair(pair)) => pair,
            Ok(other) => return self.fail(cx, format!("a helper answers {other:?}")),
            Err(fault) if fault.kind == FaultKind::Invalid => {
                return self.refuse(cx, fault.message);
            }
            Err(fault) => return self.fail(cx, fault.message),
        };
        let until = Time::from_ns(pair.not_after.0);
        log::info!("A new {} is in use, until {}", self.kind.words(), until.as_str());
        let renew_at = plan::renewal_of_new(&pair, cx.now.wall, &mut self.rng);
        self.held = Some((pair, renew_at));
        (self.request, self.accepted) = (None, false);
        (self.problem, self.failed, self.refused) = (None, None, None);
        self.rest(cx);
        Told::Stored(lane)
    }

    /// The same request is tried again.
    fn fail(&mut self, cx: &mut Cx<'_>, why: String) -> Told {
        self.complain(&format!("No new {} yet: {why}", self.kind.words()));
        let back_off = match &mut self.failed {
            Some(failed) => {
                failed.again(cx.now.mono, REST, REST_MOST);
                failed
            }
            none => none.insert(BackOff::first(cx.now.mono, REST)),
        };
        let rest = back_off.period();
        self.stage = Stage::Resting(cx.now.mono + self.rng.jitter(rest, 10));
        Told::Failed
    }

    /// Nothing will come of this request.
    fn refuse(&mut self, cx: &mut Cx<'_>, why: String) -> Told {
        self.follower.stop(cx);
        self.complain(&format!("The request {} for a {} {why}", self.name(), self.kind.words()));
        (self.request, self.accepted) = (None, false);
        let (dir, name) = self.place(cx);
        cx.call(Ask::of(self.kind, Step::Drop), Call::Disk(DiskOp::DropKey { dir, name }));
        let back_off = match &mut self.refused {
            Some(refused) => {
                refused.again(cx.now.mono, REFUSED, REFUSED_MOST);
                refused
            }
            none => none.insert(BackOff::first(cx.now.mono, REFUSED)),
        };
        let rest = back_off.period();
        self.stage = Stage::Resting(cx.now.mono + self.rng.jitter(rest, 10));
        Told::Failed
    }

    fn complain(&mut self, why: &str) {
        if self.problem.as_deref() != Some(why) {
            log::error!("{why}");
            self.problem = Some(why.into());
        }
    }
}
