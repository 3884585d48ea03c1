//! The API server is everybody's: no request is repeated in a loop, and a calm node asks for little.

use super::Calm;
use crate::checkers::Judge;
use crate::clock::At;
use crate::ledger::{Ask, Ledger};
use crate::trace::{Change, Moment};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use steplet_core::effect::{ApiCall, Call, Effect, Verb};
use steplet_core::time::Span;

#[derive(Default)]
pub struct Requests {
    /// When each request was made, by verb and path without its query.
    one: BTreeMap<String, VecDeque<At>>,
    all: VecDeque<At>,
    calm: Calm,
}

const WINDOW: Span = Span::from_secs(60);
/// A kubelet tries to renew its lease and to write its status five times every ten seconds.
const ONE_MOST: usize = 40;
/// Six renewals, a status of the node, two watches, and what the pods of a small node give cause for.
const CALM_MOST: usize = 120;
const CALM: Span = Span::from_secs(120);

/// The name of an object that is to be made.
fn posted(call: &ApiCall) -> String {
    if call.verb != Verb::Post {
        return String::new();
    }
    let object: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    object["metadata"]["name"].as_str().map(|name| format!("/{name}")).unwrap_or_default()
}

fn count(times: &mut VecDeque<At>, at: At) -> usize {
    while times.front().is_some_and(|first| at.since(*first) > WINDOW) {
        times.pop_front();
    }
    times.push_back(at);
    times.len()
}

impl Judge for Requests {
    fn promise(&self) -> &'static str {
        "the API server is not hammered"
    }

    fn started(&mut self, _: &Ledger, moment: Moment) {
        self.one.clear();
        self.all.clear();
        self.calm.started(moment.at);
    }

    fn ended(&mut self, _: &Ledger, _: Moment) {
        self.calm.ended();
    }

    fn change(&mut self, _: &Ledger, moment: Moment, change: &Change) {
        self.calm.change(moment.at, change);
    }

    fn effects(
        &mut self,
        _: &Ledger,
        moment: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            let Effect::Call { call: Call::Api(call), .. } = effect else { continue };
            let path = call.path.split('?').next().unwrap_or_default();
            let request = format!("{:?} {path}{}", call.verb, posted(call));
            let times = self.one.entry(request.clone()).or_default();
            if !path.ends_with("/events") && count(times, moment.at) > ONE_MOST {
                times.clear();
                out.push(format!("more than {ONE_MOST} times in a minute: {request}"));
            }
            let all = count(&mut self.all, moment.at);
            if self.calm.lasted(moment.at, CALM) && all > CALM_MOST {
                self.all.clear();
                out.push(format!("more than {CALM_MOST} requests in a calm minute: {request}"));
            }
        }
    }
}
