//! The whole of a container as the runtime is told, and the files that must be there first.
//!
//! Upstream: generateContainerConfig in pkg/kubelet/kuberuntime and GenerateRunContainerOptions in
//! pkg/kubelet, v1.36.

use crate::effect::{ContainerFiles, Place, SealedText};
use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::containers::env::environment;
use crate::managers::containers::expansion::{Env, Text, expand};
use crate::managers::containers::hash::{go_json, hash_text};
use crate::managers::containers::hosts::{host_network_hosts_file, hosts_file, pod_hostname};
use crate::managers::containers::image::ImageUser;
use crate::managers::containers::resources::container_resources;
use crate::managers::containers::sandbox::{pod_labels, strings};
use crate::managers::containers::security::container_security;
use crate::managers::containers::services::ServicesFacts;
use crate::managers::containers::volumes::{pod_uid, volume_mounts};
use crate::managers::cri as names;
use crate::managers::volumes::VolumesFacts;
use crate::managers::volumes::payload::Given;
use crate::settings::Settings;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::container::{Container, ContainerPort};
use steplet_api::cri;
use steplet_api::json::to_vec;
use steplet_api::pod::Pod;

const ETC_HOSTS: &str = "/etc/hosts";

const RESTART_COUNT_ANNOTATION: &str = "io.kubernetes.container.restartCount";
const DELETION_GRACE_ANNOTATION: &str = "io.kubernetes.pod.deletionGracePeriod";
const PRE_STOP_ANNOTATION: &str = "io.kubernetes.container.preStopHandler";
const PORTS_ANNOTATION: &str = "io.kubernetes.container.ports";

/// One start of a container, and what it depends on.
#[derive(Clone, Copy)]
pub struct ContainerInput<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// Starts before this one: the restart count.
    pub attempt: u32,
    /// By `hosts::pod_ips`.
    pub pod_ips: &'a [&'a str],
    /// The node's /etc/hosts, for pods on the host network.
    pub node_hosts: &'a str,
    /// Whether the runtime supports recursive read-only mounts.
    pub recursive_read_only: bool,
    /// The objects of the API that are at hand.
    pub volumes: &'a VolumesFacts,
    pub services: &'a ServicesFacts,
    pub settings: &'a Settings,
    pub machine: &'a Machine,
}

/// The image that a container is made of.
#[derive(Clone, Copy)]
pub struct ContainerImage<'a> {
    /// What the runtime resolved the image to.
    pub id: &'a str,
    pub user: &'a ImageUser,
}

/// What the runtime must find on disk before it makes the container.
pub fn container_files(input: &ContainerInput<'_>) -> Result<ContainerFiles, ConfigError> {
    let ContainerInput { pod, container, settings, .. } = input;
    let meta = &pod.metadata;
    let logs = settings.log_dir(&meta.namespace, &meta.name, &pod_uid(pod));
    let env = env(input)?;
    Ok(ContainerFiles {
        etc_hosts: etc_hosts(input)?,
        termination_log: termination_log(input),
        subpaths: volume_mounts(pod, container, &env, settings, input.recursive_read_only)?
            .subpaths,
        log_dir: format!("{logs}/{}", container.name),
    })
}

/// A container as the runtime is told of it, and the secrets that the door puts in on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeConfig {
    pub config: cri::ContainerConfig,
    pub sealed: Vec<SealedText>,
}

