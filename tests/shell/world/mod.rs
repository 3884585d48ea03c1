//! The doors on a real `mio::Poll`, without a core: tests say the effects and see the events.

pub mod api_server;
pub mod runtime;

pub use crate::scratch::Scratch;
use mio::{Events, Poll};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use steplet::shell::clock;
use steplet::shell::doors::{Doors, Outside};
use steplet::shell::vault::Vault;
use steplet_core::effect::{Call, Effect, HelperOp};
use steplet_core::event::{Event, Fault, Outcome};
use steplet_core::ids::Token;
use steplet_core::sealed::Sealed;
use steplet_core::time::{Mono, Span};

pub const SOON: Duration = Duration::from_secs(20);

pub struct World {
    poll: Poll,
    ready: Events,
    pub doors: Doors,
    /// The seal of `n1`.
    sealed: Sealed,
    next: u64,
    /// Turns that were not asked for by anything: a loop that is busy without reason.
    pub turns: u64,
    /// How far the doors' clock is ahead.
    ahead: Span,
    scratch: Scratch,
}

impl World {
    pub fn new(name: &str) -> World {
        let scratch = Scratch::new(name);
        let socket = scratch.path().join("runtime.sock");
        World::with(scratch, Outside::of(socket))
    }

    pub fn with(scratch: Scratch, outside: Outside) -> World {
        let poll = Poll::new().expect("descriptors are left");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_steplet"));
        let outside = Outside { program, ..outside };
        let mut vault = Vault::default();
        let sealed = vault.seal("n1");
        let doors = Doors::new(poll.registry(), outside, vault).expect("doors open");
        let (ready, ahead) = (Events::with_capacity(64), Span::ZERO);
        World { poll, ready, doors, sealed, next: 0, turns: 0, ahead, scratch }
    }

    fn now(&self) -> Mono {
        clock::mono() + self.ahead
    }

    /// Lets time pass at once, for the doors.
    pub fn pass(&mut self, span: Span) {
        self.ahead = self.ahead + span;
    }

    pub fn dir(&self) -> &Path {
        self.scratch.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.dir().join("runtime.sock")
    }

    pub fn call(&mut self, call: Call) -> Token {
        self.next += 1;
        let token = Token(self.next);
        self.doors.carry_out(Effect::Call { token, call }, self.now());
        token
    }

    pub fn cancel(&mut self, token: Token) {
        self.doors.carry_out(Effect::Cancel(token), self.now());
    }

    /// One turn of the loop, of at most `wait`.
    pub fn turn(&mut self, wait: Duration) {
        self.doors.flush(self.now());
        let wanted = self.doors.deadline().map(|at| Duration::from_nanos(at.since(self.now()).0));
        let wait =
            if self.doors.busy() { Duration::ZERO } else { wanted.unwrap_or(wait).min(wait) };
        self.poll.poll(&mut self.ready, Some(wait)).or_else(interrupted).expect("poll works");
        self.turns += 1;
        let now = self.now();
        for event in &self.ready {
            self.doors.ready(event, now);
        }
        self.doors.tend(now);
        self.doors.flush(now);
    }

    /// The next event, which must come soon.
    pub fn event(&mut self) -> Event {
        let started = Instant::now();
        loop {
            if let Some(event) = self.doors.take() {
                return event;
            }
            assert!(started.elapsed() < SOON, "nothing came");
            self.turn(Duration::from_millis(100));
        }
    }

    /// The outcome of this call; other events before it are a failure.
    pub fn outcome(&mut self, token: Token) -> Outcome {
        match self.event() {
            Event::Done { token: done, outcome } if done == token => outcome,
            other => panic!("not the end of {token:?}: {other:?}"),
        }
    }

    /// Whatever comes within a while.
    pub fn events_for(&mut self, span: Duration) -> Vec<Event> {
        let started = Instant::now();
        let mut events = Vec::new();
        while started.elapsed() < span {
            self.turn(span.saturating_sub(started.elapsed()));
            events.extend(std::iter::from_fn(|| self.doors.take()));
        }
        events
    }
}

pub fn fetch(world: &mut World, url: String) -> Token {
    let headers = vec![("X-Node".to_owned(), world.sealed)];
    world.call(Call::Helper(HelperOp::FetchManifest { url, whole: None, headers }))
}

pub fn fault(outcome: Outcome) -> Fault {
    match outcome {
        Outcome::Helper(Err(fault)) => fault,
        other => panic!("no fault: {other:?}"),
    }
}

/// Answers each request with what `answer` makes of its head; an empty answer is never sent.
pub fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let n = stream.read(&mut head).unwrap();
            let text = answer(&String::from_utf8_lossy(&head[..n]));
            let _ = stream.write_all(text.as_bytes());
            if text.is_empty() {
                kept.push(stream);
            }
        }
    });
    url
}

fn interrupted(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}
