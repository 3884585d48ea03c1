//! What the runtime is told of a pod's sandbox and containers: pure functions of the pod, the
//! settings and the machine. Nothing here has state, and nothing talks to the world.
//!
//! Upstream: pkg/kubelet/kuberuntime, v1.36; the files here name their sources.

pub mod cgroups;
pub mod config;
pub mod dns;
pub mod env;
pub mod expansion;
pub mod hash;
pub mod hosts;
pub mod image;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod services;
pub mod volumes;

use alloc::string::String;
use core::fmt;

/// Why the pod does not give a good sandbox or container: shown to the user as it is, and tried
/// again at the next sync. The reason of a waiting container is `CREATE_CONTAINER_CONFIG_ERROR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
