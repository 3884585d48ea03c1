//! What the configuration means to the core: the part of `KubeletConfiguration` and of the flags that decisions need.
//! The shell fills it in at start, after precedence, defaults and validation.

use crate::event::Pair;
use crate::sealed::Sealed;
use crate::time::Span;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The release whose kubelet this agent stands for.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub node_name: String,
    /// The operating system's host name.
    pub hostname: String,
    pub root_dir: String,
    pub pod_logs_dir: String,
    /// `/var/log/containers`; empty: no links are made (`steplet run`).
    pub container_links_dir: String,
    /// `staticPodPath`, empty when unset.
    pub static_pod_path: String,
    /// `staticPodURL` as far as it may be shown, empty when unset.
    pub static_pod_url: String,
    /// The whole of it, when it holds a user, a password or a query.
    pub static_pod_url_whole: Option<Sealed>,
    pub static_pod_url_headers: Vec<(String, Sealed)>,
    pub file_check: Span,
    pub http_check: Span,
    pub sync_frequency: Span,
    pub runtime_request_timeout: Span,
    pub max_pods: u32,
    /// -1: no limit.
    pub pod_pids_limit: i64,
    pub cluster_dns: Vec<String>,
    pub cluster_domain: String,
    /// Path of the node's resolver file, empty for none.
    pub resolv_conf: String,
    /// `cgroupDriver`; what the runtime says goes before it (`Facts::cgroup_driver`).
    pub cgroup_driver: CgroupDriver,
    /// cgroup below which `kubepods` lies, without a leading slash; empty for the root.
    pub cgroup_root: String,
    pub cgroups_per_qos: bool,
    /// `enforceNodeAllocatable` holds `pods`.
    pub enforce_pods: bool,
    /// kubeReserved + systemReserved.
    pub reserved_cpu_milli: u64,
    pub reserved_memory_bytes: u64,
    pub reserved_pids: u64,
    pub reserved_storage_bytes: u64,
    pub eviction_hard: EvictionHard,
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_period_us: u64,
    pub seccomp_default: bool,
    /// `singleProcessOOMKill` after defaulting.
    pub single_process_oom_kill: bool,
    pub serialize_image_pulls: bool,
    /// Parallel pulls at most; 0: no limit.
    pub max_parallel_image_pulls: u32,
    /// 0: no limit.
    pub registry_qps: u32,
    pub registry_burst: u32,
    /// `crashLoopBackOff.maxContainerRestartPeriod`.
    pub crash_loop_max: Span,
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `makeIPTablesUtilChains`
    pub iptables_chains: bool,
    /// `podCIDR`: what a node that stands alone tells the runtime.
    pub pod_cidr: String,
    pub debugging_handlers: bool,
    /// Which of them there are.
    pub handlers: Handlers,
    /// The effective flags as `/flagz` shows them: `name=value` lines, sorted.
    pub flagz: Bytes,
    /// Whom 10250 answers while nobody can be asked about them.
    pub visitors: Visitors,
    /// How those who ask on 10250 are told apart; None: by `visitors`.
    pub auth: Option<AuthSettings>,
    /// `steplet run`: stop the pods at the first signal and leave when they are gone.
    pub stop_pods_on_exit: bool,
    /// The cluster that this node belongs to; None: it stands alone.
    pub api: Option<ApiSettings>,
    /// The whole effective KubeletConfiguration as JSON, for `/configz`.
    pub configz: Bytes,
}

/// What a node with an API server (`--kubeconfig`) is told of its part in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSettings {
    /// `kubeAPIQPS`; 0: no limit.
    pub qps: u32,
    pub burst: u32,
    /// `eventRecordQPS`; 0: no limit.
    pub event_qps: u32,
    pub event_burst: u32,
    /// `registerNode`
    pub register: bool,
    /// `--node-labels`
    pub labels: Vec<(String, String)>,
    /// `registerWithTaints`: key, value, effect.
    pub taints: Vec<(String, String, String)>,
    pub provider_id: String,
    /// `--cloud-provider=external`
    pub external_cloud: bool,
    /// `--node-ip`, as given.
    pub node_ip: String,
    /// The port of the server, for `daemonEndpoints`.
    pub port: u16,
    pub status_update: Span,
    pub status_report: Span,
    pub lease_seconds: u32,
    /// `nodeStatusMaxImages`; -1: no limit.
    pub max_images: i32,
    /// `configMapAndSecretChangeDetectionStrategy`
    pub change_detection: ChangeDetection,
    pub certificates: CertificateSettings,
    /// `--offline-restore`: what pods need is kept for a start without the API server.
    pub offline: bool,
}

