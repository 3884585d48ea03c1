//! Replay: the events of a tape go through the core once more, and every step is held against the recorded one.

use super::BUILD;
use super::frame::Bad;
use super::reader::{Follows, Place, Rest, Segment, Step, StepEnded, Tape, TapedEffect};
use super::taped::core_digest;
use super::words::Calls;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use steplet_core::Core;
use steplet_core::chain::{Chain, encode_effects};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::time::{Mono, Span};

/// The first step that came out otherwise.
#[derive(Debug)]
pub struct Difference {
    pub step: u64,
    pub since_start: Span,
    /// The encoded event, and the name of the call that it is about.
    pub event: Vec<u8>,
    pub call: Cow<'static, str>,
    pub kind: DifferenceKind,
}

#[derive(Debug)]
pub enum DifferenceKind {
    /// The effects on the tape, and those that the core has now.
    Effects { taped: Vec<TapedEffect>, now: Vec<Effect> },
    /// The effects are the same, and the event or its time is not the one that the chain has taken in.
    Input,
    /// Events and effects are the same, and the core is in another state.
    State,
    /// The next segment begins with another state than this one ends with.
    Snapshot,
}

/// Why nothing, or nothing more, can be replayed.
#[derive(Debug)]
pub enum Unreadable {
    File {
        path: PathBuf,
        bad: Bad,
    },
    /// The tape is exact for another build.
    OtherBuild {
        path: PathBuf,
        build: String,
    },
    /// The snapshot or an event is not one of this build.
    Foreign {
        path: PathBuf,
        what: &'static str,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::File { path, bad } => write!(f, "{}: {bad}", path.display()),
            Unreadable::OtherBuild { path, build } => {
                let path = path.display();
                write!(f, "{path}: recorded by build {build}, this is {BUILD} (see --any-build)")
            }
            Unreadable::Foreign { path, what } => {
                write!(f, "{}: {what} does not fit this build", path.display())
            }
        }
    }
}

/// What happened along the way and is worth a line.
#[derive(Debug)]
pub enum Notice {
    /// The end of a segment could not be read.
    Rest(Rest),
    /// Steps of a run are missing before this segment.
    Missing { path: PathBuf, steps: u64, segments: u32 },
    /// A segment that was left out.
    Skipped(Unreadable),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Rest(rest) => rest.fmt(f),
            Notice::Missing { path, steps, segments } => {
                let path = path.display();
                write!(f, "{path}: {steps} steps before it are missing ({segments} segments)")
            }
            Notice::Skipped(why) => write!(f, "{why}: left out"),
        }
    }
}

/// How far a replay has come.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    pub steps: u64,
    /// Time that passed between the steps of each stretch that was replayed.
    pub simulated: Span,
    pub chain: Chain,
    /// Something could not be read, beyond the cut end of a run.
    pub damaged: bool,
}

/// Replays a tape.
pub struct Replay<'a> {
    /// Also replay what another build recorded: what its actions would be now.
    pub any_build: bool,
    /// Called before each step, with what was done so far.
    pub on_step: &'a mut dyn FnMut(&Replayed, &Step),
    pub on_notice: &'a mut dyn FnMut(Notice),
}

/// A core on its way through the steps.
struct Run {
    core: Core,
    chain: Chain,
    place: Place,
    calls: Calls,
    began: Mono,
    last: Option<Last>,
}

/// The step that was done last.
struct Last {
    step: Step,
    call: Cow<'static, str>,
}

