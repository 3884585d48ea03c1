//! The node of a scene, before anything happens: `node KEY VALUE`, with the names of KubeletConfiguration where
//! there is one.

use super::script::{Cue, Mistake, moment};
use super::stage::Stage;
use crate::doors::runtime::{Flavour, Pace};
use crate::setup::{KUBECONFIG, Setup};
use steplet_api::time::Time;
use steplet_core::sealed::Sealed;
use steplet_core::settings::{CgroupDriver, ChangeDetection, Threshold};
use steplet_core::time::{Span, Wall};

/// What a scene has when it says nothing: a new containerd, doors that answer at once.
pub fn setup(cues: &[Cue]) -> Result<Setup, Mistake> {
    let mut setup =
        Setup { flavour: Flavour::New, swift: true, snapshot_every: 64, ..Setup::new(1) };
    setup.settings.cluster_dns = vec!["10.96.0.10".into()];
    setup.settings.cluster_domain = "cluster.local".into();
    for cue in cues {
        let words = cue.words();
        set(&mut setup, &words).map_err(|what| Mistake { line: cue.line, what })?;
    }
    Ok(setup)
}

fn set(setup: &mut Setup, words: &[&str]) -> Result<(), String> {
    let [key, value, ..] = words else { return Err("want `node KEY VALUE`".into()) };
    let number = || value.parse::<u32>().map_err(|_| format!("{value:?} is no number"));
    let settings = &mut setup.settings;
    match *key {
        "runtime" => {
            setup.flavour = match *value {
                "containerd-1.6" => Flavour::Old,
                "containerd-2" => Flavour::New,
                _ => return Err("want containerd-1.6 or containerd-2".into()),
            }
        }
        "cgroupDriver" => settings.cgroup_driver = CgroupDriver::named(value),
        "runtimeCgroupDriver" => setup.runtime_driver = CgroupDriver::named(value),
        "clock" => setup.wall = wall(value)?,
        "seed" => setup.seed = number()?.into(),
        "maxPods" => settings.max_pods = number()?,
        "podPidsLimit" => settings.pod_pids_limit = number()?.into(),
        "staticPodURL" => settings.static_pod_url = (*value).into(),
        "staticPodPath" if *value == "none" => settings.static_pod_path = String::new(),
        "fileCheckFrequency" => settings.file_check = span(value)?,
        "syncFrequency" => settings.sync_frequency = span(value)?,
        "runtimeRequestTimeout" => settings.runtime_request_timeout = span(value)?,
        "crashLoopBackOff.maxContainerRestartPeriod" => settings.crash_loop_max = span(value)?,
        "serializeImagePulls" => settings.serialize_image_pulls = *value == "true",
        "makeIPTablesUtilChains" => settings.iptables_chains = *value == "true",
        "evictionHard.pid.available" => {
            settings.eviction_hard.pids = Threshold::Bytes(number()?.into());
        }
        "podCIDR" => settings.pod_cidr = (*value).into(),
        "allowedUnsafeSysctls" => {
            settings.allowed_unsafe_sysctls = value.split(',').map(str::to_owned).collect();
        }
        "api" => {
            setup.join();
            if !["up", "down"].contains(value) {
                return Err("want `node api up` or `node api down`".into());
            }
        }
        "enableDebuggingHandlers" => settings.debugging_handlers = *value == "true",
        "enableSystemLogHandler" => settings.handlers.system_logs = *value == "true",
        "enableProfilingHandler" => settings.handlers.profiling = *value == "true",
        "enableDebugFlagsHandler" => settings.handlers.debug_flags = *value == "true",
        "authentication.anonymous.enabled"
        | "authentication.webhook.enabled"
        | "authentication.webhook.cacheTTL"
        | "authorization.mode"
        | "authorization.webhook.cacheAuthorizedTTL"
        | "authorization.webhook.cacheUnauthorizedTTL" => guard(setup, key, value)?,
        "nodeStatusUpdateFrequency"
        | "nodeStatusReportFrequency"
        | "nodeLeaseDurationSeconds"
        | "kubeAPIQPS"
        | "kubeAPIBurst"
        | "configMapAndSecretChangeDetectionStrategy"
        | "certificates"
        | "offlineRestore"
        | "registerNode" => joined(setup, key, value)?,
        // What the stage does when it is there.
        "image" | "file" | "iptables" | "pace" | "unjudged" => {}
        _ => return Err(format!("the node has no {key:?}")),
    }
    Ok(())
}

