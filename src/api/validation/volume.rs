//! The volumes of a pod and what is in them.

use alloc::collections::BTreeSet;
use alloc::format;

use super::{Path, Problems, env, names};
use crate::container::pull_policy;
use crate::volume::{
    DownwardApiVolumeFile, HostPathVolumeSource, KeyToPath, ProjectedVolumeSource,
    ServiceAccountTokenProjection, Volume, VolumeProjection, host_path_type,
};

const MODE_MAX: i32 = 0o777;
const TOKEN_SECONDS_MIN: i64 = 10 * 60;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;
/// Fields of a pod that a file can hold; labels and annotations also by key.
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

pub(super) fn check_all(out: &mut Problems, at: &Path<'_>, volumes: &[Volume]) {
    let mut names = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let at = at.index(index);
        out.required_name(&at.field("name"), &volume.name, names::dns_label);
        if !volume.name.is_empty() && !names.insert(&volume.name) {
            out.duplicate(&at.field("name"), &volume.name);
        }
        if volume.sources().next().is_none() {
            out.required(&at, "must specify a volume type");
        }
        for source in volume.sources().skip(1) {
            out.forbidden(&at.field(source), "may not specify more than one volume type");
        }
        check_source(out, &at, volume);
    }
}

fn check_source(out: &mut Problems, at: &Path<'_>, volume: &Volume) {
    if let Some(source) = volume.host_path.as_deref() {
        check_host_path(out, &at.field("hostPath"), source);
    }
    if let Some(limit) = volume.empty_dir.as_deref().and_then(|source| source.size_limit.as_ref())
        && limit.is_negative()
    {
        let at = at.field("emptyDir");
        out.invalid(&at.field("sizeLimit"), format!("{limit}"), "must not be negative");
    }
    if let Some(source) = volume.secret.as_deref() {
        let at = at.field("secret");
        out.require(&at.field("secretName"), &source.secret_name);
        check_mode(out, &at.field("defaultMode"), source.default_mode);
        check_items(out, &at.field("items"), &source.items);
    }
    if let Some(source) = volume.config_map.as_deref() {
        let at = at.field("configMap");
        out.require(&at.field("name"), &source.name);
        check_mode(out, &at.field("defaultMode"), source.default_mode);
        check_items(out, &at.field("items"), &source.items);
    }
    if let Some(source) = volume.downward_api.as_deref() {
        let at = at.field("downwardAPI");
        check_mode(out, &at.field("defaultMode"), source.default_mode);
        check_files(out, &at.field("items"), &source.items);
    }
    if let Some(source) = volume.projected.as_deref() {
        check_projected(out, &at.field("projected"), source);
    }
    if let Some(source) = volume.image.as_deref() {
        let policies = [pull_policy::ALWAYS, pull_policy::IF_NOT_PRESENT, pull_policy::NEVER];
        let at = at.field("image");
        out.one_of(&at.field("pullPolicy"), &source.pull_policy, &policies);
    }
    if let Some(source) = volume.csi.as_deref() {
        let at = at.field("csi");
        out.required_name(&at.field("driver"), &source.driver, names::dns_subdomain);
    }
    if let Some(source) = volume.persistent_volume_claim.as_deref() {
        let at = at.field("persistentVolumeClaim");
        out.require(&at.field("claimName"), &source.claim_name);
    }
    if volume.ephemeral.as_deref().is_some_and(|source| source.volume_claim_template.is_none()) {
        out.required(&at.field("ephemeral").field("volumeClaimTemplate"), "");
    }
}

fn check_host_path(out: &mut Problems, at: &Path<'_>, source: &HostPathVolumeSource) {
    out.required_name(&at.field("path"), &source.path, names::no_backsteps);
    let known = [
        host_path_type::UNSET,
        host_path_type::BLOCK_DEVICE,
        host_path_type::CHAR_DEVICE,
        host_path_type::DIRECTORY,
        host_path_type::DIRECTORY_OR_CREATE,
        host_path_type::FILE,
        host_path_type::FILE_OR_CREATE,
        host_path_type::SOCKET,
    ];
    out.one_of(&at.field("type"), source.type_.as_deref().unwrap_or_default(), &known);
}

/// Permission bits of a file, at most those of `chmod 0777`.
fn check_mode(out: &mut Problems, at: &Path<'_>, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|mode| !(0..=MODE_MAX).contains(mode)) {
        out.invalid(at, mode, "must be between 0 and 0777 (octal), inclusive");
    }
}

fn check_items(out: &mut Problems, at: &Path<'_>, items: &[KeyToPath]) {
    for (index, item) in items.iter().enumerate() {
        let at = at.index(index);
        out.require(&at.field("key"), &item.key);
        out.required_name(&at.field("path"), &item.path, names::local_file);
        check_mode(out, &at.field("mode"), item.mode);
    }
}

