//! The directories and volumes of a pod, and what containers mount of them.
//!
//! Upstream: pkg/volume/emptydir, pkg/volume/hostpath and makeMounts in pkg/kubelet, v1.36. What stands in the files of
//! configMap, secret, downwardAPI and projected volumes is `volumes/payload.rs`'s affair. A pod that mounts another
//! kind waits, with an error that names the volume.

use crate::effect::{HostPathKind, PodSetup, SubPath, VolumeKind, VolumeSetup};
use crate::event::Machine;
use crate::ids::PodUid;
use crate::managers::containers::ConfigError;
use crate::managers::containers::cgroups::pod_memory_limit;
use crate::managers::containers::expansion::{Env, expand_sub_path};
use crate::managers::volumes::payload::{self, Given, fs_group, is_made};
use crate::settings::Settings;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::container::{Container, VolumeMount, mount_propagation};
use steplet_api::cri::{Mount, MountPropagation};
use steplet_api::pod::Pod;
use steplet_api::quantity::Quantity;
use steplet_api::volume::{EmptyDirVolumeSource, HostPathVolumeSource, Volume};

const MEDIUM_MEMORY: &str = "Memory";

/// What must be there before the first container of a pod is made. The error is the message of a
/// FailedMount event.
pub fn pod_setup(pod: &Pod, given: &Given<'_>) -> Result<PodSetup, ConfigError> {
    let (meta, settings) = (&pod.metadata, given.settings);
    let uid = pod_uid(pod);
    let volumes = pod.spec.volumes.iter().filter(|volume| is_used(pod, volume));
    let volumes = volumes.map(|volume| volume_setup(pod, volume, given));
    Ok(PodSetup {
        pod_dir: settings.pod_dir(&uid),
        log_dir: settings.log_dir(&meta.namespace, &meta.name, &uid),
        containers: all_containers(pod).map(|container| container.name.to_string()).collect(),
        volumes: volumes.collect::<Result<_, _>>()?,
        resolv_conf: settings.resolv_conf.clone(),
        node_hosts: pod.spec.host_network,
    })
}

/// Whether a container has the volume: the others are not made.
pub fn is_used(pod: &Pod, volume: &Volume) -> bool {
    all_containers(pod).any(|container| {
        container.volume_mounts.iter().any(|mount| mount.name == volume.name)
            || container.volume_devices.iter().any(|device| device.name == volume.name)
    })
}

/// Whether setting up needs the helper: a mount, or a path that is not ours, may hang.
pub fn needs_helper(setup: &PodSetup) -> bool {
    setup.volumes.iter().any(|volume| match &volume.kind {
        VolumeKind::EmptyDir { .. } => false,
        VolumeKind::HostPath { kind, .. } => *kind != HostPathKind::Unchecked,
        VolumeKind::MemoryDir { .. } | VolumeKind::Files { .. } => true,
    })
}

/// The volume mounts of a container, and the directories below volumes that they need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolumeMounts {
    pub mounts: Vec<Mount>,
    pub subpaths: Vec<SubPath>,
}

/// `recursive_read_only`: the runtime can make a mount read-only with all mounts below it.
pub fn volume_mounts(
    pod: &Pod,
    container: &Container,
    env: &Env,
    settings: &Settings,
    recursive_read_only: bool,
) -> Result<VolumeMounts, ConfigError> {
    let mut all = VolumeMounts::default();
    for mount in &container.volume_mounts {
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == mount.name);
        let Some(volume) = volume else {
            return Err(ConfigError(format!(
                "cannot find volume {:?} to mount into container {:?}",
                mount.name, container.name
            )));
        };
        let mut host_path = host_path(pod, volume, settings)?;
        if let Some(path) = sub_path(mount, env)? {
            let volume = core::mem::take(&mut host_path);
            host_path = format!("{}/{path}", volume.trim_end_matches('/'));
            all.subpaths.push(SubPath { volume, path });
        }
        all.mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path,
            // What is replaced as a whole is not for containers to write to.
            readonly: mount.read_only || is_made(volume),
            propagation: propagation(mount)?.into(),
            recursive_read_only: recursively_read_only(mount, recursive_read_only).map_err(
                |e| ConfigError(format!("failed to resolve recursive read-only mode: {e}")),
            )?,
            ..Mount::default()
        });
    }
    Ok(all)
}

