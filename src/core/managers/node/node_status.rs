//! What a NodeStatus says, as a pure function of what the managers know.
//!
//! Upstream: pkg/kubelet/nodestatus/setters.go (v1.36). Ready comes last, since it sums up the others.

use crate::effect::Signals;
use crate::event::Machine;
use crate::facts::Facts;
use crate::settings::{ApiSettings, EvictionHard, KUBERNETES_VERSION, Settings, Threshold};
use crate::time::Now;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use steplet_api::cluster::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeFeatures, NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, condition,
};
use steplet_api::pod::{ResourceList, resource};
use steplet_api::pod_facts::is_extended_resource;
use steplet_api::quantity::{Format, Quantity};
use steplet_api::time::Time;

/// What a status is made of.
pub struct StatusInput<'a> {
    pub facts: &'a Facts,
    pub api: &'a ApiSettings,
    pub images: &'a [ContainerImage],
    pub now: Now,
}

/// The status that follows `old`, in which others may have their own parts.
pub fn node_status(input: &StatusInput<'_>, old: &NodeStatus) -> NodeStatus {
    let (settings, machine) = (input.facts.settings(), input.facts.machine());
    let mut status = old.clone();
    if let Some(addresses) = addresses(input, &old.addresses) {
        status.addresses = addresses;
    }
    (status.capacity, status.allocatable) = amounts(settings, machine, input.facts.node.signals());
    // What others offer on this node is theirs to count.
    let offered = old.capacity.iter().filter(|(name, _)| is_extended_resource(name));
    for (name, amount) in offered {
        status.capacity.insert(name.clone(), *amount);
        status.allocatable.insert(name.clone(), *amount);
    }
    let info = &mut status.node_info;
    info.machine_id = machine.machine_id.as_str().into();
    info.system_uuid = machine.system_uuid.as_str().into();
    info.boot_id = machine.boot_id.as_str().into();
    info.kernel_version = machine.kernel_version.as_str().into();
    info.os_image = machine.os_image.as_str().into();
    let runtime = &input.facts.runtime_status;
    info.container_runtime_version = match runtime.name() {
        "" => "".into(),
        name => format!("{name}://{}", runtime.version()).into(),
    };
    info.kubelet_version = KUBERNETES_VERSION.into();
    info.operating_system = "linux".into();
    info.architecture = machine.architecture.as_str().into();
    let swap = i64::try_from(machine.swap_bytes).unwrap_or(i64::MAX);
    info.swap = (swap > 0).then_some(NodeSwapStatus { capacity: Some(swap) });
    status.daemon_endpoints.kubelet_endpoint = DaemonEndpoint { port: input.api.port.into() };
    status.images = input.images.to_vec();
    status.runtime_handlers = handlers(input.facts);
    let policy = runtime.supplemental_groups_policy();
    status.features = policy.map(|on| NodeFeatures { supplemental_groups_policy: Some(on) });
    conditions(input, &mut status);
    status
}

/// What the node has for pods: the numbers that its status says and that admission counts with.
pub fn allocatable(facts: &Facts) -> ResourceList {
    amounts(facts.settings(), facts.machine(), facts.node.signals()).1
}

/// The labels that a kubelet gives its Node.
pub fn own_labels(facts: &Facts) -> BTreeMap<Box<str>, Box<str>> {
    let settings = facts.settings();
    let (name, arch) = (settings.node_name.as_str(), facts.machine().architecture.as_str());
    let fixed = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ];
    let more = settings.api.iter().flat_map(|api| &api.labels);
    let more = more.map(|(key, value)| (key.as_str(), value.as_str()));
    fixed.into_iter().chain(more).map(|(key, value)| (key.into(), value.into())).collect()
}

