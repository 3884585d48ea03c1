//! The HTTP/1 server: whole conversations in every cut, hostile clients, bounded buffers.

use bytes::Bytes;
use steplet_wire::http_server::{Event, HttpServer, Length, Protocol};

use crate::memory::Rng;

const BODY_MAX: u64 = 1000;

/// A server with an application behind it.
struct Site {
    server: HttpServer,
    /// Target and body of the open request.
    open: Option<(String, String, Vec<u8>)>,
    written: Vec<u8>,
    log: Vec<String>,
}

impl Site {
    fn new() -> Site {
        let server = HttpServer::new(Protocol::Http1, BODY_MAX);
        Site { server, open: None, written: Vec::new(), log: Vec::new() }
    }

    /// Polls, answers, and writes `step` bytes at a time until nothing moves.
    fn turn(&mut self, step: usize) {
        loop {
            let events = self.server.poll();
            let quiet = events.is_empty();
            events.into_iter().for_each(|event| self.on(event));
            let n = self.server.output().len().min(step);
            self.written.extend_from_slice(&self.server.output()[..n]);
            self.server.consume_output(n);
            if quiet && n == 0 {
                return;
            }
        }
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::Request { head, .. } => {
                self.open = Some((head.method, head.target, Vec::new()));
            }
            Event::Body { data, .. } => {
                self.open.as_mut().expect("a request").2.extend_from_slice(&data);
            }
            Event::BodyEnd { id } => {
                let (method, target, body) = self.open.take().expect("a request");
                self.log.push(format!("{method} {target}"));
                self.answer(id, &target, body);
            }
            other => self.log.push(format!("{other:?}")),
        }
    }

    fn answer(&mut self, id: u64, target: &str, body: Vec<u8>) {
        let server = &mut self.server;
        match target {
            "/echo" => server.reply(id, 200, &[], body.into()),
            "/chunks" => {
                server.respond(id, 200, &[("X", "y")], Length::Unknown);
                assert_eq!(server.write_body(id, b"one"), 3);
                assert_eq!(server.write_body(id, b""), 0);
                server.finish_with(id, Bytes::from_static(b"two"));
            }
            "/none" => server.reply(id, 204, &[], Bytes::new()),
            "/short" => {
                server.respond(id, 200, &[], Length::Exact(10));
                server.finish_with(id, Bytes::from_static(b"abc"));
            }
            "/abort" => {
                server.respond(id, 200, &[], Length::Unknown);
                server.write_body(id, b"abc");
                server.abort(id);
            }
            "/big" => server.reply(id, 200, &[], Bytes::from(vec![b'x'; 300_000])),
            "/hang" => {}
            _ => server.reply(id, 404, &[], Bytes::from_static(b"no")),
        }
    }
}

/// What the site wrote and did for these bytes, fed `step` at a time.
fn converse(input: &[u8], step: usize, then_eof: bool) -> (String, Vec<String>) {
    let mut site = Site::new();
    for piece in input.chunks(step) {
        site.server.feed(piece);
        site.turn(step);
    }
    if then_eof {
        site.server.feed_eof();
        site.turn(step);
    }
    (String::from_utf8_lossy(&site.written).into_owned(), site.log)
}

fn check(input: &str, output: &str, log: &[&str]) {
    let input = input.replace('\n', "\r\n");
    let output = output.replace('\n', "\r\n");
    for step in 1..=input.len() {
        let (seen, did) = converse(input.as_bytes(), step, false);
        assert_eq!(seen, output, "{input:?} by {step}");
        assert_eq!(did, log, "{input:?} by {step}");
    }
}

#[test]
fn conversations_in_all_pieces() {
    check(
        "GET /x HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 404 Not Found\nContent-Length: 2\n\nno",
        &["GET /x"],
    );
    check(
        "PUT /echo HTTP/1.1\nHost: a\nContent-Length: 5\n\nhelloGET /none HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhelloHTTP/1.1 204 No Content\n\n",
        &["PUT /echo", "GET /none"],
    );
    check(
        "PUT /echo HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc",
        &["PUT /echo"],
    );
    check(
        "GET /chunks HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 200 OK\nX: y\nTransfer-Encoding: chunked\n\n3\none\n3\ntwo\n0\n\n",
        &["GET /chunks"],
    );
    check(
        "GET /chunks HTTP/1.0\nConnection: keep-alive\n\n",
        "HTTP/1.1 200 OK\nX: y\nConnection: close\n\nonetwo",
        &["GET /chunks", "Closed"],
    );
    check(
        "GET /x HTTP/1.0\nConnection: keep-alive\n\n\nGET /x HTTP/1.0\n\n",
        "HTTP/1.1 404 Not Found\nContent-Length: 2\nConnection: keep-alive\n\nno\
         HTTP/1.1 404 Not Found\nContent-Length: 2\nConnection: close\n\nno",
        &["GET /x", "GET /x", "Closed"],
    );
    check(
        "HEAD /echo HTTP/1.1\nHost: a\n\nHEAD /chunks HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n\
         HTTP/1.1 200 OK\nX: y\nTransfer-Encoding: chunked\n\n",
        &["HEAD /echo", "HEAD /chunks"],
    );
    check(
        "GET /x HTTP/1.1\nHost: a\nConnection: close\n\nGET /x HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 404 Not Found\nContent-Length: 2\nConnection: close\n\nno",
        &["GET /x", "Closed"],
    );
    check(
        "GET /short HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 200 OK\nContent-Length: 10\n\nabc",
        &["GET /short", "Closed"],
    );
    check(
        "GET /abort HTTP/1.1\nHost: a\n\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nabc\n",
        &["GET /abort", "Closed"],
    );
    check("GET /hang HTTP/1.1\nHost: a\n\nGET /x HTTP/1.1\nHost: a\n\n", "", &["GET /hang"]);
}

