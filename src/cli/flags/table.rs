//! Every flag of kubelet 1.36.3, one row each, and our own.
//!
//! Names, kinds and deprecations are those that the reference kubelet registers; the words are
//! ours.

use super::KubeletFlags;
use Kind::*;
use std::collections::BTreeMap;
use steplet_api::config::GoDuration;

/// How the text of a flag is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// Takes a value by `=` only; alone it means true.
    Bool,
    Int32,
    Int64,
    Duration,
    Ip,
    /// Comma-separated; further uses add to it.
    List,
    /// `KEY=VALUE,...`; further uses add to it, as with all maps.
    Map,
    /// `KEY=VALUE` whose value may hold commas.
    Pair,
    /// `SIGNAL<VALUE,...`
    Thresholds,
    /// `NAME=true,...`
    BoolMap,
    /// `NAME:VALUE,...`
    Headers,
    /// `KEY=VALUE:EFFECT,...`
    Taints,
    /// `NODE:TYPE=QUANTITY,...;...`
    ReservedMemory,
    Quantity,
    /// A verbosity of klog.
    Level,
    /// `PATTERN=LEVEL,...`
    VModule,
    Version,
}

/// Where a flag goes.
#[derive(Clone, Copy)]
pub(super) enum To {
    /// A field of the configuration, by its path.
    Config(&'static str),
    Text(fn(&mut KubeletFlags) -> &mut String),
    Switch(fn(&mut KubeletFlags) -> &mut bool),
    Number(fn(&mut KubeletFlags) -> &mut i32),
    Span(fn(&mut KubeletFlags) -> &mut GoDuration),
    Labels(fn(&mut KubeletFlags) -> &mut BTreeMap<String, String>),
    Bytes(fn(&mut KubeletFlags) -> &mut u64),
    /// Read and forgotten.
    Nowhere,
    Help,
    Version,
}

/// Where `--help` shows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Files,
    Node,
    Logging,
    Tape,
    Offline,
    Other,
    /// Mirrors of the configuration file.
    Config,
    /// Kept so that old command lines still start.
    Old,
}

pub(super) struct Flag {
    pub name: &'static str,
    /// Also its short name, where the name is one letter or `short` says so.
    pub short: Option<char>,
    pub kind: Kind,
    pub to: To,
    pub group: Group,
    pub help: &'static str,
    /// Whether using it is answered with a warning.
    pub deprecated: bool,
    /// Whether it has its effect; what has none yet is named in a warning.
    pub honoured: bool,
}

const fn flag(name: &'static str, kind: Kind, group: Group, to: To, help: &'static str) -> Flag {
    Flag { name, short: None, kind, to, group, help, deprecated: false, honoured: true }
}

/// A mirror of a configuration field.
const fn mirror(name: &'static str, kind: Kind, path: &'static str, help: &'static str) -> Flag {
    Flag { deprecated: true, ..flag(name, kind, Group::Config, To::Config(path), help) }
}

/// A field of the configuration that is meant to be a flag too.
const fn setting(name: &'static str, kind: Kind, path: &'static str, help: &'static str) -> Flag {
    let group = match kind {
        Level | VModule | Duration => Group::Logging,
        _ => Group::Node,
    };
    flag(name, kind, group, To::Config(path), help)
}

const fn not_yet(flag: Flag) -> Flag {
    Flag { honoured: false, ..flag }
}

/// A flag of the statistics library that slipped into the kubelet long ago.
const fn cadvisor(name: &'static str, kind: Kind) -> Flag {
    old(name, kind, To::Nowhere, "")
}

const fn old(name: &'static str, kind: Kind, to: To, help: &'static str) -> Flag {
    Flag { deprecated: true, honoured: false, ..flag(name, kind, Group::Old, to, help) }
}

