//! What must be seen: patterns over the lines of the transcript, and the state of the node.

use super::api;
use super::film::Line;
use super::names::Target;
use super::script::moment;
use super::stage::{Stage, clock};
use crate::checkers::settled;
use crate::clock::At;
use steplet_api::status::{ContainerStatus, PodStatus};
use steplet_core::ids::PodUid;
use steplet_core::sealed::Sealed;
use steplet_core::time::Span;

/// The first words of transcript lines.
const VERBS: [&str; 34] = [
    "event",
    "status",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "PullImage",
    "RemoveCgroup",
    "UpdateRuntimeConfig",
    "chains",
    "TearDownPod",
    "ready",
    "created",
    "started",
    "exited",
    "lost",
    "sandbox-died",
    "error",
    "cancel",
    "reply",
    "send-log",
    "send-file",
    "stream",
    "stream-refused",
    "stream-ended",
    "stored",
    "end-log",
    "agent-exit",
    "agent-killed",
    ">",
    "*",
];

/// The first words of requests to the API server.
const REQUESTS: [&str; 8] = ["GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE", "*"];

/// Checks one expectation; the error says what was seen instead.
pub fn check(stage: &Stage, words: &[&str]) -> Result<(), String> {
    match words {
        ["phase", pod, want] => equal(want, &status(stage, pod)?.phase),
        ["reason", pod, want] => equal(want, &status(stage, pod)?.reason),
        ["message", pod, want] => {
            let status = status(stage, pod)?;
            within(want, &stage.film().names.scrub(&status.message))
        }
        ["condition", pod, kind, want @ ..] => condition(&status(stage, pod)?, kind, want),
        ["waiting", who, want] => equal(want, &state(&container(stage, who)?)),
        ["terminated", who, reason, code] => {
            equal(&format!("{reason}:{code}"), &state(&container(stage, who)?))
        }
        ["restarts", who, want] => equal(want, &container(stage, who)?.restart_count.to_string()),
        ["nothing", "runs"] => nothing(stage, true),
        ["nothing", "left"] => nothing(stage, false),
        ["running", who @ ..] => running(stage, who),
        ["attempts", who, want] => equal(want, &attempts(stage, who).join(",")),
        ["gaps", who, want] => equal(want, &gaps(stage, who)),
        ["agent", "runs"] => match stage.world.core() {
            Some(_) => Ok(()),
            None => Err("it does not run".into()),
        },
        ["settled"] => match settled::check(&stage.world).first() {
            Some(found) => Err(found.what.clone()),
            None => Ok(()),
        },
        ["api", "pod", pod, want @ ..] => api::check_pod(stage, pod, want),
        ["no", "api", "pod", pod] => api::check_no_pod(stage, pod),
        ["node", want @ ..] => api::check_node(stage, want),
        ["no", "node"] => api::check_no_node(stage),
        ["lease", "renewed", "within", time] => api::check_lease(stage, time),
        ["requests", pattern @ ..] => seen(stage, &stage.film().asked, &REQUESTS, pattern, None),
        ["no", "requests", pattern @ ..] => {
            seen(stage, &stage.film().asked, &REQUESTS, pattern, Some(0))
        }
        ["cgroup", path, want @ ..] => cgroup(stage, path, want),
        ["no", "cgroup", path] => match cgroup(stage, path, &[]) {
            Ok(()) => Err("it is there".into()),
            Err(_) => Ok(()),
        },
        ["certificate", kind, want @ ..] => api::check_certificate(stage, kind, want),
        ["kubeconfig", "written"] => match stage.world.disk().read(crate::setup::KUBECONFIG) {
            Some(_) => Ok(()),
            None => Err("there is none".into()),
        },
        ["file", pod, path, want] => equal(want, &file(stage, pod, path)?),
        ["no", "file", pod, path] => match file(stage, pod, path) {
            Ok(text) => Err(format!("found {text:?}")),
            Err(_) => Ok(()),
        },
        ["no", pattern @ ..] => seen(stage, &stage.film().lines, &VERBS, pattern, Some(0)),
        pattern => seen(stage, &stage.film().lines, &VERBS, pattern, None),
    }
}

