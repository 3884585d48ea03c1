//! Whether a pod fits this node: what it says of the node's labels, name, taints and features.
//!
//! Upstream: pkg/kubelet/lifecycle/predicate.go and handlers.go, component-helpers/scheduling/corev1 (v1.36).

use super::No;
use crate::facts::Facts;
use crate::managers::node::node_status::own_labels;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use serde_json::Value;
use steplet_api::cluster::Taint;
use steplet_api::pod::{Pod, Toleration};
use steplet_api::pod_facts::is_static;

const OS_LABEL: &str = "kubernetes.io/os";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const UNCONFINED: &str = "Unconfined";
pub const NODE_AFFINITY: &str = "NodeAffinity";

type Labels = BTreeMap<Box<str>, Box<str>>;

pub fn os(pod: &Pod) -> Result<(), No> {
    // Whatever the Node says of itself, it runs linux.
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| &**os != "linux") {
        let message =
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return no("PodOSSelectorNodeLabelDoesNotMatch", message);
    }
    match &pod.spec.os {
        Some(os) if &*os.name != "linux" => {
            no("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
        }
        _ => Ok(()),
    }
}

/// A runtime that does not say whether it can counts as one that cannot.
pub fn groups_policy(pod: &Pod, facts: &Facts) -> Result<(), No> {
    let context = pod.spec.security_context.as_ref();
    let policy = context.and_then(|context| context.supplemental_groups_policy.as_deref());
    let can = facts.runtime_status.supplemental_groups_policy() == Some(true);
    if can || policy.is_none_or(|policy| policy == "Merge") {
        return Ok(());
    }
    let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
    no("SupplementalGroupsPolicyNotSupported", message)
}

pub fn affinity(pod: &Pod, facts: &Facts) -> Result<(), No> {
    let node = facts.node.node();
    let labels = match node {
        Some(node) => Cow::Borrowed(&node.metadata.labels),
        None => Cow::Owned(own_labels(facts)),
    };
    if matches(pod, &labels, &facts.settings().node_name) {
        return Ok(());
    }
    let text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    no(NODE_AFFINITY, text)
}

pub fn name(pod: &Pod, node: &str) -> Result<(), No> {
    if pod.spec.node_name.is_empty() || *pod.spec.node_name == *node {
        return Ok(());
    }
    let text = "Predicate NodeName failed: node(s) didn't match the requested node name";
    no("NodeName", text)
}

/// Only taints that would drive the pod out at once count, and none for a static pod.
pub fn taints(pod: &Pod, facts: &Facts) -> Result<(), No> {
    let taints = facts.node.node().map_or(&[][..], |node| &node.spec.taints);
    let bad = |taint: &Taint| {
        &*taint.effect == "NoExecute"
            && !pod.spec.tolerations.iter().any(|toleration| tolerates(toleration, taint))
    };
    if is_static(pod) || !taints.iter().any(bad) {
        return Ok(());
    }
    let text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
    no("TaintToleration", text)
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    (toleration.effect.is_empty() || toleration.effect == taint.effect)
        && (toleration.key.is_empty() || toleration.key == taint.key)
        && match &*toleration.operator {
            "" | "Equal" => toleration.value == taint.value,
            "Exists" => true,
            _ => false,
        }
}

pub fn app_armor(pod: &Pod, enabled: bool) -> Result<(), No> {
    let context = pod.spec.security_context.as_ref();
    let of_pod = context.and_then(|context| context.app_armor_profile.as_deref());
    let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let contexts = all.filter_map(|container| container.security_context.as_ref());
    let profiles = contexts.filter_map(|context| context.app_armor_profile.as_deref());
    let fields = of_pod.into_iter().chain(profiles).any(|profile| &*profile.type_ != UNCONFINED);
    let mut old = pod.metadata.annotations.iter().filter(|(key, _)| key.starts_with(APP_ARMOR));
    if enabled || !(fields || old.any(|(_, value)| &**value != "unconfined")) {
        return Ok(());
    }
    no("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
}

/// What the pod needs of the node that the node does not declare (KEP-5328).
pub fn features(pod: &Pod, facts: &Facts) -> Result<(), No> {
    let node = facts.node.node();
    let declared = node.map_or(&[][..], |node| &node.status.declared_features);
    let spec = &pod.spec;
    let mut all = spec.init_containers.iter().chain(&spec.containers);
    let restarts_all = all.any(|container| {
        let mut rules = container.restart_policy_rules.iter();
        rules.any(|rule| &*rule.action == "RestartAllContainers")
    });
    let needed: BTreeSet<&str> = [
        ("RestartAllContainersOnContainerExits", restarts_all),
        ("UserNamespacesHostNetworkSupport", spec.host_network && spec.host_users == Some(false)),
    ]
    .into_iter()
    .filter(|(name, needed)| *needed && !declared.iter().any(|has| **has == **name))
    .map(|(name, _)| name)
    .collect();
    if needed.is_empty() {
        return Ok(());
    }
    let needed = needed.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("Pod requires node features that are not available: {needed}");
    Err(No { reason: "PodFeatureUnsupported".into(), message })
}

/// nodeSelector, and the terms of the required node affinity, one of which must hold.
fn matches(pod: &Pod, labels: &Labels, node: &str) -> bool {
    if pod.spec.node_selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        return false;
    }
    let required = pod.spec.affinity.as_ref().and_then(|affinity| {
        affinity.pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")
    });
    let Some(required) = required.filter(|required| !required.is_null()) else { return true };
    list(required, "nodeSelectorTerms").iter().any(|term| term_holds(term, labels, node))
}