fn check_files(out: &mut Problems, at: &Path<'_>, files: &[DownwardApiVolumeFile]) {
    for (index, file) in files.iter().enumerate() {
        let at = at.index(index);
        out.required_name(&at.field("path"), &file.path, names::local_file);
        if let Some(selector) = &file.field_ref {
            env::check_field_ref(out, &at.field("fieldRef"), selector, &FILE_FIELDS, true);
        }
        if let Some(selector) = &file.resource_field_ref {
            let at = at.field("resourceFieldRef");
            out.require(&at.field("containerName"), &selector.container_name);
            env::check_resource_field_ref(out, &at, selector);
        }
        if file.field_ref.is_some() == file.resource_field_ref.is_some() {
            out.invalid(&at, &file.path, "must have one of fieldRef and resourceFieldRef");
        }
        check_mode(out, &at.field("mode"), file.mode);
    }
}

/// Several sources share one directory, so no two may write the same file.
fn check_projected(out: &mut Problems, at: &Path<'_>, source: &ProjectedVolumeSource) {
    check_mode(out, &at.field("defaultMode"), source.default_mode);
    let sources = at.field("sources");
    let mut paths = BTreeSet::new();
    for (index, projection) in source.sources.iter().enumerate() {
        let at = sources.index(index);
        if count(projection) > 1 {
            out.forbidden(&at, "may not specify more than one source");
        }
        check_projection(out, &at, projection);
        for path in projected_paths(projection) {
            if !path.is_empty() && !paths.insert(path) {
                out.invalid(&at, path, "is a path that another source writes too");
            }
        }
    }
}

fn count(projection: &VolumeProjection) -> usize {
    let sources = [
        projection.secret.is_some(),
        projection.downward_api.is_some(),
        projection.config_map.is_some(),
        projection.service_account_token.is_some(),
        projection.cluster_trust_bundle.is_some(),
        projection.pod_certificate.is_some(),
    ];
    sources.into_iter().filter(|set| *set).count()
}

fn check_projection(out: &mut Problems, at: &Path<'_>, projection: &VolumeProjection) {
    let objects = [("secret", &projection.secret), ("configMap", &projection.config_map)];
    for (field, object) in objects {
        if let Some(object) = object.as_deref() {
            let at = at.field(field);
            out.require(&at.field("name"), &object.name);
            check_items(out, &at.field("items"), &object.items);
        }
    }
    if let Some(files) = projection.downward_api.as_deref() {
        check_files(out, &at.field("downwardAPI").field("items"), &files.items);
    }
    if let Some(token) = projection.service_account_token.as_deref() {
        check_token(out, &at.field("serviceAccountToken"), token);
    }
}

fn check_token(out: &mut Problems, at: &Path<'_>, token: &ServiceAccountTokenProjection) {
    out.required_name(&at.field("path"), &token.path, names::local_file);
    if let Some(seconds) = token.expiration_seconds {
        out.within(&at.field("expirationSeconds"), seconds, TOKEN_SECONDS_MIN..=TOKEN_SECONDS_MAX);
    }
}

