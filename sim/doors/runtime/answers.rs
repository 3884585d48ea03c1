//! From bytes to work, and from finished work to bytes.

use super::{Answer, Flavour, Out, Runtime, Work};
use bytes::Bytes;
use prost::Message;
use steplet_api::cri;
use steplet_core::event::RpcError;
use steplet_core::settings::CgroupDriver;
use steplet_core::time::Wall;

/// gRPC status codes that `RpcError` has no name for.
pub const UNKNOWN: i32 = 2;
pub const INVALID_ARGUMENT: i32 = 3;
pub const FAILED_PRECONDITION: i32 = 9;

pub fn error(code: i32, message: impl Into<String>) -> RpcError {
    RpcError { code, message: message.into() }
}

pub fn not_found(what: &str, id: &str) -> RpcError {
    let message = format!("an error occurred when try to find {what} {id:?}: not found");
    error(RpcError::NOT_FOUND, message)
}

pub(super) fn read<M: Message + Default>(body: &[u8]) -> Result<M, RpcError> {
    M::decode(body).map_err(|e| error(13, format!("grpc: error unmarshalling request: {e}")))
}

pub(super) fn answer(message: impl Message) -> Answer {
    Ok(Bytes::from(message.encode_to_vec()))
}

fn image_name(spec: Option<cri::ImageSpec>) -> String {
    spec.unwrap_or_default().image
}

/// `method` is the last segment of the path: `ListContainers`.
pub fn decode(method: &str, body: &[u8]) -> Result<Work, RpcError> {
    let id = String::new;
    Ok(match method {
        "Version" => Work::Version,
        "Status" => Work::Status,
        "RuntimeConfig" => Work::RuntimeConfig,
        "UpdateRuntimeConfig" => Work::UpdateRuntimeConfig(read(body)?),
        "RunPodSandbox" => Work::RunSandbox { sandbox: id(), request: Box::new(read(body)?) },
        "StopPodSandbox" => {
            let request: cri::StopPodSandboxRequest = read(body)?;
            Work::StopSandbox { sandbox: request.pod_sandbox_id }
        }
        "RemovePodSandbox" => {
            let request: cri::RemovePodSandboxRequest = read(body)?;
            Work::RemoveSandbox { sandbox: request.pod_sandbox_id }
        }
        "PodSandboxStatus" => {
            let request: cri::PodSandboxStatusRequest = read(body)?;
            Work::SandboxStatus { sandbox: request.pod_sandbox_id }
        }
        "ListPodSandbox" => Work::ListSandboxes(read(body)?),
        "CreateContainer" => Work::Create { container: id(), request: Box::new(read(body)?) },
        "StartContainer" => {
            let request: cri::StartContainerRequest = read(body)?;
            Work::Start { container: request.container_id }
        }
        "StopContainer" => {
            let request: cri::StopContainerRequest = read(body)?;
            Work::Stop { container: request.container_id, timeout: request.timeout }
        }
        "RemoveContainer" => {
            let request: cri::RemoveContainerRequest = read(body)?;
            Work::Remove { container: request.container_id }
        }
        "ContainerStatus" => {
            let request: cri::ContainerStatusRequest = read(body)?;
            Work::ContainerStatus { container: request.container_id }
        }
        "ListContainers" => Work::ListContainers(read(body)?),
        "ReopenContainerLog" => {
            let request: cri::ReopenContainerLogRequest = read(body)?;
            Work::ReopenLog { container: request.container_id }
        }
        "PullImage" => Work::Pull { image: image_name(read::<cri::PullImageRequest>(body)?.image) },
        "ImageStatus" => {
            Work::ImageStatus { image: image_name(read::<cri::ImageStatusRequest>(body)?.image) }
        }
        "ListImages" => Work::ListImages(read(body)?),
        "RemoveImage" => {
            Work::RemoveImage { image: image_name(read::<cri::RemoveImageRequest>(body)?.image) }
        }
        "ImageFsInfo" => Work::ImageFs,
        _ => return super::streaming::decode(method, body),
    })
}

