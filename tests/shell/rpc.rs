//! The runtime's door against a runtime on a unix socket: answers, ends, deadlines, restarts, full
//! sockets.

use crate::world::World;
use crate::world::runtime::{Answer, Runtime};
use bytes::Bytes;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use prost::Message;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use steplet_api::cri;
use steplet_core::effect::{Call, Peer, Rpc};
use steplet_core::event::{Event, Outcome, RpcError};
use steplet_core::ids::Token;
use steplet_core::time::Span;

const LIST: &str = "/runtime.v1.RuntimeService/ListPodSandbox";

fn rpc(path: &'static str, within: Option<Span>) -> Rpc {
    let body = Bytes::from_static(b"body");
    Rpc {
        peer: Peer::Runtime,
        path: path.into(),
        body,
        within,
        same_as_last: false,
        sealed: vec![],
    }
}

fn call(world: &mut World, path: &'static str) -> Token {
    world.call(Call::Rpc(rpc(path, Some(Span::from_secs(60)))))
}

fn error(outcome: Outcome) -> RpcError {
    match outcome {
        Outcome::Rpc(Err(error)) => error,
        other => panic!("not an error: {other:?}"),
    }
}

fn good(body: &'static [u8]) -> Outcome {
    Outcome::Rpc(Ok(Bytes::from_static(body)))
}

#[test]
fn answers_and_errors_come_back() {
    let mut world = World::new("rpc");
    let mut runtime = Runtime::start(&world.socket(), |path, body| match path {
        "/s/echo" => Answer::Message(Bytes::copy_from_slice(body)),
        "/s/large" => Answer::Message(vec![7; 1_000_000].into()),
        "/s/none" => Answer::Status(0, ""),
        _ => Answer::Status(5, "no such thing"),
    });
    let token = call(&mut world, "/s/echo");
    assert_eq!(world.outcome(token), good(b"body"));
    let token = call(&mut world, "/s/large");
    assert_eq!(world.outcome(token), Outcome::Rpc(Ok(vec![7; 1_000_000].into())));
    let token = call(&mut world, "/s/missing");
    let want = RpcError { code: RpcError::NOT_FOUND, message: "no such thing".into() };
    assert_eq!(error(world.outcome(token)), want);
    let token = call(&mut world, "/s/none");
    assert_eq!(error(world.outcome(token)).code, 13);
    assert_eq!(runtime.connections.load(Ordering::Relaxed), 1);
    runtime.kill();
}

