//! The statuses of a pod's containers: running, waiting for something, or how they ended.
//!
//! Upstream: convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go and TerminatePod in
//! pkg/kubelet/status, v1.36. What the runtime has forgotten is taken from
//! the status before. An end that nobody saw is reported as exit 137.

use super::{Stage, StatusInput};
use crate::managers::containers::volumes::recursively_read_only;
use crate::managers::pods::policy::{self, is_sidecar};
use crate::managers::pods::view::{ContainerState as State, ContainerView, PodView};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use steplet_api::container::{Container, VolumeMount};
use steplet_api::pod::Pod;
use steplet_api::status::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, VolumeMountStatus,
};
use steplet_api::time::Time;

/// The reason of containers that a restart of their whole pod has removed (KEP-5532).
pub(super) const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";

const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// The exit code of an end that nobody saw: killed, as far as anyone knows.
const UNKNOWN_EXIT_CODE: i32 = 137;
const NOT_LOCATED: &str = "The container could not be located when the pod was terminated";
const NOT_LOCATED_WAS_RUNNING: &str = "The container could not be located when the pod was \
    deleted.  The container used to be Running";
const NOT_LOCATED_INIT: &str = "Unable to get init container status from container runtime and \
    pod has been initialized, treat it as exited normally";

/// One status for each container of the spec, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerStatuses {
    pub init: Vec<ContainerStatus>,
    pub main: Vec<ContainerStatus>,
}

pub(super) fn container_statuses(input: &StatusInput<'_>) -> ContainerStatuses {
    let spec = &input.pod.spec;
    let old = input.old.unwrap_or(&input.pod.status);
    let of = |list: &[Container], old: &[ContainerStatus], init: bool| {
        let one = |container: &Container| {
            let old = old.iter().find(|status| status.name == container.name);
            One { input, container, old, init }.status()
        };
        list.iter().map(one).collect()
    };
    ContainerStatuses {
        init: of(&spec.init_containers, &old.init_container_statuses, true),
        main: of(&spec.containers, &old.container_statuses, false),
    }
}

/// Nothing of the pod runs any more: what has no known end ended in an unknown way. Containers
/// that no trace says were ever begun stay as they are.
pub(super) fn end_all(pod: &Pod, containers: &mut ContainerStatuses) {
    let init_done = match (pod.spec.init_containers.last(), containers.init.last()) {
        (Some(last), Some(status)) if is_sidecar(last) => status.state.running.is_some(),
        (Some(_), Some(status)) => [&status.state, &status.last_state]
            .iter()
            .any(|state| state.terminated.as_deref().is_some_and(|end| end.exit_code == 0)),
        _ => true,
    };
    let end = |status: &mut ContainerStatus| {
        if status.state.terminated.is_none() {
            status.state = unknown_end(NOT_LOCATED);
            status.ready = false;
            status.started = Some(false);
        }
    };
    if init_done || containers.main.iter().any(begun) {
        containers.main.iter_mut().for_each(end);
    }
    let last_begun = containers.init.iter().rposition(begun).unwrap_or(0);
    containers.init.iter_mut().take(last_begun + 1).for_each(end);
}

/// Whether a container has left a trace of having run.
pub(super) fn begun(status: &ContainerStatus) -> bool {
    status.state.waiting.is_none() || status.last_state.terminated.is_some()
}

/// One container, and what is known of it.
struct One<'a, 'i> {
    input: &'a StatusInput<'i>,
    container: &'a Container,
    old: Option<&'a ContainerStatus>,
    init: bool,
}

impl One<'_, '_> {
    fn status(&self) -> ContainerStatus {
        let shown = self.input.view.and_then(|view| view.container(&self.container.name));
        let mut status = match shown {
            Some(shown) => self.shown(shown),
            None => self.not_shown(),
        };
        self.set_waiting(&mut status, shown);
        let running = status.state.running.is_some();
        let ended_well = || status.state.terminated.as_deref().is_some_and(|e| e.exit_code == 0);
        status.started = Some(running);
        status.ready = match self.init && !is_sidecar(self.container) {
            true => ended_well(),
            false => running,
        };
        status
    }

    /// From the newest container of the runtime, and the one before it.
    fn shown(&self, shown: &ContainerView) -> ContainerStatus {
        let resources = &self.container.resources;
        let mut status = ContainerStatus {
            image: shown.image.clone(),
            image_id: shown.image_ref.clone(),
            container_id: self.id(shown),
            state: self.state(shown),
            resources: Some(Box::new(resources.clone())),
            allocated_resources: resources.requests.clone(),
            restart_count: i32::try_from(shown.attempt).unwrap_or(i32::MAX),
            ..self.blank()
        };
        let previous = self.input.view.and_then(|view| view.previous(&self.container.name));
        if let Some(previous) = previous {
            status.last_state = self.state(previous);
        } else if let Some(old) = self.old {
            // The runtime keeps one dead container at most; the status remembers what it had.
            status.last_state = match old.container_id != status.container_id {
                true if old.state.terminated.is_some() => old.state.clone(),
                _ => ended(&old.last_state),
            };
        }
        if let Some(old) = self.old {
            status.restart_count = status.restart_count.max(old.restart_count);
        }
        status
    }

