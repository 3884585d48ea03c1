//! What the server adds to a pod, how a pod is deleted, and what may be said of it
//! (pkg/registry/core/pod/strategy.go, pkg/apis/core/v1/defaults.go, 1.36).

use super::refusal::Refusal;
use serde_json::{Map, Value, json};

/// Sets what is not there.
fn default(object: &mut Value, field: &str, value: Value) {
    if let Value::Object(object) = object {
        object.entry(field).or_insert(value);
    }
}

/// A pod that is created, as a node agent sees it then.
pub fn complete(pod: &mut Value) -> Result<(), Refusal> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let containers = pod["spec"]["containers"].as_array();
    if containers.is_none_or(Vec::is_empty) {
        return Err(Refusal::invalid("Pod", &name, "spec.containers: Required value"));
    }
    let spec = &mut pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("serviceAccountName", json!("default")),
        ("serviceAccount", json!("default")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        default(spec, field, value);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(complete_container);
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        for kind in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(kind) {
                default(source, "defaultMode", json!(0o644));
            }
        }
    }
    let qos = qos_class(&pod["spec"]);
    pod["metadata"]["generation"] = json!(1);
    pod["status"] = json!({"phase": "Pending", "qosClass": qos});
    Ok(())
}

fn complete_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let named = image.rsplit('/').next().unwrap_or_default();
    let latest = !named.contains([':', '@']) || named.ends_with(":latest");
    let pull = if latest { "Always" } else { "IfNotPresent" };
    for (field, value) in [
        ("imagePullPolicy", json!(pull)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        default(container, field, value);
    }
    let limits = container["resources"].get("limits").cloned();
    if let Some(Value::Object(limits)) = limits {
        default(&mut container["resources"], "requests", json!({}));
        for (name, limit) in limits {
            default(&mut container["resources"]["requests"], &name, limit);
        }
    }
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().for_each(|port| default(port, "protocol", json!("TCP")));
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        for (field, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            default(probe, field, json!(value));
        }
    }
}

fn qos_class(spec: &Value) -> &'static str {
    let all = ["containers", "initContainers"].into_iter();
    let all = all.flat_map(|list| spec.get(list).and_then(Value::as_array).into_iter().flatten());
    let (mut some, mut full) = (false, true);
    for container in all {
        let of = |list: &str, name: &str| container["resources"].get(list)?.get(name).cloned();
        for name in ["cpu", "memory"] {
            let (request, limit) = (of("requests", name), of("limits", name));
            some |= request.is_some() || limit.is_some();
            full &= limit.is_some() && request == limit;
        }
    }
    match (some, full) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// What a deletion comes to.
#[derive(Debug, PartialEq)]
pub enum Deletion {
    /// The pod has so many seconds from now.
    Wait(i64),
    /// It has been asked for already, and nothing is to change.
    Nothing,
    Now,
}

/// What becomes of a pod that is to be deleted, by the options of who asks.
pub fn deletion(pod: &Value, options: &Value) -> Deletion {
    let asked = options.get("gracePeriodSeconds").and_then(Value::as_i64);
    let asked = asked.map(|grace| if grace < 0 { 1 } else { grace });
    let metadata = &pod["metadata"];
    if metadata.get("deletionTimestamp").is_some() {
        // Of a deletion under way only the grace can be shortened.
        return match (asked, metadata["deletionGracePeriodSeconds"].as_i64()) {
            (Some(0), _) | (_, None | Some(0)) => Deletion::Now,
            (Some(asked), Some(given)) if asked < given => Deletion::Wait(asked),
            _ => Deletion::Nothing,
        };
    }
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = ["Succeeded", "Failed"].contains(&phase(pod));
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    match asked.unwrap_or(own.max(0)) {
        grace if grace > 0 && bound && !over => Deletion::Wait(grace),
        _ => Deletion::Now,
    }
}

