//! A static pod exists without the API server, so it may not refer to what only the API server has.
//!
//! Upstream: gate PreventStaticPodAPIReferences (on since 1.34), HasAPIObjectReference.

use alloc::format;

use super::{Path, Problems};
use crate::container::Container;
use crate::pod::PodSpec;
use crate::volume::{Volume, VolumeProjection};

pub(super) fn check_references(out: &mut Problems, spec: &PodSpec) {
    let at = Path::root("spec");
    if !spec.service_account_name.is_empty() {
        refuse(out, &at.field("serviceAccountName"), "serviceaccounts");
    }
    if spec.image_pull_secrets.iter().any(|secret| !secret.name.is_empty()) {
        refuse(out, &at.field("imagePullSecrets"), "secrets");
    }
    if !spec.resource_claims.is_empty() {
        refuse(out, &at.field("resourceClaims"), "resourceclaims");
    }
    let kinds = [("initContainers", &spec.init_containers), ("containers", &spec.containers)];
    for (field, containers) in kinds {
        let at = at.field(field);
        for (index, container) in containers.iter().enumerate() {
            check_container(out, &at.index(index), container);
        }
    }
    let volumes = at.field("volumes");
    for (index, volume) in spec.volumes.iter().enumerate() {
        check_volume(out, &volumes.index(index), volume);
    }
}

fn refuse(out: &mut Problems, at: &Path<'_>, resource: &str) {
    out.forbidden(at, format_args!("static pods may not reference {resource}"));
}

fn check_container(out: &mut Problems, at: &Path<'_>, container: &Container) {
    let sources = at.field("envFrom");
    for (index, source) in container.env_from.iter().enumerate() {
        let at = sources.index(index);
        if source.config_map_ref.is_some() {
            refuse(out, &at.field("configMapRef"), "configmaps");
        }
        if source.secret_ref.is_some() {
            refuse(out, &at.field("secretRef"), "secrets");
        }
    }
    let variables = at.field("env");
    for (index, variable) in container.env.iter().enumerate() {
        let Some(source) = variable.value_from.as_deref() else {
            continue;
        };
        let at = variables.index(index);
        let at = at.field("valueFrom");
        if source.config_map_key_ref.is_some() {
            refuse(out, &at.field("configMapKeyRef"), "configmaps");
        }
        if source.secret_key_ref.is_some() {
            refuse(out, &at.field("secretKeyRef"), "secrets");
        }
    }
}

fn check_volume(out: &mut Problems, at: &Path<'_>, volume: &Volume) {
    for source in volume.sources() {
        let resource = match source {
            "configMap" => "configmaps",
            "secret" | "azureFile" => "secrets",
            "csi" => "csidrivers",
            "glusterfs" => "endpoints",
            "persistentVolumeClaim" | "ephemeral" => "persistentvolumeclaims",
            _ => continue,
        };
        refuse(out, &at.field(source), &format!("{resource} (through {source} volumes)"));
    }
    // Remote volumes may name a Secret with the credentials for their server.
    for (source, value) in &volume.others {
        if value.get("secretRef").is_some_and(|reference| !reference.is_null()) {
            refuse(out, &at.field(source).field("secretRef"), "secrets");
        }
    }
    if let Some(projected) = volume.projected.as_deref() {
        let at = at.field("projected");
        let at = at.field("sources");
        for (index, projection) in projected.sources.iter().enumerate() {
            check_projection(out, &at.index(index), projection);
        }
    }
}

fn check_projection(out: &mut Problems, at: &Path<'_>, projection: &VolumeProjection) {
    let sources = [
        ("configMap", projection.config_map.is_some(), "configmaps"),
        ("secret", projection.secret.is_some(), "secrets"),
        ("serviceAccountToken", projection.service_account_token.is_some(), "serviceaccounts"),
        ("clusterTrustBundle", projection.cluster_trust_bundle.is_some(), "clustertrustbundles"),
        ("podCertificate", projection.pod_certificate.is_some(), "podcertificates"),
    ];
    for (field, _, resource) in sources.into_iter().filter(|(_, set, _)| *set) {
        refuse(out, &at.field(field), &format!("{resource} (through projected volumes)"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validation::testing;

    fn check(pointer: &str, value: Value, want: &[&str]) {
        testing::check(&[(pointer, value)], want);
    }

    #[test]
    fn of_the_pod() {
        check("/spec/serviceAccountName", json!("a"), &["spec.serviceAccountName: Forbidden"]);
        check("/spec/serviceAccount", json!("a"), &["spec.serviceAccountName: Forbidden"]);
        check("/spec/imagePullSecrets", json!([{"name": ""}]), &[]);
        check(
            "/spec/imagePullSecrets",
            json!([{"name": "a"}]),
            &["spec.imagePullSecrets: Forbidden"],
        );
        check(
            "/spec/resourceClaims",
            json!([{"name": "a", "resourceClaimName": "b"}]),
            &["spec.resourceClaims: Forbidden"],
        );
    }

    #[test]
    fn of_containers() {
        check(
            "/spec/initContainers/0/envFrom",
            json!([{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "a"}}]),
            &[
                "spec.initContainers[0].envFrom[0].configMapRef: Forbidden",
                "spec.initContainers[0].envFrom[1].secretRef: Forbidden",
            ],
        );
        check(
            "/spec/containers/1/env",
            json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}}]),
            &[
                "spec.containers[1].env[0].valueFrom.configMapKeyRef: Forbidden",
                "spec.containers[1].env[1].valueFrom.secretKeyRef: Forbidden",
            ],
        );
    }

    #[test]
    fn of_volumes() {
        let refused = [
            ("configMap", json!({"name": "a"})),
            ("secret", json!({"secretName": "a"})),
            ("csi", json!({"driver": "a.b"})),
            ("persistentVolumeClaim", json!({"claimName": "a"})),
            ("ephemeral", json!({"volumeClaimTemplate": {"spec": {}}})),
            ("glusterfs", json!({})),
            ("azureFile", json!({})),
        ];
        for (source, value) in refused {
            let want = ["spec.volumes[0].", source, ": Forbidden"].concat();
            check("/spec/volumes/0", json!({"name": "v", source: value}), &[&want]);
        }
        check("/spec/volumes/0", json!({"name": "v", "nfs": {"server": "a", "path": "/"}}), &[]);
        check(
            "/spec/volumes/0",
            json!({"name": "v", "rbd": {"secretRef": {"name": "a"}}}),
            &["spec.volumes[0].rbd.secretRef: Forbidden"],
        );
        check(
            "/spec/volumes/0",
            json!({"name": "v", "projected": {"sources": [
                {"clusterTrustBundle": {"path": "a"}}, {"podCertificate": {}}]}}),
            &[
                "spec.volumes[0].projected.sources[0].clusterTrustBundle: Forbidden",
                "spec.volumes[0].projected.sources[1].podCertificate: Forbidden",
            ],
        );
    }
}
