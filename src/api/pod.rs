//! Pod of core/v1, release 1.36. What a kubelet never looks into stays a JSON value, so that
//! `/pods` returns it. Strings that stand for one of a few values stay strings, with the known
//! values as constants beside the type.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde_json::Value;

use crate::container::{
    AppArmorProfile, Container, EphemeralContainer, ResourceRequirements, SeLinuxOptions,
    SeccompProfile,
};
use crate::json::object;
use crate::meta::{ListMeta, ObjectMeta};
use crate::quantity::Quantity;
use crate::status::PodStatus;
use crate::volume::Volume;

/// Amounts by resource name: `cpu`, `memory`, `ephemeral-storage`, `hugepages-2Mi`,
/// `example.com/gpu`.
pub type ResourceList = BTreeMap<Box<str>, Quantity>;

object! {
    pub struct Pod {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ObjectMeta,
        "spec" spec: PodSpec,
        "status" status: PodStatus,
    }

    pub struct PodList {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ListMeta,
    } always {
        "items" items: Vec<Pod>,
    }

    pub struct PodSpec {
        "volumes" volumes: Vec<Volume>,
        "initContainers" init_containers: Vec<Container>,
        "ephemeralContainers" ephemeral_containers: Vec<EphemeralContainer>,
        "restartPolicy" restart_policy: Box<str>,
        "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>,
        "activeDeadlineSeconds" active_deadline_seconds: Option<i64>,
        "dnsPolicy" dns_policy: Box<str>,
        "nodeSelector" node_selector: BTreeMap<Box<str>, Box<str>>,
        "serviceAccountName" service_account_name: Box<str>,
        /// The older name of `serviceAccountName`; the API server keeps both equal.
        "serviceAccount" service_account: Box<str>,
        "automountServiceAccountToken" automount_service_account_token: Option<bool>,
        "nodeName" node_name: Box<str>,
        "hostNetwork" host_network: bool,
        "hostPID" host_pid: bool,
        "hostIPC" host_ipc: bool,
        "shareProcessNamespace" share_process_namespace: Option<bool>,
        "securityContext" security_context: Option<Box<PodSecurityContext>>,
        "imagePullSecrets" image_pull_secrets: Vec<LocalObjectReference>,
        "hostname" hostname: Box<str>,
        "subdomain" subdomain: Box<str>,
        "affinity" affinity: Option<Value>,
        "schedulerName" scheduler_name: Box<str>,
        "tolerations" tolerations: Vec<Toleration>,
        "hostAliases" host_aliases: Vec<HostAlias>,
        "priorityClassName" priority_class_name: Box<str>,
        "priority" priority: Option<i32>,
        "dnsConfig" dns_config: Option<Box<PodDnsConfig>>,
        "readinessGates" readiness_gates: Vec<PodReadinessGate>,
        "runtimeClassName" runtime_class_name: Option<Box<str>>,
        "enableServiceLinks" enable_service_links: Option<bool>,
        "preemptionPolicy" preemption_policy: Option<Box<str>>,
        "overhead" overhead: ResourceList,
        "topologySpreadConstraints" topology_spread_constraints: Vec<Value>,
        "setHostnameAsFQDN" set_hostname_as_fqdn: Option<bool>,
        "os" os: Option<PodOs>,
        "hostUsers" host_users: Option<bool>,
        "schedulingGates" scheduling_gates: Vec<PodSchedulingGate>,
        "resourceClaims" resource_claims: Vec<PodResourceClaim>,
        "resources" resources: Option<Box<ResourceRequirements>>,
        "hostnameOverride" hostname_override: Option<Box<str>>,
        "schedulingGroup" scheduling_group: Option<Value>,
    } always {
        "containers" containers: Vec<Container>,
    }

