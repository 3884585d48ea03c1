//! The bodies of calls for a pod, from the pure functions of `containers` and the facts.

use super::plan::Start;
use crate::effect::{Cgroup, ContainerFiles, DiskOp, PodSetup, SealedText};
use crate::facts::Facts;
use crate::ids::{ContainerId, PodUid};
use crate::managers::containers::cgroups::{self, Layout};
use crate::managers::containers::config::{self, ContainerImage, ContainerInput};
use crate::managers::containers::dns::DnsWarning;
use crate::managers::containers::sandbox::{self, Sandbox};
use crate::managers::containers::{ConfigError, hosts, volumes};
use crate::managers::volumes::payload::Given;
use crate::note::ImageFound;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::cri as api;
use steplet_api::pod::Pod;

/// The path of a container in its pod, as events name it.
pub(super) fn field_of(pod: &Pod, name: &str) -> String {
    let init = pod.spec.init_containers.iter().any(|c| *c.name == *name);
    let list = if init { "initContainers" } else { "containers" };
    format!("spec.{list}{{{name}}}")
}

pub(super) fn layout(facts: &Facts) -> Layout<'_> {
    Layout { settings: facts.settings(), driver: facts.cgroup_driver() }
}

/// What the burstable pods that have not ended ask for together, in thousandths of a CPU.
pub(super) fn burstable_milli(facts: &Facts) -> i64 {
    facts.workers.all().values().fold(0, |sum, w| sum.saturating_add(w.burstable_milli()))
}

/// The tree above the pods.
pub(super) fn classes(facts: &Facts) -> Vec<Cgroup> {
    cgroups::qos_tree(layout(facts), facts.machine(), burstable_milli(facts))
}

/// The tree above the pod and the pod's own, parents first.
pub(super) fn cgroups(facts: &Facts, pod: &Pod) -> Vec<Cgroup> {
    let mut all = classes(facts);
    all.extend(cgroups::pod_cgroup(layout(facts), facts.machine(), pod));
    all
}

pub(super) fn pod_setup(facts: &Facts, pod: &Pod) -> Result<PodSetup, String> {
    let (settings, machine) = (facts.settings(), facts.machine());
    let services = &facts.services;
    let given = Given { volumes: &facts.volumes, settings, machine, services };
    volumes::pod_setup(pod, &given).map_err(|e| e.0)
}

pub(super) fn container_files(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
) -> Result<ContainerFiles, String> {
    with_input(facts, pod, uid, start, config::container_files)
}

/// The request, and what the pod's user is to be warned of.
pub(super) fn run_sandbox(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    attempt: u32,
) -> Result<(api::RunPodSandboxRequest, Vec<DnsWarning>), String> {
    let made = sandbox(facts, pod, uid, attempt)?;
    let runtime_handler = sandbox::runtime_handler(pod).map_err(|e| e.0)?;
    let request = api::RunPodSandboxRequest { config: Some(made.config), runtime_handler };
    Ok((request, made.warnings))
}

fn sandbox(facts: &Facts, pod: &Pod, uid: &PodUid, attempt: u32) -> Result<Sandbox, String> {
    let setup = facts.workers.worker(uid).and_then(|w| w.setup());
    let resolver = setup.and_then(|s| s.resolv_conf.as_deref());
    sandbox::sandbox(pod, attempt, resolver, layout(facts), facts.machine()).map_err(|e| e.0)
}

pub(super) fn create_container(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
    image: &ImageFound,
) -> Result<(api::CreateContainerRequest, Vec<SealedText>), String> {
    let image = ContainerImage { id: &image.id, user: &image.user };
    let make = |input: &ContainerInput<'_>| config::container_config(input, &image);
    let made = with_input(facts, pod, uid, start, make)?;
    let attempt = facts.pleg.view(uid).and_then(|v| v.sandbox()).map_or(0, |s| s.attempt);
    let request = api::CreateContainerRequest {
        pod_sandbox_id: start.sandbox.as_str().into(),
        config: Some(made.config),
        sandbox_config: Some(sandbox(facts, pod, uid, attempt)?.config),
    };
    Ok((request, made.sealed))
}

/// Gathers what the start of a container depends on.
fn with_input<T>(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
    make: impl FnOnce(&ContainerInput<'_>) -> Result<T, ConfigError>,
) -> Result<T, String> {
    let mut all = volumes::all_containers(pod);
    let container = all.find(|c| c.name == start.name).ok_or("the container left its pod")?;
    let setup = facts.workers.worker(uid).and_then(|w| w.setup());
    let input = ContainerInput {
        pod,
        container,
        attempt: start.attempt,
        pod_ips: &hosts::pod_ips(pod, facts.pleg.view(uid), facts.machine()),
        node_hosts: setup.and_then(|s| s.node_hosts.as_deref()).unwrap_or_default(),
        recursive_read_only: facts.runtime_status.recursive_read_only(),
        volumes: &facts.volumes,
        services: &facts.services,
        settings: facts.settings(),
        machine: facts.machine(),
    };
    make(&input).map_err(|e| e.0)
}

/// `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`, cut to 255 bytes with its ending.
pub(super) fn log_link(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
    id: &ContainerId,
) -> Option<DiskOp> {
    let settings = facts.settings();
    let dir = &settings.container_links_dir;
    // An id that is no file name makes no link.
    if dir.is_empty() || id.as_str().contains('/') {
        return None;
    }
    let meta = &pod.metadata;
    let mut name = format!("{}_{}_{}-{id}", meta.name, meta.namespace, start.name);
    while name.len() > 251 {
        name.pop();
    }
    let logs = settings.log_dir(&meta.namespace, &meta.name, uid);
    let target = format!("{logs}/{}/{}.log", start.name, start.attempt);
    Some(DiskOp::Symlink { link: format!("{dir}/{name}.log"), target })
}
