//! The loop: wait, read the doors, step the core, carry out what it wants. The only `mio::Poll`.

use super::boot::Watchdog;
use super::clock::{self, Clock};
use super::crash;
use super::doors::{Doors, Job, Outside};
use super::tape::{Recorder, Taped, call_name};
use super::turns::Turns;
use super::vault::Vault;
use super::{figures, memory};
use mio::{Events, Poll};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};
use steplet_core::Core;
use steplet_core::effect::{Call, Effect, KernelOp};
use steplet_core::event::{Boot, Event, Item, KernelReply, Outcome, Signal};
use steplet_core::time::{Mono, Now, Span};

/// Descriptors looked at in one turn; the rest is ready in the next one.
const READY_PER_TURN: usize = 128;
/// How long a turn goes on to the next effect or event, so that none takes much longer than its
/// longest one.
const WORK_PER_TURN: Duration = Duration::from_millis(4);
/// A turn that took longer is told to people.
const LONG_TURN: Duration = Duration::from_millis(10);

/// Start-up is over by then; no wake-up is made for it.
const FIRST_TRIM: Span = Span::from_secs(15);

/// Sees the core after each turn that changed it: the live table of `steplet run`.
pub type Watcher = Box<dyn FnMut(&Core, Now)>;

pub struct Reactor {
    poll: Poll,
    ready: Events,
    clock: Clock,
    taped: Taped,
    doors: Doors,
    /// What the last step wants and is not yet carried out. There is no step before it is.
    effects: VecDeque<Effect>,
    turns: Turns,
    watcher: Option<Watcher>,
    watchdog: Option<Watchdog>,
    /// When to ask the core to end as if by Ctrl-C.
    stop_at: Option<Mono>,
    /// When to give back what is mapped and not needed, if nothing goes on then.
    trim_at: Option<Mono>,
    exit: Option<i32>,
    slowest: Slowest,
}

/// What took longest in a turn.
#[derive(Default)]
struct Slowest {
    took: Duration,
    what: Cow<'static, str>,
}

impl Reactor {
    /// A reactor with a core that has seen nothing. Errors: the process has no descriptors left.
    pub fn new(outside: Outside, vault: Vault) -> io::Result<Reactor> {
        let poll = Poll::new()?;
        let doors = Doors::new(poll.registry(), outside, vault)?;
        Ok(Reactor {
            poll,
            ready: Events::with_capacity(READY_PER_TURN),
            clock: Clock::new(),
            taped: Taped::new(Core::new(), None),
            doors,
            effects: VecDeque::new(),
            turns: Turns::new(),
            watcher: None,
            watchdog: None,
            stop_at: None,
            trim_at: Some(Mono(clock::mono().0.saturating_add(FIRST_TRIM.0))),
            exit: None,
            slowest: Slowest::default(),
        })
    }

    /// Records the run in `dir`, within `max_bytes`. Before the first turn.
    pub fn record(&mut self, dir: &Path, max_bytes: u64, seed: u64) {
        let now = self.clock.now();
        let recorder = Recorder::open(dir, max_bytes, seed, now, self.taped.core());
        self.taped.recorder = Some(recorder);
    }

    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    /// Gives the service manager the signs of life that it wants.
    pub fn feed(&mut self, watchdog: Watchdog) {
        self.watchdog = Some(watchdog);
    }

    /// Ends the run after a while, as if by Ctrl-C.
    pub fn stop_after(&mut self, span: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.stop_at = Some(Mono(clock::mono().0.saturating_add(span)));
    }

    pub fn core(&self) -> &Core {
        self.taped.core()
    }

    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Runs from the first step until the core wants to leave. Returns the exit status.
    ///
    /// Errors: waiting itself failed, which nothing can be done about.
    pub fn run(&mut self) -> io::Result<i32> {
        while self.exit.is_none() || !self.effects.is_empty() {
            self.turn()?;
        }
        Ok(self.stop())
    }

