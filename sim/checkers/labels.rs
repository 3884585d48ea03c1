//! What other tools, and the agent's own next life, recognise a container by (pkg/kubelet/kuberuntime/labels.go).

use super::Judge;
use crate::ledger::{Ask, CONTAINER_NAME, Ledger, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::manifest::PodKey;
use crate::trace::Moment;
use steplet_api::cri;

pub struct Labels;

impl Judge for Labels {
    fn promise(&self) -> &'static str {
        "sandboxes and containers carry the right labels, hash, attempt and log path"
    }

    fn asked(&mut self, ledger: &Ledger, _: Moment, ask: &Ask, out: &mut Vec<String>) {
        match ask {
            Ask::RunSandbox(config) => sandbox(config, out),
            Ask::Create { sandbox, config } => container(ledger, sandbox, config, out),
            _ => {}
        }
    }
}

fn sandbox(config: &cri::PodSandboxConfig, out: &mut Vec<String>) {
    let cri::PodSandboxMetadata { name, uid, namespace, .. } =
        config.metadata.clone().unwrap_or_default();
    let mut check = |what: &str, is: Option<&str>, want: &str| {
        if is != Some(want) {
            out.push(format!("sandbox of {name}: {what} is {is:?}, should be {want:?}"));
        }
    };
    let label = |key: &str| config.labels.get(key).map(String::as_str);
    check(POD_NAME, label(POD_NAME), &name);
    check(POD_NAMESPACE, label(POD_NAMESPACE), &namespace);
    check(POD_UID, label(POD_UID), &uid);
    let logs = format!("/var/log/pods/{namespace}_{name}_{uid}");
    check("log_directory", Some(&config.log_directory), &logs);
    let parent = config.linux.as_ref().map_or("", |linux| &linux.cgroup_parent);
    let path = parent.starts_with("/kubepods/") && parent.ends_with(&format!("/pod{uid}"));
    let slice = parent.starts_with("kubepods-")
        && parent.ends_with(&format!("-pod{}.slice", uid.replace('-', "_")));
    if !path && !slice {
        out.push(format!("sandbox of {name}: cgroup_parent is {parent:?}"));
    }
}

fn container(ledger: &Ledger, sandbox: &str, config: &cri::ContainerConfig, out: &mut Vec<String>) {
    let Some(record) = ledger.sandboxes.get(sandbox) else { return };
    let cri::ContainerMetadata { name, attempt } = config.metadata.clone().unwrap_or_default();
    let of = &record.fact;
    let mut check = |what: &str, is: Option<&str>, want: &str| {
        if is != Some(want) {
            out.push(format!("{}/{name}: {what} is {is:?}, should be {want:?}", of.pod));
        }
    };
    let label = |key: &str| config.labels.get(key).map(String::as_str);
    check(POD_NAME, label(POD_NAME), &of.pod);
    check(POD_NAMESPACE, label(POD_NAMESPACE), &of.namespace);
    check(POD_UID, label(POD_UID), &of.uid);
    check(CONTAINER_NAME, label(CONTAINER_NAME), &name);
    let note = |key: &str| config.annotations.get(key).map(String::as_str);
    let count = attempt.to_string();
    check("restartCount", note("io.kubernetes.container.restartCount"), &count);
    check("log_path", Some(&config.log_path), &format!("{name}/{attempt}.log"));
    let key = PodKey { namespace: of.namespace.clone(), name: of.pod.clone() };
    let Some(pod) = ledger.known.pod(&key) else { return };
    let Some(spec) = pod.container(&name) else {
        out.push(format!("{}/{name}: the pod has no such container", of.pod));
        return;
    };
    check("hash", note("io.kubernetes.container.hash"), &hash(&spec.name, &spec.image));
    let image = config.image.as_ref().map_or("", |image| &image.user_specified_image);
    check("user_specified_image", Some(image), &spec.image);
    let grace = pod.grace_seconds.to_string();
    check("grace", note("io.kubernetes.pod.terminationGracePeriod"), &grace);
    if config.command != spec.command {
        out.push(format!("{}/{name}: command is {:?}", of.pod, config.command));
    }
}

/// kubelet's hash of a container: FNV-1a of how Go prints the bytes of a small JSON object.
fn hash(name: &str, image: &str) -> String {
    let json = format!("{{\"image\":\"{image}\",\"name\":\"{name}\"}}");
    let numbers: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let printed = format!("([]uint8)[{}]", numbers.join(" "));
    let mut hash: u32 = 0x811c_9dc5;
    for byte in printed.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{hash:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_kubelets() {
        assert_eq!(hash("test_container", "foo/image:v1"), "8e45cbd0");
    }
}
