//! The values that core/v1 gives to fields of a pod that were left out. Later code may rely on them
//! being there.
//!
//! Upstream: k8s.io/kubernetes/pkg/apis/core/v1/defaults.go (1.36, gates as shipped). Volume
//! sources that are known by name only are left as they came. What only a kubelet adds to static
//! pods (UID, name, node) is not done here.

use alloc::boxed::Box;

use crate::container::{
    Container, ContainerPort, HttpGetAction, LifecycleHandler, ObjectFieldSelector, Probe,
    ResourceRequirements, protocol, pull_policy, scheme, termination_message_policy,
};
use crate::image::ImageReference;
use crate::pod::{Pod, PodSpec, ResourceList, dns_policy, resource, restart_policy};
use crate::pod_facts;
use crate::volume::{DownwardApiVolumeFile, HostPathVolumeSource, Volume};

const GRACE_SECONDS: i64 = 30;
const FILE_MODE: i32 = 0o644;
const TOKEN_SECONDS: i64 = 3600;

/// Fills in a pod of any source. Applied twice, it changes nothing the second time.
pub fn apply(pod: &mut Pod) {
    let spec = &mut pod.spec;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        fill_container(container);
        requests_from_limits(&mut container.resources);
    }
    for ephemeral in &mut spec.ephemeral_containers {
        fill_container(&mut ephemeral.container);
    }
    spec.volumes.iter_mut().for_each(fill_volume);
    fill_spec(spec);
    fill_pod_level_resources(spec);
    let statuses = (pod.status.container_statuses.iter_mut())
        .chain(&mut pod.status.init_container_statuses)
        .chain(&mut pod.status.ephemeral_container_statuses);
    for status in statuses {
        round(&mut status.allocated_resources);
        status.resources.iter_mut().for_each(|resources| round_requirements(resources));
    }
}

fn fill_spec(spec: &mut PodSpec) {
    fill(&mut spec.restart_policy, restart_policy::ALWAYS);
    fill(&mut spec.dns_policy, dns_policy::CLUSTER_FIRST);
    fill(&mut spec.scheduler_name, "default-scheduler");
    // Both names of this field are kept equal; the newer one counts.
    if spec.service_account_name.is_empty() {
        spec.service_account_name = spec.service_account.clone();
    }
    spec.service_account = spec.service_account_name.clone();
    spec.termination_grace_period_seconds.get_or_insert(GRACE_SECONDS);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    round(&mut spec.overhead);
    if spec.host_network {
        let containers = spec.init_containers.iter_mut().chain(&mut spec.containers);
        containers.flat_map(|container| &mut container.ports).for_each(publish_on_host);
    }
}

/// In the node's network every port is a port of the node.
fn publish_on_host(port: &mut ContainerPort) {
    if port.host_port == 0 {
        port.host_port = port.container_port;
    }
}

fn fill_container(container: &mut Container) {
    fill(&mut container.image_pull_policy, default_pull_policy(&container.image));
    fill(&mut container.termination_message_path, "/dev/termination-log");
    fill(&mut container.termination_message_policy, termination_message_policy::FILE);
    container.ports.iter_mut().for_each(|port| fill(&mut port.protocol, protocol::TCP));
    let sources = container.env.iter_mut().filter_map(|env| env.value_from.as_deref_mut());
    sources.filter_map(|source| source.field_ref.as_mut()).for_each(fill_field_ref);
    round_requirements(&mut container.resources);
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(|probe| fill_probe(probe));
    if let Some(lifecycle) = &mut container.lifecycle {
        let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
        let http = hooks
            .into_iter()
            .flatten()
            .filter_map(|hook: &mut Box<LifecycleHandler>| hook.http_get.as_deref_mut());
        http.for_each(fill_http_get);
    }
}

/// `Always` for an image whose tag may move: `latest`, said or meant. A name that cannot be read
/// has no tag.
fn default_pull_policy(image: &str) -> &'static str {
    let tag = ImageReference::parse(image).and_then(|image| image.effective_tag());
    if tag == Some("latest") { pull_policy::ALWAYS } else { pull_policy::IF_NOT_PRESENT }
}

fn fill_probe(probe: &mut Probe) {
    fill_number(&mut probe.timeout_seconds, 1);
    fill_number(&mut probe.period_seconds, 10);
    fill_number(&mut probe.success_threshold, 1);
    fill_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(|action| fill_http_get(action));
    if let Some(action) = &mut probe.grpc {
        action.service.get_or_insert_default();
    }
}

fn fill_http_get(action: &mut HttpGetAction) {
    fill(&mut action.path, "/");
    fill(&mut action.scheme, scheme::HTTP);
}

