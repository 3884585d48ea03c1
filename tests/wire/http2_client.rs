//! The HTTP/2 client against an h2 server in memory: answers of every kind, cut wherever they can be, GOAWAY, windows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use steplet_wire::http2::client::{Event, Http2Client};

use crate::memory::{PeerSide, Rng, Wires};

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Server {
    accepting: Option<Task>,
    handlers: Rc<RefCell<Vec<Task>>>,
    wires: Rc<RefCell<Wires>>,
}

impl Server {
    fn new() -> Server {
        let wires = Rc::new(RefCell::new(Wires::default()));
        let handlers = Rc::new(RefCell::new(Vec::new()));
        let (io, tasks) = (PeerSide(wires.clone()), handlers.clone());
        let accepting = async move {
            let mut connection = h2::server::handshake(io).await.expect("a client preface");
            while let Some(accepted) = connection.accept().await {
                let Ok((request, respond)) = accepted else { return };
                if request.uri().path() == "/goaway" {
                    connection.graceful_shutdown();
                }
                let task: Task = Box::pin(async move {
                    let _ = answer(request, respond).await;
                });
                tasks.borrow_mut().push(task);
            }
        };
        Server { accepting: Some(Box::pin(accepting)), handlers, wires }
    }

    fn poll(&mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..4 {
            let ended = |task: &mut Task| task.as_mut().poll(cx).is_ready();
            if self.accepting.as_mut().is_some_and(ended) {
                self.accepting = None;
            }
            let mut tasks = std::mem::take(&mut *self.handlers.borrow_mut());
            tasks.retain_mut(|task| task.as_mut().poll(cx).is_pending());
            self.handlers.borrow_mut().append(&mut tasks);
        }
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    assert_eq!(request.uri().scheme_str(), Some("https"));
    assert_eq!(request.uri().authority().map(|a| a.as_str()), Some("api:6443"));
    let (head, mut body) = request.into_parts();
    let mut asked = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        asked.extend_from_slice(&data);
    }
    let build = Response::builder();
    match head.uri.path() {
        "/empty" => {
            let busy = build.status(429).header("retry-after", "7");
            return respond.send_response(busy.body(()).expect("valid"), true).map(drop);
        }
        "/reset" | "/refused" => {
            let refused = head.uri.path() == "/refused";
            let why = if refused { Reason::REFUSED_STREAM } else { Reason::INTERNAL_ERROR };
            respond.send_reset(why);
            return Ok(());
        }
        "/hang" => return std::future::pending().await,
        _ => {}
    }
    let gzip = head.uri.path() == "/gzip";
    let build = if gzip { build.header("content-encoding", "gzip") } else { build };
    let mut stream = respond.send_response(build.body(()).expect("valid"), false)?;
    let mut body: Bytes = match head.uri.path() {
        "/echo" => format!("{} {:?} ", head.method, head.headers["accept"]).into(),
        "/big" => vec![b'x'; 1_000_000].into(),
        _ => Bytes::from_static(b"body"),
    };
    if head.uri.path() == "/echo" {
        body = [&body[..], &asked].concat().into();
    }
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let room = room.unwrap_or(Ok(0))?;
        if room == 0 {
            return Ok(());
        }
        stream.send_data(body.split_to(room.min(body.len())), false)?;
    }
    match head.uri.path() {
        "/late" => {
            stream.send_reset(Reason::INTERNAL_ERROR);
            Ok(())
        }
        _ => stream.send_data(Bytes::new(), true),
    }
}

/// Moves bytes until nobody has any; the server's are cut at `cut`, and moved `step` at once.
fn run(client: &mut Http2Client, server: &mut Server, cut: usize, step: usize) -> Vec<Event> {
    let mut events = client.poll();
    let mut fed = 0;
    loop {
        let there = client.output().to_vec();
        client.consume_output(there.len());
        server.wires.borrow_mut().to_peer.extend_from_slice(&there);
        server.poll();
        let back = {
            let bytes = &mut server.wires.borrow_mut().from_peer;
            let mut n = bytes.len().min(step);
            if fed < cut {
                n = n.min(cut - fed);
            }
            bytes.split_to(n)
        };
        fed += back.len();
        client.feed(&back);
        events.extend(client.poll());
        if there.is_empty() && back.is_empty() {
            return events;
        }
    }
}

/// By request: `status body`, and how it ended.
fn told(events: Vec<Event>) -> BTreeMap<u64, String> {
    let mut all = BTreeMap::<u64, String>::new();
    for event in events {
        let (id, text) = match event {
            Event::Head { id, head } => {
                let more = head.retry_after_seconds.map(|s| format!(" after {s}"));
                let more = more.or(head.encoding.map(|e| format!(" in {e}")));
                (id, format!("{}{} ", head.status, more.unwrap_or_default()))
            }
            Event::Data { id, data } if data.len() > 1000 => (id, "+".into()),
            Event::Data { id, data } => (id, String::from_utf8_lossy(&data).into_owned()),
            Event::Done { id } => (id, "|".into()),
            Event::Failed { id, untouched, .. } => (id, format!("!{untouched}")),
            Event::Closed(_) => (0, "closed".into()),
        };
        all.entry(id).or_default().push_str(&text);
    }
    all
}

