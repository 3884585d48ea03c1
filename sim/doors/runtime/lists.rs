//! ListPodSandbox and ListContainers: what the agent asks each second.
//!
//! A real runtime lists in the order of a Go map, and the agent's door puts entries in order by id.
//! Ids here are random, so a list in order of ids is in no order of age or pod.

use super::Runtime;
use super::containers::Container;
use super::sandboxes::{self, Sandbox};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use steplet_api::cri;

/// The last answers, for as long as nothing has changed.
#[derive(Debug, Default)]
pub struct Lists {
    sandboxes: Option<Bytes>,
    containers: Option<Bytes>,
}

impl Lists {
    pub fn changed(&mut self) {
        self.sandboxes = None;
        self.containers = None;
    }

    pub fn forget(&mut self) {
        self.changed();
    }
}

fn selected(labels: &BTreeMap<String, String>, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Runtime {
    pub(super) fn list_sandboxes(&mut self, request: &cri::ListPodSandboxRequest) -> Bytes {
        let whole = request.filter.is_none();
        if let Some(last) = self.lists.sandboxes.clone().filter(|_| whole) {
            return last;
        }
        let filter = request.filter.clone().unwrap_or_default();
        let items = (self.sandboxes.iter())
            .filter(|(id, sandbox)| {
                id.starts_with(&filter.id)
                    && filter.state.is_none_or(|want| want.state == sandboxes::state(sandbox))
                    && selected(&sandbox.config.labels, &filter.label_selector)
            })
            .map(|(id, sandbox)| entry(id, sandbox))
            .collect();
        let bytes = Bytes::from(cri::ListPodSandboxResponse { items }.encode_to_vec());
        if whole {
            self.lists.sandboxes = Some(bytes.clone());
        }
        bytes
    }

    pub(super) fn list_containers(&mut self, request: &cri::ListContainersRequest) -> Bytes {
        let whole = request.filter.is_none();
        if let Some(last) = self.lists.containers.clone().filter(|_| whole) {
            return last;
        }
        let filter = request.filter.clone().unwrap_or_default();
        let containers = (self.containers.iter())
            .filter(|(id, container)| {
                id.starts_with(&filter.id)
                    && container.sandbox.starts_with(&filter.pod_sandbox_id)
                    && filter.state.is_none_or(|want| want.state == container.state as i32)
                    && selected(&container.config.labels, &filter.label_selector)
            })
            .map(|(id, container)| self.container_entry(id, container))
            .collect();
        let bytes = Bytes::from(cri::ListContainersResponse { containers }.encode_to_vec());
        if whole {
            self.lists.containers = Some(bytes.clone());
        }
        bytes
    }

    fn container_entry(&self, id: &str, container: &Container) -> cri::Container {
        cri::Container {
            id: id.to_owned(),
            pod_sandbox_id: container.sandbox.clone(),
            metadata: container.config.metadata.clone(),
            image: container.config.image.clone(),
            image_ref: container.image_id.clone(),
            state: container.state as i32,
            created_at: container.created_at.0,
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            image_id: self.new_only(&container.image_id),
        }
    }
}

fn entry(id: &str, sandbox: &Sandbox) -> cri::PodSandbox {
    cri::PodSandbox {
        id: id.to_owned(),
        metadata: sandbox.config.metadata.clone(),
        state: sandboxes::state(sandbox),
        created_at: sandbox.created_at.0,
        labels: sandbox.config.labels.clone(),
        annotations: sandbox.config.annotations.clone(),
        runtime_handler: sandbox.handler.clone(),
    }
}
