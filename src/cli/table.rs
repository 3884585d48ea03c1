//! What `steplet run` shows: a table that is drawn again and again on a terminal, plain lines
//! elsewhere.

use super::columns::folded;
use super::manifests::Names;
use super::news::{self, clock};
use super::output::Output;
use crate::shell::log::outlet::Outlet;
use crate::shell::{log, terminal};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use steplet_core::Core;
use steplet_core::facts::Facts;
use steplet_core::managers::node::events::Told;
use steplet_core::managers::pods::policy::{self, InitProgress};
use steplet_core::managers::pods::view::{ContainerState, PodView};
use steplet_core::managers::pods::workers::{Phase, Why, Worker};
use steplet_core::time::{Mono, Now, Span, Wall};

/// The table is drawn at most this often.
const REDRAW: Span = Span::from_millis(100);
/// How long the end of the process waits for whoever reads.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The latest events shown below the table.
const EVENTS_SHOWN: usize = 6;
/// How long a runtime may be silent at first before it is said how to get one.
const PATIENCE: Span = Span::from_secs(5);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    pod: String,
    ready: String,
    status: String,
    restarts: u32,
    /// Seconds.
    age: u64,
    ip: String,
}

pub struct Table {
    out: Outlet<std::io::Stdout>,
    /// Lines of the table on the screen.
    drawn: usize,
    at: Mono,
    /// Without a terminal: what was said about each pod, about the runtime, and about pulls.
    said: BTreeMap<String, String>,
    events: u64,
    manner: Manner,
    began: Option<Mono>,
    output: Output,
}

/// What a run has to show beside the core.
#[derive(Default)]
pub struct Manner {
    /// The user's names of the manifests.
    pub names: Names,
    /// Manifests that the core does not see, each with the reason.
    pub refused: BTreeMap<String, String>,
    /// What helps when no runtime answers.
    pub hint: String,
    /// What the containers print is shown too, and plain lines in place of a table.
    pub output: bool,
    /// The node is a simulated one.
    pub simulated: bool,
}

impl Drop for Table {
    fn drop(&mut self) {
        self.out.drain(LAST_WORDS);
    }
}

impl Table {
    pub fn new(manner: Manner) -> Table {
        let out = Outlet::new(std::io::stdout());
        let (said, output) = (BTreeMap::new(), Output::default());
        Table { out, drawn: 0, at: Mono(0), said, events: 0, manner, began: None, output }
    }

    /// Whether there is a table, and not plain lines.
    pub fn is_drawn(&self) -> bool {
        !self.manner.output && terminal::size().is_some()
    }

    /// Shows the core as it is.
    pub fn show(&mut self, core: &Core, now: Now) {
        // Whoever does not read now is shown a later table.
        if !self.out.flush() {
            return;
        }
        self.began.get_or_insert(now.mono);
        let text = match terminal::size().filter(|_| !self.manner.output) {
            Some(_) if now.mono.since(self.at) < REDRAW => return,
            Some((columns, rows)) => self.draw(core.facts(), now, columns, rows),
            None => self.tell(core.facts(), now),
        };
        self.out.write(text.as_bytes());
        self.at = now.mono;
    }

