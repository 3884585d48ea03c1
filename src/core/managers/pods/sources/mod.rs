//! Where pods come from: the manifest directory (or file), the manifest URL, and the API server.
//!
//! Upstream: pkg/kubelet/config/{file,file_linux,http,config}.go (v1.36).
//! Owns: what was last read from each file, from the URL and from the API server. Publishes: `facts.sources`, the pods that are wanted.
//! Hears: Booted, Stranger, PartialList. Says: Configured, Unconfigured, SourcesReady, ManifestsRead, StrangerGone, Said. Asks: manifests, the watch on them.
//! Never: drops a pod because its manifest cannot be read at the moment (bottlerocket#1396); only a manifest that is
//! gone, or a good one that says otherwise, does. Of two manifests with one pod name the first by file name wins
//! (k/k#136962).

mod api_pods;
mod doubts;
pub mod static_pod;

use crate::cx::Cx;
use crate::effect::{Call, DiskOp, HelperOp};
use crate::event::{DiskReply, HelperReply, Item, Manifest, Outcome, SetAside};
use crate::ids::{PodUid, Token};
use crate::limits::{MESSAGE_BYTES_MAX, PODS_MAX};
use crate::managers::cri;
use crate::note::{Note, PodNote, Said};
use crate::rng::Rng;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_pods::ApiPods;
use serde::{Deserialize, Serialize};
use static_pod::{Origin, differs, static_pods};
use steplet_api::pod::Pod;
use steplet_api::pod_facts::is_static;
use steplet_api::status::phase;

/// A broken watch is set up again after 1 s, doubled up to 20 s; the scan goes on meanwhile. One that lasted or saw
/// something begins at 1 s again.
const WATCH_RETRY: Span = Span::from_secs(1);
const WATCH_RETRY_MOST: Span = Span::from_secs(20);
const WATCH_LASTED: Span = Span::from_secs(40);
/// Editors write in several steps: one read serves what happens within this time.
const CALM: Span = Span::from_millis(50);
/// How long an unreadable manifest at the start keeps the agent from calling pods left over.
const DOUBT: Span = Span::from_secs(60);
/// No source is looked at more often, whatever the configuration says.
const CHECK_LEAST: Span = Span::from_secs(1);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sources {
    /// By file name (sorted: the first wins), then the URL.
    files: BTreeMap<String, Entry>,
    url: Option<Entry>,
    api: ApiPods,
    files_read: bool,
    first_read: Option<Mono>,
    last_read: Mono,
    url_read: bool,
    reading: Option<Token>,
    /// Something happened while a read was under way.
    again: bool,
    watched_since: Mono,
    watch_retry: Span,
    timers: BTreeMap<Timer, Mono>,
    /// What was last said of the trouble with what a timer is for.
    warned: BTreeMap<Timer, String>,
    set_aside: Vec<SetAside>,
    ready_said: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Timer {
    Read,
    Watch,
    Fetch,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// From the last good content.
    pods: Vec<Arc<Pod>>,
    problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Files,
    Watch,
    Url,
    Api,
    /// Whether a pod is gone.
    Confirm(PodUid),
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SourcesFacts {
    pods: BTreeMap<PodUid, Arc<Pod>>,
    mirrors: BTreeMap<(Box<str>, Box<str>), Arc<Pod>>,
    ready: bool,
    /// Files and the URL were read.
    manifests_read: bool,
    unseen: BTreeSet<PodUid>,
    gone: Vec<PodUid>,
    problems: BTreeMap<String, String>,
}

impl SourcesFacts {
    /// All manifests were read at least once, whatever is with the API server.
    pub fn manifests_read(&self) -> bool {
        self.manifests_read
    }

    /// A pod from an earlier life that the API server has not spoken of in this one.
    pub fn unseen(&self, uid: &PodUid) -> bool {
        self.unseen.contains(uid)
    }

    /// The API server was asked and does not have it.
    pub fn is_gone(&self, uid: &PodUid) -> bool {
        self.gone.contains(uid)
    }

    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid)
    }

    pub fn pods(&self) -> &BTreeMap<PodUid, Arc<Pod>> {
        &self.pods
    }

    /// The API server's picture of a static pod.
    pub fn mirror(&self, pod: &Pod) -> Option<&Arc<Pod>> {
        let meta = &pod.metadata;
        self.mirrors.get(&(meta.namespace.clone(), meta.name.clone()))
    }

    /// All pictures of static pods that the API server has for this node, by namespace and name.
    pub fn mirrors(&self) -> &BTreeMap<(Box<str>, Box<str>), Arc<Pod>> {
        &self.mirrors
    }

    /// The object of a pod as the API server last had it: its own, or the picture of a static one.
    pub fn object(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        let pod = self.pods.get(uid)?;
        if is_static(pod) { self.mirror(pod) } else { Some(pod) }
    }

    /// All configured sources were read at least once.
    pub fn ready(&self) -> bool {
        self.ready
    }

    /// Manifests that cannot be used, by file name or `staticPodURL`, each with the reason; of a pod that is ignored,
    /// its name follows.
    pub fn problems(&self) -> &BTreeMap<String, String> {
        &self.problems
    }
}

