//! The conditions of a pod, in upstream's order and with its texts.
//!
//! Upstream: pkg/kubelet/status/generate.go and pkg/kubelet/types/pod_status.go, v1.36.
//! Conditions of other parties are kept as they are.

use super::containers::ContainerStatuses;
use super::{StatusInput, Time};
use crate::managers::pods::policy::{self, is_sidecar};
use crate::managers::pods::view::PodView;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::pod::Pod;
use steplet_api::status::{
    ContainerStatus, PodCondition, PodStatus, condition, condition_status, phase,
};

/// Those that this program sets; `DisruptionTarget` is shared with others.
const OWN: [&str; 8] = [
    condition::POD_SCHEDULED,
    condition::READY,
    condition::INITIALIZED,
    condition::CONTAINERS_READY,
    condition::POD_RESIZE_IN_PROGRESS,
    condition::POD_RESIZE_PENDING,
    condition::POD_READY_TO_START_CONTAINERS,
    condition::ALL_CONTAINERS_RESTARTING,
];

/// Whether a condition holds, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Finding {
    const TRUE: Finding = Finding { holds: true, reason: "", message: String::new() };

    fn not(reason: &'static str, message: String) -> Finding {
        Finding { holds: false, reason, message }
    }
}

/// All conditions of the pod, which comes to phase `phase`.
pub(super) fn conditions(
    input: &StatusInput<'_>,
    containers: &ContainerStatuses,
    phase: &str,
) -> Vec<PodCondition> {
    let pod = input.pod;
    let others = pod.status.conditions.iter().filter(|c| !OWN.contains(&&*c.type_));
    let mut list: Vec<PodCondition> = others.cloned().collect();
    if let Some(target) = input.old.and_then(|old| find(old, condition::DISRUPTION_TARGET)) {
        list.retain(|c| &*c.type_ != condition::DISRUPTION_TARGET);
        list.push(target.clone());
    }
    let containers_ready = containers_ready(pod, containers, phase);
    let ready = ready(pod, &list, &containers_ready);
    let own = [
        (condition::POD_READY_TO_START_CONTAINERS, ready_to_start(input)),
        (condition::INITIALIZED, initialized(input, containers, phase)),
        (condition::READY, ready),
        (condition::CONTAINERS_READY, containers_ready),
        (condition::POD_SCHEDULED, Finding::TRUE),
    ];
    list.extend(own.into_iter().map(|(type_, finding)| condition(input, type_, finding)));
    if could_restart_all(pod) {
        let restarting = all_restarting(input, phase);
        list.push(condition(input, condition::ALL_CONTAINERS_RESTARTING, restarting));
    }
    list
}

fn find<'a>(status: &'a PodStatus, type_: &str) -> Option<&'a PodCondition> {
    status.conditions.iter().find(|c| &*c.type_ == type_)
}

/// The time of the last change stays until the condition changes.
fn condition(input: &StatusInput<'_>, type_: &str, finding: Finding) -> PodCondition {
    let status = if finding.holds { condition_status::TRUE } else { condition_status::FALSE };
    let old = input.old.and_then(|old| find(old, type_)).filter(|old| &*old.status == status);
    PodCondition {
        type_: type_.into(),
        status: status.into(),
        reason: finding.reason.into(),
        message: finding.message.into(),
        observed_generation: input.pod.metadata.generation,
        last_transition_time: old
            .map_or_else(|| Time::from_ns(input.now.0), |old| old.last_transition_time.clone()),
        last_probe_time: Time::default(),
    }
}

/// A sandbox with a network is there.
fn ready_to_start(input: &StatusInput<'_>) -> Finding {
    let empty = PodView::default();
    let view = input.view.unwrap_or(&empty);
    Finding {
        holds: policy::sandbox_changed(input.pod, view).is_none(),
        ..Finding::not("", String::new())
    }
}

/// Once initialized, a pod stays so: its main containers have run.
fn initialized(input: &StatusInput<'_>, containers: &ContainerStatuses, phase: &str) -> Finding {
    if phase == phase::SUCCEEDED {
        return Finding { reason: "PodCompleted", ..Finding::TRUE };
    }
    let started = |status: &ContainerStatus| {
        status.state.running.is_some() || status.state.terminated.is_some()
    };
    let before = input.old.and_then(|old| find(old, condition::INITIALIZED));
    let was = before.is_some_and(|old| &*old.status == condition_status::TRUE);
    if was || containers.main.iter().any(started) {
        return Finding::TRUE;
    }
    let inits = input.pod.spec.init_containers.iter().zip(&containers.init);
    let open = inits.filter(|(container, status)| match is_sidecar(container) {
        true => status.started != Some(true),
        false => !status.ready,
    });
    match names(open.map(|(_, status)| status)) {
        None => Finding::TRUE,
        Some(names) => Finding::not(
            "ContainersNotInitialized",
            format!("containers with incomplete status: {names}"),
        ),
    }
}

fn containers_ready(pod: &Pod, containers: &ContainerStatuses, phase: &str) -> Finding {
    match phase {
        phase::SUCCEEDED => return Finding::not("PodCompleted", String::new()),
        phase::FAILED => return Finding::not("PodFailed", String::new()),
        _ => {}
    }
    let inits = pod.spec.init_containers.iter().zip(&containers.init);
    let sidecars = inits.filter(|(container, _)| is_sidecar(container)).map(|(_, status)| status);
    match names(sidecars.chain(&containers.main).filter(|status| !status.ready)) {
        None => Finding::TRUE,
        Some(names) => {
            Finding::not("ContainersNotReady", format!("containers with unready status: {names}"))
        }
    }
}

/// As the containers, and every readiness gate, which others open, must be open.
fn ready(pod: &Pod, others: &[PodCondition], containers_ready: &Finding) -> Finding {
    if !containers_ready.holds {
        return containers_ready.clone();
    }
    let shut = pod.spec.readiness_gates.iter().filter_map(|gate| {
        let gate = &gate.condition_type;
        match others.iter().find(|c| c.type_ == *gate) {
            None => Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist."
            )),
            Some(c) if &*c.status != condition_status::TRUE => Some(format!(
                "the status of pod readiness gate {gate:?} is not \"True\", but {}",
                c.status
            )),
            Some(_) => None,
        }
    });
    let shut: Vec<String> = shut.collect();
    if shut.is_empty() {
        return Finding::TRUE;
    }
    Finding::not("ReadinessGatesNotReady", shut.join(", "))
}

fn could_restart_all(pod: &Pod) -> bool {
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    all.flat_map(|c| &c.restart_policy_rules)
        .any(|rule| &*rule.action == policy::ACTION_RESTART_ALL)
}

fn all_restarting(input: &StatusInput<'_>, phase: &str) -> Finding {
    match phase {
        phase::SUCCEEDED => Finding::not("PodCompleted", String::new()),
        phase::FAILED => Finding::not("PodFailed", String::new()),
        _ if input.view.is_some_and(|view| policy::restart_all_wanted(input.pod, view)) => {
            Finding {
                holds: true,
                reason: "RestartAllContainersStarted",
                message: "container exited with restart policy rule".into(),
            }
        }
        _ => Finding::not("", String::new()),
    }
}

/// Names as Go prints a list: `[a b]`; none for an empty one.
fn names<'a>(statuses: impl Iterator<Item = &'a ContainerStatus>) -> Option<String> {
    let names: Vec<Box<str>> = statuses.map(|status| status.name.clone()).collect();
    (!names.is_empty()).then(|| format!("[{}]", names.join(" ")))
}
