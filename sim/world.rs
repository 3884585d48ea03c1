//! A node around a core: it carries out effects at the fake doors, lets time pass, and delivers what
//! happens as events. One seed gives one run.

use crate::agenda::Agenda;
use crate::clock::{At, Clock};
use crate::dice::Dice;
use crate::doors::api::{self, ApiServer};
use crate::doors::disk::Disk;
use crate::doors::helper;
use crate::doors::kernel::Kernel;
use crate::doors::listen::Listen;
use crate::doors::rpc::{RpcDoor, Weather};
use crate::doors::runtime::{Caller, Out, Runtime, Wake};
use crate::ledger::{Ask, Ledger};
use crate::setup::Setup;
use crate::trace::{Moment, Seen, Violation, Witness};
use std::collections::BTreeMap;
use steplet_core::Core;
use steplet_core::chain::{self, Chain};
use steplet_core::effect::{Effect, HelperOp};
use steplet_core::event::{Boot, Event, Item, Outcome, RpcError, Signal};
use steplet_core::ids::Token;
use steplet_core::time::Span;

pub struct World {
    pub(crate) setup: Setup,
    pub(crate) clock: Clock,
    pub(crate) dice: Dice,
    pub(crate) agenda: Agenda<Due>,
    pub(crate) agent: Option<Agent>,
    pub(crate) runtime: Runtime,
    pub(crate) disk: Disk,
    pub(crate) kernel: Kernel,
    pub api: ApiServer,
    pub weather: Weather,
    /// The share of helper operations that hang, in percent, and for how long.
    pub helper_hangs: (u64, Span),
    /// Until when a helper is at work on a path: jobs on the same one wait.
    pub(crate) helpers: BTreeMap<String, At>,
    /// How often each fault of the weather struck a call.
    pub struck: BTreeMap<&'static str, u64>,
    pub(crate) ledger: Ledger,
    witnesses: Vec<Box<dyn Witness>>,
    pub violations: Vec<Violation>,
    pub chain: Chain,
    pub steps: u64,
    pub(crate) callers: u64,
    /// The clients of its ports.
    pub listen: Listen,
    /// The agent is late by so much when it is woken by its timer.
    late: Span,
    /// When this life of the agent began.
    started_at: At,
    /// Events at the same instant, one after the other.
    spinning: u32,
}

/// One life of the agent.
pub(crate) struct Agent {
    pub core: Core,
    pub open: BTreeMap<Token, Caller>,
    pub callers: BTreeMap<Caller, Token>,
    pub rpc: RpcDoor,
    /// The open watch of the manifest directory.
    pub watch: Option<Caller>,
    /// Calls that the weather keeps from being answered.
    pub hung: Vec<Caller>,
}

/// What is going to happen.
pub(crate) enum Due {
    Runtime(Wake),
    Api(api::Wake),
    Helper { caller: Caller, op: Box<HelperOp> },
    Answer { caller: Caller, outcome: Outcome },
    Deadline(Caller),
    Item { caller: Caller, item: Item },
    PathChanged,
    Start,
}

/// More events than this at one instant mean that the agent runs in circles.
const SPIN_MAX: u32 = 10_000;

impl World {
    /// A machine that was just set up; the agent is not running yet.
    pub fn new(setup: Setup) -> World {
        let dice = Dice::new(setup.seed);
        let runtime = Runtime::new(setup.flavour, setup.runtime_driver, dice.child(1));
        let mut world = World {
            clock: Clock::new(setup.wall),
            dice: dice.child(2),
            agenda: Agenda::default(),
            agent: None,
            runtime,
            disk: Disk::default(),
            kernel: Kernel::default(),
            api: ApiServer::new(&setup.settings.node_name, setup.swift, dice.child(3)),
            weather: Weather::default(),
            helper_hangs: (0, Span::ZERO),
            helpers: BTreeMap::new(),
            struck: BTreeMap::new(),
            ledger: Ledger::default(),
            witnesses: Vec::new(),
            violations: Vec::new(),
            chain: Chain::default(),
            steps: 0,
            callers: 0,
            listen: Listen::default(),
            late: Span::ZERO,
            started_at: At(0),
            spinning: 0,
            setup,
        };
        if world.setup.swift {
            world.runtime.set_pace(crate::doors::runtime::Pace(0));
            world.runtime.carries_on = Some(true);
        }
        world
    }

    pub fn watch_by(&mut self, witness: Box<dyn Witness>) {
        self.witnesses.push(witness);
    }

    /// The running core, if there is one.
    pub fn core(&self) -> Option<&Core> {
        self.agent.as_ref().map(|agent| &agent.core)
    }

