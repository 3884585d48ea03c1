//! What a manifest means, as a judge reads it: no code is shared with the agent's own reading.

use crate::doors::runtime::app::App;
use crate::setup::NODE;
use serde_json::{Value, json};
use std::fmt;

/// Namespace and name of a pod; a static pod's name ends with the node's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

/// The part of a pod that judges look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    pub key: PodKey,
    /// `metadata.uid`, when the manifest pins it.
    pub uid: Option<String>,
    pub restart: Restart,
    pub grace_seconds: i64,
    pub host_network: bool,
    pub init: Vec<ContainerSpec>,
    pub containers: Vec<ContainerSpec>,
    pub origin: Origin,
    /// Its object in the API server says that it is to go.
    pub deleting: bool,
    /// Its object in the API server has a phase that is final.
    pub ended: bool,
    /// The whole manifest in canonical form: equal text is an unchanged pod.
    pub text: String,
}

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    File,
    Url,
    Api,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    pub name: String,
    pub image: String,
    pub command: Vec<String>,
}

impl ContainerSpec {
    pub fn app(&self, attempt: u32) -> App {
        App::from_command(&self.command, attempt)
    }
}

impl Pod {
    /// None for text that is neither a pod nor a list of pods.
    pub fn parse(text: &[u8]) -> Option<Vec<Pod>> {
        let value: Value = serde_json::from_slice(text).ok()?;
        match value.get("items") {
            Some(items) => items.as_array()?.iter().map(Pod::from_json).collect(),
            None => Some(vec![Pod::from_json(&value)?]),
        }
    }

    fn from_json(value: &Value) -> Option<Pod> {
        let (metadata, spec) = (value.get("metadata")?, value.get("spec")?);
        let text_at = |value: &Value, key: &str| value.get(key)?.as_str().map(str::to_owned);
        let restart = match text_at(spec, "restartPolicy").as_deref() {
            Some("Never") => Restart::Never,
            Some("OnFailure") => Restart::OnFailure,
            _ => Restart::Always,
        };
        let containers = |key: &str| {
            let list = spec.get(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(container).collect::<Vec<_>>()
        };
        Some(Pod {
            key: PodKey {
                namespace: text_at(metadata, "namespace").unwrap_or_else(|| "default".into()),
                name: format!("{}-{NODE}", text_at(metadata, "name")?),
            },
            uid: text_at(metadata, "uid"),
            restart,
            grace_seconds: (spec.get("terminationGracePeriodSeconds"))
                .and_then(Value::as_i64)
                .unwrap_or(30),
            host_network: spec.get("hostNetwork").and_then(Value::as_bool).unwrap_or(false),
            init: containers("initContainers"),
            containers: containers("containers"),
            origin: Origin::File,
            deleting: false,
            ended: false,
            text: value.to_string(),
        })
    }

    /// A pod of the API server. None for what is none of this node's, or the picture of a static pod.
    pub fn from_object(object: &Value) -> Option<Pod> {
        let (metadata, spec) = (object.get("metadata")?, object.get("spec")?);
        let mirror = "/annotations/kubernetes.io~1config.mirror";
        if spec.get("nodeName")? != NODE || metadata.pointer(mirror).is_some() {
            return None;
        }
        let named = json!({"metadata": {"name": "", "namespace": metadata.get("namespace")?,
            "labels": metadata.get("labels"), "annotations": metadata.get("annotations"),
            "uid": metadata.get("uid")?}, "spec": spec});
        let mut pod = Pod::from_json(&named)?;
        pod.key.name = metadata.get("name")?.as_str()?.to_owned();
        pod.origin = Origin::Api;
        pod.deleting = metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null());
        let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
        pod.grace_seconds = grace.unwrap_or(pod.grace_seconds);
        let phase = object.pointer("/status/phase").and_then(Value::as_str);
        pod.ended = matches!(phase, Some("Succeeded" | "Failed"));
        Some(pod)
    }

