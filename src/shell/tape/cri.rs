//! CRI messages by the name of their call: as JSON, back from it, and answers in a few words.

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steplet_api::cri::*;

/// A message type of one direction of a call.
#[derive(Clone, Copy)]
pub struct Form {
    /// None when the bytes are not such a message.
    pub to_json: fn(&[u8]) -> Option<Value>,
    /// The encoding of a message given as JSON; missing fields have their defaults.
    pub from_json: fn(&Value) -> Result<Vec<u8>, serde_json::Error>,
}

pub struct Method {
    name: &'static str,
    pub request: Form,
    pub response: Form,
}

const fn form<M: Message + Default + Serialize + DeserializeOwned>() -> Form {
    fn to_json<M: Message + Default + Serialize>(bytes: &[u8]) -> Option<Value> {
        serde_json::to_value(M::decode(bytes).ok()?).ok()
    }
    fn from_json<M: Message + DeserializeOwned>(
        value: &Value,
    ) -> Result<Vec<u8>, serde_json::Error> {
        M::deserialize(value).map(|message: M| message.encode_to_vec())
    }
    Form { to_json: to_json::<M>, from_json: from_json::<M> }
}

macro_rules! methods {
    ($($name:literal $request:ty => $response:ty),* $(,)?) => {
        &[$(Method { name: $name, request: form::<$request>(), response: form::<$response>() }),*]
    };
}

/// The calls that the agent makes; tests/protogen has the same list.
static METHODS: &[Method] = methods![
    "ContainerStatus" ContainerStatusRequest => ContainerStatusResponse,
    "CreateContainer" CreateContainerRequest => CreateContainerResponse,
    "ImageFsInfo" ImageFsInfoRequest => ImageFsInfoResponse,
    "ImageStatus" ImageStatusRequest => ImageStatusResponse,
    "ListContainers" ListContainersRequest => ListContainersResponse,
    "ListImages" ListImagesRequest => ListImagesResponse,
    "ListPodSandbox" ListPodSandboxRequest => ListPodSandboxResponse,
    "PodSandboxStatus" PodSandboxStatusRequest => PodSandboxStatusResponse,
    "PullImage" PullImageRequest => PullImageResponse,
    "RemoveContainer" RemoveContainerRequest => RemoveContainerResponse,
    "RemoveImage" RemoveImageRequest => RemoveImageResponse,
    "RemovePodSandbox" RemovePodSandboxRequest => RemovePodSandboxResponse,
    "ReopenContainerLog" ReopenContainerLogRequest => ReopenContainerLogResponse,
    "RunPodSandbox" RunPodSandboxRequest => RunPodSandboxResponse,
    "RuntimeConfig" RuntimeConfigRequest => RuntimeConfigResponse,
    "StartContainer" StartContainerRequest => StartContainerResponse,
    "Status" StatusRequest => StatusResponse,
    "StopContainer" StopContainerRequest => StopContainerResponse,
    "StopPodSandbox" StopPodSandboxRequest => StopPodSandboxResponse,
    "UpdateContainerResources"
        UpdateContainerResourcesRequest => UpdateContainerResourcesResponse,
    "UpdateRuntimeConfig" UpdateRuntimeConfigRequest => UpdateRuntimeConfigResponse,
    "Version" VersionRequest => VersionResponse,
];

/// `path` is a gRPC path, or the name of the method alone.
pub fn method(path: &str) -> Option<&'static Method> {
    let name = short(path);
    METHODS.iter().find(|method| method.name == name)
}

