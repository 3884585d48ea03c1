//! The gRPC client against an h2 server in memory, with the bytes cut wherever they can be.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use steplet_wire::grpc_client::{Event, GrpcClient};
use steplet_wire::grpc_status::Code;

use crate::memory::{PeerSide, Rng, Wires};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// An h2 server and the requests that it is answering, polled by hand.
struct Server {
    accepting: Option<Task>,
    handlers: Rc<RefCell<Vec<Task>>>,
    wires: Rc<RefCell<Wires>>,
    /// Most requests that were ever being answered at once.
    busiest: usize,
}

impl Server {
    fn new(mut settings: h2::server::Builder) -> Server {
        let wires = Rc::new(RefCell::new(Wires::default()));
        let handlers = Rc::new(RefCell::new(Vec::new()));
        let (io, tasks) = (PeerSide(wires.clone()), handlers.clone());
        let accepting = async move {
            settings.max_concurrent_streams(250);
            let mut connection = settings.handshake(io).await.expect("a client preface");
            while let Some(accepted) = connection.accept().await {
                let (request, respond) = accepted.expect("a request");
                match request.uri().path() {
                    "/t/GoAway" => connection.graceful_shutdown(),
                    "/t/Abort" => connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM),
                    _ => {}
                }
                let task: Task = Box::pin(async move {
                    let _ = answer(request, respond).await;
                });
                tasks.borrow_mut().push(task);
            }
        };
        Server { accepting: Some(Box::pin(accepting)), handlers, wires, busiest: 0 }
    }

    fn poll(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..4 {
            let ended = |task: &mut Task| task.as_mut().poll(cx).is_ready();
            if self.accepting.as_mut().is_some_and(ended) {
                self.accepting = None;
            }
            let mut tasks = std::mem::take(&mut *self.handlers.borrow_mut());
            self.busiest = self.busiest.max(tasks.len());
            tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
            self.handlers.borrow_mut().append(&mut tasks);
        }
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(message);
    bytes.into()
}

fn trailers(status: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(
        http::header::HeaderName::from_static("grpc-status"),
        status.parse().expect("a value"),
    )])
}

/// Sends with regard to the window, or h2 would hold the whole body.
async fn send(stream: &mut SendStream<Bytes>, mut bytes: Bytes) -> Result<(), h2::Error> {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let capacity = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let capacity = capacity.unwrap_or(Ok(0))?;
        if capacity == 0 {
            return Ok(());
        }
        stream.send_data(bytes.split_to(capacity.min(bytes.len())), false)?;
    }
    Ok(())
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let path = request.uri().path().to_owned();
    let timeout = request.headers().get("grpc-timeout").cloned();
    assert_eq!(request.headers()["te"], "trailers");
    let mut body = request.into_body();
    let mut asked = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        asked.extend_from_slice(&data);
    }
    let asked = asked.split_off(5);
    let ok = || Response::builder().header("content-type", "application/grpc");
    let only = |status: &'static str, message: &'static str| {
        ok().header("grpc-status", status).header("grpc-message", message).body(()).expect("valid")
    };
    match path.as_str() {
        "/t/Hang" => return std::future::pending().await,
        "/t/Fail" => return respond.send_response(only("12", "no%20%E2%98%83"), true).map(drop),
        "/t/Reset" => {
            respond.send_reset(Reason::REFUSED_STREAM);
            return Ok(());
        }
        "/t/NotGrpc" => {
            let page = Response::builder().status(503).header("content-type", "text/html");
            let mut stream = respond.send_response(page.body(()).expect("valid"), false)?;
            return stream.send_data("<html>".into(), true);
        }
        _ => {}
    }
    let mut stream = respond.send_response(ok().body(()).expect("valid"), false)?;
    match path.as_str() {
        "/t/Timeout" => {
            send(&mut stream, framed(timeout.expect("a timeout").as_bytes())).await?;
            stream.send_trailers(trailers("0"))
        }
        "/t/Big" => {
            let size: usize = String::from_utf8_lossy(&asked).parse().expect("a size");
            send(&mut stream, framed(&vec![b'x'; size])).await?;
            stream.send_trailers(trailers("0"))
        }
        "/t/Count" => {
            let n: u32 = String::from_utf8_lossy(&asked).parse().expect("a number");
            for i in 0..n {
                send(&mut stream, framed(i.to_string().as_bytes())).await?;
            }
            stream.send_trailers(trailers("0"))
        }
        "/t/FailLate" => {
            send(&mut stream, framed(b"part")).await?;
            stream.send_trailers(trailers("5"))
        }
        "/t/TooBig" => {
            send(&mut stream, Bytes::from_static(&[0, 1, 0, 0, 1, b'x'])).await?;
            std::future::pending().await
        }
        "/t/Compressed" => {
            send(&mut stream, Bytes::from_static(&[1, 0, 0, 0, 1, b'x'])).await?;
            stream.send_trailers(trailers("0"))
        }
        "/t/Short" => {
            send(&mut stream, Bytes::from_static(&[0, 0, 0, 0, 9, b'x'])).await?;
            stream.send_trailers(trailers("0"))
        }
        "/t/NoStatus" => stream.send_data(framed(b"m"), true),
        _ => {
            send(&mut stream, framed(&asked)).await?;
            stream.send_trailers(trailers("0"))
        }
    }
}

