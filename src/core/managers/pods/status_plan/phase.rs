//! The phase of a pod: the sum of its containers in one word.
//!
//! Upstream: getPhase in pkg/kubelet/kubelet_pods.go, v1.36.

use super::containers::{ContainerStatuses, RESTARTING_ALL_CONTAINERS};
use crate::managers::pods::policy::{container_restarts, is_sidecar};
use steplet_api::container::Container;
use steplet_api::pod::Pod;
use steplet_api::status::{ContainerStateTerminated, ContainerStatus, phase};

/// What the containers of a pod are up to.
#[derive(Default)]
struct Count {
    init_pending: u32,
    /// Ended badly, and does not run again.
    init_failed: u32,
    sidecar_pending: u32,
    running: u32,
    waiting: u32,
    stopped: u32,
    stopped_for_good: u32,
    succeeded: u32,
}

/// `initialized`: a main container was made in the newest sandbox. `ends`: the pod is taken down,
/// so that what has ended stays so, whatever the policy.
pub fn pod_phase(
    pod: &Pod,
    containers: &ContainerStatuses,
    initialized: bool,
    ends: bool,
) -> &'static str {
    let mut count = Count::default();
    for (container, status) in pod.spec.init_containers.iter().zip(&containers.init) {
        if is_sidecar(container) {
            count.sidecar(status);
        } else {
            count.init(pod, container, status);
        }
    }
    for (container, status) in pod.spec.containers.iter().zip(&containers.main) {
        count.main(pod, container, status);
    }
    let pending = count.init_pending > 0 || (count.sidecar_pending > 0 && !initialized);
    if count.init_failed > 0 {
        phase::FAILED
    } else if pending || count.waiting > 0 {
        phase::PENDING
    } else if count.running > 0 {
        phase::RUNNING
    } else if count.stopped == 0 {
        phase::PENDING
    } else if !ends && count.stopped != count.stopped_for_good {
        // Some are about to run again.
        phase::RUNNING
    } else if count.stopped == count.succeeded {
        phase::SUCCEEDED
    } else {
        phase::FAILED
    }
}

impl Count {
    fn init(&mut self, pod: &Pod, container: &Container, status: &ContainerStatus) {
        match ended(status) {
            Some(end) if status.state.running.is_none() => {
                if end.exit_code != 0 && !restarts(pod, container, end) {
                    self.init_failed += 1;
                }
            }
            _ => self.init_pending += 1,
        }
    }

    /// A sidecar that has ended does not count: it is started again, or has served its time.
    fn sidecar(&mut self, status: &ContainerStatus) {
        if status.state.running.is_some() {
            self.running += 1;
            if status.started != Some(true) {
                self.sidecar_pending += 1;
            }
        } else if ended(status).is_none() {
            self.sidecar_pending += 1;
            self.waiting += 1;
        }
    }

    fn main(&mut self, pod: &Pod, container: &Container, status: &ContainerStatus) {
        if status.state.running.is_some() {
            self.running += 1;
            return;
        }
        let Some(end) = ended(status) else {
            self.waiting += 1;
            return;
        };
        self.stopped += 1;
        if !restarts(pod, container, end) {
            self.stopped_for_good += 1;
        }
        if end.exit_code == 0 && status.state.terminated.is_some() {
            self.succeeded += 1;
        }
    }
}

/// How a container ended that ended, or that waits to run again.
fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.terminated.as_deref().or(status.last_state.terminated.as_deref())
}

