//! From JSON to a configuration: files, drop-ins, single fields.

use super::gates::FeatureGates;
use super::kubelet::KubeletConfiguration;
use super::problem::Problem;
use super::record::{Field, Reader, Record, read_record};
use super::{GoDuration, paths};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value};

/// The group and version of the only form there is.
const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

impl KubeletConfiguration {
    /// What holds when no file is given: some older defaults of the command line, which are less
    /// strict.
    pub fn legacy() -> Self {
        let mut config = KubeletConfiguration::default();
        config.authentication.anonymous.enabled = true;
        config.authentication.webhook.enabled = false;
        config.authorization.mode = "AlwaysAllow".into();
        config.read_only_port = 10255;
        config
    }

    /// What holds for a file that sets nothing: `Default`, and the thresholds of Linux.
    pub fn file_defaults() -> Self {
        let mut config = KubeletConfiguration::default();
        config.default_evictions(false);
        config
    }

    /// Reads the configuration file, from its JSON, and fills in the defaults. `gates` are those of
    /// the command line. The configuration is complete whatever the problems; who goes on despite
    /// `Unknown` ones does as upstream does.
    pub fn from_file(json: &[u8], gates: &FeatureGates) -> (Self, Vec<Problem>) {
        let document = match parse(json) {
            Ok(document) => document,
            Err(problem) => return (KubeletConfiguration::default(), Vec::from([problem])),
        };
        let mut reader = Reader::new(true, false);
        let mut config = KubeletConfiguration::default();
        read_document(&mut config, &document, &mut reader);
        let mut problems = reader.problems.done();
        problems.extend(config.finish(&document, gates));
        config.default_evictions(document.get("evictionHard").is_some_and(|hard| !hard.is_null()));
        (config, problems)
    }

    /// What is wrong with one drop-in by itself. Relative paths in it stay relative, as upstream
    /// leaves them.
    pub fn check_drop_in(json: &[u8]) -> Vec<Problem> {
        let document = match parse(json) {
            Ok(document) => document,
            Err(problem) => return Vec::from([problem]),
        };
        let mut reader = Reader::new(true, true);
        read_document(&mut KubeletConfiguration::default(), &document, &mut reader);
        reader.problems.done()
    }

    /// Lays drop-ins over this configuration, in their order, each as a merge patch (RFC 7396), and
    /// fills in defaults for what they took away. Problems are those of `check_drop_in` and are not
    /// told again.
    pub fn with_drop_ins(&self, drop_ins: &[&[u8]], gates: &FeatureGates) -> (Self, Vec<Problem>) {
        let mut merged = self.write();
        for json in drop_ins {
            if let Ok(patch) = parse(json) {
                merge(&mut merged, Value::Object(patch));
            }
        }
        let mut config = KubeletConfiguration::default();
        let mut reader = Reader::new(true, false);
        let empty = Map::new();
        let merged = merged.as_object().unwrap_or(&empty);
        read_fields(&mut config, merged, &mut reader);
        let problems = config.finish(merged, gates);
        (config, problems)
    }

    /// Sets one field by its path, as a flag does. Zero means zero here.
    pub fn set(&mut self, path: &str, value: Value) -> Vec<Problem> {
        let document = path
            .rsplit('.')
            .fold(value, |inner, key| Value::Object(Map::from_iter([(key.to_string(), inner)])));
        let mut reader = Reader::new(false, false);
        read_record(self, &document, &mut reader);
        reader.problems.done()
    }

    /// The whole configuration as `/configz` shows it. Values of staticPodURLHeader are masked,
    /// since they may be credentials.
    pub fn to_json(&self) -> String {
        let mut shown = self.clone();
        for values in shown.static_pod_url_header.values_mut() {
            *values = Vec::from(["<masked>".to_string()]);
        }
        shown.write().to_string()
    }

