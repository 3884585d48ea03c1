//! `steplet tape stat`: what a tape holds, and what that costs.

use super::Failure;
use crate::shell::tape::frame::compress;
use crate::shell::tape::reader::{Follows, Place, Segment, Step, Tape};
use crate::shell::tape::words::{Calls, effect_kind, event_kind, span_words};
use lexopt::{Arg, Parser};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use steplet_core::effect::Effect;
use steplet_core::event::Event;
use steplet_core::time::{Mono, Span};

#[derive(Clone, Copy, Default)]
struct Tally {
    count: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }
}

#[derive(Default)]
struct Totals {
    runs: u64,
    segments: u64,
    compressed: u64,
    file_bytes: u64,
    /// What the segments would take if all were compressed.
    packed: u64,
    steps: u64,
    first_step: Option<u64>,
    last_step: u64,
    span: Span,
    missing: u64,
    builds: BTreeSet<String>,
    parts: BTreeMap<&'static str, Tally>,
    events: BTreeMap<String, Tally>,
    effects: BTreeMap<String, Tally>,
}

pub fn main(args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let path = parse(args)?;
    let tape =
        Tape::open(&path).map_err(|error| Failure::Tape(format!("{}: {error}", path.display())))?;
    let mut totals = Totals::default();
    let mut place: Option<Place> = None;
    let mut unread = Vec::new();
    for file in &tape.files {
        match Segment::open(file) {
            Ok(mut segment) => {
                match place.map(|place| place.followed_by(&segment.header)) {
                    None | Some(Follows::NewRun) => totals.runs += 1,
                    Some(Follows::After { missing_steps, .. }) => totals.missing += missing_steps,
                    Some(Follows::Directly) => {}
                }
                totals.take(&mut segment);
                place = Some(Place::after(&segment));
                unread.extend(segment.rest().map(|rest| rest.to_string()));
            }
            Err(bad) => unread.push(format!("{}: {bad}", file.display())),
        }
    }
    if totals.segments == 0 {
        let none = || format!("{}: there is no tape", path.display());
        return Err(Failure::Tape(if unread.is_empty() { none() } else { unread.join("\n") }));
    }
    print(&totals, &path, &mut io::stdout().lock())?;
    if unread.is_empty() { Ok(()) } else { Err(Failure::Tape(unread.join("\n"))) }
}

fn parse(args: impl Iterator<Item = OsString>) -> Result<PathBuf, Failure> {
    let mut args = Parser::from_args(args);
    let mut path = None;
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(value) if path.is_none() => path = Some(PathBuf::from(value)),
            arg => return Err(arg.unexpected().into()),
        }
    }
    path.ok_or_else(|| Failure::Usage("TAPE is missing".into()))
}

impl Totals {
    fn take(&mut self, segment: &mut Segment) {
        self.segments += 1;
        self.file_bytes += segment.file_bytes;
        self.builds.insert(segment.header.build.clone());
        self.part("snapshot", segment.snapshot.len());
        let mut calls = Calls::before(&segment.header);
        let mut before: Option<Mono> = None;
        while let Some(step) = segment.next_step() {
            self.step(&step, &mut calls);
            self.span = self.span + before.map_or(Span::ZERO, |b| step.now.mono.since(b));
            before = Some(step.now.mono);
        }
        if segment.compressed() {
            self.compressed += 1;
            self.packed += segment.file_bytes;
        } else {
            self.packed += packed_bytes(&segment.path);
        }
    }

    fn step(&mut self, step: &Step, calls: &mut Calls) {
        self.steps += 1;
        self.first_step.get_or_insert(step.number);
        self.last_step = step.number;
        self.part("event", step.cost);
        // Time and chain, with their tag.
        self.part("stamp", 9);
        let event: Option<Event> = postcard::from_bytes(&step.event).ok();
        let kind = match &event {
            Some(event) => event_kind(event, &calls.of(event)),
            None => "of another build".into(),
        };
        self.events.entry(kind).or_default().add(step.cost);
        if let Some(event) = &event {
            calls.answered(event);
        }
        let Some(ended) = &step.ended else { return };
        if ended.check.is_some() {
            // Two hashes with their tags and lengths.
            self.part("check", 68);
        }
        for taped in &ended.effects {
            self.part("effect", taped.cost);
            let effect: Option<Effect> = postcard::from_bytes(&taped.bytes).ok();
            let kind = effect.as_ref().map_or("of another build".into(), effect_kind);
            self.effects.entry(kind).or_default().add(taped.cost);
            calls.asked(effect.as_slice());
        }
    }

    fn part(&mut self, kind: &'static str, bytes: usize) {
        self.parts.entry(kind).or_default().add(bytes);
    }
}

/// What the helper would make of an open segment.
fn packed_bytes(path: &Path) -> u64 {
    struct Count(u64);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A damaged segment stays as it is; the reading has told of it.
    match File::open(path).map(|file| compress(file, &mut count)) {
        Ok(Ok(())) => count.0,
        _ => path.metadata().map_or(0, |meta| meta.len()),
    }
}

fn print(totals: &Totals, path: &Path, out: &mut impl Write) -> io::Result<()> {
    let Totals { runs, segments, compressed, file_bytes, steps, span, missing, .. } = totals;
    writeln!(out, "{}", path.display())?;
    writeln!(out, "  runs       {runs}")?;
    writeln!(out, "  segments   {segments}, {compressed} of them compressed")?;
    let builds: Vec<_> = totals.builds.iter().map(String::as_str).collect();
    writeln!(out, "  builds     {}", builds.join(", "))?;
    let first = totals.first_step.unwrap_or_default();
    writeln!(out, "  steps      {steps}, from {first} to {}, {missing} missing", totals.last_step)?;
    writeln!(out, "  time       {}", span_words(*span))?;
    for (what, bytes) in [("size", *file_bytes), ("compressed", totals.packed)] {
        write!(out, "  {what:<10} {bytes} bytes")?;
        match a_day(bytes, *span) {
            Some(day) => writeln!(out, ", at this rate {day} bytes a day")?,
            None => writeln!(out)?,
        }
    }
    table(out, "parts", totals.parts.iter().map(|(kind, tally)| (*kind, *tally)))?;
    table(out, "events", totals.events.iter().map(|(kind, tally)| (kind.as_str(), *tally)))?;
    table(out, "effects", totals.effects.iter().map(|(kind, tally)| (kind.as_str(), *tally)))
}

/// What a day would take. A start is no measure of what follows, so a short tape says nothing.
fn a_day(bytes: u64, span: Span) -> Option<u128> {
    const ENOUGH: Span = Span::from_secs(600);
    (span >= ENOUGH).then(|| u128::from(bytes) * 86_400_000 / u128::from(span.millis()))
}

/// The most expensive first.
fn table<'a>(
    out: &mut impl Write,
    title: &str,
    rows: impl Iterator<Item = (&'a str, Tally)>,
) -> io::Result<()> {
    writeln!(out, "\n{title:<32} {:>10} {:>12} {:>9}", "count", "text bytes", "each")?;
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(kind, tally)| (std::cmp::Reverse(tally.bytes), *kind));
    for (kind, Tally { count, bytes }) in rows {
        let each = bytes / count.max(1);
        writeln!(out, "  {kind:<30} {count:>10} {bytes:>12} {each:>9}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_tape_tells_of_a_day() {
        let check = |seconds, want| assert_eq!(a_day(1_000, Span::from_secs(seconds)), want);
        check(0, None);
        check(599, None);
        check(600, Some(144_000));
        check(86_400, Some(1_000));
    }
}
