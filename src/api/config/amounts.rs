//! Quantities, percentages and thresholds that stand as text in maps.
//!
//! The upstream kubelet meets most of these in its start, one at a time, and ends; here they are
//! told with the rest.

use super::gates::FeatureGates;
use super::kubelet::KubeletConfiguration;
use super::{GoDuration, push_index, push_key};
use crate::quantity::Quantity;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};

/// Takes the path of a field and what is wrong with it.
type Say<'a> = &'a mut dyn FnMut(&str, String);

pub(super) fn check(config: &KubeletConfiguration, gates: &FeatureGates, say: Say<'_>) {
    let size = &config.container_log_max_size;
    match Quantity::parse(size) {
        Ok(quantity) if quantity.value() > 0 => {}
        Ok(_) => say("containerLogMaxSize", format!("must be above 0, not \"{size}\"")),
        Err(error) => say("containerLogMaxSize", format!("\"{size}\": {error}")),
    }
    reserved("systemReserved", &config.system_reserved, say);
    reserved("kubeReserved", &config.kube_reserved, say);
    let shares = &config.qos_reserved;
    each("qosReserved", shares, say, |resource, share| {
        if !gates.enabled("QOSReserved") {
            return None;
        }
        if resource != "memory" {
            return Some("only memory can be reserved for a class of service".into());
        }
        percent(share)
            .is_none()
            .then(|| format!("must be a percentage such as 50%, not \"{share}\""))
    });
    evictions(config, say);
    reserved_memory(config, say);
    sysctls(config, say);
}

/// Calls `wrong` for each entry of a map and says what it finds.
fn each(
    path: &str,
    map: &BTreeMap<String, String>,
    say: Say<'_>,
    wrong: impl Fn(&str, &str) -> Option<String>,
) {
    for (key, value) in map {
        if let Some(what) = wrong(key, value) {
            let mut path = path.to_string();
            push_key(&mut path, key);
            say(&path, what);
        }
    }
}

fn reserved(path: &str, map: &BTreeMap<String, String>, say: Say<'_>) {
    each(path, map, say, |resource, amount| {
        if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&resource) {
            return Some("only cpu, memory, ephemeral-storage and pid can be reserved".into());
        }
        match Quantity::parse(amount) {
            Ok(quantity) if quantity.is_negative() => Some("must not be negative".into()),
            Ok(_) => None,
            Err(error) => Some(format!("\"{amount}\": {error}")),
        }
    });
}

/// Signals as operators may name them.
const SIGNALS: [&str; 9] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

fn evictions(config: &KubeletConfiguration, say: Say<'_>) {
    let signal = |signal: &str| {
        (!SIGNALS.contains(&signal)).then(|| "no eviction signal has this name".to_string())
    };
    for (path, map) in
        [("evictionHard", &config.eviction_hard), ("evictionSoft", &config.eviction_soft)]
    {
        each(path, map, say, |name, threshold| {
            signal(name)
                .or_else(|| amount(threshold, |share| (0..=100_000_000_000).contains(&share), true))
        });
    }
    each("evictionMinimumReclaim", &config.eviction_minimum_reclaim, say, |name, reclaim| {
        signal(name).or_else(|| amount(reclaim, |share| share > 0, false))
    });
    let periods = &config.eviction_soft_grace_period;
    each("evictionSoftGracePeriod", periods, say, |name, period| {
        let duration = GoDuration::parse(period).filter(|duration| duration.ns >= 0);
        signal(name).or_else(|| {
            duration
                .is_none()
                .then(|| format!("must be a duration such as 1m30s, not \"{period}\""))
        })
    });
    each("evictionSoft", &config.eviction_soft, say, |name, _| {
        let lacks = !periods.contains_key(name);
        lacks.then(|| "needs a period of the same signal in evictionSoftGracePeriod".into())
    });
}

/// What is wrong with a quantity or a percentage.
fn amount(text: &str, share_fits: impl Fn(i128) -> bool, positive: bool) -> Option<String> {
    if text.ends_with('%') {
        let fits = percent(text).is_some_and(share_fits);
        return (!fits).then(|| format!("\"{text}\" is no fitting percentage"));
    }
    match Quantity::parse(text) {
        Ok(quantity) if quantity.is_negative() || positive && quantity.is_zero() => {
            Some(format!("must be above 0, not \"{text}\""))
        }
        Ok(_) => None,
        Err(error) => Some(format!("\"{text}\": {error}")),
    }
}

/// Billionths of a percent.
fn percent(text: &str) -> Option<i128> {
    let number = text.strip_suffix('%')?;
    let decimal = number.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    Quantity::parse(number).ok().filter(|_| decimal).map(|quantity| quantity.nanos())
}

fn reserved_memory(config: &KubeletConfiguration, say: Say<'_>) {
    let mut seen = BTreeSet::new();
    for (i, reservation) in config.reserved_memory.iter().enumerate() {
        for (resource, quantity) in &reservation.limits {
            let mut path = "reservedMemory".to_string();
            push_index(&mut path, i);
            path.push_str(".limits");
            push_key(&mut path, resource);
            if resource != "memory" && !resource.starts_with("hugepages-") {
                say(&path, "must be memory or hugepages-SIZE".into());
            }
            if quantity.is_zero() {
                say(&path, "must not be 0".into());
            }
            if !seen.insert((reservation.numa_node, resource)) {
                say(&path, format!("is given twice for NUMA node {}", reservation.numa_node));
            }
        }
    }
}

/// Sysctls that have a namespace of their own, so that a pod cannot change the node.
fn sysctls(config: &KubeletConfiguration, say: Say<'_>) {
    for (i, pattern) in config.allowed_unsafe_sysctls.iter().enumerate() {
        let name = pattern.replace('/', ".");
        let stem = name.strip_suffix('*').unwrap_or(&name);
        let letters =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
        let namespaced = stem == "kernel.sem"
            || ["kernel.shm", "kernel.msg", "fs.mqueue.", "net."]
                .iter()
                .any(|p| stem.starts_with(p));
        if !namespaced || !stem.bytes().all(letters) {
            let mut path = "allowedUnsafeSysctls".to_string();
            push_index(&mut path, i);
            say(&path, format!("\"{pattern}\" is no sysctl that pods have for themselves"));
        }
    }
}

/// An image without tag and digest, or a prefix that ends in `/*`.
pub(super) fn image_pattern(pattern: &str) -> bool {
    let prefix = pattern.strip_suffix("/*");
    let name = prefix.unwrap_or(pattern);
    let last = name.rsplit('/').next().unwrap_or("");
    let tagged = prefix.is_none() && last.contains(':');
    !name.is_empty() && !tagged && !name.contains(['*', '@', ' ', '\t']) && !name.ends_with('/')
}

/// `0-3,7`: what upstream's cpuset reads.
pub(super) fn cpu_set(text: &str) -> bool {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    text.split(',').all(|part| match part.split_once('-') {
        None => number(part).is_some(),
        Some((first, last)) => match (number(first), number(last)) {
            (Some(first), Some(last)) => first <= last,
            _ => false,
        },
    })
}
