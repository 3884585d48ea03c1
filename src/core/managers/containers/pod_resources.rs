//! What a pod asks for as a whole, and the class of service that follows from it.
//!
//! Upstream: k8s.io/component-helpers/resource, pkg/apis/core/v1/helper/qos and
//! pkg/kubelet/types/pod_update.go, v1.36; contract.md 5.1, 6.5.

use crate::managers::pods::policy::is_sidecar;
use steplet_api::container::{Container, ResourceRequirements};
use steplet_api::pod::{Pod, ResourceList, resource};
use steplet_api::quantity::Quantity;

/// Where a pod came from; pods without it are static ones in the making, so they count as `api`.
pub const CONFIG_SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// Marks the copy of a static pod at the API server.
pub const CONFIG_MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

const CRITICAL_PRIORITY: i32 = 2_000_000_000;
const NODE_CRITICAL_CLASS: &str = "system-node-critical";

/// Quality of service: who suffers first when the node runs short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

/// The amount of a resource, none when it is absent or zero.
pub fn amount<'a>(list: &'a ResourceList, name: &str) -> Option<&'a Quantity> {
    list.get(name).filter(|quantity| !quantity.is_zero())
}

/// Bytes of memory in a list, 0 when it names none.
pub fn memory_bytes(list: &ResourceList) -> i64 {
    list.get(resource::MEMORY).map_or(0, Quantity::value)
}

/// Thousandths of a CPU in a list, 0 when it names none.
pub fn cpu_milli(list: &ResourceList) -> i64 {
    list.get(resource::CPU).map_or(0, Quantity::milli_value)
}

/// Whether it is a file or URL of this node that holds the pod.
pub fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION);
    source.is_some_and(|source| &**source != "api")
}

/// Whether the pod must not suffer for others: static, the mirror of a static one, or of a high
/// priority.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod)
        || pod.metadata.annotations.contains_key(CONFIG_MIRROR_ANNOTATION)
        || pod.spec.priority.is_some_and(|priority| priority >= CRITICAL_PRIORITY)
}

/// Whether the node itself does not work without the pod.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && &*pod.spec.priority_class_name == NODE_CRITICAL_CLASS
}

/// What the pod asks for, with its overhead.
pub fn pod_requests(pod: &Pod) -> ResourceList {
    let mut requests = pod_requests_without_overhead(pod);
    add_list(&mut requests, &pod.spec.overhead);
    requests
}

pub fn pod_requests_without_overhead(pod: &Pod) -> ResourceList {
    let mut requests = container_requests(pod);
    replace_by_pod_level(&mut requests, pod.spec.resources.as_deref().map(|r| &r.requests));
    requests
}

/// What the containers ask for together, without what the pod sets for itself.
pub fn container_requests(pod: &Pod) -> ResourceList {
    sum_of_containers(pod, |container| &container.resources.requests)
}

/// The limits of the pod; the overhead is added to those that are set.
pub fn pod_limits(pod: &Pod) -> ResourceList {
    let mut limits = pod_limits_without_overhead(pod);
    for (name, overhead) in &pod.spec.overhead {
        if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
            *limit = limit.add(overhead);
        }
    }
    limits
}

pub fn pod_limits_without_overhead(pod: &Pod) -> ResourceList {
    let mut limits = sum_of_containers(pod, |container| &container.resources.limits);
    replace_by_pod_level(&mut limits, pod.spec.resources.as_deref().map(|r| &r.limits));
    limits
}

/// Resources that the pod sets for itself (KEP-2837), if it sets any that counts.
pub fn pod_level(pod: &Pod) -> Option<&ResourceRequirements> {
    let set = pod.spec.resources.as_deref()?;
    set.requests.keys().chain(set.limits.keys()).any(|name| is_pod_level(name)).then_some(set)
}

