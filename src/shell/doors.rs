//! The doors between the core and the world: an effect goes out through one, and its answer comes
//! back.

pub mod api;
mod disk;
mod helper;
mod kernel;
mod keyring;
pub mod listen;
#[cfg(test)]
pub(crate) mod may_mount;
pub mod pki;
mod rpc;
mod signal;
mod splice;
mod unseal;

pub use disk::{Loaded, make_dirs, understand};
pub use helper::{Job, serve};
pub use kernel::Kernel;

use super::offline::Store;
use super::vault::Vault;
use api::ApiServer;
use helper::Asker;
use listen::{Listen, Listeners};
use mio::Registry;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use steplet_core::effect::{Call, Effect, KernelOp, Lane};
use steplet_core::event::{Event, Fault, FaultKind, HelperReply, Item, Outcome, Request, SetAside};
use steplet_core::ids::{RequestId, Token};
use steplet_core::time::{Mono, Span};

/// Which door a descriptor belongs to; in the low bits of its `mio::Token`, with the door's own
/// index above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Signal,
    Rpc,
    Disk,
    Helper,
    Listen,
    Api,
    /// The runtime's end of a stream; the index is that of the client's connection.
    Stream,
    /// The API server, with the credentials of the bootstrap kubeconfig.
    Bootstrap,
}

const DOORS: [Door; 8] = [
    Door::Signal,
    Door::Rpc,
    Door::Disk,
    Door::Helper,
    Door::Listen,
    Door::Api,
    Door::Stream,
    Door::Bootstrap,
];
const DOOR_BITS: u32 = 3;

impl Door {
    pub(crate) fn token(self, index: usize) -> mio::Token {
        mio::Token(index << DOOR_BITS | self as usize)
    }

    fn of(token: mio::Token) -> (Door, usize) {
        (DOORS[token.0 & ((1 << DOOR_BITS) - 1)], token.0 >> DOOR_BITS)
    }
}

/// Events on their way to the core, in the order in which they were taken from the world.
///
/// It is the one place that keeps the promise of a token: exactly one Done for each call, and after
/// a Cancel nothing.
#[derive(Default)]
pub struct Inbox {
    events: VecDeque<Event>,
    /// The calls without a Done in the core, and whether that Done lies in `events`.
    open: BTreeMap<Token, bool>,
    /// Bytes of the lines of watches in `events`.
    lines: usize,
    /// Tokens that requests in `events` came with.
    bearers: BTreeMap<RequestId, String>,
}

/// While lines of so many bytes wait for the core, no more are read.
const LINES_MAX: usize = 1 << 20;

impl Inbox {
    pub fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A request, and the bearer token that it came with.
    pub fn request(&mut self, request: Request, bearer: Option<&str>) {
        if let Some(bearer) = bearer {
            self.bearers.insert(request.id, bearer.to_owned());
        }
        self.push(Event::Request(Box::new(request)));
    }

    pub fn done(&mut self, token: Token, outcome: Outcome) {
        let Some(answered) = self.open.get_mut(&token) else { return };
        assert!(!*answered, "call {} ended twice", token.0);
        *answered = true;
        self.events.push_back(Event::Done { token, outcome });
    }

    pub fn item(&mut self, token: Token, item: Item) {
        if let Some(answered) = self.open.get(&token) {
            assert!(!*answered, "call {} goes on after its end", token.0);
            if let Item::Line(line) = &item {
                self.lines += line.len();
            }
            self.events.push_back(Event::Item { token, item });
        }
    }

    /// Whether watches shall wait.
    pub fn is_full(&self) -> bool {
        self.lines >= LINES_MAX
    }

    fn open(&mut self, token: Token) {
        let fresh = self.open.insert(token, false).is_none();
        assert!(fresh, "the core used token {} twice", token.0);
    }

    fn take(&mut self) -> Option<Event> {
        loop {
            let event = self.events.pop_front()?;
            if let Event::Item { item: Item::Line(line), .. } = &event {
                self.lines -= line.len();
            }
            match &event {
                Event::Done { token, .. } if self.open.remove(token).is_none() => {}
                Event::Item { token, .. } if !self.open.contains_key(token) => {}
                _ => return Some(event),
            }
        }
    }
}

/// What the doors must know of the outside.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The sockets of `containerRuntimeEndpoint` and `imageServiceEndpoint`.
    pub runtime: PathBuf,
    pub images: PathBuf,
    /// The program that helper processes run: this one, except in tests.
    pub program: PathBuf,
    /// As in `Boot`.
    pub set_aside: Vec<SetAside>,
    pub listeners: Listeners,
    /// The cluster, if there is one.
    pub api: Option<ApiServer>,
    /// Where things are kept for times without it.
    pub offline: Option<Store>,
    /// The same with credentials that are good for asking for others, if there are such.
    pub bootstrap: Option<ApiServer>,
}

