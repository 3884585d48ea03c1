//! The ConfigMaps and Secrets that pods of this node name: each is followed as long as a pod wants it.
//!
//! Upstream: pkg/kubelet/util/manager (watch_based_manager.go, cache_based_manager.go), v1.36.
//! A part of the manager of volumes, which hands it the answers to its calls.
//! Owns: the objects, and who wants them. Publishes: by `volumes`. Hears: -. Says: -. Asks: lists, watches and GETs of
//! single objects. Never: follows what no pod names.

use super::Ask;
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, Lane, Verb};
use crate::event::Outcome;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::api::reflector::{Change, Listed, Reflector};
use crate::managers::api::{WITHIN, escaped, judged};
use crate::managers::containers::ConfigError;
use crate::note::{Learned, Note};
use crate::rng::Rng;
use crate::settings::ChangeDetection;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{ConfigMap, Secret};
use steplet_api::json;
use steplet_api::meta::Named;

/// How long a read waits for the first list of a watch.
const SYNC_WITHIN: Span = Span::from_secs(1);
/// How long an object that was asked for counts, when the Node does not say.
const TTL_DEFAULT: Span = Span::from_secs(60);
const TTL_ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    ConfigMap,
    Secret,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Key {
    pub fn config_map(namespace: &str, name: &str) -> Key {
        Key { kind: Kind::ConfigMap, namespace: namespace.into(), name: name.into() }
    }

    pub fn secret(namespace: &str, name: &str) -> Key {
        Key { kind: Kind::Secret, namespace: namespace.into(), name: name.into() }
    }

    fn path(&self) -> String {
        let plural = match self.kind {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
        };
        format!("/api/v1/namespaces/{}/{plural}", escaped(&self.namespace))
    }

    /// As upstream names the kind in errors of its own.
    fn resource(&self) -> &'static str {
        match self.kind {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }

    /// What is wrong with a Secret is not told: it quotes what it could not read.
    fn unreadable(&self, why: String) -> String {
        match self.kind {
            Kind::ConfigMap => format!("configmap {:?} cannot be read: {why}", self.name),
            Kind::Secret => format!("secret {:?} cannot be read", self.name),
        }
    }

    fn absent(&self) -> String {
        format!("{} \"{}\" not found", self.resource(), self.name)
    }
}

/// Why an object is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The API server has none: what is optional goes without.
    Absent(String),
    /// Nobody knows yet.
    Unknown(String),
}

impl Missing {
    pub fn into_error(self) -> ConfigError {
        let (Missing::Absent(text) | Missing::Unknown(text)) = self;
        ConfigError(text)
    }
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectsFacts {
    /// There is an API server to ask.
    cluster: bool,
    known: BTreeMap<Key, Known>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Known {
    ConfigMap(Arc<ConfigMap>),
    Secret(Arc<Secret>),
    Absent(String),
    Failed(String),
}

/// An object as the API server has it, or that it has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    ConfigMap(Arc<ConfigMap>),
    Secret(Arc<Secret>),
    Absent(String),
}

impl ObjectsFacts {
    /// None: nobody knows.
    pub fn given(&self, key: &Key) -> Option<Given> {
        match self.known.get(key)? {
            Known::ConfigMap(map) => Some(Given::ConfigMap(map.clone())),
            Known::Secret(secret) => Some(Given::Secret(secret.clone())),
            Known::Absent(text) => Some(Given::Absent(text.clone())),
            Known::Failed(_) => None,
        }
    }

