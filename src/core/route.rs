//! The wiring: the one file that knows all managers. A new Note does not compile until someone hears it.
#![deny(clippy::wildcard_enum_match_arm)]

use crate::cx::Cx;
use crate::event::{Boot, Event, Item, Outcome, Signal};
use crate::facts::Facts;
use crate::managers::Managers;
use crate::managers::containers::services;
use crate::managers::images::pull;
use crate::managers::node::{
    certificates, event_sender, iptables, lease, node_object, pod_cidr, runtime_status,
};
use crate::managers::pods::{housekeeping, mirror, pleg, runtime, sources, status_sync};
use crate::managers::{offline, server, volumes};
use crate::note::{ImageNote, Note, PodNote, StepNote, VolumeNote};
use crate::rng::Rng;
use crate::time::Mono;
use serde::{Deserialize, Serialize};

/// The continuation of a call: which manager asked, and what for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Then {
    Sources(sources::Ask),
    Runtime(runtime::Ask),
    Pleg(pleg::Ask),
    Housekeeping(housekeeping::Ask),
    Pull(pull::Ask),
    RuntimeStatus(runtime_status::Ask),
    Server(server::Ask),
    Node(node_object::Ask),
    Lease(lease::Ask),
    StatusSync(status_sync::Ask),
    Mirror(mirror::Ask),
    Event(event_sender::Ask),
    Certificates(certificates::Ask),
    Volumes(volumes::Ask),
    Services(services::Ask),
    Iptables(iptables::Ask),
    PodCidr(pod_cidr::Ask),
    Offline(offline::Ask),
}

macro_rules! then_from {
    ($($variant:ident($ask:ty)),* $(,)?) => {
        $(impl From<$ask> for Then {
            fn from(ask: $ask) -> Then {
                Then::$variant(ask)
            }
        })*
    };
}
then_from! {
    Sources(sources::Ask), Runtime(runtime::Ask), Pleg(pleg::Ask),
    Housekeeping(housekeeping::Ask), Pull(pull::Ask), RuntimeStatus(runtime_status::Ask),
    Server(server::Ask), Node(node_object::Ask), Lease(lease::Ask),
    StatusSync(status_sync::Ask), Mirror(mirror::Ask),
    Event(event_sender::Ask), Certificates(certificates::Ask),
    Volumes(volumes::Ask), Services(services::Ask),
    Iptables(iptables::Ask), PodCidr(pod_cidr::Ask),
    Offline(offline::Ask),
}

/// Takes an event to its manager.
pub(crate) fn event(m: &mut Managers, cx: &mut Cx<'_>, event: Event) {
    match event {
        Event::Boot(boot) => booted(m, cx, *boot),
        Event::Tick => tick(m, cx),
        Event::Done { token, outcome } => {
            if let Some(then) = cx.answered(token, &outcome) {
                done(m, cx, then, outcome);
            }
        }
        Event::Item { token, item } => {
            if let Some(then) = cx.asks().peek(token).cloned() {
                self::item(m, cx, &then, item);
            }
        }
        Event::Request(request) => m.server.on_request(cx, &request),
        Event::Gone { request } => m.server.on_gone(request),
        Event::Signal(Signal::Terminate | Signal::Interrupt) => cx.say(Note::ShutdownWanted),
    }
}

fn booted(m: &mut Managers, cx: &mut Cx<'_>, boot: Boot) {
    if let Some(api) = &boot.settings.api {
        cx.set_limits(api);
    }
    cx.facts.boot.set(boot.settings, boot.machine);
    m.workers.on_booted(cx.now.mono, Rng::new(boot.seed).child(1));
    m.runtime_status.on_booted(cx);
    m.pleg.on_booted(cx);
    m.server.on_booted(cx);
    let kept = m.offline.on_booted(cx, &boot.kept);
    let alone = !kept.pods.is_empty();
    m.volumes.on_booted(cx, kept.objects, kept.tokens, Rng::new(boot.seed).child(8));
    m.sources.on_booted(cx, boot.set_aside, kept.pods, Rng::new(boot.seed).child(4));
    m.status_sync.on_booted(Rng::new(boot.seed).child(5));
    m.mirror.on_booted(Rng::new(boot.seed).child(6));
    m.event_sender.on_booted(Rng::new(boot.seed).child(7));
    m.services.on_booted(cx, kept.services, alone, Rng::new(boot.seed).child(9));
    m.iptables.on_booted(cx);
    m.lease.on_booted(Rng::new(boot.seed).child(2));
    m.node_object.on_booted(cx, Rng::new(boot.seed).child(3));
    m.certificates.on_booted(cx, &Rng::new(boot.seed).child(10));
}