/// A container that has ended for good does not come back (ValidateContainerStateTransition).
pub fn check_status(old: &Value, new: &Value) -> Result<(), Refusal> {
    let policy = old["spec"]["restartPolicy"].as_str().unwrap_or("Always");
    let none = Map::new();
    let statuses = |pod: &Value| pod["status"]["containerStatuses"].as_array().cloned();
    for before in statuses(old).unwrap_or_default() {
        let after = statuses(new).unwrap_or_default();
        let after = after.iter().find(|after| after["name"] == before["name"]);
        let state = |status: &Value| status["state"].as_object().unwrap_or(&none).clone();
        let Some(end) = state(&before).get("terminated").cloned() else { continue };
        let last = policy == "Never" || (policy == "OnFailure" && end["exitCode"] == 0);
        if last && after.is_some_and(|after| !state(after).contains_key("terminated")) {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            let why = "status.containerStatuses: Forbidden: may not be transitioned to non-terminated state";
            return Err(Refusal::invalid("Pod", name, why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: Value, metadata: Value, phase: &str) -> Value {
        json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}})
    }

    #[test]
    fn a_new_pod_gets_its_defaults() {
        let resources = json!({"limits": {"cpu": "1", "memory": "1Mi"}});
        let containers = json!([{"name": "a", "image": "r:5000/a", "resources": resources}]);
        let mut new = json!({"metadata": {"name": "web"}, "status": {"phase": "Running"},
            "spec": {"containers": containers, "dnsPolicy": "None"}});
        complete(&mut new).expect("a pod");
        assert_eq!(new["status"], json!({"phase": "Pending", "qosClass": "Guaranteed"}));
        assert_eq!(new["spec"]["dnsPolicy"], "None");
        assert_eq!(new["spec"]["terminationGracePeriodSeconds"], 30);
        assert_eq!(new["spec"]["containers"][0]["imagePullPolicy"], "Always");
        let mut bad = json!({"metadata": {"name": "web"}, "spec": {"containers": []}});
        assert_eq!(complete(&mut bad).map_err(|refusal| refusal.code), Err(422));
    }

    #[test]
    fn classes_of_service() {
        let check = |resources: Value, want| {
            assert_eq!(qos_class(&json!({"containers": [{"resources": resources}]})), want);
        };
        check(json!({}), "BestEffort");
        check(json!({"requests": {"cpu": "1"}}), "Burstable");
        let amounts = json!({"cpu": "1", "memory": "1Mi"});
        check(json!({"requests": amounts, "limits": amounts}), "Guaranteed");
    }

    #[test]
    fn a_deletion_waits_for_the_node() {
        let bound = json!({"nodeName": "n1", "terminationGracePeriodSeconds": 20});
        let check = |pod: &Value, options: Value, want| {
            assert_eq!(deletion(pod, &options), want, "{pod} {options}");
        };
        let running = pod(bound.clone(), json!({}), "Running");
        check(&running, json!({}), Deletion::Wait(20));
        check(&running, json!({"gracePeriodSeconds": 5}), Deletion::Wait(5));
        check(&running, json!({"gracePeriodSeconds": -1}), Deletion::Wait(1));
        check(&running, json!({"gracePeriodSeconds": 0}), Deletion::Now);
        check(&pod(json!({}), json!({}), "Pending"), json!({}), Deletion::Now);
        check(&pod(bound.clone(), json!({}), "Failed"), json!({}), Deletion::Now);
        let metadata = json!({"deletionTimestamp": "t", "deletionGracePeriodSeconds": 20});
        let going = pod(bound, metadata, "Running");
        check(&going, json!({}), Deletion::Nothing);
        check(&going, json!({"gracePeriodSeconds": 30}), Deletion::Nothing);
        check(&going, json!({"gracePeriodSeconds": 5}), Deletion::Wait(5));
        check(&going, json!({"gracePeriodSeconds": 0}), Deletion::Now);
    }

    #[test]
    fn what_has_ended_for_good_stays_ended() {
        let with = |policy: &str, state: Value| {
            json!({"metadata": {"name": "web"}, "spec": {"restartPolicy": policy},
                "status": {"containerStatuses": [{"name": "a", "state": state}]}})
        };
        let check = |policy: &str, code: i64, after: Value, want| {
            let old = with(policy, json!({"terminated": {"exitCode": code}}));
            let new = with(policy, after);
            assert_eq!(check_status(&old, &new).map_err(|r| r.code), want, "{policy} {code}");
        };
        check("Always", 0, json!({"running": {}}), Ok(()));
        check("OnFailure", 1, json!({"running": {}}), Ok(()));
        check("OnFailure", 0, json!({"waiting": {}}), Err(422));
        check("Never", 1, json!({"running": {}}), Err(422));
        check("Never", 1, json!({"terminated": {"exitCode": 1}}), Ok(()));
    }
}
