//! What to do next for a pod that is to run: one step, from what its spec wants and what the runtime shows.
//!
//! Upstream: computePodActions in pkg/kubelet/kuberuntime (v1.36). Upstream computes a list of
//! actions and carries them out; here each step is followed by a fresh look, so a plan is never out of date.
//! Pure: the same pod, view and marks give the same step.

use super::policy::{self, InitProgress, SandboxNeed};
use super::view::{ContainerState, ContainerView, PodView};
use crate::ids::{ContainerId, SandboxId};
use crate::planted::planted;
use crate::time::Mono;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::container::Container;
use steplet_api::pod::Pod;

/// One step for one pod; the runtime manager carries it out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// The pod's cgroup, directories and volumes.
    SetUp,
    /// Containers first, all at once, then sandboxes.
    Stop {
        containers: Vec<Stop>,
        sandboxes: Vec<SandboxId>,
    },
    RunSandbox {
        attempt: u32,
    },
    StartContainer(Box<Start>),
    /// The pod's volumes, directories and cgroup go.
    Clean,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    pub id: ContainerId,
    pub name: Box<str>,
    pub grace_seconds: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub name: Box<str>,
    pub init: bool,
    pub attempt: u32,
    pub sandbox: SandboxId,
    /// Made by an earlier call whose answer was lost: only start it (containerd#4604).
    pub adopt: Option<ContainerId>,
}

/// What the plan came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    Do(Step),
    /// A sandbox that no longer serves is stopped with all in it; `RunSandbox` follows, or nothing if `last`.
    Renew {
        stop: Step,
        last: bool,
    },
    /// A running container that has to go, with the reason for its event.
    Replace {
        stop: Step,
        message: String,
    },
    /// Nothing to do before `until`, or before something changes.
    Rest {
        until: Option<Mono>,
        /// Containers that would start if they were not held back.
        held: Vec<Box<str>>,
    },
    /// Every container has ended for good.
    Finished,
}

/// What the worker knows beside spec and view.
pub struct Marks<'a> {
    /// Not before this instant: back-off of a container after a crash or a failed start.
    pub hold: &'a dyn Fn(&Container, Option<&ContainerView>) -> Option<Mono>,
    /// Seconds that a container gets to stop.
    pub grace_seconds: i64,
    /// The attempt of the next sandbox is at least this.
    pub next_sandbox: u32,
    /// The attempt of the next container of a name.
    pub next_attempt: &'a dyn Fn(&str) -> u32,
    pub hash: &'a dyn Fn(&Container) -> String,
}

/// The next step of a pod that is to run.
pub fn plan(pod: &Pod, view: &PodView, marks: &Marks<'_>) -> Plan {
    match policy::sandbox_need(pod, view) {
        SandboxNeed::Keep => {}
        SandboxNeed::Create { .. } | SandboxNeed::Drop if view.alive() => {
            let last = policy::sandbox_need(pod, view) == SandboxNeed::Drop;
            return Plan::Renew { stop: stop_all(pod, view, marks.grace_seconds), last };
        }
        SandboxNeed::Create { attempt } => {
            let attempt = attempt.max(marks.next_sandbox);
            return Plan::Do(Step::RunSandbox { attempt });
        }
        SandboxNeed::Drop => return Plan::Finished,
    }
    if policy::pod_finished(pod, view) {
        return Plan::Finished;
    }
    let replace = replaced(pod, view, marks).or_else(|| removed_from_spec(pod, view, marks));
    if let Some(replace) = replace {
        return replace;
    }
    starts(pod, view, marks)
}

/// A container whose definition changed, or whose state nobody knows, is stopped first.
fn replaced(pod: &Pod, view: &PodView, marks: &Marks<'_>) -> Option<Plan> {
    // One that nobody can say anything of may still run beside its successor.
    let unknown = |c: &Container| {
        policy::in_sandbox(view, &c.name).is_some_and(|s| s.state == ContainerState::Unknown)
    };
    let inits = pod.spec.init_containers.iter();
    let all = inits.filter(|c| policy::is_sidecar(c) || unknown(c));
    for container in all.chain(&pod.spec.containers) {
        let Some(shown) = view.container(&container.name) else { continue };
        let unknown = shown.state == ContainerState::Unknown;
        let changed = shown.state == ContainerState::Running
            && !shown.hash.is_empty()
            && *shown.hash != *(marks.hash)(container);
        if !(unknown || changed) {
            continue;
        }
        let name = &container.name;
        let message = match changed {
            true => format!("Container {name} definition changed, will be restarted"),
            false => format!("Container {name} is in unknown state, try killing it before restart"),
        };
        let stop =
            Stop { id: shown.id.clone(), name: name.clone(), grace_seconds: marks.grace_seconds };
        let stop = Step::Stop { containers: [stop].into(), sandboxes: Vec::new() };
        return Some(Plan::Replace { stop, message });
    }
    None
}

