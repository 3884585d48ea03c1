//! Everything that goes wrong on a node, each kind by its name, drawn from the seed and counted.

use crate::agenda::Agenda;
use crate::clock::{At, EPOCH};
use crate::dice::Dice;
use crate::doors::api::link::{Lists, Trouble};
use crate::doors::rpc::Weather;
use crate::setup::NODE;
use crate::swarm::workload::Workload;
use crate::trace::Change;
use crate::world::World;
use std::collections::BTreeMap;
use steplet_core::event::Signal;
use steplet_core::time::{Span, Wall};

macro_rules! kinds {
    ($($kind:ident = $name:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($kind),* }

        /// Every kind of fault there is.
        pub const ALL: &[Kind] = &[$(Kind::$kind),*];

        impl Kind {
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }
        }
    };
}

kinds! {
    RuntimeAbsent = "runtime absent",
    RuntimeSlow = "runtime slow",
    RuntimeHang = "runtime hangs on a call",
    RuntimeRestart = "runtime restarts",
    RuntimeError = "runtime answers an error",
    RuntimeNonsense = "runtime answers nonsense",
    Overrun = "call ends after its deadline",
    OldNews = "runtime tells old news",
    NetworkDown = "pod network down",
    PullFails = "image pull fails",
    DiskFull = "disk full",
    DiskReadOnly = "disk read-only",
    TornManifest = "manifest torn",
    Duplicate = "manifest duplicated",
    WatchLost = "watch lost",
    UrlRefuses = "manifest URL refuses",
    ClockHour = "clock steps an hour",
    ClockYears = "clock steps years",
    Clock1970 = "boot in 1970",
    AgentKilled = "agent killed",
    AgentTerminated = "agent terminated",
    Reboot = "machine reboots",
    ContainerCrash = "container crashes",
    OomKill = "container out of memory",
    SandboxDies = "sandbox dies",
    ContainerTaken = "container removed by another",
    HelperHangs = "helper hangs",
    Leftovers = "leftovers of a pod",
    SystemdGone = "systemd gone",
    ApiDown = "API server down",
    ApiUnreachable = "API server unreachable",
    ApiSlow = "API server slow",
    ApiUnauthorized = "API server knows nobody",
    ApiForbids = "API server forbids",
    ApiThrottles = "API server throttles",
    ApiFails = "API server fails",
    ApiLoses = "API answer lost",
    WatchesCut = "watches cut",
    HistoryLost = "API history lost",
    NodeDeleted = "node deleted",
    ApiListsBlank = "API lists blank",
    OfflineReboot = "machine reboots without the API server",
    OfflineRestart = "agent restarts without the API server",
    StoreSpoiled = "offline store damaged",
}

/// The faults that a node without a cluster can have come first.
const LOCAL: usize = 29;

/// The end of a fault that lasts.
#[derive(Clone, Debug)]
enum End {
    Absent,
    Slow,
    Weather(fn(&mut Weather)),
    Hang,
    Network,
    Full,
    ReadOnly,
    Helper,
    Systemd,
    Clock,
    Serve(bytes::Bytes),
    Way,
    RemoveFile(String),
    Rewrite(String, bytes::Bytes),
    /// The agent should have left by now.
    Left,
}

pub struct Faults {
    dice: Dice,
    next: At,
    ends: Agenda<End>,
    fired: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub fn new(dice: Dice, at: At) -> Faults {
        let next = at + Span::from_secs(20);
        Faults { dice, next, ends: Agenda::default(), fired: BTreeMap::new() }
    }

    pub fn next_at(&self) -> At {
        self.ends.next_at().map_or(self.next, |end| end.min(self.next))
    }

    /// Ends what is over, or begins something new.
    pub fn act(&mut self, world: &mut World, workload: &mut Workload) {
        if self.ends.next_at().is_some_and(|end| end <= world.at()) {
            if let Some((_, end)) = self.ends.pop() {
                finish(end, world);
            }
            return;
        }
        let joined = world.setup().settings.api.is_some();
        let kind = *self.dice.pick(if joined { ALL } else { &ALL[..LOCAL] });
        if self.begin(kind, world, workload) {
            *self.fired.entry(kind.name()).or_default() += 1;
        }
        self.next = world.at() + self.dice.millis(500, 70_000);
    }

