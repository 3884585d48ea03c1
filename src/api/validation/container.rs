//! Containers and init containers, their ports, and what they must not share.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;

use super::{Path, Problems, env, handler, mounts, names, resources, security};
use crate::container::{
    Container, ContainerPort, ContainerResizePolicy, ContainerRestartRule, protocol, pull_policy,
    termination_message_policy,
};
use crate::pod::{PodSpec, resource, restart_policy};
use crate::pod_facts;

/// Of a pod, init containers included. Upstream's bound is the size of an object in the API server's store,
/// which a file does not have; work on a pod may take time that grows with the square of this.
const CONTAINERS_MAX: usize = 1_000;
const RESTART_RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Host ports that are taken already, as protocol, address and port.
type TakenPorts = BTreeSet<(Box<str>, Box<str>, i32)>;

pub(super) fn check_all(out: &mut Problems, spec_at: &Path<'_>, spec: &PodSpec) {
    let mut names = BTreeSet::new();
    let mut taken = TakenPorts::new();
    let at = spec_at.field("containers");
    if spec.containers.is_empty() {
        out.required(&at, "");
    }
    let count = spec.containers.len() + spec.init_containers.len();
    if count > CONTAINERS_MAX {
        return out.too_many(&at, count, CONTAINERS_MAX);
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let at = at.index(index);
        check(out, &at, spec, container);
        handler::check_probes(out, &at, container);
        handler::check_lifecycle(out, &at, spec, container);
        check_host_ports(out, &at.field("ports"), spec, container, &mut taken);
        check_unique(out, &at, container, &mut names);
    }
    let at = spec_at.field("initContainers");
    for (index, container) in spec.init_containers.iter().enumerate() {
        let at = at.index(index);
        check(out, &at, spec, container);
        if pod_facts::is_sidecar(container) {
            handler::check_probes(out, &at, container);
            handler::check_lifecycle(out, &at, spec, container);
        } else {
            refuse_handlers(out, &at, container);
        }
        // Init containers run one after the other, so only doubles within one are a conflict.
        check_host_port_doubles(out, &at.field("ports"), container, &mut TakenPorts::new());
        check_unique(out, &at, container, &mut names);
    }
}

fn check_unique<'a>(
    out: &mut Problems,
    at: &Path<'_>,
    container: &'a Container,
    names: &mut BTreeSet<&'a str>,
) {
    if !container.name.is_empty() && !names.insert(&container.name) {
        out.duplicate(&at.field("name"), &container.name);
    }
}

/// What all kinds of containers have in common.
fn check(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, container: &Container) {
    out.required_name(&at.field("name"), &container.name, names::dns_label);
    let image = at.field("image");
    if out.require(&image, &container.image) && container.image.trim() != &*container.image {
        let message = "must not have leading or trailing whitespace";
        out.invalid(&image, &container.image, message);
    }
    let policies = [pull_policy::ALWAYS, pull_policy::IF_NOT_PRESENT, pull_policy::NEVER];
    out.one_of(&at.field("imagePullPolicy"), &container.image_pull_policy, &policies);
    let policies =
        [termination_message_policy::FILE, termination_message_policy::FALLBACK_TO_LOGS_ON_ERROR];
    let policy = at.field("terminationMessagePolicy");
    out.one_of(&policy, &container.termination_message_policy, &policies);
    check_restart(out, at, container);
    check_resize_policy(out, &at.field("resizePolicy"), &container.resize_policy);
    check_ports(out, &at.field("ports"), &container.ports);
    env::check_all(out, at, spec, container);
    mounts::check_all(out, at, spec, container);
    resources::check_container(out, &at.field("resources"), spec, &container.resources);
    if let Some(context) = container.security_context.as_deref() {
        security::check_container(out, &at.field("securityContext"), context, spec);
    }
}

fn refuse_handlers(out: &mut Problems, at: &Path<'_>, container: &Container) {
    let handlers = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    for (field, _) in handlers.into_iter().filter(|(_, set)| *set) {
        let message = "may not be set for init containers without restartPolicy=Always";
        out.forbidden(&at.field(field), message);
    }
}

fn check_restart(out: &mut Problems, at: &Path<'_>, container: &Container) {
    if let Some(policy) = &container.restart_policy {
        let known = [restart_policy::ALWAYS, restart_policy::NEVER, restart_policy::ON_FAILURE];
        out.one_of(&at.field("restartPolicy"), policy, &known);
    }
    let rules = &container.restart_policy_rules;
    if !rules.is_empty() && container.restart_policy.is_none() {
        out.required(&at.field("restartPolicy"), "must be set when there are rules");
    }
    let at = at.field("restartPolicyRules");
    if rules.len() > RESTART_RULES_MAX {
        out.too_many(&at, rules.len(), RESTART_RULES_MAX);
        return;
    }
    for (index, rule) in rules.iter().enumerate() {
        check_restart_rule(out, &at.index(index), rule);
    }
}

