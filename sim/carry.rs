//! The way out: effects of the core at the fake doors, and what follows from them there.

use crate::clock::At;
use crate::doors::disk::fault;
use crate::doors::kernel::parent_path;
use crate::doors::rpc::{Fate, Struck};
use crate::doors::runtime::{Caller, Out};
use crate::doors::{helper, offline};
use crate::trace::{Fact, Seen};
use crate::world::{Due, World};
use steplet_core::effect::{Call, DiskOp, Effect, HelperOp, KernelOp, Rpc};
use steplet_core::event::{DiskReply, Fault, FaultKind, Item, Outcome, RpcError};
use steplet_core::time::Span;

impl World {
    pub(crate) fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Call { token, call } => {
                self.callers += 1;
                let caller = Caller(self.callers);
                let Some(agent) = &mut self.agent else { return };
                agent.open.insert(token, caller);
                agent.callers.insert(caller, token);
                self.call(caller, call);
            }
            Effect::Cancel(token) => {
                let Some(agent) = &mut self.agent else { return };
                let Some(caller) = agent.open.remove(&token) else { return };
                agent.callers.remove(&caller);
                agent.rpc.left(caller);
                if agent.watch == Some(caller) {
                    agent.watch = None;
                }
                self.runtime.left(caller);
                self.api.left(caller);
            }
            Effect::Reply { request, reply } => {
                self.reply(request, reply);
            }
            Effect::SendLog { request, log } => self.send_log(request, &log),
            Effect::EndLog { request } => self.end_log(request),
            Effect::SendFile { request, .. } => self.send_file(request),
            Effect::Stream { request, url } => self.stream(request, url),
            Effect::Exit(status) => self.end_agent(Some(status)),
        }
    }

    fn call(&mut self, caller: Caller, call: Call) {
        match call {
            Call::Rpc(rpc) => self.call_runtime(caller, &rpc),
            Call::Disk(DiskOp::WatchManifests { path }) => {
                if self.disk.manifests.missing {
                    let fault = fault(FaultKind::NotFound, format!("{path}: no such directory"));
                    self.answer_soon(caller, Outcome::Disk(Err(fault)));
                } else if let Some(agent) = &mut self.agent {
                    agent.watch = Some(caller);
                }
            }
            Call::Disk(op) => {
                let mut items = Vec::new();
                let result = self.disk.run(&op, &mut items);
                self.count_disk_faults(&items, &result);
                let outcome = Outcome::Disk(result);
                let soon = self.soon();
                for item in items {
                    self.agenda.plan(soon, Due::Item { caller, item });
                }
                self.agenda.plan(soon, Due::Answer { caller, outcome });
            }
            Call::Api(call) => self.call_api(caller, call),
            Call::Kernel(op) => {
                let live = self.empty_cgroup(&op);
                let result = self.kernel.run(&op, live);
                self.answer_soon(caller, Outcome::Kernel(result));
            }
            Call::Helper(op) => {
                if let HelperOp::Keep { set, unset } = &op {
                    let change = offline::Change::of(set, unset, self.api.vault());
                    if change.is_none() {
                        let lost = fault(FaultKind::SealLost, "a seal of an earlier life");
                        return self.answer_soon(caller, Outcome::Helper(Err(lost)));
                    }
                    self.disk.offline.under_way = change;
                }
                let mut time = helper::time(&op, &mut self.dice);
                if self.setup.swift {
                    time = Span::ZERO;
                }
                if self.dice.chance(self.helper_hangs.0) {
                    time = time + self.helper_hangs.1;
                    *self.struck.entry("helper hangs").or_default() += 1;
                }
                let free = self.helpers.get(helper::subject(&op)).copied();
                let end = free.map_or(self.clock.at(), |free| free.max(self.clock.at())) + time;
                self.helpers.insert(helper::subject(&op).to_owned(), end);
                let op = Box::new(op);
                self.agenda.plan(end, Due::Helper { caller, op });
            }
        }
    }

    fn count_disk_faults(&mut self, items: &[Item], result: &Result<DiskReply, Fault>) {
        let mut count = |what| *self.struck.entry(what).or_default() += 1;
        match result.as_ref().map_err(|fault| fault.kind) {
            Err(FaultKind::NoSpace) => count("disk full"),
            Err(FaultKind::ReadOnly) => count("disk read-only"),
            _ => {}
        }
        let torn = |item: &&Item| matches!(item, Item::Manifest(m) if m.content.is_err());
        items.iter().filter(torn).for_each(|_| count("manifest torn"));
    }

    /// Kills what lives in a cgroup that is to be removed; whether there was anything.
    fn empty_cgroup(&mut self, op: &KernelOp) -> bool {
        let (KernelOp::RemoveCgroup { path } | KernelOp::RemoveSlice { path }) = op else {
            return false;
        };
        if self.kernel.systemd_gone && matches!(op, KernelOp::RemoveSlice { .. }) {
            return false;
        }
        let mut out = Out::default();
        let inside = self.runtime.running_below(path);
        for container in &inside {
            self.runtime.kill_cgroup(self.clock.wall(), container, &mut out);
        }
        self.take(out);
        !inside.is_empty()
    }

    /// A fraction of a millisecond from now.
    fn soon(&mut self) -> At {
        let soon = if self.setup.swift { 0 } else { self.dice.between(5_000, 400_000) };
        self.clock.at() + Span(soon)
    }

    pub(crate) fn answer_soon(&mut self, caller: Caller, outcome: Outcome) {
        let soon = self.soon();
        self.agenda.plan(soon, Due::Answer { caller, outcome });
    }

    fn call_runtime(&mut self, caller: Caller, rpc: &Rpc) {
        let Some(agent) = &mut self.agent else { return };
        agent.rpc.called(caller, rpc);
        let (fate, struck) = self.weather.fate(rpc, &mut self.dice);
        if struck != Struck::Nothing {
            *self.struck.entry(struck.name()).or_default() += 1;
        }
        match fate {
            Fate::Through(longer) => {
                let method = rpc.path.rsplit('/').next().unwrap_or_default();
                let mut out = Out::default();
                let wall = self.clock.wall();
                self.runtime.call(wall, caller, method, &rpc.body, longer, &mut out);
                self.take(out);
            }
            Fate::Answered(answer) => self.answer_soon(caller, Outcome::Rpc(answer)),
            Fate::Hangs => agent.hung.push(caller),
        }
        if let Some(within) = rpc.within {
            self.agenda.plan(self.clock.at() + within, Due::Deadline(caller));
        }
    }

    /// What follows from an input to the runtime.
    pub(crate) fn take(&mut self, out: Out) {
        for (after, wake) in out.wakes {
            self.agenda.plan(self.clock.at() + after, Due::Runtime(wake));
        }
        for fact in out.facts {
            self.follow(&fact);
            self.show(&Seen::Fact(&fact));
        }
        for (caller, answer) in out.answers {
            let Some(agent) = &mut self.agent else { continue };
            let outcome = agent.rpc.answered(caller, answer);
            self.answer(caller, outcome);
        }
    }

    /// What a change in the runtime does to the disk and the cgroup tree.
    fn follow(&mut self, fact: &Fact) {
        match fact {
            Fact::ContainerStarted { container } => {
                let Some(found) = self.runtime.container(container) else { return };
                let Some(sandbox) = self.runtime.sandbox(&found.sandbox) else { return };
                let log = format!("{}/{}", sandbox.config.log_directory, found.config.log_path);
                let parent = parent_path(sandbox.cgroup_parent());
                self.disk.write(&log, b"");
                self.kernel.make(&parent);
            }
            Fact::ContainerExited { container, .. } => {
                self.cut_streams(container);
                let Some(found) = self.runtime.container(container) else { return };
                let Some(message) = &found.app.message else { return };
                let path = &found.config.annotations;
                let path = path.get("io.kubernetes.container.terminationMessagePath");
                let mount = (found.config.mounts.iter())
                    .find(|mount| path.is_some_and(|path| mount.container_path == *path));
                if let Some(mount) = mount {
                    self.disk.write(&mount.host_path, message.as_bytes());
                }
            }
            Fact::SandboxStopped { sandbox, .. } => {
                self.cut_streams(sandbox);
            }
            _ => {}
        }
    }

    /// Answers what the weather has kept back.
    pub(crate) fn release_hung(&mut self) {
        let hung = self.agent.as_mut().map(|agent| std::mem::take(&mut agent.hung));
        for caller in hung.unwrap_or_default() {
            self.answer_soon(caller, Outcome::Rpc(Err(gone())));
        }
    }

    /// The connection to the runtime breaks: what waits for an answer gets an error.
    pub(crate) fn drop_rpcs(&mut self) {
        let Some(agent) = &mut self.agent else { return };
        agent.hung.clear();
        for caller in agent.rpc.open() {
            self.answer_soon(caller, Outcome::Rpc(Err(gone())));
        }
    }
}

fn gone() -> RpcError {
    RpcError { code: RpcError::UNAVAILABLE, message: "error reading from server: EOF".into() }
}
