//! Makes sure that the image of a container is present, by its pull policy.
//!
//! Upstream: pkg/kubelet/images/image_manager.go, puller.go (v1.36).
//! Owns: who waits for which image, the pulls under way, the back-off of images that failed.
//! Publishes: `facts.pulls`: pulls under way, for the live table.
//! Hears: ImageNote Wanted, Unwanted. Says: ImageNote::Ready, VolumeNote::SecretsLost, Said. Asks: ImageStatus, PullImage.
//! Never: pulls one image twice at once, or a failed one before its back-off has passed.

use crate::backoff::BackOff;
use crate::cx::Cx;
use crate::effect::Content;
use crate::event::{Outcome, RpcError};
use crate::facts::Facts;
use crate::ids::PodUid;
use crate::managers::containers::image;
use crate::managers::cri::{self, answer};
use crate::managers::volumes::payload::pull_configs;
use crate::note::{ImageFound, ImageNote, Note, Said, StepError, VolumeNote};
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::container::pull_policy;
use steplet_api::cri as api;

/// Back-off of an image of a pod: 10 s doubling to 300 s.
const BASE: Span = Span::from_secs(10);
const MOST: Span = Span::from_secs(300);
const FORGET_AFTER: Span = Span::from_secs(600);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// What each pod waits for: one container at a time.
    waiting: BTreeMap<PodUid, Wait>,
    queue: VecDeque<Box<str>>,
    back_off: BTreeMap<(PodUid, Box<str>), (BackOff, String)>,
    /// Tokens of the registry QPS bucket, in thousandths, and when they were counted.
    tokens: Option<(u64, Mono)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Wait {
    container: Box<str>,
    /// `spec.containers{name}`, for events.
    field: Box<str>,
    /// As the pod names it: events quote this.
    named: Box<str>,
    /// With its tag: the runtime is asked for this.
    image: Box<str>,
    policy: Box<str>,
    since: Mono,
    /// It waits for a pull of its image, and not only for the image's status.
    joined: bool,
    /// How long the pull took, once it is done.
    pulled: Option<Span>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// `after_pull`: when that pull started.
    Status {
        uid: PodUid,
        image: Box<str>,
    },
    Pull {
        image: Box<str>,
    },
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PullFacts {
    running: BTreeMap<Box<str>, Mono>,
    /// Pulls that succeeded.
    pulled: u64,
}

impl PullFacts {
    /// How many pulls have succeeded in this life.
    pub fn pulled(&self) -> u64 {
        self.pulled
    }

    /// Images being pulled, with the start of each.
    pub fn running(&self) -> &BTreeMap<Box<str>, Mono> {
        &self.running
    }
}

impl Pull {
    pub(crate) fn on_note(&mut self, cx: &mut Cx<'_>, note: &ImageNote) {
        match note {
            ImageNote::Wanted { uid, container, field, image, policy } => {
                let wait = Wait {
                    container: container.clone(),
                    field: field.clone(),
                    named: image.clone(),
                    image: image.clone(),
                    policy: policy.clone(),
                    since: cx.now.mono,
                    joined: false,
                    pulled: None,
                };
                self.on_wanted(cx, uid, wait);
            }
            ImageNote::Unwanted { uid } => {
                self.waiting.remove(uid);
            }
            ImageNote::Ready { .. } => {}
        }
    }

    fn on_wanted(&mut self, cx: &mut Cx<'_>, uid: &PodUid, mut wait: Wait) {
        match image::with_default_tag(&wait.named) {
            Ok(image) => wait.image = Box::from(&*image),
            Err(message) => {
                said(cx, uid, &wait.field, true, "InspectFailed", message.clone());
                let error = error(&wait.container, "InvalidImageName", message);
                return ready(cx, uid, Err(error));
            }
        }
        self.ask_status(cx, uid, &wait.image);
        self.waiting.insert(uid.clone(), wait);
    }

    fn ask_status(&mut self, cx: &mut Cx<'_>, uid: &PodUid, image: &str) {
        let within = cx.facts.settings().runtime_request_timeout;
        let spec = api::ImageSpec { image: image.into(), ..Default::default() };
        let body = api::ImageStatusRequest { image: Some(spec), verbose: false };
        let ask = Ask::Status { uid: uid.clone(), image: image.into() };
        cx.call(ask, cri::image_call(cri::IMAGE_STATUS, &body, Some(within)));
    }

    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, then: Ask, outcome: Outcome) {
        match then {
            Ask::Status { uid, image } => {
                let waits = self.waiting.get(&uid).is_some_and(|wait| wait.image == image);
                if waits {
                    let status = answer::<api::ImageStatusResponse>(outcome);
                    self.on_status(cx, &uid, status.map(|s| s.image));
                }
            }
            Ask::Pull { image } => {
                let result = answer::<api::PullImageResponse>(outcome).map(|_| ());
                cx.facts.pulls.pulled += u64::from(result.is_ok());
                self.on_pulled(cx, &image, result);
            }
        }
    }

    fn on_status(
        &mut self,
        cx: &mut Cx<'_>,
        uid: &PodUid,
        status: Result<Option<api::Image>, RpcError>,
    ) {
        let Some(wait) = self.waiting.get(uid) else { return };
        let Wait { container, field, named, .. } = wait.clone();
        match status {
            Err(e) => {
                let message = format!("Failed to inspect image {named:?}: {}", e.message);
                said(cx, uid, &field, true, "InspectFailed", message.clone());
                self.end(cx, uid, Err(error(&container, "ImageInspectError", message)));
            }
            Ok(Some(found)) if let Some(took) = wait.pulled => {
                let (took, whole) = (go_millis(took), go_millis(cx.now.mono.since(wait.since)));
                let text = format!(
                    "Successfully pulled image {named:?} in {took} ({whole} including waiting). \
                     Image size: {} bytes.",
                    found.size
                );
                said(cx, uid, &field, false, "Pulled", text);
                self.end(cx, uid, Ok(image_found(&found)));
            }
            Ok(Some(found)) if &*wait.policy != pull_policy::ALWAYS => {
                let text = format!(
                    "Container image {named:?} already present on machine and can \
                     be accessed by the pod"
                );
                said(cx, uid, &field, false, "Pulled", text);
                self.end(cx, uid, Ok(image_found(&found)));
            }
            Ok(None) if &*wait.policy == pull_policy::NEVER => {
                let text =
                    format!("Container image {named:?} is not present with pull policy of Never");
                said(cx, uid, &field, true, "ErrImageNeverPull", text.clone());
                self.end(cx, uid, Err(error(&container, "ErrImageNeverPull", text)));
            }
            Ok(None) if wait.pulled.is_some() => {
                let text = format!("image {named:?} is gone right after it was pulled");
                self.end(cx, uid, Err(error(&container, "ImageInspectError", text)));
            }
            Ok(_) => self.pull(cx, uid),
        }
    }

    /// Joins a pull of this image, or starts one as back-off, QPS and the limit of parallel pulls allow.
    fn pull(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(wait) = self.waiting.get(uid) else { return };
        let Wait { container, field, named, image, .. } = wait.clone();
        let now = cx.now.mono;
        if let Some((back_off, last)) = self.back_off.get(&(uid.clone(), image.clone()))
            && back_off.until(back_off.at(), now).is_some()
        {
            let text = format!("Back-off pulling image {named:?}");
            said(cx, uid, &field, false, "BackOff", text.clone());
            let text = format!("{text}: ErrImagePull: {last}");
            return self.end(cx, uid, Err(error(&container, "ImagePullBackOff", text)));
        }
        if !self.take_token(cx) {
            let text = String::from("pull QPS exceeded");
            return self.end(cx, uid, Err(error(&container, "ErrImagePull", text)));
        }
        if let Some(wait) = self.waiting.get_mut(uid) {
            wait.joined = true;
        }
        said(cx, uid, &field, false, "Pulling", format!("Pulling image {named:?}"));
        if !cx.facts.pulls.running.contains_key(&image) && !self.queue.contains(&image) {
            self.queue.push_back(image);
            self.start_pulls(cx);
        }
    }

    fn start_pulls(&mut self, cx: &mut Cx<'_>) {
        let settings = cx.facts.settings();
        let most = match (settings.serialize_image_pulls, settings.max_parallel_image_pulls) {
            (true, _) => 1,
            (false, 0) => usize::MAX,
            (false, most) => most as usize,
        };
        while cx.facts.pulls.running.len() < most {
            let Some(image) = self.queue.pop_front() else { return };
            if !self.waiting.values().any(|wait| wait.joined && wait.image == image) {
                continue;
            }
            let spec = api::ImageSpec { image: image.clone().into(), ..Default::default() };
            let body =
                api::PullImageRequest { image: Some(spec), auth: None, sandbox_config: None };
            let started = cx.now.mono;
            cx.facts.pulls.running.insert(image.clone(), started);
            let configs = self.pull_configs(cx, &image);
            cx.call(Ask::Pull { image }, cri::pull_image(&body, configs));
        }
    }

    /// What the pull secrets hold of all pods that wait for this pull.
    fn pull_configs(&self, cx: &mut Cx<'_>, image: &str) -> Vec<Content> {
        let mut configs = Vec::new();
        let joined = self.waiting.iter().filter(|(_, wait)| wait.joined && *wait.image == *image);
        for (uid, _) in joined {
            let Some(worker) = cx.facts.workers.worker(uid) else { continue };
            let pod = worker.pod().clone();
            let (own, missing) = pull_configs(&pod, &cx.facts.volumes);
            configs.extend(own);
            if !missing.is_empty() {
                let text = format!(
                    "Unable to retrieve some image pull secrets ({}); attempting to pull the image \
                     may not succeed.",
                    missing.join(", ")
                );
                said(cx, uid, "", true, "FailedToRetrieveImagePullSecret", text);
            }
        }
        configs
    }

    fn on_pulled(&mut self, cx: &mut Cx<'_>, image: &str, result: Result<(), RpcError>) {
        let now = cx.now.mono;
        let started = cx.facts.pulls.running.remove(image).unwrap_or(now);
        let waiting = self.waiting.iter().filter(|(_, w)| w.joined && *w.image == *image);
        let waiting: Vec<PodUid> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            let Some(wait) = self.waiting.get_mut(&uid) else { continue };
            match &result {
                Ok(()) => {
                    wait.pulled = Some(now.since(started));
                    self.back_off.remove(&(uid.clone(), image.into()));
                    self.ask_status(cx, &uid, image);
                }
                Err(e) => {
                    if e.code == RpcError::DATA_LOSS {
                        cx.say(Note::Volume(VolumeNote::SecretsLost { uid: uid.clone() }));
                    }
                    let Wait { container, field, named, .. } = wait.clone();
                    self.failed(&uid, image, now, &e.message);
                    let text = format!("Failed to pull image {named:?}: {}", e.message);
                    said(cx, &uid, &field, true, "Failed", text);
                    let error = error(&container, "ErrImagePull", e.message.clone());
                    self.end(cx, &uid, Err(error));
                }
            }
        }
        self.start_pulls(cx);
    }

    fn failed(&mut self, uid: &PodUid, image: &str, now: Mono, message: &str) {
        match self.back_off.get_mut(&(uid.clone(), image.into())) {
            Some((back_off, last)) if now.since(back_off.at()) <= FORGET_AFTER => {
                back_off.again(now, BASE, MOST);
                *last = message.into();
            }
            _ => {
                let fresh = (BackOff::first(now, BASE), message.into());
                self.back_off.insert((uid.clone(), image.into()), fresh);
            }
        }
    }

    /// Token bucket of registryPullQPS and registryBurst.
    fn take_token(&mut self, cx: &Cx<'_>) -> bool {
        let (qps, burst) = (cx.facts.settings().registry_qps, cx.facts.settings().registry_burst);
        if qps == 0 {
            return true;
        }
        let full = u64::from(burst.max(1)) * 1_000;
        let (tokens, at) = self.tokens.unwrap_or((full, cx.now.mono));
        let more = cx.now.mono.since(at).millis().saturating_mul(u64::from(qps));
        let tokens = tokens.saturating_add(more).min(full);
        let enough = tokens >= 1_000;
        self.tokens = Some((if enough { tokens - 1_000 } else { tokens }, cx.now.mono));
        enough
    }

    fn end(&mut self, cx: &mut Cx<'_>, uid: &PodUid, result: Result<ImageFound, StepError>) {
        self.waiting.remove(uid);
        ready(cx, uid, result);
    }

    /// Back-off of pods that are gone is of no use to anybody.
    pub(crate) fn on_forgotten(&mut self, uid: &PodUid) {
        self.waiting.remove(uid);
        self.back_off.retain(|(other, _), _| other != uid);
    }

    pub(crate) fn check(&self, facts: &Facts) {
        let queued: BTreeSet<&Box<str>> = self.queue.iter().collect();
        assert!(queued.len() == self.queue.len(), "pull: an image is queued twice");
        for image in facts.pulls.running.keys() {
            assert!(!queued.contains(image), "pull: {image} is queued while it is pulled");
        }
    }
}