/// A container that left the spec under a pinned UID.
fn removed_from_spec(pod: &Pod, view: &PodView, marks: &Marks<'_>) -> Option<Plan> {
    let known = |name: &str| {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.any(|c| *c.name == *name)
    };
    let runs =
        |c: &&ContainerView| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
    let stray = view.containers.iter().filter(runs).find(|c| !known(&c.name))?;
    let message = format!("Container {} is no longer part of the pod", stray.name);
    let grace_seconds = marks.grace_seconds;
    let stop = Stop { id: stray.id.clone(), name: stray.name.clone(), grace_seconds };
    Some(Plan::Replace {
        stop: Step::Stop { containers: [stop].into(), sandboxes: Vec::new() },
        message,
    })
}

/// The first container that may start now; else when the first may.
fn starts(pod: &Pod, view: &PodView, marks: &Marks<'_>) -> Plan {
    let inits = &pod.spec.init_containers;
    let mut wanted: Vec<(&Container, bool)> =
        policy::sidecars_to_start(pod, view).into_iter().map(|i| (&inits[i], true)).collect();
    match policy::init_progress(pod, view) {
        InitProgress::Next(index) => wanted.push((&inits[index], true)),
        InitProgress::Wait(_) | InitProgress::Failed => {}
        InitProgress::Done => {
            let mains = pod.spec.containers.iter();
            let starts = mains.filter(|c| policy::start_wanted(pod, c, view));
            wanted.extend(starts.map(|c| (c, false)));
        }
    }
    let mut until: Option<Mono> = None;
    let mut held = Vec::new();
    for (container, init) in wanted {
        let shown = view.container(&container.name);
        if let Some(at) = (marks.hold)(container, shown) {
            until = Some(until.map_or(at, |known| known.min(at)));
            held.push(container.name.clone());
            continue;
        }
        let sandbox = view.sandbox().map(|s| s.id.clone()).unwrap_or_default();
        // A container that was made but never started serves, if it is what is wanted now.
        let adopt = shown.filter(|c| {
            c.state == ContainerState::Created
                && c.sandbox == sandbox
                && *c.hash == *(marks.hash)(container)
        });
        let attempt = match (adopt, shown) {
            (Some(made), _) => made.attempt,
            (None, Some(old)) if planted(2) => old.attempt,
            (None, _) => (marks.next_attempt)(&container.name),
        };
        let adopt = adopt.map(|c| c.id.clone());
        let name = container.name.clone();
        return Plan::Do(Step::StartContainer(
            Start { name, init, attempt, sandbox, adopt }.into(),
        ));
    }
    Plan::Rest { until, held }
}

/// Stops whatever may run of a pod. Sidecars go last, in reverse order (KEP-753); `ended` waits for the others.
pub fn stop_all(pod: &Pod, view: &PodView, grace_seconds: i64) -> Step {
    let running =
        |c: &&ContainerView| matches!(c.state, ContainerState::Running | ContainerState::Unknown);
    let sidecar_place = |name: &str| {
        pod.spec.init_containers.iter().position(|c| *c.name == *name && policy::is_sidecar(c))
    };
    let stop = |c: &ContainerView| Stop { id: c.id.clone(), name: c.name.clone(), grace_seconds };
    let mains = view.containers.iter().filter(running).filter(|c| sidecar_place(&c.name).is_none());
    let mut containers: Vec<Stop> = mains.map(stop).collect();
    if containers.is_empty() {
        let sidecars = view.containers.iter().filter(running);
        let last = sidecars.max_by_key(|c| sidecar_place(&c.name));
        containers.extend(last.map(stop));
    }
    let sandboxes = match containers.is_empty() {
        true => view.sandboxes.iter().filter(|s| s.ready).map(|s| s.id.clone()).collect(),
        false => Vec::new(),
    };
    Step::Stop { containers, sandboxes }
}