fn tick(m: &mut Managers, cx: &mut Cx<'_>) {
    cx.release();
    m.runtime_status.on_tick(cx);
    m.pleg.on_tick(cx);
    m.sources.on_tick(cx);
    m.workers.on_tick(cx);
    m.housekeeping.on_tick(cx);
    m.node_object.on_tick(cx);
    m.lease.on_tick(cx);
    m.status_sync.on_tick(cx);
    m.mirror.on_tick(cx);
    m.event_sender.on_tick(cx);
    m.services.on_tick(cx);
    m.volumes.on_tick(cx);
    m.iptables.on_tick(cx);
    m.offline.on_tick(cx);
    m.certificates.on_tick(cx);
}

fn done(m: &mut Managers, cx: &mut Cx<'_>, then: Then, outcome: Outcome) {
    match then {
        Then::Sources(ask) => m.sources.on_done(cx, ask, outcome),
        Then::Runtime(ask) => m.runtime.on_done(cx, ask, outcome),
        Then::Pleg(ask) => m.pleg.on_done(cx, ask, outcome),
        Then::Housekeeping(ask) => m.housekeeping.on_done(cx, ask, outcome),
        Then::Pull(ask) => m.pull.on_done(cx, ask, outcome),
        Then::RuntimeStatus(ask) => m.runtime_status.on_done(cx, ask, outcome),
        Then::Server(ask) => m.server.on_done(cx, ask, outcome),
        Then::Node(ask) => m.node_object.on_done(cx, ask, outcome),
        Then::Lease(ask) => m.lease.on_done(cx, ask, outcome),
        Then::StatusSync(ask) => m.status_sync.on_done(cx, ask, outcome),
        Then::Mirror(ask) => m.mirror.on_done(cx, ask, outcome),
        Then::Event(ask) => m.event_sender.on_done(cx, ask, outcome),
        Then::Services(ask) => m.services.on_done(cx, ask, outcome),
        Then::Volumes(ask) => m.volumes.on_done(cx, ask, outcome),
        Then::Offline(ask) => m.offline.on_done(cx, ask, outcome),
        Then::Iptables(iptables::Ask) => m.iptables.on_done(cx, outcome),
        Then::PodCidr(pod_cidr::Ask) => m.pod_cidr.on_done(cx, outcome),
        Then::Certificates(ask) => m.certificates.on_done(cx, ask, outcome),
    }
}

fn item(m: &mut Managers, cx: &mut Cx<'_>, then: &Then, item: Item) {
    match then {
        Then::Sources(ask) => m.sources.on_item(cx, ask, item),
        Then::Node(ask) => m.node_object.on_item(cx, *ask, item),
        Then::Services(_) => m.services.on_item(cx, item),
        Then::Volumes(ask) => m.volumes.on_item(cx, ask, &item),
        Then::Certificates(ask) => m.certificates.on_item(cx, *ask, &item),
        // Their calls have no streams.
        Then::Runtime(_)
        | Then::Pleg(_)
        | Then::Housekeeping(_)
        | Then::Pull(_)
        | Then::RuntimeStatus(_)
        | Then::Server(_)
        | Then::Lease(_)
        | Then::StatusSync(_)
        | Then::Mirror(_)
        | Then::Offline(_)
        | Then::Iptables(_)
        | Then::PodCidr(_)
        | Then::Event(_) => {}
    }
}

/// Lets the managers talk until nobody has anything left to say.
pub(crate) fn drain(m: &mut Managers, cx: &mut Cx<'_>) {
    while let Some(n) = cx.next_note() {
        note(m, cx, &n);
    }
    // What goes to the API server is decided once, when all that the step changed is known.
    m.status_sync.go_on(cx);
    m.mirror.go_on(cx);
    m.pod_cidr.go_on(cx);
}

