//! Amounts that containers and pods ask for and are limited to.

use alloc::collections::BTreeSet;
use alloc::format;

use super::{Path, Problems, names};
use crate::container::{ResourceClaim, ResourceRequirements};
use crate::pod::{PodSpec, ResourceList, resource};
use crate::pod_facts;
use crate::quantity::Quantity;

pub(super) fn check_container(
    out: &mut Problems,
    at: &Path<'_>,
    spec: &PodSpec,
    resources: &ResourceRequirements,
) {
    check_list(out, &at.field("limits"), &resources.limits);
    check_list(out, &at.field("requests"), &resources.requests);
    check_requests_against_limits(out, at, resources);
    check_huge_pages_have_company(out, at, resources);
    check_claims(out, &at.field("claims"), spec, &resources.claims);
}

pub(super) fn check_overhead(out: &mut Problems, at: &Path<'_>, overhead: &ResourceList) {
    check_list(out, at, overhead);
}

/// Resources of the pod as a whole: they hold all that its containers ask for, and no container may
/// exceed them.
pub(super) fn check_pod_level(out: &mut Problems, at: &Path<'_>, spec: &PodSpec) {
    let Some(resources) = spec.resources.as_deref() else {
        return;
    };
    if !resources.claims.is_empty() {
        out.forbidden(&at.field("claims"), "may not be set for a pod as a whole");
    }
    for (side, list) in [("limits", &resources.limits), ("requests", &resources.requests)] {
        let at = at.field(side);
        for (name, amount) in list {
            let at = at.key(name);
            if pod_facts::is_pod_level_resource(name) {
                check_amount(out, &at, name, amount);
            } else {
                out.one_of(&at, name, &["cpu", "hugepages-", "memory"]);
            }
        }
    }
    check_requests_against_limits(out, at, resources);
    check_huge_pages_have_company(out, at, resources);
    let requests = at.field("requests");
    for (name, asked) in pod_facts::container_requests(spec) {
        if resources.requests.get(&name).is_some_and(|request| *request < asked) {
            let message = format_args!("must not be less than the {asked} that containers request");
            let request = resources.requests[&name];
            out.invalid(&requests.key(&name), format!("{request}"), message);
        }
    }
    let spec_at = Path::root("spec");
    let kinds = [("containers", &spec.containers), ("initContainers", &spec.init_containers)];
    for (field, containers) in kinds {
        let at = spec_at.field(field);
        for (index, container) in containers.iter().enumerate() {
            let at = at.index(index);
            let at = at.field("resources");
            check_below_pod(out, &at.field("limits"), &container.resources, resources);
        }
    }
}

fn check_below_pod(
    out: &mut Problems,
    at: &Path<'_>,
    container: &ResourceRequirements,
    pod: &ResourceRequirements,
) {
    for (name, limit) in &container.limits {
        if let Some(pod_limit) = pod.limits.get(name).filter(|pod_limit| limit > pod_limit) {
            let message = format_args!("must not be more than the pod's limit of {pod_limit}");
            out.invalid(&at.key(name), format!("{limit}"), message);
        }
    }
}

fn check_list(out: &mut Problems, at: &Path<'_>, list: &ResourceList) {
    for (name, amount) in list {
        let at = at.key(name);
        check_resource_name(out, &at, name);
        check_amount(out, &at, name, amount);
    }
}

/// Resources of Kubernetes itself, as against those that device plugins bring.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with(resource::HUGEPAGES_PREFIX)
}

fn is_extended(name: &str) -> bool {
    let in_quota = format!("requests.{name}");
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&in_quota).is_none()
}

fn check_resource_name(out: &mut Problems, at: &Path<'_>, name: &str) {
    let of_containers = [resource::CPU, resource::MEMORY, resource::EPHEMERAL_STORAGE];
    if let Some(message) = names::qualified_name(name) {
        out.invalid(at, name, message);
    } else if !name.contains('/') {
        if !of_containers.contains(&name) && !is_huge_page(name) {
            let message =
                "must be a resource of containers, or have a domain name and '/' before it";
            out.invalid(at, name, message);
        }
    } else if !is_native(name) && !is_extended(name) {
        out.invalid(at, name, "is too long or begins with 'requests.'");
    }
}

fn check_amount(out: &mut Problems, at: &Path<'_>, name: &str, amount: &Quantity) {
    let quoted = || format!("{amount}");
    if amount.is_negative() {
        out.invalid(at, quoted(), "must be greater than or equal to 0");
    }
    if is_extended(name) && amount.milli_value() % 1000 != 0 {
        out.invalid(at, quoted(), "must be an integer");
    }
    if let Some(size) = name.strip_prefix(resource::HUGEPAGES_PREFIX) {
        let size = Quantity::parse(size).unwrap_or_default().value();
        if size <= 0 || amount.value() % size != 0 {
            out.invalid(at, quoted(), "must be a multiple of the page size in the resource's name");
        }
    }
}

/// Requests lie within limits. Huge pages and devices exist or do not: there requests and limits
/// are equal.
fn check_requests_against_limits(
    out: &mut Problems,
    at: &Path<'_>,
    resources: &ResourceRequirements,
) {
    for (name, request) in &resources.requests {
        let overcommitted = is_native(name) && !is_huge_page(name);
        let quoted = || format!("{request}");
        match resources.limits.get(name) {
            Some(limit) if !overcommitted && request != limit => {
                let message = format_args!("must be equal to the {name} limit of {limit}");
                out.invalid(&at.field("requests"), quoted(), message);
            }
            Some(limit) if request > limit => {
                let message = format_args!("must not be more than the {name} limit of {limit}");
                out.invalid(&at.field("requests"), quoted(), message);
            }
            None if !overcommitted => {
                out.required(&at.field("limits"), "must be set for what cannot be overcommitted");
            }
            _ => {}
        }
    }
}

