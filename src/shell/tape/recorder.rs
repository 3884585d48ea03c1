//! The recorder: writes each event down before the core sees it, and what came of it after.
//!
//! It never stops the node. When the disk is full or broken it says so once, and tries a new segment every
//! minute; a process that dies loses at most the frame being written.

use super::frame::{plain_head, put_frame};
use super::part::{Alphabet, Base, Encoder, done_token, stamp};
use super::proto::{Check, Frame, Header, OpenCall};
use super::ring::{Ring, TapeJob};
use super::taped::core_digest;
use super::{BUILD, CHECK_STEPS, call_name};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use steplet_core::Core;
use steplet_core::chain::Chain;
use steplet_core::effect::Effect;
use steplet_core::ids::Token;
use steplet_core::time::{Mono, Now, Span};

/// How often what was written is brought to the disk: what a power cut may lose.
const SYNC_EVERY: Span = Span::from_secs(5);
/// And how often while nothing new happens: what an idle node would lose says nothing, and each sync costs
/// writes on a flash disk and keeps a helper process alive.
const SYNC_IDLE_EVERY: Span = Span::from_secs(60);
/// After an error, the next try.
const RETRY_AFTER: Span = Span::from_secs(60);
/// The longest turn of the loop that may go unmentioned.
const SNAPSHOT_MILLIS_MAX: u128 = 10;

/// A large answer must not take memory for good.
const BUFFER_BYTES_KEPT: usize = 4 << 10;

pub struct Recorder {
    ring: Ring,
    /// What every header says.
    header: Header,
    state: State,
    encoder: Encoder,
    /// Number of the next step.
    step: u64,
    open: BTreeMap<Token, Cow<'static, str>>,
    /// What the last step did, until it goes out with the next input.
    pending: Option<Frame>,
    buffer: Vec<u8>,
    /// Steps that are on no tape.
    lost: u64,
    synced: Mono,
    /// Bodies that were new on the tape when it was synced.
    synced_bodies: u64,
    spent: Duration,
}

enum State {
    /// `bytes` are in the file, all of them whole frames; `until` is where the segment ends.
    Writing { file: File, path: PathBuf, bytes: u64, until: u64 },
    /// Something failed at `since`; the message is out.
    Stopped { since: Mono },
}

impl Recorder {
    /// Begins a run with a core that has seen nothing yet. `max_bytes` bounds all that lies in `dir`. Does not
    /// fail: what goes wrong is logged, and tried again.
    pub fn open(dir: &Path, max_bytes: u64, seed: u64, now: Now, core: &Core) -> Recorder {
        let header = Header {
            build: BUILD.into(),
            seed,
            run: now.wall.0 as u64,
            began_ns: now.mono.0,
            ..Header::default()
        };
        let mut recorder = Recorder {
            ring: Ring::open(dir, max_bytes),
            header,
            state: State::Stopped { since: now.mono },
            encoder: Encoder::new(Base::at(now)),
            step: 0,
            open: BTreeMap::new(),
            pending: None,
            buffer: Vec::new(),
            lost: 0,
            synced: now.mono,
            synced_bodies: 0,
            spent: Duration::ZERO,
        };
        if let Err(error) = recorder.begin(&Chain::default(), core) {
            recorder.stop(now, &error);
        }
        recorder
    }

    /// Writes down an event before its step. `event` is its postcard encoding.
    pub fn input(&mut self, now: Now, event: &[u8]) {
        let started = Instant::now();
        if let Some(token) = done_token(event) {
            self.open.remove(&token);
        }
        let mut frame = self.pending.take().unwrap_or_default();
        self.encoder.base.put_instant(&mut frame, now);
        frame.event = Some(self.encoder.part(Alphabet::Event, event));
        self.step += 1;
        if let Err(error) = self.write(&frame) {
            self.stop(now, &error);
        }
        if !self.recording() {
            self.lost += 1;
        }
        self.spent += started.elapsed();
    }

