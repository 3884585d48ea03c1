//! A changed copy of a segment: the seed of a what-if, and the proof that a replay notices.

use super::frame::{Bad, plain_head, put_frame};
use super::json::{event_from_json, event_to_json, set};
use super::part::{Alphabet, Base, Encoder, stamp};
use super::proto::{Check, Frame};
use super::reader::{Segment, Step, StepEnded};
use super::words::Calls;
use serde_json::Value;
use std::io::{self, Write};
use steplet_core::chain::encode_event;
use steplet_core::effect::Effect;
use steplet_core::event::Event;

/// What to change: in the event of one step, values by their path in its JSON form.
pub struct Edit {
    pub step: u64,
    pub sets: Vec<(String, Value)>,
}

#[derive(Debug)]
pub enum EditError {
    Tape(Bad),
    /// The step is not in this segment.
    NoStep {
        first: u64,
        next: u64,
    },
    /// The event does not decode in this build.
    Foreign,
    /// The change cannot be made; a sentence says why.
    Change(String),
    Write(io::Error),
}

/// Writes `segment` with the changes to `out`, in the plain form. The effects and the chain stay those of the
/// recorded run: a replay of the copy ends at the changed step. A damaged segment is refused.
pub fn edit(mut segment: Segment, edit: &Edit, out: &mut impl Write) -> Result<(), EditError> {
    let mut calls = Calls::before(&segment.header);
    let mut encoder = Encoder::new(Base::from_header(&segment.header));
    let header = Some(segment.header.clone());
    let mut text = plain_head().to_vec();
    put_frame(&mut text, &Frame { header, ..Frame::default() }).map_err(EditError::Write)?;
    let snapshot = std::mem::take(&mut segment.snapshot);
    put_frame(&mut text, &Frame { snapshot, ..Frame::default() }).map_err(EditError::Write)?;
    let mut pending = None;
    let mut found = false;
    let first = segment.header.step;
    let mut next = first;
    while let Some(mut step) = segment.next_step() {
        next = step.number.saturating_add(1);
        if step.number == edit.step {
            found = true;
            step.event = change(&step, edit, &calls)?;
        }
        if !found {
            let event: Event = postcard::from_bytes(&step.event).map_err(|_| EditError::Foreign)?;
            calls.answered(&event);
            calls.asked(&effects(&step)?);
        }
        let mut frame: Frame = pending.take().unwrap_or_default();
        encoder.base.put_instant(&mut frame, step.now);
        frame.event = Some(encoder.part(Alphabet::Event, &step.event));
        put_frame(&mut text, &frame).map_err(EditError::Write)?;
        pending = step.ended.as_ref().map(|ended| end(&mut encoder, ended));
        out.write_all(&text).map_err(EditError::Write)?;
        text.clear();
    }
    if let Some(rest) = segment.rest()
        && !rest.cut_short()
    {
        return Err(EditError::Tape(rest.bad));
    }
    if !found {
        return Err(EditError::NoStep { first, next });
    }
    if let Some(frame) = pending {
        put_frame(&mut text, &frame).map_err(EditError::Write)?;
    }
    out.write_all(&text).map_err(EditError::Write)
}

fn change(step: &Step, edit: &Edit, calls: &Calls) -> Result<Vec<u8>, EditError> {
    let event: Event = postcard::from_bytes(&step.event).map_err(|_| EditError::Foreign)?;
    let call = calls.of(&event);
    let before = event_to_json(event.clone(), &call);
    let mut value = before.clone();
    for (path, new) in &edit.sets {
        set(&mut value, path, new.clone()).map_err(EditError::Change)?;
    }
    let changed = event_from_json(value, &before, event, &call).map_err(EditError::Change)?;
    Ok(encode_event(&changed))
}

fn effects(step: &Step) -> Result<Vec<Effect>, EditError> {
    let taped = step.ended.iter().flat_map(|ended| &ended.effects);
    taped.map(|it| postcard::from_bytes(&it.bytes).map_err(|_| EditError::Foreign)).collect()
}

fn end(encoder: &mut Encoder, ended: &StepEnded) -> Frame {
    let parts = ended.effects.iter().map(|taped| encoder.part(Alphabet::Effect, &taped.bytes));
    let effects = parts.collect();
    let check = (ended.check.as_ref())
        .map(|check| Check { chain: check.chain.clone(), core: check.core.clone() });
    Frame { stamp: stamp(ended.chain), effects, check, ..Frame::default() }
}
