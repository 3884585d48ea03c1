//! Security settings of pods and containers.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;

use super::{Path, Problems, names};
use crate::container::{
    AppArmorProfile, SeccompProfile, SecurityContext, proc_mount, profile_type,
};
use crate::pod::{PodSecurityContext, PodSpec};

const ID_MAX: i64 = i32::MAX as i64;
const APP_ARMOR_PROFILE_BYTES_MAX: usize = 4095;
const PROFILE_TYPES: [&str; 3] =
    [profile_type::LOCALHOST, profile_type::RUNTIME_DEFAULT, profile_type::UNCONFINED];

pub(super) fn check_pod(
    out: &mut Problems,
    at: &Path<'_>,
    context: &PodSecurityContext,
    spec: &PodSpec,
) {
    check_id(out, &at.field("runAsUser"), context.run_as_user);
    check_id(out, &at.field("runAsGroup"), context.run_as_group);
    check_id(out, &at.field("fsGroup"), context.fs_group);
    let groups = at.field("supplementalGroups");
    for (index, group) in context.supplemental_groups.iter().enumerate() {
        check_id(out, &groups.index(index), Some(*group));
    }
    let policies: [(_, &Option<Box<str>>, &[&str]); 3] = [
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, &["Merge", "Strict"]),
        ("fsGroupChangePolicy", &context.fs_group_change_policy, &["Always", "OnRootMismatch"]),
        ("seLinuxChangePolicy", &context.se_linux_change_policy, &["Recursive"]),
    ];
    for (field, policy, known) in policies {
        if let Some(policy) = policy {
            out.one_of(&at.field(field), policy, known);
        }
    }
    if let Some(profile) = context.seccomp_profile.as_deref() {
        check_seccomp(out, &at.field("seccompProfile"), profile);
    }
    if let Some(profile) = context.app_armor_profile.as_deref() {
        check_app_armor(out, &at.field("appArmorProfile"), profile);
    }
    check_sysctls(out, &at.field("sysctls"), context, spec);
}

pub(super) fn check_container(
    out: &mut Problems,
    at: &Path<'_>,
    context: &SecurityContext,
    spec: &PodSpec,
) {
    check_id(out, &at.field("runAsUser"), context.run_as_user);
    check_id(out, &at.field("runAsGroup"), context.run_as_group);
    if let Some(mount) = context.proc_mount.as_deref() {
        let at = at.field("procMount");
        out.one_of(&at, mount, &[proc_mount::DEFAULT, proc_mount::UNMASKED]);
        if mount == proc_mount::UNMASKED && spec.host_users != Some(false) {
            out.invalid(&at, mount, "needs hostUsers to be false");
        }
    }
    if let Some(profile) = context.seccomp_profile.as_deref() {
        check_seccomp(out, &at.field("seccompProfile"), profile);
    }
    if let Some(profile) = context.app_armor_profile.as_deref() {
        check_app_armor(out, &at.field("appArmorProfile"), profile);
    }
    if context.allow_privilege_escalation == Some(false) {
        let at = at.field("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            out.invalid(&at, false, "cannot be false when privileged is true");
        }
        let capabilities = context.capabilities.as_deref();
        let mut added = capabilities.iter().flat_map(|capabilities| &capabilities.add);
        if added.any(|capability| &**capability == "CAP_SYS_ADMIN") {
            out.invalid(&at, false, "cannot be false when CAP_SYS_ADMIN is added");
        }
    }
}

/// A user or group id.
fn check_id(out: &mut Problems, at: &Path<'_>, id: Option<i64>) {
    if let Some(id) = id {
        out.within(at, id, 0..=ID_MAX);
    }
}

fn check_seccomp(out: &mut Problems, at: &Path<'_>, profile: &SeccompProfile) {
    let type_at = at.field("type");
    if out.require(&type_at, &profile.type_) {
        out.one_of(&type_at, &profile.type_, &PROFILE_TYPES);
    }
    let at = at.field("localhostProfile");
    match profile.localhost_profile.as_deref() {
        Some(path) if &*profile.type_ != profile_type::LOCALHOST => {
            out.invalid(&at, path, "can only be set when the type is Localhost");
        }
        None | Some("") if &*profile.type_ == profile_type::LOCALHOST => {
            out.required(&at, "must be set when the type is Localhost");
        }
        Some(path) => out.name(&at, path, names::local_path),
        None => {}
    }
}

