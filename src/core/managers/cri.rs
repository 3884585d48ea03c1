//! The runtime's calls as effects: path, body, deadline. And the labels by which its answers name pods.

use crate::effect::{Call, Content, Peer, Place, Rpc, SealedText};
use crate::event::RpcError;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::time::Span;
use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use prost::Message;
use steplet_api::cri::{CreateContainerRequest, PullImageRequest};

pub const LABEL_POD_NAME: &str = "io.kubernetes.pod.name";
pub const LABEL_POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub const LABEL_POD_UID: &str = "io.kubernetes.pod.uid";
pub const LABEL_CONTAINER_NAME: &str = "io.kubernetes.container.name";
pub const HASH: &str = "io.kubernetes.container.hash";
pub const TERMINATION_PATH: &str = "io.kubernetes.container.terminationMessagePath";
pub const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
pub const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";

macro_rules! runtime {
    ($($name:ident = $method:literal),* $(,)?) => {
        $(pub const $name: &str = concat!("/runtime.v1.RuntimeService/", $method);)*
    };
}
macro_rules! images {
    ($($name:ident = $method:literal),* $(,)?) => {
        $(pub const $name: &str = concat!("/runtime.v1.ImageService/", $method);)*
    };
}

runtime! {
    VERSION = "Version", STATUS = "Status", RUNTIME_CONFIG = "RuntimeConfig",
    UPDATE_RUNTIME_CONFIG = "UpdateRuntimeConfig",
    RUN_POD_SANDBOX = "RunPodSandbox", STOP_POD_SANDBOX = "StopPodSandbox",
    REMOVE_POD_SANDBOX = "RemovePodSandbox", POD_SANDBOX_STATUS = "PodSandboxStatus",
    LIST_POD_SANDBOX = "ListPodSandbox",
    CREATE_CONTAINER = "CreateContainer", START_CONTAINER = "StartContainer",
    STOP_CONTAINER = "StopContainer", REMOVE_CONTAINER = "RemoveContainer",
    LIST_CONTAINERS = "ListContainers", CONTAINER_STATUS = "ContainerStatus",
    EXEC = "Exec", ATTACH = "Attach", PORT_FORWARD = "PortForward", EXEC_SYNC = "ExecSync",
    CHECKPOINT_CONTAINER = "CheckpointContainer",
}
images! { IMAGE_STATUS = "ImageStatus", PULL_IMAGE = "PullImage", LIST_IMAGES = "ListImages",
IMAGE_FS_INFO = "ImageFsInfo" }

/// A call to the runtime service with its deadline.
pub fn call(path: &'static str, body: &impl Message, within: Span) -> Call {
    rpc(Peer::Runtime, path, body, Some(within), false)
}

/// The call that makes a container, with what the door puts in.
pub fn create_container(
    body: &CreateContainerRequest,
    within: Span,
    sealed: Vec<SealedText>,
) -> Call {
    match call(CREATE_CONTAINER, body, within) {
        Call::Rpc(rpc) => Call::Rpc(Rpc { sealed, ..rpc }),
        other => other,
    }
}

/// Waits for ever. `configs`: docker configurations that may hold a login.
pub fn pull_image(body: &PullImageRequest, configs: Vec<Content>) -> Call {
    let login = SealedText { place: Place::Login, parts: configs };
    let sealed = if login.parts.is_empty() { Vec::new() } else { [login].into() };
    match image_call(PULL_IMAGE, body, None) {
        Call::Rpc(rpc) => Call::Rpc(Rpc { sealed, ..rpc }),
        other => other,
    }
}

/// A list whose answer may be `Same` as the last one.
pub fn list(path: &'static str, body: &impl Message, within: Span, same: bool) -> Call {
    rpc(Peer::Runtime, path, body, Some(within), same)
}

/// A call to the image service; None waits for ever.
pub fn image_call(path: &'static str, body: &impl Message, within: Option<Span>) -> Call {
    rpc(Peer::Images, path, body, within, false)
}

fn rpc(
    peer: Peer,
    path: &'static str,
    body: &impl Message,
    within: Option<Span>,
    same_as_last: bool,
) -> Call {
    let body = Bytes::from(body.encode_to_vec());
    let sealed = Vec::new();
    Call::Rpc(Rpc { peer, path: Cow::Borrowed(path), body, within, same_as_last, sealed })
}

/// Reads an answer; one that does not decode counts as an error of the runtime.
pub fn answer<M: Message + Default>(outcome: crate::event::Outcome) -> Result<M, RpcError> {
    match outcome {
        crate::event::Outcome::Rpc(Ok(body)) => M::decode(body)
            .map_err(|e| RpcError { code: INTERNAL, message: nonsense(&e.to_string()) }),
        crate::event::Outcome::Rpc(Err(mut error)) => {
            cut(&mut error.message, MESSAGE_BYTES_MAX);
            Err(error)
        }
        _ => Err(RpcError { code: INTERNAL, message: nonsense("not an RPC answer") }),
    }
}

/// Cuts a text at a character's boundary, at most `most` bytes long.
pub fn cut(text: &mut alloc::string::String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

const INTERNAL: i32 = 13;

fn nonsense(what: &str) -> alloc::string::String {
    alloc::format!("the runtime answered nonsense: {what}")
}