fn check_restart_rule(out: &mut Problems, at: &Path<'_>, rule: &ContainerRestartRule) {
    out.one_of(&at.field("action"), &rule.action, &["Restart", "RestartAllContainers"]);
    let at = at.field("exitCodes");
    let Some(exit_codes) = &rule.exit_codes else {
        out.required(&at, "");
        return;
    };
    out.one_of(&at.field("operator"), &exit_codes.operator, &["In", "NotIn"]);
    if exit_codes.values.len() > EXIT_CODES_MAX {
        out.too_many(&at.field("values"), exit_codes.values.len(), EXIT_CODES_MAX);
    }
}

fn check_resize_policy(out: &mut Problems, at: &Path<'_>, policies: &[ContainerResizePolicy]) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let at = at.index(index);
        if !seen.insert(&policy.resource_name) {
            out.duplicate(&at, &policy.resource_name);
        }
        let known = [resource::CPU, resource::MEMORY];
        out.one_of(&at.field("resourceName"), &policy.resource_name, &known);
        let restart = at.field("restartPolicy");
        if out.require(&restart, &policy.restart_policy) {
            out.one_of(&restart, &policy.restart_policy, &["NotRequired", "RestartContainer"]);
        }
    }
}

fn check_ports(out: &mut Problems, at: &Path<'_>, ports: &[ContainerPort]) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let at = at.index(index);
        if !port.name.is_empty() {
            out.name(&at.field("name"), &port.name, names::port_name);
            if !seen.insert(&port.name) {
                out.duplicate(&at.field("name"), &port.name);
            }
        }
        match port.container_port {
            0 => out.required(&at.field("containerPort"), ""),
            number => handler::check_port_number(out, &at.field("containerPort"), number),
        }
        if port.host_port != 0 {
            handler::check_port_number(out, &at.field("hostPort"), port.host_port);
        }
        let known = [protocol::SCTP, protocol::TCP, protocol::UDP];
        out.one_of(&at.field("protocol"), &port.protocol, &known);
    }
}

fn check_host_ports(
    out: &mut Problems,
    at: &Path<'_>,
    spec: &PodSpec,
    container: &Container,
    taken: &mut TakenPorts,
) {
    check_host_port_doubles(out, at, container, taken);
    if !spec.host_network {
        return;
    }
    for (index, port) in container.ports.iter().enumerate() {
        if port.host_port != port.container_port {
            let message = "must match containerPort when hostNetwork is true";
            out.invalid(&at.index(index).field("hostPort"), port.host_port, message);
        }
    }
}

