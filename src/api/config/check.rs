//! The rules that a complete configuration keeps, all broken ones told at once.
//!
//! Source: the verdicts of kubelet 1.36.3, case by case; where it would find out only later in its
//! start, as with quantities, the rule is checked here too. The sentences are ours.

use super::amounts;
use super::gates::FeatureGates;
use super::kubelet::KubeletConfiguration;
use super::labels;
use super::paths;
use super::problem::{Problem, ProblemKind};
use super::{GoDuration, push_index};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What the rules must know of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The node's control groups are of version 1, or mixed.
    pub cgroup_v1: bool,
}

impl KubeletConfiguration {
    /// Everything that is wrong with this configuration. `gates` are those of flags and
    /// configuration together.
    pub fn check(&self, gates: &FeatureGates, machine: Machine) -> Vec<Problem> {
        let mut checker = Checker { config: self, gates, problems: gates.check() };
        checker.numbers();
        checker.choices();
        checker.images();
        checker.server();
        checker.logs();
        checker.shutdown();
        checker.gated();
        checker.cgroups(machine);
        checker.allocatable();
        checker.registration();
        amounts::check(self, gates, &mut |path, what| checker.say(path, what));
        checker.problems
    }
}

struct Checker<'a> {
    config: &'a KubeletConfiguration,
    gates: &'a FeatureGates,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn say(&mut self, path: &str, what: impl Into<String>) {
        self.problems.push(Problem::new(path, ProblemKind::Invalid, what.into()));
    }

    fn rule(&mut self, holds: bool, path: &str, what: &str) {
        if !holds {
            self.say(path, what);
        }
    }

    fn range(&mut self, path: &str, value: impl Into<i64>, min: i64, max: i64) {
        let value = value.into();
        if value < min || value > max {
            let what = match max {
                i64::MAX => format!("must be at least {min}, not {value}"),
                _ => format!("must be between {min} and {max}, not {value}"),
            };
            self.say(path, what);
        }
    }

    fn one_of(&mut self, path: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            let allowed = allowed.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
            self.say(path, format!("must be one of {}, not \"{value}\"", allowed.join(", ")));
        }
    }

    fn numbers(&mut self) {
        let c = self.config;
        self.range("nodeLeaseDurationSeconds", c.node_lease_duration_seconds, 1, i64::MAX);
        self.range("eventBurst", c.event_burst, 0, i64::MAX);
        self.range("eventRecordQPS", c.event_record_qps, 0, i64::MAX);
        self.range("imageGCHighThresholdPercent", c.image_gc_high_threshold_percent, 0, 100);
        self.range("imageGCLowThresholdPercent", c.image_gc_low_threshold_percent, 0, 100);
        self.range("iptablesDropBit", c.iptables_drop_bit, 0, 31);
        self.range("iptablesMasqueradeBit", c.iptables_masquerade_bit, 0, 31);
        self.range("kubeAPIBurst", c.kube_api_burst, 0, i64::MAX);
        self.range("kubeAPIQPS", c.kube_api_qps, 0, i64::MAX);
        self.range("nodeStatusMaxImages", c.node_status_max_images, -1, i64::MAX);
        self.range("maxOpenFiles", c.max_open_files, 0, i64::MAX);
        self.range("maxPods", c.max_pods, 0, i64::MAX);
        self.range("oomScoreAdj", c.oom_score_adj, -1000, 1000);
        self.range("podsPerCore", c.pods_per_core, 0, i64::MAX);
        self.range("registryBurst", c.registry_burst, 0, i64::MAX);
        self.range("registryPullQPS", c.registry_pull_qps, 0, i64::MAX);
        let fits = (1..=1_000_000_000).contains(&c.memory_throttling_factor.billionths);
        self.rule(fits, "memoryThrottlingFactor", "must be above 0 and at most 1");
        let period = c.cpu_cfs_quota_period;
        let fits = (GoDuration::from_millis(1)..=GoDuration::from_secs(1)).contains(&period);
        self.rule(fits, "cpuCFSQuotaPeriod", &format!("must be between 1ms and 1s, not {period}"));
        if let Some(ids) = c.user_namespaces.as_ref().and_then(|section| section.ids_per_pod) {
            let fits = ids % 65_536 == 0 && (65_536..=i64::from(u32::MAX)).contains(&ids);
            let what = format!("must be a multiple of 65536 up to {}, not {ids}", u32::MAX);
            self.rule(fits, "userNamespaces.idsPerPod", &what);
        }
    }

    fn choices(&mut self) {
        let c = self.config;
        let policies = ["none", "best-effort", "restricted", "single-numa-node"];
        self.one_of("topologyManagerPolicy", &c.topology_manager_policy, &policies);
        self.one_of("topologyManagerScope", &c.topology_manager_scope, &["container", "pod"]);
        let modes = ["none", "hairpin-veth", "promiscuous-bridge"];
        self.one_of("hairpinMode", &c.hairpin_mode, &modes);
        let behaviors = ["", "NoSwap", "LimitedSwap"];
        self.one_of("memorySwap.swapBehavior", &c.memory_swap.swap_behavior, &behaviors);
        let policies = ["None", "TieredReservation"];
        self.one_of("memoryReservationPolicy", &c.memory_reservation_policy, &policies);
        // The last version whose hidden metrics this one could still show.
        let versions = ["", "1.35"];
        self.one_of("showHiddenMetricsForVersion", &c.show_hidden_metrics_for_version, &versions);
        // These upstream meets in its start, after its own checks.
        self.one_of("authorization.mode", &c.authorization.mode, &["AlwaysAllow", "Webhook"]);
        // What upstream knows and this program cannot keep is refused elsewhere, with a way out.
        for (path, value, kept, refused) in [
            ("cgroupDriver", &c.cgroup_driver, "cgroupfs", "systemd"),
            ("cpuManagerPolicy", &c.cpu_manager_policy, "none", "static"),
            ("memoryManagerPolicy", &c.memory_manager_policy, "None", "Static"),
        ] {
            let what = format!("must be \"{kept}\", not \"{value}\"");
            self.rule(value == kept || value == refused, path, &what);
        }
        self.one_of(
            "configMapAndSecretChangeDetectionStrategy",
            &c.config_map_and_secret_change_detection_strategy,
            &["Watch", "Cache", "Get"],
        );
    }

    fn images(&mut self) {
        let c = self.config;
        let (low, high) = (c.image_gc_low_threshold_percent, c.image_gc_high_threshold_percent);
        let what = format!("must be below imageGCHighThresholdPercent, which is {high}, not {low}");
        self.rule(low < high, "imageGCLowThresholdPercent", &what);
        let (min, max) = (c.image_minimum_gc_age, c.image_maximum_gc_age);
        self.rule(min.ns >= 0, "imageMinimumGCAge", "must not be negative");
        self.rule(max.ns >= 0, "imageMaximumGCAge", "must not be negative");
        let what = format!("must be 0 or above imageMinimumGCAge, which is {min}, not {max}");
        self.rule(max.ns <= 0 || max > min, "imageMaximumGCAge", &what);
        if let Some(pulls) = c.max_parallel_image_pulls {
            self.range("maxParallelImagePulls", pulls, 1, i64::MAX);
            let fits = pulls <= 1 || !c.serialize_image_pulls;
            self.rule(
                fits,
                "maxParallelImagePulls",
                "needs serializeImagePulls: false when above 1",
            );
        }
        let policy = c.image_pull_credentials_verification_policy.as_str();
        let list = &c.preloaded_images_verification_allowlist;
        let (policy_path, list_path) =
            ("imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist");
        if !self.gates.enabled("KubeletEnsureSecretPulledImages") {
            let what = "needs the feature gate KubeletEnsureSecretPulledImages";
            self.rule(policy.is_empty(), policy_path, what);
            self.rule(list.is_empty(), list_path, what);
            return;
        }
        let allow = "NeverVerifyAllowlistedImages";
        let policies = ["NeverVerify", "NeverVerifyPreloadedImages", allow, "AlwaysVerify"];
        self.one_of(policy_path, policy, &policies);
        if policy != allow && !list.is_empty() {
            self.say(list_path, format!("needs {policy_path}: {allow}"));
            return;
        }
        for (i, pattern) in list.iter().enumerate() {
            let mut path = String::from(list_path);
            push_index(&mut path, i);
            let what = "must be an image without tag or digest, or end in /*";
            self.rule(amounts::image_pattern(pattern), &path, what);
        }
    }

    fn server(&mut self) {
        let c = self.config;
        self.range("port", c.port, 1, 65535);
        self.range("readOnlyPort", c.read_only_port, 0, 65535);
        self.range("healthzPort", c.healthz_port, 0, 65535);
        let endpoint = !c.container_runtime_endpoint.is_empty();
        self.rule(endpoint, "containerRuntimeEndpoint", "must be given");
        let versions = ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
        self.one_of("tlsMinVersion", &c.tls_min_version, &versions);
        let fits = !c.enable_system_log_query || c.enable_system_log_handler;
        self.rule(fits, "enableSystemLogQuery", "needs enableSystemLogHandler: true");
        for (path, address) in
            [("address", &c.address), ("healthzBindAddress", &c.healthz_bind_address)]
        {
            // healthz is bound by name as well, and localhost is the name that people use.
            let fits = address.parse::<core::net::IpAddr>().is_ok()
                || path == "healthzBindAddress" && address == "localhost";
            self.rule(fits, path, &format!("must be an IP address, not \"{address}\""));
        }
        if let Some(tracing) = &c.tracing {
            let rate = tracing.sampling_rate_per_million.unwrap_or(0);
            self.range("tracing.samplingRatePerMillion", rate, 0, 1_000_000);
            let endpoint = tracing.endpoint.as_deref().unwrap_or("");
            let scheme = endpoint.split_once("://").map_or("dns", |(scheme, _)| scheme);
            let fits = ["dns", "unix", "unix-abstract"].contains(&scheme);
            self.rule(fits, "tracing.endpoint", "must have the scheme dns, unix or unix-abstract");
        }
    }

    fn logs(&mut self) {
        let c = self.config;
        self.range("containerLogMaxWorkers", c.container_log_max_workers, 1, i64::MAX);
        self.range("containerLogMaxFiles", c.container_log_max_files, 2, i64::MAX);
        let interval = c.container_log_monitor_interval;
        let fits = interval >= GoDuration::from_secs(3);
        self.rule(
            fits,
            "containerLogMonitorInterval",
            &format!("must be at least 3s, not {interval}"),
        );
        let directory = &c.pod_logs_dir;
        self.rule(directory.starts_with('/'), "podLogsDir", "must be an absolute path");
        let cleaned = paths::clean(directory);
        let fits = directory.is_empty() || cleaned == *directory;
        self.rule(fits, "podLogsDir", &format!("must be written in the shortest way: {cleaned}"));
        self.rule(directory.is_ascii(), "podLogsDir", "must hold ASCII characters only");

        let l = &c.logging;
        self.one_of("logging.format", &l.format, &["text", "json"]);
        let every = l.flush_frequency.every;
        self.rule(every.ns > 0, "logging.flushFrequency", &format!("must be above 0, not {every}"));
        self.range("logging.verbosity", l.verbosity, 0, i64::from(i32::MAX));
        let fits = l.vmodule.is_empty() || l.format == "text";
        self.rule(fits, "logging.vmodule", "needs logging.format: text");
        let gate = self.gates.enabled("LoggingAlphaOptions");
        for (format, options) in [("text", &l.options.text), ("json", &l.options.json)] {
            for (field, unset) in [
                ("splitStream", !options.split_stream),
                ("infoBufferSize", options.info_buffer_size.is_zero()),
            ] {
                let path = format!("logging.options.{format}.{field}");
                self.rule(unset || gate, &path, "needs the feature gate LoggingAlphaOptions");
            }
        }
        for (i, item) in l.vmodule.iter().enumerate() {
            let pattern = &item.file_pattern;
            let mut path = String::from("logging.vmodule");
            push_index(&mut path, i);
            let fits = !pattern.is_empty() && !pattern.contains(['=', ',']);
            self.rule(fits, &path, "needs a filePattern without = and ,");
            self.range(&path, item.verbosity, 0, i64::from(i32::MAX));
        }
    }

    fn shutdown(&mut self) {
        let c = self.config;
        let (all, critical) = (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods);
        let by_priority = !c.shutdown_grace_period_by_pod_priority.is_empty();
        let said = all.ns > 0 || critical.ns > 0;
        let (all_path, critical_path) = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods");
        if self.gates.enabled("GracefulNodeShutdown") {
            let what = format!("must be at most {all_path}, which is {all}, not {critical}");
            self.rule(critical <= all, critical_path, &what);
            for (path, period) in [(all_path, all), (critical_path, critical)] {
                let fits = period.ns == 0 || period >= GoDuration::from_secs(1);
                self.rule(fits, path, &format!("must be 0 or at least 1s, not {period}"));
            }
        } else {
            self.rule(!said, all_path, "needs the feature gate GracefulNodeShutdown");
        }
        let path = "shutdownGracePeriodByPodPriority";
        if self.gates.enabled("GracefulNodeShutdownBasedOnPodPriority") {
            self.rule(!by_priority || !said, path, "excludes shutdownGracePeriod");
        } else {
            let what = "needs the feature gate GracefulNodeShutdownBasedOnPodPriority";
            self.rule(!by_priority, path, what);
        }
    }

    fn gated(&mut self) {
        let c = self.config;
        let what = "needs the feature gate RotateKubeletServerCertificate";
        let fits = !c.server_tls_bootstrap || self.gates.enabled("RotateKubeletServerCertificate");
        self.rule(fits, "serverTLSBootstrap", what);
        let fits =
            c.memory_reservation_policy != "TieredReservation" || self.gates.enabled("MemoryQoS");
        self.rule(fits, "memoryReservationPolicy", "needs the feature gate MemoryQoS");
        let path = "crashLoopBackOff.maxContainerRestartPeriod";
        let gate = self.gates.enabled("KubeletCrashLoopBackOffMax");
        match c.crash_loop_back_off.max_container_restart_period {
            Some(period) if gate => {
                let fits = (1_000..=300_000).contains(&(period.ns / 1_000_000));
                self.rule(fits, path, &format!("must be between 1s and 300s, not {period}"));
            }
            Some(_) => self.say(path, "needs the feature gate KubeletCrashLoopBackOffMax"),
            None => self.rule(!gate, path, "must be given"),
        }
    }

    fn cgroups(&mut self, machine: Machine) {
        let c = self.config;
        let fits = c.system_cgroups.is_empty() || !c.cgroup_root.is_empty();
        self.rule(fits, "systemCgroups", "needs cgroupRoot");
        self.rule(!c.run_once, "runOnce", "is no longer a way to run a kubelet");
        if machine.cgroup_v1 {
            let what =
                "this machine has cgroup v1; to run here all the same, set failCgroupV1: false";
            self.rule(!c.fail_cgroup_v1, "failCgroupV1", what);
            let fits = c.single_process_oom_kill != Some(false);
            self.rule(fits, "singleProcessOOMKill", "must not be false on cgroup v1");
        }
    }

    fn allocatable(&mut self) {
        let c = self.config;
        let path = "enforceNodeAllocatable";
        let keys: BTreeSet<&str> = c.enforce_node_allocatable.iter().map(String::as_str).collect();
        let twice = keys.len() < c.enforce_node_allocatable.len();
        self.rule(!twice, path, "names a key twice");
        for (part, cgroup_path, cgroup) in [
            ("system-reserved", "systemReservedCgroup", &c.system_reserved_cgroup),
            ("kube-reserved", "kubeReservedCgroup", &c.kube_reserved_cgroup),
        ] {
            let compressible = format!("{part}-compressible");
            let (whole, some) = (keys.contains(part), keys.contains(compressible.as_str()));
            self.rule(
                !whole || !some,
                path,
                &format!("{part} and {compressible} exclude each other"),
            );
            let fits = !whole && !some || !cgroup.is_empty();
            self.rule(fits, cgroup_path, &format!("must be given for {part} in {path}"));
        }
        self.rule(!keys.contains("none") || keys.len() == 1, path, "none excludes all other keys");
        let known = [
            "none",
            "pods",
            "system-reserved",
            "system-reserved-compressible",
            "kube-reserved",
            "kube-reserved-compressible",
        ];
        for key in &keys {
            self.one_of(path, key, &known);
            let fits = c.cgroups_per_qos || *key == "none" || !known.contains(key);
            self.rule(fits, "cgroupsPerQOS", &format!("must be true for {key} in {path}"));
        }
        let cpus = &c.reserved_system_cpus;
        if !cpus.is_empty() {
            let fits = c.system_reserved_cgroup.is_empty() && c.kube_reserved_cgroup.is_empty();
            let what = "excludes systemReservedCgroup and kubeReservedCgroup";
            self.rule(fits, "reservedSystemCPUs", what);
            self.rule(amounts::cpu_set(cpus), "reservedSystemCPUs", "must be a list such as 0-3,7");
        }
    }

    fn registration(&mut self) {
        for (i, taint) in self.config.register_with_taints.iter().enumerate() {
            let mut path = String::from("registerWithTaints");
            push_index(&mut path, i);
            let key = labels::qualified_name(&taint.key);
            self.rule(key, &format!("{path}.key"), "must be a name such as example.com/dedicated");
            let value = labels::label_value(&taint.value);
            self.rule(
                value,
                &format!("{path}.value"),
                "must be at most 63 letters, digits and -_.",
            );
            let effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
            self.one_of(&format!("{path}.effect"), &taint.effect, &effects);
            let unset = taint.time_added.is_none();
            self.rule(unset, &format!("{path}.timeAdded"), "is set by the kubelet only");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// Fields, what the reference kubelet 1.36.3 says of them on a machine with cgroup v1 (`ok`,
    /// `refused`, or `later` where it checks only further on in its start), and the paths that we
    /// name; `?` marks those that do not keep it from starting.
    #[test]
    fn verdicts_are_those_of_upstream() {
        let table = include_str!("../../../fixtures/configs/verdicts.txt");
        for row in table.lines() {
            let (fields, want) = row.split_once(" => ").expect("a row has an arrow");
            let json = format!(
                r#"{{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                    "failCgroupV1": false, {fields}}}"#
            );
            let mut gates = FeatureGates::default();
            let (config, mut problems) = KubeletConfiguration::from_file(json.as_bytes(), &gates);
            gates.set(&config.feature_gates);
            problems.extend(config.check(&gates, Machine { cgroup_v1: true }));
            let (harmless, fatal): (Vec<_>, Vec<_>) =
                problems.into_iter().partition(|problem| problem.kind == ProblemKind::Unknown);
            let paths = fatal.iter().map(|problem| problem.path.clone());
            let paths = paths.chain(harmless.iter().map(|problem| format!("?{}", problem.path)));
            let (verdict, named) = want.split_once(' ').unwrap_or((want, ""));
            assert_eq!(paths.collect::<Vec<_>>().join(" "), named, "{fields}");
            assert_eq!(fatal.is_empty(), verdict == "ok", "{fields}");
        }
        assert!(table.lines().count() > 200);
    }

    /// kubespray#11111: the text says which field, what is wrong and that quotes would do.
    #[test]
    fn a_bare_number_for_a_quantity() {
        let json = r#"{"apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "systemReserved": {"cpu": 0.5, "pid": 1000, "memory": "256Mi"}}"#;
        let (config, problems) =
            KubeletConfiguration::from_file(json.as_bytes(), &FeatureGates::default());
        let said: Vec<String> = problems.iter().map(|problem| problem.to_string()).collect();
        assert_eq!(
            said,
            [
                "systemReserved.cpu: must be a string, not the number 0.5",
                "systemReserved.pid: must be a string, not the number 1000",
            ]
        );
        assert!(problems.iter().all(|p| p.kind == ProblemKind::Mistyped { quote: true }));
        assert_eq!(config.system_reserved["memory"], "256Mi");
    }

    #[test]
    fn machines() {
        let config = KubeletConfiguration::default();
        let gates = FeatureGates::default();
        assert_eq!(config.check(&gates, Machine { cgroup_v1: false }), []);
        let problems = config.check(&gates, Machine { cgroup_v1: true });
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().starts_with("failCgroupV1: this machine has cgroup v1"));
    }
}
