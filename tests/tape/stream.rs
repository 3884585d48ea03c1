//! A made-up run for the tests of the tape: a core, a clock, and a world that answers each call somehow.

use crate::scratch::Scratch;
use bytes::Bytes;
use std::collections::VecDeque;
use std::path::Path;
use steplet::shell::tape::{Recorder, TapeJob, Taped};
use steplet_core::Core;
use steplet_core::effect::{Call, DiskOp, Effect, HelperOp, KernelOp};
use steplet_core::event::{
    Boot, DiskReply, Event, HelperReply, KernelReply, Listener, Machine, Outcome, Request, RpcError,
};
use steplet_core::ids::{RequestId, Token};
use steplet_core::rng::Rng;
use steplet_core::settings::Settings;
use steplet_core::time::{Mono, Now, Span, Wall};

pub struct Stream {
    pub taped: Taped,
    pub now: Now,
    /// Every event so far, for comparison.
    pub said: Vec<(Now, Event)>,
    /// And every call of the core.
    pub calls: Vec<Call>,
    rng: Rng,
    answers: VecDeque<(Token, Outcome)>,
    requests: u64,
}

impl Stream {
    /// A run that has booted; its tape lies in `dir`.
    pub fn start(dir: &Path, max_bytes: u64, seed: u64) -> Stream {
        Stream::start_with(dir, max_bytes, boot(seed))
    }

    pub fn start_with(dir: &Path, max_bytes: u64, boot: Boot) -> Stream {
        let seed = boot.seed;
        let now =
            Now { mono: Mono(77_000_000_123), wall: Wall(1_760_000_000_000_000_000 + seed as i64) };
        let core = Core::new();
        let recorder = Recorder::open(dir, max_bytes, seed, now, &core);
        let mut stream = Stream {
            taped: Taped::new(core, Some(recorder)),
            now,
            said: vec![],
            calls: vec![],
            rng: Rng::new(seed),
            answers: VecDeque::new(),
            requests: 0,
        };
        stream.step(Event::Boot(Box::new(boot)));
        stream
    }

    /// One more event: an answer, a request or a tick.
    pub fn next(&mut self) {
        self.now.mono = self.now.mono + Span(self.rng.below(900_000) * 1_000);
        self.now.wall = Wall(self.now.mono.0 as i64 + 1_700_000_000_000_000_000);
        if self.rng.below(3) > 0
            && let Some((token, outcome)) = self.answers.pop_front()
        {
            return self.step(Event::Done { token, outcome });
        }
        if let Some(due) = self.taped.core().deadline()
            && self.rng.below(3) > 0
        {
            self.now.mono = self.now.mono.max(due);
            return self.step(Event::Tick);
        }
        self.requests += 1;
        let path = ["/healthz", "/pods", "/nowhere"][self.rng.below(3) as usize];
        self.step(request(self.requests, path));
    }

    /// Half a second later, somebody asks something; for no path, leaves who has left already.
    pub fn later(&mut self, path: &str) {
        self.now.mono = self.now.mono + Span::from_millis(500);
        self.now.wall = Wall(self.now.wall.0 + 500_000_000);
        if path.is_empty() {
            return self.step(Event::Gone { request: RequestId(0) });
        }
        self.requests += 1;
        self.step(request(self.requests, path));
    }

    pub fn step(&mut self, event: Event) {
        self.said.push((self.now, event.clone()));
        for effect in self.taped.step(self.now, event) {
            match effect {
                Effect::Call { token, call } => {
                    if let Some(outcome) = answer(&call) {
                        self.answers.push_back((token, outcome));
                    }
                    self.calls.push(call);
                }
                Effect::Cancel(token) => self.answers.retain(|(t, _)| *t != token),
                _ => {}
            }
        }
    }

    pub fn recorder(&mut self) -> &mut Recorder {
        self.taped.recorder.as_mut().expect("the stream is taped")
    }

    /// Does what the helper pool would do.
    pub fn helpers(&mut self) -> Vec<TapeJob> {
        let jobs = self.recorder().jobs();
        for job in &jobs {
            job.run().unwrap();
        }
        jobs
    }

    /// Ends the run in good order.
    pub fn finish(mut self) -> Stream {
        let now = self.now;
        self.recorder().flush(now);
        self
    }
}

pub fn request(id: u64, path: &str) -> Event {
    Event::Request(Box::new(Request {
        id: RequestId(id),
        listener: Listener::Healthz,
        method: "GET".into(),
        path: path.into(),
        query: vec![("pretty".into(), id.to_string())],
        loopback: true,
        certificate: None,
        bearer: None,
        upgrade: false,
        body: Bytes::new(),
    }))
}

/// An empty machine with nothing to run; None for a stream, which stays open.
fn answer(call: &Call) -> Option<Outcome> {
    Some(match call {
        Call::Rpc(_) => Outcome::Rpc(Err(RpcError {
            code: RpcError::UNAVAILABLE,
            message: "connection refused".into(),
        })),
        Call::Disk(DiskOp::WatchManifests { .. }) => return None,
        Call::Disk(DiskOp::ReadManifests { .. }) => {
            Outcome::Disk(Ok(DiskReply::Manifests(Some(vec![]))))
        }
        Call::Disk(DiskOp::List { .. }) => Outcome::Disk(Ok(DiskReply::Names(vec![]))),
        Call::Disk(DiskOp::ReadTail { .. }) => Outcome::Disk(Ok(DiskReply::Text(Bytes::new()))),
        Call::Disk(_) => Outcome::Disk(Ok(DiskReply::Done)),
        Call::Kernel(KernelOp::ListCgroups { .. }) => {
            Outcome::Kernel(Ok(KernelReply::Names(vec![])))
        }
        Call::Kernel(_) => Outcome::Kernel(Ok(KernelReply::Done)),
        Call::Helper(HelperOp::FetchManifest { .. }) => Outcome::Same,
        Call::Helper(_) => Outcome::Helper(Ok(HelperReply::Done)),
        Call::Api(_) => Outcome::Api(Err("connection refused".into())),
    })
}

pub fn boot(seed: u64) -> Boot {
    let machine = Machine { cpus: 4, memory_bytes: 8 << 30, ..Machine::default() };
    Boot { seed, settings: settings(), machine, set_aside: vec![], kept: vec![] }
}

fn settings() -> Settings {
    Settings {
        node_name: "node-a".into(),
        hostname: "node-a".into(),
        static_pod_path: "/etc/kubernetes/manifests".into(),
        ..Settings::default()
    }
}

/// A directory of this test alone, removed at the end.
pub struct Dir(pub std::path::PathBuf, #[expect(dead_code, reason = "held, not read")] Scratch);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let scratch = Scratch::new(name);
        Dir(scratch.path().to_owned(), scratch)
    }

    pub fn files(&self) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}