    pub fn container(&self, name: &str) -> Option<&ContainerSpec> {
        self.init.iter().chain(&self.containers).find(|container| container.name == name)
    }
}

fn container(value: &Value) -> Option<ContainerSpec> {
    let words = value.get("command").and_then(Value::as_array);
    Some(ContainerSpec {
        name: value.get("name")?.as_str()?.to_owned(),
        image: value.get("image")?.as_str()?.to_owned(),
        command: words.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}

/// The files of a manifest source as somebody has seen them, and the pods that follow.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// By file name or URL: the pods of the last text that made sense, and whether the text now makes sense.
    files: std::collections::BTreeMap<String, (Vec<Pod>, bool)>,
    /// Pods of the API server by uid, those that are to go too.
    objects: std::collections::BTreeMap<String, Pod>,
}

impl Files {
    /// A text that makes no sense keeps the pod of before (our rule: a torn manifest stops nothing).
    pub fn put(&mut self, name: &str, text: &[u8]) {
        if name.starts_with('.') {
            return;
        }
        let entry = self.files.entry(name.to_owned()).or_default();
        match Pod::parse(text) {
            Some(mut pods) => {
                let origin = if is_url(name) { Origin::Url } else { Origin::File };
                pods.iter_mut().for_each(|pod| pod.origin = origin);
                *entry = (pods, true);
            }
            None => entry.1 = false,
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.files.remove(name);
    }

    /// Files that are not named here are gone; a URL is no file.
    pub fn keep(&mut self, names: &[String]) {
        self.files.retain(|name, _| names.contains(name) || is_url(name));
    }

    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    pub fn clear(&mut self) {
        self.files.clear();
        self.objects.clear();
    }

    /// A pod of the API server is like this; one that has left the node is not there. True when it is another pod than
    /// before, or is to go: a new status is no such news.
    pub fn put_object(&mut self, object: &Value) -> bool {
        let Some(pod) = Pod::from_object(object) else { return self.remove_object(object) };
        let Some(uid) = pod.uid.clone() else { return false };
        let what = |pod: &Pod| (pod.deleting, pod.grace_seconds);
        let now = what(&pod);
        let text = pod.text.clone();
        // A name has one pod: the one before is gone, though nobody has said so.
        self.objects.retain(|other, known| *other == uid || known.key != pod.key);
        let before = self.objects.insert(uid, pod);
        before.is_none_or(|before| what(&before) != now || before.text != text)
    }

    /// True when it was there.
    pub fn remove_object(&mut self, object: &Value) -> bool {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        self.objects.remove(uid.unwrap_or_default()).is_some()
    }

    /// The API server lists these pods. What it does not list may be there all the same, but not under a name that it
    /// has another pod of.
    pub fn list_objects(&mut self, objects: &[Value]) {
        for object in objects {
            self.put_object(object);
        }
        let uid =
            |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let listed: std::collections::BTreeSet<String> = objects.iter().map(uid).collect();
        let keys: std::collections::BTreeSet<PodKey> = (self.objects.iter())
            .filter(|(uid, _)| listed.contains(*uid))
            .map(|(_, pod)| pod.key.clone())
            .collect();
        self.objects.retain(|uid, pod| listed.contains(uid) || !keys.contains(&pod.key));
    }

    /// The API server, asked for this name alone, has no pod of it.
    pub fn forget_objects(&mut self, namespace: &str, name: &str) {
        self.objects.retain(|_, pod| pod.key.namespace != namespace || pod.key.name != name);
    }

    /// The pod of the API server with this uid, even when it is to go.
    pub fn object(&self, uid: &str) -> Option<&Pod> {
        self.objects.get(uid)
    }

    pub fn objects(&self) -> impl Iterator<Item = &Pod> {
        self.objects.values()
    }

    /// The pod of that name: the first file that describes it wins.
    pub fn pod(&self, key: &PodKey) -> Option<&Pod> {
        let files = self.files.values().flat_map(|(pods, _)| pods);
        let objects = self.objects.values().filter(|pod| !pod.deleting);
        files.chain(objects).find(|pod| pod.key == *key)
    }

    /// Every pod that is to run, once: by file name, then those of the API server.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        let mut seen = std::collections::BTreeSet::new();
        self.files
            .values()
            .flat_map(|(pods, _)| pods)
            .chain(self.objects.values().filter(|pod| !pod.deleting))
            .filter(move |pod| seen.insert(pod.key.clone()))
    }

    /// Pods whose file makes no sense at the moment.
    pub fn torn(&self) -> impl Iterator<Item = &PodKey> {
        (self.files.values())
            .filter(|(_, sound)| !sound)
            .flat_map(|(pods, _)| pods.iter().map(|pod| &pod.key))
    }
}

fn is_url(name: &str) -> bool {
    name.contains("://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, image: &str) -> Vec<u8> {
        serde_json::json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "app", "image": image, "command": ["app", "exit=1"]}]},
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn a_pod_is_read_with_its_defaults() {
        let pods = Pod::parse(&text("web", "app:v1")).expect("a pod");
        let pod = &pods[0];
        assert_eq!(pod.key.to_string(), "default/web-edge-1");
        assert_eq!((pod.restart, pod.grace_seconds), (Restart::Always, 30));
        assert_eq!(pod.container("app").map(|c| c.app(0).exit), Some(1));
        assert!(Pod::parse(b"{\"metadata\":").is_none());
    }

    #[test]
    fn a_pod_of_the_api_server_is_read_as_it_is_there() {
        let object = |more: Value| {
            let mut object = json!({
                "metadata": {"name": "web", "namespace": "a", "uid": "u1", "resourceVersion": "7"},
                "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
                "status": {"phase": "Running"},
            });
            for (path, value) in more.as_object().into_iter().flatten() {
                let (part, field) = path.split_once('.').expect("a table");
                object[part][field] = value.clone();
            }
            object
        };
        let read = |more: Value| Pod::from_object(&object(more));
        let pod = read(json!({})).expect("a pod");
        assert_eq!((pod.key.to_string(), pod.uid.as_deref()), ("a/web".into(), Some("u1")));
        assert!(!pod.deleting && !pod.ended && pod.origin == Origin::Api);
        assert_eq!(read(json!({"spec.nodeName": "other"})), None);
        let mirror = json!({"kubernetes.io/config.mirror": "hash"});
        assert_eq!(read(json!({"metadata.annotations": mirror})), None);
        let going = json!({"metadata.deletionTimestamp": "t", "status.phase": "Failed",
            "metadata.deletionGracePeriodSeconds": 5});
        let going = read(going).expect("a pod");
        assert_eq!((going.deleting, going.ended, going.grace_seconds), (true, true, 5));
        assert_eq!(going.text, pod.text, "what it is has not changed");
        let mut files = Files::default();
        files.put_object(&object(json!({})));
        assert_eq!(files.pods().count(), 1);
        files.put_object(&object(json!({"metadata.deletionTimestamp": "t"})));
        assert_eq!((files.pods().count(), files.objects().count()), (0, 1));
        files.list_objects(&[]);
        assert_eq!(files.objects().count(), 1, "a list may leave one out");
        files.forget_objects("a", "web");
        assert!(files.object("u1").is_none());
    }

    #[test]
    fn the_first_file_wins_and_a_torn_one_keeps_its_pod() {
        let mut files = Files::default();
        files.put("web.json.bak", &text("web", "app:v1"));
        files.put("web.json", &text("web", "app:v2"));
        let image = |files: &Files| {
            files.pods().map(|pod| pod.containers[0].image.clone()).collect::<Vec<_>>()
        };
        assert_eq!(image(&files), ["app:v2"]);
        files.put("web.json", b"{");
        assert_eq!(image(&files), ["app:v2"]);
        assert_eq!(files.torn().count(), 1);
        files.remove("web.json");
        assert_eq!(image(&files), ["app:v1"]);
    }
}
