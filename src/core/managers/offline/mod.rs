//! What pods of the cluster need is kept on the disk, so that they come back after a restart without the API server.
//!
//! Upstream has nothing like it: an agent that starts without its API server knows no pod of it.
//! Owns: what is kept, and what has changed since. Publishes: -.
//! Hears: Booted, the pod notes, Learned. Says: Said. Asks: HelperOp::Keep.
//! Never: writes what has not changed, or more often than every few seconds (flash cards); writes a pod before what it
//! needs; lets an entry go while the pod that needs it may come back.

pub mod entries;

use crate::cx::Cx;
use crate::effect::{Call, HelperOp, KeptEntry};
use crate::event::{FaultKind, Outcome};
use crate::facts::Facts;
use crate::managers::pods::status_sync::merged_for_good;
use crate::managers::volumes::objects::Given;
use crate::note::{Learned, Note, PodNote, Said};
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use entries::{Restored, What};
use serde::{Deserialize, Serialize};
use steplet_api::pod_facts::is_static;
use steplet_api::status::phase;

/// What changes together is written together.
const CALM: Span = Span::from_secs(1);
/// Between two writings, and after a failure, doubled up to the most.
const REST: Span = Span::from_secs(5);
const REST_MOST: Span = Span::from_secs(300);
/// Bytes of one writing, unless a single entry is larger.
const BATCH_BYTES: usize = 1 << 20;
/// What is kept at most. Beyond it the newcomers are not, and an event says so.
const ENTRIES_MAX: usize = 4096;
const BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offline {
    on: bool,
    kept: BTreeMap<String, Record>,
    bytes: usize,
    changed: BTreeSet<What>,
    /// When to write.
    next: Option<Mono>,
    last: Option<Mono>,
    writing: Option<Batch>,
    rest: Option<Span>,
    /// The trouble that was last told.
    told: String,
    full_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    digest: u64,
    bytes: usize,
}

/// What is on its way to the disk, with what it will be kept as (None: not at all).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Batch(Vec<(What, Option<Record>)>);

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Keep,
}

impl Offline {
    /// What an earlier life has kept.
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>, kept: &[KeptEntry]) -> Restored {
        self.on = cx.facts.settings().api.as_ref().is_some_and(|api| api.offline);
        if !self.on {
            return Restored::default();
        }
        let (restored, digests, strays) = entries::read(kept);
        for entry in kept {
            let bytes = entry.body.len();
            let digest = digests.get(&entry.name).copied().unwrap_or_default();
            self.kept.insert(entry.name.clone(), Record { digest, bytes });
            self.bytes += bytes;
        }
        if !restored.pods.is_empty() {
            log::info!("{} pods are known from before", restored.pods.len());
        }
        self.changed.extend(strays.into_iter().map(What::Stray));
        self.plan(cx.now.mono);
        restored
    }

    pub(crate) fn on_note(&mut self, cx: &Cx<'_>, note: &PodNote) {
        match note {
            PodNote::Configured { uid } => {
                self.mark(cx, What::Pod(uid.clone()));
                // Its namespace may be a new one.
                self.mark(cx, What::Services);
            }
            PodNote::Unconfigured { uid }
            | PodNote::ObjectChanged { uid }
            | PodNote::Progressed { uid }
            | PodNote::Forgotten { uid } => self.mark(cx, What::Pod(uid.clone())),
            PodNote::MirrorsChanged
            | PodNote::SourcesReady
            | PodNote::Inspected { .. }
            | PodNote::RuntimeBack
            | PodNote::RuntimeNamed
            | PodNote::Swept { .. } => {}
        }
    }

    pub(crate) fn on_learned(&mut self, cx: &Cx<'_>, learned: &Learned) {
        let what = match learned {
            Learned::Object(key) => What::Object(key.clone()),
            Learned::Token(key) => What::Token(key.clone()),
            Learned::Services => What::Services,
        };
        self.mark(cx, what);
    }

    fn mark(&mut self, cx: &Cx<'_>, what: What) {
        if self.on {
            self.changed.insert(what);
            self.plan(cx.now.mono);
        }
    }

    fn plan(&mut self, now: Mono) {
        if self.changed.is_empty() || self.writing.is_some() || self.next.is_some() {
            return;
        }
        let rest = self.rest.unwrap_or(REST);
        let free = self.last.map_or(now, |last| last + rest);
        self.next = Some(free.max(now + CALM));
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.next
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        if self.next.is_some_and(|at| at <= cx.now.mono) {
            self.next = None;
            self.write(cx);
        }
    }

    /// Writes what differs from what is kept, as much as fits into one writing.
    fn write(&mut self, cx: &mut Cx<'_>) {
        let (mut set, mut unset) = (Vec::new(), Vec::new());
        let (mut batch, mut bytes) = (Batch::default(), 0);
        while bytes < BATCH_BYTES
            && let Some(what) = self.changed.pop_first()
        {
            let name = what.name();
            let kept = self.kept.get(&name);
            match wanted(cx.facts, &what, kept.is_some()) {
                Wanted::Nothing if kept.is_some() => {
                    unset.push(name);
                    batch.0.push((what, None));
                }
                Wanted::Nothing | Wanted::AsItIs => {}
                Wanted::Entry { digest, .. } if kept.is_some_and(|it| it.digest == digest) => {}
                Wanted::Entry { body, digest } => {
                    let record = Record { digest, bytes: body.len() };
                    if !self.fits(&name, record) {
                        self.tell_full(cx);
                        continue;
                    }
                    bytes += body.len();
                    let sealed = what.is_sealed();
                    set.push(KeptEntry { name, body: body.into(), sealed });
                    batch.0.push((what, Some(record)));
                }
            }
        }
        if batch.0.is_empty() {
            return self.plan(cx.now.mono);
        }
        self.writing = Some(batch);
        cx.call(Ask::Keep, Call::Helper(HelperOp::Keep { set, unset }));
    }

    fn fits(&self, name: &str, record: Record) -> bool {
        let (count, bytes) = match self.kept.get(name) {
            Some(old) => (self.kept.len(), self.bytes - old.bytes),
            None => (self.kept.len() + 1, self.bytes),
        };
        count <= ENTRIES_MAX && bytes + record.bytes <= BYTES_MAX
    }

    fn tell_full(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::replace(&mut self.full_told, true) {
            let text = format!(
                "not everything is kept for a start without the API server: at most {ENTRIES_MAX} \
                 objects of {} MiB together",
                BYTES_MAX >> 20
            );
            said(cx, "OfflineStoreFull", text);
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, _: Ask, outcome: Outcome) {
        let Some(batch) = self.writing.take() else { return };
        self.last = Some(cx.now.mono);
        let fault = match outcome {
            Outcome::Helper(Ok(_)) => {
                (self.rest, self.told) = (None, String::new());
                for (what, record) in batch.0 {
                    self.note_kept(what.name(), record);
                }
                return self.plan(cx.now.mono);
            }
            Outcome::Helper(Err(fault)) => fault,
            other => crate::event::Fault {
                kind: FaultKind::Other,
                message: format!("an answer that was not asked for: {other:?}"),
            },
        };
        // A seal that is lost comes back when its source is read again, and is marked then.
        let lost = fault.kind == FaultKind::SealLost;
        let again = batch.0.into_iter().map(|(what, _)| what);
        self.changed.extend(again.filter(|what| !(lost && what.is_sealed())));
        self.rest = Some(self.rest.map_or(REST, |rest| rest.times(2).min(REST_MOST)));
        if self.told != fault.message && !lost {
            said(
                cx,
                "OfflineStoreFailed",
                format!(
                    "what pods need cannot be kept for a start without the API server: {}",
                    fault.message
                ),
            );
            self.told = fault.message;
        }
        self.plan(cx.now.mono);
    }

    fn note_kept(&mut self, name: String, record: Option<Record>) {
        let old = match record {
            Some(record) => {
                self.bytes += record.bytes;
                self.kept.insert(name, record)
            }
            None => self.kept.remove(&name),
        };
        self.bytes -= old.map_or(0, |old| old.bytes);
    }

    pub(crate) fn check(&self) {
        let bytes: usize = self.kept.values().map(|record| record.bytes).sum();
        assert_eq!(bytes, self.bytes, "offline: bytes are miscounted");
        let waits = self.changed.is_empty() || self.next.is_some() || self.writing.is_some();
        assert!(waits, "offline: nothing would ever write what has changed");
    }
}