fn check_host_port_doubles(
    out: &mut Problems,
    at: &Path<'_>,
    container: &Container,
    taken: &mut TakenPorts,
) {
    for (index, port) in container.ports.iter().enumerate() {
        let key = (port.protocol.clone(), port.host_ip.clone(), port.host_port);
        if port.host_port != 0 && !taken.insert(key) {
            let value = format!("{}/{}/{}", port.protocol, port.host_ip, port.host_port);
            out.duplicate(&at.index(index).field("hostPort"), &value);
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
        let pointer = String::from("/spec/containers/0/") + field;
        testing::check(&[(&pointer, value)], want);
    }

    #[test]
    fn simple_fields() {
        testing::check(&[("/spec/containers", json!([]))], &["spec.containers: Required value"]);
        let many = vec![json!({"name": "", "image": "i"}); 1000];
        testing::check(&[("/spec/containers", json!(many))], &["spec.containers: Too many"]);
        check("name", json!(""), &["spec.containers[0].name: Required value"]);
        check("name", json!("a.b"), &["spec.containers[0].name: Invalid value"]);
        check("name", json!("b"), &["spec.containers[1].name: Duplicate value"]);
        check("name", json!("i"), &["spec.initContainers[0].name: Duplicate value"]);
        check("image", json!(""), &["spec.containers[0].image: Required value"]);
        check("image", json!(" x"), &["spec.containers[0].image: Invalid value"]);
        check("image", json!("A:b:c"), &[]);
        check(
            "imagePullPolicy",
            json!("x"),
            &["spec.containers[0].imagePullPolicy: Unsupported value"],
        );
        check(
            "terminationMessagePolicy",
            json!("x"),
            &["spec.containers[0].terminationMessagePolicy: Unsupported value"],
        );
        check(
            "resizePolicy",
            json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
                {"resourceName": "cpu", "restartPolicy": "x"}, {"resourceName": "foo"}]),
            &[
                "spec.containers[0].resizePolicy[1]: Duplicate value",
                "spec.containers[0].resizePolicy[1].restartPolicy: Unsupported value",
                "spec.containers[0].resizePolicy[2].resourceName: Unsupported value",
                "spec.containers[0].resizePolicy[2].restartPolicy: Required value",
            ],
        );
    }

    #[test]
    fn restart_rules() {
        check("restartPolicy", json!("OnFailure"), &[]);
        check(
            "restartPolicy",
            json!("x"),
            &["spec.containers[0].restartPolicy: Unsupported value"],
        );
        let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
        check(
            "restartPolicyRules",
            json!([rule]),
            &["spec.containers[0].restartPolicy: Required value"],
        );
        fn rules(rules: Value, want: &[&str]) {
            testing::check(
                &[
                    ("/spec/containers/0/restartPolicy", json!("Never")),
                    ("/spec/containers/0/restartPolicyRules", rules),
                ],
                want,
            );
        }
        rules(json!(vec![rule.clone(); 20]), &[]);
        rules(json!(vec![rule; 21]), &["spec.containers[0].restartPolicyRules: Too many"]);
        rules(
            json!([{"action": "x"}, {"action": "RestartAllContainers",
                "exitCodes": {"operator": "x", "values": vec![1; 256]}}]),
            &[
                "spec.containers[0].restartPolicyRules[0].action: Unsupported value",
                "spec.containers[0].restartPolicyRules[0].exitCodes: Required value",
                "spec.containers[0].restartPolicyRules[1].exitCodes.operator: Unsupported value",
                "spec.containers[0].restartPolicyRules[1].exitCodes.values: Too many",
            ],
        );
    }

    #[test]
    fn ports() {
        fn port(port: Value, field: &str, kind: &str) {
            let want = ["spec.containers[0].ports[0].", field, ": ", kind].concat();
            check("ports", json!([port]), &[&want]);
        }
        check("ports", json!([{"containerPort": 80}, {"containerPort": 80}]), &[]);
        port(json!({}), "containerPort", "Required value");
        port(json!({"containerPort": 65536}), "containerPort", "Invalid value");
        port(json!({"containerPort": 80, "hostPort": -1}), "hostPort", "Invalid value");
        port(json!({"containerPort": 80, "protocol": "tcp"}), "protocol", "Unsupported value");
        port(json!({"containerPort": 80, "name": "80"}), "name", "Invalid value");
        let named = json!({"containerPort": 80, "name": "a"});
        check(
            "ports",
            json!([named, named]),
            &["spec.containers[0].ports[1].name: Duplicate value"],
        );
    }

    #[test]
    fn ports_of_the_node() {
        let a = "/spec/containers/0/ports";
        let b = "/spec/containers/1/ports";
        let init = "/spec/initContainers/0/ports";
        let tcp = json!([{"containerPort": 80, "hostPort": 80}]);
        let udp = json!([{"containerPort": 80, "hostPort": 80, "protocol": "UDP"}]);
        let local = json!([{"containerPort": 80, "hostPort": 80, "hostIP": "127.0.0.1"}]);
        let taken = "spec.containers[1].ports[0].hostPort: Duplicate value";
        testing::check(&[(a, tcp.clone()), (b, tcp.clone())], &[taken]);
        testing::check(&[(a, tcp.clone()), (b, udp)], &[]);
        testing::check(&[(a, tcp.clone()), (b, local)], &[]);
        testing::check(&[(a, tcp.clone()), (init, tcp.clone())], &[]);
        let twice = json!([tcp[0], tcp[0]]);
        let taken = "spec.initContainers[0].ports[1].hostPort: Duplicate value";
        testing::check(&[(init, twice)], &[taken]);
        let other = json!([{"containerPort": 80, "hostPort": 81}]);
        let network = ("/spec/hostNetwork", json!(true));
        let differs = "spec.containers[0].ports[0].hostPort: Invalid value";
        testing::check(&[network, (a, other)], &[differs]);
    }

    #[test]
    fn init_containers() {
        let probe = json!({"exec": {"command": ["a"]}});
        let handlers = json!({"name": "i", "image": "x", "livenessProbe": probe,
            "readinessProbe": probe, "startupProbe": probe, "lifecycle": {"preStop": probe}});
        let mut sidecar = handlers.clone();
        sidecar["restartPolicy"] = json!("Always");
        testing::check(&[("/spec/initContainers/0", sidecar)], &[]);
        testing::check(
            &[("/spec/initContainers/0", handlers)],
            &[
                "spec.initContainers[0].lifecycle: Forbidden",
                "spec.initContainers[0].livenessProbe: Forbidden",
                "spec.initContainers[0].readinessProbe: Forbidden",
                "spec.initContainers[0].startupProbe: Forbidden",
            ],
        );
    }
}
