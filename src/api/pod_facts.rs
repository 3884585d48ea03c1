//! What follows from a pod alone and several managers ask: its class, its rank, its resources, its
//! names.
//!
//! Upstream: k8s.io/component-helpers/resource, pkg/apis/core/v1/helper/qos, pkg/kubelet/types
//! (1.36).

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::container::{Container, ContainerPort, ResourceRequirements};
use crate::pod::{Pod, PodSpec, ResourceList, resource, restart_policy};
use crate::quantity::Quantity;

/// Annotations by which a kubelet knows where a pod came from.
pub mod annotation {
    /// `api`, `file` or `http`.
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    /// When the pod was first seen, RFC3339Nano.
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    /// The hash of a static pod, which is its UID here.
    pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
    /// On a mirror pod, the hash of the static pod it stands for.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
}

/// The value of `CONFIG_SOURCE` for pods from the API server.
pub const SOURCE_API: &str = "api";
/// From this priority on, a pod is critical to its cluster.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;
pub const SYSTEM_NODE_CRITICAL: &str = "system-node-critical";

/// How a pod is treated when the node runs short; best treated first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }

    fn parse(text: &str) -> Option<QosClass> {
        let all = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort];
        all.into_iter().find(|class| class.as_str() == text)
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The class that the API server wrote into the status, else what follows from the spec.
pub fn qos_class(pod: &Pod) -> QosClass {
    QosClass::parse(&pod.status.qos_class).unwrap_or_else(|| qos_class_of_spec(&pod.spec))
}

/// Guaranteed: every container, init containers too, limits cpu and memory, and requests just that.
/// BestEffort: no container says anything. Resources of the pod as a whole, even empty ones, take the
/// place of those of its containers.
pub fn qos_class_of_spec(spec: &PodSpec) -> QosClass {
    let mut requests = ResourceList::new();
    let mut limits = ResourceList::new();
    let mut all_limited = true;
    let mut count = |resources: &ResourceRequirements, counted: bool| {
        add_all(&mut requests, &cpu_and_memory(&resources.requests));
        let limited = cpu_and_memory(&resources.limits);
        all_limited &= limited.len() == 2 || !counted;
        add_all(&mut limits, &limited);
    };
    match spec.resources.as_deref() {
        Some(resources) => count(resources, !resources.limits.is_empty()),
        None => spec
            .containers
            .iter()
            .chain(&spec.init_containers)
            .for_each(|container| count(&container.resources, true)),
    }
    if requests.is_empty() && limits.is_empty() {
        QosClass::BestEffort
    } else if all_limited && requests == limits {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

fn cpu_and_memory(list: &ResourceList) -> ResourceList {
    let counts = |name: &str| matches!(name, resource::CPU | resource::MEMORY);
    let positive = list.iter().filter(|(name, amount)| counts(name) && **amount > Quantity::ZERO);
    positive.map(|(name, amount)| (name.clone(), *amount)).collect()
}

/// From a file or URL rather than the API server.
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get(annotation::CONFIG_SOURCE);
    source.is_some_and(|source| &**source != SOURCE_API)
}

/// The API server's picture of a static pod.
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.contains_key(annotation::CONFIG_MIRROR)
}

/// Admitted before others and evicted after them.
pub fn is_critical(pod: &Pod) -> bool {
    let priority = pod.spec.priority.unwrap_or(0);
    is_static(pod) || is_mirror(pod) || priority >= SYSTEM_CRITICAL_PRIORITY
}

pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && &*pod.spec.priority_class_name == SYSTEM_NODE_CRITICAL
}

/// An init container that keeps running beside the main ones.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some(restart_policy::ALWAYS)
}

/// `NAME_NAMESPACE`, by which instances of one static pod are told to be the same.
pub fn full_name(pod: &Pod) -> String {
    format!("{}_{}", pod.metadata.name, pod.metadata.namespace)
}

/// Ports of the node that the pod takes while it runs, those of sidecars included.
pub fn host_ports(spec: &PodSpec) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec.init_containers.iter().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0)
}

/// What the pod as a whole asks for at its worst moment, overhead included: the reserve for it on
/// the node.
pub fn effective_requests(spec: &PodSpec) -> ResourceList {
    let mut total = container_requests(spec);
    let pod_level = pod_level_resources(spec).map(|resources| &resources.requests);
    override_with(&mut total, pod_level);
    add_all(&mut total, &spec.overhead);
    total
}

/// The limit of the pod as a whole. A resource that only some containers limit is in it too: ask
/// `is_limited`. Overhead counts where there is a limit.
pub fn effective_limits(spec: &PodSpec) -> ResourceList {
    let mut total = container_limits(spec);
    let pod_level = pod_level_resources(spec).map(|resources| &resources.limits);
    override_with(&mut total, pod_level);
    for (name, limit) in &mut total {
        if let Some(overhead) = spec.overhead.get(name).filter(|_| !limit.is_zero()) {
            *limit = limit.add(overhead);
        }
    }
    total
}