const ACCEPT: &[(&str, &str)] = &[("accept", "application/json")];

fn ask(client: &mut Http2Client, id: u64, method: &str, path: &str, body: &'static str) {
    client.request(id, method, path, ACCEPT, Bytes::from_static(body.as_bytes()));
}

#[test]
fn every_kind_of_answer_at_every_cut() {
    let table: &[(u64, &str, &str, &str, &str)] = &[
        (1, "GET", "/echo", "", "200 GET \"application/json\" |"),
        (2, "PATCH", "/echo?a=b", "{}", "200 PATCH \"application/json\" {}|"),
        (3, "GET", "/empty", "", "429 after 7 |"),
        (4, "GET", "/gzip", "", "200 in gzip body|"),
        (5, "DELETE", "/reset", "", "!false"),
        (6, "GET", "/refused", "", "!true"),
        (7, "GET", "/late", "", "200 body!false"),
    ];
    let whole = |cut: usize, step: usize| {
        let (mut server, mut client) = (Server::new(), Http2Client::new("api:6443"));
        for (id, method, path, body, _) in table {
            ask(&mut client, *id, method, path, body);
        }
        let seen = told(run(&mut client, &mut server, cut, step));
        for (id, _, path, _, want) in table {
            // A reset may overtake what was sent before it.
            let late = *path == "/late" && seen[id].ends_with("!false");
            assert!(seen[id] == *want || late, "{path} cut at {cut}: {}", seen[id]);
        }
        assert_eq!((seen.len(), client.open_requests()), (table.len(), 0));
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
fn a_big_answer_passes_beside_one_that_hangs() {
    let (mut server, mut client) = (Server::new(), Http2Client::new("api:6443"));
    ask(&mut client, 1, "GET", "/hang", "");
    ask(&mut client, 2, "GET", "/big", "");
    let mut size = 0;
    for event in run(&mut client, &mut server, 0, 16 * 1024) {
        match event {
            Event::Data { id: 2, data } => size += data.len(),
            Event::Head { id: 2, .. } | Event::Done { id: 2 } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((size, client.open_requests()), (1_000_000, 1));
    client.cancel(1);
    assert_eq!(run(&mut client, &mut server, 0, 1000), []);
    assert_eq!(client.open_requests(), 0);
}

#[test]
fn a_leaving_server_ends_what_it_has_begun_and_takes_nothing_new() {
    let (mut server, mut client) = (Server::new(), Http2Client::new("api:6443"));
    ask(&mut client, 1, "GET", "/hang", "");
    ask(&mut client, 2, "GET", "/goaway", "");
    let seen = told(run(&mut client, &mut server, 0, 100));
    assert_eq!(seen, BTreeMap::from([(2, "200 body|".to_owned())]));
    assert!(!client.accepts_requests());
    ask(&mut client, 3, "GET", "/echo", "");
    assert_eq!(told(run(&mut client, &mut server, 0, 100))[&3], "!true");
    client.feed_eof();
    let seen = told(client.poll());
    assert_eq!((seen[&1].as_str(), seen[&0].as_str()), ("!false", "closed"));
    ask(&mut client, 4, "GET", "/echo", "");
    assert_eq!(told(client.poll())[&4], "!true");
}

#[test]
fn hostile_bytes_end_the_connection_and_nothing_else() {
    let mut sent = Server::new();
    let mut client = Http2Client::new("api:6443");
    ask(&mut client, 1, "GET", "/echo", "");
    ask(&mut client, 2, "GET", "/big", "");
    run(&mut client, &mut sent, 0, usize::MAX);
    let sent = sent.wires.borrow().sent[..2000].to_vec();
    let mut rng = Rng(7);
    for _ in 0..2000 {
        let mut client = Http2Client::new("api:6443");
        ask(&mut client, 1, "GET", "/echo", "");
        ask(&mut client, 2, "GET", "/big", "");
        let mut events = client.poll();
        for piece in rng.mutate(&sent).chunks(1 + rng.below(500)) {
            let n = client.output().len();
            client.consume_output(n);
            client.feed(piece);
            events.extend(client.poll());
        }
        client.feed_eof();
        events.extend(client.poll());
        let ends = events.iter().filter(|event| {
            matches!(event, Event::Done { .. } | Event::Failed { .. } | Event::Closed(_))
        });
        assert_eq!(ends.count(), 3);
    }
}
