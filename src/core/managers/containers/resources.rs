//! CPU, memory and huge pages of a container and of a sandbox, as the runtime is told.
//!
//! Upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
//! pkg/kubelet/cm/helpers_linux.go and pkg/kubelet/qos/policy.go, v1.36. Without
//! memory QoS, exclusive CPUs and swap: those are not supported yet, so every container is kept out
//! of swap.

use crate::event::Machine;
use crate::settings::Settings;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::container::Container;
use steplet_api::cri::{HugepageLimit, LinuxContainerResources};
use steplet_api::pod::{Pod, ResourceList, resource};
use steplet_api::pod_facts::{
    QosClass, container_limits, container_requests, is_node_critical, is_sidecar,
    pod_level_resources, qos_class,
};
use steplet_api::quantity::Quantity;

/// The kernel's bounds of cpu.shares.
pub const SHARES_MIN: u64 = 2;
pub const SHARES_MAX: u64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
/// The kernel's least quota of a period, in microseconds.
const QUOTA_MIN_US: i64 = 1000;

const GUARANTEED_OOM_SCORE_ADJ: i64 = -997;
const BEST_EFFORT_OOM_SCORE_ADJ: i64 = 1000;

/// Bytes of memory in a list, 0 when it names none.
pub fn memory_bytes(list: &ResourceList) -> i64 {
    list.get(resource::MEMORY).map_or(0, Quantity::value)
}

/// Thousandths of a CPU in a list, 0 when it names none.
pub fn cpu_milli(list: &ResourceList) -> i64 {
    list.get(resource::CPU).map_or(0, Quantity::milli_value)
}

/// What the kernel calls a page size: `64KB`, `2MB`, `1GB`.
pub fn page_size_name(bytes: u64) -> String {
    let (mut size, mut unit) = (bytes, 0);
    while size >= 1024 && size % 1024 == 0 && unit < 4 {
        size /= 1024;
        unit += 1;
    }
    format!("{size}{}", ["B", "KB", "MB", "GB", "TB"][unit])
}

/// The weight of a CPU request against others.
pub fn shares(cpu_milli: i64) -> u64 {
    let shares = cpu_milli.saturating_mul(SHARES_PER_CPU) / 1000;
    u64::try_from(shares).unwrap_or(0).clamp(SHARES_MIN, SHARES_MAX)
}

/// Microseconds of CPU time that a limit allows in a period; 0 without a limit.
pub fn quota_us(cpu_milli: i64, period_us: i64) -> i64 {
    if cpu_milli == 0 {
        return 0;
    }
    (cpu_milli.saturating_mul(period_us) / 1000).max(QUOTA_MIN_US)
}

/// What a container may use.
pub fn container_resources(
    pod: &Pod,
    container: &Container,
    settings: &Settings,
    machine: &Machine,
) -> LinuxContainerResources {
    let own = &container.resources;
    let pod_limits = pod_level_resources(&pod.spec).map(|set| &set.limits);
    let limit = |of: fn(&ResourceList) -> i64| match of(&own.limits) {
        0 => pod_limits.map_or(0, of),
        limit => limit,
    };
    let request = own.requests.get(resource::CPU).map(Quantity::milli_value);
    let memory_limit = limit(memory_bytes);
    let mut resources = linux(request, limit(cpu_milli), memory_limit, settings, machine);
    resources.oom_score_adj = oom_score_adj(pod, container, machine);
    resources.hugepage_limits = hugepage_limits(pod_limits, &own.limits, machine);
    if machine.cgroup_version == 2 {
        resources.unified.insert("memory.swap.max".into(), "0".into());
    } else {
        resources.memory_swap_limit_in_bytes = memory_limit;
    }
    resources
}

/// The sum of the containers, for runtimes that size a sandbox (a virtual machine) by it.
pub fn sandbox_resources(
    pod: &Pod,
    settings: &Settings,
    machine: &Machine,
) -> LinuxContainerResources {
    // Without the overhead, which stands beside it.
    let level = pod_level_resources(&pod.spec);
    let mut requests = container_requests(&pod.spec);
    requests.extend(level.iter().flat_map(|set| set.requests.clone()));
    let mut limits = container_limits(&pod.spec);
    limits.extend(level.iter().flat_map(|set| set.limits.clone()));
    let request = requests.get(resource::CPU).map(Quantity::milli_value);
    linux(request, cpu_milli(&limits), memory_bytes(&limits), settings, machine)
}

/// What the sandbox itself costs beside the containers: granted as request and limit.
pub fn overhead_resources(
    pod: &Pod,
    settings: &Settings,
    machine: &Machine,
) -> LinuxContainerResources {
    let overhead = &pod.spec.overhead;
    if overhead.is_empty() {
        return LinuxContainerResources::default();
    }
    let cpu = cpu_milli(overhead);
    linux(Some(cpu), cpu, memory_bytes(overhead), settings, machine)
}

