//! What a node may ask for: its own objects, and those that its pods name (the Node authorizer and
//! NodeRestriction, plugin/pkg/auth/authorizer/node, 1.36).

use super::refusal::Refusal;
use super::request::{Field, Request};
use super::store::Store;
use serde_json::Value;
use steplet_core::effect::Verb;

/// Whether `node` may ask this. Errors: 403, or 404 for what is not there.
pub fn check(
    node: &str,
    verb: Verb,
    request: &Request,
    body: &Value,
    store: &Store,
) -> Result<(), Refusal> {
    let reads = matches!(verb, Verb::Get | Verb::Watch);
    let named = match request.name.as_str() {
        "" => request.query.field(Field::Name).or(body["metadata"]["name"].as_str()),
        name => Some(name),
    };
    let own = named == Some(node);
    let (kind, part) = (request.resource.kind, request.part.as_str());
    let allowed = match (kind, verb) {
        ("Node", Verb::Delete) => false,
        ("Node", _) | ("CSINode", _) => own,
        ("Lease", _) => own && request.namespace == "kube-node-lease",
        ("Pod", Verb::Get | Verb::Watch) if request.name.is_empty() => {
            request.query.field(Field::NodeName) == Some(node)
        }
        ("Pod", Verb::Post) => {
            let mirror = &body["metadata"]["annotations"]["kubernetes.io/config.mirror"];
            mirror.is_string() && body["spec"]["nodeName"] == node
        }
        ("Pod", Verb::Put | Verb::Patch) => part == "status" && is_bound(node, request, store),
        ("Pod", _) => is_bound(node, request, store),
        ("Secret" | "ConfigMap", _) if reads => named.is_some_and(|name| {
            let pods = pods_of(node, store);
            let mut pods = pods.filter(|pod| pod["metadata"]["namespace"] == *request.namespace);
            pods.any(|pod| refers(&pod["spec"], kind, name, false))
        }),
        ("ServiceAccount", Verb::Get) => true,
        ("ServiceAccount", Verb::Post) => {
            let bound = &body["spec"]["boundObjectRef"];
            part == "token"
                && pods_of(node, store).any(|pod| {
                    pod["metadata"]["uid"] == bound["uid"]
                        && pod["spec"]["serviceAccountName"] == *request.name
                })
        }
        ("Event", Verb::Post | Verb::Patch | Verb::Put) => true,
        ("Service" | "RuntimeClass" | "CSIDriver", _) => reads,
        ("PersistentVolume" | "PersistentVolumeClaim", _) => verb == Verb::Get,
        ("CertificateSigningRequest", _) => reads || verb == Verb::Post,
        ("TokenReview" | "SubjectAccessReview", Verb::Post) => true,
        _ => false,
    };
    if allowed {
        return Ok(());
    }
    let what = request.subject();
    let message = format!(
        "{what} \"{}\" is forbidden: User \"system:node:{node}\" cannot {verb:?} this",
        named.unwrap_or_default()
    );
    Err(Refusal::forbidden(message))
}

fn pods_of<'a>(node: &'a str, store: &'a Store) -> impl Iterator<Item = &'a Value> {
    store.all("pods").map(|pod| &**pod).filter(move |pod| pod["spec"]["nodeName"] == node)
}

/// What is not there is not forbidden: the answer is 404.
fn is_bound(node: &str, request: &Request, store: &Store) -> bool {
    let mut named = store.all("pods").filter(|pod| {
        pod["metadata"]["name"] == *request.name
            && pod["metadata"]["namespace"] == *request.namespace
    });
    named.all(|pod| pod["spec"]["nodeName"] == node)
}

/// Whether a part of a pod's spec names a secret or a config map.
fn refers(value: &Value, kind: &str, name: &str, inside: bool) -> bool {
    let fields: &[&str] = match kind {
        "Secret" => &["secret", "secretRef", "secretKeyRef", "imagePullSecrets"],
        _ => &["configMap", "configMapRef", "configMapKeyRef"],
    };
    match value {
        Value::Object(map) => map.iter().any(|(field, value)| {
            let names = inside && ["name", "secretName"].contains(&field.as_str());
            (names && value == name) || refers(value, kind, name, fields.contains(&field.as_str()))
        }),
        Value::Array(list) => list.iter().any(|value| refers(value, kind, name, inside)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::api::store::Key;
    use serde_json::json;
    use steplet_core::effect::{ApiCall, Lane};
    use steplet_core::time::Span;

    fn store() -> Store {
        let mut store = Store::default();
        for (name, node) in [("mine", "n1"), ("other", "n2")] {
            let key = Key { plural: "pods", namespace: "a".into(), name: name.into() };
            let spec = json!({"nodeName": node, "serviceAccountName": "default", "containers": [
                {"env": [{"valueFrom": {"secretKeyRef": {"name": format!("key-{name}")}}}]}],
                "volumes": [{"configMap": {"name": format!("map-{name}")}}]});
            let metadata = json!({"name": name, "namespace": "a", "uid": name});
            store.put(key, json!({"metadata": metadata, "spec": spec}));
        }
        store
    }

    #[test]
    fn a_node_sees_and_writes_what_is_its_own() {
        let store = store();
        let check = |verb: Verb, path: &str, body: Value, want: bool| {
            let (path, within) = (path.to_owned(), Span::from_secs(1));
            let call = ApiCall {
                verb,
                path,
                body: Default::default(),
                within,
                lane: Lane::Main,
                seals: false,
                secret: None,
            };
            let request = Request::read(&call).expect("a path");
            let found = super::check("n1", verb, &request, &body, &store);
            assert_eq!(found.is_ok(), want, "{verb:?} {}", call.path);
        };
        let none = Value::Null;
        check(Verb::Get, "/api/v1/nodes/n1", none.clone(), true);
        check(Verb::Get, "/api/v1/nodes/n2", none.clone(), false);
        check(Verb::Get, "/api/v1/nodes?fieldSelector=metadata.name%3Dn1", none.clone(), true);
        check(Verb::Get, "/api/v1/nodes", none.clone(), false);
        check(Verb::Post, "/api/v1/nodes", json!({"metadata": {"name": "n1"}}), true);
        check(Verb::Get, "/api/v1/pods", none.clone(), false);
        check(Verb::Get, "/api/v1/pods?fieldSelector=spec.nodeName=n1", none.clone(), true);
        check(Verb::Patch, "/api/v1/namespaces/a/pods/mine/status", json!({}), true);
        check(Verb::Patch, "/api/v1/namespaces/a/pods/mine", json!({}), false);
        check(Verb::Patch, "/api/v1/namespaces/a/pods/other/status", json!({}), false);
        check(Verb::Delete, "/api/v1/namespaces/a/pods/gone", json!({}), true);
        check(Verb::Get, "/api/v1/namespaces/a/secrets/key-mine", none.clone(), true);
        check(Verb::Get, "/api/v1/namespaces/a/secrets/key-other", none.clone(), false);
        check(Verb::Get, "/api/v1/namespaces/a/configmaps/map-mine", none.clone(), true);
        check(Verb::Get, "/api/v1/namespaces/a/configmaps/key-mine", none.clone(), false);
        check(Verb::Get, "/api/v1/namespaces/a/secrets", none, false);
        let token = "/api/v1/namespaces/a/serviceaccounts/default/token";
        let bound = |uid: &str| json!({"spec": {"boundObjectRef": {"uid": uid}}});
        check(Verb::Post, token, bound("mine"), true);
        check(Verb::Post, token, bound("other"), false);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
        check(Verb::Put, lease, json!({}), true);
    }
}
