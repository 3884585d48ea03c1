//! `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`, every field of Kubernetes 1.36.
//!
//! Source: the published API reference and the defaults of kubelet 1.36.3, compared field by field
//! with a running one.

use super::duration::GoDuration;
use super::record::record;
use super::sections::*;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

record! {
    /// How a kubelet runs. `Default` is what v1beta1 fills in for a file that sets nothing.
    pub struct KubeletConfiguration {
        "enableServer" enable_server: bool = nil(true),
        /// File or directory of pod manifests; empty for none.
        "staticPodPath" static_pod_path: String,
        "podLogsDir" pod_logs_dir: String = zero("/var/log/pods".into()),
        /// How long a running pod goes without a sync at most.
        "syncFrequency" sync_frequency: GoDuration = zero(GoDuration::from_secs(60)),
        "fileCheckFrequency" file_check_frequency: GoDuration = zero(GoDuration::from_secs(20)),
        "httpCheckFrequency" http_check_frequency: GoDuration = zero(GoDuration::from_secs(20)),
        "staticPodURL" static_pod_url: String,
        "staticPodURLHeader" static_pod_url_header: BTreeMap<String, Vec<String>>,
        "address" address: String = zero("0.0.0.0".into()),
        "port" port: i32 = zero(10250),
        /// 0: not served.
        "readOnlyPort" read_only_port: i32,
        "tlsCertFile" tls_cert_file: String,
        "tlsPrivateKeyFile" tls_private_key_file: String,
        /// Names as Go has them; empty for its choice.
        "tlsCipherSuites" tls_cipher_suites: Vec<String>,
        /// TLS supported-group numbers (RFC 8446), in order of preference.
        "tlsCurvePreferences" tls_curve_preferences: Vec<i32>,
        /// `VersionTLS12` and the like; empty for 1.2.
        "tlsMinVersion" tls_min_version: String,
        "rotateCertificates" rotate_certificates: bool,
        "serverTLSBootstrap" server_tls_bootstrap: bool,
        "authentication" authentication: KubeletAuthentication,
        "authorization" authorization: KubeletAuthorization,
        /// Pulls a second; 0: no limit.
        "registryPullQPS" registry_pull_qps: i32 = nil(5),
        "registryBurst" registry_burst: i32 = zero(10),
        /// Empty only when the gate KubeletEnsureSecretPulledImages is off.
        "imagePullCredentialsVerificationPolicy" image_pull_credentials_verification_policy: String
            = zero("NeverVerifyPreloadedImages".into()),
        "preloadedImagesVerificationAllowlist" preloaded_images_verification_allowlist: Vec<String>,
        /// Events a second; 0: no limit.
        "eventRecordQPS" event_record_qps: i32 = nil(50),
        "eventBurst" event_burst: i32 = zero(100),
        "enableDebuggingHandlers" enable_debugging_handlers: bool = nil(true),
        "enableContentionProfiling" enable_contention_profiling: bool,
        /// 0: not served.
        "healthzPort" healthz_port: i32 = nil(10248),
        /// An IP address, or `localhost`.
        "healthzBindAddress" healthz_bind_address: String = zero("127.0.0.1".into()),
        /// Of the kubelet itself.
        "oomScoreAdj" oom_score_adj: i32 = nil(-999),
        "clusterDomain" cluster_domain: String,
        "clusterDNS" cluster_dns: Vec<String>,
        "streamingConnectionIdleTimeout" streaming_connection_idle_timeout: GoDuration
            = zero(GoDuration::from_secs(4 * 3600)),
        "nodeStatusUpdateFrequency" node_status_update_frequency: GoDuration
            = zero(GoDuration::from_secs(10)),
        /// When only the update frequency is set, that is the default here too.
        "nodeStatusReportFrequency" node_status_report_frequency: GoDuration
            = zero(GoDuration::from_secs(300)),
        "nodeLeaseDurationSeconds" node_lease_duration_seconds: i32 = zero(40),
        "imageMinimumGCAge" image_minimum_gc_age: GoDuration = zero(GoDuration::from_secs(120)),
        /// 0: unused images are not removed for their age.
        "imageMaximumGCAge" image_maximum_gc_age: GoDuration,
        "imageGCHighThresholdPercent" image_gc_high_threshold_percent: i32 = nil(85),
        "imageGCLowThresholdPercent" image_gc_low_threshold_percent: i32 = nil(80),
        /// Negative: volumes are not measured.
        "volumeStatsAggPeriod" volume_stats_agg_period: GoDuration
            = zero(GoDuration::from_secs(60)),
        "kubeletCgroups" kubelet_cgroups: String,
        "systemCgroups" system_cgroups: String,
        "cgroupRoot" cgroup_root: String,
        "cgroupsPerQOS" cgroups_per_qos: bool = nil(true),
        "cgroupDriver" cgroup_driver: String = zero("cgroupfs".into()),
        "cpuManagerPolicy" cpu_manager_policy: String = zero("none".into()),
        /// None: true on cgroup v1, false on v2.
        "singleProcessOOMKill" single_process_oom_kill: Option<bool>,
        "cpuManagerPolicyOptions" cpu_manager_policy_options: BTreeMap<String, String>,
        "cpuManagerReconcilePeriod" cpu_manager_reconcile_period: GoDuration
            = zero(GoDuration::from_secs(10)),
        "memoryManagerPolicy" memory_manager_policy: String = zero("None".into()),
        "topologyManagerPolicy" topology_manager_policy: String = zero("none".into()),
        "topologyManagerScope" topology_manager_scope: String = zero("container".into()),
        "topologyManagerPolicyOptions" topology_manager_policy_options: BTreeMap<String, String>,
        "qosReserved" qos_reserved: BTreeMap<String, String>,
        /// For calls to the runtime, except pull, exec and the like.
        "runtimeRequestTimeout" runtime_request_timeout: GoDuration
            = zero(GoDuration::from_secs(120)),
        "hairpinMode" hairpin_mode: String = zero("promiscuous-bridge".into()),
        "maxPods" max_pods: i32 = zero(110),
        "podCIDR" pod_cidr: String,
        /// Negative: no limit.
        "podPidsLimit" pod_pids_limit: i64 = nil(-1),
        /// Empty: pods inherit nothing from the node.
        "resolvConf" resolv_conf: String = nil("/etc/resolv.conf".into()),
        "runOnce" run_once: bool,
        "cpuCFSQuota" cpu_cfs_quota: bool = nil(true),
        "cpuCFSQuotaPeriod" cpu_cfs_quota_period: GoDuration = nil(GoDuration::from_millis(100)),
        /// -1: all.
        "nodeStatusMaxImages" node_status_max_images: i32 = nil(50),
        /// RLIMIT_NOFILE of the kubelet.
        "maxOpenFiles" max_open_files: i64 = zero(1_000_000),
        "contentType" content_type: String = zero("application/vnd.kubernetes.protobuf".into()),
        "kubeAPIQPS" kube_api_qps: i32 = nil(50),
        "kubeAPIBurst" kube_api_burst: i32 = zero(100),
        /// Unless set, false when maxParallelImagePulls is at least 2.
        "serializeImagePulls" serialize_image_pulls: bool = nil(true),
        /// None: no limit.
        "maxParallelImagePulls" max_parallel_image_pulls: Option<i32>,
        "evictionHard" eviction_hard: BTreeMap<String, String>,
        "evictionSoft" eviction_soft: BTreeMap<String, String>,
        "evictionSoftGracePeriod" eviction_soft_grace_period: BTreeMap<String, String>,
        "evictionPressureTransitionPeriod" eviction_pressure_transition_period: GoDuration
            = zero(GoDuration::from_secs(300)),
        /// Seconds.
        "evictionMaxPodGracePeriod" eviction_max_pod_grace_period: i32,
        "evictionMinimumReclaim" eviction_minimum_reclaim: BTreeMap<String, String>,
        /// Whether evictionHard of a file adds to the defaults instead of replacing them.
        "mergeDefaultEvictionSettings" merge_default_eviction_settings: bool = nil(false),
        /// 0: no limit.
        "podsPerCore" pods_per_core: i32,
        "enableControllerAttachDetach" enable_controller_attach_detach: bool = nil(true),
        "protectKernelDefaults" protect_kernel_defaults: bool,
        "makeIPTablesUtilChains" make_iptables_util_chains: bool = nil(true),
        "iptablesMasqueradeBit" iptables_masquerade_bit: i32 = nil(14),
        "iptablesDropBit" iptables_drop_bit: i32 = nil(15),
        "featureGates" feature_gates: BTreeMap<String, bool>,
        "failSwapOn" fail_swap_on: bool = nil(true),
        "memorySwap" memory_swap: MemorySwapConfiguration,
        /// Quantity of bytes.
        "containerLogMaxSize" container_log_max_size: String = zero("10Mi".into()),
        "containerLogMaxFiles" container_log_max_files: i32 = nil(5),
        "containerLogMaxWorkers" container_log_max_workers: i32 = nil(1),
        "containerLogMonitorInterval" container_log_monitor_interval: GoDuration
            = nil(GoDuration::from_secs(10)),
        "configMapAndSecretChangeDetectionStrategy"
            config_map_and_secret_change_detection_strategy: String
            = zero("Watch".into()),
        "systemReserved" system_reserved: BTreeMap<String, String>,
        "kubeReserved" kube_reserved: BTreeMap<String, String>,
        "reservedSystemCPUs" reserved_system_cpus: String,
        "showHiddenMetricsForVersion" show_hidden_metrics_for_version: String,
        "systemReservedCgroup" system_reserved_cgroup: String,
        "kubeReservedCgroup" kube_reserved_cgroup: String,
        "enforceNodeAllocatable" enforce_node_allocatable: Vec<String>
            = absent(vec!["pods".into()]),
        "allowedUnsafeSysctls" allowed_unsafe_sysctls: Vec<String>,
        "volumePluginDir" volume_plugin_dir: String
            = zero("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".into()),
        "providerID" provider_id: String,
        "kernelMemcgNotification" kernel_memcg_notification: bool,
        "logging" logging: LoggingConfiguration,
        "enableSystemLogHandler" enable_system_log_handler: bool = nil(true),
        "enableSystemLogQuery" enable_system_log_query: bool = nil(false),
        "shutdownGracePeriod" shutdown_grace_period: GoDuration,
        "shutdownGracePeriodCriticalPods" shutdown_grace_period_critical_pods: GoDuration,
        "shutdownGracePeriodByPodPriority" shutdown_grace_period_by_pod_priority:
            Vec<ShutdownGracePeriodByPodPriority>,
        "crashLoopBackOff" crash_loop_back_off: CrashLoopBackOffConfig,
        "reservedMemory" reserved_memory: Vec<MemoryReservation>,
        "enableProfilingHandler" enable_profiling_handler: bool = nil(true),
        "enableDebugFlagsHandler" enable_debug_flags_handler: bool = nil(true),
        "seccompDefault" seccomp_default: bool = nil(false),
        "memoryThrottlingFactor" memory_throttling_factor: Factor = nil(Factor::default()),
        "memoryReservationPolicy" memory_reservation_policy: String = zero("None".into()),
        "registerWithTaints" register_with_taints: Vec<Taint>,
        "registerNode" register_node: bool = nil(true),
        "tracing" tracing: Option<TracingConfiguration>,
        "localStorageCapacityIsolation" local_storage_capacity_isolation: bool = nil(true),
        "containerRuntimeEndpoint" container_runtime_endpoint: String
            = zero("unix:///run/containerd/containerd.sock".into()),
        /// Empty: the runtime's endpoint.
        "imageServiceEndpoint" image_service_endpoint: String,
        "failCgroupV1" fail_cgroup_v1: bool = nil(true),
        "userNamespaces" user_namespaces: Option<UserNamespaces>,
    }
}