/// Whether a mount is read-only with all mounts below it; the pod may insist, or take what the
/// runtime can do.
pub fn recursively_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, ConfigError> {
    let name = &mount.name;
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let refuse = |why: String| {
        Err(ConfigError(format!(
            "volume {name:?} requested recursive read-only mode, but it is {why}"
        )))
    };
    if !mount.read_only {
        return refuse("not read-only".into());
    }
    if let Some(propagation) = mount.mount_propagation.as_deref()
        && propagation != mount_propagation::NONE
    {
        return refuse(format!("not compatible with propagation {propagation:?}"));
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => refuse("not supported by the runtime".into()),
        _ => Err(ConfigError(format!("unknown recursive read-only mode {mode:?}"))),
    }
}

pub fn pod_uid(pod: &Pod) -> PodUid {
    PodUid(pod.metadata.uid.clone())
}

/// Init containers first.
pub fn all_containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.init_containers.iter().chain(&pod.spec.containers)
}

fn volume_setup(pod: &Pod, volume: &Volume, given: &Given<'_>) -> Result<VolumeSetup, ConfigError> {
    let Given { settings, machine, .. } = *given;
    let name = &volume.name;
    let failed = |why: ConfigError| {
        ConfigError(format!("MountVolume.SetUp failed for volume {name:?} : {why}"))
    };
    let path = host_path(pod, volume, settings).map_err(failed)?;
    let kind = match source(volume).map_err(failed)? {
        Source::EmptyDir(source) => {
            empty_dir(pod, source, path, settings, machine).map_err(failed)?
        }
        Source::HostPath(source) => {
            let kind = host_path_kind(source.type_.as_deref().unwrap_or_default());
            VolumeKind::HostPath { path, kind: kind.map_err(failed)? }
        }
        Source::Made(plugin) => {
            // ConfigMaps lie on disk, what may be secret or is about the pod itself in memory.
            let memory = plugin != CONFIG_MAP;
            let files = payload::files(pod, volume, given).map_err(failed)?;
            VolumeKind::Files { path, memory, gid: fs_group(pod), files }
        }
    };
    Ok(VolumeSetup { name: name.to_string(), kind })
}