impl Replay<'_> {
    /// The first difference, if there is one.
    ///
    /// # Errors
    /// When not a single segment can be replayed. In a directory, those that cannot are left out.
    pub fn run(
        &mut self,
        tape: &Tape,
        done: &mut Replayed,
    ) -> Result<Option<Difference>, Unreadable> {
        let mut run: Option<Box<Run>> = None;
        let mut left_out = Vec::new();
        for path in &tape.files {
            let segment = match self.open(path) {
                Ok(segment) => segment,
                Err(why) => {
                    done.damaged |= matches!(why, Unreadable::File { .. });
                    left_out.push(why);
                    continue;
                }
            };
            let begun = match self.begin(&segment, run.take(), done) {
                Ok(Begun::Run(begun)) => begun,
                Ok(Begun::Differs(difference)) => return Ok(Some(*difference)),
                Err(why) => {
                    left_out.push(why);
                    continue;
                }
            };
            for why in left_out.drain(..) {
                (self.on_notice)(Notice::Skipped(why));
            }
            let (ended, difference) = self.segment(segment, begun, done)?;
            if difference.is_some() {
                return Ok(difference);
            }
            run = Some(ended);
        }
        if run.is_none()
            && let Some(why) = left_out.pop()
        {
            return Err(why);
        }
        for why in left_out {
            (self.on_notice)(Notice::Skipped(why));
        }
        Ok(None)
    }

    fn open(&self, path: &Path) -> Result<Segment, Unreadable> {
        let segment =
            Segment::open(path).map_err(|bad| Unreadable::File { path: path.into(), bad })?;
        if segment.header.build != BUILD && !self.any_build {
            let build = segment.header.build.clone();
            return Err(Unreadable::OtherBuild { path: path.into(), build });
        }
        Ok(segment)
    }

    /// Goes on with the core of the segment before when this one follows it, else from the snapshot.
    fn begin(
        &mut self,
        segment: &Segment,
        before: Option<Box<Run>>,
        done: &mut Replayed,
    ) -> Result<Begun, Unreadable> {
        let path = || segment.path.clone();
        if let Some(run) = before {
            match run.place.followed_by(&segment.header) {
                Follows::Directly if self.any_build => return Ok(Begun::Run(run)),
                Follows::Directly => return Ok(meet(run, segment)),
                Follows::After { missing_steps, missing_segments } => {
                    done.damaged = true;
                    let (steps, segments) = (missing_steps, missing_segments);
                    (self.on_notice)(Notice::Missing { path: path(), steps, segments });
                }
                Follows::NewRun => {}
            }
        }
        let core = Core::restore(&segment.snapshot)
            .map_err(|_| Unreadable::Foreign { path: path(), what: "the snapshot" })?;
        let chain = segment.chain().map_err(|bad| Unreadable::File { path: path(), bad })?;
        Ok(Begun::Run(Box::new(Run {
            core,
            chain,
            place: Place::after(segment),
            calls: Calls::before(&segment.header),
            began: Mono(segment.header.began_ns),
            last: None,
        })))
    }

    fn segment(
        &mut self,
        mut segment: Segment,
        mut run: Box<Run>,
        done: &mut Replayed,
    ) -> Result<(Box<Run>, Option<Difference>), Unreadable> {
        while let Some(step) = segment.next_step() {
            (self.on_step)(done, &step);
            let before = run.last.as_ref().map(|last| last.step.now.mono);
            let passed = before.map_or(Span::ZERO, |before| step.now.mono.since(before));
            let different = run.step(step, self.any_build).ok_or_else(|| Unreadable::Foreign {
                path: segment.path.clone(),
                what: "an event",
            })?;
            done.steps += 1;
            done.simulated = done.simulated + passed;
            done.chain = run.chain.clone();
            if let Some(kind) = different {
                let difference = run.differs(kind);
                return Ok((run, difference));
            }
        }
        run.place = Place::after(&segment);
        if let Some(rest) = segment.rest() {
            done.damaged |= !rest.cut_short();
            (self.on_notice)(Notice::Rest(rest));
        }
        Ok((run, None))
    }
}

impl Run {
    /// One step, and how it differs from the recorded one; None when the event is of another build.
    fn step(&mut self, step: Step, any_build: bool) -> Option<Option<DifferenceKind>> {
        let event: Event = postcard::from_bytes(&step.event).ok()?;
        let call = self.calls.of(&event);
        self.calls.answered(&event);
        let effects = self.core.step(step.now, event);
        self.calls.asked(&effects);
        let bytes = encode_effects(&effects);
        self.chain.absorb(step.now, &step.event, &bytes);
        let different =
            step.ended.as_ref().and_then(|taped| self.compare(taped, &bytes, effects, any_build));
        self.last = Some(Last { step, call });
        Some(different)
    }

    fn compare(
        &self,
        taped: &StepEnded,
        bytes: &[u8],
        effects: Vec<Effect>,
        any_build: bool,
    ) -> Option<DifferenceKind> {
        if taped.encoded() != bytes {
            let taped = taped.effects.clone();
            return Some(DifferenceKind::Effects { taped, now: effects });
        }
        if any_build {
            return None;
        }
        if taped.chain != self.chain.short() {
            return Some(DifferenceKind::Input);
        }
        let check = taped.check.as_ref()?;
        if check.chain != self.chain.0 {
            return Some(DifferenceKind::Input);
        }
        let same = check.core == core_digest(&self.core);
        (!same).then_some(DifferenceKind::State)
    }

    /// The difference that the last step has made.
    fn differs(&self, kind: DifferenceKind) -> Option<Difference> {
        let Last { step, call } = self.last.as_ref()?;
        Some(Difference {
            step: step.number,
            since_start: step.now.mono.since(self.began),
            event: step.event.clone(),
            call: call.clone(),
            kind,
        })
    }
}

enum Begun {
    Run(Box<Run>),
    Differs(Box<Difference>),
}

/// A segment that follows directly must begin with the very state that the one before ended with.
fn meet(run: Box<Run>, segment: &Segment) -> Begun {
    let same = segment.snapshot == run.core.snapshot() && segment.header.chain == run.chain.0;
    let different = if same { None } else { run.differs(DifferenceKind::Snapshot) };
    different.map_or(Begun::Run(run), |difference| Begun::Differs(Box::new(difference)))
}
