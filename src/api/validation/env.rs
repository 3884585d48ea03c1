//! Environment variables and where their values come from.

use super::{Path, Problems, names};
use crate::container::{
    Container, EnvFromSource, EnvVar, EnvVarSource, FileKeySelector, KeySelector,
    ObjectFieldSelector, ResourceFieldSelector,
};
use crate::pod::{PodSpec, resource};
use crate::quantity::{Format, Quantity};

/// Fields of a pod that a variable can take.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn check_all(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, container: &Container) {
    let variables = at.field("env");
    for (index, variable) in container.env.iter().enumerate() {
        check_variable(out, &variables.index(index), spec, variable);
    }
    let sources = at.field("envFrom");
    for (index, source) in container.env_from.iter().enumerate() {
        check_env_from(out, &sources.index(index), source);
    }
}

fn check_variable(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, variable: &EnvVar) {
    out.required_name(&at.field("name"), &variable.name, names::env_name);
    if let Some(source) = variable.value_from.as_deref() {
        let at = at.field("valueFrom");
        if !variable.value.is_empty() {
            out.invalid(&at, "", "may not be set when the value is not empty");
        }
        check_source(out, &at, spec, source);
    }
}

fn check_source(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, source: &EnvVarSource) {
    let mut count = 0;
    if let Some(selector) = &source.field_ref {
        count += 1;
        check_field_ref(out, &at.field("fieldRef"), selector, &ENV_FIELDS, true);
    }
    if let Some(selector) = &source.resource_field_ref {
        count += 1;
        check_resource_field_ref(out, &at.field("resourceFieldRef"), selector);
    }
    if let Some(selector) = &source.config_map_key_ref {
        count += 1;
        check_key_ref(out, &at.field("configMapKeyRef"), selector);
    }
    if let Some(selector) = &source.secret_key_ref {
        count += 1;
        check_key_ref(out, &at.field("secretKeyRef"), selector);
    }
    if let Some(selector) = &source.file_key_ref {
        count += 1;
        check_file_key_ref(out, &at.field("fileKeyRef"), spec, selector);
    }
    if count != 1 {
        let message = "must have one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef \
                       and fileKeyRef";
        out.invalid(at, "", message);
    }
}

/// A field of the pod. Labels and annotations are taken by key, in brackets, if `keyed`; else
/// whole, if known.
pub(super) fn check_field_ref(
    out: &mut Problems,
    at: &Path<'_>,
    selector: &ObjectFieldSelector,
    known: &[&str],
    keyed: bool,
) {
    if out.require(&at.field("apiVersion"), &selector.api_version) && &*selector.api_version != "v1"
    {
        out.invalid(&at.field("apiVersion"), &selector.api_version, "must be v1");
    }
    let path = at.field("fieldPath");
    if !out.require(&path, &selector.field_path) {
        return;
    }
    match subscript(&selector.field_path) {
        Some(("metadata.labels", key)) if keyed => out.name(&path, key, names::qualified_name),
        Some(("metadata.annotations", key)) if keyed => {
            out.name(&path, key, names::annotation_key);
        }
        _ => out.one_of(&path, &selector.field_path, known),
    }
}

/// Takes `metadata.labels['key']` apart.
fn subscript(field_path: &str) -> Option<(&str, &str)> {
    field_path.strip_suffix("']")?.split_once("['")
}