fn refused(status: &str) -> String {
    let length = status.len();
    format!(
        "HTTP/1.1 {status}\nContent-Type: text/plain; charset=utf-8\nConnection: close\n\
         Content-Length: {length}\n\n{status}"
    )
}

#[test]
fn refusals_close_the_connection() {
    let bad = refused("400 Bad Request");
    let log = ["Refused { status: 400 }", "Closed"];
    check("GET /x\nHost: a\n\nGET /x HTTP/1.1\nHost: a\n\n", &bad, &log);
    check("\u{16}\u{3}\u{1}\n\n", &bad, &log);
    let version = refused("505 HTTP Version Not Supported");
    check("PRI * HTTP/2.0\n\nSM\n\n", &version, &["Refused { status: 505 }", "Closed"]);
    let large = refused("413 Payload Too Large");
    let head = "PUT /echo HTTP/1.1\nHost: a\nExpect: 100-continue\nContent-Length: 1001\n\n";
    check(head, &large, &["Refused { status: 413 }", "Closed"]);
    let chunks = "PUT /echo HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3e9\n";
    check(chunks, &large, &["Refused { status: 413 }", "Gone { id: 1 }", "Closed"]);
    let broken = "PUT /echo HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n3\nabcdef";
    check(broken, &bad, &["Refused { status: 400 }", "Gone { id: 1 }", "Closed"]);
}