    /// Everything is over; the next fault comes after `quiet`.
    pub fn heal(&mut self, world: &mut World, quiet: Span) {
        while let Some((_, end)) = self.ends.pop() {
            finish(end, world);
        }
        world.heal();
        self.next = world.at() + quiet;
    }

    /// How often each kind had a victim. What lies in wait for calls counts the calls that it struck.
    pub fn fired(&self, world: &World) -> BTreeMap<&'static str, u64> {
        let lies_in_wait = [
            Kind::RuntimeAbsent,
            Kind::RuntimeHang,
            Kind::RuntimeError,
            Kind::RuntimeNonsense,
            Kind::Overrun,
            Kind::OldNews,
            Kind::PullFails,
            Kind::DiskFull,
            Kind::DiskReadOnly,
            Kind::TornManifest,
            Kind::UrlRefuses,
            Kind::HelperHangs,
            Kind::ApiDown,
            Kind::ApiUnreachable,
            Kind::ApiSlow,
            Kind::ApiUnauthorized,
            Kind::ApiForbids,
            Kind::ApiThrottles,
            Kind::ApiFails,
            Kind::ApiLoses,
            Kind::ApiListsBlank,
        ];
        let count = |kind: &Kind| {
            let counts = if lies_in_wait.contains(kind) { &world.struck } else { &self.fired };
            (kind.name(), counts.get(kind.name()).copied().unwrap_or(0))
        };
        ALL.iter().map(count).collect()
    }

    fn last(&mut self, world: &World, low_ms: u64, high_ms: u64, end: End) {
        let at = world.at() + self.dice.millis(low_ms, high_ms);
        self.ends.plan(at, end);
    }

    /// Whether there was something to break.
    fn begin(&mut self, kind: Kind, world: &mut World, workload: &mut Workload) -> bool {
        let on = self.victim(kind, world);
        world.change(&Change::Fault { kind: kind.name(), on: on.clone().unwrap_or_default() });
        match kind {
            Kind::RuntimeAbsent | Kind::RuntimeRestart => {
                world.crash_runtime();
                world.weather.absent = true;
                let most = if kind == Kind::RuntimeRestart { 3_000 } else { 90_000 };
                self.last(world, 200, most, End::Absent);
            }
            Kind::RuntimeSlow => {
                world.set_runtime_pace(self.dice.between(500, 4_000));
                self.last(world, 10_000, 60_000, End::Slow);
            }
            Kind::RuntimeHang => {
                let methods = [
                    "ContainerStatus",
                    "PodSandboxStatus",
                    "StopContainer",
                    "StartContainer",
                    "RemoveContainer",
                    "CreateContainer",
                    "RunPodSandbox",
                    "ListContainers",
                    "ListPodSandbox",
                    "",
                ];
                let method = *self.dice.pick(&methods);
                // A call on one container or sandbox names it; the others hang for everybody.
                let one = method.ends_with("Status") || method.is_empty();
                let part = on.filter(|_| one).map(String::into_bytes).unwrap_or_default();
                world.weather.hang = Some((method.to_owned(), part));
                self.last(world, 5_000, 200_000, End::Hang);
            }
            Kind::RuntimeError => {
                world.weather.errors = self.dice.between(5, 40);
                self.last(world, 5_000, 60_000, End::Weather(|weather| weather.errors = 0));
            }
            Kind::RuntimeNonsense => {
                world.weather.nonsense = self.dice.between(3, 20);
                self.last(world, 5_000, 30_000, End::Weather(|weather| weather.nonsense = 0));
            }
            Kind::Overrun => {
                world.weather.overrun = self.dice.between(20, 60);
                world.weather.overrun_by = self.dice.millis(119_000, 180_000);
                self.last(world, 10_000, 60_000, End::Weather(|weather| weather.overrun = 0));
            }
            Kind::OldNews => {
                world.weather.late = self.dice.between(30, 100);
                world.weather.late_by = self.dice.millis(500, 8_000);
                self.last(world, 10_000, 90_000, End::Weather(|weather| weather.late = 0));
            }
            Kind::PullFails => {
                world.weather.pulls_fail = true;
                self.last(
                    world,
                    10_000,
                    90_000,
                    End::Weather(|weather| weather.pulls_fail = false),
                );
            }
            Kind::NetworkDown => {
                world.set_network_down(true);
                self.last(world, 5_000, 60_000, End::Network);
            }
            _ => return self.begin_elsewhere(kind, on, world, workload),
        }
        true
    }

    /// Faults that are not the runtime's.
    fn begin_elsewhere(
        &mut self,
        kind: Kind,
        on: Option<String>,
        world: &mut World,
        workload: &mut Workload,
    ) -> bool {
        match kind {
            Kind::DiskFull => {
                world.set_disk_full(true);
                self.last(world, 5_000, 90_000, End::Full);
            }
            Kind::DiskReadOnly => {
                world.set_disk_read_only(true);
                self.last(world, 5_000, 90_000, End::ReadOnly);
            }
            Kind::TornManifest => return self.tear(world),
            Kind::Duplicate => {
                let Some((name, text)) = workload.stale_copy() else { return false };
                world.put_manifest(&name, text);
                self.last(world, 1_000, 300_000, End::RemoveFile(name));
            }
            Kind::WatchLost => world.break_watch(),
            Kind::Leftovers => world.leave_behind(&self.dice.hex(32)),
            Kind::UrlRefuses => {
                let Some(text) = world.disk().manifests.url.clone() else { return false };
                world.serve_manifest(None);
                self.last(world, 5_000, 120_000, End::Serve(text));
            }
            Kind::ClockHour => {
                let seconds = *self.dice.pick(&[3_600, -3_600, 40, -40, -10_800]);
                world.step_clock(seconds);
            }
            Kind::ClockYears => {
                let day = 86_400;
                let seconds = *self.dice.pick(&[400 * day, -400 * day, -3_650 * day, 3_650 * day]);
                world.step_clock(seconds);
                self.last(world, 10_000, 300_000, End::Clock);
            }
            Kind::Clock1970 => {
                world.reboot();
                world.set_clock(Wall(0));
                self.come_up(world);
                self.last(world, 60_000, 360_000, End::Clock);
            }
            Kind::AgentKilled => {
                world.kill_agent();
                world.start_agent_after(self.dice.millis(50, 10_000));
            }
            Kind::AgentTerminated => {
                world.signal(Signal::Terminate);
                self.last(world, 10_000, 10_000, End::Left);
            }
            Kind::Reboot => {
                world.reboot();
                self.come_up(world);
            }
            Kind::HelperHangs => {
                world.helper_hangs = (self.dice.between(20, 80), self.dice.millis(30_000, 200_000));
                self.last(world, 10_000, 60_000, End::Helper);
            }
            Kind::SystemdGone => {
                world.set_systemd_gone(true);
                self.last(world, 5_000, 90_000, End::Systemd);
            }
            _ if ALL[LOCAL..].contains(&kind) => return self.begin_on_the_way(kind, world),
            _ => return on.is_some_and(|id| self.strike(kind, &id, world)),
        }
        true
    }

    /// Faults of the API server, and of the way there.
    fn begin_on_the_way(&mut self, kind: Kind, world: &mut World) -> bool {
        let mut answers = |world: &mut World, codes: &[u16], share: u64| {
            let code = *self.dice.pick(codes);
            let patience = code == 429 || self.dice.chance(20);
            let retry_after = patience.then(|| Span::from_secs(self.dice.between(1, 10)));
            let trouble = Trouble { code, retry_after, share, subject: String::new() };
            world.change_way(|link| link.trouble = Some(trouble));
        };
        match kind {
            Kind::ApiDown => world.stop_api(),
            Kind::ApiUnreachable => world.change_way(|link| link.hole = true),
            Kind::ApiSlow => {
                let slow_by = self.dice.millis(500, 20_000);
                world.change_way(|link| link.slow_by = slow_by);
            }
            Kind::ApiUnauthorized => answers(world, &[401], 100),
            Kind::ApiForbids => answers(world, &[403], 100),
            Kind::ApiThrottles => answers(world, &[429], 70),
            Kind::ApiFails => answers(world, &[500, 503, 504], 60),
            Kind::ApiLoses => {
                let lost = self.dice.between(20, 100);
                world.change_way(|link| link.lost = lost);
            }
            Kind::ApiListsBlank => {
                world.change_way(|link| link.lists = Lists::Blank);
                world.api.expire();
                world.with_api(|api, at, out| api.cut_watches(at, out));
            }
            Kind::OfflineReboot => {
                world.stop_api();
                world.reboot();
                self.come_up(world);
            }
            Kind::OfflineRestart => {
                world.stop_api();
                world.kill_agent();
                world.start_agent_after(self.dice.millis(50, 10_000));
            }
            Kind::StoreSpoiled => {
                let entries = world.disk().offline.len() as u64;
                return entries > 0
                    && world.disk.offline.spoil_one(self.dice.below(entries) as usize);
            }
            Kind::WatchesCut => {
                return world.with_api(|api, at, out| api.cut_watches(at, out)) > 0;
            }
            Kind::HistoryLost => {
                world.api.expire();
                return world.with_api(|api, at, out| api.cut_watches(at, out)) > 0;
            }
            _ => return world.api_delete(("nodes", "", NODE), None).is_ok(),
        }
        self.last(world, 2_000, 150_000, End::Way);
        true
    }

    /// What befalls a container or a sandbox.
    fn strike(&mut self, kind: Kind, id: &str, world: &mut World) -> bool {
        match kind {
            Kind::OomKill => world.kill_container(id, 137, "OOMKilled"),
            Kind::ContainerCrash => {
                world.kill_container(id, *self.dice.pick(&[1, 2, 139]), "");
            }
            Kind::SandboxDies => world.kill_sandbox(id),
            Kind::ContainerTaken => world.take_container(id),
            _ => return false,
        }
        true
    }

    /// The runtime is back a little before the agent, or after it.
    fn come_up(&mut self, world: &mut World) {
        world.weather.absent = true;
        self.last(world, 500, 6_000, End::Absent);
        world.start_agent_after(self.dice.millis(500, 6_000));
    }

    /// Half of a manifest is lost for a while.
    fn tear(&mut self, world: &mut World) -> bool {
        let files: Vec<(String, bytes::Bytes)> = world
            .disk()
            .manifests
            .files()
            .map(|(name, text)| (name.to_owned(), text.clone()))
            .collect();
        if files.is_empty() {
            return false;
        }
        let (name, text) = self.dice.pick(&files).clone();
        let half = text.slice(..self.dice.below(text.len() as u64) as usize);
        world.put_manifest(&name, half);
        self.last(world, 50, 45_000, End::Rewrite(name, text));
        true
    }

    /// The sandbox or container that a fault hits.
    fn victim(&mut self, kind: Kind, world: &World) -> Option<String> {
        let runtime = world.runtime();
        let victims: Vec<&str> = match kind {
            Kind::ContainerCrash | Kind::OomKill => {
                runtime.containers().filter(|(_, c)| c.running()).map(|(id, _)| id).collect()
            }
            Kind::ContainerTaken => runtime.containers().map(|(id, _)| id).collect(),
            Kind::SandboxDies => {
                runtime.sandboxes().filter(|(_, s)| s.ready).map(|(id, _)| id).collect()
            }
            Kind::RuntimeHang => (runtime.containers().map(|(id, _)| id))
                .chain(runtime.sandboxes().map(|(id, _)| id))
                .collect(),
            _ => return None,
        };
        if victims.is_empty() {
            return None;
        }
        Some((*self.dice.pick(&victims)).to_owned())
    }
}