    pub fn at(&self) -> At {
        self.clock.at()
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// When something will happen next.
    pub fn next_at(&self) -> Option<At> {
        let tick = self.tick_at();
        match (tick, self.agenda.next_at()) {
            (Some(tick), Some(due)) => Some(tick.min(due)),
            (tick, due) => tick.or(due),
        }
    }

    fn tick_at(&self) -> Option<At> {
        let deadline = self.agent.as_ref()?.core.deadline()?;
        Some((self.clock.when(deadline) + self.late).max(self.clock.at()))
    }

    /// Lets time pass until `end`.
    pub fn run_until(&mut self, end: At) {
        while self.run_one(end) {}
        self.clock.advance(end);
    }

    /// Lets the next thing happen, if it does until `end`.
    pub fn run_one(&mut self, end: At) -> bool {
        let due = self.agenda.next_at();
        let tick = self.tick_at().filter(|tick| due.is_none_or(|due| *tick <= due));
        let Some(next) = tick.or(due).filter(|next| *next <= end) else { return false };
        self.guard_spin(next);
        self.clock.advance(next);
        if tick.is_some() {
            self.late = if self.setup.swift { Span::ZERO } else { Span(self.dice.below(300_000)) };
            self.step(Event::Tick);
        } else if let Some((_, due)) = self.agenda.pop() {
            self.happen(due);
        }
        true
    }

    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.clock.at() + span);
    }

    fn guard_spin(&mut self, next: At) {
        self.spinning = if next == self.clock.at() { self.spinning + 1 } else { 0 };
        assert!(self.spinning < SPIN_MAX, "the agent runs in circles at {next:?}");
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Api(wake) => self.wake_api(wake),
            Due::Runtime(wake) => {
                let mut out = Out::default();
                self.runtime.wake(self.clock.wall(), wake, &mut out);
                self.take(out);
            }
            // The helper remembers what it fetched for the agent that asked, not for the next one.
            Due::Helper { caller, op }
                if !self.is_open(caller)
                    && matches!(*op, HelperOp::FetchManifest { .. } | HelperOp::Keep { .. }) => {}
            Due::Helper { caller, op } => {
                let now = self.clock.wall();
                let outcome = helper::run(&op, &mut self.disk, &mut self.kernel, now);
                let refused = matches!(outcome, Outcome::Helper(Err(_)));
                if refused && matches!(*op, HelperOp::FetchManifest { .. }) {
                    *self.struck.entry("manifest URL refuses").or_default() += 1;
                }
                if matches!(*op, HelperOp::StorePair { .. }) {
                    self.show_way();
                }
                self.answer(caller, outcome);
            }
            Due::Answer { caller, outcome } => self.answer(caller, outcome),
            Due::Deadline(caller) => {
                if self.is_open(caller) {
                    self.runtime.left(caller);
                    let error = RpcError {
                        code: RpcError::DEADLINE_EXCEEDED,
                        message: "context deadline exceeded".into(),
                    };
                    self.answer(caller, Outcome::Rpc(Err(error)));
                }
            }
            Due::Item { caller, item } => self.item(caller, item),
            Due::PathChanged => {
                if let Some(caller) = self.agent.as_ref().and_then(|agent| agent.watch) {
                    self.item(caller, Item::PathChanged);
                }
            }
            Due::Start => self.start_agent(),
        }
    }

    fn is_open(&self, caller: Caller) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.callers.contains_key(&caller))
    }

    fn item(&mut self, caller: Caller, item: Item) {
        let token = self.agent.as_ref().and_then(|agent| agent.callers.get(&caller)).copied();
        if let Some(token) = token {
            self.step(Event::Item { token, item });
        }
    }

    /// Delivers an answer, unless the caller has left.
    pub(crate) fn answer(&mut self, caller: Caller, outcome: Outcome) {
        let Some(agent) = &mut self.agent else { return };
        let Some(token) = agent.callers.remove(&caller) else { return };
        agent.open.remove(&token);
        agent.rpc.left(caller);
        if agent.watch == Some(caller) {
            agent.watch = None;
        }
        self.api.left(caller);
        self.step(Event::Done { token, outcome });
    }

    pub(crate) fn show(&mut self, seen: &Seen<'_>) {
        let moment = Moment { at: self.clock.at(), now: self.clock.now() };
        self.ledger.note(moment, seen);
        for witness in &mut self.witnesses {
            witness.see(&self.ledger, moment, seen, &mut self.violations);
        }
        if let Seen::Effects(effects) = seen {
            for (effect, ask) in *effects {
                self.ledger.note_effect(moment.at, effect, ask.as_ref());
            }
        }
    }

    /// One step of the core, and what it asked for.
    pub(crate) fn step(&mut self, event: Event) {
        self.show(&Seen::Event(&event));
        let Some(agent) = &mut self.agent else { return };
        let now = self.clock.now();
        let event_bytes = chain::encode_event(&event);
        self.steps += 1;
        let sampled =
            self.setup.snapshot_every != 0 && self.steps.is_multiple_of(self.setup.snapshot_every);
        let fork = sampled.then(|| (fork(&agent.core), event.clone()));
        let effects = agent.core.step(now, event);
        agent.core.check();
        let diverged = fork.and_then(|(mut twin, event)| {
            let twin_effects = twin.step(now, event);
            (twin_effects != effects || twin != agent.core).then_some(())
        });
        self.chain.absorb(now, &event_bytes, &chain::encode_effects(&effects));
        if diverged.is_some() {
            let promise = "a core restored from its snapshot steps like the core itself";
            self.violate(promise, format!("step {}", self.steps));
        }
        let effects: Vec<(Effect, Option<Ask>)> = (effects.into_iter())
            .map(|effect| {
                let ask = match &effect {
                    Effect::Call { call, .. } => Ask::from_call(call),
                    _ => None,
                };
                (effect, ask)
            })
            .collect();
        self.show(&Seen::Effects(&effects));
        for (effect, _) in effects {
            self.carry_out(effect);
        }
    }

    /// A new process of the agent.
    pub fn start_agent(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.agent = Some(Agent {
            core: Core::new(),
            open: BTreeMap::new(),
            callers: BTreeMap::new(),
            rpc: RpcDoor::default(),
            watch: None,
            hung: Vec::new(),
        });
        self.started_at = self.clock.at();
        self.show(&Seen::Started);
        self.show_way();
        // A scene keeps its times when the world draws more or fewer numbers than it did.
        let seed = if self.setup.swift { self.setup.seed } else { self.dice.draw() };
        let restores = self.setup.settings.api.as_ref().is_some_and(|api| api.offline);
        let boot = Boot {
            seed,
            settings: self.setup.settings.clone(),
            machine: self.setup.machine.clone(),
            set_aside: Vec::new(),
            kept: if restores { self.api.reads(&self.disk.offline) } else { Vec::new() },
        };
        self.step(Event::Boot(Box::new(boot)));
    }

    /// Whether the agent started less than ten seconds ago.
    pub fn restarted_lately(&self) -> bool {
        self.clock.at().since(self.started_at) < Span::from_secs(10)
    }

    /// A promise of the world itself was broken.
    pub fn violate(&mut self, promise: &'static str, what: String) {
        self.violations.push(Violation { at: self.clock.at(), promise, what });
    }

    /// The agent's process is gone; its calls are forgotten, and the runtime sees their callers leave.
    pub(crate) fn end_agent(&mut self, status: Option<i32>) {
        let Some(agent) = self.agent.take() else { return };
        for caller in agent.callers.into_keys() {
            self.runtime.left(caller);
            self.api.left(caller);
        }
        self.disk.manifests.forget();
        self.tear_keeping();
        self.api.forget();
        self.drop_connections();
        self.show(&Seen::Ended(status));
    }

    /// The helper that was at work on the offline store has died with the agent, or with the machine.
    fn tear_keeping(&mut self) {
        if let Some(change) = &self.disk.offline.under_way {
            let files = self.dice.below(change.files() as u64 + 1);
            self.disk.offline.finish(files as usize);
            *self.struck.entry("offline store torn").or_default() += 1;
        }
    }

    pub fn signal(&mut self, signal: Signal) {
        if self.agent.is_some() {
            self.step(Event::Signal(signal));
        }
    }
}