impl Sources {
    pub(crate) fn on_booted(
        &mut self,
        cx: &mut Cx<'_>,
        set_aside: Vec<SetAside>,
        kept: Vec<Pod>,
        rng: Rng,
    ) {
        self.set_aside = set_aside;
        if cx.facts.settings().api.is_some() {
            self.api.start(cx, kept, rng);
        }
        let settings = cx.facts.settings();
        self.files_read = settings.static_pod_path.is_empty();
        self.url_read = settings.static_pod_url.is_empty();
        let (files, url) = (!self.files_read, !self.url_read);
        if files {
            self.watch(cx);
            self.read(cx);
        }
        if url {
            self.fetch(cx);
        }
        self.settle(cx);
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.api.on_api_back(cx);
    }

    /// The API server has what its list did not tell of.
    pub(crate) fn on_partial_list(&mut self, cx: &mut Cx<'_>) {
        self.api.relist(cx);
    }

    /// Only the runtime has this pod.
    pub(crate) fn on_stranger(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(view) = cx.facts.pleg.view(uid) else { return };
        let (namespace, name) = (view.namespace.clone(), view.name.clone());
        self.api.on_stranger(cx, uid, &namespace, &name);
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.api.on_tick(cx);
        let due: Vec<Timer> =
            self.timers.iter().filter(|(_, at)| **at <= cx.now.mono).map(|(t, _)| *t).collect();
        for timer in due {
            self.timers.remove(&timer);
            match timer {
                Timer::Read => self.read(cx),
                Timer::Watch => self.watch(cx),
                Timer::Fetch => self.fetch(cx),
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.timers.values().copied().chain(self.api.deadline()).min()
    }

    pub(crate) fn on_item(&mut self, cx: &mut Cx<'_>, then: &Ask, item: Item) {
        match (then, item) {
            (Ask::Watch, Item::PathChanged) => {
                self.watch_retry = Span(0);
                self.warned.remove(&Timer::Watch);
                // The first word is followed at once, a flood of them every so often.
                let soon = self.last_read + CALM;
                if soon <= cx.now.mono {
                    return self.read(cx);
                }
                let at = self.timers.entry(Timer::Read).or_insert(soon);
                *at = soon.min(*at);
            }
            (Ask::Files, Item::Manifest(manifest)) => {
                let path = cx.facts.settings().static_pod_path.clone();
                // The path may be that of the file itself.
                let place = match path.rsplit('/').next() == Some(manifest.name.as_str()) {
                    true => path,
                    false => format!("{}/{}", path.trim_end_matches('/'), manifest.name),
                };
                let mut entry = self.files.remove(&manifest.name).unwrap_or_default();
                self.take(cx, &mut entry, &manifest, "file", &place);
                self.files.insert(manifest.name, entry);
            }
            (Ask::Api, Item::Line(line)) => {
                if self.api.on_line(cx, &line) {
                    self.settle(cx);
                }
            }
            (Ask::Watch | Ask::Files | Ask::Url | Ask::Api | Ask::Confirm(_), _) => {}
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        let now = cx.now.mono;
        match then {
            Ask::Api => {
                if self.api.on_done(cx, outcome) {
                    self.settle(cx);
                }
            }
            Ask::Confirm(uid) => {
                if self.api.on_confirmed(cx, &uid, outcome) {
                    self.settle(cx);
                    if cx.facts.sources.is_gone(&uid) {
                        cx.say(Note::StrangerGone { uid });
                    }
                }
            }
            Ask::Files => self.on_files(cx, outcome),
            Ask::Watch => {
                if now.since(self.watched_since) >= WATCH_LASTED {
                    self.watch_retry = Span(0);
                    self.warned.remove(&Timer::Watch);
                }
                self.warn(Timer::Watch, "the static pod path is scanned, not watched", &outcome);
                let next = Span((self.watch_retry.0 * 2).clamp(WATCH_RETRY.0, WATCH_RETRY_MOST.0));
                self.watch_retry = next;
                self.timers.insert(Timer::Watch, now + next);
            }
            Ask::Url => {
                let next = cx.facts.settings().http_check.max(CHECK_LEAST);
                self.timers.insert(Timer::Fetch, now + next);
                match outcome {
                    Outcome::Same => {
                        self.warned.remove(&Timer::Fetch);
                    }
                    Outcome::Helper(Ok(HelperReply::Manifest(manifest))) => {
                        self.warned.remove(&Timer::Fetch);
                        let mut entry = self.url.take().unwrap_or_default();
                        let place = manifest.name.clone();
                        self.take(cx, &mut entry, &manifest, "http", &place);
                        // An unusable first answer does not count as read: nothing is stopped because of it.
                        self.url_read |= entry.problem.is_none();
                        self.url = Some(entry);
                        self.settle(cx);
                    }
                    other => self.warn(Timer::Fetch, "the static pod URL cannot be read", &other),
                }
            }
        }
    }

    fn on_files(&mut self, cx: &mut Cx<'_>, outcome: Outcome) {
        let now = cx.now.mono;
        self.reading = None;
        let file_check = cx.facts.settings().file_check.max(CHECK_LEAST);
        let next = if core::mem::take(&mut self.again) { CALM } else { file_check };
        let at = self.timers.entry(Timer::Read).or_insert(now + next);
        *at = (*at).min(now + next);
        match outcome {
            Outcome::Disk(Ok(DiskReply::Manifests(names))) => {
                self.warned.remove(&Timer::Read);
                let names = names.unwrap_or_default();
                self.files.retain(|name, _| names.binary_search(name).is_ok());
                // A file that cannot be read at the start may be the manifest of a pod that runs: until it
                // can be read, or a minute has passed, nothing counts as left over.
                let doubt = |e: &Entry| e.problem.is_some() && e.pods.is_empty();
                let first = *self.first_read.get_or_insert(now);
                let patient = now.since(first) < DOUBT;
                if !(patient && self.files.values().any(doubt)) {
                    self.files_read = true;
                }
                self.settle(cx);
            }
            // What was read before stands.
            other => self.warn(Timer::Read, "the static pod path cannot be read", &other),
        }
    }

    fn read(&mut self, cx: &mut Cx<'_>) {
        if self.reading.is_some() {
            self.again = true;
            return;
        }
        self.last_read = cx.now.mono;
        let path = cx.facts.settings().static_pod_path.clone();
        self.reading = Some(cx.call(Ask::Files, Call::Disk(DiskOp::ReadManifests { path })));
    }

    fn watch(&mut self, cx: &mut Cx<'_>) {
        let path = cx.facts.settings().static_pod_path.clone();
        cx.call(Ask::Watch, Call::Disk(DiskOp::WatchManifests { path }));
        self.watched_since = cx.now.mono;
    }

    /// Says what is wrong, unless it is what was wrong the last time.
    fn warn(&mut self, about: Timer, what: &str, outcome: &Outcome) {
        let text = format!("{what}: {}", why(outcome));
        if self.warned.get(&about) != Some(&text) {
            log::warn!("{text}");
            self.warned.insert(about, text);
        }
    }

    fn fetch(&mut self, cx: &mut Cx<'_>) {
        let settings = cx.facts.settings();
        let url = settings.static_pod_url.clone();
        let whole = settings.static_pod_url_whole;
        let headers = settings.static_pod_url_headers.clone();
        cx.call(Ask::Url, Call::Helper(HelperOp::FetchManifest { url, whole, headers }));
    }

    /// Takes in a manifest that is new or changed. A bad one leaves the pods of the last good one.
    fn take(
        &mut self,
        cx: &mut Cx<'_>,
        entry: &mut Entry,
        manifest: &Manifest,
        source: &'static str,
        place: &str,
    ) {
        let aside = self.set_aside.iter();
        let aside =
            aside.filter(|a| a.name == manifest.name && a.digest == manifest.digest).count();
        let read = match &manifest.content {
            _ if aside > 0 => {
                Err("set aside, since it brought the agent down three times in five \
                minutes; change the manifest to have it tried again"
                    .into())
            }
            Ok(json) => {
                let node_name = &cx.facts.settings().node_name;
                let seen = cx.now.wall;
                static_pods(json, &Origin { source, place, node_name, seen })
            }
            Err(error) if error.line > 0 => Err(format!("line {}: {}", error.line, error.message)),
            Err(error) => Err(error.message.clone()),
        };
        match read {
            Ok(pods) => {
                entry.problem = None;
                let old = core::mem::take(&mut entry.pods);
                entry.pods = pods.into_iter().map(|pod| keep_seen(pod, &old)).collect();
            }
            Err(problem) => {
                let mut problem = format!("{place}: {problem}");
                cri::cut(&mut problem, MESSAGE_BYTES_MAX);
                if entry.problem.as_ref() != Some(&problem) {
                    said(cx, None, true, "FailedValidation", problem.clone());
                }
                entry.problem = Some(problem);
            }
        }
    }

    /// Publishes what all sources together want, and says what changed.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let mut wanted: BTreeMap<PodUid, Arc<Pod>> = BTreeMap::new();
        let mut names: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut problems = BTreeMap::new();
        let mut ignored = BTreeMap::new();
        let url = self.url.iter().map(|entry| ("staticPodURL", entry));
        let files = self.files.iter().map(|(name, entry)| (name.as_str(), entry));
        // Pods beyond the limit are those that came last, wherever their files sort.
        let old = &cx.facts.sources.pods;
        let known = |pod: &&Arc<Pod>| old.contains_key(&PodUid(pod.metadata.uid.clone()));
        let pods = self.files.values().chain(&self.url).flat_map(|entry| &entry.pods);
        let mut room = PODS_MAX.saturating_sub(pods.filter(known).count());
        for (place, entry) in files.chain(url) {
            if let Some(problem) = &entry.problem {
                problems.insert(place.into(), problem.clone());
            }
            for pod in &entry.pods {
                let meta = &pod.metadata;
                let name = (String::from(&*meta.namespace), String::from(&*meta.name));
                let uid = PodUid(meta.uid.clone());
                let first = names.get(&name).cloned();
                if let Some(first) = first.or_else(|| wanted.get(&uid).map(|_| "another".into())) {
                    let pod = format!("{}/{}", meta.namespace, meta.name);
                    let text =
                        format!("pod {pod} of {place} is ignored: {first} has a pod of this name");
                    ignored.insert(format!("{place}: {pod}"), text);
                } else if room == 0 && !cx.facts.sources.pods.contains_key(&uid) {
                    let text =
                        format!("more than {PODS_MAX} pods are configured: the rest is ignored");
                    ignored.insert(format!("{place}: more"), text);
                } else {
                    room -= usize::from(!cx.facts.sources.pods.contains_key(&uid));
                    names.insert(name, place.into());
                    wanted.insert(uid, pod.clone());
                }
            }
        }
        for (uid, pod) in self.api.pods() {
            wanted.entry(uid.clone()).or_insert_with(|| pod.clone());
        }
        for (uid, text) in self.api.problems() {
            ignored.insert(format!("api: {uid}"), text.clone());
        }
        for (key, text) in &ignored {
            if cx.facts.sources.problems.get(key) != Some(text) {
                said(cx, None, true, "FailedValidation", text.clone());
            }
        }
        problems.append(&mut ignored);
        self.publish(cx, wanted, problems);
    }

    fn publish(
        &mut self,
        cx: &mut Cx<'_>,
        wanted: BTreeMap<PodUid, Arc<Pod>>,
        problems: BTreeMap<String, String>,
    ) {
        let facts = &mut cx.facts.sources;
        // A pinned UID under another name is another pod.
        let same = |old: &Pod, new: &Pod| {
            let (old, new) = (&old.metadata, &new.metadata);
            old.name == new.name && old.namespace == new.namespace
        };
        let gone = facts.pods.iter();
        let gone = gone.filter(|(uid, old)| wanted.get(*uid).is_none_or(|new| !same(old, new)));
        let gone: Vec<PodUid> = gone.map(|(uid, _)| uid.clone()).collect();
        let seen = |uid: &PodUid| facts.unseen.contains(uid) && !self.api.unseen().contains(uid);
        let over = |pod: &Pod| matches!(&*pod.status.phase, phase::SUCCEEDED | phase::FAILED);
        let changed = |uid: &PodUid, pod: &Arc<Pod>| match facts.pods.get(uid) {
            // What was kept may be older than the end of the pod.
            Some(old) if seen(uid) && over(pod) && !over(old) => true,
            Some(old) => !Arc::ptr_eq(old, pod) && (differs(old, pod) || !same(old, pod)),
            None => true,
        };
        // Only what the API server says of it is new: its status is to be compared.
        let told = |uid: &PodUid, pod: &Arc<Pod>| {
            let old = facts.pods.get(uid);
            old.is_some_and(|old| seen(uid) || (!Arc::ptr_eq(old, pod) && old != pod))
        };
        let news = wanted.iter().filter(|(uid, pod)| changed(uid, pod));
        let news: Vec<PodUid> = news.map(|(uid, _)| uid.clone()).collect();
        let told = wanted.iter().filter(|(uid, pod)| told(uid, pod) && !is_static(pod));
        let told: Vec<PodUid> = told.map(|(uid, _)| uid.clone()).collect();
        let mirrored = facts.mirrors != *self.api.mirrors();
        if mirrored {
            facts.mirrors = self.api.mirrors().clone();
        }
        facts.pods = wanted;
        facts.problems = problems;
        let api = cx.facts.boot.settings().api.is_some();
        let facts = &mut cx.facts.sources;
        let manifests = self.files_read && self.url_read;
        let newly_read = manifests && !core::mem::replace(&mut facts.manifests_read, manifests);
        facts.ready = manifests && (self.api.read() || !api);
        facts.unseen = self.api.unseen().clone();
        facts.gone = self.api.lost_ones().to_vec();
        // Upstream's order: what is removed goes first.
        for uid in gone {
            cx.say(Note::Pod(PodNote::Unconfigured { uid }));
        }
        for uid in news {
            cx.say(Note::Pod(PodNote::Configured { uid }));
        }
        for uid in told {
            cx.say(Note::Pod(PodNote::ObjectChanged { uid }));
        }
        if mirrored {
            cx.say(Note::Pod(PodNote::MirrorsChanged));
        }
        if newly_read {
            cx.say(Note::ManifestsRead);
        }
        if cx.facts.sources.ready && !core::mem::replace(&mut self.ready_said, true) {
            cx.say(Note::Pod(PodNote::SourcesReady));
        }
    }

    /// The published pods are named by their own UID.
    pub(crate) fn check(&self, facts: &SourcesFacts) {
        for (uid, pod) in &facts.pods {
            assert!(uid.0 == pod.metadata.uid, "sources: {uid} is not its pod's UID");
        }
    }
}

/// A pod that only was read again keeps the moment when it was first seen.
fn keep_seen(mut pod: Pod, old: &[Arc<Pod>]) -> Arc<Pod> {
    let known = old.iter().find(|known| known.metadata.uid == pod.metadata.uid);
    if let Some(seen) = known.and_then(|k| k.metadata.annotations.get(static_pod::SEEN)) {
        pod.metadata.annotations.insert(static_pod::SEEN.into(), seen.clone());
    }
    Arc::new(pod)
}

/// What went wrong, in the words of the door.
fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Disk(Err(fault)) | Outcome::Helper(Err(fault)) => fault.message.clone(),
        other => format!("{other:?}"),
    }
}

fn said(
    cx: &mut Cx<'_>,
    uid: Option<PodUid>,
    warning: bool,
    reason: &'static str,
    message: String,
) {
    let field = String::new();
    let reason = reason.into();
    cx.say(Note::Said(Said { uid, field, warning, reason, message }.into()));
}