/// Who makes the cgroups of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupDriver {
    /// The agent, as directories.
    #[default]
    Cgroupfs,
    /// systemd, as slices that the agent asks for.
    Systemd,
}

impl CgroupDriver {
    /// `systemd` or `cgroupfs`, as `cgroupDriver` has it.
    pub fn named(name: &str) -> CgroupDriver {
        match name {
            "systemd" => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        }
    }
}

/// Which certificates the agent asks for and keeps itself; by default none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CertificateSettings {
    /// `--cert-dir`
    pub dir: String,
    /// `rotateCertificates`
    pub rotate: bool,
    /// `serverTLSBootstrap`
    pub serving: bool,
    /// There are bootstrap credentials: with them the first client certificate can be asked for, or one anew.
    pub bootstrap: bool,
    /// The certificate that the kubeconfig itself brings: it is used until there is one in `dir`.
    pub given: Option<Pair>,
    /// That one stands in the kubeconfig itself, not in files beside it: such are passed on by installers, and are
    /// replaced at once, as upstream does.
    pub given_inline: bool,
    /// Path and text of the kubeconfig that names the pair in `dir`: written after a bootstrap.
    pub kubeconfig: Option<(String, Sealed)>,
    /// Nothing usable is at that path, so it is written as soon as there is a pair.
    pub kubeconfig_missing: bool,
}

/// How an agent learns of changes of ConfigMaps and Secrets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeDetection {
    #[default]
    Watch,
    /// Asked for again when it is older than the Node's TTL.
    Cache,
    /// Asked for each time.
    Get,
}

/// `evictionHard`: what is kept free. What it does not name is 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvictionHard {
    pub memory: Threshold,
    pub nodefs: Threshold,
    pub nodefs_inodes: Threshold,
    pub imagefs: Threshold,
    pub imagefs_inodes: Threshold,
    /// `pid.available`
    pub pids: Threshold,
}

impl Default for EvictionHard {
    fn default() -> EvictionHard {
        EvictionHard {
            memory: Threshold::Bytes(100 << 20),
            nodefs: Threshold::PerMille(100),
            nodefs_inodes: Threshold::PerMille(50),
            imagefs: Threshold::PerMille(150),
            imagefs_inodes: Threshold::PerMille(50),
            pids: Threshold::Bytes(0),
        }
    }
}

/// A part of a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Threshold {
    Bytes(u64),
    /// Of a thousand, so that `7.5%` is 75.
    PerMille(u64),
}

impl Threshold {
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Threshold::Bytes(bytes) => bytes,
            Threshold::PerMille(share) => (u128::from(capacity) * u128::from(share) / 1000) as u64,
        }
    }
}

impl Default for ApiSettings {
    fn default() -> ApiSettings {
        ApiSettings {
            qps: 50,
            burst: 100,
            event_qps: 50,
            event_burst: 100,
            register: true,
            labels: Vec::new(),
            taints: Vec::new(),
            provider_id: String::new(),
            external_cloud: false,
            node_ip: String::new(),
            port: 10250,
            status_update: Span::from_secs(10),
            status_report: Span::from_secs(300),
            lease_seconds: 40,
            max_images: 50,
            change_detection: ChangeDetection::Watch,
            offline: true,
            certificates: CertificateSettings::default(),
        }
    }
}

/// `authentication` and `authorization` of a node with an API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuthSettings {
    pub anonymous: bool,
    /// `authentication.webhook.enabled`
    pub token_reviews: bool,
    pub token_ttl: Span,
    /// `authorization.mode: AlwaysAllow`; else SubjectAccessReview.
    pub always_allow: bool,
    pub allowed_ttl: Span,
    pub denied_ttl: Span,
}