fn check_app_armor(out: &mut Problems, at: &Path<'_>, profile: &AppArmorProfile) {
    let type_at = at.field("type");
    if out.require(&type_at, &profile.type_) {
        out.one_of(&type_at, &profile.type_, &PROFILE_TYPES);
    }
    let at = at.field("localhostProfile");
    match profile.localhost_profile.as_deref() {
        Some(name) if &*profile.type_ != profile_type::LOCALHOST => {
            out.invalid(&at, name, "can only be set when the type is Localhost");
        }
        None if &*profile.type_ != profile_type::LOCALHOST => {}
        Some(name) if !name.trim().is_empty() => {
            if name.trim() != name {
                out.invalid(&at, name, "must not be padded with whitespace");
            }
            if name.len() > APP_ARMOR_PROFILE_BYTES_MAX {
                out.too_long(&at, APP_ARMOR_PROFILE_BYTES_MAX);
            }
        }
        _ => out.required(&at, "must be set when the type is Localhost"),
    }
}

/// Kernel parameters are set in the pod's own namespaces, so the node's may not be shared.
fn check_sysctls(out: &mut Problems, at: &Path<'_>, context: &PodSecurityContext, spec: &PodSpec) {
    let mut seen = BTreeSet::new();
    for (index, sysctl) in context.sysctls.iter().enumerate() {
        let at = at.index(index);
        let at = at.field("name");
        if !out.require(&at, &sysctl.name) {
            continue;
        }
        out.name(&at, &sysctl.name, names::sysctl);
        if !seen.insert(&sysctl.name) {
            out.duplicate(&at, &sysctl.name);
        }
        let name = with_dots(&sysctl.name);
        let is_net = name.starts_with("net.");
        let is_ipc = &*name == "kernel.sem"
            || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|part| name.starts_with(part));
        if is_net && spec.host_network {
            out.invalid(&at, &sysctl.name, "may not be set when hostNetwork is true");
        }
        if is_ipc && spec.host_ipc {
            out.invalid(&at, &sysctl.name, "may not be set when hostIPC is true");
        }
    }
}

