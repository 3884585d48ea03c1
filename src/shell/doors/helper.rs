//! The helper pool: a few processes of this very program for work that may hang.
//!
//! They are started on need, do one job at a time, and end when nothing is to be done for a while.
//! A job that does not end in time is given up; its process is left alone until it ends. Jobs on paths
//! that are not ours, which may hang for ever, never have all of them.

mod chains;
mod fetch;
mod plugin;
mod work;

pub use work::{Job, serve};

use super::{Door, disk, fault, kernel};
use crate::shell::vault::Secret;
use mio::net::UnixStream;
use mio::{Interest, Registry};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use steplet_core::event::{Fault, FaultKind, HelperReply, Outcome};
use steplet_core::ids::Token;
use steplet_core::time::{Mono, Span};
use work::{FRAME_MAX, encode};

const WORKERS_MAX: usize = 8;
/// Never given to jobs on paths that are not ours: eight pods on one dead file server must not stop all else.
const WORKERS_KEPT: usize = 2;
const QUEUE_MAX: usize = 1000;
/// Longer than the pauses within the start of a pod. A process costs 2 MiB while it lives and 2 ms to start.
const IDLE_MAX: Span = Span::from_secs(3);
const WITHIN: Span = Span::from_secs(120);
/// The job itself gives up after 10 s, and says why better than the pool could.
const FETCH_WITHIN: Span = Span::from_secs(12);
/// As long as client-go waits for a connection, names included.
const LOOK_UP_WITHIN: Span = Span::from_secs(30);
/// An input buffer that a large answer has stretched is given back.
const BUFFER_KEPT: usize = 64 * 1024;

/// Who waits for a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Asker {
    Core(Token),
    /// The reading of manifests that this token asked for, at this file.
    Scan(Token, String),
    /// The connection to the API server.
    Api,
    /// That with the bootstrap credentials.
    Bootstrap,
    /// Nobody; a failure is logged.
    Shell,
}

pub struct Helpers {
    registry: Registry,
    program: PathBuf,
    workers: [Option<Worker>; WORKERS_MAX],
    queue: VecDeque<Task>,
    /// Processes that were told to end.
    ending: Vec<Child>,
    answers: VecDeque<(Asker, Outcome)>,
    /// The digest of each URL's manifest as the core knows it.
    fetched: BTreeMap<Secret, u64>,
}

struct Task {
    job: Job,
    /// `None`: given up.
    asker: Option<Asker>,
    deadline: Mono,
}

struct Worker {
    process: Child,
    stream: UnixStream,
    task: Option<Task>,
    idle_since: Mono,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
}

impl Helpers {
    /// `program` is what is started, with `helper` as its first argument.
    pub fn new(registry: Registry, program: PathBuf) -> Helpers {
        Helpers {
            registry,
            program,
            workers: Default::default(),
            queue: VecDeque::new(),
            ending: Vec::new(),
            answers: VecDeque::new(),
            fetched: BTreeMap::new(),
        }
    }

    pub fn submit(&mut self, asker: Asker, mut job: Job, now: Mono) {
        let within = match &mut job {
            Job::FetchManifest { url, known, .. } => {
                *known = self.fetched.get(url).copied();
                FETCH_WITHIN
            }
            Job::LookUp { .. } => LOOK_UP_WITHIN,
            _ => WITHIN,
        };
        let task = Task { job, asker: Some(asker), deadline: now + within };
        if self.queue.len() >= QUEUE_MAX {
            return self.fail(task, FaultKind::Busy, "too much work waits for a helper");
        }
        self.queue.push_back(task);
        self.dispatch(now);
    }

    /// Nobody waits for this token any more. Work that is under way goes on.
    pub fn cancel(&mut self, token: Token) {
        let of = |task: &Task| match &task.asker {
            Some(Asker::Core(asker) | Asker::Scan(asker, _)) => *asker == token,
            Some(Asker::Api | Asker::Bootstrap | Asker::Shell) | None => false,
        };
        self.queue.retain(|task| !of(task));
        for task in self.workers.iter_mut().flatten().filter_map(|w| w.task.as_mut()) {
            if of(task) {
                task.asker = None;
            }
        }
    }

    /// The core may not have seen the last fetched manifest.
    pub fn forget_fetched(&mut self) {
        self.fetched.clear();
    }

    pub fn take_answer(&mut self) -> Option<(Asker, Outcome)> {
        self.answers.pop_front()
    }

    /// Whether a process of the pool lives that was not told to end.
    pub fn any(&self) -> bool {
        self.workers.iter().any(Option::is_some)
    }

    pub fn deadline(&self) -> Option<Mono> {
        let waiting = self.queue.iter().map(|task| task.deadline);
        let working = self.workers.iter().flatten().filter_map(|worker| match &worker.task {
            None => Some(worker.idle_since + IDLE_MAX),
            Some(task) => task.asker.is_some().then_some(task.deadline),
        });
        waiting.chain(working).min()
    }

