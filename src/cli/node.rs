//! What the commands that run a node have in common: from settings to a running loop.

use super::flags;
use crate::shell::boot::{self, LockError};
use crate::shell::crash;
use crate::shell::doors::api::ApiServer;
use crate::shell::doors::listen::Listeners;
use crate::shell::doors::{Outside, make_dirs};
use crate::shell::offline::Store;
use crate::shell::reactor::{Reactor, Watcher};
use crate::shell::vault::Vault;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use steplet_core::effect::KeptEntry;
use steplet_core::event::Boot;
use steplet_core::settings::Settings;

/// Everything that start-up decided.
pub struct Node {
    pub held: Held,
    pub settings: Settings,
    /// Sockets of the container runtime.
    pub runtime: PathBuf,
    pub images: PathBuf,
    /// `--node-ip`
    pub node_ip: String,
    /// The ports that are served.
    pub listeners: Listeners,
    /// The API server of its cluster, if it has one, and the same by its bootstrap credentials.
    pub api: Option<(ApiServer, Option<ApiServer>)>,
    /// `--offline-key-file`
    pub offline_key: String,
    /// Where to record the run, and how much to keep.
    pub tape: Option<(PathBuf, u64)>,
    pub vault: Vault,
    pub watcher: Option<Watcher>,
    pub stop_after: Option<Duration>,
}

impl Node {
    /// Runs until the end. Returns the exit status. Errors: a sentence for people.
    pub fn run(mut self) -> Result<i32, String> {
        let (offline, kept) = self.open_offline();
        let _until_the_end = self.held;
        let watchdog = boot::Watchdog::wanted()?;
        let root = Path::new(&self.settings.root_dir);
        for (dir, mode) in [
            (root.join("pods"), 0o750),
            // Where the runtime writes what /checkpoint asks for.
            (root.join("checkpoints"), 0o700),
            (self.settings.pod_logs_dir.clone().into(), 0o750),
        ] {
            make_dirs(&dir, mode).map_err(|fault| fault.message)?;
        }
        let mut machine = boot::machine();
        machine.host_ips = host_ips(&self.node_ip, machine.host_ips)?;
        let crashes = root.join("crashes");
        let set_aside = crash::set_aside(&crashes);
        for aside in &set_aside {
            log::error!(
                "{} is set aside until it changes: it brought this program down three times",
                aside.name
            );
        }
        crash::watch(&crashes, &machine.boot_id);
        let (api, bootstrap) = self.api.unzip();
        let outside = Outside {
            offline,
            images: self.images,
            set_aside: set_aside.clone(),
            listeners: self.listeners,
            api,
            bootstrap: bootstrap.flatten(),
            ..Outside::of(self.runtime)
        };
        let seed = boot::seed().map_err(|error| format!("no random seed: {error}"))?;
        let loop_error = |error| format!("the loop cannot go on: {error}");
        let mut reactor = Reactor::new(outside, self.vault).map_err(loop_error)?;
        if let Some((dir, max_bytes)) = &self.tape {
            reactor.record(dir, *max_bytes, seed);
        }
        if let Some(watcher) = self.watcher {
            reactor.watch(watcher);
        }
        if let Some(watchdog) = watchdog {
            reactor.feed(watchdog);
        }
        if let Some(span) = self.stop_after {
            reactor.stop_after(span);
        }
        let boot = Boot { seed, settings: self.settings, machine, set_aside, kept };
        reactor.start(boot);
        boot::notify_ready();
        reactor.run().map_err(loop_error)
    }

    /// The store for times without the API server, and what is in it. A node goes on without one.
    fn open_offline(&mut self) -> (Option<Store>, Vec<KeptEntry>) {
        let Some(api) = self.settings.api.as_mut().filter(|api| api.offline) else {
            return (None, Vec::new());
        };
        match Store::open(Path::new(&self.settings.root_dir), &self.offline_key) {
            Ok(store) => {
                let kept = store.read(&mut self.vault);
                (Some(store), kept)
            }
            Err(why) => {
                log::error!("Nothing is kept for times without the API server: {why}");
                api.offline = false;
                (None, Vec::new())
            }
        }
    }
}

/// What `--node-ip` makes of the addresses found: nothing, a choice of the family that comes first,
/// or others.
fn host_ips(node_ip: &str, mut found: Vec<String>) -> Result<Vec<String>, String> {
    let is_v6 = |ip: &String| ip.contains(':');
    match node_ip {
        "" => return Ok(found),
        "0.0.0.0" => found.sort_by_key(is_v6),
        "::" => found.sort_by_key(|ip| !is_v6(ip)),
        list => found = flags::node_ips(list)?.iter().map(IpAddr::to_string).collect(),
    }
    Ok(found)
}

/// The locks of a node, held until it ends.
pub struct Held(#[expect(dead_code, reason = "held, not read")] (boot::Lock, Option<boot::Lock>));

/// Takes the root directory and the runtime for this process, before anything there is touched.
pub fn hold(root: &Path, runtime: &Path) -> Result<Held, String> {
    Ok(Held((lock(root)?, lock_runtime(runtime)?)))
}

fn lock(root: &Path) -> Result<boot::Lock, String> {
    let place = root.display();
    boot::lock(root).map_err(|error| match error {
        LockError::Held(pid) => {
            let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            format!("another agent{pid} uses {place}: end it, or choose another --root-dir")
        }
        LockError::Io(error) => format!("cannot use {place}: {error}"),
    })
}

/// Two agents on one runtime take each other's pods for leftovers, whatever their root directories.
fn lock_runtime(socket: &Path) -> Result<Option<boot::Lock>, String> {
    match boot::lock_beside(socket) {
        Ok(lock) => Ok(lock),
        Err(LockError::Held(pid)) => {
            let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            let socket = socket.display();
            Err(format!(
                "another agent{pid} drives the runtime at {socket}: end it, or choose another \
                 runtime with --container-runtime-endpoint"
            ))
        }
        Err(LockError::Io(error)) => {
            log::warn!("Cannot see whether another agent drives {}: {error}", socket.display());
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_node() {
        let check = |flag, want: Option<&[&str]>| {
            let found = vec!["10.0.0.1".to_owned(), "2001:db8::1".to_owned()];
            let want = want.map(|want| want.iter().map(|ip| (*ip).to_owned()).collect());
            assert_eq!(host_ips(flag, found).ok(), want, "{flag}");
        };
        check("", Some(&["10.0.0.1", "2001:db8::1"]));
        check("::", Some(&["2001:db8::1", "10.0.0.1"]));
        check("0.0.0.0", Some(&["10.0.0.1", "2001:db8::1"]));
        check("192.0.2.7", Some(&["192.0.2.7"]));
        check("192.0.2.7,2001:db8::7", Some(&["192.0.2.7", "2001:db8::7"]));
        check("192.0.2.7,192.0.2.8", None);
        check("node1", None);
    }
}