fn fill_volume(volume: &mut Volume) {
    if volume.sources().next().is_none() {
        volume.empty_dir = Some(Box::default());
    }
    if let Some(HostPathVolumeSource { type_, .. }) = volume.host_path.as_deref_mut() {
        type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
        fill_downward_files(&mut source.items);
    }
    if let Some(source) = &mut volume.image {
        fill(&mut source.pull_policy, default_pull_policy(&source.reference));
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(FILE_MODE);
        for projection in &mut source.sources {
            if let Some(token) = &mut projection.service_account_token {
                token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
            }
            if let Some(files) = &mut projection.downward_api {
                fill_downward_files(&mut files.items);
            }
        }
    }
}

fn fill_downward_files(files: &mut [DownwardApiVolumeFile]) {
    files.iter_mut().filter_map(|file| file.field_ref.as_mut()).for_each(fill_field_ref);
}

fn fill_field_ref(selector: &mut ObjectFieldSelector) {
    fill(&mut selector.api_version, "v1");
}

/// Who limits a resource and does not ask for it asks for as much as the limit.
fn requests_from_limits(resources: &mut ResourceRequirements) {
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
    }
}

/// A pod with resources as a whole: limits of huge pages come from the containers; if it then has any
/// limit, requests come from the containers, or else from the limits. Huge pages cannot be
/// overcommitted, so their requests are the limits.
fn fill_pod_level_resources(spec: &mut PodSpec) {
    let container_limits = pod_facts::container_limits(spec);
    let container_requests = pod_facts::container_requests(spec);
    let Some(resources) = spec.resources.as_deref_mut() else {
        return;
    };
    if resources.limits.is_empty() && resources.requests.is_empty() {
        return;
    }
    round_requirements(resources);
    let is_huge_page = |name: &str| name.starts_with(resource::HUGEPAGES_PREFIX);
    for (name, limit) in container_limits.into_iter().filter(|(name, _)| is_huge_page(name)) {
        if !resources.requests.contains_key(&name) {
            resources.limits.entry(name).or_insert(limit);
        }
    }
    if resources.limits.is_empty() {
        return;
    }
    let of_containers = container_requests.into_iter().filter(|(name, _)| !is_huge_page(name));
    let of_limits = resources.limits.iter().map(|(name, limit)| (name.clone(), *limit));
    for (name, request) in of_containers.chain(of_limits) {
        if pod_facts::is_pod_level_resource(&name) {
            resources.requests.entry(name).or_insert(request);
        }
    }
}

/// Amounts below a thousandth do not exist in the API.
fn round(list: &mut ResourceList) {
    list.values_mut().for_each(|amount| *amount = amount.round_to_milli());
}

fn round_requirements(resources: &mut ResourceRequirements) {
    round(&mut resources.limits);
    round(&mut resources.requests);
}

fn fill(field: &mut Box<str>, value: &str) {
    if field.is_empty() {
        *field = value.into();
    }
}

