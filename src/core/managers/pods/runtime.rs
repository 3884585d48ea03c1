//! Carries out one step for one pod: the calls, in order, and what each answer means.
//!
//! Upstream: pkg/kubelet/kuberuntime (SyncPod, startContainer, killPodWithSyncResult), v1.36.
//! Owns: the step that is under way for each pod. Publishes: -.
//! Hears: StepNote Wanted and CancelWanted, ImageNote::Ready, VolumeNote::Ready.
//! Says: StepNote::Done, RuntimeNote, ImageNote, VolumeNote, Said.
//! Asks: sandboxes and containers of the runtime, directories of the disk, cgroups of the kernel.
//! Never: gives up a call that may have an effect in the runtime before it was answered or its deadline passed.

use super::plan::{Start, Step, Stop};
use super::requests::{self, field_of};
use crate::cx::Cx;
use crate::effect::{Call, DiskOp, HelperOp};
use crate::event::{
    DiskReply, Fault, FaultKind, HelperReply, KernelReply, Outcome, PodReady, RpcError,
};
use crate::ids::{ContainerId, PodUid, SandboxId, Token};
use crate::managers::containers::{CREATE_CONTAINER_CONFIG_ERROR, volumes};
use crate::managers::cri::{self, answer};
use crate::note::{
    ImageFound, ImageNote, Note, RuntimeNote, Said, StepDone, StepError, StepNote, VolumeNote,
};
use crate::planted::planted;
use crate::route::Then;
use crate::time::Span;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cri as api;
use steplet_api::pod::Pod;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Runtime {
    jobs: BTreeMap<PodUid, Job>,
}

/// A step under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Job {
    /// What its volumes hold is being gathered.
    Volumes,
    SetUp {
        cgroups: Option<Token>,
        dirs: Option<Token>,
        ready: PodReady,
        error: Option<String>,
    },
    Stop {
        open: BTreeMap<Box<str>, Token>,
        sandboxes: Vec<SandboxId>,
        error: Option<String>,
    },
    RunSandbox,
    Image {
        start: Box<Start>,
    },
    Files {
        start: Box<Start>,
        image: Box<ImageFound>,
        token: Token,
    },
    Create {
        start: Box<Start>,
    },
    Start {
        start: Box<Start>,
        id: ContainerId,
    },
    TearDown,
    RemoveCgroup,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    Cgroups { uid: PodUid },
    Dirs { uid: PodUid },
    StopContainer { uid: PodUid, id: ContainerId },
    StopSandbox { uid: PodUid, id: SandboxId },
    RunSandbox { uid: PodUid },
    Files { uid: PodUid },
    Create { uid: PodUid, sandbox: SandboxId },
    Start { uid: PodUid },
    Link,
    TearDown { uid: PodUid },
    RemoveCgroup { uid: PodUid },
}

