//! What all pods request must fit into what the node may give away (Node.status.allocatable).
//!
//! Upstream: Fits in pkg/scheduler/framework/plugins/noderesources, as pkg/kubelet/lifecycle/predicate.go asks it
//! (v1.36).

use super::{No, Requests};
use crate::managers::containers::resources::{cpu_milli, memory_bytes};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use steplet_api::pod::{Pod, ResourceList, resource};
use steplet_api::pod_facts::{effective_requests, is_extended_resource};
use steplet_api::quantity::Quantity;

pub fn count(used: usize, most: u32) -> Result<(), No> {
    if used < most as usize {
        return Ok(());
    }
    let text = "Node didn't have enough resource: pods, requested: 1";
    let message = format!("{text}, used: {used}, capacity: {most}");
    Err(No { reason: "OutOfpods".into(), message })
}

/// The first of these that there is too little of, in upstream's order.
pub fn room(
    pod: &Pod,
    others: &[(&Pod, Requests)],
    allocatable: &ResourceList,
    offered: &BTreeMap<Box<str>, Quantity>,
) -> Result<(), No> {
    let asked = effective_requests(&pod.spec);
    let native = [resource::CPU, resource::MEMORY, resource::EPHEMERAL_STORAGE];
    let more = asked.keys().map(|name| &**name).filter(|name| !native.contains(name));
    for name in native.into_iter().chain(more) {
        let requested = amount(name, &asked);
        let capacity = match (allocatable.get(name), offered.get(name)) {
            (Some(own), _) => of(name, own),
            // Of what plugins or people offer on this node the Node has the account.
            (None, Some(offered)) if is_extended_resource(name) => of(name, offered),
            (None, _) if name.starts_with(resource::HUGEPAGES_PREFIX) => 0,
            // Nobody knows how much there is.
            (None, _) => continue,
        };
        if requested <= 0 {
            continue;
        }
        let used = others.iter().map(|(other, requests)| match name {
            resource::CPU => requests.cpu_milli,
            resource::MEMORY => requests.memory_bytes,
            _ => amount(name, &effective_requests(&other.spec)),
        });
        let used = used.fold(0, i64::saturating_add);
        if requested > capacity.saturating_sub(used) {
            let text = format!("Node didn't have enough resource: {name}, requested: {requested}");
            let message = format!("{text}, used: {used}, capacity: {capacity}");
            return Err(No { reason: format!("OutOf{name}").into(), message });
        }
    }
    Ok(())
}

/// Thousandths of a CPU, else bytes or pieces.
fn amount(name: &str, list: &ResourceList) -> i64 {
    match name {
        resource::CPU => cpu_milli(list),
        resource::MEMORY => memory_bytes(list),
        _ => list.get(name).map_or(0, Quantity::value),
    }
}

fn of(name: &str, quantity: &Quantity) -> i64 {
    if name == resource::CPU { quantity.milli_value() } else { quantity.value() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use alloc::vec::Vec;

    fn asking(requests: &str) -> Pod {
        pod(&format!(
            r#"{{"containers":[{{"name":"c","image":"i","resources":{{"requests":{requests}}}}}]}}"#
        ))
    }

    #[test]
    fn what_fits_and_what_does_not() {
        let list = |json| serde_json::from_str::<ResourceList>(json).expect("amounts");
        let own = list(
            r#"{"cpu":"3500m","memory":"800Mi","hugepages-2Mi":"100Mi","ephemeral-storage":"1Gi"}"#,
        );
        let offered = list(r#"{"cpu":"90","example.com/gpu":"2","kubernetes.io/odd":"1"}"#);
        let check = |asked: &str, there: &[&str], want: Option<(&str, &str)>| {
            let others: Vec<Pod> = there.iter().map(|requests| asking(requests)).collect();
            let others: Vec<_> = others.iter().map(|pod| (pod, Requests::of(pod))).collect();
            let got = room(&asking(asked), &others, &own, &offered).err();
            let got = got.map(|no| (no.reason.into_owned(), no.message));
            let text = |(reason, rest): (&str, &str)| {
                (reason.into(), format!("Node didn't have enough resource: {rest}"))
            };
            assert_eq!(got, want.map(text), "{asked} {there:?}");
        };
        check("{}", &[r#"{"cpu":"4","memory":"1Gi"}"#], None);
        check(r#"{"cpu":"3500m","memory":"800Mi","hugepages-2Mi":"100Mi"}"#, &[], None);
        let cpu = ("OutOfcpu", "cpu, requested: 3501, used: 0, capacity: 3500");
        check(r#"{"cpu":"3501m"}"#, &[], Some(cpu));
        check(r#"{"cpu":"3501m","memory":"1Gi"}"#, &[], Some(cpu));
        let cpu = ("OutOfcpu", "cpu, requested: 1, used: 4500, capacity: 3500");
        check(r#"{"cpu":"1m"}"#, &[r#"{"cpu":"3"}"#, r#"{"cpu":"1500m"}"#], Some(cpu));
        let memory = "memory, requested: 524288000, used: 419430400, capacity: 838860800";
        let there = [r#"{"memory":"300Mi"}"#, r#"{"memory":"100Mi","cpu":"1"}"#];
        check(r#"{"memory":"500Mi"}"#, &there, Some(("OutOfmemory", memory)));
        check(r#"{"memory":"400Mi","cpu":"2500m"}"#, &there, None);
        let pages = "hugepages-2Mi, requested: 106954752, used: 0, capacity: 104857600";
        check(r#"{"hugepages-2Mi":"102Mi"}"#, &[], Some(("OutOfhugepages-2Mi", pages)));
        let pages = "hugepages-1Gi, requested: 1073741824, used: 0, capacity: 0";
        check(r#"{"hugepages-1Gi":"1Gi"}"#, &[], Some(("OutOfhugepages-1Gi", pages)));
        let disk = "ephemeral-storage, requested: 1073741825, used: 0, capacity: 1073741824";
        let full = Some(("OutOfephemeral-storage", disk));
        check(r#"{"ephemeral-storage":"1073741825"}"#, &[], full);
        let gpu = "example.com/gpu, requested: 2, used: 1, capacity: 2";
        let one = r#"{"example.com/gpu":"1"}"#;
        check(r#"{"example.com/gpu":"2"}"#, &[one], Some(("OutOfexample.com/gpu", gpu)));
        check(one, &[one], None);
        // What the node has never heard of is somebody else's affair.
        check(r#"{"example.com/fpga":"1"}"#, &[], None);
    }
}
