//! The world of a scene, with its transcript as it grows.

use super::film::{Camera, Film, Line};
use crate::checkers::Judges;
use crate::clock::At;
use crate::doors::manifests::Reader;
use crate::setup::Setup;
use crate::world::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use steplet_api::status::{ContainerState, ContainerStatus, PodStatus, condition};
use steplet_core::facts::Facts;

pub struct Stage {
    pub world: World,
    pub manifests: BTreeMap<String, String>,
    film: Rc<RefCell<Film>>,
    /// Lines of the film that are in order already.
    settled: usize,
    /// The status of each pod as it was told last.
    statuses: BTreeMap<String, String>,
    /// Pods that have a status in this life of the agent.
    shown: Vec<String>,
    events: BTreeMap<String, u32>,
}

impl Stage {
    pub fn new(setup: Setup, manifests: BTreeMap<String, String>, reader: Reader) -> Stage {
        let mut world = World::new(setup);
        world.disk.manifests.reader = reader;
        let film = Rc::new(RefCell::new(Film::default()));
        world.watch_by(Box::new(Camera(film.clone())));
        world.watch_by(Box::new(Judges::all()));
        Stage {
            world,
            manifests,
            film,
            settled: 0,
            statuses: BTreeMap::new(),
            shown: Vec::new(),
            events: BTreeMap::new(),
        }
    }

    /// Lets the world go on until `end`.
    pub fn run_until(&mut self, end: At) {
        while self.world.run_one(end) {
            self.collect();
        }
        self.world.run_until(end);
    }

    /// Somebody does something.
    pub fn tell(&mut self, text: &str) {
        self.film.borrow_mut().add(self.world.at(), format!("> {text}"));
        self.settled = self.film.borrow().lines.len();
    }

    pub fn film(&self) -> std::cell::Ref<'_, Film> {
        self.film.borrow()
    }

    /// Adds what the agent says of itself: its events and the statuses of its pods.
    pub fn collect(&mut self) {
        let at = self.world.at();
        let mut said = Vec::new();
        match self.world.core() {
            Some(core) => {
                let facts = core.facts();
                let mut film = self.film.borrow_mut();
                for (uid, pod) in facts.sources.pods() {
                    film.names.pod(&uid.0, &pod.metadata.namespace, &pod.metadata.name);
                }
                said.extend(events(facts, &film, &mut self.events));
                said.extend(statuses(facts, &film, &mut self.statuses, &mut self.shown));
            }
            None => {
                self.events.clear();
                self.shown.clear();
            }
        }
        let mut film = self.film.borrow_mut();
        film.name_late(self.settled);
        let asks = film.lines[self.settled..].iter().position(|line| line.ask);
        let place = asks.map_or(film.lines.len(), |asks| self.settled + asks);
        let said = said.into_iter().map(|text| Line { at, text, ask: false });
        film.lines.splice(place..place, said);
        self.settled = film.lines.len();
    }

    pub fn transcript(&self) -> String {
        let line = |line: &Line| format!("{:>13}  {}\n", clock(line.at), line.text);
        self.film.borrow().lines.iter().map(line).collect()
    }
}

/// Seconds with milliseconds: `61.050s`.
pub fn clock(at: At) -> String {
    let millis = at.0 / 1_000_000;
    format!("{}.{:03}s", millis / 1_000, millis % 1_000)
}

fn events(facts: &Facts, film: &Film, known: &mut BTreeMap<String, u32>) -> Vec<String> {
    let mut said = Vec::new();
    for told in facts.events.ring() {
        let uid = told.uid.as_ref().map(|uid| &*uid.0);
        let pod = uid.map_or("node", |uid| film.names.known_pod(uid).unwrap_or("?"));
        let field = told.field.split_once('{').map(|(_, name)| name.trim_end_matches('}'));
        let about = field.map_or(pod.to_owned(), |container| format!("{pod}/{container}"));
        let kind = if told.warning { "Warning" } else { "Normal" };
        let message = film.names.scrub(&told.message);
        let text = format!("event {about} {kind} {} {message:?}", told.reason);
        // By what was told: names are given later than some messages are written.
        let key = format!("{uid:?} {} {} {}", told.field, told.reason, told.message);
        let count = known.entry(key).or_default();
        for _ in *count..told.count {
            said.push(text.clone());
        }
        *count = told.count;
    }
    said
}

fn statuses(
    facts: &Facts,
    film: &Film,
    known: &mut BTreeMap<String, String>,
    shown: &mut Vec<String>,
) -> Vec<String> {
    let mut said = Vec::new();
    let uids = facts.sources.pods().keys().chain(facts.workers.all().keys());
    let mut uids: Vec<&str> = uids.map(|uid| &*uid.0).collect();
    uids.sort_unstable();
    uids.dedup();
    let mut now = Vec::new();
    for uid in uids {
        let Some(status) = facts.statuses.status(&uid.into()) else { continue };
        let text = status_text(status);
        if known.get(uid) != Some(&text) {
            said.push(format!("status {} {text}", film.names.known_pod(uid).unwrap_or("?")));
            known.insert(uid.to_owned(), text);
        }
        now.push(uid.to_owned());
    }
    for uid in shown.iter().filter(|uid| !now.contains(uid)) {
        known.remove(uid);
        said.push(format!("status {} gone", film.names.known_pod(uid).unwrap_or("?")));
    }
    *shown = now;
    said
}

/// `Running ready app=running`, `Pending a=running app=waiting:PodInitializing`.
pub(super) fn status_text(status: &PodStatus) -> String {
    let mut text = status.phase.to_string();
    if !status.reason.is_empty() {
        text = format!("{text} {}", status.reason);
    }
    let ready = status.conditions.iter().find(|c| &*c.type_ == condition::READY);
    if ready.is_some_and(|ready| &*ready.status == "True") {
        text.push_str(" ready");
    }
    for container in status.init_container_statuses.iter().chain(&status.container_statuses) {
        text.push_str(&format!(" {}", container_text(container)));
    }
    text
}

fn container_text(container: &ContainerStatus) -> String {
    let mut text = format!("{}={}", container.name, state_text(&container.state));
    if container.restart_count != 0 {
        text.push_str(&format!(",restarts={}", container.restart_count));
    }
    if let Some(last) = &container.last_state.terminated {
        text.push_str(&format!(",last={}:{}", last.reason, last.exit_code));
    }
    text
}

fn state_text(state: &ContainerState) -> String {
    match state {
        ContainerState { terminated: Some(end), .. } => {
            let message = end.message.trim();
            let message = if message.is_empty() { String::new() } else { format!(":{message:?}") };
            format!("terminated:{}:{}{message}", end.reason, end.exit_code)
        }
        ContainerState { running: Some(_), .. } => "running".into(),
        ContainerState { waiting: Some(waiting), .. } => format!("waiting:{}", waiting.reason),
        _ => "waiting".into(),
    }
}