/// What only a member of a cluster has; `node api` comes first.
fn joined(setup: &mut Setup, key: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("{value:?} is no number"));
    let settings = setup.settings.api.as_mut().ok_or("`node api up` must come first")?;
    match key {
        "nodeStatusUpdateFrequency" => settings.status_update = span(value)?,
        "nodeStatusReportFrequency" => settings.status_report = span(value)?,
        "nodeLeaseDurationSeconds" => settings.lease_seconds = number()?,
        "kubeAPIQPS" => settings.qps = number()?,
        "kubeAPIBurst" => settings.burst = number()?,
        "configMapAndSecretChangeDetectionStrategy" => {
            settings.change_detection = match value {
                "Watch" => ChangeDetection::Watch,
                "Cache" => ChangeDetection::Cache,
                "Get" => ChangeDetection::Get,
                _ => return Err("want Watch, Cache or Get".into()),
            }
        }
        "certificates" => {
            let certificates = &mut settings.certificates;
            match value {
                "rotate" => certificates.rotate = true,
                "serving" => certificates.serving = true,
                "bootstrap" => {
                    certificates.bootstrap = true;
                    certificates.kubeconfig = Some((KUBECONFIG.into(), Sealed::numbered(1)));
                    certificates.kubeconfig_missing = true;
                }
                _ => return Err("want rotate, serving or bootstrap".into()),
            }
        }
        "offlineRestore" => settings.offline = value == "true",
        _ => settings.register = value == "true",
    }
    Ok(())
}

/// Who may ask on 10250; kubelet's defaults for the rest.
fn guard(setup: &mut Setup, key: &str, value: &str) -> Result<(), String> {
    let auth = setup.settings.auth.get_or_insert_default();
    match key {
        "authentication.anonymous.enabled" => auth.anonymous = value == "true",
        "authentication.webhook.enabled" => auth.token_reviews = value == "true",
        "authentication.webhook.cacheTTL" => auth.token_ttl = span(value)?,
        "authorization.webhook.cacheAuthorizedTTL" => auth.allowed_ttl = span(value)?,
        "authorization.webhook.cacheUnauthorizedTTL" => auth.denied_ttl = span(value)?,
        _ => auth.always_allow = value == "AlwaysAllow",
    }
    Ok(())
}

/// What lies on the node already.
pub fn furnish(stage: &mut Stage, cues: &[Cue]) -> Result<(), Mistake> {
    for cue in cues {
        let mistake = |what: &str| Mistake { line: cue.line, what: what.into() };
        match cue.words().as_slice() {
            ["image", image] => stage.world.load_image(image),
            ["iptables", "absent"] => stage.world.kernel.iptables.absent = true,
            ["api", "down"] => stage.world.api.link.down = true,
            ["file", path] => stage.world.disk.write(path, b""),
            ["pace", percent] => {
                let percent = percent.strip_suffix('%').and_then(|text| text.parse().ok());
                let percent = percent.ok_or_else(|| mistake("want `node pace 100%`"))?;
                stage.world.runtime.set_pace(Pace(percent));
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn span(text: &str) -> Result<Span, String> {
    moment(text).ok_or_else(|| format!("{text:?} is no time such as 1m30s"))
}

/// `2026-11-30T12:00:00Z`
pub fn wall(text: &str) -> Result<Wall, String> {
    let time = Time::parse(text).and_then(|time| time.ns());
    time.map(Wall).ok_or_else(|| format!("{text:?} is no time such as 2026-11-30T12:00:00Z"))
}
