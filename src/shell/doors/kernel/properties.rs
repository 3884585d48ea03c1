//! Values of a cgroup as properties of its slice: systemd writes those of its own again whenever it likes to, so a value
//! that it knows under a name must be told to it too.
//!
//! Upstream: cgroups/systemd in opencontainers/cgroups, as kubelet v1.36 uses it; systemd.resource-control(5).

use steplet_core::effect::Cgroup;
use steplet_core::event::{Fault, FaultKind};

/// A value of a property.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Flag(bool),
    Number(u64),
    Text(String),
}

pub type Property = (&'static str, Value);

/// No limit.
const INFINITY: u64 = u64::MAX;
/// systemd keeps quotas in steps of ten milliseconds a second.
const QUOTA_STEP_US: u64 = 10_000;

/// What a slice is made with beside its values.
pub fn of_new(path: &str, v2: bool) -> Vec<Property> {
    let io = if v2 { "IOAccounting" } else { "BlockIOAccounting" };
    let on = |name| (name, Value::Flag(true));
    vec![
        ("Description", Value::Text(format!("Kubernetes pods: {path}"))),
        // It is not for a shutdown to stop it: the runtime and the agent are stopped in their order.
        ("DefaultDependencies", Value::Flag(false)),
        on("MemoryAccounting"),
        on("CPUAccounting"),
        on(io),
        on("TasksAccounting"),
    ]
}

/// The values that systemd knows; of others (huge pages) it knows nothing.
pub fn of_values(cgroup: &Cgroup) -> Result<Vec<Property>, Fault> {
    let mut out = Vec::new();
    let mut period = None;
    for (file, value) in &cgroup.values {
        let number = || match value.as_str() {
            "max" | "-1" => Ok(INFINITY),
            text => text.parse::<u64>().map_err(|_| odd(file, value)),
        };
        let name = match file.as_ref() {
            "cpu.weight" => "CPUWeight",
            "cpu.shares" => "CPUShares",
            "memory.max" => "MemoryMax",
            "memory.high" => "MemoryHigh",
            "memory.low" => "MemoryLow",
            "memory.min" => "MemoryMin",
            "memory.limit_in_bytes" => "MemoryLimit",
            "pids.max" => "TasksMax",
            "cpu.max" => {
                let (quota, period) = value.split_once(' ').ok_or_else(|| odd(file, value))?;
                out.extend(quota_of(quota, period).ok_or_else(|| odd(file, value))?);
                continue;
            }
            "cpu.cfs_period_us" => {
                period = Some(value.as_str());
                continue;
            }
            "cpu.cfs_quota_us" => {
                let period = period.ok_or_else(|| odd(file, value))?;
                out.extend(quota_of(value, period).ok_or_else(|| odd(file, value))?);
                continue;
            }
            _ => continue,
        };
        out.push((name, Value::Number(number()?)));
    }
    Ok(out)
}

/// Microseconds of a period, as microseconds of a second.
fn quota_of(quota_us: &str, period_us: &str) -> Option<[Property; 2]> {
    let period: u64 = period_us.parse().ok().filter(|period| *period > 0)?;
    let a_second = match quota_us {
        "max" | "-1" => INFINITY,
        text => {
            let quota: u64 = text.parse().ok()?;
            let exact = quota.checked_mul(1_000_000)? / period;
            exact.checked_next_multiple_of(QUOTA_STEP_US)?
        }
    };
    Some([
        ("CPUQuotaPeriodUSec", Value::Number(period)),
        ("CPUQuotaPerSecUSec", Value::Number(a_second)),
    ])
}

fn odd(file: &str, value: &str) -> Fault {
    let message = format!("{file} cannot be {value:?}");
    Fault { kind: FaultKind::Invalid, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(values: &[(&'static str, &str)]) -> Result<String, String> {
        let values = values.iter().map(|(file, value)| ((*file).into(), (*value).into()));
        let cgroup = Cgroup { path: "a.slice".into(), values: values.collect() };
        let properties = of_values(&cgroup).map_err(|fault| fault.message)?;
        let words = properties.iter().map(|(name, value)| match value {
            Value::Number(INFINITY) => format!("{name}=infinity"),
            Value::Number(number) => format!("{name}={number}"),
            other => format!("{name}={other:?}"),
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn values_of_both_versions() {
        let check = |values: &[(&'static str, &str)], want: Result<&str, &str>| {
            assert_eq!(told(values), want.map(str::to_owned).map_err(str::to_owned), "{values:?}");
        };
        check(
            &[
                ("cpu.weight", "10"),
                ("cpu.max", "25000 100000"),
                ("memory.max", "67108864"),
                ("pids.max", "100"),
                ("hugetlb.2MB.max", "0"),
            ],
            Ok("CPUWeight=10 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=250000 \
                MemoryMax=67108864 TasksMax=100"),
        );
        // A third of a CPU, rounded up: the exact value goes to the file.
        check(
            &[("cpu.max", "33300 100000")],
            Ok("CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=340000"),
        );
        check(
            &[("cpu.max", "max 100000"), ("memory.high", "max")],
            Ok("CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=infinity MemoryHigh=infinity"),
        );
        check(
            &[
                ("cpu.shares", "2"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "-1"),
                ("memory.limit_in_bytes", "4096"),
            ],
            Ok(
                "CPUShares=2 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=infinity MemoryLimit=4096",
            ),
        );
        check(&[("cpu.max", "1 0")], Err("cpu.max cannot be \"1 0\""));
        check(&[("memory.max", "much")], Err("memory.max cannot be \"much\""));
        check(&[("cpu.cfs_quota_us", "1")], Err("cpu.cfs_quota_us cannot be \"1\""));
    }
}