/// How a thing is to be kept.
enum Wanted {
    Nothing,
    AsItIs,
    Entry { body: String, digest: u64 },
}

fn wanted(facts: &Facts, what: &What, kept: bool) -> Wanted {
    let entry = |body: String| Wanted::Entry { digest: entries::digest(body.as_bytes()), body };
    match what {
        What::Stray(_) => Wanted::Nothing,
        What::Pod(uid) => {
            let Some(pod) = facts.sources.pod(uid).filter(|pod| !is_static(pod)) else {
                return Wanted::Nothing;
            };
            // That it has ended is known to the worker before its status can be told again.
            let worker = facts.workers.worker(uid).map(|worker| &worker.pod().status);
            let over = worker.filter(|s| matches!(&*s.phase, phase::SUCCEEDED | phase::FAILED));
            let status = match facts.statuses.status(uid).or(over) {
                Some(own) => merged_for_good(own, &pod.status),
                None => pod.status.clone(),
            };
            let (body, digest) = entries::pod(pod, status);
            Wanted::Entry { body, digest }
        }
        What::Object(key) => match facts.volumes.objects().given(key) {
            None if facts.volumes.objects().follows(key) => Wanted::AsItIs,
            None => Wanted::Nothing,
            // A list that has it no more may be one that has nothing yet.
            Some(Given::Absent(_)) if kept => Wanted::AsItIs,
            Some(given) => entry(entries::object(key, &given)),
        },
        What::Token(key) => match facts.volumes.tokens().kept(key) {
            None => Wanted::Nothing,
            Some(token) => entry(entries::token(key, &token)),
        },
        What::Services => {
            let mut namespaces: BTreeSet<Box<str>> = BTreeSet::new();
            let pods = facts.sources.pods().values().filter(|pod| !is_static(pod));
            namespaces.extend(pods.map(|pod| pod.metadata.namespace.clone()));
            match facts.services.of(&namespaces) {
                None => Wanted::AsItIs,
                Some(all) => entry(entries::services(&all)),
            }
        }
    }
}

fn said(cx: &mut Cx<'_>, reason: &'static str, message: String) {
    let (uid, field, warning) = (None, String::new(), true);
    log::warn!("{message}");
    let reason = reason.into();
    cx.say(Note::Said(Box::new(Said { uid, field, warning, reason, message })));
}