fn restarts(pod: &Pod, container: &Container, end: &ContainerStateTerminated) -> bool {
    &*end.reason == RESTARTING_ALL_CONTAINERS || container_restarts(pod, container, end.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::pod;
    use alloc::boxed::Box;
    use alloc::format;
    use steplet_api::status::ContainerStateRunning;

    /// `run`, `slow` (running, not started), `wait`, `exit:N`, `again:N` (waits after an end).
    fn status(word: &str) -> ContainerStatus {
        let mut status = ContainerStatus::default();
        let (word, code) = word.split_once(':').unwrap_or((word, "0"));
        let end = Box::new(ContainerStateTerminated {
            exit_code: code.parse().expect("an exit code"),
            ..ContainerStateTerminated::default()
        });
        match word {
            "run" | "slow" => {
                status.state.running = Some(Box::new(ContainerStateRunning::default()));
                status.started = Some(word == "run");
            }
            "wait" => status.state.waiting = Some(Box::default()),
            "exit" => status.state.terminated = Some(end),
            "again" => {
                status.state.waiting = Some(Box::default());
                status.last_state.terminated = Some(end);
            }
            other => panic!("no state {other}"),
        }
        status
    }

    /// `init` and `main` give the states of containers; `s=STATE` is a sidecar.
    fn phase_of(
        policy: &str,
        init: &str,
        main: &str,
        initialized: bool,
        ends: bool,
    ) -> &'static str {
        let mut pod = pod(&format!(r#"{{"restartPolicy":"{policy}","containers":[]}}"#));
        let mut containers = ContainerStatuses::default();
        for word in init.split_whitespace() {
            let state = word.strip_prefix("s=");
            let restart_policy = state.map(|_| "Always".into());
            pod.spec.init_containers.push(Container { restart_policy, ..Container::default() });
            containers.init.push(status(state.unwrap_or(word)));
        }
        for word in main.split_whitespace() {
            pod.spec.containers.push(Container::default());
            containers.main.push(status(word));
        }
        pod_phase(&pod, &containers, initialized, ends)
    }

    #[test]
    fn main_containers() {
        fn check(policy: &str, main: &str, want: &str) {
            assert_eq!(phase_of(policy, "", main, false, false), want, "{policy} {main}");
        }
        check("Always", "wait", "Pending");
        check("Always", "run wait", "Pending");
        check("Always", "run run", "Running");
        check("Always", "run exit:1", "Running");
        check("Always", "exit:0 exit:0", "Running");
        check("Always", "again:1", "Running");
        check("OnFailure", "exit:0 exit:1", "Running");
        check("OnFailure", "exit:0 again:1", "Running");
        check("OnFailure", "exit:0 exit:0", "Succeeded");
        check("Never", "exit:0 exit:0", "Succeeded");
        check("Never", "exit:0 exit:1", "Failed");
        check("Never", "exit:1 run", "Running");
        check("Never", "again:1", "Failed");
    }

    #[test]
    fn initialization() {
        fn check(policy: &str, init: &str, main: &str, initialized: bool, want: &str) {
            let got = phase_of(policy, init, main, initialized, false);
            assert_eq!(got, want, "{policy} {init} | {main}");
        }
        check("Always", "run", "wait", false, "Pending");
        check("Always", "exit:0 wait", "wait", false, "Pending");
        check("Always", "exit:0", "wait", false, "Pending");
        check("Always", "exit:0", "run", true, "Running");
        check("Always", "exit:1", "wait", false, "Pending");
        check("Never", "exit:1", "wait", false, "Failed");
        check("Never", "again:1", "wait", false, "Failed");
        check("Always", "again:1", "wait", false, "Pending");
        check("Always", "s=slow", "wait", false, "Pending");
        check("Always", "s=run", "run", true, "Running");
        check("Always", "s=slow", "run", true, "Running");
        check("Always", "s=again:1", "run", true, "Running");
        check("Never", "s=exit:1", "exit:0", true, "Succeeded");
        check("Never", "s=run", "exit:0", true, "Running");
        check("Always", "s=wait", "run", true, "Pending");
    }

    #[test]
    fn pods_that_are_taken_down() {
        fn check(policy: &str, main: &str, want: &str) {
            assert_eq!(phase_of(policy, "", main, true, true), want, "{policy} {main}");
        }
        check("Always", "exit:0", "Succeeded");
        check("Always", "exit:143", "Failed");
        check("Always", "run exit:0", "Running");
        check("Always", "wait", "Pending");
    }
}
