//! The sandbox of a pod as the runtime is told: names, network, resolver, cgroup, namespaces.
//!
//! Upstream: generatePodSandboxConfig in pkg/kubelet/kuberuntime, v1.36.

use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::containers::cgroups::Layout;
use crate::managers::containers::dns::{DnsWarning, PodDns, pod_dns};
use crate::managers::containers::hosts::{kernel_hostname, pod_hostname};
use crate::managers::containers::resources::{overhead_resources, sandbox_resources};
use crate::managers::containers::security::{
    int64, namespaces, selinux, supplemental_groups, supplemental_groups_policy,
};
use crate::managers::containers::volumes::{all_containers, pod_uid};
use crate::managers::cri as names;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::container::{ContainerPort, protocol};
use steplet_api::cri;
use steplet_api::pod::{Pod, PodSecurityContext};

/// A sandbox for the runtime, and what the pod's user is to be warned of.
#[derive(Clone, Debug, PartialEq)]
pub struct Sandbox {
    pub config: cri::PodSandboxConfig,
    pub warnings: Vec<DnsWarning>,
}

/// `resolv_conf` is the content of the node's resolver file, none if it could not be read.
pub fn sandbox(
    pod: &Pod,
    attempt: u32,
    resolv_conf: Option<&str>,
    layout: Layout<'_>,
    machine: &Machine,
) -> Result<Sandbox, ConfigError> {
    let (meta, settings) = (&pod.metadata, layout.settings);
    let uid = pod_uid(pod);
    let PodDns { config: dns, warnings } = pod_dns(pod, settings, resolv_conf, &machine.host_ips)?;
    let hostname = match pod.spec.host_network {
        true => String::new(),
        false => kernel_hostname(pod, &pod_hostname(pod, &settings.cluster_domain)?)?,
    };
    let config = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: meta.name.to_string(),
            uid: uid.to_string(),
            namespace: meta.namespace.to_string(),
            attempt,
        }),
        hostname,
        log_directory: settings.log_dir(&meta.namespace, &meta.name, &uid),
        dns_config: Some(dns),
        port_mappings: port_mappings(pod),
        labels: own_labels_and(pod_labels(pod), &meta.labels),
        annotations: owned(&meta.annotations).collect(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: layout.parent(pod),
            security_context: Some(security(pod)?),
            sysctls: sysctls(pod),
            overhead: Some(overhead_resources(pod, settings, machine)),
            resources: Some(sandbox_resources(pod, settings, machine)),
        }),
        windows: None,
    };
    Ok(Sandbox { config, warnings })
}

/// The handler of the pod's RuntimeClass. Classes are objects of the API, which is not asked yet.
pub fn runtime_handler(pod: &Pod) -> Result<String, ConfigError> {
    match pod.spec.runtime_class_name.as_deref() {
        None | Some("") => Ok(String::new()),
        Some(class) => Err(ConfigError(format!(
            "RuntimeClass {class:?} not found: runtime classes are not supported yet"
        ))),
    }
}

/// The labels by which the sandbox and containers of a pod are known in the runtime.
pub fn pod_labels(pod: &Pod) -> BTreeMap<String, String> {
    let meta = &pod.metadata;
    [
        (names::LABEL_POD_NAME, &meta.name),
        (names::LABEL_POD_NAMESPACE, &meta.namespace),
        (names::LABEL_POD_UID, &meta.uid),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_string(), value.to_string()))
    .collect()
}

pub fn strings(list: &[Box<str>]) -> impl Iterator<Item = String> {
    list.iter().map(|text| text.to_string())
}

fn owned(map: &BTreeMap<Box<str>, Box<str>>) -> impl Iterator<Item = (String, String)> {
    map.iter().map(|(key, value)| (key.to_string(), value.to_string()))
}

/// Labels of the pod never hide those by which it is known.
fn own_labels_and(
    own: BTreeMap<String, String>,
    labels: &BTreeMap<Box<str>, Box<str>>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = owned(labels).collect();
    all.extend(own);
    all
}

fn security(pod: &Pod) -> Result<cri::LinuxSandboxSecurityContext, ConfigError> {
    let privileged = |container: &steplet_api::container::Container| {
        container.security_context.as_deref().is_some_and(|own| own.privileged == Some(true))
    };
    let default = PodSecurityContext::default();
    let of_pod = pod.spec.security_context.as_deref().unwrap_or(&default);
    Ok(cri::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(pod)?),
        selinux_options: of_pod.se_linux_options.as_deref().map(selinux),
        run_as_user: of_pod.run_as_user.map(int64),
        run_as_group: of_pod.run_as_group.map(int64),
        supplemental_groups: supplemental_groups(of_pod),
        supplemental_groups_policy: supplemental_groups_policy(of_pod)?,
        privileged: all_containers(pod).any(privileged),
        // The sandbox's own process needs no more than this, whatever the containers ask for.
        seccomp: Some(cri::SecurityProfile {
            profile_type: cri::security_profile::ProfileType::RuntimeDefault.into(),
            localhost_ref: String::new(),
        }),
        ..cri::LinuxSandboxSecurityContext::default()
    })
}

fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let sysctls = pod.spec.security_context.iter().flat_map(|context| &context.sysctls);
    sysctls.map(|sysctl| (sysctl.name.to_string(), sysctl.value.to_string())).collect()
}