    /// A pod wants it, and it could not be read.
    pub fn follows(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    pub fn config_map(&self, namespace: &str, name: &str) -> Result<&ConfigMap, Missing> {
        let key = Key::config_map(namespace, name);
        match self.known.get(&key) {
            Some(Known::ConfigMap(map)) => Ok(map),
            other => Err(self.missing(&key, other)),
        }
    }

    pub fn secret(&self, namespace: &str, name: &str) -> Result<&Secret, Missing> {
        let key = Key::secret(namespace, name);
        match self.known.get(&key) {
            Some(Known::Secret(secret)) => Ok(secret),
            other => Err(self.missing(&key, other)),
        }
    }

    fn missing(&self, key: &Key, known: Option<&Known>) -> Missing {
        match known {
            Some(Known::Absent(text)) => Missing::Absent(text.clone()),
            Some(Known::Failed(text)) => Missing::Unknown(text.clone()),
            Some(Known::ConfigMap(_) | Known::Secret(_)) | None if self.cluster => {
                let resource = key.resource();
                Missing::Unknown(format!(
                    "failed to sync {resource} cache: timed out waiting for the condition"
                ))
            }
            Some(Known::ConfigMap(_) | Known::Secret(_)) | None => {
                let kind = match key.kind {
                    Kind::ConfigMap => "configMap",
                    Kind::Secret => "secret",
                };
                Missing::Unknown(format!(
                    "couldn't get {kind} {}/{}, no kubeClient defined",
                    key.namespace, key.name
                ))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(maps: &[&str], secrets: &[&str], absent: &[Key]) -> ObjectsFacts {
        let mut known = BTreeMap::new();
        for json in maps {
            let map: ConfigMap = serde_json::from_str(json).expect("a ConfigMap");
            let key = Key::config_map("ns", &map.metadata.name);
            known.insert(key, Known::ConfigMap(Arc::new(map)));
        }
        for json in secrets {
            let secret: Secret = serde_json::from_str(json).expect("a Secret");
            let key = Key::secret("ns", &secret.metadata.name);
            known.insert(key, Known::Secret(Arc::new(secret)));
        }
        known.extend(absent.iter().map(|key| (key.clone(), Known::Absent(key.absent()))));
        ObjectsFacts { cluster: true, known }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Objects {
    rng: Rng,
    wanted: BTreeMap<Key, Wanted>,
    /// Of an earlier life, until a pod wants them.
    restored: BTreeMap<Key, Known>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wanted {
    users: BTreeSet<PodUid>,
    how: How,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum How {
    Watch {
        reflector: Box<Reflector>,
        since: Mono,
    },
    /// One GET when it is needed. `asked`: one is under way.
    Get {
        asked: Option<Mono>,
        read: Option<Mono>,
    },
}

impl Objects {
    pub(crate) fn on_booted(&mut self, cx: &mut Cx<'_>, restored: BTreeMap<Key, Given>, rng: Rng) {
        self.rng = rng;
        let known = restored.into_iter().map(|(key, given)| {
            let known = match given {
                Given::ConfigMap(map) => Known::ConfigMap(map),
                Given::Secret(secret) => Known::Secret(secret),
                Given::Absent(text) => Known::Absent(text),
            };
            (key, known)
        });
        self.restored = known.collect();
        cx.facts.volumes.objects.cluster = cx.facts.settings().api.is_some();
    }

    /// All pods that there are have said what they want: the rest of what was kept is of no use.
    pub(crate) fn drop_restored(&mut self, cx: &mut Cx<'_>) {
        for key in core::mem::take(&mut self.restored).into_keys() {
            cx.say(Note::Learned(Learned::Object(key)));
        }
    }

    /// From now on the pod wants these, and no others.
    pub(crate) fn set(&mut self, cx: &mut Cx<'_>, uid: &PodUid, keys: &BTreeSet<Key>) {
        let mut idle = Vec::new();
        for (key, wanted) in &mut self.wanted {
            if !keys.contains(key) && wanted.users.remove(uid) && wanted.users.is_empty() {
                idle.push(key.clone());
            }
        }
        for key in idle {
            if let Some(Wanted { how: How::Watch { mut reflector, .. }, .. }) =
                self.wanted.remove(&key)
            {
                reflector.stop(cx);
            }
            cx.facts.volumes.objects.known.remove(&key);
            cx.say(Note::Learned(Learned::Object(key)));
        }
        let Some(detection) = cx.facts.settings().api.as_ref().map(|api| api.change_detection)
        else {
            return;
        };
        for key in keys {
            if let Some(wanted) = self.wanted.get_mut(key) {
                wanted.users.insert(uid.clone());
                continue;
            }
            let how = match detection {
                ChangeDetection::Watch => self.follow(cx, key),
                ChangeDetection::Cache | ChangeDetection::Get => {
                    How::Get { asked: None, read: None }
                }
            };
            if let Some(known) = self.restored.remove(key) {
                cx.facts.volumes.objects.known.insert(key.clone(), known);
            }
            let users = BTreeSet::from([uid.clone()]);
            self.wanted.insert(key.clone(), Wanted { users, how });
        }
    }

    fn follow(&mut self, cx: &mut Cx<'_>, key: &Key) -> How {
        let rng = Rng::new(self.rng.draw());
        let mut reflector = Reflector::of(&key.path(), "metadata.name", &key.name, rng);
        if key.kind == Kind::Secret {
            reflector = reflector.sealed();
        }
        reflector.start(cx, Ask::Object(key.clone()));
        How::Watch { reflector: reflector.into(), since: cx.now.mono }
    }

    pub(crate) fn users(&self, key: &Key) -> Vec<PodUid> {
        self.wanted.get(key).map(|it| it.users.iter().cloned().collect()).unwrap_or_default()
    }

    /// Before a pod's files are made, or made again: asks for what is too old.
    pub(crate) fn refresh(&mut self, cx: &mut Cx<'_>, keys: &BTreeSet<Key>) {
        let ttl = match cx.facts.settings().api.as_ref().map(|api| api.change_detection) {
            Some(ChangeDetection::Cache) => ttl(cx.facts),
            _ => Span::ZERO,
        };
        let now = cx.now.mono;
        for key in keys {
            let Some(Wanted { how: How::Get { asked, read }, .. }) = self.wanted.get_mut(key)
            else {
                continue;
            };
            // What is not there now may be there soon, and somebody waits for it.
            let found =
                matches!(cx.facts.volumes.objects.known.get(key), Some(known) if is_here(known));
            let fresh = found && read.is_some_and(|read| now.since(read) < ttl);
            if asked.is_none() && !fresh {
                *asked = Some(now);
                let path = format!("{}/{}", key.path(), escaped(&key.name));
                let (body, lane, seals) = (Bytes::new(), Lane::Main, key.kind == Kind::Secret);
                let call = ApiCall {
                    verb: Verb::Get,
                    path,
                    body,
                    within: WITHIN,
                    lane,
                    seals,
                    secret: None,
                };
                cx.call(Ask::Object(key.clone()), Call::Api(call));
            }
        }
    }

    /// The seals in these open nothing any more.
    pub(crate) fn read_again(&mut self, cx: &mut Cx<'_>, keys: &BTreeSet<Key>) {
        for key in keys.iter().filter(|key| key.kind == Kind::Secret) {
            let Some(wanted) = self.wanted.get_mut(key) else { continue };
            cx.facts.volumes.objects.known.remove(key);
            match &mut wanted.how {
                How::Watch { reflector, since } => {
                    reflector.stop(cx);
                    reflector.start(cx, Ask::Object(key.clone()));
                    *since = cx.now.mono;
                }
                How::Get { read, .. } => *read = None,
            }
        }
    }

    /// How long a read of these would wait; None: not at all.
    pub(crate) fn awaited(&self, cx: &Cx<'_>, keys: &BTreeSet<Key>) -> Option<Mono> {
        let until = keys.iter().filter_map(|key| match &self.wanted.get(key)?.how {
            How::Watch { since, .. } => {
                let known = cx.facts.volumes.objects.known.contains_key(key);
                (!known).then_some(*since + SYNC_WITHIN)
            }
            // Its answer comes, or its deadline. What was kept serves soon.
            How::Get { asked, read } => {
                let known = cx.facts.volumes.objects.known.get(key);
                let kept = read.is_none() && known.is_some_and(is_here);
                let within = if kept { Span::ZERO } else { WITHIN };
                asked.map(|asked| asked + within + SYNC_WITHIN)
            }
        });
        until.filter(|at| *at > cx.now.mono).max()
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        let reflectors = self.wanted.values().filter_map(|wanted| match &wanted.how {
            How::Watch { reflector, .. } => reflector.deadline(),
            How::Get { .. } => None,
        });
        reflectors.min()
    }

    pub(crate) fn on_api_back(&mut self, cx: &Cx<'_>) {
        for wanted in self.wanted.values_mut() {
            if let How::Watch { reflector, .. } = &mut wanted.how {
                reflector.on_api_back(cx);
            }
        }
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        for (key, wanted) in &mut self.wanted {
            if let How::Watch { reflector, .. } = &mut wanted.how {
                reflector.on_tick(cx, Ask::Object(key.clone()));
            }
        }
    }

    /// A line of a watch. Whether something changed.
    pub(crate) fn on_line(&mut self, cx: &mut Cx<'_>, key: &Key, line: &Bytes) -> bool {
        match key.kind {
            Kind::ConfigMap => self.take_line::<ConfigMap>(cx, key, line),
            Kind::Secret => self.take_line::<Secret>(cx, key, line),
        }
    }

    fn take_line<T: Object>(&mut self, cx: &mut Cx<'_>, key: &Key, line: &Bytes) -> bool {
        let Some(Wanted { how: How::Watch { reflector, .. }, .. }) = self.wanted.get_mut(key)
        else {
            return false;
        };
        let known = match reflector.on_line::<T>(cx, line) {
            None => return false,
            Some(Change::Set(object)) => object.known(),
            Some(Change::Gone(_)) => Known::Absent(key.absent()),
            Some(Change::Unreadable(unread)) => Known::Failed(key.unreadable(unread.1)),
        };
        self.learn(cx, key, known)
    }

    /// The end of a call. Whether something changed, or a read that waited for it need not wait any longer.
    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, key: &Key, outcome: Outcome) -> bool {
        match key.kind {
            Kind::ConfigMap => self.take_answer::<ConfigMap>(cx, key, outcome),
            Kind::Secret => self.take_answer::<Secret>(cx, key, outcome),
        }
    }

    fn take_answer<T: Object>(&mut self, cx: &mut Cx<'_>, key: &Key, outcome: Outcome) -> bool {
        let Some(wanted) = self.wanted.get_mut(key) else { return false };
        let known = match &mut wanted.how {
            How::Watch { reflector, .. } => {
                match reflector.on_done::<T>(cx, Ask::Object(key.clone()), outcome) {
                    None => return false,
                    Some(Listed { mut items, mut unreadable }) => {
                        match (items.pop(), unreadable.pop()) {
                            (Some(object), _) => object.known(),
                            (None, Some((_, why))) => Known::Failed(key.unreadable(why)),
                            (None, None) => Known::Absent(key.absent()),
                        }
                    }
                }
            }
            How::Get { asked, read } => {
                *asked = None;
                let now = cx.now.mono;
                match judged(outcome).map(|body| json::from_slice::<T>(&body)) {
                    Ok(Ok(object)) => {
                        *read = Some(now);
                        object.known()
                    }
                    Ok(Err(why)) => Known::Failed(key.unreadable(why)),
                    Err(refusal) if refusal.is_not_found() => Known::Absent(refusal.message),
                    Err(refusal) => Known::Failed(refusal.message),
                }
            }
        };
        self.learn(cx, key, known);
        true
    }

    /// Whether it is other than what was known.
    fn learn(&mut self, cx: &mut Cx<'_>, key: &Key, new: Known) -> bool {
        let known = &mut cx.facts.volumes.objects.known;
        // What was read stays good while it cannot be read again.
        if matches!(new, Known::Failed(_)) && known.get(key).is_some_and(is_here) {
            return false;
        }
        let changed = known.get(key) != Some(&new);
        let immutable = match &new {
            Known::ConfigMap(map) => map.immutable == Some(true),
            Known::Secret(secret) => secret.immutable == Some(true),
            Known::Absent(_) | Known::Failed(_) => false,
        };
        if changed {
            known.insert(key.clone(), new);
            cx.say(Note::Learned(Learned::Object(key.clone())));
        }
        if immutable
            && let Some(Wanted { how: How::Watch { reflector, .. }, .. }) = self.wanted.get_mut(key)
        {
            reflector.stop(cx);
        }
        changed
    }

    pub(crate) fn check(&self, facts: &Facts) {
        for key in facts.volumes.objects.known.keys() {
            assert!(self.wanted.contains_key(key), "volumes: nobody wants {key:?}");
        }
        let mut wanted = self.wanted.iter();
        assert!(wanted.all(|(_, it)| !it.users.is_empty()), "volumes: an object without a pod");
    }
}

/// A kind of object that is followed here.
trait Object: DeserializeOwned + Default + Named {
    fn known(self) -> Known;
}

impl Object for ConfigMap {
    fn known(self) -> Known {
        Known::ConfigMap(Arc::new(self))
    }
}

impl Object for Secret {
    fn known(self) -> Known {
        Known::Secret(Arc::new(self))
    }
}

fn is_here(known: &Known) -> bool {
    matches!(known, Known::ConfigMap(_) | Known::Secret(_))
}

/// How long an object counts, by the Node's annotation: it grows with the cluster.
fn ttl(facts: &Facts) -> Span {
    let node = facts.node.node();
    let seconds = node.and_then(|node| node.metadata.annotations.get(TTL_ANNOTATION)?.parse().ok());
    seconds.map_or(TTL_DEFAULT, Span::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::Asks;
    use crate::effect::Effect;
    use crate::event::ApiReply;
    use crate::ids::Token;
    use crate::managers::sample::{machine, settings};
    use crate::settings::{ApiSettings, Settings};
    use crate::time::Now;
    use alloc::string::ToString;

    /// The part with its world; what it asks is told as `GET path`.
    struct Bench {
        objects: Objects,
        facts: Facts,
        asks: Asks,
        now: Now,
    }

    impl Bench {
        fn new(change_detection: ChangeDetection) -> Bench {
            let api = Some(ApiSettings { change_detection, ..ApiSettings::default() });
            let mut facts = Facts::default();
            facts.boot.set(Settings { api, ..settings() }, machine());
            let (objects, asks, now) = (Objects::default(), Asks::default(), Now::default());
            let mut bench = Bench { objects, facts, asks, now };
            bench.with(|objects, cx| objects.on_booted(cx, BTreeMap::new(), Rng::new(1)));
            bench
        }

        fn with(&mut self, deed: impl FnOnce(&mut Objects, &mut Cx<'_>)) -> Vec<String> {
            let mut effects = Vec::new();
            let mut cx = Cx::new(self.now, &mut self.facts, &mut self.asks, &mut effects);
            deed(&mut self.objects, &mut cx);
            self.objects.check(&self.facts);
            let tell = |effect: Effect| match effect {
                Effect::Call { call: Call::Api(call), .. } => {
                    let path = call.path.split('?').next().unwrap_or_default().to_string();
                    let sealed = if call.seals { " sealed" } else { "" };
                    format!("{:?} {path}{sealed}", call.verb)
                }
                Effect::Cancel(Token(_)) => "Cancel".into(),
                other => format!("{other:?}"),
            };
            effects.into_iter().map(tell).collect()
        }

        fn want(&mut self, pod: &str, keys: Option<&Key>) -> Vec<String> {
            let keys = keys.into_iter().cloned().collect();
            self.with(|objects, cx| {
                objects.set(cx, &pod.into(), &keys);
                objects.refresh(cx, &keys);
            })
        }

        /// The answer to the call that is out for `key`.
        fn answer(&mut self, key: &Key, status: u16, body: &str) -> Vec<String> {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let outcome = Outcome::Api(Ok(ApiReply { status, retry_after: None, body }));
            self.with(|objects, cx| {
                objects.on_done(cx, key, outcome);
            })
        }

        fn map(&self, name: &str) -> Result<String, String> {
            let map = self.facts.volumes.objects.config_map("ns", name);
            map.map(|map| map.data["k"].to_string()).map_err(|missing| missing.into_error().0)
        }
    }

    fn map(data: &str, more: &str) -> String {
        format!(r#"{{"metadata":{{"name":"m"}},"data":{{"k":"{data}"}}{more}}}"#)
    }

    fn list(items: &str) -> String {
        format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#)
    }

    const PATH: &str = "/api/v1/namespaces/ns/configmaps";

    #[test]
    fn an_object_is_followed_while_a_pod_wants_it() {
        let mut bench = Bench::new(ChangeDetection::Watch);
        let key = Key::config_map("ns", "m");
        assert_eq!(bench.want("a", Some(&key)), [format!("Get {PATH}")]);
        assert_eq!(bench.want("b", Some(&key)), [""; 0]);
        let late = "failed to sync configmap cache: timed out waiting for the condition";
        assert_eq!(bench.map("m"), Err(late.into()));
        assert_eq!(bench.answer(&key, 200, &list(&map("1", ""))), [format!("Watch {PATH}")]);
        assert_eq!(bench.map("m"), Ok("1".into()));
        let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, map("2", ""));
        let line = Bytes::from(line);
        bench.with(|objects, cx| assert!(objects.on_line(cx, &key, &line)));
        bench.with(|objects, cx| assert!(!objects.on_line(cx, &key, &line), "the same again"));
        assert_eq!(bench.map("m"), Ok("2".into()));
        let gone = Bytes::from(format!(r#"{{"type":"DELETED","object":{}}}"#, map("2", "")));
        bench.with(|objects, cx| assert!(objects.on_line(cx, &key, &gone)));
        assert_eq!(bench.map("m"), Err("configmap \"m\" not found".into()));
        assert_eq!(bench.want("a", None), [""; 0]);
        assert_eq!(bench.want("b", None), ["Cancel"]);
        assert_eq!(bench.map("m"), Err(late.into()));
        assert_eq!(bench.objects, Objects { rng: bench.objects.rng.clone(), ..Objects::default() });
    }

    #[test]
    fn an_immutable_object_is_not_watched() {
        let mut bench = Bench::new(ChangeDetection::Watch);
        let key = Key::config_map("ns", "m");
        bench.want("a", Some(&key));
        let answer = bench.answer(&key, 200, &list(&map("1", r#","immutable":true"#)));
        assert_eq!(answer, [&*format!("Watch {PATH}"), "Cancel"]);
        assert_eq!((bench.map("m"), bench.objects.deadline()), (Ok("1".into()), None));
    }

    #[test]
    fn secrets_are_sealed_and_read_again_when_seals_are_lost() {
        let mut bench = Bench::new(ChangeDetection::Watch);
        let key = Key::secret("ns", "s");
        let path = "/api/v1/namespaces/ns/secrets";
        assert_eq!(bench.want("a", Some(&key)), [format!("Get {path} sealed")]);
        let secret = r#"{"metadata":{"name":"s"},"data":{"k":7}}"#;
        assert_eq!(bench.answer(&key, 200, &list(secret)), [format!("Watch {path} sealed")]);
        assert_eq!(bench.facts.volumes.objects.secret("ns", "s").unwrap().data["k"], 7);
        let keys = BTreeSet::from([key]);
        let again = bench.with(|objects, cx| {
            objects.read_again(cx, &keys);
            assert!(objects.awaited(cx, &keys).is_some());
        });
        assert_eq!(again, ["Cancel", &*format!("Get {path} sealed")]);
        // What is not sealed is an answer that cannot be read, and is not kept.
        let open = r#"{"metadata":{"name":"s"},"data":{"k":"czNjcmV0"}}"#;
        let key = Key::secret("ns", "s");
        bench.answer(&key, 200, &list(open));
        let error = bench.facts.volumes.objects.secret("ns", "s").unwrap_err().into_error().0;
        assert_eq!(error, "secret \"s\" cannot be read");
    }

    #[test]
    fn an_object_is_asked_for_again_when_it_is_too_old() {
        let mut bench = Bench::new(ChangeDetection::Cache);
        let key = Key::config_map("ns", "m");
        let get = format!("Get {PATH}/m");
        assert_eq!(bench.want("a", Some(&key)), [&*get]);
        assert_eq!(bench.want("a", Some(&key)), [""; 0], "one at a time");
        let not_found = r#"{"kind":"Status","message":"configmaps \"m\" not found","code":404}"#;
        bench.answer(&key, 404, not_found);
        assert_eq!(bench.map("m"), Err("configmaps \"m\" not found".into()));
        assert_eq!(bench.want("a", Some(&key)), [&*get], "it may be there by now");
        bench.answer(&key, 200, &map("1", ""));
        bench.now.mono = Mono(0) + Span::from_secs(59);
        assert_eq!(bench.want("a", Some(&key)), [""; 0]);
        bench.now.mono = Mono(0) + Span::from_secs(60);
        assert_eq!(bench.want("a", Some(&key)), [&*get]);
        bench.answer(&key, 503, "");
        assert_eq!(bench.map("m"), Ok("1".into()), "what was read stays good");
        let mut bench = Bench::new(ChangeDetection::Get);
        bench.want("a", Some(&key));
        bench.answer(&key, 200, &map("1", ""));
        assert_eq!(bench.want("a", Some(&key)), [&*get]);
    }
}
