//! `steplet tape show`: a line a step, or one step whole.

use super::Failure;
use super::witness::Witness;
use crate::shell::tape::BUILD;
use crate::shell::tape::json::{effect_to_json, event_to_json, hex};
use crate::shell::tape::reader::{Segment, Step, Tape};
use crate::shell::tape::words::{Calls, effect_words, event_words, span_words};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use steplet_api::time::Time;
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::time::{Mono, Wall};

/// Effects named in a line; the rest is counted.
const NAMED_MAX: usize = 8;

struct Wanted {
    path: PathBuf,
    from: u64,
    to: u64,
    /// One step, whole.
    whole: bool,
    json: bool,
    why: bool,
    utc: bool,
    /// A word that the line must have.
    pod: Option<String>,
}

pub fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let wanted = parse(args)?;
    let tape = Tape::open(&wanted.path)
        .map_err(|error| Failure::Tape(format!("{}: {error}", wanted.path.display())))?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut shown = false;
    let mut unread = None;
    for file in &tape.files {
        let mut segment = match Segment::open(file) {
            Ok(segment) => segment,
            Err(bad) => {
                unread = Some(format!("{}: {bad}", file.display()));
                continue;
            }
        };
        shown |= show(&mut segment, &wanted, &mut out)?;
        if let Some(rest) = segment.rest() {
            unread = Some(rest.to_string());
        }
    }
    out.flush()?;
    match unread {
        Some(why) => Err(Failure::Tape(why)),
        None if !shown => Err(Failure::Tape("there is no such step on the tape".into())),
        None => Ok(()),
    }
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<Wanted, Failure> {
    let mut args = Parser::from_args(args);
    let (mut path, mut step, mut from, mut to, mut pod) = (None, None, None, None, None);
    let (mut json, mut why, mut utc) = (false, false, false);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("step") => step = Some(args.value()?.parse()?),
            Arg::Long("from") => from = Some(args.value()?.parse()?),
            Arg::Long("to") => to = Some(args.value()?.parse()?),
            Arg::Long("json") => json = true,
            Arg::Long("why") => why = true,
            Arg::Long("utc") => utc = true,
            Arg::Long("pod") => pod = Some(args.value()?.string()?),
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            arg => return Err(arg.unexpected().into()),
        }
    }
    let path = path.ok_or_else(|| Failure::Usage("TAPE is missing".into()))?;
    match step {
        Some(_) if from.is_some() || to.is_some() => {
            Err(Failure::Usage("--step, or --from and --to".into()))
        }
        Some(step) => Ok(Wanted { path, from: step, to: step, whole: true, json, why, utc, pod }),
        None => {
            let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
            Ok(Wanted { path, from, to, whole: false, json, why, utc, pod })
        }
    }
}

/// Shows what is wanted of a segment; tells whether there was anything.
fn show(segment: &mut Segment, wanted: &Wanted, out: &mut impl Write) -> io::Result<bool> {
    let mut calls = Calls::before(&segment.header);
    let began = Mono(segment.header.began_ns);
    let head = head(segment);
    let mut shown = false;
    let mut witness = if wanted.why { Witness::of(segment) } else { None };
    while let Some(step) = segment.next_step() {
        if step.number > wanted.to {
            break;
        }
        let event: Option<Event> = postcard::from_bytes(&step.event).ok();
        let effects = effects(&step);
        let call = event.as_ref().map(|event| calls.of(event)).unwrap_or_default();
        if let Some(event) = &event {
            calls.answered(event);
        }
        calls.asked(&effects);
        let said = witness.as_mut().map(|it| it.step(&step, event.as_ref())).unwrap_or_default();
        if step.number < wanted.from {
            continue;
        }
        let line =
            format!("{}{}", event_line(event.as_ref(), &call), effects_line(&step, &effects));
        let of_pod = |pod: &String| has(&line, pod) || said.iter().any(|said| has(said, pod));
        if !wanted.pod.as_ref().is_none_or(of_pod) {
            continue;
        }
        if !std::mem::replace(&mut shown, true) && !wanted.json {
            writeln!(out, "{head}")?;
        }
        let at = match wanted.utc {
            true => rfc3339(step.now.wall).chars().take(23).collect(),
            false => span_words(step.now.mono.since(began)),
        };
        if wanted.json || wanted.whole {
            let mut object = object(&step, event, &call, effects);
            if wanted.why {
                object["why"] = said.into();
            }
            match wanted.json {
                true => writeln!(out, "{object}")?,
                false => writeln!(out, "{}", serde_json::to_string_pretty(&object)?)?,
            }
        } else {
            writeln!(out, "{:>7} {at:>13}  {line}", step.number)?;
            for said in said {
                writeln!(out, "{:24}{said}", "")?;
            }
        }
    }
    Ok(shown)
}

/// Whether a word stands in a line, as a whole or as a pod's name before the node's.
fn has(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric();
    line.match_indices(word).any(|(at, _)| {
        let after = line[at + word.len()..].chars().next();
        !line[..at].ends_with(part) && !after.is_some_and(part)
    })
}

fn head(segment: &Segment) -> String {
    let header = &segment.header;
    let began = rfc3339(Wall(header.run as i64));
    let other = if header.build == BUILD { "" } else { " (not this one: steps may be misread)" };
    let name = segment.path.file_name().unwrap_or_default().display();
    let (seed, build) = (header.seed, &header.build);
    format!("-- {name}: run of {began}, seed {seed}, build {build}{other}")
}

fn effects(step: &Step) -> Vec<Effect> {
    let taped = step.ended.iter().flat_map(|ended| &ended.effects);
    taped.filter_map(|taped| postcard::from_bytes(&taped.bytes).ok()).collect()
}

fn event_line(event: Option<&Event>, call: &str) -> String {
    let words = event.map_or("an event of another build".into(), |e| event_words(e, call));
    // One line, whatever a message holds.
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn effects_line(step: &Step, effects: &[Effect]) -> String {
    let Some(ended) = &step.ended else { return "  (the tape ends in this step)".into() };
    if ended.effects.is_empty() {
        return String::new();
    }
    let mut words: Vec<_> = effects.iter().take(NAMED_MAX).map(effect_words).collect();
    if let Some(more) = ended.effects.len().checked_sub(words.len()).filter(|more| *more > 0) {
        words.push(format!("and {more} more"));
    }
    format!("  =>  {}", words.join(", "))
}

fn object(step: &Step, event: Option<Event>, call: &str, effects: Vec<Effect>) -> Value {
    let event = match event {
        Some(event) => event_to_json(event, call),
        None => json!({ "hex": hex(&step.event) }),
    };
    let mut object = json!({
        "step": step.number,
        "mono": step.now.mono,
        "wall": rfc3339(step.now.wall),
        "event": event,
    });
    if !call.is_empty() {
        object["call"] = call.into();
    }
    if let Some(ended) = &step.ended {
        object["effects"] = effects.into_iter().map(effect_to_json).collect();
        object["chain"] = hex(&ended.chain).into();
    }
    object
}

fn rfc3339(wall: Wall) -> String {
    Time::nano_from_ns(wall.0).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_alone() {
        let check = |line: &str, word: &str, want| assert_eq!(has(line, word), want, "{line}");
        check("RunPodSandbox#3 default/web-node1 attempt 0", "web", true);
        check("RunPodSandbox#3 default/web-node1 attempt 0", "default/web-node1", true);
        check("RunPodSandbox#3 default/webs-node1", "web", false);
        check("StartContainer#9 86feae842af13", "86feae842af13", true);
        check("cobweb, web", "web", true);
        check("cobweb", "web", false);
    }
}