fn note(m: &mut Managers, cx: &mut Cx<'_>, note: &Note) {
    match note {
        Note::Pod(n) => pod_note(m, cx, n),
        Note::Step(StepNote::Done { uid, result }) => m.workers.on_step(cx, uid, result),
        Note::Step(
            n @ (StepNote::Wanted { .. }
            | StepNote::CancelWanted { .. }
            | StepNote::HastenWanted { .. }),
        ) => {
            m.runtime.on_note(cx, n);
        }
        Note::Runtime(n) => {
            m.workers.on_runtime(cx, n);
            m.pleg.on_note(cx, n);
        }
        Note::Image(ImageNote::Ready { uid, result }) => m.runtime.on_image(cx, uid, result),
        Note::Image(n @ (ImageNote::Wanted { .. } | ImageNote::Unwanted { .. })) => {
            m.pull.on_note(cx, n);
        }
        Note::Said(said) => {
            m.events.on_said(cx, said);
            m.event_sender.on_said(cx, said);
        }
        Note::Volume(VolumeNote::Ready { uid, result }) => m.runtime.on_volumes(cx, uid, result),
        Note::Volume(
            n @ (VolumeNote::Wanted { .. }
            | VolumeNote::Unwanted { .. }
            | VolumeNote::SecretsLost { .. }),
        ) => m.volumes.on_volume(cx, n),
        Note::NodeKnown => {
            m.lease.on_node_known(cx);
            m.mirror.on_node_known();
            m.certificates.on_node_known(cx);
        }
        Note::NodeLookWanted => m.node_object.on_look_wanted(cx),
        Note::NodeLooked => m.workers.on_node_looked(cx),
        Note::ApiBack => api_back(m, cx),
        Note::ManifestsRead => m.workers.on_manifests_read(cx),
        Note::PartialList => m.sources.on_partial_list(cx),
        Note::Stranger { uid } => m.sources.on_stranger(cx, uid),
        Note::StrangerGone { uid } => m.workers.on_stranger_gone(cx, uid),
        Note::Learned(learned) => m.offline.on_learned(cx, learned),
        Note::ShutdownWanted => m.workers.on_shutdown(cx),
    }
}

/// Whoever rests because the API server did not answer goes on.
fn api_back(m: &mut Managers, cx: &mut Cx<'_>) {
    m.sources.on_api_back(cx);
    m.services.on_api_back(cx);
    m.volumes.on_api_back(cx);
    m.node_object.on_api_back(cx);
    m.status_sync.on_api_back(cx);
    m.event_sender.on_api_back(cx);
    m.certificates.on_api_back(cx);
}

fn pod_note(m: &mut Managers, cx: &mut Cx<'_>, note: &PodNote) {
    m.workers.on_note(cx, note);
    m.status.on_note(cx, note);
    m.status_sync.on_note(cx, note);
    m.mirror.on_note(note);
    m.housekeeping.on_note(cx, note);
    m.server.on_note(cx, note);
    m.volumes.on_note(cx, note);
    m.offline.on_note(cx, note);
    match note {
        PodNote::Forgotten { uid } => m.pull.on_forgotten(uid),
        PodNote::RuntimeBack => m.runtime_status.on_runtime_back(cx),
        PodNote::RuntimeNamed => m.node_object.on_runtime_named(cx),
        PodNote::Configured { .. }
        | PodNote::Unconfigured { .. }
        | PodNote::ObjectChanged { .. }
        | PodNote::MirrorsChanged
        | PodNote::SourcesReady
        | PodNote::Inspected { .. }
        | PodNote::Swept { .. }
        | PodNote::Progressed { .. } => {}
    }
}

/// The earliest deadline of all managers.
pub(crate) fn deadline(m: &Managers) -> Option<Mono> {
    [
        m.runtime_status.deadline(),
        m.pleg.deadline(),
        m.sources.deadline(),
        m.workers.deadline(),
        m.housekeeping.deadline(),
        m.node_object.deadline(),
        m.lease.deadline(),
        m.status_sync.deadline(),
        m.mirror.deadline(),
        m.event_sender.deadline(),
        m.services.deadline(),
        m.volumes.deadline(),
        m.offline.deadline(),
        m.iptables.deadline(),
        m.pod_cidr.deadline(),
        m.certificates.deadline(),
    ]
    .into_iter()
    .flatten()
    .min()
}

pub(crate) fn check(m: &Managers, facts: &Facts) {
    m.sources.check(&facts.sources);
    m.workers.check(facts);
    m.pleg.check(facts);
    m.pull.check(facts);
    m.volumes.check(facts);
    m.offline.check();
    m.server.check(facts);
}
