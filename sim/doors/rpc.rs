//! The door to the runtime, and the weather on the way: a runtime that is absent, slow, silent or mad.

use super::runtime::Caller;
use crate::dice::Dice;
use bytes::Bytes;
use std::collections::BTreeMap;
use steplet_core::effect::{Peer, Rpc};
use steplet_core::event::{Outcome, RpcError};
use steplet_core::time::Span;

/// What may go wrong with a call. All shares are in percent of calls.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Nobody listens on the socket.
    pub absent: bool,
    /// Calls that are never answered: the method (empty: any), and what their bytes contain.
    pub hang: Option<(String, Vec<u8>)>,
    pub errors: u64,
    pub nonsense: u64,
    /// Changing calls that take `overrun_by` longer than usual, past their deadline.
    pub overrun: u64,
    pub overrun_by: Span,
    /// Lists and statuses that come late, by up to `late_by`: they may tell old news.
    pub late: u64,
    pub late_by: Span,
    /// PullImage fails.
    pub pulls_fail: bool,
    /// What becomes of the calls that a scene means; the first rule that fits decides.
    pub rules: Vec<Rule>,
}

/// What becomes of all calls of a method whose bytes contain one of these parts (none: of all).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub method: String,
    pub parts: Vec<Vec<u8>>,
    pub fate: Fate,
}

impl Rule {
    fn fits(&self, method: &str, body: &[u8]) -> bool {
        self.method == method
            && (self.parts.is_empty() || self.parts.iter().any(|part| contains(body, part)))
    }
}

/// What becomes of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It reaches the runtime, and takes so much longer.
    Through(Span),
    /// It is answered so without reaching the runtime.
    Answered(Result<Bytes, RpcError>),
    /// It is never answered.
    Hangs,
}

/// Which of the faults of the weather struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    Nothing,
    Absent,
    Hang,
    Error,
    Nonsense,
    Overrun,
    Late,
    Pull,
}

impl Struck {
    pub fn name(self) -> &'static str {
        match self {
            Struck::Nothing => "nothing",
            Struck::Absent => "runtime absent",
            Struck::Hang => "runtime hangs on a call",
            Struck::Error => "runtime answers an error",
            Struck::Nonsense => "runtime answers nonsense",
            Struck::Overrun => "call ends after its deadline",
            Struck::Late => "runtime tells old news",
            Struck::Pull => "image pull fails",
        }
    }
}

impl Weather {
    pub fn fate(&self, rpc: &Rpc, dice: &mut Dice) -> (Fate, Struck) {
        let method = rpc.path.rsplit('/').next().unwrap_or_default();
        let error = |code, message: &str| {
            Fate::Answered(Err(RpcError { code, message: message.to_owned() }))
        };
        if self.absent {
            let message = "connection error: dial unix /run/containerd/containerd.sock: connect: connection refused";
            return (error(RpcError::UNAVAILABLE, message), Struck::Absent);
        }
        if let Some((wanted, part)) = &self.hang
            && (wanted.is_empty() || wanted == method)
            && contains(&rpc.body, part)
        {
            return (Fate::Hangs, Struck::Hang);
        }
        if let Some(rule) = self.rules.iter().find(|rule| rule.fits(method, &rpc.body)) {
            return (rule.fate.clone(), Struck::Nothing);
        }
        if self.pulls_fail && method == "PullImage" {
            let message = "failed to pull image: dial tcp: lookup registry: no such host";
            return (error(2, message), Struck::Pull);
        }
        if dice.chance(self.errors) {
            let (code, message) = *dice.pick(&[
                (2, "unknown service state"),
                (13, "internal error: bolt database is locked"),
                (8, "too many requests"),
                (14, "transport is closing"),
            ]);
            return (error(code, message), Struck::Error);
        }
        if dice.chance(self.nonsense) {
            // The first byte is a wire type that does not exist: random bytes alone might be a message.
            let noise = (0..dice.below(40)).map(|_| dice.draw() as u8);
            let bytes: Vec<u8> = std::iter::once(0x0f).chain(noise).collect();
            return (Fate::Answered(Ok(bytes.into())), Struck::Nonsense);
        }
        let changes = matches!(
            method,
            "RunPodSandbox"
                | "CreateContainer"
                | "StartContainer"
                | "StopPodSandbox"
                | "RemoveContainer"
        );
        if changes && dice.chance(self.overrun) {
            return (Fate::Through(self.overrun_by), Struck::Overrun);
        }
        let looks = method.starts_with("List") || method.ends_with("Status");
        if looks && dice.chance(self.late) {
            return (Fate::Through(dice.span(Span::ZERO, self.late_by)), Struck::Late);
        }
        (Fate::Through(Span::ZERO), Struck::Nothing)
    }
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    part.is_empty() || body.windows(part.len()).any(|window| window == part)
}

