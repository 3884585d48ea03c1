//! Containers: created, started once, ended once, removed.

use super::answers::{FAILED_PRECONDITION, INVALID_ARGUMENT, UNKNOWN, error, not_found};
use super::app::App;
use super::{Flavour, Out, Runtime, Wake, Work};
use crate::trace::{Cause, ContainerFact, Fact};
use steplet_api::cri;
use steplet_core::event::RpcError;
use steplet_core::time::{Span, Wall};

#[derive(Clone, Debug)]
pub struct Container {
    pub sandbox: String,
    pub config: cri::ContainerConfig,
    pub image_id: String,
    pub app: App,
    pub state: cri::ContainerState,
    pub created_at: Wall,
    pub started_at: Wall,
    pub finished_at: Wall,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    /// TERM was sent; it is sent once.
    termed: bool,
}

impl Container {
    pub fn running(&self) -> bool {
        self.state == cri::ContainerState::ContainerRunning
    }

    pub fn metadata(&self) -> &cri::ContainerMetadata {
        self.config.metadata.as_ref().expect("checked when it was reserved")
    }
}

impl Runtime {
    pub(super) fn reserve_container(
        &mut self,
        request: &cri::CreateContainerRequest,
    ) -> Result<String, RpcError> {
        let config = request.config.as_ref();
        let Some(metadata) = config.and_then(|config| config.metadata.as_ref()) else {
            return Err(error(INVALID_ARGUMENT, "container config must include metadata"));
        };
        let Some(sandbox) = self.sandboxes.get(&request.pod_sandbox_id) else {
            let id = &request.pod_sandbox_id;
            let message = format!("failed to find sandbox id {id:?}: not found");
            return Err(error(RpcError::NOT_FOUND, message));
        };
        if !sandbox.ready {
            let id = &request.pod_sandbox_id;
            let message = format!(
                "failed to get sandbox container task: no running task found: task {id} not found"
            );
            return Err(error(RpcError::NOT_FOUND, message));
        }
        let cri::PodSandboxMetadata { name: pod, uid, namespace, .. } = sandbox.metadata();
        let cri::ContainerMetadata { name, attempt } = metadata;
        let name = format!("{name}_{pod}_{namespace}_{uid}_{attempt}");
        let id = self.dice.hex(64);
        self.reserve(&name, &id).map_err(|why| {
            error(UNKNOWN, format!("failed to reserve container name {name:?}: {why}"))
        })?;
        Ok(id)
    }

    pub(super) fn create(
        &mut self,
        wall: Wall,
        id: String,
        request: cri::CreateContainerRequest,
        out: &mut Out,
    ) -> Result<cri::CreateContainerResponse, RpcError> {
        let config = request.config.expect("checked when it was reserved");
        let image = config.image.as_ref().map_or("", |image| image.image.as_str());
        let Some(found) = self.images.find(image) else {
            let message = format!("failed to resolve image {image:?}: not found");
            self.names.retain(|_, holder| *holder != id);
            return Err(error(RpcError::NOT_FOUND, message));
        };
        let image_id = found.id.clone();
        let Some(sandbox) = self.sandboxes.get(&request.pod_sandbox_id) else {
            self.names.retain(|_, holder| *holder != id);
            return Err(not_found("sandbox", &request.pod_sandbox_id));
        };
        let pod = sandbox.metadata();
        let metadata = config.metadata.clone().expect("checked when it was reserved");
        out.facts.push(Fact::ContainerCreated(Box::new(ContainerFact {
            container: id.clone(),
            sandbox: request.pod_sandbox_id.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            name: metadata.name,
            attempt: metadata.attempt,
            image: image.to_owned(),
            created_at: wall,
        })));
        let container = Container {
            sandbox: request.pod_sandbox_id,
            app: App::from_command(&config.command, metadata.attempt),
            config,
            image_id,
            state: cri::ContainerState::ContainerCreated,
            created_at: wall,
            started_at: Wall(0),
            finished_at: Wall(0),
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            termed: false,
        };
        self.containers.insert(id.clone(), container);
        self.lists.changed();
        Ok(cri::CreateContainerResponse { container_id: id })
    }

    pub(super) fn start(&mut self, wall: Wall, id: &str, out: &mut Out) -> Result<(), RpcError> {
        let container = self.containers.get_mut(id).ok_or_else(|| not_found("container", id))?;
        if container.state != cri::ContainerState::ContainerCreated {
            let state = container.state.as_str_name();
            let message = format!(
                "failed to set starting state for container {id:?}: container is in {state} state"
            );
            return Err(error(UNKNOWN, message));
        }
        if !self.sandboxes.get(&container.sandbox).is_some_and(|sandbox| sandbox.ready) {
            let message = format!("sandbox container {:?} is not running", container.sandbox);
            return Err(error(UNKNOWN, message));
        }
        self.lists.changed();
        if container.app.missing {
            container.state = cri::ContainerState::ContainerExited;
            container.exit_code = 128;
            container.finished_at = wall;
            container.reason = "StartError".into();
            container.message =
                "failed to create containerd task: exec: \"app\": executable file not found".into();
            let message = container.message.clone();
            out.facts.push(Fact::ContainerExited {
                container: id.to_owned(),
                exit_code: 128,
                cause: Cause::Itself,
            });
            return Err(error(UNKNOWN, message));
        }
        container.state = cri::ContainerState::ContainerRunning;
        container.started_at = wall;
        if let Some(run) = container.app.run {
            let (exit_code, cause) = (container.app.exit, Cause::Itself);
            out.wakes.push((run, Wake::Exit { container: id.to_owned(), exit_code, cause }));
        }
        out.facts.push(Fact::ContainerStarted { container: id.to_owned() });
        Ok(())
    }