impl Runtime {
    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &StepNote) {
        match note {
            StepNote::Wanted { uid, step } => self.on_wanted(cx, uid, step),
            StepNote::CancelWanted { uid } => self.on_cancel(cx, uid),
            StepNote::HastenWanted { uid, grace_seconds } => {
                self.hasten(cx, uid, *grace_seconds);
            }
            StepNote::Done { .. } => {}
        }
    }

    fn on_wanted(&mut self, cx: &mut Cx<'_>, uid: &PodUid, step: &Step) {
        let pod = pod_of(cx, uid);
        match step {
            Step::SetUp => {
                self.jobs.insert(uid.clone(), Job::Volumes);
                cx.say(Note::Volume(VolumeNote::Wanted { uid: uid.clone() }));
            }
            Step::Stop { containers, sandboxes } => {
                self.stop(cx, uid, &pod, containers, sandboxes);
            }
            Step::RunSandbox { attempt } => self.run_sandbox(cx, uid, &pod, *attempt),
            Step::StartContainer(start) => self.start_container(cx, uid, &pod, start),
            Step::Clean => self.clean(cx, uid),
        }
    }

    /// Ends what waits and has no effect in the runtime yet.
    fn on_cancel(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        match self.jobs.get(uid) {
            Some(Job::Image { .. }) => {
                cx.say(Note::Image(ImageNote::Unwanted { uid: uid.clone() }));
            }
            Some(Job::Volumes) => {
                cx.say(Note::Volume(VolumeNote::Unwanted { uid: uid.clone() }));
            }
            Some(Job::Files { token, .. }) => {
                let token = *token;
                cx.cancel(token);
            }
            // A foreign path may hang: neither the pod's end nor its edit waits for that.
            Some(Job::SetUp { cgroups, dirs, .. }) => {
                let open = [*cgroups, *dirs];
                open.into_iter().flatten().for_each(|token| cx.cancel(token));
            }
            _ => return,
        }
        self.done(cx, uid, Ok(StepDone::Cancelled));
    }

    fn done(&mut self, cx: &mut Cx<'_>, uid: &PodUid, result: Result<StepDone, StepError>) {
        self.jobs.remove(uid);
        cx.say(Note::Step(StepNote::Done { uid: uid.clone(), result }));
    }

    fn fail(&mut self, cx: &mut Cx<'_>, uid: &PodUid, reason: &'static str, message: String) {
        let container = match self.jobs.get(uid) {
            Some(
                Job::Image { start }
                | Job::Files { start, .. }
                | Job::Create { start }
                | Job::Start { start, .. },
            ) => Some(start.name.clone()),
            _ => None,
        };
        self.done(cx, uid, Err(StepError { container, reason, message }));
    }

    // Directories and cgroups.

    pub(crate) fn on_volumes(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        result: &Result<(), StepError>,
    ) {
        if self.jobs.get(uid) != Some(&Job::Volumes) {
            return;
        }
        match result {
            Ok(()) => self.set_up(cx, uid, &pod_of(cx, uid)),
            Err(error) => self.done(cx, uid, Err(error.clone())),
        }
    }

    fn set_up(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: &Arc<Pod>) {
        let setup = match requests::pod_setup(cx.facts, pod) {
            Ok(setup) => setup,
            Err(message) => {
                said(cx, uid, "", "FailedMount", message.clone());
                return self.fail(cx, uid, "FailedMount", message);
            }
        };
        let cgroups = requests::layout(cx.facts).set(requests::cgroups(cx.facts, pod));
        let ask = Ask::Cgroups { uid: uid.clone() };
        let cgroups = Some(cx.call(ask, Call::Kernel(cgroups)));
        let call = match volumes::needs_helper(&setup) {
            true => Call::Helper(HelperOp::SetUpPod(setup.into())),
            false => Call::Disk(DiskOp::SetUpPod(setup.into())),
        };
        let dirs = Some(cx.call(Ask::Dirs { uid: uid.clone() }, call));
        let ready = PodReady::default();
        self.jobs.insert(uid.clone(), Job::SetUp { cgroups, dirs, ready, error: None });
    }

    fn on_set_up(&mut self, cx: &mut Cx<'_>, uid: &PodUid, outcome: Outcome) {
        let Some(Job::SetUp { cgroups, dirs, ready, error }) = self.jobs.get_mut(uid) else {
            return;
        };
        let (reason, fault) = match outcome {
            Outcome::Kernel(Ok(_)) => {
                *cgroups = None;
                ("", None)
            }
            Outcome::Disk(Ok(DiskReply::PodReady(found)))
            | Outcome::Helper(Ok(HelperReply::PodReady(found))) => {
                (*dirs, *ready) = (None, found);
                ("", None)
            }
            Outcome::Kernel(Err(fault)) => {
                *cgroups = None;
                let text = format!(
                    "error: failed to ensure that the pod: {uid} cgroups exist and are correctly applied: {}",
                    fault.message
                );
                ("FailedCreatePodContainer", Some(text))
            }
            other => {
                *dirs = None;
                let fault = fault_text(&other);
                if let Outcome::Helper(Err(Fault { kind: FaultKind::SealLost, .. })) = other {
                    cx.say(Note::Volume(VolumeNote::SecretsLost { uid: uid.clone() }));
                }
                ("FailedMount", Some(fault))
            }
        };
        let finished = cgroups.is_none() && dirs.is_none();
        if let Some(text) = fault {
            *error = Some(text.clone());
            said(cx, uid, "", reason, text);
        }
        if finished && let Some(Job::SetUp { ready, error, .. }) = self.jobs.remove(uid) {
            match error {
                Some(message) => self.fail(cx, uid, "FailedMount", message),
                None => self.done(cx, uid, Ok(StepDone::SetUp(ready))),
            }
        }
    }

    // Stopping.

    fn stop(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        pod: &Arc<Pod>,
        containers: &[Stop],
        sandboxes: &[SandboxId],
    ) {
        let mut open = BTreeMap::new();
        for stop in containers {
            let field = field_of(pod, &stop.name);
            let message = format!("Stopping container {}", stop.name);
            tell(cx, uid, field, false, "Killing", message);
            let token = stop_container(cx, uid, &stop.id, stop.grace_seconds);
            open.insert(stop.id.0.clone(), token);
        }
        let job = Job::Stop { open, sandboxes: sandboxes.to_vec(), error: None };
        self.jobs.insert(uid.clone(), job);
        self.stop_sandboxes(cx, uid);
    }

    /// A second request with less time, beside the one that is under way: the runtime knows both, and the earlier end
    /// counts (k/k#83916). Only the second one is waited for.
    fn hasten(&mut self, cx: &mut Cx<'_>, uid: &PodUid, grace_seconds: i64) {
        let Some(Job::Stop { open, .. }) = self.jobs.get_mut(uid) else { return };
        for (id, token) in open {
            let of_container =
                matches!(cx.asks().peek(*token), Some(Then::Runtime(Ask::StopContainer { .. })));
            if of_container {
                cx.cancel(*token);
                *token = stop_container(cx, uid, &ContainerId(id.clone()), grace_seconds);
            }
        }
    }

    /// Sandboxes follow when the last container has stopped.
    fn stop_sandboxes(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let within = cx.facts.settings().runtime_request_timeout;
        let Some(Job::Stop { open, sandboxes, error }) = self.jobs.get_mut(uid) else { return };
        if !open.is_empty() && !planted(9) {
            return;
        }
        for id in core::mem::take(sandboxes) {
            let body = api::StopPodSandboxRequest { pod_sandbox_id: id.as_str().into() };
            let ask = Ask::StopSandbox { uid: uid.clone(), id: id.clone() };
            let token = cx.call(ask, cri::call(cri::STOP_POD_SANDBOX, &body, within));
            open.insert(id.0, token);
        }
        if !open.is_empty() {
            return;
        }
        match error.take() {
            Some(message) => {
                said(cx, uid, "", "FailedKillPod", format!("error killing pod: {message}"));
                self.fail(cx, uid, "KillContainerError", message);
            }
            None => self.done(cx, uid, Ok(StepDone::Other)),
        }
    }

    fn on_stopped(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        id: &str,
        result: Result<RuntimeNote, RpcError>,
    ) {
        match result {
            Ok(note) => cx.say(Note::Runtime(note)),
            Err(e) => {
                if let Some(Job::Stop { error, .. }) = self.jobs.get_mut(uid) {
                    *error = Some(e.message);
                }
            }
        }
        if let Some(Job::Stop { open, .. }) = self.jobs.get_mut(uid) {
            open.remove(id);
        }
        self.stop_sandboxes(cx, uid);
    }

    // Starting.

    fn run_sandbox(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: &Arc<Pod>, attempt: u32) {
        let request = match requests::run_sandbox(cx.facts, pod, uid, attempt) {
            Ok((request, warnings)) => {
                for warning in warnings {
                    said(cx, uid, "", warning.reason, warning.message);
                }
                request
            }
            Err(message) => {
                said(cx, uid, "", "FailedCreatePodSandBox", message.clone());
                return self.fail(cx, uid, "ConfigPodSandboxError", message);
            }
        };
        self.jobs.insert(uid.clone(), Job::RunSandbox);
        let within = cx.facts.settings().runtime_request_timeout.times(2);
        let ask = Ask::RunSandbox { uid: uid.clone() };
        cx.call(ask, cri::call(cri::RUN_POD_SANDBOX, &request, within));
    }

    fn on_sandbox(
        &mut self,
        cx: &mut Cx<'_>,
        uid: PodUid,
        result: Result<api::RunPodSandboxResponse, RpcError>,
    ) {
        match result {
            Ok(made) => {
                let id = SandboxId::from(made.pod_sandbox_id);
                cx.say(Note::Runtime(RuntimeNote::SandboxMade { uid: uid.clone(), id }));
                self.done(cx, &uid, Ok(StepDone::Other));
            }
            Err(e) => {
                let text = format!("Failed to create pod sandbox: {}", rpc_text(&e));
                said(cx, &uid, "", "FailedCreatePodSandBox", text.clone());
                self.fail(cx, &uid, "CreatePodSandboxError", text);
            }
        }
    }

    fn start_container(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: &Arc<Pod>, start: &Start) {
        let start: Box<Start> = start.clone().into();
        if let Some(id) = start.adopt.clone() {
            return self.start_made(cx, uid, start, id);
        }
        let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let Some(container) = all.into_iter().find(|c| c.name == start.name) else {
            return self.done(cx, uid, Ok(StepDone::Cancelled));
        };
        let wanted = ImageNote::Wanted {
            uid: uid.clone(),
            container: start.name.clone(),
            field: field_of(pod, &start.name).into(),
            image: container.image.clone(),
            policy: container.image_pull_policy.clone(),
        };
        self.jobs.insert(uid.clone(), Job::Image { start });
        cx.say(Note::Image(wanted));
    }

    pub(crate) fn on_image(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        result: &Result<ImageFound, StepError>,
    ) {
        let Some(Job::Image { start }) = self.jobs.get(uid) else { return };
        let start = start.clone();
        let pod = pod_of(cx, uid);
        match result {
            Err(error) => {
                let field = field_of(&pod, &start.name);
                tell(cx, uid, field, true, "Failed", format!("Error: {}", error.reason));
                self.done(cx, uid, Err(error.clone()));
            }
            Ok(found) => {
                let files = match requests::container_files(cx.facts, &pod, uid, &start) {
                    Ok(files) => files,
                    Err(text) => return self.config_error(cx, uid, &pod, text),
                };
                let image = Box::new(found.clone());
                let op = DiskOp::PrepareContainer(files.into());
                let token = cx.call(Ask::Files { uid: uid.clone() }, Call::Disk(op));
                self.jobs.insert(uid.clone(), Job::Files { start, image, token });
            }
        }
    }

    fn on_files(&mut self, cx: &mut Cx<'_>, uid: &PodUid, outcome: Outcome) {
        let Some(Job::Files { start, image, .. }) = self.jobs.get(uid) else { return };
        let (start, image) = (start.clone(), image.clone());
        let pod = pod_of(cx, uid);
        if !matches!(outcome, Outcome::Disk(Ok(_))) {
            return self.config_error(cx, uid, &pod, fault_text(&outcome));
        }
        match requests::create_container(cx.facts, &pod, uid, &start, &image) {
            Err(text) => self.config_error(cx, uid, &pod, text),
            Ok((request, sealed)) => {
                let within = cx.facts.settings().runtime_request_timeout;
                let ask = Ask::Create { uid: uid.clone(), sandbox: start.sandbox.clone() };
                cx.call(ask, cri::create_container(&request, within, sealed));
                self.jobs.insert(uid.clone(), Job::Create { start });
            }
        }
    }

    /// The pod's own definition, or its files, do not give a container.
    fn config_error(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: &Pod, text: String) {
        if let Some(Job::Image { start } | Job::Files { start, .. }) = self.jobs.get(uid) {
            let field = field_of(pod, &start.name);
            tell(cx, uid, field, true, "Failed", format!("Error: {text}"));
        }
        self.fail(cx, uid, CREATE_CONTAINER_CONFIG_ERROR, text);
    }

    fn on_created(
        &mut self,
        cx: &mut Cx<'_>,
        uid: PodUid,
        sandbox: SandboxId,
        result: Result<api::CreateContainerResponse, RpcError>,
    ) {
        let Some(Job::Create { start }) = self.jobs.get(&uid) else { return };
        let start = start.clone();
        let pod = pod_of(cx, &uid);
        let field = field_of(&pod, &start.name);
        match result {
            Err(e) => {
                if e.code == RpcError::DATA_LOSS {
                    cx.say(Note::Volume(VolumeNote::SecretsLost { uid: uid.clone() }));
                }
                let text = rpc_text(&e);
                // While the runtime still works on a call that came too late, each try fails alike (containerd#4604).
                let known =
                    cx.facts.workers.worker(&uid).and_then(|w| w.reasons().get(&start.name));
                if known.is_none_or(|reason| reason.message != text) {
                    tell(cx, &uid, field, true, "Failed", format!("Error: {text}"));
                }
                self.fail(cx, &uid, "CreateContainerError", text);
            }
            Ok(made) => {
                let id = ContainerId::from(made.container_id);
                cx.say(Note::Runtime(RuntimeNote::ContainerMade {
                    uid: uid.clone(),
                    id: id.clone(),
                    sandbox,
                    name: start.name.clone(),
                    attempt: start.attempt,
                }));
                tell(cx, &uid, field, false, "Created", "Container created".into());
                // The pod was asked to end meanwhile: what was made is not started.
                let ends = cx.facts.workers.worker(&uid).is_some_and(|w| w.ending().is_some());
                match ends {
                    true => self.done(cx, &uid, Ok(StepDone::Cancelled)),
                    false => self.start_made(cx, &uid, start, id),
                }
            }
        }
    }

    fn start_made(&mut self, cx: &mut Cx<'_>, uid: &PodUid, start: Box<Start>, id: ContainerId) {
        let within = cx.facts.settings().runtime_request_timeout;
        let body = api::StartContainerRequest { container_id: id.as_str().into() };
        cx.call(Ask::Start { uid: uid.clone() }, cri::call(cri::START_CONTAINER, &body, within));
        self.jobs.insert(uid.clone(), Job::Start { start, id });
    }

    fn on_started(
        &mut self,
        cx: &mut Cx<'_>,
        uid: PodUid,
        result: Result<api::StartContainerResponse, RpcError>,
    ) {
        let Some(Job::Start { start, id }) = self.jobs.get(&uid) else { return };
        let (start, id) = (start.clone(), id.clone());
        let pod = pod_of(cx, &uid);
        let field = field_of(&pod, &start.name);
        // A start that failed leaves an exited container behind: the next relist shows it.
        match result {
            Err(e) => {
                let text = rpc_text(&e);
                tell(cx, &uid, field, true, "Failed", format!("Error: {text}"));
                self.fail(cx, &uid, "RunContainerError", text);
            }
            Ok(_) => {
                let note = RuntimeNote::ContainerStarted { uid: uid.clone(), id: id.clone() };
                cx.say(Note::Runtime(note));
                tell(cx, &uid, field, false, "Started", "Container started".into());
                if let Some(op) = requests::log_link(cx.facts, &pod, &uid, &start, &id) {
                    cx.call(Ask::Link, Call::Disk(op));
                }
                let container = start.name.clone();
                self.done(cx, &uid, Ok(StepDone::Started { container }));
            }
        }
    }

    // The end.

    fn clean(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let pod_dir = cx.facts.settings().pod_dir(uid);
        self.jobs.insert(uid.clone(), Job::TearDown);
        let op = HelperOp::TearDownPod { pod_dir };
        cx.call(Ask::TearDown { uid: uid.clone() }, Call::Helper(op));
    }

    fn on_torn_down(&mut self, cx: &mut Cx<'_>, uid: PodUid, outcome: Outcome) {
        if !matches!(outcome, Outcome::Helper(Ok(_))) {
            let text = fault_text(&outcome);
            return self.fail(cx, &uid, "FailedUnmount", text);
        }
        // The class of an orphan is unknown: the sweep finds its cgroup by name. Without a hierarchy pods have no
        // cgroup of their own, and what they share is not ours to remove.
        let own = cx.facts.settings().cgroups_per_qos;
        let worker = cx.facts.workers.worker(&uid).filter(|w| own && !w.orphan());
        let Some(worker) = worker else {
            return self.done(cx, &uid, Ok(StepDone::Other));
        };
        let layout = requests::layout(cx.facts);
        let op = layout.remove(layout.pod(worker.pod()));
        self.jobs.insert(uid.clone(), Job::RemoveCgroup);
        cx.call(Ask::RemoveCgroup { uid }, Call::Kernel(op));
    }

    fn on_cgroup_gone(&mut self, cx: &mut Cx<'_>, uid: PodUid, outcome: Outcome) {
        match outcome {
            Outcome::Kernel(Ok(KernelReply::Done)) => self.done(cx, &uid, Ok(StepDone::Other)),
            other => {
                let text = fault_text(&other);
                self.fail(cx, &uid, "FailedCleanup", text);
            }
        }
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        match then {
            Ask::Cgroups { uid } | Ask::Dirs { uid } => self.on_set_up(cx, &uid, outcome),
            Ask::StopContainer { uid, id } => {
                let note = RuntimeNote::ContainerStopped { uid: uid.clone(), id: id.clone() };
                let result =
                    gone_is_fine(answer::<api::StopContainerResponse>(outcome).map(|_| ()));
                self.on_stopped(cx, &uid, id.as_str(), result.map(|()| note));
            }
            Ask::StopSandbox { uid, id } => {
                let note = RuntimeNote::SandboxStopped { uid: uid.clone(), id: id.clone() };
                let result = answer::<api::StopPodSandboxResponse>(outcome).map(|_| ());
                self.on_stopped(cx, &uid, id.as_str(), gone_is_fine(result).map(|()| note));
            }
            Ask::RunSandbox { uid } => self.on_sandbox(cx, uid, answer(outcome)),
            Ask::Files { uid } => self.on_files(cx, &uid, outcome),
            Ask::Create { uid, sandbox } => self.on_created(cx, uid, sandbox, answer(outcome)),
            Ask::Start { uid } => self.on_started(cx, uid, answer(outcome)),
            Ask::Link => {
                if let Outcome::Disk(Err(fault)) = outcome {
                    log::warn!("a container's log link cannot be made: {}", fault.message);
                }
            }
            Ask::TearDown { uid } => self.on_torn_down(cx, uid, outcome),
            Ask::RemoveCgroup { uid } => self.on_cgroup_gone(cx, uid, outcome),
        }
    }
}