    /// The runtime has none of this name.
    fn not_shown(&self) -> ContainerStatus {
        let mut status = self.blank();
        if let Some(old) = self.old {
            if old.state.terminated.is_some() {
                return ContainerStatus { volume_mounts: status.volume_mounts, ..old.clone() };
            }
            status.restart_count = old.restart_count;
            status.last_state = ended(&old.last_state);
            if old.state.running.is_some() && status.last_state.terminated.is_none() {
                // It ran when it was last seen, and somebody has removed it.
                status.last_state = unknown_end(NOT_LOCATED_WAS_RUNNING);
                if self.input.stage == Stage::Running {
                    status.restart_count = old.restart_count.saturating_add(1);
                }
            }
        }
        let begun = |view| policy::main_container_in_sandbox(self.input.pod, view);
        // A finished init container may have been removed, for main containers were made after it.
        if self.init && !is_sidecar(self.container) && self.input.view.is_some_and(begun) {
            status.state = terminated(ContainerStateTerminated {
                reason: "Completed".into(),
                message: NOT_LOCATED_INIT.into(),
                ..ContainerStateTerminated::default()
            });
        }
        status
    }

    /// A container that is to run and does not: what it waits for.
    fn set_waiting(&self, status: &mut ContainerStatus, shown: Option<&ContainerView>) {
        if self.input.stage != Stage::Running {
            return;
        }
        let done = |shown: &ContainerView| shown.state == State::Exited && shown.exit_code == 0;
        if self.init && (shown.is_some_and(done) || self.removed_init(status, shown)) {
            return;
        }
        let empty = PodView::default();
        let view = self.input.view.unwrap_or(&empty);
        if !policy::start_wanted(self.input.pod, self.container, view) {
            return;
        }
        let Some((reason, message)) = (self.input.reasons)(&self.container.name) else { return };
        if status.state.terminated.is_some() {
            status.last_state = core::mem::take(&mut status.state);
        }
        status.state = waiting(reason, message);
    }

    fn removed_init(&self, status: &ContainerStatus, shown: Option<&ContainerView>) -> bool {
        shown.is_none() && !is_sidecar(self.container) && status.state.terminated.is_some()
    }

    /// What the spec alone says: it waits to be made.
    fn blank(&self) -> ContainerStatus {
        let reason = match self.input.pod.spec.init_containers.is_empty() {
            true => "ContainerCreating",
            false => "PodInitializing",
        };
        let mounts = self.container.volume_mounts.iter();
        ContainerStatus {
            name: self.container.name.clone(),
            image: self.container.image.clone(),
            state: waiting(reason, ""),
            volume_mounts: mounts.map(|mount| self.volume_mount(mount)).collect(),
            ..ContainerStatus::default()
        }
    }

    fn volume_mount(&self, mount: &VolumeMount) -> VolumeMountStatus {
        let supported = self.input.recursive_read_only;
        let recursive = match recursively_read_only(mount, supported) {
            Ok(true) => "Enabled",
            Ok(false) | Err(_) => "Disabled",
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: mount.read_only.then(|| recursive.into()),
            volume_status: None,
        }
    }

    fn id(&self, shown: &ContainerView) -> Box<str> {
        format!("{}://{}", self.input.runtime_name, shown.id).into()
    }

    fn state(&self, shown: &ContainerView) -> ContainerState {
        match shown.state {
            State::Created => waiting("", ""),
            State::Running => {
                let started_at = Time::from_ns(shown.started_at);
                let running = Some(Box::new(ContainerStateRunning { started_at }));
                ContainerState { running, ..ContainerState::default() }
            }
            State::Exited => terminated(ContainerStateTerminated {
                exit_code: shown.exit_code,
                reason: shown.reason.clone(),
                message: shown.message.clone(),
                started_at: Time::from_ns(shown.started_at),
                finished_at: Time::from_ns(shown.finished_at),
                container_id: self.id(shown),
                ..ContainerStateTerminated::default()
            }),
            State::Unknown => match self.old {
                // It ran, and the runtime has lost it.
                Some(old) if old.state.running.is_some() => unknown_end(NOT_LOCATED),
                Some(old)
                    if old.state.terminated.is_some() && old.container_id == self.id(shown) =>
                {
                    old.state.clone()
                }
                _ => waiting("", ""),
            },
        }
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: reason.into(), message: message.into() };
    ContainerState { waiting: Some(Box::new(waiting)), ..ContainerState::default() }
}

fn terminated(end: ContainerStateTerminated) -> ContainerState {
    ContainerState { terminated: Some(Box::new(end)), ..ContainerState::default() }
}

fn unknown_end(message: &str) -> ContainerState {
    terminated(ContainerStateTerminated {
        exit_code: UNKNOWN_EXIT_CODE,
        reason: STATUS_UNKNOWN.into(),
        message: message.into(),
        ..ContainerStateTerminated::default()
    })
}

/// Only the end of a state, as `lastState` holds it.
fn ended(state: &ContainerState) -> ContainerState {
    ContainerState { terminated: state.terminated.clone(), ..ContainerState::default() }
}