/// `/runtime.v1.RuntimeService/ListContainers` is `ListContainers`.
pub fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What an answer says, for one line.
pub fn answer_words(path: &str, bytes: &[u8]) -> Option<String> {
    Some(match short(path) {
        "Version" => {
            let it = VersionResponse::decode(bytes).ok()?;
            format!("{} {}", it.runtime_name, it.runtime_version)
        }
        "Status" => status_words(StatusResponse::decode(bytes).ok()?),
        "ListPodSandbox" => {
            let items = ListPodSandboxResponse::decode(bytes).ok()?.items;
            let ready = items.iter().filter(|s| s.state() == PodSandboxState::SandboxReady).count();
            format!("{} sandboxes, {ready} ready", items.len())
        }
        "ListContainers" => {
            let all = ListContainersResponse::decode(bytes).ok()?.containers;
            let running = |c: &&Container| c.state() == ContainerState::ContainerRunning;
            format!("{} containers, {} running", all.len(), all.iter().filter(running).count())
        }
        "RunPodSandbox" => id(&RunPodSandboxResponse::decode(bytes).ok()?.pod_sandbox_id),
        "CreateContainer" => id(&CreateContainerResponse::decode(bytes).ok()?.container_id),
        "PodSandboxStatus" => {
            sandbox_words(PodSandboxStatusResponse::decode(bytes).ok()?.status.unwrap_or_default())
        }
        "ContainerStatus" => {
            container_words(ContainerStatusResponse::decode(bytes).ok()?.status.unwrap_or_default())
        }
        "ImageStatus" => match ImageStatusResponse::decode(bytes).ok()?.image {
            Some(image) => format!("present, {}", id(&image.id)),
            None => "absent".into(),
        },
        "PullImage" => id(&PullImageResponse::decode(bytes).ok()?.image_ref),
        "ListImages" => {
            format!("{} images", ListImagesResponse::decode(bytes).ok()?.images.len())
        }
        _ => "ok".into(),
    })
}