/// Whether the pod as a whole is limited in a resource: by itself, or by each of its containers.
pub fn is_limited(spec: &PodSpec, resource: &str) -> bool {
    let limits = |resources: &ResourceRequirements| {
        resources.limits.get(resource).is_some_and(|limit| !limit.is_zero())
    };
    let mut containers = spec.containers.iter().chain(&spec.init_containers);
    pod_level_resources(spec).is_some_and(limits)
        || containers.all(|container| limits(&container.resources))
}

/// The requests of the pod as a whole, if it has any that count there.
pub fn pod_level_resources(spec: &PodSpec) -> Option<&ResourceRequirements> {
    let resources = spec.resources.as_deref()?;
    let mut names = resources.requests.keys().chain(resources.limits.keys());
    names.any(|name| is_pod_level_resource(name)).then_some(resources)
}

/// Resources that may be given for a pod as a whole.
pub fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, resource::CPU | resource::MEMORY) || name.starts_with(resource::HUGEPAGES_PREFIX)
}

/// A name that somebody outside of Kubernetes has made up, such as `example.com/gpu`.
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// The requests of all containers together, without those of the pod and its overhead.
pub fn container_requests(spec: &PodSpec) -> ResourceList {
    aggregate(spec, |container| &container.resources.requests)
}

/// The limits of all containers together, without those of the pod.
pub fn container_limits(spec: &PodSpec) -> ResourceList {
    aggregate(spec, |container| &container.resources.limits)
}

/// While a pod starts, one init container runs at a time, beside the sidecars before it; afterwards
/// all main containers and all sidecars run. The pod needs the most of these.
fn aggregate(spec: &PodSpec, list: fn(&Container) -> &ResourceList) -> ResourceList {
    let mut total = ResourceList::new();
    for container in &spec.containers {
        add_all(&mut total, list(container));
    }
    let mut sidecars = ResourceList::new();
    let mut starting = ResourceList::new();
    for container in &spec.init_containers {
        if is_sidecar(container) {
            add_all(&mut total, list(container));
            add_all(&mut sidecars, list(container));
            raise_all(&mut starting, &sidecars);
        } else {
            let mut now = sidecars.clone();
            add_all(&mut now, list(container));
            raise_all(&mut starting, &now);
        }
    }
    raise_all(&mut total, &starting);
    total
}

fn add_all(total: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |sum| sum.add(amount));
        total.insert(name.clone(), sum);
    }
}

fn raise_all(total: &mut ResourceList, floor: &ResourceList) {
    for (name, amount) in floor {
        if total.get(name).is_none_or(|present| present < amount) {
            total.insert(name.clone(), *amount);
        }
    }
}