/// Kubelet's defaults.
impl Default for AuthSettings {
    fn default() -> AuthSettings {
        AuthSettings {
            anonymous: false,
            token_reviews: true,
            token_ttl: Span::from_secs(120),
            always_allow: false,
            allowed_ttl: Span::from_secs(300),
            denied_ttl: Span::from_secs(30),
        }
    }
}

/// Handlers of 10250 that have a switch of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handlers {
    /// `enableSystemLogHandler`
    pub system_logs: bool,
    /// `enableProfilingHandler`
    pub profiling: bool,
    /// `enableDebugFlagsHandler`
    pub debug_flags: bool,
    /// Gates: ContainerCheckpoint, ComponentFlagz, ComponentStatusz.
    pub checkpoint: bool,
    pub flagz: bool,
    pub statusz: bool,
}

/// Kubelet's defaults.
impl Default for Handlers {
    fn default() -> Handlers {
        Handlers {
            system_logs: true,
            profiling: true,
            debug_flags: true,
            checkpoint: true,
            flagz: true,
            statusz: true,
        }
    }
}

/// Whom the port with TLS answers while nobody can be told apart: credentials are not looked at yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Visitors {
    /// This machine only.
    Loopback,
    /// `authorization.mode: AlwaysAllow`.
    Everybody,
}

impl Visitors {
    pub fn of(authorization_mode: &str) -> Visitors {
        match authorization_mode {
            "AlwaysAllow" => Visitors::Everybody,
            _ => Visitors::Loopback,
        }
    }
}

/// Kubelet's defaults (pkg/kubelet/apis/config/v1beta1/defaults.go, v1.36) on a node that has no name and no manifests.
impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_name: String::new(),
            hostname: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            pod_logs_dir: "/var/log/pods".into(),
            container_links_dir: "/var/log/containers".into(),
            static_pod_path: String::new(),
            static_pod_url: String::new(),
            static_pod_url_whole: None,
            static_pod_url_headers: Vec::new(),
            file_check: Span::from_secs(20),
            http_check: Span::from_secs(20),
            sync_frequency: Span::from_secs(60),
            runtime_request_timeout: Span::from_secs(120),
            max_pods: 110,
            pod_pids_limit: -1,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            cgroup_root: String::new(),
            cgroups_per_qos: true,
            enforce_pods: true,
            reserved_cpu_milli: 0,
            reserved_memory_bytes: 0,
            reserved_pids: 0,
            reserved_storage_bytes: 0,
            eviction_hard: EvictionHard::default(),
            cpu_cfs_quota: true,
            cpu_cfs_period_us: 100_000,
            seccomp_default: false,
            single_process_oom_kill: false,
            serialize_image_pulls: true,
            max_parallel_image_pulls: 0,
            registry_qps: 5,
            registry_burst: 10,
            crash_loop_max: Span::from_secs(300),
            allowed_unsafe_sysctls: Vec::new(),
            iptables_chains: true,
            pod_cidr: String::new(),
            debugging_handlers: true,
            handlers: Handlers::default(),
            flagz: Bytes::new(),
            visitors: Visitors::Loopback,
            auth: None,
            stop_pods_on_exit: false,
            api: None,
            configz: Bytes::from_static(b"{}"),
        }
    }
}

impl Settings {
    pub fn pod_dir(&self, uid: &crate::ids::PodUid) -> String {
        alloc::format!("{}/pods/{uid}", self.root_dir)
    }

    /// Where the files of the pod's containers are: a directory each, with the termination messages.
    pub fn containers_dir(&self, uid: &crate::ids::PodUid) -> String {
        alloc::format!("{}/containers", self.pod_dir(uid))
    }

    /// `<podLogsDir>/<namespace>_<name>_<uid>` (`log_directory` of the CRI).
    pub fn log_dir(&self, namespace: &str, name: &str, uid: &crate::ids::PodUid) -> String {
        alloc::format!("{}/{namespace}_{name}_{uid}", self.pod_logs_dir)
    }
}