    fn draw(&mut self, facts: &Facts, now: Now, columns: usize, rows: usize) -> String {
        let mut lines = vec![runtime_line(facts, now)];
        lines.extend(self.hint(facts, now).unwrap_or_default().lines().map(str::to_owned));
        lines.extend(format_rows(&pods(facts, now)));
        for (file, why) in self.refused(facts) {
            lines.extend(folded(&refusal(&file, &why), columns));
        }
        for (image, since) in facts.pulls.running() {
            lines.push(format!("pulling {image}, {}", age(now.mono.since(*since).secs())));
        }
        // What lies above the screen cannot be drawn over: the oldest events make room.
        let room = rows.saturating_sub(1);
        let events = self.events(facts, columns);
        let most = room.saturating_sub(lines.len());
        lines.extend_from_slice(&events[events.len().saturating_sub(most)..]);
        lines.truncate(room);
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.drawn);
        }
        text += "\r\x1b[J";
        text += &log::take_held();
        self.drawn = lines.len();
        for line in lines {
            text.extend(line.chars().take(columns));
            text.push('\n');
        }
        text
    }

    /// The latest events, oldest first: warnings whole, the others in a line each.
    fn events(&self, facts: &Facts, columns: usize) -> Vec<String> {
        let mut all: Vec<&Told> = facts.events.ring().iter().filter(|t| news::counts(t)).collect();
        all.sort_by_key(|told| told.last);
        let warning = all.iter().rposition(|told| told.warning);
        let first = all.len().saturating_sub(EVENTS_SHOWN);
        let shown = warning.filter(|at| *at < first).into_iter().chain(first..all.len());
        let mut lines = Vec::new();
        for at in shown {
            let line = self.event(all[at], all[at].last);
            let cut = if all[at].warning { folded(&line, columns) } else { vec![line] };
            lines.extend(cut);
        }
        lines
    }

    fn event(&self, told: &Told, at: Wall) -> String {
        let mut words = self.manner.names.told(&news::words(told));
        if self.manner.simulated && words.contains("hostPath") {
            words.push_str(" (on the simulated node, which has no files of this machine)");
        }
        // One line, whatever a message holds.
        let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{} {words}", clock(at))
    }

    /// Manifests that cannot be used now, by the user's names, each with the reason.
    fn refused(&self, facts: &Facts) -> BTreeMap<String, String> {
        let names = &self.manner.names;
        let problems = facts.sources.problems().iter();
        let problems = problems.map(|(file, why)| (names.file(file), names.told(why)));
        let unseen = self.manner.refused.iter().map(|(file, why)| (file.clone(), why.clone()));
        problems.chain(unseen).collect()
    }

    /// What helps, when the runtime never answered.
    fn hint(&self, facts: &Facts, now: Now) -> Option<&str> {
        let waited = self.began.is_some_and(|began| now.mono.since(began) >= PATIENCE);
        let silent = facts.runtime_status.name().is_empty() && waited;
        (silent && !self.manner.hint.is_empty()).then_some(self.manner.hint.as_str())
    }

    /// What differs from what was told before, a line each.
    fn tell(&mut self, facts: &Facts, now: Now) -> String {
        let mut current = BTreeMap::from([("runtime".to_owned(), runtime_line(facts, now))]);
        for row in pods(facts, now) {
            let ip = if row.ip.is_empty() { String::new() } else { format!(", {}", row.ip) };
            let restarts = match row.restarts {
                0 => String::new(),
                n => format!(", {n} restarts"),
            };
            let text = format!("pod {}: {} {}{restarts}{ip}", row.pod, row.status, row.ready);
            current.insert(format!("pod {}", row.pod), text);
        }
        for image in facts.pulls.running().keys() {
            current.insert(format!("pull {image}"), format!("pulling {image}"));
        }
        for (file, why) in self.refused(facts) {
            current.insert(format!("refused {file}"), refusal(&file, &why));
        }
        if let Some(hint) = self.hint(facts, now) {
            current.insert("hint".to_owned(), hint.to_owned());
        }
        let mut text = if self.manner.output { self.output.look(facts) } else { String::new() };
        let fresh = facts.events.total().saturating_sub(self.events);
        self.events = facts.events.total();
        let ring = facts.events.ring();
        let fresh = usize::try_from(fresh).unwrap_or(usize::MAX).min(ring.len());
        for told in ring.iter().skip(ring.len() - fresh).filter(|t| t.warning && news::counts(t)) {
            let _ = writeln!(text, "{}", self.event(told, now.wall));
        }
        for (about, line) in &current {
            if self.said.get(about) != Some(line) {
                let _ = writeln!(text, "{} {line}", clock(now.wall));
            }
        }
        for about in self.said.keys().filter(|about| !current.contains_key(*about)) {
            if about.starts_with("pod ") {
                let _ = writeln!(text, "{} {about}: gone", clock(now.wall));
            }
        }
        self.said = current;
        text
    }
}

fn refusal(file: &str, why: &str) -> String {
    // Most reasons begin with the file.
    let why = why.strip_prefix(file).map_or(why, |rest| rest.trim_start_matches([':', ' ']));
    let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("refused {file}: {why}")
}

fn runtime_line(facts: &Facts, now: Now) -> String {
    let status = &facts.runtime_status;
    let name = match status.name() {
        "" => "runtime".to_owned(),
        name => format!("{name} {}", status.version()),
    };
    let problem = facts.node_problem(now.mono);
    match (problem, status.last_error()) {
        (None, _) => format!("{name}: ready"),
        (Some(_), Some(error)) => format!("{name}: {error}"),
        (Some(problem), None) => format!("{name}: {problem}"),
    }
}