/// The container for the runtime; `container_files` must have been made before.
pub fn container_config(
    input: &ContainerInput<'_>,
    image: &ContainerImage<'_>,
) -> Result<MadeConfig, ConfigError> {
    let ContainerInput { pod, container, attempt, settings, machine, .. } = *input;
    let env = env(input)?;
    let security = container_security(pod, container, image.user, settings, machine)?;
    let mounts = mounts(input, &env)?;
    let mut labels = pod_labels(pod);
    labels.insert(names::LABEL_CONTAINER_NAME.into(), container.name.to_string());
    let mut sealed = Vec::new();
    let mut expanded = |list: &[_], place: fn(u32) -> Place| -> Result<Vec<String>, ConfigError> {
        let texts = strings(list).map(|text| expand(&text, &env)).zip(0..);
        texts.map(|(text, index)| Ok(told(text?, || place(index), &mut sealed))).collect()
    };
    let command = expanded(&container.command, Place::Command)?;
    let args = expanded(&container.args, Place::Arg)?;
    let envs = env.into_iter().map(|(key, value)| {
        let value = told(value, || Place::Env(key.clone()), &mut sealed).into_bytes();
        cri::KeyValue { key, value }
    });
    let envs = envs.collect();
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.to_string(), attempt }),
        image: Some(cri::ImageSpec {
            image: image.id.to_string(),
            user_specified_image: container.image.to_string(),
            ..cri::ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.to_string(),
        mounts,
        labels,
        annotations: annotations(pod, container, attempt),
        log_path: format!("{}/{attempt}.log", container.name),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(container_resources(pod, container, settings, machine)),
            security_context: Some(security),
        }),
        envs,
        ..cri::ContainerConfig::default()
    };
    Ok(MadeConfig { config, sealed })
}

/// A text as the request has it: empty when the door is to put it in, because a secret stands in it.
fn told(text: Text, place: impl FnOnce() -> Place, sealed: &mut Vec<SealedText>) -> String {
    match text.plain() {
        Some(plain) => plain.to_string(),
        None => {
            sealed.push(SealedText { place: place(), parts: text.into_parts() });
            String::new()
        }
    }
}

/// The host file of the termination message of one start, none if the container wants none. Its
/// name has eight hexadecimal digits, as upstream's random ones.
pub fn termination_log(input: &ContainerInput<'_>) -> Option<String> {
    let ContainerInput { pod, container, attempt, settings, .. } = input;
    if container.termination_message_path.is_empty() {
        return None;
    }
    let dir = settings.containers_dir(&pod_uid(pod));
    Some(format!("{dir}/{}/{attempt:08x}", container.name))
}

fn env(input: &ContainerInput<'_>) -> Result<Env, ConfigError> {
    let ContainerInput { pod, container, pod_ips, volumes, settings, machine, services, .. } =
        *input;
    environment(pod, container, pod_ips, &Given { volumes, settings, machine, services })
}

/// Path and content of the pod's hosts file, unless the container mounts its own.
fn etc_hosts(input: &ContainerInput<'_>) -> Result<Option<(String, String)>, ConfigError> {
    let ContainerInput { pod, container, pod_ips, settings, .. } = input;
    let own = container.volume_mounts.iter().any(|mount| &*mount.mount_path == ETC_HOSTS);
    if own || pod_ips.is_empty() {
        return Ok(None);
    }
    let aliases = &pod.spec.host_aliases;
    let content = if pod.spec.host_network {
        host_network_hosts_file(input.node_hosts, aliases)
    } else {
        hosts_file(&pod_hostname(pod, &settings.cluster_domain)?, pod_ips, aliases)
    };
    Ok(Some((format!("{}/etc-hosts", settings.pod_dir(&pod_uid(pod))), content)))
}

fn mounts(input: &ContainerInput<'_>, env: &Env) -> Result<Vec<cri::Mount>, ConfigError> {
    let ContainerInput { pod, container, settings, recursive_read_only, .. } = *input;
    let mut mounts = volume_mounts(pod, container, env, settings, recursive_read_only)?.mounts;
    let mut file = |host_path: String, container_path: &str| {
        let container_path = container_path.to_string();
        mounts.push(cri::Mount { host_path, container_path, ..cri::Mount::default() });
    };
    if let Some((path, _)) = etc_hosts(input)? {
        file(path, ETC_HOSTS);
    }
    if let Some(path) = termination_log(input) {
        file(path, &container.termination_message_path);
    }
    Ok(mounts)
}