    /// Takes what the step did; it goes out with the next input. A segment ends here when it is full.
    pub fn effects(&mut self, now: Now, effects: &[Effect], chain: &Chain, core: &Core) {
        let started = Instant::now();
        let mut frame = Frame { stamp: stamp(chain.short()), ..Frame::default() };
        for effect in effects {
            match effect {
                Effect::Call { token, call } => {
                    self.open.insert(*token, call_name(call));
                }
                Effect::Cancel(token) => {
                    self.open.remove(token);
                }
                _ => {}
            }
            let bytes = postcard::to_allocvec(effect).expect("an effect always encodes");
            frame.effects.push(self.encoder.part(Alphabet::Effect, &bytes));
        }
        if self.step.is_multiple_of(CHECK_STEPS) {
            frame.check = Some(Check { chain: chain.0.to_vec(), core: core_digest(core).to_vec() });
        }
        self.pending = Some(frame);
        self.tend(now, chain, core);
        self.spent += started.elapsed();
    }

    /// What a helper process should do; forgotten once asked for.
    pub fn jobs(&mut self) -> Vec<TapeJob> {
        self.ring.jobs()
    }

    /// Whether this very moment is going onto a tape.
    pub fn recording(&self) -> bool {
        matches!(self.state, State::Writing { .. })
    }

    /// How many steps of this run are on no tape.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What `/metrics` says of the tape.
    pub fn metrics(&self) -> String {
        let recording = u8::from(self.recording()).to_string();
        let lost = self.lost.to_string();
        let spent = self.spent.as_secs_f64().to_string();
        let mut text = String::new();
        for (name, kind, value, help) in [
            ("steplet_tape_recording", "gauge", recording, "Whether the run is being recorded."),
            ("steplet_tape_lost_steps_total", "counter", lost, "Steps that are on no tape."),
            ("steplet_recorder_seconds_total", "counter", spent, "Time spent on recording."),
        ] {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
        }
        text
    }

    /// Writes what is pending: at the end of a run, and before something that may end it.
    pub fn flush(&mut self, now: Now) {
        if let Some(frame) = self.pending.take()
            && let Err(error) = self.write(&frame)
        {
            self.stop(now, &error);
        }
    }

    fn tend(&mut self, now: Now, chain: &Chain, core: &Core) {
        match &self.state {
            State::Writing { file, path, bytes, until } => {
                let since = now.mono.since(self.synced);
                let news = self.encoder.new_bodies() != self.synced_bodies;
                if bytes >= until {
                    let path = path.clone();
                    self.flush(now);
                    if self.recording() {
                        self.ring.closed(path);
                        self.restart(now, chain, core);
                    }
                } else if since >= if news { SYNC_EVERY } else { SYNC_IDLE_EVERY } {
                    self.synced = now.mono;
                    self.synced_bodies = self.encoder.new_bodies();
                    if file.metadata().is_ok_and(|meta| meta.nlink() == 0) {
                        log::warn!("tape: {} was deleted; a new segment begins", path.display());
                        self.restart(now, chain, core);
                    } else {
                        self.ring.sync(path.clone());
                    }
                }
            }
            State::Stopped { since } => {
                if now.mono.since(*since) >= RETRY_AFTER {
                    self.pending = None;
                    self.restart(now, chain, core);
                    if self.recording() {
                        log::info!("tape: recording again; {} steps are missing", self.lost);
                    }
                }
            }
        }
    }

    fn restart(&mut self, now: Now, chain: &Chain, core: &Core) {
        if let Err(error) = self.begin(chain, core) {
            self.stop(now, &error);
        }
    }

    /// Begins a segment with the core as it is now.
    fn begin(&mut self, chain: &Chain, core: &Core) -> io::Result<()> {
        let base = self.encoder.base.clone();
        let mut header = Header { step: self.step, chain: chain.0.to_vec(), ..self.header.clone() };
        base.to_header(&mut header);
        header.open = (self.open.iter())
            .map(|(token, name)| OpenCall { token: token.0, name: name.to_string() })
            .collect();
        self.encoder = Encoder::new(base);

        let started = Instant::now();
        let snapshot = core.snapshot();
        let (mut file, path) = self.ring.create(snapshot.len() as u64)?;
        self.buffer.clear();
        self.buffer.extend_from_slice(&plain_head());
        put_frame(&mut self.buffer, &Frame { header: Some(header), ..Frame::default() })?;
        let written = put_frame(&mut self.buffer, &Frame { snapshot, ..Frame::default() })
            .and_then(|()| file.write_all(&self.buffer))
            .inspect_err(|_| self.ring.discard(&path));
        let bytes = self.buffer.len() as u64;
        // The next frames are small; the snapshot's bytes go back to the system.
        self.buffer = Vec::new();
        written?;
        let took = started.elapsed().as_millis();
        if took > SNAPSHOT_MILLIS_MAX {
            log::warn!("tape: the snapshot of a new segment took {took} ms");
        }
        self.header.segment += 1;
        let until = bytes + self.ring.segment_bytes();
        self.state = State::Writing { file, path, bytes, until };
        Ok(())
    }

