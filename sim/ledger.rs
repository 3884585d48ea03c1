//! What all judges need to know: the pods that are wanted, those the agent knows of, and every sandbox
//! and container there ever was.

use crate::clock::At;
use crate::doors::api::Stored;
use crate::manifest::{Files, Origin, Pod, PodKey, Restart};
use crate::told::{News, Told};
use crate::trace::{Cause, Change, ContainerFact, Fact, Moment, SandboxFact, Seen};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use steplet_api::cri;
use steplet_core::effect::{Call, DiskOp, Effect, KernelOp, Rpc};
use steplet_core::event::{DiskReply, Event, HelperReply, Item, Outcome};
use steplet_core::ids::Token;

#[derive(Debug, Default)]
pub struct Ledger {
    /// What lies in the manifest directory, and what the API server has for this node.
    pub wanted: Files,
    /// What the agent has read in this life.
    pub known: Files,
    /// The agent has read all its sources in this life.
    pub informed: bool,
    files_read: bool,
    /// The manifest URL, empty when there is none.
    url: String,
    told: Told,
    /// The API server's pods were listed, or there is no API server.
    api_read: bool,
    /// The shortest grace that the agent was told for a pod that is to go, by uid.
    pub graces: BTreeMap<String, i64>,
    pub sandboxes: BTreeMap<String, SandboxRecord>,
    pub containers: BTreeMap<String, ContainerRecord>,
    /// Calls that wait for their answer.
    pub open: BTreeMap<Token, Call>,
    /// The agent's lives so far.
    pub lives: u32,
    /// The spec that a container (a sandbox: no name) is made from, by pod uid, name and attempt.
    asked: BTreeMap<(String, String, u32), (PodKey, Option<Pod>)>,
}

#[derive(Clone, Debug)]
pub struct SandboxRecord {
    pub fact: SandboxFact,
    pub ready: bool,
    /// When the agent asked for its end.
    pub stop_asked: Option<At>,
    pub removed: bool,
    /// The pause process died by itself.
    pub died: bool,
    pub key: PodKey,
    /// The pod as the agent knew it when it asked for the sandbox.
    pub pod: Option<Pod>,
    /// The agent has known its pod to be gone or replaced since: the uid may come back as a new pod.
    pub over: bool,
}

#[derive(Clone, Debug)]
pub struct ContainerRecord {
    pub fact: ContainerFact,
    pub key: PodKey,
    /// The pod as the agent knew it when it asked for the container.
    pub pod: Option<Pod>,
    pub created: At,
    pub started: Option<At>,
    pub exited: Option<Exit>,
    pub removed: Option<Cause>,
    /// Its manifest was changed or removed since, if only for a moment, or its sandbox died: it may be stopped.
    pub disturbed: bool,
    /// The agent has known its pod to be gone or replaced since: the uid may come back as a new pod.
    pub over: bool,
    /// It was gone before the agent's present life: nothing but its log tells of it.
    pub forgotten: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub at: At,
    pub code: i32,
    pub cause: Cause,
}

impl ContainerRecord {
    pub fn running(&self) -> bool {
        self.started.is_some() && self.exited.is_none() && self.removed.is_none()
    }

    /// `web-edge-1/app#0`
    pub fn name(&self) -> String {
        format!("{}/{}#{}", self.fact.pod, self.fact.name, self.fact.attempt)
    }
}

/// A request to change something, decoded once for all judges.
#[derive(Clone, Debug)]
pub enum Ask {
    RunSandbox(Box<cri::PodSandboxConfig>),
    StopSandbox { sandbox: String },
    RemoveSandbox { sandbox: String },
    Create { sandbox: String, config: Box<cri::ContainerConfig> },
    Start { container: String },
    Stop { container: String, timeout: i64 },
    Remove { container: String },
    Pull { image: String },
    RemoveCgroup { path: String },
}

impl Ask {
    /// None for calls that change nothing, and for bodies that are no message.
    pub fn from_call(call: &Call) -> Option<Ask> {
        match call {
            Call::Rpc(rpc) => Ask::from_rpc(rpc),
            Call::Kernel(KernelOp::RemoveCgroup { path } | KernelOp::RemoveSlice { path }) => {
                Some(Ask::RemoveCgroup { path: path.clone() })
            }
            _ => None,
        }
    }

