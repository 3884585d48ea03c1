//! Admission: may this pod run here? A pure vote over facts; the first no is the answer.
//!
//! Upstream: pkg/kubelet/lifecycle/predicate.go, sysctl/allowlist.go (v1.36).
//! Preemption comes with pods that are not static: among static pods, which are all critical, there is nobody to
//! preempt, so a node that is full says no.

use super::workers::{Phase, Requests, Why};
use crate::event::Machine;
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::containers::resources::{cpu_milli, memory_bytes};
use crate::settings::Settings;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::container::ContainerPort;
use steplet_api::pod::{Pod, ResourceList, resource};
use steplet_api::pod_facts::{effective_requests, host_ports};
use steplet_api::quantity::Quantity;

/// A rejection: the event's reason and message.
#[derive(Clone, Debug, PartialEq)]
pub struct No {
    pub reason: &'static str,
    pub message: String,
}

pub fn vote(pod: &Pod, uid: &PodUid, facts: &Facts) -> Result<(), No> {
    sysctls(pod, facts)?;
    os(pod)?;
    let others = others(uid, facts);
    count(others.len(), facts.settings().max_pods)?;
    room(pod, &others, facts.settings(), facts.machine())?;
    ports(pod, &others)
}

/// Sysctls that are safe on every kernel we run on, all of them namespaced.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: &Pod, facts: &Facts) -> Result<(), No> {
    let Some(context) = &pod.spec.security_context else { return Ok(()) };
    let allowed = &facts.settings().allowed_unsafe_sysctls;
    for sysctl in &context.sysctls {
        let name = sysctl.name.replace('/', ".");
        let listed = allowed.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => *pattern == name,
        });
        // A namespaced sysctl would change the node's own when the pod shares that namespace.
        let shared = (name.starts_with("net.") && pod.spec.host_network)
            || ((name.starts_with("kernel.") || name.starts_with("fs.mqueue."))
                && pod.spec.host_ipc);
        if shared || !(listed || SAFE_SYSCTLS.contains(&name.as_str())) {
            let message = format!("forbidden sysctl: {name:?} not allowlisted");
            return Err(No { reason: "SysctlForbidden", message });
        }
    }
    Ok(())
}

fn os(pod: &Pod) -> Result<(), No> {
    match &pod.spec.os {
        Some(os) if &*os.name != "linux" => Err(No {
            reason: "PodOSNotSupported",
            message: "Failed to admit pod as the OS field doesn't match node OS".into(),
        }),
        _ => Ok(()),
    }
}

/// The pods that have a place on the node already.
fn others<'a>(uid: &PodUid, facts: &'a Facts) -> Vec<(&'a Pod, Requests)> {
    // After a restart of the agent those that run come first, whoever was looked at first; what goes, or never ran,
    // holds no place.
    let ready = facts.pleg.ready();
    let runs = |uid: &PodUid| ready.contains(uid);
    let others = facts.workers.all().iter().filter(|(other, worker)| {
        let holds = match worker.phase() {
            Phase::Syncing => true,
            Phase::Waiting => runs(other) && !runs(uid),
            Phase::Terminating(e) | Phase::Cleaning(e) => {
                !matches!(e.why, Why::Unconfigured | Why::Rejected(..))
            }
            Phase::Removing | Phase::Ended(_) => false,
        };
        *other != uid && holds
    });
    others.map(|(_, worker)| (&**worker.pod(), worker.requests())).collect()
}

fn count(used: usize, most: u32) -> Result<(), No> {
    if used < most as usize {
        return Ok(());
    }
    let text = "Node didn't have enough resource: pods, requested: 1";
    let message = format!("{text}, used: {used}, capacity: {most}");
    Err(No { reason: "OutOfpods", message })
}

