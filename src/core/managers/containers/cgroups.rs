//! The cgroups that belong to the node agent: the root of all pods, the classes of service below
//! it, one for each pod. Those of containers are made by the runtime below the pod's.
//!
//! Upstream: pkg/kubelet/cm, v1.36. Only files of controllers that the machine has are named. Where systemd makes
//! cgroups a name holds those above it: `kubepods-burstable.slice` lies in `kubepods.slice`. On version 2 the weight is the linear image of the shares, as
//! upstream keeps it for its own cgroups; runtimes use another curve for theirs.

use crate::effect::{Cgroup, KernelOp};
use crate::event::Machine;
use crate::managers::containers::resources::{
    SHARES_MAX, SHARES_MIN, cpu_milli, hugepages, memory_bytes, page_size_name, quota_us, shares,
};
use crate::settings::{CgroupDriver, Settings};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use steplet_api::pod::{Pod, resource};
use steplet_api::pod_facts::{
    QosClass, effective_limits, effective_requests, is_limited, qos_class,
};

const KUBEPODS: &str = "kubepods";
const BURSTABLE: &str = "burstable";
const BEST_EFFORT: &str = "besteffort";
/// As good as no limit of huge pages, and a multiple of every page size.
const HUGEPAGES_UNLIMITED: u64 = 1 << 62;

/// Where cgroups lie: by the configuration, and by who makes them.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub settings: &'a Settings,
    pub driver: CgroupDriver,
}

impl Layout<'_> {
    /// `kubepods/burstable`, ...: where pods of a class lie.
    pub fn class(&self, class: QosClass) -> String {
        self.path(self.class_names(class))
    }

    /// `kubepods/burstable/pod<uid>`; without a hierarchy all pods share the cgroup root.
    pub fn pod(&self, pod: &Pod) -> String {
        self.path(self.pod_names(pod))
    }

    /// The parent of a pod's containers, as the runtime is told: a path, or the name of a slice.
    pub fn parent(&self, pod: &Pod) -> String {
        let path = self.pod(pod);
        match self.driver {
            CgroupDriver::Cgroupfs => format!("/{path}"),
            CgroupDriver::Systemd => path.rsplit('/').next().unwrap_or_default().into(),
        }
    }

    /// Whether a cgroup of this name, where the pods of a class lie, is that of the pod with this UID.
    pub fn is_of(&self, name: &str, class: QosClass, uid: &str) -> bool {
        let mut names = self.class_names(class);
        names.push(format!("pod{uid}"));
        self.path(names).rsplit('/').next() == Some(name)
    }

    /// The UID in the name of a pod's cgroup, where the pods of a class lie. A dash became an underscore in a slice: a
    /// UID that has one of its own is not given back as it was.
    pub fn uid(&self, name: &str, class: QosClass) -> Option<String> {
        match self.driver {
            CgroupDriver::Cgroupfs => name.strip_prefix("pod").map(Into::into),
            CgroupDriver::Systemd => {
                let class = self.class(class);
                let above = class.rsplit('/').next()?.strip_suffix(".slice")?;
                let uid = name.strip_suffix(".slice")?.strip_prefix(above)?.strip_prefix("-pod")?;
                Some(uid.replace('_', "-"))
            }
        }
    }

    pub fn set(&self, cgroups: Vec<Cgroup>) -> KernelOp {
        match self.driver {
            CgroupDriver::Cgroupfs => KernelOp::SetCgroups(cgroups),
            CgroupDriver::Systemd => KernelOp::SetSlices(cgroups),
        }
    }

    pub fn remove(&self, path: String) -> KernelOp {
        match self.driver {
            CgroupDriver::Cgroupfs => KernelOp::RemoveCgroup { path },
            CgroupDriver::Systemd => KernelOp::RemoveSlice { path },
        }
    }

    fn root_names(&self) -> Vec<String> {
        let root = self.settings.cgroup_root.split('/');
        root.filter(|name| !name.is_empty()).map(Into::into).collect()
    }

    fn class_names(&self, class: QosClass) -> Vec<String> {
        let mut names = self.root_names();
        names.push(KUBEPODS.into());
        match class {
            QosClass::Guaranteed => {}
            QosClass::Burstable => names.push(BURSTABLE.into()),
            QosClass::BestEffort => names.push(BEST_EFFORT.into()),
        }
        names
    }

    fn pod_names(&self, pod: &Pod) -> Vec<String> {
        if !self.settings.cgroups_per_qos {
            return self.root_names();
        }
        let mut names = self.class_names(qos_class(pod));
        names.push(format!("pod{}", pod.metadata.uid));
        names
    }

    /// Below the cgroup root, without a leading slash.
    fn path(&self, names: Vec<String>) -> String {
        if self.driver == CgroupDriver::Cgroupfs {
            return names.join("/");
        }
        // A dash divides the levels, so there may be none within one.
        let parts: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
        let slices = (1..=parts.len()).map(|depth| format!("{}.slice", parts[..depth].join("-")));
        slices.collect::<Vec<_>>().join("/")
    }
}

