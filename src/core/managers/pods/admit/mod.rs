//! Admission: may this pod run here? A pure vote over facts; the first no is the answer.
//!
//! Upstream: pkg/kubelet/lifecycle/predicate.go, sysctl/allowlist.go (v1.36).
//! Nobody is preempted yet: a node that is full says no, also to a critical pod.

mod node_fit;
mod room;

use super::workers::{Phase, Requests, Why};
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::node::node_status::allocatable;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
pub use node_fit::NODE_AFFINITY;
use room::{count, room};
use steplet_api::container::ContainerPort;
use steplet_api::pod::{Pod, ResourceList};
use steplet_api::pod_facts::{host_ports, is_static};

/// A rejection: the event's reason and message.
#[derive(Clone, Debug, PartialEq)]
pub struct No {
    pub reason: Cow<'static, str>,
    pub message: String,
}

pub fn vote(pod: &Pod, uid: &PodUid, facts: &Facts) -> Result<(), No> {
    let settings = facts.settings();
    // What is required of a node during scheduling is ignored during execution, also over a restart of the agent.
    let runs = facts.pleg.view(uid).is_some_and(|view| view.alive());
    sysctls(pod, facts)?;
    node_fit::os(pod)?;
    if !runs {
        node_fit::groups_policy(pod, facts)?;
    }
    let others = others(uid, facts);
    count(others.len(), settings.max_pods)?;
    let nothing = ResourceList::new();
    let offered = facts.node.node().map_or(&nothing, |node| &node.status.allocatable);
    room(pod, &others, &allocatable(facts), offered)?;
    // A scheduler has bound it here, and what it went by is not known while the API server is away.
    let bound = !is_static(pod) && facts.node.node().is_none();
    if !runs && !bound {
        node_fit::affinity(pod, facts)?;
        node_fit::name(pod, &settings.node_name)?;
    }
    ports(pod, &others)?;
    if !runs {
        node_fit::taints(pod, facts)?;
        node_fit::app_armor(pod, facts.machine().app_armor)?;
        node_fit::features(pod, facts)?;
    }
    Ok(())
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
            return Err(No { reason: "SysctlForbidden".into(), message });
        }
    }
    Ok(())
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
    Err(No { reason: "NodePorts".into(), message })
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
    use crate::managers::sample::pod;

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