pub(super) fn equal(want: &str, found: &str) -> Result<(), String> {
    let want = want.trim_start_matches('"');
    if want == found { Ok(()) } else { Err(format!("found {found:?}")) }
}

fn within(want: &str, found: &str) -> Result<(), String> {
    let want = want.trim_start_matches('"');
    if found.contains(want) { Ok(()) } else { Err(format!("found {found:?}")) }
}

/// The status of the newest pod of that name.
fn status(stage: &Stage, pod: &str) -> Result<PodStatus, String> {
    let core = stage.world.core().ok_or("the agent does not run")?;
    let target = Target::parse(pod);
    let facts = core.facts();
    let film = stage.film();
    let uids = facts.sources.pods().keys().chain(facts.workers.all().keys());
    let meant = |uid: &&PodUid| {
        film.names.known_pod(&uid.0).is_some_and(|name| target.covers(&Target::parse(name)))
    };
    let status = uids.filter(meant).find_map(|uid| facts.statuses.status(uid));
    status.cloned().ok_or_else(|| format!("{pod} has no status"))
}

/// A cgroup is there, with these values: `cpu.weight=1`.
fn cgroup(stage: &Stage, path: &str, want: &[&str]) -> Result<(), String> {
    let mut cgroups = stage.world.kernel().cgroups();
    let (_, values) = cgroups.find(|(have, _)| *have == path).ok_or("there is no such cgroup")?;
    for word in want {
        let (file, value) = word.split_once('=').ok_or("want FILE=VALUE")?;
        equal(value, values.get(file).map_or("", String::as_str))?;
    }
    Ok(())
}

/// A file of a pod's volume, `VOLUME/PATH`. What is sealed is shown as the API server has it.
fn file(stage: &Stage, pod: &str, path: &str) -> Result<String, String> {
    let core = stage.world.core().ok_or("the agent does not run")?;
    let target = Target::parse(pod);
    let film = stage.film();
    let meant = |uid: &&PodUid| {
        film.names.known_pod(&uid.0).is_some_and(|name| target.covers(&Target::parse(name)))
    };
    let uid = core.facts().workers.all().keys().find(meant).ok_or("there is no such pod")?;
    let kinds = ["configmap", "secret", "downward-api", "projected"];
    let dir = format!("{}/pods/{uid}/volumes", crate::setup::ROOT_DIR);
    let mut paths = kinds.iter().map(|kind| format!("{dir}/kubernetes.io~{kind}/{path}"));
    let bytes = paths.find_map(|path| stage.world.disk().read(&path)).ok_or("there is no file")?;
    let text = String::from_utf8_lossy(bytes).into_owned();
    let sealed = text.strip_prefix("decoded ").unwrap_or(&text).strip_prefix("sealed:");
    let number = sealed.and_then(|number| number.parse().ok());
    let opened = number.and_then(|it| stage.world.api.vault().open(Sealed::numbered(it)));
    Ok(opened.map_or(text.clone(), str::to_owned))
}

fn container(stage: &Stage, who: &str) -> Result<ContainerStatus, String> {
    let name = Target::parse(who).container.ok_or_else(|| format!("{who}: which container?"))?;
    let status = status(stage, who.split('/').next().unwrap_or_default())?;
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let found = all.into_iter().find(|container| *container.name == *name);
    found.cloned().ok_or_else(|| format!("{who} is not in the status"))
}

/// The reason it waits, `running`, or how it ended.
fn state(container: &ContainerStatus) -> String {
    let state = &container.state;
    match (&state.waiting, &state.terminated) {
        (Some(waiting), _) => waiting.reason.to_string(),
        (_, Some(end)) => format!("{}:{}", end.reason, end.exit_code),
        _ => "running".into(),
    }
}