impl Outside {
    /// With the runtime's socket for both services, and no ports open.
    pub fn of(runtime: impl Into<PathBuf>) -> Outside {
        let runtime = runtime.into();
        Outside {
            images: runtime.clone(),
            runtime,
            program: "/proc/self/exe".into(),
            set_aside: Vec::new(),
            listeners: Listeners::default(),
            api: None,
            offline: None,
            bootstrap: None,
        }
    }
}

/// How long the reading of manifests may go on in one turn.
const SCAN_PER_TURN: Duration = Duration::from_millis(3);

/// All changes of cgroups share one lock of the kernel. While a runtime starts many containers, who
/// waits for it waits long: an operation that took this long sends those after it to a helper.
const CGROUPS_SLOW: Duration = Duration::from_millis(3);
const CGROUPS_AWAY: Span = Span::from_secs(2);

pub struct Doors {
    inbox: Inbox,
    vault: Vault,
    signal: signal::Signals,
    rpc: rpc::Rpc,
    /// None when the node stands alone.
    api: Option<api::Api>,
    /// What goes this way has nothing to do with the other: no request leaves by the wrong credentials.
    bootstrap: Option<api::Api>,
    disk: disk::Disk,
    kernel: kernel::Kernel,
    helpers: helper::Helpers,
    listen: Listen,
    offline: Option<Store>,
    /// Until then cgroups are changed in a helper.
    cgroups_slow_until: Mono,
}

impl Doors {
    pub fn new(registry: &Registry, outside: Outside, vault: Vault) -> io::Result<Doors> {
        let open = |door, server: Option<ApiServer>| -> io::Result<_> {
            let Some(server) = server else { return Ok(None) };
            Ok(Some(api::Api::new(registry.try_clone()?, door, server)))
        };
        Ok(Doors {
            api: open(Door::Api, outside.api)?,
            bootstrap: open(Door::Bootstrap, outside.bootstrap)?,
            inbox: Inbox::default(),
            vault,
            signal: signal::Signals::new(registry)?,
            rpc: rpc::Rpc::new(registry.try_clone()?, &outside.runtime, &outside.images),
            disk: disk::Disk::new(registry.try_clone()?, outside.set_aside),
            kernel: kernel::Kernel::new(),
            helpers: helper::Helpers::new(registry.try_clone()?, outside.program),
            listen: Listen::new(registry.try_clone()?, outside.listeners),
            offline: outside.offline,
            cgroups_slow_until: Mono(0),
        })
    }

    /// The next event for the core, in the order taken.
    pub fn take(&mut self) -> Option<Event> {
        let mut event = self.inbox.take()?;
        if let Event::Request(request) = &mut event
            && let Some(token) = self.inbox.bearers.remove(&request.id)
        {
            request.bearer = Some(self.vault.seal_of_visitor(&token));
        }
        Some(event)
    }

    /// An event that the shell itself makes.
    pub fn push(&mut self, event: Event) {
        self.inbox.push(event);
    }

    /// A call that the shell answers by itself.
    pub fn answer(&mut self, token: Token, outcome: Outcome) {
        self.inbox.open(token);
        self.inbox.done(token, outcome);
    }

    /// A descriptor is ready.
    pub fn ready(&mut self, event: &mio::event::Event, now: Mono) {
        let (door, index) = Door::of(event.token());
        match door {
            Door::Signal => self.signal.ready(&mut self.inbox),
            Door::Rpc => self.rpc.ready(index, event, now, &mut self.inbox),
            Door::Disk => self.disk.ready(&mut self.inbox),
            Door::Helper => self.helpers.ready(index, now),
            Door::Listen => self.listen.ready(index, event, now, &mut self.inbox),
            Door::Stream => self.listen.stream_ready(index, event),
            Door::Api | Door::Bootstrap => {
                let api = if door == Door::Api { &mut self.api } else { &mut self.bootstrap };
                if let Some(api) = api {
                    api.ready(index, event, now, &mut self.inbox, &mut self.vault);
                }
            }
        }
    }

    /// When a door wants `tend` to be called.
    pub fn deadline(&self) -> Option<Mono> {
        let doors = [
            self.rpc.deadline(),
            self.api.as_ref().and_then(api::Api::deadline),
            self.bootstrap.as_ref().and_then(api::Api::deadline),
            self.helpers.deadline(),
            self.listen.deadline(),
        ];
        doors.into_iter().flatten().min()
    }

