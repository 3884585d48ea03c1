//! What the restart policy wants of a pod: which containers run again, how far initialization is,
//! when all is over.
//!
//! Upstream: pkg/kubelet/kuberuntime (computePodActions, computeInitContainerActions), v1.36.
//! Pure reads of a spec and a view: the plan of a sync and the reported status
//! must agree, so both ask here. What ran in an older sandbox does not count as initialization: the
//! view knows the sandbox of each container, so removed init containers never run again beside
//! running ones (k/k#62362), and a new sandbox starts from the first.

use crate::managers::pods::view::{ContainerState, ContainerView, PodView};
use alloc::vec::Vec;
use steplet_api::container::{Container, ContainerRestartRule};
use steplet_api::pod::{Pod, restart_policy};
pub use steplet_api::pod_facts::is_sidecar;

/// Values of `ContainerRestartRule.action`.
pub const ACTION_RESTART: &str = "Restart";
pub const ACTION_RESTART_ALL: &str = "RestartAllContainers";

/// The runtime's reason for a container that the kernel killed for its memory; its exit code may be
/// 0.
const OOM_KILLED: &str = "OOMKilled";

/// How far the init containers of a pod are. Indexes count in `spec.initContainers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitProgress {
    /// All have done their part: the main containers may run.
    Done,
    /// This one is to be started, or started again.
    Next(usize),
    /// This one is at work.
    Wait(usize),
    /// One has failed and may not run again: the pod has failed.
    Failed,
}

/// Whether a container that has ended with this code runs again: by its rules, else by its own
/// policy, else by the pod's. Rules need a policy of the container itself (KEP-5307).
pub fn container_restarts(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    if let Some(own) = container.restart_policy.as_deref() {
        let action = matching_rule(container, exit_code).map(|rule| &*rule.action);
        if matches!(action, Some(ACTION_RESTART | ACTION_RESTART_ALL)) {
            return true;
        }
        if let Some(answer) = policy_restarts(own, exit_code) {
            return answer;
        }
    }
    policy_restarts(&pod.spec.restart_policy, exit_code).unwrap_or(true)
}

/// Whether a container that has ended with this code asks for a restart of all containers of its
/// pod (KEP-5532).
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    matching_rule(container, exit_code).is_some_and(|rule| &*rule.action == ACTION_RESTART_ALL)
}

/// Whether some exited container of the pod asks for a restart of all.
pub fn restart_all_wanted(pod: &Pod, view: &PodView) -> bool {
    pod.spec.init_containers.iter().chain(&pod.spec.containers).any(|container| {
        view.container(&container.name).is_some_and(|shown| {
            shown.state == ContainerState::Exited && restarts_all(container, shown.exit_code)
        })
    })
}

/// Whether a container whose end is unknown, or that is about to be killed, runs again. There is no
/// exit code, so rules do not count.
pub fn restarts_after_kill(pod: &Pod, container: &Container) -> bool {
    let policy = container.restart_policy.as_deref().unwrap_or(&pod.spec.restart_policy);
    policy != restart_policy::NEVER
}

/// Whether this main container is to be started: it never was, or it does not run and the policy
/// wants it back. One that is `Unknown` may still run: kill it first.
pub fn start_wanted(pod: &Pod, container: &Container, view: &PodView) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match view.container(&container.name) {
        None => true,
        Some(shown) => match shown.state {
            ContainerState::Running => false,
            ContainerState::Created | ContainerState::Unknown => true,
            ContainerState::Exited => container_restarts(pod, container, shown.exit_code),
        },
    }
}

/// How far the init containers are, in the newest sandbox.
pub fn init_progress(pod: &Pod, view: &PodView) -> InitProgress {
    let inits = &pod.spec.init_containers;
    if inits.is_empty() || main_container_in_sandbox(pod, view) {
        return InitProgress::Done;
    }
    // The last one that has a trace tells: the finished ones before it may have been removed.
    let newest = inits.iter().enumerate().rev();
    let Some((index, init, shown)) =
        newest.filter_map(|(i, c)| Some((i, c, in_sandbox(view, &c.name)?))).next()
    else {
        return InitProgress::Next(0);
    };
    let over =
        if index + 1 == inits.len() { InitProgress::Done } else { InitProgress::Next(index + 1) };
    let again = |allowed| if allowed { InitProgress::Next(index) } else { InitProgress::Failed };
    match shown.state {
        // The runtime could not start it.
        ContainerState::Created => InitProgress::Next(index),
        ContainerState::Running if is_sidecar(init) => over,
        ContainerState::Running => InitProgress::Wait(index),
        ContainerState::Exited if is_sidecar(init) => InitProgress::Next(index),
        ContainerState::Exited if init_failed(shown) => {
            again(container_restarts(pod, init, shown.exit_code))
        }
        ContainerState::Exited => over,
        ContainerState::Unknown => again(restarts_after_kill(pod, init)),
    }
}

