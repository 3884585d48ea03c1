//! The runtime, spoken to in CRI messages.

use super::answers::UNKNOWN;
use super::*;
use prost::Message;
use steplet_core::event::RpcError;

/// A runtime with a clock.
struct Bench {
    runtime: Runtime,
    at: u64,
    due: Vec<(u64, Wake)>,
    answers: BTreeMap<Caller, Answer>,
    facts: Vec<Fact>,
    calls: u64,
}

impl Bench {
    fn new() -> Bench {
        let runtime = Runtime::new(Flavour::New, Default::default(), Dice::new(1));
        let (due, answers, facts) = (Vec::new(), BTreeMap::new(), Vec::new());
        Bench { runtime, at: 0, due, answers, facts, calls: 0 }
    }

    fn take(&mut self, out: Out) {
        self.due.extend(out.wakes.into_iter().map(|(after, wake)| (self.at + after.0, wake)));
        self.answers.extend(out.answers);
        self.facts.extend(out.facts);
    }

    fn ask(&mut self, method: &str, request: impl Message) -> Caller {
        self.calls += 1;
        let (caller, mut out) = (Caller(self.calls), Out::default());
        let wall = Wall(self.at as i64);
        self.runtime.call(wall, caller, method, &request.encode_to_vec(), Span::ZERO, &mut out);
        self.take(out);
        caller
    }

    /// Lets `span` pass.
    fn pass(&mut self, span: Span) {
        let end = self.at + span.0;
        while let Some(next) = (0..self.due.len()).min_by_key(|i| self.due[*i].0) {
            if self.due[next].0 > end {
                break;
            }
            let (at, wake) = self.due.remove(next);
            self.at = at;
            let mut out = Out::default();
            self.runtime.wake(Wall(at as i64), wake, &mut out);
            self.take(out);
        }
        self.at = end;
    }

    fn call<R: Message + Default>(
        &mut self,
        method: &str,
        request: impl Message,
    ) -> Result<R, RpcError> {
        let caller = self.ask(method, request);
        self.pass(Span::from_secs(600));
        let answer = self.answers.remove(&caller).expect("every call is answered");
        answer.map(|body| R::decode(body).expect("a CRI message"))
    }

    fn sandbox(&mut self, attempt: u32) -> Result<String, RpcError> {
        let request =
            cri::RunPodSandboxRequest { config: Some(pod(attempt)), ..Default::default() };
        let response: cri::RunPodSandboxResponse = self.call("RunPodSandbox", request)?;
        Ok(response.pod_sandbox_id)
    }

    fn create(&mut self, sandbox: &str, attempt: u32, app: &str) -> Result<String, RpcError> {
        let response: cri::CreateContainerResponse =
            self.call("CreateContainer", container(sandbox, attempt, app))?;
        Ok(response.container_id)
    }

    /// A running container in a sandbox of its own.
    fn running(&mut self, app: &str) -> (String, String) {
        let image = Some(cri::ImageSpec { image: "app:v1".into(), ..Default::default() });
        let pull = cri::PullImageRequest { image, ..Default::default() };
        let _: cri::PullImageResponse = self.call("PullImage", pull).expect("it is there");
        let sandbox = self.sandbox(0).expect("nothing is in the way");
        let container = self.create(&sandbox, 0, app).expect("nothing is in the way");
        self.ask("StartContainer", cri::StartContainerRequest { container_id: container.clone() });
        self.pass(Span::from_secs(1));
        (sandbox, container)
    }

    fn status(&mut self, container: &str) -> cri::ContainerStatus {
        let request =
            cri::ContainerStatusRequest { container_id: container.into(), ..Default::default() };
        let caller = self.ask("ContainerStatus", request);
        self.pass(Span::from_millis(10));
        let body = self.answers.remove(&caller).expect("answered").expect("it is there");
        cri::ContainerStatusResponse::decode(body).expect("a message").status.expect("a status")
    }
}

fn pod(attempt: u32) -> cri::PodSandboxConfig {
    let metadata = cri::PodSandboxMetadata {
        name: "web".into(),
        uid: "u1".into(),
        namespace: "default".into(),
        attempt,
    };
    cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() }
}

fn container(sandbox: &str, attempt: u32, app: &str) -> cri::CreateContainerRequest {
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "app".into(), attempt }),
        image: Some(cri::ImageSpec { image: "app:v1".into(), ..Default::default() }),
        command: format!("app {app}").split(' ').map(str::to_owned).collect(),
        ..Default::default()
    };
    cri::CreateContainerRequest {
        pod_sandbox_id: sandbox.into(),
        config: Some(config),
        sandbox_config: Some(pod(0)),
    }
}

#[test]
fn a_name_is_reserved_until_its_holder_is_gone() {
    let mut bench = Bench::new();
    let (sandbox, first) = bench.running("run=ever");
    let error = bench.create(&sandbox, 0, "run=ever").expect_err("the name is taken");
    assert_eq!(error.code, UNKNOWN);
    let want = format!("name \"app_web_default_u1_0\" is reserved for {first:?}");
    assert!(error.message.ends_with(&want), "{}", error.message);
    assert!(bench.sandbox(0).is_err_and(|e| e.message.contains("is reserved for")));
    bench.create(&sandbox, 1, "run=ever").expect("another attempt, another name");
}