fn condition(status: &PodStatus, kind: &str, want: &[&str]) -> Result<(), String> {
    let found = status.conditions.iter().find(|condition| &*condition.type_ == kind);
    let found = found.map_or(String::new(), |c| match want.len() {
        1 => c.status.to_string(),
        _ => format!("{} {}", c.status, c.reason),
    });
    equal(&want.join(" "), &found)
}

/// Names of the containers that run, by the runtime itself.
fn live(stage: &Stage) -> Vec<String> {
    let film = stage.film();
    let running = stage.world.runtime().containers().filter(|(_, c)| c.running());
    let mut names: Vec<String> = running.map(|(id, _)| film.names.of(id)).collect();
    names.sort();
    names
}

fn running(stage: &Stage, who: &[&str]) -> Result<(), String> {
    let live = live(stage);
    for who in who {
        let target = Target::parse(who);
        let count = live.iter().filter(|name| target.covers(&Target::parse(name))).count();
        if count != 1 {
            return Err(format!("{count} of {who} run, of {live:?}"));
        }
    }
    Ok(())
}

fn nothing(stage: &Stage, runs: bool) -> Result<(), String> {
    let mut found = live(stage);
    if !runs {
        let film = stage.film();
        found.extend(stage.world.runtime().sandboxes().map(|(id, _)| film.names.of(id)));
        found.extend(stage.world.disk().names(&format!("{}/pods", crate::setup::ROOT_DIR)));
    }
    if found.is_empty() { Ok(()) } else { Err(format!("there is {found:?}")) }
}

/// Attempt numbers in the order in which the containers (or sandboxes) were asked for.
fn attempts(stage: &Stage, who: &str) -> Vec<String> {
    let verb = if who.contains('/') { "CreateContainer" } else { "RunPodSandbox" };
    let target = Target::parse(who);
    let film = stage.film();
    let made = film.lines.iter().filter_map(|line| {
        let name = line.text.strip_prefix(verb)?.split_whitespace().next()?;
        let name = Target::parse(name);
        target.covers(&name).then_some(name.attempt?.to_string())
    });
    made.collect()
}

/// Whole seconds from each end of a container to its next start.
fn gaps(stage: &Stage, who: &str) -> String {
    let target = Target::parse(who);
    let mut gaps = Vec::new();
    let mut ended: Option<At> = None;
    for line in &stage.film().lines {
        let mut words = line.text.split(' ');
        let (verb, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if !target.covers(&Target::parse(name)) {
            continue;
        }
        match (verb, ended) {
            ("exited", _) => ended = Some(line.at),
            ("StartContainer", Some(at)) => {
                gaps.push(format!("{}s", line.at.since(at).secs()));
                ended = None;
            }
            _ => {}
        }
    }
    gaps.join(",")
}

/// Words that must stand in a line in this order, and when.
struct Pattern<'a> {
    words: Vec<&'a str>,
    from: Span,
    until: Option<Span>,
    count: Option<usize>,
    most: Option<usize>,
    /// What must come later.
    then: Option<Vec<&'a str>>,
}

