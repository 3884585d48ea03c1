//! What happens in a scene: one line, one thing that somebody does to the node.

use super::names::Target;
use super::node::{span, wall};
use super::stage::Stage;
use crate::doors::kernel::plenty;
use crate::doors::rpc::{Fate, Rule};
use crate::doors::runtime::Pace;
use crate::setup::NODE;
use bytes::Bytes;
use steplet_core::event::{RpcError, Signal};
use steplet_core::time::Span;

/// How long a helper hangs: as long as the pool waits for a job.
const HANG: Span = Span::from_secs(120);

/// Does what a line says. An error means that the line makes no sense here.
pub fn act(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    match words {
        ["get" | "post" | "leave" | "stream" | "streams", ..] | ["put", "10250", ..] => {
            super::visit::act(stage, words)
        }
        ["put" | "remove" | "rename" | "serve" | "manifests", ..] => files(stage, words),
        ["api", rest @ ..] => super::api::act(stage, rest),
        ["runtime", rest @ ..] => runtime(stage, rest),
        ["machine", rest @ ..] => machine(stage, rest),
        ["iptables", "flushed"] => {
            stage.world.kernel.iptables.stands = false;
            Ok(())
        }
        ["disk", rest @ ..] => disk(stage, rest),
        ["helper", rest @ ..] => helper(stage, rest),
        ["systemd", how @ ("gone" | "back")] => {
            stage.world.set_systemd_gone(*how == "gone");
            Ok(())
        }
        ["exit", ..] | ["take", ..] | ["kill", "sandbox", ..] => trouble(stage, words),
        ["clock", step] => clock(stage, step),
        ["start", "agent"] => {
            stage.world.start_agent();
            Ok(())
        }
        ["kill", "agent"] => {
            stage.world.kill_agent();
            Ok(())
        }
        ["SIGTERM", "agent"] => {
            stage.world.signal(Signal::Terminate);
            Ok(())
        }
        ["address", ip] => {
            stage.world.setup.machine.host_ips = vec![(*ip).to_owned()];
            Ok(())
        }
        ["no", "bootstrap", "kubeconfig"] => {
            if let Some(api) = &mut stage.world.setup.settings.api {
                api.certificates.bootstrap = false;
                api.certificates.kubeconfig_missing = false;
            }
            Ok(())
        }
        ["swap", "key", "of", name] => {
            stage.world.disk.pki.swap_key(name);
            Ok(())
        }
        ["store", "spoils", prefix @ ..] => {
            let prefix = prefix.first().unwrap_or(&"");
            match stage.world.disk.offline.spoil(prefix) {
                0 => Err("the offline store has no such entry".into()),
                _ => Ok(()),
            }
        }
        ["reboot"] => {
            stage.world.reboot();
            Ok(())
        }
        _ => Err(format!("nobody knows how to {:?}", words.join(" "))),
    }
}

fn files(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    let text = |stage: &Stage, name: &str| -> Result<Bytes, String> {
        let text = stage.manifests.get(name);
        text.map(|text| Bytes::from(text.clone())).ok_or_else(|| format!("no manifest {name}"))
    };
    match words {
        ["put", file] => {
            let text = text(stage, file)?;
            stage.world.put_manifest(file, text);
        }
        ["put", file, "empty"] => stage.world.put_manifest(file, Bytes::new()),
        ["put", file, "half", "of", name] => {
            let text = text(stage, name)?;
            stage.world.put_manifest(file, text.slice(..text.len() / 2));
        }
        ["put", file, name] => {
            let text = text(stage, name)?;
            stage.world.put_manifest(file, text);
        }
        ["rename", old, "to", new] => {
            let text = stage.world.disk().manifests.file(old).cloned();
            let text = text.ok_or_else(|| format!("there is no file {old}"))?;
            stage.world.remove_manifest(old);
            stage.world.put_manifest(new, text);
        }
        ["remove", file] => {
            if stage.world.disk().manifests.file(file).is_none() {
                return Err(format!("there is no file {file}"));
            }
            stage.world.remove_manifest(file);
        }
        ["serve", "nothing"] => stage.world.serve_manifest(None),
        ["serve", name] => {
            let text = text(stage, name)?;
            stage.world.serve_manifest(Some(text));
        }
        ["manifests", "unmounted"] => {
            stage.world.disk.manifests.missing = true;
            stage.world.break_watch();
        }
        ["manifests", "mounted"] => stage.world.disk.manifests.missing = false,
        ["manifests", "unwatched"] => stage.world.break_watch(),
        _ => return Err(format!("no such work on files: {:?}", words.join(" "))),
    }
    Ok(())
}

