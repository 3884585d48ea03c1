//! Strategic merge patches, from the server's side: lists with a key are merged, others replaced
//! (k8s.io/apimachinery/pkg/util/strategicpatch, 1.36).

use super::refusal::Refusal;
use serde_json::{Map, Value};

/// Lists that are merged, by their name and that of the object they lie in (`*`: any), and their key.
const KEYS: [(&str, &str, &str); 16] = [
    ("status", "conditions", "type"),
    ("status", "addresses", "type"),
    ("status", "hostIPs", "ip"),
    ("status", "podIPs", "ip"),
    ("status", "resourceClaimStatuses", "name"),
    ("metadata", "ownerReferences", "uid"),
    ("spec", "containers", "name"),
    ("spec", "initContainers", "name"),
    ("spec", "ephemeralContainers", "name"),
    ("spec", "volumes", "name"),
    ("spec", "imagePullSecrets", "name"),
    ("spec", "hostAliases", "ip"),
    ("spec", "resourceClaims", "name"),
    ("*", "env", "name"),
    ("*", "volumeMounts", "mountPath"),
    ("*", "ports", "containerPort"),
];
/// Lists of plain values that are merged as sets.
const SETS: [&str; 2] = ["finalizers", "podCIDRs"];

const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies a patch to an object. Errors: a directive that nobody knows.
pub fn apply(object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    merge(object, patch, "")
}

/// The key of a list's elements.
fn key_of(within: &str, list: &str) -> Option<&'static str> {
    let fits = |(place, name, _): &&(&str, &str, &str)| {
        *name == list && (*place == "*" || *place == within)
    };
    KEYS.iter().find(fits).map(|(_, _, key)| *key)
}

fn merge(object: &mut Value, patch: &Value, name: &str) -> Result<(), Refusal> {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return Ok(());
    };
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") || !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(object) = object else { return Ok(()) };
    for (field, value) in patch {
        if field == "$patch" || field == "$retainKeys" {
            continue;
        }
        if let Some(list) = field.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(now)) = object.get_mut(list) {
                now.retain(|element| !gone.contains(element));
            }
        } else if field.starts_with(ORDER) {
            // After the lists themselves.
        } else if field.starts_with('$') {
            return Err(Refusal::bad(format!("unknown patch directive: {field}")));
        } else {
            merge_field(object, name, field, value)?;
        }
    }
    for (field, order) in patch {
        let Some(list) = field.strip_prefix(ORDER) else { continue };
        let key = key_of(name, list);
        if let (Some(Value::Array(now)), Value::Array(order)) = (object.get_mut(list), order) {
            sort(now, order, key);
        }
    }
    Ok(())
}

fn merge_field(
    object: &mut Map<String, Value>,
    within: &str,
    field: &str,
    value: &Value,
) -> Result<(), Refusal> {
    match value {
        Value::Null => {
            object.remove(field);
        }
        Value::Array(elements) if SETS.contains(&field) => {
            let now = object.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            let Value::Array(now) = now else { return Ok(()) };
            for element in elements {
                if !now.contains(element) {
                    now.push(element.clone());
                }
            }
        }
        Value::Array(elements) => match key_of(within, field) {
            Some(key) => {
                let now = object.entry(field).or_insert_with(|| Value::Array(Vec::new()));
                if !now.is_array() {
                    *now = Value::Array(Vec::new());
                }
                let Value::Array(now) = now else { return Ok(()) };
                merge_list(now, elements, key)?;
            }
            None => {
                object.insert(field.to_owned(), value.clone());
            }
        },
        Value::Object(_) => {
            let now = object.entry(field).or_insert_with(|| Value::Object(Map::new()));
            merge(now, value, field)?;
        }
        _ => {
            object.insert(field.to_owned(), value.clone());
        }
    }
    Ok(())
}

fn merge_list(now: &mut Vec<Value>, elements: &[Value], key: &str) -> Result<(), Refusal> {
    let directive =
        |element: &Value| element.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if elements.iter().any(|element| directive(element).as_deref() == Some("replace")) {
        now.clear();
    }
    for element in elements {
        match directive(element).as_deref() {
            Some("replace") => continue,
            Some("delete") => {
                now.retain(|other| other.get(key) != element.get(key));
                continue;
            }
            _ => {}
        }
        if element.get(key).is_none_or(Value::is_null) {
            return Err(Refusal::bad(format!(
                "map: {element} does not contain declared merge key: {key}"
            )));
        }
        match now.iter_mut().find(|other| other.get(key) == element.get(key)) {
            Some(other) => merge(other, element, "")?,
            None => {
                let mut new = Value::Object(Map::new());
                merge(&mut new, element, "")?;
                now.push(new);
            }
        }
    }
    Ok(())
}

