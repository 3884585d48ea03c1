//! The status of a pod as it is reported: from its spec, what the runtime shows, and the status
//! before.
//!
//! Upstream: generateAPIPodStatus in pkg/kubelet and pkg/kubelet/status, v1.36.
//! Pure: the same input gives the same status. Never: a phase that goes back from Succeeded or
//! Failed, or reaches them while something of the pod may still run; an unknown end counts as
//! exit 137, never as 0 (k/k#58711). Probes are not there yet: a running container counts as
//! started and ready.

pub mod conditions;
pub mod containers;
pub mod phase;

use super::policy;
use super::view::PodView;
use crate::event::Machine;
use crate::managers::containers::hosts::pod_ips;
use crate::time::Wall;
use alloc::boxed::Box;
use alloc::vec::Vec;
use containers::ContainerStatuses;
use steplet_api::container::ResourceRequirements;
use steplet_api::pod::Pod;
use steplet_api::pod_facts::{effective_limits, effective_requests, is_static, qos_class};
use steplet_api::status::{ContainerStatus, HostIp, PodIp, PodStatus, phase as phases};
use steplet_api::time::Time;

/// What a status is made of.
#[derive(Clone, Copy)]
pub struct StatusInput<'a> {
    pub pod: &'a Pod,
    /// None before the runtime was asked.
    pub view: Option<&'a PodView>,
    /// The last status of this function for this pod.
    pub old: Option<&'a PodStatus>,
    /// Reason and message of a container, by name, that waits because something went wrong.
    pub reasons: &'a dyn Fn(&str) -> Option<(&'a str, &'a str)>,
    pub stage: Stage,
    pub verdict: Verdict<'a>,
    /// `containerd`, `cri-o`: stands before container ids.
    pub runtime_name: &'a str,
    /// When the pod was first seen, for `startTime`.
    pub started: Wall,
    pub now: Wall,
    /// Whether the runtime supports recursive read-only mounts.
    pub recursive_read_only: bool,
    pub machine: &'a Machine,
}

/// Where the pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Running,
    /// It is being stopped: containers that have ended do not come back.
    Terminating,
    /// Nothing runs any more, and nothing will.
    Ended,
}

/// What the node decided about the pod as a whole: reason and message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    None,
    /// Not admitted: it never ran.
    Rejected(&'a str, &'a str),
    /// Ended by the node: evicted, past its deadline, in the way of a critical pod.
    Failed(&'a str, &'a str),
}

/// The status to report.
pub fn pod_status(input: &StatusInput<'_>) -> PodStatus {
    let mut status = PodStatus {
        observed_generation: input.pod.metadata.generation,
        qos_class: qos_class(input.pod).as_str().into(),
        start_time: Some(start_time(input)),
        ..PodStatus::default()
    };
    if let Verdict::Rejected(reason, message) = input.verdict {
        status.phase = phases::FAILED.into();
        status.reason = reason.into();
        status.message = message.into();
        return status;
    }
    let mut containers = containers::container_statuses(input);
    let phase = phase_of(input, &containers);
    if input.stage == Stage::Ended {
        containers::end_all(input.pod, &mut containers);
    }
    let ran = containers.main.iter().any(containers::begun);
    set_phase(input, &mut status, phase, ran);
    // Conditions follow the phase that the pod comes to, also while that is held back.
    status.conditions = conditions::conditions(input, &containers, phase);
    set_addresses(input, &mut status);
    set_resources(input.pod, &mut status);
    cut_messages(&mut containers);
    status.init_container_statuses = containers.init;
    status.container_statuses = containers.main;
    status.container_statuses.sort_by(|a, b| a.name.cmp(&b.name));
    status
}