fn finish(end: End, world: &mut World) {
    match end {
        End::Absent => world.weather.absent = false,
        End::Slow => world.set_runtime_pace(100),
        End::Weather(change) => change(&mut world.weather),
        End::Hang => {
            world.weather.hang = None;
            world.release_hung();
        }
        End::Network => world.set_network_down(false),
        End::Full => world.set_disk_full(false),
        End::ReadOnly => world.set_disk_read_only(false),
        End::Way => world.heal_api(),
        End::Helper => world.helper_hangs = (0, Span::ZERO),
        End::Systemd => world.set_systemd_gone(false),
        End::Clock => world.set_clock(Wall(EPOCH.0 + world.at().0 as i64)),
        End::Serve(text) => {
            // Somebody may have published something newer meanwhile.
            if world.disk().manifests.url.is_none() {
                world.serve_manifest(Some(text));
            }
        }
        End::RemoveFile(name) => world.remove_manifest(&name),
        // Somebody may have written or removed the file meanwhile.
        End::Rewrite(name, text) => {
            let torn = world.disk().manifests.file(&name).is_some_and(|now| text.starts_with(now));
            if torn {
                world.put_manifest(&name, text);
            }
        }
        End::Left => {
            if world.core().is_some() && !world.restarted_lately() {
                world.violate("SIGTERM ends the agent within 10 s", "it is still there".into());
            }
            world.start_agent();
        }
    }
}
