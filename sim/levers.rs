//! What an outsider can do to the world: edit manifests, set the clock, kill and break things.

use crate::doors::disk::fault;
use crate::doors::kernel::parent_path;
use crate::doors::listen::Manner;
use crate::doors::runtime::{Out, Pace};
use crate::setup::{LOGS_DIR, ROOT_DIR};
use crate::trace::{Change, Seen, StreamEnd};
use crate::world::{Due, World};
use bytes::Bytes;
use steplet_core::event::{FaultKind, Outcome};
use steplet_core::settings::CgroupDriver;
use steplet_core::time::{Span, Wall};

impl World {
    pub fn put_manifest(&mut self, name: &str, text: impl Into<Bytes>) {
        let text = text.into();
        self.disk.manifests.put(name, text.clone());
        // The judges read JSON only.
        let read = (self.disk.manifests.reader)(name, &text).content;
        let text = read.map_or(text, |content| content.json);
        self.change(&Change::ManifestPut { name: name.to_owned(), text });
        self.path_changed();
    }

    pub fn remove_manifest(&mut self, name: &str) {
        if self.disk.manifests.remove(name).is_some() {
            self.change(&Change::ManifestGone { name: name.to_owned() });
            self.path_changed();
        }
    }

    fn path_changed(&mut self) {
        let soon = if self.setup.swift { Span::ZERO } else { self.dice.millis(1, 20) };
        self.agenda.plan(self.clock.at() + soon, Due::PathChanged);
    }

    /// inotify loses the directory.
    pub fn break_watch(&mut self) {
        let watch = self.agent.as_mut().and_then(|agent| agent.watch.take());
        if let Some(caller) = watch {
            let lost = fault(FaultKind::Other, "inotify: the watched directory was unmounted");
            let outcome = Outcome::Disk(Err(lost));
            self.agenda.plan(self.clock.at(), Due::Answer { caller, outcome });
        }
    }

    /// What the manifest URL serves from now on; None refuses connections.
    pub fn serve_manifest(&mut self, text: Option<Bytes>) {
        if let Some(text) = &text {
            let name = self.setup.settings.static_pod_url.clone();
            let read = (self.disk.manifests.reader)(&name, text).content;
            let text = read.map_or(text.clone(), |content| content.json);
            self.change(&Change::ManifestPut { name, text });
        }
        self.disk.manifests.url = text;
    }

    pub fn set_disk_full(&mut self, full: bool) {
        self.disk.full = full;
    }

    pub fn set_disk_read_only(&mut self, read_only: bool) {
        self.disk.read_only = read_only;
    }

    /// The runtime has this image already.
    pub fn load_image(&mut self, image: &str) {
        let mut out = Out::default();
        self.runtime.load_image(image, &mut out);
        self.take(out);
    }

    /// An earlier agent has died while it cleaned up after a pod.
    pub fn leave_behind(&mut self, uid: &str) {
        self.disk.write(&format!("{ROOT_DIR}/pods/{uid}/etc-hosts"), b"");
        self.disk.write(&format!("{LOGS_DIR}/default_gone_{uid}/app/0.log"), b"");
        self.kernel.make(&match self.setup.settings.cgroup_driver {
            CgroupDriver::Cgroupfs => format!("kubepods/burstable/pod{uid}"),
            CgroupDriver::Systemd => parent_path(&format!("kubepods-burstable-pod{uid}.slice")),
        });
    }

    /// Nobody can be asked for slices.
    pub fn set_systemd_gone(&mut self, gone: bool) {
        self.kernel.systemd_gone = gone;
    }

    pub fn set_network_down(&mut self, down: bool) {
        self.runtime.network_down = down;
    }

    pub fn set_runtime_pace(&mut self, percent: u64) {
        self.runtime.set_pace(Pace(percent));
    }

    /// The wall clock shows this instant: a board without a battery starts in 1970.
    pub fn set_clock(&mut self, wall: Wall) {
        let seconds = (wall.0 - self.clock.wall().0) / 1_000_000_000;
        self.clock.set_wall(wall);
        self.change(&Change::ClockStepped { seconds });
        self.show_way();
    }

    pub fn step_clock(&mut self, seconds: i64) {
        self.clock.step_wall(seconds * 1_000_000_000);
        self.change(&Change::ClockStepped { seconds });
        self.show_way();
    }

    /// kill -9.
    pub fn kill_agent(&mut self) {
        self.end_agent(None);
    }

    /// The service manager starts the agent again.
    pub fn start_agent_after(&mut self, span: Span) {
        self.agenda.plan(self.clock.at() + span, Due::Start);
    }

    /// The machine loses power and boots: the agent is down, every program is dead.
    pub fn reboot(&mut self) {
        self.end_agent(None);
        self.change(&Change::Rebooted);
        let mut out = Out::default();
        self.runtime.reboot(self.clock.wall(), &mut out);
        self.take(out);
        self.disk.reboot();
        self.kernel.reboot();
        self.clock.reboot();
        let boots: u64 = self.setup.machine.boot_id["boot-".len()..].parse().unwrap_or(0);
        self.setup.machine.boot_id = format!("boot-{}", boots + 1);
    }

    /// The runtime's process ends; its open calls end with an error.
    pub fn crash_runtime(&mut self) {
        self.runtime.crash();
        self.change(&Change::RuntimeCrashed);
        self.drop_rpcs();
        self.end_streams(StreamEnd::Server, |_, _| true);
    }

    /// A program in a container dies.
    pub fn kill_container(&mut self, id: &str, exit_code: i32, reason: &str) {
        let mut out = Out::default();
        self.runtime.kill_container(self.clock.wall(), id, exit_code, reason, &mut out);
        self.take(out);
    }

    /// Somebody else removes a container.
    pub fn take_container(&mut self, id: &str) {
        let mut out = Out::default();
        self.runtime.take_container(self.clock.wall(), id, &mut out);
        self.take(out);
    }

    /// The pause process of a sandbox dies.
    pub fn kill_sandbox(&mut self, id: &str) {
        let mut out = Out::default();
        self.runtime.kill_sandbox(id, &mut out);
        self.take(out);
    }

    pub fn change(&mut self, change: &Change) {
        self.show(&Seen::Change(change));
    }

    /// Every fault that lasts is over.
    pub fn heal(&mut self) {
        self.weather = Default::default();
        self.helper_hangs = (0, Span::ZERO);
        self.disk.full = false;
        self.disk.read_only = false;
        self.kernel.systemd_gone = false;
        self.disk.manifests.missing = false;
        self.runtime.network_down = false;
        self.runtime.set_pace(Pace(if self.setup.swift { 0 } else { 100 }));
        self.listen.manner = Manner::Serves;
        self.release_hung();
        self.heal_api();
        if self.agent.is_none() {
            self.start_agent();
        }
        self.change(&Change::Healed);
    }
}
