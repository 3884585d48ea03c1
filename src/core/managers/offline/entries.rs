//! Entries of the store for times without the API server: what they are called, what stands in them, and back.
//!
//! A body is a JSON object with a `kind`. What the door seals (Secret, TokenRequest) has it where the door looks for
//! it. Pure.

use crate::effect::KeptEntry;
use crate::ids::PodUid;
use crate::managers::volumes::objects::{Given, Key, Kind};
use crate::managers::volumes::tokens::TokenKey;
use crate::sealed::Sealed;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steplet_api::cluster::Service;
use steplet_api::json;
use steplet_api::pod::Pod;
use steplet_api::status::PodStatus;

/// One thing that is kept. In this order they are written: what pods need is there before them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    Services,
    Object(Key),
    Token(TokenKey),
    Pod(PodUid),
    /// An entry that nobody knows any more.
    Stray(String),
}

/// A token with the span of its life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptToken {
    pub token: Sealed,
    pub issued: Wall,
    pub expires: Wall,
}

/// What an earlier life has kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restored {
    pub pods: Vec<Pod>,
    pub objects: BTreeMap<Key, Given>,
    pub tokens: BTreeMap<TokenKey, KeptToken>,
    /// None: they were not kept.
    pub services: Option<Vec<Service>>,
}

impl What {
    pub fn name(&self) -> String {
        match self {
            What::Services => "services".into(),
            What::Object(Key { kind, namespace, name }) => {
                let kind = match kind {
                    Kind::ConfigMap => "configmap",
                    Kind::Secret => "secret",
                };
                format!("{kind}-{}", short(&format!("{namespace}/{name}")))
            }
            What::Token(key) => format!("token-{}", short(&token_key(key).to_string())),
            What::Pod(uid) => format!("pod-{}", short(uid.as_str())),
            What::Stray(name) => name.clone(),
        }
    }

    pub fn is_sealed(&self) -> bool {
        match self {
            What::Object(key) => key.kind == Kind::Secret,
            What::Token(_) => true,
            What::Services | What::Pod(_) | What::Stray(_) => false,
        }
    }
}