    fn from_rpc(rpc: &Rpc) -> Option<Ask> {
        fn read<M: Message + Default>(rpc: &Rpc) -> Option<M> {
            M::decode(rpc.body.clone()).ok()
        }
        Some(match rpc.path.rsplit('/').next()? {
            "RunPodSandbox" => {
                Ask::RunSandbox(Box::new(read::<cri::RunPodSandboxRequest>(rpc)?.config?))
            }
            "StopPodSandbox" => Ask::StopSandbox {
                sandbox: read::<cri::StopPodSandboxRequest>(rpc)?.pod_sandbox_id,
            },
            "RemovePodSandbox" => Ask::RemoveSandbox {
                sandbox: read::<cri::RemovePodSandboxRequest>(rpc)?.pod_sandbox_id,
            },
            "CreateContainer" => {
                let request: cri::CreateContainerRequest = read(rpc)?;
                let config = Box::new(request.config?);
                Ask::Create { sandbox: request.pod_sandbox_id, config }
            }
            "StartContainer" => {
                Ask::Start { container: read::<cri::StartContainerRequest>(rpc)?.container_id }
            }
            "StopContainer" => {
                let request: cri::StopContainerRequest = read(rpc)?;
                Ask::Stop { container: request.container_id, timeout: request.timeout }
            }
            "RemoveContainer" => {
                Ask::Remove { container: read::<cri::RemoveContainerRequest>(rpc)?.container_id }
            }
            "PullImage" => Ask::Pull { image: read::<cri::PullImageRequest>(rpc)?.image?.image },
            _ => return None,
        })
    }
}

pub const POD_NAME: &str = "io.kubernetes.pod.name";
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const POD_UID: &str = "io.kubernetes.pod.uid";
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

impl Ledger {
    pub fn note(&mut self, moment: Moment, seen: &Seen<'_>) {
        match seen {
            Seen::Started => self.start_life(),
            Seen::Ended(_) => self.open.clear(),
            Seen::Event(event) => self.note_event(event),
            Seen::Effects(_) => {}
            Seen::Stored(stored) => self.note_stored(stored),
            Seen::Fact(fact) => self.note_fact(moment, fact),
            Seen::Change(change) => self.note_change(change),
        }
    }