    /// Whether something can be done at once, without waiting for a descriptor.
    pub fn busy(&self) -> bool {
        let doors = self.rpc.busy()
            || self.api.iter().chain(&self.bootstrap).any(api::Api::busy)
            || self.disk.busy()
            || self.listen.busy();
        doors || !self.inbox.events.is_empty()
    }

    /// What is to be done after the descriptors: ended processes, calls whose time is up, manifests
    /// to read.
    pub fn tend(&mut self, now: Mono) {
        self.rpc.expire(now, &mut self.inbox);
        for api in self.api.iter_mut().chain(&mut self.bootstrap) {
            api.expire(now, &mut self.inbox);
        }
        self.helpers.expire(now);
        self.listen.tend(now, &mut self.inbox);
        super::log::flush();
        let started = Instant::now();
        while self.disk.busy() && started.elapsed() < SCAN_PER_TURN {
            if let Some((token, file, job)) = self.disk.read_one(&mut self.inbox) {
                self.helpers.submit(Asker::Scan(token, file), job, now);
            }
        }
        self.hand_on_answers(now);
    }

    /// Writes out what the effects of this turn have left in buffers: one write for many calls.
    pub fn flush(&mut self, now: Mono) {
        self.rpc.flush(now, &mut self.inbox);
        self.hand_on_answers(now);
        for (api, asker) in [(&mut self.api, Asker::Api), (&mut self.bootstrap, Asker::Bootstrap)] {
            let Some(api) = api else { continue };
            api.flush(now, &mut self.inbox, &mut self.vault);
            while let Some(job) = api.take_job() {
                self.helpers.submit(asker.clone(), job, now);
            }
        }
    }

    /// Carries out an effect. `Exit` is the loop's own affair.
    pub fn carry_out(&mut self, effect: Effect, now: Mono) {
        match effect {
            Effect::Call { token, call } => {
                self.inbox.open(token);
                self.call(token, call, now);
            }
            Effect::Cancel(token) => self.cancel(token),
            Effect::Reply { request, reply } => self.listen.reply(request, reply),
            Effect::SendLog { request, log } => self.listen.send_log(request, &log),
            Effect::EndLog { request } => self.listen.end_log(request),
            Effect::Stream { request, url } => self.listen.stream(request, &url),
            Effect::SendFile { request, root, path } => {
                self.listen.send_file(request, &root, &path);
            }
            Effect::Exit(_) => unreachable!("the loop ends itself"),
        }
    }