    /// The first step. The ports are open after it.
    pub fn start(&mut self, boot: Boot) {
        self.step(Event::Boot(Box::new(boot)));
        while self.carry_out_next() {}
        let now = clock::mono();
        self.doors.tend(now);
        self.doors.flush(now);
    }

    /// The status that the core wants to leave with.
    pub fn exit(&self) -> Option<i32> {
        self.exit
    }

    /// Brings the tape to its end.
    pub fn stop(&mut self) -> i32 {
        if let Some(recorder) = &mut self.taped.recorder {
            recorder.flush(self.clock.now());
        }
        log::info!("The loop is over after {} steps: {}", self.taped.steps(), self.turns);
        self.exit.unwrap_or_default()
    }

    /// Waits for something to happen, and sees to all that did.
    pub fn turn(&mut self) -> io::Result<()> {
        let timeout = self.timeout();
        match self.poll.poll(&mut self.ready, timeout) {
            Err(error) if error.kind() == ErrorKind::Interrupted => self.ready.clear(),
            other => other?,
        }
        let started = Instant::now();
        let cpu = clock::cpu();
        self.slowest = Slowest::default();
        self.clock.look();
        let now = clock::mono();
        for event in &self.ready {
            self.doors.ready(event, now);
        }
        self.doors.tend(now);
        if let Some(watchdog) = &mut self.watchdog {
            let facts = self.taped.core().facts();
            watchdog.tend(now, || facts.sync_loop_problem(now));
        }
        self.trim(now);
        if self.stop_at.is_some_and(|at| at <= now) {
            self.stop_at = None;
            self.doors.push(Event::Signal(Signal::Interrupt));
        }
        self.note(started, || "reading the doors".into());
        let steps = self.work(started);
        self.finish(steps);
        self.end_turn(started.elapsed(), cpu, steps);
        Ok(())
    }

    /// Gives back the program's pages when it has become quiet: the last helper process has ended.
    fn trim(&mut self, now: Mono) {
        if self.doors.helping() {
            self.trim_at = Some(self.trim_at.map_or(now, |at| at.max(now)));
        } else if self.trim_at.is_some_and(|at| at <= now) {
            memory::forget_program();
            self.trim_at = None;
        }
    }

    /// What a turn ends with: full buffers, the tape, and whoever looks on.
    fn finish(&mut self, steps: usize) {
        let (started, now) = (Instant::now(), clock::mono());
        self.doors.flush(now);
        self.note(started, || "writing out".into());
        for job in self.taped.recorder.as_mut().map(Recorder::jobs).unwrap_or_default() {
            let started = Instant::now();
            self.doors.help(Job::Tape(job), now);
            self.note(started, || "starting a helper".into());
        }
        if steps > 0
            && let Some(watcher) = &mut self.watcher
        {
            let started = Instant::now();
            watcher(self.taped.core(), self.clock.now());
            self.note(started, || "showing the table".into());
        }
    }

    /// Carries out what is left of the last step, steps through what has come, and then through the
    /// time that has passed. A step for many pods wants many effects: they may take several turns.
    fn work(&mut self, started: Instant) -> usize {
        let mut steps = 0;
        // One thing at least: doors that always have work must not keep the core from its own.
        while self.carry_out_next() || self.step_next(&mut steps) {
            if started.elapsed() >= WORK_PER_TURN {
                break;
            }
        }
        let due = self.taped.core().deadline().is_some_and(|at| at <= self.clock.now().mono);
        if due && self.effects.is_empty() && self.exit.is_none() {
            self.step(Event::Tick);
            steps += 1;
            while started.elapsed() < WORK_PER_TURN && self.carry_out_next() {}
        }
        steps
    }

    fn step_next(&mut self, steps: &mut usize) -> bool {
        if self.exit.is_some() {
            return false;
        }
        let Some(event) = self.doors.take() else { return false };
        self.step(event);
        *steps += 1;
        true
    }