fn pods(facts: &Facts, now: Now) -> Vec<Row> {
    let mut rows: Vec<Row> = (facts.workers.all().iter())
        .map(|(uid, worker)| row(worker, facts.pleg.view(uid), now.wall))
        .collect();
    rows.sort_by(|a, b| a.pod.cmp(&b.pod));
    rows
}

fn row(worker: &Worker, view: Option<&PodView>, now: Wall) -> Row {
    let pod = worker.pod();
    let empty = PodView::default();
    let view = view.unwrap_or(&empty);
    let names = pod.spec.containers.iter().map(|c| &*c.name);
    let shown = names.filter_map(|name| view.container(name));
    let running = shown.clone().filter(|c| c.state == ContainerState::Running).count();
    let age = now.0.saturating_sub(worker.started().0) / 1_000_000_000;
    let ip = view.sandbox().and_then(|sandbox| sandbox.ips.first());
    Row {
        pod: format!("{}/{}", pod.metadata.namespace, pod.metadata.name),
        ready: format!("{running}/{}", pod.spec.containers.len()),
        status: status(worker, view),
        restarts: shown.map(|c| c.attempt).sum(),
        age: u64::try_from(age).unwrap_or_default(),
        ip: ip.map(|ip| ip.to_string()).unwrap_or_default(),
    }
}

/// One word, as kubectl has it in the STATUS column.
fn status(worker: &Worker, view: &PodView) -> String {
    match worker.ending().map(|ending| &ending.why) {
        Some(Why::Rejected(reason, _)) => reason.clone(),
        Some(Why::DeadlineExceeded) => "DeadlineExceeded".into(),
        Some(Why::Unconfigured | Why::Deleted) => "Terminating".into(),
        Some(Why::Finished) => {
            let bad = |name| view.container(name).is_some_and(|c| c.exit_code != 0);
            let mut names = worker.pod().spec.containers.iter().map(|c| &*c.name);
            if names.any(bad) { "Error" } else { "Completed" }.into()
        }
        None if matches!(worker.phase(), Phase::Waiting | Phase::Removing) => "Waiting".into(),
        None => progress(worker, view),
    }
}

/// Of a pod that shall run.
fn progress(worker: &Worker, view: &PodView) -> String {
    let pod = worker.pod();
    let containers = &pod.spec.containers;
    let runs =
        |name: &str| view.container(name).is_some_and(|c| c.state == ContainerState::Running);
    let mut waiting = pod.spec.init_containers.iter().chain(containers).filter(|c| !runs(&c.name));
    if let Some(reason) = waiting.find_map(|c| worker.reasons().get(&c.name)) {
        return reason.reason.to_string();
    }
    match policy::init_progress(pod, view) {
        InitProgress::Next(n) | InitProgress::Wait(n) => {
            format!("Init:{n}/{}", pod.spec.init_containers.len())
        }
        InitProgress::Failed => "Init:Error".into(),
        InitProgress::Done if containers.iter().any(|c| runs(&c.name)) => "Running".into(),
        InitProgress::Done => "ContainerCreating".into(),
    }
}

fn format_rows(rows: &[Row]) -> Vec<String> {
    let head = ["POD", "READY", "STATUS", "RESTARTS", "AGE", "IP"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let Row { pod, ready, status, restarts, age: seconds, ip } = row.clone();
        [pod, ready, status, restarts.to_string(), age(seconds), ip]
    });
    let cells: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let mut widths = [0; 6];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: &[String; 6]| {
        let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// Seconds as kubectl prints an age.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |pod: &str, status: &str, ip: &str| Row {
            pod: pod.into(),
            ready: "1/1".into(),
            status: status.into(),
            restarts: 12,
            age: 7_300,
            ip: ip.into(),
        };
        let rows = [row("default/web", "Running", "10.88.0.2"), row("a/b", "CrashLoopBackOff", "")];
        let want = [
            "POD          READY  STATUS            RESTARTS  AGE  IP",
            "default/web  1/1    Running           12        2h   10.88.0.2",
            "a/b          1/1    CrashLoopBackOff  12        2h",
        ];
        assert_eq!(format_rows(&rows), want);
    }

    #[test]
    fn refusals_name_the_file_once() {
        let check = |why: &str, want: &str| assert_eq!(refusal("a/web.yaml", why), want);
        check("a/web.yaml: line 4: no name", "refused a/web.yaml: line 4: no name");
        check("pod x is\nignored", "refused a/web.yaml: pod x is ignored");
    }

    #[test]
    fn ages() {
        let check = |seconds, want| assert_eq!(age(seconds), want);
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(7_200, "2h");
        check(172_800, "2d");
    }
}
