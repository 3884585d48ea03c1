//! The world's end of the API server: calls of the agent, deeds of others in the cluster, trouble on the way.

use crate::clock::{At, EPOCH};
use crate::doors::api::link::Link;
use crate::doors::api::refusal::Refusal;
use crate::doors::api::{Answer, ApiServer, Out, Wake};
use crate::doors::runtime::Caller;
use crate::trace::{Change, Seen};
use crate::world::{Due, World};
use serde_json::Value;
use steplet_core::effect::{ApiCall, Lane};
use steplet_core::event::{ApiReply, Item, Outcome};
use steplet_core::time::Wall;

impl World {
    pub(crate) fn call_api(&mut self, caller: Caller, call: ApiCall) {
        if self.setup.settings.api.is_none() {
            return self.answer_soon(caller, Outcome::Api(Err("no API server".into())));
        }
        if let Some(refused) = self.no_credentials(call.lane) {
            return self.answer_soon(caller, Outcome::Api(refused));
        }
        let mut out = Out::default();
        self.api.call(self.clock.at(), caller, call, &mut out);
        self.take_api(out);
    }

    /// What a request comes to when the node cannot show who it is, or does not believe the server.
    fn no_credentials(&self, lane: Lane) -> Option<Answer> {
        let settings = &self.setup.settings.api.as_ref()?.certificates;
        if !(settings.rotate || settings.bootstrap) {
            return None;
        }
        // The server's own certificate is of last year.
        if self.clock.wall().0 < EPOCH.0 - 365 * 86_400_000_000_000 {
            return Some(Err("the server's certificate is not valid yet".into()));
        }
        if lane == Lane::Bootstrap {
            return (!settings.bootstrap).then(|| Err("no bootstrap kubeconfig".into()));
        }
        let kept = self.disk.pki.current("kubelet-client").map(|it| it.not_after);
        let Some(until) = kept.or(settings.given.as_ref().map(|pair| pair.not_after)) else {
            return Some(Err("kubelet-client-current.pem: no such file or directory".into()));
        };
        // The server's clock is right.
        let now = Wall(EPOCH.0 + self.clock.at().0 as i64);
        let refused = || ApiReply { status: 401, ..ApiReply::default() };
        (until <= now && !self.api.link.down).then(|| Ok(refused()))
    }

    pub(crate) fn wake_api(&mut self, wake: Wake) {
        let mut out = Out::default();
        self.api.wake(self.clock.at(), wake, &mut out);
        self.take_api(out);
    }

    /// What follows from an input to the server.
    fn take_api(&mut self, out: Out) {
        for (at, wake) in out.wakes {
            self.agenda.plan(at, Due::Api(wake));
        }
        for (at, caller, line) in out.lines {
            self.agenda.plan(at, Due::Item { caller, item: Item::Line(line) });
        }
        for (at, caller, answer) in out.answers {
            self.agenda.plan(at, Due::Answer { caller, outcome: Outcome::Api(answer) });
        }
        for what in out.struck {
            *self.struck.entry(what).or_default() += 1;
        }
        for what in out.refused {
            self.violate("the agent asks the API server only what it may", what);
        }
        for stored in &out.stored {
            self.show(&Seen::Stored(stored));
        }
    }

    /// Somebody does something to the cluster, or to the way there.
    pub fn with_api<T>(&mut self, deed: impl FnOnce(&mut ApiServer, At, &mut Out) -> T) -> T {
        let mut out = Out::default();
        let done = deed(&mut self.api, self.clock.at(), &mut out);
        self.take_api(out);
        done
    }

    /// The way to the server changes.
    pub fn change_way(&mut self, change: impl FnOnce(&mut Link)) {
        change(&mut self.api.link);
        self.show_way();
    }

    /// The server's process ends.
    pub fn stop_api(&mut self) {
        self.with_api(|api, at, out| api.go_down(at, out));
        self.show_way();
    }

    /// The way to the server is as it should be.
    pub fn heal_api(&mut self) {
        self.with_api(|api, at, out| {
            api.close_hole(at, out);
            api.link = Link::default();
        });
        self.show_way();
    }

    pub(crate) fn show_way(&mut self) {
        if self.setup.settings.api.is_some() {
            let known = self.no_credentials(Lane::Main).is_none();
            self.change(&Change::Way { fine: known && self.api.link.is_fine() });
        }
    }

    /// Somebody creates an object: `kubectl create`.
    pub fn api_create(&mut self, object: Value) -> Result<(), Refusal> {
        self.with_api(|api, at, out| api.create(at, object, out))
    }

    /// Somebody changes an object: `kubectl patch`. The patch says kind, namespace and name.
    pub fn api_patch(&mut self, sub: &str, patch: &Value) -> Result<(), Refusal> {
        self.with_api(|api, at, out| api.update(at, sub, patch, out))
    }

    /// `kubectl delete`: a kind in the plural, namespace, name; a pod with this grace, or its own.
    pub fn api_delete(
        &mut self,
        what: (&str, &str, &str),
        grace_seconds: Option<i64>,
    ) -> Result<(), Refusal> {
        self.with_api(|api, at, out| api.delete(at, what, grace_seconds, out))
    }
}