    fn write(&mut self, frame: &Frame) -> io::Result<()> {
        let State::Writing { file, bytes, .. } = &mut self.state else { return Ok(()) };
        self.buffer.clear();
        put_frame(&mut self.buffer, frame)?;
        if let Err(error) = file.write_all(&self.buffer) {
            // Leave whole frames only; where that fails too, the reader finds the cut.
            let _ = file.set_len(*bytes);
            return Err(error);
        }
        *bytes += self.buffer.len() as u64;
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        Ok(())
    }

    fn stop(&mut self, now: Now, error: &io::Error) {
        if self.lost == 0 || self.recording() {
            log::error!(
                "tape: cannot write to {}: {error}; the node goes on without, next try in a minute",
                self.ring.dir().display()
            );
        }
        let state = std::mem::replace(&mut self.state, State::Stopped { since: now.mono });
        if let State::Writing { path, .. } = state {
            self.ring.closed(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::scratch::Scratch;
    use crate::shell::tape::reader::{Segment, Tape};
    use steplet_core::chain::encode_event;
    use steplet_core::event::{Event, Signal};
    use steplet_core::time::Wall;

    #[test]
    fn a_full_disk_stops_the_recorder_and_nothing_else() {
        let scratch = Scratch::new("tape-full");
        let core = Core::new();
        let at = |secs| Now { mono: Mono(0) + Span::from_secs(secs), wall: Wall(0) };
        let event = encode_event(&Event::Signal(Signal::Terminate));
        let mut recorder = Recorder::open(scratch.path(), 1 << 20, 0, at(0), &core);
        let step = |recorder: &mut Recorder, secs| {
            recorder.input(at(secs), &event);
            recorder.effects(at(secs), &[], &Chain::default(), &core);
        };
        step(&mut recorder, 1);
        step(&mut recorder, 2);
        let State::Writing { file, .. } = &mut recorder.state else { panic!("it records") };
        *file = File::options().write(true).open("/dev/full").unwrap();
        step(&mut recorder, 3);
        assert!(!recorder.recording());
        let jobs = recorder.jobs();
        assert!(matches!(&jobs[..], [TapeJob::Compress(_)]), "{jobs:?}");
        step(&mut recorder, 62);
        assert!(!recorder.recording() && recorder.lost() == 2);
        assert!(recorder.metrics().contains("\nsteplet_tape_recording 0\n"));
        step(&mut recorder, 63);
        assert!(recorder.recording() && recorder.lost() == 3);
        assert!(recorder.metrics().contains("\nsteplet_tape_lost_steps_total 3\n"));
        step(&mut recorder, 64);
        recorder.flush(at(64));

        let mut numbers = Vec::new();
        for file in Tape::open(scratch.path()).unwrap().files {
            let mut segment = Segment::open(&file).unwrap();
            numbers.extend(std::iter::from_fn(|| segment.next_step()).map(|step| step.number));
            assert!(segment.rest().is_none());
        }
        assert_eq!(numbers, [0, 1, 5]);
    }

    #[test]
    fn a_deleted_segment_is_followed_by_a_new_one() {
        let scratch = Scratch::new("tape-deleted");
        let dir = scratch.path().join("tapes");
        let core = Core::new();
        let at = |secs| Now { mono: Mono(0) + Span::from_secs(secs), wall: Wall(0) };
        let event = encode_event(&Event::Signal(Signal::Terminate));
        let mut recorder = Recorder::open(&dir, 1 << 20, 0, at(0), &core);
        std::fs::remove_dir_all(&dir).unwrap();
        for secs in [1, 3_600, 3_601] {
            recorder.input(at(secs), &event);
            recorder.effects(at(secs), &[], &Chain::default(), &core);
        }
        recorder.flush(at(3_601));
        let tape = Tape::open(&dir).unwrap();
        let mut segment = Segment::open(&tape.files[0]).unwrap();
        let numbers: Vec<_> =
            std::iter::from_fn(|| segment.next_step()).map(|s| s.number).collect();
        assert_eq!(numbers, [2]);
    }
}