/// What a later agent, or this one after a restart, must know of the container without its pod.
fn annotations(pod: &Pod, container: &Container, attempt: u32) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        (names::HASH.to_string(), hash_text(container)),
        (RESTART_COUNT_ANNOTATION.into(), attempt.to_string()),
        (names::TERMINATION_PATH.into(), container.termination_message_path.to_string()),
        (names::TERMINATION_POLICY.into(), container.termination_message_policy.to_string()),
    ]);
    if let Some(seconds) = pod.metadata.deletion_grace_period_seconds {
        all.insert(DELETION_GRACE_ANNOTATION.into(), seconds.to_string());
    }
    if let Some(seconds) = pod.spec.termination_grace_period_seconds {
        all.insert(names::POD_GRACE.into(), seconds.to_string());
    }
    if let Some(hook) = container.lifecycle.as_deref().and_then(|hooks| hooks.pre_stop.as_deref()) {
        let json = String::from_utf8(to_vec(hook)).expect("JSON is UTF-8");
        all.insert(PRE_STOP_ANNOTATION.into(), go_json(&json));
    }
    if !container.ports.is_empty() {
        let ports: Vec<String> = container.ports.iter().map(port_json).collect();
        all.insert(PORTS_ANNOTATION.into(), go_json(&format!("[{}]", ports.join(","))));
    }
    all
}

