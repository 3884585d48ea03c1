//! Pod sandboxes: the pause process and the network of a pod.

use super::answers::{FAILED_PRECONDITION, INVALID_ARGUMENT, UNKNOWN, error, not_found};
use super::{Flavour, Out, Runtime};
use crate::doors::kernel::parent_path;
use crate::trace::{Cause, Fact, SandboxFact};
use steplet_api::cri;
use steplet_core::event::RpcError;
use steplet_core::time::Wall;

#[derive(Clone, Debug)]
pub struct Sandbox {
    pub config: cri::PodSandboxConfig,
    pub handler: String,
    pub ready: bool,
    pub created_at: Wall,
    /// Empty on the host's network, and once the network is torn down.
    pub ip: String,
}

impl Sandbox {
    pub fn metadata(&self) -> &cri::PodSandboxMetadata {
        self.config.metadata.as_ref().expect("checked when it was reserved")
    }

    pub fn cgroup_parent(&self) -> &str {
        self.config.linux.as_ref().map_or("", |linux| &linux.cgroup_parent)
    }

    fn namespaces(&self) -> Option<&cri::NamespaceOption> {
        let linux = self.config.linux.as_ref()?;
        linux.security_context.as_ref()?.namespace_options.as_ref()
    }

    /// containerd's name of a sandbox, which must be free.
    fn name(metadata: &cri::PodSandboxMetadata) -> String {
        let cri::PodSandboxMetadata { name, uid, namespace, attempt } = metadata;
        format!("{name}_{namespace}_{uid}_{attempt}")
    }
}

impl Runtime {
    pub(super) fn reserve_sandbox(
        &mut self,
        request: &cri::RunPodSandboxRequest,
    ) -> Result<String, RpcError> {
        let metadata = request.config.as_ref().and_then(|config| config.metadata.as_ref());
        let Some(metadata) = metadata else {
            return Err(error(INVALID_ARGUMENT, "sandbox config must include metadata"));
        };
        let name = Sandbox::name(metadata);
        let id = self.dice.hex(64);
        self.reserve(&name, &id).map_err(|why| {
            error(UNKNOWN, format!("failed to reserve sandbox name {name:?}: {why}"))
        })?;
        Ok(id)
    }

    pub(super) fn reserve(&mut self, name: &str, id: &str) -> Result<(), String> {
        match self.names.get(name) {
            Some(holder) => Err(format!("name {name:?} is reserved for {holder:?}")),
            None => {
                self.names.insert(name.to_owned(), id.to_owned());
                Ok(())
            }
        }
    }

