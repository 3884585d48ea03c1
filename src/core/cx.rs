//! What a manager may do while it handles an input: read facts, say notes, ask the world.

use crate::calls::{self, Operation};
use crate::effect::{Call, Effect, Lane, Reply};
use crate::event::Outcome;
use crate::facts::Facts;
use crate::gate::Gate;
use crate::ids::{RequestId, Token};
use crate::limits::NOTES_PER_STEP_MAX;
use crate::note::Note;
use crate::route::Then;
use crate::settings::ApiSettings;
use crate::time::{Mono, Now};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The calls that are out in the world, each with its continuation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asks {
    next: u64,
    open: BTreeMap<Token, Open>,
    gate: Gate,
    /// The last call to the API server was not answered.
    silent: bool,
    /// One was answered.
    heard: bool,
}

/// A call that is out: who asked for what, and since when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    then: Then,
    /// The runtime operation, for the metrics.
    operation: Option<(Operation, Mono)>,
    /// By other credentials than those of the node: how it fares says nothing of the others.
    apart: bool,
}

impl Asks {
    fn close(&mut self, token: Token) -> Option<Open> {
        self.open.remove(&token)
    }

    /// When the next request that waits may go to the API server.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.gate.deadline()
    }

    /// The continuation of a call that goes on.
    pub(crate) fn peek(&self, token: Token) -> Option<&Then> {
        self.open.get(&token).map(|open| &open.then)
    }
}

pub struct Cx<'a> {
    pub now: Now,
    pub facts: &'a mut Facts,
    asks: &'a mut Asks,
    effects: &'a mut Vec<Effect>,
    notes: VecDeque<Note>,
    said: usize,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(
        now: Now,
        facts: &'a mut Facts,
        asks: &'a mut Asks,
        effects: &'a mut Vec<Effect>,
    ) -> Cx<'a> {
        Cx { now, facts, asks, effects, notes: VecDeque::new(), said: 0 }
    }

    /// Asks the world; the answer comes back to the asking manager with `then`.
    pub(crate) fn call(&mut self, then: impl Into<Then>, call: Call) -> Token {
        self.asks.next += 1;
        let token = Token(self.asks.next);
        let operation = match &call {
            Call::Rpc(rpc) => Some((calls::operation(&rpc.path), self.now.mono)),
            Call::Disk(_) | Call::Kernel(_) | Call::Helper(_) | Call::Api(_) => None,
        };
        let apart = matches!(&call, Call::Api(call) if call.lane == Lane::Bootstrap);
        self.asks.open.insert(token, Open { then: then.into(), operation, apart });
        let call = match call {
            Call::Api(call) => self.asks.gate.pass(self.now.mono, token, call).map(Call::Api),
            other => Some(other),
        };
        self.effects.extend(call.map(|call| Effect::Call { token, call }));
        token
    }

    /// How fast requests may go to the API server.
    pub(crate) fn set_limits(&mut self, settings: &ApiSettings) {
        self.asks.gate = Gate::of(settings);
    }

    /// Lets go what waited for its turn at the API server.
    pub(crate) fn release(&mut self) {
        while let Some((token, call)) = self.asks.gate.release(self.now.mono) {
            self.effects.push(Effect::Call { token, call: Call::Api(call) });
        }
    }

    /// Ends a call that was answered: its continuation, or None when it was cancelled or never asked.
    pub(crate) fn answered(&mut self, token: Token, outcome: &Outcome) -> Option<Then> {
        let open = self.asks.close(token)?;
        if let Outcome::Api(answer) = outcome
            && !open.apart
        {
            self.asks.heard |= answer.is_ok();
            if core::mem::replace(&mut self.asks.silent, answer.is_err()) && answer.is_ok() {
                self.say(Note::ApiBack);
            }
        }
        if let Some((operation, since)) = &open.operation {
            self.facts.calls.answered(operation, outcome, self.now.mono.since(*since));
        }
        Some(open.then)
    }

    /// Whether the API server has answered in this life, and the last time that it was asked.
    pub(crate) fn api_answers(&self) -> bool {
        self.asks.heard && !self.asks.silent
    }

    /// Gives up a call: no answer to it will come.
    pub(crate) fn cancel(&mut self, token: Token) {
        if self.asks.open.remove(&token).is_some() && !self.asks.gate.forget(token) {
            self.effects.push(Effect::Cancel(token));
        }
    }

    /// Tells the other managers, later in this step.
    pub(crate) fn say(&mut self, note: Note) {
        self.said += 1;
        assert!(self.said <= NOTES_PER_STEP_MAX, "managers talk in a circle: {note:?}");
        self.notes.push_back(note);
    }

    pub(crate) fn next_note(&mut self) -> Option<Note> {
        self.notes.pop_front()
    }

    pub(crate) fn reply(&mut self, request: RequestId, reply: Reply) {
        self.effects.push(Effect::Reply { request, reply });
    }

    /// Any other effect.
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn asks(&self) -> &Asks {
        self.asks
    }
}
