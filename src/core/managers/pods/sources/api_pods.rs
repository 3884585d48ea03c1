//! The pods that the API server has for this node, and its pictures of our static ones: a part of `sources`.
//!
//! Upstream: pkg/kubelet/config/apiserver.go, pkg/kubelet/pod/pod_manager.go (v1.36).
//! Owns: the pods as they were last listed or watched, or kept from an earlier life. Publishes: by `sources`.
//! Hears: -. Says: Said. Asks: the list of this node's pods. Never: drops a pod because its object cannot be read at the
//! moment, or because a list does not have it: that is asked (`doubts`).

use super::doubts::{Doubts, Verdict};
use super::static_pod::{SEEN, SOURCE};
use super::{Ask, said};
use crate::cx::Cx;
use crate::event::Outcome;
use crate::ids::PodUid;
use crate::managers::api::reflector::{Change, Listed, Reflector, Unread};
use crate::managers::pods::view::PodView;
use crate::rng::Rng;
use crate::time::{Mono, Span, Wall};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use steplet_api::pod::Pod;
use steplet_api::pod_facts::{SOURCE_API, is_mirror};
use steplet_api::time::Time;

/// The longest name of a log directory: `<namespace>_<name>_<uid>`.
const NAME_MAX: usize = 255;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApiPods {
    reflector: Reflector,
    /// A whole list was read at least once.
    read: bool,
    /// The last one had no pod.
    blank: bool,
    pods: BTreeMap<PodUid, Arc<Pod>>,
    /// By namespace and name.
    mirrors: BTreeMap<(Box<str>, Box<str>), Arc<Pod>>,
    /// By UID: why a pod is not run.
    problems: BTreeMap<PodUid, String>,
    doubts: Doubts,
    /// Kept from an earlier life, and not seen in this one.
    unseen: BTreeSet<PodUid>,
    /// Pods that are gone for sure, the last ones.
    gone: Vec<PodUid>,
}

const GONE_MOST: usize = 256;
/// After a list that had nothing of what is known.
const SECOND_LOOK: Span = Span::from_secs(10);
/// After a list that was found to be partial.
const RELIST: Span = Span::from_secs(5);

impl ApiPods {
    /// `kept`: the pods of an earlier life; they count until the API server says otherwise.
    pub fn start(&mut self, cx: &mut Cx<'_>, kept: Vec<Pod>, rng: Rng) {
        let node = cx.facts.settings().node_name.clone();
        self.doubts = Doubts::of(rng.child(1));
        self.reflector = Reflector::of("/api/v1/pods", "spec.nodeName", &node, rng);
        self.reflector.start(cx, Ask::Api);
        for pod in kept {
            let uid = PodUid(pod.metadata.uid.clone());
            self.set(pod, cx.now.wall);
            if self.pods.contains_key(&uid) {
                self.unseen.insert(uid);
            }
        }
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.reflector.deadline().into_iter().chain(self.doubts.deadline()).min()
    }

    pub fn on_api_back(&mut self, cx: &Cx<'_>) {
        self.reflector.on_api_back(cx);
        self.doubts.on_api_back(cx);
    }

    pub fn on_tick(&mut self, cx: &mut Cx<'_>) {
        self.reflector.on_tick(cx, Ask::Api);
        self.doubts.on_tick(cx);
    }

    /// Only the runtime has this pod: whether the API server has it too is asked.
    pub fn on_stranger(&mut self, cx: &mut Cx<'_>, uid: &PodUid, namespace: &str, name: &str) {
        if !self.pods.contains_key(uid) {
            let after = if self.blank { SECOND_LOOK } else { Span::ZERO };
            self.doubts.begin(cx, uid, (namespace, name), after);
        }
    }

    /// The answer about a pod in doubt; true when something changed.
    pub fn on_confirmed(&mut self, cx: &mut Cx<'_>, uid: &PodUid, outcome: Outcome) -> bool {
        match self.doubts.on_done(cx, uid, outcome) {
            None => false,
            Some(Verdict::There(pod)) if *pod.spec.node_name == *cx.facts.settings().node_name => {
                self.unseen.remove(uid);
                self.set(*pod, cx.now.wall);
                // The list has left it out, and maybe others.
                self.relist(cx);
                true
            }
            Some(Verdict::There(_)) => false,
            Some(Verdict::Gone(why)) => {
                if cx.facts.pleg.view(uid).is_some_and(PodView::alive) {
                    let text = format!("{why} with UID {uid}: what runs of it ends");
                    said(cx, None, false, "PodGone", text);
                }
                self.pods.remove(uid);
                self.lost(uid);
                true
            }
        }
    }

    /// What is known from the last list is not all that there is.
    pub fn relist(&mut self, cx: &mut Cx<'_>) {
        self.reflector.again(cx, RELIST);
    }

    /// It is gone for sure.
    fn lost(&mut self, uid: &PodUid) {
        self.unseen.remove(uid);
        if self.gone.len() == GONE_MOST {
            self.gone.remove(0);
        }
        self.gone.push(uid.clone());
    }

    /// Kept from an earlier life, and not seen in this one.
    pub fn unseen(&self) -> &BTreeSet<PodUid> {
        &self.unseen
    }

    /// Pods that the API server does not have, as far as they were asked for.
    pub fn lost_ones(&self) -> &[PodUid] {
        &self.gone
    }

    pub fn read(&self) -> bool {
        self.read
    }