/// In the order in which `--help` shows them.
pub(super) static FLAGS: &[Flag] = &[
    flag(
        "config",
        Text,
        Group::Files,
        To::Text(|f| &mut f.config),
        "KubeletConfiguration, YAML or JSON",
    ),
    flag(
        "config-dir",
        Text,
        Group::Files,
        To::Text(|f| &mut f.config_dir),
        "drop-ins *.conf that are laid over it, in order of name",
    ),
    flag(
        "kubeconfig",
        Text,
        Group::Files,
        To::Text(|f| &mut f.kubeconfig),
        "access to the API server; empty: the node stands alone",
    ),
    flag(
        "bootstrap-kubeconfig",
        Text,
        Group::Files,
        To::Text(|f| &mut f.bootstrap_kubeconfig),
        "access with which to ask for a certificate, and write the kubeconfig",
    ),
    flag(
        "root-dir",
        Text,
        Group::Files,
        To::Text(|f| &mut f.root_dir),
        "where the agent keeps its state and the volumes of pods",
    ),
    flag(
        "cert-dir",
        Text,
        Group::Files,
        To::Text(|f| &mut f.cert_dir),
        "certificates that are made here, unless tlsCertFile is set",
    ),
    flag(
        "lock-file",
        Text,
        Group::Files,
        To::Text(|f| &mut f.lock_file),
        "file that one agent holds at a time; another one waits for it",
    ),
    not_yet(flag(
        "exit-on-lock-contention",
        Bool,
        Group::Files,
        To::Switch(|f| &mut f.exit_on_lock_contention),
        "end when another agent wants the lock file",
    )),
    not_yet(flag(
        "image-credential-provider-config",
        Text,
        Group::Files,
        To::Text(|f| &mut f.image_credential_provider_config),
        "file or directory that says which programs know pull credentials",
    )),
    not_yet(flag(
        "image-credential-provider-bin-dir",
        Text,
        Group::Files,
        To::Text(|f| &mut f.image_credential_provider_bin_dir),
        "where these programs are",
    )),
    flag(
        "hostname-override",
        Text,
        Group::Node,
        To::Text(|f| &mut f.hostname_override),
        "name of the node, instead of the host's name in lower case",
    ),
    flag(
        "node-ip",
        Text,
        Group::Node,
        To::Text(|f| &mut f.node_ip),
        "address of the node, or one of each family; :: prefers IPv6",
    ),
    flag(
        "node-labels",
        Map,
        Group::Node,
        To::Labels(|f| &mut f.node_labels),
        "labels at registration, KEY=VALUE,...",
    ),
    flag(
        "seccomp-default",
        Bool,
        Group::Node,
        To::Switch(|f| &mut f.seccomp_default),
        "RuntimeDefault for containers that name no seccomp profile",
    ),
    flag(
        "cloud-provider",
        Text,
        Group::Node,
        To::Text(|f| &mut f.cloud_provider),
        "external, or nothing",
    ),
    not_yet(flag(
        "runtime-cgroups",
        Text,
        Group::Node,
        To::Text(|f| &mut f.runtime_cgroups),
        "control group of the container runtime, for statistics",
    )),
    flag(
        "tape-dir",
        Text,
        Group::Tape,
        To::Text(|f| &mut f.tape_dir),
        "where runs are recorded; empty: tapes in --root-dir",
    ),
    flag(
        "tape-max",
        Quantity,
        Group::Tape,
        To::Bytes(|f| &mut f.tape_max),
        "bytes of recordings to keep, 1Mi or more; 0: no recording",
    ),
    flag(
        "offline-restore",
        Bool,
        Group::Offline,
        To::Switch(|f| &mut f.offline_restore),
        "keep the cluster's pods and what they mount (Secrets and tokens too, encrypted) in \
        steplet/offline in --root-dir, and start them from there when the API server is away; false: \
        neither",
    ),
    flag(
        "offline-key-file",
        Text,
        Group::Offline,
        To::Text(|f| &mut f.offline_key_file),
        "what that is encrypted with, 16 bytes or more; empty: the credential steplet-offline-key of \
        systemd, else a key made beside it",
    ),
    Flag { short: Some('h'), ..flag("help", Bool, Group::Other, To::Help, "this text") },
    flag("version", Version, Group::Other, To::Version, "the version of Kubernetes that is spoken"),
    not_yet(flag(
        "housekeeping-interval",
        Duration,
        Group::Other,
        To::Span(|f| &mut f.housekeeping_interval),
        "how often containers are measured",
    )),
    mirror("address", Ip, "address", "IP address to serve on"),
    mirror(
        "allowed-unsafe-sysctls",
        List,
        "allowedUnsafeSysctls",
        "sysctls, or patterns ending in *, that pods may set",
    ),
    mirror(
        "anonymous-auth",
        Bool,
        "authentication.anonymous.enabled",
        "take requests without credentials; none are looked at so far",
    ),
    mirror(
        "authentication-token-webhook",
        Bool,
        "authentication.webhook.enabled",
        "ask the API server about bearer tokens",
    ),
    mirror(
        "authentication-token-webhook-cache-ttl",
        Duration,
        "authentication.webhook.cacheTTL",
        "how long its answers are kept",
    ),
    mirror(
        "authorization-mode",
        Text,
        "authorization.mode",
        "AlwaysAllow; with Webhook loopback alone is answered so far",
    ),
    mirror(
        "authorization-webhook-cache-authorized-ttl",
        Duration,
        "authorization.webhook.cacheAuthorizedTTL",
        "how long a yes is kept",
    ),
    mirror(
        "authorization-webhook-cache-unauthorized-ttl",
        Duration,
        "authorization.webhook.cacheUnauthorizedTTL",
        "how long a no is kept",
    ),
    mirror(
        "cgroup-driver",
        Text,
        "cgroupDriver",
        "who makes control groups, cgroupfs or systemd, where the runtime does not say",
    ),
    mirror("cgroup-root", Text, "cgroupRoot", "control group below which kubepods lies"),
    mirror(
        "cgroups-per-qos",
        Bool,
        "cgroupsPerQOS",
        "make control groups for pods and their classes",
    ),
    mirror(
        "client-ca-file",
        Text,
        "authentication.x509.clientCAFile",
        "authorities of client certificates",
    ),
    mirror("cluster-dns", List, "clusterDNS", "addresses of the cluster's DNS servers"),
    mirror("cluster-domain", Text, "clusterDomain", "DNS domain of the cluster"),
    mirror("container-log-max-files", Int32, "containerLogMaxFiles", "log files of a container"),
    mirror(
        "container-log-max-size",
        Text,
        "containerLogMaxSize",
        "size at which a log file is rotated",
    ),
    mirror(
        "container-runtime-endpoint",
        Text,
        "containerRuntimeEndpoint",
        "socket of the container runtime",
    ),
    mirror("contention-profiling", Bool, "enableContentionProfiling", "profile waiting for locks"),
    mirror("cpu-cfs-quota", Bool, "cpuCFSQuota", "hold containers to their CPU limits"),
    mirror("cpu-cfs-quota-period", Duration, "cpuCFSQuotaPeriod", "over which a CPU limit counts"),
    mirror("cpu-manager-policy", Text, "cpuManagerPolicy", "none; static is refused so far"),
    mirror("cpu-manager-policy-options", Pair, "cpuManagerPolicyOptions", "KEY=VALUE, one a flag"),
    mirror(
        "cpu-manager-reconcile-period",
        Duration,
        "cpuManagerReconcilePeriod",
        "how often CPU sets are put right",
    ),
    mirror(
        "enable-controller-attach-detach",
        Bool,
        "enableControllerAttachDetach",
        "let the controller attach volumes",
    ),
    mirror(
        "enable-debugging-handlers",
        Bool,
        "enableDebuggingHandlers",
        "serve logs, exec and the like",
    ),
    mirror("enable-server", Bool, "enableServer", "serve HTTPS"),
    mirror(
        "enforce-node-allocatable",
        List,
        "enforceNodeAllocatable",
        "none, pods, system-reserved, kube-reserved",
    ),
    mirror("event-burst", Int32, "eventBurst", "events in a burst"),
    mirror("event-qps", Int32, "eventRecordQPS", "events a second, 0 for no limit"),
    mirror(
        "eviction-hard",
        Thresholds,
        "evictionHard",
        "thresholds such as memory.available<100Mi",
    ),
    mirror(
        "eviction-max-pod-grace-period",
        Int32,
        "evictionMaxPodGracePeriod",
        "seconds, for soft thresholds",
    ),
    mirror(
        "eviction-minimum-reclaim",
        Map,
        "evictionMinimumReclaim",
        "amounts such as nodefs.available=1Gi",
    ),
    mirror(
        "eviction-pressure-transition-period",
        Duration,
        "evictionPressureTransitionPeriod",
        "how long pressure lasts at least",
    ),
    mirror("eviction-soft", Thresholds, "evictionSoft", "thresholds with a grace period"),
    mirror(
        "eviction-soft-grace-period",
        Map,
        "evictionSoftGracePeriod",
        "periods such as memory.available=1m30s",
    ),
    setting("fail-cgroupv1", Bool, "failCgroupV1", "do not start on cgroup v1"),
    mirror("fail-swap-on", Bool, "failSwapOn", "do not start when swap is on"),
    mirror("feature-gates", BoolMap, "featureGates", "features such as MemoryQoS=true"),
    mirror(
        "file-check-frequency",
        Duration,
        "fileCheckFrequency",
        "how often manifest files are read",
    ),
    mirror("hairpin-mode", Text, "hairpinMode", "none, hairpin-veth or promiscuous-bridge"),
    mirror("healthz-bind-address", Ip, "healthzBindAddress", "IP address of healthz"),
    mirror("healthz-port", Int32, "healthzPort", "port of healthz, 0 for none"),
    mirror(
        "http-check-frequency",
        Duration,
        "httpCheckFrequency",
        "how often --manifest-url is asked",
    ),
    mirror(
        "image-gc-high-threshold",
        Int32,
        "imageGCHighThresholdPercent",
        "disk use at which images are removed",
    ),
    mirror(
        "image-gc-low-threshold",
        Int32,
        "imageGCLowThresholdPercent",
        "disk use at which that ends",
    ),
    mirror("image-service-endpoint", Text, "imageServiceEndpoint", "socket of the image service"),
    mirror(
        "kernel-memcg-notification",
        Bool,
        "kernelMemcgNotification",
        "let the kernel tell of memory thresholds",
    ),
    mirror("kube-api-burst", Int32, "kubeAPIBurst", "API requests in a burst"),
    mirror("kube-api-content-type", Text, "contentType", "of API requests"),
    mirror("kube-api-qps", Int32, "kubeAPIQPS", "API requests a second"),
    mirror("kube-reserved", Map, "kubeReserved", "amounts such as cpu=100m,memory=200Mi"),
    mirror(
        "kube-reserved-cgroup",
        Text,
        "kubeReservedCgroup",
        "control group of Kubernetes' own programs",
    ),
    mirror("kubelet-cgroups", Text, "kubeletCgroups", "control group of the kubelet"),
    mirror(
        "local-storage-capacity-isolation",
        Bool,
        "localStorageCapacityIsolation",
        "hold pods to their ephemeral storage",
    ),
    setting(
        "log-flush-frequency",
        Duration,
        "logging.flushFrequency",
        "at most this long is a log line kept back",
    ),
    mirror(
        "log-json-info-buffer-size",
        Quantity,
        "logging.options.json.infoBufferSize",
        "bytes of info lines kept back, for JSON",
    ),
    mirror(
        "log-json-split-stream",
        Bool,
        "logging.options.json.splitStream",
        "errors to stderr, the rest to stdout, for JSON",
    ),
    mirror(
        "log-text-info-buffer-size",
        Quantity,
        "logging.options.text.infoBufferSize",
        "bytes of info lines kept back",
    ),
    mirror(
        "log-text-split-stream",
        Bool,
        "logging.options.text.splitStream",
        "errors to stderr, the rest to stdout",
    ),
    mirror("logging-format", Text, "logging.format", "text or json"),
    mirror(
        "make-iptables-util-chains",
        Bool,
        "makeIPTablesUtilChains",
        "keep iptables chains for others",
    ),
    mirror("manifest-url", Text, "staticPodURL", "URL of pod manifests"),
    mirror("manifest-url-header", Headers, "staticPodURLHeader", "headers NAME:VALUE for it"),
    mirror("max-open-files", Int64, "maxOpenFiles", "files open at once"),
    mirror("max-pods", Int32, "maxPods", "pods at once"),
    mirror("memory-manager-policy", Text, "memoryManagerPolicy", "None; Static is refused so far"),
    mirror(
        "minimum-image-ttl-duration",
        Duration,
        "imageMinimumGCAge",
        "how long an unused image stays",
    ),
    mirror(
        "node-status-max-images",
        Int32,
        "nodeStatusMaxImages",
        "images in the node's status, -1 for all",
    ),
    mirror(
        "node-status-update-frequency",
        Duration,
        "nodeStatusUpdateFrequency",
        "how often the status is computed",
    ),
    mirror("oom-score-adj", Int32, "oomScoreAdj", "of the kubelet, -1000 to 1000"),
    mirror("pod-cidr", Text, "podCIDR", "addresses of pods, without an API server"),
    mirror("pod-manifest-path", Text, "staticPodPath", "file or directory of pod manifests"),
    mirror("pod-max-pids", Int64, "podPidsLimit", "processes of a pod, -1 for no limit"),
    mirror("pods-per-core", Int32, "podsPerCore", "pods for each CPU, 0 for no limit"),
    mirror("port", Int32, "port", "of the HTTPS server"),
    mirror(
        "protect-kernel-defaults",
        Bool,
        "protectKernelDefaults",
        "end rather than change sysctls",
    ),
    setting("provider-id", Text, "providerID", "name of the machine at its provider"),
    mirror("qos-reserved", Map, "qosReserved", "shares such as memory=50%"),
    mirror(
        "read-only-port",
        Int32,
        "readOnlyPort",
        "of the HTTP server without checks, 0 for none",
    ),
    mirror("register-node", Bool, "registerNode", "make the Node object"),
    mirror(
        "register-with-taints",
        Taints,
        "registerWithTaints",
        "KEY=VALUE:EFFECT, at registration",
    ),
    mirror("registry-burst", Int32, "registryBurst", "image pulls in a burst"),
    mirror("registry-qps", Int32, "registryPullQPS", "image pulls a second, 0 for no limit"),
    mirror("reserved-cpus", Text, "reservedSystemCPUs", "CPUs that pods do not get, such as 0-1"),
    mirror(
        "reserved-memory",
        ReservedMemory,
        "reservedMemory",
        "NODE:TYPE=AMOUNT, a NUMA node each",
    ),
    mirror("resolv-conf", Text, "resolvConf", "resolver file that pods start from"),
    mirror("rotate-certificates", Bool, "rotateCertificates", "renew the client certificate"),
    mirror(
        "rotate-server-certificates",
        Bool,
        "serverTLSBootstrap",
        "get serving certificates from the cluster",
    ),
    mirror("runonce", Bool, "runOnce", "is no longer possible"),
    mirror(
        "runtime-request-timeout",
        Duration,
        "runtimeRequestTimeout",
        "for calls to the runtime",
    ),
    mirror("serialize-image-pulls", Bool, "serializeImagePulls", "pull one image at a time"),
    mirror(
        "streaming-connection-idle-timeout",
        Duration,
        "streamingConnectionIdleTimeout",
        "has no effect",
    ),
    mirror("sync-frequency", Duration, "syncFrequency", "how long a pod goes unchecked at most"),
    mirror("system-cgroups", Text, "systemCgroups", "control group for other programs"),
    mirror("system-reserved", Map, "systemReserved", "amounts such as cpu=100m,memory=200Mi"),
    mirror(
        "system-reserved-cgroup",
        Text,
        "systemReservedCgroup",
        "control group of the system's programs",
    ),
    mirror("tls-cert-file", Text, "tlsCertFile", "certificate of the HTTPS server"),
    mirror("tls-cipher-suites", List, "tlsCipherSuites", "names as Go has them"),
    mirror("tls-min-version", Text, "tlsMinVersion", "VersionTLS12 or VersionTLS13"),
    mirror("tls-private-key-file", Text, "tlsPrivateKeyFile", "its key"),
    mirror(
        "topology-manager-policy",
        Text,
        "topologyManagerPolicy",
        "none, best-effort, restricted, single-numa-node",
    ),
    mirror("topology-manager-policy-options", Map, "topologyManagerPolicyOptions", "KEY=VALUE,..."),
    mirror("topology-manager-scope", Text, "topologyManagerScope", "container or pod"),
    setting("v", Level, "logging.verbosity", "how much is logged: 0 little, 4 much, 10 all"),
    setting(
        "vmodule",
        VModule,
        "logging.vmodule",
        "verbosity of single files, such as pleg=4,worker*=5",
    ),
    mirror("volume-plugin-dir", Text, "volumePluginDir", "directory of FlexVolume plugins"),
    mirror(
        "volume-stats-agg-period",
        Duration,
        "volumeStatsAggPeriod",
        "how often volumes are measured, negative for never",
    ),
    old(
        "minimum-container-ttl-duration",
        Duration,
        To::Span(|f| &mut f.minimum_container_ttl),
        "how long a dead container stays",
    ),
    old(
        "maximum-dead-containers-per-container",
        Int32,
        To::Number(|f| &mut f.maximum_dead_containers_per_container),
        "dead ones kept of a container",
    ),
    old(
        "maximum-dead-containers",
        Int32,
        To::Number(|f| &mut f.maximum_dead_containers),
        "dead containers kept, -1 for any number",
    ),
    old(
        "experimental-mounter-path",
        Text,
        To::Text(|f| &mut f.experimental_mounter_path),
        "program that mounts",
    ),
    old(
        "experimental-allocatable-ignore-eviction",
        Bool,
        To::Switch(|f| &mut f.experimental_allocatable_ignore_eviction),
        "leave evictionHard out of allocatable",
    ),
    cadvisor("application-metrics-count-limit", Int32),
    cadvisor("boot-id-file", Text),
    cadvisor("container-hints", Text),
    cadvisor("containerd", Text),
    cadvisor("containerd-namespace", Text),
    cadvisor("enable-load-reader", Bool),
    cadvisor("event-storage-age-limit", Text),
    cadvisor("event-storage-event-limit", Text),
    cadvisor("global-housekeeping-interval", Duration),
    cadvisor("log-cadvisor-usage", Bool),
    cadvisor("machine-id-file", Text),
    cadvisor("storage-driver-buffer-duration", Duration),
    cadvisor("storage-driver-db", Text),
    cadvisor("storage-driver-host", Text),
    cadvisor("storage-driver-password", Text),
    cadvisor("storage-driver-secure", Bool),
    cadvisor("storage-driver-table", Text),
    cadvisor("storage-driver-user", Text),
];