enum Source<'a> {
    EmptyDir(Option<&'a EmptyDirVolumeSource>),
    HostPath(&'a HostPathVolumeSource),
    /// Files of the API, by the plugin's name in paths.
    Made(&'static str),
}

const CONFIG_MAP: &str = "kubernetes.io~configmap";

/// A volume without a source is an emptyDir.
fn source(volume: &Volume) -> Result<Source<'_>, ConfigError> {
    if let Some(source) = &volume.host_path {
        return Ok(Source::HostPath(source));
    }
    let other = volume.sources().find(|source| *source != "emptyDir");
    match other {
        Some("configMap") => Ok(Source::Made(CONFIG_MAP)),
        Some("secret") => Ok(Source::Made("kubernetes.io~secret")),
        Some("downwardAPI") => Ok(Source::Made("kubernetes.io~downward-api")),
        Some("projected") => Ok(Source::Made("kubernetes.io~projected")),
        None => Ok(Source::EmptyDir(volume.empty_dir.as_deref())),
        Some(other) => {
            let name = &volume.name;
            Err(ConfigError(format!(
                "volume {name:?} is of kind {other}, which is not supported yet"
            )))
        }
    }
}

fn empty_dir(
    pod: &Pod,
    source: Option<&EmptyDirVolumeSource>,
    path: String,
    settings: &Settings,
    machine: &Machine,
) -> Result<VolumeKind, ConfigError> {
    let gid = fs_group(pod);
    match source.map_or("", |source| &*source.medium) {
        "" => Ok(VolumeKind::EmptyDir { path, gid }),
        MEDIUM_MEMORY => {
            let limit = source.and_then(|source| source.size_limit.as_ref());
            let size_bytes = memory_dir_bytes(pod, limit, settings, machine);
            Ok(VolumeKind::MemoryDir { path, size_bytes, gid })
        }
        other => Err(ConfigError(format!("unknown storage medium {other:?}"))),
    }
}

/// No more than the volume's limit, the pod's memory and what the node has for pods: the least
/// of those that are set.
fn memory_dir_bytes(
    pod: &Pod,
    limit: Option<&Quantity>,
    settings: &Settings,
    machine: &Machine,
) -> u64 {
    let node = machine.memory_bytes.saturating_sub(settings.reserved_memory_bytes);
    let own = limit.and_then(|limit| u64::try_from(limit.value()).ok()).filter(|own| *own > 0);
    [own, pod_memory_limit(pod)].into_iter().flatten().fold(node, u64::min)
}

fn host_path_kind(kind: &str) -> Result<HostPathKind, ConfigError> {
    Ok(match kind {
        "" => HostPathKind::Unchecked,
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        other => return Err(ConfigError(format!("{other} is an invalid volume type"))),
    })
}

/// Where a volume lies on the node.
fn host_path(pod: &Pod, volume: &Volume, settings: &Settings) -> Result<String, ConfigError> {
    let plugin = match source(volume)? {
        Source::HostPath(source) => return Ok(source.path.to_string()),
        Source::EmptyDir(_) => "kubernetes.io~empty-dir",
        Source::Made(plugin) => plugin,
    };
    Ok(format!("{}/volumes/{plugin}/{}", settings.pod_dir(&pod_uid(pod)), volume.name))
}

/// The path below the volume that is mounted, none for the whole. It must not lead out.
fn sub_path(mount: &VolumeMount, env: &Env) -> Result<Option<String>, ConfigError> {
    let path = if mount.sub_path_expr.is_empty() {
        mount.sub_path.to_string()
    } else {
        expand_sub_path(&mount.sub_path_expr, env)?
    };
    if path.starts_with('/') {
        return Err(ConfigError(format!("error SubPath `{path}` must not be an absolute path")));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ConfigError(format!(
            "unable to provision SubPath `{path}`: must not contain '..'"
        )));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_string() } else { format!("/{path}") }
}

