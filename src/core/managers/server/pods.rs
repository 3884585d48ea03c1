//! The JSON documents: `/pods`, `/runningpods/`, `/configz`. Pure.

use crate::facts::Facts;
use crate::managers::pods::view::{ContainerState, ContainerView};
use alloc::boxed::Box;
use alloc::vec::Vec;
use steplet_api::container::Container;
use steplet_api::pod::{Pod, PodList};

/// Every configured pod with its last status. Each is written in turn: the list is never held as objects.
pub(super) fn pod_list(facts: &Facts) -> Vec<u8> {
    let mut out = Vec::from(&br#"{"apiVersion":"v1","items":["#[..]);
    for (index, (uid, pod)) in facts.sources.pods().iter().enumerate() {
        let mut shown = Pod::clone(pod);
        if let Some(status) = facts.statuses.status(uid) {
            shown.status = status.clone();
        }
        if index > 0 {
            out.push(b',');
        }
        out.extend(serde_json::to_vec(&shown).expect("a pod always encodes"));
    }
    out.extend(br#"],"kind":"PodList","metadata":{}}"#);
    out
}

/// What runs, by the runtime alone: names and images.
pub(super) fn running_pods(facts: &Facts) -> Vec<u8> {
    let mut items = Vec::new();
    for (uid, view) in facts.pleg.views() {
        if !view.alive() {
            continue;
        }
        let mut pod = Pod::default();
        pod.metadata.name = view.name.clone();
        pod.metadata.namespace = view.namespace.clone();
        pod.metadata.uid = uid.0.clone();
        let running = |c: &&ContainerView| c.state == ContainerState::Running;
        pod.spec.containers = view.containers.iter().filter(running).map(container).collect();
        items.push(pod);
    }
    let (api_version, kind) = (Box::from("v1"), Box::from("PodList"));
    let list = PodList { api_version, kind, items, ..PodList::default() };
    serde_json::to_vec(&list).expect("a list of pods always encodes")
}

fn container(shown: &ContainerView) -> Container {
    Container { name: shown.name.clone(), image: shown.image_ref.clone(), ..Container::default() }
}

pub(super) fn configz(facts: &Facts) -> Vec<u8> {
    let mut out = Vec::from(&br#"{"kubeletconfig":"#[..]);
    out.extend_from_slice(&facts.settings().configz);
    out.push(b'}');
    out
}