fn fill_number(field: &mut i32, value: i32) {
    if *field == 0 {
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The part of a pod at `pointer` after defaulting.
    fn defaulted(pod: &Value, pointer: &str) -> Value {
        let mut pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
        apply(&mut pod);
        let once = pod.clone();
        apply(&mut pod);
        assert_eq!(pod, once);
        serde_json::to_value(&pod).expect("JSON").pointer(pointer).cloned().unwrap_or_default()
    }

    #[test]
    fn of_a_spec() {
        fn check(spec: Value, want: Value) {
            assert_eq!(defaulted(&json!({ "spec": spec }), "/spec"), want);
        }
        check(
            json!({}),
            json!({"containers": [], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
                "enableServiceLinks": true, "securityContext": {}}),
        );
        let given = json!({"containers": [], "restartPolicy": "Never", "dnsPolicy": "None",
            "schedulerName": "s", "terminationGracePeriodSeconds": 0, "enableServiceLinks": false,
            "securityContext": {"runAsUser": 0}, "serviceAccountName": "a", "serviceAccount": "a"});
        check(given.clone(), given);
    }

    #[test]
    fn of_a_container() {
        fn check(container: Value, want: Value) {
            let pod = json!({"spec": {"containers": [container], "hostNetwork": true}});
            let mut got = defaulted(&pod, "/spec/containers/0");
            let got = got.as_object_mut().expect("an object");
            for (key, value) in want.as_object().expect("an object") {
                assert_eq!(got.get(key), Some(value), "{key}");
            }
        }
        check(
            json!({"name": "a", "image": "x"}),
            json!({"imagePullPolicy": "Always", "terminationMessagePolicy": "File",
                "terminationMessagePath": "/dev/termination-log"}),
        );
        check(
            json!({"ports": [{"containerPort": 1}, {"containerPort": 2, "hostPort": 3}]}),
            json!({"ports": [
                {"containerPort": 1, "hostPort": 1, "protocol": "TCP"},
                {"containerPort": 2, "hostPort": 3, "protocol": "TCP"}]}),
        );
        check(
            json!({"livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 3}}),
            json!({"livenessProbe": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 3, "successThreshold": 1,
                "failureThreshold": 3}}),
        );
        check(
            json!({"lifecycle": {"preStop": {"httpGet": {"port": "a", "scheme": "HTTPS"}}}}),
            json!({"lifecycle": {"preStop":
                {"httpGet": {"port": "a", "path": "/", "scheme": "HTTPS"}}}}),
        );
        check(
            json!({"resources": {"limits": {"cpu": "500u", "memory": "1Gi"},
                "requests": {"memory": "1Mi"}}}),
            json!({"resources": {"limits": {"cpu": "1m", "memory": "1Gi"},
                "requests": {"cpu": "1m", "memory": "1Mi"}}}),
        );
        check(
            json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}),
            json!({"env": [{"name": "A",
                "valueFrom": {"fieldRef": {"fieldPath": "x", "apiVersion": "v1"}}}]}),
        );
    }

    #[test]
    fn of_the_pull_policy() {
        fn check(image: &str, want: &str) {
            assert_eq!(default_pull_policy(image), want, "{image}");
        }
        check("x", "Always");
        check("r:5000/x", "Always");
        check("x:latest", "Always");
        check("x:Latest", "IfNotPresent");
        check("x:1", "IfNotPresent");
        let digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        check(&["x", digest].concat(), "IfNotPresent");
        check(&["x:latest", digest].concat(), "Always");
        check("Not:latest", "IfNotPresent");
        check("", "IfNotPresent");
    }

    #[test]
    fn of_a_volume() {
        fn check(volume: Value, want: Value) {
            assert_eq!(defaulted(&json!({"spec": {"volumes": [volume]}}), "/spec/volumes/0"), want);
        }
        check(json!({"name": "v"}), json!({"name": "v", "emptyDir": {}}));
        check(
            json!({"name": "v", "nfs": {"path": "/"}}),
            json!({"name": "v", "nfs": {"path": "/"}}),
        );
        check(
            json!({"name": "v", "hostPath": {"path": "/"}}),
            json!({"name": "v", "hostPath": {"path": "/", "type": ""}}),
        );
        check(
            json!({"name": "v", "configMap": {"name": "c", "defaultMode": 0}}),
            json!({"name": "v", "configMap": {"name": "c", "defaultMode": 0}}),
        );
        check(
            json!({"name": "v", "secret": {}}),
            json!({"name": "v", "secret": {"defaultMode": 420}}),
        );
        check(
            json!({"name": "v", "projected": {"sources": [
                {"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "f"}}]}}]}}),
            json!({"name": "v", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [
                    {"path": "p", "fieldRef": {"fieldPath": "f", "apiVersion": "v1"}}]}}]}}),
        );
        check(
            json!({"name": "v", "image": {"reference": "x:1"}}),
            json!({"name": "v", "image": {"reference": "x:1", "pullPolicy": "IfNotPresent"}}),
        );
    }

    /// The wanted values are those of upstream for the same pods.
    #[test]
    fn of_pod_level_resources() {
        fn check(pod_level: Value, containers: Value, want: Value) {
            let pod = json!({"spec": {"resources": pod_level, "containers": containers}});
            assert_eq!(defaulted(&pod, "/spec/resources"), want);
        }
        let modest = json!({"resources": {"requests": {"cpu": "100m", "memory": "1Mi"}}});
        let huge = json!({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}});
        check(json!({}), json!([modest, huge]), json!({}));
        check(
            json!({"limits": {"cpu": "1", "memory": "2Gi"}}),
            json!([modest, modest]),
            json!({"limits": {"cpu": "1", "memory": "2Gi"},
                "requests": {"cpu": "200m", "memory": "2Mi"}}),
        );
        check(
            json!({"limits": {"cpu": "1", "memory": "2Gi", "hugepages-2Mi": "4Mi"}}),
            json!([huge]),
            json!({"limits": {"cpu": "1", "memory": "2Gi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "1", "memory": "2Gi", "hugepages-2Mi": "4Mi"}}),
        );
        check(
            json!({"requests": {"memory": "3Mi"}}),
            json!([modest]),
            json!({"requests": {"memory": "3Mi"}}),
        );
        check(
            json!({"limits": {"cpu": "1", "x.y/z": "1"}, "requests": {"hugepages-2Mi": "4Mi"}}),
            json!([huge]),
            json!({"limits": {"cpu": "1", "x.y/z": "1"},
                "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}}),
        );
        check(
            json!({"requests": {"memory": "3Mi"}}),
            json!([modest, huge]),
            json!({"limits": {"hugepages-2Mi": "2Mi"},
                "requests": {"cpu": "100m", "memory": "3Mi", "hugepages-2Mi": "2Mi"}}),
        );
    }
}