#[test]
fn a_client_that_waits_for_100_gets_it() {
    let mut site = Site::new();
    let head =
        b"PUT /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    site.server.feed(head);
    site.turn(usize::MAX);
    assert_eq!(site.written, b"HTTP/1.1 100 Continue\r\n\r\n");
    site.server.feed(b"ok");
    site.turn(usize::MAX);
    assert!(site.written.ends_with(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
}

#[test]
fn the_end_of_the_client_at_every_place() {
    let check = |input: &str, written: bool, log: &[&str]| {
        let input = input.replace('\n', "\r\n");
        let (seen, did) = converse(input.as_bytes(), usize::MAX, true);
        assert_eq!((!seen.is_empty(), did), (written, log.iter().map(|s| s.to_string()).collect()));
    };
    check("", false, &["Closed"]);
    check("GET /x HT", false, &["Closed"]);
    check(
        "PUT /echo HTTP/1.1\nHost: a\nContent-Length: 9\n\nab",
        false,
        &["Gone { id: 1 }", "Closed"],
    );
    check("GET /hang HTTP/1.1\nHost: a\n\n", false, &["GET /hang", "HalfClosed { id: 1 }"]);
    check("GET /x HTTP/1.1\nHost: a\n\n", true, &["GET /x", "Closed"]);

    // Half closed at once, as by `printf | nc`: both requests are answered.
    let mut site = Site::new();
    site.server.feed(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    site.server.feed_eof();
    site.turn(usize::MAX);
    assert_eq!(String::from_utf8_lossy(&site.written).matches("404").count(), 2);
    assert_eq!(site.log.last().map(String::as_str), Some("Closed"));
}

#[test]
fn heads_are_bounded_in_bytes_and_lines() {
    let too_large = |mut next: Box<dyn FnMut() -> Vec<u8>>| {
        let mut site = Site::new();
        site.server.feed(b"GET / HTTP/1.1\r\nHost: a\r\n");
        let mut fed = 0;
        while site.log.is_empty() {
            assert!(fed < 1_200_000, "{fed} bytes of a head taken");
            let piece = next();
            fed += piece.len();
            site.server.feed(&piece);
            site.turn(usize::MAX);
        }
        assert_eq!(site.log, ["Refused { status: 431 }", "Closed"]);
        assert!(site.written.starts_with(b"HTTP/1.1 431 "));
    };
    too_large(Box::new(|| vec![b'x'; 10_000]));
    too_large(Box::new(|| b"a: b\r\n".repeat(1000)));
    let mut lines = 0;
    too_large(Box::new(move || {
        lines += 1;
        let last: &[u8] = if lines == 1200 { b"\r\n" } else { b"" };
        [b"a: b\r\n", last].concat()
    }));
}

#[test]
fn a_head_of_nearly_a_mebibyte_passes_even_in_small_pieces() {
    let mut site = Site::new();
    let value = "v".repeat(1_048_576 - 100);
    let head = format!("GET /x HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n");
    for piece in head.as_bytes().chunks(100) {
        site.server.feed(piece);
        site.turn(usize::MAX);
    }
    assert_eq!(site.log, ["GET /x"]);
}

#[test]
fn a_client_that_does_not_read_holds_little() {
    let mut server = HttpServer::new(Protocol::Http1, BODY_MAX);
    server.feed(b"GET /logs HTTP/1.1\r\nHost: a\r\n\r\n");
    let events = server.poll();
    assert!(matches!(events[..], [Event::Request { id: 1, .. }, Event::BodyEnd { id: 1 }]));
    server.respond(1, 200, &[], Length::Unknown);
    let line = [b'l'; 1000];
    let mut taken = 0;
    while server.write_body(1, &line) == line.len() {
        taken += line.len();
    }
    assert!(taken > 50_000 && server.output().len() < 66_000);
    assert_eq!(server.poll(), []);
    assert_eq!(server.write_body(1, &line), 0);
    let held = server.output().len();
    server.consume_output(held);
    assert_eq!(server.poll(), [Event::Writable { id: 1 }]);
    assert_eq!(server.write_body(1, &line), line.len());
    assert_eq!(server.poll(), []);
    // Requests behind it wait in the socket.
    while server.wants_input() {
        server.feed(&b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100));
        assert_eq!(server.poll(), []);
    }
}

#[test]
fn a_big_answer_leaves_as_the_client_takes_it() {
    let mut site = Site::new();
    site.server.feed(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    site.turn(1000);
    let text = String::from_utf8_lossy(&site.written);
    let second = text.find("HTTP/1.1 404").expect("the second answer");
    assert_eq!(second, "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".len() + 300_000);
    assert_eq!(site.log, ["GET /big", "GET /x"]);
}

#[test]
fn a_tunnel_carries_bytes_both_ways() {
    let mut server = HttpServer::new(Protocol::Http1, BODY_MAX);
    let head = b"GET /exec HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly";
    server.feed(head);
    server.poll();
    let headers = [("Connection", "Upgrade"), ("Upgrade", "x")];
    server.respond(1, 101, &headers, Length::Tunnel);
    let data =
        |text: &'static str| Event::Body { id: 1, data: Bytes::from_static(text.as_bytes()) };
    assert_eq!(server.poll(), [data("early")]);
    server.feed(b"late");
    assert_eq!(server.poll(), [data("late")]);
    assert_eq!(server.write_body(1, b"answer"), 6);
    let head =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nanswer";
    assert_eq!(server.output(), head.as_bytes());
    server.feed_eof();
    assert_eq!(server.poll(), [Event::BodyEnd { id: 1 }]);
    assert_eq!(server.write_body(1, b"!"), 1);
    server.finish(1);
    assert_eq!(server.poll(), [Event::Closed]);
    assert!(server.output().ends_with(b"answer!"));
}

#[test]
fn closing_when_idle_lets_the_open_answer_through() {
    let mut server = HttpServer::new(Protocol::Http1, BODY_MAX);
    assert!(server.is_idle());
    server.feed(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    server.poll();
    assert!(!server.is_idle());
    server.close_when_idle();
    server.reply(1, 200, &[], Bytes::from_static(b"ok"));
    assert_eq!(server.poll(), [Event::Closed]);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    assert_eq!(server.output(), answer);

    let mut idle = HttpServer::new(Protocol::Http1, BODY_MAX);
    idle.close_when_idle();
    assert_eq!(idle.poll(), [Event::Closed]);
}

#[test]
fn mutated_requests_never_panic() {
    let corpus: [&[u8]; 5] = [
        b"GET /x?y=z HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n\
          GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /x HTTP/1.0\r\n\r\n",
        b"PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
          3;a=b\r\nabc\r\n0\r\nT: v\r\n\r\n",
        b"HEAD /chunks HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
        b"GET http://h:1/short HTTP/1.1\r\nHost: a\r\n\r\nGET /abort HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    let mut rng = Rng(1);
    let (mut refusals, mut answers) = (0, 0);
    for round in 0..20_000 {
        let input = rng.mutate(corpus[round % corpus.len()]);
        let step = 1 + rng.below(input.len().max(1));
        let (whole, log) = converse(&input, usize::MAX, true);
        let (pieces, _) = converse(&input, step, true);
        // A client that waits for 100 and one that does not may differ in that line only.
        let plain = |s: &str| s.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
        assert_eq!(
            plain(&whole),
            plain(&pieces),
            "{:?} by {step}",
            String::from_utf8_lossy(&input)
        );
        refusals += log.iter().filter(|l| l.starts_with("Refused")).count();
        answers += log.iter().filter(|l| l.starts_with("GET") || l.starts_with("PUT")).count();
    }
    assert!(refusals > 1000 && answers > 1000, "{refusals} refusals, {answers} answers");
}