/// A term that says nothing holds nowhere.
fn term_holds(term: &Value, labels: &Labels, node: &str) -> bool {
    let (expressions, fields) = (list(term, "matchExpressions"), list(term, "matchFields"));
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|it| {
            let value = labels.get(text(it, "key")).map(|value| &**value);
            requirement_holds(it, value)
        })
        && fields
            .iter()
            .all(|it| text(it, "key") == "metadata.name" && requirement_holds(it, Some(node)))
}

/// What cannot be understood does not hold.
fn requirement_holds(requirement: &Value, value: Option<&str>) -> bool {
    let values = list(requirement, "values");
    let listed = |value: &str| values.iter().any(|it| it.as_str() == Some(value));
    let bound = match values {
        [one] => one.as_str().and_then(|text| text.parse::<i64>().ok()),
        _ => None,
    };
    let number = value.and_then(|value| value.parse::<i64>().ok());
    match text(requirement, "operator") {
        "In" => value.is_some_and(listed),
        "NotIn" => !values.is_empty() && !value.is_some_and(listed),
        "Exists" => values.is_empty() && value.is_some(),
        "DoesNotExist" => values.is_empty() && value.is_none(),
        "Gt" => number.zip(bound).is_some_and(|(number, bound)| number > bound),
        "Lt" => number.zip(bound).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn no(reason: &'static str, message: &str) -> Result<(), No> {
    Err(No { reason: reason.into(), message: message.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;

    #[test]
    fn selectors_and_affinity() {
        let labels: Labels = [("disk", "ssd"), ("rank", "7"), ("empty", "")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        let check = |spec: &str, want: bool| {
            let pod = pod(&format!(r#"{{"containers":[],{spec}}}"#));
            assert_eq!(matches(&pod, &labels, "edge-1"), want, "{spec}");
        };
        check(r#""nodeSelector":{}"#, true);
        check(r#""nodeSelector":{"disk":"ssd","empty":""}"#, true);
        check(r#""nodeSelector":{"disk":"hdd"}"#, false);
        check(r#""nodeSelector":{"none":""}"#, false);
        check(r#""affinity":{"podAffinity":{}}"#, true);
        check(
            r#""affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[]}}"#,
            true,
        );
        let terms = |terms: &str, want: bool| {
            let required = format!(
                r#""affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{terms}]}}}}}}"#
            );
            check(&required, want);
        };
        terms("", false);
        terms("{}", false);
        let one = |key: &str, operator: &str, values: &str, want: bool| {
            let it = format!(r#"{{"key":"{key}","operator":"{operator}","values":[{values}]}}"#);
            terms(&format!(r#"{{"matchExpressions":[{it}]}}"#), want);
        };
        one("disk", "In", r#""hdd","ssd""#, true);
        one("disk", "In", r#""hdd""#, false);
        one("none", "In", r#""hdd""#, false);
        one("disk", "NotIn", r#""hdd""#, true);
        one("disk", "NotIn", r#""ssd""#, false);
        one("none", "NotIn", r#""ssd""#, true);
        one("empty", "Exists", "", true);
        one("none", "Exists", "", false);
        one("none", "DoesNotExist", "", true);
        one("disk", "DoesNotExist", "", false);
        one("rank", "Gt", r#""6""#, true);
        one("rank", "Gt", r#""7""#, false);
        one("rank", "Lt", r#""8""#, true);
        one("disk", "Gt", r#""1""#, false);
        one("disk", "Like", r#""ssd""#, false);
        let field = |value: &str| {
            format!(
                r#"{{"matchFields":[{{"key":"metadata.name","operator":"In","values":["{value}"]}}]}}"#
            )
        };
        terms(&field("edge-1"), true);
        terms(&field("edge-2"), false);
        terms(&format!("{},{}", field("edge-2"), field("edge-1")), true);
    }

    #[test]
    fn tolerations() {
        let check = |key: &str, operator: &str, value: &str, effect: &str, want: bool| {
            let toleration = Toleration {
                key: key.into(),
                operator: operator.into(),
                value: value.into(),
                effect: effect.into(),
                ..Toleration::default()
            };
            let taint = Taint {
                key: "k".into(),
                value: "v".into(),
                effect: "NoExecute".into(),
                ..Taint::default()
            };
            assert_eq!(tolerates(&toleration, &taint), want, "{toleration:?}");
        };
        check("", "Exists", "", "", true);
        check("k", "Exists", "", "NoExecute", true);
        check("k", "Exists", "", "NoSchedule", false);
        check("k", "", "v", "", true);
        check("k", "Equal", "w", "", false);
        check("other", "Exists", "", "", false);
        check("k", "Lt", "v", "", false);
    }

    #[test]
    fn profiles_and_systems() {
        let check = |spec: &str, want: bool| {
            assert_eq!(app_armor(&pod(spec), false).is_ok(), want, "{spec}");
            assert!(app_armor(&pod(spec), true).is_ok(), "{spec}");
        };
        check(r#"{"containers":[{"name":"c"}]}"#, true);
        let unconfined = r#"{"appArmorProfile":{"type":"Unconfined"}}"#;
        let default = r#"{"appArmorProfile":{"type":"RuntimeDefault"}}"#;
        check(&format!(r#"{{"containers":[],"securityContext":{unconfined}}}"#), true);
        check(&format!(r#"{{"containers":[],"securityContext":{default}}}"#), false);
        check(&format!(r#"{{"containers":[{{"name":"c","securityContext":{default}}}]}}"#), false);
        assert!(os(&pod(r#"{"containers":[],"os":{"name":"windows"}}"#)).is_err());
        let mut labelled = pod(r#"{"containers":[]}"#);
        labelled.metadata.labels.insert(OS_LABEL.into(), "windows".into());
        let reason = os(&labelled).unwrap_err().reason;
        assert_eq!(reason, "PodOSSelectorNodeLabelDoesNotMatch");
    }
}
