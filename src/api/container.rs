//! Container of core/v1, release 1.36, and what hangs on it: ports, environment, probes, hooks,
//! resources, security.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde_json::Value;

use crate::json::{self, Object, object, object_codec};
use crate::meta::IntOrString;
use crate::pod::ResourceList;
use crate::quantity::Quantity;

object! {
    pub struct Container {
        "image" image: Box<str>,
        "command" command: Vec<Box<str>>,
        "args" args: Vec<Box<str>>,
        "workingDir" working_dir: Box<str>,
        "ports" ports: Vec<ContainerPort>,
        "envFrom" env_from: Vec<EnvFromSource>,
        "env" env: Vec<EnvVar>,
        "resources" resources: ResourceRequirements,
        "resizePolicy" resize_policy: Vec<ContainerResizePolicy>,
        /// Of an init container, `Always` makes it a sidecar.
        "restartPolicy" restart_policy: Option<Box<str>>,
        "restartPolicyRules" restart_policy_rules: Vec<ContainerRestartRule>,
        "volumeMounts" volume_mounts: Vec<VolumeMount>,
        "volumeDevices" volume_devices: Vec<VolumeDevice>,
        "livenessProbe" liveness_probe: Option<Box<Probe>>,
        "readinessProbe" readiness_probe: Option<Box<Probe>>,
        "startupProbe" startup_probe: Option<Box<Probe>>,
        "lifecycle" lifecycle: Option<Box<Lifecycle>>,
        "terminationMessagePath" termination_message_path: Box<str>,
        "terminationMessagePolicy" termination_message_policy: Box<str>,
        "imagePullPolicy" image_pull_policy: Box<str>,
        "securityContext" security_context: Option<Box<SecurityContext>>,
        "stdin" stdin: bool,
        "stdinOnce" stdin_once: bool,
        "tty" tty: bool,
    } always {
        "name" name: Box<str>,
    }

    pub struct ContainerPort {
        "name" name: Box<str>,
        "hostPort" host_port: i32,
        "protocol" protocol: Box<str>,
        "hostIP" host_ip: Box<str>,
    } always {
        "containerPort" container_port: i32,
    }

    /// All keys of a ConfigMap or Secret as environment variables, each with `prefix` before its
    /// name.
    pub struct EnvFromSource {
        "prefix" prefix: Box<str>,
        "configMapRef" config_map_ref: Option<OptionalReference>,
        "secretRef" secret_ref: Option<OptionalReference>,
    }

    /// ConfigMapEnvSource and SecretEnvSource: an object that may be missing if `optional` is true.
    pub struct OptionalReference {
        "name" name: Box<str>,
        "optional" optional: Option<bool>,
    }

    pub struct EnvVar {
        "value" value: Box<str>,
        "valueFrom" value_from: Option<Box<EnvVarSource>>,
    } always {
        "name" name: Box<str>,
    }

    pub struct EnvVarSource {
        "fieldRef" field_ref: Option<ObjectFieldSelector>,
        "resourceFieldRef" resource_field_ref: Option<ResourceFieldSelector>,
        "configMapKeyRef" config_map_key_ref: Option<KeySelector>,
        "secretKeyRef" secret_key_ref: Option<KeySelector>,
        "fileKeyRef" file_key_ref: Option<FileKeySelector>,
    }

    pub struct ObjectFieldSelector {
        "apiVersion" api_version: Box<str>,
    } always {
        "fieldPath" field_path: Box<str>,
    }

    pub struct ResourceFieldSelector {
        "containerName" container_name: Box<str>,
        /// The unit of the answer; zero means 1.
        "divisor" divisor: Quantity,
    } always {
        "resource" resource: Box<str>,
    }

    /// ConfigMapKeySelector and SecretKeySelector.
    pub struct KeySelector {
        "name" name: Box<str>,
        "optional" optional: Option<bool>,
    } always {
        "key" key: Box<str>,
    }