/// The core as its snapshot gives it back.
fn fork(core: &Core) -> Core {
    Core::restore(&core.snapshot()).expect("a core reads its own snapshot")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::runtime::Flavour;
    use steplet_core::event::Listener;

    #[test]
    fn a_request_is_answered_and_time_passes_without_one() {
        let mut world = World::new(Setup { flavour: Flavour::New, ..Setup::new(1) });
        assert!(world.request(Listener::Healthz, "/healthz").is_none(), "nobody is there");
        world.start_agent();
        world.run_for(Span::from_secs(10));
        let id = world.request(Listener::Healthz, "/healthz").expect("the agent runs");
        world.run_for(Span::from_secs(1));
        assert_eq!(world.listen.replies.get(&id).map(|reply| reply.status), Some(200));
        assert_eq!(world.at(), At(0) + Span::from_secs(11));
    }

    #[test]
    fn equal_seeds_make_equal_chains() {
        let run = |seed| {
            let mut world = World::new(Setup::new(seed));
            world.start_agent();
            for life in 0..3 {
                world.put_manifest("web.json", format!(r#"{{"life":{life}}}"#));
                world.run_for(Span::from_secs(60));
                world.kill_agent();
                world.start_agent_after(Span::from_secs(1));
            }
            world.run_for(Span::from_secs(60));
            (world.chain, world.steps)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1).0, run(2).0);
    }
}
