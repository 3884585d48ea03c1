//! What the core says in a step beside its effects: the step is done once more to hear it.

use crate::cli::news;
use crate::shell::tape::BUILD;
use crate::shell::tape::reader::{Segment, Step};
use std::collections::BTreeMap;
use steplet_core::Core;
use steplet_core::event::Event;

/// A core on its way through the steps of a segment.
pub struct Witness {
    core: Core,
    refused: BTreeMap<String, String>,
}

impl Witness {
    /// None when the segment is of another build, whose steps this one may not take alike.
    pub fn of(segment: &Segment) -> Option<Witness> {
        let same = segment.header.build == BUILD;
        let core = same.then(|| Core::restore(&segment.snapshot).ok()).flatten()?;
        // A core that has not booted yet has nothing to refuse.
        let refused = core.facts().sources.problems().clone();
        Some(Witness { core, refused })
    }

    /// The events said in the step, and the manifests that it refuses from now on.
    pub fn step(&mut self, step: &Step, event: Option<&Event>) -> Vec<String> {
        let Some(event) = event else { return Vec::new() };
        // The step in which the recorded run came down would end this one too.
        if step.ended.is_none() {
            return Vec::new();
        }
        let before = self.core.facts().events.total();
        self.core.step(step.now, event.clone());
        let facts = self.core.facts();
        let mut said = Vec::new();
        if facts.events.total() > before {
            let of_this_step = facts.events.ring().iter().filter(|it| it.last == step.now.wall);
            said.extend(of_this_step.map(|told| {
                let kind = if told.warning { "Warning" } else { "Normal" };
                format!("{kind} {}", news::words(told))
            }));
        }
        let refused = facts.sources.problems();
        let fresh = refused.iter().filter(|(file, why)| self.refused.get(*file) != Some(why));
        // Most refusals are an event too.
        let fresh = fresh.filter(|(_, why)| !said.iter().any(|event| event.contains(why.as_str())));
        let fresh: Vec<String> =
            fresh.map(|(file, why)| format!("refused {file}: {why}")).collect();
        said.extend(fresh);
        if self.refused != *refused {
            self.refused = refused.clone();
        }
        // One line each, whatever a message holds.
        let plain =
            |text: &String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        said.iter().map(plain).collect()
    }
}