/// None: they are the cloud provider's affair.
fn addresses(input: &StatusInput<'_>, old: &[NodeAddress]) -> Option<Vec<NodeAddress>> {
    let machine = input.facts.machine();
    if input.api.external_cloud && !old.is_empty() {
        return None;
    }
    let hostname = ("Hostname", input.facts.settings().node_name.as_str());
    // Without --node-ip there is one address, of the family that comes first.
    let most = if input.api.node_ip.contains(',') { 2 } else { 1 };
    let known = input.api.external_cloud && input.api.node_ip.is_empty();
    let ips = machine.host_ips.iter().take(if known { 0 } else { most });
    let all = ips.map(|ip| ("InternalIP", ip.as_str())).chain([hostname]);
    let all =
        all.map(|(type_, address)| NodeAddress { type_: type_.into(), address: address.into() });
    Some(all.collect())
}

/// Capacity and allocatable.
fn amounts(
    settings: &Settings,
    machine: &Machine,
    signals: Option<&Signals>,
) -> (ResourceList, ResourceList) {
    let milli = u64::from(machine.cpus) * 1000;
    let storage = signals.map_or(0, |signals| signals.nodefs_capacity);
    let pages = machine.hugepage_bytes.iter().sum();
    let take =
        |from: u64, parts: &[u64]| parts.iter().fold(from, |left, part| left.saturating_sub(*part));
    let free_cpu = take(milli, &[settings.reserved_cpu_milli]);
    let evict = settings.eviction_hard.memory.of(machine.memory_bytes);
    let free_memory = take(machine.memory_bytes, &[settings.reserved_memory_bytes, evict, pages]);
    let evict = settings.eviction_hard.nodefs.of(storage);
    let free_storage = take(storage, &[settings.reserved_storage_bytes, evict]);
    let list = |cpu: u64, memory: u64, storage: u64, storage_format| {
        let mut list = ResourceList::new();
        let mut put = |name: &str, quantity| list.insert(name.into(), quantity);
        put(resource::CPU, Quantity::from_milli(signed(cpu), Format::DecimalSi));
        put(resource::MEMORY, Quantity::new(signed(memory), Format::BinarySi));
        put(resource::PODS, Quantity::new(settings.max_pods.into(), Format::DecimalSi));
        if storage > 0 {
            put(resource::EPHEMERAL_STORAGE, Quantity::new(signed(storage), storage_format));
        }
        for (size, bytes) in machine.hugepage_sizes.iter().zip(&machine.hugepage_bytes) {
            let name = Quantity::new(signed(*size), Format::BinarySi);
            let name = format!("{}{name}", resource::HUGEPAGES_PREFIX);
            put(&name, Quantity::new(signed(*bytes), Format::BinarySi));
        }
        list
    };
    let capacity = list(milli, machine.memory_bytes, storage, Format::BinarySi);
    (capacity, list(free_cpu, free_memory, free_storage, Format::DecimalSi))
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

fn handlers(facts: &Facts) -> Vec<NodeRuntimeHandler> {
    let handlers = facts.runtime_status.handlers().iter();
    let handlers = handlers.map(|(name, handler)| NodeRuntimeHandler {
        name: name.clone(),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(handler.recursive_read_only),
            user_namespaces: Some(handler.user_namespaces),
        }),
    });
    handlers.collect()
}

fn conditions(input: &StatusInput<'_>, status: &mut NodeStatus) {
    // Until the machine was looked at for the first time nothing is under pressure.
    let pressure = input.facts.node.signals().map_or_else(Pressure::default, |signals| {
        pressure(signals, &input.facts.settings().eviction_hard)
    });
    let says = |yes, if_yes: (&'static str, &str), if_no: (&'static str, &str)| {
        let (reason, message) = if yes { if_yes } else { if_no };
        Said { status: if yes { "True" } else { "False" }, reason, message: message.into() }
    };
    let memory = says(
        pressure.memory,
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    );
    let disk = says(
        pressure.disk,
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    );
    let pid = says(
        pressure.pids,
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    );
    let ready = match problem(input, &status.capacity) {
        None => Said {
            status: "True",
            reason: "KubeletReady",
            message: "kubelet is posting ready status".into(),
        },
        Some(message) => Said { status: "False", reason: "KubeletNotReady", message },
    };
    for (type_, said) in [
        (condition::MEMORY_PRESSURE, memory),
        (condition::DISK_PRESSURE, disk),
        (condition::PID_PRESSURE, pid),
        (condition::READY, ready),
    ] {
        set(&mut status.conditions, type_, said, input.now);
    }
}