    fn start_life(&mut self) {
        self.lives += 1;
        self.known.clear();
        self.told = Told::default();
        self.informed = false;
        self.files_read = false;
        self.open.clear();
        // A torn manifest that was never read whole in this life says nothing of its pod.
        let torn: Vec<PodKey> = self.wanted.torn().cloned().collect();
        for container in self.containers.values_mut() {
            container.disturbed |= torn.contains(&container.key);
            // What an earlier life knew of an end is forgotten: what is still there may be the pod's own.
            container.over &= container.removed.is_some();
            container.forgotten = container.removed.is_some();
        }
        for sandbox in self.sandboxes.values_mut() {
            // Of one that is gone nothing tells a new life.
            sandbox.over = sandbox.removed;
        }
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::Item { item: Item::Manifest(manifest), .. } => {
                let text = manifest.content.as_ref().map_or(&b""[..], |content| &content.json);
                self.known.put(&manifest.name, text);
            }
            Event::Item { token, item } => {
                let Some(Call::Api(call)) = self.open.get(token) else { return };
                if Told::line(call, item).is_some_and(|news| self.take(news)) {
                    self.note_ends();
                }
            }
            Event::Done { token, outcome } => {
                let call = self.open.remove(token);
                if self.read_source(call, outcome) {
                    let url_read = self.url.is_empty() || self.known.has(&self.url);
                    self.informed = self.files_read && url_read && self.api_read;
                    self.note_ends();
                }
            }
            Event::Boot(boot) => {
                self.url = boot.settings.static_pod_url.clone();
                self.files_read = boot.settings.static_pod_path.is_empty();
                self.api_read = boot.settings.api.is_none();
                // What was kept counts until the API server says otherwise.
                for kept in boot.kept.iter().filter(|kept| kept.name.starts_with("pod-")) {
                    if let Ok(object) = serde_json::from_slice(&kept.body) {
                        self.take(News::Set(object));
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether an answer tells the agent which pods there are.
    fn read_source(&mut self, call: Option<Call>, outcome: &Outcome) -> bool {
        match (call, outcome) {
            (Some(Call::Api(call)), _) => {
                let news = self.told.answer(&call, outcome);
                self.api_read |= matches!(news, Some(News::All(_)));
                news.map(|news| self.take(news)).is_some()
            }
            (Some(Call::Disk(DiskOp::ReadManifests { .. })), Outcome::Disk(Ok(reply))) => {
                self.files_read = true;
                match reply {
                    DiskReply::Manifests(Some(names)) => self.known.keep(names),
                    _ => self.known.keep(&[]),
                }
                true
            }
            (_, Outcome::Helper(Ok(HelperReply::Manifest(manifest)))) => {
                let text = manifest.content.as_ref().map_or(&b""[..], |content| &content.json);
                self.known.put(&manifest.name, text);
                true
            }
            _ => false,
        }
    }

    /// The agent hears of pods of the API server.
    /// False: nothing but its status is new.
    fn take(&mut self, news: News) -> bool {
        let changed = match &news {
            News::All(objects) => {
                self.known.list_objects(objects);
                true
            }
            News::Absent { namespace, name } => {
                self.known.forget_objects(namespace, name);
                true
            }
            News::Set(object) => self.known.put_object(object),
            News::Gone(object) => self.known.remove_object(object),
        };
        for pod in self.known.objects().filter(|pod| pod.deleting) {
            let grace = self.graces.entry(pod.uid.clone().unwrap_or_default());
            let grace = grace.or_insert(pod.grace_seconds);
            *grace = pod.grace_seconds.min(*grace);
        }
        changed
    }

    fn note_stored(&mut self, stored: &Stored) {
        if stored.plural != "pods" {
            return;
        }
        let changed = match stored.gone {
            true => self.wanted.remove_object(&stored.object),
            false => self.wanted.put_object(&stored.object),
        };
        if changed {
            self.note_disturbed();
        }
    }

    /// Containers whose pod the agent now knows to be gone, or to be another one.
    fn note_ends(&mut self) {
        let url_read = self.url.is_empty() || self.known.has(&self.url);
        let (files_read, api_read, informed) = (self.files_read, self.api_read, self.informed);
        let running: BTreeSet<String> = (self.containers.values())
            .filter(|record| record.running())
            .map(|record| record.fact.uid.clone())
            .collect();
        let known = &self.known;
        let over = |uid: &str, key: &PodKey, was: Option<&Pod>| {
            // A source that was not read in this life says nothing yet.
            let read = match was {
                Some(Pod { origin: Origin::Url, .. }) => url_read,
                Some(Pod { origin: Origin::Api, .. }) => api_read,
                Some(_) => files_read,
                None => informed,
            };
            if !read {
                return false;
            }
            let Some(now) = known.pod(key) else { return true };
            if let Some(Pod { origin: Origin::Api, uid, .. }) = was {
                return now.uid != *uid;
            }
            let Some(was) = was.filter(|was| was.text != now.text) else { return false };
            // Under a pinned uid an edit changes the pod, unless that has come to its end.
            let pinned = now.uid.is_some() && now.uid == was.uid;
            !pinned || (was.restart != Restart::Always && !running.contains(uid))
        };
        for record in self.containers.values_mut().filter(|record| !record.over) {
            record.over = over(&record.fact.uid, &record.key, record.pod.as_ref());
        }
        for record in self.sandboxes.values_mut().filter(|record| !record.over) {
            record.over = over(&record.fact.uid, &record.key, record.pod.as_ref());
        }
    }

    /// Notes one effect; judges see it before the ledger takes it in.
    pub fn note_effect(&mut self, at: At, effect: &Effect, ask: Option<&Ask>) {
        match effect {
            Effect::Call { token, call } => {
                self.open.insert(*token, call.clone());
            }
            Effect::Cancel(token) => {
                self.open.remove(token);
            }
            _ => {}
        }
        let (key, place) = match ask {
            Some(Ask::Create { config, .. }) => {
                let label = |key: &str| config.labels.get(key).cloned().unwrap_or_default();
                let metadata = config.metadata.clone().unwrap_or_default();
                let key = PodKey { namespace: label(POD_NAMESPACE), name: label(POD_NAME) };
                (key, (label(POD_UID), metadata.name, metadata.attempt))
            }
            Some(Ask::RunSandbox(config)) => {
                let metadata = config.metadata.clone().unwrap_or_default();
                let key = PodKey { namespace: metadata.namespace, name: metadata.name };
                (key, (metadata.uid, String::new(), metadata.attempt))
            }
            Some(Ask::StopSandbox { sandbox }) => {
                if let Some(record) = self.sandboxes.get_mut(sandbox) {
                    record.stop_asked = Some(at);
                }
                return;
            }
            _ => return,
        };
        let pod = self.known.pod(&key).cloned();
        self.asked.insert(place, (key, pod));
    }

    fn note_fact(&mut self, moment: Moment, fact: &Fact) {
        match fact {
            Fact::SandboxRan(fact) => self.note_sandbox(fact),
            Fact::SandboxStopped { sandbox, cause } => {
                let Some(record) = self.sandboxes.get_mut(sandbox) else { return };
                record.ready = false;
                record.died = *cause == Cause::Fault;
                if record.died {
                    for container in self.containers.values_mut() {
                        container.disturbed |= container.fact.sandbox == *sandbox;
                    }
                }
            }
            Fact::SandboxRemoved { sandbox } => {
                if let Some(record) = self.sandboxes.get_mut(sandbox) {
                    record.removed = true;
                }
            }
            Fact::ContainerCreated(fact) => self.note_created(moment.at, fact),
            Fact::ContainerStarted { container } => {
                self.with(container, |record| record.started = Some(moment.at));
            }
            Fact::ContainerExited { container, exit_code, cause } => {
                let exit = Exit { at: moment.at, code: *exit_code, cause: *cause };
                self.with(container, |record| record.exited = Some(exit));
            }
            Fact::ContainerRemoved { container, cause } => {
                self.with(container, |record| record.removed = Some(*cause));
            }
            Fact::ImagePulled { .. } | Fact::Stream { .. } => {}
        }
    }

    fn note_sandbox(&mut self, fact: &SandboxFact) {
        let place = (fact.uid.clone(), String::new(), fact.attempt);
        let (namespace, name) = (fact.namespace.clone(), fact.pod.clone());
        let fallback = (PodKey { namespace, name }, None);
        let (key, pod) = self.asked.remove(&place).unwrap_or(fallback);
        let record = SandboxRecord {
            fact: fact.clone(),
            ready: true,
            stop_asked: None,
            removed: false,
            died: false,
            key,
            pod,
            over: false,
        };
        self.sandboxes.insert(fact.sandbox.clone(), record);
        self.note_ends();
    }

    fn note_created(&mut self, at: At, fact: &ContainerFact) {
        let place = (fact.uid.clone(), fact.name.clone(), fact.attempt);
        let fallback = PodKey { namespace: fact.namespace.clone(), name: fact.pod.clone() };
        let (key, pod) = self.asked.remove(&place).unwrap_or((fallback, None));
        let text = |pod: Option<&Pod>| pod.map(|pod| pod.text.clone());
        let disturbed = pod.is_none() || text(self.wanted.pod(&key)) != text(pod.as_ref());
        let record = ContainerRecord {
            fact: fact.clone(),
            key,
            pod,
            created: at,
            started: None,
            exited: None,
            removed: None,
            disturbed,
            over: false,
            forgotten: false,
        };
        self.containers.insert(fact.container.clone(), record);
        self.note_ends();
    }

    fn with(&mut self, container: &str, change: impl FnOnce(&mut ContainerRecord)) {
        if let Some(record) = self.containers.get_mut(container) {
            change(record);
        }
    }

    fn note_change(&mut self, change: &Change) {
        match change {
            Change::ManifestPut { name, text } => self.wanted.put(name, text),
            Change::ManifestGone { name } => self.wanted.remove(name),
            _ => return,
        }
        self.note_disturbed();
    }

    fn note_disturbed(&mut self) {
        let wanted = &self.wanted;
        for record in self.containers.values_mut().filter(|record| !record.disturbed) {
            let now = wanted.pod(&record.key).map(|pod| &pod.text);
            record.disturbed = now != record.pod.as_ref().map(|pod| &pod.text);
        }
    }

    /// Whether the agent has known a pod to be gone or replaced, and nothing newer of its uid is there.
    pub fn is_over(&self, uid: &str) -> bool {
        (self.sandboxes.values()).filter(|record| record.fact.uid == uid).all(|record| record.over)
    }

    /// Containers of one pod instance and name that exist or existed.
    pub fn of<'a>(
        &'a self,
        uid: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a ContainerRecord> {
        (self.containers.values())
            .filter(move |record| record.fact.uid == uid && record.fact.name == name)
    }

    /// The pod that a call concerns.
    pub fn uid_of<'a>(&'a self, ask: &'a Ask) -> Option<&'a str> {
        match ask {
            Ask::RunSandbox(config) => config.metadata.as_ref().map(|metadata| &*metadata.uid),
            Ask::Create { config, .. } => config.labels.get(POD_UID).map(String::as_str),
            Ask::StopSandbox { sandbox } | Ask::RemoveSandbox { sandbox } => {
                self.sandboxes.get(sandbox).map(|record| &*record.fact.uid)
            }
            Ask::Start { container } | Ask::Stop { container, .. } | Ask::Remove { container } => {
                self.containers.get(container).map(|record| &*record.fact.uid)
            }
            Ask::Pull { .. } | Ask::RemoveCgroup { .. } => None,
        }
    }
}