    /// A key of a file of variables that an init container wrote into a volume.
    pub struct FileKeySelector {
        "optional" optional: Option<bool>,
    } always {
        "volumeName" volume_name: Box<str>,
        "path" path: Box<str>,
        "key" key: Box<str>,
    }

    pub struct ResourceRequirements {
        "limits" limits: ResourceList,
        "requests" requests: ResourceList,
        "claims" claims: Vec<ResourceClaim>,
    }

    /// An entry of `PodSpec.resource_claims` that a container uses.
    pub struct ResourceClaim {
        "request" request: Box<str>,
    } always {
        "name" name: Box<str>,
    }

    pub struct ContainerResizePolicy {
    } always {
        "resourceName" resource_name: Box<str>,
        "restartPolicy" restart_policy: Box<str>,
    }

    /// What to do when the container ends with one of these codes: `action` is Restart or
    /// RestartAllContainers.
    pub struct ContainerRestartRule {
        "exitCodes" exit_codes: Option<ContainerRestartRuleOnExitCodes>,
    } always {
        "action" action: Box<str>,
    }

    /// `operator` is In or NotIn.
    pub struct ContainerRestartRuleOnExitCodes {
        "values" values: Vec<i32>,
    } always {
        "operator" operator: Box<str>,
    }

    pub struct VolumeMount {
        "readOnly" read_only: bool,
        "recursiveReadOnly" recursive_read_only: Option<Box<str>>,
        "subPath" sub_path: Box<str>,
        "mountPropagation" mount_propagation: Option<Box<str>>,
        "subPathExpr" sub_path_expr: Box<str>,
    } always {
        "name" name: Box<str>,
        "mountPath" mount_path: Box<str>,
    }

    pub struct VolumeDevice {
    } always {
        "name" name: Box<str>,
        "devicePath" device_path: Box<str>,
    }

    /// A check that is run again and again; exactly one of the four handlers is set.
    pub struct Probe {
        "exec" exec: Option<ExecAction>,
        "httpGet" http_get: Option<Box<HttpGetAction>>,
        "tcpSocket" tcp_socket: Option<TcpSocketAction>,
        "grpc" grpc: Option<GrpcAction>,
        "initialDelaySeconds" initial_delay_seconds: i32,
        "timeoutSeconds" timeout_seconds: i32,
        "periodSeconds" period_seconds: i32,
        "successThreshold" success_threshold: i32,
        "failureThreshold" failure_threshold: i32,
        "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>,
    }

    pub struct ExecAction {
        "command" command: Vec<Box<str>>,
    }

    pub struct HttpGetAction {
        "path" path: Box<str>,
        "host" host: Box<str>,
        "scheme" scheme: Box<str>,
        "httpHeaders" http_headers: Vec<HttpHeader>,
    } always {
        "port" port: IntOrString,
    }

    pub struct HttpHeader {
    } always {
        "name" name: Box<str>,
        "value" value: Box<str>,
    }

    pub struct TcpSocketAction {
        "host" host: Box<str>,
    } always {
        "port" port: IntOrString,
    }

    pub struct GrpcAction {
        "service" service: Option<Box<str>>,
    } always {
        "port" port: i32,
    }

    pub struct SleepAction {
    } always {
        "seconds" seconds: i64,
    }

    pub struct Lifecycle {
        "postStart" post_start: Option<Box<LifecycleHandler>>,
        "preStop" pre_stop: Option<Box<LifecycleHandler>>,
        "stopSignal" stop_signal: Option<Box<str>>,
    }

    /// A hook; exactly one of its four handlers is set. `tcpSocket` is accepted and never works.
    pub struct LifecycleHandler {
        "exec" exec: Option<ExecAction>,
        "httpGet" http_get: Option<Box<HttpGetAction>>,
        "tcpSocket" tcp_socket: Option<TcpSocketAction>,
        "sleep" sleep: Option<SleepAction>,
    }

