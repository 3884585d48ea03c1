//! `steplet run --simulate`: the core and its pods in a simulated world, at the pace of the clock.

use super::columns::tell;
use super::manifests::Manifests;
use super::table::{Manner, Table};
use crate::shell::yaml::{self, Limits};
use crate::shell::{boot, log};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use steplet_core::event;
use steplet_core::time::{Span, Wall};
use steplet_sim::setup::Setup;
use steplet_sim::world::World;

/// How long the world stands still between two looks at it.
const PACE: Duration = Duration::from_millis(50);

/// Runs the manifests until Ctrl-C or for a while. Returns the exit status. Errors: a sentence for
/// people.
pub fn run(manifests: &Manifests, stop_after: Option<Duration>) -> Result<i32, String> {
    let seed = boot::seed().map_err(|error| format!("no random seed: {error}"))?;
    let mut setup = Setup::new(seed);
    let names = manifests.names(Path::new(&setup.settings.static_pod_path));
    setup.settings.stop_pods_on_exit = true;
    setup.wall = wall();
    let (mut world, refused) = world(manifests, setup);
    let signals = signals().map_err(|errno| format!("signals cannot be read: {errno}"))?;
    let text = "this node is simulated: no container really runs, every image exists, and no path of \
                the host does";
    tell("steplet", text);
    let mut table = Table::new(Manner { names, refused, simulated: true, ..Manner::default() });
    if table.is_drawn() {
        log::hold();
    }
    let began = Instant::now();
    let mut passed = Duration::ZERO;
    let mut stopping = false;
    world.start_agent();
    while let Some(core) = world.core() {
        table.show(core, world.clock().now());
        std::thread::sleep(PACE);
        let asked = matches!(signals.read_signal(), Ok(Some(_)));
        if asked && stopping {
            break;
        }
        let now = began.elapsed();
        if asked || !stopping && stop_after.is_some_and(|after| after <= now) {
            stopping = true;
            world.signal(event::Signal::Interrupt);
        }
        world.run_for(span(now - passed));
        passed = now;
    }
    log::show_held();
    Ok(0)
}

/// A healthy node whose agent is still to be started, and the files that cannot be read, each with the
/// reason: as on a real node, they keep no other pod from running.
fn world(manifests: &Manifests, setup: Setup) -> (World, BTreeMap<String, String>) {
    let mut world = World::new(setup);
    let mut refused = BTreeMap::new();
    for (name, file) in manifests.iter() {
        match json(file) {
            Ok(json) => world.put_manifest(&name.to_string_lossy(), json),
            Err(why) => drop(refused.insert(file.display().to_string(), why)),
        }
    }
    (world, refused)
}

/// The simulated disk holds JSON only.
fn json(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let text = fs::read(file).map_err(|error| format!("{shown}: {error}"))?;
    let document = yaml::to_json(&text, Limits::FILE);
    document
        .map(|document| document.json)
        .map_err(|e| format!("{shown}: line {}: {}", e.line, e.what))
}

/// SIGINT, SIGTERM and SIGHUP, to be read from now on.
fn signals() -> nix::Result<SignalFd> {
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}

fn wall() -> Wall {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

fn span(duration: Duration) -> Span {
    Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