#[test]
fn stop_waits_for_the_program_and_kills_it_after_the_grace() {
    for (app, grace, want_code, want_seconds) in [
        ("term=3s", 30, 0, 3),
        ("term=3s term-exit=143", 30, 143, 3),
        ("term=ignore", 10, 137, 10),
        ("term=60s", 10, 137, 10),
        ("term=ignore", 0, 137, 0),
    ] {
        let mut bench = Bench::new();
        let (_, id) = bench.running(app);
        let before = bench.at;
        let stop = cri::StopContainerRequest { container_id: id.clone(), timeout: grace };
        let caller = bench.ask("StopContainer", stop);
        while !bench.answers.contains_key(&caller) {
            bench.pass(Span::from_millis(100));
        }
        assert_eq!((bench.at - before) / 1_000_000_000, want_seconds, "{app} {grace}");
        let status = bench.status(&id);
        assert_eq!(status.exit_code, want_code, "{app} {grace}");
        assert_eq!(status.state, cri::ContainerState::ContainerExited as i32);
    }
}

#[test]
fn a_caller_that_leaves_takes_the_kill_with_it() {
    let mut bench = Bench::new();
    let (_, id) = bench.running("term=ignore");
    let stop = cri::StopContainerRequest { container_id: id.clone(), timeout: 10 };
    let caller = bench.ask("StopContainer", stop);
    bench.pass(Span::from_secs(5));
    bench.runtime.left(caller);
    bench.pass(Span::from_secs(60));
    assert_eq!(bench.status(&id).state, cri::ContainerState::ContainerRunning as i32);
}

#[test]
fn a_create_whose_caller_left_goes_on_or_is_undone() {
    for carries_on in [true, false] {
        let mut bench = Bench::new();
        let (sandbox, _) = bench.running("run=ever");
        bench.runtime.carries_on = Some(carries_on);
        let caller = bench.ask("CreateContainer", container(&sandbox, 1, "run=ever"));
        bench.runtime.left(caller);
        bench.pass(Span::from_secs(1));
        assert!(!bench.answers.contains_key(&caller));
        let names: Vec<u32> =
            bench.runtime.containers().map(|(_, c)| c.metadata().attempt).collect();
        assert_eq!(names.contains(&1), carries_on);
        assert_eq!(bench.create(&sandbox, 1, "run=ever").is_err(), carries_on);
    }
}

#[test]
fn what_runs_is_not_removed_and_what_is_gone_is_removed_gladly() {
    let mut bench = Bench::new();
    let (sandbox, id) = bench.running("run=ever");
    let remove = |id: &str| cri::RemoveContainerRequest { container_id: id.into() };
    let remove_sandbox = |id: &str| cri::RemovePodSandboxRequest { pod_sandbox_id: id.into() };
    assert!(bench.call::<()>("RemoveContainer", remove(&id)).is_err());
    assert!(bench.call::<()>("RemovePodSandbox", remove_sandbox(&sandbox)).is_err());
    let stop = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    for _ in 0..2 {
        bench.call::<()>("StopPodSandbox", stop.clone()).expect("stopping again is fine");
    }
    assert_eq!(bench.status(&id).exit_code, 137);
    for _ in 0..2 {
        bench.call::<()>("RemoveContainer", remove(&id)).expect("removing again is fine");
        bench.call::<()>("RemovePodSandbox", remove_sandbox(&sandbox)).expect("again is fine");
    }
    let status = cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox, ..Default::default() };
    let error = bench.call::<cri::PodSandboxStatusResponse>("PodSandboxStatus", status);
    assert_eq!(error.map_err(|e| e.code), Err(RpcError::NOT_FOUND));
}

#[test]
fn a_program_ends_by_itself_once() {
    let mut bench = Bench::new();
    let (_, id) = bench.running("run=20s exit=3");
    bench.pass(Span::from_secs(60));
    let status = bench.status(&id);
    assert_eq!((status.exit_code, status.reason.as_str()), (3, "Error"));
    let exits = bench.facts.iter().filter(|f| matches!(f, Fact::ContainerExited { .. })).count();
    assert_eq!(exits, 1);
    let start = cri::StartContainerRequest { container_id: id };
    let again = bench.call::<()>("StartContainer", start).expect_err("it has run");
    assert!(again.message.contains("CONTAINER_EXITED"), "{}", again.message);
}

#[test]
fn a_runtime_crash_forgets_calls_and_a_reboot_ends_programs() {
    let mut bench = Bench::new();
    let (sandbox, id) = bench.running("run=ever");
    let caller = bench.ask("CreateContainer", container(&sandbox, 1, "run=ever"));
    bench.runtime.crash();
    bench.pass(Span::from_secs(10));
    assert!(!bench.answers.contains_key(&caller), "the call died with the process");
    assert_eq!(bench.status(&id).state, cri::ContainerState::ContainerRunning as i32);
    bench.create(&sandbox, 1, "run=ever").expect("the reservation died with the process");
    let mut out = Out::default();
    bench.runtime.reboot(Wall(0), &mut out);
    bench.take(out);
    assert_eq!(bench.status(&id).exit_code, 255);
    assert!(bench.runtime.sandboxes().all(|(_, sandbox)| !sandbox.ready));
}

#[test]
fn lists_are_filtered_and_ordered_by_id() {
    let mut bench = Bench::new();
    let (sandbox, first) = bench.running("run=ever");
    let second = bench.create(&sandbox, 1, "run=ever").expect("nothing is in the way");
    let list = |filter| cri::ListContainersRequest { filter };
    let mut ids = |filter| {
        let all: cri::ListContainersResponse =
            bench.call("ListContainers", list(filter)).expect("always");
        all.containers.into_iter().map(|c| c.id).collect::<Vec<_>>()
    };
    let mut both = vec![first.clone(), second.clone()];
    both.sort();
    assert_eq!(ids(None), both);
    let running = cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning as i32 };
    let filter = cri::ContainerFilter { state: Some(running), ..Default::default() };
    assert_eq!(ids(Some(filter)), [first]);
    let filter = cri::ContainerFilter { id: second.clone(), ..Default::default() };
    assert_eq!(ids(Some(filter)), [second]);
}