    pub struct SecurityContext {
        "capabilities" capabilities: Option<Box<Capabilities>>,
        "privileged" privileged: Option<bool>,
        "seLinuxOptions" se_linux_options: Option<Box<SeLinuxOptions>>,
        "windowsOptions" windows_options: Option<Value>,
        "runAsUser" run_as_user: Option<i64>,
        "runAsGroup" run_as_group: Option<i64>,
        "runAsNonRoot" run_as_non_root: Option<bool>,
        "readOnlyRootFilesystem" read_only_root_filesystem: Option<bool>,
        "allowPrivilegeEscalation" allow_privilege_escalation: Option<bool>,
        "procMount" proc_mount: Option<Box<str>>,
        "seccompProfile" seccomp_profile: Option<Box<SeccompProfile>>,
        "appArmorProfile" app_armor_profile: Option<Box<AppArmorProfile>>,
    }

    pub struct Capabilities {
        "add" add: Vec<Box<str>>,
        "drop" drop: Vec<Box<str>>,
    }

    pub struct SeLinuxOptions {
        "user" user: Box<str>,
        "role" role: Box<str>,
        "type" type_: Box<str>,
        "level" level: Box<str>,
    }

    /// `type` is RuntimeDefault, Unconfined or Localhost.
    pub struct SeccompProfile {
        "localhostProfile" localhost_profile: Option<Box<str>>,
    } always {
        "type" type_: Box<str>,
    }

    /// `type` is RuntimeDefault, Unconfined or Localhost.
    pub struct AppArmorProfile {
        "localhostProfile" localhost_profile: Option<Box<str>>,
    } always {
        "type" type_: Box<str>,
    }
}

/// A container that was added to a running pod to look into it: a container (not all of its fields
/// may be set), and the name of the container whose processes it sees. On the wire both stand in
/// one object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct EphemeralContainer {
    pub container: Container,
    pub target_container_name: Box<str>,
}

impl Object for EphemeralContainer {
    const NAME: &'static str = "EphemeralContainer";

    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        key: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match key {
            "targetContainerName" => self.target_container_name = json::read(key, map)?,
            _ => self.container.read_field(key, map)?,
        }
        Ok(())
    }

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.container.write_fields(map)?;
        json::write("targetContainerName", &self.target_container_name, map)
    }
}

object_codec!(EphemeralContainer);

/// Values of `Container.image_pull_policy`.
pub mod pull_policy {
    pub const ALWAYS: &str = "Always";
    pub const IF_NOT_PRESENT: &str = "IfNotPresent";
    pub const NEVER: &str = "Never";
}

/// Values of `Container.termination_message_policy`.
pub mod termination_message_policy {
    pub const FILE: &str = "File";
    pub const FALLBACK_TO_LOGS_ON_ERROR: &str = "FallbackToLogsOnError";
}

/// Values of `ContainerPort.protocol`.
pub mod protocol {
    pub const TCP: &str = "TCP";
    pub const UDP: &str = "UDP";
    pub const SCTP: &str = "SCTP";
}

/// Values of `HttpGetAction.scheme`.
pub mod scheme {
    pub const HTTP: &str = "HTTP";
    pub const HTTPS: &str = "HTTPS";
}

/// Values of `VolumeMount.mount_propagation`.
pub mod mount_propagation {
    pub const NONE: &str = "None";
    pub const HOST_TO_CONTAINER: &str = "HostToContainer";
    pub const BIDIRECTIONAL: &str = "Bidirectional";
}

/// Values of `SeccompProfile.type_` and `AppArmorProfile.type_`.
pub mod profile_type {
    pub const RUNTIME_DEFAULT: &str = "RuntimeDefault";
    pub const UNCONFINED: &str = "Unconfined";
    pub const LOCALHOST: &str = "Localhost";
}

/// Values of `SecurityContext.proc_mount`.
pub mod proc_mount {
    pub const DEFAULT: &str = "Default";
    pub const UNMASKED: &str = "Unmasked";
}
