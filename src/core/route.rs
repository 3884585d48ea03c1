//! The wiring: the one file that knows all managers. A new Note does not compile until someone hears it.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::cx::Cx;
use crate::effect::Effect;
use crate::event::{Event, Signal};
use crate::facts::Facts;
use crate::managers::Managers;
use crate::note::{Note, PodNote};
use crate::time::Mono;
use serde::{Deserialize, Serialize};

/// The continuation of a call: which manager asked, and what for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Then {}

/// Takes an event to its manager.
pub(crate) fn event(m: &mut Managers, cx: &mut Cx<'_>, event: Event) {
    match event {
        Event::Boot(boot) => {
            cx.facts.set_boot(boot.settings, boot.machine);
            cx.say(Note::Booted);
        }
        Event::Tick => {}
        Event::Done { token, outcome: _ } => if let Some(_then) = cx.asks().close(token) {},
        Event::Item { token, item: _ } => if let Some(_then) = cx.asks().peek(token) {},
        Event::Request(request) => m.server.on_request(cx, &request),
        Event::Gone { request: _ } => {}
        Event::Signal(Signal::Terminate | Signal::Interrupt) => cx.say(Note::ShutdownWanted),
    }
}

/// Lets the managers talk until nobody has anything left to say.
pub(crate) fn drain(m: &mut Managers, cx: &mut Cx<'_>) {
    while let Some(n) = cx.next_note() {
        note(m, cx, &n);
    }
}

fn note(_m: &mut Managers, cx: &mut Cx<'_>, note: &Note) {
    match note {
        Note::Booted => {}
        Note::Pod(PodNote::Configured { uid: _ }) => {}
        Note::Pod(PodNote::Unconfigured { uid: _ }) => {}
        Note::Pod(PodNote::ViewChanged { uid: _ }) => {}
        Note::ShutdownWanted => cx.emit(Effect::Exit(0)),
    }
}

/// The earliest deadline of all managers.
pub(crate) fn deadline(_m: &Managers) -> Option<Mono> {
    None
}

pub(crate) fn check(m: &Managers, facts: &Facts) {
    m.server.check(facts);
}