    /// The value at a path as a flag would give it; empty when there is none.
    pub fn shown(&self, path: &str) -> String {
        let tree = self.tree();
        let value = path.split('.').fold(&tree, |value, key| &value[key]);
        match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
            }
            value => value.to_string(),
        }
    }

    pub(super) fn tree(&self) -> Value {
        self.write()
    }

    /// Makes the paths of a configuration file absolute; they are relative to the directory of the
    /// file.
    pub fn resolve_paths(&mut self, directory: &str) {
        for path in [
            &mut self.static_pod_path,
            &mut self.authentication.x509.client_ca_file,
            &mut self.tls_cert_file,
            &mut self.tls_private_key_file,
            &mut self.resolv_conf,
            &mut self.volume_plugin_dir,
            &mut self.pod_logs_dir,
        ] {
            if !path.is_empty() && !path.starts_with('/') {
                *path = paths::join(directory, path);
            }
        }
    }

    /// The defaults that depend on other fields. `document` is what was said.
    fn finish(&mut self, document: &Map<String, Value>, gates: &FeatureGates) -> Vec<Problem> {
        let said = |key: &str| document.get(key).is_some_and(|value| !value.is_null());
        let said_duration = |key: &str| {
            let text = document.get(key).and_then(Value::as_str);
            text.and_then(GoDuration::parse).is_some_and(|duration| duration.ns != 0)
        };
        if said_duration("nodeStatusUpdateFrequency") && !said_duration("nodeStatusReportFrequency")
        {
            self.node_status_report_frequency = self.node_status_update_frequency;
        }
        if !said("serializeImagePulls") {
            self.serialize_image_pulls = self.max_parallel_image_pulls.is_none_or(|max| max < 2);
        }
        self.pod_pids_limit = self.pod_pids_limit.max(-1);

        let mut gates = gates.clone();
        let problems = gates.set(&self.feature_gates);
        let crash_loop = document.get("crashLoopBackOff");
        let said_period = crash_loop.and_then(|section| section.get("maxContainerRestartPeriod"));
        if !gates.enabled("KubeletCrashLoopBackOffMax") && said_period.is_none_or(Value::is_null) {
            self.crash_loop_back_off.max_container_restart_period = None;
        }
        if !gates.enabled("KubeletEnsureSecretPulledImages")
            && !said("imagePullCredentialsVerificationPolicy")
        {
            self.image_pull_credentials_verification_policy.clear();
        }
        problems
    }

    /// The thresholds of Linux, for a file that says nothing of them or wants its own added.
    fn default_evictions(&mut self, said: bool) {
        if said && !self.merge_default_eviction_settings {
            return;
        }
        for (signal, threshold) in [
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ] {
            self.eviction_hard.entry(signal.into()).or_insert_with(|| threshold.into());
        }
    }
}

fn parse(json: &[u8]) -> Result<Map<String, Value>, Problem> {
    match serde_json::from_slice(json) {
        Ok(Value::Object(document)) => Ok(document),
        Ok(Value::Null) => Err(Problem::invalid("is empty".into())),
        Ok(_) => Err(Problem::invalid(format!("is no {KIND}"))),
        Err(error) => Err(Problem::invalid(format!("{error}"))),
    }
}

/// The head, then the fields.
fn read_document(
    config: &mut KubeletConfiguration,
    document: &Map<String, Value>,
    reader: &mut Reader,
) {
    for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let is = document.get(key);
        if is.and_then(Value::as_str) != Some(want) {
            let what = match is {
                None => format!("must be \"{want}\", and is missing"),
                Some(value) => format!("must be \"{want}\", not {value}"),
            };
            let outer = reader.problems.enter_key(key);
            reader.problems.push(Problem::invalid(what));
            reader.problems.leave(outer);
        }
    }
    read_fields(config, document, reader);
}

fn read_fields(
    config: &mut KubeletConfiguration,
    document: &Map<String, Value>,
    reader: &mut Reader,
) {
    for (key, value) in document {
        let outer = reader.problems.enter_key(key);
        let head = matches!(key.as_str(), "apiVersion" | "kind");
        if !config.read_field(key, value, reader) && !head {
            reader.problems.push(Problem::unknown(key, KubeletConfiguration::FIELDS));
        }
        reader.problems.leave(outer);
    }
}