fn image_found(found: &api::Image) -> ImageFound {
    ImageFound { id: found.id.clone().into(), user: image::image_user(found) }
}

/// Whole milliseconds as Go prints them: `0s`, `250ms`, `1.25s`, `1m5s`.
fn go_millis(span: Span) -> String {
    let (secs, millis) = (span.secs(), span.millis() % 1_000);
    let fraction = format!(".{millis:03}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    match (secs / 3_600, secs / 60 % 60, secs % 60) {
        (0, 0, 0) if millis > 0 => format!("{millis}ms"),
        (0, 0, s) => format!("{s}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{fraction}s"),
    }
}

fn error(container: &str, reason: &'static str, message: String) -> StepError {
    StepError { container: Some(container.into()), reason, message }
}

fn ready(cx: &mut Cx<'_>, uid: &PodUid, result: Result<ImageFound, StepError>) {
    cx.say(Note::Image(ImageNote::Ready { uid: uid.clone(), result }));
}

fn said(
    cx: &mut Cx<'_>,
    uid: &PodUid,
    field: &str,
    warning: bool,
    reason: &'static str,
    message: String,
) {
    let (uid, field) = (Some(uid.clone()), field.into());
    cx.say(Note::Said(Said { uid, field, warning, reason: reason.into(), message }.into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_as_go_prints_them() {
        let check = |millis, want| assert_eq!(go_millis(Span::from_millis(millis)), want);
        check(0, "0s");
        check(250, "250ms");
        check(1_000, "1s");
        check(1_250, "1.25s");
        check(65_004, "1m5.004s");
        check(3_600_000, "1h0m0s");
    }
}
