//! The HTTP/2 server against an h2 client in memory: many requests at once, hostile clients,
//! bounded buffers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use h2::client::{Builder, SendRequest};
use http::Request;
use steplet_wire::http_server::{Event, HttpServer, Length, Protocol, Version};

use crate::memory::{PeerSide, Rng, Wires};

const BODY_MAX: u64 = 1000;

/// The server with an application behind it.
struct Site {
    server: HttpServer,
    bodies: BTreeMap<u64, (String, Vec<u8>)>,
    log: Vec<String>,
    /// Ids of requests to `/stream`.
    streams: Vec<u64>,
    closed: bool,
}

impl Site {
    fn new() -> Site {
        let server = HttpServer::new(Protocol::Http2, BODY_MAX);
        Site {
            server,
            bodies: BTreeMap::new(),
            log: Vec::new(),
            streams: Vec::new(),
            closed: false,
        }
    }

    /// Polls and answers; false if there was nothing to do.
    fn turn(&mut self) -> bool {
        let events = self.server.poll();
        let quiet = events.is_empty();
        for event in events {
            match event {
                Event::Request { id, head } => {
                    assert_eq!(head.version, Version::Http2);
                    assert_eq!(self.bodies.insert(id, (head.target, Vec::new())), None);
                }
                Event::Body { id, data } => {
                    self.bodies.get_mut(&id).expect("a request").1.extend_from_slice(&data);
                }
                Event::BodyEnd { id } => {
                    let (target, body) = self.bodies[&id].clone();
                    self.log.push(target.clone());
                    self.answer(id, &target, body);
                }
                Event::Gone { id } => {
                    self.log.push(format!("gone {}", self.bodies[&id].0));
                }
                Event::Closed => self.closed = true,
                other => self.log.push(format!("{other:?}")),
            }
        }
        !quiet
    }