    pub fn pods(&self) -> &BTreeMap<PodUid, Arc<Pod>> {
        &self.pods
    }

    pub fn mirrors(&self) -> &BTreeMap<(Box<str>, Box<str>), Arc<Pod>> {
        &self.mirrors
    }

    /// Why pods of the API server are not run.
    pub fn problems(&self) -> &BTreeMap<PodUid, String> {
        &self.problems
    }

    /// True when something changed.
    pub fn on_line(&mut self, cx: &mut Cx<'_>, line: &Bytes) -> bool {
        match self.reflector.on_line::<Pod>(cx, line) {
            Some(Change::Set(pod)) => {
                self.seen(cx, &pod);
                self.set(pod, cx.now.wall);
                true
            }
            Some(Change::Gone(pod)) => {
                self.seen(cx, &pod);
                self.gone(&pod);
                true
            }
            Some(Change::Unreadable(unread)) => {
                self.unreadable(*unread);
                true
            }
            None => false,
        }
    }

    /// True when a whole list came.
    pub fn on_done(&mut self, cx: &mut Cx<'_>, outcome: Outcome) -> bool {
        let Some(listed) = self.reflector.on_done::<Pod>(cx, Ask::Api, outcome) else {
            return false;
        };
        self.replace(cx, listed);
        true
    }

    /// The API server has just spoken of it.
    fn seen(&mut self, cx: &mut Cx<'_>, pod: &Pod) {
        let uid = PodUid(pod.metadata.uid.clone());
        self.unseen.remove(&uid);
        self.doubts.end(cx, &uid);
    }

    fn replace(&mut self, cx: &mut Cx<'_>, listed: Listed<Pod>) {
        let old = core::mem::take(&mut self.pods);
        let old_mirrors = core::mem::take(&mut self.mirrors);
        self.problems.clear();
        // What cannot be read is there all the same: it stays as it was known.
        for (meta, why) in listed.unreadable {
            let uid = PodUid(meta.uid.clone());
            if let Some(pod) = old.get(&uid) {
                self.pods.insert(uid.clone(), pod.clone());
            }
            self.doubts.end(cx, &uid);
            let name = (meta.namespace.clone(), meta.name.clone());
            if let Some(mirror) = old_mirrors.get(&name) {
                self.mirrors.insert(name, mirror.clone());
            }
            self.unreadable((meta, why));
        }
        for mut pod in listed.items {
            let known = old.get(&PodUid(pod.metadata.uid.clone()));
            if let Some(seen) = known.and_then(|known| known.metadata.annotations.get(SEEN)) {
                pod.metadata.annotations.insert(SEEN.into(), seen.clone());
            }
            self.seen(cx, &pod);
            self.set(pod, cx.now.wall);
        }
        self.read = true;
        // Of two pods of one name the API server has one: that it is not the old one needs no question.
        let names = |pod: &Pod| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        let named: BTreeSet<_> = self.pods.values().map(|pod| names(pod)).collect();
        self.blank = self.pods.is_empty();
        let after = if self.blank { SECOND_LOOK } else { Span::ZERO };
        for (uid, pod) in old {
            if self.pods.contains_key(&uid) {
                continue;
            }
            if named.contains(&names(&pod)) {
                self.doubts.end(cx, &uid);
                self.lost(&uid);
                continue;
            }
            let place = (&*pod.metadata.namespace, &*pod.metadata.name);
            self.doubts.begin(cx, &uid, place, after);
            self.pods.insert(uid, pod);
        }
    }

    fn set(&mut self, mut pod: Pod, now: Wall) {
        let meta = &pod.metadata;
        let uid = PodUid(meta.uid.clone());
        let named = meta.namespace.len() + meta.name.len() + meta.uid.len() + 2 <= NAME_MAX
            && PodUid::is_safe(&meta.name)
            && PodUid::is_safe(&meta.namespace);
        // They become paths.
        if !PodUid::is_safe(&meta.uid) || !named {
            let why = format!("pod {}/{} with UID {}", meta.namespace, meta.name, meta.uid);
            self.problems.insert(uid, format!("{why}: these cannot name a directory"));
            return;
        }
        self.problems.remove(&uid);
        if is_mirror(&pod) {
            let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
            self.mirrors.insert(name, Arc::new(pod));
            return;
        }
        let annotations = &mut pod.metadata.annotations;
        annotations.insert(SOURCE.into(), SOURCE_API.into());
        let known = self.pods.get(&uid).and_then(|known| known.metadata.annotations.get(SEEN));
        let seen = known.cloned().or_else(|| annotations.get(SEEN).cloned());
        let seen = seen.unwrap_or_else(|| Time::nano_from_ns(now.0).as_str().into());
        annotations.insert(SEEN.into(), seen);
        self.pods.insert(uid, Arc::new(pod));
    }

    fn gone(&mut self, pod: &Pod) {
        let uid = PodUid(pod.metadata.uid.clone());
        self.problems.remove(&uid);
        if self.pods.remove(&uid).is_some() {
            self.lost(&uid);
        }
        let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        if self.mirrors.get(&name).is_some_and(|mirror| mirror.metadata.uid == pod.metadata.uid) {
            self.mirrors.remove(&name);
        }
    }

    fn unreadable(&mut self, (meta, why): Unread) {
        let text =
            format!("pod {}/{} of the API server cannot be read: {why}", meta.namespace, meta.name);
        self.problems.insert(PodUid(meta.uid), text);
    }
}
