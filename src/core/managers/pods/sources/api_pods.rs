//! The pods that the API server has for this node, and its pictures of our static ones: a part of `sources`.
//!
//! Upstream: pkg/kubelet/config/apiserver.go, pkg/kubelet/pod/pod_manager.go (v1.36).
//! Owns: the pods as they were last listed or watched. Publishes: by `sources`. Hears: -. Says: -.
//! Asks: the list of this node's pods. Never: drops a pod because its object cannot be read at the moment.

use super::Ask;
use super::static_pod::{SEEN, SOURCE};
use crate::cx::Cx;
use crate::event::Outcome;
use crate::ids::PodUid;
use crate::managers::api::reflector::{Change, Listed, Reflector, Unread};
use crate::rng::Rng;
use crate::time::{Mono, Wall};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
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
    pods: BTreeMap<PodUid, Arc<Pod>>,
    /// By namespace and name.
    mirrors: BTreeMap<(Box<str>, Box<str>), Arc<Pod>>,
    /// By UID: why a pod is not run.
    problems: BTreeMap<PodUid, String>,
}

impl ApiPods {
    pub fn start(&mut self, cx: &mut Cx<'_>, rng: Rng) {
        let node = cx.facts.settings().node_name.clone();
        self.reflector = Reflector::of("/api/v1/pods", "spec.nodeName", &node, rng);
        self.reflector.start(cx, Ask::Api);
    }

    pub fn deadline(&self) -> Option<Mono> {
        self.reflector.deadline()
    }

    pub fn reflector(&mut self) -> &mut Reflector {
        &mut self.reflector
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
                self.set(pod, cx.now.wall);
                true
            }
            Some(Change::Gone(pod)) => {
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
        self.replace(listed, cx.now.wall);
        true
    }

    fn replace(&mut self, listed: Listed<Pod>, now: Wall) {
        let old = core::mem::take(&mut self.pods);
        let old_mirrors = core::mem::take(&mut self.mirrors);
        self.problems.clear();
        // What cannot be read is there all the same: it stays as it was known.
        for (meta, why) in listed.unreadable {
            let uid = PodUid(meta.uid.clone());
            if let Some(pod) = old.get(&uid) {
                self.pods.insert(uid, pod.clone());
            }
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
            self.set(pod, now);
        }
        self.read = true;
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
        self.pods.remove(&uid);
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