    fn answer(&mut self, id: u64, target: &str, body: Vec<u8>) {
        let server = &mut self.server;
        let headers = [("Content-Type", "text/plain"), ("Connection", "close"), ("X", "a\nb")];
        match target {
            "/echo" => server.reply(id, 200, &headers, body.into()),
            "/chunks" => {
                server.respond(id, 200, &[], Length::Unknown);
                assert_eq!(server.write_body(id, b"one"), 3);
                server.finish_with(id, Bytes::from_static(b"two"));
            }
            "/none" => server.reply(id, 204, &[], Bytes::new()),
            "/big" => server.reply(id, 200, &[], Bytes::from(vec![b'x'; 300_000])),
            "/abort" => {
                server.respond(id, 200, &[], Length::Unknown);
                server.write_body(id, b"part");
                server.abort(id);
            }
            "/stream" => {
                server.respond(id, 200, &[], Length::Unknown);
                self.streams.push(id);
            }
            "/hang" => {}
            _ => server.reply(id, 404, &[], Bytes::from_static(b"no")),
        }
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;
type Answers = Rc<RefCell<BTreeMap<usize, String>>>;

/// An h2 client and its requests, polled by hand.
struct Client {
    wires: Rc<RefCell<Wires>>,
    tasks: Vec<Task>,
    requests: SendRequest<Bytes>,
    answers: Answers,
    asked: usize,
    /// All bytes that the client sent, for the mutations.
    sent: Vec<u8>,
}

impl Client {
    fn new(builder: &Builder) -> Client {
        let wires = Rc::new(RefCell::new(Wires::default()));
        let cx = &mut Context::from_waker(Waker::noop());
        let handshake = std::pin::pin!(builder.handshake(PeerSide(wires.clone())));
        let std::task::Poll::Ready(Ok((requests, connection))) = handshake.poll(cx) else {
            panic!("the preface had to wait");
        };
        let connection: Task = Box::pin(async {
            let _ = connection.await;
        });
        let tasks = vec![connection];
        Client { wires, tasks, requests, answers: Answers::default(), asked: 0, sent: Vec::new() }
    }

    fn ask(&mut self, method: &str, path: &str, body: &'static [u8]) {
        let uri = format!("https://node:10250{path}");
        let request = Request::builder().method(method).uri(uri).body(()).expect("valid");
        let (number, answers) = (self.asked, self.answers.clone());
        self.asked += 1;
        let sent = self.requests.send_request(request, body.is_empty());
        let (response, mut send) = sent.expect("a connection");
        if !body.is_empty() {
            send.send_data(Bytes::from_static(body), true).expect("a stream");
        }
        self.tasks.push(Box::pin(async move {
            let said = match read(response).await {
                Ok(text) => text,
                Err(error) => format!("!{error}"),
            };
            answers.borrow_mut().insert(number, said);
        }));
    }

    fn turn(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..4 {
            self.tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
        }
    }

    /// Moves bytes, at most `step` at once, until nobody has any.
    fn run(&mut self, site: &mut Site, step: usize) {
        loop {
            self.turn();
            let mut moved = false;
            let n = self.wires.borrow().from_peer.len().min(step);
            if n > 0 && site.server.wants_input() {
                let part = self.wires.borrow_mut().from_peer.split_to(n);
                self.sent.extend_from_slice(&part);
                site.server.feed(&part);
                moved = true;
            }
            while site.turn() {
                moved = true;
            }
            let n = site.server.output().len().min(step);
            if n > 0 {
                let part = BytesMut::from(&site.server.output()[..n]);
                site.server.consume_output(n);
                self.wires.borrow_mut().to_peer.unsplit(part);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }
}

async fn read(response: h2::client::ResponseFuture) -> Result<String, h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    let mut text = format!("{} ", head.status.as_u16());
    for name in ["content-length", "x", "connection"] {
        if let Some(value) = head.headers.get(name) {
            text.push_str(&format!("{name}={} ", value.to_str().expect("ascii")));
        }
    }
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        text.push_str(&String::from_utf8_lossy(&data));
    }
    Ok(text)
}

/// A conversation with one request of each kind; what the client got, by number.
fn converse(client: &mut Client, site: &mut Site, step: usize) {
    client.ask("GET", "/x?y", b"");
    client.ask("PUT", "/echo", b"hello");
    client.ask("GET", "/chunks", b"");
    client.ask("GET", "/none", b"");
    client.ask("HEAD", "/big", b"");
    client.ask("GET", "/abort", b"");
    client.ask("PUT", "/echo", &[b'a'; 1001]);
    client.ask("GET", "/hang", b"");
    client.run(site, step);
    let answers = client.answers.borrow();
    let want: &[&str] = &[
        "404 content-length=2 no",
        "200 content-length=5 x=a b hello",
        "200 onetwo",
        "204 ",
        "200 content-length=300000 ",
        "!stream error received: unexpected internal error encountered",
        "413 content-length=0 ",
    ];
    let want: BTreeMap<_, _> = want.iter().map(|s| s.to_string()).enumerate().collect();
    assert_eq!(*answers, want, "by {step}");
}

#[test]
fn every_kind_of_request_in_all_pieces() {
    for step in (1..80).chain([1000, usize::MAX]) {
        let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
        converse(&mut client, &mut site, step);
        let log: Vec<_> = site.log.iter().filter(|l| l.contains("echo")).collect();
        assert_eq!(log, ["/echo", "gone /echo"], "by {step}");
        assert!(site.log.contains(&"Refused { status: 413 }".to_owned()));
        assert!(!site.server.is_idle());
        site.server.feed_eof();
        site.turn();
        assert_eq!(site.log.last().map(String::as_str), Some("gone /hang"));
        assert!(site.closed && site.server.is_idle());
    }
}

#[test]
fn many_requests_at_once_with_small_windows() {
    let mut builder = Builder::new();
    builder.initial_window_size(1000).initial_connection_window_size(70_000);
    let (mut client, mut site) = (Client::new(&builder), Site::new());
    client.run(&mut site, usize::MAX);
    for _ in 0..50 {
        client.ask("GET", "/big", b"");
    }
    client.run(&mut site, 10_000);
    let answers = client.answers.borrow();
    assert_eq!(answers.len(), 50);
    assert!(answers.values().all(|a| a.len() == "200 content-length=300000 ".len() + 300_000));
    assert!(site.server.is_idle());
}

#[test]
fn a_client_that_does_not_read_holds_little() {
    let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
    for _ in 0..100 {
        client.ask("GET", "/stream", b"");
    }
    client.run(&mut site, usize::MAX);
    assert_eq!(site.streams.len(), 100);
    let mut taken = 0;
    for id in site.streams.clone() {
        while site.server.write_body(id, &[b'l'; 1000]) == 1000 {
            taken += 1000;
        }
        site.turn();
    }
    // A connection's window, whatever the number of streams.
    assert!(taken < 100_000, "{taken} bytes taken");
    assert!(site.server.output().len() <= 64 * 1024);
    client.run(&mut site, usize::MAX);
    assert!(site.log.iter().any(|l| l.starts_with("Writable")), "{:?}", site.log);
}

#[test]
fn requests_that_the_client_gives_up_are_gone() {
    let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
    client.ask("GET", "/hang", b"");
    client.ask("GET", "/stream", b"");
    client.run(&mut site, usize::MAX);
    client.tasks.truncate(1);
    client.run(&mut site, usize::MAX);
    site.log.sort();
    assert_eq!(site.log, ["/hang", "/stream", "gone /hang", "gone /stream"]);
    assert!(site.server.is_idle() && !site.closed);
    let gone = site.streams[0];
    assert_eq!(site.server.write_body(gone, b"late"), 4);
    site.server.finish(gone);
    assert!(!site.turn());
}

#[test]
fn a_flood_of_resets_ends_the_connection() {
    let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
    client.run(&mut site, usize::MAX);
    let mut rounds = 0;
    let mut id = 1u32;
    while !site.closed {
        assert!(rounds < 10, "still open after {rounds} rounds");
        let mut flood = Vec::new();
        for _ in 0..100 {
            // HEADERS of `GET / https` with END_STREAM, from the static table, then RST_STREAM.
            flood.extend_from_slice(&[0, 0, 3, 1, 5]);
            flood.extend_from_slice(&id.to_be_bytes());
            flood.extend_from_slice(&[0x82, 0x84, 0x87]);
            flood.extend_from_slice(&[0, 0, 4, 3, 0]);
            flood.extend_from_slice(&id.to_be_bytes());
            flood.extend_from_slice(&[0, 0, 0, 8]);
            id += 2;
        }
        site.server.feed(&flood);
        while site.turn() {}
        let n = site.server.output().len();
        site.server.consume_output(n);
        rounds += 1;
    }
}

#[test]
fn a_huge_head_is_refused_or_ends_the_connection() {
    for (bytes, passes) in [(60_000, true), (70_000, false), (1_100_000, false)] {
        let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
        client.run(&mut site, usize::MAX);
        let request = Request::builder()
            .uri("https://node/echo")
            .header("big", vec![b'v'; bytes])
            .body(())
            .expect("valid");
        let answer = client.requests.send_request(request, true).expect("a connection").0;
        let answers = client.answers.clone();
        client.tasks.push(Box::pin(async move {
            let said = read(answer).await.unwrap_or_else(|e| format!("!{e}"));
            answers.borrow_mut().insert(0, said);
        }));
        client.run(&mut site, 10_000);
        let said = client.answers.borrow()[&0].clone();
        if passes {
            assert!(said.starts_with("200"), "{said}");
        } else {
            assert!(said.starts_with("431") || said.starts_with('!'), "{said}");
            assert!(site.log.is_empty(), "{:?}", site.log);
        }
    }
}

#[test]
fn a_graceful_end_lets_the_open_answers_through() {
    let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
    client.ask("GET", "/stream", b"");
    client.run(&mut site, usize::MAX);
    site.server.close_when_idle();
    client.run(&mut site, usize::MAX);
    assert!(!site.closed);
    site.server.finish_with(site.streams[0], Bytes::from_static(b"end"));
    client.run(&mut site, usize::MAX);
    assert_eq!(client.answers.borrow()[&0], "200 end");
    assert!(site.closed);
}

#[test]
fn what_is_not_http2_closes() {
    let mut site = Site::new();
    site.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    while site.turn() {}
    assert!(site.closed && !site.server.wants_input());
}

#[test]
fn mutated_clients_never_panic() {
    let (mut client, mut site) = (Client::new(&Builder::new()), Site::new());
    converse(&mut client, &mut site, usize::MAX);
    let sent = client.sent;
    let mut rng = Rng(1);
    let (mut closed, mut answered) = (0, 0);
    for _ in 0..5_000 {
        let input = rng.mutate(&sent);
        let step = 1 + rng.below(400);
        let mut site = Site::new();
        for piece in input.chunks(step) {
            site.server.feed(piece);
            while site.turn() {
                let n = site.server.output().len();
                assert!(n <= 64 * 1024);
                site.server.consume_output(n);
            }
        }
        closed += usize::from(site.closed);
        answered += usize::from(!site.log.is_empty());
    }
    assert!(closed > 500 && answered > 500, "{closed} closed, {answered} answered");
}