/// An amount of a container's resources, in units of a divisor.
pub(super) fn check_resource_field_ref(
    out: &mut Problems,
    at: &Path<'_>,
    selector: &ResourceFieldSelector,
) {
    let field = at.field("resource");
    if !out.require(&field, &selector.resource) {
        return;
    }
    let name =
        ["limits.", "requests."].iter().find_map(|side| selector.resource.strip_prefix(side));
    let is_cpu = name == Some(resource::CPU);
    let is_bytes = name.is_some_and(|name| {
        matches!(name, resource::MEMORY | resource::EPHEMERAL_STORAGE)
            || name.starts_with(resource::HUGEPAGES_PREFIX)
    });
    if !is_cpu && !is_bytes {
        let known = [
            "limits.cpu",
            "limits.ephemeral-storage",
            "limits.memory",
            "requests.cpu",
            "requests.ephemeral-storage",
            "requests.memory",
        ];
        out.one_of(&field, &selector.resource, &known);
        return;
    }
    let divisor = &selector.divisor;
    let one = Quantity::new(1, Format::DecimalSi);
    let fits = divisor.is_zero()
        || *divisor == one
        || is_cpu && *divisor == Quantity::from_milli(1, Format::DecimalSi)
        || is_bytes && is_power_of_unit(divisor);
    if !fits {
        let message = "must be 1, or 1m for cpu, or 1 with a suffix from k to E or Ki to Ei";
        out.invalid(&at.field("divisor"), format_args!("{divisor}"), message);
    }
}

/// 1000 or 1024 to a power of one to six.
fn is_power_of_unit(divisor: &Quantity) -> bool {
    (1..=6).any(|power| {
        let powers = [1000i64.pow(power), 1024i64.pow(power)];
        powers.iter().any(|value| Quantity::new(*value, Format::DecimalSi) == *divisor)
    })
}

fn check_key_ref(out: &mut Problems, at: &Path<'_>, selector: &KeySelector) {
    out.name(&at.field("name"), &selector.name, names::dns_subdomain);
    out.required_name(&at.field("key"), &selector.key, names::config_key);
}

fn check_file_key_ref(
    out: &mut Problems,
    at: &Path<'_>,
    spec: &PodSpec,
    selector: &FileKeySelector,
) {
    out.required_name(&at.field("key"), &selector.key, names::env_name);
    out.required_name(&at.field("path"), &selector.path, names::no_backsteps);
    let name = at.field("volumeName");
    out.require(&name, &selector.volume_name);
    match spec.volumes.iter().find(|volume| volume.name == selector.volume_name) {
        None => out.not_found(&name, &selector.volume_name),
        Some(volume) if volume.empty_dir.is_none() => {
            out.invalid(&name, &selector.volume_name, "must name an emptyDir volume");
        }
        Some(_) => {}
    }
}