/// CPU, memory and huge pages: what all pods request must fit into what the node may give away. Ephemeral storage and
/// what plugins offer are not known yet, and not looked at.
fn room(
    pod: &Pod,
    others: &[(&Pod, Requests)],
    settings: &Settings,
    machine: &Machine,
) -> Result<(), No> {
    let asked = effective_requests(&pod.spec);
    let pages = asked.keys().filter(|name| name.starts_with(resource::HUGEPAGES_PREFIX));
    for name in [resource::CPU, resource::MEMORY].into_iter().chain(pages.map(|name| &**name)) {
        let requested = amount(name, &asked);
        if requested <= 0 {
            continue;
        }
        let used = others.iter().map(|(other, requests)| match name {
            resource::CPU => requests.cpu_milli,
            resource::MEMORY => requests.memory_bytes,
            _ => amount(name, &effective_requests(&other.spec)),
        });
        let used = used.fold(0, i64::saturating_add);
        let capacity = allocatable(name, settings, machine);
        if requested > capacity.saturating_sub(used) {
            let text = format!("Node didn't have enough resource: {name}, requested: {requested}");
            let message = format!("{text}, used: {used}, capacity: {capacity}");
            return Err(No { reason: out_of(name), message });
        }
    }
    Ok(())
}

/// Thousandths of a CPU, else bytes.
fn amount(name: &str, list: &ResourceList) -> i64 {
    match name {
        resource::CPU => cpu_milli(list),
        resource::MEMORY => memory_bytes(list),
        _ => list.get(name).map_or(0, Quantity::value),
    }
}

/// What the node has for pods (Node.status.allocatable), as far as the configuration is followed: without the
/// thresholds of evictionHard.
fn allocatable(name: &str, settings: &Settings, machine: &Machine) -> i64 {
    let most = match name {
        resource::CPU => {
            (u64::from(machine.cpus) * 1000).saturating_sub(settings.reserved_cpu_milli)
        }
        resource::MEMORY => {
            let pages = machine.hugepage_bytes.iter().copied().fold(0, u64::saturating_add);
            machine
                .memory_bytes
                .saturating_sub(settings.reserved_memory_bytes)
                .saturating_sub(pages)
        }
        _ => {
            let size = name.strip_prefix(resource::HUGEPAGES_PREFIX).unwrap_or_default();
            let size = Quantity::parse(size).map_or(0, |size| size.value());
            let sizes = machine.hugepage_sizes.iter().zip(&machine.hugepage_bytes);
            let mut found = sizes.filter(|(offered, _)| i64::try_from(**offered) == Ok(size));
            found.next().map_or(0, |(_, bytes)| *bytes)
        }
    };
    i64::try_from(most).unwrap_or(i64::MAX)
}

fn out_of(name: &str) -> &'static str {
    match name {
        resource::CPU => "OutOfcpu",
        resource::MEMORY => "OutOfmemory",
        "hugepages-64Ki" => "OutOfhugepages-64Ki",
        "hugepages-2Mi" => "OutOfhugepages-2Mi",
        "hugepages-32Mi" => "OutOfhugepages-32Mi",
        "hugepages-512Mi" => "OutOfhugepages-512Mi",
        "hugepages-1Gi" => "OutOfhugepages-1Gi",
        "hugepages-16Gi" => "OutOfhugepages-16Gi",
        _ => "OutOfhugepages",
    }
}

/// Two pods cannot listen on one port of the node.
fn ports(pod: &Pod, others: &[(&Pod, Requests)]) -> Result<(), No> {
    let taken = |port: &ContainerPort| {
        let all = others.iter().flat_map(|(other, _)| host_ports(&other.spec));
        all.into_iter().any(|other| clash(port, other))
    };
    if !host_ports(&pod.spec).any(taken) {
        return Ok(());
    }
    let message =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
            .into();
    Err(No { reason: "NodePorts", message })
}