/// The ports of the main containers. Of ports with one name in a container the first counts, and
/// of ports without a name those that differ.
fn port_mappings(pod: &Pod) -> Vec<cri::PortMapping> {
    let mut mappings = Vec::new();
    for container in &pod.spec.containers {
        let mut seen = BTreeSet::new();
        for port in &container.ports {
            if seen.insert(port_key(port)) {
                mappings.push(port_mapping(port));
            }
        }
    }
    mappings
}

fn port_key(port: &ContainerPort) -> String {
    if !port.name.is_empty() {
        return port.name.to_string();
    }
    let ContainerPort { protocol, host_ip, container_port, host_port, .. } = port;
    format!("-{protocol}-{host_ip}:{container_port}:{host_port}")
}

fn port_mapping(port: &ContainerPort) -> cri::PortMapping {
    let protocol = match &*port.protocol {
        protocol::UDP => cri::Protocol::Udp,
        protocol::SCTP => cri::Protocol::Sctp,
        _ => cri::Protocol::Tcp,
    };
    cri::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};

    fn of(pod: &Pod) -> cri::PodSandboxConfig {
        let settings = settings();
        let layout = Layout { settings: &settings, driver: Default::default() };
        sandbox(pod, 3, Some("nameserver 192.0.2.53\n"), layout, &machine()).unwrap().config
    }

    #[test]
    fn a_whole_sandbox() {
        let mut pod = pod(r#"{"dnsPolicy":"Default","containers":[{"name":"a"},
            {"name":"b","securityContext":{"privileged":true}}],
            "securityContext":{"runAsUser":1001,"runAsGroup":1002,"fsGroup":5,
            "supplementalGroups":[7],
            "sysctls":[{"name":"kernel.shm_rmid_forced","value":"1"}]}}"#);
        pod.metadata.labels.insert("app".into(), "web".into());
        pod.metadata.labels.insert(names::LABEL_POD_UID.into(), "forged".into());
        pod.metadata.annotations.insert("kubernetes.io/config.source".into(), "file".into());
        let got = of(&pod);
        let metadata = got.metadata.as_ref().unwrap();
        assert_eq!((&*metadata.name, &*metadata.namespace, &*metadata.uid), ("p", "ns", "u"));
        assert_eq!(metadata.attempt, 3);
        assert_eq!((&*got.hostname, &*got.log_directory), ("p", "/var/log/pods/ns_p_u"));
        assert_eq!(got.labels["app"], "web");
        assert_eq!(got.labels[names::LABEL_POD_UID], "u");
        assert_eq!(got.annotations["kubernetes.io/config.source"], "file");
        assert_eq!(got.dns_config.as_ref().unwrap().servers, ["192.0.2.53"]);
        let linux = got.linux.as_ref().unwrap();
        assert_eq!(linux.cgroup_parent, "/kubepods/besteffort/podu");
        assert_eq!(linux.sysctls["kernel.shm_rmid_forced"], "1");
        let resources = linux.resources.as_ref().unwrap();
        assert_eq!((resources.cpu_period, resources.cpu_shares), (100_000, 2));
        assert_eq!(linux.overhead, Some(Default::default()));
        let security = linux.security_context.as_ref().unwrap();
        assert!(security.privileged);
        assert_eq!(security.run_as_user.as_ref().unwrap().value, 1001);
        assert_eq!(security.run_as_group.as_ref().unwrap().value, 1002);
        assert_eq!(security.supplemental_groups, [5, 7]);
        assert_eq!(security.seccomp.as_ref().unwrap().profile_type, 0);
        let namespaces = security.namespace_options.as_ref().unwrap();
        assert_eq!((namespaces.network, namespaces.pid, namespaces.ipc), (0, 1, 0));
        assert_eq!(namespaces.userns_options.as_ref().unwrap().mode, 2);
    }

    #[test]
    fn on_the_host_network() {
        let pod = pod(r#"{"hostNetwork":true,"dnsPolicy":"Default","containers":[{"name":"c"}]}"#);
        let got = of(&pod);
        assert_eq!(got.hostname, "");
        let security = got.linux.unwrap().security_context.unwrap();
        assert_eq!(security.namespace_options.unwrap().network, 2);
        assert!(!security.privileged);
    }

    #[test]
    fn ports() {
        fn check(ports: &str, want: &[(i32, i32, i32, &str)]) {
            let pod = pod(&format!(
                r#"{{"dnsPolicy":"None","containers":[{{"name":"c","ports":[{ports}]}}]}}"#
            ));
            let got = of(&pod).port_mappings;
            let got: Vec<_> = got
                .iter()
                .map(|port| (port.protocol, port.container_port, port.host_port, &*port.host_ip))
                .collect();
            assert_eq!(got, want, "{ports}");
        }
        check("", &[]);
        check(r#"{"containerPort":80}"#, &[(0, 80, 0, "")]);
        check(
            r#"{"containerPort":53,"protocol":"UDP","hostPort":53,"hostIP":"127.0.0.1"},
                {"containerPort":53,"protocol":"SCTP"}"#,
            &[(1, 53, 53, "127.0.0.1"), (2, 53, 0, "")],
        );
        check(
            r#"{"name":"a","containerPort":1},{"name":"a","containerPort":2},
                {"containerPort":3},{"containerPort":3}"#,
            &[(0, 1, 0, ""), (0, 3, 0, "")],
        );
    }

    #[test]
    fn classes_of_runtimes() {
        let mut pod = pod(r#"{"containers":[]}"#);
        assert_eq!(runtime_handler(&pod), Ok(String::new()));
        pod.spec.runtime_class_name = Some("kata".into());
        assert!(runtime_handler(&pod).unwrap_err().0.contains("\"kata\""));
    }
}