#[derive(Default)]
struct Pressure {
    memory: bool,
    disk: bool,
    pids: bool,
}

/// What is below its threshold. A threshold of nothing is never passed.
fn pressure(signals: &Signals, hard: &EvictionHard) -> Pressure {
    let under = |available: u64, capacity: u64, threshold: Threshold| {
        capacity > 0 && available < threshold.of(capacity)
    };
    Pressure {
        memory: under(signals.memory_available, signals.memory_capacity, hard.memory),
        disk: under(signals.nodefs_available, signals.nodefs_capacity, hard.nodefs)
            || under(signals.nodefs_inodes_free, signals.nodefs_inodes, hard.nodefs_inodes)
            || under(signals.imagefs_available, signals.imagefs_capacity, hard.imagefs)
            || under(signals.imagefs_inodes_free, signals.imagefs_inodes, hard.imagefs_inodes),
        pids: under(signals.pids_max.saturating_sub(signals.pids), signals.pids_max, hard.pids),
    }
}

struct Said {
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn set(conditions: &mut Vec<NodeCondition>, type_: &str, said: Said, now: Now) {
    let at = Time::from_ns(now.wall.0);
    let known = conditions.iter_mut().find(|c| &*c.type_ == type_);
    let condition = match known {
        Some(condition) => condition,
        None => {
            conditions.push(NodeCondition { type_: type_.into(), ..NodeCondition::default() });
            conditions.last_mut().expect("just put there")
        }
    };
    if &*condition.status != said.status {
        condition.last_transition_time = at.clone();
    }
    condition.status = said.status.into();
    condition.reason = said.reason.into();
    condition.message = said.message.into();
    condition.last_heartbeat_time = at;
}

fn problem(input: &StatusInput<'_>, capacity: &ResourceList) -> Option<String> {
    let node: Option<String> = input.facts.node_problem(input.now.mono);
    let missing: Vec<&str> =
        [resource::CPU, resource::MEMORY, resource::PODS, resource::EPHEMERAL_STORAGE]
            .into_iter()
            .filter(|name| !capacity.contains_key(*name))
            .collect();
    let missing = (!missing.is_empty())
        .then(|| format!("missing node capacity for resources: {}", missing.join(", ")));
    match (node, missing) {
        (Some(node), Some(missing)) => Some(format!("[{node}, {missing}]")),
        (node, missing) => node.or(missing),
    }
}

/// Whether two statuses say the same, whenever they said it.
pub fn same_but_for_heartbeats(a: &NodeStatus, b: &NodeStatus) -> bool {
    let still = |status: &NodeStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.last_heartbeat_time = Time::default();
        }
        status
    };
    still(a) == still(b)
}

