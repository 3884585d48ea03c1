//! Where a container sees the volumes of its pod.

use alloc::collections::BTreeSet;

use super::{Path, Problems, names};
use crate::container::{Container, VolumeDevice, VolumeMount, mount_propagation};
use crate::pod::PodSpec;

pub(super) fn check_all(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, container: &Container) {
    let privileged = container
        .security_context
        .as_deref()
        .is_some_and(|context| context.privileged == Some(true));
    let mounts = at.field("volumeMounts");
    let mut paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let at = mounts.index(index);
        check_mount(out, &at, spec, mount, privileged);
        if !paths.insert(&mount.mount_path) {
            out.invalid(&at.field("mountPath"), &mount.mount_path, "must be unique");
        }
    }
    let devices = at.field("volumeDevices");
    let mut seen = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in container.volume_devices.iter().enumerate() {
        let at = devices.index(index);
        check_device(out, &at, spec, device);
        if !seen.0.insert(&device.name) {
            out.invalid(&at.field("name"), &device.name, "must be unique");
        }
        if !seen.1.insert(&device.device_path) {
            out.invalid(&at.field("devicePath"), &device.device_path, "must be unique");
        }
        check_both_ways(out, &at, container, device);
    }
}

fn check_mount(
    out: &mut Problems,
    at: &Path<'_>,
    spec: &PodSpec,
    mount: &VolumeMount,
    privileged: bool,
) {
    out.require(&at.field("name"), &mount.name);
    if !spec.volumes.iter().any(|volume| volume.name == mount.name) {
        out.not_found(&at.field("name"), &mount.name);
    }
    out.require(&at.field("mountPath"), &mount.mount_path);
    let paths = [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)];
    for (field, path) in paths {
        if !path.is_empty() {
            out.name(&at.field(field), path, names::local_path);
        }
    }
    if !mount.sub_path.is_empty() && !mount.sub_path_expr.is_empty() {
        let message = "cannot be set together with subPath";
        out.invalid(&at.field("subPathExpr"), &mount.sub_path_expr, message);
    }
    if let Some(propagation) = mount.mount_propagation.as_deref() {
        let known = [
            mount_propagation::BIDIRECTIONAL,
            mount_propagation::HOST_TO_CONTAINER,
            mount_propagation::NONE,
        ];
        let at = at.field("mountPropagation");
        out.one_of(&at, propagation, &known);
        if propagation == mount_propagation::BIDIRECTIONAL && !privileged {
            out.forbidden(&at, "Bidirectional is for privileged containers only");
        }
    }
    check_recursive_read_only(out, &at.field("recursiveReadOnly"), mount);
}

fn check_recursive_read_only(out: &mut Problems, at: &Path<'_>, mount: &VolumeMount) {
    let Some(mode) = mount.recursive_read_only.as_deref() else {
        return;
    };
    out.one_of(at, mode, &["Disabled", "Enabled", "IfPossible"]);
    if !matches!(mode, "Enabled" | "IfPossible") {
        return;
    }
    if !mount.read_only {
        out.forbidden(at, "may only be set when readOnly is true");
    }
    let propagation = mount.mount_propagation.as_deref().unwrap_or(mount_propagation::NONE);
    if propagation != mount_propagation::NONE {
        out.forbidden(at, "may only be set when mountPropagation is None or not set");
    }
}

fn check_device(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, device: &VolumeDevice) {
    let name = at.field("name");
    out.require(&name, &device.name);
    match spec.volumes.iter().find(|volume| volume.name == device.name) {
        None => out.not_found(&name, &device.name),
        Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
            out.invalid(&name, &device.name, "must name a claim to be a block device");
        }
        Some(_) => {}
    }
    out.required_name(&at.field("devicePath"), &device.device_path, names::no_backsteps);
}

