//! The volumes that hold files of the API: their content is gathered before a pod starts, and kept up to date.
//!
//! Upstream: pkg/kubelet/volumemanager (v1.36), for configMap, secret, downwardAPI and projected; WaitForAttachAndMount.
//! Owns: which pod wants which objects and tokens, who waits for them, what was last written.
//! Publishes: `facts.volumes`: the objects and tokens at hand.
//! Hears: Configured, Progressed, Forgotten, SourcesReady, VolumeNote Wanted, Unwanted and SecretsLost. Says: VolumeNote::Ready, Learned, Said.
//! Asks: ConfigMaps, Secrets and tokens of the API server; files of the helper.
//! Never: writes below the directory of a pod whose clean-up has begun.

pub mod objects;
pub mod payload;
pub mod tokens;

use crate::backoff::BackOff;
use crate::cx::Cx;
use crate::effect::{Call, HelperOp, PodSetup, VolumeKind};
use crate::event::{Fault, FaultKind, HelperReply, Item, Outcome};
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::containers::volumes::{is_used, pod_setup};
use crate::managers::offline::entries::KeptToken;
use crate::managers::pods::workers::Phase;
use crate::note::{Note, PodNote, Said, StepError, VolumeNote};
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use objects::{Given, Key, Objects, ObjectsFacts};
use payload::{Wants, is_made};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use steplet_api::pod::Pod;
use tokens::{TokenKey, Tokens, TokensFacts};

/// Between two tries of volumes that fail (pkg/util/goroutinemap/exponentialbackoff).
const REST: Span = Span::from_millis(500);
const REST_MOST: Span = Span::from_secs(122);
/// How long a pod's start waits for its volumes (podAttachAndMountTimeout).
const WAIT_MOST: Span = Span::from_secs(123);
/// After a start all pods that run are looked at within this time, not all at once.
const FIRST_SYNC: Span = Span::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volumes {
    rng: Rng,
    objects: Objects,
    tokens: Tokens,
    /// Pods that have something of the API in their volumes or variables.
    pods: BTreeMap<PodUid, Mounts>,
    timers: BTreeSet<(Mono, PodUid)>,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumesFacts {
    objects: ObjectsFacts,
    tokens: TokensFacts,
}

impl VolumesFacts {
    pub fn objects(&self) -> &ObjectsFacts {
        &self.objects
    }

    pub fn tokens(&self) -> &TokensFacts {
        &self.tokens
    }

    #[cfg(test)]
    pub(crate) fn of(objects: ObjectsFacts, tokens: TokensFacts) -> VolumesFacts {
        VolumesFacts { objects, tokens }
    }
}

/// What is known of one pod's volumes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Mounts {
    objects: BTreeSet<Key>,
    tokens: BTreeSet<TokenKey>,
    /// Since when the pod's start waits.
    waits: Option<Mono>,
    back_off: Option<BackOff>,
    /// The error that was last told.
    said: String,
    /// A digest of the files that were last asked for.
    written: Option<u64>,
    /// They are being made.
    writing: bool,
    wake: Option<Mono>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Object(Key),
    Token(TokenKey),
    Write { uid: PodUid },
}