pub(super) fn unimplemented(method: &str) -> RpcError {
    error(RpcError::UNIMPLEMENTED, format!("unknown method {method} for service runtime.v1"))
}

impl Runtime {
    /// The end of an operation: the state changes and the answer is made.
    pub(super) fn conclude(&mut self, wall: Wall, work: Work, out: &mut Out) -> Answer {
        match work {
            Work::Version => answer(cri::VersionResponse {
                version: "0.1.0".into(),
                runtime_name: "containerd".into(),
                runtime_version: self.pick("1.6.20", "2.2.9").into(),
                runtime_api_version: "v1".into(),
            }),
            Work::Status => answer(self.status()),
            Work::RuntimeConfig => self.runtime_config(),
            Work::UpdateRuntimeConfig(request) => {
                let network = request.runtime_config.and_then(|config| config.network_config);
                self.pod_cidr = network.unwrap_or_default().pod_cidr;
                answer(cri::UpdateRuntimeConfigResponse {})
            }
            Work::RunSandbox { sandbox, request } => {
                self.run_sandbox(wall, sandbox, *request, out).and_then(answer)
            }
            Work::StopSandbox { sandbox } => {
                self.stop_sandbox(wall, &sandbox, out).and_then(|()| answer(()))
            }
            Work::RemoveSandbox { sandbox } => {
                self.remove_sandbox(&sandbox, out).and_then(|()| answer(()))
            }
            Work::SandboxStatus { sandbox } => self.sandbox_status(&sandbox).and_then(answer),
            Work::ListSandboxes(request) => Ok(self.list_sandboxes(&request)),
            Work::Create { container, request } => {
                self.create(wall, container, *request, out).and_then(answer)
            }
            Work::Start { container } => {
                self.start(wall, &container, out).and_then(|()| answer(()))
            }
            Work::Stop { .. } => answer(()),
            Work::Remove { container } => self.remove(&container, out).and_then(|()| answer(())),
            Work::ContainerStatus { container } => {
                self.container_status(&container).and_then(answer)
            }
            Work::ListContainers(request) => Ok(self.list_containers(&request)),
            Work::ReopenLog { container } => self.reopen_log(&container).and_then(|()| answer(())),
            Work::Pull { image } => self
                .images
                .pull(&image, out)
                .map(|image_ref| cri::PullImageResponse { image_ref })
                .and_then(answer),
            Work::ImageStatus { image } => answer(cri::ImageStatusResponse {
                image: self.images.find(&image).cloned(),
                ..Default::default()
            }),
            Work::ListImages(request) => answer(self.images.list(&request)),
            Work::RemoveImage { image } => {
                self.images.remove(&image);
                answer(())
            }
            Work::ImageFs => answer(self.images.filesystem(wall)),
            Work::Streaming(work) => self.serve(&work),
            Work::Known(answer) => answer,
        }
    }

    fn runtime_config(&self) -> Answer {
        if self.flavour == Flavour::Old {
            return Err(unimplemented("RuntimeConfig"));
        }
        let driver = match self.driver {
            CgroupDriver::Systemd => cri::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => cri::CgroupDriver::Cgroupfs,
        };
        let linux = Some(cri::LinuxRuntimeConfiguration { cgroup_driver: driver as i32 });
        answer(cri::RuntimeConfigResponse { linux })
    }

    fn pick(&self, old: &'static str, new: &'static str) -> &'static str {
        if self.flavour == Flavour::Old { old } else { new }
    }

    fn status(&self) -> cri::StatusResponse {
        let condition = |name: &str, status: bool, reason: &str, message: &str| {
            let (reason, message) = if status { ("", "") } else { (reason, message) };
            cri::RuntimeCondition {
                r#type: name.into(),
                status,
                reason: reason.into(),
                message: message.into(),
            }
        };
        let network = condition(
            "NetworkReady",
            !self.network_down,
            "NetworkPluginNotReady",
            "Network plugin returns error: cni plugin not initialized",
        );
        cri::StatusResponse {
            status: Some(cri::RuntimeStatus {
                conditions: vec![condition("RuntimeReady", true, "", ""), network],
            }),
            ..Default::default()
        }
    }
}
