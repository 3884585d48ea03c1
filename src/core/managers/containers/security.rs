//! As whom a container runs and what the kernel lets it do.
//!
//! Upstream: pkg/securitycontext, pkg/kubelet/kuberuntime/security_context*.go, v1.36.
//! Settings of the container go before those of the pod. User namespaces are not
//! supported yet: a pod that wants one is refused.

use crate::event::Machine;
use crate::managers::containers::ConfigError;
use crate::managers::containers::image::ImageUser;
use crate::managers::containers::sandbox::strings;
use crate::settings::Settings;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::container::{
    AppArmorProfile, Container, SeLinuxOptions, SeccompProfile, SecurityContext, proc_mount,
    profile_type,
};
use steplet_api::cri::security_profile::ProfileType;
use steplet_api::cri::{
    Capability, Int64Value, LinuxContainerSecurityContext, NamespaceMode, NamespaceOption,
    SeLinuxOption, SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};
use steplet_api::pod::{Pod, PodSecurityContext};

/// Hidden from containers: they tell of the machine or reach into it.
const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READONLY_PATHS: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The profile of a container by an annotation, from before there was a field.
const APPARMOR_ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

const USER_ID_MAX: i64 = i32::MAX as i64;

/// `name_namespace(uid)`: a pod in messages.
pub fn pod_label(pod: &Pod) -> String {
    format!("{}_{}({})", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
}

/// The security context of a container. `user` is whom the image would run as.
pub fn container_security(
    pod: &Pod,
    container: &Container,
    user: &ImageUser,
    settings: &Settings,
    machine: &Machine,
) -> Result<LinuxContainerSecurityContext, ConfigError> {
    let none = PodSecurityContext::default();
    let of_pod = pod.spec.security_context.as_deref().unwrap_or(&none);
    let none = SecurityContext::default();
    let own = container.security_context.as_deref().unwrap_or(&none);
    check_non_root(pod, container, of_pod, own, user)?;
    let mut security = LinuxContainerSecurityContext {
        capabilities: own.capabilities.as_deref().map(|capabilities| Capability {
            add_capabilities: strings(&capabilities.add).collect(),
            drop_capabilities: strings(&capabilities.drop).collect(),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: own.privileged == Some(true),
        namespace_options: Some(namespaces(pod)?),
        selinux_options: own
            .se_linux_options
            .as_deref()
            .or(of_pod.se_linux_options.as_deref())
            .map(selinux),
        run_as_user: own.run_as_user.or(of_pod.run_as_user).map(int64),
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(int64),
        readonly_rootfs: own.read_only_root_filesystem == Some(true),
        supplemental_groups: supplemental_groups(of_pod),
        supplemental_groups_policy: supplemental_groups_policy(of_pod)?,
        no_new_privs: own.allow_privilege_escalation == Some(false),
        seccomp: Some(seccomp(of_pod, own, settings)?),
        ..LinuxContainerSecurityContext::default()
    };
    if security.run_as_user.is_none() {
        match user {
            ImageUser::Uid(uid) => security.run_as_user = Some(int64(*uid)),
            ImageUser::Name(name) => security.run_as_username = name.clone(),
        }
    }
    if own.proc_mount.as_deref() != Some(proc_mount::UNMASKED) {
        let masked = MASKED_PATHS.iter().map(|path| path.to_string());
        security.masked_paths = masked.chain(machine.thermal_throttle.iter().cloned()).collect();
        security.readonly_paths = READONLY_PATHS.map(str::to_string).into();
    }
    if let Some((profile, legacy)) = apparmor(pod, container, of_pod, own)? {
        security.apparmor = Some(profile);
        set_legacy_apparmor(&mut security, legacy);
    }
    Ok(security)
}

/// The namespaces that sandbox and containers share. A user namespace of its own is refused.
pub fn namespaces(pod: &Pod) -> Result<NamespaceOption, ConfigError> {
    if pod.spec.host_users == Some(false) {
        return Err(ConfigError(
            "can't set `spec.hostUsers: false`, user namespaces are not supported yet".into(),
        ));
    }
    let node_if = |node| if node { NamespaceMode::Node } else { NamespaceMode::Pod };
    let pid = match (pod.spec.host_pid, pod.spec.share_process_namespace) {
        (true, _) => NamespaceMode::Node,
        (false, Some(true)) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    Ok(NamespaceOption {
        network: node_if(pod.spec.host_network).into(),
        pid: pid.into(),
        ipc: node_if(pod.spec.host_ipc).into(),
        target_id: String::new(),
        userns_options: Some(UserNamespace {
            mode: NamespaceMode::Node.into(),
            ..UserNamespace::default()
        }),
    })
}

/// fsGroup first, so that files of volumes can be read, then the groups of the pod.
pub fn supplemental_groups(of_pod: &PodSecurityContext) -> Vec<i64> {
    of_pod.fs_group.iter().chain(&of_pod.supplemental_groups).copied().collect()
}

pub fn supplemental_groups_policy(of_pod: &PodSecurityContext) -> Result<i32, ConfigError> {
    let Some(policy) = of_pod.supplemental_groups_policy.as_deref() else {
        return Ok(SupplementalGroupsPolicy::Merge.into());
    };
    SupplementalGroupsPolicy::from_str_name(policy)
        .map(i32::from)
        .ok_or_else(|| ConfigError(format!("unsupported supplementalGroupsPolicy: {policy}")))
}

pub fn selinux(options: &SeLinuxOptions) -> SeLinuxOption {
    SeLinuxOption {
        user: (*options.user).to_owned(),
        role: (*options.role).to_owned(),
        r#type: (*options.type_).to_owned(),
        level: (*options.level).to_owned(),
    }
}

pub fn int64(value: i64) -> Int64Value {
    Int64Value { value }
}

/// Refuses root where the pod forbids it, and users that only the image can tell from root.
fn check_non_root(
    pod: &Pod,
    container: &Container,
    of_pod: &PodSecurityContext,
    own: &SecurityContext,
    user: &ImageUser,
) -> Result<(), ConfigError> {
    if own.run_as_non_root.or(of_pod.run_as_non_root) != Some(true) {
        return Ok(());
    }
    let refuse = |why: String| {
        let (pod, name) = (pod_label(pod), &container.name);
        Err(ConfigError(format!("{why} (pod: {pod:?}, container: {name})")))
    };
    match (own.run_as_user.or(of_pod.run_as_user), user) {
        (Some(0), _) => refuse("container's runAsUser breaks non-root policy".into()),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Name(name)) => refuse(format!(
            "container has runAsNonRoot and image has non-numeric user ({name}), cannot verify \
             user is non-root"
        )),
        (None, ImageUser::Uid(0)) => {
            refuse("container has runAsNonRoot and image will run as root".into())
        }
        (None, ImageUser::Uid(uid)) if !(1..=USER_ID_MAX).contains(uid) => refuse(format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be \
             1-({USER_ID_MAX})): must be between 0 and {USER_ID_MAX}, inclusive"
        )),
        (None, ImageUser::Uid(_)) => Ok(()),
    }
}

fn seccomp(
    of_pod: &PodSecurityContext,
    own: &SecurityContext,
    settings: &Settings,
) -> Result<SecurityProfile, ConfigError> {
    let field: Option<&SeccompProfile> =
        own.seccomp_profile.as_deref().or(of_pod.seccomp_profile.as_deref());
    let Some(field) = field else {
        let default = settings.seccomp_default;
        return Ok(profile(
            if default { ProfileType::RuntimeDefault } else { ProfileType::Unconfined },
            "",
        ));
    };
    match &*field.type_ {
        profile_type::RUNTIME_DEFAULT => Ok(profile(ProfileType::RuntimeDefault, "")),
        profile_type::LOCALHOST => match field.localhost_profile.as_deref().unwrap_or_default() {
            "" => Err(ConfigError(
                "localhostProfile must be set if seccompProfile type is Localhost.".into(),
            )),
            file => {
                let path = format!("{}/seccomp/{}", settings.root_dir, file);
                Ok(profile(ProfileType::Localhost, &path))
            }
        },
        _ => Ok(profile(ProfileType::Unconfined, "")),
    }
}

/// The profile and its older form. The annotation stands between the fields of the container and
/// of the pod; an annotation that says nothing known counts as none.
fn apparmor(
    pod: &Pod,
    container: &Container,
    of_pod: &PodSecurityContext,
    own: &SecurityContext,
) -> Result<Option<(SecurityProfile, String)>, ConfigError> {
    let key = format!("{APPARMOR_ANNOTATION_PREFIX}{}", container.name);
    let annotation = pod.metadata.annotations.get(&*key).and_then(|text| annotated_apparmor(text));
    let field = match own.app_armor_profile.as_deref() {
        Some(field) => field,
        None => match (&annotation, of_pod.app_armor_profile.as_deref()) {
            (Some(annotation), _) => annotation,
            (None, Some(field)) => field,
            (None, None) => return Ok(None),
        },
    };
    match (&*field.type_, field.localhost_profile.as_deref()) {
        (profile_type::RUNTIME_DEFAULT, _) => {
            Ok(Some((profile(ProfileType::RuntimeDefault, ""), "runtime/default".into())))
        }
        (profile_type::UNCONFINED, _) => {
            Ok(Some((profile(ProfileType::Unconfined, ""), "unconfined".into())))
        }
        (profile_type::LOCALHOST, Some(name)) => {
            Ok(Some((profile(ProfileType::Localhost, name), format!("localhost/{name}"))))
        }
        (profile_type::LOCALHOST, None) => {
            Err(ConfigError("missing localhost apparmor profile name".into()))
        }
        (other, _) => Err(ConfigError(format!("unknown apparmor profile type: {other:?}"))),
    }
}

fn annotated_apparmor(text: &str) -> Option<AppArmorProfile> {
    let (type_, localhost_profile) = match text {
        "runtime/default" => (profile_type::RUNTIME_DEFAULT, None),
        "unconfined" => (profile_type::UNCONFINED, None),
        _ => (profile_type::LOCALHOST, Some(text.strip_prefix("localhost/")?.into())),
    };
    Some(AppArmorProfile { type_: type_.into(), localhost_profile })
}

#[expect(deprecated, reason = "runtimes from before CRI 1.30 know the older field only")]
fn set_legacy_apparmor(security: &mut LinuxContainerSecurityContext, profile: String) {
    security.apparmor_profile = profile;
}

fn profile(profile_type: ProfileType, localhost_ref: &str) -> SecurityProfile {
    SecurityProfile { profile_type: profile_type.into(), localhost_ref: localhost_ref.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};

    const ROOT: ImageUser = ImageUser::Uid(0);

    fn of(pod: &Pod, user: &ImageUser) -> Result<LinuxContainerSecurityContext, String> {
        let container = &pod.spec.containers[0];
        container_security(pod, container, user, &settings(), &machine()).map_err(|e| e.0)
    }

    #[test]
    fn users() {
        fn check(of_pod: &str, own: &str, user: ImageUser, want: Result<(i64, &str), &str>) {
            let pod = pod(&format!(
                r#"{{"securityContext":{{{of_pod}}},
                "containers":[{{"name":"c","securityContext":{{{own}}}}}]}}"#
            ));
            let got = of(&pod, &user).map(|security| {
                (security.run_as_user.map_or(-1, |uid| uid.value), security.run_as_username)
            });
            let want = want.map(|(uid, name)| (uid, name.to_string())).map_err(str::to_string);
            assert_eq!(got, want, "{of_pod} {own} {user:?}");
        }
        let named = || ImageUser::Name("nobody".into());
        check("", "", ROOT, Ok((0, "")));
        check("", "", named(), Ok((-1, "nobody")));
        check(r#""runAsUser":7"#, "", named(), Ok((7, "")));
        check(r#""runAsUser":7"#, r#""runAsUser":8"#, ROOT, Ok((8, "")));
        const NON_ROOT: &str = r#""runAsNonRoot":true"#;
        check(NON_ROOT, r#""runAsNonRoot":false"#, ROOT, Ok((0, "")));
        check(NON_ROOT, "", ImageUser::Uid(1000), Ok((1000, "")));
        check(NON_ROOT, r#""runAsUser":7"#, named(), Ok((7, "")));
        check(
            NON_ROOT,
            r#""runAsUser":0"#,
            ImageUser::Uid(1000),
            Err("container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)"),
        );
        check(
            "",
            NON_ROOT,
            ROOT,
            Err("container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", \
                 container: c)"),
        );
        check(
            "",
            NON_ROOT,
            named(),
            Err("container has runAsNonRoot and image has non-numeric user (nobody), cannot \
                 verify user is non-root (pod: \"p_ns(u)\", container: c)"),
        );
        check(
            "",
            NON_ROOT,
            ImageUser::Uid(1 << 40),
            Err("container has runAsNonRoot and image has an invalid user id (1099511627776). \
                 (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive (pod: \
                 \"p_ns(u)\", container: c)"),
        );
    }

    #[test]
    fn seccomp_profiles() {
        fn check(of_pod: &str, own: &str, default: bool, want: Result<(i32, &str), &str>) {
            let pod = pod(&format!(
                r#"{{"securityContext":{{{of_pod}}},
                "containers":[{{"name":"c","securityContext":{{{own}}}}}]}}"#
            ));
            let settings = Settings { seccomp_default: default, ..settings() };
            let got =
                container_security(&pod, &pod.spec.containers[0], &ROOT, &settings, &machine());
            let got = got.map(|security| {
                let seccomp = security.seccomp.expect("always set");
                (seccomp.profile_type, seccomp.localhost_ref)
            });
            let want = want.map(|(t, r)| (t, r.to_string())).map_err(|e| ConfigError(e.into()));
            assert_eq!(got, want, "{of_pod} {own}");
        }
        const DEFAULT: &str = r#""seccompProfile":{"type":"RuntimeDefault"}"#;
        check("", "", false, Ok((1, "")));
        check("", "", true, Ok((0, "")));
        check(DEFAULT, "", false, Ok((0, "")));
        check(DEFAULT, r#""seccompProfile":{"type":"Unconfined"}"#, true, Ok((1, "")));
        // The runtime does not confine a privileged container; it is told nothing else.
        check(DEFAULT, r#""privileged":true"#, false, Ok((0, "")));
        check(
            "",
            r#""seccompProfile":{"type":"Localhost","localhostProfile":"a/b.json"}"#,
            false,
            Ok((2, "/var/lib/kubelet/seccomp/a/b.json")),
        );
        check(
            "",
            r#""seccompProfile":{"type":"Localhost"}"#,
            false,
            Err("localhostProfile must be set if seccompProfile type is Localhost."),
        );
    }

    #[test]
    fn apparmor_profiles() {
        fn check(annotation: &str, of_pod: &str, own: &str, want: Option<(i32, &str)>) {
            let field = |text: &str| match text {
                "" => String::new(),
                text => format!(r#""appArmorProfile":{text}"#),
            };
            let mut pod = pod(&format!(
                r#"{{"securityContext":{{{}}},
                "containers":[{{"name":"c","securityContext":{{{}}}}}]}}"#,
                field(of_pod),
                field(own)
            ));
            let key = format!("{APPARMOR_ANNOTATION_PREFIX}c");
            pod.metadata.annotations.insert(key.into(), annotation.into());
            let got = of(&pod, &ROOT).unwrap().apparmor;
            let got = got.as_ref().map(|a| (a.profile_type, &*a.localhost_ref));
            assert_eq!(got, want, "{annotation} {of_pod} {own}");
        }
        check("", "", "", None);
        check("unconfined", "", "", Some((1, "")));
        check("localhost/x", r#"{"type":"Unconfined"}"#, "", Some((2, "x")));
        check("", r#"{"type":"Unconfined"}"#, "", Some((1, "")));
        check("unconfined", "", r#"{"type":"RuntimeDefault"}"#, Some((0, "")));
        check("", "", r#"{"type":"Localhost","localhostProfile":"y"}"#, Some((2, "y")));
    }

    #[test]
    fn the_rest_of_the_context() {
        let mut pod = pod(r#"{"hostPID":true,"hostIPC":true,
            "securityContext":{"fsGroup":2001,"supplementalGroups":[3001,3002],"runAsGroup":5,
                "supplementalGroupsPolicy":"Strict","seLinuxOptions":{"level":"s0"}},
            "containers":[{"name":"c","securityContext":{"privileged":true,
                "capabilities":{"add":["NET_ADMIN"],"drop":["ALL"]},"readOnlyRootFilesystem":true,
                "allowPrivilegeEscalation":false,"runAsGroup":6,
                "seLinuxOptions":{"type":"t"}}}]}"#);
        let got = of(&pod, &ROOT).unwrap();
        let capabilities = got.capabilities.unwrap();
        assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
        assert_eq!(capabilities.drop_capabilities, ["ALL"]);
        assert!(got.privileged && got.readonly_rootfs && got.no_new_privs);
        assert_eq!(got.supplemental_groups, [2001, 3001, 3002]);
        assert_eq!(got.supplemental_groups_policy, 1);
        assert_eq!(got.run_as_group.unwrap().value, 6);
        let selinux = got.selinux_options.unwrap();
        assert_eq!((&*selinux.r#type, &*selinux.level), ("t", ""));
        assert_eq!(got.masked_paths.len(), MASKED_PATHS.len());
        assert_eq!(got.readonly_paths, READONLY_PATHS);
        let namespaces = got.namespace_options.unwrap();
        assert_eq!((namespaces.network, namespaces.pid, namespaces.ipc), (0, 2, 2));
        pod.spec.host_users = Some(false);
        assert!(of(&pod, &ROOT).unwrap_err().contains("not supported yet"));
    }

    #[test]
    fn proc_as_it_is() {
        let machine = Machine {
            thermal_throttle: ["/sys/devices/system/cpu/cpu0/thermal_throttle".into()].into(),
            ..machine()
        };
        for (kind, masked, readonly) in [("Default", 13, 5), ("Unmasked", 0, 0)] {
            let pod = pod(&format!(
                r#"{{"containers":[{{"name":"c","securityContext":{{"procMount":"{kind}"}}}}]}}"#
            ));
            let container = &pod.spec.containers[0];
            let got = container_security(&pod, container, &ROOT, &settings(), &machine).unwrap();
            assert_eq!((got.masked_paths.len(), got.readonly_paths.len()), (masked, readonly));
        }
    }

    #[test]
    fn process_namespaces() {
        fn check(spec: &str, want: i32) {
            let got = namespaces(&pod(&format!(r#"{{{spec}"containers":[]}}"#))).unwrap();
            assert_eq!(got.pid, want, "{spec}");
        }
        check("", 1);
        check(r#""shareProcessNamespace":true,"#, 0);
        check(r#""hostPID":true,"#, 2);
    }
}
