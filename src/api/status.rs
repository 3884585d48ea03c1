//! PodStatus of core/v1, release 1.36: what a kubelet reports of a pod and its containers.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde_json::Value;

use crate::container::ResourceRequirements;
use crate::json::object;
use crate::pod::ResourceList;
use crate::time::Time;

object! {
    pub struct PodStatus {
        "observedGeneration" observed_generation: i64,
        "phase" phase: Box<str>,
        "conditions" conditions: Vec<PodCondition>,
        "message" message: Box<str>,
        "reason" reason: Box<str>,
        "nominatedNodeName" nominated_node_name: Box<str>,
        "hostIP" host_ip: Box<str>,
        "hostIPs" host_ips: Vec<HostIp>,
        "podIP" pod_ip: Box<str>,
        "podIPs" pod_ips: Vec<PodIp>,
        "startTime" start_time: Option<Time>,
        "initContainerStatuses" init_container_statuses: Vec<ContainerStatus>,
        "containerStatuses" container_statuses: Vec<ContainerStatus>,
        "qosClass" qos_class: Box<str>,
        "ephemeralContainerStatuses" ephemeral_container_statuses: Vec<ContainerStatus>,
        "resize" resize: Box<str>,
        "resourceClaimStatuses" resource_claim_statuses: Vec<PodResourceClaimStatus>,
        "extendedResourceClaimStatus" extended_resource_claim_status: Option<Value>,
        "allocatedResources" allocated_resources: ResourceList,
        "resources" resources: Option<Box<ResourceRequirements>>,
        "nodeAllocatableResourceClaimStatuses" node_allocatable_resource_claim_statuses: Vec<Value>,
    }

    pub struct PodCondition {
        "observedGeneration" observed_generation: i64,
        "lastProbeTime" last_probe_time: Time,
        "lastTransitionTime" last_transition_time: Time,
        "reason" reason: Box<str>,
        "message" message: Box<str>,
    } always {
        "type" type_: Box<str>,
        "status" status: Box<str>,
    }

    pub struct HostIp {
    } always {
        "ip" ip: Box<str>,
    }

    pub struct PodIp {
    } always {
        "ip" ip: Box<str>,
    }

    pub struct PodResourceClaimStatus {
        "resourceClaimName" resource_claim_name: Option<Box<str>>,
    } always {
        "name" name: Box<str>,
    }

    pub struct ContainerStatus {
        "state" state: ContainerState,
        "lastState" last_state: ContainerState,
        /// `RUNTIME://ID`; empty until a container was made.
        "containerID" container_id: Box<str>,
        "started" started: Option<bool>,
        "allocatedResources" allocated_resources: ResourceList,
        "resources" resources: Option<Box<ResourceRequirements>>,
        "volumeMounts" volume_mounts: Vec<VolumeMountStatus>,
        "user" user: Option<Box<ContainerUser>>,
        "allocatedResourcesStatus" allocated_resources_status: Vec<ResourceStatus>,
        "stopSignal" stop_signal: Option<Box<str>>,
    } always {
        "name" name: Box<str>,
        "ready" ready: bool,
        "restartCount" restart_count: i32,
        "image" image: Box<str>,
        "imageID" image_id: Box<str>,
    }

    /// At most one field is set; none means waiting.
    pub struct ContainerState {
        "waiting" waiting: Option<Box<ContainerStateWaiting>>,
        "running" running: Option<Box<ContainerStateRunning>>,
        "terminated" terminated: Option<Box<ContainerStateTerminated>>,
    }

    pub struct ContainerStateWaiting {
        "reason" reason: Box<str>,
        "message" message: Box<str>,
    }

    pub struct ContainerStateRunning {
        "startedAt" started_at: Time,
    }

    pub struct ContainerStateTerminated {
        "signal" signal: i32,
        "reason" reason: Box<str>,
        "message" message: Box<str>,
        "startedAt" started_at: Time,
        "finishedAt" finished_at: Time,
        "containerID" container_id: Box<str>,
    } always {
        "exitCode" exit_code: i32,
    }

    pub struct VolumeMountStatus {
        "readOnly" read_only: bool,
        "recursiveReadOnly" recursive_read_only: Option<Box<str>>,
        "volumeStatus" volume_status: Option<Value>,
    } always {
        "name" name: Box<str>,
        "mountPath" mount_path: Box<str>,
    }

    pub struct ContainerUser {
        "linux" linux: Option<LinuxContainerUser>,
    }

    /// The identity with which the first process of a container was started.
    pub struct LinuxContainerUser {
        "supplementalGroups" supplemental_groups: Vec<i64>,
    } always {
        "uid" uid: i64,
        "gid" gid: i64,
    }

    /// The health of devices behind a resource of a container.
    pub struct ResourceStatus {
        "resources" resources: Vec<ResourceHealth>,
    } always {
        "name" name: Box<str>,
    }

    pub struct ResourceHealth {
        "health" health: Box<str>,
        "message" message: Option<Box<str>>,
    } always {
        "resourceID" resource_id: Box<str>,
    }
}

/// Values of `PodStatus.phase`.
pub mod phase {
    pub const PENDING: &str = "Pending";
    pub const RUNNING: &str = "Running";
    pub const SUCCEEDED: &str = "Succeeded";
    pub const FAILED: &str = "Failed";
    pub const UNKNOWN: &str = "Unknown";
}

/// Values of `PodCondition.type_` that a kubelet owns, and `PodScheduled`.
pub mod condition {
    pub const POD_SCHEDULED: &str = "PodScheduled";
    pub const READY: &str = "Ready";
    pub const INITIALIZED: &str = "Initialized";
    pub const CONTAINERS_READY: &str = "ContainersReady";
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
}

/// Values of `PodCondition.status`.
pub mod condition_status {
    pub const TRUE: &str = "True";
    pub const FALSE: &str = "False";
    pub const UNKNOWN: &str = "Unknown";
}
