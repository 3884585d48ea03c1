//! How often each runtime operation was called, failed, and how long it took: counted where calls leave and answers
//! enter, so that no manager has to.

use crate::event::Outcome;
use crate::managers::metrics::{Histogram, RUNTIME};
use crate::time::Span;
use alloc::collections::BTreeMap;
use serde::{Deserialize, Serialize};

/// The published slice, by upstream's operation names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallFacts {
    all: BTreeMap<Operation, Stats>,
}

/// An operation by the last part of its path.
pub type Operation = alloc::borrow::Cow<'static, str>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    pub total: u64,
    pub errors: u64,
    pub durations: Histogram,
}

impl CallFacts {
    pub fn all(&self) -> &BTreeMap<Operation, Stats> {
        &self.all
    }

    pub(crate) fn answered(&mut self, operation: &Operation, outcome: &Outcome, took: Span) {
        let stats = self.all.entry(operation.clone()).or_default();
        stats.total += 1;
        stats.errors += u64::from(matches!(outcome, Outcome::Rpc(Err(_))));
        stats.durations.observe(RUNTIME, took);
    }
}

/// upstream's `operation_type` of a gRPC path.
pub(crate) fn operation(path: &str) -> Operation {
    let name = match path.rsplit('/').next().unwrap_or("") {
        "Version" => "version",
        "Status" => "status",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "Exec" => "exec",
        "ExecSync" => "exec_sync",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "ListImages" => "list_images",
        _ => "other",
    };
    Operation::Borrowed(name)
}