/// Whether every container that runs side by side has a limit of this resource, or the pod has.
pub fn limit_declared(pod: &Pod, name: &str) -> bool {
    if pod_level(pod).is_some_and(|set| amount(&set.limits, name).is_some()) {
        return true;
    }
    let has = |container: &Container| amount(&container.resources.limits, name).is_some();
    // An init container runs beside the sidecars before it: one limit among them is enough.
    let mut sidecar_has = false;
    let inits = pod.spec.init_containers.iter().all(|init| {
        let declared = has(init) || sidecar_has;
        sidecar_has |= is_sidecar(init) && has(init);
        declared
    });
    inits && pod.spec.containers.iter().all(has)
}

/// The class of service by what the containers, or the pod itself, ask for in CPU and memory.
pub fn qos_class(pod: &Pod) -> QosClass {
    let mut requests = ResourceList::new();
    let mut limits = ResourceList::new();
    let mut all_limited = true;
    let mut take = |set: &ResourceRequirements, must_limit: bool| {
        add_qos(&mut requests, &set.requests);
        add_qos(&mut limits, &set.limits);
        let limited = [resource::CPU, resource::MEMORY].map(|name| is_positive(&set.limits, name));
        all_limited &= limited == [true, true] || !must_limit;
    };
    match pod.spec.resources.as_deref() {
        Some(set) => take(set, !set.limits.is_empty()),
        None => {
            let all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
            all.for_each(|container| take(&container.resources, true));
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return QosClass::BestEffort;
    }
    if all_limited && requests == limits { QosClass::Guaranteed } else { QosClass::Burstable }
}

/// The sum over main containers and sidecars, or what initialization needs where that is more.
fn sum_of_containers(pod: &Pod, of: impl Fn(&Container) -> &ResourceList) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in &pod.spec.containers {
        add_list(&mut sum, of(container));
    }
    let mut sidecars = ResourceList::new();
    let mut most = ResourceList::new();
    for init in &pod.spec.init_containers {
        if is_sidecar(init) {
            add_list(&mut sum, of(init));
            add_list(&mut sidecars, of(init));
            raise_list(&mut most, &sidecars);
        } else {
            let mut now = sidecars.clone();
            add_list(&mut now, of(init));
            raise_list(&mut most, &now);
        }
    }
    raise_list(&mut sum, &most);
    sum
}

fn replace_by_pod_level(list: &mut ResourceList, set: Option<&ResourceList>) {
    for (name, quantity) in set.into_iter().flatten().filter(|(name, _)| is_pod_level(name)) {
        list.insert(name.clone(), *quantity);
    }
}

fn is_pod_level(name: &str) -> bool {
    name == resource::CPU
        || name == resource::MEMORY
        || name.starts_with(resource::HUGEPAGES_PREFIX)
}

fn add_list(sum: &mut ResourceList, list: &ResourceList) {
    for (name, quantity) in list {
        add_one(sum, name, quantity);
    }
}

fn add_one(sum: &mut ResourceList, name: &str, quantity: &Quantity) {
    match sum.get_mut(name) {
        Some(total) => *total = total.add(quantity),
        None => _ = sum.insert(name.into(), *quantity),
    }
}

fn raise_list(most: &mut ResourceList, list: &ResourceList) {
    for (name, quantity) in list {
        match most.get_mut(name) {
            Some(total) if *total >= *quantity => {}
            _ => _ = most.insert(name.clone(), *quantity),
        }
    }
}

fn add_qos(sum: &mut ResourceList, list: &ResourceList) {
    for name in [resource::CPU, resource::MEMORY] {
        if is_positive(list, name) {
            add_one(sum, name, &list[name]);
        }
    }
}