/// The tree above the pods, parents first; empty without a hierarchy. `burstable_milli` is what
/// the burstable pods ask for together, in thousandths of a CPU.
pub fn qos_tree(layout: Layout<'_>, machine: &Machine, burstable_milli: i64) -> Vec<Cgroup> {
    let settings = layout.settings;
    if !settings.cgroups_per_qos {
        return Vec::new();
    }
    let (reserved_milli, reserved_bytes) = if settings.enforce_pods {
        (settings.reserved_cpu_milli, settings.reserved_memory_bytes)
    } else {
        (0, 0)
    };
    let cpu = (u64::from(machine.cpus) * 1000).saturating_sub(reserved_milli);
    let mut root = Values::new(machine);
    root.shares(shares(i64::try_from(cpu).unwrap_or(i64::MAX)));
    root.memory(machine.memory_bytes.saturating_sub(reserved_bytes));
    let mut burstable = Values::new(machine);
    burstable.shares(shares(burstable_milli));
    burstable.unlimited_hugepages();
    let mut best_effort = Values::new(machine);
    best_effort.shares(SHARES_MIN);
    best_effort.unlimited_hugepages();
    [
        root.cgroup(layout.class(QosClass::Guaranteed)),
        burstable.cgroup(layout.class(QosClass::Burstable)),
        best_effort.cgroup(layout.class(QosClass::BestEffort)),
    ]
    .into()
}

/// A pod's own cgroup; none without a hierarchy.
pub fn pod_cgroup(layout: Layout<'_>, machine: &Machine, pod: &Pod) -> Option<Cgroup> {
    let settings = layout.settings;
    if !settings.cgroups_per_qos {
        return None;
    }
    let class = qos_class(pod);
    let requests = effective_requests(&pod.spec);
    let limits = effective_limits(&pod.spec);
    let limited = |name| match class {
        QosClass::Guaranteed => true,
        QosClass::Burstable => is_limited(&pod.spec, name),
        QosClass::BestEffort => false,
    };
    let mut values = Values::new(machine);
    match class {
        QosClass::BestEffort => values.shares(SHARES_MIN),
        _ => values.shares(shares(cpu_milli(&requests))),
    }
    if limited(resource::CPU) {
        let period = i64::try_from(settings.cpu_cfs_period_us).unwrap_or(i64::MAX);
        let quota = if settings.cpu_cfs_quota { quota_us(cpu_milli(&limits), period) } else { -1 };
        values.quota(quota, period);
    }
    if limited(resource::MEMORY) {
        values.memory(u64::try_from(memory_bytes(&limits)).unwrap_or(0));
    }
    if settings.pod_pids_limit > 0 {
        values.pids(settings.pod_pids_limit);
    }
    for size in &machine.hugepage_sizes {
        let asked = hugepages(&requests).find(|(asked, _)| asked == size);
        values.hugepages(*size, asked.map_or(0, |(_, bytes)| bytes));
    }
    Some(values.cgroup(layout.pod(pod)))
}

/// A pod's memory limit in bytes, when its cgroup has one.
pub fn pod_memory_limit(pod: &Pod) -> Option<u64> {
    let limited = match qos_class(pod) {
        QosClass::Guaranteed => true,
        QosClass::Burstable => is_limited(&pod.spec, resource::MEMORY),
        QosClass::BestEffort => false,
    };
    let bytes = u64::try_from(memory_bytes(&effective_limits(&pod.spec))).ok()?;
    (limited && bytes > 0).then_some(bytes)
}

/// Linear from shares 2..=262144 to weights 1..=10000.
fn cpu_weight(shares: u64) -> u64 {
    let shares = shares.clamp(SHARES_MIN, SHARES_MAX);
    1 + (shares - SHARES_MIN) * 9999 / (SHARES_MAX - SHARES_MIN)
}

/// Files and values of a cgroup in the version of this machine.
struct Values<'a> {
    machine: &'a Machine,
    values: Vec<(Cow<'static, str>, String)>,
}

