//! The fields of a pod's spec that are not those of one container or volume.

use alloc::collections::BTreeSet;

use super::{Path, Problems, container, metadata, names, resources, security, volume};
use crate::pod::{
    HostAlias, PodDnsConfig, PodResourceClaim, PodSpec, Toleration, dns_policy, restart_policy,
};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_LIST_CHARS_MAX: usize = 2048;
const HOSTNAME_OVERRIDE_BYTES_MAX: usize = 64;
const ACTIVE_DEADLINE_SECONDS_MAX: i64 = i32::MAX as i64;

pub(super) fn check_spec(out: &mut Problems, spec: &PodSpec) {
    let at = Path::root("spec");
    volume::check_all(out, &at.field("volumes"), &spec.volumes);
    container::check_all(out, &at, spec);
    if !spec.ephemeral_containers.is_empty() {
        let message = "may only be added to a running pod through the API server";
        out.forbidden(&at.field("ephemeralContainers"), message);
    }
    check_choices(out, &at, spec);
    metadata::check_labels(out, &at.field("nodeSelector"), &spec.node_selector);
    if let Some(context) = spec.security_context.as_deref() {
        security::check_pod(out, &at.field("securityContext"), context, spec);
    }
    check_dns(out, &at, spec);
    check_names(out, &at, spec);
    check_resource_claims(out, &at.field("resourceClaims"), &spec.resource_claims);
    if let Some(seconds) = spec.active_deadline_seconds {
        let range = 1..=ACTIVE_DEADLINE_SECONDS_MAX;
        out.within(&at.field("activeDeadlineSeconds"), seconds, range);
    }
    let tolerations = at.field("tolerations");
    for (index, toleration) in spec.tolerations.iter().enumerate() {
        check_toleration(out, &tolerations.index(index), toleration);
    }
    let aliases = at.field("hostAliases");
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        check_host_alias(out, &aliases.index(index), alias);
    }
    resources::check_overhead(out, &at.field("overhead"), &spec.overhead);
    resources::check_pod_level(out, &at.field("resources"), spec);
    check_namespaces(out, &at, spec);
}

