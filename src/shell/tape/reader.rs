//! Reads tapes: a segment, or the segments of a directory in order, as far as they are whole.

use super::frame::{Bad, Frames};
use super::part::{Alphabet, Base, Decoder, put_varint, stamped_chain};
use super::proto::{Check, Frame, Header};
use super::ring::{self, SegmentFile};
use prost::Message;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use steplet_core::chain::Chain;
use steplet_core::time::Now;

/// One step as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub number: u64,
    pub now: Now,
    /// The postcard encoding of the event.
    pub event: Vec<u8>,
    /// None at the end of a run that was killed or crashed within this step, or right after it.
    pub ended: Option<StepEnded>,
    /// Bytes that the event took of the text of the segment.
    pub cost: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StepEnded {
    /// The first bytes of the chain after the step.
    pub chain: [u8; 4],
    pub effects: Vec<TapedEffect>,
    pub check: Option<StepCheck>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TapedEffect {
    /// Its postcard encoding.
    pub bytes: Vec<u8>,
    pub cost: usize,
}

impl StepEnded {
    /// The encoding of all effects, as the chain takes it in.
    pub fn encoded(&self) -> Vec<u8> {
        let mut all = Vec::new();
        put_varint(&mut all, self.effects.len() as u64);
        all.extend(self.effects.iter().flat_map(|effect| &effect.bytes));
        all
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct StepCheck {
    pub chain: Vec<u8>,
    /// SHA-256 of the core's snapshot.
    pub core: Vec<u8>,
}

/// The end of a segment that could not be read.
#[derive(Debug)]
pub struct Rest {
    pub path: PathBuf,
    pub bad: Bad,
    pub good_bytes: u64,
    pub file_bytes: u64,
}

impl Rest {
    /// Whether it is what a killed process or a power cut leaves.
    pub fn cut_short(&self) -> bool {
        matches!(self.bad, Bad::Truncated)
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rest { path, bad, good_bytes, file_bytes } = self;
        let gone = file_bytes.saturating_sub(*good_bytes);
        let path = path.display();
        write!(f, "{path}: {bad}; the last {gone} of {file_bytes} bytes are not read")
    }
}

/// A segment of a tape that is being read.
pub struct Segment {
    pub path: PathBuf,
    pub file_bytes: u64,
    pub header: Header,
    /// The encoded core before the first step.
    pub snapshot: Vec<u8>,
    frames: Frames<File>,
    decoder: Decoder,
    next: u64,
    begun: Option<Step>,
    /// Nothing more can be read, and why.
    over: Option<Option<Bad>>,
}

impl Segment {
    /// Reads the header and the snapshot.
    pub fn open(path: &Path) -> Result<Segment, Bad> {
        let path = present(path);
        let file = File::open(&path)?;
        let file_bytes = file.metadata()?.len();
        let mut frames = Frames::open(file)?;
        let header = frames.next_frame()?.and_then(|frame| frame.header);
        let header = header.ok_or(Bad::Damaged("the segment has no header"))?;
        let Frame { snapshot, .. } = frames.next_frame()?.ok_or(Bad::Truncated)?;
        Ok(Segment {
            path,
            file_bytes,
            snapshot,
            frames,
            decoder: Decoder::new(Base::from_header(&header)),
            next: header.step,
            header,
            begun: None,
            over: None,
        })
    }

    pub fn compressed(&self) -> bool {
        self.frames.compressed()
    }

    /// The whole chain before the first step.
    pub fn chain(&self) -> Result<Chain, Bad> {
        let chain = self.header.chain.as_slice().try_into();
        chain.map(Chain).map_err(|_| Bad::Damaged("the header's chain has a wrong length"))
    }

    /// The next step; None at the end, and when the rest cannot be read.
    pub fn next_step(&mut self) -> Option<Step> {
        while self.over.is_none() {
            match self.frames.next_frame() {
                Ok(Some(frame)) => match self.take(frame) {
                    Ok(Some(step)) => return Some(step),
                    Ok(None) => {}
                    Err(bad) => self.over = Some(Some(bad)),
                },
                Ok(None) => self.over = Some(None),
                Err(bad) => self.over = Some(Some(bad)),
            }
        }
        self.begun.take()
    }

    /// After the last step: what could not be read.
    pub fn rest(&mut self) -> Option<Rest> {
        let bad = self.over.as_mut()?.take()?;
        let good_bytes = self.frames.good();
        Some(Rest { path: self.path.clone(), bad, good_bytes, file_bytes: self.file_bytes })
    }

    /// Takes in a frame. When it begins a step, the one before is whole.
    fn take(&mut self, frame: Frame) -> Result<Option<Step>, Bad> {
        if self.begun.as_ref().is_some_and(|step| step.ended.is_none()) {
            let ended = self.ended(&frame)?;
            self.begun.as_mut().expect("a step is under way").ended = Some(ended);
        } else if !frame.effects.is_empty() || frame.check.is_some() {
            return Err(Bad::Damaged("a step ends that has not begun"));
        }
        let begun = self.begin(&frame)?;
        Ok(begun.and_then(|begun| self.begun.replace(begun)))
    }

    fn begin(&mut self, frame: &Frame) -> Result<Option<Step>, Bad> {
        let Some(part) = &frame.event else { return Ok(None) };
        let now = self.decoder.base.instant(frame);
        let mut event = Vec::new();
        self.decoder
            .append(Alphabet::Event, part, &mut event)
            .ok_or(Bad::Damaged("an event refers to nothing"))?;
        let number = self.next;
        self.next = number.wrapping_add(1);
        Ok(Some(Step { number, now, event, ended: None, cost: part.encoded_len() }))
    }

    fn ended(&mut self, frame: &Frame) -> Result<StepEnded, Bad> {
        let mut effects = Vec::with_capacity(frame.effects.len());
        for part in &frame.effects {
            let mut bytes = Vec::new();
            self.decoder
                .append(Alphabet::Effect, part, &mut bytes)
                .ok_or(Bad::Damaged("an effect refers to nothing"))?;
            effects.push(TapedEffect { bytes, cost: part.encoded_len() });
        }
        let check = frame
            .check
            .as_ref()
            .map(|Check { chain, core }| StepCheck { chain: chain.clone(), core: core.clone() });
        Ok(StepEnded { chain: stamped_chain(frame.stamp), effects, check })
    }
}

/// The recorder may have compressed the segment since it was listed.
fn present(path: &Path) -> PathBuf {
    let packed = path.with_extension("tape.z");
    let gone = path.extension().is_some_and(|it| it == "tape") && !path.exists();
    if gone && packed.exists() { packed } else { path.into() }
}

/// The files of a tape, oldest first.
pub struct Tape {
    pub files: Vec<PathBuf>,
}

impl Tape {
    /// A segment, or a directory of them.
    pub fn open(path: &Path) -> io::Result<Tape> {
        if !path.metadata()?.is_dir() {
            return Ok(Tape { files: vec![path.into()] });
        }
        let mut files: Vec<SegmentFile> = ring::list(path)?;
        // While a segment is compressed, it is there twice.
        files.dedup_by_key(|file| file.number);
        if files.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no tape in this directory"));
        }
        Ok(Tape { files: files.into_iter().map(|file| file.path).collect() })
    }
}

/// Where the reading of a tape has come to: tells whether the next segment follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    run: u64,
    segment: u32,
    /// The number of the next step.
    step: u64,
}

/// How a segment stands to the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follows {
    /// Its first step comes right after.
    Directly,
    /// Steps of the same run are missing in between.
    After { missing_steps: u64, missing_segments: u32 },
    /// Another run.
    NewRun,
}

impl Place {
    /// After `segment` has been read to its end.
    pub fn after(segment: &Segment) -> Place {
        let Header { run, segment: number, .. } = segment.header;
        Place { run, segment: number, step: segment.next }
    }

    pub fn followed_by(&self, next: &Header) -> Follows {
        if next.run != self.run || next.step < self.step {
            return Follows::NewRun;
        }
        let missing_segments = next.segment.saturating_sub(self.segment.saturating_add(1));
        match next.step - self.step {
            0 => Follows::Directly,
            missing_steps => Follows::After { missing_steps, missing_segments },
        }
    }
}