/// Names of objects are long and may say too much.
fn short(text: &str) -> String {
    Sha256::digest(text.as_bytes())[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Equal bodies, equal digests.
pub fn digest(body: &[u8]) -> u64 {
    u64::from_le_bytes(Sha256::digest(body)[..8].try_into().expect("it has 32 bytes"))
}

/// A pod with this status, and the digest of what makes it worth writing: times and counts in the status do not.
pub fn pod(pod: &Pod, status: PodStatus) -> (String, u64) {
    let mut pod = pod.clone();
    pod.status = status;
    let body = text(&pod);
    let PodStatus { phase, start_time, .. } = core::mem::take(&mut pod.status);
    pod.status = PodStatus { phase, start_time, ..PodStatus::default() };
    pod.metadata.resource_version = Box::default();
    (body, digest(text(&pod).as_bytes()))
}

fn text(pod: &Pod) -> String {
    String::from_utf8(json::to_vec(pod)).expect("JSON is text")
}

/// Of an object only what pods can see.
pub fn object(key: &Key, given: &Given) -> String {
    let metadata = json!({ "namespace": key.namespace, "name": key.name });
    let body = match given {
        Given::ConfigMap(map) => json!({
            "kind": "ConfigMap", "metadata": metadata, "immutable": map.immutable, "data": map.data,
            "binaryData": map.binary_data,
        }),
        Given::Secret(secret) => json!({
            "kind": "Secret", "metadata": metadata, "immutable": secret.immutable, "type": secret.type_,
            "data": secret.data,
        }),
        Given::Absent(message) => json!({
            "kind": "Status", "metadata": metadata, "message": message,
            "of": if key.kind == Kind::Secret { "Secret" } else { "ConfigMap" },
        }),
    };
    body.to_string()
}

pub fn token(key: &TokenKey, kept: &KeptToken) -> String {
    let body = json!({
        "kind": "TokenRequest", "key": token_key(key), "status": { "token": kept.token.number() },
        "issued": kept.issued.0, "expires": kept.expires.0,
    });
    body.to_string()
}

fn token_key(key: &TokenKey) -> Value {
    json!({
        "namespace": key.namespace, "account": key.account, "audience": key.audience,
        "seconds": key.seconds, "pod": key.pod, "uid": key.uid,
    })
}

pub fn services(all: &[Service]) -> String {
    json!({ "kind": "ServiceList", "items": all }).to_string()
}

/// Reads entries; of each that is understood its digest. Those that are not, and the older of two pods of one name, are
/// strays.
pub fn read(kept: &[KeptEntry]) -> (Restored, BTreeMap<String, u64>, Vec<String>) {
    let mut restored = Restored::default();
    let (mut known, mut strays) = (BTreeMap::new(), Vec::new());
    let mut pods: BTreeMap<(Box<str>, Box<str>), (Pod, String)> = BTreeMap::new();
    for entry in kept {
        let Some((what, digest)) = read_one(entry, &mut restored) else {
            strays.push(entry.name.clone());
            continue;
        };
        if what.name() != entry.name {
            strays.push(entry.name.clone());
            continue;
        }
        known.insert(entry.name.clone(), digest);
        if let What::Pod(_) = what
            && let Some(pod) = restored.pods.pop()
        {
            // A power cut between the writing of the new one and the removal of the old one.
            let version = |pod: &Pod| pod.metadata.resource_version.parse::<u64>().unwrap_or(0);
            let name = (pod.metadata.namespace.clone(), pod.metadata.name.clone());
            let older = match pods.remove(&name) {
                Some((other, name_of)) if version(&other) > version(&pod) => {
                    pods.insert(name, (other, name_of));
                    Some(entry.name.clone())
                }
                other => {
                    pods.insert(name, (pod, entry.name.clone()));
                    other.map(|(_, name_of)| name_of)
                }
            };
            strays.extend(older);
        }
    }
    restored.pods = pods.into_values().map(|(pod, _)| pod).collect();
    (restored, known, strays)
}

fn read_one(entry: &KeptEntry, restored: &mut Restored) -> Option<(What, u64)> {
    if entry.name.starts_with("pod-") {
        let read: Pod = json::from_slice(&entry.body).ok()?;
        let digest = pod(&read, read.status.clone()).1;
        let what = What::Pod(PodUid(read.metadata.uid.clone()));
        restored.pods.push(read);
        return Some((what, digest));
    }
    let body: Value = serde_json::from_slice(&entry.body).ok()?;
    let text = |path: &str| body.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let key = |kind| {
        let (namespace, name) = (text("/metadata/namespace").into(), text("/metadata/name").into());
        Key { kind, namespace, name }
    };
    let what = match text("/kind") {
        "ConfigMap" => {
            let map = json::from_slice(&entry.body).ok()?;
            restored.objects.insert(key(Kind::ConfigMap), Given::ConfigMap(Arc::new(map)));
            What::Object(key(Kind::ConfigMap))
        }
        "Secret" => {
            let secret = json::from_slice(&entry.body).ok()?;
            restored.objects.insert(key(Kind::Secret), Given::Secret(Arc::new(secret)));
            What::Object(key(Kind::Secret))
        }
        "Status" => {
            let key = key(if text("/of") == "Secret" { Kind::Secret } else { Kind::ConfigMap });
            restored.objects.insert(key.clone(), Given::Absent(text("/message").into()));
            What::Object(key)
        }
        "TokenRequest" => {
            let number = |path: &str| body.pointer(path).and_then(Value::as_i64);
            let token = Sealed::numbered(body.pointer("/status/token")?.as_u64()?);
            let (issued, expires) = (Wall(number("/issued")?), Wall(number("/expires")?));
            let key = TokenKey {
                namespace: text("/key/namespace").into(),
                account: text("/key/account").into(),
                audience: text("/key/audience").into(),
                seconds: number("/key/seconds")?,
                pod: text("/key/pod").into(),
                uid: text("/key/uid").into(),
            };
            restored.tokens.insert(key.clone(), KeptToken { token, issued, expires });
            What::Token(key)
        }
        "ServiceList" => {
            let items = body.get("items")?.as_array()?.iter();
            let read = items.map(|item| json::from_slice(item.to_string().as_bytes()).ok());
            restored.services = Some(read.collect::<Option<_>>()?);
            What::Services
        }
        _ => return None,
    };
    Some((what, digest(&entry.body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample;

    fn kept(what: &What, body: String) -> KeptEntry {
        KeptEntry { name: what.name(), body: body.into(), sealed: what.is_sealed() }
    }

    #[test]
    fn what_is_written_is_read() {
        let map = json::from_slice(br#"{"metadata":{"name":"m"},"data":{"a":"1"}}"#).expect("good");
        let secret = json::from_slice(br#"{"data":{"a":7},"type":"Opaque"}"#).expect("good");
        let absent = Key::secret("ns", "none");
        let objects = [
            (Key::config_map("ns", "m"), Given::ConfigMap(Arc::new(map))),
            (Key::secret("ns", "s"), Given::Secret(Arc::new(secret))),
            (absent.clone(), Given::Absent("secret \"none\" not found".into())),
        ];
        let token_key = TokenKey {
            namespace: "ns".into(),
            account: "sa".into(),
            audience: "".into(),
            seconds: 3600,
            pod: "p".into(),
            uid: "u".into(),
        };
        let held = KeptToken { token: Sealed::numbered(9), issued: Wall(-5), expires: Wall(7) };
        let pod = sample::pod(r#"{"containers":[{"name":"c","image":"i"}]}"#);
        let (pod_body, pod_digest) = super::pod(&pod, pod.status.clone());
        let mut all: Vec<KeptEntry> = (objects.iter())
            .map(|(key, given)| kept(&What::Object(key.clone()), object(key, given)))
            .collect();
        all.push(kept(&What::Token(token_key.clone()), token(&token_key, &held)));
        all.push(kept(&What::Services, services(&[])));
        all.push(kept(&What::Pod("u".into()), pod_body));
        all.push(KeptEntry { name: "pod-x".into(), body: "{}".into(), sealed: false });
        all.push(KeptEntry {
            name: "later".into(),
            body: r#"{"kind":"New"}"#.into(),
            sealed: false,
        });
        let (restored, known, strays) = read(&all);
        assert_eq!(restored.pods, [pod]);
        assert_eq!(restored.tokens[&token_key], held);
        assert_eq!(restored.services, Some(Vec::new()));
        assert_eq!(restored.objects.len(), 3);
        assert_eq!(restored.objects[&absent], Given::Absent("secret \"none\" not found".into()));
        for (key, given) in &objects[..2] {
            assert_eq!(
                object(key, &restored.objects[key]),
                object(key, given),
                "the same text again"
            );
        }
        assert_eq!(known[&What::Pod("u".into()).name()], pod_digest);
        assert_eq!(known.len(), 6);
        assert_eq!(strays, ["pod-x", "later"]);
    }

    #[test]
    fn of_two_pods_of_one_name_the_younger_counts() {
        let pod = |uid: &str, version: &str| {
            let mut pod = sample::pod("{}");
            pod.metadata.uid = uid.into();
            pod.metadata.resource_version = version.into();
            let body = super::pod(&pod, pod.status.clone()).0;
            kept(&What::Pod(uid.into()), body)
        };
        let check = |all: &[KeptEntry], want: &str| {
            let (restored, _, strays) = read(all);
            assert_eq!((&*restored.pods[0].metadata.uid, restored.pods.len()), (want, 1));
            assert_eq!(strays.len(), 1);
        };
        check(&[pod("a", "9"), pod("b", "10")], "b");
        check(&[pod("b", "10"), pod("a", "9")], "b");
    }

    #[test]
    fn times_and_counts_are_not_worth_a_writing() {
        let with = |phase: &str, message: &str, version: &str| {
            let mut pod = sample::pod("{}");
            pod.metadata.resource_version = version.into();
            let status =
                PodStatus { phase: phase.into(), message: message.into(), ..PodStatus::default() };
            super::pod(&pod, status).1
        };
        assert_eq!(with("Running", "", "1"), with("Running", "other", "2"));
        assert_ne!(with("Running", "", "1"), with("Succeeded", "", "1"));
    }
}
