//! Where a replay left the tape, to read: both sides beside each other.

use super::json::{effect_to_json, event_to_json, hex};
use super::reader::TapedEffect;
use super::replay::{Difference, DifferenceKind};
use super::words::{effect_words, event_words, span_words};
use serde_json::Value;
use std::fmt::Write;
use steplet_core::effect::Effect;
use steplet_core::event::Event;

/// Two columns and what stands between them make 100.
const COLUMN: usize = 48;
/// Equal lines that are shown before and after unequal ones.
const AROUND: usize = 3;
/// Lines of one effect that are shown: a manifest of ten thousand lines helps nobody.
const LINES_MAX: usize = 200;

/// The whole report.
pub fn report(difference: &Difference) -> String {
    let Difference { step, since_start, event, call, kind } = difference;
    let event: Option<Event> = postcard::from_bytes(event).ok();
    let words = event.as_ref().map_or("an event of another build".into(), |e| event_words(e, call));
    let at = span_words(*since_start);
    let mut out = format!("step {step}, {at} after the start of the run, differs: {words}\n");
    let verdict = match kind {
        DifferenceKind::Effects { taped, now } => return out + &effects(taped, now),
        DifferenceKind::Input => {
            let event = event.map_or(Value::Null, |event| event_to_json(event, call));
            for line in pretty(&event).lines().take(LINES_MAX) {
                writeln!(out, "  {line}").expect("writing to a string");
            }
            "The effects are equal, but this event, or its time, is not the one that was recorded: the \
             chained hashes\ndiffer."
        }
        DifferenceKind::State => {
            "The effects are equal, but the core is in another state: the digests differ. The cause lies \
             up to 255\nsteps before."
        }
        DifferenceKind::Snapshot => {
            "The effects are equal, but the next segment begins with another state than this one ends with."
        }
    };
    out + verdict + "\n"
}

fn effects(taped: &[TapedEffect], now: &[Effect]) -> String {
    let mut out = side_by_side("on the tape", "now");
    out.push_str(&format!("{}-+-{}\n", "-".repeat(COLUMN), "-".repeat(COLUMN)));
    for place in 0..taped.len().max(now.len()) {
        let left = taped.get(place).map(|it| postcard::from_bytes::<Effect>(&it.bytes));
        let right = now.get(place);
        if let (Some(Ok(left)), Some(right)) = (&left, right)
            && left == right
        {
            let words = effect_words(left);
            out.push_str(&side_by_side(&format!("= {words}"), &format!("= {words}")));
            continue;
        }
        let left = match (left, taped.get(place)) {
            (Some(Ok(effect)), _) => text(effect),
            (_, Some(taped)) => format!("of another build: {}", hex(&taped.bytes)),
            _ => "(nothing more)".into(),
        };
        let right = right.map_or("(nothing more)".into(), |effect| text(effect.clone()));
        out.push_str(&side_by_side(&left, &right));
    }
    out
}

fn text(effect: Effect) -> String {
    let words = effect_words(&effect);
    format!("{words}\n{}", pretty(&effect_to_json(effect)))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON values always encode")
}

/// Two texts in columns; long runs of equal lines at both ends are left out.
fn side_by_side(left: &str, right: &str) -> String {
    let (left, right): (Vec<_>, Vec<_>) = (left.lines().collect(), right.lines().collect());
    let same =
        |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(l, r)| l == r).count();
    let head = same(&mut left.iter().zip(&right));
    let shorter = left.len().min(right.len());
    let tail = same(&mut left.iter().rev().zip(right.iter().rev())).min(shorter - head);
    let from = head.saturating_sub(AROUND);
    let mut out = String::new();
    if from > 0 && head < shorter {
        rows(&mut out, left[0], right[0]);
        rows(&mut out, "  ...", "  ...");
    }
    let from = if head < shorter { from.max(usize::from(from > 0)) } else { 0 };
    let until = |lines: &[&str]| lines.len() - tail.saturating_sub(AROUND);
    let (left, right) = (&left[from..until(&left)], &right[from..until(&right)]);
    for place in 0..left.len().max(right.len()).min(LINES_MAX) {
        let line = |lines: &[&str]| lines.get(place).map_or(String::new(), |line| (*line).into());
        rows(&mut out, &line(left), &line(right));
    }
    out
}

/// One line of both, in as many rows as the longer one needs.
fn rows(out: &mut String, left: &str, right: &str) {
    let (left, right) = (folded(left), folded(right));
    for place in 0..left.len().max(right.len()) {
        let cell = |rows: &[String]| rows.get(place).cloned().unwrap_or_default();
        let mark = if left.get(place) == right.get(place) { ' ' } else { '|' };
        let row = format!("{:COLUMN$} {mark} {}", cell(&left), cell(&right));
        out.push_str(row.trim_end());
        out.push('\n');
    }
}

fn folded(line: &str) -> Vec<String> {
    let chars: Vec<char> =
        line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let rows: Vec<String> = chars.chunks(COLUMN).map(|row| row.iter().collect()).collect();
    if rows.is_empty() { vec![String::new()] } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steplet_core::effect::Reply;
    use steplet_core::ids::{RequestId, Token};
    use steplet_core::time::Span;

    fn reply(status: u16) -> Effect {
        let reply = Reply { status, content_type: "text/plain".into(), body: "ok".into() };
        Effect::Reply { request: RequestId(7), reply }
    }

    #[test]
    fn both_sides_are_told_in_a_hundred_columns() {
        let taped = |effect: Effect| TapedEffect {
            bytes: postcard::to_allocvec(&effect).unwrap(),
            cost: 0,
        };
        let difference = Difference {
            step: 41,
            since_start: Span::from_millis(4_100),
            call: "".into(),
            event: postcard::to_allocvec(&Event::Tick).unwrap(),
            kind: DifferenceKind::Effects {
                taped: vec![taped(Effect::Cancel(Token(3))), taped(reply(200))],
                now: vec![Effect::Cancel(Token(3)), reply(404), Effect::Exit(1)],
            },
        };
        let got = report(&difference);
        assert!(got.lines().all(|line| line.chars().count() <= 100), "{got}");
        let lines: Vec<_> = got.lines().collect();
        assert_eq!(lines[0], "step 41, 0:00:04.100 after the start of the run, differs: Tick");
        assert_eq!(
            lines[3..5],
            [
                format!("{:48}   = cancel #3", "= cancel #3"),
                format!("{:48} | answer 404 to request 7", "answer 200 to request 7"),
            ]
        );
        assert!(got.contains("(nothing more)"), "{got}");
        assert!(
            lines.iter().any(|l| l.contains("\"status\": 200") && l.contains("\"status\": 404"))
        );
    }

    #[test]
    fn equal_lines_far_from_a_difference_are_left_out() {
        let text = |middle: &str| {
            let lines: Vec<_> =
                (0..40).map(|n| if n == 20 { middle.into() } else { n.to_string() }).collect();
            lines.join("\n")
        };
        let got = side_by_side(&text("left"), &text("right"));
        assert_eq!(got.lines().count(), 2 + 2 * AROUND + 1, "{got}");
        assert!(got.contains("left") && got.contains("| right"));
        assert_eq!(side_by_side("a", "a\nb").lines().count(), 2);
        assert_eq!(side_by_side("", "").lines().count(), 0);
    }
}