    /// The ports that are open.
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.listen.addresses()
    }

    /// Something for a helper that nobody waits for.
    pub fn help(&mut self, job: Job, now: Mono) {
        self.helpers.submit(Asker::Shell, job, now);
    }

    /// Whether a helper process lives.
    pub fn helping(&self) -> bool {
        self.helpers.any()
    }

    fn call(&mut self, token: Token, call: Call, now: Mono) {
        match call {
            Call::Rpc(rpc) => match unseal::unseal(rpc, &self.vault) {
                Ok(rpc) => self.rpc.call(token, rpc, now, &mut self.inbox),
                Err(error) => self.inbox.done(token, Outcome::Rpc(Err(error))),
            },
            Call::Disk(op) => {
                if let disk::Next::Helper(job) = self.disk.call(token, op, &mut self.inbox) {
                    self.helpers.submit(Asker::Core(token), job, now);
                }
            }
            // To kill what is left in a cgroup and wait for its end takes as long as the kernel needs.
            Call::Kernel(op)
                if matches!(op, KernelOp::RemoveCgroup { .. })
                    || self.kernel.asks_systemd(&op)
                    || now < self.cgroups_slow_until
                    || self.kernel.may_reclaim(&op) =>
            {
                self.helpers.submit(Asker::Core(token), Job::Kernel(op), now);
            }
            Call::Kernel(op) => {
                let started = Instant::now();
                self.inbox.done(token, Outcome::Kernel(self.kernel.apply(&op)));
                if started.elapsed() > CGROUPS_SLOW {
                    self.cgroups_slow_until = now + CGROUPS_AWAY;
                }
            }
            Call::Api(request) => {
                let api = match request.lane {
                    Lane::Bootstrap => &mut self.bootstrap,
                    Lane::Main | Lane::Events | Lane::Heartbeat => &mut self.api,
                };
                let request = unseal::unseal_body(request, &self.vault);
                match (request, api) {
                    (Ok(request), Some(api)) => api.call(token, request, now, &mut self.inbox),
                    (Ok(_), None) => {
                        let why = "no API server is configured".to_owned();
                        self.inbox.done(token, Outcome::Api(Err(why)));
                    }
                    (Err(why), _) => self.inbox.done(token, Outcome::Api(Err(why))),
                }
            }
            Call::Helper(op) => match Job::of(op, &self.vault, self.offline.as_ref()) {
                Ok(job) => self.helpers.submit(Asker::Core(token), job, now),
                Err(fault) => self.inbox.done(token, Outcome::Helper(Err(fault))),
            },
        }
    }

    fn cancel(&mut self, token: Token) {
        match self.inbox.open.remove(&token) {
            None => {}
            Some(false) => {
                self.rpc.cancel(token);
                for api in self.api.iter_mut().chain(&mut self.bootstrap) {
                    api.cancel(token);
                }
                self.disk.cancel(token);
                self.helpers.cancel(token);
            }
            // The answer lies in the inbox and is thrown away: whoever compares with what the core
            // has seen last must not count it.
            Some(true) => {
                self.rpc.forget_lists();
                self.helpers.forget_fetched();
                self.disk.forget_known();
            }
        }
    }

    fn hand_on_answers(&mut self, now: Mono) {
        while let Some((asker, outcome)) = self.helpers.take_answer() {
            match asker {
                Asker::Core(token) => {
                    // Whoever shows the pair looks at it at once.
                    if let (Outcome::Helper(Ok(HelperReply::Pair(_))), Some(api)) =
                        (&outcome, &mut self.api)
                    {
                        api.look_again();
                    }
                    self.inbox.done(token, outcome);
                }
                Asker::Scan(token, file) => {
                    self.disk.loaded_away(token, file, outcome, &mut self.inbox);
                }
                Asker::Api | Asker::Bootstrap => {
                    let main = asker == Asker::Api;
                    let api = if main { &mut self.api } else { &mut self.bootstrap };
                    if let Some(api) = api {
                        api.helped(outcome, now, &mut self.inbox);
                    }
                }
                Asker::Shell => {
                    if let Outcome::Helper(Err(fault)) = outcome {
                        log::warn!("{}", fault.message);
                    }
                }
            }
        }
    }
}

/// An error of the system with what was tried, in the words of `what: reason`.
pub(crate) fn fault(what: impl std::fmt::Display, error: &io::Error) -> Fault {
    let kind = match error.raw_os_error() {
        Some(libc::ENOENT) => FaultKind::NotFound,
        Some(libc::ENOSPC | libc::EDQUOT) => FaultKind::NoSpace,
        Some(libc::EROFS) => FaultKind::ReadOnly,
        Some(libc::EACCES | libc::EPERM) => FaultKind::Denied,
        Some(libc::EBUSY | libc::ENOTEMPTY | libc::EMFILE | libc::ENFILE) => FaultKind::Busy,
        Some(libc::ETIMEDOUT) => FaultKind::TimedOut,
        Some(libc::EINVAL | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => FaultKind::Invalid,
        _ => FaultKind::Other,
    };
    Fault { kind, message: format!("{what}: {}", reason(error)) }
}

/// The system's own words, without the number that the standard library adds.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(code) => nix::errno::Errno::from_raw(code).desc().to_lowercase(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(token: u64) -> Event {
        Event::Done { token: Token(token), outcome: Outcome::Same }
    }

    #[test]
    fn a_token_has_one_end_and_none_after_a_cancel() {
        let mut inbox = Inbox::default();
        (1..=3).for_each(|n| inbox.open(Token(n)));
        inbox.done(Token(2), Outcome::Same);
        inbox.item(Token(1), Item::PathChanged);
        inbox.done(Token(1), Outcome::Same);
        inbox.item(Token(3), Item::PathChanged);
        // Cancelled: with its answer in the inbox, and before it.
        inbox.open.remove(&Token(1));
        inbox.open.remove(&Token(3));
        inbox.done(Token(3), Outcome::Same);
        assert_eq!(inbox.take(), Some(done(2)));
        assert_eq!(inbox.take(), None);
        assert!(inbox.open.is_empty());
    }

    #[test]
    #[should_panic(expected = "call 1 ended twice")]
    fn two_ends_are_a_bug() {
        let mut inbox = Inbox::default();
        inbox.open(Token(1));
        inbox.done(Token(1), Outcome::Same);
        inbox.done(Token(1), Outcome::Same);
    }

    #[test]
    fn tokens_of_descriptors() {
        for door in DOORS {
            for index in [0, 1, 1000] {
                assert_eq!(Door::of(door.token(index)), (door, index));
            }
        }
    }
}