/// Flags that kubelets once had, and what to do without them. They are errors, as upstream.
pub(super) static GONE: &[(&str, &str)] = &[
    ("add-dir-header", "log files are up to who reads stderr"),
    ("alsologtostderr", "everything is logged to stderr"),
    ("cloud-config", "cloud providers run outside of the kubelet"),
    ("container-runtime", "every runtime is asked by --container-runtime-endpoint"),
    ("dynamic-config-dir", "use --config"),
    ("keep-terminated-pod-volumes", "volumes go with their pod"),
    ("log-backtrace-at", "raise --v instead"),
    ("log-dir", "everything is logged to stderr"),
    ("log-file", "everything is logged to stderr"),
    ("log-file-max-size", "everything is logged to stderr"),
    ("logtostderr", "everything is logged to stderr"),
    ("master-service-namespace", "it has had no effect for long"),
    ("network-plugin", "networks are up to the runtime"),
    ("one-output", "everything is logged to stderr"),
    ("pod-infra-container-image", "set the sandbox image in the runtime's configuration"),
    ("register-schedulable", "use registerWithTaints"),
    ("skip-headers", "use --logging-format=json"),
    ("skip-log-headers", "everything is logged to stderr"),
    ("stderrthreshold", "everything is logged to stderr"),
];