    fn step(&mut self, event: Event) {
        let started = Instant::now();
        let now = self.clock.now();
        let name = name_of(&event);
        let suspect = crash::manifest_of(&event).map(|m| (m.name.clone(), m.digest));
        let taped = &mut self.taped;
        let effects = match suspect {
            Some((name, digest)) => {
                crash::suspect_from(now.mono, &name, digest, || taped.step(now, event))
            }
            None => taped.step(now, event),
        };
        self.effects.extend(effects);
        self.note(started, || format!("the step for {name}").into());
    }

    /// False if there is none.
    fn carry_out_next(&mut self) -> bool {
        match self.effects.pop_front() {
            None => return false,
            Some(Effect::Exit(status)) => self.exit = Some(status),
            Some(Effect::Call { token, call: Call::Kernel(KernelOp::Figures) }) => {
                let text = KernelReply::Text(self.figures().into());
                self.doors.answer(token, Outcome::Kernel(Ok(text)));
            }
            Some(effect) => {
                let started = Instant::now();
                let name = effect_name(&effect);
                self.doors.carry_out(effect, clock::mono());
                self.note(started, || name);
            }
        }
        true
    }

    /// What `/metrics` says of the process, the loop and the tape.
    fn figures(&self) -> String {
        let mut text = figures::process();
        text.push_str(&self.turns.metrics());
        if let Some(recorder) = &self.taped.recorder {
            text.push_str(&recorder.metrics());
        }
        text
    }

    /// How long to wait: until the core or a door wants something, rounded up to a millisecond by
    /// the system.
    fn timeout(&self) -> Option<Duration> {
        if self.doors.busy() || !self.effects.is_empty() {
            return Some(Duration::ZERO);
        }
        let watchdog = self.watchdog.map(|watchdog| watchdog.next());
        let wanted = [self.taped.core().deadline(), self.doors.deadline(), self.stop_at, watchdog];
        let next = wanted.into_iter().flatten().min()?;
        Some(Duration::from_nanos(next.since(clock::mono()).0))
    }

    fn note(&mut self, started: Instant, what: impl FnOnce() -> Cow<'static, str>) {
        let took = started.elapsed();
        if took > self.slowest.took {
            self.slowest = Slowest { took, what: what() };
        }
    }

    fn end_turn(&mut self, took: Duration, cpu: Duration, steps: usize) {
        self.turns.add(took);
        if took > LONG_TURN {
            let worked = clock::cpu().saturating_sub(cpu).as_millis();
            let (ms, part) = (took.as_millis(), self.slowest.took.as_millis());
            let what = &self.slowest.what;
            log::warn!(
                "A turn of the loop took {ms} ms ({worked} ms of CPU) for {steps} steps; \
                 {part} ms of it: {what}"
            );
        }
    }
}

fn effect_name(effect: &Effect) -> Cow<'static, str> {
    match effect {
        Effect::Call { call, .. } => call_name(call),
        Effect::Cancel(_) => "Cancel".into(),
        Effect::Reply { .. } => "Reply".into(),
        Effect::SendLog { .. } => "SendLog".into(),
        Effect::EndLog { .. } => "EndLog".into(),
        Effect::Stream { .. } => "Stream".into(),
        Effect::SendFile { .. } => "SendFile".into(),
        Effect::Exit(_) => "Exit".into(),
    }
}

fn name_of(event: &Event) -> &'static str {
    match event {
        Event::Boot(_) => "Boot",
        Event::Tick => "Tick",
        Event::Done { outcome, .. } => match outcome {
            Outcome::Same => "an unchanged answer",
            Outcome::Rpc(_) => "an answer of the runtime",
            Outcome::Disk(_) => "an answer of the disk",
            Outcome::Kernel(_) => "an answer of the kernel",
            Outcome::Helper(_) => "an answer of a helper",
            Outcome::Api(_) => "an answer of the API server",
        },
        Event::Item { item: Item::Manifest(_), .. } => "a manifest",
        Event::Item { item: Item::PathChanged, .. } => "a changed path",
        Event::Item { item: Item::Line(_), .. } => "a line of a watch",
        Event::Request(_) => "a request",
        Event::Gone { .. } => "a client that left",
        Event::Signal(_) => "a signal",
    }
}
