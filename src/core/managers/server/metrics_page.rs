//! `/metrics`: the kubelet's metrics that the managers here own, as Prometheus text.
//!
//! Upstream: pkg/kubelet/metrics/metrics.go (v1.36). Names and labels are upstream's. Pure.

use crate::facts::Facts;
use crate::managers::metrics::{AGES, DEFAULT, RUNTIME, seconds};
use crate::managers::pods::view::ContainerState;
use crate::managers::pods::workers::Phase;
use crate::time::Now;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

pub(super) fn page(facts: &Facts, now: Now, requests: &BTreeMap<String, u64>) -> String {
    let mut out = String::with_capacity(16 * 1024);
    pods(&mut out, facts);
    pleg(&mut out, facts, now);
    runtime(&mut out, facts);
    node(&mut out, facts);
    events(&mut out, facts);
    certificates(&mut out, facts, now);
    head(&mut out, "kubelet_http_requests_total", "counter", "Requests served.");
    for (labels, count) in requests {
        line(&mut out, "kubelet_http_requests_total", labels, *count);
    }
    out
}

fn pods(out: &mut String, facts: &Facts) {
    let views = facts.pleg.views().values();
    let running = views.clone().filter(|v| v.sandboxes.iter().any(|s| s.ready)).count();
    head(out, "kubelet_running_pods", "gauge", "Pods that have a running sandbox.");
    line(out, "kubelet_running_pods", "", running as u64);
    let mut states = BTreeMap::new();
    for container in views.flat_map(|v| &v.containers) {
        let state = match container.state {
            ContainerState::Created => "created",
            ContainerState::Running => "running",
            ContainerState::Exited => "exited",
            ContainerState::Unknown => "unknown",
        };
        *states.entry(state).or_default() += 1;
    }
    head(out, "kubelet_running_containers", "gauge", "Containers, by state.");
    for (state, count) in states {
        line(out, "kubelet_running_containers", &format!("container_state=\"{state}\""), count);
    }
    let desired = facts.sources.pods().len() as u64;
    head(out, "kubelet_desired_pods", "gauge", "Pods that are to run here.");
    line(out, "kubelet_desired_pods", "static=\"true\"", desired);
    let active = facts.workers.all().values();
    let active = active.filter(|w| matches!(w.phase(), Phase::Syncing)).count() as u64;
    head(out, "kubelet_active_pods", "gauge", "Pods that are admitted and not ended.");
    line(out, "kubelet_active_pods", "static=\"true\"", active);
    let mut working: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for worker in facts.workers.all().values() {
        let lifecycle = match worker.phase() {
            Phase::Removing | Phase::Waiting | Phase::Syncing => "sync",
            Phase::Terminating(_) => "terminating",
            Phase::Cleaning(_) | Phase::Ended(_) => "terminated",
        };
        let config = if worker.orphan() { "runtime_only" } else { "desired" };
        *working.entry((lifecycle, config)).or_default() += 1;
    }
    head(out, "kubelet_working_pods", "gauge", "Pods by where they are in their life.");
    for ((lifecycle, config), count) in working {
        let labels = format!("config=\"{config}\",lifecycle=\"{lifecycle}\",static=\"true\"");
        line(out, "kubelet_working_pods", &labels, count);
    }
    let starts = facts.workers.starts();
    head(out, "kubelet_started_containers_total", "counter", "Containers that were started.");
    for (init, count) in starts {
        let kind = if *init { "init_container" } else { "container" };
        let labels = format!("container_type=\"{kind}\"");
        line(out, "kubelet_started_containers_total", &labels, *count);
    }
    head(out, "kubelet_orphaned_runtime_pods_total", "counter", "Pods that only the runtime had.");
    line(out, "kubelet_orphaned_runtime_pods_total", "", facts.workers.orphans());
}

fn pleg(out: &mut String, facts: &Facts, now: Now) {
    let name = "kubelet_pleg_relist_duration_seconds";
    head(out, name, "histogram", "How long a relist took.");
    facts.pleg.durations().print(out, name, "", DEFAULT);
    let name = "kubelet_pleg_relist_interval_seconds";
    head(out, name, "histogram", "Time between the starts of two relists.");
    facts.pleg.intervals().print(out, name, "", DEFAULT);
    head(out, "kubelet_pleg_last_seen_seconds", "gauge", "When a relist last succeeded.");
    let ago = facts.pleg.last_good().map_or(0, |at| now.mono.since(at).0);
    let at = now.wall.0.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX)).max(0);
    let at = seconds(crate::time::Span(at.unsigned_abs()));
    out.push_str(&format!("kubelet_pleg_last_seen_seconds {at}\n"));
}

fn runtime(out: &mut String, facts: &Facts) {
    let name = "kubelet_runtime_operations_total";
    head(out, name, "counter", "Calls to the runtime, by operation.");
    for (operation, stats) in facts.calls.all() {
        line(out, name, &format!("operation_type=\"{operation}\""), stats.total);
    }
    let name = "kubelet_runtime_operations_errors_total";
    head(out, name, "counter", "Calls that failed, by operation.");
    for (operation, stats) in facts.calls.all().iter().filter(|(_, stats)| stats.errors > 0) {
        line(out, name, &format!("operation_type=\"{operation}\""), stats.errors);
    }
    let name = "kubelet_runtime_operations_duration_seconds";
    head(out, name, "histogram", "How long calls took, by operation.");
    for (operation, stats) in facts.calls.all() {
        stats.durations.print(out, name, &format!("operation_type=\"{operation}\","), RUNTIME);
    }
}

fn node(out: &mut String, facts: &Facts) {
    head(out, "kubelet_node_name", "gauge", "The name of this node.");
    line(out, "kubelet_node_name", &format!("node=\"{}\"", facts.settings().node_name), 1);
    head(out, "kubelet_cgroup_version", "gauge", "The cgroup version of this machine.");
    line(out, "kubelet_cgroup_version", "", u64::from(facts.machine().cgroup_version));
}

fn events(out: &mut String, facts: &Facts) {
    let name = "steplet_events_dropped_total";
    head(out, name, "counter", "Events that did not get to the API server.");
    line(out, name, "", facts.event_sender.dropped());
}

/// Upstream: pkg/kubelet/certificate/kubelet.go (v1.36).
fn certificates(out: &mut String, facts: &Facts, now: Now) {
    let facts = &facts.certificates;
    for (name, whose, counts) in
        [("client", "client", facts.client()), ("server", "serving", facts.serving())]
    {
        let Some(counts) = counts else { continue };
        let ttl = format!("kubelet_certificate_manager_{name}_ttl_seconds");
        head(
            out,
            &ttl,
            "gauge",
            &format!("Until the {whose} certificate expires; negative after."),
        );
        let left = counts.not_after().map(|at| at.0.saturating_sub(now.wall.0) / 1_000_000_000);
        let left = left.map_or("+Inf".into(), |left| format!("{left}"));
        out.push_str(&format!("{ttl} {left}\n"));
        let errors = match name {
            "client" => "kubelet_certificate_manager_client_expiration_renew_errors",
            _ => "kubelet_server_expiration_renew_errors",
        };
        head(out, errors, "counter", &format!("Failures to renew the {whose} certificate."));
        line(out, errors, "", counts.errors());
        if name == "server" {
            let name = "kubelet_certificate_manager_server_rotation_seconds";
            head(out, name, "histogram", "How long the last certificate had been used.");
            counts.ages().print(out, name, "", AGES);
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    out.push_str(&format!("# HELP {name} [ALPHA] {help}\n# TYPE {name} {kind}\n"));
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    out.push_str(&format!("{name}{labels} {value}\n"));
}