/// A volume is mounted or handed over as a device, and a path is one or the other.
fn check_both_ways(
    out: &mut Problems,
    at: &Path<'_>,
    container: &Container,
    device: &VolumeDevice,
) {
    let mut mounts = container.volume_mounts.iter();
    if mounts.clone().any(|mount| mount.name == device.name) {
        out.invalid(&at.field("name"), &device.name, "must not be in volumeMounts too");
    }
    if mounts.any(|mount| mount.mount_path == device.device_path) {
        let at = at.field("devicePath");
        out.invalid(&at, &device.device_path, "must not be a path in volumeMounts too");
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    /// `want` are paths behind `spec.containers[0].`.
    fn check(mounts: Value, devices: Value, want: &[&str]) {
        let want: Vec<_> = want.iter().map(|want| ["spec.containers[0].", want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(
            &[
                ("/spec/containers/0/volumeMounts", mounts),
                ("/spec/containers/0/volumeDevices", devices),
            ],
            &want,
        );
    }

    #[test]
    fn mounts() {
        fn mount(more: Value, want: &[&str]) {
            let mut mount = json!({"name": "v", "mountPath": "/a"});
            let more = more.as_object().expect("an object").clone();
            mount.as_object_mut().expect("an object").extend(more);
            check(json!([mount]), json!([]), want);
        }
        mount(json!({}), &[]);
        mount(json!({"name": "z"}), &["volumeMounts[0].name: Not found"]);
        mount(
            json!({"name": ""}),
            &["volumeMounts[0].name: Required value", "volumeMounts[0].name: Not found"],
        );
        mount(json!({"mountPath": ""}), &["volumeMounts[0].mountPath: Required value"]);
        mount(json!({"mountPath": "relative/../is:fine"}), &[]);
        mount(json!({"subPath": "..a/b"}), &[]);
        mount(json!({"subPath": "/b"}), &["volumeMounts[0].subPath: Invalid value"]);
        mount(json!({"subPath": "b/../c"}), &["volumeMounts[0].subPath: Invalid value"]);
        mount(json!({"subPathExpr": "$(A)/.."}), &["volumeMounts[0].subPathExpr: Invalid value"]);
        mount(
            json!({"subPath": "b", "subPathExpr": "$(A)"}),
            &["volumeMounts[0].subPathExpr: Invalid value"],
        );
        let propagation = &["volumeMounts[0].mountPropagation: Unsupported value"];
        mount(json!({"mountPropagation": "x"}), propagation);
        mount(json!({"mountPropagation": "HostToContainer"}), &[]);
        let propagation = &["volumeMounts[0].mountPropagation: Forbidden"];
        mount(json!({"mountPropagation": "Bidirectional"}), propagation);
        let recursive = &["volumeMounts[0].recursiveReadOnly: Unsupported value"];
        mount(json!({"recursiveReadOnly": "x"}), recursive);
        mount(json!({"recursiveReadOnly": "Disabled"}), &[]);
        mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true}), &[]);
        let recursive = &["volumeMounts[0].recursiveReadOnly: Forbidden"];
        mount(json!({"recursiveReadOnly": "Enabled"}), recursive);
        mount(
            json!({"recursiveReadOnly": "IfPossible", "readOnly": true,
                "mountPropagation": "HostToContainer"}),
            recursive,
        );
        let two = json!([{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a"}]);
        check(two, json!([]), &["volumeMounts[1].mountPath: Invalid value"]);
    }

    #[test]
    fn privileged_containers_may_mount_both_ways() {
        testing::check(
            &[
                ("/spec/containers/0/securityContext", json!({"privileged": true})),
                (
                    "/spec/containers/0/volumeMounts",
                    json!([{"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
                ),
            ],
            &[],
        );
    }

    #[test]
    fn devices() {
        check(
            json!([{"name": "v", "mountPath": "/a"}]),
            json!([{"name": "v", "devicePath": "/a"}, {"name": "z", "devicePath": "/b/../c"}]),
            &[
                "volumeDevices[0].name: Invalid value",
                "volumeDevices[0].name: Invalid value",
                "volumeDevices[0].devicePath: Invalid value",
                "volumeDevices[1].name: Not found",
                "volumeDevices[1].devicePath: Invalid value",
            ],
        );
    }
}