fn linux(
    cpu_request_milli: Option<i64>,
    cpu_limit_milli: i64,
    memory_limit: i64,
    settings: &Settings,
    machine: &Machine,
) -> LinuxContainerResources {
    let mut resources = LinuxContainerResources {
        cpu_shares: shares(cpu_request_milli.unwrap_or(cpu_limit_milli)) as i64,
        memory_limit_in_bytes: memory_limit,
        ..LinuxContainerResources::default()
    };
    if settings.cpu_cfs_quota {
        let period = i64::try_from(settings.cpu_cfs_period_us).unwrap_or(i64::MAX);
        resources.cpu_period = period;
        resources.cpu_quota = quota_us(cpu_limit_milli, period);
    }
    if machine.cgroup_version == 2 && !settings.single_process_oom_kill {
        resources.unified.insert("memory.oom.group".into(), "1".into());
    }
    resources
}

/// Who is killed first when memory is short: the less a burstable container has reserved, the
/// sooner. A sidecar never goes before the main containers that depend on it.
fn oom_score_adj(pod: &Pod, container: &Container, machine: &Machine) -> i64 {
    let class = qos_class(pod);
    if is_node_critical(pod) || class == QosClass::Guaranteed {
        return GUARANTEED_OOM_SCORE_ADJ;
    }
    if class == QosClass::BestEffort {
        return BEST_EFFORT_OOM_SCORE_ADJ;
    }
    let memory = i64::try_from(machine.memory_bytes).unwrap_or(i64::MAX).max(1);
    let extra = unclaimed_memory_share(pod);
    let score = |request: i64| {
        let reserved = i128::from(request) + i128::from(extra);
        1000 - i64::try_from(1000 * reserved / i128::from(memory)).unwrap_or(1000)
    };
    let request = |container: &Container| memory_bytes(&container.resources.requests);
    let mut adj = score(request(container));
    let init = pod.spec.init_containers.iter().any(|init| init.name == container.name);
    if init && is_sidecar(container) {
        let least = pod.spec.containers.iter().map(request).min().unwrap_or(0);
        adj = adj.min(score(least));
    }
    adj.clamp(1000 + GUARANTEED_OOM_SCORE_ADJ, BEST_EFFORT_OOM_SCORE_ADJ - 1)
}

/// What the pod asks for beyond its containers, in equal parts.
fn unclaimed_memory_share(pod: &Pod) -> i64 {
    let Some(request) =
        pod_level_resources(&pod.spec).map(|set| memory_bytes(&set.requests)).filter(|r| *r != 0)
    else {
        return 0;
    };
    let containers = (pod.spec.containers.len() + pod.spec.init_containers.len()).max(1);
    (request - memory_bytes(&container_requests(&pod.spec))) / containers as i64
}

/// A limit for every page size that the kernel has: what is not asked for is not given.
fn hugepage_limits(
    pod_limits: Option<&ResourceList>,
    own_limits: &ResourceList,
    machine: &Machine,
) -> Vec<HugepageLimit> {
    let of = |list: &ResourceList, size| hugepages(list).find(|(s, _)| *s == size).map(|(_, b)| b);
    let sizes = machine.hugepage_sizes.iter();
    let limits = sizes.map(|size| HugepageLimit {
        page_size: page_size_name(*size),
        limit: of(own_limits, *size)
            .or_else(|| pod_limits.and_then(|list| of(list, *size)))
            .unwrap_or(0),
    });
    limits.collect()
}