impl Volumes {
    pub(crate) fn on_booted(
        &mut self,
        cx: &mut Cx<'_>,
        objects: BTreeMap<Key, Given>,
        tokens: BTreeMap<TokenKey, KeptToken>,
        rng: Rng,
    ) {
        self.objects.on_booted(cx, objects, rng.child(1));
        self.tokens.on_booted(tokens, rng.child(2));
        self.rng = rng;
    }

    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &PodNote) {
        match note {
            PodNote::Configured { uid } => self.on_configured(cx, uid),
            PodNote::Progressed { uid } | PodNote::Forgotten { uid } => {
                let worker = cx.facts.workers.worker(uid);
                if worker.is_none_or(|w| matches!(w.phase(), Phase::Cleaning(_) | Phase::Ended(_)))
                {
                    self.forget(cx, uid);
                }
            }
            PodNote::SourcesReady => {
                self.objects.drop_restored(cx);
                self.tokens.drop_restored(cx);
            }
            PodNote::Unconfigured { .. }
            | PodNote::ObjectChanged { .. }
            | PodNote::MirrorsChanged
            | PodNote::Inspected { .. }
            | PodNote::RuntimeBack
            | PodNote::RuntimeNamed
            | PodNote::Swept { .. } => {}
        }
    }

    /// Its objects are asked for at once: they are at hand when the pod is admitted.
    fn on_configured(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.worker(uid) else { return };
        if worker.ending().is_some() {
            return;
        }
        let pod = worker.pod().clone();
        let made = |volume| is_used(&pod, volume) && is_made(volume);
        let wants = Wants::of(&pod);
        if wants.is_empty() && !pod.spec.volumes.iter().any(made) {
            return self.forget(cx, uid);
        }
        self.objects.set(cx, uid, &wants.objects);
        self.tokens.set(cx, uid.as_str(), &wants.tokens);
        let mounts = self.pods.entry(uid.clone()).or_default();
        (mounts.objects, mounts.tokens) = (wants.objects, wants.tokens);
        self.refresh(cx, uid);
        let first = Span(self.rng.below(FIRST_SYNC.0));
        let at = cx.now.mono + first;
        self.wake_at(cx, uid, at);
        // Its labels may be others.
        self.look_again(cx, uid);
    }

    fn forget(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(mounts) = self.pods.remove(uid) else { return };
        if let Some(at) = mounts.wake {
            self.timers.remove(&(at, uid.clone()));
        }
        self.objects.set(cx, uid, &BTreeSet::new());
        self.tokens.set(cx, uid.as_str(), &BTreeSet::new());
    }

    fn refresh(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(mounts) = self.pods.get(uid) else { return };
        self.objects.refresh(cx, &mounts.objects);
        self.tokens.refresh(cx, &mounts.tokens);
    }

    pub(crate) fn on_volume(&mut self, cx: &mut Cx<'_>, note: &VolumeNote) {
        match note {
            VolumeNote::Wanted { uid } => {
                let Some(mounts) = self.pods.get_mut(uid) else {
                    return ready(cx, uid, Ok(()));
                };
                mounts.waits = Some(cx.now.mono);
                self.refresh(cx, uid);
                self.gather(cx, uid);
            }
            VolumeNote::Unwanted { uid } => {
                if let Some(mounts) = self.pods.get_mut(uid) {
                    mounts.waits = None;
                }
            }
            VolumeNote::SecretsLost { uid } => self.read_again(cx, uid),
            VolumeNote::Ready { .. } => {}
        }
    }

    /// The vault has let go of secrets that nobody used for long.
    fn read_again(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        if let Some(mounts) = self.pods.get(uid) {
            self.objects.read_again(cx, &mounts.objects);
            self.tokens.forget(cx, &mounts.tokens);
            self.refresh(cx, uid);
        }
    }

    /// Lets a pod's start go on if everything is at hand.
    fn gather(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        let Some(since) = mounts.waits else { return };
        let now = cx.now.mono;
        if let Some(until) = awaited(&self.objects, &self.tokens, mounts, cx) {
            return self.wake_at(cx, uid, until);
        }
        let Some(pod) = pod_of(cx, uid) else { return };
        match files_of(&pod, cx.facts) {
            Ok(setup) => {
                mounts.waits = None;
                mounts.back_off = None;
                mounts.said.clear();
                mounts.written = Some(digest(&setup));
                self.tell_expired(cx, uid);
                self.sleep(cx, uid);
                ready(cx, uid, Ok(()));
            }
            Err(why) if now.since(since) >= WAIT_MOST => {
                mounts.waits = None;
                let message = not_in_time(&pod, &why);
                said(
                    cx,
                    uid,
                    "FailedMount",
                    format!("Unable to attach or mount volumes: {message}"),
                );
                self.sleep(cx, uid);
                ready(cx, uid, Err(message));
            }
            Err(why) => self.fail(cx, uid, why),
        }
    }

    fn tell_expired(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(mounts) = self.pods.get(uid) else { return };
        if let Some(text) = self.tokens.expired(cx, &mounts.tokens) {
            said(cx, uid, "TokenExpired", text);
        }
    }

    /// Tells why, and tries again ever later.
    fn fail(&mut self, cx: &mut Cx<'_>, uid: &PodUid, why: String) {
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        let now = cx.now.mono;
        match &mut mounts.back_off {
            None => mounts.back_off = Some(BackOff::first(now, REST)),
            Some(back_off) => back_off.again(now, REST, REST_MOST),
        }
        let rest = mounts.back_off.as_ref().map_or(REST, BackOff::period);
        let at = match mounts.waits {
            None => now + rest,
            Some(since) => (now + rest).min((since + WAIT_MOST).max(now)),
        };
        if mounts.said != why || rest >= Span::from_secs(60) {
            mounts.said = why.clone();
            said(cx, uid, "FailedMount", why);
        }
        self.wake_at(cx, uid, at);
    }

    /// Brings the files of a pod that is there up to date, if they are other than what was last written.
    fn update(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        if mounts.writing || mounts.waits.is_some() {
            return;
        }
        let Some(worker) = cx.facts.workers.worker(uid) else { return };
        let lives = matches!(worker.phase(), Phase::Syncing | Phase::Terminating(_));
        // One that was never set up in this life of the program is left alone, unless it runs.
        let runs = || cx.facts.pleg.view(uid).is_some_and(|view| view.alive());
        if !lives || (mounts.written.is_none() && !runs()) {
            return;
        }
        let pod = worker.pod().clone();
        if let Some(until) = awaited(&self.objects, &self.tokens, mounts, cx) {
            return self.wake_at(cx, uid, until);
        }
        let setup = match files_of(&pod, cx.facts) {
            Ok(setup) => setup,
            Err(why) => return self.fail(cx, uid, why),
        };
        let digest = digest(&setup);
        self.tell_expired(cx, uid);
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        if mounts.written == Some(digest) {
            mounts.back_off = None;
            return;
        }
        (mounts.written, mounts.writing) = (Some(digest), true);
        let op = HelperOp::SetUpPod(setup.into());
        cx.call(Ask::Write { uid: uid.clone() }, Call::Helper(op));
    }

    fn on_written(&mut self, cx: &mut Cx<'_>, uid: &PodUid, outcome: Outcome) {
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        mounts.writing = false;
        match outcome {
            Outcome::Helper(Ok(HelperReply::PodReady(_))) => {
                mounts.back_off = None;
                mounts.said.clear();
                // Something may have changed meanwhile.
                self.update(cx, uid);
            }
            Outcome::Helper(Err(Fault { kind, message })) => {
                mounts.written = None;
                if kind == FaultKind::SealLost {
                    self.read_again(cx, uid);
                }
                self.fail(cx, uid, message);
            }
            other => {
                mounts.written = None;
                self.fail(cx, uid, format!("an answer that was not asked for: {other:?}"));
            }
        }
    }

    /// An object or a token is another one, or nobody need wait for it any more.
    fn look_again(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        match self.pods.get(uid) {
            Some(mounts) if mounts.waits.is_some() => self.gather(cx, uid),
            Some(_) => self.update(cx, uid),
            None => {}
        }
    }

    pub(crate) fn on_item(&mut self, cx: &mut Cx<'_>, ask: &Ask, item: &Item) {
        if let (Ask::Object(key), Item::Line(line)) = (ask, item)
            && self.objects.on_line(cx, key, line)
        {
            for uid in self.objects.users(key) {
                self.look_again(cx, &uid);
            }
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, ask: Ask, outcome: Outcome) {
        match ask {
            Ask::Object(key) => {
                if self.objects.on_done(cx, &key, outcome) {
                    for uid in self.objects.users(&key) {
                        self.look_again(cx, &uid);
                    }
                }
            }
            Ask::Token(key) => {
                if self.tokens.on_done(cx, &key, outcome) {
                    self.look_again(cx, &PodUid(key.uid));
                }
            }
            Ask::Write { uid } => self.on_written(cx, &uid, outcome),
        }
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.objects.on_api_back(cx);
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.objects.on_tick(cx);
        self.tokens.on_tick(cx);
        while let Some((at, uid)) = self.timers.first().cloned() {
            if at > cx.now.mono {
                break;
            }
            self.timers.pop_first();
            if let Some(mounts) = self.pods.get_mut(&uid) {
                mounts.wake = None;
            }
            self.sleep(cx, &uid);
            self.refresh(cx, &uid);
            self.look_again(cx, &uid);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let parts = [self.objects.deadline(), self.tokens.deadline(), timer];
        parts.into_iter().flatten().min()
    }

    /// Until the pod's next look: that of the pod workers, stretched alike.
    fn sleep(&mut self, cx: &Cx<'_>, uid: &PodUid) {
        let period = cx.facts.settings().sync_frequency.max(Span::from_secs(1));
        let at = cx.now.mono + self.rng.jitter(period, 50);
        self.wake_at(cx, uid, at);
    }

    fn wake_at(&mut self, cx: &Cx<'_>, uid: &PodUid, at: Mono) {
        let Some(mounts) = self.pods.get_mut(uid) else { return };
        let at = at.max(cx.now.mono + Span::from_millis(1));
        if let Some(old) = mounts.wake.replace(at) {
            self.timers.remove(&(old, uid.clone()));
        }
        self.timers.insert((at, uid.clone()));
    }

    pub(crate) fn check(&self, facts: &Facts) {
        self.objects.check(facts);
        self.tokens.check(facts);
        for (uid, mounts) in &self.pods {
            let at = mounts.wake.expect("volumes: nothing would look at a pod again");
            assert!(self.timers.contains(&(at, uid.clone())), "volumes: a lost timer of {uid}");
        }
        assert_eq!(self.timers.len(), self.pods.len(), "volumes: a stray timer");
    }
}

/// Until when something that was asked for is waited for, if anything is.
fn awaited(objects: &Objects, tokens: &Tokens, mounts: &Mounts, cx: &Cx<'_>) -> Option<Mono> {
    let until = [objects.awaited(cx, &mounts.objects), tokens.awaited(cx, &mounts.tokens)];
    until.into_iter().flatten().max().filter(|until| *until > cx.now.mono)
}

fn pod_of(cx: &Cx<'_>, uid: &PodUid) -> Option<Arc<Pod>> {
    cx.facts.workers.worker(uid).map(|worker| worker.pod().clone())
}

/// The setup of a pod, with nothing in it but the volumes whose files are made here.
fn files_of(pod: &Pod, facts: &Facts) -> Result<PodSetup, String> {
    let (settings, machine) = (facts.settings(), facts.machine());
    let services = &facts.services;
    let given = payload::Given { volumes: &facts.volumes, settings, machine, services };
    let mut setup = pod_setup(pod, &given).map_err(|e| e.0)?;
    setup.volumes.retain(|volume| matches!(volume.kind, VolumeKind::Files { .. }));
    setup.containers.clear();
    setup.resolv_conf.clear();
    setup.node_hosts = false;
    Ok(setup)
}

fn digest(setup: &PodSetup) -> u64 {
    let bytes = postcard::to_allocvec(&setup.volumes).expect("plain data always encodes");
    let hash = Sha256::digest(&bytes);
    u64::from_le_bytes(hash[..8].try_into().expect("it has 32 bytes"))
}

/// What the pod's start is told when its volumes did not come in time.
fn not_in_time(pod: &Pod, why: &str) -> String {
    let made = pod.spec.volumes.iter().filter(|volume| is_used(pod, volume) && is_made(volume));
    let names: Vec<&str> = made.map(|volume| &*volume.name).collect();
    let failed: Vec<&str> =
        names.iter().copied().filter(|name| why.contains(&format!("{name:?}"))).collect();
    let unmounted = if failed.is_empty() { names } else { failed };
    format!(
        "unmounted volumes=[{}], unattached volumes=[], failed to process volumes=[]: timed out \
         waiting for the condition",
        unmounted.join(" ")
    )
}

fn ready(cx: &mut Cx<'_>, uid: &PodUid, result: Result<(), String>) {
    let error = |message| StepError { container: None, reason: "FailedMount", message };
    let result = result.map_err(error);
    cx.say(Note::Volume(VolumeNote::Ready { uid: uid.clone(), result }));
}

fn said(cx: &mut Cx<'_>, uid: &PodUid, reason: &'static str, message: String) {
    let (uid, field, warning) = (Some(uid.clone()), String::new(), true);
    let reason = reason.into();
    cx.say(Note::Said(Box::new(Said { uid, field, warning, reason, message })));
}