fn status_words(it: StatusResponse) -> String {
    let conditions = it.status.unwrap_or_default().conditions;
    let words = conditions.iter().map(|c| match (c.status, c.reason.as_str()) {
        (true, _) => c.r#type.clone(),
        (false, "") => format!("not {}", c.r#type),
        (false, reason) => format!("not {}: {reason}", c.r#type),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn sandbox_words(it: PodSandboxStatus) -> String {
    let ready = match it.state() {
        PodSandboxState::SandboxReady => "ready",
        PodSandboxState::SandboxNotready => "not ready",
    };
    let meta = it.metadata.unwrap_or_default();
    let ip = it.network.unwrap_or_default().ip;
    let ip = if ip.is_empty() { ip } else { format!(", {ip}") };
    format!("{}/{} attempt {} {ready}{ip}", meta.namespace, meta.name, meta.attempt)
}

fn container_words(it: ContainerStatus) -> String {
    let state = match it.state() {
        ContainerState::ContainerCreated => "created".into(),
        ContainerState::ContainerRunning => "running".into(),
        ContainerState::ContainerExited => format!("exited {} {}", it.exit_code, it.reason),
        ContainerState::ContainerUnknown => "unknown".into(),
    };
    let meta = it.metadata.unwrap_or_default();
    format!("{} attempt {} {}", meta.name, meta.attempt, state.trim_end())
}

/// What a call asks for, beyond its name; empty when that says it all.
pub fn request_words(path: &str, bytes: &[u8]) -> Option<String> {
    Some(match short(path) {
        "RunPodSandbox" => {
            let config = RunPodSandboxRequest::decode(bytes).ok()?.config.unwrap_or_default();
            let meta = config.metadata.unwrap_or_default();
            format!("{}/{} attempt {}", meta.namespace, meta.name, meta.attempt)
        }
        "CreateContainer" => {
            let it = CreateContainerRequest::decode(bytes).ok()?;
            let meta = it.config.unwrap_or_default().metadata.unwrap_or_default();
            format!("{} attempt {} in {}", meta.name, meta.attempt, id(&it.pod_sandbox_id))
        }
        "StopContainer" => {
            let it = StopContainerRequest::decode(bytes).ok()?;
            format!("{} grace {}s", id(&it.container_id), it.timeout)
        }
        "StartContainer" => id(&StartContainerRequest::decode(bytes).ok()?.container_id),
        "RemoveContainer" => id(&RemoveContainerRequest::decode(bytes).ok()?.container_id),
        "ContainerStatus" => id(&ContainerStatusRequest::decode(bytes).ok()?.container_id),
        "StopPodSandbox" => id(&StopPodSandboxRequest::decode(bytes).ok()?.pod_sandbox_id),
        "RemovePodSandbox" => id(&RemovePodSandboxRequest::decode(bytes).ok()?.pod_sandbox_id),
        "PodSandboxStatus" => id(&PodSandboxStatusRequest::decode(bytes).ok()?.pod_sandbox_id),
        "PullImage" => PullImageRequest::decode(bytes).ok()?.image.unwrap_or_default().image,
        "ImageStatus" => ImageStatusRequest::decode(bytes).ok()?.image.unwrap_or_default().image,
        _ => String::new(),
    })
}

/// The first characters of an id, as crictl shows it.
fn id(id: &str) -> String {
    let (kind, hex) = id.split_once(':').filter(|(k, _)| *k == "sha256").unwrap_or(("", id));
    let long = hex.len() > 13 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let short = if long { &hex[..13] } else { hex };
    if kind.is_empty() { short.into() } else { format!("{kind}:{short}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_go_to_json_and_back() {
        let list = method("/runtime.v1.RuntimeService/ListContainers").unwrap();
        let bytes = ListContainersResponse {
            containers: vec![Container {
                id: "ab".into(),
                labels: [("app".into(), "web".into())].into(),
                ..Container::default()
            }],
        }
        .encode_to_vec();
        let value = (list.response.to_json)(&bytes).unwrap();
        assert_eq!(value["containers"][0]["labels"]["app"], "web");
        assert_eq!((list.response.from_json)(&value).unwrap(), bytes);
        let short = json!({"containers": [{"id": "ab", "labels": {"app": "web"}}]});
        assert_eq!((list.response.from_json)(&short).unwrap(), bytes);
        assert!((list.response.from_json)(&json!({"containers": 7})).is_err());
        assert_eq!((list.response.to_json)(&[0xff]), None);
    }

    #[test]
    fn every_method_is_found_by_its_path() {
        for it in METHODS {
            assert!(method(&format!("/runtime.v1.RuntimeService/{}", it.name)).is_some());
            assert!((it.request.to_json)(&[]).is_some() && (it.response.to_json)(&[]).is_some());
            assert!(answer_words(it.name, &[]).is_some(), "{}", it.name);
            assert!(answer_words(it.name, &[0x0a, 0x7f]).is_none_or(|words| words == "ok"));
        }
        assert!(method("/runtime.v1.RuntimeService/Exec").is_none());
    }

    #[test]
    fn answers_read_like_kubernetes() {
        let check = |name, bytes: Vec<u8>, want: &str| {
            assert_eq!(answer_words(name, &bytes).as_deref(), Some(want));
        };
        let condition = |kind: &str, status, reason: &str| RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: reason.into(),
            ..Default::default()
        };
        let status = StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![
                    condition("RuntimeReady", true, ""),
                    condition("NetworkReady", false, "NetworkPluginNotReady"),
                ],
            }),
            ..Default::default()
        };
        check(
            "Status",
            status.encode_to_vec(),
            "RuntimeReady, not NetworkReady: NetworkPluginNotReady",
        );
        let mut container = ContainerStatus {
            metadata: Some(ContainerMetadata { name: "web".into(), attempt: 2 }),
            exit_code: 137,
            reason: "OOMKilled".into(),
            ..Default::default()
        };
        container.set_state(ContainerState::ContainerExited);
        let answer = ContainerStatusResponse { status: Some(container), ..Default::default() };
        check("ContainerStatus", answer.encode_to_vec(), "web attempt 2 exited 137 OOMKilled");
        let id = "0123456789abcdef0123456789abcdef".into();
        let answer = CreateContainerResponse { container_id: id };
        check("CreateContainer", answer.encode_to_vec(), "0123456789abc");
    }
}