/// Moves bytes until nobody has any. `cut` is a position in the server's bytes at which a read
/// ends; `step` is the most that is moved at once.
fn run(client: &mut GrpcClient, server: &mut Server, cut: usize, step: usize) -> Vec<Event> {
    let mut events = client.poll();
    let mut fed = 0;
    loop {
        let mut moved = false;
        let n = client.output().len().min(step);
        if n > 0 {
            let part = client.output()[..n].to_vec();
            client.consume_output(n);
            server.wires.borrow_mut().to_peer.extend_from_slice(&part);
            events.extend(client.poll());
            moved = true;
        }
        server.poll();
        let part = {
            let bytes = &mut server.wires.borrow_mut().from_peer;
            let mut n = bytes.len().min(step);
            if fed < cut {
                n = n.min(cut - fed);
            }
            bytes.split_to(n)
        };
        if !part.is_empty() && client.wants_input() {
            fed += part.len();
            client.feed(&part);
            events.extend(client.poll());
            moved = true;
        }
        if !moved {
            return events;
        }
    }
}

fn message(id: u64, body: &str) -> Event {
    Event::Message { id, body: Bytes::copy_from_slice(body.as_bytes()) }
}

/// Events by call, each `message` or `!Code text`.
fn told(events: Vec<Event>) -> BTreeMap<u64, Vec<String>> {
    let mut calls: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for event in events {
        let (id, text) = match event {
            Event::Message { id, body } => (id, String::from_utf8_lossy(&body).into_owned()),
            Event::Done { id, status } => (id, format!("!{:?} {}", status.code, status.message)),
            Event::Closed(reason) => (0, reason),
        };
        calls.entry(id).or_default().push(text);
    }
    calls
}

fn call(client: &mut GrpcClient, id: u64, path: &str, body: &str) {
    client.call(id, path, Bytes::copy_from_slice(body.as_bytes()), None);
}

/// One call of every kind; what the client must say about each.
fn every_kind(client: &mut GrpcClient) -> BTreeMap<u64, Vec<String>> {
    let table: &[(u64, &str, &str, &[&str])] = &[
        (1, "/t/Echo", "hello", &["hello", "!Ok "]),
        (2, "/t/Echo", "", &["", "!Ok "]),
        (3, "/t/Count", "3", &["0", "1", "2", "!Ok "]),
        (4, "/t/Fail", "", &["!Unimplemented no \u{2603}"]),
        (5, "/t/FailLate", "", &["part", "!NotFound "]),
        (6, "/t/TooBig", "", &["!ResourceExhausted"]),
        (7, "/t/Compressed", "", &["!Internal"]),
        (8, "/t/Short", "", &["!Internal"]),
        (9, "/t/NoStatus", "", &["m", "!Internal"]),
        (10, "/t/Reset", "", &["!Unavailable"]),
        (11, "/t/NotGrpc", "", &["!Unavailable"]),
    ];
    for (id, path, body, _) in table {
        call(client, *id, path, body);
    }
    let owned = |want: &[&str]| want.iter().map(|s| s.to_string()).collect();
    table.iter().map(|(id, _, _, want)| (*id, owned(want))).collect()
}

/// Texts of our own may say more than the table.
fn compare(seen: BTreeMap<u64, Vec<String>>, want: &BTreeMap<u64, Vec<String>>, how: &str) {
    assert_eq!(seen.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>(), "{how}");
    for (id, want) in want {
        let seen = &seen[id];
        let same = seen.len() == want.len() && seen.iter().zip(want).all(|(s, w)| s.starts_with(w));
        assert!(same, "{how}: call {id} gave {seen:?}, not {want:?}");
    }
}

