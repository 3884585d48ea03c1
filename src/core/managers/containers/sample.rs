//! A node for the tables of tests: 4 CPUs, 1000 MiB, cgroup version 1, everything at its default.

use crate::event::Machine;
use crate::settings::Settings;
use crate::time::Span;

pub(crate) fn machine() -> Machine {
    Machine {
        cpus: 4,
        memory_bytes: 1000 << 20,
        host_ips: ["192.0.2.10".into()].into(),
        cgroup_version: 1,
        controllers: ["cpu", "cpuset", "memory", "hugetlb", "pids"].map(Into::into).into(),
        hugepage_sizes: [2 << 20, 1 << 30].into(),
        ..Machine::default()
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        node_name: "n1".into(),
        hostname: "n1".into(),
        root_dir: "/var/lib/kubelet".into(),
        pod_logs_dir: "/var/log/pods".into(),
        container_links_dir: "/var/log/containers".into(),
        static_pod_path: "".into(),
        static_pod_url: "".into(),
        static_pod_url_headers: [].into(),
        file_check: Span::from_secs(20),
        http_check: Span::from_secs(20),
        sync_frequency: Span::from_secs(60),
        runtime_request_timeout: Span::from_secs(120),
        max_pods: 110,
        pod_pids_limit: -1,
        cluster_dns: [].into(),
        cluster_domain: "".into(),
        resolv_conf: "/etc/resolv.conf".into(),
        cgroup_root: "".into(),
        cgroups_per_qos: true,
        enforce_pods: true,
        reserved_cpu_milli: 0,
        reserved_memory_bytes: 0,
        reserved_pids: 0,
        cpu_cfs_quota: true,
        cpu_cfs_period_us: 100_000,
        seccomp_default: false,
        single_process_oom_kill: false,
        serialize_image_pulls: true,
        max_parallel_image_pulls: 0,
        registry_qps: 5,
        registry_burst: 10,
        crash_loop_max: Span::from_secs(300),
        allowed_unsafe_sysctls: [].into(),
        debugging_handlers: true,
        serve_everybody: false,
        stop_pods_on_exit: false,
        configz: "{}".into(),
    }
}
