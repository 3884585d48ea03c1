//! What a simulated node is like: its settings, its machine.

use crate::clock::EPOCH;
use crate::doors::runtime::Flavour;
use steplet_core::event::Machine;
use steplet_core::settings::{ApiSettings, CgroupDriver, Settings};
use steplet_core::time::Wall;

#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub settings: Settings,
    pub machine: Machine,
    pub flavour: Flavour,
    /// What a new runtime says of cgroups.
    pub runtime_driver: CgroupDriver,
    /// What the wall clock shows at the beginning.
    pub wall: Wall,
    /// Every door answers as fast as it can, for scenes: time passes only where the scene says so.
    pub swift: bool,
    /// Steps between two comparisons of the core with its snapshot; 0: never.
    pub snapshot_every: u64,
}

pub const ROOT_DIR: &str = "/var/lib/kubelet";
pub const LOGS_DIR: &str = "/var/log/pods";
pub const LINKS_DIR: &str = "/var/log/containers";
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
pub const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
pub const NODE: &str = "edge-1";

impl Setup {
    /// A usual small node with kubelet's defaults; on every third one systemd makes cgroups.
    pub fn new(seed: u64) -> Setup {
        let driver = match seed % 3 {
            2 => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        };
        Setup {
            seed,
            settings: Settings { cgroup_driver: driver, ..settings() },
            runtime_driver: driver,
            machine: machine(),
            flavour: if seed.is_multiple_of(2) { Flavour::New } else { Flavour::Old },
            wall: EPOCH,
            swift: false,
            snapshot_every: 256,
        }
    }

    /// The node is a member of the cluster.
    pub fn join(&mut self) {
        self.settings.api = Some(ApiSettings::default());
    }
}

fn settings() -> Settings {
    Settings {
        node_name: NODE.into(),
        hostname: NODE.into(),
        root_dir: ROOT_DIR.into(),
        pod_logs_dir: LOGS_DIR.into(),
        container_links_dir: LINKS_DIR.into(),
        static_pod_path: MANIFESTS.into(),
        // A chore of each minute, for the scenes and seeds that are about it.
        iptables_chains: false,
        ..Settings::default()
    }
}

fn machine() -> Machine {
    Machine {
        cpus: 4,
        memory_bytes: 8 << 30,
        boot_id: "boot-1".into(),
        machine_id: "machine-1".into(),
        kernel_version: "6.12.0".into(),
        os_image: "Simulated GNU/Linux".into(),
        architecture: "amd64".into(),
        host_ips: vec!["192.0.2.10".into()],
        cgroup_version: 2,
        controllers: ["cpu", "cpuset", "hugetlb", "memory", "pids"].map(str::to_owned).to_vec(),
        hugepage_sizes: vec![2 << 20],
        hugepage_bytes: vec![64 << 20],
        system_uuid: "1d9c1c2e-0000-4000-8000-000000000001".into(),
        swap_bytes: 0,
        thermal_throttle: Vec::new(),
        app_armor: false,
    }
}
