//! The bodies of calls for a pod, from the pure functions of `containers` and the facts.

use super::plan::Start;
use super::runtime::Image;
use crate::effect::{Cgroup, ContainerFiles, DiskOp, PodSetup, VolumeKind, VolumeSetup};
use crate::facts::Facts;
use crate::ids::{ContainerId, PodUid};
use crate::managers::containers::{cgroups, hash};
use crate::managers::cri;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::cri as api;
use steplet_api::pod::Pod;

/// `/kubepods` below the configured root, without a leading slash.
pub(super) fn kubepods(facts: &Facts) -> String {
    cgroups::kubepods_path(facts.settings())
}

pub(super) fn pod_cgroup(facts: &Facts, pod: &Pod) -> String {
    cgroups::pod_path(facts.settings(), pod)
}

/// The tree above the pod and the pod's own, parents first.
pub(super) fn cgroups(facts: &Facts, pod: &Pod) -> Vec<Cgroup> {
    let pods = facts.workers.all().values().map(|w| &**w.pod());
    let burstable = cgroups::burstable_milli(pods);
    let mut all = cgroups::qos_tree(facts.settings(), facts.machine(), burstable);
    all.extend(cgroups::pod_cgroup(facts.settings(), facts.machine(), pod));
    all
}

pub(super) fn pod_setup(facts: &Facts, pod: &Pod, uid: &PodUid) -> Result<PodSetup, String> {
    let settings = facts.settings();
    let pod_dir = settings.pod_dir(uid);
    let volumes = pod.spec.volumes.iter().map(|v| VolumeSetup {
        name: v.name.to_string(),
        kind: VolumeKind::EmptyDir {
            path: format!("{pod_dir}/volumes/kubernetes.io~empty-dir/{}", v.name),
            gid: None,
        },
    });
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    Ok(PodSetup {
        volumes: volumes.collect(),
        log_dir: settings.log_dir(&pod.metadata.namespace, &pod.metadata.name, uid),
        containers: all.map(|c| c.name.to_string()).collect(),
        resolv_conf: settings.resolv_conf.clone(),
        node_hosts: pod.spec.host_network,
        pod_dir,
    })
}

pub(super) fn container_files(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
) -> ContainerFiles {
    let settings = facts.settings();
    let logs = settings.log_dir(&pod.metadata.namespace, &pod.metadata.name, uid);
    ContainerFiles { log_dir: format!("{logs}/{}", start.name), ..ContainerFiles::default() }
}

/// The request, and the warnings that making it brought up.
pub(super) fn run_sandbox(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    attempt: u32,
) -> Result<(api::RunPodSandboxRequest, Vec<String>), String> {
    let config = sandbox_config(facts, pod, uid, attempt);
    let request =
        api::RunPodSandboxRequest { config: Some(config), runtime_handler: String::new() };
    Ok((request, Vec::new()))
}

fn sandbox_config(facts: &Facts, pod: &Pod, uid: &PodUid, attempt: u32) -> api::PodSandboxConfig {
    let meta = &pod.metadata;
    api::PodSandboxConfig {
        metadata: Some(api::PodSandboxMetadata {
            name: meta.name.to_string(),
            uid: uid.to_string(),
            namespace: meta.namespace.to_string(),
            attempt,
        }),
        labels: [
            (cri::LABEL_POD_NAME.into(), meta.name.to_string()),
            (cri::LABEL_POD_NAMESPACE.into(), meta.namespace.to_string()),
            (cri::LABEL_POD_UID.into(), uid.to_string()),
        ]
        .into(),
        log_directory: facts.settings().log_dir(&meta.namespace, &meta.name, uid),
        ..Default::default()
    }
}

pub(super) fn create_container(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
    image: &Image,
) -> Result<api::CreateContainerRequest, String> {
    let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let container = all.find(|c| c.name == start.name).ok_or("the container left its pod")?;
    let meta = &pod.metadata;
    let attempt = facts.pleg.view(uid).and_then(|v| v.sandbox()).map_or(0, |s| s.attempt);
    let config = api::ContainerConfig {
        metadata: Some(api::ContainerMetadata {
            name: container.name.to_string(),
            attempt: start.attempt,
        }),
        image: Some(api::ImageSpec { image: image.id.to_string(), ..Default::default() }),
        command: container.command.iter().map(|s| s.to_string()).collect(),
        args: container.args.iter().map(|s| s.to_string()).collect(),
        labels: [
            (cri::LABEL_POD_NAME.into(), meta.name.to_string()),
            (cri::LABEL_POD_NAMESPACE.into(), meta.namespace.to_string()),
            (cri::LABEL_POD_UID.into(), uid.to_string()),
            (cri::LABEL_CONTAINER_NAME.into(), container.name.to_string()),
        ]
        .into(),
        annotations: [(cri::HASH.into(), hash::hash_text(container))].into(),
        log_path: format!("{}/{}.log", container.name, start.attempt),
        ..Default::default()
    };
    Ok(api::CreateContainerRequest {
        pod_sandbox_id: start.sandbox.as_str().into(),
        config: Some(config),
        sandbox_config: Some(sandbox_config(facts, pod, uid, attempt)),
    })
}

/// `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`, cut to 255 bytes before the ending.
pub(super) fn log_link(
    facts: &Facts,
    pod: &Pod,
    uid: &PodUid,
    start: &Start,
    id: &ContainerId,
) -> Option<DiskOp> {
    let settings = facts.settings();
    let dir = &settings.container_links_dir;
    if dir.is_empty() {
        return None;
    }
    let meta = &pod.metadata;
    let mut name = format!("{}_{}_{}-{id}", meta.name, meta.namespace, start.name);
    name.truncate(251);
    let logs = settings.log_dir(&meta.namespace, &meta.name, uid);
    let target = format!("{logs}/{}/{}.log", start.name, start.attempt);
    Some(DiskOp::Symlink { link: format!("{dir}/{name}.log"), target })
}