    /// Security settings of all containers of a pod; a container's own settings go first.
    pub struct PodSecurityContext {
        "seLinuxOptions" se_linux_options: Option<Box<SeLinuxOptions>>,
        "windowsOptions" windows_options: Option<Value>,
        "runAsUser" run_as_user: Option<i64>,
        "runAsGroup" run_as_group: Option<i64>,
        "runAsNonRoot" run_as_non_root: Option<bool>,
        "supplementalGroups" supplemental_groups: Vec<i64>,
        "supplementalGroupsPolicy" supplemental_groups_policy: Option<Box<str>>,
        "fsGroup" fs_group: Option<i64>,
        "sysctls" sysctls: Vec<Sysctl>,
        "fsGroupChangePolicy" fs_group_change_policy: Option<Box<str>>,
        "seccompProfile" seccomp_profile: Option<Box<SeccompProfile>>,
        "appArmorProfile" app_armor_profile: Option<Box<AppArmorProfile>>,
        "seLinuxChangePolicy" se_linux_change_policy: Option<Box<str>>,
    }

    /// A kernel parameter, such as `net.ipv4.ip_local_port_range`.
    pub struct Sysctl {
    } always {
        "name" name: Box<str>,
        "value" value: Box<str>,
    }

    pub struct LocalObjectReference {
        "name" name: Box<str>,
    }

    /// An empty `operator` means Equal, an empty `effect` all effects.
    pub struct Toleration {
        "key" key: Box<str>,
        "operator" operator: Box<str>,
        "value" value: Box<str>,
        "effect" effect: Box<str>,
        "tolerationSeconds" toleration_seconds: Option<i64>,
    }

    /// Lines for the pod's hosts file.
    pub struct HostAlias {
        "hostnames" hostnames: Vec<Box<str>>,
    } always {
        "ip" ip: Box<str>,
    }

    pub struct PodDnsConfig {
        "nameservers" nameservers: Vec<Box<str>>,
        "searches" searches: Vec<Box<str>>,
        "options" options: Vec<PodDnsConfigOption>,
    }

    pub struct PodDnsConfigOption {
        "name" name: Box<str>,
        "value" value: Option<Box<str>>,
    }

    pub struct PodReadinessGate {
    } always {
        "conditionType" condition_type: Box<str>,
    }

    pub struct PodOs {
    } always {
        "name" name: Box<str>,
    }

    pub struct PodSchedulingGate {
    } always {
        "name" name: Box<str>,
    }

    pub struct PodResourceClaim {
        "resourceClaimName" resource_claim_name: Option<Box<str>>,
        "resourceClaimTemplateName" resource_claim_template_name: Option<Box<str>>,
    } always {
        "name" name: Box<str>,
    }
}

/// Values of `PodSpec.restart_policy`; containers know `ALWAYS`, `ON_FAILURE` and `NEVER` too.
pub mod restart_policy {
    pub const ALWAYS: &str = "Always";
    pub const ON_FAILURE: &str = "OnFailure";
    pub const NEVER: &str = "Never";
}

/// Values of `PodSpec.dns_policy`.
pub mod dns_policy {
    pub const CLUSTER_FIRST_WITH_HOST_NET: &str = "ClusterFirstWithHostNet";
    pub const CLUSTER_FIRST: &str = "ClusterFirst";
    pub const DEFAULT: &str = "Default";
    pub const NONE: &str = "None";
}

/// Names of resources in a `ResourceList`.
pub mod resource {
    pub const CPU: &str = "cpu";
    pub const MEMORY: &str = "memory";
    pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
    pub const STORAGE: &str = "storage";
    pub const PODS: &str = "pods";
    /// Followed by the page size, as in `hugepages-2Mi`.
    pub const HUGEPAGES_PREFIX: &str = "hugepages-";
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file sets each field that core/v1 of release 1.36 has, but for those that ObjectMeta
    /// says it drops.
    #[test]
    fn no_field_is_lost() {
        let json = include_str!("../../fixtures/pods/every_field.json");
        let pod: Pod = serde_json::from_str(json).expect("the fixture is a pod");
        let written = serde_json::to_value(&pod).expect("a pod is JSON");
        let read: Value = serde_json::from_str(json).expect("the fixture is JSON");
        assert_eq!(written, read);
    }
}