#[test]
fn every_kind_of_answer_at_every_cut() {
    let whole = |cut: usize, step: usize| {
        let mut server = Server::new(h2::server::Builder::new());
        let mut client = GrpcClient::new("localhost");
        let want = every_kind(&mut client);
        let seen = told(run(&mut client, &mut server, cut, step));
        compare(seen, &want, &format!("cut {cut} step {step}"));
        assert_eq!(client.open_calls(), 0);
        server.wires.borrow().sent.len()
    };
    for cut in 0..whole(0, usize::MAX) {
        whole(cut, usize::MAX);
    }
    for step in [1, 2, 3, 7, 64] {
        whole(0, step);
    }
}

#[test]
fn big_answers_pass_small_windows_and_a_too_big_one_ends_alone() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    let max = 16 * 1024 * 1024;
    call(&mut client, 1, "/t/Big", &max.to_string());
    call(&mut client, 2, "/t/Big", &(max + 1).to_string());
    call(&mut client, 3, "/t/Big", "300000");
    let mut sizes = BTreeMap::new();
    for event in run(&mut client, &mut server, 0, 16 * 1024) {
        match event {
            Event::Message { id, body } => drop(sizes.insert(id, body.len())),
            Event::Done { id, status } => {
                let want = if id == 2 { Code::ResourceExhausted } else { Code::Ok };
                assert_eq!(status.code, want, "call {id}: {}", status.message);
            }
            Event::Closed(reason) => panic!("{reason}"),
        }
    }
    assert_eq!(sizes, BTreeMap::from([(1, max), (3, 300_000)]));
}

#[test]
fn big_requests_pass_the_servers_window() {
    let mut settings = h2::server::Builder::new();
    settings.initial_window_size(10).initial_connection_window_size(100_000);
    let mut server = Server::new(settings);
    let mut client = GrpcClient::new("localhost");
    let body = "y".repeat(1_000_000);
    call(&mut client, 1, "/t/Echo", &body);
    let seen = told(run(&mut client, &mut server, 0, 64 * 1024));
    assert_eq!(seen[&1], [body, "!Ok ".to_owned()]);
}

#[test]
fn a_burst_of_small_messages_is_no_attack() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    call(&mut client, 1, "/t/Count", "5000");
    let seen = told(run(&mut client, &mut server, 0, 64 * 1024));
    assert_eq!(seen[&1].len(), 5001);
    assert_eq!(seen[&1][5000], "!Ok ");
}

#[test]
fn the_timeout_is_sent() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    client.call(1, "/t/Timeout", Bytes::new(), Some(120_000));
    let seen = run(&mut client, &mut server, 0, 64 * 1024);
    assert_eq!(seen[0], message(1, "120000m"));
}

#[test]
fn more_calls_than_allowed_wait_in_order() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    for id in 1..=300 {
        call(&mut client, id, "/t/Echo", &id.to_string());
    }
    let events = run(&mut client, &mut server, 0, usize::MAX);
    let ends = events.iter().filter_map(|e| match e {
        Event::Done { id, status } => Some((*id, status.code)),
        _ => None,
    });
    assert!(ends.eq((1..=300).map(|id| (id, Code::Ok))));
    assert!(server.busiest <= 100, "{} at once", server.busiest);
}

#[test]
fn a_cancelled_call_is_silent_and_frees_its_place() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    for id in 1..=100 {
        call(&mut client, id, "/t/Hang", "");
    }
    call(&mut client, 101, "/t/Echo", "a");
    call(&mut client, 102, "/t/Echo", "b");
    assert_eq!(run(&mut client, &mut server, 0, usize::MAX), []);
    client.cancel(7);
    client.cancel(101);
    client.cancel(999);
    let events = run(&mut client, &mut server, 0, usize::MAX);
    assert_eq!(events[0], message(102, "b"));
    assert_eq!(events.len(), 2);
    assert_eq!(client.open_calls(), 99);
}

#[test]
fn a_dead_connection_ends_each_call_once() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    for id in 1..=150 {
        call(&mut client, id, "/t/Hang", "");
    }
    assert_eq!(run(&mut client, &mut server, 0, usize::MAX), []);
    client.feed_eof();
    let mut ended = Vec::new();
    for event in client.poll() {
        match event {
            Event::Done { id, status } => {
                assert_eq!(status.code, Code::Unavailable);
                ended.push(id);
            }
            Event::Closed(_) => assert_eq!(ended.len(), 150),
            Event::Message { .. } => panic!("{event:?}"),
        }
    }
    ended.sort();
    assert_eq!(ended, (1..=150).collect::<Vec<_>>());
    assert!(!client.accepts_calls());
    call(&mut client, 7, "/t/Echo", "");
    let late = told(client.poll());
    assert_eq!(late[&7], ["!Unavailable connection closed"]);
    assert_eq!(client.poll(), []);
}