fn check_huge_pages_have_company(
    out: &mut Problems,
    at: &Path<'_>,
    resources: &ResourceRequirements,
) {
    let names = || resources.limits.keys().chain(resources.requests.keys());
    let huge = names().any(|name| is_huge_page(name));
    let company = names().any(|name| matches!(&**name, resource::CPU | resource::MEMORY));
    if huge && !company {
        out.forbidden(at, "huge pages need cpu or memory beside them");
    }
}

fn check_claims(out: &mut Problems, at: &Path<'_>, spec: &PodSpec, claims: &[ResourceClaim]) {
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let at = at.index(index);
        if !out.require(&at, &claim.name) {
            continue;
        }
        if !seen.insert((&claim.name, &claim.request)) {
            out.duplicate(&at, &claim.name);
        }
        if !spec.resource_claims.iter().any(|known| known.name == claim.name) {
            out.not_found(&at, &claim.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde_json::{Value, json};

    use crate::validation::testing;

    fn check_at(pointer: &str, path: &str, resources: Value, want: &[&str]) {
        let want: Vec<_> = want.iter().map(|want| [path, *want].concat()).collect();
        let want: Vec<_> = want.iter().map(|want| &**want).collect();
        testing::check(&[(pointer, resources)], &want);
    }

    #[test]
    fn of_a_container() {
        fn check(limits: Value, requests: Value, want: &[&str]) {
            let resources = json!({"limits": limits, "requests": requests});
            let path = "spec.containers[0].resources";
            check_at("/spec/containers/0/resources", path, resources, want);
        }
        let none = || json!({});
        check(json!({"cpu": "1.5", "memory": "1.5", "ephemeral-storage": "1"}), none(), &[]);
        check(json!({"cpu": "2"}), json!({"cpu": "1"}), &[]);
        check(json!({"cpu": "1"}), json!({"cpu": "2"}), &[".requests: Invalid value"]);
        check(
            json!({"cpu": "-1"}),
            none(),
            &[".limits[cpu]: Invalid value", ".requests[cpu]: Invalid value"],
        );
        check(none(), json!({"foo": "1"}), &[".requests[foo]: Invalid value"]);
        check(none(), json!({"pods": "1"}), &[".requests[pods]: Invalid value"]);
        check(none(), json!({"kubernetes.io/foo": "1.5"}), &[]);
        check(json!({"a.b/c": "2"}), none(), &[]);
        check(json!({"a.b/c": "2"}), json!({"a.b/c": "1"}), &[".requests: Invalid value"]);
        check(none(), json!({"a.b/c": "1"}), &[".limits: Required value"]);
        check(
            json!({"a.b/c": "1.5"}),
            none(),
            &[".limits[a.b/c]: Invalid value", ".requests[a.b/c]: Invalid value"],
        );
        check(
            json!({"a.b/c d": "1"}),
            none(),
            &[".limits[a.b/c d]: Invalid value", ".requests[a.b/c d]: Invalid value"],
        );
        check(
            json!({"requests.a.b/c": "1"}),
            none(),
            &[".limits[requests.a.b/c]: Invalid value", ".requests[requests.a.b/c]: Invalid value"],
        );
    }

    #[test]
    fn huge_pages() {
        fn check(limits: Value, want: &[&str]) {
            let resources = json!({ "limits": limits });
            let path = "spec.containers[0].resources";
            check_at("/spec/containers/0/resources", path, resources, want);
        }
        check(json!({"cpu": "1", "hugepages-2Mi": "4Mi"}), &[]);
        check(json!({"hugepages-2Mi": "4Mi"}), &[": Forbidden"]);
        for (name, amount) in [("hugepages-2Mi", "3Mi"), ("hugepages-x", "1"), ("hugepages-0", "1")]
        {
            let limits = [".limits[", name, "]: Invalid value"].concat();
            let requests = [".requests[", name, "]: Invalid value"].concat();
            check(json!({"cpu": "1", name: amount}), &[&limits, &requests]);
        }
    }

    #[test]
    fn claims() {
        fn check(claims: Value, want: &[&str]) {
            let resources = json!({ "claims": claims });
            let path = "spec.containers[0].resources.claims";
            check_at("/spec/containers/0/resources", path, resources, want);
        }
        check(json!([{"name": ""}]), &["[0]: Required value"]);
        check(
            json!([{"name": "x"}, {"name": "x"}]),
            &["[0]: Not found", "[1]: Duplicate value", "[1]: Not found"],
        );
    }

    #[test]
    fn of_a_pod_as_a_whole() {
        fn check(pod: Value, container: Value, want: &[&str]) {
            testing::check(
                &[("/spec/resources", pod), ("/spec/containers/0/resources", container)],
                want,
            );
        }
        let none = || json!({});
        check(json!({"limits": {"cpu": "2", "memory": "1Gi"}}), none(), &[]);
        check(
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            none(),
            &["spec.resources.requests: Invalid value"],
        );
        check(
            json!({"requests": {"ephemeral-storage": "1"}}),
            none(),
            &["spec.resources.requests[ephemeral-storage]: Unsupported value"],
        );
        check(
            json!({"requests": {"cpu": "1m"}}),
            json!({"requests": {"cpu": "1"}}),
            &["spec.resources.requests[cpu]: Invalid value"],
        );
        check(
            json!({"limits": {"memory": "1Mi"}, "requests": {"memory": "1Mi"}}),
            json!({"limits": {"memory": "2Mi"}, "requests": {"memory": "1Mi"}}),
            &["spec.containers[0].resources.limits[memory]: Invalid value"],
        );
        check(json!({"claims": [{"name": "a"}]}), none(), &["spec.resources.claims: Forbidden"]);
    }
}