/// Something dies, by itself or by a stranger's hand.
fn trouble(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    let (who, running) = match words {
        ["exit", who, ..] => (who, true),
        ["take", who] | ["kill", "sandbox", who] => (who, false),
        _ => return Err(format!("want who: {:?}", words.join(" "))),
    };
    let target = Target::parse(who);
    let ids: Vec<String> = stage.film().names.ids(&target).map(str::to_owned).collect();
    let runtime = stage.world.runtime();
    let container = |id: &&String| {
        runtime.container(id).is_some_and(|container| container.running() || !running)
    };
    let sandbox = |id: &&String| runtime.sandbox(id).is_some_and(|sandbox| sandbox.ready);
    let found: Vec<String> = match words[0] {
        "kill" => ids.iter().filter(sandbox).cloned().collect(),
        _ => ids.iter().filter(container).cloned().collect(),
    };
    let [id] = found.as_slice() else {
        return Err(format!("{who} means {} of what there is now, want one", found.len()));
    };
    match words {
        ["exit", _, code, reason @ ..] => {
            let code = code.parse().map_err(|_| format!("{code:?} is no exit code"))?;
            stage.world.kill_container(id, code, reason.first().unwrap_or(&""));
        }
        ["take", _] => stage.world.take_container(id),
        _ => stage.world.kill_sandbox(id),
    }
    Ok(())
}

fn clock(stage: &mut Stage, step: &str) -> Result<(), String> {
    let (back, length) = match (step.strip_prefix('-'), step.strip_prefix('+')) {
        (Some(length), _) => (true, length),
        (_, Some(length)) => (false, length),
        _ => {
            stage.world.set_clock(wall(step)?);
            return Ok(());
        }
    };
    let seconds = i64::try_from(span(length)?.secs()).map_err(|_| "too far".to_owned())?;
    stage.world.step_clock(if back { -seconds } else { seconds });
    Ok(())
}

fn runtime(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    match words {
        ["gone"] => stage.world.weather.absent = true,
        ["back"] => stage.world.weather.absent = false,
        ["restarts"] => stage.world.crash_runtime(),
        ["pulls", "fail"] => stage.world.weather.pulls_fail = true,
        ["pulls", "work"] => stage.world.weather.pulls_fail = false,
        ["network", "down"] => stage.world.set_network_down(true),
        ["network", "up"] => stage.world.set_network_down(false),
        ["pace", percent] => {
            let percent = percent.strip_suffix('%').and_then(|text| text.parse().ok());
            let percent = percent.ok_or("want `runtime pace 100%`")?;
            stage.world.runtime.set_pace(Pace(percent));
        }
        [method, "works"] => {
            stage.world.weather.rules.retain(|rule| rule.method != *method);
            stage.world.release_hung();
        }
        [method, "of", who, fate @ ..] => {
            let parts = parts(stage, who)?;
            let fate = self::fate(fate)?;
            let method = (*method).to_owned();
            stage.world.weather.rules.push(Rule { method, parts, fate });
        }
        [method, fate @ ..] => {
            let fate = self::fate(fate)?;
            let method = (*method).to_owned();
            stage.world.weather.rules.push(Rule { method, parts: Vec::new(), fate });
        }
        [] => return Err("what about the runtime?".into()),
    }
    Ok(())
}

fn fate(words: &[&str]) -> Result<Fate, String> {
    match words {
        ["hangs"] => Ok(Fate::Hangs),
        ["takes", time] => Ok(Fate::Through(span(time)?)),
        ["fails", message] => {
            let message = message.trim_start_matches('"').to_owned();
            Ok(Fate::Answered(Err(RpcError { code: 2, message })))
        }
        _ => Err(format!("want hangs, takes TIME or fails \"MESSAGE\", not {:?}", words.join(" "))),
    }
}

/// What the bytes of calls about a target contain: its id, or the pod's name for what has none yet.
fn parts(stage: &Stage, who: &str) -> Result<Vec<Vec<u8>>, String> {
    let target = Target::parse(who);
    let film = stage.film();
    let mut parts: Vec<Vec<u8>> =
        film.names.ids(&target).map(|id| id.as_bytes().to_vec()).collect();
    if target.container.is_none() {
        parts.push(format!("{}-{NODE}", target.pod).into_bytes());
    }
    if parts.is_empty() { Err(format!("{who} does not exist now")) } else { Ok(parts) }
}

fn helper(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    let share = match words {
        ["hangs"] => 100,
        ["works"] => 0,
        _ => return Err("want helper hangs or works".into()),
    };
    stage.world.helper_hangs = (share, HANG);
    Ok(())
}

/// What the machine has left, as it is measured.
fn machine(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    let signals = &mut stage.world.kernel.signals;
    match words {
        ["short", "of", "memory"] => signals.memory_available = 1 << 20,
        ["short", "of", "nodefs"] => signals.nodefs_available = 1 << 20,
        ["short", "of", "nodefs-inodes"] => signals.nodefs_inodes_free = 10,
        ["short", "of", "imagefs"] => signals.imagefs_available = 1 << 20,
        ["short", "of", "imagefs-inodes"] => signals.imagefs_inodes_free = 10,
        ["short", "of", "pids"] => signals.pids = signals.pids_max - 10,
        ["has", "plenty"] => *signals = plenty(),
        _ => return Err("want machine short of WHAT, or machine has plenty".into()),
    }
    Ok(())
}

fn disk(stage: &mut Stage, words: &[&str]) -> Result<(), String> {
    match words {
        ["full"] => stage.world.set_disk_full(true),
        ["roomy"] => stage.world.set_disk_full(false),
        ["read-only"] => stage.world.set_disk_read_only(true),
        ["writable"] => stage.world.set_disk_read_only(false),
        _ => return Err("want disk full, roomy, read-only or writable".into()),
    }
    Ok(())
}
