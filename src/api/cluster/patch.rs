//! Strategic merge patches: the way from one object to another, as the API server takes it.
//!
//! Lists are replaced as a whole, but for those that are merged by a key of their elements.
//! Upstream: k8s.io/apimachinery/pkg/util/strategicpatch (1.36).

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value, json};

/// Lists that are merged, each by its path (`status.conditions`) and the key of its elements.
pub type MergeKeys = [(&'static str, &'static str)];

/// Of a node.
pub const NODE_STATUS_KEYS: &MergeKeys =
    &[("status.addresses", "type"), ("status.conditions", "type")];
/// Of a pod.
pub const POD_STATUS_KEYS: &MergeKeys = &[
    ("status.conditions", "type"),
    ("status.hostIPs", "ip"),
    ("status.podIPs", "ip"),
    ("status.resourceClaimStatuses", "name"),
];

/// What makes `old` equal to `new`; `None` when nothing does, since they are.
pub fn merge_patch(old: &Value, new: &Value, keys: &MergeKeys) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let patch = merge_maps(old, new, "", keys);
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        _ => (old != new).then(|| new.clone()),
    }
}

fn merge_maps(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    path: &str,
    keys: &MergeKeys,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, value) in new {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let key = keys.iter().find(|(list, _)| *list == place).map(|(_, key)| *key);
        match (old.get(name), value, key) {
            (Some(before), _, _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after), _) => {
                let inner = merge_maps(before, after, &place, keys);
                if !inner.is_empty() {
                    patch.insert(name.clone(), Value::Object(inner));
                }
            }
            (before, Value::Array(after), Some(key)) => {
                let before = before.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                merge_lists(&mut patch, name, before, after, key);
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    for (name, before) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
        let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let key = keys.iter().find(|(list, _)| *list == place).map(|(_, key)| *key);
        match (before, key) {
            (Value::Array(before), Some(key)) => merge_lists(&mut patch, name, before, &[], key),
            _ => {
                patch.insert(name.clone(), Value::Null);
            }
        }
    }
    patch
}

/// The elements that are new or changed, those to delete, and the order of all.
fn merge_lists(
    patch: &mut Map<String, Value>,
    name: &str,
    old: &[Value],
    new: &[Value],
    key: &str,
) {
    let same = |a: &&Value, b: &Value| a.get(key) == b.get(key);
    let mut changes = Vec::new();
    for element in new {
        match (old.iter().find(|other| same(other, element)), element) {
            (Some(before), _) if before == element => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                let mut change = merge_maps(before, after, "\u{0}", &[]);
                change.insert(key.into(), element[key].clone());
                changes.push(Value::Object(change));
            }
            _ => changes.push(element.clone()),
        }
    }
    let gone = old.iter().filter(|before| !new.iter().any(|after| same(before, after)));
    changes.extend(gone.map(|before| json!({ "$patch": "delete", key: before[key] })));
    if changes.is_empty() && old.len() == new.len() {
        // The order alone is no reason to write.
        return;
    }
    let order: Vec<Value> = new.iter().map(|element| json!({ key: element[key] })).collect();
    patch.insert(format!("$setElementOrder/{name}"), Value::Array(order));
    if !changes.is_empty() {
        patch.insert(name.into(), Value::Array(changes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_sent() {
        fn check(old: Value, new: Value, want: Option<Value>) {
            assert_eq!(merge_patch(&old, &new, POD_STATUS_KEYS), want, "{old} to {new}");
        }
        check(json!({"a": 1}), json!({"a": 1}), None);
        check(json!({"a": 1, "b": 2}), json!({"a": 2}), Some(json!({"a": 2, "b": null})));
        check(
            json!({"status": {"phase": "Pending", "l": [1, 2]}}),
            json!({"status": {"phase": "Running", "l": [1]}}),
            Some(json!({"status": {"phase": "Running", "l": [1]}})),
        );
        let ready = |status: &str| json!({"type": "Ready", "status": status, "reason": "r"});
        let other = json!({"type": "Other", "status": "True"});
        check(
            json!({"status": {"conditions": [other, ready("False")]}}),
            json!({"status": {"conditions": [ready("True"), other]}}),
            Some(json!({"status": {
                "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Other"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }})),
        );
        check(
            json!({"status": {"conditions": [other, ready("True")]}}),
            json!({"status": {"conditions": [ready("True"), other]}}),
            None,
        );
        check(
            json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}),
            json!({"status": {"podIPs": [{"ip": "10.0.0.2"}]}}),
            Some(json!({"status": {
                "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
                "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
            }})),
        );
        check(
            json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}),
            json!({"status": {}}),
            Some(json!({"status": {
                "$setElementOrder/podIPs": [],
                "podIPs": [{"$patch": "delete", "ip": "10.0.0.1"}],
            }})),
        );
        check(
            json!({"status": {}}),
            json!({"status": {"conditions": [other]}}),
            Some(json!({"status": {
                "$setElementOrder/conditions": [{"type": "Other"}],
                "conditions": [other],
            }})),
        );
    }
}