/// No address means all of them.
fn clash(one: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| match &*port.protocol {
        "" => String::from("TCP"),
        protocol => protocol.into(),
    };
    let every = |port: &ContainerPort| matches!(&*port.host_ip, "" | "0.0.0.0");
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (every(one) || every(other) || one.host_ip == other.host_ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::{machine, pod, settings};

    fn asking(requests: &str) -> Pod {
        pod(&format!(
            r#"{{"containers":[{{"name":"c","image":"i","resources":{{"requests":{requests}}}}}]}}"#
        ))
    }

    #[test]
    fn what_fits_and_what_does_not() {
        // 4 CPUs and 1000 MiB, of which 100 MiB are huge pages of 2 MiB.
        let settings =
            Settings { reserved_cpu_milli: 500, reserved_memory_bytes: 100 << 20, ..settings() };
        let check = |asked: &str, there: &[&str], want: Option<(&str, &str)>| {
            let others: Vec<Pod> = there.iter().map(|requests| asking(requests)).collect();
            let others: Vec<_> = others.iter().map(|pod| (pod, Requests::of(pod))).collect();
            let got = room(&asking(asked), &others, &settings, &machine()).err();
            let got = got.as_ref().map(|no| (no.reason, &*no.message));
            let text =
                |(reason, rest)| (reason, format!("Node didn't have enough resource: {rest}"));
            assert_eq!(got.map(|(r, m)| (r, m.into())), want.map(text), "{asked} {there:?}");
        };
        check("{}", &[r#"{"cpu":"4","memory":"1Gi"}"#], None);
        check(r#"{"cpu":"3500m","memory":"800Mi","hugepages-2Mi":"100Mi"}"#, &[], None);
        let cpu = ("OutOfcpu", "cpu, requested: 3501, used: 0, capacity: 3500");
        check(r#"{"cpu":"3501m"}"#, &[], Some(cpu));
        check(r#"{"cpu":"3501m","memory":"1Gi"}"#, &[], Some(cpu));
        let cpu = ("OutOfcpu", "cpu, requested: 1, used: 4500, capacity: 3500");
        check(r#"{"cpu":"1m"}"#, &[r#"{"cpu":"3"}"#, r#"{"cpu":"1500m"}"#], Some(cpu));
        let memory = "memory, requested: 524288000, used: 419430400, capacity: 838860800";
        let there = [r#"{"memory":"300Mi"}"#, r#"{"memory":"100Mi","cpu":"1"}"#];
        check(r#"{"memory":"500Mi"}"#, &there, Some(("OutOfmemory", memory)));
        check(r#"{"memory":"400Mi","cpu":"2500m"}"#, &there, None);
        let pages = "hugepages-2Mi, requested: 106954752, used: 0, capacity: 104857600";
        check(r#"{"hugepages-2Mi":"102Mi"}"#, &[], Some(("OutOfhugepages-2Mi", pages)));
        let pages = "hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0";
        check(r#"{"hugepages-1Gi":"1Gi"}"#, &[], Some(("OutOfhugepages-1Gi", pages)));
        let pages = "hugepages-8Mi, requested: 8388608, used: 0, capacity: 0";
        check(r#"{"hugepages-8Mi":"8Mi"}"#, &[], Some(("OutOfhugepages", pages)));
        // Nobody knows how much there is of these.
        check(r#"{"ephemeral-storage":"1Ti","example.com/gpu":"1"}"#, &[], None);
    }

    #[test]
    fn ports_of_the_node() {
        let with = |port: &str| {
            pod(&format!(
                r#"{{"containers":[{{"name":"c","image":"i","ports":[{{"containerPort":1}},{port}]}}]}}"#
            ))
        };
        let check = |one: &str, other: &str, free: bool| {
            let others = [with("{}"), with(other)];
            let others = others.each_ref().map(|pod| (pod, Requests::of(pod)));
            let got = ports(&with(one), &others);
            assert_eq!(got.is_ok(), free, "{one} {other}");
        };
        const PORT: &str = r#"{"hostPort":80}"#;
        check(PORT, "{}", true);
        check(PORT, PORT, false);
        check(PORT, r#"{"hostPort":81}"#, true);
        check(PORT, r#"{"containerPort":80}"#, true);
        check(PORT, r#"{"hostPort":80,"protocol":"TCP"}"#, false);
        check(PORT, r#"{"hostPort":80,"protocol":"UDP"}"#, true);
        check(PORT, r#"{"hostPort":80,"hostIP":"192.0.2.1"}"#, false);
        check(
            r#"{"hostPort":80,"hostIP":"192.0.2.1"}"#,
            r#"{"hostPort":80,"hostIP":"0.0.0.0"}"#,
            false,
        );
        check(
            r#"{"hostPort":80,"hostIP":"192.0.2.1"}"#,
            r#"{"hostPort":80,"hostIP":"192.0.2.2"}"#,
            true,
        );
    }
}