/// RFC 7396: maps merge, null deletes, everything else replaces.
fn merge(base: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *base = patch;
        return;
    };
    if !base.is_object() {
        *base = Value::Object(Map::new());
    }
    let Value::Object(base) = base else { return };
    for (key, value) in patch {
        if value.is_null() {
            base.remove(&key);
        } else {
            merge(base.entry(key).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;

    const HEAD: &str =
        r#""apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration""#;

    fn file(fields: &str) -> (KubeletConfiguration, Vec<String>) {
        let comma = if fields.is_empty() { "" } else { ", " };
        let json = format!("{{{HEAD}{comma}{fields}}}");
        let (config, problems) =
            KubeletConfiguration::from_file(json.as_bytes(), &FeatureGates::default());
        (config, problems.iter().map(ToString::to_string).collect())
    }

    fn golden(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    /// What the reference kubelet shows for an empty file, and without a file.
    #[test]
    fn defaults_are_those_of_upstream() {
        let want = golden(include_str!("../../../fixtures/configs/defaults.json"));
        assert_eq!(file("").0.write(), want);
        let want = golden(include_str!("../../../fixtures/configs/legacy-defaults.json"));
        assert_eq!(KubeletConfiguration::legacy().write(), want);
        assert_eq!(file("").1, Vec::<String>::new());
    }

    #[test]
    fn all_problems_at_once() {
        let check = |fields: &str, want: &[&str]| assert_eq!(file(fields).1, want, "{fields}");
        check(
            r#""MaxPods": 20, "reservedCpus": "0-4", "maxPods": "x",
               "authentication": {"x509": {"ca": 1}},
               "systemReserved": {"cpu": 1, "memory": "256Mi", "pid": 1000},
               "featureGates": {"NodeSwap": false}"#,
            &[
                "MaxPods: unknown field, names are case-sensitive: maxPods",
                "authentication.x509.ca: unknown field",
                "maxPods: must be an integer of 32 bits, not the string \"x\"",
                "reservedCpus: unknown field; is it reservedSystemCPUs?",
                "systemReserved.cpu: must be a string, not the number 1",
                "systemReserved.pid: must be a string, not the number 1000",
                "featureGates.NodeSwap: is locked to true since the feature is settled",
            ],
        );
        check(
            r#""syncFrequency": 60, "fileCheckFrequency": null, "httpCheckFrequency": "20",
               "cpuCFSQuotaPeriod": null, "maxPods": 3000000000, "port": 1e2, "enableServer": 1"#,
            &[
                "enableServer: must be true or false, not the number 1",
                "fileCheckFrequency: null is no duration; leave the field out",
                "httpCheckFrequency: \"20\" is no duration, as \"1m30s\" would be",
                "maxPods: must be an integer of 32 bits, not the number 3000000000",
                "port: must be an integer of 32 bits, not the number 100.0",
                "syncFrequency: must be a duration such as \"1m30s\", not the number 60",
            ],
        );
        check(
            r#""clusterDNS": "10.0.0.10", "clusterDNS": [1],
               "registerWithTaints": [{"key": "a"}, {"keys": 2}],
               "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gb"}}]"#,
            &[
                "clusterDNS[0]: must be a string, not the number 1",
                "registerWithTaints[1].keys: unknown field; is it key?",
                "reservedMemory[0].limits.memory: \"1Gb\": not a quantity: \
                 want a number and a suffix, as in 1.5Gi",
            ],
        );
    }

    #[test]
    fn heads() {
        let check = |json: &str, want: &[&str]| {
            let (_, problems) =
                KubeletConfiguration::from_file(json.as_bytes(), &FeatureGates::default());
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert_eq!(said, want, "{json}");
        };
        check("null", &["is empty"]);
        check("[]", &["is no KubeletConfiguration"]);
        check(
            r#"{"kind": "Pod"}"#,
            &[
                "apiVersion: must be \"kubelet.config.k8s.io/v1beta1\", and is missing",
                "kind: must be \"KubeletConfiguration\", not \"Pod\"",
            ],
        );
    }

    #[test]
    fn defaults_that_depend_on_others() {
        let check = |fields: &str, path: &str, want: &str| {
            let tree = file(fields).0.write();
            let value = path.split('.').fold(&tree, |value, key| &value[key]);
            assert_eq!(value.to_string(), want, "{fields}");
        };
        check(r#""nodeStatusUpdateFrequency": "20s""#, "nodeStatusReportFrequency", "\"20s\"");
        check(r#""nodeStatusUpdateFrequency": "0s""#, "nodeStatusReportFrequency", "\"5m0s\"");
        check(
            r#""nodeStatusUpdateFrequency": "20s", "nodeStatusReportFrequency": "1m""#,
            "nodeStatusReportFrequency",
            "\"1m0s\"",
        );
        check(r#""maxParallelImagePulls": 5"#, "serializeImagePulls", "false");
        check(r#""maxParallelImagePulls": 1"#, "serializeImagePulls", "true");
        check(r#""podPidsLimit": -5"#, "podPidsLimit", "-1");
        check(r#""maxPods": 0, "address": """#, "maxPods", "110");
        check(r#""healthzPort": 0"#, "healthzPort", "0");
        check(r#""resolvConf": """#, "resolvConf", "\"\"");
        check(r#""enforceNodeAllocatable": []"#, "enforceNodeAllocatable", "null");
        check(r#""enforceNodeAllocatable": null"#, "enforceNodeAllocatable", "[\"pods\"]");
        check(r#""evictionHard": {}"#, "evictionHard", "null");
        check(
            r#""evictionHard": {"pid.available": "5%"}"#,
            "evictionHard",
            r#"{"pid.available":"5%"}"#,
        );
        check(
            r#""evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": true"#,
            "evictionHard",
            concat!(
                r#"{"imagefs.available":"15%","imagefs.inodesFree":"5%","#,
                r#""memory.available":"1Gi","nodefs.available":"10%","nodefs.inodesFree":"5%"}"#,
            ),
        );
        check(
            r#""featureGates": {"KubeletCrashLoopBackOffMax": false}"#,
            "crashLoopBackOff.maxContainerRestartPeriod",
            "null",
        );
        check(
            r#""logging": {"flushFrequency": 2000000000}"#,
            "logging.flushFrequency",
            "2000000000",
        );
        check(r#""logging": {"flushFrequency": "2s"}"#, "logging.flushFrequency", "\"2s\"");
        check(r#""memoryThrottlingFactor": 1"#, "memoryThrottlingFactor", "1");
    }

    #[test]
    fn drop_ins() {
        let gates = FeatureGates::default();
        let check = |base: &str, drop_ins: &[&str], path: &str, want: &str| {
            let jsons: Vec<Vec<u8>> = drop_ins
                .iter()
                .map(|fields| format!("{{{HEAD}, {fields}}}").into_bytes())
                .collect();
            let slices: Vec<&[u8]> = jsons.iter().map(Vec::as_slice).collect();
            for json in &jsons {
                assert_eq!(KubeletConfiguration::check_drop_in(json), []);
            }
            let (config, problems) = file(base).0.with_drop_ins(&slices, &gates);
            assert_eq!(problems, []);
            let tree = config.write();
            let value = path.split('.').fold(&tree, |value, key| &value[key]);
            assert_eq!(value.to_string(), want, "{base} {drop_ins:?}");
        };
        check("", &[r#""maxPods": 20"#, r#""maxPods": 30"#], "maxPods", "30");
        check(r#""maxPods": 20"#, &[r#""maxPods": null"#], "maxPods", "110");
        check(
            r#""syncFrequency": "5s""#,
            &[r#""syncFrequency": null"#],
            "syncFrequency",
            "\"1m0s\"",
        );
        check(r#""clusterDNS": ["a", "b"]"#, &[r#""clusterDNS": ["c"]"#], "clusterDNS", "[\"c\"]");
        check(
            r#""systemReserved": {"cpu": "1", "memory": "1Gi"}"#,
            &[r#""systemReserved": {"memory": null, "pid": "5"}"#],
            "systemReserved",
            r#"{"cpu":"1","pid":"5"}"#,
        );
        // The base has its defaults filled in before the drop-in comes.
        check(
            "",
            &[r#""nodeStatusUpdateFrequency": "20s""#],
            "nodeStatusReportFrequency",
            "\"5m0s\"",
        );
        check("", &[r#""maxParallelImagePulls": 5"#], "serializeImagePulls", "true");
        let bad = format!("{{{HEAD}, \"MaxPods\": 1, \"port\": \"x\"}}");
        assert_eq!(KubeletConfiguration::check_drop_in(bad.as_bytes()).len(), 2);
    }

    #[test]
    fn headers_are_secrets() {
        let (config, _) = file(r#""staticPodURLHeader": {"Authorization": ["Bearer x"]}"#);
        assert_eq!(config.static_pod_url_header["Authorization"], ["Bearer x"]);
        assert!(
            config.to_json().contains(r#""staticPodURLHeader":{"Authorization":["<masked>"]}"#)
        );
        let (_, problems) = file(r#""staticPodURLHeader": {"Authorization": "Bearer x"}"#);
        assert_eq!(problems, ["staticPodURLHeader.Authorization: must be a list, not a string"]);
    }

    #[test]
    fn single_fields_and_paths() {
        let mut config = KubeletConfiguration::default();
        assert_eq!(config.set("maxPods", 0.into()), []);
        assert_eq!(config.set("authentication.x509.clientCAFile", "ca.crt".into()), []);
        assert_eq!(config.max_pods, 0);
        assert!(config.authentication.webhook.enabled);
        let problems = config.set("logging.verbosity", "x".into());
        assert_eq!(problems[0].path, "logging.verbosity");
        config.static_pod_path = "manifests".to_owned();
        config.resolve_paths("/etc/kubernetes");
        assert_eq!(config.static_pod_path, "/etc/kubernetes/manifests");
        assert_eq!(config.authentication.x509.client_ca_file, "/etc/kubernetes/ca.crt");
        assert_eq!(config.pod_logs_dir, "/var/log/pods");
        assert_eq!(config.tls_cert_file, "");
    }
}