impl Values<'_> {
    fn new(machine: &Machine) -> Values<'_> {
        Values { machine, values: Vec::new() }
    }

    fn cgroup(self, path: String) -> Cgroup {
        Cgroup { path, values: self.values }
    }

    fn v2(&self) -> bool {
        self.machine.cgroup_version == 2
    }

    fn set(&mut self, controller: &str, file: impl Into<Cow<'static, str>>, value: String) {
        if self.machine.controllers.iter().any(|have| have == controller) {
            self.values.push((file.into(), value));
        }
    }

    fn shares(&mut self, shares: u64) {
        if self.v2() {
            self.set("cpu", "cpu.weight", cpu_weight(shares).to_string());
        } else {
            self.set("cpu", "cpu.shares", shares.to_string());
        }
    }

    /// -1 is no limit, 0 leaves it alone.
    fn quota(&mut self, quota_us: i64, period_us: i64) {
        if quota_us == 0 {
            return;
        }
        if self.v2() {
            let quota = if quota_us < 0 { "max".into() } else { quota_us.to_string() };
            self.set("cpu", "cpu.max", format!("{quota} {period_us}"));
        } else {
            self.set("cpu", "cpu.cfs_period_us", period_us.to_string());
            self.set("cpu", "cpu.cfs_quota_us", quota_us.to_string());
        }
    }

    fn memory(&mut self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let file = if self.v2() { "memory.max" } else { "memory.limit_in_bytes" };
        self.set("memory", file, bytes.to_string());
    }

    fn pids(&mut self, limit: i64) {
        self.set("pids", "pids.max", limit.to_string());
    }

    fn hugepages(&mut self, page_bytes: u64, limit_bytes: u64) {
        let name = page_size_name(page_bytes);
        let file = if self.v2() { "max" } else { "limit_in_bytes" };
        self.set("hugetlb", format!("hugetlb.{name}.{file}"), limit_bytes.to_string());
    }

    fn unlimited_hugepages(&mut self) {
        for size in &self.machine.hugepage_sizes {
            self.hugepages(*size, HUGEPAGES_UNLIMITED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::pods::workers::Requests;
    use crate::managers::sample::pod;
    use crate::managers::sample::{machine, settings};

    fn dirs(settings: &Settings) -> Layout<'_> {
        Layout { settings, driver: CgroupDriver::Cgroupfs }
    }

    fn slices(settings: &Settings) -> Layout<'_> {
        Layout { settings, driver: CgroupDriver::Systemd }
    }

    fn text(cgroup: &Cgroup) -> String {
        let values = cgroup.values.iter().map(|(file, value)| format!(" {file}={value}"));
        values.fold(cgroup.path.clone(), |text, value| text + &value)
    }

    const GUARANTEED: &str = r#"{"containers":[{"name":"c","resources":{
        "limits":{"cpu":"100m","memory":"32Mi"},"requests":{"cpu":"100m","memory":"32Mi"}}}]}"#;
    const HALF_LIMITED: &str = r#"{"containers":[
        {"name":"a","resources":{"requests":{"cpu":"200m"},"limits":{"cpu":"1","memory":"1Gi"}}},
        {"name":"b","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}}]}"#;
    const BEST_EFFORT_POD: &str = r#"{"containers":[{"name":"c"}]}"#;

    #[test]
    fn cgroups_of_pods() {
        fn check(spec: &str, version: u8, want: &str) {
            let machine =
                Machine { cgroup_version: version, hugepage_sizes: [].into(), ..machine() };
            let got = pod_cgroup(dirs(&settings()), &machine, &pod(spec)).unwrap();
            assert_eq!(text(&got), want, "{spec}");
        }
        check(
            GUARANTEED,
            1,
            "kubepods/podu cpu.shares=102 cpu.cfs_period_us=100000 cpu.cfs_quota_us=10000 \
             memory.limit_in_bytes=33554432",
        );
        check(GUARANTEED, 2, "kubepods/podu cpu.weight=4 cpu.max=10000 100000 memory.max=33554432");
        check(
            HALF_LIMITED,
            1,
            "kubepods/burstable/podu cpu.shares=1228 cpu.cfs_period_us=100000 \
             cpu.cfs_quota_us=200000",
        );
        check(HALF_LIMITED, 2, "kubepods/burstable/podu cpu.weight=47 cpu.max=200000 100000");
        check(BEST_EFFORT_POD, 1, "kubepods/besteffort/podu cpu.shares=2");
        check(BEST_EFFORT_POD, 2, "kubepods/besteffort/podu cpu.weight=1");
    }

    #[test]
    fn settings_and_machine_count() {
        let pod = pod(GUARANTEED);
        let settings = Settings {
            cpu_cfs_quota: false,
            pod_pids_limit: 1000,
            cgroup_root: "agent".into(),
            ..settings()
        };
        let got = text(&pod_cgroup(dirs(&settings), &machine(), &pod).unwrap());
        let want = "agent/kubepods/podu cpu.shares=102 cpu.cfs_period_us=100000 \
            cpu.cfs_quota_us=-1 memory.limit_in_bytes=33554432 pids.max=1000 \
            hugetlb.2MB.limit_in_bytes=0 hugetlb.1GB.limit_in_bytes=0";
        assert_eq!(got, want);
        let bare = Machine { cgroup_version: 2, controllers: ["cpu".into()].into(), ..machine() };
        let got = text(&pod_cgroup(dirs(&settings), &bare, &pod).unwrap());
        assert_eq!(got, "agent/kubepods/podu cpu.weight=4 cpu.max=max 100000");
        assert_eq!(dirs(&settings).parent(&pod), "/agent/kubepods/podu");
        let flat = Settings { cgroups_per_qos: false, cgroup_root: String::new(), ..settings };
        assert_eq!(pod_cgroup(dirs(&flat), &machine(), &pod), None);
        assert!(qos_tree(dirs(&flat), &machine(), 0).is_empty());
        assert_eq!(dirs(&flat).parent(&pod), "/");
    }

    #[test]
    fn the_tree() {
        fn check(version: u8, enforce_pods: bool, want: [&str; 3]) {
            let settings = Settings {
                enforce_pods,
                reserved_cpu_milli: 500,
                reserved_memory_bytes: 100 << 20,
                ..settings()
            };
            let machine =
                Machine { cgroup_version: version, hugepage_sizes: [2 << 20].into(), ..machine() };
            let pods =
                [pod(GUARANTEED), pod(HALF_LIMITED), pod(BEST_EFFORT_POD), pod(HALF_LIMITED)];
            let requests = pods.iter().map(Requests::of).filter(|requests| requests.burstable);
            let milli = requests.map(|requests| requests.cpu_milli).sum();
            let tree = qos_tree(dirs(&settings), &machine, milli);
            assert_eq!(tree.iter().map(text).collect::<Vec<_>>(), want);
        }
        check(
            1,
            true,
            [
                "kubepods cpu.shares=3584 memory.limit_in_bytes=943718400",
                "kubepods/burstable cpu.shares=2457 \
                 hugetlb.2MB.limit_in_bytes=4611686018427387904",
                "kubepods/besteffort cpu.shares=2 hugetlb.2MB.limit_in_bytes=4611686018427387904",
            ],
        );
        check(
            2,
            false,
            [
                "kubepods cpu.weight=157 memory.max=1048576000",
                "kubepods/burstable cpu.weight=94 hugetlb.2MB.max=4611686018427387904",
                "kubepods/besteffort cpu.weight=1 hugetlb.2MB.max=4611686018427387904",
            ],
        );
    }

    #[test]
    fn slices_of_pods() {
        fn check(root: &str, spec: &str, path: &str) {
            let settings = Settings { cgroup_root: root.into(), ..settings() };
            let mut pod = pod(spec);
            pod.metadata.uid = "1b-2".into();
            let layout = slices(&settings);
            assert_eq!(layout.pod(&pod), path);
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(layout.parent(&pod), name);
            let class = qos_class(&pod);
            assert_eq!(layout.uid(name, class).as_deref(), Some("1b-2"));
            assert!(layout.is_of(name, class, "1b-2") && layout.is_of(name, class, "1b_2"));
            assert!(!layout.is_of(name, class, "1b") && !layout.is_of("pod1b-2", class, "1b-2"));
        }
        check("", GUARANTEED, "kubepods.slice/kubepods-pod1b_2.slice");
        check(
            "",
            HALF_LIMITED,
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b_2.slice",
        );
        check(
            "a-b/c",
            BEST_EFFORT_POD,
            "a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-besteffort.slice/\
             a_b-c-kubepods-besteffort-pod1b_2.slice",
        );
        let settings = settings();
        let layout = slices(&settings);
        // Siblings: another class, a scope of the runtime, a slice of somebody else.
        for other in ["kubepods-burstable.slice", "cri-containerd-1.scope", "pod1", "podx.slice"] {
            assert_eq!(layout.uid(other, QosClass::Guaranteed), None, "{other}");
        }
        assert_eq!(dirs(&settings).uid("pod1-2", QosClass::Guaranteed).as_deref(), Some("1-2"));
        let flat = Settings { cgroups_per_qos: false, ..settings.clone() };
        assert_eq!(slices(&flat).parent(&pod(GUARANTEED)), "", "the runtime's own choice");
    }

    #[test]
    fn weights() {
        fn check(shares: u64, want: u64) {
            assert_eq!(cpu_weight(shares), want, "{shares}");
        }
        check(0, 1);
        check(2, 1);
        check(1024, 39);
        check(262_144, 10_000);
        check(u64::MAX, 10_000);
    }

    #[test]
    fn memory_limits() {
        assert_eq!(pod_memory_limit(&pod(GUARANTEED)), Some(33_554_432));
        assert_eq!(pod_memory_limit(&pod(HALF_LIMITED)), None);
        assert_eq!(pod_memory_limit(&pod(BEST_EFFORT_POD)), None);
    }
}