    pub fn expire(&mut self, now: Mono) {
        self.reap();
        let late = "it did not end in time";
        while let Some(at) = self.queue.iter().position(|task| task.deadline <= now) {
            let task = self.queue.remove(at).expect("found above");
            self.fail(task, FaultKind::TimedOut, late);
        }
        for at in 0..WORKERS_MAX {
            let Some(worker) = &mut self.workers[at] else { continue };
            match &mut worker.task {
                None if worker.idle_since + IDLE_MAX <= now => self.end(at),
                Some(task) if task.deadline <= now => {
                    if let Some(asker) = task.asker.take() {
                        let gone = Task { job: task.job.clone(), asker: Some(asker), ..*task };
                        let process = worker.process.id();
                        log::warn!("Helper process {process} hangs in {}", gone.job.name());
                        self.fail(gone, FaultKind::TimedOut, late);
                    }
                }
                Some(_) | None => {}
            }
        }
    }

    /// Takes note of processes that have ended.
    fn reap(&mut self) {
        self.ending.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
    }

    pub fn ready(&mut self, at: usize, now: Mono) {
        let Some(worker) = &mut self.workers[at] else { return };
        let gone = match worker.write().and_then(|()| worker.read()) {
            Ok(None) => return,
            Ok(Some(outcome)) => {
                worker.idle_since = now;
                let task = worker.task.take();
                // An idle node has its tape synced now and then, and nothing else to do.
                let last = matches!(&task, Some(Task { job: Job::Tape(_), .. }));
                if last && self.queue.is_empty() {
                    self.end(at);
                }
                if let Some(task) = task {
                    self.answer(task, outcome);
                }
                return self.dispatch(now);
            }
            Err(error) => error,
        };
        let task = worker.task.take();
        self.end(at);
        if let Some(task) = task {
            self.fail(task, FaultKind::Other, &format!("the helper process ended: {gone}"));
        }
        self.dispatch(now);
    }

    /// Gives waiting jobs to idle processes, or to new ones.
    fn dispatch(&mut self, now: Mono) {
        while let Some(next) = self.queue.iter().position(|task| !self.is_held_up(task)) {
            let idle =
                self.workers.iter().position(|w| w.as_ref().is_some_and(|w| w.task.is_none()));
            let Some(at) = idle.or_else(|| self.workers.iter().position(Option::is_none)) else {
                return;
            };
            if self.workers[at].is_none()
                && let Err(error) = self.start(at, now)
            {
                let task = self.queue.remove(next).expect("found above");
                let fault = fault("cannot start a helper process", &error);
                self.fail(task, fault.kind, &fault.message);
                continue;
            }
            let task = self.queue.remove(next).expect("found above");
            let output = encode(&task.job);
            if output.len() > FRAME_MAX {
                self.fail(
                    task,
                    FaultKind::Invalid,
                    &format!("it is larger than {FRAME_MAX} bytes"),
                );
                continue;
            }
            let worker = self.workers[at].as_mut().expect("started above");
            worker.output = output;
            worker.sent = 0;
            worker.task = Some(task);
            // An error shows when it is read from.
            let _ = worker.write();
        }
    }

    fn is_held_up(&self, task: &Task) -> bool {
        let under_way = || self.workers.iter().flatten().filter_map(|w| w.task.as_ref());
        let foreign = under_way().filter(|other| other.job.is_foreign()).count();
        if task.job.is_foreign() && foreign >= WORKERS_MAX - WORKERS_KEPT {
            return true;
        }
        let subject = task.job.subject();
        subject.is_some() && under_way().any(|other| other.job.subject() == subject)
    }

    fn start(&mut self, at: usize, now: Mono) -> io::Result<()> {
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(ours);
        let process = Command::new(&self.program)
            .arg0("steplet")
            .args(["helper", &std::process::id().to_string()])
            .args(crate::shell::log::manner())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            // Ctrl-C on the terminal is for the agent alone.
            .process_group(0)
            .spawn()?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.registry.register(&mut stream, Door::Helper.token(at), interest) {
            self.ending.push(process);
            return Err(error);
        }
        let (input, output) = (Vec::new(), Vec::new());
        self.workers[at] =
            Some(Worker { process, stream, task: None, idle_since: now, input, output, sent: 0 });
        Ok(())
    }

    /// Closes a process's socket, upon which it ends.
    fn end(&mut self, at: usize) {
        if let Some(worker) = self.workers[at].take() {
            self.ending.push(worker.process);
            self.reap();
        }
    }

    fn answer(&mut self, task: Task, outcome: Outcome) {
        let Some(asker) = task.asker else { return };
        if let Job::FetchManifest { url, .. } = task.job
            && let Outcome::Helper(Ok(HelperReply::Manifest(manifest))) = &outcome
        {
            self.fetched.insert(url, manifest.digest);
        }
        self.answers.push_back((asker, outcome));
    }

    fn fail(&mut self, task: Task, kind: FaultKind, why: &str) {
        let Some(asker) = task.asker else { return };
        let name = task.job.name();
        let fault = Fault { kind, message: format!("{name}: {why}") };
        self.answers.push_back((asker, task.job.failed(fault)));
    }
}

impl Worker {
    fn write(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// The answer, once it is there in full. Errors: also the end of the stream, and nonsense.
    fn read(&mut self) -> io::Result<Option<Outcome>> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let Some((length, frame)) = self.input.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_MAX {
            return Err(io::Error::other(format!("an answer of {length} bytes")));
        }
        if frame.len() < length {
            return Ok(None);
        }
        let outcome = postcard::from_bytes(&frame[..length]).map_err(io::Error::other)?;
        self.input.clear();
        self.input.shrink_to(BUFFER_KEPT);
        Ok(Some(outcome))
    }
}