/// The call ends by itself some time after the grace.
fn stop_container(cx: &mut Cx<'_>, uid: &PodUid, id: &ContainerId, grace_seconds: i64) -> Token {
    let body =
        api::StopContainerRequest { container_id: id.as_str().into(), timeout: grace_seconds };
    let grace = Span::from_secs(u64::try_from(grace_seconds).unwrap_or(0));
    let within = cx.facts.settings().runtime_request_timeout + grace;
    let ask = Ask::StopContainer { uid: uid.clone(), id: id.clone() };
    cx.call(ask, cri::call(cri::STOP_CONTAINER, &body, within))
}

/// A worker stays until its step has ended.
fn pod_of(cx: &Cx<'_>, uid: &PodUid) -> Arc<Pod> {
    cx.facts.workers.worker(uid).expect("a step has its worker").pod().clone()
}

/// What is to be stopped and is not there has stopped.
fn gone_is_fine(result: Result<(), RpcError>) -> Result<(), RpcError> {
    match result {
        Err(e) if e.code == RpcError::NOT_FOUND => Ok(()),
        other => other,
    }
}

fn rpc_text(e: &RpcError) -> String {
    match e.code {
        RpcError::DEADLINE_EXCEEDED => "context deadline exceeded".into(),
        _ => e.message.clone(),
    }
}

fn fault_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Disk(Err(Fault { message, .. }))
        | Outcome::Kernel(Err(Fault { message, .. }))
        | Outcome::Helper(Err(Fault { message, .. })) => message.clone(),
        other => format!("an answer that was not asked for: {other:?}"),
    }
}

fn said(cx: &mut Cx<'_>, uid: &PodUid, field: &str, reason: &'static str, message: String) {
    tell(cx, uid, field.into(), true, reason, message);
}

fn tell(
    cx: &mut Cx<'_>,
    uid: &PodUid,
    field: String,
    warning: bool,
    reason: &'static str,
    message: String,
) {
    let uid = Some(uid.clone());
    cx.say(Note::Said(Said { uid, field, warning, reason: reason.into(), message }.into()));
}