    pub(super) fn run_sandbox(
        &mut self,
        wall: Wall,
        id: String,
        request: cri::RunPodSandboxRequest,
        out: &mut Out,
    ) -> Result<cri::RunPodSandboxResponse, RpcError> {
        let config = request.config.expect("checked when it was reserved");
        let mut sandbox = Sandbox {
            config,
            handler: request.runtime_handler,
            ready: true,
            created_at: wall,
            ip: String::new(),
        };
        let on_host = (sandbox.namespaces())
            .is_some_and(|options| options.network == cri::NamespaceMode::Node as i32);
        if !on_host {
            if self.network_down {
                self.names.retain(|_, holder| *holder != id);
                let message = format!(
                    "failed to setup network for sandbox {id:?}: cni plugin not initialized"
                );
                return Err(error(UNKNOWN, message));
            }
            self.ip_count += 1;
            sandbox.ip = format!("10.88.{}.{}", self.ip_count / 250 % 250, 2 + self.ip_count % 250);
        }
        let cri::PodSandboxMetadata { name, uid, namespace, attempt } = sandbox.metadata().clone();
        out.facts.push(Fact::SandboxRan(SandboxFact {
            sandbox: id.clone(),
            uid,
            namespace,
            pod: name,
            attempt,
        }));
        self.sandboxes.insert(id.clone(), sandbox);
        self.lists.changed();
        Ok(cri::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    pub(super) fn stop_sandbox(
        &mut self,
        wall: Wall,
        id: &str,
        out: &mut Out,
    ) -> Result<(), RpcError> {
        if !self.sandboxes.contains_key(id) {
            return match self.flavour {
                Flavour::Old => Err(not_found("sandbox", id)),
                Flavour::New => Ok(()),
            };
        }
        // Whatever still runs in it is killed without grace.
        for container in self.running_in(id) {
            self.exit(wall, &container, 137, Cause::SandboxStop, out);
        }
        self.end_sandbox(id, Cause::SandboxStop, out);
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ip = String::new();
        }
        Ok(())
    }

    fn end_sandbox(&mut self, id: &str, cause: Cause, out: &mut Out) {
        if let Some(sandbox) = self.sandboxes.get_mut(id)
            && sandbox.ready
        {
            sandbox.ready = false;
            self.lists.changed();
            out.facts.push(Fact::SandboxStopped { sandbox: id.to_owned(), cause });
        }
    }

    /// containerd would stop a running sandbox by force. Here it is refused, so that an agent that
    /// leans on that is found out.
    pub(super) fn remove_sandbox(&mut self, id: &str, out: &mut Out) -> Result<(), RpcError> {
        let Some(sandbox) = self.sandboxes.get(id) else { return Ok(()) };
        if sandbox.ready || !self.running_in(id).is_empty() {
            let message = format!("sandbox container {id:?} is not fully stopped");
            return Err(error(FAILED_PRECONDITION, message));
        }
        let inside: Vec<String> = (self.containers.iter())
            .filter(|(_, container)| container.sandbox == id)
            .map(|(id, _)| id.clone())
            .collect();
        for container in inside {
            self.forget_container(&container, Cause::SandboxStop, out);
        }
        self.sandboxes.remove(id);
        self.names.retain(|_, holder| holder != id);
        self.lists.changed();
        out.facts.push(Fact::SandboxRemoved { sandbox: id.to_owned() });
        Ok(())
    }

    pub(super) fn sandbox_status(
        &self,
        id: &str,
    ) -> Result<cri::PodSandboxStatusResponse, RpcError> {
        let sandbox = self.sandboxes.get(id).ok_or_else(|| not_found("sandbox", id))?;
        let status = cri::PodSandboxStatus {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            state: state(sandbox),
            created_at: sandbox.created_at.0,
            network: Some(cri::PodSandboxNetworkStatus {
                ip: sandbox.ip.clone(),
                additional_ips: Vec::new(),
            }),
            linux: Some(cri::LinuxPodSandboxStatus {
                namespaces: Some(cri::Namespace { options: sandbox.namespaces().cloned() }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        };
        Ok(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    /// A fault: the pause process dies, the containers run on.
    pub fn kill_sandbox(&mut self, id: &str, out: &mut Out) {
        self.end_sandbox(id, Cause::Fault, out);
    }

    pub fn sandbox(&self, id: &str) -> Option<&Sandbox> {
        self.sandboxes.get(id)
    }

    /// Containers that run in a cgroup or below it; `cgroup` has no leading slash.
    pub fn running_below(&self, cgroup: &str) -> Vec<String> {
        let inside = |sandbox: &Sandbox| {
            let parent = parent_path(sandbox.cgroup_parent());
            (parent.strip_prefix(cgroup))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (self.sandboxes.iter())
            .filter(|(_, sandbox)| inside(sandbox))
            .flat_map(|(id, _)| self.running_in(id))
            .collect()
    }

    pub fn sandboxes(&self) -> impl Iterator<Item = (&str, &Sandbox)> {
        self.sandboxes.iter().map(|(id, sandbox)| (id.as_str(), sandbox))
    }
}

pub fn state(sandbox: &Sandbox) -> i32 {
    let state = match sandbox.ready {
        true => cri::PodSandboxState::SandboxReady,
        false => cri::PodSandboxState::SandboxNotready,
    };
    state as i32
}