/// The files that a source is known to write: without items, those of a Secret or ConfigMap are not
/// known.
fn projected_paths(projection: &VolumeProjection) -> impl Iterator<Item = &str> {
    let objects = [&projection.secret, &projection.config_map];
    let items = objects
        .into_iter()
        .flatten()
        .flat_map(|object| object.items.iter().map(|item| &*item.path));
    let files = projection.downward_api.iter().flat_map(|files| &files.items);
    let token = projection.service_account_token.iter().map(|token| &*token.path);
    items.chain(files.map(|file| &*file.path)).chain(token)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    /// Replaces volume `v`; `want` are paths behind that of the volume.
    fn check(source: Value, want: &[&str]) {
        let mut volume = json!({"name": "v"});
        volume.as_object_mut().expect("made so").extend(source.as_object().cloned().expect("one"));
        let want: Vec<_> = want.iter().map(|want| ["spec.volumes[0]", want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(&[("/spec/volumes/0", volume)], &want);
    }

    #[test]
    fn names_and_sources() {
        check(json!({"name": ""}), &[".name: Required value"]);
        check(json!({"name": "a.b"}), &[".name: Invalid value"]);
        testing::check(
            &[("/spec/volumes/1/name", json!("v"))],
            &["spec.volumes[1].name: Duplicate value"],
        );
        check(json!({"emptyDir": {}, "hostPath": {"path": "/"}}), &[".hostPath: Forbidden"]);
        check(json!({"emptyDir": {}, "nfs": {}}), &[".nfs: Forbidden"]);
    }

    #[test]
    fn simple_sources() {
        check(json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}), &[]);
        check(json!({"emptyDir": {"sizeLimit": "-1"}}), &[".emptyDir.sizeLimit: Invalid value"]);
        check(json!({"hostPath": {"path": "/a..b", "type": "Socket"}}), &[]);
        check(json!({"hostPath": {"path": ""}}), &[".hostPath.path: Required value"]);
        check(json!({"hostPath": {"path": "/a/../b"}}), &[".hostPath.path: Invalid value"]);
        let unknown = json!({"hostPath": {"path": "/", "type": "socket"}});
        check(unknown, &[".hostPath.type: Unsupported value"]);
        check(json!({"image": {"reference": "x"}}), &[]);
        let unknown = json!({"image": {"reference": "x", "pullPolicy": "y"}});
        check(unknown, &[".image.pullPolicy: Unsupported value"]);
    }

    #[test]
    fn modes_and_files_of_objects() {
        let refused = ".secret: Forbidden";
        let check = |more: Value, want: &[&str]| {
            let mut secret = json!({"secretName": "s"});
            secret
                .as_object_mut()
                .expect("made so")
                .extend(more.as_object().cloned().expect("one"));
            let mut want = want.to_vec();
            want.push(refused);
            check(json!({ "secret": secret }), &want);
        };
        check(json!({"defaultMode": 0o777}), &[]);
        check(json!({"defaultMode": 0}), &[]);
        check(json!({"defaultMode": 0o1000}), &[".secret.defaultMode: Invalid value"]);
        check(json!({"defaultMode": 644}), &[".secret.defaultMode: Invalid value"]);
        check(json!({"defaultMode": -1}), &[".secret.defaultMode: Invalid value"]);
        check(
            json!({"items": [{"key": "", "path": ""}, {"key": "k", "path": "/a", "mode": 512},
                {"key": "k", "path": "b/../a"}, {"key": "a b", "path": "..a"},
                {"key": "k", "path": "a/..b"}]}),
            &[
                ".secret.items[0].key: Required value",
                ".secret.items[0].path: Required value",
                ".secret.items[1].path: Invalid value",
                ".secret.items[1].mode: Invalid value",
                ".secret.items[2].path: Invalid value",
                ".secret.items[3].path: Invalid value",
            ],
        );
    }

    #[test]
    fn files_of_the_downward_api() {
        fn item(item: Value, want: &[&str]) {
            let want: Vec<_> =
                want.iter().map(|want| [".downwardAPI.items[0]", want].concat()).collect();
            let want: Vec<_> = want.iter().map(|want| &**want).collect();
            check(json!({"downwardAPI": {"items": [item]}}), &want);
        }
        let labels = json!({"fieldPath": "metadata.labels"});
        item(json!({"path": "a", "fieldRef": labels}), &[]);
        item(json!({"path": "a", "fieldRef": {"fieldPath": "metadata.labels['a']"}}), &[]);
        item(json!({"path": "", "fieldRef": labels}), &[".path: Required value"]);
        item(json!({"path": "/a", "fieldRef": labels}), &[".path: Invalid value"]);
        item(json!({"path": "a", "fieldRef": labels, "mode": 512}), &[".mode: Invalid value"]);
        let node = json!({"path": "a", "fieldRef": {"fieldPath": "spec.nodeName"}});
        item(node, &[".fieldRef.fieldPath: Unsupported value"]);
        item(json!({"path": "a"}), &[": Invalid value"]);
        let amount = json!({"resource": "limits.cpu"});
        item(
            json!({"path": "a", "resourceFieldRef": amount}),
            &[".resourceFieldRef.containerName: Required value"],
        );
    }

    #[test]
    fn projected_sources() {
        let name = json!({"fieldPath": "metadata.name"});
        let file =
            |path: &str| json!({"downwardAPI": {"items": [{"path": path, "fieldRef": name}]}});
        check(json!({"projected": {"sources": [file("a"), file("b")]}}), &[]);
        check(
            json!({"projected": {"sources": [file("a"), file("a")], "defaultMode": -1}}),
            &[".projected.defaultMode: Invalid value", ".projected.sources[1]: Invalid value"],
        );
        check(
            json!({"projected": {"sources": [
                {"serviceAccountToken": {"path": "..a", "expirationSeconds": 599}}]}}),
            &[
                ".projected.sources[0].serviceAccountToken.path: Invalid value",
                ".projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value",
                ".projected.sources[0].serviceAccountToken: Forbidden",
            ],
        );
        check(
            json!({"projected": {"sources": [{"secret": {"name": "a"}, "configMap": {}}]}}),
            &[
                ".projected.sources[0]: Forbidden",
                ".projected.sources[0].configMap.name: Required value",
                ".projected.sources[0].configMap: Forbidden",
                ".projected.sources[0].secret: Forbidden",
            ],
        );
    }
}