/// Sidecars that were started before and do not run now, in spec order; the one that
/// `init_progress` names as `Next` is not among them. Empty once the pod is finished, so that they
/// do not keep it alive.
pub fn sidecars_to_start(pod: &Pod, view: &PodView) -> Vec<usize> {
    let below = match init_progress(pod, view) {
        InitProgress::Done => pod.spec.init_containers.len(),
        InitProgress::Next(index) | InitProgress::Wait(index) => index,
        InitProgress::Failed => 0,
    };
    if pod_finished(pod, view) {
        return Vec::new();
    }
    let down =
        |name| in_sandbox(view, name).is_none_or(|shown| shown.state != ContainerState::Running);
    let inits = pod.spec.init_containers.iter().enumerate().take(below);
    inits.filter(|(_, c)| is_sidecar(c) && down(&c.name)).map(|(index, _)| index).collect()
}

/// Whether nothing of the pod has to run any more: initialization has failed for good, or every
/// main container has ended and none comes back. Its sandbox and sidecars are to be stopped then.
pub fn pod_finished(pod: &Pod, view: &PodView) -> bool {
    let over = |container: &Container| {
        view.container(&container.name).is_some_and(|shown| {
            shown.state == ContainerState::Exited
                && !container_restarts(pod, container, shown.exit_code)
        })
    };
    pod.spec.containers.iter().all(over) || init_progress(pod, view) == InitProgress::Failed
}

/// What a pod needs of its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxNeed {
    /// The newest one serves.
    Keep,
    /// None serves: kill what there is and make one with this attempt.
    Create { attempt: u32 },
    /// None serves, and nothing is left to run in a new one: only kill what there is.
    Drop,
}

/// Whether the newest sandbox serves: ready, the only ready one, of the right network, with an
/// address. Else the attempt of the one to make.
pub fn sandbox_changed(pod: &Pod, view: &PodView) -> Option<u32> {
    let Some(newest) = view.sandbox() else { return Some(0) };
    let ready = view.sandboxes.iter().filter(|sandbox| sandbox.ready).count();
    let serves = newest.ready
        && ready == 1
        && newest.host_network == pod.spec.host_network
        && (newest.host_network || !newest.ips.is_empty());
    if serves { None } else { Some(newest.attempt.saturating_add(1)) }
}

/// What to do about the sandbox of a pod that is to run.
pub fn sandbox_need(pod: &Pod, view: &PodView) -> SandboxNeed {
    let Some(attempt) = sandbox_changed(pod, view) else { return SandboxNeed::Keep };
    // A pod that must not restart does not begin anew either, once a container of it has run. (Upstream counts also
    // those that were made and never started: a job whose sandbox died in that moment would never run.)
    let never = &*pod.spec.restart_policy == restart_policy::NEVER;
    let ran = |c: &ContainerView| c.state != ContainerState::Created;
    if never && attempt != 0 && view.containers.iter().any(ran) {
        return SandboxNeed::Drop;
    }
    let run_once = |container: &Container| {
        container.restart_policy.as_deref().unwrap_or(&pod.spec.restart_policy)
            == restart_policy::ON_FAILURE
    };
    let succeeded = |container: &Container| {
        view.container(&container.name)
            .is_some_and(|shown| shown.state == ContainerState::Exited && shown.exit_code == 0)
    };
    if pod.spec.containers.iter().all(|c| run_once(c) && succeeded(c)) {
        return SandboxNeed::Drop;
    }
    SandboxNeed::Create { attempt }
}

/// The newest container of this name, if it is in the newest sandbox.
pub fn in_sandbox<'a>(view: &'a PodView, name: &str) -> Option<&'a ContainerView> {
    let sandbox = view.sandbox()?;
    view.container(name).filter(|shown| shown.sandbox == sandbox.id)
}

/// Whether a main container was made in the newest sandbox: then all init containers have been run
/// there.
pub fn main_container_in_sandbox(pod: &Pod, view: &PodView) -> bool {
    pod.spec.containers.iter().any(|container| {
        in_sandbox(view, &container.name)
            .is_some_and(|shown| shown.state != ContainerState::Unknown)
    })
}