#[test]
fn an_answer_that_came_before_the_end_counts() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    call(&mut client, 1, "/t/Echo", "x");
    client.poll();
    for _ in 0..3 {
        let part = client.output().to_vec();
        client.consume_output(part.len());
        server.wires.borrow_mut().to_peer.extend_from_slice(&part);
        server.poll();
    }
    let answer = server.wires.borrow_mut().from_peer.split();
    client.feed(&answer);
    client.feed_eof();
    let seen = told(client.poll());
    assert_eq!(seen[&1], ["x", "!Ok "]);
}

#[test]
fn a_leaving_server_gets_no_new_calls_and_finishes_the_old() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    call(&mut client, 1, "/t/Hang", "");
    call(&mut client, 2, "/t/GoAway", "x");
    let seen = told(run(&mut client, &mut server, 0, usize::MAX));
    assert_eq!(seen[&2], ["x", "!Ok "]);
    assert!(!client.accepts_calls());
    assert_eq!(client.open_calls(), 1);
    call(&mut client, 3, "/t/Echo", "");
    let seen = told(client.poll());
    assert!(seen[&3][0].starts_with("!Unavailable"), "{seen:?}");
    client.cancel(1);
    let seen = told(run(&mut client, &mut server, 0, usize::MAX));
    assert!(seen.contains_key(&0), "the idle connection closes: {seen:?}");
}

#[test]
fn an_abrupt_end_is_unavailable() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    call(&mut client, 1, "/t/Hang", "");
    call(&mut client, 2, "/t/Abort", "");
    let mut events = run(&mut client, &mut server, 0, usize::MAX);
    client.feed_eof();
    events.extend(client.poll());
    let seen = told(events);
    assert!(seen[&1][0].starts_with("!Unavailable"), "{seen:?}");
    assert!(seen[&2][0].starts_with("!Unavailable"), "{seen:?}");
}

#[test]
fn a_server_that_does_not_read_holds_no_memory() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    assert_eq!(run(&mut client, &mut server, 0, usize::MAX), []);
    for id in 1..=100 {
        client.call(id, "/t/Echo", Bytes::from(vec![0; 60_000]), None);
    }
    client.poll();
    assert!(client.output().len() <= 64 * 1024);
    // PINGs that would each be answered: the client stops reading instead of piling up answers.
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut fed = 0;
    while client.wants_input() && fed < 10_000_000 {
        client.feed(&ping.repeat(1000));
        client.poll();
        fed += 17_000;
    }
    assert!(fed < 400_000, "{fed} bytes taken");
    assert!(client.output().len() <= 64 * 1024);
}

#[test]
fn mutated_servers_never_panic_and_every_call_ends_once() {
    let mut server = Server::new(h2::server::Builder::new());
    let mut client = GrpcClient::new("localhost");
    every_kind(&mut client);
    run(&mut client, &mut server, 0, usize::MAX);
    let sent = server.wires.borrow().sent.clone();
    let mut rng = Rng(1);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..5_000 {
        let input = rng.mutate(&sent);
        let step = 1 + rng.below(input.len().max(1));
        let mut client = GrpcClient::new("localhost");
        let calls = every_kind(&mut client);
        let mut events = client.poll();
        for piece in input.chunks(step) {
            let n = client.output().len();
            client.consume_output(n);
            client.feed(piece);
            events.extend(client.poll());
        }
        client.feed_eof();
        events.extend(client.poll());
        assert!(matches!(events.pop(), Some(Event::Closed(_))), "the connection ends last");
        for id in calls.into_keys() {
            let of_call = |event: &&Event| match event {
                Event::Message { id: of, .. } | Event::Done { id: of, .. } => *of == id,
                Event::Closed(_) => panic!("a second end of the connection"),
            };
            let told: Vec<_> = events.iter().filter(of_call).collect();
            let ends = told.iter().filter(|event| matches!(event, Event::Done { .. })).count();
            assert_eq!(ends, 1, "{told:?}");
            match told.last() {
                Some(Event::Done { status, .. }) if status.code == Code::Unavailable => bad += 1,
                Some(Event::Done { .. }) => good += 1,
                _ => panic!("something after the end: {told:?}"),
            }
        }
    }
    assert!(good > 1000 && bad > 1000, "{good} good, {bad} bad");
}