impl<'a> Pattern<'a> {
    fn read(words: &[&'a str], verbs: &[&str]) -> Result<Pattern<'a>, String> {
        let mut pattern = Pattern {
            words: Vec::new(),
            from: Span::ZERO,
            until: None,
            count: None,
            most: None,
            then: None,
        };
        let mut rest = words;
        while let [word, more @ ..] = rest {
            let time = |text: &&str| moment(text).ok_or_else(|| format!("{text:?} is no time"));
            rest = match (*word, more) {
                ("count", [count, rest @ ..]) => {
                    let count = count.parse().map_err(|_| format!("{count:?} is no count"))?;
                    pattern.count = Some(count);
                    rest
                }
                ("most", [most, rest @ ..]) => {
                    let most = most.parse().map_err(|_| format!("{most:?} is no count"))?;
                    pattern.most = Some(most);
                    rest
                }
                ("between", [from, "and", until, rest @ ..]) => {
                    (pattern.from, pattern.until) = (time(from)?, Some(time(until)?));
                    rest
                }
                ("after", [from, rest @ ..]) => {
                    pattern.from = time(from)?;
                    rest
                }
                ("before", [until, rest @ ..]) if moment(until).is_some() => {
                    pattern.until = Some(time(until)?);
                    rest
                }
                ("before", then) => {
                    pattern.then = Some(then.to_vec());
                    &[]
                }
                _ => {
                    pattern.words.push(word);
                    more
                }
            };
        }
        for words in [Some(&pattern.words), pattern.then.as_ref()].into_iter().flatten() {
            let verb = words.first().copied().unwrap_or("");
            if !verbs.contains(&verb) {
                return Err(format!("no line begins with {verb:?}"));
            }
        }
        Ok(pattern)
    }
}

/// Whether the words stand in the line in this order: each is a word of the line, a name that covers it, or quoted
/// text within the rest.
pub(super) fn fits(words: &[&str], line: &str) -> bool {
    let mut rest = line;
    for (index, word) in words.iter().enumerate() {
        if let Some(quoted) = word.strip_prefix('"') {
            let Some(at) = rest.find(quoted) else { return false };
            rest = &rest[at + quoted.len()..];
            continue;
        }
        if index == 0 && *word == "*" {
            continue;
        }
        loop {
            rest = rest.trim_start();
            let (found, more) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = more;
            if found == *word || Target::parse(word).covers(&Target::parse(found)) {
                break;
            }
            if rest.is_empty() || index == 0 {
                return false;
            }
        }
    }
    true
}

fn seen(
    stage: &Stage,
    lines: &[Line],
    verbs: &[&str],
    words: &[&str],
    count: Option<usize>,
) -> Result<(), String> {
    let pattern = Pattern::read(words, verbs)?;
    let film = stage.film();
    let image = pattern.words.first() == Some(&"PullImage");
    let name = |who: &&&str| {
        !image && verbs == VERBS && !who.starts_with(['/', '"']) && who.contains(['/', '#', '('])
    };
    if let Some(who) = pattern.words.get(1).filter(name)
        && !film.names.knows(&Target::parse(who).pod)
    {
        return Err(format!("there is no pod of {who}"));
    }
    let inside = |at: At| {
        at >= At(0) + pattern.from && pattern.until.is_none_or(|until| at <= At(0) + until)
    };
    let find = |words: &[&str]| -> Vec<usize> {
        let all = lines.iter().enumerate();
        let fitting = all.filter(|(_, line)| inside(line.at) && fits(words, &line.text));
        fitting.map(|(index, _)| index).collect()
    };
    let found = find(&pattern.words);
    let shown = |index: &usize| {
        let line = &lines[*index];
        format!("\n      {} {}", clock(line.at), line.text)
    };
    let list: String = found.iter().take(5).map(shown).collect();
    match (count.or(pattern.count), found.len()) {
        (None, count) if pattern.most.is_some_and(|most| count > most) => {
            return Err(format!("seen {count} times{list}"));
        }
        (None, _) if pattern.most.is_some() => {}
        (Some(want), count) if want != count => return Err(format!("seen {count} times{list}")),
        (None, 0) => return Err("never seen".into()),
        _ => {}
    }
    if let Some(then) = &pattern.then {
        let later = find(then);
        let first = later.first().ok_or("what must come later was never seen")?;
        if found.first() > Some(first) {
            return Err(format!("the other came first{}{list}", shown(first)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_lines() {
        let line = "event web/app Warning BackOff \"Back-off restarting\"";
        for (words, want) in [
            (&["event", "web", "BackOff"][..], true),
            (&["event", "web/app", "Warning"], true),
            (&["event", "web/app", "\"restarting"], true),
            (&["*", "\"restarting"], true),
            (&["event", "BackOff", "Warning"], false),
            (&["status", "web"], false),
            (&["web"], false),
            (&["event", "web/side"], false),
        ] {
            assert_eq!(fits(words, line), want, "{words:?}");
        }
    }
}