fn check_env_from(out: &mut Problems, at: &Path<'_>, source: &EnvFromSource) {
    if !source.prefix.is_empty() {
        out.name(&at.field("prefix"), &source.prefix, names::env_name);
    }
    let references = [("configMapRef", &source.config_map_ref), ("secretRef", &source.secret_ref)];
    for (field, reference) in references {
        if let Some(reference) = reference {
            let at = at.field(field);
            out.required_name(&at.field("name"), &reference.name, names::dns_subdomain);
        }
    }
    if source.config_map_ref.is_some() == source.secret_ref.is_some() {
        out.invalid(at, "", "must have one of configMapRef and secretRef");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    /// `want` are paths behind that of the variable's source.
    fn source(source: Value, want: &[&str]) {
        let variable = json!({"name": "A", "valueFrom": source});
        let path = "spec.containers[0].env[0].valueFrom";
        let want: Vec<_> = want.iter().map(|want| [path, *want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(&[("/spec/containers/0/env", json!([variable]))], &want);
    }

    #[test]
    fn variables() {
        fn check(variable: Value, want: &[&str]) {
            testing::check(&[("/spec/containers/0/env", json!([variable]))], want);
        }
        check(json!({"name": "1 a.b"}), &[]);
        check(json!({"name": ""}), &["spec.containers[0].env[0].name: Required value"]);
        check(json!({"name": "a=b"}), &["spec.containers[0].env[0].name: Invalid value"]);
        let name = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        check(
            json!({"name": "A", "value": "b", "valueFrom": name}),
            &["spec.containers[0].env[0].valueFrom: Invalid value"],
        );
        source(json!({}), &[": Invalid value"]);
        let two =
            json!({"fieldRef": name["fieldRef"], "resourceFieldRef": {"resource": "limits.cpu"}});
        source(two, &[": Invalid value"]);
    }

    #[test]
    fn fields() {
        fn check(field_path: &str, want: &[&str]) {
            source(json!({"fieldRef": {"fieldPath": field_path}}), want);
        }
        check("status.podIPs", &[]);
        check("metadata.labels['x.y/a']", &[]);
        check("metadata.annotations['X.Y/a']", &[]);
        check("", &[".fieldRef.fieldPath: Required value"]);
        check("metadata.labels['a b']", &[".fieldRef.fieldPath: Invalid value"]);
        for unknown in ["metadata.labels", "metadata.foo", "spec.nodeName['a']", "status.phase"] {
            check(unknown, &[".fieldRef.fieldPath: Unsupported value"]);
        }
        let version = json!({"fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v2"}});
        source(version, &[".fieldRef.apiVersion: Invalid value"]);
    }

    #[test]
    fn resources() {
        fn check(resource: &str, divisor: &str, want: &[&str]) {
            let selector = json!({"resource": resource, "divisor": divisor});
            source(json!({ "resourceFieldRef": selector }), want);
        }
        for divisor in ["0", "1", "1m"] {
            check("limits.cpu", divisor, &[]);
        }
        for divisor in ["0", "1", "1k", "1Ki", "1M", "1Ei", "1024Mi"] {
            check("requests.memory", divisor, &[]);
        }
        check("limits.hugepages-2Mi", "1Mi", &[]);
        check("", "1", &[".resourceFieldRef.resource: Required value"]);
        check("limits.foo", "1", &[".resourceFieldRef.resource: Unsupported value"]);
        check("cpu", "1", &[".resourceFieldRef.resource: Unsupported value"]);
        check("limits.cpu", "2", &[".resourceFieldRef.divisor: Invalid value"]);
        check("limits.memory", "1m", &[".resourceFieldRef.divisor: Invalid value"]);
        check("limits.memory", "2Ki", &[".resourceFieldRef.divisor: Invalid value"]);
    }

    #[test]
    fn files() {
        fn check(volume: &str, path: &str, key: &str, want: &[&str]) {
            source(json!({"fileKeyRef": {"volumeName": volume, "path": path, "key": key}}), want);
        }
        check("v", "a/b", "K", &[]);
        check("z", "a", "K", &[".fileKeyRef.volumeName: Not found"]);
        check(
            "v",
            "",
            "",
            &[".fileKeyRef.key: Required value", ".fileKeyRef.path: Required value"],
        );
        check(
            "v",
            "../a",
            "a=b",
            &[".fileKeyRef.key: Invalid value", ".fileKeyRef.path: Invalid value"],
        );
        testing::check(
            &[
                ("/spec/volumes/0/hostPath", json!({"path": "/"})),
                (
                    "/spec/containers/0/env",
                    json!([{"name": "A", "valueFrom": {
                        "fileKeyRef": {"volumeName": "v", "path": "a", "key": "K"}}}]),
                ),
            ],
            &["spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value"],
        );
    }

    #[test]
    fn names_of_objects() {
        let at = "spec.containers[0].env[0].valueFrom.";
        let refused = |kind: &str| [at, kind, ": Forbidden"].concat();
        let (secret, map) = (refused("secretKeyRef"), refused("configMapKeyRef"));
        let check = |kind: &str, selector: Value, want: &[&str]| {
            let variable = json!({"name": "A", "valueFrom": { kind: selector }});
            testing::check(&[("/spec/containers/0/env", json!([variable]))], want);
        };
        let key = [at, "secretKeyRef.key: Required value"].concat();
        check("secretKeyRef", json!({"name": "a"}), &[&key, &secret]);
        let key = [at, "configMapKeyRef.key: Invalid value"].concat();
        let name = [at, "configMapKeyRef.name: Invalid value"].concat();
        check("configMapKeyRef", json!({"name": "A", "key": ".."}), &[&name, &key, &map]);
        testing::check(
            &[("/spec/containers/0/envFrom", json!([{"prefix": "a="}]))],
            &[
                "spec.containers[0].envFrom[0].prefix: Invalid value",
                "spec.containers[0].envFrom[0]: Invalid value",
            ],
        );
    }
}