fn propagation(mount: &VolumeMount) -> Result<MountPropagation, ConfigError> {
    match mount.mount_propagation.as_deref() {
        None | Some(mount_propagation::NONE) => Ok(MountPropagation::PropagationPrivate),
        Some(mount_propagation::HOST_TO_CONTAINER) => {
            Ok(MountPropagation::PropagationHostToContainer)
        }
        Some(mount_propagation::BIDIRECTIONAL) => Ok(MountPropagation::PropagationBidirectional),
        Some(other) => Err(ConfigError(format!("invalid MountPropagation mode: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::{Content, VolumeFile};
    use crate::managers::containers::services::ServicesFacts;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};
    use crate::managers::volumes::VolumesFacts;
    use alloc::vec;

    fn setup_of(pod: &Pod) -> Result<PodSetup, ConfigError> {
        let volumes = VolumesFacts::default();
        let (settings, machine) = (&settings(), &machine());
        pod_setup(
            pod,
            &Given { volumes: &volumes, settings, machine, services: &ServicesFacts::default() },
        )
    }

    fn with_volume(volume: &str, more: &str) -> Pod {
        pod(&format!(
            r#"{{"volumes":[{{"name":"v"{volume}}}],{more}
            "containers":[{{"name":"c","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]}}"#
        ))
    }

    const DIR: &str = "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v";

    #[test]
    fn kinds_of_volumes() {
        fn check(volume: &str, more: &str, want: Result<VolumeKind, &str>) {
            let got = setup_of(&with_volume(volume, more));
            let got = got.map(|setup| setup.volumes[0].kind.clone()).map_err(|e| e.0);
            assert_eq!(got, want.map_err(str::to_string), "{volume}");
        }
        let dir = |gid| VolumeKind::EmptyDir { path: DIR.into(), gid };
        check("", "", Ok(dir(None)));
        check(r#","emptyDir":{}"#, "", Ok(dir(None)));
        check(r#","emptyDir":{}"#, r#""securityContext":{"fsGroup":7},"#, Ok(dir(Some(7))));
        let memory = |size_bytes| VolumeKind::MemoryDir { path: DIR.into(), size_bytes, gid: None };
        check(r#","emptyDir":{"medium":"Memory"}"#, "", Ok(memory(1000 << 20)));
        check(
            r#","emptyDir":{"medium":"Memory","sizeLimit":"10Mi"}"#,
            r#""resources":{"limits":{"memory":"20Mi"}},"#,
            Ok(memory(10 << 20)),
        );
        check(
            r#","emptyDir":{"medium":"Memory","sizeLimit":"1Ti"}"#,
            r#""resources":{"limits":{"memory":"20Mi"}},"#,
            Ok(memory(20 << 20)),
        );
        check(r#","emptyDir":{"medium":"Memory","sizeLimit":"1Ti"}"#, "", Ok(memory(1000 << 20)));
        let host = |kind| VolumeKind::HostPath { path: "/x".into(), kind };
        check(r#","hostPath":{"path":"/x"}"#, "", Ok(host(HostPathKind::Unchecked)));
        check(
            r#","hostPath":{"path":"/x","type":"FileOrCreate"}"#,
            "",
            Ok(host(HostPathKind::FileOrCreate)),
        );
        check(
            r#","hostPath":{"path":"/x","type":"Pipe"}"#,
            "",
            Err("MountVolume.SetUp failed for volume \"v\" : Pipe is an invalid volume type"),
        );
        check(
            r#","emptyDir":{"medium":"HugePages"}"#,
            "",
            Err("MountVolume.SetUp failed for volume \"v\" : unknown storage medium \"HugePages\""),
        );
        check(
            r#","secret":{"secretName":"s"}"#,
            "",
            Err("MountVolume.SetUp failed for volume \"v\" : couldn't get secret ns/s, no \
                 kubeClient defined"),
        );
        let content = Content::Plain("p".into());
        let file = VolumeFile { path: "name".into(), mode: 0o644, uid: None, content };
        let path = DIR.replace("empty-dir", "downward-api");
        check(
            r#","downwardAPI":{"items":[{"path":"name","fieldRef":{"fieldPath":"metadata.name"}}]}"#,
            r#""securityContext":{"fsGroup":7},"#,
            Ok(VolumeKind::Files { path, memory: true, gid: Some(7), files: vec![file] }),
        );
        check(
            r#","configMap":{"name":"m"}"#,
            "",
            Err("MountVolume.SetUp failed for volume \"v\" : couldn't get configMap ns/m, no \
                 kubeClient defined"),
        );
        check(
            r#","nfs":{"server":"s","path":"/"}"#,
            "",
            Err("MountVolume.SetUp failed for volume \"v\" : volume \"v\" is of kind nfs, which \
                 is not supported yet"),
        );
    }

    #[test]
    fn the_directories_of_a_pod() {
        let pod = pod(r#"{"hostNetwork":true,
            "volumes":[{"name":"used"},{"name":"idle","secret":{"secretName":"s"}}],
            "initContainers":[{"name":"i","volumeMounts":[{"name":"used","mountPath":"/x"}]}],
            "containers":[{"name":"c"}]}"#);
        let setup = setup_of(&pod).unwrap();
        assert_eq!(setup.pod_dir, "/var/lib/kubelet/pods/u");
        assert_eq!(setup.log_dir, "/var/log/pods/ns_p_u");
        assert_eq!(setup.containers, ["i", "c"]);
        assert_eq!(setup.volumes.len(), 1);
        assert!(setup.node_hosts && setup.resolv_conf == "/etc/resolv.conf");
        assert!(!needs_helper(&setup));
        let memory = with_volume(r#","emptyDir":{"medium":"Memory"}"#, "");
        assert!(needs_helper(&setup_of(&memory).unwrap()));
    }

    fn mounts(mount: &str, recursive: bool) -> Result<VolumeMounts, String> {
        let pod = pod(&format!(
            r#"{{"volumes":[{{"name":"v"}},{{"name":"h","hostPath":{{"path":"/data/"}}}}],
            "containers":[{{"name":"c","volumeMounts":[{mount}]}}]}}"#
        ));
        let env = Env::from([("A".into(), "one".into())]);
        volume_mounts(&pod, &pod.spec.containers[0], &env, &settings(), recursive).map_err(|e| e.0)
    }

    #[test]
    fn paths_of_mounts() {
        fn check(mount: &str, want: Result<&str, &str>) {
            let got = mounts(mount, false).map(|all| {
                let Mount { host_path, container_path, .. } = &all.mounts[0];
                let sub = all.subpaths.first();
                let sub = sub.map(|sub| format!(" {} {}", sub.volume, sub.path));
                format!("{host_path} {container_path}{}", sub.unwrap_or_default())
            });
            assert_eq!(got.as_deref().map_err(|e| &**e), want, "{mount}");
        }
        check(r#"{"name":"v","mountPath":"/v"}"#, Ok(&format!("{DIR} /v")));
        check(r#"{"name":"h","mountPath":"v"}"#, Ok("/data/ /v"));
        check(r#"{"name":"h","mountPath":"/v","subPath":"a/./b/"}"#, Ok("/data/a/b /v /data/ a/b"));
        check(
            r#"{"name":"h","mountPath":"/v","subPathExpr":"x/$(A)"}"#,
            Ok("/data/x/one /v /data/ x/one"),
        );
        check(r#"{"name":"h","mountPath":"/v","subPath":"."}"#, Ok("/data/ /v"));
        check(
            r#"{"name":"h","mountPath":"/v","subPath":"a/../b"}"#,
            Err("unable to provision SubPath `a/../b`: must not contain '..'"),
        );
        check(
            r#"{"name":"h","mountPath":"/v","subPath":"/a"}"#,
            Err("error SubPath `/a` must not be an absolute path"),
        );
        check(r#"{"name":"h","mountPath":"/v","subPathExpr":"$(B)"}"#, Err("missing value for B"));
        check(
            r#"{"name":"x","mountPath":"/v"}"#,
            Err("cannot find volume \"x\" to mount into container \"c\""),
        );
    }

    #[test]
    fn modes_of_mounts() {
        fn check(fields: &str, recursive: bool, want: Result<(bool, i32, bool), &str>) {
            let got = mounts(&format!(r#"{{"name":"v","mountPath":"/v"{fields}}}"#), recursive);
            let got = got.map(|all| {
                let mount = &all.mounts[0];
                (mount.readonly, mount.propagation, mount.recursive_read_only)
            });
            assert_eq!(got.as_ref().map_err(|e| &**e), want.as_ref().map_err(|e| *e), "{fields}");
        }
        check("", true, Ok((false, 0, false)));
        check(r#","mountPropagation":"HostToContainer""#, true, Ok((false, 1, false)));
        check(r#","mountPropagation":"Bidirectional""#, true, Ok((false, 2, false)));
        check(r#","mountPropagation":"Up""#, true, Err("invalid MountPropagation mode: \"Up\""));
        check(r#","readOnly":true"#, true, Ok((true, 0, false)));
        const ENABLED: &str = r#","readOnly":true,"recursiveReadOnly":"Enabled""#;
        check(ENABLED, true, Ok((true, 0, true)));
        check(
            ENABLED,
            false,
            Err("failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                 read-only mode, but it is not supported by the runtime"),
        );
        const POSSIBLE: &str = r#","readOnly":true,"recursiveReadOnly":"IfPossible""#;
        check(POSSIBLE, true, Ok((true, 0, true)));
        check(POSSIBLE, false, Ok((true, 0, false)));
        check(
            r#","recursiveReadOnly":"Enabled""#,
            true,
            Err("failed to resolve recursive read-only mode: volume \"v\" requested recursive \
                 read-only mode, but it is not read-only"),
        );
    }
}