fn override_with(total: &mut ResourceList, pod_level: Option<&ResourceList>) {
    let counting = pod_level.into_iter().flatten().filter(|(name, _)| is_pod_level_resource(name));
    total.extend(counting.map(|(name, amount)| (Box::clone(name), *amount)));
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use super::*;

    fn spec(spec: Value) -> PodSpec {
        serde_json::from_value(spec).expect("a spec")
    }

    /// A container with requests and limits, each `CPU MEMORY` or empty.
    fn container(requests: &str, limits: &str) -> Value {
        let list = |text: &str| match text.split_once(' ') {
            Some((cpu, memory)) => json!({"cpu": cpu, "memory": memory}),
            None if text.is_empty() => json!({}),
            None => json!({"cpu": text}),
        };
        json!({"name": "c", "resources": {"requests": list(requests), "limits": list(limits)}})
    }

    fn sidecar(requests: &str) -> Value {
        let mut sidecar = container(requests, "");
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    }

    #[test]
    fn classes() {
        fn check(containers: Value, init: Value, pod_level: Value, want: QosClass) {
            let spec = json!({"containers": containers, "initContainers": init,
                "resources": pod_level});
            assert_eq!(qos_class_of_spec(&self::spec(spec.clone())), want, "{spec}");
        }
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let none = || json!(null);
        let full = container("1 1Gi", "1 1024Mi");
        let empty = container("", "");
        check(json!([empty]), json!([]), none(), BestEffort);
        check(json!([container("0 0", "")]), json!([]), none(), BestEffort);
        check(json!([full]), json!([]), none(), Guaranteed);
        check(json!([full, full]), json!([full]), none(), Guaranteed);
        check(json!([full]), json!([empty]), none(), Burstable);
        check(json!([full, empty]), json!([]), none(), Burstable);
        check(json!([container("1 1Gi", "2 1Gi")]), json!([]), none(), Burstable);
        check(json!([container("", "1 1Gi")]), json!([]), none(), Burstable);
        check(json!([container("1", "1")]), json!([]), none(), Burstable);
        let pod_level = json!({"requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"}});
        check(json!([empty]), json!([]), pod_level, Guaranteed);
        check(json!([full]), json!([]), json!({}), BestEffort);
        check(json!([full]), json!([]), json!({"requests": {"cpu": "1"}}), Burstable);
        check(
            json!([full]),
            json!([]),
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}),
            Burstable,
        );
        let ephemeral_storage = json!({"resources": {"requests": {"ephemeral-storage": "1Gi"}}});
        check(json!([ephemeral_storage]), json!([]), none(), BestEffort);
    }

    #[test]
    fn the_class_in_the_status_counts() {
        let mut pod = Pod::default();
        assert_eq!(qos_class(&pod), QosClass::BestEffort);
        pod.status.qos_class = "Guaranteed".into();
        assert_eq!(qos_class(&pod), QosClass::Guaranteed);
        pod.status.qos_class = "Best".into();
        assert_eq!(qos_class(&pod), QosClass::BestEffort);
    }

    #[test]
    fn requests_at_the_worst_moment() {
        fn check(containers: Value, init: Value, more: Value, want: Value) {
            let mut spec = json!({"containers": containers, "initContainers": init});
            spec.as_object_mut()
                .expect("made so")
                .extend(more.as_object().cloned().unwrap_or_default());
            let got = effective_requests(&self::spec(spec));
            assert_eq!(serde_json::to_value(got).expect("JSON"), want);
        }
        let main = container("1 1Gi", "");
        let none = || json!({});
        check(json!([]), json!([]), none(), json!({}));
        check(json!([main, main]), json!([]), none(), json!({"cpu": "2", "memory": "2Gi"}));
        check(
            json!([main]),
            json!([container("3 1Mi", "")]),
            none(),
            json!({"cpu": "3", "memory": "1Gi"}),
        );
        // Sidecars run beside the main containers, and beside the init containers after them.
        let init = [container("3", ""), sidecar("2 1Gi"), container("2", "")];
        check(json!([main]), json!(init), none(), json!({"cpu": "4", "memory": "2Gi"}));
        let init = [container("4500m", ""), sidecar("2 1Gi")];
        check(json!([main]), json!(init), none(), json!({"cpu": "4500m", "memory": "2Gi"}));
        check(
            json!([main]),
            json!([]),
            json!({"overhead": {"cpu": "250m"},
                "resources": {"requests": {"cpu": "5", "x.y/z": "1"}}}),
            json!({"cpu": "5250m", "memory": "1Gi"}),
        );
    }

    #[test]
    fn limits_of_the_whole() {
        let all = spec(json!({"containers": [container("", "1 1Gi"), container("", "1 1Gi")],
            "overhead": {"cpu": "100m", "pods": "1"}}));
        let some = spec(json!({"containers": [container("", "1 1Gi"), container("", "1")]}));
        let whole = spec(json!({"containers": [container("", "1")],
            "resources": {"limits": {"memory": "3Gi"}}}));
        let limits = |spec| serde_json::to_value(effective_limits(spec)).expect("JSON");
        assert_eq!(limits(&all), json!({"cpu": "2100m", "memory": "2Gi"}));
        assert_eq!(limits(&some), json!({"cpu": "2", "memory": "1Gi"}));
        assert_eq!(limits(&whole), json!({"cpu": "1", "memory": "3Gi"}));
        assert!(is_limited(&all, "memory") && is_limited(&all, "cpu"));
        assert!(!is_limited(&some, "memory") && is_limited(&some, "cpu"));
        assert!(is_limited(&whole, "memory") && is_limited(&whole, "cpu"));
    }

    #[test]
    fn ranks_and_names() {
        fn check(annotations: Value, spec: Value, want: [bool; 4]) {
            let pod: Pod = serde_json::from_value(
                json!({"metadata": {"annotations": annotations}, "spec": spec}),
            )
            .expect("a pod");
            let got = [is_static(&pod), is_mirror(&pod), is_critical(&pod), is_node_critical(&pod)];
            assert_eq!(got, want);
        }
        let node_critical = json!({"priorityClassName": "system-node-critical"});
        check(json!({}), json!({}), [false; 4]);
        check(json!({}), node_critical.clone(), [false; 4]);
        check(json!({}), json!({"priority": 1_999_999_999}), [false; 4]);
        check(json!({}), json!({"priority": 2_000_000_000}), [false, false, true, false]);
        let from = |source| json!({"kubernetes.io/config.source": source});
        check(from("api"), json!({}), [false; 4]);
        check(from("file"), json!({}), [true, false, true, false]);
        check(from("http"), node_critical, [true, false, true, true]);
        check(json!({"kubernetes.io/config.mirror": "x"}), json!({}), [false, true, true, false]);

        let mut pod = Pod::default();
        pod.metadata.name = "web".into();
        pod.metadata.namespace = "shop".into();
        assert_eq!(full_name(&pod), "web_shop");
    }

    #[test]
    fn ports_of_the_node() {
        let port = |number| json!({"ports": [{"hostPort": number, "containerPort": 1}]});
        let mut sidecar = port(2);
        sidecar["restartPolicy"] = json!("Always");
        let spec =
            spec(json!({"containers": [port(1), port(0)], "initContainers": [sidecar, port(3)]}));
        assert_eq!(host_ports(&spec).map(|port| port.host_port).collect::<Vec<_>>(), [1, 2]);
    }
}
