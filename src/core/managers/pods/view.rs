//! What the runtime shows of one pod: the part of the CRI answers that decisions need.
//!
//! Order is by attempt, never by a time stamp: stamps come from a wall clock that may step (k/k#83050, k/k#127948).

use crate::ids::{ContainerId, SandboxId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Sandboxes and containers of a pod, each list with the highest attempt first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodView {
    pub name: Box<str>,
    pub namespace: Box<str>,
    pub sandboxes: Vec<SandboxView>,
    pub containers: Vec<ContainerView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxView {
    pub id: SandboxId,
    pub attempt: u32,
    pub ready: bool,
    /// Nanoseconds since 1970 by the runtime; for display only.
    pub created_at: i64,
    /// The addresses in the runtime's order; empty on the host network.
    pub ips: Vec<Box<str>>,
    /// Whether it shares the node's network namespace.
    pub host_network: bool,
    /// It is of a static pod (`kubernetes.io/config.source`).
    pub from_manifest: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerView {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub name: Box<str>,
    pub attempt: u32,
    pub state: ContainerState,
    /// `io.kubernetes.container.hash`, lower hex.
    pub hash: Box<str>,
    /// The image as the pod named it, and what the runtime resolved it to.
    pub image: Box<str>,
    pub image_ref: Box<str>,
    /// Nanoseconds since 1970 by the runtime, 0 when it has not happened.
    pub created_at: i64,
    pub started_at: i64,
    pub finished_at: i64,
    pub exit_code: i32,
    pub reason: Box<str>,
    /// The runtime's message, or the termination message once it was read.
    pub message: Box<str>,
    /// Seconds from the annotations of the container, for pods whose spec is gone.
    pub grace_seconds: Option<i64>,
    /// The host file of the termination message, from the container's mounts; empty when there is none.
    pub termination_log: Box<str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    #[default]
    Unknown,
}

impl PodView {
    /// The sandbox with the highest attempt.
    pub fn sandbox(&self) -> Option<&SandboxView> {
        self.sandboxes.first()
    }

    /// The container of this name with the highest attempt.
    pub fn container(&self, name: &str) -> Option<&ContainerView> {
        self.containers.iter().find(|c| &*c.name == name)
    }

    /// The newest exited container of this name below the current one: `lastState`.
    pub fn previous(&self, name: &str) -> Option<&ContainerView> {
        let mut all = self.containers.iter().filter(|c| &*c.name == name);
        all.next()?;
        all.find(|c| c.state == ContainerState::Exited)
    }

    /// Whether it is a static pod.
    pub fn from_manifest(&self) -> bool {
        self.sandboxes.iter().any(|s| s.from_manifest)
    }

    /// Whether anything of the pod may still run.
    pub fn alive(&self) -> bool {
        self.sandboxes.iter().any(|s| s.ready)
            || self
                .containers
                .iter()
                .any(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
    }

    /// Restores the order that the methods above rely on.
    pub fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| b.attempt.cmp(&a.attempt).then_with(|| a.id.cmp(&b.id)));
        self.containers.sort_by(|a, b| {
            (b.attempt.cmp(&a.attempt))
                .then_with(|| a.name.cmp(&b.name))
                .then_with(|| a.id.cmp(&b.id))
        });
    }
}
