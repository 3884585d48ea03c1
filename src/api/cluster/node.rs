//! Node of core/v1, release 1.36.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde_json::Value;

use crate::json::object;
use crate::meta::ObjectMeta;
use crate::pod::ResourceList;
use crate::time::Time;

object! {
    pub struct Node {
        "apiVersion" api_version: Box<str>,
        "kind" kind: Box<str>,
        "metadata" metadata: ObjectMeta,
        "spec" spec: NodeSpec,
        "status" status: NodeStatus,
    }

    pub struct NodeSpec {
        "podCIDR" pod_cidr: Box<str>,
        "podCIDRs" pod_cidrs: Vec<Box<str>>,
        "providerID" provider_id: Box<str>,
        "unschedulable" unschedulable: bool,
        "taints" taints: Vec<Taint>,
        "configSource" config_source: Option<Value>,
        "externalID" external_id: Box<str>,
    }

    pub struct Taint {
        "value" value: Box<str>,
        "timeAdded" time_added: Option<Time>,
    } always {
        "key" key: Box<str>,
        "effect" effect: Box<str>,
    }

    pub struct NodeStatus {
        "capacity" capacity: ResourceList,
        "allocatable" allocatable: ResourceList,
        "phase" phase: Box<str>,
        "conditions" conditions: Vec<NodeCondition>,
        "addresses" addresses: Vec<NodeAddress>,
        "daemonEndpoints" daemon_endpoints: NodeDaemonEndpoints,
        "nodeInfo" node_info: NodeSystemInfo,
        "images" images: Vec<ContainerImage>,
        "volumesInUse" volumes_in_use: Vec<Box<str>>,
        "volumesAttached" volumes_attached: Vec<AttachedVolume>,
        "config" config: Option<Value>,
        "runtimeHandlers" runtime_handlers: Vec<NodeRuntimeHandler>,
        "features" features: Option<NodeFeatures>,
        "declaredFeatures" declared_features: Vec<Box<str>>,
    }

    pub struct NodeCondition {
        "lastHeartbeatTime" last_heartbeat_time: Time,
        "lastTransitionTime" last_transition_time: Time,
        "reason" reason: Box<str>,
        "message" message: Box<str>,
    } always {
        "type" type_: Box<str>,
        "status" status: Box<str>,
    }

    /// `type` is InternalIP, ExternalIP, Hostname, InternalDNS or ExternalDNS.
    pub struct NodeAddress {
    } always {
        "type" type_: Box<str>,
        "address" address: Box<str>,
    }

    pub struct NodeDaemonEndpoints {
        "kubeletEndpoint" kubelet_endpoint: DaemonEndpoint,
    }

    pub struct DaemonEndpoint {
    } always {
        "Port" port: i32,
    }

    pub struct NodeSystemInfo {
        "swap" swap: Option<NodeSwapStatus>,
    } always {
        "machineID" machine_id: Box<str>,
        "systemUUID" system_uuid: Box<str>,
        "bootID" boot_id: Box<str>,
        "kernelVersion" kernel_version: Box<str>,
        "osImage" os_image: Box<str>,
        "containerRuntimeVersion" container_runtime_version: Box<str>,
        "kubeletVersion" kubelet_version: Box<str>,
        "kubeProxyVersion" kube_proxy_version: Box<str>,
        "operatingSystem" operating_system: Box<str>,
        "architecture" architecture: Box<str>,
    }

    pub struct NodeSwapStatus {
        "capacity" capacity: Option<i64>,
    }

    pub struct ContainerImage {
        "names" names: Vec<Box<str>>,
        "sizeBytes" size_bytes: i64,
    }

    pub struct AttachedVolume {
    } always {
        "name" name: Box<str>,
        "devicePath" device_path: Box<str>,
    }

    pub struct NodeRuntimeHandler {
        "features" features: Option<NodeRuntimeHandlerFeatures>,
    } always {
        "name" name: Box<str>,
    }

    pub struct NodeRuntimeHandlerFeatures {
        "recursiveReadOnlyMounts" recursive_read_only_mounts: Option<bool>,
        "userNamespaces" user_namespaces: Option<bool>,
    }

    pub struct NodeFeatures {
        "supplementalGroupsPolicy" supplemental_groups_policy: Option<bool>,
    }
}

/// Values of `NodeCondition.type_`.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const MEMORY_PRESSURE: &str = "MemoryPressure";
    pub const DISK_PRESSURE: &str = "DiskPressure";
    pub const PID_PRESSURE: &str = "PIDPressure";
}

/// Values of `Taint.effect`.
pub mod taint_effect {
    pub const NO_SCHEDULE: &str = "NoSchedule";
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    pub const NO_EXECUTE: &str = "NoExecute";
}