/// What the door remembers while the agent lives.
#[derive(Debug, Default)]
pub struct RpcDoor {
    last: BTreeMap<(Peer, String), Bytes>,
    /// Open calls, and the list that may be answered with `Same`.
    open: BTreeMap<Caller, Option<(Peer, String)>>,
}

impl RpcDoor {
    pub fn called(&mut self, caller: Caller, rpc: &Rpc) {
        let list = rpc.same_as_last.then(|| (rpc.peer, rpc.path.to_string()));
        self.open.insert(caller, list);
    }

    /// A list that equals the last one is `Same`.
    pub fn answered(&mut self, caller: Caller, answer: Result<Bytes, RpcError>) -> Outcome {
        let list = self.open.remove(&caller).flatten();
        let (Some(key), Ok(body)) = (list, &answer) else { return Outcome::Rpc(answer) };
        match self.last.get(&key) {
            // Equal pointers spare the comparison of a list that the runtime did not make anew.
            Some(last) if last.as_ptr() == body.as_ptr() || last == body => Outcome::Same,
            _ => {
                self.last.insert(key, body.clone());
                Outcome::Rpc(answer)
            }
        }
    }

    pub fn left(&mut self, caller: Caller) {
        self.open.remove(&caller);
    }

    /// The calls that wait for an answer.
    pub fn open(&self) -> Vec<Caller> {
        self.open.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rpc(method: &str, body: &'static [u8]) -> Rpc {
        Rpc {
            peer: Peer::Runtime,
            path: format!("/runtime.v1.RuntimeService/{method}").into(),
            body: Bytes::from_static(body),
            within: None,
            same_as_last: true,
            sealed: Vec::new(),
        }
    }

    #[test]
    fn only_the_call_that_is_meant_hangs() {
        let weather = Weather {
            hang: Some(("ContainerStatus".into(), b"abc".to_vec())),
            ..Weather::default()
        };
        let mut dice = Dice::new(1);
        let mut fate = |method, body| weather.fate(&rpc(method, body), &mut dice).0;
        assert_eq!(fate("ContainerStatus", b"\x0a\x05xabcx"), Fate::Hangs);
        assert_eq!(fate("ContainerStatus", b"\x0a\x03xyz"), Fate::Through(Span::ZERO));
        assert_eq!(fate("StopContainer", b"\x0a\x03abc"), Fate::Through(Span::ZERO));
    }

    #[test]
    fn an_equal_list_is_same_and_an_error_between_changes_nothing() {
        let mut door = RpcDoor::default();
        let mut ask = |n, answer: Result<&'static [u8], RpcError>| {
            door.called(Caller(n), &rpc("ListContainers", b""));
            door.answered(Caller(n), answer.map(Bytes::from_static))
        };
        assert!(matches!(ask(1, Ok(b"one")), Outcome::Rpc(Ok(_))));
        assert_eq!(ask(2, Ok(b"one")), Outcome::Same);
        let error = RpcError { code: 14, message: String::new() };
        assert!(matches!(ask(3, Err(error)), Outcome::Rpc(Err(_))));
        assert_eq!(ask(4, Ok(b"one")), Outcome::Same);
        assert!(matches!(ask(5, Ok(b"two")), Outcome::Rpc(Ok(_))));
    }
}
