//! The end of a pod: what runs is stopped, what it had is cleaned up, and who waited for its name may go on.
//!
//! Upstream: SyncTerminatingPod and SyncTerminatedPod in pkg/kubelet/kubelet.go (v1.36).

use super::Workers;
use super::worker::{Ending, GRACE_LEAST, Phase, Why};
use crate::backoff::BackOff;
use crate::cx::Cx;
use crate::effect::Effect;
use crate::ids::PodUid;
use crate::managers::pods::plan::{self, Step};
use crate::managers::pods::status::DEADLINE_MESSAGE;
use crate::managers::pods::view::PodView;
use crate::note::{Note, PodNote, StepError, StepNote};
use crate::planted::planted;
use crate::time::Span;
use alloc::sync::Arc;
use alloc::vec::Vec;
use steplet_api::pod::Pod;

/// After an error of the clean-up: what is busy is soon free.
const RETRY_CLEANING: Span = Span::from_secs(1);
/// What stays busy (a mount that somebody else uses) is not tried more often, and is told from the third try on.
const RETRY_CLEANING_MOST: Span = Span::from_secs(60);
const CLEANING_TOLD_FROM: Span = Span::from_secs(4);
/// A sandbox is stopped although a container in it would not, this long after its grace.
const FORCE_AFTER: u64 = 10;
/// How long pods may take beyond their grace when the program leaves with them.
const LEAVE_MORE: Span = Span::from_secs(30);

impl Workers {
    /// Something of a pod that had ended runs after all (a call of an earlier life was answered late): end it again.
    pub(super) fn recheck_ended(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let alive = cx.facts.pleg.view(uid).is_some_and(PodView::alive);
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        if alive && let Phase::Cleaning(ending) | Phase::Ended(ending) = &worker.phase {
            worker.phase = Phase::Terminating(Ending { asked: None, ..ending.clone() });
        }
    }

    /// Takes in a new form of a pod that is ending: its grace can become shorter.
    pub(super) fn hasten(&mut self, cx: &mut Cx<'_>, uid: &PodUid, pod: Arc<Pod>) {
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        worker.redefine(pod);
        let grace = worker.grace_seconds(None);
        if let Phase::Terminating(ending) = &mut worker.phase
            && grace < ending.grace_seconds
        {
            ending.grace_seconds = grace;
            let grace_seconds = ending.left(cx.now.mono).max(GRACE_LEAST);
            worker.pause = None;
            if worker.busy {
                let uid = uid.clone();
                cx.say(Note::Step(StepNote::CancelWanted { uid: uid.clone() }));
                cx.say(Note::Step(StepNote::HastenWanted { uid, grace_seconds }));
            }
        }
        cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
        self.advance(cx, uid);
    }

    pub(super) fn terminate(&mut self, cx: &mut Cx<'_>, uid: &PodUid, why: Why) {
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.workers.get_mut(uid) else { return };
        let grace_seconds = worker.grace_seconds(facts.pleg.view(uid));
        worker.phase = Phase::Terminating(Ending { why, grace_seconds, asked: None });
        worker.pause = None;
        if worker.busy {
            cx.say(Note::Step(StepNote::CancelWanted { uid: uid.clone() }));
        }
        cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
        self.advance(cx, uid);
    }

    /// Ends what runs; goes on to the clean-up when nothing does.
    pub(super) fn stop(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let facts = &mut *cx.facts;
        let Some(worker) = facts.workers.workers.get_mut(uid) else { return };
        // Of an orphan only its containers tell the grace, and they are known by now.
        let grace_seconds = worker.grace_seconds(facts.pleg.view(uid));
        let Phase::Terminating(ending) = &mut worker.phase else { return };
        if ending.asked.is_none() {
            ending.grace_seconds = grace_seconds;
        }
        let view = facts.pleg.view(uid).filter(|view| view.alive());
        let Some(view) = view else {
            let next = Phase::Cleaning(ending.clone());
            self.set_phase(cx, uid, next);
            return self.advance(cx, uid);
        };
        let passed = ending.asked.map_or(0, |asked| cx.now.mono.since(asked).secs());
        let left = if planted(11) { 0 } else { ending.left(cx.now.mono) };
        let mut step = plan::stop_all(&worker.pod, view, left.max(GRACE_LEAST));
        let forced = ending.grace_seconds.unsigned_abs() + FORCE_AFTER;
        if passed > forced
            && let Step::Stop { sandboxes, .. } = &mut step
        {
            *sandboxes = view.sandboxes.iter().filter(|s| s.ready).map(|s| s.id.clone()).collect();
        }
        self.step(cx, uid, step);
        if let Some(worker) = cx.facts.workers.workers.get_mut(uid)
            && worker.busy
            && let Phase::Terminating(ending) = &mut worker.phase
        {
            ending.asked.get_or_insert(cx.now.mono);
        }
    }

