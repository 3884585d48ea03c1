//! The kubelet's command line and what comes of it together with the configuration files.
//!
//! `parse` reads the arguments as Go's pflag does, `settings` lays defaults, `--config`,
//! `--config-dir` and flags over each other. Both tell all problems at once.

mod files;
mod help;
mod line;
mod problem;
mod settings;
mod shown;
mod table;
mod value;

pub use files::{Disk, Files};
pub use help::help;
pub use line::{Asked, CommandLine, parse};
pub use problem::{Place, Problem, told};
pub use settings::{Host, Settings, settings};
pub use shown::shown;
pub(super) use value::{node_ips, tape_max};

use std::collections::BTreeMap;
use steplet_api::config::GoDuration;

/// The version of Kubernetes whose kubelet this program stands in for.
pub use steplet_core::settings::KUBERNETES_VERSION;

/// The flags that are not fields of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct KubeletFlags {
    /// Empty for none, like all paths here.
    pub config: String,
    pub config_dir: String,
    pub kubeconfig: String,
    pub bootstrap_kubeconfig: String,
    pub root_dir: String,
    pub cert_dir: String,
    pub lock_file: String,
    pub exit_on_lock_contention: bool,
    pub image_credential_provider_config: String,
    pub image_credential_provider_bin_dir: String,
    /// Empty: the host's name in lower case.
    pub hostname_override: String,
    pub node_ip: String,
    pub node_labels: BTreeMap<String, String>,
    /// Either this or `seccompDefault` turns it on.
    pub seccomp_default: bool,
    /// `external` or empty.
    pub cloud_provider: String,
    pub runtime_cgroups: String,
    /// `settings` fills in `tapes` in the root directory.
    pub tape_dir: String,
    /// Bytes.
    pub tape_max: u64,
    pub offline_restore: bool,
    /// Empty: a credential of systemd, or a key beside the store.
    pub offline_key_file: String,
    pub housekeeping_interval: GoDuration,
    pub minimum_container_ttl: GoDuration,
    pub maximum_dead_containers_per_container: i32,
    /// Negative: any number.
    pub maximum_dead_containers: i32,
    pub experimental_mounter_path: String,
    pub experimental_allocatable_ignore_eviction: bool,
}

impl Default for KubeletFlags {
    fn default() -> Self {
        KubeletFlags {
            config: String::new(),
            config_dir: String::new(),
            kubeconfig: String::new(),
            bootstrap_kubeconfig: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            cert_dir: "/var/lib/kubelet/pki".into(),
            lock_file: String::new(),
            exit_on_lock_contention: false,
            image_credential_provider_config: String::new(),
            image_credential_provider_bin_dir: String::new(),
            hostname_override: String::new(),
            node_ip: String::new(),
            node_labels: BTreeMap::new(),
            seccomp_default: false,
            cloud_provider: String::new(),
            runtime_cgroups: String::new(),
            tape_dir: String::new(),
            tape_max: 64 << 20,
            offline_restore: true,
            offline_key_file: String::new(),
            housekeeping_interval: GoDuration::from_secs(10),
            minimum_container_ttl: GoDuration::default(),
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            experimental_mounter_path: String::new(),
            experimental_allocatable_ignore_eviction: false,
        }
    }
}
