//! Which fields this program lives up to. A new field does not pass the tests without a row here.

use super::gates;
use super::kubelet::KubeletConfiguration;
use super::problem::{Problem, ProblemKind};
use Support::{Honoured, Moot, NotYet, Refused};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::Value;

/// What becomes of a field that is set to something else than its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It has its effect.
    Honoured,
    /// It has no effect in the upstream kubelet either, or there is nothing here to set.
    Moot,
    /// It has no effect yet; a warning at start names it.
    NotYet,
    /// It promises something to pods or operators that would not be kept: an error.
    Refused,
}

struct Row {
    /// A field, or a section when all of it is alike.
    path: &'static str,
    support: Support,
    /// JSON of further values that say what is done anyway.
    as_default: &'static [&'static str],
}

const fn row(path: &'static str, support: Support) -> Row {
    Row { path, support, as_default: &[] }
}

/// A switch that is on by default and has nothing to switch yet: off is what is done.
const fn off(path: &'static str) -> Row {
    Row { as_default: &["false"], ..row(path, NotYet) }
}

/// In the order of the published reference.
const ROWS: &[Row] = &[
    row("enableServer", Honoured),
    row("staticPodPath", Honoured),
    row("podLogsDir", Honoured),
    row("syncFrequency", Honoured),
    row("fileCheckFrequency", Honoured),
    row("httpCheckFrequency", Honoured),
    row("staticPodURL", Honoured),
    row("staticPodURLHeader", Honoured),
    row("address", Honoured),
    row("port", Honoured),
    row("readOnlyPort", Honoured),
    row("tlsCertFile", Honoured),
    row("tlsPrivateKeyFile", Honoured),
    row("tlsCipherSuites", Honoured),
    row("tlsCurvePreferences", Honoured),
    row("tlsMinVersion", Honoured),
    row("rotateCertificates", Honoured),
    row("serverTLSBootstrap", Honoured),
    // Without an API server to ask, what these mean for the port is said at start in one sentence.
    row("authentication", Honoured),
    row("authorization", Honoured),
    row("registryPullQPS", Honoured),
    row("registryBurst", Honoured),
    row("imagePullCredentialsVerificationPolicy", NotYet),
    row("preloadedImagesVerificationAllowlist", NotYet),
    row("eventRecordQPS", Honoured),
    row("eventBurst", Honoured),
    row("enableDebuggingHandlers", Honoured),
    row("enableContentionProfiling", NotYet),
    row("healthzPort", Honoured),
    row("healthzBindAddress", Honoured),
    row("oomScoreAdj", Honoured),
    row("clusterDomain", Honoured),
    row("clusterDNS", Honoured),
    // The runtime serves the streams, and ends them.
    row("streamingConnectionIdleTimeout", Moot),
    row("nodeStatusUpdateFrequency", Honoured),
    row("nodeStatusReportFrequency", Honoured),
    row("nodeLeaseDurationSeconds", Honoured),
    row("imageMinimumGCAge", NotYet),
    row("imageMaximumGCAge", NotYet),
    // At 100 nothing is ever removed.
    Row { as_default: &["100"], ..row("imageGCHighThresholdPercent", NotYet) },
    row("imageGCLowThresholdPercent", NotYet),
    row("volumeStatsAggPeriod", NotYet),
    row("kubeletCgroups", NotYet),
    row("systemCgroups", NotYet),
    row("cgroupRoot", Honoured),
    row("cgroupsPerQOS", Honoured),
    row("cgroupDriver", Honoured),
    row("cpuManagerPolicy", Refused),
    row("singleProcessOOMKill", Honoured),
    row("cpuManagerPolicyOptions", NotYet),
    row("cpuManagerReconcilePeriod", NotYet),
    row("memoryManagerPolicy", Refused),
    row("topologyManagerPolicy", Refused),
    row("topologyManagerScope", NotYet),
    row("topologyManagerPolicyOptions", NotYet),
    row("qosReserved", NotYet),
    row("runtimeRequestTimeout", Honoured),
    row("hairpinMode", Moot),
    row("maxPods", Honoured),
    row("podCIDR", Honoured),
    row("podPidsLimit", Honoured),
    row("resolvConf", Honoured),
    row("runOnce", Refused),
    row("cpuCFSQuota", Honoured),
    row("cpuCFSQuotaPeriod", Honoured),
    row("nodeStatusMaxImages", Honoured),
    row("maxOpenFiles", Honoured),
    row("contentType", NotYet),
    row("kubeAPIQPS", Honoured),
    row("kubeAPIBurst", Honoured),
    row("serializeImagePulls", Honoured),
    row("maxParallelImagePulls", Honoured),
    Row { as_default: &["{}"], ..row("evictionHard", NotYet) },
    row("evictionSoft", NotYet),
    row("evictionSoftGracePeriod", NotYet),
    row("evictionPressureTransitionPeriod", NotYet),
    row("evictionMaxPodGracePeriod", NotYet),
    row("evictionMinimumReclaim", NotYet),
    row("mergeDefaultEvictionSettings", NotYet),
    row("podsPerCore", Honoured),
    off("enableControllerAttachDetach"),
    row("protectKernelDefaults", Honoured),
    row("makeIPTablesUtilChains", Honoured),
    row("iptablesMasqueradeBit", Moot),
    row("iptablesDropBit", Moot),
    row("featureGates", Honoured),
    row("failSwapOn", Honoured),
    Row { as_default: &[r#""NoSwap""#], ..row("memorySwap.swapBehavior", Refused) },
    row("containerLogMaxSize", NotYet),
    row("containerLogMaxFiles", NotYet),
    row("containerLogMaxWorkers", NotYet),
    row("containerLogMonitorInterval", NotYet),
    row("configMapAndSecretChangeDetectionStrategy", Honoured),
    row("systemReserved", Honoured),
    row("kubeReserved", Honoured),
    row("reservedSystemCPUs", Refused),
    row("showHiddenMetricsForVersion", NotYet),
    row("systemReservedCgroup", NotYet),
    row("kubeReservedCgroup", NotYet),
    Row { as_default: &["null", r#"["none"]"#], ..row("enforceNodeAllocatable", NotYet) },
    row("allowedUnsafeSysctls", Honoured),
    row("volumePluginDir", NotYet),
    row("providerID", Honoured),
    row("kernelMemcgNotification", NotYet),
    row("logging.format", Honoured),
    // Each line is written as it comes.
    row("logging.flushFrequency", Moot),
    row("logging.verbosity", Honoured),
    row("logging.vmodule", Honoured),
    row("logging.options", NotYet),
    row("enableSystemLogHandler", Honoured),
    row("enableSystemLogQuery", NotYet),
    row("shutdownGracePeriod", NotYet),
    row("shutdownGracePeriodCriticalPods", NotYet),
    row("shutdownGracePeriodByPodPriority", NotYet),
    row("crashLoopBackOff.maxContainerRestartPeriod", Honoured),
    row("reservedMemory", NotYet),
    row("enableProfilingHandler", Honoured),
    row("enableDebugFlagsHandler", Honoured),
    row("seccompDefault", Honoured),
    row("memoryThrottlingFactor", NotYet),
    row("memoryReservationPolicy", NotYet),
    row("registerWithTaints", Honoured),
    row("registerNode", Honoured),
    row("tracing", Refused),
    off("localStorageCapacityIsolation"),
    row("containerRuntimeEndpoint", Honoured),
    row("imageServiceEndpoint", Honoured),
    row("failCgroupV1", Honoured),
    row("userNamespaces", NotYet),
];

/// Gates that decide something here. Of the others only the default is lived up to.
const GATES_HONOURED: [&str; 2] = ["KubeletCrashLoopBackOffMax", "LoggingAlphaOptions"];
/// What can be reserved so far.
const RESERVED: [&str; 3] = ["cpu", "memory", "pid"];

/// What a configuration asks for beyond what this program does.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// Paths of fields that are set and have no effect yet.
    pub not_yet: Vec<String>,
    /// Fields that would be promises without being kept.
    pub refused: Vec<Problem>,
}

impl KubeletConfiguration {
    /// Compares with `defaults`, which are those that hold where this configuration came from.
    pub fn beyond(&self, defaults: &KubeletConfiguration) -> Beyond {
        let mut beyond = Beyond::default();
        let (mine, theirs) = (self.tree(), defaults.tree());
        for row in ROWS {
            let value = at(&mine, row.path);
            let default = at(&theirs, row.path);
            let json = value.to_string();
            if value == default || row.as_default.contains(&json.as_str()) {
                continue;
            }
            match row.support {
                Honoured | Moot => {}
                NotYet => beyond.not_yet.push(row.path.to_string()),
                Refused => {
                    let what = match default {
                        Value::Null => "cannot be kept by this program; leave it out".to_string(),
                        _ => format!("{json} cannot be kept by this program; it can be {default}"),
                    };
                    beyond.refused.push(Problem::new(row.path, ProblemKind::Refused, what));
                }
            }
        }
        let gates = self.feature_gates.iter();
        let idle = gates.filter(|(name, on)| {
            !GATES_HONOURED.contains(&name.as_str()) && gates::default(name) != Some(**on)
        });
        beyond.not_yet.extend(idle.map(|(name, _)| format!("featureGates.{name}")));
        let reserved =
            [("kubeReserved", &self.kube_reserved), ("systemReserved", &self.system_reserved)];
        for (field, amounts) in reserved {
            let idle = amounts.keys().filter(|key| !RESERVED.contains(&key.as_str()));
            beyond.not_yet.extend(idle.map(|key| format!("{field}[{key}]")));
        }
        beyond
    }

    /// What becomes of the field at `path`; none when there is no such field.
    pub fn support(path: &str) -> Option<Support> {
        let covers = |row: &&Row| {
            let rest = path.strip_prefix(row.path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        ROWS.iter().find(covers).map(|row| row.support)
    }
}

fn at<'a>(tree: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(tree, |value, key| value.get(key).unwrap_or(&Value::Null))
}

#[cfg(test)]
mod tests {
    use super::super::record::Field;
    use super::*;

    #[test]
    fn every_field_has_one_row_and_every_row_a_field() {
        let mut fields = Vec::new();
        KubeletConfiguration::paths("", &mut fields);
        assert!(fields.len() > 125, "{}", fields.len());
        let mut used = Vec::new();
        for field in &fields {
            let rows: Vec<&str> = ROWS
                .iter()
                .map(|row| row.path)
                .filter(|path| *field == *path || field.starts_with(&format!("{path}.")))
                .collect();
            assert_eq!(rows.len(), 1, "{field}: {rows:?}");
            used.extend(rows);
            assert!(KubeletConfiguration::support(field).is_some());
        }
        for row in ROWS {
            assert!(used.contains(&row.path), "{}", row.path);
        }
        assert_eq!(KubeletConfiguration::support("maxPod"), None);
    }

    #[test]
    fn what_goes_beyond() {
        let check = |path: &str, json: &str, not_yet: &[&str], refused: &[&str]| {
            let mut config = KubeletConfiguration::default();
            assert_eq!(config.set(path, serde_json::from_str(json).unwrap()), []);
            let beyond = config.beyond(&KubeletConfiguration::default());
            assert_eq!(beyond.not_yet, not_yet, "{path}");
            let said: Vec<String> = beyond.refused.iter().map(|p| p.to_string()).collect();
            assert_eq!(said, refused, "{path}");
        };
        check("maxPods", "20", &[], &[]);
        check("hairpinMode", "\"none\"", &[], &[]);
        check("evictionHard", r#"{"memory.available": "1Gi"}"#, &["evictionHard"], &[]);
        check("featureGates", r#"{"MemoryQoS": true}"#, &["featureGates.MemoryQoS"], &[]);
        check("featureGates", r#"{"EnvFiles": false}"#, &["featureGates.EnvFiles"], &[]);
        check("featureGates", r#"{"AllBeta": false}"#, &["featureGates.AllBeta"], &[]);
        check("featureGates", r#"{"MemoryQoS": false, "AllAlpha": false}"#, &[], &[]);
        check("featureGates", r#"{"KubeletCrashLoopBackOffMax": false}"#, &[], &[]);
        check("kubeReserved", r#"{"cpu": "1", "memory": "1Gi", "pid": "9"}"#, &[], &[]);
        let disk = &["systemReserved[ephemeral-storage]"];
        check("systemReserved", r#"{"ephemeral-storage": "1Gi"}"#, disk, &[]);
        check("authentication.x509.clientCAFile", "\"/ca\"", &[], &[]);
        check("memorySwap.swapBehavior", "\"NoSwap\"", &[], &[]);
        check("enforceNodeAllocatable", "[\"none\"]", &[], &[]);
        check("enforceNodeAllocatable", "[]", &[], &[]);
        check("authentication.webhook.enabled", "false", &[], &[]);
        let ttl = "authentication.webhook.cacheTTL";
        check(ttl, "\"1m\"", &[], &[]);
        check("authorization.mode", "\"AlwaysAllow\"", &[], &[]);
        check("imageGCHighThresholdPercent", "100", &[], &[]);
        check("registerNode", "false", &[], &[]);
        check("enforceNodeAllocatable", "[\"kube-reserved\"]", &["enforceNodeAllocatable"], &[]);
        let cannot = "cannot be kept by this program";
        let refused = |path: &str, json: &str, default: &str| {
            let what = match default {
                "" => format!("{path}: {cannot}; leave it out"),
                _ => format!("{path}: {json} {cannot}; it can be {default}"),
            };
            check(path, json, &[], &[&what]);
        };
        refused("cpuManagerPolicy", "\"static\"", "\"none\"");
        refused("memoryManagerPolicy", "\"Static\"", "\"None\"");
        refused("topologyManagerPolicy", "\"restricted\"", "\"none\"");
        check("cgroupDriver", "\"systemd\"", &[], &[]);
        refused("reservedSystemCPUs", "\"0-1\"", "");
        refused("memorySwap.swapBehavior", "\"LimitedSwap\"", "");
        refused("tracing", r#"{"samplingRatePerMillion":5}"#, "");
    }
}
