//! Names, labels, annotations and owners of a pod.

use alloc::collections::BTreeMap;

use alloc::boxed::Box;

use super::{Path, Problems, names};
use crate::meta::ObjectMeta;
use crate::pod::Pod;
use crate::pod_facts::annotation;

const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// Followed by the name of a container; older than the field `appArmorProfile`, still honoured.
const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Finalizers that need no domain name before theirs.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

pub(super) fn check(out: &mut Problems, pod: &Pod) {
    let at = Path::root("metadata");
    let meta = &pod.metadata;
    if !meta.generate_name.is_empty() {
        out.name(&at.field("generateName"), &meta.generate_name, names::generate_name);
    }
    out.required_name(&at.field("name"), &meta.name, names::dns_subdomain);
    out.required_name(&at.field("namespace"), &meta.namespace, names::dns_label);
    out.not_negative(&at.field("generation"), meta.generation);
    check_labels(out, &at.field("labels"), &meta.labels);
    check_annotations(out, &at.field("annotations"), pod);
    let finalizers = at.field("finalizers");
    for (index, finalizer) in meta.finalizers.iter().enumerate() {
        let at = finalizers.index(index);
        out.name(&at, finalizer, names::qualified_name);
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&&**finalizer) {
            out.invalid(&at, finalizer, "must have a domain name and '/' before it");
        }
    }
    check_owners(out, &at.field("ownerReferences"), meta);
}

/// Labels, and selectors that have their form.
pub(super) fn check_labels(
    out: &mut Problems,
    at: &Path<'_>,
    labels: &BTreeMap<Box<str>, Box<str>>,
) {
    for (key, value) in labels {
        out.name(at, key, names::qualified_name);
        out.name(at, value, names::label_value);
    }
}

fn check_annotations(out: &mut Problems, at: &Path<'_>, pod: &Pod) {
    let mut bytes = 0;
    for (key, value) in &pod.metadata.annotations {
        out.name(at, key, names::annotation_key);
        bytes += key.len() + value.len();
        if let Some(container) = key.strip_prefix(APP_ARMOR_PREFIX) {
            check_app_armor(out, &at.key(key), pod, container, value);
        }
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        out.too_long(at, ANNOTATIONS_BYTES_MAX);
    }
    let mirror = pod.metadata.annotations.get(annotation::CONFIG_MIRROR);
    if let Some(mirror) = mirror.filter(|_| pod.spec.node_name.is_empty()) {
        let at = at.key(annotation::CONFIG_MIRROR);
        out.invalid(&at, mirror, "spec.nodeName must be set on a mirror pod");
    }
}

fn check_app_armor(out: &mut Problems, at: &Path<'_>, pod: &Pod, container: &str, profile: &str) {
    let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    if !containers.any(|known| &*known.name == container) {
        out.invalid(at, container, "container not found");
    }
    let known = matches!(profile, "" | "runtime/default" | "unconfined");
    if !known && !profile.starts_with("localhost/") {
        out.invalid(at, profile, "must be runtime/default, unconfined or localhost/PROFILE");
    }
}

fn check_owners(out: &mut Problems, at: &Path<'_>, meta: &ObjectMeta) {
    for (index, owner) in meta.owner_references.iter().enumerate() {
        let at = at.index(index);
        out.require(&at.field("apiVersion"), &owner.api_version);
        out.require(&at.field("kind"), &owner.kind);
        out.require(&at.field("name"), &owner.name);
        out.require(&at.field("uid"), &owner.uid);
    }
    let controllers = meta.owner_references.iter().filter(|owner| owner.controller == Some(true));
    if let Some(second) = controllers.into_iter().nth(1) {
        out.invalid(at, &second.name, "only one owner can be the controller");
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use serde_json::{Value, json};

    use crate::validation::testing;

    #[test]
    fn names_and_labels() {
        fn check(field: &str, value: Value, want: &[&str]) {
            let pointer = String::from("/metadata/") + field;
            testing::check(&[(&pointer, value)], want);
        }
        check("name", json!(""), &["metadata.name: Required value"]);
        check("name", json!("A"), &["metadata.name: Invalid value"]);
        check("name", json!("a.b-c"), &[]);
        check("generateName", json!("A-"), &["metadata.generateName: Invalid value"]);
        check("namespace", json!(""), &["metadata.namespace: Required value"]);
        check("namespace", json!("a.b"), &["metadata.namespace: Invalid value"]);
        check("generation", json!(-1), &["metadata.generation: Invalid value"]);
        check("labels", json!({"a b": "x"}), &["metadata.labels: Invalid value"]);
        check("labels", json!({"x.y/a": "b c"}), &["metadata.labels: Invalid value"]);
        check("labels", json!({"x.y/a": ""}), &[]);
        check("finalizers", json!(["x"]), &["metadata.finalizers[0]: Invalid value"]);
        check("finalizers", json!(["orphan", "x.y/z"]), &[]);
    }

    #[test]
    fn annotations() {
        fn check(key: &str, value: &str, want: &[&str]) {
            testing::check(&[("/metadata/annotations", json!({ key: value }))], want);
        }
        check("A.B/c", "any\nthing", &[]);
        check("a b", "", &["metadata.annotations: Invalid value"]);
        check("a", &"x".repeat(256 * 1024 - 1), &[]);
        check("a", &"x".repeat(256 * 1024), &["metadata.annotations: Too long"]);
        let mirror = "kubernetes.io/config.mirror";
        check(mirror, "x", &["metadata.annotations[kubernetes.io/config.mirror]: Invalid value"]);
        for (container, profile, right) in
            [("a", "localhost/x", true), ("a", "x", false), ("z", "", false)]
        {
            let key = [super::APP_ARMOR_PREFIX, container].concat();
            let problem = ["metadata.annotations[", &key, "]: Invalid value"].concat();
            let want = [&*problem];
            check(&key, profile, if right { &[] } else { &want });
        }
    }

    #[test]
    fn owners() {
        fn check(owners: Value, want: &[&str]) {
            testing::check(&[("/metadata/ownerReferences", owners)], want);
        }
        let owner = json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u",
            "controller": true});
        check(json!([owner]), &[]);
        check(json!([owner, owner]), &["metadata.ownerReferences: Invalid value"]);
        check(
            json!([{"apiVersion": "v1", "kind": "A"}]),
            &[
                "metadata.ownerReferences[0].name: Required value",
                "metadata.ownerReferences[0].uid: Required value",
            ],
        );
    }
}