/// Fields with a few known values.
fn check_choices(out: &mut Problems, at: &Path<'_>, spec: &PodSpec) {
    let policies = [restart_policy::ALWAYS, restart_policy::ON_FAILURE, restart_policy::NEVER];
    out.one_of(&at.field("restartPolicy"), &spec.restart_policy, &policies);
    let policies = [
        dns_policy::CLUSTER_FIRST_WITH_HOST_NET,
        dns_policy::CLUSTER_FIRST,
        dns_policy::DEFAULT,
        dns_policy::NONE,
    ];
    out.one_of(&at.field("dnsPolicy"), &spec.dns_policy, &policies);
    if let Some(policy) = &spec.preemption_policy {
        out.one_of(&at.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    let os = at.field("os");
    if let Some(name) = spec.os.as_ref().map(|os| &os.name)
        && out.require(&os.field("name"), name)
    {
        out.one_of(&os, name, &["linux", "windows"]);
    }
}

fn check_names(out: &mut Problems, at: &Path<'_>, spec: &PodSpec) {
    let optional = [
        ("serviceAccountName", &spec.service_account_name, names::dns_subdomain as names::Rule),
        ("nodeName", &spec.node_name, names::dns_subdomain),
        ("priorityClassName", &spec.priority_class_name, names::dns_subdomain),
        ("hostname", &spec.hostname, names::dns_label),
        ("subdomain", &spec.subdomain, names::dns_label),
    ];
    for (field, name, rule) in optional {
        if !name.is_empty() {
            out.name(&at.field(field), name, rule);
        }
    }
    if let Some(name) = &spec.runtime_class_name {
        out.name(&at.field("runtimeClassName"), name, names::dns_subdomain);
    }
    let gates = at.field("readinessGates");
    for (index, gate) in spec.readiness_gates.iter().enumerate() {
        let at = gates.index(index);
        out.name(&at.field("conditionType"), &gate.condition_type, names::qualified_name);
    }
    let gates = at.field("schedulingGates");
    for (index, gate) in spec.scheduling_gates.iter().enumerate() {
        out.name(&gates.index(index), &gate.name, names::qualified_name);
    }
    if !spec.scheduling_gates.is_empty() && !spec.node_name.is_empty() {
        let message = "cannot be set until all schedulingGates have been cleared";
        out.forbidden(&at.field("nodeName"), message);
    }
}

fn check_dns(out: &mut Problems, at: &Path<'_>, spec: &PodSpec) {
    let policy_is_none = &*spec.dns_policy == dns_policy::NONE;
    let at = at.field("dnsConfig");
    match spec.dns_config.as_deref() {
        None if policy_is_none => out.required(&at, "must be set when dnsPolicy is None"),
        None => {}
        Some(config) => {
            if policy_is_none && config.nameservers.is_empty() {
                out.required(&at.field("nameservers"), "must be set when dnsPolicy is None");
            }
            check_dns_config(out, &at, config);
        }
    }
}

fn check_dns_config(out: &mut Problems, at: &Path<'_>, config: &PodDnsConfig) {
    let nameservers = at.field("nameservers");
    if config.nameservers.len() > NAMESERVERS_MAX {
        out.invalid(&nameservers, &config.nameservers, "must not have more than 3 nameservers");
    }
    for (index, address) in config.nameservers.iter().enumerate() {
        out.name(&nameservers.index(index), address, names::ip_address);
    }
    let searches = at.field("searches");
    if config.searches.len() > SEARCHES_MAX {
        out.invalid(&searches, &config.searches, "must not have more than 32 search paths");
    }
    let blanks = config.searches.len().saturating_sub(1);
    let chars: usize = config.searches.iter().map(|path| path.len()).sum();
    if chars + blanks > SEARCH_LIST_CHARS_MAX {
        let message = "must not have more than 2048 characters, blanks between them included";
        out.invalid(&searches, &config.searches, message);
    }
    for (index, path) in config.searches.iter().enumerate() {
        out.name(&searches.index(index), path, names::dns_search);
    }
    let options = at.field("options");
    for (index, option) in config.options.iter().enumerate() {
        if option.name.is_empty() {
            out.required(&options.index(index), "the name must not be empty");
        }
    }
}

fn check_resource_claims(out: &mut Problems, at: &Path<'_>, claims: &[PodResourceClaim]) {
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let at = at.index(index);
        let name = at.field("name");
        out.required_name(&name, &claim.name, names::dns_label);
        if !seen.insert(&claim.name) {
            out.duplicate(&name, &claim.name);
        }
        if claim.resource_claim_name.is_some() == claim.resource_claim_template_name.is_some() {
            let message = "must have one of resourceClaimName and resourceClaimTemplateName";
            out.invalid(&at, &claim.name, message);
        }
    }
}

fn check_toleration(out: &mut Problems, at: &Path<'_>, toleration: &Toleration) {
    if !toleration.key.is_empty() {
        out.name(&at.field("key"), &toleration.key, names::qualified_name);
    }
    let operator = at.field("operator");
    match &*toleration.operator {
        "" | "Equal" if toleration.key.is_empty() => {
            out.invalid(&operator, &toleration.operator, "must be Exists when the key is empty");
        }
        "" | "Equal" => out.name(&operator, &toleration.value, names::label_value),
        "Exists" if !toleration.value.is_empty() => {
            out.invalid(&operator, &toleration.value, "the value must be empty with Exists");
        }
        other => out.one_of(&operator, other, &["Equal", "Exists"]),
    }
    let effect = at.field("effect");
    if toleration.toleration_seconds.is_some() && &*toleration.effect != "NoExecute" {
        let message = "must be NoExecute when tolerationSeconds is set";
        out.invalid(&effect, &toleration.effect, message);
    }
    if !toleration.effect.is_empty() {
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        out.one_of(&effect, &toleration.effect, &known);
    }
}

fn check_host_alias(out: &mut Problems, at: &Path<'_>, alias: &HostAlias) {
    out.name(&at.field("ip"), &alias.ip, names::ip_address);
    let hostnames = at.field("hostnames");
    for (index, hostname) in alias.hostnames.iter().enumerate() {
        out.name(&hostnames.index(index), hostname, names::dns_subdomain);
    }
}

/// Which namespaces of the node a pod may share, together with which other wishes.
fn check_namespaces(out: &mut Problems, at: &Path<'_>, spec: &PodSpec) {
    if spec.host_users == Some(false) {
        let shared = [
            ("hostNetwork", spec.host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
        ];
        for (field, _) in shared.into_iter().filter(|(_, shared)| *shared) {
            out.forbidden(&at.field(field), "cannot be set when hostUsers is false");
        }
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid {
        out.invalid(
            &at.field("shareProcessNamespace"),
            true,
            "cannot be set together with hostPID",
        );
    }
    if let Some(hostname) = &spec.hostname_override {
        let at = at.field("hostnameOverride");
        out.name(&at, hostname, names::dns_subdomain);
        if hostname.len() > HOSTNAME_OVERRIDE_BYTES_MAX {
            out.too_long(&at, HOSTNAME_OVERRIDE_BYTES_MAX);
        }
        if spec.host_network {
            out.forbidden(&at, "may not be set when hostNetwork is true");
        }
        if spec.set_hostname_as_fqdn == Some(true) {
            out.forbidden(&at, "may not be set when setHostnameAsFQDN is true");
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    fn check(field: &str, value: Value, want: &[&str]) {
        let pointer = String::from("/spec/") + field;
        testing::check(&[(&pointer, value)], want);
    }

    #[test]
    fn choices_and_numbers() {
        check("restartPolicy", json!("x"), &["spec.restartPolicy: Unsupported value"]);
        check("dnsPolicy", json!("x"), &["spec.dnsPolicy: Unsupported value"]);
        check("preemptionPolicy", json!("x"), &["spec.preemptionPolicy: Unsupported value"]);
        check("os", json!({"name": ""}), &["spec.os.name: Required value"]);
        check("os", json!({"name": "x"}), &["spec.os: Unsupported value"]);
        check("os", json!({"name": "linux"}), &[]);
        for (seconds, want) in [
            (0, &["spec.activeDeadlineSeconds: Invalid value"][..]),
            (1, &[]),
            (i64::from(i32::MAX), &[]),
            (1 << 31, &["spec.activeDeadlineSeconds: Invalid value"]),
        ] {
            check("activeDeadlineSeconds", json!(seconds), want);
        }
        check("terminationGracePeriodSeconds", json!(0), &[]);
        check("overhead", json!({"cpu": "-1"}), &["spec.overhead[cpu]: Invalid value"]);
    }

    #[test]
    fn names() {
        check("nodeName", json!("A"), &["spec.nodeName: Invalid value"]);
        check("hostname", json!("a.b"), &["spec.hostname: Invalid value"]);
        check("subdomain", json!("A"), &["spec.subdomain: Invalid value"]);
        check("priorityClassName", json!("A"), &["spec.priorityClassName: Invalid value"]);
        check("runtimeClassName", json!(""), &["spec.runtimeClassName: Invalid value"]);
        check("nodeSelector", json!({"a": "-"}), &["spec.nodeSelector: Invalid value"]);
        check(
            "readinessGates",
            json!([{"conditionType": "a b"}]),
            &["spec.readinessGates[0].conditionType: Invalid value"],
        );
        let gate = json!([{"name": "a"}]);
        check("schedulingGates", gate.clone(), &[]);
        testing::check(
            &[("/spec/schedulingGates", gate), ("/spec/nodeName", json!("n"))],
            &["spec.nodeName: Forbidden"],
        );
    }

    #[test]
    fn dns() {
        check("dnsPolicy", json!("None"), &["spec.dnsConfig: Required value"]);
        let policy = ("/spec/dnsPolicy", json!("None"));
        testing::check(
            &[policy.clone(), ("/spec/dnsConfig", json!({"searches": ["a"]}))],
            &["spec.dnsConfig.nameservers: Required value"],
        );
        testing::check(&[policy, ("/spec/dnsConfig", json!({"nameservers": ["::1"]}))], &[]);
        check(
            "dnsConfig",
            json!({"nameservers": ["1", "::1", "1.1.1.1", "2.2.2.2"]}),
            &[
                "spec.dnsConfig.nameservers: Invalid value",
                "spec.dnsConfig.nameservers[0]: Invalid value",
            ],
        );
        check(
            "dnsConfig",
            json!({"searches": ["a_b.c", ".", "-x", "a."], "options": [{"name": ""}]}),
            &[
                "spec.dnsConfig.searches[2]: Invalid value",
                "spec.dnsConfig.options[0]: Required value",
            ],
        );
        check("dnsConfig", json!({"searches": vec!["a"; 32]}), &[]);
        let too_many = json!({"searches": vec!["a"; 33]});
        check("dnsConfig", too_many, &["spec.dnsConfig.searches: Invalid value"]);
        let (fits, exceeds) = ("a".repeat(63), ["a".repeat(63), "b".repeat(5)].join("."));
        check("dnsConfig", json!({"searches": vec![fits; 32]}), &[]);
        let too_long = json!({"searches": vec![exceeds; 30]});
        check("dnsConfig", too_long, &["spec.dnsConfig.searches: Invalid value"]);
    }

    #[test]
    fn tolerations_and_aliases() {
        fn toleration(toleration: Value, want: &[&str]) {
            check("tolerations", json!([toleration]), want);
        }
        let operator = &["spec.tolerations[0].operator: Invalid value"];
        let effect = &["spec.tolerations[0].effect: Invalid value"];
        toleration(json!({"operator": "Exists", "effect": "NoExecute"}), &[]);
        toleration(json!({"key": "a b"}), &["spec.tolerations[0].key: Invalid value"]);
        toleration(json!({}), operator);
        toleration(json!({"key": "a", "value": "-"}), operator);
        toleration(json!({"key": "a", "operator": "Exists", "value": "b"}), operator);
        let unsupported = &["spec.tolerations[0].operator: Unsupported value"];
        toleration(json!({"key": "a", "operator": "Lt", "value": "5"}), unsupported);
        toleration(json!({"key": "a", "tolerationSeconds": 5, "effect": "NoSchedule"}), effect);
        let unsupported = &["spec.tolerations[0].effect: Unsupported value"];
        toleration(json!({"key": "a", "effect": "x"}), unsupported);
        check(
            "hostAliases",
            json!([{"ip": "01.2.3.4", "hostnames": ["a.b", "A"]}]),
            &[
                "spec.hostAliases[0].ip: Invalid value",
                "spec.hostAliases[0].hostnames[1]: Invalid value",
            ],
        );
    }

    #[test]
    fn namespaces() {
        fn check(fields: Value, want: &[&str]) {
            let fields = fields.as_object().expect("an object").clone();
            let changes: vec::Vec<_> = fields
                .into_iter()
                .map(|(field, value)| (String::from("/spec/") + &field, value))
                .collect();
            let changes: vec::Vec<_> =
                changes.iter().map(|(field, value)| (&**field, value.clone())).collect();
            testing::check(&changes, want);
        }
        check(json!({"hostUsers": false}), &[]);
        check(
            json!({"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}),
            &["spec.hostNetwork: Forbidden", "spec.hostPID: Forbidden", "spec.hostIPC: Forbidden"],
        );
        check(
            json!({"hostPID": true, "shareProcessNamespace": true}),
            &["spec.shareProcessNamespace: Invalid value"],
        );
        check(json!({"hostnameOverride": "a.b"}), &[]);
        let invalid = &["spec.hostnameOverride: Invalid value"];
        check(json!({"hostnameOverride": "A"}), invalid);
        let too_long = &["spec.hostnameOverride: Too long"];
        check(json!({"hostnameOverride": "a".repeat(65)}), too_long);
        let forbidden = &["spec.hostnameOverride: Forbidden"];
        check(json!({"hostnameOverride": "a", "hostNetwork": true}), forbidden);
        check(json!({"hostnameOverride": "a", "setHostnameAsFQDN": true}), forbidden);
    }
}