/// The phase by the containers and the verdict; terminal ones are kept.
fn phase_of(input: &StatusInput<'_>, containers: &ContainerStatuses) -> &'static str {
    let terminal = |status: &PodStatus| {
        let phase = &*status.phase;
        [phases::FAILED, phases::SUCCEEDED].into_iter().find(|terminal| phase == *terminal)
    };
    let known = input.old.and_then(terminal).or_else(|| terminal(&input.pod.status));
    if let Some(known) = known {
        return known;
    }
    if let Verdict::Failed(..) = input.verdict {
        return phases::FAILED;
    }
    let initialized =
        input.view.is_some_and(|view| policy::main_container_in_sandbox(input.pod, view));
    // The phase of static pods tells of their containers, never of their removal.
    let ends = input.stage != Stage::Running && !is_static(input.pod);
    let phase = phase::pod_phase(input.pod, containers, initialized, ends);
    let open = !matches!(phase, phases::FAILED | phases::SUCCEEDED);
    if open && ends && input.stage == Stage::Ended { phases::FAILED } else { phase }
}

/// A terminal phase waits until nothing of the pod can run: its exclusive resources are free then
/// (k/k#106884). `ran`: a main container has begun.
fn set_phase(input: &StatusInput<'_>, status: &mut PodStatus, phase: &'static str, ran: bool) {
    let old = input.old.unwrap_or(&input.pod.status);
    let terminal = |phase: &str| matches!(phase, phases::FAILED | phases::SUCCEEDED);
    let may_run = input.view.is_some_and(PodView::alive);
    if terminal(phase) && !terminal(&old.phase) && may_run {
        status.phase = if ran { phases::RUNNING.into() } else { phases::PENDING.into() };
        status.reason = old.reason.clone();
        status.message = old.message.clone();
        return;
    }
    status.phase = phase.into();
    if let Verdict::Failed(reason, message) = input.verdict {
        status.reason = reason.into();
        status.message = message.into();
    } else if *old.phase == *phase {
        // They say how the pod came to this phase.
        status.reason = old.reason.clone();
        status.message = old.message.clone();
    }
}

/// Set once, for deadlines count from it.
fn start_time(input: &StatusInput<'_>) -> Time {
    let known = input.old.and_then(|old| old.start_time.clone()).filter(Time::is_set);
    known.unwrap_or_else(|| Time::from_ns(input.started.0))
}

fn set_addresses(input: &StatusInput<'_>, status: &mut PodStatus) {
    let hosts = input.machine.host_ips.iter().take(2);
    status.host_ips = hosts.map(|ip| HostIp { ip: (&**ip).into() }).collect();
    status.host_ip = status.host_ips.first().map(|host| host.ip.clone()).unwrap_or_default();
    let ips = pod_ips(input.pod, input.view, input.machine);
    status.pod_ips = ips.into_iter().take(2).map(|ip| PodIp { ip: ip.into() }).collect();
    // A pod keeps the addresses it had when its sandbox is gone, until it has a new one.
    let ready = input.view.and_then(PodView::sandbox).is_some_and(|sandbox| sandbox.ready);
    if status.pod_ips.is_empty()
        && !ready
        && let Some(old) = input.old
    {
        status.pod_ips = old.pod_ips.clone();
    }
    status.pod_ip = status.pod_ips.first().map(|pod| pod.ip.clone()).unwrap_or_default();
}

/// What the pod has been given: as much as it asks for, since pods are not resized yet.
fn set_resources(pod: &Pod, status: &mut PodStatus) {
    let requests = effective_requests(&pod.spec);
    status.allocated_resources = requests.clone();
    let limits = effective_limits(&pod.spec);
    status.resources =
        Some(Box::new(ResourceRequirements { limits, requests, claims: Vec::new() }));
}

/// Termination messages share a bound over the pod (pkg/kubelet/container/runtime.go).
fn cut_messages(containers: &mut ContainerStatuses) {
    const POD_MESSAGE_BYTES_MAX: usize = 12_288;
    let count = containers.init.len() + containers.main.len();
    let most = POD_MESSAGE_BYTES_MAX / count.max(1);
    let cut = |status: &mut ContainerStatus| {
        for state in [&mut status.state, &mut status.last_state] {
            let Some(terminated) = state.terminated.as_deref_mut() else { continue };
            let text = &terminated.message;
            if text.len() > most {
                let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                terminated.message = text[..end].into();
            }
        }
    };
    containers.init.iter_mut().chain(&mut containers.main).for_each(cut);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::sample::machine;
    use crate::managers::sample::{pod, view};
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::{String, ToString};
    use steplet_api::status::ContainerState;

    type Reasons = BTreeMap<&'static str, (&'static str, &'static str)>;

    /// A pod and its last status.
    struct Life {
        pod: Pod,
        old: Option<PodStatus>,
        reasons: Reasons,
        seconds: i64,
    }

    impl Life {
        fn new(spec: &str) -> Life {
            let mut pod = pod(spec);
            pod.metadata.annotations.insert("kubernetes.io/config.source".into(), "file".into());
            Life { pod, old: None, reasons: Reasons::new(), seconds: 1_700_000_000 }
        }

        fn see(&mut self, words: &str, stage: Stage, verdict: Verdict<'_>) -> &PodStatus {
            self.seconds += 1;
            let view = view(words);
            let machine = machine();
            let status = pod_status(&StatusInput {
                pod: &self.pod,
                view: Some(&view),
                old: self.old.as_ref(),
                reasons: &|name| self.reasons.get(name).copied(),
                stage,
                verdict,
                runtime_name: "containerd",
                started: Wall(1_700_000_000_000_000_000),
                now: Wall(self.seconds * 1_000_000_000),
                recursive_read_only: false,
                machine: &machine,
            });
            self.old.insert(status)
        }

        /// Sees a running pod, and checks the summary of its status.
        fn check(&mut self, words: &str, want: &str) {
            let got = summary(self.see(words, Stage::Running, Verdict::None));
            assert_eq!(got, want, "{words}");
        }

        fn check_in(&mut self, stage: Stage, words: &str, want: &str) {
            assert_eq!(summary(self.see(words, stage, Verdict::None)), want, "{words}");
        }
    }

    fn summary(status: &PodStatus) -> String {
        let mut text = status.phase.to_string();
        for one in status.init_container_statuses.iter().chain(&status.container_statuses) {
            let ready = if one.ready { "+ready" } else { "" };
            let count = match one.restart_count {
                0 => String::new(),
                count => format!(" x{count}"),
            };
            let last = match state(&one.last_state) {
                last if last.is_empty() => String::new(),
                last => format!(" last={last}"),
            };
            text += &format!(" {}={}{ready}{count}{last}", one.name, state(&one.state));
        }
        text
    }

    fn state(state: &ContainerState) -> String {
        if let Some(end) = &state.terminated {
            return format!("{}:{}", end.reason, end.exit_code);
        }
        match &state.waiting {
            Some(waiting) if waiting.reason.is_empty() => "waiting".into(),
            Some(waiting) => waiting.reason.to_string(),
            None if state.running.is_some() => "run".into(),
            None => String::new(),
        }
    }

    #[test]
    fn a_pod_that_runs_once() {
        let mut life = Life::new(r#"{"restartPolicy":"Never","containers":[{"name":"c"}]}"#);
        life.check("", "Pending c=ContainerCreating");
        life.check("@0", "Pending c=ContainerCreating");
        life.check("@0 c=new", "Pending c=waiting");
        life.check("@0 c=run", "Running c=run+ready");
        // Succeeded only when the sandbox is gone too.
        life.check("@0 c=exit:0", "Running c=Completed:0");
        life.check_in(Stage::Terminating, "!0 c=exit:0", "Succeeded c=Completed:0");
        // It stays, whatever is removed or seen later (k/k#58711).
        life.check_in(Stage::Ended, "", "Succeeded c=Completed:0");
        life.check_in(Stage::Ended, "!0 c=exit:1", "Succeeded c=Error:1");
        life.check("", "Succeeded c=Error:1");
    }

    #[test]
    fn restarts_and_back_off() {
        let mut life = Life::new(r#"{"restartPolicy":"Always","containers":[{"name":"c"}]}"#);
        life.check("@0 c=run", "Running c=run+ready");
        life.check("@0 c=exit:7", "Running c=Error:7");
        life.check("@0 c=exit:7 c.1=run", "Running c=run+ready x1 last=Error:7");
        life.reasons.insert("c", ("CrashLoopBackOff", "back-off 10s restarting failed container"));
        life.check("@0 c=exit:7 c.1=exit:8", "Running c=CrashLoopBackOff x1 last=Error:8");
        let waiting = life.old.as_ref().unwrap().container_statuses[0].state.waiting.clone();
        assert_eq!(&*waiting.unwrap().message, "back-off 10s restarting failed container");
        // The runtime keeps one dead container; the status remembers how it ended.
        life.check("@0 c.1=exit:8", "Running c=CrashLoopBackOff x1 last=Error:8");
        life.reasons.clear();
        life.check("@0 c.2=run", "Running c=run+ready x2 last=Error:8");
        life.check("@0 c.2=exit:9", "Running c=Error:9 x2 last=Error:8");
        life.check("@0 c.2=exit:9 c.3=new", "Running c=waiting x3 last=Error:9");
    }

    #[test]
    fn images_that_do_not_come() {
        let mut life = Life::new(r#"{"containers":[{"name":"a"},{"name":"b"}]}"#);
        life.reasons.insert("a", ("ErrImagePull", "no such image"));
        life.check("@0 b=run", "Pending a=ErrImagePull b=run+ready");
        life.reasons.insert("a", ("ImagePullBackOff", "Back-off pulling image"));
        life.check("@0 b=run", "Pending a=ImagePullBackOff b=run+ready");
        // No reason counts once the container runs.
        life.check("@0 a=run b=run", "Running a=run+ready b=run+ready");
    }

    #[test]
    fn initialization_and_sidecars() {
        let mut life = Life::new(
            r#"{"restartPolicy":"OnFailure","initContainers":[{"name":"i"},
            {"name":"s","restartPolicy":"Always"}],"containers":[{"name":"c"}]}"#,
        );
        const INIT: &str = "s=PodInitializing c=PodInitializing";
        life.check("@0", &format!("Pending i=PodInitializing {INIT}"));
        life.check("@0 i=run", &format!("Pending i=run {INIT}"));
        life.check("@0 i=exit:6", &format!("Pending i=Error:6 {INIT}"));
        life.check("@0 i=exit:6 i.1=run", &format!("Pending i=run x1 last=Error:6 {INIT}"));
        life.check("@0 i.1=exit:0", &format!("Pending i=Completed:0+ready x1 last=Error:6 {INIT}"));
        const DONE: &str = "i=Completed:0+ready x1 last=Error:6";
        life.check("@0 i.1=exit:0 s=run", &format!("Pending {DONE} s=run+ready c=PodInitializing"));
        life.check("@0 i.1=exit:0 s=run c=run", &format!("Running {DONE} s=run+ready c=run+ready"));
        // Removed by the runtime: it has done its work.
        life.check("@0 s=run c=run", &format!("Running {DONE} s=run+ready c=run+ready"));
        life.check("@0 s=exit:0 c=run", &format!("Running {DONE} s=Completed:0 c=run+ready"));
        life.check("@0 s=exit:0 c=exit:0", &format!("Running {DONE} s=Completed:0 c=Completed:0"));
        life.check(
            "!0 s=exit:0 c=exit:0",
            &format!("Succeeded {DONE} s=Completed:0 c=Completed:0"),
        );
    }

    #[test]
    fn after_a_restart_of_the_agent() {
        let spec = r#"{"restartPolicy":"Never","initContainers":[{"name":"i"}],
            "containers":[{"name":"c"}]}"#;
        Life::new(spec).check("@0 c=run", "Running i=Completed:0+ready c=run+ready");
        Life::new(spec).check("@0 c=exit:0", "Running i=Completed:0+ready c=Completed:0");
        Life::new(spec).check("@0 i=exit:1", "Pending i=Error:1 c=PodInitializing");
        Life::new(spec).check("!0 i=exit:1", "Failed i=Error:1 c=PodInitializing");
    }

    #[test]
    fn unknown_ends_are_no_success() {
        let spec = r#"{"restartPolicy":"Never","containers":[{"name":"c"}]}"#;
        let mut life = Life::new(spec);
        life.check("@0 c=run", "Running c=run+ready");
        life.check("@0 c=lost", "Running c=ContainerStatusUnknown:137");
        life.check("@0 c=lost", "Running c=ContainerStatusUnknown:137");
        life.check_in(Stage::Ended, "", "Failed c=ContainerStatusUnknown:137");
        // Removed behind our back.
        let mut life = Life::new(spec);
        life.check("@0 c=run", "Running c=run+ready");
        let gone = "Running c=ContainerCreating x1 last=ContainerStatusUnknown:137";
        life.check("@0", gone);
        life.check("@0", gone);
        life.check_in(
            Stage::Ended,
            "!0",
            "Failed c=ContainerStatusUnknown:137 x1 \
             last=ContainerStatusUnknown:137",
        );
        // Ended before it began: nothing is made up.
        let mut life = Life::new(
            r#"{"restartPolicy":"Never","initContainers":[{"name":"i"},{"name":"k"}],
            "containers":[{"name":"c"}]}"#,
        );
        life.check("@0 i=run", "Pending i=run k=PodInitializing c=PodInitializing");
        life.check_in(
            Stage::Ended,
            "!0 i=exit:143",
            "Failed i=Error:143 k=PodInitializing \
             c=PodInitializing",
        );
    }

    #[test]
    fn verdicts_of_the_node() {
        let mut life = Life::new(r#"{"containers":[{"name":"c"}]}"#);
        let text = "Pod was rejected: no";
        let status = life.see("", Stage::Ended, Verdict::Rejected("OutOfcpu", text)).clone();
        assert_eq!(
            (&*status.phase, &*status.reason, &*status.message),
            ("Failed", "OutOfcpu", text)
        );
        assert!(status.conditions.is_empty() && status.container_statuses.is_empty());
        assert!(status.start_time.is_some() && &*status.qos_class == "BestEffort");

        let mut life = Life::new(r#"{"containers":[{"name":"c"}]}"#);
        life.check("@0 c=run", "Running c=run+ready");
        let verdict = Verdict::Failed("DeadlineExceeded", "too long");
        let status = life.see("@0 c=run", Stage::Terminating, verdict);
        assert_eq!((&*status.phase, &*status.reason), ("Running", ""));
        let status = life.see("!0 c=exit:143", Stage::Terminating, verdict);
        assert_eq!(summary(status), "Failed c=Error:143");
        assert_eq!((&*status.reason, &*status.message), ("DeadlineExceeded", "too long"));
        let status = life.see("", Stage::Ended, Verdict::None);
        assert_eq!((&*status.phase, &*status.reason), ("Failed", "DeadlineExceeded"));
    }

    #[test]
    fn pods_of_the_api_end_by_their_exit_codes() {
        let mut life = Life::new(r#"{"restartPolicy":"Always","containers":[{"name":"c"}]}"#);
        life.pod.metadata.annotations.clear();
        life.check("@0 c=run", "Running c=run+ready");
        life.check_in(Stage::Terminating, "!0 c=exit:0", "Succeeded c=Completed:0");
        let mut life = Life::new(r#"{"restartPolicy":"Always","containers":[{"name":"c"}]}"#);
        life.check("@0 c=run", "Running c=run+ready");
        life.check_in(Stage::Terminating, "!0 c=exit:0", "Running c=Completed:0");
    }

    #[test]
    fn fields_of_the_pod() {
        let mut life = Life::new(
            r#"{"volumes":[{"name":"v"}],"containers":[{"name":"b"},{"name":"a","image":"x:1",
            "volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true,
                "recursiveReadOnly":"IfPossible"}],
            "resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"200m"}}}]}"#,
        );
        let status = life.see("@0 b=run", Stage::Running, Verdict::None).clone();
        assert_eq!((&*status.host_ip, &*status.pod_ip), ("192.0.2.10", "10.1.0.5"));
        assert_eq!((status.host_ips.len(), status.pod_ips.len()), (1, 1));
        assert_eq!(status.start_time.as_ref().unwrap().as_str(), "2023-11-14T22:13:20Z");
        assert_eq!((status.observed_generation, &*status.qos_class), (1, "Burstable"));
        assert_eq!(status.allocated_resources["cpu"].to_string(), "100m");
        assert_eq!(status.resources.as_ref().unwrap().limits["cpu"].to_string(), "200m");
        let [a, b] = &status.container_statuses[..] else { panic!("two containers") };
        assert_eq!((&*a.name, &*a.image, &*a.image_id, &*a.container_id), ("a", "x:1", "", ""));
        let mount = &a.volume_mounts[0];
        assert_eq!(
            (mount.read_only, mount.recursive_read_only.as_deref()),
            (true, Some("Disabled"))
        );
        assert_eq!((&*b.image, &*b.image_id), ("docker.io/library/busybox:1", "sha256:abc"));
        assert_eq!(&*b.container_id, "containerd://b0");
        assert!(a.resources.is_none() && b.resources.is_some());
        assert_eq!((a.started, b.started), (Some(false), Some(true)));
        // The address stays when the sandbox is gone, the start time for ever.
        let later = life.see("", Stage::Running, Verdict::None).clone();
        assert_eq!((&later.pod_ips, &later.start_time), (&status.pod_ips, &status.start_time));
    }

    #[test]
    fn messages_share_a_bound() {
        let mut life = Life::new(r#"{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}"#);
        let mut view = view("@0 a=exit:1");
        view.containers[0].message = "é".repeat(3000).into();
        let machine = machine();
        let status = pod_status(&StatusInput {
            pod: &life.pod,
            view: Some(&view),
            old: life.old.as_ref(),
            reasons: &|_| None,
            stage: Stage::Running,
            verdict: Verdict::None,
            runtime_name: "containerd",
            started: Wall(0),
            now: Wall(0),
            recursive_read_only: false,
            machine: &machine,
        });
        let end = status.container_statuses[0].state.terminated.as_ref().unwrap();
        assert_eq!(end.message.len(), 4096);
        life.old = Some(status);
        life.check(
            "@0 a=exit:1 a.1=run",
            "Pending a=run+ready x1 last=Error:1 b=ContainerCreating \
             c=ContainerCreating",
        );
    }

    fn conditions(status: &PodStatus) -> Vec<String> {
        let text = |c: &steplet_api::status::PodCondition| {
            let (why, at) = (&c.reason, &c.last_transition_time.as_str()[17..19]);
            let message = if c.message.is_empty() { "" } else { &format!(" {}", c.message) };
            format!("{} {} {why}{message} @{at}", c.type_, c.status)
        };
        status.conditions.iter().map(text).collect()
    }

    #[test]
    fn conditions_over_a_life() {
        let mut life = Life::new(
            r#"{"restartPolicy":"Never","initContainers":[{"name":"i"}],
            "containers":[{"name":"a"},{"name":"b"}]}"#,
        );
        const UNREADY: &str = "ContainersNotReady containers with unready status: [a b]";
        let got = conditions(life.see("", Stage::Running, Verdict::None));
        assert_eq!(
            got,
            [
                "PodReadyToStartContainers False  @21",
                "Initialized False ContainersNotInitialized containers with incomplete status: \
                 [i] @21",
                &format!("Ready False {UNREADY} @21"),
                &format!("ContainersReady False {UNREADY} @21"),
                "PodScheduled True  @21",
            ]
        );
        let got = conditions(life.see("@0 i=exit:0 a=run", Stage::Running, Verdict::None));
        const UNREADY_B: &str = "ContainersNotReady containers with unready status: [b]";
        assert_eq!(
            got,
            [
                "PodReadyToStartContainers True  @22",
                "Initialized True  @22",
                &format!("Ready False {UNREADY_B} @21"),
                &format!("ContainersReady False {UNREADY_B} @21"),
                "PodScheduled True  @21",
            ]
        );
        let got = conditions(life.see("@0 i=exit:0 a=run b=run", Stage::Running, Verdict::None));
        assert_eq!(got[2..4], ["Ready True  @23", "ContainersReady True  @23"]);
        // The phase is held back, the conditions are not.
        let words = "@0 i=exit:0 a=exit:0 b=exit:0";
        let status = life.see(words, Stage::Running, Verdict::None);
        assert_eq!(&*status.phase, "Running");
        assert_eq!(
            conditions(status)[1..4],
            [
                "Initialized True PodCompleted @22",
                "Ready False PodCompleted @24",
                "ContainersReady False PodCompleted @24",
            ]
        );
    }

    #[test]
    fn conditions_of_others() {
        let mut life = Life::new(
            r#"{"readinessGates":[{"conditionType":"x/gate"}],"containers":[{"name":"c"}]}"#,
        );
        let gates = |status: &PodStatus| {
            let ready = status.conditions.iter().find(|c| &*c.type_ == "Ready").unwrap();
            format!("{} {} {}", ready.status, ready.reason, ready.message)
        };
        let status = life.see("@0 c=run", Stage::Running, Verdict::None);
        assert_eq!(
            gates(status),
            "False ReadinessGatesNotReady corresponding condition of pod readiness gate \
             \"x/gate\" does not exist."
        );
        let mut gate = steplet_api::status::PodCondition {
            type_: "x/gate".into(),
            status: "False".into(),
            ..Default::default()
        };
        life.pod.status.conditions.push(gate.clone());
        let status = life.see("@0 c=run", Stage::Running, Verdict::None);
        assert_eq!(
            gates(status),
            "False ReadinessGatesNotReady the status of pod readiness gate \"x/gate\" is not \
             \"True\", but False"
        );
        assert_eq!(&*status.conditions[0].type_, "x/gate");
        gate.status = "True".into();
        life.pod.status.conditions = [gate].into();
        let status = life.see("@0 c=run", Stage::Running, Verdict::None);
        assert_eq!(gates(status), "True  ");
    }

    #[test]
    fn a_restart_of_all_is_shown() {
        let mut life = Life::new(
            r#"{"containers":[{"name":"c","restartPolicy":"Never","restartPolicyRules":
            [{"action":"RestartAllContainers","exitCodes":{"operator":"In","values":[42]}}]}]}"#,
        );
        let last = |status: &PodStatus| conditions(status).pop().unwrap();
        let status = life.see("@0 c=run", Stage::Running, Verdict::None);
        assert_eq!(last(status), "AllContainersRestarting False  @21");
        let status = life.see("@0 c=exit:42", Stage::Running, Verdict::None);
        assert_eq!(
            last(status),
            "AllContainersRestarting True RestartAllContainersStarted container exited with \
             restart policy rule @22"
        );
    }
}