/// Puts a list into the order that the patch gives; what it does not name comes last.
fn sort(now: &mut [Value], order: &[Value], key: Option<&str>) {
    let place = |element: &Value| {
        let same = |wanted: &Value| match key {
            Some(key) => wanted.get(key) == element.get(key),
            None => wanted == element,
        };
        order.iter().position(same).unwrap_or(order.len())
    };
    now.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patches_change_what_they_name() {
        fn check(object: Value, patch: Value, want: Value) {
            let mut now = object.clone();
            apply(&mut now, &patch).expect("a patch");
            assert_eq!(now, want, "{object} with {patch}");
        }
        check(json!({"a": 1, "b": 2}), json!({"b": null, "c": 3}), json!({"a": 1, "c": 3}));
        check(
            json!({"status": {"phase": "Pending"}}),
            json!({"status": {"phase": "Running", "new": {"x": null, "y": 1}}}),
            json!({"status": {"phase": "Running", "new": {"y": 1}}}),
        );
        let ready = |status: &str| json!({"type": "Ready", "status": status, "reason": "r"});
        let other = json!({"type": "Other", "status": "True"});
        check(
            json!({"status": {"conditions": [other, ready("False")]}}),
            json!({"status": {
                "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Other"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            }}),
            json!({"status": {"conditions": [ready("True"), other]}}),
        );
        check(
            json!({"status": {"podIPs": [{"ip": "10.0.0.1"}]}}),
            json!({"status": {
                "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
                "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
            }}),
            json!({"status": {"podIPs": [{"ip": "10.0.0.2"}]}}),
        );
        check(
            json!({"status": {"containerStatuses": [{"name": "a"}, {"name": "b"}]}}),
            json!({"status": {"containerStatuses": [{"name": "b"}]}}),
            json!({"status": {"containerStatuses": [{"name": "b"}]}}),
        );
        check(
            json!({"status": {"a": 1, "b": 1}}),
            json!({"status": {"$patch": "replace", "b": 2}}),
            json!({"status": {"b": 2}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!({"metadata": {"finalizers": ["b"]}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "env": [
                {"name": "X", "value": "1"},
                {"name": "Y", "value": "2"},
            ]}]}}),
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |patch: Value| apply(&mut json!({}), &patch).map_err(|r| r.code);
        assert_eq!(refused(json!({"$new": 1})), Err(400));
        assert_eq!(refused(json!({"status": {"conditions": [{"status": "True"}]}})), Err(400));
    }

    /// What the agent makes of two objects leads from one to the other.
    #[test]
    fn the_agents_patches_lead_to_the_new_object() {
        use steplet_api::cluster::{POD_STATUS_KEYS, merge_patch};
        let objects = [
            json!({"status": {}}),
            json!({"status": {"phase": "Running", "podIPs": [{"ip": "a"}, {"ip": "b"}],
                "conditions": [{"type": "A", "status": "True", "reason": "r"}]}}),
            json!({"status": {"phase": "Failed", "podIPs": [{"ip": "b"}], "hostIP": "h",
                "conditions": [{"type": "B", "status": "True"}, {"type": "A", "status": "False"}],
                "containerStatuses": [{"name": "x", "state": {"running": {}}}]}}),
        ];
        for old in &objects {
            for new in &objects {
                let mut now = old.clone();
                let patch = merge_patch(old, new, POD_STATUS_KEYS);
                patch.iter().for_each(|patch| apply(&mut now, patch).expect("a patch"));
                // A list that lost all its elements is there still, as on the real server.
                let full =
                    |name: &str| now["status"][name].as_array().is_some_and(|l| !l.is_empty());
                for name in ["podIPs", "conditions"].into_iter().filter(|name| !full(name)) {
                    assert!(new["status"].get(name).is_none());
                }
                for (name, value) in new["status"].as_object().expect("a map") {
                    assert_eq!(&now["status"][name], value, "{name} from {old} to {new}");
                }
            }
        }
    }
}