    pub(super) fn clean_up_failed(&mut self, cx: &mut Cx<'_>, uid: &PodUid, error: &StepError) {
        let now = cx.now.mono;
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        let back_off = match &mut worker.clean_up {
            Some(back_off) => {
                back_off.again(now, RETRY_CLEANING, RETRY_CLEANING_MOST);
                back_off
            }
            None => worker.clean_up.insert(BackOff::first(now, RETRY_CLEANING)),
        };
        let at = now + back_off.period();
        let told = back_off.period() >= CLEANING_TOLD_FROM && worker.clean_up_said != error.message;
        worker.pause = Some(at);
        if told {
            worker.clean_up_said = error.message.clone();
            self.said(cx, uid, true, error.reason, error.message.clone());
        }
        self.wake_at(cx, uid, at);
    }

    pub(super) fn cleaned(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        let Some(worker) = cx.facts.workers.workers.get_mut(uid) else { return };
        let Phase::Cleaning(ending) = &worker.phase else { return };
        let ending = ending.clone();
        worker.setup = None;
        if let Some(pod) = worker.again.take() {
            self.begin_anew(cx, uid, pod);
            // It may come back under another name.
            self.wake_namesakes(cx, uid);
            cx.say(Note::Pod(PodNote::Progressed { uid: uid.clone() }));
            return self.advance(cx, uid);
        }
        let gone = ending.why == Why::Unconfigured;
        self.set_phase(cx, uid, Phase::Ended(ending));
        if gone {
            self.forget(cx, uid);
        } else {
            self.wake_namesakes(cx, uid);
        }
    }

    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        self.wake_namesakes(cx, uid);
        self.timers.retain(|(_, other)| other != uid);
        cx.facts.workers.workers.remove(uid);
        if cx.facts.pleg.view(uid).is_some() {
            self.remains.insert(uid.clone());
        }
        cx.say(Note::Pod(PodNote::Forgotten { uid: uid.clone() }));
        self.leave_if_done(cx);
    }

    pub(super) fn exceed_deadline(&mut self, cx: &mut Cx<'_>, uid: &PodUid) {
        self.said(cx, uid, false, "DeadlineExceeded", DEADLINE_MESSAGE.into());
        self.terminate(cx, uid, Why::DeadlineExceeded);
    }

    pub(crate) fn on_shutdown(&mut self, cx: &mut Cx<'_>) {
        let stop = cx.facts.settings().stop_pods_on_exit;
        // What the runtime has is not known if it never answered; nothing was started.
        if self.leaving || !stop || cx.facts.pleg.relists() == 0 {
            cx.emit(Effect::Exit(0));
            return;
        }
        self.leaving = true;
        let views = cx.facts.pleg.views();
        let graces =
            cx.facts.workers.workers.iter().map(|(uid, w)| w.grace_seconds(views.get(uid)));
        let longest = graces.max().unwrap_or(0).unsigned_abs();
        self.leave_by = Some(cx.now.mono + Span::from_secs(longest) + LEAVE_MORE);
        let uids: Vec<PodUid> = cx.facts.workers.workers.keys().cloned().collect();
        for uid in uids {
            self.on_unconfigured(cx, &uid);
        }
        self.leave_if_done(cx);
    }

    pub(super) fn leave_if_done(&mut self, cx: &mut Cx<'_>) {
        if self.leaving && cx.facts.workers.workers.is_empty() && self.remains.is_empty() {
            cx.emit(Effect::Exit(0));
        }
    }
}