/// A port with its fields in Go's order: the annotation is compared as text by some tools.
fn port_json(port: &ContainerPort) -> String {
    let text = |text: &str| serde_json::to_string(text).expect("a string is JSON");
    let mut fields = Vec::new();
    if !port.name.is_empty() {
        fields.push(format!("\"name\":{}", text(&port.name)));
    }
    if port.host_port != 0 {
        fields.push(format!("\"hostPort\":{}", port.host_port));
    }
    fields.push(format!("\"containerPort\":{}", port.container_port));
    if !port.protocol.is_empty() {
        fields.push(format!("\"protocol\":{}", text(&port.protocol)));
    }
    if !port.host_ip.is_empty() {
        fields.push(format!("\"hostIP\":{}", text(&port.host_ip)));
    }
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};

    /// Gives a container of this pod, at attempt 2, to `check`.
    fn with(pod: &Pod, check: impl FnOnce(&ContainerInput<'_>)) {
        let (settings, machine) = (settings(), machine());
        check(&ContainerInput {
            pod,
            container: &pod.spec.containers[0],
            attempt: 2,
            pod_ips: &["10.1.0.5"],
            node_hosts: "127.0.0.1 localhost\n",
            recursive_read_only: false,
            volumes: &VolumesFacts::default(),
            services: &ServicesFacts::default(),
            settings: &settings,
            machine: &machine,
        });
    }

    fn config(pod: &Pod) -> Result<cri::ContainerConfig, ConfigError> {
        let mut config = Err(ConfigError(String::new()));
        let image = ContainerImage { id: "sha256:abc", user: &ImageUser::Uid(0) };
        with(pod, |input| config = container_config(input, &image));
        config.map(|made| made.config)
    }

    const POD: &str = r#"{"terminationGracePeriodSeconds":30,"volumes":[{"name":"v"}],
        "containers":[{"name":"c","image":"busybox:1","command":["sh","-c","$(A)"],
        "args":["$$(A)"],"workingDir":"/$(A)","env":[{"name":"A","value":"one"}],
        "terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File",
        "tty":true,"stdin":true,
        "ports":[{"name":"web","containerPort":8080,"hostPort":18125,"protocol":"TCP"},
            {"containerPort":53}],
        "lifecycle":{"preStop":{"exec":{"command":["sh","-c","echo > /x"]}}},
        "volumeMounts":[{"name":"v","mountPath":"/v","subPath":"a"}]}]}"#;

    #[test]
    fn a_whole_container() {
        let got = config(&pod(POD)).unwrap();
        let metadata = got.metadata.as_ref().unwrap();
        assert_eq!((&*metadata.name, metadata.attempt), ("c", 2));
        let image = got.image.as_ref().unwrap();
        assert_eq!((&*image.image, &*image.user_specified_image), ("sha256:abc", "busybox:1"));
        assert_eq!(got.command, ["sh", "-c", "one"]);
        assert_eq!((&got.args[..], &*got.working_dir), (&["$(A)".to_string()][..], "/$(A)"));
        assert_eq!((got.stdin, got.stdin_once, got.tty), (true, false, true));
        assert_eq!(got.log_path, "c/2.log");
        assert_eq!(got.envs[0], cri::KeyValue { key: "A".into(), value: b"one".to_vec() });
        let labels: Vec<_> = got.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            labels,
            [
                "io.kubernetes.container.name=c",
                "io.kubernetes.pod.name=p",
                "io.kubernetes.pod.namespace=ns",
                "io.kubernetes.pod.uid=u",
            ]
        );
        let mounts: Vec<_> =
            got.mounts.iter().map(|m| format!("{} {}", m.container_path, m.host_path)).collect();
        const DIR: &str = "/var/lib/kubelet/pods/u";
        assert_eq!(
            mounts,
            [
                format!("/v {DIR}/volumes/kubernetes.io~empty-dir/v/a"),
                format!("/etc/hosts {DIR}/etc-hosts"),
                format!("/dev/termination-log {DIR}/containers/c/00000002"),
            ]
        );
        assert!(got.linux.is_some_and(|l| l.resources.is_some() && l.security_context.is_some()));
    }

    #[test]
    fn annotations_for_those_who_come_later() {
        let mut pod = pod(POD);
        pod.metadata.deletion_grace_period_seconds = Some(5);
        let got = config(&pod).unwrap().annotations;
        let got: Vec<_> = got.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            got,
            [
                "io.kubernetes.container.hash=1aaabc84",
                "io.kubernetes.container.ports=[{\"name\":\"web\",\"hostPort\":18125,\
                 \"containerPort\":8080,\"protocol\":\"TCP\"},{\"containerPort\":53}]",
                "io.kubernetes.container.preStopHandler={\"exec\":{\"command\":[\"sh\",\"-c\",\
                 \"echo \\u003e /x\"]}}",
                "io.kubernetes.container.restartCount=2",
                "io.kubernetes.container.terminationMessagePath=/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy=File",
                "io.kubernetes.pod.deletionGracePeriod=5",
                "io.kubernetes.pod.terminationGracePeriod=30",
            ]
        );
    }

    #[test]
    fn files_of_a_container() {
        with(&pod(POD), |input| {
            let files = container_files(input).unwrap();
            let (path, content) = files.etc_hosts.unwrap();
            assert_eq!(path, "/var/lib/kubelet/pods/u/etc-hosts");
            assert!(content.ends_with("10.1.0.5\tp\n"), "{content}");
            assert_eq!(
                files.termination_log.as_deref(),
                Some("/var/lib/kubelet/pods/u/containers/c/00000002")
            );
            assert_eq!(files.log_dir, "/var/log/pods/ns_p_u/c");
            assert_eq!(files.subpaths[0].path, "a");
        });
        let bare = pod(r#"{"hostNetwork":true,"containers":[{"name":"c"}]}"#);
        with(&bare, |input| {
            let files = container_files(input).unwrap();
            let (_, content) = files.etc_hosts.unwrap();
            assert!(content.ends_with("(host network).\n127.0.0.1 localhost\n"), "{content}");
            assert_eq!(files.termination_log, None);
        });
    }

    #[test]
    fn own_hosts_file() {
        let pod = pod(r#"{"volumes":[{"name":"v"}],"containers":[{"name":"c",
            "volumeMounts":[{"name":"v","mountPath":"/etc/hosts","subPath":"hosts"}]}]}"#);
        with(&pod, |input| assert_eq!(container_files(input).unwrap().etc_hosts, None));
        assert_eq!(config(&pod).unwrap().mounts.len(), 1);
    }

    #[test]
    fn a_bad_container_says_why() {
        let pod = pod(r#"{"containers":[{"name":"c","securityContext":{"runAsNonRoot":true}}]}"#);
        assert_eq!(
            config(&pod).unwrap_err().0,
            "container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)"
        );
    }
}