#[test]
fn many_calls_share_a_connection_and_each_ends_once() {
    let mut world = World::new("rpc");
    let _runtime =
        Runtime::start(&world.socket(), |_, body| Answer::Message(Bytes::copy_from_slice(body)));
    let mut open: Vec<Token> = (0..300).map(|_| call(&mut world, "/s/echo")).collect();
    while !open.is_empty() {
        match world.event() {
            Event::Done { token, outcome } => {
                assert_eq!(outcome, good(b"body"));
                let at = open.iter().position(|t| *t == token).expect("ended twice");
                open.remove(at);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.events_for(Duration::from_millis(50)), []);
}

#[test]
fn without_a_runtime_calls_end_at_once_and_later_ones_find_it() {
    let mut world = World::new("rpc");
    let started = Instant::now();
    for _ in 0..50 {
        let token = call(&mut world, "/s/echo");
        let error = error(world.outcome(token));
        assert_eq!(error.code, RpcError::UNAVAILABLE);
        assert!(error.message.contains("no such file or directory"), "{error:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(2), "they waited");
    let mut runtime =
        Runtime::start(&world.socket(), |_, _| Answer::Message(Bytes::from_static(b"ok")));
    until_good(&mut world);
    // A runtime that restarts: what is under way ends, what comes later is answered again.
    runtime.kill();
    let token = call(&mut world, "/s/echo");
    assert_eq!(error(world.outcome(token)).code, RpcError::UNAVAILABLE);
    let _runtime =
        Runtime::start(&world.socket(), |_, _| Answer::Message(Bytes::from_static(b"ok")));
    until_good(&mut world);
}

/// The back-off is at most 3 s.
fn until_good(world: &mut World) {
    let started = Instant::now();
    loop {
        let token = call(world, "/s/echo");
        match world.outcome(token) {
            Outcome::Rpc(Ok(_)) => return,
            _ => assert!(started.elapsed() < Duration::from_secs(8), "not found again"),
        }
        world.events_for(Duration::from_millis(50));
    }
}

#[test]
fn a_deadline_ends_a_hung_call_alone_and_takes_it_back() {
    let mut world = World::new("rpc");
    let runtime = Runtime::start(&world.socket(), |path, _| match path {
        "/s/hang" => Answer::Hang,
        _ => Answer::Message(Bytes::from_static(b"ok")),
    });
    let hung = world.call(Call::Rpc(rpc("/s/hang", Some(Span::from_millis(300)))));
    let token = call(&mut world, "/s/other");
    assert_eq!(world.outcome(token), good(b"ok"));
    let started = Instant::now();
    let want =
        RpcError { code: RpcError::DEADLINE_EXCEEDED, message: "context deadline exceeded".into() };
    assert_eq!(error(world.outcome(hung)), want);
    assert!(started.elapsed() < Duration::from_secs(5));
    let token = call(&mut world, "/s/other");
    assert_eq!(world.outcome(token), good(b"ok"), "the connection is still good");
    assert_eq!(runtime.resets.load(Ordering::Relaxed), 1, "the runtime was not told");
}

#[test]
fn a_cancelled_call_says_nothing_more() {
    let mut world = World::new("rpc");
    let runtime = Runtime::start(&world.socket(), |path, _| match path {
        "/s/hang" => Answer::Hang,
        _ => Answer::Message(Bytes::from_static(b"ok")),
    });
    let hung = call(&mut world, "/s/hang");
    world.events_for(Duration::from_millis(100));
    world.cancel(hung);
    let token = call(&mut world, "/s/other");
    assert_eq!(world.outcome(token), good(b"ok"));
    assert_eq!(world.events_for(Duration::from_millis(200)), []);
    assert_eq!(runtime.resets.load(Ordering::Relaxed), 1);
    assert_eq!(world.doors.deadline(), None, "a timer is left");
}

#[test]
fn a_connection_that_breaks_ends_its_calls_once() {
    let mut world = World::new("rpc");
    let _runtime = Runtime::start(&world.socket(), |path, _| match path {
        "/s/hang" => Answer::Hang,
        "/s/break" => Answer::HangUp,
        _ => Answer::Message(Bytes::from_static(b"ok")),
    });
    let mut open = vec![call(&mut world, "/s/hang"), call(&mut world, "/s/break")];
    while !open.is_empty() {
        match world.event() {
            Event::Done { token, outcome } => {
                assert_eq!(error(outcome).code, RpcError::UNAVAILABLE);
                open.retain(|t| *t != token);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.events_for(Duration::from_millis(50)), []);
    until_good(&mut world);
}

#[test]
fn an_unchanged_list_is_the_same_in_any_order() {
    let sandbox = |id: &str, state| cri::PodSandbox {
        id: id.into(),
        state,
        labels: [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())].into(),
        ..cri::PodSandbox::default()
    };
    let list = |items: Vec<cri::PodSandbox>| {
        Bytes::from(cri::ListPodSandboxResponse { items }.encode_to_vec())
    };
    let answers = [
        list(vec![sandbox("x", 0), sandbox("y", 0)]),
        list(vec![sandbox("y", 0), sandbox("x", 0)]),
        list(vec![sandbox("x", 0), sandbox("y", 1)]),
        list(vec![sandbox("y", 1), sandbox("x", 0)]),
        list(vec![sandbox("y", 1), sandbox("x", 0)]),
    ];
    let mut world = World::new("rpc");
    let next = AtomicUsize::new(0);
    let _runtime = Runtime::start(&world.socket(), move |_, _| {
        Answer::Message(answers[next.fetch_add(1, Ordering::Relaxed)].clone())
    });
    let ask = |world: &mut World| {
        let rpc = Rpc { same_as_last: true, ..rpc(LIST, Some(Span::from_secs(60))) };
        world.call(Call::Rpc(rpc))
    };
    let ids = |world: &mut World| {
        let token = ask(world);
        match world.outcome(token) {
            Outcome::Same => None,
            Outcome::Rpc(Ok(body)) => {
                let list = cri::ListPodSandboxResponse::decode(body).expect("a list");
                Some(list.items.into_iter().map(|s| (s.id, s.state)).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ids(&mut world), Some(vec![("x".into(), 0), ("y".into(), 0)]));
    assert_eq!(ids(&mut world), None);
    assert_eq!(ids(&mut world), Some(vec![("x".into(), 0), ("y".into(), 1)]));
    // The core never sees this one, so the next is told in full.
    let token = ask(&mut world);
    while world.doors.busy() || world.turns == 0 || !took_answer(&mut world) {}
    world.cancel(token);
    assert!(matches!(ids(&mut world), Some(list) if list.len() == 2));
}

/// Turns until something lies in the inbox.
fn took_answer(world: &mut World) -> bool {
    world.turn(Duration::from_millis(20));
    world.doors.busy()
}

#[test]
fn a_runtime_that_does_not_read_fills_no_memory_and_no_time() {
    let mut world = World::new("rpc");
    let listener = UnixListener::bind(world.socket()).unwrap();
    let large = Bytes::from(vec![1; 200_000]);
    let mut open = Vec::new();
    for _ in 0..50 {
        let body = large.clone();
        let within = Some(Span::from_millis(1500));
        let call = Rpc { body, ..rpc("/s/large", within) };
        open.push(world.call(Call::Rpc(call)));
    }
    let (mut stream, _) = listener.accept().unwrap();
    world.turns = 0;
    assert_eq!(world.events_for(Duration::from_millis(500)), []);
    assert!(world.turns < 50, "{} turns while nothing can be done", world.turns);
    for token in open {
        assert_eq!(error(world.outcome(token)).code, RpcError::DEADLINE_EXCEEDED);
    }
    // It reads after all, and then it hangs up.
    let mut some = vec![0; 65_536];
    let _ = stream.read(&mut some).unwrap();
    drop(stream);
    drop(listener);
    world.events_for(Duration::from_millis(100));
    let token = call(&mut world, "/s/x");
    assert_eq!(error(world.outcome(token)).code, RpcError::UNAVAILABLE);
}

/// Signals that interrupt every system call change nothing.
#[test]
fn interrupted_calls_go_on() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing at all.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let mut world = World::new("rpc");
    let _runtime =
        Runtime::start(&world.socket(), |_, _| Answer::Message(vec![7; 3_000_000].into()));
    // SAFETY: a thread can always ask for its own name.
    let thread = unsafe { libc::pthread_self() };
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let pest = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            // SAFETY: the thread lives until this one was joined.
            unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    for _ in 0..3 {
        let token = call(&mut world, "/s/large");
        assert_eq!(world.outcome(token), Outcome::Rpc(Ok(vec![7; 3_000_000].into())));
    }
    over.store(true, Ordering::Relaxed);
    pest.join().unwrap();
}

#[test]
fn half_a_connection_is_none() {
    let mut world = World::new("rpc");
    let listener = UnixListener::bind(world.socket()).unwrap();
    let token = call(&mut world, "/s/x");
    let (stream, _) = listener.accept().unwrap();
    world.events_for(Duration::from_millis(50));
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(error(world.outcome(token)).code, RpcError::UNAVAILABLE);
}

#[test]
fn nonsense_from_the_socket_ends_the_connection_only() {
    let mut world = World::new("rpc");
    let listener = UnixListener::bind(world.socket()).unwrap();
    let token = call(&mut world, "/s/x");
    let (mut stream, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut stream, &[b'x'; 5000]).unwrap();
    assert_eq!(error(world.outcome(token)).code, RpcError::UNAVAILABLE);
    drop((listener, stream));
    let _runtime =
        Runtime::start(&world.socket(), |_, _| Answer::Message(Bytes::from_static(b"ok")));
    until_good(&mut world);
}
