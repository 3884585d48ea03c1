//! A manifest becomes a static pod: what the kubelet adds to it, what it refuses.
//!
//! Upstream: pkg/kubelet/config/common.go, defaults.go (v1.36). Pure.

use crate::event::ManifestJson;
use crate::ids::PodUid;
use crate::limits::PODS_MAX;
use crate::time::Wall;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::Value;
use steplet_api::config::alike;
use steplet_api::defaults;
use steplet_api::json::from_slice;
use steplet_api::pod::{Pod, Toleration};
use steplet_api::time::Time;
use steplet_api::validation::validate_static_pod;

pub const SOURCE: &str = "kubernetes.io/config.source";
pub const SEEN: &str = "kubernetes.io/config.seen";
pub const HASH: &str = "kubernetes.io/config.hash";

/// The longest file name.
const NAME_MAX: usize = 255;
/// The largest object that a cluster can store (etcd's --max-request-bytes, 1.5 MiB): no pod there is larger, and
/// what takes this long to read would keep the agent from all else.
const JSON_BYTES_MAX: usize = 1536 * 1024;
/// Problems of one manifest that an event has room for.
const PROBLEMS_TOLD: usize = 8;

/// Where a manifest comes from.
pub struct Origin<'a> {
    /// `file` or `http`: the value of `kubernetes.io/config.source`.
    pub source: &'static str,
    /// The file's path or the URL.
    pub place: &'a str,
    pub node_name: &'a str,
    pub seen: Wall,
}

/// The pods of a manifest: one Pod, or from a URL also a PodList. An error names line and key.
pub fn static_pods(manifest: &ManifestJson, origin: &Origin<'_>) -> Result<Vec<Pod>, String> {
    let bytes = manifest.json.len();
    if bytes > JSON_BYTES_MAX {
        return Err(format!(
            "{bytes} bytes as JSON, and a manifest may have {JSON_BYTES_MAX}, the most that a cluster stores of an \
             object (etcd --max-request-bytes)"
        ));
    }
    let value: Value = serde_json::from_slice(&manifest.json).map_err(|e| e.to_string())?;
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("");
    let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or("");
    let at = |key: &str| line_of(&manifest.lines, key);
    if !matches!(kind, "" | "Pod" | "PodList") {
        return Err(format!("{}kind {kind}: only a Pod can be run from a manifest", at("kind")));
    }
    if version != "v1" {
        return Err(format!("{}apiVersion: want \"v1\", found {version:?}", at("apiVersion")));
    }
    match (kind, origin.source) {
        ("Pod", _) => Ok([static_pod(&value, origin, manifest)?].into()),
        ("PodList", "http") => {
            let items = value.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if items.len() > PODS_MAX {
                let count = items.len();
                return Err(format!("items: {count} pods, at most {PODS_MAX} are read"));
            }
            items.iter().map(|item| static_pod(item, origin, manifest)).collect()
        }
        _ => Err(format!("{}kind: want \"Pod\", found {kind:?}", at("kind"))),
    }
}

fn static_pod(value: &Value, origin: &Origin<'_>, manifest: &ManifestJson) -> Result<Pod, String> {
    let canonical = value.to_string();
    let mut pod: Pod = from_slice(canonical.as_bytes())
        .map_err(|e| format!("{}{e}", line_of(&manifest.lines, &path_of(&e))))?;
    let meta = &mut pod.metadata;
    if meta.uid.is_empty() {
        let mut hash = Fnv128::new();
        hash.write(canonical.as_bytes());
        hash.write(format!("host:{}", origin.node_name).as_bytes());
        hash.write(format!("{}:{}", origin_key(origin), origin.place).as_bytes());
        meta.uid = format!("{:032x}", hash.0).into();
    }
    let line = |key: &str| line_of(&manifest.lines, key);
    if !PodUid::is_safe(&meta.uid) {
        let wants =
            "letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 128";
        let at = line("metadata.uid");
        return Err(format!("{at}metadata.uid: Invalid value: {:?}: want {wants}", meta.uid));
    }
    if meta.name.is_empty() {
        return Err(format!(
            "{}metadata.name: Required value",
            line_of(&manifest.lines, "metadata")
        ));
    }
    meta.name = format!("{}-{}", meta.name, origin.node_name.to_lowercase()).into();
    if meta.namespace.is_empty() {
        meta.namespace = "default".into();
    }
    if meta.namespace.len() + meta.name.len() + meta.uid.len() + 2 > NAME_MAX {
        let at = line("metadata.name");
        return Err(format!(
            "{at}metadata.name: Too long: namespace, name with the node's, and uid together name the \
             log directory and may have {} bytes",
            NAME_MAX - 2
        ));
    }
    // The kubelet is the only owner of these: what a manifest says of them is not kept.
    meta.deletion_timestamp = None;
    meta.deletion_grace_period_seconds = None;
    meta.annotations.insert(SOURCE.into(), origin.source.into());
    meta.annotations.insert(SEEN.into(), Time::nano_from_ns(origin.seen.0).as_str().into());
    meta.annotations.insert(HASH.into(), meta.uid.clone());
    pod.spec.node_name = origin.node_name.into();
    pod.spec.tolerations.push(Toleration {
        operator: "Exists".into(),
        effect: "NoExecute".into(),
        ..Toleration::default()
    });
    pod.status = Default::default();
    pod.status.phase = "Pending".into();
    (pod.api_version, pod.kind) = ("v1".into(), "Pod".into());
    defaults::apply(&mut pod);
    let problems = validate_static_pod(&pod);
    if problems.is_empty() {
        return Ok(pod);
    }
    let told = problems.iter().take(PROBLEMS_TOLD);
    let told =
        told.map(|p| format!("{}{p}{}", line_of(&manifest.lines, &p.path), slip(value, &p.path)));
    let told: Vec<String> = told.collect();
    let more = problems.len() - told.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(format!("{}{more}", told.join("; ")))
}

