//! Pods that a list of the API server did not have, and pods that only the runtime has: are they gone?
//!
//! Upstream: pkg/kubelet/config/apiserver.go (v1.36), which takes any list at its word.
//! A list may be empty or partial because a store is being filled again, and a pod that was stopped for it does not
//! come back to what it was. So a second list, of that one name, must agree: at once after a list that had others, ten
//! seconds after one that had none of what is known. It is a list because the node authorizer forbids a GET of what is
//! not there (KEP-4601). What a watch says is gone is not doubted.
//! A part of `sources`, which hands it the answers to its calls.
//! Owns: the pods in doubt. Publishes: by `sources`. Hears: -. Says: -. Asks: lists of one pod.
//! Never: takes silence or a refusal for an answer.

use super::Ask;
use crate::cx::Cx;
use crate::event::Outcome;
use crate::ids::{PodUid, Token};
use crate::managers::api::{Refusal, escaped, get, judged};
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::List;
use steplet_api::json;
use steplet_api::pod::Pod;

const REST: Span = Span::from_secs(1);
const REST_MOST: Span = Span::from_secs(60);
/// After an outage.
const BACK: Span = Span::from_millis(100);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Doubts {
    rng: Rng,
    all: BTreeMap<PodUid, Doubt>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Doubt {
    namespace: Box<str>,
    name: Box<str>,
    state: State,
    rest: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    Asked(Token),
    Resting(Mono),
}

/// What has come out about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    There(Box<Pod>),
    /// Why that is sure.
    Gone(String),
}

impl Doubts {
    pub fn of(rng: Rng) -> Doubts {
        Doubts { rng, all: BTreeMap::new() }
    }

    /// Asks for a pod after a while, unless that is under way.
    pub fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        (namespace, name): (&str, &str),
        after: Span,
    ) {
        if !self.all.contains_key(uid) {
            let state = match after {
                Span::ZERO => State::Asked(ask(cx, uid, namespace, name)),
                after => State::Resting(cx.now.mono + after),
            };
            let (namespace, name) = (namespace.into(), name.into());
            self.all.insert(uid.clone(), Doubt { namespace, name, state, rest: Span::ZERO });
        }
    }

    /// It was seen, or seen to be gone.
    pub fn end(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        if let Some(Doubt { state: State::Asked(call), .. }) = self.all.remove(uid) {
            cx.cancel(call);
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        let resting = self.all.values().filter_map(|doubt| match doubt.state {
            State::Resting(until) => Some(until),
            State::Asked(_) => None,
        });
        resting.min()
    }

    pub fn on_api_back(&mut self, cx: &Cx<'_>) {
        for doubt in self.all.values_mut() {
            if let State::Resting(until) = &mut doubt.state {
                doubt.rest = Span::ZERO;
                *until = (*until).min(cx.now.mono + self.rng.jitter(BACK, 100));
            }
        }
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        for (uid, doubt) in &mut self.all {
            if let State::Resting(until) = doubt.state
                && until <= cx.now.mono
            {
                doubt.state = State::Asked(ask(cx, uid, &doubt.namespace, &doubt.name));
            }
        }
    }

    /// The answer to a request.
    pub fn on_done(&mut self, cx: &Cx<'_>, uid: &PodUid, outcome: Outcome) -> Option<Verdict> {
        let doubt = self.all.get_mut(uid)?;
        let place = format!("{}/{}", doubt.namespace, doubt.name);
        match verdict(uid, &place, outcome) {
            Ok(verdict) => {
                self.all.remove(uid);
                Some(verdict)
            }
            Err(refusal) => {
                if doubt.rest == Span::ZERO {
                    let why = &refusal.message;
                    log::warn!("Whether pod {place} is gone cannot be told, and it stays: {why}");
                }
                doubt.rest = doubt.rest.times(2).max(REST).min(REST_MOST);
                let rest = doubt.rest.max(refusal.retry_after.unwrap_or_default());
                doubt.state = State::Resting(cx.now.mono + self.rng.jitter(rest, 20));
                None
            }
        }
    }
}

fn ask(cx: &mut Cx<'_>, uid: &PodUid, namespace: &str, name: &str) -> Token {
    let node = &cx.facts.settings().node_name;
    let selector = escaped(&format!("spec.nodeName={node},metadata.name={name}"));
    let path = format!("/api/v1/namespaces/{}/pods?fieldSelector={selector}", escaped(namespace));
    cx.call(Ask::Confirm(uid.clone()), get(path))
}

fn verdict(uid: &PodUid, place: &str, outcome: Outcome) -> Result<Verdict, Refusal> {
    let wrong = |message: String| Refusal { message, ..Refusal::default() };
    let body = judged(outcome)?;
    let list: List = json::from_slice(&body).map_err(wrong)?;
    // Whatever else answers 200 on the way has no version.
    if list.metadata.resource_version.is_empty() {
        return Err(wrong("no list of pods".into()));
    }
    let mut other = false;
    for item in list.items() {
        let pod: Pod = json::from_slice(item).map_err(wrong)?;
        if *pod.metadata.uid == *uid.0 {
            return Ok(Verdict::There(Box::new(pod)));
        }
        other = true;
    }
    let has = if other { "another" } else { "no" };
    Ok(Verdict::Gone(format!("the API server has {has} pod {place}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::ApiReply;

    #[test]
    fn only_a_clear_answer_counts() {
        let check = |status: u16, body: &str, want: Option<&str>| {
            let body = body.as_bytes().to_vec().into();
            let outcome = Outcome::Api(Ok(ApiReply { status, retry_after: None, body }));
            let got = match verdict(&"u".into(), "ns/p", outcome) {
                Ok(Verdict::There(_)) => Some("there".into()),
                Ok(Verdict::Gone(why)) => Some(why),
                Err(_) => None,
            };
            assert_eq!(got.as_deref(), want, "{status}");
        };
        let list = |items: &str| {
            format!(
                r#"{{"kind":"PodList","metadata":{{"resourceVersion":"7"}},"items":[{items}]}}"#
            )
        };
        check(200, &list(r#"{"metadata":{"name":"p","uid":"u"}}"#), Some("there"));
        check(
            200,
            &list(r#"{"metadata":{"uid":"v"}}"#),
            Some("the API server has another pod ns/p"),
        );
        check(200, &list(""), Some("the API server has no pod ns/p"));
        check(200, &list(r#"{"metadata":{"uid":5}}"#), None);
        check(200, r#"{"items":[]}"#, None);
        check(200, "<html>", None);
        check(403, r#"{"kind":"Status","code":403,"reason":"Forbidden"}"#, None);
        check(404, r#"{"kind":"Status","code":404,"reason":"NotFound"}"#, None);
        assert!(verdict(&"u".into(), "ns/p", Outcome::Api(Err("reset".into()))).is_err());
    }
}