/// The events for conditions that turned, `Node n status is now: R`: upstream's reason and the condition's.
pub fn turned(old: &NodeStatus, new: &NodeStatus) -> Vec<&'static str> {
    let status = |of: &NodeStatus, type_: &str| -> Box<str> {
        let found = of.conditions.iter().find(|c| &*c.type_ == type_);
        found.map_or_else(Box::default, |c| c.status.clone())
    };
    let reasons: BTreeMap<&str, (&'static str, &'static str)> = [
        (condition::READY, ("NodeReady", "NodeNotReady")),
        (condition::MEMORY_PRESSURE, ("NodeHasInsufficientMemory", "NodeHasSufficientMemory")),
        (condition::DISK_PRESSURE, ("NodeHasDiskPressure", "NodeHasNoDiskPressure")),
        (condition::PID_PRESSURE, ("NodeHasInsufficientPID", "NodeHasSufficientPID")),
    ]
    .into();
    let mut events = Vec::new();
    for (type_, (yes, no)) in reasons {
        let (before, after) = (status(old, type_), status(new, type_));
        // That a node is not ready when it is first seen is no news.
        let first = type_ == condition::READY && before.is_empty() && &*after != "True";
        if before != after && !after.is_empty() && !first {
            events.push(if &*after == "True" { yes } else { no });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Mono, Wall};

    fn signals() -> Signals {
        Signals {
            memory_capacity: 4 << 30,
            memory_available: 1 << 30,
            nodefs_capacity: 100 << 30,
            nodefs_available: 50 << 30,
            nodefs_inodes: 1000,
            nodefs_inodes_free: 500,
            imagefs_capacity: 10 << 30,
            imagefs_available: 5 << 30,
            imagefs_inodes: 1000,
            imagefs_inodes_free: 500,
            pids_max: 1000,
            pids: 300,
        }
    }

    #[test]
    fn thresholds_that_are_passed() {
        let hard = EvictionHard { pids: Threshold::PerMille(100), ..EvictionHard::default() };
        let check = |change: fn(&mut Signals), want: [bool; 3]| {
            let mut signals = signals();
            change(&mut signals);
            let got = pressure(&signals, &hard);
            assert_eq!([got.memory, got.disk, got.pids], want, "{signals:?}");
        };
        check(|_| {}, [false; 3]);
        check(|s| s.memory_available = (100 << 20) - 1, [true, false, false]);
        check(|s| s.nodefs_available = 9 << 30, [false, true, false]);
        check(|s| s.nodefs_inodes_free = 49, [false, true, false]);
        check(|s| s.imagefs_available = 1 << 30, [false, true, false]);
        check(|s| s.imagefs_inodes_free = 49, [false, true, false]);
        check(|s| s.pids = 901, [false, false, true]);
        // Some file systems count no inodes.
        check(|s| (s.nodefs_inodes, s.nodefs_inodes_free) = (0, 0), [false; 3]);
    }

    fn input(facts: &Facts) -> NodeStatus {
        let now = Now { mono: Mono(0), wall: Wall(1_000_000_000) };
        let api = facts.settings().api.clone().unwrap_or_default();
        let input = StatusInput { facts, api: &api, images: &[], now };
        node_status(&input, &NodeStatus::default())
    }

    #[test]
    fn amounts_addresses_and_conditions() {
        let mut facts = Facts::default();
        let settings =
            Settings { node_name: "n1".into(), reserved_cpu_milli: 250, ..Settings::default() };
        let machine = Machine {
            cpus: 2,
            memory_bytes: 4 << 30,
            host_ips: ["10.0.0.1".into(), "fd00::1".into()].into(),
            hugepage_sizes: [2 << 20].into(),
            hugepage_bytes: [64 << 20].into(),
            ..Machine::default()
        };
        facts.boot.set(settings, machine);
        facts.node.look(Signals { nodefs_available: 5 << 30, ..signals() });
        let status = input(&facts);
        let text = |list: &ResourceList| {
            let all = list.iter().map(|(name, amount)| format!("{name}={amount}"));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            text(&status.capacity),
            "cpu=2 ephemeral-storage=100Gi hugepages-2Mi=64Mi memory=4Gi pods=110"
        );
        assert_eq!(
            text(&status.allocatable),
            "cpu=1750m ephemeral-storage=96636764160 hugepages-2Mi=64Mi memory=3932Mi pods=110"
        );
        let addresses: Vec<&str> = status.addresses.iter().map(|a| &*a.address).collect();
        assert_eq!(addresses, ["10.0.0.1", "n1"]);
        let words = status.conditions.iter().map(|c| format!("{}={}", c.type_, c.status));
        assert_eq!(
            words.collect::<Vec<_>>(),
            ["MemoryPressure=False", "DiskPressure=True", "PIDPressure=False", "Ready=False"]
        );
        let events = turned(&NodeStatus::default(), &status);
        assert!(!events.contains(&"NodeNotReady") && events.contains(&"NodeHasDiskPressure"));
        let later = NodeStatus { conditions: Vec::new(), ..status.clone() };
        assert!(same_but_for_heartbeats(&status, &status.clone()));
        assert!(!same_but_for_heartbeats(&status, &later));
    }
}
