//! Admission: may this pod run here? A pure vote over facts; the first no is the answer.
//!
//! Upstream: pkg/kubelet/lifecycle/predicate.go, sysctl/allowlist.go (v1.36).
//! Preemption comes with pods that are not static: among static pods, which are all critical, there is nobody to
//! preempt, so a node that is full says no.

use super::workers::{Phase, Why};
use crate::facts::Facts;
use crate::ids::PodUid;
use alloc::format;
use alloc::string::String;
use steplet_api::pod::Pod;

/// A rejection: the event's reason and message.
#[derive(Clone, Debug, PartialEq)]
pub struct No {
    pub reason: &'static str,
    pub message: String,
}

pub fn vote(pod: &Pod, uid: &PodUid, facts: &Facts) -> Result<(), No> {
    sysctls(pod, facts)?;
    os(pod)?;
    count(uid, facts)
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

fn count(uid: &PodUid, facts: &Facts) -> Result<(), No> {
    // After a restart of the agent those that run come first, whoever was looked at first; what goes, or never ran,
    // holds no place.
    let runs = |uid: &PodUid| facts.pleg.ready(uid);
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
    let (used, most) = (others.count(), facts.settings().max_pods);
    if used < most as usize {
        return Ok(());
    }
    let text = "Node didn't have enough resource: pods, requested: 1";
    let message = format!("{text}, used: {used}, capacity: {most}");
    Err(No { reason: "OutOfpods", message })
}
