//! Calls and answers pair up: a token names one call, and one answer ends it.

use super::Judge;
use crate::clock::At;
use crate::ledger::{Ask, Ledger};
use crate::trace::Moment;
use std::collections::BTreeMap;
use steplet_core::effect::{Call, Effect, Verb};
use steplet_core::event::Event;
use steplet_core::ids::Token;
use steplet_core::time::Span;

#[derive(Default)]
pub struct Tokens {
    /// Calls with a deadline, and when it ends.
    open: BTreeMap<Token, Option<At>>,
    last: Token,
}

impl Tokens {
    fn call(&mut self, at: At, token: Token, call: &Call, out: &mut Vec<String>) {
        if token <= self.last {
            out.push(format!("token {} is used again", token.0));
        }
        self.last = token;
        let within = match call {
            Call::Rpc(rpc) => rpc.within,
            // A watch has its head in time, which is no event.
            Call::Api(call) if call.verb != Verb::Watch => Some(call.within),
            _ => None,
        };
        // Stopping takes its grace, and the world is a little late.
        self.open.insert(token, within.map(|within| at + within + Span::from_secs(1)));
    }

    fn late(&mut self, at: At, out: &mut Vec<String>) {
        let late = |deadline: &Option<At>| deadline.is_some_and(|deadline| at > deadline);
        for (token, _) in self.open.extract_if(.., |_, deadline| late(deadline)) {
            out.push(format!("call {} got no answer until its deadline", token.0));
        }
    }
}

impl Judge for Tokens {
    fn promise(&self) -> &'static str {
        "every call is answered once"
    }

    fn started(&mut self, _: &Ledger, _: Moment) {
        *self = Tokens::default();
    }

    fn ended(&mut self, _: &Ledger, _: Moment) {
        *self = Tokens::default();
    }

    fn event(&mut self, _: &Ledger, moment: Moment, event: &Event, out: &mut Vec<String>) {
        match event {
            Event::Done { token, .. } if self.open.remove(token).is_none() => {
                out.push(format!("an answer to call {}, which is not open", token.0));
            }
            Event::Item { token, .. } if !self.open.contains_key(token) => {
                out.push(format!("an item of call {}, which is not open", token.0));
            }
            Event::Tick => self.late(moment.at, out),
            _ => {}
        }
    }

    fn effects(
        &mut self,
        _: &Ledger,
        moment: Moment,
        effects: &[(Effect, Option<Ask>)],
        out: &mut Vec<String>,
    ) {
        for (effect, _) in effects {
            match effect {
                Effect::Call { token, call } => self.call(moment.at, *token, call, out),
                Effect::Cancel(token) if self.open.remove(token).is_none() => {
                    out.push(format!("call {} is cancelled and is not open", token.0));
                }
                _ => {}
            }
        }
    }
}