fn init_failed(shown: &ContainerView) -> bool {
    shown.exit_code != 0 || &*shown.reason == OOM_KILLED
}

fn policy_restarts(policy: &str, exit_code: i32) -> Option<bool> {
    match policy {
        restart_policy::ALWAYS => Some(true),
        restart_policy::ON_FAILURE => Some(exit_code != 0),
        restart_policy::NEVER => Some(false),
        _ => None,
    }
}

/// The first rule whose exit codes match.
fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| match &*codes.operator {
            "In" => codes.values.contains(&exit_code),
            "NotIn" => !codes.values.contains(&exit_code),
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::{pod, view};
    use alloc::format;
    use alloc::vec;

    #[test]
    fn who_runs_again() {
        fn check(pod_policy: &str, container: &str, codes: [bool; 3]) {
            let pod = pod(&format!(
                r#"{{"restartPolicy":"{pod_policy}","containers":[{{"name":"c"{container}}}]}}"#
            ));
            let got =
                [0, 1, 42].map(|code| container_restarts(&pod, &pod.spec.containers[0], code));
            assert_eq!(got, codes, "{pod_policy} {container}");
        }
        check("Always", "", [true, true, true]);
        check("OnFailure", "", [false, true, true]);
        check("Never", "", [false, false, false]);
        check("", "", [true, true, true]);
        check("Always", r#","restartPolicy":"Never""#, [false, false, false]);
        check("Never", r#","restartPolicy":"OnFailure""#, [false, true, true]);
        let rule = |action: &str, operator: &str| {
            format!(
                r#","restartPolicy":"Never","restartPolicyRules":[{{"action":"{action}",
                "exitCodes":{{"operator":"{operator}","values":[42]}}}}]"#
            )
        };
        check("Never", &rule("Restart", "In"), [false, false, true]);
        check("Never", &rule("Restart", "NotIn"), [true, true, false]);
        check("Never", &rule("RestartAllContainers", "In"), [false, false, true]);
        check("Always", &rule("Dance", "In"), [false, false, false]);
        check("Always", &rule("Restart", "Near"), [false, false, false]);
    }

    #[test]
    fn a_rule_restarts_the_whole_pod() {
        let pod = pod(r#"{"restartPolicy":"Never","containers":[{"name":"a"},
            {"name":"b","restartPolicy":"Never","restartPolicyRules":[
                {"action":"Restart","exitCodes":{"operator":"In","values":[1]}},
                {"action":"RestartAllContainers",
                    "exitCodes":{"operator":"NotIn","values":[0]}}]}]}"#);
        let check =
            |words, want| assert_eq!(restart_all_wanted(&pod, &view(words)), want, "{words}");
        check("@0 a=exit:2 b=run", false);
        check("@0 a=run b=exit:2", true);
        check("@0 a=run b=exit:1", false);
        check("@0 a=run b=exit:2 b.1=run", false);
    }

    const INITS: &str = r#""initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"},
        {"name":"k"}],"containers":[{"name":"c"}]"#;

    #[test]
    fn initialization() {
        use InitProgress::{Done, Failed, Next, Wait};
        fn check(policy: &str, words: &str, want: InitProgress, sidecars: &[usize]) {
            let pod = pod(&format!(r#"{{"restartPolicy":"{policy}",{INITS}}}"#));
            let view = view(words);
            assert_eq!(init_progress(&pod, &view), want, "{policy} {words}");
            assert_eq!(sidecars_to_start(&pod, &view), sidecars, "{policy} {words}");
        }
        check("Always", "", Next(0), &[]);
        check("Always", "@0", Next(0), &[]);
        check("Always", "@0 i=new", Next(0), &[]);
        check("Always", "@0 i=run", Wait(0), &[]);
        check("Always", "@0 i=exit:1", Next(0), &[]);
        check("OnFailure", "@0 i=exit:1", Next(0), &[]);
        check("Never", "@0 i=exit:1", Failed, &[]);
        check("Never", "@0 i=lost", Failed, &[]);
        check("Always", "@0 i=lost", Next(0), &[]);
        check("Never", "@0 i=exit:0", Next(1), &[]);
        check("Never", "@0 i=exit:0 s=run", Next(2), &[]);
        check("Never", "@0 i=exit:0 s=exit:3", Next(1), &[]);
        check("Never", "@0 i=exit:0 s=run k=run", Wait(2), &[]);
        // The sidecar fell over while the last one works.
        check("Never", "@0 i=exit:0 s=exit:0 k=run", Wait(2), &[1]);
        check("Never", "@0 s=run k=exit:0", Done, &[]);
        // Removed init containers do not run again (k/k#62362).
        check("Always", "@0 s=run c=run", Done, &[]);
        check("Always", "@0 c=exit:1", Done, &[1]);
        check("Never", "@0 c=exit:1", Done, &[]);
        // What ran in an older sandbox says nothing about the new one.
        check("Always", "!0 i=exit:0 s=exit:0 k=exit:0 c=exit:255 @1", Next(0), &[]);
        check("Always", "!0 i=exit:0 c=exit:255 @1 i.1=exit:0", Next(1), &[]);
    }

    #[test]
    fn an_init_container_out_of_memory_has_failed_whatever_its_code() {
        let pod = pod(r#"{"restartPolicy":"Always","initContainers":[{"name":"i"}],
            "containers":[{"name":"c"}]}"#);
        let mut view = view("@0 i=exit:0");
        view.containers[0].reason = OOM_KILLED.into();
        assert_eq!(init_progress(&pod, &view), InitProgress::Next(0));
    }

    #[test]
    fn the_end_of_a_pod() {
        fn check(policy: &str, words: &str, want: bool) {
            let pod = pod(&format!(
                r#"{{"restartPolicy":"{policy}","initContainers":[{{"name":"i"}}],
                "containers":[{{"name":"a"}},{{"name":"b"}}]}}"#
            ));
            assert_eq!(pod_finished(&pod, &view(words)), want, "{policy} {words}");
        }
        check("Never", "", false);
        check("Never", "@0 i=exit:0 a=exit:0", false);
        check("Never", "@0 i=exit:0 a=exit:0 b=run", false);
        check("Never", "@0 i=exit:0 a=exit:0 b=exit:1", true);
        check("OnFailure", "@0 a=exit:0 b=exit:1", false);
        check("OnFailure", "@0 a=exit:0 b=exit:0", true);
        check("Always", "@0 a=exit:0 b=exit:0", false);
        check("Never", "@0 i=exit:1", true);
        check("Never", "@0 i=exit:0 a=exit:0 b=lost", false);
    }

    #[test]
    fn sandboxes() {
        use SandboxNeed::{Create, Drop, Keep};
        fn check(policy: &str, words: &str, want: SandboxNeed) {
            let pod =
                pod(&format!(r#"{{"restartPolicy":"{policy}","containers":[{{"name":"c"}}]}}"#));
            assert_eq!(sandbox_need(&pod, &view(words)), want, "{policy} {words}");
        }
        check("Always", "", Create { attempt: 0 });
        check("Always", "@0", Keep);
        check("Always", "!0", Create { attempt: 1 });
        check("Always", "!0 @1", Keep);
        check("Always", "@0 !1", Create { attempt: 2 });
        check("Always", "@0 @1", Create { attempt: 2 });
        check("Never", "!0", Create { attempt: 1 });
        check("Never", "!0 c=new", Create { attempt: 1 });
        check("Never", "!0 c=exit:0", Drop);
        check("OnFailure", "!0 c=exit:0", Drop);
        check("OnFailure", "!0 c=exit:1", Create { attempt: 1 });
        check("Always", "!0 c=exit:0", Create { attempt: 1 });
    }

    #[test]
    fn a_sandbox_needs_the_right_network_and_an_address() {
        let own = pod(r#"{"containers":[{"name":"c"}]}"#);
        let host = pod(r#"{"hostNetwork":true,"containers":[{"name":"c"}]}"#);
        let mut seen = view("@3");
        assert_eq!([sandbox_changed(&own, &seen), sandbox_changed(&host, &seen)], [None, Some(4)]);
        seen.sandboxes[0].ips = vec![];
        assert_eq!(sandbox_changed(&own, &seen), Some(4));
        seen.sandboxes[0].host_network = true;
        assert_eq!([sandbox_changed(&own, &seen), sandbox_changed(&host, &seen)], [Some(4), None]);
    }

    #[test]
    fn starts_of_main_containers() {
        fn check(words: &str, want: bool) {
            let pod = pod(r#"{"restartPolicy":"OnFailure","containers":[{"name":"c"}]}"#);
            assert_eq!(start_wanted(&pod, &pod.spec.containers[0], &view(words)), want, "{words}");
        }
        check("@0", true);
        check("@0 c=run", false);
        check("@0 c=new", true);
        check("@0 c=lost", true);
        check("@0 c=exit:0", false);
        check("@0 c=exit:1", true);
        check("@0 c=exit:1 c.1=run", false);
    }
}