/// The name of a kernel parameter with dots between its parts: if a slash comes first, slashes and
/// dots change places.
fn with_dots(name: &str) -> Cow<'_, str> {
    match name.find(['.', '/']) {
        Some(first) if name.as_bytes()[first] == b'/' => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            };
            name.chars().map(swap).collect::<String>().into()
        }
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use super::*;
    use crate::validation::testing;

    fn check_with(changes: &[(&str, Value)], path: &str, want: &[&str]) {
        let want: Vec<_> = want.iter().map(|want| [path, *want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(changes, &want);
    }

    fn container(context: Value, want: &[&str]) {
        let path = "spec.containers[0].securityContext.";
        check_with(&[("/spec/containers/0/securityContext", context)], path, want);
    }

    fn pod(context: Value, want: &[&str]) {
        check_with(&[("/spec/securityContext", context)], "spec.securityContext.", want);
    }

    #[test]
    fn ids() {
        container(json!({"runAsUser": 0, "runAsGroup": i32::MAX}), &[]);
        container(json!({"runAsUser": -1}), &["runAsUser: Invalid value"]);
        container(json!({"runAsGroup": 1u64 << 31}), &["runAsGroup: Invalid value"]);
        pod(
            json!({"runAsUser": -1, "runAsGroup": -1, "fsGroup": -1,
                "supplementalGroups": [1, -1]}),
            &[
                "runAsUser: Invalid value",
                "runAsGroup: Invalid value",
                "fsGroup: Invalid value",
                "supplementalGroups[1]: Invalid value",
            ],
        );
    }

    #[test]
    fn policies() {
        for field in ["supplementalGroupsPolicy", "fsGroupChangePolicy", "seLinuxChangePolicy"] {
            let want = [field, ": Unsupported value"].concat();
            pod(json!({ field: "x" }), &[&want]);
        }
        container(json!({"procMount": "x"}), &["procMount: Unsupported value"]);
        container(json!({"procMount": "Unmasked"}), &["procMount: Invalid value"]);
        let unmasked = json!({"procMount": "Unmasked"});
        let users = ("/spec/hostUsers", json!(false));
        check_with(&[users, ("/spec/containers/0/securityContext", unmasked)], "", &[]);
        let escalation = &["allowPrivilegeEscalation: Invalid value"];
        container(json!({"privileged": true}), &[]);
        container(json!({"privileged": true, "allowPrivilegeEscalation": false}), escalation);
        let admin = json!({"add": ["CAP_SYS_ADMIN"]});
        container(json!({"allowPrivilegeEscalation": false, "capabilities": admin}), escalation);
    }

    #[test]
    fn profiles() {
        for kind in ["seccompProfile", "appArmorProfile"] {
            let check = |profile: Value, field: &str, problem: &str| {
                let want = [kind, ".", field, ": ", problem].concat();
                container(json!({ kind: profile }), &[&want]);
                pod(json!({ kind: profile }), &[&want]);
            };
            container(json!({ kind: {"type": "Localhost", "localhostProfile": "a/b"} }), &[]);
            check(json!({}), "type", "Required value");
            check(json!({"type": "x"}), "type", "Unsupported value");
            check(json!({"type": "Localhost"}), "localhostProfile", "Required value");
            let elsewhere = json!({"type": "Unconfined", "localhostProfile": "x"});
            check(elsewhere, "localhostProfile", "Invalid value");
        }
        let localhost = |path: &str| json!({"type": "Localhost", "localhostProfile": path});
        let seccomp = &["seccompProfile.localhostProfile: Invalid value"];
        container(json!({"seccompProfile": localhost("../x")}), seccomp);
        container(json!({"seccompProfile": localhost("/x")}), seccomp);
        let app_armor = &["appArmorProfile.localhostProfile: Invalid value"];
        container(json!({"appArmorProfile": localhost(" x")}), app_armor);
        let app_armor = &["appArmorProfile.localhostProfile: Too long"];
        container(json!({"appArmorProfile": localhost(&"x".repeat(4096))}), app_armor);
    }

    #[test]
    fn kernel_parameters() {
        fn check(names: &[&str], share: Option<&str>, want: &[&str]) {
            let sysctls: Vec<_> =
                names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            let mut changes = alloc::vec![("/spec/securityContext/sysctls", json!(sysctls))];
            changes.extend(share.map(|share| (share, json!(true))));
            check_with(&changes, "spec.securityContext.sysctls", want);
        }
        check(&["kernel.shm_rmid_forced", "net/ipv4.x"], None, &[]);
        check(
            &["", "A", "a", "a"],
            None,
            &["[0].name: Required value", "[1].name: Invalid value", "[3].name: Duplicate value"],
        );
        let network = Some("/spec/hostNetwork");
        let both = ["net.ipv4.x", "net/ipv4/x", "kernel.sem"];
        check(&both, network, &["[0].name: Invalid value", "[1].name: Invalid value"]);
        let all = ["kernel/sem", "kernel.shmmax", "kernel.msgmax", "fs.mqueue.x", "net.x"];
        check(
            &all,
            Some("/spec/hostIPC"),
            &[
                "[0].name: Invalid value",
                "[1].name: Invalid value",
                "[2].name: Invalid value",
                "[3].name: Invalid value",
            ],
        );
    }

    #[test]
    fn slashes_and_dots() {
        assert_eq!(with_dots("net/ipv4/conf/eth0.1/x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(with_dots("net.ipv4.conf.eth0/1.x"), "net.ipv4.conf.eth0/1.x");
        assert_eq!(with_dots("x"), "x");
    }
}