fn origin_key(origin: &Origin<'_>) -> &'static str {
    if origin.source == "file" { "file" } else { "url" }
}

/// `line 7: `, or nothing when the key has no known line. Falls back to the closest parent.
pub fn line_of(lines: &[(String, u32)], path: &str) -> String {
    let mut path = path;
    loop {
        if let Ok(index) = lines.binary_search_by(|(known, _)| known.as_str().cmp(path)) {
            return format!("line {}: ", lines[index].1);
        }
        match path.rfind(['.', '[']) {
            Some(end) => path = &path[..end],
            None => return String::new(),
        }
    }
}

/// The path at the head of a decoder's message: `.spec.containers: invalid type ...`.
fn path_of(message: &str) -> String {
    let path = message.split(": ").next().unwrap_or("");
    path.trim_start_matches('.').into()
}

/// FNV-1a with 128 bits.
struct Fnv128(u128);

impl Fnv128 {
    fn new() -> Fnv128 {
        Fnv128(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u128::from(*byte);
            self.0 = self.0.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

/// Whether two forms of a pod differ in what a running pod depends on (podsDifferSemantically in
/// pkg/kubelet/config/config.go): when it was first seen does not count.
pub fn differs(old: &Pod, new: &Pod) -> bool {
    let ours = |key: &str| matches!(key, SOURCE | SEEN);
    let annotations = |pod: &Pod| -> Vec<(alloc::boxed::Box<str>, alloc::boxed::Box<str>)> {
        let kept = pod.metadata.annotations.iter().filter(|(key, _)| !ours(key));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    old.spec != new.spec
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.metadata.deletion_grace_period_seconds != new.metadata.deletion_grace_period_seconds
        || old.metadata.labels != new.metadata.labels
        || annotations(old) != annotations(new)
}

/// Of a field that is missing: the key beside it that looks like a slip of the pen, since unknown keys are ignored.
fn slip(value: &Value, path: &str) -> String {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let steps = parent.split('.').filter(|step| !step.is_empty());
    let place = steps.fold(value, |place, step| place.get(step).unwrap_or(&Value::Null));
    let Some(object) = place.as_object().filter(|object| !object.contains_key(field)) else {
        return String::new();
    };
    let near =
        |key: &&String| key.len().abs_diff(field.len()) <= 2 && alike(key, &[field]).is_some();
    let key = object.keys().find(near);
    key.map(|key| format!("; {key} is no field: is {field} meant?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_named() {
        let check = |json: &str, want: &str| {
            let manifest = ManifestJson { json: String::from(json).into(), lines: Vec::new() };
            let origin = Origin { source: "file", place: "/a", node_name: "n", seen: Wall(0) };
            assert_eq!(static_pods(&manifest, &origin).unwrap_err(), want, "{json}");
        };
        let pod = |spec: &str| {
            format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a"}},"spec":{spec}}}"#)
        };
        let missing = "spec.containers: Required value";
        let named = format!("{missing}; contaners is no field: is containers meant?");
        check(&pod(r#"{"contaners":[{"name":"a","image":"a"}]}"#), &named);
        check(&pod("{}"), missing);
        check(&pod(r#"{"initContainers":[{"name":"a","image":"a"}]}"#), missing);
        check(
            r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#,
            "kind Deployment: only a Pod can be run from a manifest",
        );
    }

    #[test]
    fn what_no_cluster_could_store_is_refused_unread() {
        let check = |bytes: usize, want: &str| {
            let mut json = alloc::vec![b' '; bytes];
            json[..2].copy_from_slice(b"{}");
            let manifest = ManifestJson { json: json.into(), lines: Vec::new() };
            let origin = Origin { source: "file", place: "/a", node_name: "n", seen: Wall(0) };
            let why = static_pods(&manifest, &origin).unwrap_err();
            assert!(why.starts_with(want), "{bytes}: {why}");
        };
        check(JSON_BYTES_MAX, "apiVersion: want");
        check(JSON_BYTES_MAX + 1, "1572865 bytes as JSON, and a manifest may have 1572864");
    }
}