/// Page size and amount, both in bytes, of the huge pages in a list.
pub fn hugepages(list: &ResourceList) -> impl Iterator<Item = (u64, u64)> {
    list.iter().filter_map(|(name, quantity)| {
        let size = Quantity::parse(name.strip_prefix(resource::HUGEPAGES_PREFIX)?).ok()?;
        Some((u64::try_from(size.value()).ok()?, u64::try_from(quantity.value()).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};

    #[test]
    fn shares_and_quotas() {
        fn check(milli: i64, want_shares: u64, want_quota: i64) {
            assert_eq!(shares(milli), want_shares, "{milli}");
            assert_eq!(quota_us(milli, 100_000), want_quota, "{milli}");
        }
        check(0, 2, 0);
        check(1, 2, 1000);
        check(3, 3, 1000);
        check(100, 102, 10_000);
        check(1000, 1024, 100_000);
        check(1_000_000, 262_144, 100_000_000);
        check(i64::MAX, 262_144, i64::MAX / 1000);
    }

    #[test]
    fn page_sizes() {
        fn check(bytes: u64, want: &str) {
            assert_eq!(page_size_name(bytes), want);
        }
        check(64 << 10, "64KB");
        check(2 << 20, "2MB");
        check(1 << 30, "1GB");
        check(1500, "1500B");
    }

    fn of(spec: &str, cgroup_version: u8) -> LinuxContainerResources {
        let pod = pod(spec);
        let machine = Machine { cgroup_version, ..machine() };
        container_resources(&pod, &pod.spec.containers[0], &settings(), &machine)
    }

    #[test]
    fn a_guaranteed_container() {
        const SPEC: &str = r#"{"containers":[{"name":"c","resources":{
            "limits":{"cpu":"100m","memory":"32Mi"},"requests":{"cpu":"100m","memory":"32Mi"}}}]}"#;
        let got = of(SPEC, 1);
        assert_eq!((got.cpu_shares, got.cpu_quota, got.cpu_period), (102, 10_000, 100_000));
        assert_eq!(got.memory_limit_in_bytes, 33_554_432);
        assert_eq!(got.memory_swap_limit_in_bytes, 33_554_432);
        assert_eq!(got.oom_score_adj, -997);
        assert!(got.unified.is_empty());
        let got = of(SPEC, 2);
        assert_eq!(got.memory_swap_limit_in_bytes, 0);
        assert_eq!(got.unified["memory.swap.max"], "0");
        assert_eq!(got.unified["memory.oom.group"], "1");
    }

    #[test]
    fn what_is_left_out() {
        let got = of(r#"{"containers":[{"name":"c"}]}"#, 1);
        assert_eq!((got.cpu_shares, got.cpu_quota, got.cpu_period), (2, 0, 100_000));
        assert_eq!((got.memory_limit_in_bytes, got.oom_score_adj), (0, 1000));
        let pages: Vec<_> = got.hugepage_limits.iter().map(|l| (&*l.page_size, l.limit)).collect();
        assert_eq!(pages, [("2MB", 0), ("1GB", 0)]);
        // The request defaults to the limit.
        let got = of(r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}"#, 1);
        assert_eq!((got.cpu_shares, got.cpu_quota), (1024, 100_000));
        // The pod's own limit stands in.
        let got = of(
            r#"{"resources":{"limits":{"cpu":"2","memory":"1Gi","hugepages-2Mi":"4Mi"}},
                "containers":[{"name":"c"}]}"#,
            1,
        );
        assert_eq!((got.cpu_quota, got.memory_limit_in_bytes), (200_000, 1 << 30));
        assert_eq!(got.hugepage_limits[0].limit, 4 << 20);
    }

    #[test]
    fn without_quota() {
        let pod = pod(r#"{"containers":[{"name":"c","resources":{"limits":{"cpu":"1"}}}]}"#);
        let settings = Settings { cpu_cfs_quota: false, ..settings() };
        let got = container_resources(&pod, &pod.spec.containers[0], &settings, &machine());
        assert_eq!((got.cpu_shares, got.cpu_quota, got.cpu_period), (1024, 0, 0));
    }

    #[test]
    fn who_is_killed_first() {
        // The machine has 1000 MiB.
        fn check(spec: &str, name: &str, want: i64) {
            let pod = pod(spec);
            let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            let container = all.find(|c| &*c.name == name).unwrap();
            assert_eq!(oom_score_adj(&pod, container, &machine()), want, "{spec} {name}");
        }
        let burst = |request: &str| {
            format!(
                r#"{{"containers":[{{"name":"c",
                "resources":{{"requests":{{"memory":"{request}"}}}}}}]}}"#
            )
        };
        check(&burst("100Mi"), "c", 900);
        check(&burst("1"), "c", 999);
        check(&burst("2000Mi"), "c", 3);
        const SIDECAR: &str = r#"{"initContainers":[{"name":"s","restartPolicy":"Always"}],
            "containers":[{"name":"a","resources":{"requests":{"memory":"300Mi"}}},
            {"name":"b","resources":{"requests":{"memory":"200Mi"}}}]}"#;
        check(SIDECAR, "s", 800);
        check(SIDECAR, "a", 700);
        const POD_LEVEL: &str = r#"{"resources":{"requests":{"memory":"400Mi"}},
            "containers":[{"name":"a","resources":{"requests":{"memory":"200Mi"}}},{"name":"b"}]}"#;
        check(POD_LEVEL, "a", 700);
        check(POD_LEVEL, "b", 900);
        check(
            r#"{"priority":2000000001,"priorityClassName":"system-node-critical",
                "containers":[{"name":"c"}]}"#,
            "c",
            -997,
        );
    }

    #[test]
    fn the_sandbox_and_its_overhead() {
        let pod = pod(
            r#"{"overhead":{"cpu":"50m","memory":"16Mi"},"containers":[{"name":"c","resources":{
            "limits":{"cpu":"100m","memory":"32Mi"},"requests":{"cpu":"100m","memory":"32Mi"}}}]}"#,
        );
        let got = sandbox_resources(&pod, &settings(), &machine());
        assert_eq!((got.cpu_shares, got.cpu_quota), (102, 10_000));
        assert_eq!(got.memory_limit_in_bytes, 33_554_432);
        let got = overhead_resources(&pod, &settings(), &machine());
        assert_eq!((got.cpu_shares, got.cpu_quota), (51, 5000));
        assert_eq!(got.memory_limit_in_bytes, 16_777_216);
    }
}