    /// Sends TERM, and KILL when the grace is over. The time until the answer, when it is known now.
    pub(super) fn begin_stop(
        &mut self,
        op: u64,
        id: &str,
        timeout: i64,
        out: &mut Out,
    ) -> Result<Option<Span>, RpcError> {
        let soon = self.dice.millis(1, 5);
        let Some(container) = self.containers.get_mut(id) else {
            return match self.flavour {
                Flavour::Old => Err(not_found("container", id)),
                Flavour::New => Ok(Some(soon)),
            };
        };
        if !container.running() {
            return Ok(Some(soon));
        }
        let exit = |after, exit_code| {
            (after, Wake::Exit { container: id.to_owned(), exit_code, cause: Cause::Stop })
        };
        let Ok(timeout @ 1..) = u64::try_from(timeout) else {
            out.wakes.push(exit(Span::from_millis(20), 137));
            return Ok(None);
        };
        if !container.termed {
            container.termed = true;
            if let Some(after) = container.app.term {
                out.wakes.push(exit(after, container.app.term_exit));
            }
        }
        out.wakes.push((Span::from_secs(timeout), Wake::Kill { container: id.to_owned(), op }));
        Ok(None)
    }

    /// The program ends, if it runs. Whoever waits for that is answered.
    pub(super) fn exit(
        &mut self,
        wall: Wall,
        id: &str,
        exit_code: i32,
        cause: Cause,
        out: &mut Out,
    ) {
        let Some(container) = self.containers.get_mut(id).filter(|c| c.running()) else { return };
        container.state = cri::ContainerState::ContainerExited;
        container.exit_code = exit_code;
        container.finished_at = wall;
        container.reason = if exit_code == 0 { "Completed" } else { "Error" }.into();
        self.lists.changed();
        out.facts.push(Fact::ContainerExited { container: id.to_owned(), exit_code, cause });
        for (op, waits) in &self.ops {
            if matches!(&waits.work, Work::Stop { container, .. } if container == id) {
                out.wakes.push((Span::from_millis(5), Wake::Finish(*op)));
            }
        }
    }

    /// containerd would kill a running container. Here it is refused, so that an agent that leans on
    /// that is found out.
    pub(super) fn remove(&mut self, id: &str, out: &mut Out) -> Result<(), RpcError> {
        let Some(container) = self.containers.get(id) else { return Ok(()) };
        if container.running() {
            let message = format!("container {id:?} is still running, to remove it is refused");
            return Err(error(FAILED_PRECONDITION, message));
        }
        self.forget_container(id, Cause::Remove, out);
        Ok(())
    }

    pub(super) fn forget_container(&mut self, id: &str, cause: Cause, out: &mut Out) {
        if self.containers.remove(id).is_some() {
            self.names.retain(|_, holder| holder != id);
            self.lists.changed();
            out.facts.push(Fact::ContainerRemoved { container: id.to_owned(), cause });
        }
    }

    pub(super) fn running_in(&self, sandbox: &str) -> Vec<String> {
        (self.containers.iter())
            .filter(|(_, container)| container.sandbox == sandbox && container.running())
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(super) fn container_status(
        &self,
        id: &str,
    ) -> Result<cri::ContainerStatusResponse, RpcError> {
        let container = self.containers.get(id).ok_or_else(|| not_found("container", id))?;
        let config = &container.config;
        let sandbox = self.sandboxes.get(&container.sandbox);
        let log_directory = sandbox.map_or("", |sandbox| &sandbox.config.log_directory);
        let status = cri::ContainerStatus {
            id: id.to_owned(),
            metadata: config.metadata.clone(),
            state: container.state as i32,
            created_at: container.created_at.0,
            started_at: container.started_at.0,
            finished_at: container.finished_at.0,
            exit_code: container.exit_code,
            image: config.image.clone(),
            image_ref: container.image_id.clone(),
            reason: container.reason.clone(),
            message: container.message.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: format!("{log_directory}/{}", config.log_path),
            image_id: self.new_only(&container.image_id),
            ..Default::default()
        };
        Ok(cri::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }

    /// A field that only newer runtimes fill in.
    pub(super) fn new_only(&self, value: &str) -> String {
        if self.flavour == Flavour::New { value.to_owned() } else { String::new() }
    }

    pub(super) fn reopen_log(&self, id: &str) -> Result<(), RpcError> {
        match self.containers.get(id) {
            Some(container) if container.running() => Ok(()),
            Some(_) => Err(error(UNKNOWN, "container is not running")),
            None => Err(not_found("container", id)),
        }
    }

    /// A fault: the program ends by itself, or the OOM killer ends it.
    pub fn kill_container(
        &mut self,
        wall: Wall,
        id: &str,
        exit_code: i32,
        reason: &str,
        out: &mut Out,
    ) {
        self.exit(wall, id, exit_code, Cause::Fault, out);
        if let Some(container) = self.containers.get_mut(id)
            && !reason.is_empty()
        {
            container.reason = reason.to_owned();
        }
    }

    /// The agent kills a cgroup, and with it the container.
    pub fn kill_cgroup(&mut self, wall: Wall, id: &str, out: &mut Out) {
        self.exit(wall, id, 137, Cause::Cgroup, out);
    }

    /// A fault: somebody else removes a container, running or not.
    pub fn take_container(&mut self, wall: Wall, id: &str, out: &mut Out) {
        self.exit(wall, id, 137, Cause::Fault, out);
        self.forget_container(id, Cause::Fault, out);
    }

    pub fn containers(&self) -> impl Iterator<Item = (&str, &Container)> {
        self.containers.iter().map(|(id, container)| (id.as_str(), container))
    }

    pub fn container(&self, id: &str) -> Option<&Container> {
        self.containers.get(id)
    }
}
