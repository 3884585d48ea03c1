//! Whoever asks on a port of the agent in a scene: `get 10250 /pods as alice of admins`.

use super::names::Target;
use super::stage::Stage;
use crate::doors::listen::{Manner, Visit};
use steplet_core::event::{Listener, User};

/// Does what a line beginning with `get`, `post`, `put`, `leave`, `stream` or `streams` says.
pub fn act(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    match words {
        [method @ ("get" | "post" | "put"), port, target, how @ ..] => {
            ask(stage, (method, port, target), how)
        }
        ["leave", target] => match stage.world.leave(target) {
            0 => Err(format!("nobody waits for {target}")),
            _ => Ok(()),
        },
        ["stream", who, "ends"] => {
            let target = Target::parse(who);
            let ids: Vec<String> = stage.film().names.ids(&target).map(str::to_owned).collect();
            match ids.iter().map(|id| stage.world.cut_streams(id)).sum::<usize>() {
                0 => Err(format!("{who} has no stream")),
                _ => Ok(()),
            }
        }
        ["streams", "refused"] => set(stage, Manner::Refuses),
        ["streams", "work"] => set(stage, Manner::Serves),
        ["streams", "answer", status] => {
            let status = status.parse().map_err(|_| format!("{status:?} is no status of HTTP"))?;
            set(stage, Manner::Answers(status))
        }
        _ => Err(format!("no such visitor: {:?}", words.join(" "))),
    }
}

fn set(stage: &mut Stage, manner: Manner) -> Result<(), String> {
    stage.world.listen.manner = manner;
    Ok(())
}

fn ask(
    stage: &mut Stage,
    (method, port, target): (&str, &str, &str),
    how: &[&str],
) -> Result<(), String> {
    let listener = match port {
        "10250" => Listener::Secure,
        "10255" => Listener::ReadOnly,
        "10248" => Listener::Healthz,
        _ => return Err(format!("nobody listens on {port}")),
    };
    let mut visit = Visit { method: method.to_uppercase(), ..Visit::get(listener, target) };
    let mut times = 1;
    let mut rest = how;
    while let [word, more @ ..] = rest {
        rest = match (*word, more) {
            ("upgrade", _) => {
                visit.upgrade = true;
                more
            }
            ("from", ["afar", more @ ..]) => {
                visit.loopback = false;
                more
            }
            ("as", [name, "of", groups, more @ ..]) => {
                let groups = groups.split(',').map(str::to_owned).collect();
                let user = User { name: (*name).to_owned(), groups, ..User::default() };
                visit.certificate = Some(Ok(user));
                more
            }
            ("as", ["stranger", more @ ..]) => {
                visit.certificate = Some(Err("it is signed by an unknown authority".into()));
                more
            }
            ("token", [token, more @ ..]) => {
                visit.bearer = Some((*token).to_owned());
                more
            }
            ("body", [text, more @ ..]) => {
                visit.body = (*text).to_owned();
                more
            }
            ("times", [number, more @ ..]) => {
                times = number.parse().map_err(|_| format!("{number:?} is no number"))?;
                more
            }
            _ => return Err(format!("what is {word:?}?")),
        };
    }
    for _ in 0..times {
        let asked = stage.world.visit(visit.clone());
        asked.ok_or("the agent is not running")?;
    }
    Ok(())
}
