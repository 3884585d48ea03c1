//! `steplet kubelet`: the node agent with the kubelet's command line.

use super::columns;
use super::flags::{self, Asked, Disk, Host, KUBERNETES_VERSION, Problem};
use super::kubeconfig::Access;
use super::node::{self, Node};
use crate::cli::say;
use crate::shell::doors::Kernel;
use crate::shell::doors::listen::Listeners;
use crate::shell::vault::{Vault, shown_url};
use crate::shell::{boot, log, mounts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use steplet_api::config::{GoDuration, KubeletConfiguration};
use steplet_api::quantity::Quantity;
use steplet_api::validation::names as validation;
use steplet_core::sealed::Sealed;
use steplet_core::settings::{
    ApiSettings, AuthSettings, CertificateSettings, CgroupDriver, ChangeDetection, EvictionHard,
    Handlers, Settings, Threshold, Visitors,
};
use steplet_core::time::Span;

/// What the reference does without being told to. Whoever replaces it must know of each of these, so
/// it is said at every start.
const NOT_YET: &str = "not done yet, whatever is set: probes and lifecycle hooks (an event \
    names the pods that have them), eviction under pressure, rotation of container logs, removal \
    of unused images; /stats/summary and /metrics/cadvisor, resource and probes \
    answer 501";

/// Returns the exit status. Errors: what to tell people.
pub fn main(args: impl IntoIterator<Item = OsString, IntoIter: 'static>) -> Result<i32, String> {
    let line = flags::parse(args);
    match line.asked() {
        Some(Asked::Help) => {
            say(flags::help());
            return Ok(0);
        }
        Some(Asked::Version) => {
            say(format_args!("Kubernetes {KUBERNETES_VERSION}\n"));
            return Ok(0);
        }
        None => {}
    }
    let host = Host { cgroup_version: Kernel::new().version(), swap_is_on: boot::swap_is_on() };
    let told = flags::settings(&line, &Disk, host).map_err(|problems| all(&problems))?;
    let config = &told.config;
    let json = config.logging.format == "json";
    let format = if json { log::Format::Json } else { log::Format::Text };
    let vmodule = config.logging.vmodule.iter();
    let vmodule = vmodule.map(|item| (item.file_pattern.clone(), item.verbosity)).collect();
    log::start(format, config.logging.verbosity, vmodule);
    let runtime = boot::socket_path(&config.container_runtime_endpoint)?;
    let images = match config.image_service_endpoint.as_str() {
        "" => runtime.clone(),
        endpoint => boot::socket_path(endpoint)?,
    };
    let _until_the_end = lock_file(&told.flags.lock_file)?;
    let held = node::hold(Path::new(&told.flags.root_dir), &runtime)?;
    warn(&told.warnings);
    warn_of_foreign(&told);
    boot::sysctls(config.protect_kernel_defaults)?;
    boot::share(Path::new(&told.flags.root_dir));
    boot::raise_limits(config.max_open_files.cast_unsigned(), config.oom_score_adj);
    let mut vault = Vault::default();
    let settings = settings(&told, &mut vault)?;
    let cert_dir = Path::new(&told.flags.cert_dir);
    let tape_dir = PathBuf::from(&told.flags.tape_dir);
    Node {
        listeners: Listeners::of(config, cert_dir, &settings.node_name, told.api.is_some())?,
        settings,
        held,
        runtime,
        images,
        node_ip: told.flags.node_ip.clone(),
        api: told.api.clone().map(|access| (access.api, access.bootstrap)),
        offline_key: told.flags.offline_key_file.clone(),
        tape: (told.flags.tape_max > 0).then_some((tape_dir, told.flags.tape_max)),
        vault,
        watcher: None,
        stop_after: None,
    }
    .run()
}

/// Names the paths on which the one thread could be made to wait.
fn warn_of_foreign(told: &flags::Settings) {
    let config = &told.config;
    let mounted = mounts::read().unwrap_or_default();
    for (name, path) in [
        ("--root-dir", &told.flags.root_dir),
        ("--cert-dir", &told.flags.cert_dir),
        ("--kubeconfig", &told.flags.kubeconfig),
        ("podLogsDir", &config.pod_logs_dir),
        ("staticPodPath", &config.static_pod_path),
        ("tlsCertFile", &config.tls_cert_file),
        ("tlsPrivateKeyFile", &config.tls_private_key_file),
        ("resolvConf", &config.resolv_conf),
    ] {
        if let Some(mount) = mounts::foreign(Path::new(path), &mounted) {
            ::log::warn!(
                "{name} {path} leads to {} on {}: when that does not answer, neither does this agent; a \
                 local path is better",
                mount.kind,
                mount.point.display()
            );
        }
    }
}

/// Holds `--lock-file`, and waits for it as upstream does.
fn lock_file(path: &str) -> Result<Option<boot::Lock>, String> {
    if path.is_empty() {
        return Ok(None);
    }
    let lock = boot::wait_for_lock(Path::new(path));
    lock.map(Some).map_err(|error| format!("--lock-file {path}: {error}"))
}

/// All of them, a line each.
fn all(problems: &[Problem]) -> String {
    flags::told(problems).join("\nsteplet: ")
}

/// One message, so that it is read once and as a whole.
fn warn(warnings: &[String]) {
    let mut text = String::from("not everything that was asked for is done:");
    for warning in warnings.iter().map(String::as_str).chain([NOT_YET]) {
        let item: String = format!("- {warning}");
        for line in columns::folded(&item, columns::WIDTH - 2) {
            text.push_str("\n  ");
            text.push_str(&line);
        }
    }
    ::log::warn!("{text}");
}

fn settings(told: &flags::Settings, vault: &mut Vault) -> Result<Settings, String> {
    let config = &told.config;
    let hostname = boot::hostname()?;
    let node_name = node_name(&told.flags.hostname_override, &hostname)?;
    let single = config.single_process_oom_kill.unwrap_or(Kernel::new().version() == 1);
    let crash_loop = config.crash_loop_back_off.max_container_restart_period;
    let (static_pod_url, static_pod_url_whole) = vault.seal_url(&config.static_pod_url);
    Ok(Settings {
        node_name,
        hostname,
        root_dir: told.flags.root_dir.clone(),
        pod_logs_dir: config.pod_logs_dir.clone(),
        container_links_dir: "/var/log/containers".into(),
        static_pod_path: config.static_pod_path.clone(),
        static_pod_url,
        static_pod_url_whole,
        static_pod_url_headers: headers(config, vault),
        file_check: span(config.file_check_frequency),
        http_check: span(config.http_check_frequency),
        sync_frequency: span(config.sync_frequency),
        runtime_request_timeout: span(config.runtime_request_timeout),
        max_pods: max_pods(config, boot::cpus()),
        pod_pids_limit: config.pod_pids_limit,
        cluster_dns: config.cluster_dns.clone(),
        cluster_domain: config.cluster_domain.clone(),
        resolv_conf: config.resolv_conf.clone(),
        cgroup_driver: CgroupDriver::named(&config.cgroup_driver),
        cgroup_root: config.cgroup_root.trim_matches('/').to_owned(),
        cgroups_per_qos: config.cgroups_per_qos,
        enforce_pods: config.enforce_node_allocatable.iter().any(|key| key == "pods"),
        reserved_cpu_milli: reserved(config, "cpu", Quantity::milli_value),
        reserved_memory_bytes: reserved(config, "memory", Quantity::value),
        reserved_pids: reserved(config, "pid", Quantity::value),
        reserved_storage_bytes: reserved(config, "ephemeral-storage", Quantity::value),
        eviction_hard: EvictionHard {
            memory: threshold(config, "memory.available"),
            nodefs: threshold(config, "nodefs.available"),
            nodefs_inodes: threshold(config, "nodefs.inodesFree"),
            imagefs: threshold(config, "imagefs.available"),
            imagefs_inodes: threshold(config, "imagefs.inodesFree"),
            pids: threshold(config, "pid.available"),
        },
        cpu_cfs_quota: config.cpu_cfs_quota,
        cpu_cfs_period_us: span(config.cpu_cfs_quota_period).0 / 1_000,
        seccomp_default: told.seccomp_default(),
        single_process_oom_kill: single,
        serialize_image_pulls: config.serialize_image_pulls,
        max_parallel_image_pulls: natural(config.max_parallel_image_pulls.unwrap_or(0)),
        registry_qps: natural(config.registry_pull_qps),
        registry_burst: natural(config.registry_burst),
        crash_loop_max: crash_loop.map_or(Span::from_secs(300), span),
        allowed_unsafe_sysctls: config.allowed_unsafe_sysctls.clone(),
        iptables_chains: config.make_iptables_util_chains,
        pod_cidr: config.pod_cidr.clone(),
        debugging_handlers: config.enable_debugging_handlers,
        handlers: handlers(told),
        flagz: flagz(told).into(),
        visitors: Visitors::of(&config.authorization.mode),
        stop_pods_on_exit: false,
        auth: told.api.as_ref().map(|_| auth(config)),
        api: told.api.as_ref().map(|access| api_settings(told, access, vault)),
        configz: masked(config).to_json().into(),
    })
}

fn flagz(told: &flags::Settings) -> String {
    let config = masked(&told.config).to_json();
    flags::shown(&told.flags, &serde_json::from_str(&config).unwrap_or_default())
}

fn handlers(told: &flags::Settings) -> Handlers {
    let config = &told.config;
    Handlers {
        system_logs: config.enable_system_log_handler,
        profiling: config.enable_profiling_handler,
        debug_flags: config.enable_debug_flags_handler,
        checkpoint: told.gates.enabled("ContainerCheckpoint"),
        flagz: told.gates.enabled("ComponentFlagz"),
        statusz: told.gates.enabled("ComponentStatusz"),
    }
}

/// `--hostname-override`, else the host's name, as names of nodes are written. Errors: the API server would not take it,
/// nor names of static pods that end in it.
fn node_name(wanted: &str, hostname: &str) -> Result<String, String> {
    let (from, name) = match wanted {
        "" => ("the name of this host", hostname),
        name => ("--hostname-override", name),
    };
    let name = name.trim().to_lowercase();
    match validation::dns_subdomain(&name) {
        None => Ok(name),
        Some(why) => Err(format!(
            "{from} {name:?} cannot be the name of a node: {why}; give one with --hostname-override"
        )),
    }
}

fn auth(config: &KubeletConfiguration) -> AuthSettings {
    let (authentication, authorization) = (&config.authentication, &config.authorization);
    AuthSettings {
        anonymous: authentication.anonymous.enabled,
        token_reviews: authentication.webhook.enabled,
        token_ttl: span(authentication.webhook.cache_ttl),
        always_allow: authorization.mode == "AlwaysAllow",
        allowed_ttl: span(authorization.webhook.cache_authorized_ttl),
        denied_ttl: span(authorization.webhook.cache_unauthorized_ttl),
    }
}

/// The node's part in its cluster.
fn api_settings(told: &flags::Settings, access: &Access, vault: &mut Vault) -> ApiSettings {
    let (config, flags) = (&told.config, &told.flags);
    let taints = config.register_with_taints.iter();
    ApiSettings {
        qps: natural(config.kube_api_qps),
        burst: natural(config.kube_api_burst),
        event_qps: natural(config.event_record_qps),
        event_burst: natural(config.event_burst),
        register: config.register_node,
        labels: flags.node_labels.clone().into_iter().collect(),
        taints: taints.map(|t| (t.key.clone(), t.value.clone(), t.effect.clone())).collect(),
        provider_id: config.provider_id.clone(),
        external_cloud: flags.cloud_provider == "external",
        node_ip: flags.node_ip.clone(),
        port: u16::try_from(config.port).unwrap_or_default(),
        status_update: span(config.node_status_update_frequency),
        status_report: span(config.node_status_report_frequency),
        lease_seconds: natural(config.node_lease_duration_seconds),
        max_images: config.node_status_max_images,
        change_detection: match config.config_map_and_secret_change_detection_strategy.as_str() {
            "Get" => ChangeDetection::Get,
            "Cache" => ChangeDetection::Cache,
            // The only other word that passes the checks.
            _ => ChangeDetection::Watch,
        },
        offline: flags.offline_restore,
        certificates: CertificateSettings {
            dir: flags.cert_dir.clone(),
            rotate: config.rotate_certificates,
            serving: config.server_tls_bootstrap,
            bootstrap: access.bootstrap.is_some(),
            given: access.given.clone(),
            given_inline: access.given_inline,
            kubeconfig: access
                .new
                .as_ref()
                .map(|text| (flags.kubeconfig.clone(), vault.seal(text.expose()))),
            kubeconfig_missing: access.missing,
        },
    }
}

/// What `evictionHard` keeps free; nothing when it does not say, or says all or nothing
/// (pkg/kubelet/eviction/helpers.go, v1.36).
fn threshold(config: &KubeletConfiguration, signal: &str) -> Threshold {
    let text = config.eviction_hard.get(signal).map_or("", String::as_str);
    let Some(percent) = text.strip_suffix('%') else {
        let bytes = Quantity::parse(text).map_or(0, |quantity| quantity.value());
        return Threshold::Bytes(u64::try_from(bytes).unwrap_or_default());
    };
    let (whole, part) = percent.split_once('.').unwrap_or((percent, ""));
    let whole: u64 = whole.parse().unwrap_or_default();
    let tenths = part.chars().next().and_then(|digit| digit.to_digit(10)).unwrap_or_default();
    match whole.saturating_mul(10).saturating_add(tenths.into()) {
        share @ 1..1000 => Threshold::PerMille(share),
        _ => Threshold::Bytes(0),
    }
}

/// The configuration as it may be shown. Headers are masked by `to_json`.
fn masked(config: &KubeletConfiguration) -> KubeletConfiguration {
    let mut shown = config.clone();
    shown.static_pod_url = shown_url(&config.static_pod_url).into_owned();
    shown
}

/// The core sees seals in place of the values.
fn headers(config: &KubeletConfiguration, vault: &mut Vault) -> Vec<(String, Sealed)> {
    let all = config.static_pod_url_header.iter();
    all.flat_map(|(name, values)| values.iter().map(move |value| (name, value)))
        .map(|(name, value)| (name.clone(), vault.seal(value)))
        .collect()
}

fn max_pods(config: &KubeletConfiguration, cpus: u32) -> u32 {
    match natural(config.pods_per_core) {
        0 => natural(config.max_pods),
        per_core => natural(config.max_pods).min(per_core.saturating_mul(cpus)),
    }
}

fn reserved(config: &KubeletConfiguration, resource: &str, measure: fn(&Quantity) -> i64) -> u64 {
    let maps = [&config.kube_reserved, &config.system_reserved];
    let texts = maps.into_iter().filter_map(|map| map.get(resource));
    // They were checked: what cannot be read is not there.
    let amounts = texts.filter_map(|text| Quantity::parse(text).ok()).map(|q| measure(&q));
    amounts.filter_map(|amount| u64::try_from(amount).ok()).fold(0, u64::saturating_add)
}

fn span(duration: GoDuration) -> Span {
    Span(u64::try_from(duration.ns).unwrap_or_default())
}

fn natural(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> KubeletConfiguration {
        let head =
            r#"{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","#;
        let (config, problems) = KubeletConfiguration::from_file(
            format!("{head}{json}}}").as_bytes(),
            &Default::default(),
        );
        assert!(problems.is_empty(), "{problems:?}");
        config
    }

    #[test]
    fn names_of_nodes() {
        let check = |wanted, hostname, want: Option<&str>| {
            assert_eq!(node_name(wanted, hostname).ok().as_deref(), want, "{wanted} {hostname}");
        };
        check("", "Edge-1.example", Some("edge-1.example"));
        check(" Node-A ", "x", Some("node-a"));
        check("no_such", "x", None);
        check("a/../b", "x", None);
        check("", "bad_host", None);
        let why = node_name("no_such", "x").unwrap_err();
        assert!(why.starts_with("--hostname-override \"no_such\" cannot be"), "{why}");
    }

    #[test]
    fn limits_of_pods() {
        let check = |json, cpus, want| assert_eq!(max_pods(&config(json), cpus), want, "{json}");
        check(r#""maxPods":50"#, 4, 50);
        check(r#""maxPods":50,"podsPerCore":10"#, 4, 40);
        check(r#""maxPods":50,"podsPerCore":20"#, 4, 50);
    }

    #[test]
    fn reserved_amounts_are_added_up() {
        let config = config(
            r#""kubeReserved":{"cpu":"100m","memory":"1Gi"},
               "systemReserved":{"cpu":"1","pid":"100"}"#,
        );
        assert_eq!(reserved(&config, "cpu", Quantity::milli_value), 1100);
        assert_eq!(reserved(&config, "memory", Quantity::value), 1 << 30);
        assert_eq!(reserved(&config, "pid", Quantity::value), 100);
    }

    #[test]
    fn thresholds() {
        let check = |json, want| assert_eq!(threshold(&config(json), "nodefs.available"), want);
        check(r#""maxPods":50"#, Threshold::PerMille(100));
        check(r#""evictionHard":{"nodefs.available":"7.55%"}"#, Threshold::PerMille(75));
        check(r#""evictionHard":{"nodefs.available":"0%"}"#, Threshold::Bytes(0));
        check(r#""evictionHard":{"nodefs.available":"100%"}"#, Threshold::Bytes(0));
        check(r#""evictionHard":{"nodefs.available":"2Gi"}"#, Threshold::Bytes(2 << 30));
        check(r#""evictionHard":{"memory.available":"1Gi"}"#, Threshold::Bytes(0));
    }

    #[test]
    fn secrets_of_the_url_are_sealed_and_masked() {
        let config = config(
            r#""staticPodURLHeader":{"Authorization":["Bearer s3cret"]},
               "staticPodURL":"https://me:s3cret@host/pods""#,
        );
        let mut vault = Vault::default();
        let headers = headers(&config, &mut vault);
        let [(name, value)] = &headers[..] else { panic!("{headers:?}") };
        assert_eq!(name, "Authorization");
        assert_eq!(vault.open(*value).unwrap().expose(), "Bearer s3cret");
        let shown = masked(&config).to_json();
        assert!(!shown.contains("s3cret") && shown.contains("<masked>"), "{shown}");
        assert!(shown.contains("https://host/"), "{shown}");
    }
}
