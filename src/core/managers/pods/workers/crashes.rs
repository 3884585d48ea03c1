//! Back-off of containers that crash or cannot be started, one record a container name.
//!
//! Upstream: doBackOff in pkg/kubelet/kuberuntime, flowcontrol.Backoff in client-go (v1.36).
//! All on the monotonic clock, from the moment an exit was seen: clock steps change nothing.

use crate::backoff::BackOff;
use crate::managers::containers::hash;
use crate::managers::pods::view::{ContainerState, ContainerView, PodView};
use crate::planted::planted;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::container::Container;

/// The first period; doubled up to `crashLoopBackOff.maxContainerRestartPeriod`.
const BASE: Span = Span::from_secs(10);
/// A container that ran this long begins anew.
const FORGET_AFTER: Span = Span::from_secs(600);

/// A sandbox that does not last is made again after 1 s, 2 s, ... 60 s; upstream has no bound here.
const SANDBOX_BASE: Span = Span::from_secs(1);
const SANDBOX_MOST: Span = Span::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crashes {
    containers: BTreeMap<Box<str>, Crash>,
    /// The highest attempt of each container that was ever seen: it may be gone from the runtime by now.
    attempts: BTreeMap<Box<str>, u32>,
    sandbox: Option<BackOff>,
    /// Above the attempts of all sandboxes that were seen or asked for.
    next_sandbox: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Crash {
    back_off: Option<BackOff>,
    /// The definition that the back-off belongs to.
    hash: Box<str>,
    /// The newest exit: attempt, and when it was seen.
    exit: Option<(u32, Mono)>,
    /// The attempt whose exit was answered with a restart: one that takes several tries counts once.
    answered: Option<u32>,
    /// A failed start is not tried again before this.
    failed_until: Option<Mono>,
}

impl Crash {
    /// The end of the crash back-off, if it lies ahead.
    fn until(&self, now: Mono) -> Option<Mono> {
        let (back_off, (_, exit)) = (self.back_off.as_ref()?, self.exit?);
        if exit.since(back_off.at()) > FORGET_AFTER || planted(6) {
            return None;
        }
        back_off.until(exit, now)
    }
}

impl Crashes {
    /// Notes the exits that a view shows.
    pub fn observe(&mut self, view: &PodView, now: Mono) {
        if let Some(newest) = view.sandbox() {
            self.sandbox_from(newest.attempt.saturating_add(1));
        }
        for c in &view.containers {
            self.used(&c.name, c.attempt);
            let newest = view.container(&c.name).is_some_and(|n| n.id == c.id);
            if !newest || c.state != ContainerState::Exited {
                continue;
            }
            let crash = self.containers.entry(c.name.clone()).or_default();
            if crash.exit.is_none_or(|(attempt, _)| attempt != c.attempt) {
                crash.exit = Some((c.attempt, now));
            }
            if crash.hash != c.hash {
                crash.hash = c.hash.clone();
                crash.back_off = None;
            }
        }
    }

    /// What holds for another life under the same UID: attempts are not used again, crashes are forgotten.
    pub fn next_life(&self) -> Crashes {
        let (attempts, next_sandbox) = (self.attempts.clone(), self.next_sandbox);
        Crashes { attempts, next_sandbox, ..Crashes::default() }
    }

    /// An attempt is used up: by a container, or by a log that it left.
    pub fn used(&mut self, name: &str, attempt: u32) {
        let highest = self.attempts.entry(name.into()).or_default();
        *highest = attempt.max(*highest);
    }

    /// The attempt of the next container of this name: above all that were seen.
    pub fn next_attempt(&self, name: &str) -> u32 {
        self.attempts.get(name).map_or(0, |highest| highest.saturating_add(1))
    }

    /// When a container may be started, if not now. A crash of another definition does not hold this one back.
    pub fn hold(
        &self,
        container: &Container,
        shown: Option<&ContainerView>,
        now: Mono,
    ) -> Option<Mono> {
        let crash = self.containers.get(&*container.name)?;
        let failed = crash.failed_until.filter(|at| *at > now);
        let exited = shown.is_some_and(|c| c.state == ContainerState::Exited);
        let crashed = if exited { crash.until(now) } else { None };
        let crashed = crashed.filter(|_| *crash.hash == *hash::hash_text(container));
        failed.max(crashed)
    }

    /// Those of the containers that a crash back-off holds back, each with its period.
    pub fn held(&self, names: &[Box<str>], now: Mono) -> Vec<(Box<str>, Span)> {
        let crashes = names.iter().filter_map(|name| Some((name, self.containers.get(name)?)));
        let held = crashes.filter(|(_, crash)| crash.until(now).is_some());
        held.filter_map(|(name, crash)| Some((name.clone(), crash.back_off.as_ref()?.period())))
            .collect()
    }

    /// A container is started, which is a restart if one of its name has ended. The first time costs nothing, each later time twice as much.
    pub fn restarted(&mut self, name: &str, now: Mono, most: Span) {
        let crash = self.containers.entry(name.into()).or_default();
        let Some((attempt, exit)) = crash.exit else { return };
        if crash.answered.replace(attempt) == Some(attempt) {
            return;
        }
        match &mut crash.back_off {
            Some(back_off) if exit.since(back_off.at()) <= FORGET_AFTER => {
                back_off.again(now, BASE.min(most), most);
            }
            _ => crash.back_off = Some(BackOff::first(now, BASE.min(most))),
        }
    }

    /// The attempt of the next sandbox.
    pub fn next_sandbox(&self) -> u32 {
        self.next_sandbox
    }

    /// Attempts below this are used up.
    pub fn sandbox_from(&mut self, attempt: u32) {
        self.next_sandbox = self.next_sandbox.max(attempt);
    }

    /// When the next sandbox may be made, if not now.
    pub fn sandbox_hold(&self, now: Mono) -> Option<Mono> {
        let back_off = self.sandbox.as_ref()?;
        back_off.until(back_off.at(), now)
    }

    /// A sandbox is asked for. The first of a pod, and the first after ten good minutes, cost nothing.
    pub fn sandbox_made(&mut self, attempt: u32, now: Mono) {
        match &mut self.sandbox {
            Some(back_off) if now.since(back_off.at()) <= FORGET_AFTER => {
                back_off.again(now, SANDBOX_BASE, SANDBOX_MOST);
            }
            _ if attempt == 0 => {}
            _ => self.sandbox = Some(BackOff::first(now, SANDBOX_BASE)),
        }
    }

    /// A start failed; the next may be tried at `until`.
    pub fn failed(&mut self, name: &str, until: Mono) {
        self.containers.entry(name.into()).or_default().failed_until = Some(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn at(seconds: u64) -> Mono {
        Mono(1_000_000_000_000 + seconds * 1_000_000_000)
    }

    fn container(image: &str) -> Container {
        Container { name: "c".into(), image: image.into(), ..Container::default() }
    }

    fn exited(attempt: u32) -> PodView {
        let c = ContainerView {
            name: "c".into(),
            hash: hash::hash_text(&container("app:1")).into(),
            attempt,
            state: ContainerState::Exited,
            ..ContainerView::default()
        };
        PodView { containers: vec![c], ..PodView::default() }
    }

    /// The gaps between exit and restart, in seconds, of a container that runs `runs` seconds each time.
    fn gaps(most: u64, runs: &[u64]) -> vec::Vec<u64> {
        let (mut crashes, mut now, mut gaps) = (Crashes::default(), 0, vec![]);
        for (attempt, run) in runs.iter().enumerate() {
            now += run;
            let view = exited(attempt as u32);
            crashes.observe(&view, at(now));
            let until = crashes.hold(&container("app:1"), Some(&view.containers[0]), at(now));
            let gap = until.map_or(0, |until| until.since(at(now)).secs());
            gaps.push(gap);
            now += gap;
            crashes.restarted("c", at(now), Span::from_secs(most));
            // The first try found no image: one restart all the same.
            crashes.restarted("c", at(now + 1), Span::from_secs(most));
        }
        gaps
    }

    #[test]
    fn another_definition_does_not_wait_for_the_crashes_of_the_last() {
        let mut crashes = Crashes::default();
        let view = exited(3);
        crashes.observe(&view, at(0));
        crashes.restarted("c", at(0), Span::from_secs(300));
        let hold = |image: &str| crashes.hold(&container(image), view.containers.first(), at(1));
        assert_eq!((hold("app:1"), hold("app:2")), (Some(at(10)), None));
    }

    #[test]
    fn the_gaps_double_up_to_the_cap_and_begin_anew_after_ten_good_minutes() {
        assert_eq!(gaps(300, &[2; 8]), [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(gaps(60, &[2; 6]), [0, 10, 20, 40, 60, 60]);
        assert_eq!(gaps(1, &[2; 4]), [0, 1, 1, 1]);
        assert_eq!(gaps(300, &[2, 2, 2, 601, 2, 2]), [0, 10, 20, 0, 10, 20]);
    }
}