fn is_positive(list: &ResourceList, name: &str) -> bool {
    list.get(name).is_some_and(|quantity| !quantity.is_zero() && !quantity.is_negative())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::pods::sample::pod;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn classes_of_service() {
        fn check(spec: &str, want: QosClass) {
            assert_eq!(qos_class(&pod(spec)), want, "{spec}");
        }
        const FULL: &str = r#""resources":{"limits":{"cpu":"100m","memory":"32Mi"},
            "requests":{"cpu":"0.1","memory":"33554432"}}"#;
        check(r#"{"containers":[{"name":"a"}]}"#, QosClass::BestEffort);
        check(&format!(r#"{{"containers":[{{"name":"a",{FULL}}}]}}"#), QosClass::Guaranteed);
        check(
            &format!(r#"{{"containers":[{{"name":"a",{FULL}}},{{"name":"b"}}]}}"#),
            QosClass::Burstable,
        );
        check(
            &format!(
                r#"{{"initContainers":[{{"name":"i"}}],"containers":[{{"name":"a",{FULL}}}]}}"#
            ),
            QosClass::Burstable,
        );
        check(
            r#"{"containers":[{"name":"a","resources":{"limits":{"cpu":"1","memory":"1"}}}]}"#,
            QosClass::Burstable,
        );
        check(
            r#"{"containers":[{"name":"a","resources":{"requests":{"example.com/gpu":"1"}}}]}"#,
            QosClass::BestEffort,
        );
        check(
            r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"0"}}}]}"#,
            QosClass::BestEffort,
        );
        check(&format!(r#"{{{FULL},"containers":[{{"name":"a"}}]}}"#), QosClass::Guaranteed);
        check(
            r#"{"resources":{"requests":{"cpu":"1"}},"containers":[{"name":"a"}]}"#,
            QosClass::Burstable,
        );
    }

    #[test]
    fn sums() {
        fn check(spec: &str, cpu_request: &str, cpu_limit: &str, declared: bool) {
            let pod = pod(spec);
            let of = |list: ResourceList| list.get("cpu").map(Quantity::to_string);
            assert_eq!(of(pod_requests(&pod)).unwrap_or_default(), cpu_request, "{spec}");
            assert_eq!(of(pod_limits(&pod)).unwrap_or_default(), cpu_limit, "{spec}");
            assert_eq!(limit_declared(&pod, "cpu"), declared, "{spec}");
        }
        check(r#"{"containers":[{"name":"a"}]}"#, "", "", false);
        check(
            r#"{"containers":[{"name":"a","resources":{"requests":{"cpu":"100m"}}},
                {"name":"b","resources":{"requests":{"cpu":"200m"},"limits":{"cpu":"1"}}}]}"#,
            "300m",
            "1",
            false,
        );
        // An init container that needs more than all others, beside the sidecar before it.
        check(
            r#"{"initContainers":[
                {"name":"s","restartPolicy":"Always","resources":{"requests":{"cpu":"50m"}}},
                {"name":"i","resources":{"requests":{"cpu":"500m"}}}],
                "containers":[{"name":"a","resources":{"requests":{"cpu":"100m"}}}]}"#,
            "550m",
            "",
            false,
        );
        check(
            r#"{"overhead":{"cpu":"50m"},"containers":[{"name":"a",
                "resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"100m"}}}]}"#,
            "150m",
            "150m",
            true,
        );
        check(
            r#"{"resources":{"requests":{"cpu":"2"},"limits":{"cpu":"3"}},
                "containers":[{"name":"a","resources":{"requests":{"cpu":"100m"}}}]}"#,
            "2",
            "3",
            true,
        );
    }

    #[test]
    fn critical_pods() {
        let mut pod = pod(r#"{"containers":[]}"#);
        assert_eq!([is_static(&pod), is_critical(&pod), is_node_critical(&pod)], [false; 3]);
        pod.spec.priority = Some(CRITICAL_PRIORITY);
        assert_eq!([is_static(&pod), is_critical(&pod)], [false, true]);
        pod.spec.priority_class_name = NODE_CRITICAL_CLASS.into();
        assert!(is_node_critical(&pod));
        pod.spec.priority = None;
        assert!(!is_node_critical(&pod));
        pod.metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION.into(), "file".into());
        assert_eq!([is_static(&pod), is_node_critical(&pod)], [true, true]);
        pod.metadata.annotations.insert(CONFIG_SOURCE_ANNOTATION.into(), "api".into());
        assert!(!is_critical(&pod));
    }
}
