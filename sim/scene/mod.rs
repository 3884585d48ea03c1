//! Scenes: scripts of what happens to a node, with what must be seen. Playing one gives a transcript.
//!
//! `fixtures/scenes/README.md` describes the language.

mod actions;
mod api;
mod expect;
mod film;
mod names;
mod node;
mod script;
mod stage;
mod visit;

use crate::clock::At;
pub use crate::doors::manifests::Reader;
pub use script::Mistake;
use script::{Cue, Script};
use stage::{Stage, clock};

/// What a scene came to.
#[derive(Debug)]
pub struct Played {
    pub transcript: String,
    /// Expectations that were not met and promises that were broken, each with its place.
    pub failures: Vec<String>,
    /// How many choices of its variables were played.
    pub variations: usize,
}

/// Plays every variation of a scene; the transcript is of the first one.
pub fn play(text: &str, reader: Reader) -> Result<Played, Mistake> {
    let all = script::variations(text);
    let mut played = Played { transcript: String::new(), failures: vec![], variations: all.len() };
    for (index, (chosen, text)) in all.iter().enumerate() {
        let (transcript, failures) = play_one(text, reader)?;
        let place = if chosen.is_empty() { String::new() } else { format!(" with{chosen}") };
        played.failures.extend(failures.iter().map(|what| format!("{what}{place}")));
        if index == 0 {
            played.transcript = transcript;
        }
    }
    if all.len() > 1 {
        let more = all.len() - 1;
        played.transcript.push_str(&format!("(and {more} more variations)\n"));
    }
    Ok(played)
}

fn play_one(text: &str, reader: Reader) -> Result<(String, Vec<String>), Mistake> {
    let script = Script::read(text)?;
    let setup = node::setup(&script.node)?;
    let mut stage = Stage::new(setup, script.manifests, reader);
    node::furnish(&mut stage, &script.node)?;
    let mut failures = Vec::new();
    let (timed, at_end): (Vec<_>, Vec<_>) = script.cues.iter().partition(|cue| cue.at.is_some());
    for cue in timed.into_iter().chain(at_end) {
        if let Some(at) = cue.at {
            stage.run_until(At(0) + at);
        }
        match cue.expectation() {
            None if cue.words == ["end"] => {}
            None => {
                let words = cue.words();
                stage.tell(&words.join(" "));
                let done = actions::act(&mut stage, &words);
                done.map_err(|what| Mistake { line: cue.line, what })?;
                stage.collect();
            }
            Some(words) => {
                if let Err(what) = expect::check(&stage, &words) {
                    let wanted = cue.words().join(" ").replace('"', "");
                    failures.push(format!("line {}: {wanted}: {what}", cue.line));
                }
            }
        }
    }
    // Judges know pods of the manifest directory only; a scene says which of them cannot judge it.
    let unjudged = |promise: &str| {
        script.node.iter().map(Cue::words).any(|words| match words.as_slice() {
            ["unjudged", part] => promise.contains(part.trim_start_matches('"')),
            _ => false,
        })
    };
    let broken = stage.world.violations.iter().filter(|violation| !unjudged(violation.promise));
    let broken = broken.map(|violation| {
        format!("at {}: {}: {}", clock(violation.at), violation.promise, violation.what)
    });
    failures.extend(broken);
    Ok((stage.transcript(), failures))
}
